// SPDX-License-Identifier: Apache-2.0
// Ranks of a job: who comes late, by how much and why; who is named in a clean run (nobody); who
// waits idly; what lies before the first step and behind the last.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/stall_job.h"

TEST(a_rank_that_computes_longer_is_named_with_its_function)
{
    struct job job;
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        job_step(&job, 2, at, compute);
        for (int rank = 0; rank < 2; rank++) // rank 1 is late with its input; when rank 0 waits it
                                             // is in its backward pass
            job_runs(&job, rank, at + rank * 4, at + compute[rank],
                    "backward@/x/tensor.py:5;main@/x/ddp.py:30");
        job_runs(&job, 1, at, at + 4,
                "prepare_features.<locals>.<genexpr>@/x/ddp.py:9;prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_INT(top->ranks, 2);
    CHECK_INT(top->culprit.pid, 2001);
    CHECK(!top->victim.known);
    CHECK_INT(top->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(top->deed.function, "prepare_features (ddp.py)");
    CHECK_DBL((double)top->late_ns, 4e6, 1.1e6);
    CHECK_DBL((double)top->more_ns, 5e6, 0.5e6); // a tick in each step
    CHECK_DBL((double)top->total_ns, 4e6 * STEPS, 1.1e6 * STEPS);
    CHECK_INT(top->count, STEPS);
    CHECK_INT(job.story.stalls->count, 1); // its waits are told once
    CHECK_INT(job.story.stalls->missing_count, 0);
    story_close(&job.story);
}

// A clean run: each step takes each rank 10 ms, give or take 3.
static void job_clean(struct job *job, int count)
{
    for (int i = 0; i < STEPS; i++) {
        double compute[RANKS_MOST];
        for (int rank = 0; rank < count; rank++) {
            compute[rank] = 10 + 6 * (job_random(job) - 0.5);
            job_runs(job, rank, STEP_MS * i, STEP_MS * i + compute[rank], "main@/x/ddp.py:30");
        }
        job_step(job, count, STEP_MS * i, compute);
    }
}

TEST(nobody_is_named_where_each_is_late_now_and_then)
{
    for (unsigned seed = 1; seed <= 6; seed++) {
        struct job job;
        int count = seed % 2 ? 2 : 4;
        job_open(&job, count, count);
        job.seed = seed * 7919;
        job_clean(&job, count);
        story_analyse(&job.story);
        CHECK(story_find(&job.story, "straggler") == NULL);
        CHECK_INT(job.story.stalls->count, 0); // nor is waiting in a collective a stall by itself
        story_close(&job.story);
    }
}

TEST(a_late_rank_is_found_among_noise)
{
    struct job job;
    job_open(&job, 4, 4);
    for (int i = 0; i < STEPS; i++) {
        double compute[4];
        for (int rank = 0; rank < 4; rank++)
            compute[rank] = 9 + 4 * job_random(&job) + (rank == 2 ? 2 : 0);
        job_step(&job, 4, STEP_MS * i, compute);
        for (int rank = 0; rank < 4; rank++)
            job_runs(&job, rank, STEP_MS * i, STEP_MS * i + compute[rank],
                    rank == 2 ? "augment@/x/data.py:3;main@/x/ddp.py:30" : "main@/x/ddp.py:30");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 2);
    CHECK_INT(top->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(top->deed.function, "augment (data.py)");
    CHECK(top->ranks_ns > top->total_ns * 3 / 2); // three waited
    story_close(&job.story);
}

TEST(a_late_rank_behind_a_thousand_others_is_named)
{
    enum { MANY = 1100, LATE = 1060, COLLECTIVES = 48, FIRST = 10000 };
    static struct story story;
    char sql[700];
    story_open_quiet(&story);
    snprintf(sql, sizeof sql,
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO process (id, recording_id, "
            "tgid, start_ns, ppid, comm, cmdline, kind) SELECT %d + i, 1, %d + i, 1, 1, 'python3', 'python3 ddp.py', 'target' FROM n",
            MANY - 1, FIRST, FIRST);
    story_sql(&story, sql);
    snprintf(sql, sizeof sql,
            "INSERT INTO thread (id, process_id, tid, comm) SELECT id, id, tgid, 'python3' FROM process WHERE id >= %d",
            FIRST);
    story_sql(&story, sql);
    snprintf(sql, sizeof sql,
            "INSERT INTO thread_total SELECT id, 1000, 900, 1000000, 8000000000 FROM process WHERE id >= %d",
            FIRST);
    story_sql(&story, sql);
    snprintf(sql, sizeof sql,
            "UPDATE recording SET target = json_object('ranks', json((SELECT json_group_array(json_object('pid', tgid, 'start_ns', "
            "1, 'rank', tgid - %d, 'ranks', %d)) FROM process WHERE id >= %d)))",
            FIRST, MANY, FIRST);
    story_sql(&story, sql);
    snprintf(sql, sizeof sql,
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO nccl_op (process_id, "
            "enqueued_ns, communicator, rank, ranks, sequence, function, count, bytes, plugin_version) SELECT p.id, %lld + i * 200000000 + "
            "p.id %% 7 * 1000 + CASE p.id WHEN %d THEN 5000000 ELSE 0 END, 77, p.id - %d, %d, i, 'AllReduce', 1, 4, 5 FROM n, process p WHERE "
            "p.id >= %d",
            COLLECTIVES - 1, (long long)story_ns(20), FIRST + LATE, FIRST, MANY, FIRST);
    story_sql(&story, sql);
    story_analyse(&story);
    const struct stall *late = story_find(&story, "straggler");
    CHECK(late != NULL);
    if (late) {
        CHECK_INT(late->rank, LATE);
        CHECK_INT(late->ranks, MANY);
        CHECK_DBL((double)late->late_ns, 5e6, 0.1e6);
    }
    story_close(&story);
}

TEST(a_script_in_front_of_a_rank_is_not_the_one_that_is_late)
{
    struct job job;
    job_open(&job, 2, 0);
    for (int i = 0; i < 2; i++) { // the launcher started bash, and bash the program
        char sql[160];
        story_process(&job.story, "target", 3000 + i, 1000, "bash", "bash train.sh");
        snprintf(sql, sizeof sql, "UPDATE process SET ppid = %d WHERE id = %lld", 3000 + i,
                (long long)job.process[i]);
        story_sql(&job.story, sql);
        story_rank(&job.story, 3000 + i, i, 2);
        story_rank(&job.story, 2000 + i, i, 2);
    }
    for (int i = 0; i < STEPS; i++) {
        double compute[] = {10, 14};
        job_step(&job, 2, STEP_MS * i, compute);
        for (int rank = 0; rank < 2; rank++)
            job_runs(&job, rank, STEP_MS * i, STEP_MS * i + compute[rank], "main@/x/ddp.py:30");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_INT(top->ranks, 2);
    CHECK_INT(top->culprit.pid, 2001);
    CHECK_INT(job.story.stalls->missing_count, 0);
    story_close(&job.story);
}

// Ray Train: the main thread serves Ray, another one trains, and a third one of the process is of
// no interest.
static void job_train_in_threads(struct job *job, bool main_waits)
{
    int64_t mains[2];
    job_open(job, 2, 2);
    for (int rank = 0; rank < 2; rank++) {
        mains[rank] = job->main[rank];
        char sql[120];
        snprintf(sql, sizeof sql, "UPDATE thread_total SET run_ns = %d WHERE thread_id = %lld",
                main_waits ? 2000000000 : 20000000, (long long)mains[rank]);
        story_sql(&job->story, sql);
        job->main[rank] = story_thread(&job->story, job->process[rank], 2100 + rank, "train");
        story_total(&job->story, job->main[rank], STORY_WINDOW_MS * 0.5);
    }
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        for (int rank = 0; rank < 2; rank++)
            job_runs(job, rank, at, at + compute[rank],
                    rank ? "prepare@/x/ray.py:9;loop@/x/ray.py:3" : "loop@/x/ray.py:3");
        job_step(job, 2, at, compute);
    }
    for (int rank = 0; rank < 2 && main_waits; rank++) {
        job->main[rank] = mains[rank];
        for (int i = 0; i < STEPS; i++)
            job_wait(job, rank, STEP_MS * i + 10, STEP_MS * i + 12);
    }
}

TEST(ranks_that_train_in_another_thread_than_the_first)
{
    struct job job;
    job_train_in_threads(&job, false);
    const struct stall *late = (story_analyse(&job.story), story_find(&job.story, "straggler"));
    CHECK(late != NULL);
    CHECK_INT(late->rank, 1);
    CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(late->deed.function, "prepare (ray.py)");
    CHECK_DBL((double)late->late_ns, 4e6, 1.1e6);
    story_close(&job.story);
    job_train_in_threads(&job,
            true); // main threads that wait for each other are the ranks, whatever a helper does
    story_analyse(&job.story);
    CHECK(story_find(&job.story, "straggler") == NULL);
    story_close(&job.story);
}

TEST(a_rank_that_waits_for_a_disk)
{
    struct job job;
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        job_step(&job, 2, at, compute);
        story_gap(&job.story,
                (struct story_gap){.thread = job.main[1],
                        .out = at,
                        .waking = at + 4,
                        .in = at + 4.05,
                        .state = 2,
                        .kernel =
                                "io_schedule;folio_wait_bit_common;filemap_read;vfs_read" STORY_SYSCALL,
                        .waker_stack = STORY_DISK_DONE,
                        .waker = job.story.idle_task,
                        .python = "read_shard@/x/ddp.py:14;main@/x/ddp.py:24"});
    }
    story_analyse(&job.story);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL);
    CHECK_INT(late->rank, 1);
    CHECK_INT(late->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(late->deed.cause, "disk_read");
    CHECK_STR(late->deed.function, "read_shard (ddp.py)");
    story_close(&job.story);
}

TEST(reads_that_each_wait_less_than_is_recorded)
{
    struct job job; // twenty reads of 0.2 ms in each step, of which one in eight ticks of waiting
                    // is in the store
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        job_step(&job, 2, at, compute);
        for (int rank = 0; rank < 2; rank++)
            job_runs(&job, rank, at + rank * 4, at + compute[rank], "main@/x/ddp.py:30");
        if (i % 10 == 5) // 4 ms a step
            story_gap(&job.story,
                    (struct story_gap){.thread = job.main[1],
                            .out = at + 1,
                            .waking = at + 1.2,
                            .in = at + 1.21,
                            .state = 2,
                            .flags = UG_GAP_SHORT | UG_GAP_IOWAIT,
                            .kernel = "io_schedule;blkdev_direct_IO;vfs_read" STORY_SYSCALL,
                            .waker_stack = STORY_DISK_DONE,
                            .waker = job.story.idle_task,
                            .python = "read_shard@/x/ddp.py:14;main@/x/ddp.py:24"});
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_INT(top->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(top->deed.cause, "disk_read");
    CHECK_STR(top->deed.function, "read_shard (ddp.py)");
    CHECK_DBL((double)top->more_ns, 4e6, 0.5e6);
    CHECK_INT(job.story.stalls->count, 1); // they are samples, and no stalls
    story_close(&job.story);
}

// Rank 1 loses 2 ms of each step to somebody on its CPU: to one process, or each time to another
// one.
static void job_beside(struct job *job, bool stays)
{
    int64_t other = 0;
    job_open(job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 12};
        if (!i || (!stays && i % 10 == 0))
            other = story_other(&job->story, 5000 + i, "cc1", "cc1 -O2");
        job_step(job, 2, at, compute);
        for (int rank = 0; rank < 2; rank++)
            job_runs(job, rank, at, at + 10, "main@/x/ddp.py:30");
        story_gap(&job->story,
                (struct story_gap){.thread = job->main[1],
                        .out = at + 10,
                        .in = at + 12,
                        .flags = UG_GAP_PREEMPTED,
                        .next = other,
                        .before = other,
                        .python = "main@/x/ddp.py:30"});
    }
    story_analyse(&job->story);
}

TEST(a_neighbour_who_stays_makes_a_straggler_and_passers_by_do_not)
{
    struct job job;
    job_beside(&job, false);
    CHECK(story_find(&job.story, "straggler") == NULL);
    story_close(&job.story);
    job_beside(&job, true);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL);
    CHECK_INT(late->rank, 1);
    CHECK_INT(late->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(late->deed.cause, "cpu_contention");
    CHECK_STR(late->deed.function, "main (ddp.py)");
    CHECK_INT(late->chain_count, 2);
    CHECK_INT(late->chain[1].to.pid, 5000);
    story_close(&job.story);
}

// Ranks `from` and from + 1 share a CPU and take turns of 2.5 ms on it, the others have one each.
// Who begins changes every `turns` steps.
static void job_shared(struct job *job, int count, int from, int turns)
{
    job_open(job, count, count);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[RANKS_MOST] = {5, 5, 5, 5};
        int first = from + (i / turns) % 2, second = from + from + 1 - first;
        compute[first] = 7.5;
        compute[second] = 10;
        job_step(job, count, at, compute);
        const double off[3][2] = {{2.5, 5}, {0, 2.5}, {5, 7.5}};
        for (int k = 0; k < 3; k++)
            story_gap(&job->story,
                    (struct story_gap){.thread = job->main[k ? second : first],
                            .out = at + off[k][0],
                            .in = at + off[k][1],
                            .flags = UG_GAP_PREEMPTED,
                            .next = job->main[k ? first : second],
                            .before = job->main[k ? first : second],
                            .python = "main@/x/ddp.py:30"});
        for (int rank = 0; rank < count; rank++)
            job_runs(job, rank, at, at + 5, "main@/x/ddp.py:30");
    }
    story_analyse(&job->story);
}

TEST(two_ranks_on_one_cpu_take_turns_and_none_is_late)
{
    struct job job; // always the same one goes second
    job_shared(&job, 2, 0, STEPS);
    CHECK(story_find(&job.story, "straggler") == NULL);
    CHECK_STR(story_top(&job.story)->cause, "cpu_contention");
    story_close(&job.story);
}

TEST(two_ranks_on_each_cpu_take_turns_and_none_is_late)
{
    // always the same one of each pair goes second; who of those two is last changes
    struct job job;
    job_open(&job, 4, 4);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[RANKS_MOST] = {7.5, 10, 7.5, 10};
        compute[i % 2 ? 1 : 3] += 0.2;
        compute[i % 2 ? 0 : 2] -= 0.1;
        job_step(&job, 4, at, compute);
        const double off[3][2] = {{2.5, 5}, {0, 2.5}, {5, 7.3}};
        for (int pair = 0; pair < 4; pair += 2)
            for (int k = 0; k < 3; k++)
                story_gap(&job.story,
                        (struct story_gap){.thread = job.main[pair + !!k],
                                .out = at + off[k][0],
                                .in = at + off[k][1],
                                .flags = UG_GAP_PREEMPTED,
                                .next = job.main[pair + !k],
                                .before = job.main[pair + !k],
                                .python = "main@/x/ddp.py:30"});
        for (int rank = 0; rank < 4; rank++)
            job_runs(&job, rank, at, at + 5, "main@/x/ddp.py:30");
    }
    story_analyse(&job.story);
    CHECK(story_find(&job.story, "straggler") == NULL);
    story_close(&job.story);
}

TEST(two_of_four_ranks_on_one_cpu_are_late)
{
    struct job job;
    job_shared(&job, 4, 2, 1);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL);
    CHECK(late->rank == 2 || late->rank == 3);
    CHECK_INT(late->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(late->deed.cause, "cpu_contention");
    CHECK_STR(late->deed.function, "main (ddp.py)");
    story_close(&job.story);
}

// A machine on which each ms on the CPU takes three, and ranks that sleep alike: rank 1 does a tick
// more.
static void job_crowded(struct job *job, const char *more, const char *user)
{
    enum { LONG_MS = 100 };
    job_open(job, 2, 2);
    for (int i = 0; i < STORY_WINDOW_MS / LONG_MS; i++) {
        double at = LONG_MS * i;
        int64_t other = i % 4 ? 0 : story_other(&job->story, 5000 + i, "cc1", "cc1 -O2");
        for (int rank = 0; rank < 2; rank++) {
            double ran = rank ? 10 : 5, sleeps = at + 3 * ran;
            job_runs(job, rank, at + ran - 5, at + ran, "main@/x/ddp.py:30");
            story_gap(&job->story,
                    (struct story_gap){.thread = job->main[rank],
                            .out = at + ran,
                            .in = sleeps,
                            .flags = UG_GAP_PREEMPTED,
                            .next = other,
                            .python = rank ? more : "main@/x/ddp.py:30"});
            story_gap(&job->story,
                    (struct story_gap){.thread = job->main[rank],
                            .out = sleeps,
                            .waking = sleeps + 50,
                            .in = sleeps + 50.01,
                            .state = 1,
                            .kernel = "schedule;do_nanosleep;hrtimer_nanosleep" STORY_SYSCALL,
                            .waker_stack = STORY_TIMER,
                            .python = "main@/x/ddp.py:31"});
        }
        story_samples(&job->story,
                (struct story_samples){.thread = job->main[1],
                        .from = at,
                        .to = at + 5,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .user = user,
                        .python = more});
        job_wait(job, 0, at + 65, at + 80.5);
    }
}

TEST(what_makes_a_rank_late_on_a_crowded_machine)
{
    struct job job;
    job_crowded(&job, "[gc];collect@/x/ddp.py:9;main@/x/ddp.py:29",
            "deduce_unreachable;gc_collect_main");
    CHECK_STR(story_top(&job.story)->cause, "straggler");
    CHECK_INT(story_top(&job.story)->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(story_top(&job.story)->deed.cause, "python_gc");
    CHECK_STR(story_top(&job.story)->deed.function, "collect (ddp.py)");
    story_close(&job.story);
    job_crowded(&job, "main@/x/ddp.py:29", NULL);
    CHECK_INT(story_top(&job.story)->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(story_top(&job.story)->deed.function, "main (ddp.py)");
    story_close(&job.story);
}

TEST(a_rank_whose_messages_come_late)
{
    struct job job; // outside of collectives the ranks do the same; in them rank 1 goes on before
                    // it waits again
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i;
        for (int rank = 0; rank < 2; rank++)
            job_runs(&job, rank, at, at + 10, "main@/x/ddp.py:30");
        job_wait(&job, 0, at + 10, at + 15);
        job_wait(&job, 1, at + 10, at + 12);
        job_wait(&job, 1, at + 12.4, at + 15);
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_INT(top->deed.kind, STALL_DEED_MESSAGES);
    CHECK_INT(top->doubts, STALL_DOUBT_UNSEEN);
    story_close(&job.story);
}

// --- a link of many ------------------------------------------------------------------------------

enum {
    RING_STEP_MS = 40,
    RING_LOOKS = 25,
    RING_ROW_MS = 500,
    RING_ROWS = STORY_WINDOW_MS / RING_ROW_MS
};

// So many MB went from one rank to the other, all the time alike, or all that was under way in the
// first row only.
static void ring_sends(
        struct job *job, int from, int to, double megabytes, double underway, bool at_once)
{
    struct error err = {0};
    for (int i = 0; i < RING_ROWS; i++) {
        double before = RING_LOOKS * underway * i, behind = RING_LOOKS * underway * (i + 1);
        int64_t under = (int64_t)(behind + 1e-9) - (int64_t)(before + 1e-9);
        if (at_once)
            under = i ? 0 : (int64_t)(RING_LOOKS * underway * RING_ROWS + 1e-9);
        CHECK_INT(
                store_exec(job->story.store, &err,
                        "INSERT INTO connection VALUES (?, ?, '10.0.0.1:1', '10.0.0.2:2', ?, ?, ?, 3, ?, ?)",
                        "iiiiiii", job->process[from], job->process[to], story_ns(RING_ROW_MS * i),
                        story_ns(RING_ROW_MS * (i + 1)), (int64_t)(megabytes * 1e6 / RING_ROWS),
                        (int64_t)RING_LOOKS, under),
                0);
    }
}

// All ranks do the same for 10 ms and wait together for wait_ms in each step. Each sends 8 MB to
// the next one, and to the one before that it is ready: of these something is under way for usual
// of the time.
static void ring_open_ways(struct job *job, int count, double wait_ms, double usual, bool back)
{
    job_open(job, count, count);
    for (int at = 0; at < STORY_WINDOW_MS; at += RING_STEP_MS)
        for (int rank = 0; rank < count; rank++) {
            job_runs(job, rank, at, at + 10, "main@/x/ddp.py:30");
            job_wait(job, rank, at + 10, at + 10 + wait_ms);
        }
    for (int rank = 0; rank < count; rank++) {
        ring_sends(job, rank, (rank + 1) % count, 8, usual, false);
        if (back)
            ring_sends(job, (rank + 1) % count, rank, 0.05, usual / 2, false);
    }
}

static void ring_open(struct job *job, int count, double wait_ms, double usual)
{
    ring_open_ways(job, count, wait_ms, usual, true);
}

TEST(the_slow_link_of_one_rank_of_many)
{
    for (int count = 3; count <= 8; count += count == 3 ? 1 : 4) {
        struct job job;
        int late = count - 1;
        ring_open(&job, count, 5, 0.002);
        ring_sends(&job, late, 0, 8, 0.1, false); // another connection of the two
        // its word that it is ready stands in the same queue
        ring_sends(&job, late, late - 1, 0.05, 0.03, false);
        const struct stall *top = story_top(&job.story);
        CHECK_STR(top->cause, "straggler");
        CHECK_INT(top->rank, late);
        CHECK_INT(top->ranks, count);
        CHECK_INT(top->culprit.pid, 2000 + late);
        CHECK_INT(top->deed.kind, STALL_DEED_SENDS);
        CHECK_INT(top->deed.peer_rank, 0);
        CHECK(top->deed.bits_per_s > 0);
        CHECK_DBL(top->deed.retransmits, 120, 0.5);
        // 10 % of 10 s, without what the others need
        CHECK_DBL((double)top->total_ns, 0.98e9, 0.03e9);
        CHECK_INT(job.story.stalls->count, 1);
        CHECK_INT(job.story.stalls->heat.blocks, 0); // who is waited for in a ring tells nothing
        story_close(&job.story);
    }
}

// Their waits tell whose messages they are; what the connections say changes nothing.
TEST(of_two_ranks_connections_are_not_asked)
{
    struct job job;
    job_open(&job, 2, 2);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i;
        for (int rank = 0; rank < 2; rank++)
            job_runs(&job, rank, at, at + 10, "main@/x/ddp.py:30");
        job_wait(&job, 0, at + 10, at + 15);
        job_wait(&job, 1, at + 10, at + 12);
        job_wait(&job, 1, at + 12.4, at + 15);
    }
    ring_sends(&job, 0, 1, 8, 0.2, false);
    ring_sends(&job, 1, 0, 8, 0.002, false);
    CHECK_INT(story_top(&job.story)->rank, 1);
    CHECK_INT(story_top(&job.story)->deed.kind, STALL_DEED_MESSAGES);
    story_close(&job.story);
}

TEST(the_slow_link_of_one_rank_that_receives)
{
    struct job job;
    ring_open(&job, 4, 5, 0.002);
    ring_sends(&job, 1, 2, 8, 0.1, false);
    ring_sends(&job, 3, 2, 0.05, 0.03, false);
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 2);
    CHECK_INT(top->deed.kind, STALL_DEED_RECEIVES);
    CHECK_INT(top->deed.peer_rank, 1);
    story_close(&job.story);
}

// A cable that is bad both ways.
TEST(the_slow_link_of_one_rank_both_ways)
{
    struct job job;
    ring_open(&job, 4, 5, 0.002);
    for (int other = 0; other < 4; other++)
        if (other != 2) {
            ring_sends(&job, 2, other, 4, other == 3 ? 0.08 : 0.03, false);
            ring_sends(&job, other, 2, 4, other == 1 ? 0.07 : 0.03, false);
        }
    CHECK_STR(story_top(&job.story)->cause, "straggler");
    CHECK_INT(story_top(&job.story)->rank, 2);
    story_close(&job.story);
}

static void check_nobody(struct job *job)
{
    story_analyse(&job->story);
    CHECK(story_find(&job->story, "straggler") == NULL);
    story_close(&job->story);
}

TEST(nobody_is_named_for_the_network_of_all)
{
    // few bytes back, which take long for what they are, or none
    for (int back = 0; back < 2; back++) {
        struct job job;
        ring_open_ways(&job, 4, 5, 0.1, back);
        check_nobody(&job);
        ring_open_ways(&job, 4, 5, 0.06, back); // some a bit more than others
        ring_sends(&job, 3, 0, 0.1, 0.03, false);
        check_nobody(&job);
    }
}

TEST(nobody_is_named_for_sending_more)
{
    for (int back = 0; back < 2; back++) {
        struct job job;
        ring_open_ways(&job, 4, 8, 0.02, back);
        ring_sends(&job, 3, 0, 72, 0.18, false);
        check_nobody(&job);
        ring_open_ways(&job, 4, 8, 0.02, back); // for as long, and no more bytes: it is the link
        ring_sends(&job, 3, 0, 0.1, 0.18, false);
        CHECK_INT(story_top(&job.story)->rank, 3);
        story_close(&job.story);
    }
}

TEST(nobody_is_named_for_what_nobody_waits_for)
{
    struct job job; // a copy beside the work
    ring_open(&job, 4, 1.5, 0.002);
    ring_sends(&job, 3, 0, 8, 0.1, false);
    check_nobody(&job);
}

TEST(nobody_is_named_for_one_moment)
{
    struct job job;
    ring_open(&job, 4, 5, 0.002);
    ring_sends(&job, 3, 0, 8, 0.05, true);
    check_nobody(&job);
}

TEST(nobody_is_named_for_a_wait_that_is_short)
{
    struct job job;
    ring_open(&job, 4, 5, 0.001);
    ring_sends(&job, 3, 0, 8, 0.009, false); // below 1 % of the time
    check_nobody(&job);
}

// Who is late by itself is named, and not the link that is slow as well.
TEST(a_cause_of_its_own_stands_before_the_network)
{
    struct job job;
    job_open(&job, 4, 4);
    for (int i = 0; i < STEPS; i++) {
        double compute[] = {10, 10, 14, 10};
        job_step(&job, 4, STEP_MS * i, compute);
        for (int rank = 0; rank < 4; rank++)
            job_runs(&job, rank, STEP_MS * i, STEP_MS * i + compute[rank],
                    rank == 2 ? "augment@/x/data.py:3;main@/x/ddp.py:30" : "main@/x/ddp.py:30");
    }
    for (int rank = 0; rank < 4; rank++)
        ring_sends(&job, rank, (rank + 1) % 4, 8, rank == 3 ? 0.1 : 0.002, false);
    CHECK_STR(story_top(&job.story)->cause, "straggler");
    CHECK_INT(story_top(&job.story)->rank, 2);
    CHECK_INT(story_top(&job.story)->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(story_top(&job.story)->deed.function, "augment (data.py)");
    story_close(&job.story);
}

// A ring of many ranks lets go one after the other. Who is first waits in the next collective
// before the last one has left this one, in which its own wait was too short to be recorded: it
// looks as if it came when it begins to wait again.
TEST(a_rank_that_is_let_go_first_is_not_late)
{
    struct job job;
    job_open(&job, 4, 4);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i;
        for (int rank = 0; rank < 4; rank++) {
            job_runs(&job, rank, at, at + 10, "main@/x/ddp.py:30");
            if (rank == 1)
                job_wait(&job, 1, at + 11.3, at + 12.5); // since 10 it had waited 0.95 ms
            else
                job_wait(&job, rank, at + 10, at + 11.5);
        }
    }
    story_analyse(&job.story);
    CHECK(story_find(&job.story, "straggler") == NULL);
    CHECK_INT(job.story.stalls->heat.blocks, 0);
    story_close(&job.story);
}

TEST(an_agent_beside_one_rank_is_the_end_of_one_chain)
{
    struct job job; // ten times in the window, 60 ms each: evidence by itself, without statistics
    job_open(&job, 2, 2);
    int64_t usual = story_other(&job.story, 3000, "python3", "python3 agent.py --pid 2001");
    // the longest of all, and not whom to blame
    int64_t once = story_other(&job.story, 3001, "ps", "ps --once");
    for (int i = 0; i < 10; i++) {
        double at = 200 + 970 * i, ms = i == 4 ? 75 : 60;
        int64_t agent = i == 4 ? once : usual;
        story_gap(&job.story,
                (struct story_gap){.thread = job.main[1],
                        .out = at,
                        .waking = at + ms,
                        .in = at + ms + 0.1,
                        .state = 2,
                        .kernel = STORY_MMAP_WAIT,
                        .waker = agent,
                        .waker_stack = STORY_SMAPS_UNLOCK,
                        .owner = agent,
                        .flags = UG_GAP_OWNER_READER,
                        .lock_kind = UG_LOCK_MMAP,
                        .lock = 0x1000,
                        .python = "stage@/x/ddp.py:18;main@/x/ddp.py:24"});
        story_samples(&job.story,
                (struct story_samples){.thread = agent,
                        .from = at - 3,
                        .to = at + ms - 1,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = STORY_SMAPS});
        job_wait(&job, 0, at + 6, at + ms + 6);
    }
    for (int i = 0; i < 12; i++) // waits for the other rank, which are no stalls: they are taken
                                 // out, and what is known of the others must not slip
        story_gap(&job.story,
                (struct story_gap){.thread = job.main[1],
                        .out = 5 + 15 * i,
                        .waking = 17 + 15 * i,
                        .in = 17.1 + 15 * i,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = JOB_WAIT,
                        .waker = job.main[0]});
    for (int i = 0; i < 20; i++) { // later and short
        double at = 9100 + 30 * i;
        story_gap(&job.story,
                (struct story_gap){.thread = job.main[1],
                        .out = at,
                        .waking = at + 4,
                        .in = at + 4.1,
                        .state = 2,
                        .kernel = STORY_MMAP_WAIT,
                        .waker = once,
                        .waker_stack = STORY_SMAPS_UNLOCK,
                        .owner = once,
                        .flags = UG_GAP_OWNER_READER,
                        .lock_kind = UG_LOCK_MMAP,
                        .lock = 0x1000});
    }
    story_analyse(&job.story);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL);
    CHECK_INT(late->rank, 1);
    CHECK_INT(late->chain_count, 2);
    CHECK_INT(late->chain[0].from.pid, 2000);
    CHECK_INT(late->chain[0].to.pid, 2001);
    CHECK_INT(late->chain[1].to.pid, 3000);
    CHECK_STR(late->late_by.cmdline, "python3 agent.py --pid 2001");
    CHECK_STR(story_find(&job.story, "smaps_read")->culprit.cmdline, "python3 agent.py --pid 2001");
    story_close(&job.story);
}

TEST(an_agent_whose_lock_is_waited_for_in_short_sleeps)
{
    struct job job; // 4 ms a step in sleeps below the threshold: one row of the lock; a tick hits
                    // its holder in four of five
    job_open(&job, 2, 2);
    int64_t agent = story_other(&job.story, 3000, "python3", "python3 agent.py --pid 2001");
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, compute[] = {10, 14};
        job_step(&job, 2, at, compute);
        for (int rank = 0; rank < 2; rank++)
            job_runs(&job, rank, at + rank * 4, at + compute[rank], "main@/x/ddp.py:30");
        story_lock(&job.story,
                (struct story_lock){.thread = job.main[1],
                        .begin = at,
                        .end = at + 4,
                        .kind = UG_LOCK_MMAP,
                        .owner = agent,
                        .reader = true,
                        .kernel = STORY_MMAP_WAIT});
        if (i % 5)
            story_samples(&job.story,
                    (struct story_samples){.thread = agent,
                            .from = at + 1,
                            .to = at + 2,
                            .why = UG_SAMPLE_OWNER,
                            .kernel = STORY_SMAPS,
                            .cpu = 1});
        if (i % 10 == 5)
            story_gap(&job.story,
                    (struct story_gap){.thread = job.main[1],
                            .out = at + 1,
                            .waking = at + 1.4,
                            .in = at + 1.41,
                            .state = 2,
                            .flags = UG_GAP_SHORT,
                            .kernel = STORY_MMAP_WAIT,
                            .lock_kind = UG_LOCK_MMAP,
                            .waker = agent});
    }
    story_analyse(&job.story);
    const struct stall *late = story_find(&job.story, "straggler");
    CHECK(late != NULL);
    CHECK_INT(late->rank, 1);
    CHECK_INT(late->deed.kind, STALL_DEED_CAUSE);
    CHECK_STR(late->deed.cause, "smaps_read");
    CHECK(!late->deed.function);
    CHECK_INT(late->chain_count, 2);
    CHECK_INT(late->chain[1].to.pid, 3000);
    story_close(&job.story);
}

TEST(ranks_that_were_not_recorded_are_named_as_missing)
{
    struct job job;
    job_open(&job, 2, 4);
    job_clean(&job, 2);
    story_analyse(&job.story);
    CHECK_INT(job.story.stalls->missing_count, 1);
    const struct stall_missing *missing = &job.story.stalls->missing[0];
    CHECK_INT(missing->kind, STALL_MISSING_RANKS);
    CHECK_INT(missing->of, 4);
    CHECK(missing->count == 2 && missing->ranks[0] == 2 && missing->ranks[1] == 3);
    story_close(&job.story);
}

// ---- nobody is accused for waiting idly ----

// An idle wait of 5 s in a futex, and the number behind it, which is the tid of a kernel thread by
// chance.
static void idle_wait(struct story *story, int64_t thread, int64_t kworker, const char *user)
{
    story_total(story, thread, 900);
    for (int i = 0; i < 2; i++)
        story_gap(story,
                (struct story_gap){.thread = thread,
                        .out = 10 + 5000 * i,
                        .waking = 4900 + 5000 * i,
                        .in = 4901 + 5000 * i,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = user,
                        .owner = kworker,
                        .flags = UG_GAP_OWNER_FUTEX,
                        .waker = kworker,
                        .waker_stack = STORY_FUTEX_WAKE});
}

TEST(threads_of_ours_are_never_victims)
{
    struct story story;
    story_open(&story);
    int64_t kworker = story_other(&story, 97, "kworker/13:2", NULL);
    idle_wait(&story, story_thread(&story, story.process, 1007, "upgate-inject"), kworker,
            "syscall|libc.so.6;inject_futex_wait|libupgate_inject.so;control_run|libupgate_inject.so;start_thread|libc.so.6;clone3|libc.so.6");
    CHECK_STR(story_top(&story)->cause, "(none)");
    CHECK_INT(story.stalls->target_threads, 2);
    story_close(&story);
}

TEST(threads_of_ours_where_the_c_library_has_no_names)
{
    struct story story;
    story_open(&story);
    int64_t kworker = story_other(&story, 97, "kworker/13:2", NULL);
    idle_wait(&story, story_thread(&story, story.process, 1007, "python3"), kworker,
            "libc.so.6+0x98e51|libc.so.6;python_run|libupgate_inject.so;libc.so.6+0x9cb83|libc.so.6;libc.so.6+0x129ecb|libc.so.6");
    CHECK_STR(story_top(&story)->cause, "(none)");
    CHECK_INT(story.stalls->target_threads, 2);
    story_close(&story);
}

TEST(a_number_that_is_no_owner_accuses_nobody)
{
    struct story story; // a thread of the program, whose futex is no mutex
    story_open(&story);
    int64_t kworker = story_other(&story, 97, "kworker/13:2", NULL);
    idle_wait(&story, story_thread(&story, story.process, 1007, "upgate-inject"), kworker,
            "syscall|libc.so.6;park|libservice.so;start_thread|libc.so.6");
    story_check_innocent(&story);
    CHECK_INT(story.stalls->target_threads, 3); // it bears our name and is not ours
    story_close(&story);
}

TEST(a_mutex_without_an_owner_has_no_culprit)
{
    struct story story;
    story_open(&story);
    int64_t kworker = story_other(&story, 97, "kworker/13:2", NULL);
    for (int i = 0; i < 40; i++)
        story_gap(&story,
                (struct story_gap){.out = 10 + 200 * i,
                        .waking = 90 + 200 * i,
                        .in = 90.1 + 200 * i,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "__lll_lock_wait;pthread_mutex_lock;work",
                        .waker = kworker,
                        .waker_stack = "wake_up_q;queue_work"});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "pthread_mutex");
    CHECK(!top->culprit.known);
    CHECK(top->doubts & STALL_DOUBT_NO_OWNER);
    story_close(&story);
}

TEST(a_pool_without_work_is_idle_and_one_that_is_needed_is_not)
{
    for (int needed = 0; needed < 2; needed++) {
        struct story story;
        story_open(&story);
        int64_t pool = story_thread(&story, story.process, 1008, "pool"),
                third = story_thread(&story, story.process, 1009, "third");
        story_total(&story, pool, 2000);
        for (int i = 0; i < 40; i++) {
            double at = 10 + 200 * i;
            story_gap(&story,
                    (struct story_gap){.thread = pool,
                            .out = at,
                            .waking = at + 100,
                            .in = at + 100.1,
                            .state = 1,
                            .kernel = STORY_FUTEX_WAIT,
                            .user = "pthread_cond_wait;worker",
                            .waker = third,
                            .waker_stack = STORY_FUTEX_WAKE});
            if (needed) // the main thread waits for what the pool does
                story_gap(&story,
                        (struct story_gap){.out = at,
                                .waking = at + 101,
                                .in = at + 101.1,
                                .state = 1,
                                .kernel = STORY_FUTEX_WAIT,
                                .user = "pthread_cond_wait;join",
                                .waker = pool,
                                .waker_stack = STORY_FUTEX_WAKE});
        }
        // The main thread works on when it does not wait.
        story_samples(&story, (struct story_samples){.from = 0, .to = 9900, .every = 25});
        story_analyse(&story);
        const struct stall *late = story_find(&story, "futex_wait");
        CHECK_INT(late != NULL, needed);
        if (needed) {
            CHECK_INT(late->victim.tid, 1008);
            CHECK_INT(late->culprit.tid, 1009);
        }
        story_close(&story);
    }
}

// ---- start-up and exit ----

static void gc_of(struct story *story, double from, double to)
{
    story_samples(story,
            (struct story_samples){.from = from,
                    .to = to,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                    .user = "deduce_unreachable;gc_collect_main",
                    .python = "[gc];load@/x/train.py:3"});
}

TEST(what_happens_before_the_first_step_stands_apart)
{
    struct story story;
    story_open(&story);
    story_sql(&story, "UPDATE recording SET target = '{\"command\": [\"python3\", \"train.py\"]}'");
    gc_of(&story, 500, 3500);
    gc_of(&story, 9000, 9800);
    gc_of(&story, 6000, 6200);
    story_sql(&story,
            "UPDATE process SET ended_ns = (SELECT end_ns FROM recording) - 1000000 WHERE tgid = 1000");
    for (int i = 0; i < 80; i++)
        story_step(&story, i, 4000 + 50 * i, 49);
    story_analyse(&story);
    const struct stalls *stalls = story.stalls;
    CHECK_DBL((double)stalls->startup_ns, 4000e6, 1e6);
    CHECK_DBL((double)stalls->exit_ns, 2001e6, 1e6);
    CHECK_DBL((double)stalls->window_ns, 3999e6, 2e6);
    CHECK(stalls->by_steps);
    CHECK_INT(stalls->count, 1);
    CHECK_STR(stalls->stalls[0].cause, "python_gc");
    CHECK_DBL((double)stalls->stalls[0].total_ns, 200e6, 12e6);
    CHECK_INT(stalls->outside_count, 1);
    CHECK_DBL((double)stalls->outside[0].total_ns, 3800e6, 40e6);
    story_close(&story);
}

// Two H100s, NCCL's records missing: six waits at a barrier of the set-up made 258 ms of work of 25
// s.
TEST(a_few_waits_of_ranks_are_no_borders)
{
    const double uneven[] = {10, 13};
    for (int few = 0; few < 2; few++) {
        struct job job;
        job_open(&job, 2, 2);
        story_sql(&job.story,
                "UPDATE recording SET target = json_set(target, '$.command', json_array('python3', 'ddp.py'))");
        for (int i = 0; i < (few ? 6 : 60); i++)
            job_step(&job, 2, 4000 + STEP_MS * i, uneven);
        story_analyse(&job.story);
        CHECK_INT(job.story.stalls->startup_ns > 0, !few);
        story_close(&job.story);
    }
}

TEST(a_live_program_has_no_start_up)
{
    struct story story; // attached to: its first step is one of many
    story_open(&story);
    gc_of(&story, 500, 700);
    for (int i = 0; i < 8; i++)
        story_step(&story, i, 2000 + 1000 * i, 999);
    story_analyse(&story);
    CHECK_INT(story.stalls->startup_ns, 0);
    CHECK_INT(story.stalls->outside_count, 0);
    CHECK_INT(story.stalls->window_ns, STORY_WINDOW_MS * 1000000LL);
    story_close(&story);
}
