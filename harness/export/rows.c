// SPDX-License-Identifier: Apache-2.0
// One table, a row at a time, through a buffer of our own.
#include "harness/export/rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"

enum { ROWS_BUFFER_BYTES = 1 << 18, ROWS_NUMBER_BYTES = 32 };

struct rows {
    int fd, failed; // failed: -errno of the first write that did
    enum rows_form form;
    size_t used;
    int64_t written, line_begin;
    struct strbuf scratch; // a text that is being made UTF-8
    char buffer[ROWS_BUFFER_BYTES];
};

// --- bytes ---------------------------------------------------------------------------------------

static void rows_send(struct rows *rows, const char *bytes, size_t len)
{
    while (len && !rows->failed) {
        ssize_t sent = write(rows->fd, bytes, len);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            rows->failed = -errno;
        } else {
            bytes += sent;
            len -= (size_t)sent;
        }
    }
}

static void rows_flush(struct rows *rows)
{
    rows_send(rows, rows->buffer, rows->used);
    rows->written += (int64_t)rows->used;
    rows->used = 0;
}

static inline void rows_put(struct rows *rows, const char *bytes, size_t len)
{
    if (len > sizeof rows->buffer - rows->used) {
        rows_flush(rows);
        if (len > sizeof rows->buffer) {
            rows_send(rows, bytes, len);
            rows->written += (int64_t)len;
            return;
        }
    }
    memcpy(rows->buffer + rows->used, bytes, len);
    rows->used += len;
}

static inline void rows_put_byte(struct rows *rows, char byte)
{
    rows_put(rows, &byte, 1);
}

// --- values --------------------------------------------------------------------------------------

// printf would be half of the time of a table of numbers.
static void rows_put_integer(struct rows *rows, int64_t value)
{
    char digits[ROWS_NUMBER_BYTES], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *--at = '-';
    rows_put(rows, at, (size_t)(digits + sizeof digits - at));
}

// 15 digits where they say it all, else the 17 that always do.
static void rows_put_real(struct rows *rows, double value)
{
    char text[ROWS_NUMBER_BYTES];
    int len = isinf(value) ? snprintf(text, sizeof text, "%s", value > 0 ? "Inf" : "-Inf")
                           : snprintf(text, sizeof text, "%.15g", value);
    if (!isinf(value) && strtod(text, NULL) != value)
        len = snprintf(text, sizeof text, "%.17g", value);
    rows_put(rows, text, (size_t)len);
}

static inline void rows_put_hex(struct rows *rows, unsigned char byte)
{
    static const char digits[] = "0123456789abcdef";
    const char hex[2] = {digits[byte >> 4], digits[byte & 15]};
    rows_put(rows, hex, 2);
}

static void rows_put_blob(struct rows *rows, const unsigned char *bytes, size_t len)
{
    rows_put_byte(rows, '"');
    for (size_t i = 0; i < len; i++)
        rows_put_hex(rows, bytes[i]);
    rows_put_byte(rows, '"');
}

static inline bool rows_is_plain(enum rows_form form, unsigned char byte)
{
    return byte != '"' && (form == ROWS_CSV || (byte >= ' ' && byte != '%'));
}

static void rows_put_text(struct rows *rows, const char *text, size_t len)
{
    rows_put_byte(rows, '"');
    for (size_t i = 0, end; i < len; i = end) {
        for (end = i; end < len && rows_is_plain(rows->form, (unsigned char)text[end]); end++)
            ;
        rows_put(rows, text + i, end - i);
        if (end == len)
            break;
        if (rows->form == ROWS_CSV) {
            rows_put(rows, "\"\"", 2);
        } else {
            rows_put_byte(rows, '%');
            rows_put_hex(rows, (unsigned char)text[end]);
        }
        end++;
    }
    rows_put_byte(rows, '"');
}

static bool rows_is_ascii(const char *text, size_t len)
{
    bool plain = true;
    for (size_t i = 0; i < len; i++)
        plain &= text[i] > 0;
    return plain;
}

// 1: it had to be changed.
static int rows_put_any_text(struct rows *rows, const char *text, size_t len)
{
    if (rows_is_ascii(text, len)) {
        rows_put_text(rows, text, len);
        return 0;
    }
    rows->scratch.len = 0;
    strbuf_add_bytes(&rows->scratch, text, len);
    string_make_utf8(rows->scratch.text, len);
    rows_put_text(rows, rows->scratch.text, len);
    return memcmp(rows->scratch.text, text, len) != 0;
}

// --- rows ----------------------------------------------------------------------------------------

static int rows_odd_type(struct store *store, const struct table *table,
        const struct table_column *column, struct error *err)
{
    char *what =
            xasprintf("a %s of %s is of another type than the schema's", column->name, table->name);
    int rc = store_damaged(store, err, what);
    free(what);
    return rc;
}

static int rows_put_value(struct rows *rows, struct store *store, struct table *table, int i,
        sqlite3_stmt *stmt, struct error *err)
{
    static const int wanted[TABLE_TYPE_COUNT] = {
            SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_TEXT, SQLITE_BLOB};
    const struct table_column *column = &table->columns[i];
    int type = sqlite3_column_type(stmt, i);
    if (type == SQLITE_NULL)
        return 0;
    if (type == SQLITE_INTEGER && column->type == TABLE_REAL)
        type = SQLITE_FLOAT; // an expression over integers
    if (type != wanted[column->type])
        return rows_odd_type(store, table, column, err);
    const void *bytes;
    switch (column->type) {
    case TABLE_INTEGER:
        rows_put_integer(rows, sqlite3_column_int64(stmt, i));
        return 0;
    case TABLE_REAL:
        rows_put_real(rows, sqlite3_column_double(stmt, i));
        return 0;
    case TABLE_TEXT:
        bytes = sqlite3_column_text(stmt, i);
        table->odd +=
                rows_put_any_text(rows, bytes ? bytes : "", (size_t)sqlite3_column_bytes(stmt, i));
        return 0;
    default:
        bytes = sqlite3_column_blob(stmt, i);
        rows_put_blob(rows, bytes, (size_t)sqlite3_column_bytes(stmt, i));
        return 0;
    }
}

static void rows_end_line(struct rows *rows, struct table *table)
{
    if (rows->form == ROWS_CSV)
        rows_put_byte(rows, '\r');
    rows_put_byte(rows, '\n');
    int64_t end = rows->written + (int64_t)rows->used;
    if (end - rows->line_begin > table->line_bytes)
        table->line_bytes = end - rows->line_begin;
    rows->line_begin = end;
}

static sqlite3_stmt *rows_query(struct store *store, const struct table *table, struct error *err)
{
    struct strbuf sql = {0};
    // with the table's name: SQLite takes "x" for a text where there is no column x
    for (size_t i = 0; i < table->column_count; i++)
        strbuf_add(
                &sql, "%s\"%s\".\"%s\"", i ? ", " : "SELECT ", table->name, table->columns[i].name);
    strbuf_add(&sql, " FROM \"%s\"", table->name);
    sqlite3_stmt *stmt = store_query(store, err, sql.text, "");
    strbuf_free(&sql);
    return stmt;
}

static int rows_all(struct rows *rows, struct store *store, struct table *table,
        const volatile sig_atomic_t *stop, struct error *err)
{
    sqlite3_stmt *stmt = rows_query(store, table, err);
    int columns = (int)table->column_count, rc = 0, step = 0;
    if (!stmt)
        return err->code;
    for (int i = 0; i < columns; i++) {
        if (i)
            rows_put_byte(rows, ',');
        rows_put(rows, table->columns[i].name, strlen(table->columns[i].name));
    }
    rows_end_line(rows, table);
    while (rc == 0 && !rows->failed && !*stop && (step = store_step(store, stmt, err)) > 0) {
        for (int i = 0; i < columns && rc == 0; i++) {
            if (i)
                rows_put_byte(rows, ',');
            rc = rows_put_value(rows, store, table, i, stmt, err);
        }
        rows_end_line(rows, table);
        table->rows++;
    }
    if (step > 0)
        sqlite3_reset(stmt);
    if (*stop)
        return error_set(err, -EINTR, "ended by a signal");
    return rc ? rc : step < 0 ? step : 0;
}

int rows_write(struct store *store, struct table *table, enum rows_form form, int fd,
        const volatile sig_atomic_t *stop, struct error *err)
{
    struct rows *rows = xcalloc(1, sizeof *rows);
    rows->fd = fd;
    rows->form = form;
    table->rows = table->bytes = table->line_bytes = table->odd = 0;
    int rc = rows_all(rows, store, table, stop, err);
    if (rc == 0)
        rows_flush(rows);
    if (rc == 0 && rows->failed)
        rc = error_set(err, rows->failed, "failed to write %s: %s%s", table->name,
                strerror(-rows->failed),
                rows->failed == -ENOSPC ? "; free space, or name another place with -o" : "");
    table->bytes = rows->written;
    strbuf_free(&rows->scratch);
    free(rows);
    return rc;
}
