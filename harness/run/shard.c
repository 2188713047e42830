// SPDX-License-Identifier: Apache-2.0
// Takes a recorder's shard into the run's store. Reads the shard, writes the store, on the thread that owns
// both by then. What refers to what it learns from the schema itself: a column more needs no change here.
#include "harness/run/shard.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { SHARD_COLUMNS_MAX = 32 };

// Those a recorder writes, each behind the ones it refers to.
static const char *const shard_tables[] = {"frame",     "stack",     "recording", "process",
                                           "thread",    "gap",       "sample",    "lock_wait",
                                           "host_fact", "counter",   "thread_total",
                                           "recorded_step", "ledger", "note"};
enum { SHARD_TABLE_COUNT = sizeof shard_tables / sizeof *shard_tables };

enum shard_column {
    SHARD_COPY,
    SHARD_NUMBER, // of a row, its own or another's: moved behind the numbers in use
    SHARD_FRAMES, // a JSON list of such
    SHARD_LAUNCH
};

struct shard_map {
    struct store *store, *shard;
    int64_t launch_id;
    int64_t offsets[SHARD_TABLE_COUNT]; // the largest number in use in the store
    // Of the table being copied.
    enum shard_column kinds[SHARD_COLUMNS_MAX];
    int64_t moves[SHARD_COLUMNS_MAX];
    int count;
};

int shard_open(struct store **ret_shard, struct error *err)
{
    return store_open("", STORE_CREATE, ret_shard, err);
}

static int shard_error(struct store *store, struct error *err)
{
    int full = (sqlite3_errcode(store_db(store)) & 0xff) == SQLITE_FULL;
    return error_set(err, full ? -ENOSPC : -EIO, "failed to take a recording into '%s': %s",
                     store_path(store), sqlite3_errmsg(store_db(store)));
}

static int shard_table_idx(const char *name)
{
    int idx = 0;
    while (idx < SHARD_TABLE_COUNT && strcmp(shard_tables[idx], name) != 0)
        idx++;
    return idx;
}

static sqlite3_stmt *shard_prepare(struct store *store, char *sql)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(store_db(store), sql, -1, &stmt, NULL);
    free(sql);
    return stmt; // NULL: sqlite3_errmsg has the reason
}

static int64_t shard_max_id(struct store *store, int table)
{
    sqlite3_stmt *stmt = shard_prepare(store, xasprintf("SELECT max(id) FROM %s", shard_tables[table]));
    int64_t max = stmt && sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    sqlite3_finalize(stmt); // a table without numbers has no column of that name
    return max;
}

// What becomes of each column of a table, and the statement that inserts a row.
static sqlite3_stmt *shard_plan(struct shard_map *map, int table)
{
    struct strbuf names = {0}, marks = {0};
    const char *name = shard_tables[table];
    char *columns[SHARD_COLUMNS_MAX];
    map->count = 0;
    sqlite3_stmt *stmt = shard_prepare(map->shard, xasprintf("PRAGMA table_info(%s)", name));
    while (stmt && map->count < SHARD_COLUMNS_MAX && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        bool own = strcmp(column, "id") == 0, frames = table == shard_table_idx("stack") &&
                                                       strcmp(column, "frames") == 0;
        map->kinds[map->count] = own ? SHARD_NUMBER : frames ? SHARD_FRAMES : SHARD_COPY;
        map->moves[map->count] = map->offsets[frames ? shard_table_idx("frame") : table];
        strbuf_add(&names, "%s%s", map->count ? ", " : "", column);
        strbuf_add(&marks, "%s", map->count ? ", ?" : "?");
        columns[map->count++] = xstrdup(column);
    }
    sqlite3_finalize(stmt);
    stmt = shard_prepare(map->shard, xasprintf("PRAGMA foreign_key_list(%s)", name));
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *to = (const char *)sqlite3_column_text(stmt, 2);
        int idx = shard_table_idx(to);
        for (int i = 0; i < map->count; i++) {
            if (strcmp(columns[i], (const char *)sqlite3_column_text(stmt, 3)) != 0)
                continue;
            map->kinds[i] = idx < SHARD_TABLE_COUNT ? SHARD_NUMBER : SHARD_LAUNCH;
            map->moves[i] = idx < SHARD_TABLE_COUNT ? map->offsets[idx] : 0;
        }
    }
    sqlite3_finalize(stmt);
    for (int i = 0; i < map->count; i++)
        free(columns[i]);
    char *sql = xasprintf("INSERT INTO %s (%s) VALUES (%s)", name, names.text ? names.text : "",
                          marks.text ? marks.text : "");
    strbuf_free(&names);
    strbuf_free(&marks);
    return shard_prepare(map->store, sql);
}

// "[3,1]" with every number moved.
static char *shard_move_list(const char *list, int64_t move)
{
    struct strbuf out = {0};
    while (*list) {
        if (isdigit((unsigned char)*list)) {
            char *end;
            strbuf_add(&out, "%lld", strtoll(list, &end, 10) + (long long)move);
            list = end;
        } else {
            strbuf_add_bytes(&out, list++, 1);
        }
    }
    return strbuf_take(&out);
}

static void shard_bind(const struct shard_map *map, sqlite3_stmt *to, sqlite3_stmt *from, int column)
{
    enum shard_column kind = map->kinds[column];
    bool null = sqlite3_column_type(from, column) == SQLITE_NULL;
    if (kind == SHARD_LAUNCH) {
        sqlite3_bind_int64(to, column + 1, map->launch_id);
    } else if (kind == SHARD_NUMBER && !null) {
        sqlite3_bind_int64(to, column + 1, sqlite3_column_int64(from, column) + map->moves[column]);
    } else if (kind == SHARD_FRAMES && !null) {
        char *list = shard_move_list((const char *)sqlite3_column_text(from, column), map->moves[column]);
        sqlite3_bind_text(to, column + 1, list, -1, SQLITE_TRANSIENT);
        free(list);
    } else {
        sqlite3_bind_value(to, column + 1, sqlite3_column_value(from, column));
    }
}

static int shard_copy(struct shard_map *map, int table, struct error *err)
{
    sqlite3_stmt *to = shard_plan(map, table);
    sqlite3_stmt *from = shard_prepare(map->shard, xasprintf("SELECT * FROM %s", shard_tables[table]));
    int rc = to ? 0 : shard_error(map->store, err), step = SQLITE_DONE;
    if (rc == 0 && !from)
        rc = shard_error(map->shard, err);
    while (rc == 0 && (step = sqlite3_step(from)) == SQLITE_ROW) {
        for (int column = 0; column < map->count; column++)
            shard_bind(map, to, from, column);
        if (sqlite3_step(to) != SQLITE_DONE)
            rc = shard_error(map->store, err);
        sqlite3_reset(to);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = shard_error(map->shard, err);
    sqlite3_finalize(to);
    sqlite3_finalize(from);
    return rc;
}

int shard_merge(struct store *store, struct store *shard, int64_t launch_id, struct error *err)
{
    struct shard_map map = {.store = store, .shard = shard, .launch_id = launch_id};
    // A recording that ended on a full disk may name rows that were never written.
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF", NULL, NULL, NULL);
    int rc = store_begin(store, err);
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        map.offsets[table] = shard_max_id(store, table);
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        rc = shard_copy(&map, table, err);
    if (rc == 0)
        rc = store_commit(store, err);
    else
        store_rollback(store);
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = ON", NULL, NULL, NULL);
    return rc;
}
