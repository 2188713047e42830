// SPDX-License-Identifier: Apache-2.0
// scan_table reads pages by itself and must never say anything else than SQL does: random tables in
// files made with all kinds of pragmas, shapes of tables that pages tell otherwise than SQL does,
// files that somebody writes or has left in the middle of writing. `restart` tells which of the two
// ways was gone.
#include "reports/analyse/trace/trace_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

enum { COLUMNS = 4, ROWS_MAX = 3000 };

struct rows { // as they came
    int64_t *values;
    size_t count, capacity;
    int restarts;
};

struct world {
    char dir[64], path[96];
    sqlite3 *db; // writes
};

static void rows_push(void *arg, const int64_t *values, uint32_t nulls)
{
    struct rows *rows = arg;
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity ? rows->capacity * 2 : 256;
        rows->values =
                xrealloc(rows->values, rows->capacity * (COLUMNS + 1) * sizeof *rows->values);
    }
    int64_t *row = rows->values + rows->count++ * (COLUMNS + 1);
    memcpy(row, values, COLUMNS * sizeof *row);
    row[COLUMNS] = nulls;
}

static void rows_push_many(void *arg, const struct scan_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rows_push(arg, rows[i].values, rows[i].nulls);
}

static void rows_restart(void *arg)
{
    ((struct rows *)arg)->count = 0;
    ((struct rows *)arg)->restarts++;
}

static void world_sql(struct world *world, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
static void world_sql(struct world *world, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *sql = sqlite3_vmprintf(fmt, args), *text = NULL;
    va_end(args);
    if (sqlite3_exec(world->db, sql, NULL, NULL, &text) != SQLITE_OK) {
        printf("    %s: %s\n", sql, text);
        exit(1);
    }
    sqlite3_free(sql);
}

static void world_connect(struct world *world)
{
    if (sqlite3_open(world->path, &world->db) != SQLITE_OK)
        exit(1);
}

// pragmas: before the first page is written. A file that store_open takes for one of ours.
static void world_open(struct world *world, const char *pragmas, int reserve)
{
    *world = (struct world){0};
    snprintf(world->dir, sizeof world->dir, "/tmp/upgate-scan-XXXXXX");
    if (!mkdtemp(world->dir))
        exit(1);
    snprintf(world->path, sizeof world->path, "%s/run.db", world->dir);
    world_connect(world);
    if (reserve)
        sqlite3_file_control(world->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserve);
    world_sql(world, "%s PRAGMA application_id = 0x55504754; PRAGMA user_version = 8;", pragmas);
}

static void world_close(struct world *world)
{
    sqlite3_close(world->db);
    char *command = xasprintf("rm -r '%s'", world->dir);
    CHECK_INT(system(command), 0);
    free(command);
}

static void rows_of_sql(struct store *store, struct rows *rows)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(store_db(store), "SELECT a, b, c, d FROM t", -1, &stmt, NULL) !=
            SQLITE_OK)
        exit(1);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        int64_t values[COLUMNS];
        uint32_t nulls = 0;
        for (int i = 0; i < COLUMNS; i++) {
            values[i] = sqlite3_column_int64(stmt, i);
            nulls |= (uint32_t)(sqlite3_column_type(stmt, i) == SQLITE_NULL) << i;
        }
        rows_push(rows, values, nulls);
    }
    sqlite3_finalize(stmt);
}

// Compares both in the file as it is now. Returns whether pages were read.
static bool scan_same(const char *path, const char *prepare)
{
    struct store *store = NULL;
    struct error err = {0};
    struct rows got = {0}, want = {0};
    const struct scan scan = {.table = "t",
            .columns = "a, b, c, d",
            .column_count = COLUMNS,
            .rows = rows_push_many,
            .restart = rows_restart,
            .arg = &got};
    CHECK_INT(store_open(path, STORE_READ, &store, &err), 0);
    if (prepare)
        CHECK_INT(sqlite3_exec(store_db(store), prepare, NULL, NULL, NULL), SQLITE_OK);
    CHECK_INT(scan_table(store, &scan, &err), 0);
    CHECK(prepare || sqlite3_get_autocommit(store_db(store)));
    rows_of_sql(store, &want);
    CHECK_INT(got.count, want.count);
    if (got.count && got.count == want.count)
        CHECK(!memcmp(got.values, want.values, got.count * (COLUMNS + 1) * sizeof *got.values));
    store_close(store);
    free(got.values);
    free(want.values);
    return got.restarts == 0;
}

// ---- random tables ----

static uint64_t random_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t z = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// All lengths that an integer has in a file, its borders among them. Odd: 1 in `odd` is no integer.
static void random_bind(sqlite3_stmt *stmt, int column, uint64_t *state, unsigned odd)
{
    uint64_t word = random_next(state), of = random_next(state);
    int64_t value = (int64_t)word >> of % 64;
    if (odd && of / 64 % odd == 0) {
        if (word % 3 == 0)
            sqlite3_bind_double(stmt, column, (double)value / 3);
        else if (word % 3 == 1)
            sqlite3_bind_text(stmt, column, "word", -1, SQLITE_STATIC);
        else
            // up to a chain of other pages
            sqlite3_bind_zeroblob(stmt, column, (int)(word / 3 % 3000));
        return;
    }
    switch (of / 64 % 8) {
    case 0:
        sqlite3_bind_null(stmt, column);
        break;
    case 1:
        sqlite3_bind_int64(stmt, column, (int64_t)(word % 3) - 1);
        break;
    case 2:
        sqlite3_bind_int64(
                stmt, column, ((int64_t)1 << (7 + 8 * (word % 6))) - (int64_t)(word / 6 % 2));
        break;
    case 3:
        sqlite3_bind_int64(stmt, column, word % 2 ? INT64_MIN : INT64_MAX);
        break;
    default:
        sqlite3_bind_int64(stmt, column, value);
    }
}

static void world_fill(struct world *world, int count, unsigned odd, uint64_t *state)
{
    sqlite3_stmt *stmt = NULL;
    world_sql(world, "BEGIN");
    if (sqlite3_prepare_v2(world->db, "INSERT INTO t (a, b, c, d) VALUES (?, ?, ?, ?)", -1, &stmt,
                NULL) != SQLITE_OK)
        exit(1);
    for (int i = 0; i < count; i++) {
        for (int column = 1; column <= COLUMNS; column++)
            random_bind(stmt, column, state, odd);
        if (sqlite3_step(stmt) != SQLITE_DONE || sqlite3_reset(stmt) != SQLITE_OK)
            exit(1);
    }
    sqlite3_finalize(stmt);
    world_sql(world, "COMMIT");
}

TEST(random_tables_are_read_as_sql_reads_them)
{
    static const int sizes[] = {512, 1024, 4096, 65536};
    uint64_t state = 11;
    int by_pages = 0;
    for (int round = 0; round < 64; round++) {
        struct world world;
        char pragmas[200];
        unsigned odd = round % 8 == 7 ? 500 : 0;
        snprintf(pragmas, sizeof pragmas,
                "PRAGMA page_size = %d; PRAGMA auto_vacuum = %d; PRAGMA encoding = '%s'; PRAGMA synchronous = "
                "OFF; PRAGMA secure_delete = %d;",
                sizes[round % 4], round / 4 % 3, round & 1 ? "UTF-16" : "UTF-8", round / 2 % 2);
        world_open(&world, pragmas, round % 5 == 4 ? 32 : 0);
        world_sql(&world,
                "CREATE TABLE other (x); CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER, d INTEGER, "
                "e TEXT); CREATE INDEX i ON t (b)");
        world_fill(&world, (int)(random_next(&state) % ROWS_MAX), odd, &state);
        if (round % 3 == 1) // gaps, free pages, rows that moved
            world_sql(&world,
                    "DELETE FROM t WHERE rowid %% 7 < %d; INSERT INTO other SELECT a FROM t; UPDATE t "
                    "SET a = 1234567890123 WHERE rowid %% 11 = 0; %s",
                    (int)(random_next(&state) % 7), round % 2 ? "VACUUM" : "DROP TABLE other");
        if (round % 3 == 2) // long rowids
            world_sql(&world, "UPDATE t SET rowid = rowid * 3074457345618");
        sqlite3_close(world.db);
        world.db = NULL;
        by_pages += scan_same(world.path, NULL);
        world_close(&world);
    }
    CHECK(by_pages >= 56); // every one without odd values
}

// ---- shapes that pages tell otherwise ----

static bool scan_of(const char *sql, const char *prepare)
{
    struct world world;
    uint64_t state = 5;
    world_open(&world, "PRAGMA synchronous = OFF;", 0);
    world_sql(&world, "%s", sql);
    if (!strstr(sql, "INSERT"))
        world_fill(&world, 500, 0, &state);
    sqlite3_close(world.db);
    world.db = NULL;
    bool by_pages = scan_same(world.path, prepare);
    world_close(&world);
    return by_pages;
}

#define SCAN_ROWS "WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 400) "

TEST(tables_of_another_shape_are_left_to_sql)
{
    CHECK(scan_of("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER, d INTEGER) STRICT", NULL));
    CHECK(scan_of("CREATE TABLE t (a, b, c, d)", NULL));
    CHECK(!scan_of("CREATE TABLE t (x, a, b, c, d)", NULL));
    CHECK(!scan_of("CREATE TABLE t (a, b, c, dd, d)", NULL));
    CHECK(!scan_of("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c, d); " SCAN_ROWS
                   "INSERT INTO t SELECT k * 5, k, k, k FROM n",
            NULL));
    CHECK(!scan_of("CREATE TABLE t (a, b, c, d, PRIMARY KEY (a, b)) WITHOUT ROWID; " SCAN_ROWS
                   "INSERT INTO t SELECT k * 5, k, k, k FROM n",
            NULL));
    CHECK(!scan_of("CREATE TABLE t (a, b, c, d AS (a + 1) STORED); " SCAN_ROWS
                   "INSERT INTO t SELECT k, k, k FROM n",
            NULL));
    CHECK(!scan_of("CREATE TABLE t (a, x AS (a + 1) STORED, b, c, d)", NULL));
    CHECK(!scan_of("CREATE TABLE t (a, x AS (a + 1) VIRTUAL, b, c, d)", NULL));
    CHECK(!scan_of("CREATE TABLE t (a, b, c); " SCAN_ROWS "INSERT INTO t SELECT k, k, k FROM n; "
                   "ALTER TABLE t ADD COLUMN d INTEGER NOT NULL DEFAULT 7",
            NULL));
    CHECK(scan_of("CREATE TABLE t (a, b, c); " SCAN_ROWS "INSERT INTO t SELECT k, k, k FROM n; "
                  "ALTER TABLE t ADD COLUMN d INTEGER",
            NULL));
    CHECK(!scan_of("CREATE TABLE s (a, b, c, d); " SCAN_ROWS
                   "INSERT INTO s SELECT k, k, k, k FROM n; "
                   "CREATE VIEW t AS SELECT a + 1 AS a, b, c, d FROM s",
            NULL));
    CHECK(scan_of("CREATE TABLE t (a REAL, b TEXT, c BLOB, d NUMERIC); " SCAN_ROWS
                  "INSERT INTO t (a, c, d) SELECT k, k, '12' FROM n",
            NULL));
    CHECK(!scan_of("CREATE TABLE t (a, b, c, d, e); " SCAN_ROWS
                   "INSERT INTO t SELECT k, k, k, k, printf('%.*c', k, 'x') FROM n",
            NULL));
}

TEST(what_the_connection_alone_sees_is_left_to_sql)
{
    const char *table = "CREATE TABLE t (a, b, c, d)";
    CHECK(!scan_of(table,
            "PRAGMA query_only = OFF; CREATE TEMP TABLE t AS SELECT 9 AS a, 8 AS b, 7 AS c, 6 AS d"));
    CHECK(!scan_of(table,
            "PRAGMA query_only = OFF; CREATE TEMP VIEW t AS SELECT 1 AS a, b, c, d FROM main.t"));
    CHECK(!scan_of(table, "PRAGMA query_only = OFF; BEGIN; DELETE FROM t WHERE rowid < 100"));
}

// ---- files that somebody writes ----

TEST(a_write_ahead_log_is_left_to_sql)
{
    struct world world;
    uint64_t state = 9;
    world_open(&world, "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;", 0);
    world_sql(&world, "CREATE TABLE t (a, b, c, d)");
    world_fill(&world, 1000, 0, &state); // in the log only: the writer stays
    CHECK(!scan_same(world.path, NULL));
    world_sql(&world, "PRAGMA wal_checkpoint(TRUNCATE)");
    world_fill(&world, 1000, 0, &state); // the file has old pages
    CHECK(!scan_same(world.path, NULL));
    world_close(&world);
}

TEST(a_writer_beside_is_seen_as_sql_sees_it)
{
    struct world world;
    uint64_t state = 13;
    world_open(&world, "PRAGMA synchronous = OFF;", 0);
    world_sql(&world, "CREATE TABLE t (a, b, c, d)");
    world_fill(&world, 2000, 0, &state);
    world_sql(&world, "BEGIN IMMEDIATE; UPDATE t SET a = 0; DELETE FROM t WHERE rowid %% 3 = 0");
    CHECK(scan_same(world.path, NULL)); // not committed
    world_sql(&world, "COMMIT");
    CHECK(scan_same(world.path, NULL));
    CHECK_INT(chmod(world.path, 0400), 0);
    CHECK(scan_same(world.path, NULL));
    world_close(&world);
}

static void copy(const char *from, const char *to)
{
    size_t len = 0;
    char *bytes = string_read_file(from, 64 << 20, &len);
    FILE *file = fopen(to, "wb");
    if (!bytes || !file || fwrite(bytes, 1, len, file) != len || fclose(file))
        exit(1);
    free(bytes);
}

// A writer that was killed after pages of its transaction had reached the file.
TEST(a_hot_journal_is_rolled_back_first)
{
    struct world world;
    uint64_t state = 17;
    char other[120], from[120], to[128];
    world_open(&world, "PRAGMA page_size = 1024;", 0);
    world_sql(&world, "CREATE TABLE t (a, b, c, d)");
    world_fill(&world, 3000, 0, &state);
    world_sql(&world,
            "PRAGMA cache_size = 2; PRAGMA cache_spill = 1; BEGIN IMMEDIATE; UPDATE t SET a = 0, b = "
            "1; DELETE FROM t WHERE rowid > 1000");
    snprintf(other, sizeof other, "%s/killed.db", world.dir);
    snprintf(from, sizeof from, "%s-journal", world.path);
    snprintf(to, sizeof to, "%s-journal", other);
    copy(world.path, other);
    copy(from, to);
    world_sql(&world, "ROLLBACK");
    sqlite3_close(world.db);
    world.db = NULL;
    char *before = NULL, *after = NULL;
    size_t len[2];
    before = string_read_file(world.path, 64 << 20, &len[0]);
    after = string_read_file(other, 64 << 20, &len[1]);
    CHECK(len[0] != len[1] || memcmp(before, after, len[0]) != 0); // else nothing was spilled
    free(before);
    free(after);
    scan_same(other, NULL);
    struct store *store = NULL;
    struct error err = {0};
    int64_t count = 0;
    CHECK_INT(store_open(other, STORE_READ, &store, &err), 0);
    CHECK_INT(
            store_get_int(store, &count, &err, "SELECT count(*) FROM t WHERE rowid > 1000", ""), 0);
    CHECK_INT(count, 2000);
    store_close(store);
    world_close(&world);
}
