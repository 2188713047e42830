// SPDX-License-Identifier: Apache-2.0
// SQL over shards: whose rows are in the answer, and whose are not. And a store of them.
#include "harness/rank/query.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

static struct error err;
static char dir[] = "/tmp/upgate-query-XXXXXX";

// Recorded by process 10, as rank `rank` of `ranks` by its own launcher, on a node whose clock is
// known within error_ns.
struct shard {
    const char *name;
    int rank, ranks;
    const char *key, *more; // a member of recording.target, as JSON
    int64_t idx;            // of its one step
    const char *boot;
    int64_t set_ns, error_ns;
};

static void put(const struct shard *shard)
{
    struct store *store = NULL;
    struct identity who = {.launcher = {.rank = shard->rank,
                                   .ranks = shard->ranks,
                                   .local_rank = -1,
                                   .local_ranks = -1,
                                   .node = -1},
            .run = "job",
            .host = "vm",
            .clock = {.wall_minus_monotonic_ns = 1780000000000000000 + shard->set_ns,
                    .error_ns = shard->error_ns}};
    snprintf(who.boot, sizeof who.boot, "%s", shard->boot ? shard->boot : "boot");
    char *path = xasprintf("%s/%s", dir, shard->name);
    json_t *identity = identity_json(&who);
    json_object_set_new(identity, "pid", json_integer(10));
    json_t *target =
            json_pack("{so so}", "rank", identity, shard->key, json_loads(shard->more, 0, NULL));
    char *text = json_dumps(target, JSON_COMPACT);
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
                    "(1, 1000, 9000, 1000000, 199, 0, ?, '[]')",
                    "s", text),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, 0, ?, 2000, 1000)",
                    "i", shard->idx),
            0);
    store_close(store);
    free(text);
    json_decref(target);
    free(path);
}

static int64_t sum_of_rows(struct query *query, int column, int *ret_count)
{
    int64_t sum = 0;
    int rc;
    for (*ret_count = 0; (rc = query_step(query, &err)) == 1; ++*ret_count)
        sum += sqlite3_column_int64(query_rows(query), column);
    CHECK_INT(rc, 0);
    return sum;
}

// A launcher's recorder that saw none of its ranks is asked before the others tell what it is: its
// number is that of a rank of the job.
TEST(a_recorder_of_no_rank_is_in_no_answer)
{
    const struct query_opts opts = {
            .dir = dir, .restart = -1, .map = "SELECT idx FROM recorded_step"};
    struct query *query = NULL;
    int count = 0;
    CHECK(runner_directory(dir) != NULL);
    put(&(struct shard){"0-0.db", 0, 2, "ranks",
            "[{\"pid\": 11, \"rank\": 0, \"ranks\": 4}, {\"pid\": 12, \"rank\": 1, \"ranks\": 4}]",
            .idx = 5});
    put(&(struct shard){
            "0-1.db", 1, 2, "ranks", "[{\"pid\": 10, \"rank\": 1, \"ranks\": 2}]", .idx = 1000});
    CHECK_INT(query_new(&opts, &query, &err), 0);
    CHECK_INT(query_shards(query)->chosen_count, 1);
    CHECK_INT(query_shards(query)->missing_count, 2);
    CHECK_INT(sum_of_rows(query, 2, &count), 5); // behind rank and node
    CHECK_INT(count, 1);
    query_free(query);
}

// Of a shard of several ranks on which --map fails all are missing, and for that.
TEST(ranks_of_a_shard_that_fails_are_missing)
{
    const struct query_opts opts = {.dir = dir,
            .restart = -1,
            .map = "SELECT abs(idx) AS n FROM recorded_step",
            .reduce = "SELECT sum(n) AS n FROM map"};
    struct query *query = NULL;
    int count = 0;
    CHECK(runner_directory(dir) != NULL);
    put(&(struct shard){"0-0.db", 0, 4, "joined",
            "[{\"rank\": 1, \"pid\": 11, \"begin_ns\": 2000}, {\"rank\": 2, \"pid\": 12, \"begin_ns\": 2000}]",
            .idx = INT64_MIN});
    put(&(struct shard){"0-3.db", 3, 4, "joined", "[]", .idx = 7});
    CHECK_INT(query_new(&opts, &query, &err), 0);
    const struct merge_result *shards = query_shards(query);
    CHECK_INT(shards->chosen_count, 1);
    CHECK_INT(shards->missing_count, 3);
    for (size_t i = 0; i < shards->missing_count; i++) {
        CHECK_INT(shards->missing[i].rank, (int)i);
        CHECK_CONTAINS(shards->missing[i].why, "--map fails on '");
    }
    CHECK_INT(sum_of_rows(query, 0, &count), 7);
    CHECK_INT(count, 1);
    query_free(query);
}

// Set between the begins of two shards, neither of which saw the other time: ranks of other nodes
// are not told to be later by less than that.
TEST(a_clock_that_was_set_between_two_ranks_is_not_known_better)
{
    static const int64_t set_ns = 5000000000;
    struct merge_result result;
    CHECK(runner_directory(dir) != NULL);
    char *path = xasprintf("%s/run.db", dir);
    const struct merge_opts opts = {.dir = dir, .path = path, .restart = -1, .command_line = "[]"};
    put(&(struct shard){"0-0.db", 0, 3, "joined", "[]", .error_ns = 1000});
    put(&(struct shard){"0-1.db", 1, 3, "joined", "[]", .error_ns = 2000, .set_ns = set_ns});
    put(&(struct shard){"0-2.db", 2, 3, "joined", "[]", .error_ns = 3000, .boot = "another"});
    CHECK_INT(merge_run(&opts, &result, &err), 0);
    CHECK_INT(result.node_count, 2);
    CHECK_INT(result.missing_count, 0);
    CHECK_INT(result.nodes[0].error_ns, 2000 + set_ns);
    CHECK_INT(result.nodes[1].error_ns, 3000);
    CHECK_INT(result.clock_residual_ns, 2000 + set_ns + 3000);
    merge_free(&result);
    free(path);
}

// A name that somebody has taken meanwhile stays his, on file systems without links, too: of a
// directory there can be none.
TEST(nobody_loses_his_place)
{
    struct stat info;
    CHECK(runner_directory(dir) != NULL);
    char *partial = xasprintf("%s/partial", dir), *file = xasprintf("%s/file", dir),
         *made = xasprintf("%s/made", dir), *taken = xasprintf("%s/taken", dir);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && mkdir(partial, 0700) == 0 && mkdir(taken, 0700) == 0);
    close(fd);
    CHECK_INT(merge_settle(partial, taken, &err), -EINVAL);
    CHECK_INT(merge_settle(file, taken, &err), -EINVAL);
    CHECK(stat(partial, &info) == 0 && stat(taken, &info) == 0 && stat(file, &info) == 0);
    // no file, and nothing is left in its place
    CHECK_INT(merge_settle(partial, made, &err), -ENOTDIR);
    CHECK(stat(made, &info) < 0);
    CHECK_INT(merge_settle(file, made, &err), 0);
    CHECK(stat(made, &info) == 0);
    char *texts[] = {partial, file, made, taken};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
}
