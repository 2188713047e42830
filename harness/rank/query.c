// SPDX-License-Identifier: Apache-2.0
// SQL on each shard, and on what came of it.
#include "harness/rank/query.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"

enum {
    QUERY_BATCH = 4096, // values that a thread keeps before it takes the lock: some hundred kB
    QUERY_BATCH_BYTES = 4 << 20, // of their texts and blobs
    QUERY_OWN = 2,               // columns in front: rank and node
    QUERY_SHARD_BITS = 40,       // of a rowid, the number of the row in its shard
    QUERY_CACHE_KB = 65536, // of the table map in memory; what is more goes to a temporary file
    QUERY_LOOK_INSTRUCTIONS = 100000, // of SQLite between two looks at the clock: some milliseconds
    QUERY_LIVE_S = 20 // of a recorder that still writes: after 60 s of commits that a reader puts
                      // off it gives up (tracer/record/writer.c)
};

struct query {
    const struct query_opts *opts;
    struct merge_result shards;
    sqlite3 *db;
    sqlite3_stmt *insert, *rows;
    int columns;          // of the map
    bool known;           // the map is known to be right: it is on the schema of this upgate
    bool own[QUERY_OWN];  // is the column in front? Not where the map has one of its name
    const char *number;   // of a row, by which rows are in order: a name of SQLite's rowid that no
                          // column of the map has
    pthread_mutex_t lock; // of db and what follows
    int rc;
    struct error err;
};

static const char *const query_own_names[QUERY_OWN] = {"rank", "node"};

// --- statements ----------------------------------------------------------------------------------

// Is there nothing but blanks and comments?
static bool query_is_blank(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *more = NULL;
    bool blank = sqlite3_prepare_v2(db, sql, -1, &more, NULL) == SQLITE_OK && !more;
    sqlite3_finalize(more);
    return blank;
}

// One statement that reads. option: of the command line, for the errors.
static int query_prepare(
        sqlite3 *db, const char *option, const char *sql, sqlite3_stmt **ret, struct error *err)
{
    const char *tail = NULL;
    sqlite3_stmt *stmt = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, &tail) != SQLITE_OK) {
        int at = sqlite3_error_offset(db), code = sqlite3_errcode(db);
        char *place = at >= 0 ? xasprintf(" (character %d)", at + 1) : xstrdup("");
        rc = error_set(err, code == SQLITE_ERROR ? -EINVAL : -EIO, "%s: %s%s", option,
                sqlite3_errmsg(db), place);
        free(place);
    } else if (!stmt) {
        rc = error_set(err, -EINVAL, "%s is empty: it wants a SELECT", option);
    } else if (!query_is_blank(db, tail)) {
        rc = error_set(err, -EINVAL, "%s has several statements; it takes one SELECT", option);
    } else if (!sqlite3_stmt_readonly(stmt) || !sqlite3_column_count(stmt)) {
        rc = error_set(err, -EINVAL, "%s is no SELECT: shards are only read", option);
    }
    if (rc) {
        sqlite3_finalize(stmt);
        return rc;
    }
    *ret = stmt;
    return 0;
}

// A column is asked for by its name.
static int query_check_names(const char *option, sqlite3_stmt *stmt, struct error *err)
{
    int count = sqlite3_column_count(stmt);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            if (sqlite3_stricmp(sqlite3_column_name(stmt, i), sqlite3_column_name(stmt, k)) == 0)
                return error_set(err, -EINVAL, "%s has two columns '%s': name one of them by AS",
                        option, sqlite3_column_name(stmt, i));
    return 0;
}

static int query_failed(struct query *query, struct error *err)
{
    int code = sqlite3_errcode(query->db);
    return error_set(err, code == SQLITE_FULL ? -ENOSPC : -EIO,
            "failed to put the rows of the shards together: %s", sqlite3_errmsg(query->db));
}

static int __attribute__((format(printf, 3, 4)))
query_exec(struct query *query, struct error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *sql = xvasprintf(fmt, args);
    va_end(args);
    int rc = sqlite3_exec(query->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
                                                                         : query_failed(query, err);
    free(sql);
    return rc;
}

// --- the map -------------------------------------------------------------------------------------

static bool query_has_column(sqlite3_stmt *stmt, const char *name)
{
    bool has = false;
    for (int i = 0; i < sqlite3_column_count(stmt); i++)
        has |= sqlite3_stricmp(name, sqlite3_column_name(stmt, i)) == 0;
    return has;
}

// A column named rowid hides SQLite's, which has three names.
static const char *query_row_number(sqlite3_stmt *map)
{
    static const char *const names[] = {"rowid", "_rowid_", "oid"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!query_has_column(map, names[i]))
            return names[i];
    return NULL;
}

// By the columns that the map has on one shard.
static int query_make_table(struct query *query, sqlite3_stmt *map, struct error *err)
{
    struct strbuf table = {0}, values = {0};
    int rc = query_check_names("--map", map, err);
    if (rc)
        return rc;
    query->columns = sqlite3_column_count(map);
    query->number = query_row_number(map);
    if (!query->number)
        return error_set(err, -EINVAL,
                "--map has columns rowid, _rowid_ and oid: give one of them another name by AS");
    strbuf_add(&table, "CREATE TABLE map (");
    strbuf_add(&values, "INSERT INTO map (%s", query->number);
    const char *between = "";
    for (int i = 0; i < QUERY_OWN + query->columns; i++) {
        const char *name =
                i < QUERY_OWN ? query_own_names[i] : sqlite3_column_name(map, i - QUERY_OWN);
        bool doubled = i < QUERY_OWN && query_has_column(map, name);
        if (i < QUERY_OWN)
            query->own[i] = !doubled;
        if (doubled)
            continue;
        char *quoted = sqlite3_mprintf("\"%w\"", name);
        strbuf_add(&table, "%s%s", between, quoted);
        strbuf_add(&values, ", %s", quoted);
        sqlite3_free(quoted);
        between = ", ";
    }
    strbuf_add(&table, ")");
    strbuf_add(&values, ") VALUES (?");
    for (int i = 0; i < query->columns + query->own[0] + query->own[1]; i++)
        strbuf_add(&values, ", ?");
    strbuf_add(&values, ")");
    rc = query_exec(query, err, "%s", table.text);
    // two columns more than SQLite takes
    if (rc == -EIO && sqlite3_errcode(query->db) == SQLITE_ERROR)
        rc = error_set(err, -EINVAL, "--map: %s", sqlite3_errmsg(query->db));
    if (rc == 0 &&
            sqlite3_prepare_v2(query->db, values.text, -1, &query->insert, NULL) != SQLITE_OK)
        rc = query_failed(query, err);
    strbuf_free(&table);
    strbuf_free(&values);
    return rc;
}

struct query_batch {
    sqlite3_value *values[QUERY_BATCH]; // of rows, column by column
    size_t count, bytes;                // of values
};

static void query_batch_clear(struct query_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        sqlite3_value_free(batch->values[i]);
    batch->count = batch->bytes = 0;
}

static void query_keep(struct query_batch *batch, sqlite3_stmt *map, int column)
{
    int type = sqlite3_column_type(map, column);
    if (type == SQLITE_TEXT || type == SQLITE_BLOB)
        batch->bytes += (size_t)sqlite3_column_bytes(map, column);
    batch->values[batch->count++] = sqlite3_value_dup(sqlite3_column_value(map, column));
}

// first: the number of the first row in its shard.
static void query_put(struct query *query, const struct scan_shard *shard, size_t index,
        int64_t first, struct query_batch *batch)
{
    pthread_mutex_lock(&query->lock);
    for (size_t i = 0; i < batch->count && !query->rc; i += (size_t)query->columns) {
        int at = 1;
        sqlite3_bind_int64(query->insert, at++,
                (int64_t)index << QUERY_SHARD_BITS | (first + (int64_t)i / query->columns));
        if (query->own[0] && scan_has_several(shard))
            sqlite3_bind_null(query->insert, at++); // its rows are those of all
        else if (query->own[0])
            sqlite3_bind_int(query->insert, at++, shard->who.launcher.rank);
        if (query->own[1])
            sqlite3_bind_text(query->insert, at++, shard->who.host, -1, SQLITE_STATIC);
        for (int k = 0; k < query->columns; k++)
            sqlite3_bind_value(query->insert, at++, batch->values[i + (size_t)k]);
        if (sqlite3_step(query->insert) != SQLITE_DONE)
            query->rc = query_failed(query, &query->err);
        sqlite3_reset(query->insert);
    }
    pthread_mutex_unlock(&query->lock);
    query_batch_clear(batch);
}

static int query_is_late(void *until_ns)
{
    return clock_monotonic_ns() > *(const int64_t *)until_ns;
}

static bool query_goes_on(struct query *query)
{
    pthread_mutex_lock(&query->lock);
    bool goes_on = !query->rc;
    pthread_mutex_unlock(&query->lock);
    return goes_on;
}

static int query_drop(struct query *query, size_t index, struct error *err)
{
    return query_exec(query, err, "DELETE FROM map WHERE %s BETWEEN %lld AND %lld", query->number,
            (long long)index << QUERY_SHARD_BITS, ((long long)(index + 1) << QUERY_SHARD_BITS) - 1);
}

// Asks the schema of this upgate which columns the map has, so that no shard, whoever made it, has
// a say for the others. Where it does not know what the map asks for, that may be a view of the
// user in all of his shards.
static int query_ask_schema(struct query *query, struct error *err)
{
    sqlite3 *schema = NULL;
    sqlite3_stmt *map = NULL;
    struct error unknown = {0};
    int rc = store_open_schema(&schema, err);
    if (rc)
        return rc;
    if (query_prepare(schema, "--map", query->opts->map, &map, &unknown) == 0) {
        rc = query_make_table(query, map, err);
        query->known = rc == 0;
    }
    sqlite3_finalize(map);
    sqlite3_close(schema);
    return rc;
}

// Else the first shard says it. What is wrong with the SQL is wrong on all of them, and ends it.
static int query_prepare_map(
        struct query *query, struct store *store, sqlite3_stmt **ret, struct error *err)
{
    sqlite3_limit(store_db(store), SQLITE_LIMIT_ATTACHED, 0);
    int rc = query_prepare(store_db(store), "--map", query->opts->map, ret, err);
    pthread_mutex_lock(&query->lock);
    if (rc == 0 && !query->insert && !query->rc)
        rc = query_make_table(query, *ret, err);
    if (rc == 0 && !query->rc && sqlite3_column_count(*ret) != query->columns)
        rc = error_set(err, -EINVAL, "--map has %d columns on '%s', %d elsewhere: name them",
                sqlite3_column_count(*ret), store_path(store), query->columns);
    if (rc == -EINVAL && query->known)
        error_prefix(err, "'%s' is not as upgate makes it", store_path(store));
    if (rc == -EINVAL && !query->known && !query->rc) {
        query->rc = rc;
        query->err = *err;
    }
    pthread_mutex_unlock(&query->lock);
    return rc;
}

// A shard is only read: where a disk is full, it is that of what SQLite sorts, and would be on the
// next shard too.
static int query_map_failed(const struct scan_shard *shard, sqlite3 *db, struct error *err)
{
    switch (sqlite3_errcode(db)) {
    case SQLITE_FULL:
        return error_set(err, -ENOSPC,
                "failed to sort or gather what --map selects: %s; SQLITE_TMPDIR names another directory",
                sqlite3_errmsg(db));
    case SQLITE_INTERRUPT:
        return error_set(err, -EIO,
                "'%s' is still being written, and its recorder would not wait longer for --map than %d s",
                shard->path, QUERY_LIVE_S);
    case SQLITE_ERROR:
    case SQLITE_TOOBIG:
        return error_set(err, -EIO, "--map fails on '%s': %s", shard->path, sqlite3_errmsg(db));
    default:
        return error_set(err, -EIO, "failed to read '%s': %s", shard->path, sqlite3_errmsg(db));
    }
}

// Of a shard that fails in the middle nothing is kept: half of a rank would be counted as all of
// it.
static void query_visit(void *arg, struct scan_shard *shard, size_t index, struct store *store)
{
    struct query *query = arg;
    struct error err = {0};
    sqlite3_stmt *map = NULL;
    struct query_batch *batch = NULL;
    int64_t rows = 0, put = 0, until_ns = clock_monotonic_ns() + QUERY_LIVE_S * 1000000000LL;
    if (shard->part) { // its rows do not say whose they are
        shard->why = xasprintf(
                "'%s' has several ranks in one: ask the shards that it was made of", shard->path);
        return;
    }
    int rc = query_goes_on(query) ? store_use_own_views(store, &err) : -ECANCELED,
        step = SQLITE_DONE;
    if (rc == 0)
        rc = query_prepare_map(query, store, &map, &err);
    if (rc == 0)
        batch = xcalloc(1, sizeof *batch);
    if (shard->alive)
        sqlite3_progress_handler(
                store_db(store), QUERY_LOOK_INSTRUCTIONS, query_is_late, &until_ns);
    while (rc == 0 && query_goes_on(query) && (step = sqlite3_step(map)) == SQLITE_ROW) {
        for (int i = 0; i < query->columns; i++)
            query_keep(batch, map, i);
        rows++;
        if (batch->count + (size_t)query->columns > QUERY_BATCH ||
                batch->bytes > QUERY_BATCH_BYTES) {
            query_put(query, shard, index, put, batch);
            put = rows;
        }
    }
    if (rc == 0 && step != SQLITE_DONE && step != SQLITE_ROW)
        rc = query_map_failed(shard, store_db(store), &err);
    if (rc == 0)
        query_put(query, shard, index, put, batch);
    else if (batch)
        query_batch_clear(batch);
    free(batch);
    sqlite3_finalize(map);
    sqlite3_progress_handler(store_db(store), 0, NULL, NULL);
    if (rc == 0 || rc == -ECANCELED)
        return;
    shard->why = xstrdup(err.text);
    pthread_mutex_lock(&query->lock);
    if (rc == -ENOSPC && !query->rc) {
        query->rc = rc;
        query->err = err;
    }
    if (query->insert && !query->rc)
        query->rc = query_drop(query, index, &query->err);
    pthread_mutex_unlock(&query->lock);
}

// A scan that is made again finds the shards as they are then.
static void query_visits_begin(void *arg)
{
    struct query *query = arg;
    if (query->insert && !query->rc)
        query->rc = query_exec(query, &query->err, "DELETE FROM map");
}

// Without those of other restarts, and of a recorder that turned out to be of no rank: it was asked
// before that was known.
static int query_reduce(struct query *query, struct error *err)
{
    const struct merge_result *shards = &query->shards;
    bool *chosen = xcalloc(shards->scan.count + 1, sizeof *chosen);
    int rc = 0;
    for (size_t i = 0; i < shards->chosen_count; i++)
        chosen[shards->chosen[i] - shards->scan.shards] = true;
    for (size_t i = 0; i < shards->scan.count && rc == 0; i++)
        if (!chosen[i])
            rc = query_drop(query, i, err);
    free(chosen);
    if (rc == 0)
        rc = query_prepare(query->db, "--reduce",
                query->opts->reduce ? query->opts->reduce : "SELECT * FROM map", &query->rows, err);
    return rc ? rc : query_check_names("--reduce", query->rows, err);
}

// --- all of it -----------------------------------------------------------------------------------

int query_new(const struct query_opts *opts, struct query **ret, struct error *err)
{
    struct query *query = xcalloc(1, sizeof *query);
    query->opts = opts;
    pthread_mutex_init(&query->lock, NULL);
    *ret = query;
    if (sqlite3_open("", &query->db) != SQLITE_OK) // a temporary file, made when the cache is full
        return query_failed(query, err);
    sqlite3_limit(query->db, SQLITE_LIMIT_ATTACHED, 0);
    int rc = query_exec(
            query, err, "PRAGMA journal_mode = OFF; PRAGMA cache_size = -%d", QUERY_CACHE_KB);
    if (rc == 0)
        rc = query_exec(query, err, "BEGIN");
    if (rc == 0)
        rc = query_ask_schema(query, err);
    if (rc)
        return rc;
    const struct scan_visitor visitor = {
            .run = opts->run, .begin = query_visits_begin, .visit = query_visit, .arg = query};
    const struct merge_opts find = {
            .dir = opts->dir, .run = opts->run, .restart = opts->restart, .visitor = &visitor};
    rc = merge_find(&find, &query->shards, err);
    if (query->rc) {
        *err = query->err;
        return query->rc;
    }
    if (rc == 0 && !query->insert)
        rc = error_set(err, -EINVAL, "no shard of run '%s' can be read: %s", query->shards.run,
                query->shards.missing_count ? query->shards.missing[0].why : "there is none");
    return rc ? rc : query_reduce(query, err);
}

void query_free(struct query *query)
{
    if (!query)
        return;
    sqlite3_finalize(query->insert);
    sqlite3_finalize(query->rows);
    sqlite3_close(query->db);
    pthread_mutex_destroy(&query->lock);
    merge_free(&query->shards);
    free(query);
}

const struct merge_result *query_shards(const struct query *query)
{
    return &query->shards;
}

sqlite3_stmt *query_rows(const struct query *query)
{
    return query->rows;
}

int query_step(struct query *query, struct error *err)
{
    int step = sqlite3_step(query->rows);
    if (step == SQLITE_ROW || step == SQLITE_DONE)
        return step == SQLITE_ROW;
    int code = sqlite3_errcode(query->db);
    return error_set(err,
            code == SQLITE_FULL            ? -ENOSPC
                    : code == SQLITE_ERROR ? -EINVAL
                                           : -EIO,
            "--reduce: %s", sqlite3_errmsg(query->db));
}
