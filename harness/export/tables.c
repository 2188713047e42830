// SPDX-License-Identifier: Apache-2.0
// Tables, views, columns and types, asked of the schema.
#include "harness/export/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/store/store.h"

// Of a view SQLite knows the type of a column that is a table's, not of an expression. Names ending
// in _ns are integers by the law of tracer/store/ranges.h; these are the others. One that is
// missing here is refused by tables_load: every test of export says so.
static const struct {
    const char *name;
    enum table_type type;
} tables_expressions[] = {{"side", TABLE_TEXT}, {"kind", TABLE_TEXT}, {"direction", TABLE_TEXT},
        {"arm", TABLE_TEXT}, {"depth", TABLE_INTEGER}, {"python_step", TABLE_INTEGER},
        {"ratio", TABLE_REAL}, {"resident", TABLE_INTEGER}};

static bool tables_type(const char *declared, const char *name, enum table_type *ret)
{
    static const char *const words[TABLE_TYPE_COUNT] = {"INTEGER", "REAL", "TEXT", "BLOB"};
    size_t len = strlen(name);
    for (int i = 0; declared && i < TABLE_TYPE_COUNT; i++)
        if (strcasecmp(declared, words[i]) == 0) {
            *ret = (enum table_type)i;
            return true;
        }
    if (len > 3 && strcmp(name + len - 3, "_ns") == 0) {
        *ret = TABLE_INTEGER;
        return true;
    }
    for (size_t i = 0; i < sizeof tables_expressions / sizeof *tables_expressions; i++)
        if (strcmp(name, tables_expressions[i].name) == 0) {
            *ret = tables_expressions[i].type;
            return true;
        }
    return false;
}

static int tables_failed(sqlite3 *schema, struct error *err)
{
    return error_set(
            err, -EIO, "failed to read the schema of this upgate: %s", sqlite3_errmsg(schema));
}

static int tables_load_columns(sqlite3 *schema, struct table *table, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    char *sql = sqlite3_mprintf("SELECT * FROM \"%w\"", table->name);
    int rc = sqlite3_prepare_v2(schema, sql, -1, &stmt, NULL) == SQLITE_OK
            ? 0
            : tables_failed(schema, err);
    for (int i = 0; rc == 0 && i < sqlite3_column_count(stmt); i++) {
        struct table_column column = {.name = xstrdup(sqlite3_column_name(stmt, i))};
        if (!tables_type(sqlite3_column_decltype(stmt, i), column.name, &column.type))
            rc = error_set(err, -EIO,
                    "column %s of %s has no type in the schema and none in harness/export/tables.c",
                    column.name, table->name);
        vector_push(table->columns, table->column_count, column);
    }
    sqlite3_finalize(stmt);
    sqlite3_free(sql);
    return rc;
}

static int tables_load_all(sqlite3 *schema, struct tables *all, struct error *err)
{
    static const char sql[] =
            "SELECT name, type = 'view' FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
            "ESCAPE '\\' ORDER BY 2, rowid";
    sqlite3_stmt *stmt = NULL;
    int step = SQLITE_DONE,
        rc = sqlite3_prepare_v2(schema, sql, -1, &stmt, NULL) == SQLITE_OK
            ? 0
            : tables_failed(schema, err);
    while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct table *table = vector_add(all->items, all->count);
        table->name = xstrdup((const char *)sqlite3_column_text(stmt, 0));
        table->view = sqlite3_column_int(stmt, 1);
        rc = tables_load_columns(schema, table, err);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = tables_failed(schema, err);
    sqlite3_finalize(stmt);
    return rc;
}

static void tables_free_one(struct table *table)
{
    for (size_t i = 0; i < table->column_count; i++)
        free(table->columns[i].name);
    free(table->columns);
    free(table->name);
}

static int tables_unknown(const struct tables *all, const char *word, struct error *err)
{
    const char **names = xcalloc(all->count, sizeof *names);
    for (size_t i = 0; i < all->count; i++)
        names[i] = all->items[i].name;
    const char *nearest = string_nearest(word, names, all->count);
    free(names);
    return nearest
            ? error_set(err, -EINVAL, "--tables: no table or view '%s'; did you mean '%s'?", word,
                      nearest)
            : error_set(err, -EINVAL,
                      "--tables: no table or view '%s'; docs/SCHEMA.md has their names", word);
}

// Those of the list stay, in the order of the schema.
static int tables_choose(const char *wanted, struct tables *all, struct error *err)
{
    bool *keep = xcalloc(all->count, sizeof *keep);
    char *words = xstrdup(wanted), *rest = words, *word;
    size_t kept = 0;
    int rc = 0;
    while (rc == 0 && (word = strsep(&rest, ","))) {
        const struct table *table = tables_find(all, word);
        if (table)
            keep[table - all->items] = true;
        else
            rc = *word ? tables_unknown(all, word, err)
                       : error_set(err, -EINVAL,
                                 "--tables: an empty name; it takes a list as gap,v_cell");
    }
    for (size_t i = 0; rc == 0 && i < all->count; i++)
        if (keep[i])
            all->items[kept++] = all->items[i];
        else
            tables_free_one(&all->items[i]);
    if (rc == 0)
        all->count = kept;
    free(words);
    free(keep);
    return rc;
}

const struct table *tables_find(const struct tables *tables, const char *name)
{
    for (size_t i = 0; i < tables->count; i++)
        if (strcmp(tables->items[i].name, name) == 0)
            return &tables->items[i];
    return NULL;
}

int tables_load(const char *wanted, struct tables *ret, struct error *err)
{
    sqlite3 *schema = NULL;
    *ret = (struct tables){0};
    int rc = store_open_schema(&schema, err);
    if (rc)
        return rc;
    rc = tables_load_all(schema, ret, err);
    sqlite3_close(schema);
    return rc || !wanted ? rc : tables_choose(wanted, ret, err);
}

void tables_free(struct tables *tables)
{
    for (size_t i = 0; i < tables->count; i++)
        tables_free_one(&tables->items[i]);
    free(tables->items);
    *tables = (struct tables){0};
}
