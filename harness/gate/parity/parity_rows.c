// SPDX-License-Identifier: Apache-2.0
// Reads tables tensor and loss. Judges nothing.
#include "harness/gate/parity/parity_rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

// What a disturbed machine did to the times of a void pair, it did not do to its numbers.
#define JUDGED "p.phase IN ('main', 'confirm') AND p.state IN ('valid', 'void')"

int tensor_names_load(struct store *store, int64_t workload_id, char ***ret_names, int *ret_count,
        struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT DISTINCT t.name FROM pair p JOIN launch l ON l.pair_id = p.id "
            "JOIN tensor t ON t.launch_id = l.id WHERE p.workload_id = ? AND " JUDGED
            " ORDER BY t.name",
            "i", workload_id);
    if (!stmt)
        return -EIO;
    char **names = NULL;
    int count = 0, rc;
    while ((rc = store_step(store, stmt, err)) == 1)
        vector_push(names, count, xstrdup(store_text(store, stmt, 0)));
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

static void tensor_row_read(struct store *store, sqlite3_stmt *stmt, struct tensor_row *row)
{
    *row = (struct tensor_row){.seed = sqlite3_column_int64(stmt, 0),
            .rank = sqlite3_column_int64(stmt, 1),
            .step = sqlite3_column_int64(stmt, 2),
            .dtype = dtype_from_name(store_text(store, stmt, 3)),
            .count = (size_t)sqlite3_column_int64(stmt, 4)};
    snprintf(row->digest, sizeof row->digest, "%s", store_text(store, stmt, 5));
    if (row->dtype == DTYPE_COUNT)
        return;
    size_t width = dtype_bytes(row->dtype);
    row->stored = (size_t)sqlite3_column_bytes(stmt, 6) / width;
    row->stored = row->stored < row->count ? row->stored : row->count;
    row->bytes = xcalloc(row->stored + 1, width);
    if (row->stored)
        memcpy(row->bytes, sqlite3_column_blob(stmt, 6), row->stored * width);
    if (sqlite3_column_bytes(stmt, 7) == SKETCH_SUMS * (int)sizeof(double) &&
            row->count > SKETCH_SUMS) {
        row->sketch = xcalloc(SKETCH_SUMS, sizeof *row->sketch);
        memcpy(row->sketch, sqlite3_column_blob(stmt, 7), SKETCH_SUMS * sizeof(double));
    }
}

int tensor_rows_load(struct store *store, const struct tensor_query *query,
        struct tensor_rows *ret_rows, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT p.seed, t.rank, t.step, t.dtype, t.count, t.digest, t.data, t.sketch FROM pair p "
            "JOIN launch l ON l.pair_id = p.id JOIN tensor t ON t.launch_id = l.id "
            "WHERE p.workload_id = ?1 AND l.side = ?3 AND t.name = ?4 AND CASE WHEN ?5 < 0 "
            "THEN p.phase = ?2 AND p.state = 'valid' ELSE p.id = ?5 END ORDER BY p.id, t.rank, t.step",
            "isisi", query->workload_id, query->phase, (int64_t)query->side, query->name,
            query->pair_id);
    if (!stmt)
        return -EIO;
    struct tensor_rows rows = {0};
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct tensor_row *row = vector_add(rows.items, rows.count);
        tensor_row_read(store, stmt, row);
    }
    if (rc < 0) {
        tensor_rows_clear(&rows);
        return rc;
    }
    *ret_rows = rows;
    return 0;
}

const struct tensor_row *tensor_rows_find(
        const struct tensor_rows *rows, int64_t seed, int64_t rank, int64_t step, int *at)
{
    for (int i = at ? *at : 0; i < rows->count; i++) {
        const struct tensor_row *row = &rows->items[i];
        if (row->seed != seed || row->rank != rank || row->step != step)
            continue;
        if (at)
            *at = i + 1;
        return row;
    }
    return NULL;
}

void tensor_rows_clear(struct tensor_rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        free(rows->items[i].bytes);
        free(rows->items[i].sketch);
    }
    free(rows->items);
    *rows = (struct tensor_rows){0};
}

// --- losses --------------------------------------------------------------------------------------

static struct loss_launch *loss_launches_push(
        struct loss_launches *launches, int64_t pair_id, int64_t seed, bool dropped)
{
    struct loss_launch *launch = vector_add(launches->items, launches->count);
    *launch = (struct loss_launch){
            .pair_id = pair_id, .seed = seed, .dropped = dropped, .broken_step = -1};
    return launch;
}

// Rows come step by step, the ranks of a step behind one another: each moves the mean.
struct loss_cursor {
    int64_t step;
    int ranks;
};

static void loss_launch_add(
        struct loss_launch *launch, struct loss_cursor *cursor, int64_t step, double value)
{
    if (!isfinite(value) && launch->broken_step < 0)
        launch->broken_step = step;
    if (launch->steps && cursor->step == step) {
        double *mean = &launch->values[launch->steps - 1];
        *mean += (value - *mean) / ++cursor->ranks;
        return;
    }
    *cursor = (struct loss_cursor){step, 1};
    launch->idx = vector_room(launch->idx, (size_t)launch->steps, sizeof *launch->idx);
    launch->idx[launch->steps] = step;
    vector_push(launch->values, launch->steps, value);
}

int loss_launches_load(struct store *store, int64_t workload_id, bool pilot, int side,
        struct loss_launches *ret_launches, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            pilot ? "SELECT p.id, p.seed, coalesce(l.dropped, 0), o.step, o.bits FROM pair p "
                    "JOIN launch l ON l.pair_id = p.id JOIN loss o ON o.launch_id = l.id "
                    "WHERE p.workload_id = ? AND l.side = ? AND p.phase = 'pilot' AND "
                    "p.state = 'valid' ORDER BY p.id, o.step, o.rank"
                  : "SELECT p.id, p.seed, coalesce(l.dropped, 0), o.step, o.bits FROM pair p "
                    "JOIN launch l ON l.pair_id = p.id JOIN loss o ON o.launch_id = l.id "
                    "WHERE p.workload_id = ? AND l.side = ? AND " JUDGED
                    " ORDER BY p.id, o.step, o.rank",
            "ii", workload_id, (int64_t)side);
    if (!stmt)
        return -EIO;
    struct loss_launches launches = {0};
    struct loss_cursor cursor = {0};
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t pair_id = sqlite3_column_int64(stmt, 0);
        struct loss_launch *launch = launches.count ? &launches.items[launches.count - 1] : NULL;
        if (!launch || launch->pair_id != pair_id)
            launch = loss_launches_push(&launches, pair_id, sqlite3_column_int64(stmt, 1),
                    sqlite3_column_int64(stmt, 2) > 0);
        double value = NAN; // the raw bits: SQLite would have made NULL of a NaN
        if (sqlite3_column_bytes(stmt, 4) == (int)sizeof value)
            memcpy(&value, sqlite3_column_blob(stmt, 4), sizeof value);
        loss_launch_add(launch, &cursor, sqlite3_column_int64(stmt, 3), value);
    }
    if (rc < 0) {
        loss_launches_clear(&launches);
        return rc;
    }
    *ret_launches = launches;
    return 0;
}

const struct loss_launch *loss_launches_find(const struct loss_launches *launches, int64_t pair_id)
{
    for (int i = 0; i < launches->count; i++)
        if (launches->items[i].pair_id == pair_id)
            return &launches->items[i];
    return NULL;
}

void loss_launches_clear(struct loss_launches *launches)
{
    for (int i = 0; i < launches->count; i++) {
        free(launches->items[i].values);
        free(launches->items[i].idx);
    }
    free(launches->items);
    *launches = (struct loss_launches){0};
}
