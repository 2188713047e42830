// SPDX-License-Identifier: Apache-2.0
// The store against a real SQLite: create, versions, foreign files, locks, read-only places, a full
// disk, a live writer.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/strings.h"
#include "tests/unit/golden.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static char test_dir[] = "/tmp/upgate-store-XXXXXX";
static char test_path[64];

static struct store *fresh(void)
{
    struct store *store = NULL;
    struct error err = {0};
    if (test_path[0] == 0 && runner_directory(test_dir))
        snprintf(test_path, sizeof test_path, "%s/run.db", test_dir);
    unlink(test_path);
    if (store_open(test_path, STORE_CREATE, &store, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    return store;
}

static void run_row(struct store *store, int64_t pid, int64_t start)
{
    CHECK_INT(
            store_exec(store, NULL,
                    "INSERT INTO run VALUES (1,'u','ab','running','0',0,NULL,7,'{}',NULL,'[]','{}','k',?,?)",
                    "ii", pid, start),
            0);
}

TEST(create_write_read)
{
    struct store *store = fresh();
    struct error err = {0};
    int64_t id = 0, absent = -1;
    CHECK_INT(store_begin(store, &err), 0);
    CHECK_INT(store_insert(store, &id, &err,
                      "INSERT INTO workload (name, mode, rate_per_s) VALUES (?, ?, ?)", "ssd", "w",
                      "train", NAN),
            0);
    CHECK_INT(store_commit(store, &err), 0);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    CHECK_INT(store_get_int(store, &absent, &err, "SELECT rate_per_s FROM workload", ""), -ENOENT);
    CHECK_INT(absent, -1);
    char *name = store_get_text(store, "SELECT name FROM workload WHERE id = ?", "i", id);
    CHECK_STR(name, "w");
    free(name);
    CHECK_INT(store_exec(store, &err, "DELETE FROM workload", ""), -EROFS);
    store_close(store);
}

// upgate ab runs, judges, reports and explains in one process.
TEST(two_hundred_distinct_statements)
{
    struct store *store = fresh();
    struct error err = {0};
    for (int i = 0; i < 200; i++) {
        int64_t value = -1;
        char *sql = xasprintf("SELECT %d", i);
        if (store_get_int(store, &value, &err, sql, ""))
            runner_fail(__FILE__, __LINE__, "%s", err.text);
        CHECK_INT(value, i);
        free(sql);
    }
    store_close(store);
}

TEST(create_refuses_an_existing_run)
{
    struct store *store = fresh();
    struct error err = {0};
    run_row(store, 1, 1);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_CREATE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "--resume");
}

TEST(newer_version_refused)
{
    struct store *store = fresh();
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA user_version = 99", NULL, NULL, NULL);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "newer upgate");
}

enum { VERSION = 12 }; // of contracts/schema.sql

// Of a migrated file, without what only older versions had: table calibration is read by nobody but
// those who say what it was.
#define CURRENT_OBJECTS "SELECT count(*) FROM sqlite_master WHERE name <> 'calibration'"

static void test_sql(const char *sql)
{
    sqlite3 *db = NULL;
    CHECK_INT(sqlite3_open(test_path, &db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

// A store of an older version, made by the SQL that version had.
static void fresh_old(const char *name)
{
    store_close(fresh());
    unlink(test_path);
    char *file = xasprintf("unit/%s", name), *sql = golden_read(file);
    test_sql(sql);
    free(sql);
    free(file);
}

static void fresh_v1(void)
{
    fresh_old("store_v1.sql");
}

static int64_t version_of(struct store *store)
{
    int64_t version = -1;
    store_get_int(store, &version, NULL, "PRAGMA main.user_version", "");
    return version;
}

TEST(version_1_is_read_as_it_is)
{
    fresh_v1();
    struct store *store = NULL;
    struct error err = {0};
    int64_t count = -1;
    char *before = string_read_file(test_path, 1 << 20, NULL);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM v_off_cpu", ""), 0);
    CHECK_INT(count, 0);
    CHECK_INT(
            store_get_int(store, &count, &err, "SELECT count(*) FROM v_stall, recording, gap", ""),
            0);
    CHECK_INT(store_get_int(store, &count, &err,
                      "SELECT count(*) FROM v_gpu_op, v_gpu_call, v_nccl_op, v_nvtx_range", ""),
            0);
    CHECK_INT(count, 0);
    CHECK_INT(
            store_get_int(store, &count, &err, "SELECT count(*) FROM launch_rank, phase_span", ""),
            0);
    CHECK_INT(count, 0);
    CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM run, workload", ""), 0);
    CHECK_INT(count, 1);
    CHECK_INT(store_exec(store, &err, "DELETE FROM workload", ""), -EROFS);
    CHECK_INT(version_of(store), 1);
    store_close(store);
    size_t len = 0;
    char *after = string_read_file(test_path, 1 << 20, &len);
    CHECK(before && after && memcmp(before, after, len) == 0);
    free(before);
    free(after);
}

TEST(version_1_is_migrated_by_a_writer)
{
    fresh_v1();
    struct store *store = NULL;
    struct error err = {0};
    int64_t count = -1;
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(version_of(store), VERSION);
    CHECK_INT(
            store_insert(store, NULL, &err,
                    "INSERT INTO recording (begin_ns, threshold_ns, sample_hz, python, target, missing) "
                    "VALUES (1, 1000000, 0, 0, '{}', '[]')",
                    ""),
            0);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    CHECK_INT(store_get_int(store, &count, &err,
                      "SELECT count(*) FROM main.recording, main.workload", ""),
            0);
    CHECK_INT(count, 1);
    store_close(store);
    // What the present schema has, the migrated file has too.
    store = fresh();
    int64_t present = 0;
    store_get_int(store, &present, &err, "SELECT count(*) FROM sqlite_master", "");
    store_close(store);
    fresh_v1();
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(store_get_int(store, &count, &err, CURRENT_OBJECTS, ""), 0);
    CHECK_INT(count, present);
    store_close(store);
}

// 2 had recordings and no GPU: what is in it stays, and the GPU's tables are empty.
TEST(version_2_read_and_migrated)
{
    struct store *store = NULL;
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        int64_t count = -1, present = 0;
        fresh_old("store_v2.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 2);
        CHECK_INT(store_get_int(store, &count, &err, "SELECT gap_ns FROM v_off_cpu", ""), 0);
        CHECK_INT(count, 800);
        CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM v_gpu_op", ""), 0);
        CHECK_INT(count, 0);
        if (writes) {
            CHECK_INT(store_exec(store, &err,
                              "INSERT INTO python_mark VALUES (1, 1, 5, 1, NULL, NULL)", ""),
                    0);
            CHECK_INT(store_get_int(store, &count, &err, CURRENT_OBJECTS, ""), 0);
        }
        store_close(store);
        if (!writes)
            continue;
        store = fresh();
        store_get_int(store, &present, &err, "SELECT count(*) FROM sqlite_master", "");
        CHECK_INT(count, present);
        store_close(store);
    }
}

// 4 had blocks without the machine's part: a reader sees NULL in them, a writer's file gets the
// columns.
TEST(version_4_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v4.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 4);
        CHECK_INT(store_get_int(store, &value, &err, "SELECT sum(active_ns) FROM block", ""), 0);
        CHECK_INT(value, 410);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT count(*) FROM block WHERE coalesce(machine_ns, wait_ns, foreign_ns, steal_ns, "
                        "cpu_ns, step_cpu_ns) IS NULL",
                        ""),
                0);
        CHECK_INT(value, 2);
        CHECK_INT(store_get_int(
                          store, &value, &err, "SELECT count(*) FROM pragma_foreign_key_check", ""),
                0);
        CHECK_INT(value, 0);
        if (writes) {
            const char *insert =
                    "INSERT INTO block VALUES (?, 3, 0, 1, 13, 10, 500, 200, 1, 1, 1, 1, 1, 1)";
            CHECK_INT(store_exec(store, &err, insert, "i", (int64_t)1), 0);
            // no such pair: keys are looked at again
            CHECK(store_exec(store, &err, insert, "i", (int64_t)2) != 0);
        }
        store_close(store);
    }
}

// 5 knew no rollouts: none is in it for a reader, and a writer's file takes one.
TEST(version_5_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v5.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 5);
        CHECK_INT(store_get_int(store, &value, &err, "SELECT machine_ns FROM v_block", ""), 0);
        CHECK_INT(value, 7);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT (SELECT count(*) FROM v_rollout) + (SELECT count(*) FROM v_rollout_second) + "
                        "(SELECT count(*) FROM v_rollout_cell) + (SELECT count(*) FROM v_rollout_decision)",
                        ""),
                0);
        CHECK_INT(value, 0);
        if (writes) {
            CHECK_INT(store_exec(store, &err, "UPDATE run SET kind = 'rollout'", ""), 0);
            CHECK_INT(
                    store_exec(store, &err,
                            "INSERT INTO rollout VALUES (1, 'r', '{}', 'waiting', NULL, NULL, 1, NULL, '', 1, NULL, NULL, NULL)",
                            ""),
                    0);
            CHECK(store_exec(store, &err, "UPDATE rollout SET state = 'lost'", "") != 0);
        }
        store_close(store);
    }
}

// 6 did not know of a stage how many of its log lines were lost: a reader sees NULL, and in a
// writer's file a stage can tell.
TEST(version_6_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v6.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 6);
        CHECK_INT(store_get_int(store, &value, &err,
                          "SELECT count(*) FROM rollout_stage WHERE lost IS NULL", ""),
                0);
        CHECK_INT(value, 2);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT count(*) FROM rollout_stage WHERE number = 0 AND name = '10%' AND percent = 10 AND begin_s = 100 AND "
                        "judged_from_s = 105 AND end_s = 130 AND result = 'passed'",
                        ""),
                0);
        CHECK_INT(value, 1);
        CHECK_INT(store_get_int(
                          store, &value, &err, "SELECT sum(requests) FROM v_rollout_second", ""),
                0);
        CHECK_INT(value, 100);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT count(*) FROM v_rollout JOIN v_rollout_decision WHERE rule = 'soak'",
                        ""),
                0);
        CHECK_INT(value, 1);
        if (writes) {
            CHECK_INT(store_exec(store, &err, "UPDATE rollout_stage SET lost = 3 WHERE number = 1",
                              ""),
                    0);
            CHECK_INT(store_get_int(store, &value, &err, "SELECT sum(lost) FROM rollout_stage", ""),
                    0);
            CHECK_INT(value, 3);
        }
        store_close(store);
    }
}

// Each version leaves a fixture for the next one, and the file that is migrated has what a new one
// has.
TEST(the_version_before_is_migrated)
{
    struct store *store = fresh();
    struct error err = {0};
    int64_t present = 0, count = -1;
    CHECK_INT(version_of(store), VERSION);
    store_get_int(store, &present, &err, "SELECT count(*) FROM sqlite_master", "");
    store_close(store);
    char *name = xasprintf("store_v%d.sql", VERSION - 1);
    fresh_old(name);
    free(name);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(version_of(store), VERSION);
    CHECK_INT(store_get_int(store, &count, &err, CURRENT_OBJECTS, ""), 0);
    CHECK_INT(count, present);
    store_close(store);
}

// 7 did not know what a traced launch holds in memory: nothing, for a reader, and a writer's file
// takes it.
TEST(version_7_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v7.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 7);
        CHECK_INT(store_get_int(store, &value, &err,
                          "SELECT sum(peak_memory_bytes) FROM v_launch WHERE phase = 'traced'", ""),
                0);
        CHECK_INT(value, 2200000);
        CHECK_INT(store_get_int(store, &value, &err, "SELECT count(*) FROM v_memory", ""), 0);
        CHECK_INT(value, 0);
        if (writes) {
            const char *insert =
                    "INSERT INTO launch_memory VALUES (?, 'file', 'libc.so.6', 4096, 0)";
            CHECK_INT(store_exec(store, &err, insert, "i", (int64_t)2), 0);
            CHECK(store_exec(store, &err, insert, "i", (int64_t)3) != 0); // no such launch
            CHECK_INT(
                    store_get_int(store, &value, &err,
                            "SELECT resident_bytes FROM v_memory WHERE side = 'b' AND name = 'libc.so.6'",
                            ""),
                    0);
            CHECK_INT(value, 4096);
        }
        store_close(store);
    }
}

// 8 did not know how many requests were rejected: none, for a reader, and in a writer's file a
// second can tell.
TEST(version_8_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v8.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 8);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT sum(requests) + 1000 * sum(wrong) + 10000 * total(rejected) FROM v_rollout_second",
                        ""),
                0);
        CHECK_INT(value, 2100);
        if (writes) {
            CHECK_INT(
                    store_exec(store, &err,
                            "UPDATE rollout_second SET rejected = rejected + 3 WHERE arm = 1", ""),
                    0);
            CHECK_INT(store_get_int(store, &value, &err,
                              "SELECT sum(rejected) FROM v_rollout_second", ""),
                    0);
            CHECK_INT(value, 3);
        }
        store_close(store);
    }
}

// 9 did not know which pages a launch held, nor who touched them.
TEST(version_9_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v9.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 9);
        CHECK_INT(store_get_int(store, &value, &err,
                          "SELECT (SELECT count(*) FROM v_page_fault) + count(*) FROM launch_range",
                          ""),
                0);
        CHECK_INT(value, 0);
        if (writes) {
            const char *insert =
                    "INSERT INTO launch_range VALUES (?, 7, 4096, 8192, 4096, 'heap', '', 5)";
            CHECK(store_exec(store, &err, insert, "i", (int64_t)3) != 0); // no such launch
        }
        store_close(store);
    }
}

// 10 did not know what went between processes: nothing, for a reader.
TEST(version_10_read_and_migrated)
{
    struct error err = {0};
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        int64_t value = -1;
        fresh_old("store_v10.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 10);
        CHECK_INT(store_get_int(store, &value, &err, "SELECT count(*) FROM v_connection", ""), 0);
        CHECK_INT(value, 0);
        if (writes) {
            const char *insert =
                    "INSERT INTO connection VALUES (1, ?, '10.0.0.1:1', '10.0.0.2:2', 5, 6, 700, 0, 4, 1)";
            CHECK(store_exec(store, &err, insert, "i", (int64_t)3) != 0); // no such process
            CHECK_INT(store_exec(store, &err, insert, "i", (int64_t)2), 0);
            CHECK_INT(store_get_int(store, &value, &err,
                              "SELECT bytes + receiver_pid FROM v_connection WHERE sender_pid = 41",
                              ""),
                    0);
            CHECK_INT(value, 742);
        }
        store_close(store);
    }
}

// Version 11 lacks two columns of cell, which a view shows by *. What was judged then is read, and
// stays when it is migrated.
TEST(version_11_read_and_migrated)
{
    for (int writes = 0; writes < 2; writes++) {
        struct store *store = NULL;
        struct error err = {0};
        int64_t value = -1;
        fresh_old("store_v11.sql");
        CHECK_INT(store_open(test_path, writes ? STORE_WRITE : STORE_READ, &store, &err), 0);
        CHECK_INT(version_of(store), writes ? VERSION : 11);
        CHECK_INT(
                store_get_int(store, &value, &err,
                        "SELECT count(*) FROM v_cell WHERE reason = 'as fast' AND news IS NULL AND told IS NULL",
                        ""),
                0);
        CHECK_INT(value, 1);
        store_close(store);
    }
}

// A request to a rollout that runs is a row beside its live writer; an old store, which no live
// writer of ours has, is refused.
TEST(beside_a_live_writer)
{
    struct store *store = fresh(), *beside = NULL;
    struct error err = {0};
    char *stat = string_read_file("/proc/1/stat", 4096, NULL);
    char *field = strrchr(stat, ')');
    for (int i = 2; i < 22; i++)
        field = strchr(field + 1, ' ');
    run_row(store, 1, atoll(field));
    CHECK_INT(store_open(test_path, STORE_WRITE, &beside, &err), -EBUSY);
    CHECK_INT(store_open(test_path, STORE_BESIDE, &beside, &err), 0);
    CHECK_INT(
            store_exec(beside, &err,
                    "INSERT INTO rollout_request (at_ns, verb, who) VALUES (1, 'pause', 'me')", ""),
            0);
    store_close(beside);
    store_close(store);
    free(stat);
    fresh_old("store_v5.sql");
    CHECK_INT(store_open(test_path, STORE_BESIDE, &beside, &err), -EINVAL);
}

// What a CHECK of an old table refuses is allowed in the migrated one.
TEST(a_check_is_migrated)
{
    struct store *store = NULL;
    struct error err = {0};
    fresh_v1();
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err, "UPDATE run SET kind = 'record'", ""), 0);
    store_close(store);
}

TEST(version_1_in_a_read_only_place)
{
    fresh_v1();
    struct store *store = NULL;
    struct error err = {0};
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount(test_dir, test_dir, NULL, MS_BIND, NULL) ||
            mount("none", test_dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL))
        runner_skip("cannot make a directory read-only (needs root)");
    int64_t count = -1;
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM v_sample", ""), 0);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EROFS);
}

TEST(foreign_and_broken_files)
{
    struct store *store = fresh();
    struct error err = {0};
    store_close(store);
    CHECK_INT(truncate(test_path, 3000), 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "damaged");
    FILE *file = fopen(test_path, "w");
    fputs("this is no database, whatever its name says, and it is long enough to be looked at",
            file);
    fclose(file);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "not a store");
    CHECK_INT(truncate(test_path, 0), 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    CHECK_INT(store_open("/proc/none/run.db", STORE_READ, &store, &err), -EINVAL);
    CHECK_INT(store_open("/proc/none/run.db", STORE_CREATE, &store, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "directory");
}

TEST(other_sqlite_file_refused)
{
    struct store *store = fresh();
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA application_id = 1", NULL, NULL, NULL);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "not a store of upgate");
}

TEST(live_writer_refused_dead_one_not)
{
    struct store *store = fresh();
    struct error err = {0};
    char *stat = string_read_file("/proc/1/stat", 4096, NULL);
    char *field = strrchr(stat, ')');
    for (int i = 2; i < 22; i++)
        field = strchr(field + 1, ' ');
    run_row(store, 1, atoll(field));
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EBUSY);
    CHECK_CONTAINS(err.text, "still alive");
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    store_close(store);
    store = fresh();
    run_row(store, 1, atoll(field) + 2); // pid 1, but another life of it
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    store_close(store);
    free(stat);
}

TEST(locked_by_another_connection)
{
    struct store *store = fresh(), *other = NULL;
    struct error err = {0};
    CHECK_INT(store_open(test_path, STORE_WRITE, &other, &err), 0);
    CHECK_INT(store_begin(other, &err), 0);
    sqlite3_busy_timeout(store_db(store), 50);
    CHECK_INT(store_begin(store, &err), -EBUSY);
    CHECK_CONTAINS(err.text, "locked");
    store_close(other);
    store_close(store);
}

TEST(full_disk_keeps_what_was_committed)
{
    if (geteuid() != 0 || !runner_directory(test_dir) ||
            mount("tmpfs", test_dir, "tmpfs", 0, "size=512k"))
        runner_skip("cannot mount a small tmpfs (needs root)");
    char path[64];
    snprintf(path, sizeof path, "%s/run.db", test_dir);
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    int rc = 0, committed = 0;
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = store_begin(store, &err);
        if (rc == 0)
            rc = store_exec(store, &err,
                    "INSERT INTO note (at_ns, level, text) VALUES (1, 'info', ?)", "s", text);
        if (rc == 0)
            rc = store_commit(store, &err);
        committed += rc == 0;
    }
    CHECK_INT(rc, -ENOSPC);
    CHECK_CONTAINS(err.text, "disk is full");
    store_close(store);
    CHECK_INT(store_open(path, STORE_READ, &store, &err), 0);
    int64_t notes = 0;
    CHECK_INT(store_get_int(store, &notes, &err, "SELECT count(*) FROM note", ""), 0);
    CHECK(committed > 5);
    CHECK_INT(notes, committed);
    store_close(store);
    umount(test_dir);
    rmdir(test_dir);
}

TEST(a_reader_rolls_back_what_a_kill_left)
{
    struct store *store = fresh();
    struct error err = {0};
    CHECK_INT(store_exec(store, &err,
                      "INSERT INTO note (at_ns, level, text) VALUES (1, 'info', 'kept')", ""),
            0);
    store_close(store);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        // A cache of one page: the transaction reaches the file before it is committed.
        if (store_open(test_path, STORE_WRITE, &store, NULL))
            _exit(1);
        sqlite3_exec(store_db(store), "PRAGMA cache_size = 1; BEGIN IMMEDIATE", NULL, NULL, NULL);
        for (int i = 0; i < 2000; i++)
            if (store_exec(store, NULL,
                        "INSERT INTO note (at_ns, level, text) VALUES (2, 'info', 'lost')", ""))
                _exit(1);
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    char journal[80];
    snprintf(journal, sizeof journal, "%s-journal", test_path);
    CHECK(access(journal, F_OK) == 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    int64_t notes = 0;
    CHECK_INT(store_get_int(store, &notes, &err, "SELECT count(*) FROM note", ""), 0);
    CHECK_INT(notes, 1);
    store_close(store);
}

// Of an upgate in a time namespace, whose begin is cut to a tick elsewhere.
TEST(a_writer_that_lives_is_known_to_a_tick)
{
    struct proc_stat stat = {0};
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    CHECK_INT(proc_stat_of(pid, &stat), 0);
    for (int64_t off = -2; off <= 2; off++) {
        struct store *store = fresh();
        run_row(store, pid, (int64_t)stat.start_ticks + off);
        CHECK_INT(store_check_writer(store, NULL), off >= -1 && off <= 1 ? -EBUSY : 0);
        store_close(store);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

// A store from elsewhere: what is read runs no program of its own, which may never end.
#define ENDLESS \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'info', 'x' FROM n"

TEST(a_table_that_is_a_view_is_refused)
{
    struct store *store = fresh();
    struct error err = {0};
    store_close(store);
    test_sql("CREATE VIEW mine AS SELECT * FROM cell");
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    store_close(store);
    test_sql("DROP VIEW mine; DROP TABLE note; CREATE VIEW note(id, level, text) AS " ENDLESS);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "'note' is no table");
}

// What would be a program where a table of ours is asked for, in other words: none of them is run,
// whatever opens the store.
TEST(no_table_of_ours_is_a_program)
{
    static const char *const programs[] = {
            "CREATE VIEW NoTe(id, level, text) AS " ENDLESS, // names of SQL know no case
            "CREATE VIRTUAL TABLE note USING dbstat",
            "CREATE TABLE note(id INTEGER PRIMARY KEY, level TEXT, text TEXT AS (CASE WHEN zeroblob(9) LIKE '%a%b' THEN 'x' END))",
            // The text of the schema says table, and what is made of it is none: SQLite itself says
            // no.
            "CREATE VIEW other(id, level, text) AS " ENDLESS "; PRAGMA writable_schema = ON; "
            "UPDATE sqlite_master SET type = 'table', name = 'note', tbl_name = 'note', rootpage = 0, "
            "sql = replace(sql, 'VIEW other', '/**/ VIEW \"note\"') WHERE name = 'other'",
    };
    static const enum store_mode modes[] = {STORE_READ, STORE_WRITE, STORE_CREATE};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        struct store *store = fresh();
        struct error err = {0};
        store_close(store);
        test_sql("DROP TABLE note");
        test_sql(programs[i]);
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            int code = store_open(test_path, modes[k], &store, &err);
            CHECK_INT(code, i == 3 ? -EBADMSG : -EINVAL);
            CHECK_CONTAINS(err.text, i == 3 ? "malformed" : "is no table in it");
        }
    }
}

TEST(triggers_of_a_store_do_not_run)
{
    struct store *store = fresh();
    int64_t count = -1;
    store_close(store);
    test_sql("CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM note; END");
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, NULL), 0);
    CHECK_INT(store_note(store, NULL, "info", "x"), 0);
    CHECK_INT(store_get_int(store, &count, NULL, "SELECT count(*) FROM note", ""), 0);
    CHECK_INT(count, 1);
    store_close(store);
}

// Whoever makes an old store chooses the names in it, and its reader may have views of his own.
TEST(names_in_a_store_are_no_sql)
{
    struct store *store = NULL;
    struct error err = {0};
    int64_t count = -1;
    fresh_old("store_v10.sql");
    test_sql(
            "CREATE VIEW \"v_twin; DROP TABLE process; --\" AS SELECT 1 AS one; CREATE VIEW v_twin AS SELECT 1 AS one; "
            "CREATE VIEW \"v_of mine\" AS SELECT text FROM note");
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(version_of(store), VERSION);
    CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM process", ""), 0);
    CHECK_INT(count, 2);
    CHECK_INT(store_get_int(store, &count, &err, "SELECT count(*) FROM \"v_of mine\"", ""), 0);
    store_close(store);
}

TEST(what_root_writes_is_roots)
{
    umask(022);
    store_close(fresh());
    struct stat info;
    CHECK_INT(stat(test_path, &info), 0);
    CHECK_INT(info.st_mode & 0777, geteuid() == 0 ? 0600 : 0644);
}

// Two that are started together with one name: one of them makes the store, the other says so.
TEST(stores_that_are_made_at_the_same_time)
{
    enum { ROUNDS = 30, MAKERS = 4 };
    store_close(fresh());
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], status;
        unlink(test_path);
        CHECK_INT(pipe(go), 0);
        fflush(NULL);
        for (int i = 0; i < MAKERS; i++) {
            if (fork())
                continue;
            char byte;
            struct store *store = NULL;
            struct error err = {0};
            close(go[1]);
            (void)!read(go[0], &byte, 1); // all at once
            int rc = store_open(test_path, STORE_CREATE, &store, &err);
            bool good = rc == 0 || strstr(err.text, "is taken by another upgate");
            if (!good)
                printf("    %s\n", err.text);
            fflush(NULL);
            store_close(store);
            _exit(good ? 0 : 1);
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < MAKERS; i++) {
            wait(&status);
            CHECK_INT(status, 0);
        }
    }
}

// What is computed of times and counts cannot overflow: a row beyond their ranges is damage,
// whoever asks.
TEST(numbers_out_of_range)
{
    static const struct {
        const char *sql;
        bool holds;
    } rows[] = {
            {"SELECT 2305843009213693951 AS dur_ns", true},
            {"SELECT 2305843009213693952 AS dur_ns", false},
            {"SELECT -2305843009213693952 AS dur_ns", true},
            {"SELECT -2305843009213693953 AS dur_ns", false},
            {"SELECT 1, 2, 9223372036854775807 AS x_ns", false},
            {"SELECT NULL AS dur_ns", true},
            {"SELECT 1e300 AS dur_ns", false},
            {"SELECT 1.5 AS dur_ns", true},
            {"SELECT '7' AS dur_ns", false},
            {"SELECT x'00' AS dur_ns", false},
            {"SELECT 9223372036854775807 + 1 AS sum_ns", false}, // which SQLite makes a real of
            {"SELECT 4611686018427387903 AS at_wall_ns", true},
            {"SELECT 4611686018427387904 AS at_wall_ns", false},
            {"SELECT 9007199254740991 AS first_step", true},
            {"SELECT 9007199254740992 AS first_step", false},
            {"SELECT 9007199254740992 AS value_count", false},
            // named by their text: no unit
            {"SELECT 'step ' || idx, 9223372036854775807 - idx FROM (SELECT 7 AS idx)", true},
            {"SELECT 9223372036854775807 AS id, -1 AS address, 'x' AS steps_of", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct store *store = fresh();
        struct error err = {0};
        sqlite3_stmt *stmt = store_query(store, &err, rows[i].sql, "");
        CHECK_INT(store_step(store, stmt, &err), rows[i].holds ? 1 : -EBADMSG);
        CHECK_INT(store_failed(store, NULL), rows[i].holds ? 0 : -EBADMSG);
        int64_t one = 0;
        CHECK_INT(store_get_int(store, &one, &err, "SELECT 1", ""), rows[i].holds ? 0 : -EBADMSG);
        if (!rows[i].holds)
            CHECK_CONTAINS(err.text, "' is damaged: the ");
        CHECK_INT(store_begin(store, &err), 0);
        CHECK_INT(store_commit(store, &err), rows[i].holds ? 0 : -EBADMSG);
        store_close(store);
    }
}

// So that a loop over the rows of a query need not ask whether there is one.
TEST(a_query_that_cannot_be_made_has_no_rows_and_says_why)
{
    struct store *store = fresh();
    struct error err = {0};
    int rc = store_step(store, store_query(store, &err, "SELECT x FROM nowhere", ""), &err);
    CHECK(rc < 0 && rc == err.code);
    CHECK_CONTAINS(err.text, "nowhere");
    CHECK_INT(store_step(store, NULL, NULL), -EIO);
    store_close(store);
}

// Two statements that are read in turns keep their own ranges.
TEST(ranges_are_those_of_the_statement)
{
    struct store *store = fresh();
    struct error err = {0};
    sqlite3_stmt *ids = store_query(store, &err,
            "SELECT 9223372036854775807 AS id UNION ALL SELECT 9223372036854775806", "");
    sqlite3_stmt *times =
            store_query(store, &err, "SELECT 5 AS at_ns UNION ALL SELECT 9223372036854775807", "");
    CHECK_INT(store_step(store, ids, &err), 1);
    CHECK_INT(store_step(store, times, &err), 1);
    CHECK_INT(store_step(store, ids, &err), 1);
    CHECK_INT(store_step(store, times, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "the at_ns of a row is out of range");
    store_close(store);
}

// What a process says that it lost may be anything.
TEST(ledger_counts_stay_in_range)
{
    struct store *store = fresh();
    struct error err = {0};
    int64_t value = 0;
    CHECK_INT(store_ledger(store, NULL, "p", "k", INT64_MAX, -1, INT64_MIN, 1, NULL, &err), 0);
    CHECK_INT(store_get_int(store, &value, &err, "SELECT seen FROM ledger WHERE kept IS NULL", ""),
            0);
    CHECK_INT(value, 9007199254740991);
    CHECK_INT(store_get_int(store, &value, &err, "SELECT dropped FROM ledger", ""), 0);
    CHECK_INT(value, 9007199254740991);
    store_close(store);
}
