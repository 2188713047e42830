// SPDX-License-Identifier: Apache-2.0
// Stores of older versions made to look like the present one. The present schema is loaded into an
// empty database in memory, and the old one is compared with it, object by object: no second copy
// of any CREATE is kept. What is missing is made. A table that says something else (a new column,
// another CHECK) is made anew and its rows are copied; a reader, who may not write, gets a view of
// its name in which a column that the file lacks is NULL. So a version may add tables, views and
// columns that allow NULL or have a default.
#include "tracer/store/migrate.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

// "CREATE TABLE x (...)" -> "CREATE TEMP TABLE x (...)".
static char *migrate_sql(const char *sql, bool temporary)
{
    const char *rest = sql + strlen("CREATE");
    return temporary ? xasprintf("CREATE TEMP%s", rest) : xstrdup(sql);
}

// The text of a CREATE without comments, and one space where there is any: what it says.
static char *migrate_plain(const char *sql)
{
    struct strbuf plain = {0};
    char quote = 0;
    for (const char *at = sql; *at; at++) {
        if (!quote && at[0] == '-' && at[1] == '-')
            at += strcspn(at, "\n");
        quote = quote ? (*at == quote ? 0 : quote) : *at == '\'' || *at == '"' ? *at : 0;
        bool space = !quote && isspace((unsigned char)*at);
        if (!*at)
            break;
        // Beside a bracket or a comma a space says nothing.
        bool idle = plain.len == 0 || strchr(" (),", plain.text[plain.len - 1]);
        if (space && idle)
            continue;
        if (!quote && strchr("(),", *at) && plain.len && plain.text[plain.len - 1] == ' ')
            plain.text[--plain.len] = 0;
        strbuf_add_bytes(&plain, space ? " " : at, 1);
    }
    return plain.text ? strbuf_take(&plain) : xstrdup("");
}

static bool migrate_has(sqlite3 *db, const char *type, const char *name)
{
    sqlite3_stmt *stmt = NULL;
    bool has =
            sqlite3_prepare_v2(db, "SELECT 1 FROM main.sqlite_master WHERE type = ? AND name = ?",
                    -1, &stmt, NULL) == SQLITE_OK &&
            sqlite3_bind_text(stmt, 1, type, -1, SQLITE_STATIC) == SQLITE_OK &&
            sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    return has;
}

// Does the file have an object of this name whose text is another one? Not because of its comments
// and spaces.
static bool migrate_differs(sqlite3 *db, const char *type, const char *name, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bool differs = false;
    if (sqlite3_prepare_v2(db, "SELECT sql FROM main.sqlite_master WHERE type = ? AND name = ?", -1,
                &stmt, NULL) == SQLITE_OK &&
            sqlite3_bind_text(stmt, 1, type, -1, SQLITE_STATIC) == SQLITE_OK &&
            sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW) {
        char *old = migrate_plain((const char *)sqlite3_column_text(stmt, 0)),
             *new = migrate_plain(sql);
        differs = strcmp(old, new) != 0;
        free(old);
        free(new);
    }
    sqlite3_finalize(stmt);
    return differs;
}

// The columns of the present table, those that the file lacks as `missing` says: "NULL AS x", or
// left out.
static char *migrate_columns(sqlite3 *db, sqlite3 *present, const char *table, bool missing)
{
    struct strbuf list = {0};
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(
            present, "SELECT name FROM pragma_table_info(?) ORDER BY cid", -1, &stmt, NULL);
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 0);
        bool has = sqlite3_table_column_metadata(
                           db, "main", table, column, NULL, NULL, NULL, NULL, NULL) == SQLITE_OK;
        if (has || missing)
            strbuf_add(&list, "%s%s%s", list.len ? ", " : "", has ? "" : "NULL AS ", column);
    }
    sqlite3_finalize(stmt);
    return strbuf_take(&list);
}

// A table of the file that is not as the present one.
static int migrate_table(
        sqlite3 *db, sqlite3 *present, const char *name, const char *sql, bool temporary)
{
    char *columns = migrate_columns(db, present, name, temporary);
    const char *body = strchr(sql, '('); // "CREATE TABLE name (...) STRICT"
    char *change = temporary
            ? xasprintf("CREATE TEMP VIEW %s AS SELECT %s FROM main.%s", name, columns, name)
            : xasprintf(
                      "CREATE TABLE migrated_%s %s; INSERT INTO migrated_%s (%s) SELECT %s FROM %s; "
                      "DROP TABLE %s; ALTER TABLE migrated_%s RENAME TO %s",
                      name, body, name, columns, columns, name, name, name, name);
    int rc = sqlite3_exec(db, change, NULL, NULL, NULL);
    free(change);
    free(columns);
    return rc;
}

// anew: also those that the file has, as they are: temporary ones, which see the temporary tables.
static int migrate_objects(
        sqlite3 *db, sqlite3 *present, bool temporary, bool anew, const char *wanted)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(present,
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type = ? ORDER BY rowid",
            -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(stmt, 1, wanted, -1, SQLITE_STATIC);
    while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *type = (const char *)sqlite3_column_text(stmt, 0);
        const char *name = (const char *)sqlite3_column_text(stmt, 1);
        const char *sql = (const char *)sqlite3_column_text(stmt, 2);
        bool table = strcmp(type, "table") == 0, differs = migrate_differs(db, type, name, sql);
        if (table && differs) {
            rc = migrate_table(db, present, name, sql, temporary);
        } else if (anew || !migrate_has(db, type, name) || (temporary && differs)) {
            char *create = migrate_sql(sql, temporary);
            rc = sqlite3_exec(db, create, NULL, NULL, NULL);
            free(create);
        }
    }
    sqlite3_finalize(stmt);
    return rc;
}

// Views name columns: ours are made anew once the tables have them. By the names that we give them:
// what else a file has is left alone, and its names, which may hold any text, never become SQL.
static int migrate_drop_views(sqlite3 *db, sqlite3 *present)
{
    struct strbuf sql = {0};
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(
            present, "SELECT name FROM sqlite_master WHERE type = 'view'", -1, &stmt, NULL);
    while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
        strbuf_add(
                &sql, "DROP VIEW IF EXISTS main.%s; ", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    if (rc == SQLITE_OK && sql.len)
        rc = sqlite3_exec(db, sql.text, NULL, NULL, NULL);
    strbuf_free(&sql);
    return rc;
}

static int migrate_version(sqlite3 *db, sqlite3 *present)
{
    sqlite3_stmt *stmt = NULL;
    char sql[64] = "";
    int rc = sqlite3_prepare_v2(present, "PRAGMA user_version", -1, &stmt, NULL);
    if (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d", sqlite3_column_int(stmt, 0));
    sqlite3_finalize(stmt);
    return rc == SQLITE_OK ? sqlite3_exec(db, sql, NULL, NULL, NULL) : rc;
}

// Foreign keys and the views' names must not follow a table that is being made anew.
static const char *const migrate_begin =
        "PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON; BEGIN IMMEDIATE";
static const char *const migrate_end = "COMMIT; PRAGMA legacy_alter_table = OFF";

int migrate_open_present(const char *schema_sql, sqlite3 **ret)
{
    int rc = sqlite3_open(":memory:", ret);
    return rc == SQLITE_OK ? sqlite3_exec(*ret, schema_sql, NULL, NULL, NULL) : rc;
}

int migrate(sqlite3 *db, const char *schema_sql, bool temporary)
{
    sqlite3 *present = NULL;
    int rc = migrate_open_present(schema_sql, &present);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(
                db, temporary ? "PRAGMA temp_store = MEMORY" : migrate_begin, NULL, NULL, NULL);
    if (rc == SQLITE_OK && !temporary)
        rc = migrate_drop_views(db, present);
    if (rc == SQLITE_OK)
        rc = migrate_objects(db, present, temporary, false, "table");
    // temporary tables are empty, and what a view shows has its table's
    if (rc == SQLITE_OK && !temporary)
        rc = migrate_objects(db, present, temporary, false, "index");
    if (rc == SQLITE_OK)
        rc = migrate_objects(db, present, temporary, temporary, "view");
    if (rc == SQLITE_OK && !temporary)
        rc = migrate_version(db, present);
    if (rc == SQLITE_OK && !temporary)
        rc = sqlite3_exec(db, migrate_end, NULL, NULL, NULL);
    sqlite3_close(present);
    return rc; // an open transaction is rolled back when the caller closes the database
}

int migrate_views(sqlite3 *db, const char *schema_sql)
{
    sqlite3 *present = NULL;
    int rc = migrate_open_present(schema_sql, &present);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = migrate_objects(db, present, true, false, "view");
    sqlite3_close(present);
    return rc;
}
