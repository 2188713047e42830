// SPDX-License-Identifier: Apache-2.0
// Ranks by time: who is late when, where somebody is; no map of a clean job, of one rank, or of one
// in which nobody waits; ranks of many nodes in groups; stores that make no sense.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/ranks/ranks.h"
#include "tests/unit/stall_job.h"

// The ranks work for 10 ms, one of them `more` longer in a function of its own, and wait for the
// last one. noise: each as much longer as comes.
static void heat_step(struct job *job, double at, int late, double more, double noise)
{
    double work[RANKS_MOST] = {0}, last = 0;
    for (int i = 0; i < job->count; i++) {
        work[i] = 10 + noise * job_random(job) + (i == late ? more : 0);
        last = work[i] > last ? work[i] : last;
    }
    for (int i = 0; i < job->count; i++) {
        double own = i == late ? more : 0;
        story_samples(&job->story,
                (struct story_samples){.thread = job->main[i],
                        .from = at,
                        .to = at + own,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .python = "save@/x/ddp.py:8;main@/x/ddp.py:22"});
        story_samples(&job->story,
                (struct story_samples){.thread = job->main[i],
                        .from = at + own,
                        .to = at + work[i],
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .python = "main@/x/ddp.py:30"});
        // with half a ms of communication more: shorter waits are not recorded
        if (last - work[i] >= 0.5)
            job_wait(job, i, at + work[i], at + last + 0.5);
    }
}

// Steps until the window is full. Rank `late` is by `more` ms in those that begin in [from, to).
static void heat_run(struct job *job, int late, double more, double from, double to, double noise)
{
    for (double at = 0; at < STORY_WINDOW_MS - STEP_MS;) {
        bool now = at >= from && at < to;
        heat_step(job, at, now ? late : -1, more, noise);
        at += STEP_MS + (now && more > 5 ? more : 0);
    }
}

// Its numbers make sense, whatever it says.
static void check_heat(const struct stall_heat *heat)
{
    double most = 0;
    CHECK(heat->row_count <= 64 && heat->row_count <= heat->ranks);
    for (size_t i = 0; i < heat->row_count; i++)
        for (size_t b = 0; b < heat->blocks; b++) {
            CHECK(heat->rows[i].shares[b] >= 0 && heat->rows[i].shares[b] <= 1);
            most = fmax(most, heat->rows[i].shares[b]);
        }
    CHECK(!heat->blocks || heat->worst.shares[heat->worst_block] >= most);
}

TEST(a_rank_that_is_late_all_the_time)
{
    struct job job;
    job_open(&job, 4, 4);
    heat_run(&job, 1, 4, 0, STORY_WINDOW_MS, 0);
    const struct stall_heat *heat = &story_analyse(&job.story)->heat;
    CHECK(story_find(&job.story, "straggler") != NULL);
    CHECK_INT(heat->blocks, LATE_BLOCKS);
    CHECK_INT(heat->ranks, 4);
    CHECK_INT(heat->unknown, 0);
    CHECK_INT(heat->row_count, 4);
    CHECK(!heat->by_work);
    CHECK_INT(heat->end_ns - heat->begin_ns, STORY_WINDOW_MS * INT64_C(1000000));
    CHECK_INT(heat->worst.rank, 1);
    check_heat(heat);
    for (size_t i = 0; i < heat->row_count; i++) {
        CHECK_INT(heat->rows[i].rank, i);
        CHECK_INT(heat->rows[i].pid, 2000 + i);
        CHECK_INT(heat->rows[i].of, 1);
        for (size_t b = 0; b < heat->blocks; b++) // 4 ms of 20, less the threshold
            CHECK_DBL(heat->rows[i].shares[b], i == 1 ? 0.18 : 0, 0.03);
    }
    story_close(&job.story);
}

TEST(a_rank_that_is_late_in_a_part_of_the_time)
{
    struct job job;
    job_open(&job, 4, 4);
    heat_run(&job, 2, 4, 5000, STORY_WINDOW_MS, 0); // since the second half
    const struct stall_heat *heat = &story_analyse(&job.story)->heat;
    CHECK(story_find(&job.story, "straggler") != NULL);
    CHECK_INT(heat->worst.rank, 2);
    CHECK(heat->worst_block >= LATE_BLOCKS / 2);
    for (size_t b = 0; b < heat->blocks; b++)
        CHECK_DBL(heat->rows[2].shares[b], b >= LATE_BLOCKS / 2 ? 0.18 : 0, 0.03);
    story_close(&job.story);
}

// Nobody is named for one moment; a map shows it.
TEST(one_long_wait_for_one_rank)
{
    struct job job;
    job_open(&job, 4, 4);
    heat_run(&job, 2, 200, 3000, 3010, 0);
    const struct stall_heat *heat = &story_analyse(&job.story)->heat;
    CHECK(story_find(&job.story, "straggler") == NULL);
    CHECK_INT(heat->blocks, LATE_BLOCKS);
    CHECK_INT(heat->worst.rank, 2);
    CHECK_INT(heat->worst_block, 7); // from 2917 to 3333 ms
    CHECK_DBL(heat->worst.shares[7], 200 / 416.7, 0.01);
    check_heat(heat);
    story_close(&job.story);
    job_open(&job, 4, 4); // below 1 % of the window it is not worth a look
    heat_run(&job, 2, 80, 3000, 3010, 0);
    CHECK_INT(story_analyse(&job.story)->heat.blocks, 0);
    story_close(&job.story);
}

// The others wait as long, and it is no fault of the rank's.
TEST(one_long_turn_of_a_passer_by)
{
    struct job job;
    job_open(&job, 4, 4);
    int64_t other = story_other(&job.story, 5000, "cc1", "cc1 -O2");
    for (int i = 0; i < 450; i++) {
        bool taken = i == 150;
        double at = STEP_MS * i + (i > 150 ? 200 : 0);
        heat_step(&job, at, -1, 0, 0);
        for (int rank = 0; rank < 4 && taken; rank++)
            if (rank != 2)
                job_wait(&job, rank, at + 10, at + 210.5);
        if (taken)
            story_gap(&job.story,
                    (struct story_gap){.thread = job.main[2],
                            .out = at + 10,
                            .in = at + 210,
                            .flags = UG_GAP_PREEMPTED,
                            .next = other,
                            .before = other,
                            .python = "main@/x/ddp.py:30"});
    }
    CHECK_INT(story_analyse(&job.story)->heat.blocks, 0);
    CHECK(story_find(&job.story, "straggler") == NULL);
    story_close(&job.story);
}

TEST(nothing_is_shown_where_nobody_is_late)
{
    for (int count = 1; count <= 4; count++) {
        struct job job;
        job_open(&job, count, count); // nobody waits; or there is one
        heat_run(&job, 0, 4, 0, count == 1 ? STORY_WINDOW_MS : 0, 0);
        CHECK_INT(story_analyse(&job.story)->heat.blocks, 0);
        story_close(&job.story);
        for (unsigned seed = 1; seed <= 2; seed++) { // each is late now and then
            job_open(&job, count, count);
            job.seed = seed * 7919;
            heat_run(&job, -1, 0, 0, 0, 6);
            CHECK_INT(story_analyse(&job.story)->heat.blocks, 0);
            story_close(&job.story);
        }
    }
}

TEST(stores_that_make_no_sense)
{
    static const char *const damage[][2] = {{NULL, NULL}, // none: there is a map
            {"UPDATE recording SET end_ns = begin_ns + 5", NULL},
            // a month, in which some waited for days
            {"UPDATE recording SET end_ns = begin_ns + 2592000000000000",
                    "UPDATE gap SET waking_ns = out_ns + 200000000000000, in_ns = out_ns + 200000000000000 WHERE id % 50 = 0"},
            {"UPDATE recording SET end_ns = 9223372036854775807", NULL},
            {"UPDATE gap SET waking_ns = 9223372036854775807, in_ns = 9223372036854775807 WHERE id % 5 = 0",
                    NULL},
            {"UPDATE gap SET out_ns = -9223372036854775807 WHERE id % 5 = 0", NULL},
            {"UPDATE gap SET waking_ns = out_ns - 5000000 WHERE id % 5 = 0", NULL},
            {"UPDATE recording SET target = json_set(target, '$.nodes', json('[1, {\"process_first\": 3, \"process_last\": 1, \"clock_error_ns\": -5}]'))",
                    NULL},
            {"UPDATE recording SET target = json_set(target, '$.ranks[1].rank', 0)", NULL},
            {"UPDATE recording SET target = json_set(target, '$.ranks[3].ranks', 2147483647)",
                    NULL}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct job job;
        struct stalls *stalls = NULL;
        struct error err = {0};
        job_open(&job, 4, 4);
        heat_run(&job, 1, 4, 0, STORY_WINDOW_MS, 0);
        for (size_t k = 0; k < 2 && damage[i][k]; k++)
            story_sql(&job.story, damage[i][k]);
        if (!stalls_analyse(job.story.store, NULL, &stalls, &err)) // or it says what is wrong
            check_heat(&stalls->heat);
        else
            CHECK(err.text[0]);
        CHECK(i > 0 || (stalls && stalls->heat.blocks > 0));
        stalls_free(stalls);
        story_close(&job.story);
    }
}

// --- many ranks ----------------------------------------------------------------------------------

enum { MANY = 200 };

struct many {
    struct trace trace;
    struct ranks ranks;
    struct late_ranks found;
    struct stall_heat heat;
    struct trace_process processes[MANY];
    struct trace_node nodes[MANY];
    struct rank_row rows[MANY];
    double shares[MANY * LATE_BLOCKS];
    char hosts[MANY][32];
};

// `count` ranks on as many nodes; rank i of each ten costs i hundredths in each part, and rank 17
// half of the fifth part.
static struct many *many_of(size_t count, size_t nodes)
{
    struct many *many = xcalloc(1, sizeof *many);
    many->trace = (struct trace){.arena = arena_new(),
            .processes = many->processes,
            .process_count = count,
            .nodes = many->nodes,
            .node_count = nodes};
    many->ranks = (struct ranks){.trace = &many->trace, .rows = many->rows, .row_count = count};
    many->found.shares = many->shares;
    for (size_t i = 0; i < nodes; i++) {
        snprintf(many->hosts[i], sizeof many->hosts[i], "node-%zu", i);
        many->nodes[i].host = many->hosts[i];
    }
    for (size_t i = 0; i < count; i++) {
        many->rows[i] = (struct rank_row){.process = (uint32_t)i, .rank = (int32_t)i};
        many->processes[i] = (struct trace_process){
                .tgid = 3000 + (int32_t)i, .node = nodes ? (uint32_t)(i * nodes / count) : 0};
        for (size_t b = 0; b < LATE_BLOCKS; b++)
            many->shares[i * LATE_BLOCKS + b] = (double)(i % 10) / 100;
    }
    many->shares[17 * LATE_BLOCKS + 4] = 0.5;
    return many;
}

static const struct stall_heat *many_heat(struct many *many)
{
    late_heat(&many->ranks, &many->found, 0, 24000, "alone", &many->heat);
    check_heat(&many->heat);
    return &many->heat;
}

static void many_free(struct many *many)
{
    arena_free(many->trace.arena);
    free(many);
}

TEST(up_to_64_ranks_have_a_row_each)
{
    struct many *many = many_of(64, 0);
    const struct stall_heat *heat = many_heat(many);
    CHECK_INT(heat->row_count, 64);
    CHECK_INT(heat->ranks, 64);
    CHECK_STR(heat->rows[63].host, "alone");
    CHECK_INT(heat->rows[63].rank, 63);
    CHECK_INT(heat->worst.rank, 17);
    CHECK_INT(heat->worst_block, 4);
    many_free(many);
}

TEST(of_more_a_node_has_its_median_and_its_worst_rank)
{
    struct many *many = many_of(160, 16); // ten a node
    const struct stall_heat *heat = many_heat(many);
    CHECK_INT(heat->row_count, 32);
    for (size_t i = 0; i < 16; i++) {
        const struct stall_heat_row *middle = &heat->rows[2 * i], *worst = &heat->rows[2 * i + 1];
        CHECK_INT(middle->of, 10);
        CHECK_INT(worst->of, 10);
        CHECK(!middle->worst && worst->worst);
        CHECK_STR(middle->host, many->hosts[i]);
        CHECK_STR(worst->host, many->hosts[i]);
        CHECK_INT(middle->rank, 10 * i + 4);
        CHECK_INT(worst->rank, i == 1 ? 17 : 10 * i + 9); // who is named has a line
    }
    CHECK_INT(heat->worst.rank, 17);
    CHECK_STR(heat->worst.host, "node-1");
    many_free(many);
}

TEST(of_more_nodes_than_groups_and_of_one_node_neighbours_are_a_group)
{
    static const size_t nodes[] = {0, 1, 33, 65, 199};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        struct many *many = many_of(199, nodes[i]);
        const struct stall_heat *heat = many_heat(many);
        size_t told = 0;
        CHECK_INT(heat->row_count, 64);
        for (size_t row = 0; row < heat->row_count; row++)
            told += heat->rows[row].worst ? heat->rows[row].of : 0;
        CHECK_INT(told, 199); // each rank is in one group
        many_free(many);
    }
}

TEST(of_whom_it_is_not_known_is_left_out)
{
    struct many *many = many_of(4, 0);
    for (size_t b = 0; b < LATE_BLOCKS; b++)
        many->shares[b] = NAN;
    many->shares[2 * LATE_BLOCKS + 9] = 0.9;
    const struct stall_heat *heat = many_heat(many);
    CHECK_INT(heat->row_count, 3);
    CHECK_INT(heat->ranks, 3);
    CHECK_INT(heat->unknown, 1);
    CHECK_INT(heat->worst.rank, 2);
    for (size_t i = 1; i < 4; i++)
        many->shares[i * LATE_BLOCKS] = i == 2 ? 0 : NAN;
    CHECK_INT(many_heat(many)->blocks, 0); // one alone is compared with nobody
    many->found.shares = NULL;
    CHECK_INT(many_heat(many)->blocks, 0);
    many_free(many);
}

// Of two GPUs the one that it uses; of a rank that has none, nothing.
TEST(the_gpu_of_a_rank_stands_beside_it)
{
    struct job job;
    char sql[400];
    job_open(&job, 4, 4);
    heat_run(&job, 1, 4, 0, STORY_WINDOW_MS, 0);
    snprintf(sql, sizeof sql,
            "INSERT INTO gpu_device (process_id, device, name, uuid) VALUES (%lld, 0, 'NVIDIA H100', 'GPU-00'), (%lld, 1, "
            "'NVIDIA H100', 'GPU-11'), (%lld, 0, NULL, NULL)",
            (long long)job.process[1], (long long)job.process[1], (long long)job.process[2]);
    story_sql(&job.story, sql);
    snprintf(sql, sizeof sql,
            "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, %lld, 1, 1, 7)",
            (long long)job.process[1]);
    story_sql(&job.story, sql);
    const struct stalls *stalls = story_analyse(&job.story);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL && late->gpu.known);
    CHECK_STR(late->gpu.uuid, "GPU-11");
    CHECK_INT(late->gpu.device, 1);
    CHECK_STR(late->gpu.name, "NVIDIA H100");
    CHECK(!stalls->heat.rows[0].gpu.known);
    CHECK_STR(stalls->heat.rows[1].gpu.uuid, "GPU-11");
    CHECK_STR(stalls->heat.worst.gpu.uuid, "GPU-11");
    CHECK(stalls->heat.rows[2].gpu.known);
    CHECK_STR(stalls->heat.rows[2].gpu.uuid, "");
    CHECK_INT(stalls->heat.rows[2].gpu.device, 0);
    CHECK(!stalls->heat.rows[3].gpu.known);
    story_close(&job.story);
}
