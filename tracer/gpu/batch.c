// SPDX-License-Identifier: Apache-2.0
// Rows of integers into the store through eponymous virtual tables, one a target table. Measured in
// ci/bench/store_load.
#include "tracer/gpu/batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/gpu/image.h"
#include "tracer/store/ranges.h"

enum {
    BATCH_VALUES = 1 << (15 - GPU_SHRINK / 2), // of 8 bytes: 256 KiB stay in the second cache
    BATCH_IMAGE_ROWS = 1 << (14 - GPU_SHRINK), // 0.8 MiB, and as much again for the image
};

static const struct {
    const char *table, *columns;
    int count;
    bool image; // the many
    // clang-format off
} batch_tables[BATCH_TABLE_COUNT] = {
    [BATCH_OP] = {"gpu_op", "start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation", 6, true},
    [BATCH_WORK] = {"gpu_work", "id, kind, stream_id, kernel_id, call_name_id, thread_id, bytes, memory, graph, graph_node",
                    10, false},
    [BATCH_CALL] = {"gpu_call", "start_ns, dur_ns, process_id, thread_id, name_id, correlation, result", 7, true},
    [BATCH_SYNC] = {"gpu_sync", "start_ns, dur_ns, process_id, kind, stream_id, thread_id, correlation, event, event_sync", 9, false},
    [BATCH_MEMORY] = {"gpu_memory",
                      "at_ns, process_id, operation, kind, device, address, bytes, stream_id, pool, pool_used_bytes, "
                      "pool_bytes, correlation", 12, false},
    [BATCH_OVERHEAD] = {"gpu_overhead", "start_ns, dur_ns, process_id, thread_id, kind", 5, false},
    [BATCH_RANGE] = {"nvtx_range", "start_ns, dur_ns, process_id, thread_id, name_id, domain_id", 6, false},
    [BATCH_MARK] = {"python_mark", "process_id, thread_id, at_ns, kind, name_id, value", 6, false},
    [BATCH_GC] = {"python_gc", "process_id, thread_id, start_ns, dur_ns, generation, collected", 6, false},
    [BATCH_CLOCK] = {"clock_sample", "process_id, before_ns, gpu_ns, after_ns", 4, false},
};
// clang-format on

struct batch_rows {
    int64_t *values;
    int columns;
    int used, capacity; // rows
    uint64_t given;
    uint64_t times; // bit i: column i is one
    sqlite3_stmt *insert;
    struct image *image; // NULL: none
};

struct batch {
    struct store *store;
    const struct gpu_callbacks *callbacks;
    struct batch_rows tables[BATCH_TABLE_COUNT];
    uint64_t lost, odd;
    struct error error;
};

// --- the virtual table ---------------------------------------------------------------------------

struct rows_table {
    sqlite3_vtab base;
    const struct batch_rows *rows;
};

struct rows_cursor {
    sqlite3_vtab_cursor base;
    const int64_t *row, *end;
    int columns;
    sqlite3_int64 rowid;
};

static int rows_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
        sqlite3_vtab **ret_table, char **ret_error)
{
    (void)argc, (void)argv, (void)ret_error;
    const struct batch_rows *rows = aux;
    char sql[160] = "CREATE TABLE x (c0";
    for (int i = 1; i < rows->columns; i++)
        snprintf(sql + strlen(sql), sizeof sql - strlen(sql), ", c%d", i);
    strcat(sql, ")");
    int rc = sqlite3_declare_vtab(db, sql);
    struct rows_table *table = rc == SQLITE_OK ? sqlite3_malloc(sizeof *table) : NULL;
    if (!table)
        return rc == SQLITE_OK ? SQLITE_NOMEM : rc;
    *table = (struct rows_table){.rows = rows};
    *ret_table = &table->base;
    return SQLITE_OK;
}

static int rows_disconnect(sqlite3_vtab *table)
{
    sqlite3_free(table);
    return SQLITE_OK;
}

static int rows_best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table;
    info->estimatedCost = 1e6;
    return SQLITE_OK;
}

static int rows_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret_cursor)
{
    (void)table;
    struct rows_cursor *cursor = sqlite3_malloc(sizeof *cursor);
    if (!cursor)
        return SQLITE_NOMEM;
    *cursor = (struct rows_cursor){0};
    *ret_cursor = &cursor->base;
    return SQLITE_OK;
}

static int rows_close(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int rows_filter(
        sqlite3_vtab_cursor *base, int number, const char *text, int argc, sqlite3_value **argv)
{
    (void)number, (void)text, (void)argc, (void)argv;
    struct rows_cursor *cursor = (struct rows_cursor *)base;
    const struct batch_rows *rows = ((struct rows_table *)base->pVtab)->rows;
    cursor->columns = rows->columns;
    cursor->row = rows->values;
    cursor->end = rows->values + (ptrdiff_t)rows->used * rows->columns;
    cursor->rowid = 1;
    return SQLITE_OK;
}

static int rows_next(sqlite3_vtab_cursor *base)
{
    struct rows_cursor *cursor = (struct rows_cursor *)base;
    cursor->row += cursor->columns;
    cursor->rowid++;
    return SQLITE_OK;
}

static int rows_eof(sqlite3_vtab_cursor *base)
{
    const struct rows_cursor *cursor = (const struct rows_cursor *)base;
    return cursor->row >= cursor->end;
}

static int rows_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    int64_t value = ((const struct rows_cursor *)base)->row[column];
    if (value != BATCH_NULL) // without a result it is NULL
        sqlite3_result_int64(context, value);
    return SQLITE_OK;
}

static int rows_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *ret_rowid)
{
    *ret_rowid = ((const struct rows_cursor *)base)->rowid;
    return SQLITE_OK;
}

static const sqlite3_module rows_module = {
        // no xCreate: the table is there under the name of the module
        .xConnect = rows_connect,
        .xBestIndex = rows_best_index,
        .xDisconnect = rows_disconnect,
        .xOpen = rows_open,
        .xClose = rows_close,
        .xFilter = rows_filter,
        .xNext = rows_next,
        .xEof = rows_eof,
        .xColumn = rows_column,
        .xRowid = rows_rowid,
};

// --- the batch -----------------------------------------------------------------------------------

static int batch_prepare(struct batch *batch, enum batch_table table)
{
    sqlite3 *db = store_db(batch->store);
    struct batch_rows *rows = &batch->tables[table];
    rows->columns = batch_tables[table].count;
    rows->times = ranges_ns_columns(batch_tables[table].columns);
    if (batch_tables[table].image)
        rows->image = image_new(db, batch_tables[table].table, rows->columns, BATCH_IMAGE_ROWS);
    rows->capacity = rows->image ? (int)BATCH_IMAGE_ROWS : BATCH_VALUES / rows->columns;
    rows->values = xcalloc((size_t)rows->capacity * (size_t)rows->columns, sizeof *rows->values);
    char name[48];
    snprintf(name, sizeof name, "upgate_batch_%s", batch_tables[table].table);
    int rc = sqlite3_create_module(db, name, &rows_module, rows);
    char *sql = xasprintf("INSERT INTO main.%s (%s) SELECT * FROM %s", batch_tables[table].table,
            batch_tables[table].columns, name);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &rows->insert, NULL);
    free(sql);
    return rc;
}

int batch_new(struct store *store, const struct gpu_callbacks *callbacks, struct batch **ret_batch,
        struct error *err)
{
    struct batch *batch = xcalloc(1, sizeof *batch);
    batch->store = store;
    batch->callbacks = callbacks;
    int rc = SQLITE_OK;
    for (enum batch_table table = 0; table < BATCH_TABLE_COUNT && rc == SQLITE_OK; table++)
        rc = batch_prepare(batch, table);
    if (rc != SQLITE_OK) {
        error_set(err, -EIO, "failed to write '%s': %s", store_path(store),
                sqlite3_errmsg(store_db(store)));
        batch_free(batch);
        return -EIO;
    }
    *ret_batch = batch;
    return 0;
}

void batch_free(struct batch *batch)
{
    if (!batch)
        return;
    if (!batch->callbacks->begin)
        store_rollback(batch->store);
    for (enum batch_table table = 0; table < BATCH_TABLE_COUNT; table++) {
        sqlite3_finalize(batch->tables[table].insert);
        image_free(batch->tables[table].image);
        char name[48];
        snprintf(name, sizeof name, "upgate_batch_%s", batch_tables[table].table);
        sqlite3_create_module(store_db(batch->store), name, NULL, NULL); // forgets it
        free(batch->tables[table].values);
    }
    free(batch);
}

void batch_fail(struct batch *batch)
{
    if (batch->error.code)
        return;
    error_set(&batch->error, -EIO, "failed to write '%s': %s", store_path(batch->store),
            sqlite3_errmsg(store_db(batch->store)));
    if (batch->callbacks->failed)
        batch->callbacks->failed(batch->callbacks->context);
    else
        store_rollback(batch->store);
}

static bool batch_open(struct batch *batch)
{
    if (batch->error.code)
        return false;
    if (batch->callbacks->begin) {
        if (batch->callbacks->begin(batch->callbacks->context))
            error_set(&batch->error, -EIO, "failed to write '%s'", store_path(batch->store));
    } else if (sqlite3_get_autocommit(store_db(batch->store))) {
        if (store_begin(batch->store, &batch->error))
            return false;
    }
    return batch->error.code == 0;
}

bool batch_begin(struct batch *batch)
{
    bool open = batch_open(batch);
    batch->lost += !open;
    return open;
}

static bool batch_row_holds(const struct batch_rows *rows, const int64_t *row)
{
    for (uint64_t left = rows->times; left; left &= left - 1) {
        int64_t value = row[__builtin_ctzll(left)];
        if (value != BATCH_NULL && !range_ns(value))
            return false;
    }
    return true;
}

// A traced process may write what it likes into its spool; no reader of the store has to reckon
// with times that no clock gives.
static void batch_sift(struct batch *batch, struct batch_rows *rows)
{
    int kept = 0;
    for (int i = 0; i < rows->used; i++) {
        const int64_t *row = rows->values + (ptrdiff_t)i * rows->columns;
        if (!batch_row_holds(rows, row))
            continue;
        if (kept != i)
            memcpy(rows->values + (ptrdiff_t)kept * rows->columns, row,
                    (size_t)rows->columns * sizeof *row);
        kept++;
    }
    batch->odd += (uint64_t)(rows->used - kept);
    rows->used = kept;
}

static void batch_flush_table(struct batch *batch, struct batch_rows *rows)
{
    batch_sift(batch, rows);
    if (!rows->used)
        return;
    if (!batch_open(batch)) {
        batch->lost += (uint64_t)rows->used;
    } else if (rows->image && rows->used >= IMAGE_ROWS_MIN) {
        if (image_insert(rows->image, rows->values, rows->used) != SQLITE_OK) {
            batch_fail(batch);
            batch->lost += (uint64_t)rows->used;
        }
    } else {
        if (sqlite3_step(rows->insert) != SQLITE_DONE) {
            batch_fail(batch);
            batch->lost += (uint64_t)rows->used;
        }
        sqlite3_reset(rows->insert);
    }
    rows->used = 0;
}

int64_t *batch_row(struct batch *batch, enum batch_table table)
{
    struct batch_rows *rows = &batch->tables[table];
    if (rows->used == rows->capacity)
        batch_flush_table(batch, rows);
    rows->given++;
    return rows->values + (ptrdiff_t)rows->used++ * rows->columns;
}

int batch_flush(struct batch *batch, struct error *err)
{
    for (enum batch_table table = 0; table < BATCH_TABLE_COUNT; table++)
        batch_flush_table(batch, &batch->tables[table]);
    return batch->error.code ? error_set(err, batch->error.code, "%s", batch->error.text) : 0;
}

int batch_commit(struct batch *batch, struct error *err)
{
    int rc = batch_flush(batch, err);
    if (rc == 0 && !batch->callbacks->begin && !sqlite3_get_autocommit(store_db(batch->store)))
        rc = store_commit(batch->store, err);
    return rc;
}

uint64_t batch_rows(const struct batch *batch, enum batch_table table)
{
    return batch->tables[table].given;
}

uint64_t batch_lost(const struct batch *batch)
{
    return batch->lost;
}

bool batch_holds(struct batch *batch, const int64_t *times, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!range_ns(times[i])) {
            batch->odd++;
            return false;
        }
    return true;
}

uint64_t batch_odd(const struct batch *batch)
{
    return batch->odd;
}
