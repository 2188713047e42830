// SPDX-License-Identifier: Apache-2.0
// Where tables go: whole, by columns, by rows, and what cannot be placed. That the decisions are
// PyTorch's is tests/e2e/placement.py.
#include <errno.h>

#include "reference_models/native/models/placement.h"
#include "runner.h"

static const uint32_t small[] = {800, 100, 20}; // 58,880 bytes in rows of 8
enum { TABLES = 3, DIM = 8 };

static void check_piece(const struct placement *plan, size_t i, const struct placement_piece *want)
{
    const struct placement_piece *got = &plan->piece[i];
    CHECK_INT(got->table, want->table);
    CHECK_INT(got->kind, want->kind);
    CHECK_INT(got->rank, want->rank);
    CHECK_INT(got->row, want->row);
    CHECK_INT(got->rows, want->rows);
    CHECK_INT(got->column, want->column);
    CHECK_INT(got->columns, want->columns);
}

TEST(whole_where_there_is_room)
{
    static const struct placement_piece want[] = {
            {.table = 0, .rank = 0, .rows = 800, .columns = DIM},
            {.table = 1, .rank = 1, .rows = 100, .columns = DIM},
            {.table = 2, .rank = 1, .rows = 20, .columns = DIM}};
    // more than all need changes nothing
    static const uint64_t budgets[] = {58880, 80000, UINT64_MAX};
    struct placement plan;
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        CHECK_INT(placement_plan(small, TABLES, DIM, 2, budgets[b], &plan, NULL), 0);
        CHECK_INT(plan.pieces, 3);
        for (size_t i = 0; i < 3; i++)
            check_piece(&plan, i, &want[i]);
    }
}

// The largest is larger than all a rank has; the next fits an empty rank and not what is left.
TEST(by_rows_and_by_columns)
{
    static const struct placement_piece want[] = {
            {.table = 0, .kind = PLACEMENT_ROW, .rank = 0, .rows = 400, .columns = 8},
            {.table = 0, .kind = PLACEMENT_ROW, .rank = 1, .row = 400, .rows = 400, .columns = 8},
            {.table = 1, .kind = PLACEMENT_COLUMN, .rank = 0, .rows = 100, .columns = 4},
            {.table = 1,
                    .kind = PLACEMENT_COLUMN,
                    .rank = 1,
                    .rows = 100,
                    .column = 4,
                    .columns = 4},
            {.table = 2, .rank = 0, .rows = 20, .columns = 8}};
    struct placement plan;
    CHECK_INT(placement_plan(small, TABLES, DIM, 2, 31000, &plan, NULL), 0);
    CHECK_INT(plan.pieces, 5);
    for (size_t i = 0; i < 5; i++)
        check_piece(&plan, i, &want[i]);
    // both others fit whole
    CHECK_INT(placement_plan(small, TABLES, DIM, 2, 36800, &plan, NULL), 0);
    CHECK_INT(plan.pieces, 4);
    CHECK(plan.piece[1].kind == PLACEMENT_ROW && plan.piece[2].kind == PLACEMENT_TABLE &&
            plan.piece[3].kind == PLACEMENT_TABLE);
}

// Every value of every table is in one piece, and no rank has more than its budget.
TEST(a_plan_is_a_partition)
{
    for (uint32_t ranks = 1; ranks <= PLACEMENT_RANKS_MAX; ranks++) {
        uint64_t used[PLACEMENT_RANKS_MAX] = {0}, values[TABLES] = {0},
                 budget = placement_budget(small, TABLES, DIM, ranks);
        struct placement plan;
        if (placement_plan(small, TABLES, DIM, ranks, budget, &plan, NULL))
            continue; // what PyTorch's planner says, too: tests/e2e/placement.py
        for (size_t i = 0; i < plan.pieces; i++) {
            const struct placement_piece *piece = &plan.piece[i];
            CHECK(piece->rank < ranks && piece->row + piece->rows <= small[piece->table] &&
                    piece->column + piece->columns <= DIM);
            used[piece->rank] += (uint64_t)piece->rows * piece->columns * 8;
            values[piece->table] += (uint64_t)piece->rows * piece->columns;
        }
        for (uint32_t rank = 0; rank < ranks; rank++)
            CHECK(used[rank] <= budget);
        for (size_t t = 0; t < TABLES; t++)
            CHECK_INT(values[t], small[t] * DIM);
    }
    CHECK_INT(placement_budget(small, TABLES, DIM, 2), 36800);
}

static void check_refused(const uint32_t *rows, size_t tables, size_t dim, uint32_t ranks,
        uint64_t budget, const char *words)
{
    struct placement plan;
    struct error err = {0};
    CHECK_INT(placement_plan(rows, tables, dim, ranks, budget, &plan, &err), -EINVAL);
    CHECK_CONTAINS(err.text, words);
}

TEST(refused)
{
    static const uint32_t three[] = {3}, none[] = {5, 0};
    check_refused(small, TABLES, DIM, 2, 1000,
            "the tables take 58880 bytes with their optimizer state, 2 ranks have 1000 each");
    check_refused(small, TABLES, DIM, 2, 29439, "2 ranks have 29439 each");
    // 2 rows take 128
    check_refused(three, 1, DIM, 2, 96, "no rank has room for its rows of a table of 3");
    check_refused(none, 2, DIM, 2, 1000, "table 1 has no rows");
    check_refused(small, 0, DIM, 2, 1000, "0 tables cannot be placed");
    check_refused(small, TABLES, 0, 2, 1000, "rows of 0 values");
    check_refused(small, TABLES, DIM, 0, 1000, "on 0 ranks");
    check_refused(small, TABLES, DIM, 65, 1000, "on 65 ranks: on 1 to 64");
}
