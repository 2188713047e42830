// SPDX-License-Identifier: Apache-2.0
// Shards in a directory, of one rank and of all ranks that a launcher started on a node: whose they
// are, and which of them are merged.
#include "harness/rank/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/rank/choose.h"
#include "tests/unit/runner.h"

static struct error err;

struct place {
    char dir[64];
    char *paths[4];
    size_t count;
};

static void place_open(struct place *place)
{
    *place = (struct place){0};
    snprintf(place->dir, sizeof place->dir, "/tmp/upgate-scan-XXXXXX");
    CHECK(mkdtemp(place->dir) != NULL);
}

static void place_close(struct place *place)
{
    for (size_t i = 0; i < place->count; i++) {
        unlink(place->paths[i]);
        free(place->paths[i]);
    }
    CHECK_INT(rmdir(place->dir), 0);
}

// Recorded by process 10, as rank `rank` of `ranks` by its own launcher. told: who of its processes
// is which rank, as JSON.
static void put(struct place *place, const char *name, int rank, int ranks, const char *told)
{
    struct store *store = NULL;
    struct identity who = {.launcher = {.rank = rank,
                                   .ranks = ranks,
                                   .local_rank = -1,
                                   .local_ranks = -1,
                                   .node = -1},
            .run = "job",
            .host = "vm",
            .boot = "boot",
            .clock = {.wall_minus_monotonic_ns = 1780000000000000000, .error_ns = -1}};
    char *path = xasprintf("%s/%s", place->dir, name);
    json_t *identity = identity_json(&who);
    json_object_set_new(identity, "pid", json_integer(10));
    json_t *target = json_pack("{so so}", "rank", identity, "ranks", json_loads(told, 0, NULL));
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
    store_close(store);
    free(text);
    json_decref(target);
    place->paths[place->count++] = path;
}

static int choose(const struct place *place, struct merge_result *ret)
{
    const struct merge_opts opts = {.dir = place->dir, .restart = -1};
    *ret = (struct merge_result){.restart = -1};
    CHECK_INT(scan_dir(place->dir, NULL, &ret->scan, &err), 0);
    return choose_shards(&opts, ret, &err);
}

TEST(several_ranks_of_a_launcher_are_told_by_their_environment)
{
    struct place place;
    struct scan scan;
    place_open(&place);
    // The launcher, its ranks in no order, with a loader of one of them, and a job that a rank
    // started itself.
    put(&place, "0-1.db", 1, 2,
            "[{\"pid\": 10, \"rank\": 1, \"ranks\": 2}, {\"pid\": 11, \"rank\": 5, \"ranks\": 8}, "
            "{\"pid\": 12, \"rank\": 4, \"ranks\": 8}, {\"pid\": 13, \"rank\": 5, \"ranks\": 8}, {\"pid\": 14, \"rank\": 2, \"ranks\": 3}]");
    CHECK_INT(scan_dir(place.dir, NULL, &scan, &err), 0);
    const struct scan_shard *shard = &scan.shards[0];
    CHECK(!shard->why);
    CHECK_INT(shard->outer_rank, 1);
    CHECK_INT(shard->outer_ranks, 2);
    CHECK_INT(shard->who.launcher.rank, 4);
    CHECK_INT(shard->who.launcher.ranks, 8);
    CHECK_INT(shard->held_count, 2);
    for (size_t i = 0; i < shard->held_count; i++) {
        CHECK_INT(shard->held[i].rank, 4 + (int)i);
        CHECK_INT(shard->held[i].begin_ns, 1000);
        CHECK_INT(shard->held[i].end_ns, 9000);
    }
    scan_free(&scan);
    place_close(&place);
}

// What a worker's identity knows better than its environment (of a program that says who it is only
// when it runs) makes no launcher of it.
TEST(one_rank_stays_one_whatever_its_processes_inherited)
{
    static const char *const told[] = {"[]",
            "[{\"pid\": 10, \"rank\": 3, \"ranks\": 8}, {\"pid\": 11, \"rank\": 3, \"ranks\": 8}]",
            "[{\"pid\": 11, \"rank\": 0, \"ranks\": 2}, {\"pid\": 12, \"rank\": 1, \"ranks\": 2}]",
            "[7, {}, {\"pid\": 11, \"rank\": -1, \"ranks\": 8}, {\"pid\": 11, \"rank\": 8, \"ranks\": 8}, "
            "{\"pid\": 11, \"rank\": 1, \"ranks\": 9000000000}, {\"pid\": 11, \"ranks\": 8}]"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        struct place place;
        struct scan scan;
        place_open(&place);
        put(&place, "0-2.db", 2, 4, told[i]);
        CHECK_INT(scan_dir(place.dir, NULL, &scan, &err), 0);
        CHECK_INT(scan.shards[0].outer_ranks, 0);
        CHECK_INT(scan.shards[0].who.launcher.rank, 2);
        CHECK_INT(scan.shards[0].held_count, 1);
        scan_free(&scan);
        place_close(&place);
    }
}

TEST(a_recorder_that_saw_none_of_the_ranks_takes_nobody_elses)
{
    struct place place;
    struct merge_result shards;
    place_open(&place);
    put(&place, "0-0.db", 0, 2,
            "[{\"pid\": 11, \"rank\": 0, \"ranks\": 4}, {\"pid\": 12, \"rank\": 1, \"ranks\": 4}]");
    put(&place, "0-1.db", 1, 2, "[{\"pid\": 10, \"rank\": 1, \"ranks\": 2}]");
    CHECK_INT(choose(&place, &shards), 0);
    CHECK_INT(shards.ranks, 4);
    CHECK_INT(shards.chosen_count, 1);
    CHECK_INT(shards.missing_count, 2);
    CHECK_INT(shards.missing[0].rank, 2);
    CHECK_INT(shards.missing[1].rank, 3);
    CHECK_INT(shards.note_count, 1);
    CHECK_CONTAINS(shards.notes[0], "has none of the ranks that its launcher started");
    merge_free(&shards);
    place_close(&place);
}

TEST(more_shards_than_are_read_are_refused)
{
    static char dir[] = "/tmp/upgate-scan-XXXXXX";
    struct scan scan = {0};
    CHECK(runner_directory(dir) != NULL);
    int made = 0;
    for (int i = 0; i <= SCAN_SHARDS_MAX; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/0-%d.db", dir, i);
        made += mknod(path, S_IFREG | 0600, 0) == 0;
    }
    CHECK_INT(made, SCAN_SHARDS_MAX + 1);
    CHECK_INT(scan_dir(dir, NULL, &scan, &err), -E2BIG);
    CHECK_CONTAINS(err.text, "more than 65536 shards");
    CHECK_INT(scan.count, 0);
}

TEST(a_rank_in_a_shard_of_several_and_in_one_of_its_own_is_there_twice)
{
    struct place place;
    struct merge_result shards;
    place_open(&place);
    put(&place, "0-0.db", 0, 1,
            "[{\"pid\": 11, \"rank\": 0, \"ranks\": 4}, {\"pid\": 12, \"rank\": 1, \"ranks\": 4}]");
    put(&place, "0-1.db", 1, 4, "[]");
    CHECK_INT(choose(&place, &shards), -EINVAL);
    CHECK_CONTAINS(err.text, "rank 1 of run 'upgate-scan-"); // by its directory's name
    CHECK_CONTAINS(err.text, "is there twice");
    CHECK_CONTAINS(err.text, "0-0.db");
    CHECK_CONTAINS(err.text, "0-1.db");
    merge_free(&shards);
    place_close(&place);
    place_open(&place); // beside others of their own it is one of them
    put(&place, "0-0.db", 0, 1,
            "[{\"pid\": 11, \"rank\": 0, \"ranks\": 4}, {\"pid\": 12, \"rank\": 1, \"ranks\": 4}]");
    put(&place, "0-2.db", 2, 4, "[]");
    put(&place, "0-3.db", 3, 4, "[]");
    CHECK_INT(choose(&place, &shards), 0);
    CHECK_INT(shards.chosen_count, 3);
    CHECK_INT(shards.missing_count, 0);
    CHECK_INT(shards.note_count, 0);
    merge_free(&shards);
    place_close(&place);
}

static void leave(struct place *place, const char *name)
{
    char *path = xasprintf("%s/%s", place->dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    place->paths[place->count++] = path;
}

// Whom no launcher tells which restart it is, its former shards do.
TEST(the_next_restart_is_the_first_that_a_rank_was_not_in)
{
    struct place place;
    place_open(&place);
    CHECK_INT(scan_next_restart("/nonexistent/run", 0), 0);
    CHECK_INT(scan_next_restart(place.dir, 0), 0);
    leave(&place, "0-1.db");
    leave(&place, "note.txt");
    CHECK_INT(scan_next_restart(place.dir, 1), 1);
    CHECK_INT(scan_next_restart(place.dir, 10), 0); // another rank, which starts a little later
    leave(&place, "1-0.why");                       // it was not recorded, but was there
    CHECK_INT(scan_next_restart(place.dir, 0), 2);
    CHECK_INT(scan_next_restart(place.dir, 1), 1);
    CHECK_INT(scan_next_restart(place.dir, 2), 1); // whatever was with it in the first one
    leave(&place, "0-0.2.db");
    CHECK_INT(scan_next_restart(place.dir, 1), 1);
    place_close(&place);
}
