// SPDX-License-Identifier: Apache-2.0
// The two tables with millions of rows. Gaps and samples are read by two threads at the same time,
// each by a read-only connection of its own that takes no mutex for each column: of 5.5 s over five
// million rows through the store's connection that left 2. A store that is small, in a transaction,
// or has no file, is read through its own connection.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace_cache.h"
#include "reports/analyse/trace/trace_inside.h"
#include "tracer/store/ranges.h"

uint32_t trace_thread_at(const struct trace_ids *threads, sqlite3_stmt *stmt, int column)
{
    int64_t id = sqlite3_column_int64(stmt, column); // ids begin at 1: NULL reads as 0
    return id ? trace_ids_find(threads, id) : TRACE_NONE;
}

uint32_t trace_stack_at(sqlite3_stmt *stmt, int column)
{
    int64_t id = sqlite3_column_int64(stmt, column);
    return id > 0 && id <= TRACE_STACK_ID_MAX ? (uint32_t)id : 0; // [0] is the empty stack
}

// threads NULL: its id, as long as nobody knows which there are.
static uint32_t trace_row_thread(const struct trace_ids *threads, sqlite3_stmt *stmt, int column)
{
    if (threads)
        return trace_thread_at(threads, stmt, column);
    int64_t id = sqlite3_column_int64(stmt, column);
    return id > 0 && id < TRACE_NONE ? (uint32_t)id : TRACE_NONE;
}

// Few distinct texts, next to each other in time: look at the last ones before a new one is made.
static uint32_t trace_intern(struct trace *trace, const char *text)
{
    enum { LOOK_BACK = 512 };
    if (!text)
        return 0;
    for (size_t i = trace->text_count, n = 0; i > 1 && n < LOOK_BACK; i--, n++)
        if (!strcmp(trace->texts[i - 1], text))
            return (uint32_t)i - 1;
    vector_push(trace->texts, trace->text_count, arena_copy(trace->arena, text));
    return (uint32_t)trace->text_count - 1;
}

static const char trace_gap_sql[] =
        "SELECT thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_in, kernel_stack, "
        "user_stack, python_stack, "
        "waker_thread, waker_stack, next_thread, next_prio, before_thread, before_prio, owner_thread, "
        "lock_kind, lock_address, "
        "syscall_nr, syscall_arg0, syscall_target, rowid FROM gap WHERE rowid > ?1 AND in_ns >= ?2";
static const char trace_sample_sql[] =
        "SELECT thread_id, at_ns, cpu, why, kernel_stack, user_stack, python_stack, rowid FROM sample WHERE rowid > ?1 AND at_ns >= ?2";

static void trace_read_gap(struct trace *trace, const struct trace_ids *threads, sqlite3_stmt *stmt,
        struct trace_gap *row)
{
    row->out = sqlite3_column_int64(stmt, 1);
    row->waking = sqlite3_column_int64(stmt, 2);
    row->in = sqlite3_column_int64(stmt, 3);
    row->state = (uint32_t)sqlite3_column_int64(stmt, 4);
    row->flags = (uint32_t)sqlite3_column_int64(stmt, 5);
    row->cpu_in = (int16_t)store_int64(stmt, 6, -1);
    row->kernel = trace_stack_at(stmt, 7);
    row->user = trace_stack_at(stmt, 8);
    row->python = trace_stack_at(stmt, 9);
    row->waker = trace_row_thread(threads, stmt, 10);
    row->waker_stack = trace_stack_at(stmt, 11);
    row->next = trace_row_thread(threads, stmt, 12);
    row->next_prio = (int16_t)store_int64(stmt, 13, -1);
    row->before = trace_row_thread(threads, stmt, 14);
    row->before_prio = (int16_t)store_int64(stmt, 15, -1);
    row->owner = trace_row_thread(threads, stmt, 16);
    row->lock_kind = (uint8_t)sqlite3_column_int(stmt, 17);
    row->lock_address = sqlite3_column_int64(stmt, 18);
    row->syscall = (int32_t)store_int64(stmt, 19, -1);
    row->arg0 = sqlite3_column_int64(stmt, 20);
    row->target = trace_intern(trace, (const char *)sqlite3_column_text(stmt, 21));
}

static void trace_read_sample(sqlite3_stmt *stmt, struct trace_sample *row)
{
    row->at = sqlite3_column_int64(stmt, 1);
    row->cpu = (int16_t)sqlite3_column_int(stmt, 2);
    row->why = (uint16_t)sqlite3_column_int(stmt, 3);
    row->kernel = trace_stack_at(stmt, 4);
    row->user = trace_stack_at(stmt, 5);
    row->python = trace_stack_at(stmt, 6);
}

// One of the two tables, and whose connection reads it.
struct trace_table {
    struct trace *trace;
    const struct trace_ids *threads; // NULL: rows have ids
    struct trace_cache *cache;       // into whose rows is read; NULL: none
    struct store *store;
    sqlite3 *db; // NULL: the store's
    struct error err;
    int rc;
    bool samples;
    int64_t row_before; // as trace_row_before()
};

static int trace_table_step(struct trace_table *table, sqlite3_stmt *stmt)
{
    if (!table->db)
        return store_step(table->store, stmt, &table->err);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    return error_set(&table->err, -EIO, "failed to read '%s': %s", store_path(table->store),
            sqlite3_errmsg(table->db));
}

_Static_assert(UG_GAP_SHORT == 0x100000 && UG_GAP_UNFINISHED == 0x20,
        "queries spell them out: stalls_recordings.c, stalls_tally.c of reports/render");

static void trace_table_rows(struct trace_table *table, sqlite3_stmt *stmt)
{
    struct trace *trace = table->trace;
    while ((table->rc = trace_table_step(table, stmt)) == 1) {
        uint32_t thread = trace_row_thread(table->threads, stmt, 0);
        bool holds; // a connection of our own checks by itself what store_step() does
        if (thread == TRACE_NONE)
            continue;
        if (table->samples) {
            struct trace_sample *row = vector_add(trace->samples, trace->sample_count);
            row->thread = thread;
            trace_read_sample(stmt, row);
            holds = range_ns(row->at);
            if (table->cache)
                cache_note_sample(table->cache, sqlite3_column_int64(stmt, 7), row);
        } else {
            struct trace_gap one = {.thread = thread};
            trace_read_gap(trace, table->threads, stmt, &one);
            if (one.flags & UG_GAP_SHORT)
                vector_push(trace->shorts, trace->short_count, one);
            else
                vector_push(trace->gaps, trace->gap_count, one);
            holds = range_ns(one.out) && range_ns(one.waking) && range_ns(one.in);
            if (table->cache)
                cache_note_gap(table->cache, sqlite3_column_int64(stmt, 22), &one);
        }
        if (!holds) {
            table->rc = store_damaged(
                    table->store, &table->err, "the time of a gap or of a sample is out of range");
            break;
        }
    }
}

// By halving.
int64_t trace_row_before(struct store *store, const char *table, const char *time, int64_t from_ns)
{
    enum { LATE_NS = 1000000000 };
    if (from_ns == INT64_MIN)
        return 0;
    char *last = xasprintf("SELECT coalesce(max(rowid), 0) FROM %s", table);
    char *at = xasprintf(
            "SELECT %s FROM %s WHERE rowid <= ? ORDER BY rowid DESC LIMIT 1", time, table);
    int64_t low = 0, high = 0, ns;
    if (store_get_int(store, &high, NULL, last, ""))
        high = 0;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (store_get_int(store, &ns, NULL, at, "i", middle) || ns < from_ns - LATE_NS)
            low = middle;
        else
            high = middle - 1;
    }
    free(last);
    free(at);
    return low;
}

static void *trace_table_read(void *arg)
{
    struct trace_table *table = arg;
    const char *sql = table->samples ? trace_sample_sql : trace_gap_sql;
    sqlite3_stmt *stmt = NULL;
    if (!table->db) {
        stmt = store_query(
                table->store, &table->err, sql, "ii", table->row_before, table->trace->from_ns);
        table->rc = stmt ? 0 : table->err.code;
    } else if (sqlite3_prepare_v2(table->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        table->rc = error_set(&table->err, -EIO, "failed to read '%s': %s",
                store_path(table->store), sqlite3_errmsg(table->db));
    } else {
        sqlite3_bind_int64(stmt, 1, table->row_before);
        sqlite3_bind_int64(stmt, 2, table->trace->from_ns);
    }
    if (!table->rc)
        trace_table_rows(table, stmt);
    if (table->db)
        sqlite3_finalize(stmt);
    return NULL;
}

// A connection of the reader's own; NULL where the file does not say what the store's connection
// sees, or is small.
static sqlite3 *trace_connect(struct store *store)
{
    // 0.6 ms to open it and to read its schema: as long as 1,000 rows take
    enum { SMALL_BYTES = 512 << 10 };
    const char *path = store_path(store);
    struct stat info;
    sqlite3 *db = NULL;
    if (!path || !*path || !sqlite3_get_autocommit(store_db(store)) || stat(path, &info) ||
            info.st_size < SMALL_BYTES)
        return NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        sqlite3_close(db);
        return NULL;
    }
    sqlite3_busy_timeout(db, 5000);
    return db;
}

int trace_load_big(struct trace *trace, struct store *store, const struct trace_ids *threads,
        struct error *err)
{
    struct trace_cache *cache =
            trace->cache; // of a look: what came since the one before is read, into it
    vector_push(trace->texts, trace->text_count, "");
    if (cache)
        cache_begin(cache, store, trace);
    struct trace_table gaps = {.trace = cache ? &cache->rows : trace,
            .threads = cache ? NULL : threads,
            .cache = cache,
            .store = store,
            .row_before = cache ? cache->gap_row : 0};
    struct trace_table samples = gaps;
    samples.samples = true;
    samples.row_before = cache ? cache->sample_row : 0;
    if (!gaps.row_before)
        gaps.row_before = trace_row_before(store, "gap", "in_ns", trace->from_ns);
    if (!samples.row_before)
        samples.row_before = trace_row_before(store, "sample", "at_ns", trace->from_ns);
    gaps.db = !cache && trace->from_ns == INT64_MIN ? trace_connect(store) : NULL;
    samples.db = gaps.db ? trace_connect(store) : NULL;
    pthread_t thread;
    bool apart = samples.db && !pthread_create(&thread, NULL, trace_table_read, &samples);
    trace_table_read(&gaps);
    if (apart)
        pthread_join(thread, NULL);
    else
        trace_table_read(&samples);
    sqlite3_close(gaps.db);
    sqlite3_close(samples.db);
    const struct trace_table *failed = gaps.rc ? &gaps : &samples;
    if (cache && failed->rc)
        cache_clear(cache);
    else if (cache)
        cache_place(cache, threads, trace);
    return failed->rc ? error_set(err, failed->rc, "%s", failed->err.text) : 0;
}
