// SPDX-License-Identifier: Apache-2.0
// Ranks of a job over NCCL: who comes late by what NCCL and their GPUs tell, why, and what their
// waits cost.
#include <stdio.h>

#include "tests/unit/stall_job.h"

// A kernel on the rank's GPU, of those whose rows job_gpus made: 1 or 2.
static void job_kernel(struct job *job, int rank, int kernel, double at, double ms)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                    "iii", story_ns(at), (int64_t)(ms * 1e6), (int64_t)(2 * rank + kernel)),
            0);
}

static void job_calls(struct job *job, const char *function, int rank, int sequence,
        double enqueued, double begin)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, communicator, rank, ranks, sequence, function, count, "
                    "bytes, channels, plugin_version) VALUES (?, ?, ?, 77, ?, 2, ?, ?, 1, 4, 1, 5)",
                    "iiiiis", job->process[rank], story_ns(enqueued), story_ns(begin),
                    (int64_t)rank, (int64_t)sequence, function),
            0);
}

static void job_collective(struct job *job, int rank, int sequence, double enqueued, double begin)
{
    job_calls(job, "AllReduce", rank, sequence, enqueued, begin);
}

static void job_gpus(struct job *job)
{
    story_sql(
            &job->story, "INSERT INTO string (id, text) VALUES (900, '_Z4gemm'), (901, '_Z3sin')");
    story_sql(&job->story,
            "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
            "static_shared_bytes, dynamic_shared_bytes, local_bytes) VALUES (1, 900, 'void gemm<float>(float*)', 1, 1, 1, 1, 1, 1, "
            "1, 0, 0, 0), (2, 901, 'void at::native::vectorized_elementwise_kernel<4, at::native::sin_kernel_cuda(at::TensorIteratorBase&)"
            "::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)', 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)");
    for (int rank = 0; rank < 2; rank++) {
        char sql[400];
        snprintf(sql, sizeof sql,
                "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (%d, %lld, 0, 1, 7)",
                rank + 1, (long long)job->process[rank]);
        story_sql(&job->story, sql);
        for (int kernel = 1; kernel <= 2; kernel++) {
            snprintf(sql, sizeof sql,
                    "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) VALUES (%d, 0, %d, %d)",
                    2 * rank + kernel, rank + 1, kernel);
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
            job_collective(
                    &job, rank, i, STEP_MS * i + 10 + 4 * rank, STEP_MS * i + 10.1 + 4 * rank);
        job_runs(&job, 1, STEP_MS * i, STEP_MS * i + 4,
                "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_INT(top->deed.kind, STALL_DEED_COMPUTES);
    CHECK_STR(top->deed.function, "prepare_features (ddp.py)");
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
            job_calls(&job, "AllGather", rank, i, STEP_MS * i + 10 + 4 * rank,
                    STEP_MS * i + 10.1 + 4 * rank);
            job_calls(&job, "ReduceScatter", rank, i, STEP_MS * i + 15, STEP_MS * i + 15.1);
        }
        job_runs(&job, 1, STEP_MS * i, STEP_MS * i + 4,
                "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
    }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "straggler");
    CHECK_INT(top->rank, 1);
    CHECK_DBL((double)top->late_ns, 4e6, 0.2e6);
    story_close(&job.story);
}

// Gradients are added up over eight steps: most of them have no collective, and what rank 1 does
// longer in each is waited for at the end of all.
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
                    job_runs(&job, rank, at + step * compute[rank] / ADDED + 4 * rank,
                            at + (step + 1) * compute[rank] / ADDED,
                            "backward@/x/tensor.py:5;main@/x/ddp.py:30");
                job_runs(&job, 1, at + step * 14, at + step * 14 + 4,
                        "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
            }
            for (int rank = 0; rank < 2 && nccl; rank++)
                job_collective(&job, rank, i, at + compute[rank], at + compute[rank] + 0.1);
            if (!nccl)
                job_step(&job, 2, at, compute);
        }
        const struct stall *top = story_top(&job.story);
        CHECK_STR(top->cause, "straggler");
        CHECK_INT(top->rank, 1);
        CHECK_INT(top->deed.kind, STALL_DEED_COMPUTES);
        CHECK_STR(top->deed.function, "prepare_features (ddp.py)");
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
    CHECK_INT(top->deed.kind, STALL_DEED_KERNEL);
    CHECK_STR(top->deed.function, "sin elementwise");
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
    CHECK_INT(top->deed.kind, STALL_DEED_KERNELS);
    CHECK_DBL(top->deed.more_share, 0.2, 0.005);
    CHECK(!top->deed.function);
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
// What the host of rank 0 waits in. FEEDER: a thread of it that copies only. STARVED: its GPU waits
// for its host in between.
enum ahead {
    AHEAD_NOT,
    AHEAD_SYNC,
    AHEAD_IN_COPY,
    AHEAD_QUEUE,
    AHEAD_LAUNCH,
    AHEAD_FEEDER,
    AHEAD_STARVED
};

static void job_called(
        struct job *job, int64_t work, double called, double returned, double at, double ms)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO gpu_op (start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation) VALUES (?, ?, ?, ?, ?, (SELECT count(*) FROM gpu_op))",
                    "iiiii", story_ns(at), (int64_t)(ms * 1e6), work,
                    (int64_t)((at - called) * 1e6), (int64_t)((returned - called) * 1e6)),
            0);
}

static void job_communicates(
        struct job *job, int rank, int sequence, double called, double begin, double end)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, "
                    "function, count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, 77, ?, 2, ?, 'AllReduce', 1, 4, 1, 5)",
                    "iiiiii", job->process[rank], story_ns(called), story_ns(begin), story_ns(end),
                    (int64_t)rank, (int64_t)sequence),
            0);
}

static void job_syncs(struct job *job, int rank, int64_t thread, double end, double ms)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO gpu_sync (start_ns, dur_ns, process_id, thread_id, kind, correlation) VALUES (?, ?, ?, ?, 3, 1)",
                    "iiii", story_ns(end - ms), (int64_t)(ms * 1e6), job->process[rank], thread),
            0);
}

// Rank 0 comes to each collective 4 ms before rank 1, at 9 ms of a step of 20, and its host waits
// `ms` for its GPU, in this way.
static void job_ahead(struct job *job, enum ahead ahead, double ms)
{
    struct error err = {0};
    job_open(job, 2, 2);
    job_gpus(job);
    int64_t feeder = story_thread(&job->story, job->process[0], 2100, "loader");
    story_sql(&job->story,
            "INSERT INTO gpu_work (id, kind, stream_id) VALUES (10, 17, 1), (11, 0, 1), (12, 17, 1)");
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "UPDATE gpu_work SET thread_id = CASE WHEN id = 12 THEN ? WHEN stream_id = 1 THEN ? ELSE ? END",
                    "iii", feeder, job->main[0], job->main[1]),
            0);
    for (int rank = 0; rank < 2; rank++) // else it would not be known whether their hosts wait
        job_syncs(job, rank, job->main[rank], 1, 1e-5);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, end = at + 13.2;
        for (int rank = 0; rank < 2; rank++) {
            job_called(job, 2 * rank + 1, at + 4 * rank, at + 4 * rank + 0.01, at + 4 * rank + 0.02,
                    2);
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
        // of each the call waits for the one of 1,021 before; 10 us of it it takes anyway
        for (int k = 0; ahead == AHEAD_QUEUE && k < 40; k++)
            job_called(job, AHEAD_KERNEL, end + 0.1 - 26 * STEP_MS + k * ms / 40,
                    end + 0.1 - 26 * STEP_MS + (k + 1) * ms / 40, end + 0.01 + 0.05 * k, 0.05);
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
    } cases[] = {{AHEAD_NOT, 0, 0}, {AHEAD_SYNC, 6, 4}, {AHEAD_SYNC, 2, 2}, {AHEAD_SYNC, 0.05, 0},
            {AHEAD_IN_COPY, 6, 4}, {AHEAD_IN_COPY, 0.05, 0}, {AHEAD_QUEUE, 3, 2.6},
            {AHEAD_QUEUE, 0.05, 0}, {AHEAD_LAUNCH, 6, 4}, {AHEAD_FEEDER, 6, 0},
            {AHEAD_STARVED, 6, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        job_ahead(&job, cases[i].ahead, cases[i].ms);
        check_ahead(&job, cases[i].late_ms);
    }
}

// What is hidden of one rank would be held against the other.
TEST(where_it_is_not_known_whether_hosts_wait_all_waits_count)
{
    static const char *const unknown[] = {
            "DELETE FROM gpu_sync WHERE process_id = (SELECT min(process_id) FROM nccl_op)",
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
    story_sql(&job.story,
            "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL WHERE rowid % 150 > 0");
    check_ahead(&job, 0);
}

// ---- what waits for a GPU cost ----

#define GPU_POLL "do_poll;do_sys_poll" STORY_SYSCALL
#define GPU_SYNC "libcuda.so.1+0x99;cuStreamSynchronize;cudaStreamSynchronize"
#define GPU_LOSS "log_loss@/x/ddp.py:40;main@/x/ddp.py:30"

// thread: 0: the rank's main one. It sleeps, or, on the CPU, asks again and again.
static void gpu_waits(
        struct job *job, int rank, int64_t thread, bool spins, double begin, double end)
{
    thread = thread ? thread : job->main[rank];
    if (spins)
        story_samples(&job->story,
                (struct story_samples){.thread = thread,
                        .from = begin,
                        .to = end,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .user = GPU_SYNC,
                        .python = GPU_LOSS});
    else
        story_gap(&job->story,
                (struct story_gap){.thread = thread,
                        .out = begin,
                        .waking = end,
                        .in = end + 0.01,
                        .state = 1,
                        .kernel = GPU_POLL,
                        .user = GPU_SYNC,
                        .python = GPU_LOSS});
}

static void gpu_open(struct job *job)
{
    job_open(job, 2, 2);
    job_gpus(job);
}

// Two ranks whose GPUs work for all of a step but 0.1 ms. late_ms: the collective begins as much
// earlier on rank 0, as the GPU of rank 1 has more to do.
static void gpu_paces(struct job *job, bool spins, double late_ms)
{
    gpu_open(job);
    for (int i = 0; i < STEPS; i++)
        for (int rank = 0; rank < 2; rank++) {
            double at = STEP_MS * i, more = rank ? late_ms : 0;
            job_kernel(job, rank, 1, at, 12);
            job_kernel(job, rank, 2, at + 12, 2 + more);
            job_communicates(job, rank, i, at + 1, at + 14 + more, at + 19.9);
            gpu_waits(job, rank, 0, spins, at + 2, at + 19.9);
        }
}

TEST(a_job_that_its_gpus_pace_waits_for_them_at_no_cost)
{
    for (int spins = 0; spins < 2; spins++) {
        struct job job;
        gpu_paces(&job, spins, 0);
        CHECK_STR(story_top(&job.story)->cause, "(none)");
        CHECK_INT(job.story.stalls->count, 0);
        story_close(&job.story);
    }
}

TEST(a_late_rank_comes_first_where_gpus_set_the_pace)
{
    for (int spins = 0; spins < 2; spins++) {
        struct job job;
        gpu_paces(&job, spins, 4);
        const struct stall *top = story_top(&job.story);
        CHECK_STR(top->cause, "straggler");
        CHECK_INT(top->rank, 1);
        CHECK_DBL((double)top->late_ns, 4e6, 0.2e6);
        CHECK(story_find(&job.story, "gpu_sync") == NULL);
        story_close(&job.story);
    }
}

// Its host is late behind its waits, and so its GPU has nothing to do: that is its lateness, and
// told once.
TEST(what_a_late_rank_does_behind_its_waits_is_told_once)
{
    struct job job;
    gpu_open(&job);
    for (int i = 0; i < STEPS; i++)
        for (int rank = 0; rank < 2; rank++) {
            double at = STEP_MS * i, late = rank ? 3 : 0;
            job_kernel(&job, rank, 1, at + late, 15);
            job_communicates(&job, rank, i, at + late, at + 15 + late, at + 19.9);
            gpu_waits(&job, rank, 0, false, at + 1 + late, at + 19.9);
            if (rank)
                job_runs(&job, rank, at, at + 3, "prepare_features@/x/ddp.py:8;main@/x/ddp.py:22");
        }
    CHECK_STR(story_top(&job.story)->cause, "straggler");
    CHECK_INT(story_top(&job.story)->rank, 1);
    CHECK(story_find(&job.story, "gpu_sync") == NULL);
    story_close(&job.story);
}

TEST(without_records_of_the_gpu_all_of_the_wait_counts)
{
    struct job job;
    gpu_paces(&job, false, 0);
    story_sql(&job.story, "DELETE FROM gpu_op");
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "gpu_sync");
    CHECK_DBL((double)top->total_ns, 17.9e6 * STEPS, 0.1e6 * STEPS);
    CHECK_INT(top->meanwhile, STALL_MEANWHILE_UNKNOWN);
    CHECK(top->doubts & STALL_DOUBT_GPU_UNKNOWN);
    story_close(&job.story);

    gpu_paces(&job, false, 0); // of the first half
    story_sql(&job.story,
            "DELETE FROM gpu_op WHERE start_ns < (SELECT begin_ns + 5000000000 FROM recording)");
    story_sql(&job.story, "DELETE FROM nccl_op");
    top = story_top(&job.story);
    CHECK_STR(top->cause, "gpu_sync");
    // the rest has no collectives now: 5.9 ms of a step are idle
    CHECK_DBL((double)top->total_ns, 17.9e6 * STEPS / 2 + 5.9e6 * STEPS / 2, 0.2e6 * STEPS);
    story_close(&job.story);
}

// ---- a synchronisation that is in the way: the GPU has nothing to do behind it until its host has
// launched again ----

struct needless {
    double wait_ms;   // until the first kernel's end, 6 ms after the step's begin
    double idle_ms;   // from then on, until the second one begins, which lasts until the next step
    double disk_ms;   // of it the host reads a file
    double sleeps_ms; // of it the host waits for somebody else, in a wait that an idle thread makes
                      // as well
    double idle_from_ms; // the GPU idles that much earlier, within the wait
    bool spins, feeder;  // feeder: a thread waits that launches nothing
    bool copy, sparse; // copy: of 20 us, at the end of the wait. sparse: a kernel of 1 ms begins in
                       // each second ms of idle_ms
    double lost_ms;    // of each step
};

static void gpu_needless(struct job *job, const struct needless *one)
{
    struct error err = {0};
    gpu_open(job);
    int64_t feeder = story_thread(&job->story, job->process[0], 2100, "loader");
    story_total(&job->story, feeder, STORY_WINDOW_MS * 0.8);
    CHECK_INT(store_exec(job->story.store, &err,
                      "UPDATE gpu_work SET thread_id = ? WHERE stream_id = 1", "i", job->main[0]),
            0);
    for (int i = 0; i < STEPS; i++) {
        double at = STEP_MS * i, next = at + 6 + one->idle_ms;
        job_called(job, 1, at, at + 0.01, at, 6 - one->idle_from_ms);
        if (one->copy)
            job_called(job, 2, at + 5.98, at + 5.985, at + 5.98, 0.02);
        for (double k = 7; one->sparse && k < 6 + one->idle_ms; k += 2)
            job_called(job, 2, at + k, at + k + 0.01, at + k, 1);
        job_called(job, 2, next, next + 0.01, next, STEP_MS - 6 - one->idle_ms);
        gpu_waits(job, 0, one->feeder ? feeder : 0, one->spins, at + 6 - one->wait_ms, at + 6);
        if (one->sleeps_ms > 0)
            story_gap(&job->story,
                    (struct story_gap){.thread = job->main[0],
                            .out = at + 6.02,
                            .waking = at + 6.02 + one->sleeps_ms,
                            .in = at + 6.03 + one->sleeps_ms,
                            .state = 1,
                            .kernel = STORY_FUTEX_WAIT});
        if (one->disk_ms > 0)
            story_gap(&job->story,
                    (struct story_gap){.thread = job->main[0],
                            .out = at + 6,
                            .waking = at + 6 + one->disk_ms,
                            .in = at + 6.01 + one->disk_ms,
                            .state = 2,
                            .flags = UG_GAP_IOWAIT,
                            .kernel =
                                    "io_schedule;folio_wait_bit_common;filemap_get_pages;filemap_read;ext4_file_read_iter;vfs_read" STORY_SYSCALL});
    }
}

TEST(a_synchronisation_costs_what_its_gpu_idles)
{
    static const struct needless cases[] = {
            {.wait_ms = 5, .idle_ms = 3, .lost_ms = 3},
            // no more than it waited
            {.wait_ms = 1.5, .idle_ms = 3, .lost_ms = 1.5},
            // the rest is the disk's
            {.wait_ms = 5, .idle_ms = 4, .disk_ms = 2.5, .lost_ms = 1.5},
            {.wait_ms = 5, .idle_from_ms = 2, .lost_ms = 2}, // within the wait
            {.wait_ms = 5, .idle_from_ms = 1, .idle_ms = 1, .lost_ms = 2},
            // who waits does not launch what comes behind
            {.wait_ms = 5, .idle_ms = 3, .feeder = true, .lost_ms = 0},
            // the host sets the pace: it would be 3 ms ahead
            {.wait_ms = 3, .idle_ms = 10, .sparse = true, .lost_ms = 3},
            {.wait_ms = 5, .idle_ms = 3, .idle_from_ms = 0.05, .copy = true, .lost_ms = 3},
            // its input sets the pace
            {.wait_ms = 5, .idle_ms = 5, .sleeps_ms = 4.5, .lost_ms = 0},
            // too little for a line
            {.wait_ms = 5, .idle_ms = 0.1, .lost_ms = 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        gpu_needless(&job, &cases[i]);
        story_analyse(&job.story);
        const struct stall *sync = story_find(&job.story, "gpu_sync");
        CHECK_INT(sync != NULL, cases[i].lost_ms > 0);
        if (sync) {
            CHECK_DBL((double)sync->total_ns, cases[i].lost_ms * 1e6 * STEPS, 0.05e6 * STEPS);
            CHECK_DBL(
                    (double)sync->blocked_ns, cases[i].idle_from_ms * 1e6 * STEPS, 0.05e6 * STEPS);
            CHECK(sync->victim_python.count > 0 &&
                    strstr(sync->victim_python.frames[0], "log_loss (ddp.py:40)") != NULL);
            CHECK_INT(sync->meanwhile, STALL_MEANWHILE_IDLE);
            CHECK(!sync->doubts);
        }
        story_close(&job.story);
    }
}

TEST(behind_the_last_record_of_the_gpu_all_of_the_wait_counts)
{
    struct job job;
    gpu_needless(&job, &(struct needless){.wait_ms = 5, .idle_ms = 3});
    story_sql(&job.story,
            "DELETE FROM gpu_op WHERE start_ns >= (SELECT begin_ns + 5000000000 FROM recording)");
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "gpu_sync");
    CHECK_DBL((double)top->total_ns, (3 + 5) * 1e6 * STEPS / 2, 0.1e6 * STEPS);
    CHECK_INT(top->meanwhile, STALL_MEANWHILE_PARTLY);
    CHECK(top->doubts & STALL_DOUBT_GPU_UNKNOWN);
    story_close(&job.story);
}

// Else a GPU would seem to have nothing to do while it ran what nobody recorded.
TEST(where_records_of_the_gpu_were_lost_all_of_the_wait_counts)
{
    static const struct {
        const char *ledger; // producer, kind, seen, dropped
        double ms;          // of each step
    } cases[] = {{"'gpu.kernel', 'records', 1000, 100", 5}, {"'gpu.cupti', 'buffers', NULL, 1", 5},
            {"'gpu.kernel', 'records', 1000, 5", 3}, {"'gpu.nvtx', 'records', 1000, 900", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        char sql[200];
        bool lost = cases[i].ms > 3;
        gpu_needless(&job, &(struct needless){.wait_ms = 5, .idle_ms = 3});
        snprintf(sql, sizeof sql,
                "INSERT INTO ledger (producer, kind, seen, dropped, breach) VALUES (%s, 1)",
                cases[i].ledger);
        story_sql(&job.story, sql);
        const struct stall *top = story_top(&job.story);
        CHECK_STR(top->cause, "gpu_sync");
        CHECK_DBL((double)top->total_ns, cases[i].ms * 1e6 * STEPS, 0.1e6 * STEPS);
        CHECK_INT(top->meanwhile, lost ? STALL_MEANWHILE_UNKNOWN : STALL_MEANWHILE_IDLE);
        bool told = false;
        for (size_t k = 0; k < job.story.stalls->missing_count; k++)
            told |= job.story.stalls->missing[k].kind == STALL_MISSING_GPUS;
        CHECK_INT(told, lost);
        story_close(&job.story);
    }
}

// Each of two processes has the GPU in turns: while it is the other's, this one waits, and its own
// kernels do not run.
TEST(waits_for_a_turn_on_a_shared_gpu_count)
{
    struct job job;
    gpu_open(&job);
    for (int i = 0; i < STEPS; i++)
        for (int process = 0; process < 2; process++) {
            double at = STEP_MS * i;
            job_kernel(&job, process, 1, at + 10 * process, 9.9);
            gpu_waits(&job, process, 0, false, at + 1, at + 19.9);
        }
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "gpu_sync");
    CHECK_DBL((double)top->total_ns, 20e6 * STEPS, 0.5e6 * STEPS); // of the one or of the other
    CHECK_INT(top->victim_threads, 2);
    CHECK_INT(top->meanwhile, STALL_MEANWHILE_IDLE);
    story_close(&job.story);
}

TEST(ticks_that_hit_a_synchronisation_cost_what_its_gpu_idles)
{
    struct job job;
    gpu_needless(&job, &(struct needless){.wait_ms = 5, .idle_ms = 3, .spins = true});
    const struct stall *top = story_top(&job.story);
    CHECK_STR(top->cause, "gpu_sync");
    CHECK_DBL((double)top->total_ns, 3e6 * STEPS, 0.8e6 * STEPS); // ticks are 5 ms
    CHECK_DBL((double)top->max_ns, 3e6, 1e6);
    story_close(&job.story);
}

// Of 10 s the last 5; operations behind `until` have no record.
TEST(the_last_seconds_tell_the_same_of_waits_for_a_gpu)
{
    static const struct {
        long until_ms;
        double total_ms;
    } cases[] = {{10000, 250 * 3}, {8500, 175 * 3},
            // still to come: not told; not for long: nothing is recorded any more
            {6000, 50 * 3 + 200 * 5}};
    const struct stalls_opts opts = {.last_ns = 5000000000};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job;
        struct error err = {0};
        struct stalls *stalls = NULL;
        char sql[200];
        gpu_needless(&job, &(struct needless){.wait_ms = 5, .idle_ms = 3});
        snprintf(sql, sizeof sql,
                "DELETE FROM gpu_op WHERE start_ns >= (SELECT begin_ns FROM recording) + %ld000000",
                cases[i].until_ms);
        story_sql(&job.story, sql);
        CHECK_INT(stalls_analyse(job.story.store, &opts, &stalls, &err), 0);
        CHECK(stalls && stalls->count > 0);
        if (stalls && stalls->count) {
            CHECK_STR(stalls->stalls[0].cause, "gpu_sync");
            CHECK_DBL((double)stalls->stalls[0].total_ns, cases[i].total_ms * 1e6, 40e6);
        }
        stalls_free(stalls);
        story_close(&job.story);
    }
}
