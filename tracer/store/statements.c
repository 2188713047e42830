// SPDX-License-Identifier: Apache-2.0
// Bound statements of a store, rows out of it, and what a row must hold. One owner thread.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tracer/store/inside.h"

// The same for a read. Who asks for no error takes what could not be read for what is not there:
// the store remembers it, and says it where it can be told. What SQL itself refuses (JSON that is
// none, in a column that may hold anything) is the caller's affair.
static int store_read_error(struct store *store, struct error *err)
{
    struct error local = {0};
    int code = store_error(store, &local, "read");
    if (err)
        *err = local;
    else if (!store->unread.code && sqlite3_errcode(store->db) != SQLITE_ERROR)
        store->unread = local;
    return code;
}

int store_damaged(const struct store *store, struct error *err, const char *what)
{
    return error_set(err, -EBADMSG, "the store '%s' is damaged: %s", store->path, what);
}

int store_failed(struct store *store, struct error *err)
{
    if (store->damage[0])
        return store_damaged(store, err, store->damage);
    return store->unread.code ? error_set(err, store->unread.code, "%s", store->unread.text) : 0;
}

// A statement from the cache, or NULL with *err set. Statements beyond the cache would leak, so the
// number of distinct SQL texts is a limit that a test of ours would meet first.
static sqlite3_stmt *store_prepare(struct store *store, const char *sql, struct error *err)
{
    for (int i = 0; i < store->statement_count; i++) {
        if (strcmp(store->statements[i].sql, sql) == 0) {
            sqlite3_reset(store->statements[i].stmt);
            sqlite3_clear_bindings(store->statements[i].stmt);
            return store->statements[i].stmt;
        }
    }
    if (store->statement_count == STORE_STATEMENTS_MAX) {
        error_set(err ? err : &store->unread, -EMFILE,
                "store '%s': more than %d distinct statements", store->path, STORE_STATEMENTS_MAX);
        return NULL;
    }
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) !=
            SQLITE_OK) {
        store_read_error(store, err);
        return NULL;
    }
    struct store_statement *statement = &store->statements[store->statement_count++];
    *statement = (struct store_statement){.sql = xstrdup(sql), .stmt = stmt};
    ranges_of(stmt, &statement->ranges);
    return stmt;
}

static void store_bind(sqlite3_stmt *stmt, const char *types, va_list args)
{
    for (int i = 1; *types; types++, i++) {
        switch (*types) {
        case 'i':
            sqlite3_bind_int64(stmt, i, va_arg(args, int64_t));
            break;
        case 'I': {
            const int64_t *value = va_arg(args, const int64_t *);
            if (value)
                sqlite3_bind_int64(stmt, i, *value);
            break;
        }
        case 'd': {
            double value = va_arg(args, double);
            if (!isnan(value))
                sqlite3_bind_double(stmt, i, value);
            break;
        }
        case 's': {
            const char *value = va_arg(args, const char *);
            if (value)
                sqlite3_bind_text(stmt, i, value, -1, SQLITE_TRANSIENT);
            break;
        }
        case 'b': {
            const void *value = va_arg(args, const void *);
            size_t len = va_arg(args, size_t);
            sqlite3_bind_blob64(stmt, i, value ? value : "", len, SQLITE_TRANSIENT);
            break;
        }
        default:
            abort(); // a caller's typo, caught by the first test that runs it
        }
    }
}

static int store_execv(
        struct store *store, struct error *err, const char *sql, const char *types, va_list args)
{
    struct error local = {0};
    sqlite3_stmt *stmt = store_prepare(store, sql, &local);
    if (!stmt)
        return error_set(err, local.code, "%s", local.text);
    store_bind(stmt, types, args);
    int rc = sqlite3_step(stmt);
    int code = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : store_error(store, err, "write");
    sqlite3_reset(stmt);
    return code;
}

int store_exec(struct store *store, struct error *err, const char *sql, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int rc = store_execv(store, err, sql, types, args);
    va_end(args);
    return rc;
}

int store_insert(struct store *store, int64_t *ret_id, struct error *err, const char *sql,
        const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int rc = store_execv(store, err, sql, types, args);
    va_end(args);
    if (rc == 0 && ret_id)
        *ret_id = sqlite3_last_insert_rowid(store->db);
    return rc;
}

sqlite3_stmt *store_query(
        struct store *store, struct error *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *stmt = store_prepare(store, sql, err);
    if (!stmt)
        return NULL;
    va_list args;
    va_start(args, types);
    store_bind(stmt, types, args);
    va_end(args);
    return stmt;
}

const char *store_text(struct store *store, sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    if (text)
        return text;
    if (!store->damage[0])
        snprintf(store->damage, sizeof store->damage, "a row lacks its %s",
                sqlite3_column_name(stmt, column));
    return "";
}

double store_double(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN
                                                            : sqlite3_column_double(stmt, column);
}

int64_t store_int64(sqlite3_stmt *stmt, int column, int64_t absent)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? absent
                                                            : sqlite3_column_int64(stmt, column);
}

// The statement's ranges: mostly it is the one that was stepped last.
static const struct ranges *store_ranges(struct store *store, const sqlite3_stmt *stmt)
{
    if (store->statements[store->stepped].stmt != stmt)
        for (int i = 0; i < store->statement_count; i++)
            store->stepped = store->statements[i].stmt == stmt ? i : store->stepped;
    return &store->statements[store->stepped].ranges;
}

int store_step(struct store *store, sqlite3_stmt *stmt, struct error *err)
{
    if (!stmt)
        return err ? err->code : -EIO;
    if (store_failed(store, NULL)) {
        sqlite3_reset(stmt);
        return store_failed(store, err);
    }
    int rc = sqlite3_step(stmt),
        odd = rc == SQLITE_ROW ? ranges_odd(store_ranges(store, stmt), stmt) : -1;
    if (rc == SQLITE_ROW && odd < 0)
        return 1;
    int code = 0;
    if (odd >= 0) {
        snprintf(store->damage, sizeof store->damage, "the %s of a row is out of range",
                sqlite3_column_name(stmt, odd));
        code = store_failed(store, err);
    } else if (rc != SQLITE_DONE) {
        code = store_read_error(store, err);
    }
    sqlite3_reset(stmt);
    return code;
}

int store_step_end(struct store *store, sqlite3_stmt *stmt, struct error *err)
{
    int rc = store_step(store, stmt, err);
    if (rc <= 0)
        return rc;
    sqlite3_reset(stmt);
    return store_damaged(store, err, "two rows stand where one does");
}

int store_get_int(struct store *store, int64_t *ret, struct error *err, const char *sql,
        const char *types, ...)
{
    sqlite3_stmt *stmt = store_prepare(store, sql, err);
    if (!stmt)
        return err ? err->code : -EIO;
    va_list args;
    va_start(args, types);
    store_bind(stmt, types, args);
    va_end(args);
    int rc = store_step(store, stmt, err);
    if (rc < 0)
        return rc;
    bool present = rc == 1 && sqlite3_column_type(stmt, 0) != SQLITE_NULL;
    if (present)
        *ret = sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    return present ? 0 : error_set(err, -ENOENT, "store '%s': no such row", store->path);
}

char *store_get_text(struct store *store, const char *sql, const char *types, ...)
{
    sqlite3_stmt *stmt = store_prepare(store, sql, NULL);
    if (!stmt)
        return NULL;
    va_list args;
    va_start(args, types);
    store_bind(stmt, types, args);
    va_end(args);
    char *text = NULL;
    if (store_step(store, stmt, NULL) == 1 && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        text = xstrdup((const char *)sqlite3_column_text(stmt, 0));
    sqlite3_reset(stmt);
    return text;
}

int store_note(struct store *store, struct error *err, const char *level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    int rc = store_exec(store, err, "INSERT INTO note (at_ns, level, text) VALUES (?, ?, ?)", "iss",
            clock_monotonic_ns(), level, text);
    free(text);
    return rc;
}

int store_ledger(struct store *store, const int64_t *launch_id, const char *producer,
        const char *kind, int64_t seen, int64_t kept, int64_t dropped, int breach,
        const char *detail, struct error *err)
{
    // A traced process says what it dropped, and may say anything.
    int64_t *counts[] = {&seen, &kept, &dropped};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = *counts[i] < RANGE_COUNT_END ? *counts[i] : RANGE_COUNT_END - 1;
    dropped = dropped < 0 ? RANGE_COUNT_END - 1 : dropped;
    return store_exec(store, err,
            "INSERT INTO ledger (launch_id, producer, kind, seen, kept, dropped, breach, detail) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            "IssIIiis", launch_id, producer, kind, seen < 0 ? NULL : &seen, kept < 0 ? NULL : &kept,
            dropped, (int64_t)breach, detail);
}
