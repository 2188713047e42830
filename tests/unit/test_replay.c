// SPDX-License-Identifier: Apache-2.0
// The replay of operations: jobs whose times are known from formulas, as they are and with other
// durations; graphs that cannot be; size.
#include <errno.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/replay/replay.h"
#include "tests/unit/runner.h"

struct job {
    struct replay_job job;
    struct replay_op *ops;
    size_t *dep_first;
    uint32_t *deps;
    size_t op_count, dep_count;
    int64_t begins[256];
    uint32_t stages[64];
    struct replay *replay;
};

static uint32_t job_op(struct job *job, struct replay_op op)
{
    job->dep_first = xrealloc(job->dep_first, (job->op_count + 2) * sizeof *job->dep_first);
    job->dep_first[0] = 0;
    job->dep_first[job->op_count + 1] = job->dep_count;
    vector_push(job->ops, job->op_count, op);
    return (uint32_t)job->op_count - 1;
}

// Of the op that was made last.
static void job_dep(struct job *job, uint32_t on)
{
    if (on == REPLAY_NONE)
        return;
    vector_push(job->deps, job->dep_count, on);
    job->dep_first[job->op_count] = job->dep_count;
}

static int job_make(
        struct job *job, size_t ranks, size_t steps, size_t kinds, size_t groups, size_t stages)
{
    struct error err = {0};
    job->job = (struct replay_job){.ops = job->ops,
            .op_count = job->op_count,
            .dep_first = job->dep_first,
            .deps = job->deps,
            .step_begin_ns = job->begins,
            .stage_of = stages ? job->stages : NULL,
            .step_count = steps,
            .rank_count = ranks,
            .kind_count = kinds,
            .group_count = groups,
            .stage_count = stages};
    return replay_new(&job->job, &job->replay, &err);
}

static void job_free(struct job *job)
{
    replay_free(job->replay);
    free(job->ops);
    free(job->dep_first);
    free(job->deps);
    *job = (struct job){0};
}

// The end of the last step.
static int64_t job_end(const struct job *job, const int64_t *durations, bool delays)
{
    int64_t ends[256], last = INT64_MIN;
    replay_run(job->replay, durations, delays, ends);
    for (size_t i = 0; i < job->job.step_count; i++)
        last = ends[i] > last ? ends[i] : last;
    return last;
}

static const int64_t *job_measured(const struct job *job)
{
    return replay_durations(job->replay);
}

static uint32_t job_random(uint32_t *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16 & 0x7fff;
}

// Ranks compute and reduce, step after step, in one chain: what compute gives each, then a
// transfer. Times as they would be measured.
static void job_parallel(struct job *job, int ranks, int steps,
        int64_t (*compute)(int rank, int step), int64_t transfer)
{
    uint32_t last[64];
    int64_t now = 0;
    for (int i = 0; i < ranks; i++)
        last[i] = REPLAY_NONE;
    for (int step = 0; step < steps; step++) {
        int64_t most = 0;
        for (int rank = 0; rank < ranks; rank++)
            most = compute(rank, step) > most ? compute(rank, step) : most;
        job->begins[step] = now;
        for (int rank = 0; rank < ranks; rank++) {
            int64_t came = now + compute(rank, step);
            uint32_t worked = job_op(job,
                    (struct replay_op){
                            now, came, (uint32_t)rank, (uint32_t)step, 0, REPLAY_NONE, false});
            job_dep(job, last[rank]);
            last[rank] = job_op(job,
                    (struct replay_op){came, now + most + transfer, (uint32_t)rank, (uint32_t)step,
                            1, (uint32_t)step, true});
            job_dep(job, worked);
        }
        now += most + transfer;
    }
    CHECK_INT(job_make(job, (size_t)ranks, (size_t)steps, 2, (size_t)steps, 0), 0);
}

static int64_t one_is_late(int rank, int step)
{
    (void)step;
    return rank == 2 ? 130 : 100;
}

TEST(a_late_rank_and_what_would_be_without_it)
{
    struct job job = {0};
    job_parallel(&job, 4, 50, one_is_late, 7);
    int64_t *other = xcalloc(job.op_count, sizeof *other);
    CHECK_INT(job_end(&job, job_measured(&job), true), 50 * 137);
    CHECK_INT(job_end(&job, job_measured(&job), false), 50 * 137);
    bool late[4] = {[2] = true};
    replay_if_without(job.replay, late, other);
    CHECK_INT(job_end(&job, other, true), 50 * 107);
    bool wrong[4] = {[1] = true}; // who is not late is not to blame
    replay_if_without(job.replay, wrong, other);
    CHECK_INT(job_end(&job, other, true), 50 * 137);
    bool all[4] = {true, true, true, true}; // nobody is left to be like
    replay_if_without(job.replay, all, other);
    CHECK_INT(job_end(&job, other, true), 50 * 137);
    replay_if_even(job.replay, other);
    CHECK_INT(job_end(&job, other, true), 50 * (108 + 7)); // 107.5, rounded
    replay_if_instant(job.replay, other);
    CHECK_INT(job_end(&job, other, true), 50 * 130);
    CHECK(!replay_if_balanced(job.replay, other));
    free(other);
    job_free(&job);
}

// Rank 1 computes in two parts what rank 0 does in one.
TEST(even_ranks_where_one_computes_in_parts)
{
    struct job job = {0};
    const int64_t begins[] = {0, 0, 40}, ends[] = {120, 40, 100};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t op = job_op(
                &job, (struct replay_op){begins[i], ends[i], i > 0, 0, 0, REPLAY_NONE, false});
        if (i == 2)
            job_dep(&job, op - 1);
    }
    CHECK_INT(job_make(&job, 2, 1, 2, 0, 0), 0);
    int64_t other[3];
    CHECK_INT(job_end(&job, job_measured(&job), true), 120);
    replay_if_even(job.replay, other);
    CHECK_INT(job_end(&job, other, true), 110);
    CHECK_INT(other[1] + other[2], 110);
    job_free(&job);
}

// What rank 1 does before the collective, rank 0 does in part behind it: in all it takes as long as
// that one then, and not what is less of each.
TEST(a_late_rank_works_no_less_than_the_others_in_all)
{
    enum { STEPS = 20 };
    const int64_t before[] = {30, 90}, behind[] = {20, 2};
    struct job job = {0};
    int64_t at = 0, *other, sums[2] = {0};
    uint32_t last[2] = {REPLAY_NONE, REPLAY_NONE};
    for (uint32_t step = 0; step < STEPS; step++, at += 92)
        for (uint32_t rank = 0; rank < 2; rank++) {
            uint32_t first = job_op(&job,
                    (struct replay_op){at, at + before[rank], rank, step, 0, REPLAY_NONE, false});
            job_dep(&job, last[rank]);
            uint32_t met = job_op(&job,
                    (struct replay_op){at + before[rank], at + 90, rank, step, 1, step, true});
            job_dep(&job, first);
            last[rank] = job_op(&job,
                    (struct replay_op){rank ? at + 90 : at + 30, rank ? at + 92 : at + 50, rank,
                            step, 2, REPLAY_NONE, false});
            job_dep(&job, rank ? met : first);
        }
    CHECK_INT(job_make(&job, 2, STEPS, 3, STEPS, 0), 0);
    other = xcalloc(job.op_count, sizeof *other);
    bool late[2] = {[1] = true};
    replay_if_without(job.replay, late, other);
    for (size_t i = 0; i < job.op_count; i++)
        sums[job.ops[i].rank] += job.ops[i].communicates ? 0 : other[i];
    CHECK_INT(sums[0], STEPS * (before[0] + behind[0]));
    CHECK_DBL((double)sums[1], (double)sums[0], STEPS);
    free(other);
    job_free(&job);
}

static int64_t late_now_and_then(int rank, int step)
{
    return 100 + (rank == 2 && step % 10 == 3 ? 500 : 0);
}

TEST(a_rank_that_is_late_now_and_then)
{
    struct job job = {0};
    job_parallel(&job, 4, 50, late_now_and_then, 7);
    int64_t *other = xcalloc(job.op_count, sizeof *other);
    CHECK_INT(job_end(&job, job_measured(&job), true), 50 * 107 + 5 * 500);
    bool late[4] = {[2] = true};
    replay_if_without(job.replay, late, other);
    CHECK_INT(job_end(&job, other, true), 50 * 107);
    free(other);
    job_free(&job);
}

static bool noise_is_late;
static int64_t noise(int rank, int step) // the same of a rank and a step whenever it is asked
{
    uint32_t seed = (uint32_t)(rank * 7919 + step * 104729 + 1);
    job_random(&seed);
    // each saves now and then
    int64_t spread =
            job_random(&seed) % 20000 + job_random(&seed) % 20000 + (step % 50 == 7 ? 200000 : 0);
    return 100000 + spread + (noise_is_late && rank == 1 ? 30000 : 0);
}

TEST(the_noise_of_a_late_rank_stays)
{
    // With two ranks the later of both is 6 % slower than their mean: a rank that only got the
    // other's times would hide it.
    for (int ranks = 2; ranks <= 16; ranks *= 2) {
        struct job job = {0}, truth = {0};
        noise_is_late = true;
        job_parallel(&job, ranks, 200, noise, 5000);
        noise_is_late = false;
        job_parallel(&truth, ranks, 200, noise, 5000);
        int64_t *other = xcalloc(job.op_count, sizeof *other),
                known = job_end(&truth, job_measured(&truth), true);
        bool late[16] = {[1] = true};
        replay_if_without(job.replay, late, other);
        CHECK_DBL((double)job_end(&job, other, true) / (double)known, 1, 0.01);
        CHECK(job_end(&job, job_measured(&job), true) > known * 110 / 100);
        free(other);
        job_free(&job);
        job_free(&truth);
    }
}

// One step of a pipeline in 1F1B order. work[k]: of a forward pass in stage k, a backward pass
// takes twice as long; link: a message.
static void job_pipeline(
        struct job *job, int stages, int batches, const int64_t *work, int64_t link)
{
    for (int stage = 0; stage < stages; stage++) {
        int warm = stages - 1 - stage < batches ? stages - 1 - stage : batches, forward = 0,
            backward = 0;
        uint32_t last = REPLAY_NONE;
        job->stages[stage] = (uint32_t)stage;
        while (backward < batches) {
            bool ahead = forward < batches && forward - backward <= warm;
            int batch = ahead ? forward++ : backward++;
            int64_t takes = ahead ? work[stage] : 2 * work[stage];
            bool receives = ahead ? stage > 0 : stage < stages - 1,
                 sends = ahead ? stage < stages - 1 : stage > 0;
            // the border that it came over, and that it goes over
            int from = ahead ? stage - 1 : stage, to = ahead ? stage : stage - 1;
            uint32_t came = REPLAY_NONE, group;
            if (receives) {
                group = (uint32_t)((2 * from + !ahead) * batches + batch);
                came = job_op(job, (struct replay_op){0, link, (uint32_t)stage, 0, 2, group, true});
                job_dep(job, last);
            }
            uint32_t worked = job_op(job,
                    (struct replay_op){0, takes, (uint32_t)stage, 0, !ahead, REPLAY_NONE, false});
            job_dep(job, last);
            job_dep(job, came);
            last = worked;
            if (sends) {
                group = (uint32_t)((2 * to + !ahead) * batches + batch);
                job_op(job, (struct replay_op){0, link, (uint32_t)stage, 0, 2, group, true});
                job_dep(job, worked);
            }
        }
    }
    CHECK_INT(
            job_make(job, (size_t)stages, 1, 3, (size_t)(2 * stages * batches), (size_t)stages), 0);
}

TEST(a_pipeline_takes_what_its_formula_says)
{
    const int64_t even[4] = {100, 100, 100, 100}, heavy[4] = {100, 100, 100, 180};
    struct job job = {0};
    job_pipeline(&job, 4, 8, even, 0);
    CHECK_INT(job_end(&job, job_measured(&job), false), (8 + 4 - 1) * 300);
    job_free(&job);

    // the last stage is never idle: its batches, and the way to it and back
    job_pipeline(&job, 4, 8, heavy, 0);
    int64_t *other = xcalloc(job.op_count, sizeof *other);
    CHECK_INT(job_end(&job, job_measured(&job), false), 8 * 540 + 3 * 300);
    CHECK(replay_if_balanced(job.replay, other));
    // (100 + 100 + 100 + 180) / 4 = 120 of each
    CHECK_INT(job_end(&job, other, false), (8 + 4 - 1) * 360);
    replay_if_ideal(job.replay, other);
    CHECK_INT(job_end(&job, other, false), (8 + 4 - 1) * 360);
    free(other);
    job_free(&job);

    job_pipeline(&job, 4, 8, even, 10);
    int64_t with = job_end(&job, job_measured(&job), false);
    other = xcalloc(job.op_count, sizeof *other);
    replay_if_instant(job.replay, other);
    CHECK(with >= (8 + 4 - 1) * 300 + 6 * 10); // the first batch's way there and back
    CHECK_INT(job_end(&job, other, false), (8 + 4 - 1) * 300);
    free(other);
    job_free(&job);
}

TEST(delays_are_kept_or_left_out)
{
    struct job job = {.begins = {1000, 2000}};
    job_op(&job, (struct replay_op){1010, 1100, 0, 0, 0, REPLAY_NONE, false}); // 10 behind its step
    job_op(&job, (struct replay_op){1130, 1200, 0, 0, 0, REPLAY_NONE, false});
    job_dep(&job, 0);
    job_op(&job, (struct replay_op){2000, 2000, 0, 1, 0, REPLAY_NONE, false}); // takes no time
    CHECK_INT(job_make(&job, 1, 2, 1, 0, 0), 0);
    int64_t ends[2];
    replay_run(job.replay, job_measured(&job), true, ends);
    CHECK_INT(ends[0], 1200);
    CHECK_INT(ends[1], 2000);
    replay_run(job.replay, job_measured(&job), false, ends);
    CHECK_INT(ends[0], 1160);
    job_free(&job);
}

TEST(a_transfer_that_ends_before_the_last_one_came_takes_no_time)
{
    struct job job = {0}; // clocks that do not agree: the replay is longer than what was measured,
                          // and so gives itself away
    job_op(&job, (struct replay_op){0, 50, 0, 0, 0, 0, true});
    job_op(&job, (struct replay_op){80, 90, 1, 0, 0, 0, true});
    CHECK_INT(job_make(&job, 2, 1, 1, 1, 0), 0);
    CHECK_INT(job_measured(&job)[0], 0);
    CHECK_INT(job_measured(&job)[1], 10);
    CHECK_INT(job_end(&job, job_measured(&job), true), 90);
    job_free(&job);
}

TEST(graphs_that_cannot_be_are_refused)
{
    struct job job = {0}; // each waits for the other
    job_op(&job, (struct replay_op){0, 1, 0, 0, 0, REPLAY_NONE, false});
    job_dep(&job, 1);
    job_op(&job, (struct replay_op){0, 1, 0, 0, 0, REPLAY_NONE, false});
    job_dep(&job, 0);
    CHECK_INT(job_make(&job, 1, 1, 1, 0, 0), -ELOOP);
    job_free(&job);

    for (uint32_t i = 0; i < 2; i++) { // two ranks enter two collectives in opposite order
        job_op(&job, (struct replay_op){0, 1, i, 0, 0, i, true});
        job_op(&job, (struct replay_op){1, 2, i, 0, 0, 1 - i, true});
        job_dep(&job, 2 * i);
    }
    CHECK_INT(job_make(&job, 2, 1, 1, 2, 0), -ELOOP);
    job_free(&job);

    const struct replay_op bad[] = {{0, 1, 1, 0, 0, REPLAY_NONE, false},
            {0, 1, 0, 1, 0, REPLAY_NONE, false}, {0, 1, 0, 0, 1, REPLAY_NONE, false},
            {0, 1, 0, 0, 0, 0, true}, {0, 1, 0, 0, 0, 0, false},
            {5, 4, 0, 0, 0, REPLAY_NONE, false}, {-1, 4, 0, 0, 0, REPLAY_NONE, false},
            {0, INT64_MAX, 0, 0, 0, REPLAY_NONE, false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        job_op(&job, bad[i]);
        CHECK_INT(job_make(&job, 1, 1, 1, 0, 0), -EINVAL);
        job_free(&job);
    }
    job_op(&job, (struct replay_op){0, 1, 0, 0, 0, REPLAY_NONE, false});
    job_dep(&job, 7);
    CHECK_INT(job_make(&job, 1, 1, 1, 0, 0), -EINVAL);
    job_free(&job);
    for (int i = 0; i < 3; i++)
        job_op(&job, (struct replay_op){0, REPLAY_END_NS / 2, 0, 0, 0, REPLAY_NONE, false});
    CHECK_INT(job_make(&job, 1, 1, 1, 0, 0), -ERANGE);
    job_free(&job);
    CHECK_INT(job_make(&job, 0, 0, 0, 0, 0), 0); // nothing at all
    CHECK_INT(job_end(&job, job_measured(&job), true), INT64_MIN);
    job_free(&job);
}
