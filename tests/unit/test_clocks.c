// SPDX-License-Identifier: Apache-2.0
// Shards of a job on several nodes, made up with clocks that are known, and merged: what the
// collectives tell of the clocks, what is done where they tell nothing or contradict each other,
// and who is named then.
#include "harness/rank/clocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/analyse/stalls/stalls.h"
#include "tests/unit/runner.h"

enum { THREE = 3, MANY = 26, PER_STEP = 4, STEPS = 250, STEP_MS = 20, US = 1000, MS = 1000000 };
#define SECOND INT64_C(1000000000)
#define BEGIN (INT64_C(7200) * SECOND) // of the first node's clock
#define WALL (INT64_C(1780000000) * SECOND)

static struct error err;
static char dir[] = "/tmp/upgate-clocks-XXXXXX";

struct node {
    int64_t offset_ns; // of its clock at BEGIN
    double drift;
    int64_t told_off_ns; // by as much its wall clock is wrong
    int64_t error_ns;    // within what its kernel knows it
};

struct job {
    struct node nodes[MANY];
    int node_of[MANY], rank_count;
    int64_t late_ns[MANY]; // to the first collective of each step
    int64_t way_ns;        // between two ranks
    const char *function;  // NULL: AllReduce
    bool pairs;            // of three nodes a communicator of each two, else one of all
    bool apart;            // no communicator that two nodes have in common
    int64_t moved_ns;      // of the communicator of the last two nodes, what the last one has of it
    size_t wrong;          // a collective of the last rank that is 1 s off; 0: none
    unsigned seed;
    // at what time of the first clock
    int64_t came[STEPS * PER_STEP][MANY], left[STEPS * PER_STEP][MANY];
};

static double job_random(struct job *job) // 0 to 1
{
    job->seed = job->seed * 1103515245 + 12345;
    return (double)(job->seed >> 16 & 0x7fff) / 0x8000;
}

static int64_t node_clock(const struct node *node, int64_t at_ns)
{
    return at_ns + node->offset_ns + llround(node->drift * (double)(at_ns - BEGIN));
}

static int64_t job_clock(const struct job *job, int rank, int64_t at_ns)
{
    return node_clock(&job->nodes[job->node_of[rank]], at_ns);
}

static void job_run(struct job *job)
{
    for (size_t i = 0; i < STEPS * PER_STEP; i++) {
        int64_t at = BEGIN + (int64_t)(i / PER_STEP) * STEP_MS * MS +
                (int64_t)(i % PER_STEP) * 3 * MS + 2 * MS,
                last = 0;
        for (int rank = 0; rank < job->rank_count; rank++) {
            int64_t came = at + (int64_t)(job_random(job) * 40 * US) +
                    (i % PER_STEP == 0 ? job->late_ns[rank] : 0);
            job->came[i][rank] = came;
            last = came > last ? came : last;
        }
        for (int rank = 0; rank < job->rank_count; rank++)
            job->left[i][rank] = last + job->way_ns + (int64_t)(job_random(job) * 30 * US);
    }
}

static void job_put(
        const struct job *job, struct store *store, int rank, int communicator, bool moved)
{
    const char *function = job->function ? job->function : "AllReduce";
    for (size_t i = 0; i < STEPS * PER_STEP; i++) {
        int64_t off = (moved ? job->moved_ns : 0) +
                (job->wrong && i == job->wrong && rank == job->rank_count - 1 ? SECOND : 0);
        int64_t came = job_clock(job, rank, job->came[i][rank]) + off,
                left = job_clock(job, rank, job->left[i][rank]) + off;
        CHECK_INT(
                store_exec(store, &err,
                        "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, "
                        "function, count, bytes, channels, plugin_version) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, 1, 4, 2, 5)",
                        "iiiiiiis", came - 100 * US, came, left, (int64_t)communicator,
                        (int64_t)rank, (int64_t)job->rank_count, (int64_t)i, function),
                0);
    }
}

static void job_put_all(const struct job *job, struct store *store, int rank)
{
    int node = job->node_of[rank];
    CHECK_INT(
            sqlite3_exec(store_db(store), "PRAGMA synchronous = OFF", NULL, NULL, NULL), SQLITE_OK);
    CHECK_INT(store_begin(store, &err), 0);
    for (int other = 0; job->pairs && other < THREE; other++)
        if (other != node)
            job_put(job, store, rank, 10 + node + other, node == THREE - 1 && other == THREE - 2);
    if (!job->pairs)
        job_put(job, store, rank, job->apart ? 10 + node : 10, false);
    CHECK_INT(store_commit(store, &err), 0);
}

static void job_write(const struct job *job, int rank)
{
    struct store *store = NULL;
    const struct node *node = &job->nodes[job->node_of[rank]];
    struct identity who = {.launcher = {.rank = rank,
                                   .ranks = job->rank_count,
                                   .local_rank = -1,
                                   .local_ranks = -1,
                                   .node = -1},
            .run = "job",
            .clock = {.wall_minus_monotonic_ns = WALL - node->offset_ns + node->told_off_ns,
                    .error_ns = node->error_ns}};
    snprintf(who.host, sizeof who.host, "node%d", job->node_of[rank]);
    snprintf(who.boot, sizeof who.boot, "boot%d", job->node_of[rank]);
    char *path = xasprintf("%s/0-%d.db", dir, rank);
    json_t *identity = identity_json(&who);
    json_object_set_new(identity, "pid", json_integer(10 + rank));
    json_t *target = json_pack("{so}", "rank", identity);
    char *text = json_dumps(target, JSON_COMPACT);
    unlink(path);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, "
                    "host_key) VALUES (1, 'x', 'record', 'done', '1', 5, 0, '{}', '[]', '{}', '')",
                    ""),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
                    "(1, ?, ?, 1000000, 199, 0, ?, '[]')",
                    "iis", job_clock(job, rank, BEGIN),
                    job_clock(job, rank, BEGIN + STEPS * STEP_MS * (int64_t)MS), text),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO process (id, recording_id, tgid, start_ns, comm, cmdline, kind) VALUES (1, 1, ?, 1, 'python3', "
                    "'python3 ddp.py', 'target')",
                    "i", (int64_t)10 + rank),
            0);
    CHECK_INT(store_exec(store, &err,
                      "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, ?, 'python3')",
                      "i", (int64_t)10 + rank),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO thread_total (thread_id, switches, short_gaps, short_gap_ns, run_ns) VALUES (1, 1, 0, 0, 9000000000)",
                    ""),
            0);
    job_put_all(job, store, rank);
    store_close(store);
    free(text);
    json_decref(target);
    free(path);
}

// Two ranks on each of two nodes, whose kernels know little. The second clock is 100 ms ahead and
// drifts.
static struct job *job_new(void)
{
    struct job *job = xcalloc(1, sizeof *job);
    job->rank_count = 4;
    job->node_of[2] = job->node_of[3] = 1;
    for (int i = 0; i < MANY; i++)
        job->nodes[i] = (struct node){
                .offset_ns = i * 100 * (int64_t)MS, .drift = i % THREE * 25e-6, .error_ns = 3 * MS};
    job->nodes[1].told_off_ns = MS;
    job->way_ns = 20 * US;
    job->seed = 7;
    return job;
}

static struct job *job_of_three(void)
{
    struct job *job = job_new();
    job->rank_count = 3;
    job->node_of[1] = 1;
    job->node_of[2] = 2;
    return job;
}

// Merged into run.db. stalls: NULL ok; the caller frees both.
static void job_merge(struct job *job, struct merge_result *ret, struct stalls **ret_stalls)
{
    static bool made; // in this case
    CHECK(made || runner_directory(dir) != NULL);
    made = true;
    job_run(job);
    for (int rank = 0; rank < job->rank_count; rank++)
        job_write(job, rank);
    char *path = xasprintf("%s/run.db", dir);
    unlink(path);
    const struct merge_opts opts = {.dir = dir, .path = path, .restart = -1, .command_line = "[]"};
    CHECK_INT(merge_run(&opts, ret, &err), 0);
    CHECK_INT(ret->missing_count, 0);
    if (ret_stalls) {
        struct store *store = NULL;
        CHECK_INT(store_open(path, STORE_READ, &store, &err), 0);
        CHECK_INT(stalls_analyse(store, NULL, ret_stalls, &err), 0);
        store_close(store);
    }
    free(path);
}

// How far the clocks of two nodes are from each other at most, where they should be one.
static int64_t job_apart(
        const struct job *job, const struct merge_result *result, int first, int second)
{
    int64_t most = 0;
    for (int64_t at = BEGIN; at <= BEGIN + STEPS * STEP_MS * (int64_t)MS; at += 100 * MS) {
        int64_t times[2];
        for (int i = 0; i < 2; i++) {
            const struct node *node = &job->nodes[i ? second : first];
            times[i] =
                    clock_map_apply(&result->nodes[i ? second : first].map, node_clock(node, at));
        }
        most = llabs(times[0] - times[1]) > most ? llabs(times[0] - times[1]) : most;
    }
    return most;
}

static bool is_late(const struct stalls *stalls, int first_rank, int last_rank)
{
    for (size_t i = 0; i < stalls->count; i++)
        if (stalls->stalls[i].is_straggler && stalls->stalls[i].rank >= first_rank &&
                stalls->stalls[i].rank <= last_rank)
            return true;
    return false;
}

TEST(collectives_tell_more_than_the_kernels)
{
    for (int known = 0; known < 2; known++) {
        struct job *job = job_new();
        struct merge_result result;
        if (!known)
            job->nodes[0].error_ns = job->nodes[1].error_ns = -1;
        job->nodes[1].drift = 50e-6;
        job_merge(job, &result, NULL);
        CHECK_INT(result.node_count, 2);
        CHECK_INT(result.by_collectives, 2);
        CHECK_INT(result.nodes[0].error_ns, 0);
        CHECK_INT(result.clock_residual_ns, result.nodes[1].error_ns);
        CHECK(result.clock_residual_ns < 50 * US);
        CHECK(job_apart(job, &result, 0, 1) <= result.clock_residual_ns);
        CHECK_DBL(result.nodes[1].map.drift, -50e-6, 20e-6);
        CHECK_INT(result.note_count, 0);
        merge_free(&result);
        free(job);
    }
}

// The times in the store are on one clock, with the drift taken out.
TEST(times_of_all_nodes_are_on_one_clock)
{
    struct job *job = job_new();
    struct merge_result result;
    struct store *store = NULL;
    int64_t apart_ns = 0, drift_known = 0;
    job->nodes[1].drift = 50e-6;
    job_merge(job, &result, NULL);
    CHECK_INT(store_open(result.path, STORE_READ, &store, &err), 0);
    CHECK_INT(
            store_get_int(store, &apart_ns, &err,
                    "SELECT max(abs(a.kernel_end_ns - b.kernel_end_ns)) FROM nccl_op a JOIN nccl_op b ON a.sequence = b.sequence "
                    "WHERE a.rank = 0 AND b.rank = 3",
                    ""),
            0);
    CHECK(apart_ns <= 30 * US + result.clock_residual_ns);
    CHECK_INT(
            store_get_int(store, &drift_known, &err,
                    "SELECT target ->> '$.nodes[1].drift' < -30e-6 AND target ->> '$.nodes[0].drift' = 0 AND target ->> "
                    "'$.nodes[1].clock_error_ns' > 0 FROM recording",
                    ""),
            0);
    CHECK_INT(drift_known, 1);
    store_close(store);
    merge_free(&result);
    free(job);
}

TEST(a_node_that_is_1_ms_late_is_named)
{
    // the same job where collectives do not say so: their kernels know 6 ms
    for (int kernels = 0; kernels < 2; kernels++) {
        struct job *job = job_new();
        struct merge_result result;
        struct stalls *stalls = NULL;
        job->late_ns[2] = job->late_ns[3] = MS;
        job->function = kernels ? "Broadcast" : NULL;
        job_merge(job, &result, &stalls);
        CHECK_INT(result.by_collectives, kernels ? 0 : 2);
        CHECK_INT(is_late(stalls, 2, 3), !kernels);
        CHECK(!is_late(stalls, 0, 1));
        stalls_free(stalls);
        merge_free(&result);
        free(job);
    }
}

// 0.4 ms late, and the clocks are known within some 0.25 ms: that may be the clocks.
TEST(nobody_is_named_below_twice_the_residual)
{
    for (int close = 0; close < 2; close++) {
        struct job *job = job_new();
        struct merge_result result;
        struct stalls *stalls = NULL;
        job->rank_count = 2;
        job->node_of[1] = 1;
        job->late_ns[1] = 400 * US;
        job->way_ns = close ? 20 * US : 250 * US;
        job_merge(job, &result, &stalls);
        CHECK_INT(result.by_collectives, 2);
        CHECK_INT(2 * result.clock_residual_ns < 400 * US, close);
        CHECK(job_apart(job, &result, 0, 1) <= result.clock_residual_ns);
        CHECK_INT(is_late(stalls, 1, 1), close);
        CHECK(!is_late(stalls, 0, 0));
        stalls_free(stalls);
        merge_free(&result);
        free(job);
    }
}

TEST(one_wrong_record_of_a_shard_moves_nothing)
{
    struct job *job = job_new();
    struct merge_result result;
    job->wrong = 777;
    job_merge(job, &result, NULL);
    CHECK_INT(result.by_collectives, 2);
    CHECK(result.clock_residual_ns < 50 * US);
    CHECK(job_apart(job, &result, 0, 1) <= result.clock_residual_ns);
    merge_free(&result);
    free(job);
}

// A broadcast lets the one that sends go; without a common collective there is nothing to compare.
TEST(what_does_not_bind_two_nodes_tells_nothing)
{
    for (int apart = 0; apart < 3; apart++) {
        struct job *job = job_new();
        struct merge_result result;
        job->apart = apart == 1;
        job->function = apart == 0 ? "Broadcast" : apart == 2 ? "Reduce" : NULL;
        job_merge(job, &result, NULL);
        CHECK_INT(result.by_collectives, 0);
        CHECK_INT(result.nodes[0].error_ns, 3 * MS);
        CHECK_INT(result.nodes[1].error_ns, 3 * MS);
        CHECK_INT(result.clock_residual_ns, 6 * MS);
        CHECK_DBL(result.nodes[1].map.drift, 0, 0);
        CHECK_INT(result.nodes[1].map.shift_ns, -100 * MS + MS);
        CHECK_INT(result.note_count, 0);
        merge_free(&result);
        free(job);
    }
}

TEST(three_nodes_agree)
{
    for (int pairs = 0; pairs < 2; pairs++) {
        struct job *job = job_of_three();
        struct merge_result result;
        job->pairs = pairs;
        job_merge(job, &result, NULL);
        CHECK_INT(result.node_count, 3);
        CHECK_INT(result.by_collectives, 3);
        for (int i = 0; i < 3; i++)
            for (int k = i + 1; k < 3; k++)
                CHECK(job_apart(job, &result, i, k) <=
                        result.nodes[i].error_ns + result.nodes[k].error_ns);
        CHECK(result.clock_residual_ns < 60 * US); // no more than of two
        merge_free(&result);
        free(job);
    }
}

// More than 24, each compared with the first one and its neighbour.
TEST(many_nodes)
{
    struct job *job = job_new();
    struct merge_result result;
    job->rank_count = MANY;
    for (int i = 0; i < MANY; i++)
        job->node_of[i] = i;
    job_merge(job, &result, NULL);
    CHECK_INT(result.by_collectives, MANY);
    CHECK_INT(result.nodes[0].error_ns, 0);
    CHECK(result.clock_residual_ns < 100 * US); // by way of the first one
    for (int i = 0; i < MANY; i++)
        for (int k = i + 1; k < MANY; k++)
            CHECK(job_apart(job, &result, i, k) <=
                    result.nodes[i].error_ns + result.nodes[k].error_ns);
    merge_free(&result);
    free(job);
}

TEST(kernels_that_know_more)
{
    struct job *job = job_of_three();
    struct merge_result result;
    for (int i = 0; i < THREE; i++)
        job->nodes[i] = (struct node){.offset_ns = i * 100 * (int64_t)MS, .error_ns = 5 * US};
    job_merge(job, &result, NULL);
    CHECK_INT(result.by_collectives, 0);
    CHECK_INT(result.clock_residual_ns, 10 * US);
    CHECK_INT(result.nodes[2].map.shift_ns, -200 * MS);
    CHECK_INT(result.note_count, 0);
    merge_free(&result);
    free(job);
}

// Each pair by itself says nothing wrong, also to the kernels: all three together do.
TEST(three_nodes_that_do_not_agree)
{
    struct job *job = job_of_three();
    struct merge_result result;
    job->pairs = true;
    job->moved_ns = 2 * MS;
    job_merge(job, &result, NULL);
    CHECK_INT(result.by_collectives, 0);
    CHECK_INT(result.clock_residual_ns, 6 * MS);
    CHECK_INT(result.note_count, 1);
    CHECK_CONTAINS(result.notes[0], "contradict those that both have in common with other nodes");
    merge_free(&result);
    free(job);
}

// Somebody's wall clock is off by more than its kernel knows, or the collectives are wrong all
// alike. Who looks late by that is not named.
TEST(collectives_that_contradict_the_kernels)
{
    struct job *job = job_new();
    struct merge_result result;
    struct stalls *stalls = NULL;
    job->nodes[1].told_off_ns = 10 * MS;
    job_merge(job, &result, &stalls);
    CHECK_INT(result.by_collectives, 0);
    CHECK(result.clock_residual_ns > 10 * MS && result.clock_residual_ns < 11 * MS);
    CHECK(job_apart(job, &result, 0, 1) <= result.clock_residual_ns);
    CHECK_INT(result.note_count, 1);
    CHECK_CONTAINS(result.notes[0], "the clocks of node0 and node1 are up to 10.");
    CHECK(!is_late(stalls, 0, 3));
    stalls_free(stalls);
    merge_free(&result);
    free(job);
}

// A node that has nothing in common with the others: its kernel tells where it is.
TEST(a_node_without_collectives_beside_others)
{
    struct job *job = job_of_three();
    struct merge_result result;
    job_merge(job, &result, NULL);
    merge_free(&result);
    char *path = xasprintf("%s/0-2.db", dir), *run = xasprintf("%s/run.db", dir);
    struct store *store = NULL;
    CHECK_INT(store_open(path, STORE_WRITE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err, "DELETE FROM nccl_op", ""), 0);
    store_close(store);
    unlink(run);
    const struct merge_opts opts = {.dir = dir, .path = run, .restart = -1, .command_line = "[]"};
    CHECK_INT(merge_run(&opts, &result, &err), 0);
    CHECK_INT(result.by_collectives, 2);
    CHECK(result.nodes[1].error_ns < 50 * US);
    // its own, and that of the one by which it is told
    CHECK(result.nodes[2].error_ns >= 6 * MS && result.nodes[2].error_ns < 7 * MS);
    CHECK(job_apart(job, &result, 0, 2) <= result.nodes[2].error_ns);
    CHECK(job_apart(job, &result, 1, 2) <= result.nodes[1].error_ns + result.nodes[2].error_ns);
    merge_free(&result);
    free(path);
    free(run);
    free(job);
}

// More than are looked at of one rank, and the other one of its node has few: of each the same ones
// are looked at in its shard and in a part.
TEST(a_part_tells_what_its_shards_do)
{
    struct job *job = job_new();
    struct merge_result all, part;
    struct store *store = NULL;
    job_merge(job, &all, NULL);
    merge_free(&all);
    char *run = xasprintf("%s/run.db", dir), *local = xasprintf("%s/local", dir),
         *shards[] = {xasprintf("%s/0-2.db", dir), xasprintf("%s/0-3.db", dir)},
         *moved[] = {xasprintf("%s/0-2.db", local), xasprintf("%s/0-3.db", local)},
         *parts = xasprintf("%s/0-2.part.db", dir);
    CHECK_INT(store_open(shards[1], STORE_WRITE, &store, &err), 0);
    CHECK_INT(
            store_exec(store, &err,
                    "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999) INSERT INTO nccl_op (process_id, enqueued_ns, "
                    "kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, function, count, bytes, channels, plugin_version) "
                    "SELECT 1, 7200000000000 + i, 7200000000000 + i, 7200000001000 + i, 99, 3, 4, i, 'AllReduce', 1, 4, 2, 5 FROM n",
                    ""),
            0);
    store_close(store);
    struct merge_opts opts = {.dir = dir, .path = run, .restart = -1, .command_line = "[]"};
    unlink(run);
    CHECK_INT(merge_run(&opts, &all, &err), 0);
    CHECK_INT(all.by_collectives, 2);
    CHECK_INT(mkdir(local, 0777), 0);
    for (int i = 0; i < 2; i++)
        CHECK_INT(rename(shards[i], moved[i]), 0);
    opts = (struct merge_opts){
            .dir = local, .path = dir, .restart = -1, .command_line = "[]", .part = true};
    CHECK_INT(merge_run(&opts, &part, &err), 0);
    CHECK_INT(rename(part.path, parts), 0);
    merge_free(&part);
    opts = (struct merge_opts){.dir = dir, .path = run, .restart = -1, .command_line = "[]"};
    unlink(run);
    CHECK_INT(merge_run(&opts, &part, &err), 0);
    CHECK_INT(part.merged, 4);
    CHECK_INT(part.by_collectives, 2);
    CHECK_INT(part.nodes[1].map.shift_ns, all.nodes[1].map.shift_ns);
    CHECK_INT(part.nodes[1].map.from_ns, all.nodes[1].map.from_ns);
    CHECK_DBL(part.nodes[1].map.drift, all.nodes[1].map.drift, 0);
    CHECK_INT(part.nodes[1].error_ns, all.nodes[1].error_ns);
    merge_free(&part);
    merge_free(&all);
    for (int i = 0; i < 2; i++) {
        free(shards[i]);
        free(moved[i]);
    }
    free(parts);
    free(local);
    free(run);
    free(job);
}
