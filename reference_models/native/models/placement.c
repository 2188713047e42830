// SPDX-License-Identifier: Apache-2.0
// The planner of dlrm-sharded, largest table first. Reads nothing; one thread.
#include "reference_models/native/models/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "common/containers/sort.h"

#define PLACEMENT_COLUMNS_LEAST 4
#define PLACEMENT_VALUE_BYTES 8 // a float32 and its Adagrad sum, whatever the type
#define PLACEMENT_MARGIN 1.25
#define PLACEMENT_DIM_MAX 4096

struct placing {
    const uint32_t *rows; // of each table
    uint32_t dim, ranks;
    int64_t budget, left[PLACEMENT_RANKS_MAX];
    struct placement *plan;
};

static int64_t placement_bytes(uint32_t rows, uint32_t columns)
{
    return (int64_t)rows * columns * PLACEMENT_VALUE_BYTES;
}

static int64_t placement_need(const uint32_t *rows, size_t tables, size_t dim)
{
    int64_t need = 0;
    for (size_t t = 0; t < tables; t++)
        need += placement_bytes(rows[t], (uint32_t)dim);
    return need;
}

// The first of those that have most.
static uint32_t placement_emptiest(const int64_t *left, uint32_t ranks)
{
    uint32_t best = 0;
    for (uint32_t rank = 1; rank < ranks; rank++)
        if (left[rank] > left[best])
            best = rank;
    return best;
}

// Where part k of `parts` begins; they differ by 1 at most.
static uint32_t placement_edge(uint32_t length, uint32_t k, uint32_t parts)
{
    return (uint32_t)((uint64_t)length * k / parts);
}

// Takes the memory of a piece, and is false when the rank has not so much.
static bool placement_put(struct placement *plan, int64_t *left, struct placement_piece piece)
{
    plan->piece[plan->pieces++] = piece;
    left[piece.rank] -= placement_bytes(piece.rows, piece.columns);
    return left[piece.rank] >= 0;
}

// In as few pieces as fit. False, with nothing changed: none do.
static bool placement_by_columns(struct placing *placing, uint32_t table)
{
    size_t before = placing->plan->pieces;
    uint32_t most = placing->dim / PLACEMENT_COLUMNS_LEAST;
    most = most < placing->ranks ? most : placing->ranks;
    for (uint32_t parts = 2; parts <= most; parts++) {
        int64_t left[PLACEMENT_RANKS_MAX];
        bool fits = true;
        memcpy(left, placing->left, sizeof left);
        for (uint32_t k = 0; k < parts; k++) {
            uint32_t column = placement_edge(placing->dim, k, parts);
            fits &= placement_put(placing->plan, left,
                    (struct placement_piece){.table = table,
                            .rank = placement_emptiest(left, placing->ranks),
                            .kind = PLACEMENT_COLUMN,
                            .rows = placing->rows[table],
                            .column = column,
                            .columns = placement_edge(placing->dim, k + 1, parts) - column});
        }
        if (fits) {
            memcpy(placing->left, left, sizeof left);
            return true;
        }
        placing->plan->pieces = before;
    }
    return false;
}

// A piece for each rank that gets a row.
static bool placement_by_rows(struct placing *placing, uint32_t table)
{
    bool fits = true;
    for (uint32_t rank = 0; rank < placing->ranks; rank++) {
        uint32_t row = placement_edge(placing->rows[table], rank, placing->ranks);
        uint32_t rows = placement_edge(placing->rows[table], rank + 1, placing->ranks) - row;
        if (rows > 0)
            fits &= placement_put(placing->plan, placing->left,
                    (struct placement_piece){.table = table,
                            .rank = rank,
                            .kind = PLACEMENT_ROW,
                            .row = row,
                            .rows = rows,
                            .columns = placing->dim});
    }
    return fits;
}

static bool placement_table(struct placing *placing, uint32_t table)
{
    uint32_t rows = placing->rows[table], rank = placement_emptiest(placing->left, placing->ranks);
    int64_t bytes = placement_bytes(rows, placing->dim);
    if (bytes <= placing->left[rank])
        return placement_put(placing->plan, placing->left,
                (struct placement_piece){.table = table,
                        .rank = rank,
                        .kind = PLACEMENT_TABLE,
                        .rows = rows,
                        .columns = placing->dim});
    return (bytes <= placing->budget && placement_by_columns(placing, table)) ||
            placement_by_rows(placing, table);
}

uint64_t placement_budget(const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks)
{
    uint64_t sum = 0;
    for (size_t t = 0; t < tables; t++)
        sum += rows[t];
    // Rounded where torch/dlrm-sharded.py rounds.
    return (uint64_t)(PLACEMENT_MARGIN * (double)sum * (double)dim * PLACEMENT_VALUE_BYTES /
            (double)ranks);
}

static int placement_refuse(
        const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks, struct error *err)
{
    if (tables < 1 || tables > PLACEMENT_TABLES_MAX)
        return error_set(err, -EINVAL, "%zu tables cannot be placed: 1 to %d can", tables,
                PLACEMENT_TABLES_MAX);
    if (dim < 1 || dim > PLACEMENT_DIM_MAX)
        return error_set(err, -EINVAL, "rows of %zu values cannot be placed: 1 to %d can", dim,
                PLACEMENT_DIM_MAX);
    if (ranks < 1 || ranks > PLACEMENT_RANKS_MAX)
        return error_set(err, -EINVAL, "tables cannot be placed on %" PRIu32 " ranks: on 1 to %d",
                ranks, PLACEMENT_RANKS_MAX);
    for (size_t t = 0; t < tables; t++)
        if (rows[t] < 1)
            return error_set(err, -EINVAL, "table %zu has no rows", t);
    return 0;
}

int placement_plan(const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks, uint64_t budget,
        struct placement *ret, struct error *err)
{
    uint32_t order[PLACEMENT_TABLES_MAX] = {0};
    int rc = placement_refuse(rows, tables, dim, ranks, err);
    if (rc)
        return rc;
    int64_t need = placement_need(rows, tables, dim);
    // What is more than all tables need changes no decision, and might not be a number any more
    // when it is multiplied.
    struct placing placing = {.rows = rows,
            .dim = (uint32_t)dim,
            .ranks = ranks,
            .budget = budget < (uint64_t)need ? (int64_t)budget : need,
            .plan = ret};
    if (need > (int64_t)ranks * placing.budget)
        return error_set(err, -EINVAL,
                "the tables take %" PRId64 " bytes with their optimizer state, %" PRIu32
                " ranks have %" PRIu64 " each",
                need, ranks, budget);
    for (uint32_t rank = 0; rank < ranks; rank++)
        placing.left[rank] = placing.budget;
    for (uint32_t t = 0; t < tables; t++)
        order[t] = t;
    sort_in_place(order, tables, x, y, rows[*x] > rows[*y] || (rows[*x] == rows[*y] && *x < *y));
    ret->pieces = 0;
    for (size_t t = 0; t < tables; t++)
        if (!placement_table(&placing, order[t]))
            return error_set(err, -EINVAL, "no rank has room for its rows of a table of %" PRIu32,
                    rows[order[t]]);
    sort_in_place(ret->piece, ret->pieces, x, y,
            x->table < y->table ||
                    (x->table == y->table &&
                            (x->row < y->row || (x->row == y->row && x->column < y->column))));
    return 0;
}
