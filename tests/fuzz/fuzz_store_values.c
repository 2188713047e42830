// SPDX-License-Identifier: Apache-2.0
// Stores whose pages are sound and whose values are anything: the template without its constraints,
// changed line by line as the input says, through all that reads a store. An input is text, so that
// it can be read and survives a change of the schema (what is not known is passed over):
//
//   readers 2                    bits of enum store_reader; all without it
//   set TABLE COLUMN ROW VALUE   VALUE: null, i NUMBER, r NUMBER, t TEXT, b TEXT (a blob of it), c
//                                COLUMN (another one's)
//   drop TABLE ROW               ROW counts from 0, modulo the rows there are; * is all of them
//   copy TABLE ROW
#include <ctype.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/store_readers.h"

enum { TABLES_MAX = 80, COLUMNS_MAX = 40, LINES_MAX = 64 };

struct table {
    char *name, *columns[COLUMNS_MAX];
    int column_count;
};

static struct table tables[TABLES_MAX];
static int table_count;
static uint8_t *image; // the template without constraints
static sqlite3_int64 image_bytes;

static void must(sqlite3 *db, int rc)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE)
        fprintf(stderr, "SQLite: %s\n", sqlite3_errmsg(db));
    fuzz_require(rc == SQLITE_OK || rc == SQLITE_DONE,
            "SQLite does what the target asks of the template");
}

static sqlite3 *open_image(const uint8_t *bytes, sqlite3_int64 size)
{
    sqlite3 *db = NULL;
    must(db, sqlite3_open(":memory:", &db));
    uint8_t *copy = sqlite3_malloc64((sqlite3_uint64)size);
    fuzz_require(copy != NULL, "memory");
    memcpy(copy, bytes, (size_t)size);
    must(db,
            sqlite3_deserialize(db, "main", copy, size, size,
                    SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE));
    return db;
}

static void load_tables(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    must(db,
            sqlite3_prepare_v2(db,
                    "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
                    "WHERE m.type = 'table' ORDER BY m.rowid, c.cid",
                    -1, &stmt, NULL));
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        if (!table_count || strcmp(tables[table_count - 1].name, name) != 0) {
            fuzz_require(table_count < TABLES_MAX, "room for all tables");
            tables[table_count++].name = xstrdup(name);
        }
        struct table *table = &tables[table_count - 1];
        fuzz_require(table->column_count < COLUMNS_MAX, "room for all columns");
        table->columns[table->column_count++] = xstrdup((const char *)sqlite3_column_text(stmt, 1));
    }
    sqlite3_finalize(stmt);
}

// Every table anew, its columns without type, CHECK, NOT NULL, key and index: what a damaged page
// may hold.
static void loosen(sqlite3 *db)
{
    must(db,
            sqlite3_exec(db, "PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON; BEGIN",
                    NULL, NULL, NULL));
    for (int i = 0; i < table_count; i++) {
        struct strbuf columns = {0};
        for (int k = 0; k < tables[i].column_count; k++)
            strbuf_add(&columns, "%s%s%s", k ? ", " : "", tables[i].columns[k],
                    strcmp(tables[i].columns[k], "id") == 0 ? " INTEGER PRIMARY KEY" : "");
        char *sql = xasprintf(
                "CREATE TABLE fuzz_new (%s); INSERT INTO fuzz_new SELECT * FROM %s; DROP TABLE %s; "
                "ALTER TABLE fuzz_new RENAME TO %s",
                columns.text, tables[i].name, tables[i].name, tables[i].name);
        must(db, sqlite3_exec(db, sql, NULL, NULL, NULL));
        free(sql);
        strbuf_free(&columns);
    }
    must(db, sqlite3_exec(db, "COMMIT; VACUUM", NULL, NULL, NULL));
}

// Nobody reads them, and each connection would parse them: half of the schema.
static void drop_views(sqlite3 *db)
{
    char *names[TABLES_MAX];
    int count = 0;
    sqlite3_stmt *stmt = NULL;
    must(db,
            sqlite3_prepare_v2(
                    db, "SELECT name FROM sqlite_master WHERE type = 'view'", -1, &stmt, NULL));
    while (sqlite3_step(stmt) == SQLITE_ROW && count < TABLES_MAX)
        names[count++] = xasprintf("DROP VIEW %s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    for (int i = 0; i < count; i++) {
        must(db, sqlite3_exec(db, names[i], NULL, NULL, NULL));
        free(names[i]);
    }
}

static void prepare(void)
{
    if (image)
        return;
    store_readers_start();
    size_t size = 0;
    uint8_t *bytes = fuzz_template(&size);
    sqlite3 *db = open_image(bytes, (sqlite3_int64)size);
    load_tables(db);
    drop_views(db);
    loosen(db);
    image = sqlite3_serialize(db, "main", &image_bytes, 0);
    fuzz_require(image != NULL && table_count > 0, "a template");
    sqlite3_close(db);
    free(bytes);
}

static const struct table *find_table(const char *name)
{
    for (int i = 0; name && i < table_count; i++)
        if (strcmp(tables[i].name, name) == 0)
            return &tables[i];
    return NULL;
}

static const char *find_column(const struct table *table, const char *name)
{
    for (int i = 0; table && name && i < table->column_count; i++)
        if (strcmp(table->columns[i], name) == 0)
            return table->columns[i];
    return NULL;
}

static void run(sqlite3 *db, char *sql, const char *kind, const char *value)
{
    sqlite3_stmt *stmt = NULL;
    must(db, sqlite3_prepare_v2(db, sql, -1, &stmt, NULL));
    if (sqlite3_bind_parameter_count(stmt) && value) {
        if (*kind == 'i')
            sqlite3_bind_int64(stmt, 1, strtoll(value, NULL, 0));
        else if (*kind == 'r')
            sqlite3_bind_double(stmt, 1, strtod(value, NULL));
        else if (*kind == 'b')
            sqlite3_bind_blob(stmt, 1, value, (int)strlen(value), SQLITE_TRANSIENT);
        else if (*kind == 't')
            sqlite3_bind_text(stmt, 1, value, (int)strlen(value), SQLITE_TRANSIENT);
    }
    sqlite3_step(stmt); // two rows with the same id: refused, and passed over
    sqlite3_finalize(stmt);
    free(sql);
}

static char *where(const struct table *table, const char *row)
{
    return *row == '*'
            ? xstrdup("true")
            : xasprintf(
                      "rowid = (SELECT rowid FROM %s ORDER BY rowid LIMIT 1 OFFSET %llu %% max(1, (SELECT "
                      "count(*) FROM %s)))",
                      table->name, strtoull(row, NULL, 10) & 0xffff, table->name);
}

static void run_line(sqlite3 *db, char *line, unsigned *readers)
{
    char *verb = strsep(&line, " ");
    if (strcmp(verb, "readers") == 0 && line) {
        unsigned wanted = (unsigned)strtoul(line, NULL, 10) & STORE_READER_ALL;
        *readers = wanted ? wanted : *readers;
        return;
    }
    const struct table *table = find_table(strsep(&line, " "));
    bool set = strcmp(verb, "set") == 0;
    const char *column = set ? find_column(table, strsep(&line, " ")) : NULL;
    const char *row = strsep(&line, " "), *kind = set ? strsep(&line, " ") : NULL;
    if (!table || !row || (set && (!column || !kind)))
        return;
    char *which = where(table, row);
    const char *other = set && *kind == 'c' ? find_column(table, line) : NULL;
    if (set)
        run(db,
                xasprintf("UPDATE OR IGNORE %s SET %s = %s WHERE %s", table->name, column,
                        other ? other : "?", which),
                kind, line);
    else if (strcmp(verb, "drop") == 0)
        run(db, xasprintf("DELETE FROM %s WHERE %s", table->name, which), NULL, NULL);
    else if (strcmp(verb, "copy") == 0 && !find_column(table, "id"))
        run(db,
                xasprintf("INSERT INTO %s SELECT * FROM %s WHERE %s", table->name, table->name,
                        which),
                NULL, NULL);
    free(which);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    char *text = xcalloc(1, size + 1), *rest = text;
    memcpy(text, data, size);
    sqlite3 *db = open_image(image, image_bytes);
    must(db, sqlite3_exec(db, "BEGIN", NULL, NULL, NULL));
    unsigned readers = STORE_READER_ALL;
    for (int i = 0; rest && i < LINES_MAX; i++)
        run_line(db, strsep(&rest, "\n"), &readers);
    must(db, sqlite3_exec(db, "COMMIT", NULL, NULL, NULL));
    sqlite3_int64 bytes = 0;
    uint8_t *store = sqlite3_serialize(db, "main", &bytes, 0);
    sqlite3_close(db);
    const char *path = fuzz_path("values.db");
    fuzz_write(path, store, (size_t)bytes);
    sqlite3_free(store);
    free(text);
    store_readers_run(path, readers);
    fuzz_remove("values.db");
    return 0;
}

// --- mutator: whole lines, of tables and columns that there are, with values that are worth a try

static void add_value(struct strbuf *line, const struct table *table)
{
    static const char *const values[] = {"null", "i 0", "i -1", "i 1", "i 2", "i 3", "i 7", "i 90",
            "i 1000", "i 4294967296", "i 2305843009213693952", "i 9223372036854775807",
            "i -9223372036854775808", "i 9223372036854775", "i 7880209789", "r 0.0", "r -1.5",
            "r 1e308", "r -1e308", "r 1e-308", "r inf", "r -inf", "r 1e19", "r -1e19", "t ", "t x",
            "t \xff\xc3", "t []", "t {}", "t [1, 2, 99999999]", "t [[[", "t {\"name\": null}",
            "t [null, \"\", -1]", "t a;b\x1b[2J|<script>", "t 9999999999999999999999", "b ",
            "b \x01\x02", "b 0123456789abcdef"};
    size_t pick = (size_t)rand() % (sizeof values / sizeof *values + 8);
    if (pick < sizeof values / sizeof *values)
        strbuf_add(line, "%s", values[pick]);
    else if (pick % 2)
        strbuf_add(line, "i %lld",
                (long long)(((uint64_t)rand() << 33 ^ (uint64_t)rand() << 8) >> (rand() % 64)));
    else
        strbuf_add(line, "c %s", table->columns[rand() % table->column_count]);
}

// One in four of a rollout: they are nine of eighty.
static const struct table *pick_table(void)
{
    bool rollout = rand() % 4 == 0;
    const struct table *table;
    do
        table = &tables[rand() % table_count];
    while (rollout && strncmp(table->name, "rollout", 7) != 0);
    return table;
}

static void add_line(struct strbuf *text)
{
    const struct table *table = pick_table();
    int what = rand() % 12;
    char row[16];
    snprintf(row, sizeof row, "%d", rand() % 4 ? rand() % 40 : rand() % 3000);
    if (rand() % 6 == 0)
        strcpy(row, "*");
    if (text->len && text->text[text->len - 1] != '\n')
        strbuf_add(text, "\n");
    if (what == 0) {
        strbuf_add(text, "readers %d\n", 1 << rand() % STORE_READER_COUNT);
    } else if (what == 1) {
        strbuf_add(text, "%s %s %s\n", rand() % 2 ? "drop" : "copy", table->name, row);
    } else {
        strbuf_add(text, "set %s %s %s ", table->name, table->columns[rand() % table->column_count],
                row);
        add_value(text, table);
        strbuf_add(text, "\n");
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned int seed)
{
    prepare();
    srand(seed);
    int what = rand() % 8;
    if (what == 0 && size)
        return LLVMFuzzerMutate(data, size, size_max);
    struct strbuf text = {0};
    // one is nine times as fast as all
    if ((size < 8 || memcmp(data, "readers ", 8) != 0) && rand() % 8)
        strbuf_add(&text, "readers %d\n", 1 << rand() % STORE_READER_COUNT);
    size_t begin = 0, line = 0, gone = what == 1 ? (size_t)rand() % 8 : SIZE_MAX;
    for (size_t at = 0; at < size; at++) { // keeps all lines, or all but one
        if (data[at] != '\n' && at + 1 < size)
            continue;
        if (line++ != gone)
            strbuf_add_bytes(&text, data + begin, at + 1 - begin);
        begin = at + 1;
    }
    for (int i = what < 2 ? 0 : 1 + rand() % 3; i > 0; i--)
        add_line(&text);
    size_t kept = text.len < size_max ? text.len : size_max;
    if (kept)
        memcpy(data, text.text, kept);
    strbuf_free(&text);
    return kept;
}
