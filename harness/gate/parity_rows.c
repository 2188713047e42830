// SPDX-License-Identifier: Apache-2.0
// Reads tables tensor and loss. Judges nothing.
#include "harness/gate/parity_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

int tensor_names_load(struct store *store, int64_t workload_id, char ***ret_names, int *ret_count,
                      struct error *err)
{
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT DISTINCT t.name FROM pair p JOIN launch l ON l.pair_id = p.id JOIN tensor t ON "
        "t.launch_id = l.id "
        "WHERE p.workload_id = ? AND p.phase = 'main' AND p.state = 'valid' ORDER BY t.name",
        "i", workload_id);
    if (!stmt)
        return -EIO;
    char **names = NULL;
    int count = 0, rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        names = xrealloc(names, (size_t)(count + 1) * sizeof *names);
        names[count++] = xstrdup((const char *)sqlite3_column_text(stmt, 0));
    }
    if (rc < 0) {
        for (int i = 0; i < count; i++)
            free(names[i]);
        free(names);
        return rc;
    }
    *ret_names = names;
    *ret_count = count;
    return 0;
}

int tensor_rows_load(struct store *store, const struct tensor_query *query,
                     struct tensor_rows *ret_rows, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT p.id, p.seed, t.rank, t.step, t.dtype, t.count, t.digest, t.data FROM pair p "
        "JOIN launch l ON l.pair_id = p.id JOIN tensor t ON t.launch_id = l.id "
        "WHERE p.workload_id = ?1 AND p.phase = ?2 AND p.state = 'valid' AND l.side = ?3 AND "
        "t.name = ?4 "
        "AND (p.id = ?5 OR ?5 < 0) ORDER BY p.id, t.rank, t.step",
        "isisi", query->workload_id, query->phase, (int64_t)query->side, query->name,
        query->pair_id);
    if (!stmt)
        return -EIO;
    struct tensor_rows rows = {0};
    int capacity = 0, rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        if (rows.count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            rows.items = xrealloc(rows.items, (size_t)capacity * sizeof *rows.items);
        }
        struct tensor_row *row = &rows.items[rows.count++];
        *row = (struct tensor_row){.pair_id = sqlite3_column_int64(stmt, 0),
                                   .seed = sqlite3_column_int64(stmt, 1),
                                   .rank = sqlite3_column_int64(stmt, 2),
                                   .step = sqlite3_column_int64(stmt, 3),
                                   .dtype =
                                       dtype_from_name((const char *)sqlite3_column_text(stmt, 4)),
                                   .count = (size_t)sqlite3_column_int64(stmt, 5)};
        snprintf(row->digest, sizeof row->digest, "%s", sqlite3_column_text(stmt, 6));
        if (row->dtype == DTYPE_COUNT)
            continue;
        row->stored = (size_t)sqlite3_column_bytes(stmt, 7) / dtype_bytes(row->dtype);
        row->stored = row->stored < row->count ? row->stored : row->count;
        row->values = xcalloc(row->stored, sizeof *row->values);
        dtype_decode(row->dtype, sqlite3_column_blob(stmt, 7), row->stored, row->values);
    }
    if (rc < 0) {
        tensor_rows_clear(&rows);
        return rc;
    }
    *ret_rows = rows;
    return 0;
}

const struct tensor_row *tensor_rows_find(const struct tensor_rows *rows, int64_t seed,
                                          int64_t rank, int64_t step)
{
    for (int i = 0; i < rows->count; i++)
        if (rows->items[i].seed == seed && rows->items[i].rank == rank &&
            rows->items[i].step == step)
            return &rows->items[i];
    return NULL;
}

void tensor_rows_clear(struct tensor_rows *rows)
{
    for (int i = 0; i < rows->count; i++)
        free(rows->items[i].values);
    free(rows->items);
    *rows = (struct tensor_rows){0};
}

// --- losses ----------------------------------------------------------------------------------

struct loss_curve {
    int64_t pair_id;
    double *sides[2];
    int counts[2];
};
struct loss_curves {
    struct loss_curve *items;
    int count;
};

static void loss_curves_clear(struct loss_curves *curves)
{
    for (int i = 0; i < curves->count; i++) {
        free(curves->items[i].sides[0]);
        free(curves->items[i].sides[1]);
    }
    free(curves->items);
}

static int loss_curves_load(struct store *store, int64_t workload_id, struct loss_curves *curves,
                            struct error *err)
{
    sqlite3_stmt *stmt =
        store_query(store, err,
                    "SELECT p.id, l.side, o.bits FROM pair p JOIN launch l ON l.pair_id = p.id "
                    "JOIN loss o ON o.launch_id = l.id WHERE p.workload_id = ? AND p.phase = "
                    "'main' AND p.state = 'valid' "
                    "AND o.rank = (SELECT min(rank) FROM loss WHERE launch_id = l.id) ORDER BY "
                    "p.id, l.side, o.step",
                    "i", workload_id);
    if (!stmt)
        return -EIO;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t pair_id = sqlite3_column_int64(stmt, 0);
        int side = sqlite3_column_int(stmt, 1) != 0;
        if (!curves->count || curves->items[curves->count - 1].pair_id != pair_id) {
            curves->items =
                xrealloc(curves->items, (size_t)(curves->count + 1) * sizeof *curves->items);
            curves->items[curves->count++] = (struct loss_curve){.pair_id = pair_id};
        }
        struct loss_curve *curve = &curves->items[curves->count - 1];
        int at = curve->counts[side]++;
        if ((at & (at - 1)) == 0) // at every power of two the room doubles
            curve->sides[side] =
                xrealloc(curve->sides[side], (size_t)(at ? 2 * at : 1) * sizeof(double));
        // The raw bits: SQLite would have made NULL of a NaN.
        if (sqlite3_column_bytes(stmt, 2) == (int)sizeof(double))
            memcpy(&curve->sides[side][at], sqlite3_column_blob(stmt, 2), sizeof(double));
        else
            curve->counts[side]--;
    }
    return rc;
}

int loss_rows_load(struct store *store, int64_t workload_id, struct loss_rows *ret_rows,
                   struct error *err)
{
    struct loss_curves curves = {0};
    struct loss_rows rows = {0};
    int rc = loss_curves_load(store, workload_id, &curves, err);
    for (int i = 0; i < curves.count && rc == 0; i++) {
        const struct loss_curve *curve = &curves.items[i];
        int common = curve->counts[0] < curve->counts[1] ? curve->counts[0] : curve->counts[1];
        rows.only_a += curve->counts[0] && !curve->counts[1];
        rows.only_b += curve->counts[1] && !curve->counts[0];
        if (!common)
            continue;
        rows.step_count = rows.seed_count++ && rows.step_count < common ? rows.step_count : common;
    }
    size_t steps = (size_t)rows.step_count, filled = 0;
    rows.a = xcalloc((size_t)rows.seed_count * steps, sizeof *rows.a);
    rows.b = xcalloc((size_t)rows.seed_count * steps, sizeof *rows.b);
    for (int i = 0; i < curves.count && rc == 0; i++) {
        const struct loss_curve *curve = &curves.items[i];
        if (!curve->counts[0] || !curve->counts[1])
            continue;
        memcpy(rows.a + filled * steps, curve->sides[0], steps * sizeof(double));
        memcpy(rows.b + filled * steps, curve->sides[1], steps * sizeof(double));
        filled++;
    }
    loss_curves_clear(&curves);
    if (rc) {
        loss_rows_clear(&rows);
        return rc;
    }
    *ret_rows = rows;
    return 0;
}

void loss_rows_clear(struct loss_rows *rows)
{
    free(rows->a);
    free(rows->b);
    *rows = (struct loss_rows){0};
}
