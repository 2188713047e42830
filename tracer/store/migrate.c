// SPDX-License-Identifier: Apache-2.0
// Stores of older versions made to look like the present one. The present schema is loaded into an empty
// database in memory, and what it has more is made in the old one: no second copy of any CREATE is kept.
// That is enough as long as versions only add tables and views: 1 -> 2 did (a run of kind 'record',
// which a table of version 1 refuses, is never added to an old file).
#include "tracer/store/migrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

// "CREATE TABLE x (...)" -> "CREATE TEMP TABLE x (...)". Temporary tables are empty, so indexes are left out.
static char *migrate_sql(const char *sql, bool temporary)
{
    const char *rest = sql + strlen("CREATE");
    return temporary ? xasprintf("CREATE TEMP%s", rest) : xstrdup(sql);
}

static bool migrate_has(sqlite3 *db, const char *type, const char *name)
{
    sqlite3_stmt *stmt = NULL;
    bool has = sqlite3_prepare_v2(db, "SELECT 1 FROM main.sqlite_master WHERE type = ? AND name = ?", -1,
                                  &stmt, NULL) == SQLITE_OK &&
               sqlite3_bind_text(stmt, 1, type, -1, SQLITE_STATIC) == SQLITE_OK &&
               sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC) == SQLITE_OK &&
               sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    return has;
}

static int migrate_objects(sqlite3 *db, sqlite3 *present, bool temporary)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(present,
                                "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid",
                                -1, &stmt, NULL);
    while (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *type = (const char *)sqlite3_column_text(stmt, 0);
        const char *name = (const char *)sqlite3_column_text(stmt, 1);
        if (migrate_has(db, type, name) || (temporary && strcmp(type, "index") == 0))
            continue;
        char *sql = migrate_sql((const char *)sqlite3_column_text(stmt, 2), temporary);
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
        free(sql);
    }
    sqlite3_finalize(stmt);
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

int migrate(sqlite3 *db, const char *schema_sql, bool temporary)
{
    sqlite3 *present = NULL;
    int rc = sqlite3_open(":memory:", &present);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(present, schema_sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, temporary ? "PRAGMA temp_store = MEMORY" : "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = migrate_objects(db, present, temporary);
    if (rc == SQLITE_OK && !temporary)
        rc = migrate_version(db, present);
    if (rc == SQLITE_OK && !temporary)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(present);
    return rc; // an open transaction is rolled back when the caller closes the database
}
