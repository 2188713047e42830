// SPDX-License-Identifier: Apache-2.0
// What if, from a store: jobs made with known times, as a recorder would have written them, and
// what the same job takes that was made without its late rank; when there is nothing to ask, and
// when there is no answer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/random.h"
#include "tests/unit/stall_story.h"

enum { RANKS_MOST = 8, STEPS = 400 };

struct job {
    struct story story;
    int64_t main[RANKS_MOST], process[RANKS_MOST];
    int ranks;
    struct random_state seed;
};

// What its steps are made of, in ms.
struct work {
    double base, spread; // of each rank's computation
    double late, every;  // rank 1 computes longer, once in so many steps; every 0: always
    double input;        // all do so much more between collectives, with one of their own
    double transfer;
    double apart; // one rank leaves so much later than the other
};

#define JOB_WAIT \
    "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait;c10d::Reducer::finalize_backward"

static void job_open(struct job *job, int count, int ranks)
{
    *job = (struct job){.ranks = count, .seed = {11}};
    story_open_quiet(&job->story);
    for (int i = 0; i < count; i++) {
        job->process[i] =
                story_process(&job->story, "target", 2000 + i, 1000, "python3", "python3 ddp.py");
        job->main[i] = story_leader(&job->story, job->process[i]);
        story_total(&job->story, job->main[i], STORY_WINDOW_MS * 0.8);
        story_rank(&job->story, 2000 + i, i, ranks);
    }
}

static void job_wait(struct job *job, int rank, double begin, double end)
{
    if (end - begin >= 1) // the threshold
        story_gap(&job->story,
                (struct story_gap){.thread = job->main[rank],
                        .out = begin,
                        .waking = end,
                        .in = end + 0.01,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = JOB_WAIT,
                        .python = "backward@/x/tensor.py:5;main@/x/ddp.py:30"});
}

// The ranks come, the last one's arrival and the transfer end it for all. Gives the end.
static double job_meet(struct job *job, const double *came, const struct work *work)
{
    double last = 0;
    for (int i = 0; i < job->ranks; i++)
        last = came[i] > last ? came[i] : last;
    for (int i = 0; i < job->ranks; i++)
        job_wait(job, i, came[i], last + work->transfer + (i % 2 ? work->apart : 0));
    return last + work->transfer;
}

static double job_noise(struct job *job, const struct work *work)
{
    return work->base +
            work->spread * (random_uniform(&job->seed) + random_uniform(&job->seed) - 1);
}

static void job_step_row(struct job *job, int rank, int step, double begin, double end)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (?, ?, ?, ?, ?)",
                    "iiiii", job->story.recording, (int64_t)rank, (int64_t)step, story_ns(begin),
                    story_ns(end) - story_ns(begin)),
            0);
}

// Gives the mean step but for the first.
static double job_run(struct job *job, const struct work *work)
{
    double at = 5, second = 0;
    for (int step = 0; step < STEPS; step++) {
        double came[RANKS_MOST], begin = at;
        second = step == 1 ? begin : second;
        for (int i = 0; i < job->ranks; i++) {
            bool late =
                    i == 1 && work->late > 0 && (work->every == 0 || step % (int)work->every == 2);
            came[i] = at + job_noise(job, work) + (late ? work->late : 0);
        }
        at = job_meet(job, came, work);
        for (int i = 0; i < job->ranks && work->input > 0; i++)
            came[i] = at + work->input * (0.8 + 0.4 * random_uniform(&job->seed));
        at = work->input > 0 ? job_meet(job, came, work) : at;
        for (int i = 0; i < job->ranks; i++)
            job_step_row(job, i, step, begin, at);
    }
    return (at - second) / (STEPS - 1);
}

static const struct stall_what_if *job_ask(struct job *job)
{
    return &story_analyse(&job->story)->what_if;
}

// The job with its late rank, and the same one made without: what the first one's answer is off by,
// as a share.
static double job_error(int ranks, struct work work)
{
    struct job job;
    job_open(&job, ranks, ranks);
    double measured = job_run(&job, &work);
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known);
    CHECK_INT(what_if->steps, STEPS - 1);
    CHECK_DBL(what_if->measured_ns / 1e6, measured, measured * 0.001);
    CHECK_DBL(what_if->replayed_ns / what_if->measured_ns, 1, 0.005);
    CHECK_INT(what_if->stragglers, 1);
    CHECK_INT(what_if->straggler, 1);
    CHECK(!(what_if->balanced_ns > 0));
    double answer = what_if->without_stragglers_ns / 1e6;
    story_close(&job.story);
    work.late = 0;
    job_open(&job, ranks, ranks);
    job.seed.word = 12; // other noise: nobody has the same twice
    double truth = job_run(&job, &work);
    story_close(&job.story);
    return fabs(answer / truth - 1);
}

TEST(without_the_late_rank_it_takes_what_the_job_without_it_takes)
{
    CHECK_DBL(job_error(4, (struct work){.base = 12, .spread = 2, .late = 6, .transfer = 1.2}), 0,
            0.01);
    // arrivals are known within half a ms
    CHECK_DBL(job_error(2, (struct work){.base = 12, .spread = 2, .late = 6, .transfer = 0.4}), 0,
            0.02);
    CHECK_DBL(
            job_error(8,
                    (struct work){.base = 8, .spread = 1, .late = 4, .transfer = 0.4, .input = 4}),
            0, 0.02);
    CHECK_DBL(job_error(4,
                      (struct work){
                              .base = 12, .spread = 0.5, .late = 60, .every = 10, .transfer = 1.2}),
            0, 0.01);
}

TEST(communication_that_takes_no_time)
{
    struct job job;
    job_open(&job, 4, 4);
    job_run(&job, &(struct work){.base = 10, .spread = 0.5, .transfer = 6});
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known);
    CHECK_INT(what_if->stragglers, 0);
    CHECK(!(what_if->without_stragglers_ns > 0)); // nobody is late
    CHECK_DBL((what_if->measured_ns - what_if->instant_ns) / 1e6, 6, 0.1);
    CHECK_DBL(what_if->unsure_ns, 0, 1);
    story_close(&job.story);
}

TEST(nothing_is_asked_of_what_is_not_there)
{
    const struct work work = {.base = 10, .spread = 1, .late = 6, .transfer = 1.2};
    struct job job;
    job_open(&job, 4, 8); // half of the job was not recorded
    job_run(&job, &work);
    CHECK(!job_ask(&job)->known);
    CHECK(!job.story.stalls->what_if.why_not);
    story_close(&job.story);

    job_open(&job, 1, 1);
    job_run(&job, &work);
    CHECK(!job_ask(&job)->known);
    story_close(&job.story);

    job_open(&job, 4, 4); // no collectives
    job_run(&job, &(struct work){.base = 10});
    CHECK(!job_ask(&job)->known);
    CHECK(!job.story.stalls->what_if.why_not);
    story_close(&job.story);

    job_open(&job, 4, 4); // few steps
    job_run(&job, &work);
    story_sql(&job.story, "DELETE FROM recorded_step WHERE idx > 3");
    CHECK(!job_ask(&job)->known);
    story_close(&job.story);
}

TEST(a_restart_leaves_ranks_that_are_there_twice)
{
    struct job job;
    job_open(&job, 4, 4);
    job_run(&job, &(struct work){.base = 10, .spread = 1, .late = 6, .transfer = 1.2});
    int64_t again = story_process(&job.story, "target", 3001, 1000, "python3", "python3 ddp.py");
    story_total(&job.story, story_leader(&job.story, again), STORY_WINDOW_MS * 0.4);
    story_rank(&job.story, 3001, 1, 4);
    CHECK(!job_ask(&job)->known);
    story_close(&job.story);
}

TEST(what_no_clock_can_show)
{
    static const char *const damage[] = {"UPDATE recorded_step SET dur_ns = 0",
            "UPDATE recorded_step SET begin_ns = 1 WHERE idx % 2",
            "UPDATE recording SET threshold_ns = -5000000",
            "UPDATE recording SET threshold_ns = 9000000000000000",
            "UPDATE gap SET waking_ns = out_ns, in_ns = out_ns",
            "UPDATE gap SET out_ns = 1 WHERE id % 9 = 0",
            "UPDATE gap SET in_ns = waking_ns + 4000000000 WHERE id % 7 = 0",
            "UPDATE recorded_step SET rank = 1023 - rank",
            "UPDATE recorded_step SET rank = -7 - rank",
            "UPDATE gap SET thread_id = (SELECT min(thread_id) FROM gap)"};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct job job;
        struct error err = {0};
        struct stalls *stalls = NULL;
        job_open(&job, 4, 4);
        job_run(&job, &(struct work){.base = 10, .spread = 1, .late = 6, .transfer = 1.2});
        story_sql(&job.story, damage[i]);
        // refused in words, or no answer, or one that is sound
        int rc = stalls_analyse(job.story.store, NULL, &stalls, &err);
        CHECK(rc == 0 ? stalls != NULL : err.text[0] != 0);
        const struct stall_what_if *what_if =
                rc == 0 ? &stalls->what_if : &(struct stall_what_if){0};
        CHECK(!what_if->known ||
                (what_if->instant_ns >= 0 && what_if->even_ns >= 0 &&
                        what_if->replayed_ns <= what_if->measured_ns * 1.05));
        stalls_free(stalls);
        story_close(&job.story);
    }
}

TEST(without_steps_all_of_it_is_one)
{
    struct job job;
    job_open(&job, 4, 4);
    double step =
            job_run(&job, &(struct work){.base = 12, .spread = 0.1, .late = 6, .transfer = 1.2});
    story_sql(&job.story, "DELETE FROM recorded_step");
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known && !what_if->by_steps);
    CHECK_DBL(what_if->measured_ns / 1e6, step * (STEPS - 1), step);
    CHECK_DBL((what_if->measured_ns - what_if->without_stragglers_ns) / 1e6, 6 * (STEPS - 1),
            6 * (STEPS - 1) * 0.05);
    story_close(&job.story);
}

TEST(events_that_were_lost_leave_no_answer)
{
    struct job job;
    job_open(&job, 4, 4);
    job_run(&job, &(struct work){.base = 10, .spread = 1, .late = 6, .transfer = 1.2});
    story_sql(&job.story,
            "INSERT INTO ledger (producer, kind, seen, kept, dropped, breach) VALUES ('bpf.gaps', 'records', 1000, 900, 100, 1)");
    CHECK(!job_ask(&job)->known);
    CHECK_INT(job.story.stalls->what_if.why_not, STALL_WHY_NOT_LOST);
    story_close(&job.story);
}

TEST(a_pipeline_over_sockets_is_not_taken_for_collectives)
{
    struct job job; // each waits for its neighbour only, and for another time
    job_open(&job, 4, 4);
    for (int step = 0; step < STEPS; step++) {
        double at = 5 + 20 * step;
        for (int i = 0; i < 4; i++) {
            job_wait(&job, i, at + 2, at + 4 + 4 * i);
            job_step_row(&job, i, step, at, at + 20);
        }
    }
    CHECK(!job_ask(&job)->known);
    CHECK_INT(job.story.stalls->what_if.why_not, STALL_WHY_NOT_APART);
    story_close(&job.story);
}

TEST(a_rank_that_leaves_the_collectives_for_good)
{
    struct job job; // its rows end half way: the others wait for it until the recording ends
    job_open(&job, 4, 4);
    job_run(&job, &(struct work){.base = 10, .spread = 1, .transfer = 1.2});
    char sql[160];
    snprintf(sql, sizeof sql, "DELETE FROM gap WHERE thread_id = %lld AND out_ns > %lld",
            (long long)job.main[2], (long long)story_ns(2000));
    story_sql(&job.story, sql);
    // as if it came last each time: that is what the store says
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known || what_if->why_not);
    story_close(&job.story);
}

TEST(a_clock_that_jumps_ends_in_no_answer_or_in_a_sound_one)
{
    for (int jump = -3000; jump <= 3000; jump += 1500) {
        struct job job;
        char sql[200];
        job_open(&job, 4, 4);
        job_run(&job, &(struct work){.base = 10, .spread = 1, .transfer = 1.2});
        snprintf(sql, sizeof sql,
                "UPDATE gap SET out_ns = out_ns + %d * 1000000, waking_ns = waking_ns + %d * 1000000, in_ns = in_ns + %d * 1000000 "
                "WHERE thread_id = %lld AND out_ns > %lld",
                jump, jump, jump, (long long)job.main[2], (long long)story_ns(3500));
        story_sql(&job.story, sql);
        const struct stall_what_if *what_if = job_ask(&job);
        CHECK(!what_if->known || fabs(what_if->replayed_ns / what_if->measured_ns - 1) <= 0.05);
        CHECK(!what_if->known || what_if->instant_ns > 0);
        story_close(&job.story);
    }
}

// ---- NCCL ----

static void job_nccl(struct job *job, int rank, int peer, const char *function,
        int64_t communicator, int sequence, double begin, double end)
{
    struct error err = {0};
    const int64_t to = peer;
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, peer, sequence, function, "
                    "count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 4, 1, 5)",
                    "iiiiiiiIis", job->process[rank], story_ns(begin), story_ns(begin),
                    story_ns(end), communicator, (int64_t)rank, (int64_t)job->ranks,
                    peer < 0 ? NULL : &to, (int64_t)sequence, function),
            0);
}

TEST(nccl_says_who_came_when)
{
    struct job job;
    job_open(&job, 2, 2);
    for (int step = 0; step < STEPS; step++) {
        double at = 5 + 20 * step;
        for (int i = 0; i < 2; i++) {
            job_nccl(&job, i, -1, "AllReduce", 77, step, at + (i ? 15 : 10), at + 17);
            job_step_row(&job, i, step, at, at + 20);
        }
    }
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known);
    CHECK_DBL(what_if->measured_ns / 1e6, 20, 0.01);
    CHECK_DBL(what_if->replayed_ns / 1e6, 20, 0.01);
    CHECK_DBL(what_if->without_stragglers_ns / 1e6, 15, 0.1);
    CHECK_DBL(what_if->even_ns / 1e6, 17.5, 0.1);
    CHECK_DBL(what_if->instant_ns / 1e6, 18, 0.1);
    story_close(&job.story);
}

static void job_gpus(struct job *job)
{
    for (int i = 0; i < job->ranks; i++) {
        struct error err = {0};
        CHECK_INT(
                store_exec(job->story.store, &err,
                        "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (?, ?, 0, 1, 7)",
                        "ii", (int64_t)i + 1, job->process[i]),
                0);
        CHECK_INT(store_exec(job->story.store, &err,
                          "INSERT INTO gpu_work (id, kind, stream_id) VALUES (?, 0, ?)", "ii",
                          (int64_t)i + 1, (int64_t)i + 1),
                0);
    }
}

static double job_gpu_works(struct job *job, int rank, double begin, double ms)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                    "iii", story_ns(begin), (int64_t)(ms * 1e6), (int64_t)rank + 1),
            0);
    return begin + ms;
}

// Four parts of a backward pass, and behind each its gradients are reduced while the next one runs;
// the optimizer waits for the last.
static double job_overlaps(struct job *job, double slow)
{
    double at[RANKS_MOST], now = 5, second = 0;
    for (int step = 0; step < 250; step++) {
        double free_ms = now, end = 0;
        second = step == 1 ? now : second;
        for (int i = 0; i < job->ranks; i++)
            at[i] = now;
        for (int part = 0; part < 4; part++) {
            double last = 0;
            for (int i = 0; i < job->ranks; i++) {
                at[i] = job_gpu_works(job, i, at[i], 4 * (i == 1 ? slow : 1));
                last = at[i] > last ? at[i] : last;
            }
            last = (last > free_ms ? last : free_ms) + 3.5;
            for (int i = 0; i < job->ranks; i++)
                job_nccl(job, i, -1, "AllReduce", 77, 4 * step + part,
                        at[i] > free_ms ? at[i] : free_ms, last);
            free_ms = last;
        }
        for (int i = 0; i < job->ranks; i++) {
            end = job_gpu_works(job, i, free_ms, 1);
            job_step_row(job, i, step, now, end);
        }
        now = end;
    }
    return (now - second) / 249;
}

TEST(what_stood_in_a_queue_was_ready_before)
{
    struct job job;
    job_open(&job, 4, 4);
    job_gpus(&job);
    // the late rank's four parts, then the last bucket and the optimizer
    CHECK_DBL(job_overlaps(&job, 1.5), 4 * 6 + 3.5 + 1, 1e-6);
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(what_if->known);
    CHECK_DBL(what_if->replayed_ns / 1e6, 28.5, 0.01);
    CHECK_DBL(what_if->without_stragglers_ns / 1e6, 4 * 4 + 3.5 + 1, 0.1);
    CHECK_DBL(what_if->instant_ns / 1e6, 4 * 6 + 1, 0.1); // but for the last bucket it is hidden
    story_close(&job.story);
}

// Stages 0 to 2 hand four batches on and back; stage 2 works twice as long. GPipe: all forward
// passes, then all backward passes.
TEST(stages_of_a_pipeline_are_found_and_balanced)
{
    enum { STAGES = 3, BATCHES = 4, STEP = 24 };
    const double work[STAGES] = {1, 1, 2};
    double longest = 0;
    struct job job;
    job_open(&job, STAGES, STAGES);
    for (int step = 0; step < 300; step++) {
        double at = 5 + STEP * step, free_at[STAGES] = {at, at, at},
               there[BATCHES] = {at, at, at, at};
        for (int way = 0; way < 2; way++)
            for (int batch = 0; batch < BATCHES; batch++)
                for (int i = 0; i < STAGES; i++) {
                    int stage = way ? STAGES - 1 - i : i, next = way ? stage - 1 : stage + 1,
                        before = way ? stage + 1 : stage - 1;
                    double waits = free_at[stage],
                           begins = there[batch] > waits ? there[batch] : waits,
                           sequence = step * 100 + batch;
                    if (before >= 0 && before < STAGES)
                        job_nccl(&job, stage, before, "Recv", 5, (int)sequence, waits, begins);
                    free_at[stage] = there[batch] = begins + work[stage];
                    if (next >= 0 && next < STAGES)
                        job_nccl(&job, stage, next, "Send", 5, (int)sequence, free_at[stage],
                                free_at[stage]);
                    longest = free_at[stage] - at > longest ? free_at[stage] - at : longest;
                }
        for (int i = 0; i < STAGES; i++)
            job_step_row(&job, i, step, at, at + STEP);
    }
    const struct stall_what_if *what_if = job_ask(&job);
    CHECK(longest < STEP);
    CHECK(what_if->known);
    CHECK_DBL(what_if->replayed_ns / what_if->measured_ns, 1, 0.001);
    CHECK(what_if->balanced_ns > 0 && what_if->balanced_ns < what_if->measured_ns);
    CHECK_INT(what_if->stragglers, 0);
    story_close(&job.story);
}

TEST(many_collectives_at_once_and_behind_each_other)
{
    enum { MANY = 20000 };
    // of all that look at each other, 4e8 would be looked at
    for (int at_once = 0; at_once < 2; at_once++) {
        struct job job;
        job_open(&job, 2, 2);
        for (int i = 0; i < MANY; i++)
            for (int rank = 0; rank < 2; rank++) {
                double at = 100 + (at_once ? 0 : i * 0.1);
                job_nccl(&job, rank, -1, "AllReduce", 77, i, at, at_once ? 3000 : at + 0.1);
            }
        const struct stall_what_if *what_if = job_ask(&job);
        CHECK(what_if->known || at_once);
        CHECK(!what_if->known || fabs(what_if->replayed_ns / what_if->measured_ns - 1) < 0.05);
        CHECK(at_once || what_if->instant_ns < what_if->measured_ns * 0.01);
        story_close(&job.story);
    }
}

TEST(a_collective_that_one_rank_never_entered)
{
    struct job job; // each fourth one lacks a member
    job_open(&job, 2, 2);
    for (int step = 0; step < STEPS; step++) {
        double at = 5 + 20 * step;
        for (int i = 0; i < 2; i++) {
            if (i == 0 || step % 4)
                job_nccl(&job, i, -1, "AllReduce", 77, step, at + 10, at + 17);
            job_step_row(&job, i, step, at, at + 20);
        }
    }
    CHECK(!job_ask(&job)->known);
    CHECK(job.story.stalls->what_if.why_not != STALL_WHY_NOT_NOTHING);
    story_close(&job.story);
}
