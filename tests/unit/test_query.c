// SPDX-License-Identifier: Apache-2.0
// SQL over shards: whose rows are in the answer, and whose are not.
#include "harness/rank/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

static struct error err;
static char dir[] = "/tmp/upgate-query-XXXXXX";

// Recorded by process 10, as rank `rank` of `ranks` by its own launcher. more: member of recording.target, as JSON. idx: of its one step.
static void put(const char *name, int rank, int ranks, const char *key, const char *more, int64_t idx)
{
    struct store *store = NULL;
    struct identity who = {.launcher = {.rank = rank, .ranks = ranks, .local_rank = -1, .local_ranks = -1, .node = -1},
                           .run = "job",
                           .host = "vm",
                           .boot = "boot",
                           .clock = {.wall_minus_monotonic_ns = 1780000000000000000, .error_ns = -1}};
    char *path = xasprintf("%s/%s", dir, name);
    json_t *identity = identity_json(&who);
    json_object_set_new(identity, "pid", json_integer(10));
    json_t *target = json_pack("{so so}", "rank", identity, key, json_loads(more, 0, NULL));
    char *text = json_dumps(target, JSON_COMPACT);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, "
                         "host_key) VALUES (1, 'x', 'record', 'done', '1', 5, 0, '{}', '[]', '{}', '')", ""), 0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
                         "(1, 1000, 9000, 1000000, 199, 0, ?, '[]')", "s", text), 0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, 0, ?, 2000, 1000)", "i", idx), 0);
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

// A launcher's recorder that saw none of its ranks is asked before the others tell what it is: its number is that of a rank of the job.
TEST(a_recorder_of_no_rank_is_in_no_answer)
{
    const struct query_opts opts = {.dir = dir, .restart = -1, .map = "SELECT idx FROM recorded_step"};
    struct query *query = NULL;
    int count = 0;
    CHECK(runner_directory(dir) != NULL);
    put("0-0.db", 0, 2, "ranks", "[{\"pid\": 11, \"rank\": 0, \"ranks\": 4}, {\"pid\": 12, \"rank\": 1, \"ranks\": 4}]", 5);
    put("0-1.db", 1, 2, "ranks", "[{\"pid\": 10, \"rank\": 1, \"ranks\": 2}]", 1000);
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
    const struct query_opts opts = {.dir = dir, .restart = -1, .map = "SELECT abs(idx) AS n FROM recorded_step", .reduce = "SELECT sum(n) AS n FROM map"};
    struct query *query = NULL;
    int count = 0;
    CHECK(runner_directory(dir) != NULL);
    put("0-0.db", 0, 4, "joined", "[{\"rank\": 1, \"pid\": 11, \"begin_ns\": 2000}, {\"rank\": 2, \"pid\": 12, \"begin_ns\": 2000}]", INT64_MIN);
    put("0-3.db", 3, 4, "joined", "[]", 7);
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
