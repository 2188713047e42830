// SPDX-License-Identifier: Apache-2.0
// Shards that several processes see: each recording once, in whatever directory it is seen; a rank
// recorded twice stays twice; who reduces what; and what another process may send instead.
#include "harness/rank/seen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "harness/rank/choose.h"
#include "tests/unit/runner.h"

enum { RANKS = 8 };

static struct error err;

static struct scan_shard *put(
        struct scan *scan, const char *path, int rank, const char *boot, int64_t pid)
{
    struct scan_shard *shard = vector_add(scan->shards, scan->count);
    *shard = (struct scan_shard){.path = xstrdup(path),
            .run = xstrdup("job"),
            .rank = rank,
            .pid = pid,
            .started_wall_ns = 1790000000000000000,
            .bytes = 1000,
            .ended = true};
    shard->who.launcher = (struct launcher_rank){
            .rank = rank, .ranks = RANKS, .local_rank = -1, .local_ranks = -1, .node = -1};
    snprintf(shard->who.run, sizeof shard->who.run, "job");
    snprintf(shard->who.host, sizeof shard->who.host, "host-%s", boot);
    snprintf(shard->who.boot, sizeof shard->who.boot, "%s", boot);
    shard->who.clock =
            (struct identity_clock){.wall_minus_monotonic_ns = 1780000000000000000, .error_ns = -1};
    vector_push(shard->held, shard->held_count, (struct scan_rank){.rank = rank});
    return shard;
}

// Ranks of a node, from the first one on.
static void put_node(struct scan *scan, const char *folder, int first, int count, const char *boot)
{
    for (int rank = first; rank < first + count; rank++) {
        char path[80];
        snprintf(path, sizeof path, "%s/job/0-%d.db", folder, rank);
        put(scan, path, rank, boot, 1000 + rank);
    }
}

// What `from` sees is sent to `to`.
static int send(const struct seen *from, struct seen *to)
{
    struct strbuf bytes = {0};
    CHECK_INT(seen_encode(from, &bytes, &err), 0);
    int rc = seen_add(to, bytes.text, bytes.len, &err);
    strbuf_free(&bytes);
    return rc;
}

// Processes that see one scan each, put together as in process 0.
static void look(struct scan *scans, int count, struct seen *ret)
{
    for (int i = 0; i < count; i++) {
        struct seen own = {0};
        seen_put(i ? &own : ret, &scans[i], i);
        if (i)
            CHECK_INT(send(&own, ret), 0);
        seen_free(&own);
    }
}

static int choose(const struct seen *seen, struct merge_result *ret)
{
    const struct merge_opts opts = {.dir = "shards", .restart = -1};
    *ret = (struct merge_result){.restart = -1};
    int rc = seen_scan(seen, &ret->scan, &err);
    return rc ? rc : choose_shards(&opts, ret, &err);
}

// The shares of all, each by its own process. Returns how many shards they have together.
static size_t share(const struct seen *seen, const struct merge_result *shards, struct scan *scans,
        int count, size_t *ret_most)
{
    struct strbuf bytes = {0};
    size_t all = 0;
    *ret_most = 0;
    CHECK_INT(seen_share(seen, shards, count, 5, &bytes, &err), 0);
    for (int i = 0; i < count; i++) {
        struct merge_result mine = {.scan = scans[i]};
        uint64_t window = 0;
        scans[i] = (struct scan){0};
        CHECK_INT(seen_take_share(bytes.text, bytes.len, i, &mine, &window, &err), 0);
        CHECK_INT(window, 5);
        CHECK_INT(mine.ranks, RANKS);
        all += mine.chosen_count;
        *ret_most = mine.chosen_count > *ret_most ? mine.chosen_count : *ret_most;
        merge_free(&mine);
    }
    strbuf_free(&bytes);
    return all;
}

TEST(each_node_has_its_own)
{
    struct scan scans[2] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    size_t most;
    put_node(&scans[0], "/local/run", 0, 4, "near");
    put_node(&scans[1], "/local/run", 4, 4, "far");
    look(scans, 2, &seen);
    CHECK_INT(choose(&seen, &shards), 0);
    CHECK_INT(shards.chosen_count, RANKS);
    CHECK_INT(shards.missing_count, 0);
    CHECK_STR(shards.chosen[5]->who.host, "host-far");
    CHECK_INT(share(&seen, &shards, scans, 2, &most), RANKS);
    CHECK_INT(most, 4);
    merge_free(&shards);
    seen_free(&seen);
}

TEST(a_directory_that_all_see_counts_once)
{
    struct scan scans[3] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    size_t most;
    for (int i = 0; i < 3; i++)
        // by another name, too
        put_node(&scans[i], i ? "/mnt/run" : "/shared/run", 0, RANKS, "near");
    scans[2].shards[1].alive = true; // its node is that of process 2
    look(scans, 3, &seen);
    CHECK_INT(choose(&seen, &shards), 0);
    CHECK_INT(shards.chosen_count, RANKS);
    CHECK_INT(shards.note_count, 1);
    CHECK_CONTAINS(shards.notes[0], "rank 1 is still being recorded");
    CHECK_INT(share(&seen, &shards, scans, 3, &most), RANKS);
    CHECK_INT(most, 3); // 8 shards among 3
    merge_free(&shards);
    seen_free(&seen);
}

TEST(of_copies_the_largest_counts)
{
    struct scan scans[3] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    struct strbuf bytes = {0};
    for (int i = 0; i < 3; i++)
        put_node(&scans[i], "/local/run", 0, 2, "near");
    // of rank 0, made while it was recorded
    scans[0].shards[0].bytes = scans[2].shards[0].bytes = 400;
    scans[2].shards[0].alive = true;
    look(scans, 3, &seen);
    CHECK_INT(choose(&seen, &shards), 0);
    CHECK_INT(shards.chosen_count, 2);
    CHECK_INT(shards.chosen[0]->bytes, 1000);
    CHECK(shards.chosen[0]->alive);
    CHECK_INT(seen_share(&seen, &shards, 3, 5, &bytes, &err), 0);
    // not 0, who is the first that has nothing to do
    CHECK_CONTAINS(bytes.text, "\"job/0-0.db: job 0-0 near 1000 1790000000000000000\":1");
    // all have it
    CHECK_CONTAINS(bytes.text, "\"job/0-1.db: job 0-1 near 1001 1790000000000000000\":0");
    strbuf_free(&bytes);
    merge_free(&shards);
    seen_free(&seen);
    for (int i = 0; i < 3; i++)
        scan_free(&scans[i]);
}

// One recorder around the launcher of each node: its shard is given to one process, whole, and
// others know what is in it.
TEST(a_shard_of_several_ranks_goes_as_a_whole)
{
    struct scan scans[2] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    size_t most;
    for (int i = 0; i < 2; i++) {
        struct scan_shard *shard = put(&scans[i],
                i ? "/local/run/job/0-1.db" : "/local/run/job/0-0.db", i, i ? "far" : "near", 10);
        shard->outer_rank = i;
        shard->outer_ranks = 2;
        shard->who.launcher.rank = shard->held[0].rank = 4 * i;
        for (int k = 1; k < 4; k++)
            vector_push(shard->held, shard->held_count, (struct scan_rank){.rank = 4 * i + k});
    }
    look(scans, 2, &seen);
    CHECK_INT(choose(&seen, &shards), 0);
    CHECK_INT(shards.chosen_count, 2);
    CHECK_INT(shards.missing_count, 0);
    CHECK_INT(shards.note_count, 0);
    CHECK_INT(shards.chosen[1]->outer_rank, 1);
    CHECK_INT(shards.chosen[1]->outer_ranks, 2);
    CHECK_INT(shards.chosen[1]->held_count, 4);
    CHECK_INT(shards.chosen[1]->held[3].rank, 7);
    CHECK_INT(share(&seen, &shards, scans, 2, &most), 2);
    CHECK_INT(most, 1);
    merge_free(&shards);
    seen_free(&seen);
}

TEST(a_rank_that_was_recorded_twice_stays_twice)
{
    struct scan scans[2] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    put_node(&scans[0], "/local/run", 0, 4, "near");
    put_node(&scans[1], "/local/run", 4, 4, "far");
    put(&scans[1], "/local/run/job/0-1.db", 1, "far", 77); // of an earlier start of the job
    look(scans, 2, &seen);
    CHECK_INT(choose(&seen, &shards), -EINVAL);
    CHECK_CONTAINS(err.text, "rank 1 of run 'job' is there twice");
    CHECK_CONTAINS(err.text, "host-far");
    merge_free(&shards);
    seen_free(&seen);

    // Two files of one directory, however alike.
    seen = (struct seen){0};
    put(&scans[0], "/local/run/job/0-1.2.db", 1, "near", 1001);
    look(scans, 1, &seen);
    CHECK_INT(choose(&seen, &shards), -EINVAL);
    CHECK_CONTAINS(err.text, "0-1.2.db");
    merge_free(&shards);
    seen_free(&seen);
    scan_free(&scans[0]);
    scan_free(&scans[1]);
}

// A worker of the first node failed: its torchrun counts a restart, that of the second one does
// not.
TEST(a_rank_of_another_restart_has_that_for_its_reason)
{
    const struct merge_opts opts = {.dir = "shards", .restart = -1};
    struct merge_result shards = {.restart = -1};
    put_node(&shards.scan, "/shared/run", 0, 4, "near");
    for (int i = 0; i < 4; i++)
        shards.scan.shards[i].restart = shards.scan.shards[i].who.launcher.restart = 1;
    put_node(&shards.scan, "/shared/run", 4, 3, "far");
    CHECK_INT(choose_shards(&opts, &shards, &err), 0);
    CHECK_INT(shards.restart, 1);
    CHECK_INT(shards.chosen_count, 4);
    CHECK_INT(shards.missing_count, 4);
    CHECK_INT(shards.missing[0].rank, 4);
    CHECK_CONTAINS(shards.missing[0].why, "no shard of restart 1, but of another one");
    CHECK_INT(shards.missing[3].rank, 7);
    CHECK_STR(shards.missing[3].why, "it has no shard");
    merge_free(&shards);
}

TEST(what_cannot_be_read_is_missing_for_its_reason)
{
    struct scan scans[2] = {{0}};
    struct seen seen = {0};
    struct merge_result shards;
    put_node(&scans[0], "/local/run", 0, 3, "near");
    struct scan_shard *bad = put(&scans[0], "/local/run/job/0-3.db", 3, "near", 0);
    bad->why = xstrdup("'/local/\xffrun/job/0-3.db' is empty");
    struct scan_shard *part = put(&scans[1], "/local/run/job/0-4.part.db", 4, "far", 0);
    part->part = true;
    vector_push(part->held, part->held_count, (struct scan_rank){.rank = 5});
    part->missing = json_pack("[{sisss[]}, {siss}]", "rank", 6, "why", "its recorder died", "more",
            "rank", 1, "why", "somebody has it");
    look(scans, 2, &seen);
    CHECK_INT(choose(&seen, &shards), 0);
    CHECK_INT(shards.chosen_count, 4);
    CHECK_INT(shards.missing_count, 3);
    CHECK_INT(shards.missing[0].rank, 3);
    CHECK_STR(shards.missing[0].why, "'/local/?run/job/0-3.db' is empty");
    CHECK_STR(shards.missing[1].why, "its recorder died");
    CHECK_INT(shards.missing[2].rank, 7);
    CHECK_STR(shards.missing[2].why, "it has no shard");
    merge_free(&shards);
    seen_free(&seen);
    scan_free(&scans[0]);
    scan_free(&scans[1]);
}

TEST(who_sees_nothing_says_why)
{
    struct seen seen = {0}, other = {0}, third = {0};
    struct scan scan = {0};
    seen_put_none(&other, "no shards in '/local/run'");
    seen_put_none(&third, "another reason");
    CHECK_INT(send(&other, &seen), 0);
    CHECK_INT(send(&third, &seen), 0);
    CHECK_INT(seen.blind, 2);
    CHECK_STR(seen.why, "no shards in '/local/run'");
    CHECK_INT(seen_scan(&seen, &scan, &err), 0);
    CHECK_INT(scan.count, 0);
    seen_free(&seen);
    seen_free(&other);
    seen_free(&third);
}

// Whoever sees nothing says its version, too.
TEST(processes_of_two_versions_do_nothing)
{
    struct seen one = {.version = "upgate 1 (a)"}, other = {.version = "upgate 1 (b)"},
                same = {.version = "upgate 1 (a)"};
    seen_put_none(&one, "no shards in '/local/run'");
    CHECK_INT(send(&one, &other), -EINVAL);
    CHECK_CONTAINS(err.text, "this is upgate 1 (b), and another process is upgate 1 (a)");
    CHECK_INT(other.blind, 0);
    CHECK_INT(send(&one, &same), 0);
    CHECK_INT(same.blind, 1);
    seen_free(&one);
    seen_free(&other);
    seen_free(&same);
}

// Each text that another process could have sent: refused, and nothing else.
static void check_refused(const char *text)
{
    struct seen seen = {0};
    struct scan scan = {0};
    err = (struct error){0};
    int rc = seen_add(&seen, text, strlen(text), &err);
    if (rc == 0)
        rc = seen_scan(&seen, &scan, &err);
    CHECK_INT(rc, -EBADMSG);
    CHECK_CONTAINS(err.text, "what another process sent is damaged");
    CHECK_INT(scan.count, 0);
    seen_free(&seen);
}

TEST(what_others_send_is_read_like_a_file)
{
    struct scan scan = {0};
    struct seen seen = {0}, cut = {0};
    struct strbuf bytes = {0};
    put_node(&scan, "/local/run", 0, 2, "near");
    seen_put(&seen, &scan, 0);
    CHECK_INT(seen_encode(&seen, &bytes, &err), 0);
    for (size_t len = 0; len < bytes.len; len++)
        CHECK_INT(seen_add(&cut, bytes.text, len, &err), -EBADMSG);
    CHECK(!cut.shards);
    static const char *const changes[][2] = {{"\"rank\":1", "\"rank\":-1"},
            {"\"rank\":1,\"ranks\":8", "\"rank\":8,\"ranks\":8"}, {"\"ranks\":8", "\"ranks\":0"},
            {"\"held\":[1]", "\"held\":[2]"}, {"\"held\":[1]", "\"held\":[]"},
            {"\"held\":[1]", "\"held\":[1,2]"}, {"\"bytes\":1000", "\"bytes\":-1"},
            {"\"bytes\":1000", "\"bytes\":9000000000000000000"},
            {"\"outer_ranks\":0", "\"outer_ranks\":-1"},
            {"\"outer_rank\":0", "\"outer_rank\":\"0\""}, {"\"path\"", "\"pith\""},
            {"\"processes\":[0]", "\"processes\":[]"}, {"\"run\":\"job\"", "\"run\":\"../x\""},
            {"\"who\":{", "\"whom\":{"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *at = strstr(bytes.text, changes[i][0]);
        CHECK(at);
        if (!at)
            continue;
        char *text = xasprintf("%.*s%s%s", (int)(at - bytes.text), bytes.text, changes[i][1],
                at + strlen(changes[i][0]));
        check_refused(text);
        free(text);
    }
    check_refused("[]");
    check_refused("{\"shards\": {}, \"version\": \"\"}");
    check_refused("{\"shards\": {}, \"blind\": 0}");
    check_refused("{\"shards\": {\"a\": 1}, \"blind\": 0, \"version\": \"\"}");
    check_refused("{\"shards\": {\"a\": {\"processes\": [0]}}, \"blind\": 0, \"version\": \"\"}");
    strbuf_free(&bytes);
    seen_free(&seen);
    scan_free(&scan);
}

TEST(a_share_is_of_what_is_here)
{
    static const char *const bad[] = {"", "{}",
            "{\"ranks\":8,\"window_steps\":5,\"owners\":{\"job/0-9.db\":0}}",
            "{\"ranks\":8,\"window_steps\":5,\"owners\":[]}",
            "{\"ranks\":0,\"window_steps\":5,\"owners\":{}}",
            "{\"ranks\":8,\"window_steps\":0,\"owners\":{}}",
            "{\"ranks\":9000000000,\"window_steps\":5,\"owners\":{}}"};
    uint64_t window = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct merge_result mine = {.restart = -1};
        put_node(&mine.scan, "/local/run", 0, 2, "near");
        CHECK_INT(seen_take_share(bad[i], strlen(bad[i]), 0, &mine, &window, &err), -EBADMSG);
        CHECK(!mine.lacks);
        merge_free(&mine);
    }
    // another process's
    static const char none[] = "{\"ranks\":8,\"window_steps\":5,\"owners\":{\"job/0-9.db\":1}}";
    struct merge_result mine = {.restart = -1};
    CHECK_INT(seen_take_share(none, strlen(none), 0, &mine, &window, &err), 0);
    CHECK_INT(mine.chosen_count, 0);

    // Reasons go the same way.
    struct merge_result other = {.ranks = RANKS, .lacks = xcalloc(RANKS, sizeof *other.lacks)};
    struct strbuf bytes = {0};
    choose_add_missing(&mine, 3, "'\xff' cannot be read");
    CHECK_INT(seen_missing_encode(&mine, &bytes, &err), 0);
    CHECK_INT(seen_missing_add(&other, bytes.text, bytes.len, &err), 0);
    CHECK_INT(seen_missing_add(&other, bytes.text, bytes.len, &err), 0); // known
    CHECK_INT(other.missing_count, 1);
    CHECK_INT(other.missing[0].rank, 3);
    CHECK_STR(other.missing[0].why, "'?' cannot be read");
    static const char *const wrong[] = {"{}", "[1]", "[{\"rank\":8,\"why\":\"\"}]",
            "[{\"rank\":-1,\"why\":\"\"}]", "[{\"rank\":1}]", "[{\"rank\":1,\"why\":\"\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_INT(seen_missing_add(&other, wrong[i], strlen(wrong[i]), &err), -EBADMSG);
    CHECK_INT(other.missing_count, 1);
    strbuf_free(&bytes);
    merge_free(&other);
    merge_free(&mine);
}
