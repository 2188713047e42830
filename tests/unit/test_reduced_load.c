// SPDX-License-Identifier: Apache-2.0
// A shard, reduced: what is in which window, what is in none; of several ranks the same as of each
// alone; and shards that cannot be reduced.
#include "reports/analyse/reduce/reduced_load.h"

#include <errno.h>
#include <stdio.h>

#include "contracts/spool.h"
#include "tests/unit/stall_story.h"

enum { STEPS = 20, STEP_MS = 100, WINDOW = 5, FROM_MS = 1000 };

static const struct reduced_source source = {.run = "job",
        .host = "vm",
        .boot = "boot",
        .restart = 2,
        .rank = 3,
        .ranks = 8,
        .pid = 1000,
        .wall_minus_monotonic_ns = 77,
        .clock_error_ns = 5,
        .ended = true};

static void put_kernels(struct story *story)
{
    story_sql(story,
            "INSERT INTO string (id, text) VALUES (900, '_Z4gemm'), (901, 'nccl'), (902, 'forward'), (903, 'inner')");
    story_sql(story,
            "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, static_shared_bytes, "
            "dynamic_shared_bytes, local_bytes) VALUES (1, 900, 'gemm', 1, 1, 1, 1, 1, 1, 1, 0, 0, 0), (2, 901, "
            "'ncclDevKernel_AllReduce', 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)");
}

// A queue of such a number, and from 4 * number - 3 on a product, a collective, a copy and a graph.
static void put_queue(struct story *story, int64_t process, int number)
{
    char sql[300];
    snprintf(sql, sizeof sql,
            "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (%d, %lld, 0, 1, 7)",
            number, (long long)process);
    story_sql(story, sql);
    int first = 4 * number - 3;
    snprintf(sql, sizeof sql,
            "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) VALUES (%d, 0, %d, 1), (%d, 0, %d, 2), (%d, 17, %d, NULL), "
            "(%d, 1, %d, NULL)",
            first, number, first + 1, number, first + 2, number, first + 3, number);
    story_sql(story, sql);
}

static void shard_open_story(struct story *story)
{
    story_open(story);
    story_rank(story, 1000, 3, 8);
    put_kernels(story);
    put_queue(story, story->process, 1);
}

static void put_op(struct story *story, int work, double at, double ms)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(story->store, &err,
                    "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                    "iii", story_ns(at), (int64_t)(ms * 1e6), (int64_t)work),
            0);
}

static void put_mark(struct story *story, int kind, int name, double at)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(story->store, &err,
                    "INSERT INTO python_mark (process_id, thread_id, at_ns, kind, name_id) VALUES (?, ?, ?, ?, ?)",
                    "iiiii", story->process, story->main, story_ns(at), (int64_t)kind,
                    (int64_t)name),
            0);
}

static void put_wait(struct story *story, double at, double ms, bool collective)
{
    story_gap(story,
            (struct story_gap){.out = at,
                    .waking = at + ms,
                    .in = at + ms,
                    .state = 1,
                    .kernel = STORY_FUTEX_WAIT,
                    .user = collective
                            ? "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait"
                            : "main"});
}

static void put_step(struct story *story, int idx)
{
    struct error err = {0};
    double at = FROM_MS + idx * STEP_MS;
    story_step(story, idx, at, STEP_MS - 1);
    put_wait(story, at + 50, 10, true);
    put_wait(story, at + 70, 5, false);
    put_op(story, 1, at + 10, 7);
    put_op(story, 2, at + 20, 3);
    put_op(story, 3, at + 30, 1);
    put_op(story, 4, at + 99.5, 2); // begins behind the end of the step: it was the last one
    put_mark(story, UG_MARK_PHASE_BEGIN, 902, at + 5);
    put_mark(story, UG_MARK_PHASE_BEGIN, 903, at + 10);
    put_mark(story, UG_MARK_PHASE_END, 903, at + 12);
    put_mark(story, UG_MARK_PHASE_END, 902, at + 45);
    CHECK_INT(
            store_exec(story->store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, function, "
                    "count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, -77, 3, 8, ?, 'AllReduce', 1, 4, 1, 5)",
                    "iiiii", story->process, story_ns(at + 15), story_ns(at + 20),
                    story_ns(at + 23), (int64_t)idx),
            0);
}

static void check_spread(const struct gist *gist, enum gist_spread what, uint64_t count, double ms)
{
    CHECK_INT(spread_count(&gist->spreads[what]), count);
    CHECK_DBL((double)gist->spreads[what].sum_ns, ms * 1e6, 100);
}

static void gist_of(const struct reduced *reduced, size_t index, struct gist *ret)
{
    const struct reduced_gist *one = &reduced->gists[index];
    CHECK(gist_decode((const uint8_t *)reduced->gist_bytes.text + one->at, one->size, ret));
}

TEST(what_happens_in_a_step_is_in_its_window)
{
    static struct story story;
    static struct gist gist;
    struct reduced reduced;
    struct error err = {0};
    shard_open_story(&story);
    for (int idx = STEPS - 1; idx >= 0; idx--) // rows in no order
        put_step(&story, idx);
    put_wait(&story, FROM_MS - 400, 300, false); // before the first step
    put_op(&story, 1, FROM_MS - 50, 7);
    put_op(&story, 1, FROM_MS + STEPS * STEP_MS, 7);        // behind the last one
    put_mark(&story, UG_MARK_PHASE_END, 902, FROM_MS - 10); // begun before the recording
    CHECK_INT(store_ledger(story.store, NULL, "bpf", "records", -1, -1, 4, 0, NULL, &err), 0);
    CHECK_INT(reduced_load(story.store, &source, WINDOW, &reduced, &err), 0);
    CHECK_INT(reduced.gist_count, STEPS / WINDOW);
    for (size_t i = 0; i < reduced.gist_count; i++) {
        bool end = i + 1 == reduced.gist_count;
        CHECK_INT(reduced.gists[i].window, i);
        CHECK_INT(reduced.gists[i].rank, 3);
        gist_of(&reduced, i, &gist);
        check_spread(&gist, GIST_STEP, WINDOW, WINDOW * (STEP_MS - 1));
        check_spread(&gist, GIST_WAIT_RANKS, WINDOW, WINDOW * 10);
        check_spread(&gist, GIST_WAIT_OTHER, WINDOW, WINDOW * 5);
        check_spread(&gist, GIST_KERNEL_MATRIX, WINDOW, WINDOW * 7);
        check_spread(&gist, GIST_KERNEL_COLLECTIVE, WINDOW, WINDOW * 3);
        check_spread(&gist, GIST_COPY, WINDOW, WINDOW * 1);
        check_spread(&gist, GIST_KERNEL_OTHER, (uint64_t)(WINDOW - end), (WINDOW - end) * 2);
        CHECK_INT(gist.phase_count, 2);
        CHECK_STR(gist.phases[0].name, "forward");
        CHECK_STR(gist.phases[1].name, "inner");
        CHECK_INT(gist.phases[0].count, WINDOW);
        CHECK_DBL((double)gist.phases[0].ns, WINDOW * 40e6, 100);
        CHECK_DBL((double)gist.phases[1].ns, WINDOW * 2e6, 100);
    }
    CHECK_INT(reduced.meeting_count, STEPS);
    CHECK(reduced.meetings[7].communicator == (uint64_t)-77);
    CHECK_INT(reduced.meetings[7].count, 1);
    CHECK_INT(reduced.meetings[7].last, 3);
    CHECK_INT(reduced.meetings[7].last_ns, story_ns(FROM_MS + 7 * STEP_MS + 20));
    CHECK_INT(reduced.members[0].flags, REDUCED_ENDED | REDUCED_NCCL | REDUCED_KERNELS);
    CHECK_INT(reduced.members[0].dropped, 4);
    CHECK_STR(reduced.nodes[0].boot, "boot");
    CHECK_INT(reduced.nodes[0].error_ns, 5);
    struct strbuf file = {0}; // and it is a file
    struct reduced back;
    CHECK_INT(reduced_encode(&reduced, &file, &err), 0);
    CHECK_INT(reduced_decode(file.text, file.len, "x", &back, &err), 0);
    strbuf_free(&file);
    reduced_free(&back);
    reduced_free(&reduced);
    story_close(&story);
}

TEST(steps_that_go_back_add_to_their_window)
{
    static struct story story;
    static struct gist gist;
    struct reduced reduced;
    struct error err = {0};
    story_open(&story);
    story_step(&story, 1, 1000, 100);
    story_step(&story, 7, 2000, 100);
    story_step(&story, 0, 3000, 50);
    CHECK_INT(reduced_load(story.store, &source, WINDOW, &reduced, &err), 0);
    CHECK_INT(reduced.gist_count, 2);
    CHECK_INT(reduced.gists[1].window, 1);
    gist_of(&reduced, 0, &gist);
    check_spread(&gist, GIST_STEP, 2, 150);
    gist_of(&reduced, 1, &gist);
    check_spread(&gist, GIST_STEP, 1, 100);
    reduced_free(&reduced);
    story_close(&story);
}

// Gists of 64 windows are open at a time.
TEST(of_many_windows_nothing_is_lost_or_mixed_up)
{
    enum { MANY = 150 };
    static struct story story;
    static struct gist gist;
    struct reduced reduced;
    struct error err = {0};
    shard_open_story(&story);
    for (int idx = 0; idx < MANY; idx++) {
        story_step(&story, idx, FROM_MS + idx * 10, 9);
        put_op(&story, 1, FROM_MS + idx * 10 + 1, 2);
    }
    for (int idx = 0; idx < MANY; idx++) // behind the others, as what came late to its ring
        put_op(&story, 3, FROM_MS + idx * 10 + 5, 1 + idx * 0.01);
    CHECK_INT(store_commit(story.store, &err), 0);
    CHECK_INT(reduced_load(story.store, &source, 1, &reduced, &err), 0);
    CHECK_INT(reduced.gist_count, MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(reduced.gists[i].window, i);
        gist_of(&reduced, (size_t)i, &gist);
        check_spread(&gist, GIST_STEP, 1, 9);
        check_spread(&gist, GIST_KERNEL_MATRIX, 1, 2);
        check_spread(&gist, GIST_COPY, 1, 1 + i * 0.01);
    }
    CHECK(sqlite3_get_autocommit(store_db(story.store))); // its transaction has ended
    reduced_free(&reduced);
    story_close(&story);
}

TEST(a_shard_without_steps_has_no_window)
{
    static struct story story;
    struct reduced reduced;
    struct error err = {0};
    story_open(&story);
    put_wait(&story, 1000, 300, false);
    CHECK_INT(reduced_load(story.store, &source, WINDOW, &reduced, &err), 0);
    CHECK_INT(reduced.gist_count, 0);
    CHECK_INT(reduced.member_count, 1);
    CHECK_INT(reduced.members[0].flags, REDUCED_ENDED);
    reduced_free(&reduced);
    story_close(&story);
}

TEST(a_shard_of_several_ranks_is_refused)
{
    static struct story story;
    struct reduced reduced = {0};
    struct error err = {0};
    story_open(&story);
    story_step(&story, 1, 1000, 100);
    story_sql(&story,
            "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, 1, 1, 1000, 100)");
    CHECK_INT(reduced_load(story.store, &source, WINDOW, &reduced, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "several ranks in one");
    CHECK(!reduced.run);
    story_close(&story);
}

// --- several ranks in one ------------------------------------------------------------------------

struct member {
    int64_t process, child; // child: that it started, and that says nothing of itself
    int rank, number;       // number: of its queue, and, one more, of the child's
};

static void put_member(
        struct story *story, int pid, int64_t process, int rank, int number, struct member *ret)
{
    *ret = (struct member){process,
            story_process(story, "target", pid + 1, pid, "loader", "loader"), rank, number};
    story_rank(story, pid, rank, 8);
    if (rank == 5) { // rank 3 has none
        char sql[300];
        snprintf(sql, sizeof sql,
                "INSERT INTO gpu_device (process_id, device, name, uuid) VALUES (%lld, 0, 'NVIDIA H100 80GB HBM3', "
                "'GPU-1a2b3c4d-0011-2233-4455-66778899aabb')",
                (long long)process);
        story_sql(story, sql);
    }
    put_queue(story, ret->process, number);
    put_queue(story, ret->child, number + 1);
}

static void put_nccl(
        struct story *story, int64_t process, int communicator, int rank, int idx, double at)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(story->store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, function, "
                    "count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, ?, ?, 8, ?, 'AllReduce', 1, 4, 1, 5)",
                    "iiiiiii", process, story_ns(at), story_ns(at + 5), story_ns(at + 8),
                    (int64_t)communicator, (int64_t)rank, (int64_t)idx),
            0);
}

static void put_phase(struct story *story, int64_t process, double at, double ms)
{
    struct error err = {0};
    for (int end = 0; end < 2; end++)
        CHECK_INT(
                store_exec(story->store, &err,
                        "INSERT INTO python_mark (process_id, thread_id, at_ns, kind, name_id) VALUES (?, ?, ?, ?, 902)",
                        "iiii", process, story_leader(story, process), story_ns(at + end * ms),
                        (int64_t)(end ? UG_MARK_PHASE_END : UG_MARK_PHASE_BEGIN)),
                0);
}

// Everything a window holds, of lengths and at times of its own; some of it by the child.
static void put_member_steps(struct story *story, const struct member *one)
{
    struct error err = {0};
    int first = 4 * one->number - 3;
    for (int idx = 0; idx < STEPS; idx++) {
        double at = FROM_MS + idx * STEP_MS + 2 * one->rank;
        CHECK_INT(
                store_exec(story->store, &err,
                        "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, ?, ?, ?, ?)",
                        "iiii", (int64_t)one->rank, (int64_t)idx, story_ns(at),
                        (int64_t)((80 + one->rank) * 1e6)),
                0);
        story_gap(story,
                (struct story_gap){.thread = story_leader(story, one->process),
                        .out = at + 50,
                        .waking = at + 60 + one->rank,
                        .in = at + 60 + one->rank,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait"});
        story_gap(story,
                (struct story_gap){.thread = story_leader(story, one->process),
                        .out = at + 72,
                        .waking = at + 75,
                        .in = at + 75,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "main"});
        put_op(story, first, at + 10, 7 + one->rank);
        put_op(story, first + 1, at + 20, 3);
        put_op(story, first + 4 + 2, at + 30, 1 + one->rank);
        put_phase(story, one->process, at + 5, 40 + one->rank);
        put_phase(story, one->child, at + 6, 2);
        put_nccl(story, one->process, 77, one->rank, idx, at + 15 + one->rank);
    }
}

// Their launcher, which is the second of two, and does things of its own; ranks 3 and 5.
static void several_open(struct story *story)
{
    struct member first, second;
    story_open(story);
    put_kernels(story);
    int64_t launcher = story_process(story, "target", 900, 1, "torchrun", "torchrun");
    story_rank(story, 900, 1, 2);
    put_member(story, 1000, story->process, 3, 1, &first);
    put_member(story, 2000,
            story_process(story, "target", 2000, 900, "python3", "python3 train.py"), 5, 3,
            &second);
    put_queue(story, launcher, 5);
    put_member_steps(story, &second);
    put_member_steps(story, &first);
    for (int idx = 0; idx < STEPS; idx++) {
        double at = FROM_MS + idx * STEP_MS;
        story_gap(story,
                (struct story_gap){.thread = story_leader(story, launcher),
                        .out = at + 1,
                        .waking = at + 91,
                        .in = at + 91,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "main"});
        put_op(story, 17, at + 10, 33);
        put_phase(story, launcher, at + 2, 70);
        put_nccl(story, launcher, 78, 1, idx, at + 3);
    }
}

static void single_open(struct story *story, int rank, int number)
{
    struct member own;
    story_open(story);
    put_kernels(story);
    put_member(story, 1000, story->process, rank, number, &own);
    put_member_steps(story, &own);
}

static const int32_t both[] = {3, 5};

static struct reduced_source source_of(int rank, bool several)
{
    struct reduced_source one = source;
    one.rank = rank;
    one.pid = several ? 900 : 1000;
    one.several = several ? both : NULL;
    one.several_count = several ? 2 : 0;
    return one;
}

TEST(several_ranks_in_one_are_the_bytes_of_each_alone)
{
    static struct story story;
    struct reduced all, single, sum = {0};
    struct error err = {0};
    struct strbuf of_all = {0}, of_sum = {0};
    several_open(&story);
    const struct reduced_source several = source_of(3, true);
    CHECK_INT(reduced_load(story.store, &several, WINDOW, &all, &err), 0);
    story_close(&story);
    for (int i = 0; i < 2; i++) {
        const struct reduced_source alone = source_of(both[i], false);
        single_open(&story, both[i], 1 + 2 * i);
        CHECK_INT(reduced_load(story.store, &alone, WINDOW, &single, &err), 0);
        CHECK_INT(reduced_add(&sum, &single, &err), 0);
        reduced_free(&single);
        story_close(&story);
    }
    CHECK_INT(all.member_count, 2);
    CHECK_INT(all.gist_count, 2 * STEPS / WINDOW);
    CHECK_INT(all.meeting_count, STEPS); // nothing of the launcher's
    CHECK_INT(all.meetings[0].count, 2);
    CHECK_INT(all.meetings[0].last, 5);
    CHECK_INT(all.members[0].flags, REDUCED_ENDED | REDUCED_NCCL | REDUCED_KERNELS);
    CHECK_INT(all.members[1].flags, REDUCED_ENDED | REDUCED_NCCL | REDUCED_KERNELS | REDUCED_GPU);
    CHECK_INT(all.members[1].gpu[0], 0x1a);
    CHECK_INT(all.members[1].gpu[15], 0xbb);
    CHECK_STR(all.members[1].model, "H100 80GB HBM3");
    CHECK_INT(reduced_encode(&all, &of_all, &err), 0);
    CHECK_INT(reduced_encode(&sum, &of_sum, &err), 0);
    CHECK_INT(of_all.len, of_sum.len);
    CHECK(of_all.len == of_sum.len && memcmp(of_all.text, of_sum.text, of_sum.len) == 0);
    strbuf_free(&of_all);
    strbuf_free(&of_sum);
    reduced_free(&all);
    reduced_free(&sum);
}

// Where there are many, ranks share the places of their gists: here these two, as 63 are between
// them, of whom nothing is there.
TEST(many_ranks_in_one_are_the_bytes_of_each_alone)
{
    enum { MANY = 100, OTHER = 67 };
    static struct story story;
    int32_t ranks[MANY];
    struct reduced two, many;
    struct error err = {0};
    for (int i = 0; i < MANY; i++)
        ranks[i] = 3 + i;
    several_open(&story);
    story_sql(&story,
            "UPDATE recording SET target = replace(replace(target, '\"ranks\":8', '\"ranks\":200'), '\"rank\":5', '\"rank\":67')");
    story_sql(&story, "UPDATE recorded_step SET rank = 67 WHERE rank = 5");
    story_sql(&story, "UPDATE nccl_op SET ranks = 200, rank = iif(rank = 5, 67, rank)");
    struct reduced_source several = source_of(3, true);
    several.ranks = 200;
    several.several = (const int32_t[]){3, OTHER};
    CHECK_INT(reduced_load(story.store, &several, WINDOW, &two, &err), 0);
    several.several = ranks;
    several.several_count = MANY;
    CHECK_INT(reduced_load(story.store, &several, WINDOW, &many, &err), 0);
    story_close(&story);
    CHECK_INT(many.member_count, MANY);
    CHECK_INT(two.gist_count, 2 * STEPS / WINDOW);
    CHECK_INT(many.gist_count, two.gist_count);
    for (size_t i = 0; i < two.gist_count && i < many.gist_count; i++) {
        const struct reduced_gist *a = &two.gists[i], *b = &many.gists[i];
        CHECK(a->rank == b->rank && a->window == b->window && a->size == b->size &&
                memcmp(two.gist_bytes.text + a->at, many.gist_bytes.text + b->at, a->size) == 0);
    }
    reduced_free(&two);
    reduced_free(&many);
}

TEST(what_the_recorder_of_several_ranks_lost_counts_once)
{
    static struct story story;
    struct reduced all;
    struct error err = {0};
    several_open(&story);
    CHECK_INT(store_ledger(story.store, NULL, "bpf", "records", -1, -1, 4, 0, NULL, &err), 0);
    const struct reduced_source several = source_of(3, true);
    CHECK_INT(reduced_load(story.store, &several, WINDOW, &all, &err), 0);
    CHECK_INT(all.members[0].dropped, 4);
    CHECK_INT(all.members[1].dropped, 0);
    reduced_free(&all);
    story_close(&story);
}

TEST(a_rank_that_its_launcher_started_twice_is_refused)
{
    static struct story story;
    struct reduced all = {0};
    struct error err = {0};
    several_open(&story);
    story_process(&story, "target", 3000, 900, "python3", "python3 train.py");
    story_rank(&story, 3000, 5, 8);
    const struct reduced_source several = source_of(3, true);
    CHECK_INT(reduced_load(story.store, &several, WINDOW, &all, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "has rank 5 twice");
    CHECK(!all.run);
    struct reduced_source none = several;
    none.several_count = 0;
    CHECK_INT(reduced_load(story.store, &none, WINDOW, &all, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "has 0 ranks in one");
    story_close(&story);
}
