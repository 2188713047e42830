// SPDX-License-Identifier: Apache-2.0
// --max-size: deletes whole seconds of the oldest events. Rows stand in the order they were
// written, which is nearly that of time: the oldest ones are the first of each table, so only they
// are looked at.
#include "tracer/gpu/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/strings.h"

enum {
    RETENTION_STEPS_MAX = 64, // seconds deleted in one go
    RETENTION_FREE_PCT = 6,   // of the limit are kept free for the next transaction
};
static const int64_t RETENTION_SECOND_NS = 1000000000;
static const int64_t RETENTION_AHEAD_NS = 3600000000000; // of now: no clock of ours is so wrong

static const struct {
    const char *name, *time;
} retention_tables[] = {
        {"gpu_op", "start_ns"},
        {"gpu_call", "start_ns"},
        {"gpu_sync", "start_ns"},
        {"gpu_memory", "at_ns"},
        {"gpu_overhead", "start_ns"},
        {"nvtx_range", "start_ns"},
        {"nccl_op", "enqueued_ns"},
        {"python_mark", "at_ns"},
        {"python_gc", "start_ns"},
        {"clock_sample", "before_ns"},
        {"gap", "in_ns"},
        {"sample", "at_ns"},
        {"page_fault", "at_ns"},
        {"lock_wait", "end_ns"},
        {"host_fact", "end_ns"},
        {"counter", "at_ns"},
        {"connection", "end_ns"},
};
enum {
    RETENTION_OP, // the first of them
    RETENTION_CALL,
    RETENTION_TABLES = sizeof retention_tables / sizeof *retention_tables,
};

struct retention {
    struct store *store;
    int64_t recording_id, max_bytes, page_bytes;
    int64_t begin_ns;                        // of the recording
    int64_t first[RETENTION_TABLES];         // rowid before the recording's first row
    uint64_t rows[RETENTION_TABLES], stacks; // that went
    int64_t from_ns, until_ns;               // what went
};

int retention_new(struct store *store, int64_t recording_id, int64_t max_bytes,
        struct retention **ret_retention, struct error *err)
{
    if (max_bytes < RETENTION_MIN_BYTES)
        return error_set(err, -EINVAL,
                "a store of at most %" PRId64 " bytes is too small: at least %d MiB", max_bytes,
                RETENTION_MIN_BYTES >> 20);
    struct retention *retention = xcalloc(1, sizeof *retention);
    retention->store = store;
    retention->recording_id = recording_id;
    retention->max_bytes = max_bytes;
    int rc = store_get_int(store, &retention->begin_ns, err,
            "SELECT begin_ns FROM recording WHERE id = ?", "i", recording_id);
    if (rc == 0)
        rc = store_get_int(store, &retention->page_bytes, err, "PRAGMA page_size", "");
    for (int i = 0; i < RETENTION_TABLES && rc == 0; i++) {
        char *sql = xasprintf("SELECT coalesce(max(rowid), 0) FROM %s", retention_tables[i].name);
        rc = store_get_int(store, &retention->first[i], err, sql, "");
        free(sql);
    }
    if (rc) {
        retention_free(retention);
        return rc;
    }
    *ret_retention = retention;
    return 0;
}

void retention_free(struct retention *retention)
{
    free(retention);
}

static int retention_int(struct retention *retention, const char *sql, int64_t *ret)
{
    struct error err = {0};
    int rc = store_get_int(retention->store, ret, &err, sql, "");
    return rc;
}

// Bytes of the file that hold something. Pages on the free list are used before the file grows.
static int retention_used(struct retention *retention, int64_t *ret_bytes)
{
    int64_t pages = 0, unused = 0;
    int rc = retention_int(retention, "PRAGMA page_count", &pages);
    if (rc == 0)
        rc = retention_int(retention, "PRAGMA freelist_count", &unused);
    *ret_bytes = (pages - unused) * retention->page_bytes;
    return rc;
}

// The first row of a table as it was written, or the last, with a time from from_ns on. INT64_MAX:
// none. What traced processes say of times need not be true: what lies in the future is no event's,
// and holds nothing up. Prepared for once: 17 tables twice would fill the store's cache of
// statements.
static int64_t retention_ask(
        struct retention *retention, const char *what, int table, int64_t from_ns, bool last)
{
    char *sql = xasprintf("SELECT %s FROM %s WHERE rowid > %" PRId64 " AND %s BETWEEN %" PRId64
                          " AND %" PRId64 " ORDER BY rowid%s "
                          "LIMIT 1",
            what, retention_tables[table].name, retention->first[table],
            retention_tables[table].time, from_ns, clock_monotonic_ns() + RETENTION_AHEAD_NS,
            last ? " DESC" : "");
    sqlite3_stmt *stmt = NULL;
    int64_t value = INT64_MAX;
    if (sqlite3_prepare_v2(store_db(retention->store), sql, -1, &stmt, NULL) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW)
        value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    free(sql);
    return value;
}

// Nor is anything from before the recording: a second of it each time, and the limit would not be
// kept.
static int64_t retention_oldest(struct retention *retention)
{
    int64_t oldest = INT64_MAX;
    for (int i = 0; i < RETENTION_TABLES; i++) {
        int64_t at_ns = retention_ask(retention, retention_tables[i].time, i, -INT64_MAX, false);
        oldest = at_ns < oldest ? at_ns : oldest;
    }
    return oldest < retention->begin_ns ? retention->begin_ns : oldest;
}

// The last row of a table is nearly the newest.
static int64_t retention_newest(struct retention *retention)
{
    int64_t newest = INT64_MIN;
    for (int i = 0; i < RETENTION_TABLES; i++) {
        int64_t at_ns = retention_ask(retention, retention_tables[i].time, i, -INT64_MAX, true);
        newest = at_ns > newest && at_ns != INT64_MAX ? at_ns : newest;
    }
    return newest;
}

static int retention_delete(struct retention *retention, int table, int64_t until_ns)
{
    int64_t stop = retention_ask(retention, "rowid", table, until_ns, false);
    sqlite3 *db = store_db(retention->store);
    char *sql = xasprintf("DELETE FROM %s WHERE rowid > %" PRId64 " AND rowid < %" PRId64,
            retention_tables[table].name, retention->first[table], stop);
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    free(sql);
    if (rc != SQLITE_OK)
        return -EIO;
    retention->rows[table] += (uint64_t)sqlite3_changes64(db);
    return 0;
}

// Stacks of launches have no time: they go before what their launches ran, and before the call of
// one that ran nothing.
static int retention_delete_stacks(struct retention *retention, int64_t until_ns)
{
    int64_t any = 0;
    int rc = retention_int(retention, "SELECT EXISTS (SELECT 1 FROM launch_stack)", &any);
    if (rc || !any)
        return rc;
    const int64_t *first = retention->first;
    // a compound alone: no index
    char *sql = xasprintf(
            "DELETE FROM launch_stack WHERE (process_id, correlation) IN (SELECT * FROM ("
            "SELECT s.process_id, o.correlation FROM gpu_op o "
            "CROSS JOIN gpu_work w ON w.id = o.work_id CROSS JOIN gpu_stream s ON s.id = w.stream_id "
            "WHERE o.rowid > %" PRId64 " AND o.rowid < %" PRId64 " UNION ALL "
            "SELECT process_id, correlation FROM gpu_call WHERE rowid > %" PRId64
            " AND rowid < %" PRId64 "))",
            first[RETENTION_OP], retention_ask(retention, "rowid", RETENTION_OP, until_ns, false),
            first[RETENTION_CALL],
            retention_ask(retention, "rowid", RETENTION_CALL, until_ns, false));
    sqlite3 *db = store_db(retention->store);
    rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    free(sql);
    if (rc != SQLITE_OK)
        return -EIO;
    retention->stacks += (uint64_t)sqlite3_changes64(db);
    return 0;
}

// They have no rows of their own numbers, and are few beside what happens in them.
static int retention_delete_steps(struct retention *retention, int64_t until_ns)
{
    char *sql = xasprintf("DELETE FROM recorded_step WHERE recording_id = %" PRId64
                          " AND begin_ns + dur_ns < %" PRId64,
            retention->recording_id, until_ns);
    int rc = sqlite3_exec(store_db(retention->store), sql, NULL, NULL, NULL);
    free(sql);
    return rc == SQLITE_OK ? 0 : -EIO;
}

int retention_step(struct retention *retention, struct error *err)
{
    int64_t used = 0, keep = retention->max_bytes - retention->max_bytes * RETENTION_FREE_PCT / 100;
    int rc = retention_used(retention, &used);
    int64_t newest = rc == 0 && used > keep ? retention_newest(retention) : 0;
    for (int step = 0; rc == 0 && used > keep && step < RETENTION_STEPS_MAX; step++) {
        int64_t oldest = retention_oldest(retention);
        bool none = oldest == INT64_MAX; // what fills the file are no events, or such as tell no
                                         // time that can be: those go
        int64_t until_ns = none ? retention->begin_ns
                                : oldest - oldest % RETENTION_SECOND_NS + RETENTION_SECOND_NS;
        if (!none && until_ns > newest - RETENTION_SECOND_NS)
            break; // names and stacks alone are more than the limit: the last second is kept all
                   // the same
        rc = retention_delete_stacks(retention, until_ns);
        for (int i = 0; i < RETENTION_TABLES && rc == 0; i++)
            rc = retention_delete(retention, i, until_ns);
        if (rc == 0)
            rc = retention_delete_steps(retention, until_ns);
        if (none)
            break;
        retention->from_ns = retention->from_ns ? retention->from_ns : oldest;
        retention->until_ns = until_ns;
        if (rc == 0)
            rc = retention_used(retention, &used);
    }
    return rc ? error_set(err, rc, "failed to write '%s': %s", store_path(retention->store),
                        sqlite3_errmsg(store_db(retention->store)))
              : 0;
}

uint64_t retention_rows(const struct retention *retention)
{
    uint64_t rows = retention->stacks;
    for (int i = 0; i < RETENTION_TABLES; i++)
        rows += retention->rows[i];
    return rows;
}

int retention_end(struct retention *retention, const int64_t *launch_id, struct error *err)
{
    // what was held back until the end has just been written
    int rc = retention_step(retention, err);
    if (rc || !retention_rows(retention))
        return rc;
    char *span = xasprintf("the first %.0f s, up to %" PRId64 " ns of CLOCK_MONOTONIC",
            (double)(retention->until_ns - retention->from_ns) / 1e9, retention->until_ns);
    for (int i = 0; i < RETENTION_TABLES && rc == 0; i++)
        if (retention->rows[i])
            rc = store_ledger(retention->store, launch_id, "retention", retention_tables[i].name,
                    -1, -1, (int64_t)retention->rows[i], 0, span, err);
    if (rc == 0 && retention->stacks)
        rc = store_ledger(retention->store, launch_id, "retention", "launch_stack", -1, -1,
                (int64_t)retention->stacks, 0, span, err);
    if (rc == 0)
        rc = store_note(retention->store, err, "info",
                "--max-size: %" PRIu64
                " rows of the oldest events were deleted to keep the store at %.0f MB: %s",
                retention_rows(retention), (double)retention->max_bytes / 1e6, span);
    free(span);
    return rc;
}
