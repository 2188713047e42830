// SPDX-License-Identifier: Apache-2.0
// Recordings of two recorders, each with row numbers of its own, end up in one store: nothing is
// lost, and what refers to what is as it was.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
    CHECK_INT(store_ledger(shard, NULL, "capture", "gaps", 3, 2, 1, 0, NULL, NULL), 0);
    return shard;
}

// What its GPU did: a kernel that both sides have, one that only this has, calls, ranges and
// Python.
static void test_add_gpu(struct store *shard, const char *name)
{
    char *rows = xasprintf(
            "INSERT INTO string (id, text) VALUES (1, 'own_%s'), (2, 'cudaLaunchKernel'), (3, '_Z4bothv'), (4, 'layers.%s');"
            "INSERT INTO gpu_process (process_id, state, kinds, clock_samples) VALUES (2, 'traced', 1, 1);"
            "INSERT INTO gpu_device (id, process_id, device, name) VALUES (1, 2, 0, 'H');"
            "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, 2, 0, 1, 7), (2, 2, 0, 1, 8);"
            "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
            "static_shared_bytes, dynamic_shared_bytes, local_bytes) VALUES (1, 1, 'own_%s', 1, 1, 1, 32, 1, 1, 8, 0, 0, 0), "
            "(2, 3, 'both()', 2, 1, 1, 32, 1, 1, 8, 0, 0, 0);"
            "INSERT INTO gpu_work (id, kind, stream_id, kernel_id, call_name_id, thread_id) VALUES (1, 0, 1, 1, 2, 1), "
            "(2, 0, 2, 2, 2, 1), (3, 17, 2, NULL, NULL, NULL);"
            "INSERT INTO gpu_op (start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation) VALUES "
            "(12, 3, 1, 2, 1, 5), (20, 3, 2, 2, 1, 6), (30, 1, 3, NULL, NULL, 7);"
            "INSERT INTO gpu_graph_node (process_id, node, thread_id, at_ns) VALUES (2, 9, 1, 3);"
            "INSERT INTO gpu_call (start_ns, dur_ns, process_id, thread_id, name_id, correlation, result) VALUES "
            "(40, 5, 2, 1, 2, 8, 0);"
            "INSERT INTO nvtx_range (start_ns, dur_ns, process_id, thread_id, name_id) VALUES (1, 2, 2, 1, 4);"
            "INSERT INTO python_mark (process_id, thread_id, at_ns, kind, name_id, value) VALUES (2, 1, 5, 1, 4, NULL), "
            "(2, 1, 4, 3, NULL, 9);"
            "INSERT INTO launch_stack (process_id, correlation, frames) VALUES (2, 5, '[4,3]');"
            "INSERT INTO clock_sample (process_id, before_ns, gpu_ns, after_ns) VALUES (2, 1, 2, 3);",
            name, name, name);
    CHECK_INT(sqlite3_exec(store_db(shard), rows, NULL, NULL, NULL), SQLITE_OK);
    free(rows);
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
    CHECK_INT(test_int(store,
                      "SELECT count(*) FROM ledger WHERE launch_id IN (1, 2) AND dropped = 1"),
            2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // The leaf of the stack of the gap of the thread of the launch bears the name of its side.
    char *told = store_get_text(store,
            "SELECT group_concat(told, ', ') FROM (SELECT r.launch_id || ' ' || t.comm || ' ' || f.name || ' ' || w.comm || ' ' || p.comm AS "
            "told FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
            "JOIN recording r ON r.id = p.recording_id JOIN v_stack k ON k.stack = g.kernel_stack AND k.depth = 0 "
            "JOIN frame f ON f.name = k.name JOIN thread w ON w.id = g.waker_thread ORDER BY r.id)",
            "");
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
    CHECK_INT(sqlite3_exec(store_db(shard),
                      "DROP TABLE counter; ALTER TABLE host_fact ADD COLUMN new INTEGER", NULL,
                      NULL, NULL),
            SQLITE_OK);
    CHECK(shard_merge(store, shard, 1, &err) < 0);
    CHECK(strstr(err.text, "failed to take a recording"));
    CHECK_INT(test_int(store, "SELECT count(*) FROM recording"), 0);
    CHECK_INT(test_int(store, "SELECT count(*) FROM frame"), 0);
    store_close(shard);
    test_remove(store, dir);
}

TEST(texts_and_kernels_of_both_sides_are_one)
{
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_store(dir);
    struct error err = {0};
    static const char *const names[] = {"left", "right"};
    for (int side = 0; side < 2; side++) {
        struct store *shard = test_shard(names[side]);
        test_add_gpu(shard, names[side]);
        CHECK_INT(shard_merge(store, shard, side + 1, &err), 0);
        store_close(shard);
    }
    CHECK_INT(test_int(store, "SELECT count(*) FROM string"), 6);
    CHECK_INT(test_int(store, "SELECT count(*) FROM gpu_kernel"), 3);
    CHECK_INT(
            test_int(store, "SELECT count(*) FROM gpu_kernel k JOIN string s ON s.id = k.name_id"),
            3);
    CHECK_INT(test_int(store, "SELECT count(*) FROM gpu_op"), 6);
    CHECK_INT(test_int(store,
                      "SELECT count(*) FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id "
                      "WHERE w.kernel_id IS NULL AND w.call_name_id IS NULL"),
            2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM clock_sample"), 2);
    CHECK_INT(test_int(store, "SELECT count(DISTINCT process_id) FROM gpu_graph_node"), 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    char *told = store_get_text(store,
            "SELECT group_concat(told, ', ') FROM (SELECT launch || ' ' || name || ' ' || stream || ' ' || call_name || ' ' || "
            "call_tid || ' ' || python_step || ' ' || module AS told FROM v_gpu_op WHERE kind = 'kernel' ORDER BY op)",
            "");
    CHECK_STR(told,
            "1 own_left 7 cudaLaunchKernel 41 9 layers.left, 1 both() 8 cudaLaunchKernel 41 9 layers.left, "
            "2 own_right 7 cudaLaunchKernel 41 9 layers.right, 2 both() 8 cudaLaunchKernel 41 9 layers.right");
    free(told);
    told = store_get_text(store,
            "SELECT group_concat(s.text, ' ') FROM launch_stack l, json_each(l.frames) j "
            "JOIN string s ON s.id = j.value",
            "");
    CHECK_STR(told, "layers.left _Z4bothv layers.right _Z4bothv");
    free(told);
    test_remove(store, dir);
}

// Shapes that never repeat: the time is that of sorting them (each against all the others took 30
// s).
TEST(many_kernels_of_both_sides)
{
    enum { KERNELS = 16000 };
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_store(dir);
    struct error err = {0};
    for (int side = 0; side < 2; side++) { // half of them are the same
        struct store *shard = test_shard("both");
        char *rows = xasprintf(
                "INSERT INTO string (id, text) VALUES (1, 'k');"
                "INSERT INTO gpu_process (process_id, state, kinds, clock_samples) VALUES (2, 'traced', 1, 1);"
                "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, 2, 0, 1, 7);"
                "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d) "
                "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
                "static_shared_bytes, dynamic_shared_bytes, local_bytes, occupancy) SELECT n, 1, 'k', n + %d, 1, 1, 32, 1, 1, 8, 0, 0, "
                "0, CASE WHEN n %% 2 THEN 0.5 END FROM i;"
                "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) SELECT id, 0, 1, id FROM gpu_kernel;"
                "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) SELECT id, 1, id, id + %d FROM gpu_work;",
                (int)KERNELS, side * KERNELS / 2, side * KERNELS / 2);
        CHECK_INT(sqlite3_exec(store_db(shard), rows, NULL, NULL, NULL), SQLITE_OK);
        free(rows);
        clock_t began = clock(); // CPU time: what others take of the machine does not count
        CHECK_INT(shard_merge(store, shard, side + 1, &err), 0);
        CHECK(clock() - began < 8 * CLOCKS_PER_SEC);
        store_close(shard);
    }
    CHECK_INT(test_int(store, "SELECT count(*) FROM gpu_kernel"), KERNELS * 3 / 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM v_gpu_op WHERE grid_x = correlation"),
            KERNELS * 2);
    test_remove(store, dir);
}

// A recorder of one rank: its worker is a target, the other's a stranger.
static struct store *test_rank(int rank)
{
    struct store *shard = NULL;
    struct error err = {0};
    CHECK_INT(shard_open(&shard, &err), 0);
    char *rows = xasprintf(
            "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES (1, 1, 90, 1000000, 199, 0, '{}', '[]');"
            "INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind, started_ns) VALUES (1, 1, 0, 0, 'swapper', 'idle', NULL), "
            "(2, 1, %d, 50000000000, 'rank', 'target', 5), (3, 1, %d, 50004000000, '?', 'other', NULL);"
            "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, 0, 'swapper'), (2, 2, %d, 'rank'), (3, 3, %d, '?');"
            "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_in, waker_thread) VALUES (2, 10, NULL, 20, 1, 0, 1, 3);"
            "INSERT INTO sample (thread_id, at_ns, cpu, why) VALUES (2, 5, 1, 0);"
            "INSERT INTO thread_total (thread_id, switches, short_gaps, short_gap_ns, run_ns) VALUES (2, 1, 0, 7, 9);"
            "INSERT INTO connection VALUES (2, 3, '10.0.0.1:1', '10.0.0.2:2', 10, 20, 700, 0, 4, 1);"
            "INSERT INTO counter (recording_id, at_ns, source, name, value) VALUES (1, 8, 'cpu.stat', 'nr_throttled', 3), (1, 8, 'stat', 'cpu1 steal_ns', 4);"
            "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, 0, 0, 1, 2);",
            100 + rank, 101 - rank, 100 + rank, 101 - rank);
    CHECK_INT(sqlite3_exec(store_db(shard), rows, NULL, NULL, NULL), SQLITE_OK);
    free(rows);
    return shard;
}

// change: SQL that each shard goes through first.
static struct store *test_merged_of(
        char *dir, const struct shard_place *places, int count, const char *change)
{
    struct store *store = test_store(dir);
    struct error err = {0};
    CHECK_INT(
            sqlite3_exec(store_db(store),
                    "INSERT INTO recording (id, begin_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
                    "(4, 1, 1000000, 199, 0, '{}', '[]')",
                    NULL, NULL, NULL),
            SQLITE_OK);
    for (int rank = 0; rank < count; rank++) {
        struct store *shard = test_rank(rank);
        CHECK_INT(sqlite3_exec(store_db(shard), change, NULL, NULL, NULL), SQLITE_OK);
        CHECK_INT(shard_take(store, shard, &places[rank], &err), 0);
        store_close(shard);
    }
    CHECK_INT(test_int(store, "SELECT count(*) FROM recording"), 1);
    CHECK_INT(test_int(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    return store;
}

static struct store *test_merged(char *dir, const struct shard_place *places, int count)
{
    return test_merged_of(dir, places, count, "");
}

static void test_told(struct store *store, const char *sql, const char *expected)
{
    char *told = store_get_text(store, sql, "");
    CHECK_STR(told, expected);
    free(told);
}

TEST(two_ranks_of_a_node_become_one_recording)
{
    static const struct shard_place places[] = {
            {.recording_id = 4, .process_first = 1, .rank = 0, .machine = true},
            {.recording_id = 4, .process_first = 1, .rank = 1}};
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_merged(dir, places, 2);
    test_told(store, "SELECT group_concat(tgid || ' ' || kind || ' ' || comm, ', ') FROM process",
            "0 idle swapper, 100 target rank, 101 target rank");
    test_told(store,
            "SELECT group_concat(p.tgid || ' woken by ' || w.tid, ', ') FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON "
            "p.id = t.process_id JOIN thread w ON w.id = g.waker_thread",
            "100 woken by 101, 101 woken by 100");
    test_told(store, "SELECT group_concat(source || ' ' || name, ', ') FROM counter",
            "cpu.stat nr_throttled rank 0, stat cpu1 steal_ns, cpu.stat nr_throttled rank 1");
    test_told(store, "SELECT group_concat(rank, ', ') FROM recorded_step WHERE recording_id = 4",
            "0, 1");
    test_told(store,
            "SELECT group_concat(sender_pid || ' to ' || receiver_pid, ', ') FROM v_connection WHERE recording = 4",
            "100 to 101, 101 to 100");
    CHECK_INT(test_int(store, "SELECT count(*) FROM thread"), 3);
    CHECK_INT(test_int(store, "SELECT count(*) FROM thread_total"), 2);
    test_remove(store, dir);
}

// Under load a recorder asks /proc only after the other rank has ended: it knows its pid alone.
TEST(a_rank_of_which_one_recorder_has_no_start_is_one)
{
    static const struct shard_place places[] = {
            {.recording_id = 4, .process_first = 1, .rank = 0, .machine = true},
            {.recording_id = 4, .process_first = 1, .rank = 1}};
    static const char told[] =
            "SELECT group_concat(tgid || ' ' || kind || ' ' || start_ns, ', ') FROM process WHERE tgid > 0";
    char dir[] = "/tmp/upgate-shard-XXXXXX", twice[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store =
            test_merged_of(dir, places, 2, "UPDATE process SET start_ns = 0 WHERE kind = 'other'");
    test_told(store, told, "100 target 50000000000, 101 target 50000000000");
    CHECK_INT(test_int(store, "SELECT count(*) FROM thread"), 3);
    test_remove(store, dir);

    // Where a pid was given out again, nobody knows which of the two it is.
    store = test_merged_of(twice, places, 2,
            "UPDATE process SET start_ns = 0 WHERE kind = 'other'; INSERT INTO process (id, recording_id, tgid, "
            "start_ns, comm, kind) SELECT 4, 1, tgid, 60000000000, 'again', 'other' FROM process WHERE id = 3");
    test_told(store, told,
            "100 target 50000000000, 101 other 0, 101 other 60000000000, 101 target 50000000000, 100 other 0, 100 other 60000000000");
    test_remove(store, twice);
}

TEST(ranks_of_two_nodes_keep_apart)
{
    static const struct shard_place places[] = {
            {.recording_id = 4, .process_first = 1, .rank = 0, .machine = true},
            {.recording_id = 4,
                    .process_first = 4,
                    .shift_ns = 1000,
                    .cpu_first = 16,
                    .rank = 1,
                    .machine = true}};
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_merged(dir, places, 2);
    CHECK_INT(test_int(store, "SELECT count(*) FROM process"), 6);
    CHECK_INT(test_int(store, "SELECT count(*) FROM thread"), 6);
    test_told(store,
            "SELECT group_concat(out_ns || ' ' || in_ns || ' ' || cpu_in || ' ' || (waking_ns IS NULL), ', ') FROM gap",
            "10 20 1 1, 1010 1020 17 1");
    test_told(store, "SELECT group_concat(at_ns || ' ' || cpu, ', ') FROM sample", "5 1, 1005 17");
    test_told(store, "SELECT group_concat(begin_ns || ' ' || dur_ns, ', ') FROM recorded_step",
            "1 2, 1001 2");
    test_told(store,
            "SELECT group_concat(begin_ns || ' ' || end_ns || ' ' || bytes, ', ') FROM connection",
            "10 20 700, 1010 1020 700");
    test_told(store, "SELECT group_concat(short_gap_ns || ' ' || run_ns, ', ') FROM thread_total",
            "7 9, 7 9");
    test_told(store,
            "SELECT group_concat(start_ns || ' ' || started_ns, ', ') FROM process WHERE started_ns NOT NULL",
            "50000000000 5, 50000000000 1005");
    test_told(store,
            "SELECT group_concat(at_ns || ' ' || name, ', ') FROM counter WHERE source = 'stat'",
            "8 cpu1 steal_ns, 1008 cpu17 steal_ns");
    test_remove(store, dir);
}

TEST(a_merged_node_keeps_the_names_of_its_ranks)
{
    static const struct shard_place places[] = {
            {.recording_id = 4, .process_first = 1, .rank = 0, .machine = true},
            {.recording_id = 4, .process_first = 1, .rank = 1}};
    static const struct shard_place place = {.recording_id = 4,
            .process_first = 1,
            .shift_ns = 1000,
            .cpu_first = 16,
            .rank = -1,
            .machine = true};
    char dir[] = "/tmp/upgate-shard-XXXXXX", part_dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_merged(dir, places, 0), *part = test_merged(part_dir, places, 2);
    struct error err = {0};
    CHECK_INT(shard_take(store, part, &place, &err), 0);
    CHECK_INT(test_int(store, "SELECT count(*) FROM process"), 3);
    CHECK_INT(test_int(store, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    test_told(store, "SELECT group_concat(source || ' ' || name, ', ') FROM counter",
            "cpu.stat nr_throttled rank 0, stat cpu17 steal_ns, cpu.stat nr_throttled rank 1");
    test_told(store, "SELECT group_concat(rank || ' ' || begin_ns, ', ') FROM recorded_step",
            "0 1001, 1 1001");
    test_told(store, "SELECT group_concat(out_ns || ' ' || in_ns || ' ' || cpu_in, ', ') FROM gap",
            "1010 1020 17, 1010 1020 17");
    test_remove(part, part_dir);
    // One rank of the node made steps: they are that rank's.
    part = test_rank(0);
    CHECK_INT(sqlite3_exec(store_db(part), "UPDATE recorded_step SET rank = 7", NULL, NULL, NULL),
            SQLITE_OK);
    CHECK_INT(shard_take(store, part, &place, &err), 0);
    test_told(store, "SELECT group_concat(rank, ', ') FROM recorded_step", "0, 1, 7");
    store_close(part);
    test_remove(store, dir);
}

// Half a nanosecond more for each that has gone by since 1: of times, not of lengths.
TEST(a_clock_of_another_rate)
{
    static const struct shard_place place = {.recording_id = 4,
            .process_first = 1,
            .shift_ns = 1000,
            .drift_from_ns = 1,
            .drift = 0.5};
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_merged(dir, &place, 1);
    test_told(store, "SELECT group_concat(out_ns || ' ' || in_ns, ', ') FROM gap", "1015 1030");
    test_told(store, "SELECT group_concat(begin_ns || ' ' || dur_ns, ', ') FROM recorded_step",
            "1001 2");
    test_remove(store, dir);
}

// Counters of the cgroup that some ranks have in common are of each of them where there are others;
// those of a rank stay its own.
TEST(ranks_that_share_a_recorder_keep_their_cgroups)
{
    static const struct {
        const char *ranks, *expected;
        bool machine, several;
    } cases[] = {
            {"[3,12]",
                    "cpu.stat nr_throttled rank 3, cpu.stat nr_throttled rank 12, stat cpu1 steal_ns, cpu.stat nr_throttled rank 4, drops gap",
                    true, false},
            {"[3,12]",
                    "cpu.stat nr_throttled rank 3, cpu.stat nr_throttled rank 12, cpu.stat nr_throttled rank 4, drops gap",
                    false, false},
            {"[]", "cpu.stat nr_throttled, stat cpu1 steal_ns, cpu.stat nr_throttled rank 4, drops gap",
                    true, false},
            {"[3]", "cpu.stat nr_throttled rank 3, stat cpu1 steal_ns, drops gap", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shard_place place = {.recording_id = 4,
                .process_first = 1,
                .rank = -1,
                .several = cases[i].several,
                .cgroup_ranks = cases[i].ranks,
                .machine = cases[i].machine};
        char dir[] = "/tmp/upgate-shard-XXXXXX";
        struct store *store = test_merged(dir, &place, 0), *shard = test_rank(0);
        struct error err = {0};
        CHECK_INT(
                sqlite3_exec(store_db(shard),
                        "INSERT INTO counter (recording_id, at_ns, source, name, value) VALUES (1, 9, 'cpu.stat', "
                        "'nr_throttled rank 4', 6), (1, 9, 'drops', 'gap', 0)",
                        NULL, NULL, NULL),
                SQLITE_OK);
        CHECK_INT(shard_take(store, shard, &place, &err), 0);
        test_told(store, "SELECT group_concat(source || ' ' || name, ', ') FROM counter",
                cases[i].expected);
        store_close(shard);
        test_remove(store, dir);
    }
}

TEST(a_column_of_time_that_is_not_known_is_refused)
{
    static const struct shard_place place = {
            .recording_id = 4, .process_first = 1, .shift_ns = 1000};
    char dir[] = "/tmp/upgate-shard-XXXXXX";
    struct store *store = test_store(dir), *shard = test_rank(0);
    struct error err = {0};
    CHECK_INT(sqlite3_exec(store_db(shard), "ALTER TABLE gap ADD COLUMN strange_ns INTEGER", NULL,
                      NULL, NULL),
            SQLITE_OK);
    CHECK_INT(shard_take(store, shard, &place, &err), -EBADMSG);
    CHECK(strstr(err.text, "gap.strange_ns") != NULL);
    store_close(shard);
    test_remove(store, dir);
}
