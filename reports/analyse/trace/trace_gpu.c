// SPDX-License-Identifier: Apache-2.0
// What repeats of that which ran on GPUs: a few thousand rows of table gpu_work say of tens of
// millions of operations what they were. And the calls of CUDA that are recorded by themselves, as
// they wait, allocate or load. Of one launch: launch/, which is faster.
#include "reports/analyse/trace/trace.h"

static void works_kernel(sqlite3_stmt *stmt, int column, struct trace_work *work)
{
    for (int i = 0; i < 3; i++) {
        work->grid[i] = sqlite3_column_int(stmt, column + i);
        work->block[i] = sqlite3_column_int(stmt, column + 3 + i);
    }
    work->registers = sqlite3_column_int(stmt, column + 6);
    work->shared_bytes = sqlite3_column_int64(stmt, column + 7);
}

int trace_works_read(struct store *store, int64_t recording_id,
        void (*take)(void *arg, const struct trace_work *work), void *arg, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT w.id, w.kind, w.stream_id, s.process_id, w.thread_id, w.kernel_id, k.name, c.text, w.bytes, k.grid_x, k.grid_y, k.grid_z, "
            "k.block_x, k.block_y, k.block_z, k.registers, k.static_shared_bytes + k.dynamic_shared_bytes FROM gpu_work w LEFT JOIN gpu_stream s "
            "ON s.id = w.stream_id LEFT JOIN process p ON p.id = s.process_id LEFT JOIN gpu_kernel k ON k.id = w.kernel_id LEFT JOIN string c ON "
            "c.id = w.call_name_id WHERE ?1 = 0 OR p.recording_id = ?1 ORDER BY w.id",
            "i", recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct trace_work work = {.id = sqlite3_column_int64(stmt, 0),
                .kind = sqlite3_column_int64(stmt, 1),
                .stream_id = sqlite3_column_int64(stmt, 2),
                // NULL: 0, as of all ids
                .process_id = sqlite3_column_int64(stmt, 3),
                .thread_id = sqlite3_column_int64(stmt, 4),
                .kernel_id = sqlite3_column_int64(stmt, 5),
                .kernel = (const char *)sqlite3_column_text(stmt, 6),
                .call = (const char *)sqlite3_column_text(stmt, 7),
                .bytes = store_int64(stmt, 8, -1)};
        works_kernel(stmt, 9, &work);
        take(arg, &work);
    }
    return rc;
}

int trace_calls_read(struct store *store, int64_t recording_id,
        void (*take)(void *arg, const struct trace_call *call), void *arg, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT c.process_id, c.thread_id, c.start_ns, c.dur_ns, c.correlation, s.text FROM gpu_call c LEFT JOIN "
            "process p ON p.id = c.process_id LEFT JOIN string s ON s.id = c.name_id WHERE ?1 = 0 OR "
            "p.recording_id = ?1 ORDER BY c.rowid",
            "i", recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const struct trace_call call = {.process_id = sqlite3_column_int64(stmt, 0),
                .thread_id = sqlite3_column_int64(stmt, 1), // NULL: 0
                .begin = sqlite3_column_int64(stmt, 2),
                .ns = sqlite3_column_int64(stmt, 3),
                .correlation = sqlite3_column_int64(stmt, 4),
                .name = (const char *)sqlite3_column_text(stmt, 5)};
        take(arg, &call);
    }
    return rc;
}
