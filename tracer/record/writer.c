// SPDX-License-Identifier: Apache-2.0
// Rows of a recording into the store.
#include "tracer/record/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum {
    // a reader may hold the store this long before the commit is put off by a second
    WRITER_BUSY_MS = 20,
    // Who opens a store at the moment of a commit takes it alone for a moment, to see whether a
    // journal was left behind. Starved of CPU, that moment is longer. There is no transaction yet
    // that could become longer instead.
    WRITER_BUSY_BEGIN_MS = 5000,
    WRITER_BUSY_END_MS = 60000, // at the end it is waited for: a Perfetto trace of 10 million rows
                                // is read in one transaction
    WRITER_BUSY_MAX = 60,       // commits put off in a row
};

struct writer {
    struct store *store;
    int busy;
    sqlite3_stmt *stmts[WRITER_TABLE_COUNT];
    // rows: with those of the open transaction
    uint64_t rows[WRITER_TABLE_COUNT], committed[WRITER_TABLE_COUNT];
    uint64_t lost[WRITER_TABLE_COUNT];
    uint32_t ids[WRITER_TABLE_COUNT];
    bool open; // a transaction
    struct error error;
};

// Columns as in contracts/schema.sql; a gap and a stall have their rowid from SQLite.
static const struct {
    const char *name;
    const char *columns;
    bool replace, numbered;
} writer_tables[WRITER_TABLE_COUNT] = {
        [WRITER_PROCESS] = {"process",
                "id, recording_id, tgid, start_ns, ppid, comm, cmdline, kind, started_ns, ended_ns, "
                "exit_code",
                true, true},
        [WRITER_THREAD] = {"thread", "id, process_id, tid, comm, started_ns, ended_ns", true, true},
        [WRITER_FRAME] = {"frame", "id, name, module, build_id, line, offset", false, true},
        [WRITER_STACK] = {"stack", "id, kind, depth, frames", true, true}, // again with its names
        [WRITER_GAP] = {"gap",
                "thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_out, cpu_in, kernel_stack, "
                "user_stack, python_stack, waker_thread, waker_stack, next_thread, next_prio, "
                "before_thread, before_prio, owner_thread, lock_kind, lock_address, syscall_nr, "
                "syscall_arg0, syscall_arg1, syscall_target",
                false, false},
        [WRITER_SAMPLE] = {"sample",
                "thread_id, at_ns, cpu, why, kernel_stack, user_stack, python_stack", false, false},
        [WRITER_FAULT] = {"page_fault",
                "thread_id, at_ns, address, level, user_stack, python_stack", false, false},
        [WRITER_LOCK] = {"lock_wait",
                "thread_id, begin_ns, end_ns, address, kind, flags, owner_thread, kernel_stack, owner_stack",
                false, false},
        [WRITER_FACT] = {"host_fact",
                "recording_id, what, begin_ns, end_ns, cpu, target_thread, actor_thread, flags, value0, "
                "value1, value2, value3, kernel_stack",
                false, false},
        [WRITER_COUNTER] = {"counter", "recording_id, at_ns, source, name, value", false, false},
        [WRITER_TOTAL] = {"thread_total", "thread_id, switches, short_gaps, short_gap_ns, run_ns",
                true, false},
        [WRITER_STEP] = {"recorded_step", "recording_id, rank, idx, begin_ns, dur_ns", true, false},
        [WRITER_CONNECTION] = {"connection",
                "sender_process, receiver_process, sender, receiver, begin_ns, end_ns, bytes, retransmits, looks, underway",
                false, false},
};

// What the open transaction held is not in the store.
static void writer_rollback(struct writer *writer)
{
    store_rollback(writer->store);
    writer->open = false;
    for (int table = 0; table < WRITER_TABLE_COUNT; table++) {
        writer->lost[table] += writer->rows[table] - writer->committed[table];
        writer->rows[table] = writer->committed[table];
    }
}

void writer_fail(struct writer *writer)
{
    if (writer->error.code)
        return;
    sqlite3 *db = store_db(writer->store);
    int rc = sqlite3_extended_errcode(db);
    int system = sqlite3_system_errno(db);
    bool full = (rc & 0xff) == SQLITE_FULL ||
            ((rc & 0xff) == SQLITE_IOERR &&
                    (system == ENOSPC || system == EFBIG || system == EDQUOT));
    if (full)
        error_set(&writer->error, -ENOSPC,
                "failed to write '%s': the disk is full; the recording ends here, and what was written "
                "before is readable; free space, or name another place with -o",
                store_path(writer->store));
    else
        error_set(&writer->error, (rc & 0xff) == SQLITE_BUSY ? -EBUSY : -EIO,
                "failed to write '%s': %s; the recording ends here, and what was written before is readable",
                store_path(writer->store), sqlite3_errmsg(db));
    writer_rollback(writer);
}

static int writer_prepare(struct writer *writer, enum writer_table table, struct error *err)
{
    struct strbuf sql = {0};
    strbuf_add(&sql, "INSERT %sINTO %s (%s) VALUES (?",
            writer_tables[table].replace ? "OR REPLACE " : "", writer_tables[table].name,
            writer_tables[table].columns);
    for (const char *at = writer_tables[table].columns; *at; at++)
        if (*at == ',')
            strbuf_add(&sql, ", ?");
    strbuf_add(&sql, ")");
    sqlite3 *db = store_db(writer->store);
    int rc = sqlite3_prepare_v3(
            db, sql.text, -1, SQLITE_PREPARE_PERSISTENT, &writer->stmts[table], NULL);
    strbuf_free(&sql);
    if (rc != SQLITE_OK)
        return error_set(err, -EIO, "failed to write '%s': %s", store_path(writer->store),
                sqlite3_errmsg(db));
    int64_t last = 0;
    if (writer_tables[table].numbered) {
        char *text = xasprintf("SELECT max(id) FROM %s", writer_tables[table].name);
        store_get_int(writer->store, &last, NULL, text, "");
        free(text);
    }
    writer->ids[table] = (uint32_t)last;
    return 0;
}

int writer_new(struct store *store, struct writer **ret_writer, struct error *err)
{
    struct writer *writer = xcalloc(1, sizeof *writer);
    writer->store = store;
    int rc = 0;
    for (enum writer_table table = 0; table < WRITER_TABLE_COUNT && rc == 0; table++)
        rc = writer_prepare(writer, table, err);
    if (rc) {
        writer_free(writer);
        return rc;
    }
    // NORMAL: one fsync a commit less; only a loss of power in the wrong millisecond differs.
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = NORMAL", NULL,
            NULL, NULL);
    *ret_writer = writer;
    return 0;
}

void writer_free(struct writer *writer)
{
    if (!writer)
        return;
    for (enum writer_table table = 0; table < WRITER_TABLE_COUNT; table++)
        sqlite3_finalize(writer->stmts[table]);
    if (writer->open)
        store_rollback(writer->store);
    sqlite3_busy_timeout(store_db(writer->store), WRITER_BUSY_END_MS);
    sqlite3_exec(store_db(writer->store), "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL",
            NULL, NULL, NULL);
    free(writer);
}

void writer_abandon(struct writer *writer)
{
    if (writer->open)
        writer_rollback(writer);
    if (!writer->error.code)
        error_set(&writer->error, -ECANCELED, "the recording of '%s' was given up",
                store_path(writer->store));
}

uint32_t writer_next_id(struct writer *writer, enum writer_table table)
{
    return ++writer->ids[table];
}

int writer_begin(struct writer *writer)
{
    if (!writer->error.code && !writer->open) {
        writer->open = true;
        sqlite3_busy_timeout(store_db(writer->store), WRITER_BUSY_BEGIN_MS);
        if (store_begin(writer->store, NULL))
            writer_fail(writer);
    }
    return writer->error.code;
}

struct row writer_row(struct writer *writer, enum writer_table table)
{
    if (writer_begin(writer)) {
        writer->lost[table]++;
        return (struct row){0};
    }
    writer->rows[table]++;
    return (struct row){.stmt = writer->stmts[table]};
}

void row_int(struct row *row, int64_t value)
{
    if (row->stmt)
        sqlite3_bind_int64(row->stmt, ++row->column, value);
}

void row_null(struct row *row)
{
    if (row->stmt)
        sqlite3_bind_null(row->stmt, ++row->column);
}

void row_id(struct row *row, int64_t id)
{
    if (id)
        row_int(row, id);
    else
        row_null(row);
}

void row_time(struct row *row, uint64_t ns)
{
    row_id(row, (int64_t)ns);
}

void row_text(struct row *row, const char *text)
{
    if (row->stmt)
        // a NULL text is an SQL NULL
        sqlite3_bind_text(row->stmt, ++row->column, text, -1, SQLITE_TRANSIENT);
}

void writer_put(struct writer *writer, struct row *row)
{
    if (!row->stmt || writer->error.code)
        return;
    int rc = sqlite3_step(row->stmt);
    if (rc != SQLITE_DONE)
        writer_fail(writer);
    sqlite3_reset(row->stmt);
}

uint64_t writer_rows(const struct writer *writer, enum writer_table table)
{
    return writer->rows[table];
}

uint64_t writer_lost(const struct writer *writer, enum writer_table table)
{
    return writer->lost[table];
}

uint64_t writer_lost_all(const struct writer *writer)
{
    uint64_t sum = 0;
    for (int table = 0; table < WRITER_TABLE_COUNT; table++)
        sum += writer->lost[table];
    return sum;
}

bool writer_failed(const struct writer *writer, struct error *err)
{
    if (writer->error.code)
        error_set(err, writer->error.code, "%s", writer->error.text);
    return writer->error.code != 0;
}

int writer_commit(struct writer *writer, bool last, struct error *err)
{
    sqlite3_busy_timeout(store_db(writer->store), last ? WRITER_BUSY_END_MS : WRITER_BUSY_MS);
    if (writer->open && !writer->error.code) {
        int rc = sqlite3_exec(store_db(writer->store), "COMMIT", NULL, NULL, NULL);
        if ((rc & 0xff) == SQLITE_BUSY && !last && ++writer->busy < WRITER_BUSY_MAX)
            return 0; // somebody reads: the transaction stays open and becomes longer
        if (rc == SQLITE_OK)
            memcpy(writer->committed, writer->rows, sizeof writer->committed);
        else
            writer_fail(writer);
        writer->open = false;
        writer->busy = 0;
    }
    return writer_failed(writer, err) ? writer->error.code : 0;
}
