// SPDX-License-Identifier: Apache-2.0
// Ranks of a job over NCCL: who comes late by what NCCL and their GPUs tell, why, and what their waits cost.
#include <stdio.h>

#include "tests/unit/stall_job.h"

// A kernel on the rank's GPU, of those whose rows job_gpus made: 1 or 2.
static void job_kernel(struct job *job, int rank, int kernel, double at, double ms)
{
    struct error err = {0};
    CHECK_INT(store_exec(job->story.store, &err, "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)", "iii",
                         story_ns(at), (int64_t)(ms * 1e6), (int64_t)(2 * rank + kernel)), 0);
}

static void job_calls(struct job *job, const char *function, int rank, int sequence, double enqueued, double begin)
{
    struct error err = {0};
    CHECK_INT(store_exec(job->story.store, &err,
                         "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, communicator, rank, ranks, sequence, function, count, "
                         "bytes, channels, plugin_version) VALUES (?, ?, ?, 77, ?, 2, ?, ?, 1, 4, 1, 5)",
                         "iiiiis", job->process[rank], story_ns(enqueued), story_ns(begin), (int64_t)rank, (int64_t)sequence, function), 0);
}

static void job_collective(struct job *job, int rank, int sequence, double enqueued, double begin)
{
    job_calls(job, "AllReduce", rank, sequence, enqueued, begin);
}

static void job_gpus(struct job *job)
{
    story_sql(&job->story, "INSERT INTO string (id, text) VALUES (900, '_Z4gemm'), (901, '_Z3sin')");
    story_sql(&job->story, "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
                           "static_shared_bytes, dynamic_shared_bytes, local_bytes) VALUES (1, 900, 'void gemm<float>(float*)', 1, 1, 1, 1, 1, 1, "
                           "1, 0, 0, 0), (2, 901, 'void at::native::vectorized_elementwise_kernel<4, at::native::sin_kernel_cuda(at::TensorIteratorBase&)"
                           "::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)', 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)");
    for (int rank = 0; rank < 2; rank++) {
        char sql[400];
        snprintf(sql, sizeof sql, "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (%d, %lld, 0, 1, 7)", rank + 1,
                 (long long)job->process[rank]);
        story_sql(&job->story, sql);
        for (int kernel = 1; kernel <= 2; kernel++) {
            snprintf(sql, sizeof sql, "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) VALUES (%d, 0, %d, %d)", 2 * rank + kernel, rank + 1,
                     kernel);
            story_sql(&job->story, sql);
        }
    }
}

TEST(ranks_by_nccl)
{
    struct job job; // no waits on the host at all: NCCL's rows say when each rank came
    job_open(&job, 2, 0);
    for (int i = 0; i < STEPS; i++) {
        for (int rank = 0; rank < 2; rank++)
            job_collective(&job, rank, i, STEP_MS * i + 10 + 4 * rank, STEP_MS * i + 10.1 + 4 * rank);
        job_runs(&job, 1, STEP_MS * i, STEP_MS * i + 4, "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_STR(top->what, "computing in prepare_features (ddp.py)");
    CHECK_DBL((double)top->late_ns, 4e6, 0.2e6);
    story_close(&job.story);
}

// As of fully sharded parameters: NCCL counts each function of a communicator by itself.
TEST(ranks_by_two_functions_of_nccl)
{
    struct job job;
    job_open(&job, 2, 0);
    for (int i = 0; i < STEPS; i++) {
        for (int rank = 0; rank < 2; rank++) {
            job_calls(&job, "AllGather", rank, i, STEP_MS * i + 10 + 4 * rank, STEP_MS * i + 10.1 + 4 * rank);
            job_calls(&job, "ReduceScatter", rank, i, STEP_MS * i + 15, STEP_MS * i + 15.1);
        }
        job_runs(&job, 1, STEP_MS * i, STEP_MS * i + 4, "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_DBL((double)top->late_ns, 4e6, 0.2e6);
    story_close(&job.story);
}

// Gradients are added up over eight steps: most of them have no collective, and what rank 1 does longer in each is waited for at the end of all.
TEST(a_late_rank_whose_steps_have_no_collective_but_each_eighth)
{
    enum { ADDED = 8, LONG_MS = ADDED * STEP_MS };
    for (int nccl = 0; nccl < 2; nccl++) {
        struct job job;
        job_open(&job, 2, 2);
        for (int i = 0; i < STEPS / ADDED; i++) {
            double at = LONG_MS * i, compute[] = {10 * ADDED, 14 * ADDED};
            for (int step = 0; step < ADDED; step++) {
                for (int rank = 0; rank < 2; rank++)
                    job_runs(&job, rank, at + step * compute[rank] / ADDED + 4 * rank, at + (step + 1) * compute[rank] / ADDED,
                             "backward@/x/tensor.py:5;main@/x/ddp.py:30");
                job_runs(&job, 1, at + step * 14, at + step * 14 + 4, "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
            }
            for (int rank = 0; rank < 2 && nccl; rank++)
                job_collective(&job, rank, i, at + compute[rank], at + compute[rank] + 0.1);
            if (!nccl)
                job_step(&job, 2, at, compute);
        }
        const struct stall *top = story_top(&job.story);
        CHECK_STR(top->cause, "straggler");
        CHECK_INT(top->rank, 1);
        CHECK_STR(top->what, "computing in prepare_features (ddp.py)");
        CHECK_DBL((double)top->late_ns, 32e6, 1.1e6);
        CHECK_INT(top->count, STEPS / ADDED);
        story_close(&job.story);
    }
}

TEST(a_kernel_that_takes_one_gpu_longer)
{
    struct job job; // the hosts come at the same time, the kernels of the collectives do not
    job_open(&job, 2, 2);
    job_gpus(&job);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i;
        for (int rank = 0; rank < 2; rank++) {
            job_kernel(&job, rank, 1, at, 8);
            job_kernel(&job, rank, 2, at + 8, rank ? 5 : 1);
            job_collective(&job, rank, i, at + 2, at + (rank ? 13 : 9));
            job_runs(&job, rank, at, at + 2, "main@/x/ddp.py:30");
        }
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_STR(top->what, "sin elementwise, which takes its GPU longer");
    CHECK_DBL((double)top->late_ns, 4e6, 0.2e6);
    CHECK_DBL((double)top->more_ns, 4e6, 0.2e6);
    story_close(&job.story);
}

TEST(a_gpu_that_is_slower_in_everything)
{
    struct job job;
    job_open(&job, 2, 2);
    job_gpus(&job);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i;
        for (int rank = 0; rank < 2; rank++) {
            job_kernel(&job, rank, 1, at, rank ? 6 : 5);
            job_kernel(&job, rank, 2, at + 6, rank ? 6 : 5);
            job_collective(&job, rank, i, at + 2, at + (rank ? 12 : 11));
        }
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_STR(top->what, "all kernels, which take its GPU 20 % longer (a slower clock?)");
    story_close(&job.story);
}

TEST(what_a_gpu_works_on_meanwhile_is_not_lost)
{
    struct job job; // rank 1 comes 4 ms later to each collective, but rank 0 has work for 3 of them
    job_open(&job, 2, 2);
    job_gpus(&job);
    for (int i = 0; i < STEPS; i++) {
        job_kernel(&job, 0, 1, STEP_MS * i + 9, 3);
        for (int rank = 0; rank < 2; rank++)
            job_collective(&job, rank, i, STEP_MS * i + 9 + 4 * rank, STEP_MS * i + 9 + 4 * rank);
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_DBL((double)top->total_ns, 1e6 * STEPS, 0.1e6 * STEPS);
    story_close(&job.story);
}

// ---- a GPU that waits while its host has nothing more for it loses nothing ----

enum { AHEAD_COPY = 10, AHEAD_KERNEL, AHEAD_FED }; // rows of gpu_work
// What the host of rank 0 waits in. FEEDER: a thread of it that copies only. STARVED: its GPU waits for its host in between.
enum ahead { AHEAD_NOT, AHEAD_SYNC, AHEAD_IN_COPY, AHEAD_QUEUE, AHEAD_LAUNCH, AHEAD_FEEDER, AHEAD_STARVED };

static void job_called(struct job *job, int64_t work, double called, double returned, double at, double ms)
{
    struct error err = {0};
    CHECK_INT(store_exec(job->story.store, &err, "INSERT INTO gpu_op (start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation) VALUES (?, ?, ?, ?, ?, (SELECT count(*) FROM gpu_op))",
                         "iiiii", story_ns(at), (int64_t)(ms * 1e6), work, (int64_t)((at - called) * 1e6), (int64_t)((returned - called) * 1e6)), 0);
}

static void job_communicates(struct job *job, int rank, int sequence, double called, double begin, double end)
{
    struct error err = {0};
    CHECK_INT(store_exec(job->story.store, &err,
                         "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, "
                         "function, count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, 77, ?, 2, ?, 'AllReduce', 1, 4, 1, 5)",
                         "iiiiii", job->process[rank], story_ns(called), story_ns(begin), story_ns(end), (int64_t)rank, (int64_t)sequence), 0);
}

static void job_syncs(struct job *job, int rank, int64_t thread, double end, double ms)
{
    struct error err = {0};
    CHECK_INT(store_exec(job->story.store, &err, "INSERT INTO gpu_sync (start_ns, dur_ns, process_id, thread_id, kind, correlation) VALUES (?, ?, ?, ?, 3, 1)",
                         "iiii", story_ns(end - ms), (int64_t)(ms * 1e6), job->process[rank], thread), 0);
}

// Rank 0 comes to each collective 4 ms before rank 1, at 9 ms of a step of 20, and its host waits `ms` for its GPU, in this way.
static void job_ahead(struct job *job, enum ahead ahead, double ms)
{
    struct error err = {0};
    job_open(job, 2, 2);
    job_gpus(job);
    int64_t feeder = story_thread(&job->story, job->process[0], 2100, "loader");
    story_sql(&job->story, "INSERT INTO gpu_work (id, kind, stream_id) VALUES (10, 17, 1), (11, 0, 1), (12, 17, 1)");
    CHECK_INT(store_exec(job->story.store, &err, "UPDATE gpu_work SET thread_id = CASE WHEN id = 12 THEN ? WHEN stream_id = 1 THEN ? ELSE ? END", "iii", feeder,
                         job->main[0], job->main[1]), 0);
    for (int rank = 0; rank < 2; rank++) // else it would not be known whether their hosts wait
        job_syncs(job, rank, job->main[rank], 1, 1e-5);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, end = at + 13.2;
        for (int rank = 0; rank < 2; rank++) {
            job_called(job, 2 * rank + 1, at + 4 * rank, at + 4 * rank + 0.01, at + 4 * rank + 0.02, 2);
            job_communicates(job, rank, i, at + 8 + 4 * rank, at + 9 + 4 * rank, end);
        }
        if (ahead == AHEAD_STARVED) // then comes what it waits for: it began late anyway
            job_called(job, AHEAD_KERNEL, end + 0.4, end + 0.41, end + 0.5, 0.1);
        if (ahead == AHEAD_SYNC || ahead == AHEAD_STARVED)
            job_syncs(job, 0, job->main[0], end + (ahead == AHEAD_STARVED ? 6.8 : 0.1), ms);
        if (ahead == AHEAD_FEEDER)
            job_syncs(job, 0, feeder, end + 0.1, ms);
        if (ahead == AHEAD_IN_COPY)
            job_called(job, AHEAD_COPY, end + 0.1 - ms, end + 0.2, end + 0.1, 0.05);
        if (ahead == AHEAD_LAUNCH) // CUDA_LAUNCH_BLOCKING
            job_called(job, AHEAD_KERNEL, end + 0.1 - ms, end + 0.2, end + 0.05, 0.05);
        if (ahead == AHEAD_FEEDER)
            job_called(job, AHEAD_FED, end + 0.1, end + 0.11, end + 0.12, 0.01);
        for (int k = 0; ahead == AHEAD_QUEUE && k < 40; k++) // of each the call waits for the one of 1,021 before; 10 us of it it takes anyway
            job_called(job, AHEAD_KERNEL, end + 0.1 - 26 * STEP_MS + k * ms / 40, end + 0.1 - 26 * STEP_MS + (k + 1) * ms / 40, end + 0.01 + 0.05 * k, 0.05);
    }
}

// late_ms 0: nobody is late.
static void check_ahead(struct job *job, double late_ms)
{
    story_analyse(&job->story);
    const struct stall *late = story_find(&job->story, "straggler");
    CHECK_INT(late != NULL, late_ms > 0);
    if (late) {
        CHECK_INT(late->rank, 1);
        CHECK_DBL((double)late->late_ns, late_ms * 1e6, 0.15e6);
    }
    story_close(&job->story);
}

TEST(a_rank_that_is_always_behind_by_as_much_holds_nobody_up)
{
    static const struct {
        enum ahead ahead;
        double ms, late_ms;
    } cases[] = {{AHEAD_NOT, 0, 0},      {AHEAD_SYNC, 6, 4},       {AHEAD_SYNC, 2, 2},   {AHEAD_SYNC, 0.05, 0},    {AHEAD_IN_COPY, 6, 4}, {AHEAD_IN_COPY, 0.05, 0},
                 {AHEAD_QUEUE, 3, 2.6}, {AHEAD_QUEUE, 0.05, 0}, {AHEAD_LAUNCH, 6, 4}, {AHEAD_FEEDER, 6, 0}, {AHEAD_STARVED, 6, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        job_ahead(&job, cases[i].ahead, cases[i].ms);
        check_ahead(&job, cases[i].late_ms);
    }
}

// What is hidden of one rank would be held against the other.
TEST(where_it_is_not_known_whether_hosts_wait_all_waits_count)
{
    static const char *const unknown[] = {"DELETE FROM gpu_sync WHERE process_id = (SELECT min(process_id) FROM nccl_op)",
                                          "UPDATE gpu_op SET call_ns = NULL WHERE work_id = 3"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct job job;
        job_ahead(&job, AHEAD_NOT, 0);
        story_sql(&job.story, unknown[i]);
        check_ahead(&job, 4);
    }
}

TEST(calls_are_compared_where_nccl_told_no_kernels)
{
    struct job job;
    job_ahead(&job, AHEAD_SYNC, 2);
    story_sql(&job.story, "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL");
    check_ahead(&job, 2);
    job_ahead(&job, AHEAD_NOT, 0);
    story_sql(&job.story, "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL WHERE rowid % 150 > 0");
    check_ahead(&job, 0);
}
