// SPDX-License-Identifier: Apache-2.0
// Takes a recorder's shard into the run's store, on the thread that owns both by then: the shard's connection attaches the
// store and copies table by table, so that millions of rows do not pass through here. What refers to what it
// learns from the schema itself: a column more needs no change here.
//
// Rows are numbered behind those in use. Texts and kernels are shared by all recordings of a store: theirs are looked
// up by content, and the numbers translated by functions of the connection.
#include "harness/run/shard.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { SHARD_COLUMNS_MAX = 48, SHARD_BUSY_MS = 5000 };

// Those a recorder writes, each behind the ones it refers to.
static const char *const shard_tables[] = {
    "frame",      "stack",      "string",     "gpu_kernel",   "recording",     "process",    "thread",
    "gap",        "sample",     "lock_wait",  "host_fact",    "counter",       "thread_total", "recorded_step",
    "gpu_process", "gpu_device", "gpu_stream", "gpu_work",    "gpu_op",      "gpu_call",      "gpu_sync",   "gpu_memory",
    "gpu_overhead", "gpu_graph_node", "nvtx_range", "nccl_op",  "python_mark",  "python_gc",     "launch_stack", "clock_sample",
    "ledger",     "note"};
enum { SHARD_TABLE_COUNT = sizeof shard_tables / sizeof *shard_tables };

// Shared rows: from their number in the shard to the one in the store.
enum shard_shared { SHARD_STRING, SHARD_KERNEL, SHARD_SHARED_COUNT };
static const char *const shard_shared_tables[SHARD_SHARED_COUNT] = {"string", "gpu_kernel"};

struct shard_ids {
    int64_t *ids;
    int64_t count;
};

struct shard_map {
    struct store *store, *shard;
    int64_t launch_id;
    int64_t offsets[SHARD_TABLE_COUNT]; // the largest number in use in the store
    struct shard_ids shared[SHARD_SHARED_COUNT];
};

int shard_open(struct store **ret_shard, struct error *err)
{
    return store_open("", STORE_CREATE, ret_shard, err);
}

static int shard_error(struct shard_map *map, struct error *err)
{
    sqlite3 *db = store_db(map->shard);
    int rc = sqlite3_errcode(db) & 0xff, system = sqlite3_system_errno(db);
    bool full = rc == SQLITE_FULL ||
                (rc == SQLITE_IOERR && (system == ENOSPC || system == EFBIG || system == EDQUOT));
    return error_set(err, full ? -ENOSPC : rc == SQLITE_BUSY ? -EBUSY : -EIO,
                     "failed to take a recording into '%s': %s", store_path(map->store),
                     full ? "the disk is full" : sqlite3_errmsg(db));
}

static int shard_exec(struct shard_map *map, const char *sql, struct error *err)
{
    return sqlite3_exec(store_db(map->shard), sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : shard_error(map, err);
}

static int shard_table_idx(const char *name)
{
    int idx = 0;
    while (idx < SHARD_TABLE_COUNT && strcmp(shard_tables[idx], name) != 0)
        idx++;
    return idx;
}

static sqlite3_stmt *shard_prepare(struct shard_map *map, char *sql)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(store_db(map->shard), sql, -1, &stmt, NULL);
    free(sql);
    return stmt; // NULL: sqlite3_errmsg has the reason
}

static int shard_max_id(struct shard_map *map, const char *schema, const char *table, int64_t *ret_max, struct error *err)
{
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("SELECT max(id) FROM %s.%s", schema, table));
    *ret_max = 0;
    if (!stmt) // a table without numbers has no column of that name
        return sqlite3_errcode(store_db(map->shard)) == SQLITE_ERROR ? 0 : shard_error(map, err);
    int rc = sqlite3_step(stmt) == SQLITE_ROW ? 0 : shard_error(map, err);
    if (rc == 0)
        *ret_max = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc;
}

// --- functions of the connection ------------------------------------------------------------------

// "[3,1]" with every number moved, or looked up.
static char *shard_move_list(const char *list, int64_t move, const struct shard_ids *ids)
{
    struct strbuf out = {0};
    while (*list) {
        if (isdigit((unsigned char)*list)) {
            char *end;
            int64_t number = strtoll(list, &end, 10);
            if (ids)
                number = number < ids->count ? ids->ids[number] : 0;
            strbuf_add(&out, "%lld", (long long)(number + move));
            list = end;
        } else {
            strbuf_add_bytes(&out, list++, 1);
        }
    }
    return strbuf_take(&out);
}

static void shard_result_list(sqlite3_context *context, const char *list, int64_t move, const struct shard_ids *ids)
{
    char *text = list ? shard_move_list(list, move, ids) : NULL;
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT); // NULL is NULL
    free(text);
}

static void shard_on_move(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_list(context, (const char *)sqlite3_value_text(values[0]), sqlite3_value_int64(values[1]), NULL);
}

static void shard_on_list(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_list(context, (const char *)sqlite3_value_text(values[0]), 0, sqlite3_user_data(context));
}

static void shard_on_id(sqlite3_context *context, int count, sqlite3_value **values)
{
    const struct shard_ids *ids = sqlite3_user_data(context);
    int64_t id = sqlite3_value_int64(values[0]);
    (void)count;
    if (id > 0 && id < ids->count && ids->ids[id])
        sqlite3_result_int64(context, ids->ids[id]); // else NULL, which it was
}

static int shard_functions(struct shard_map *map, struct error *err)
{
    sqlite3 *db = store_db(map->shard);
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    struct shard_ids *strings = &map->shared[SHARD_STRING], *kernels = &map->shared[SHARD_KERNEL];
    if (sqlite3_create_function(db, "shard_move", 2, flags, NULL, shard_on_move, NULL, NULL) ||
        sqlite3_create_function(db, "shard_strings", 1, flags, strings, shard_on_list, NULL, NULL) ||
        sqlite3_create_function(db, "shard_string", 1, flags, strings, shard_on_id, NULL, NULL) ||
        sqlite3_create_function(db, "shard_gpu_kernel", 1, flags, kernels, shard_on_id, NULL, NULL))
        return shard_error(map, err);
    return 0;
}

// --- shared rows ----------------------------------------------------------------------------------

static int shard_read_ids(struct shard_map *map, enum shard_shared shared, const char *sql, struct error *err)
{
    struct shard_ids *ids = &map->shared[shared];
    int rc = shard_max_id(map, "main", shard_shared_tables[shared], &ids->count, err);
    if (rc)
        return rc;
    ids->ids = xcalloc((size_t)++ids->count, sizeof *ids->ids);
    sqlite3_stmt *stmt = shard_prepare(map, xstrdup(sql));
    int step = stmt ? SQLITE_ROW : SQLITE_ERROR;
    while (stmt && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t from = sqlite3_column_int64(stmt, 0);
        if (from > 0 && from < ids->count && !ids->ids[from]) // kernels: the first of equal ones
            ids->ids[from] = sqlite3_column_int64(stmt, 1);
    }
    rc = step == SQLITE_DONE ? 0 : shard_error(map, err);
    sqlite3_finalize(stmt);
    return rc;
}

static int shard_strings(struct shard_map *map, struct error *err)
{
    int rc = shard_exec(map, "INSERT OR IGNORE INTO run.string (text) SELECT text FROM main.string ORDER BY id", err);
    return rc ? rc
              : shard_read_ids(map, SHARD_STRING,
                               "SELECT s.id, r.id FROM main.string s JOIN run.string r ON r.text = s.text", err);
}

// Kernels are equal when all but their numbers is.
static void shard_add_equal(struct strbuf *sql, const char *column)
{
    if (strcmp(column, "id") == 0)
        return;
    if (strcmp(column, "name_id") == 0)
        strbuf_add(sql, "%sr.name_id = shard_string(s.name_id)", sql->len ? " AND " : "");
    else
        strbuf_add(sql, "%sr.%s IS s.%s", sql->len ? " AND " : "", column, column);
}

static int shard_kernels(struct shard_map *map, struct error *err)
{
    struct strbuf names = {0}, values = {0}, equal = {0};
    sqlite3_stmt *stmt = shard_prepare(map, xstrdup("PRAGMA main.table_info(gpu_kernel)"));
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        shard_add_equal(&equal, column);
        if (strcmp(column, "id") == 0)
            continue;
        strbuf_add(&names, "%s%s", names.len ? ", " : "", column);
        bool text = strcmp(column, "name_id") == 0;
        strbuf_add(&values, text ? "%sshard_string(s.%s)" : "%ss.%s", values.len ? ", " : "", column);
    }
    sqlite3_finalize(stmt);
    if (!names.len)
        return error_set(err, -EIO, "failed to take a recording into '%s': no table gpu_kernel", store_path(map->store));
    // As sets: each looked for among all the others would be tens of thousands squared.
    char *insert = xasprintf("INSERT INTO run.gpu_kernel (%s) SELECT %s FROM main.gpu_kernel s EXCEPT SELECT %s FROM "
                             "run.gpu_kernel", names.text, values.text, names.text);
    char *select = xasprintf("SELECT s.id, r.id FROM main.gpu_kernel s JOIN run.gpu_kernel r ON %s ORDER BY r.id", equal.text);
    int rc = shard_exec(map, insert, err);
    if (rc == 0)
        rc = shard_read_ids(map, SHARD_KERNEL, select, err);
    free(insert);
    free(select);
    strbuf_free(&names);
    strbuf_free(&values);
    strbuf_free(&equal);
    return rc;
}

// --- a table --------------------------------------------------------------------------------------

// What becomes of a column; the caller frees. to: the table it refers to, or NULL.
static char *shard_value(const struct shard_map *map, int table, const char *column, const char *to)
{
    const char *name = shard_tables[table];
    bool frames = strcmp(column, "frames") == 0;
    int idx = to ? shard_table_idx(to) : SHARD_TABLE_COUNT;
    if (strcmp(column, "id") == 0)
        return xasprintf("s.id + %lld", (long long)map->offsets[table]);
    if (frames && strcmp(name, "stack") == 0)
        return xasprintf("shard_move(s.frames, %lld)", (long long)map->offsets[shard_table_idx("frame")]);
    if (frames && strcmp(name, "launch_stack") == 0)
        return xstrdup("shard_strings(s.frames)");
    if (!to)
        return xasprintf("s.%s", column);
    for (int i = 0; i < SHARD_SHARED_COUNT; i++)
        if (strcmp(to, shard_shared_tables[i]) == 0)
            return xasprintf("shard_%s(s.%s)", to, column);
    return idx < SHARD_TABLE_COUNT ? xasprintf("s.%s + %lld", column, (long long)map->offsets[idx])
                                   : xasprintf("%lld", (long long)map->launch_id);
}

// The table that a column refers to, or NULL; the caller frees.
static char *shard_reference(struct shard_map *map, const char *table, const char *column)
{
    char *to = NULL;
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("PRAGMA main.foreign_key_list(%s)", table));
    while (stmt && !to && sqlite3_step(stmt) == SQLITE_ROW)
        if (strcmp((const char *)sqlite3_column_text(stmt, 3), column) == 0)
            to = xstrdup((const char *)sqlite3_column_text(stmt, 2));
    sqlite3_finalize(stmt);
    return to;
}

static int shard_copy(struct shard_map *map, int table, struct error *err)
{
    struct strbuf names = {0}, values = {0};
    const char *name = shard_tables[table];
    if (strcmp(name, "string") == 0)
        return shard_strings(map, err);
    if (strcmp(name, "gpu_kernel") == 0)
        return shard_kernels(map, err);
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("PRAGMA main.table_info(%s)", name));
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        char *to = shard_reference(map, name, column), *value = shard_value(map, table, column, to);
        strbuf_add(&names, "%s%s", names.len ? ", " : "", column);
        strbuf_add(&values, "%s%s", values.len ? ", " : "", value);
        free(value);
        free(to);
    }
    sqlite3_finalize(stmt);
    char *sql = xasprintf("INSERT INTO run.%s (%s) SELECT %s FROM main.%s s", name, names.text ? names.text : "",
                          values.text ? values.text : "", name);
    int rc = shard_exec(map, sql, err);
    free(sql);
    strbuf_free(&names);
    strbuf_free(&values);
    return rc;
}

static int shard_attach(struct shard_map *map, struct error *err)
{
    char *sql = sqlite3_mprintf("ATTACH %Q AS run", store_path(map->store));
    sqlite3_busy_timeout(store_db(map->shard), SHARD_BUSY_MS);
    // A recording that ended on a full disk may name rows that were never written.
    int rc = shard_exec(map, "PRAGMA foreign_keys = OFF", err);
    if (rc == 0)
        rc = shard_exec(map, sql, err);
    sqlite3_free(sql);
    return rc;
}

int shard_merge(struct store *store, struct store *shard, int64_t launch_id, struct error *err)
{
    struct shard_map map = {.store = store, .shard = shard, .launch_id = launch_id};
    int rc = shard_attach(&map, err);
    if (rc)
        return rc;
    rc = shard_functions(&map, err);
    if (rc == 0)
        rc = shard_exec(&map, "BEGIN IMMEDIATE", err);
    bool open = rc == 0;
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        rc = shard_max_id(&map, "run", shard_tables[table], &map.offsets[table], err);
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        rc = shard_copy(&map, table, err);
    if (rc == 0)
        rc = shard_exec(&map, "COMMIT", err);
    if (rc && open)
        sqlite3_exec(store_db(shard), "ROLLBACK", NULL, NULL, NULL);
    sqlite3_exec(store_db(shard), "DETACH run", NULL, NULL, NULL);
    for (int i = 0; i < SHARD_SHARED_COUNT; i++)
        free(map.shared[i].ids);
    return rc;
}
