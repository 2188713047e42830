// SPDX-License-Identifier: Apache-2.0
// Recordings of two recorders, each with row numbers of its own, end up in one store: nothing is lost,
// and what refers to what is as it was.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/run/shard.h"
#include "tests/unit/runner.h"

static struct store *test_store(char *path)
{
    struct store *store = NULL;
    struct error err = {0};
    CHECK(mkdtemp(path) != NULL);
    char *file = xasprintf("%s/run.db", path);
    CHECK_INT(store_open(file, STORE_CREATE, &store, &err), 0);
    free(file);
    static const char rows[] =
        "INSERT INTO side (id, name, config) VALUES (0, 'a', '{}'), (1, 'b', '{}');"
        "INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train');"
        "INSERT INTO pair (id, workload_id, idx, phase, seed, first_side, interleave, state, started_ns, "
        "ended_ns) VALUES (1, 1, 0, 'traced', 7, 0, 'steps', 'valid', 1, 2);"
        "INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) VALUES "
        "(1, 1, 0, 'ok', 1, 2, '{}'), (2, 1, 1, 'ok', 1, 2, '{}');";
    CHECK_INT(sqlite3_exec(store_db(store), rows, NULL, NULL, NULL), SQLITE_OK);
    return store;
}

// A recording of one thread that waited once, told apart by a name.
static struct store *test_shard(const char *name)
{
    struct store *shard = NULL;
    struct error err = {0};
    CHECK_INT(shard_open(&shard, &err), 0);
    char *rows = xasprintf(
        "INSERT INTO recording (id, begin_ns, threshold_ns, sample_hz, python, target, missing) "
        "VALUES (1, 1, 1000000, 199, 0, '{}', '[]');"
        "INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (1, 1, 40, 0, 'other', "
        "'other'), (2, 1, 41, 0, '%s', 'target');"
        "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 2, 41, '%s'), (2, 1, 40, 'other');"
        "INSERT INTO frame (id, name) VALUES (1, 'outer'), (2, '%s');"
        "INSERT INTO stack (id, kind, depth, frames) VALUES (1, 'kernel', 2, '[2,1]');"
        "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, kernel_stack, waker_thread) "
        "VALUES (1, 10, NULL, 20, 1, 0, 1, 2);"
        "INSERT INTO sample (thread_id, at_ns, cpu, why, kernel_stack) VALUES (1, 5, 0, 0, NULL);"
        "INSERT INTO thread_total (thread_id, switches, short_gaps, short_gap_ns, run_ns) VALUES (1, 1, 0, 0, "
        "9);"
        "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, 0, 0, 1, 2);",
        name, name, name);
    CHECK_INT(sqlite3_exec(store_db(shard), rows, NULL, NULL, NULL), SQLITE_OK);
    free(rows);
    CHECK_INT(store_ledger(shard, NULL, "capture", "gaps", 3, 2, 1, 0, NULL), 0);
    return shard;
}

static int64_t test_int(struct store *store, const char *sql)
{
    int64_t value = -1;
    store_get_int(store, &value, NULL, sql, "");
    return value;
}

static void test_remove(struct store *store, const char *dir)
{
    unlink(store_path(store));
    store_close(store);
    rmdir(dir);
}

TEST(two_sides_are_told_apart)
{
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_store(dir);
    struct error err = {0};
    static const char *const names[] = {"left", "right"};
    for (int side = 0; side < 2; side++) {
        struct store *shard = test_shard(names[side]);
        CHECK_INT(shard_merge(store, shard, side + 1, &err), 0);
        store_close(shard);
    }
    CHECK_INT(test_int(store, "SELECT count(*) FROM recording"), 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM gap"), 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM sample WHERE kernel_stack IS NULL"), 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM ledger WHERE launch_id IN (1, 2) AND dropped = 1"), 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // The leaf of the stack of the gap of the thread of the launch bears the name of its side.
    char *told = store_get_text(
        store,
        "SELECT group_concat(told, ', ') FROM (SELECT r.launch_id || ' ' || t.comm || ' ' || f.name || ' ' || w.comm || ' ' || p.comm AS "
        "told FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
        "JOIN recording r ON r.id = p.recording_id JOIN v_stack k ON k.stack = g.kernel_stack AND k.depth = 0 "
        "JOIN frame f ON f.name = k.name JOIN thread w ON w.id = g.waker_thread ORDER BY r.id)", "");
    CHECK_STR(told, "1 left left other left, 2 right right other right");
    free(told);
    CHECK_INT(test_int(store, "PRAGMA foreign_keys"), 1);
    test_remove(store, dir);
}

TEST(a_shard_of_another_shape_changes_nothing)
{
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_store(dir), *shard = test_shard("left");
    struct error err = {0};
    CHECK_INT(sqlite3_exec(store_db(shard), "DROP TABLE counter; ALTER TABLE host_fact ADD COLUMN new INTEGER",
                           NULL, NULL, NULL), SQLITE_OK);
    CHECK(shard_merge(store, shard, 1, &err) < 0);
    CHECK(strstr(err.text, "failed to take a recording"));
    CHECK_INT(test_int(store, "SELECT count(*) FROM recording"), 0);
    CHECK_INT(test_int(store, "SELECT count(*) FROM frame"), 0);
    store_close(shard);
    test_remove(store, dir);
}
