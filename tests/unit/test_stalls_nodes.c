// SPDX-License-Identifier: Apache-2.0
// Ranks of a job on two nodes, as `upgate merge` puts them into one store: who is named where
// clocks are known well, less well, or not at all; pids, parents and CPU quotas are those of a
// node.
#include <stdio.h>
#include <string.h>

#include "tests/unit/stall_story.h"

enum { RANKS = 4, STEP_MS = 20, STEPS = STORY_WINDOW_MS / STEP_MS };

struct job {
    struct story story;
    int64_t main[RANKS], process[RANKS];
};

// Ranks 0 and 1 on node a, 2 and 3 on node b, with the same pids on both. Errors of the clocks in
// us; -1: not known.
static void job_open(struct job *job, int error_a_us, int error_b_us)
{
    char sql[1024], errors[2][32] = {"null", "null"};
    *job = (struct job){0};
    story_open_quiet(&job->story);
    for (int i = 0; i < RANKS; i++) {
        job->process[i] = story_process(
                &job->story, "target", 2000 + i % 2, 1000, "python3", "python3 ddp.py");
        job->main[i] = story_leader(&job->story, job->process[i]);
        story_total(&job->story, job->main[i], STORY_WINDOW_MS * 0.8);
        snprintf(sql, sizeof sql,
                "UPDATE recording SET target = json_set(CASE WHEN json_type(target, '$.ranks') IS NULL THEN json_set(target, "
                "'$.ranks', json_array()) ELSE target END, '$.ranks[#]', json_object('pid', %d, 'start_ns', 1, 'rank', %d, 'ranks', %d, 'node', %d))",
                2000 + i % 2, i, RANKS, i / 2);
        story_sql(&job->story, sql);
    }
    if (error_a_us >= 0)
        snprintf(errors[0], sizeof errors[0], "%d000", error_a_us);
    if (error_b_us >= 0)
        snprintf(errors[1], sizeof errors[1], "%d000", error_b_us);
    snprintf(sql, sizeof sql,
            "UPDATE recording SET target = json_set(target, '$.nodes', json('[{\"host\": \"a\", \"process_first\": 1, \"process_last\": "
            "%lld, \"cpu_first\": 0, \"clock_error_ns\": %s}, {\"host\": \"b\", \"process_first\": %lld, \"process_last\": 1000, \"cpu_first\": 8, "
            "\"clock_error_ns\": %s}]'))",
            (long long)job->process[1], errors[0], (long long)job->process[2], errors[1]);
    story_sql(&job->story, sql);
}

// Steps in which the ranks compute for so many ms, and wait for the last one.
static void job_steps(struct job *job, const double *compute)
{
    double last = 0;
    for (int i = 0; i < RANKS; i++)
        last = compute[i] > last ? compute[i] : last;
    for (int step = 0; step < STEPS; step++) {
        double at = STEP_MS * step;
        for (int i = 0; i < RANKS; i++) {
            story_samples(&job->story,
                    (struct story_samples){.thread = job->main[i],
                            .from = at,
                            .to = at + compute[i],
                            .cpu = i / 2 * 8 + i % 2,
                            .python = "main@/x/ddp.py:30"});
            if (last - compute[i] >= 0.5)
                story_gap(&job->story,
                        (struct story_gap){.thread = job->main[i],
                                .out = at + compute[i],
                                .waking = at + last + 0.5,
                                .in = at + last + 0.52,
                                .state = 1,
                                .kernel = STORY_FUTEX_WAIT,
                                .user = "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait",
                                .python = "main@/x/ddp.py:31"});
        }
    }
}

static const struct stall *job_straggler(struct job *job)
{
    story_analyse(&job->story);
    return story_find(&job->story, "straggler");
}

TEST(a_rank_on_another_node_is_named_where_clocks_are_known)
{
    struct job job;
    static const double compute[] = {10, 10, 14, 10};
    job_open(&job, 50, 100);
    job_steps(&job, compute);
    const struct stall *late = job_straggler(&job);
    CHECK(late != NULL);
    CHECK_INT(late->rank, 2);
    CHECK_STR(late->host, "b");
    CHECK_INT(late->culprit.thread_id, job.main[2]);
    CHECK_INT(job.story.stalls->heat.row_count, RANKS);
    CHECK_INT(job.story.stalls->heat.worst.rank, 2);
    CHECK_STR(job.story.stalls->heat.worst.host, "b");
    CHECK_STR(job.story.stalls->heat.rows[0].host, "a");
    CHECK_INT(job.story.stalls->missing_count, 0);
    story_close(&job.story);
}

TEST(nobody_is_named_below_twice_what_the_clocks_are_known_within)
{
    // Both of node b come 4 ms later than those of a; within 3 ms + 0.1 ms that may be the clocks.
    static const double compute[] = {10, 10, 14, 13.8};
    struct job job;
    job_open(&job, 3000, 100);
    job_steps(&job, compute);
    CHECK(job_straggler(&job) == NULL);
    story_close(&job.story);
    job_open(&job, 100, 100); // the same within 0.2 ms
    job_steps(&job, compute);
    CHECK(job_straggler(&job) != NULL);
    CHECK_STR(job_straggler(&job)->host, "b");
    story_close(&job.story);
}

TEST(without_a_known_clock_ranks_are_compared_on_their_node)
{
    static const double node_is_late[] = {10, 10, 14, 14}, one_is_late[] = {10, 10, 10, 14};
    struct job job;
    job_open(&job, -1, 50);
    job_steps(&job, node_is_late);
    CHECK(job_straggler(&job) == NULL);
    CHECK_INT(job.story.stalls->missing_count, 1);
    CHECK_INT(job.story.stalls->missing[0].kind, STALL_MISSING_CLOCKS);
    CHECK_INT(job.story.stalls->missing[0].count, 1);
    CHECK_INT(job.story.stalls->missing[0].of, 2);
    story_close(&job.story);
    job_open(&job, -1, -1);
    job_steps(&job, one_is_late); // rank 2, on the same node, waits for it
    const struct stall *late = job_straggler(&job);
    CHECK(late != NULL);
    CHECK_INT(late->rank, 3);
    CHECK_STR(late->host, "b");
    CHECK_DBL((double)late->late_ns, 4e6, 1.1e6);
    CHECK_DBL((double)late->ranks_ns, (double)late->total_ns, 1e6); // those of node a are not asked
    story_close(&job.story);
}

TEST(a_clock_known_too_badly_leaves_the_node_of_a_rank)
{
    static const double compute[] = {10, 10, 10, 14};
    struct job job;
    job_open(&job, 20000, 20000);
    job_steps(&job, compute);
    const struct stall *late = job_straggler(&job);
    CHECK(late != NULL);
    CHECK_INT(late->rank, 3);
    CHECK_DBL((double)late->ranks_ns, (double)late->total_ns, 1e6);
    story_close(&job.story);
}

TEST(collectives_of_nccl_on_two_nodes)
{
    char sql[512];
    for (int known = 0; known < 2; known++) {
        struct job job;
        job_open(&job, known ? 50 : -1, 50);
        for (int i = 0; i < RANKS; i++) {
            snprintf(sql, sizeof sql,
                    "WITH RECURSIVE steps (step) AS (SELECT 0 UNION ALL SELECT step + 1 FROM steps WHERE step < %d) INSERT INTO "
                    "nccl_op (process_id, enqueued_ns, communicator, rank, ranks, sequence, function, count, bytes, plugin_version) SELECT "
                    "%lld, %lld + step * %d000000, 77, %d, 4, step, 'AllReduce', 1, 4, 5 FROM steps",
                    STEPS - 1, (long long)job.process[i], (long long)story_ns(i >= 2 ? 14 : 10),
                    STEP_MS, i);
            story_sql(&job.story, sql);
        }
        const struct stall *late = job_straggler(&job);
        CHECK((late != NULL) == (known == 1));
        if (late)
            CHECK(late->rank >= 2);
        story_close(&job.story);
    }
}

TEST(nodes_that_make_no_sense)
{
    static const char *const nodes[] = {"'[]'", "'{}'", "'7'", "'[7, null, \"a\"]'", "'[{}, {}]'",
            "'[{\"host\": 7, \"process_first\": \"x\", \"process_last\": 9e99, \"cpu_first\": -7, \"clock_error_ns\": -3}, {}]'",
            "'[{\"process_first\": -9223372036854775808, \"process_last\": 9223372036854775807, \"clock_error_ns\": "
            "9223372036854775807}, {\"clock_error_ns\": 9223372036854775807}]'"};
    static const double compute[] = {10, 10, 14, 10};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char sql[512];
        struct job job;
        job_open(&job, 50, 50);
        job_steps(&job, compute);
        snprintf(sql, sizeof sql,
                "UPDATE recording SET target = json_set(target, '$.nodes', json(%s))", nodes[i]);
        story_sql(&job.story, sql);
        CHECK(story_analyse(&job.story) != NULL); // says something, or nothing
        story_close(&job.story);
    }
}
