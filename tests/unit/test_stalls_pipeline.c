// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in turns: stages of a pipeline, by NCCL's sends and receives and
// by waits on the host, beside data parallel ones, and groups of tensor parallel ranks. A stage
// that works longer is named, and none in a clean run, in which all wait while it fills and drains;
// nor whoever waits for the late one; nor anybody for records that were lost, or make no sense.
#include <stdio.h>
#include <string.h>

#include "tests/unit/stall_story.h"

enum { RANKS_MOST = 4 };
static const double link_ms = 0.1;

struct pipe {
    struct story story;
    int64_t main[RANKS_MOST], process[RANKS_MOST];
    int stages, replicas, batches; // rank = replica * stages + stage
    bool host; // gloo: waits of the main threads; else NCCL's records and those of GPUs
    double work[RANKS_MOST];  // ms of a pass of a batch
    double extra[RANKS_MOST]; // more of each forward pass, on the host in a function of its own
    int every;                // the extra is in one of so many steps
    int missing;              // rank that was not recorded; -1: none
    int64_t sequence;
    unsigned seed;
    int steps; // that were made
};

static struct pipe pipe_of(int stages, int replicas)
{
    struct pipe job = {.stages = stages,
            .replicas = replicas,
            .batches = 4,
            .every = 1,
            .missing = -1,
            .seed = 7};
    for (int i = 0; i < RANKS_MOST; i++)
        job.work[i] = 4.5; // with its noise below a tick of the sampler: as many samples in each
    return job;
}

// The same with half as many steps: where there are many such jobs.
static struct pipe pipe_of_few(int stages, int replicas)
{
    struct pipe job = pipe_of(stages, replicas);
    for (int i = 0; i < RANKS_MOST; i++)
        job.work[i] *= 2;
    return job;
}

static void pipe_gpus(struct pipe *job)
{
    char sql[300];
    story_sql(&job->story, "INSERT INTO string (id, text) VALUES (900, '_Z4gemm')");
    story_sql(&job->story,
            "INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, "
            "static_shared_bytes, dynamic_shared_bytes, local_bytes) VALUES (1, 900, 'void gemm<float>(float*)', 1, 1, 1, 1, 1, 1, "
            "1, 0, 0, 0)");
    for (int rank = 0; rank < job->stages * job->replicas; rank++) {
        if (rank == job->missing)
            continue;
        snprintf(sql, sizeof sql,
                "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (%d, %lld, 0, 1, 7)",
                rank + 1, (long long)job->process[rank]);
        story_sql(&job->story, sql);
        snprintf(sql, sizeof sql,
                "INSERT INTO gpu_work (id, kind, stream_id, kernel_id) VALUES (%d, 0, %d, 1)",
                rank + 1, rank + 1);
        story_sql(&job->story, sql);
    }
}

static void pipe_open(struct pipe *job)
{
    int ranks = job->stages * job->replicas;
    story_open_quiet(&job->story);
    for (int i = 0; i < ranks; i++) {
        if (i == job->missing)
            continue;
        job->process[i] =
                story_process(&job->story, "target", 2000 + i, 1000, "python3", "python3 pipe.py");
        job->main[i] = story_leader(&job->story, job->process[i]);
        story_total(&job->story, job->main[i], STORY_WINDOW_MS * 0.8);
        story_rank(&job->story, 2000 + i, i, ranks);
    }
    if (!job->host)
        pipe_gpus(job);
}

// What NCCL told of one rank; peer -1: a collective.
static void pipe_nccl(struct pipe *job, int rank, const char *function, int64_t communicator,
        int number, int ranks, int peer, int64_t sequence, double begin, double end)
{
    struct error err = {0};
    const int64_t to = peer;
    if (rank == job->missing)
        return;
    CHECK_INT(
            store_exec(job->story.store, &err,
                    "INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, peer, sequence, function, "
                    "count, bytes, channels, plugin_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 4, 1, 5)",
                    "iiiiiiiIis", job->process[rank], story_ns(begin), story_ns(begin),
                    story_ns(end), communicator, (int64_t)number, (int64_t)ranks,
                    peer < 0 ? NULL : &to, sequence, function),
            0);
}

static void pipe_wait(
        struct pipe *job, int rank, double begin, double end, const char *user, const char *python)
{
    if (rank != job->missing && end - begin >= 1) // the threshold
        story_gap(&job->story,
                (struct story_gap){.thread = job->main[rank],
                        .out = begin,
                        .waking = end,
                        .in = end + 0.02,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = user,
                        .python = python});
}

static void pipe_receive(struct pipe *job, int rank, int from, double begin, double end)
{
    if (job->host)
        pipe_wait(job, rank, begin, end,
                "__futex_abstimed_wait_common;pthread_cond_wait;c10d::ProcessGroupGloo::RecvWork::wait",
                "recv@/x/torch/distributed/distributed_c10d.py:9;main@/x/pipe.py:30");
    else
        pipe_nccl(job, rank, "Recv", 10 + rank / job->stages, rank % job->stages, job->stages, from,
                0, begin, end);
}

static void pipe_send(struct pipe *job, int rank, int to, double begin)
{
    if (!job->host)
        pipe_nccl(job, rank, "Send", 10 + rank / job->stages, rank % job->stages, job->stages, to,
                0, begin, begin + link_ms);
}

static void pipe_runs(struct pipe *job, int rank, double begin, double end, const char *python)
{
    if (rank != job->missing && begin < end)
        story_samples(&job->story,
                (struct story_samples){.thread = job->main[rank],
                        .from = begin,
                        .to = end,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .python = python});
}

static void pipe_work(struct pipe *job, int rank, double begin, double extra, double end)
{
    struct error err = {0};
    pipe_runs(job, rank, begin, begin + extra,
            "attend@/x/pipe.py:9;forward@/x/pipe.py:20;main@/x/pipe.py:31");
    if (job->host)
        pipe_runs(job, rank, begin + extra, end, "forward@/x/pipe.py:21;main@/x/pipe.py:31");
    else if (rank != job->missing)
        CHECK_INT(
                store_exec(job->story.store, &err,
                        "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                        "iii", story_ns(begin + extra), (int64_t)((end - begin - extra) * 1e6),
                        (int64_t)(rank + 1)),
                0);
}

static double pipe_random(struct pipe *job) // 0 to 1
{
    job->seed = job->seed * 1103515245 + 12345;
    return (double)(job->seed >> 16 & 0x7fff) / 0x8000;
}

// A pass of one batch through a stage, forward or back. free_at: of the stage; there: when the
// batch was sent to it, and is on.
static void pipe_pass(struct pipe *job, int rank, bool back, double *free_at, double *there)
{
    int stage = rank % job->stages, from = back ? stage + 1 : stage - 1,
        to = back ? stage - 1 : stage + 1;
    double begin = *free_at, extra = back || job->steps % job->every ? 0 : job->extra[rank];
    if (from >= 0 && from < job->stages) {
        begin = (*there > begin ? *there : begin) + link_ms;
        pipe_receive(job, rank, from, *free_at, begin);
    }
    *free_at = begin + extra + job->work[rank] * (0.95 + 0.1 * pipe_random(job));
    pipe_work(job, rank, begin, extra, *free_at);
    *there = *free_at;
    if (to >= 0 && to < job->stages)
        pipe_send(job, rank, to, *free_at);
}

// Each stage of all replicas reduces its gradients.
static void pipe_reduce(struct pipe *job, double *at)
{
    for (int stage = 0; stage < job->stages; stage++) {
        double end = 0;
        for (int rank = stage; rank < job->stages * job->replicas; rank += job->stages)
            end = at[rank] > end ? at[rank] : end;
        end += 1;
        for (int rank = stage; rank < job->stages * job->replicas; rank += job->stages) {
            if (job->host)
                pipe_wait(job, rank, at[rank], end,
                        "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait",
                        "all_reduce@/x/torch/distributed/distributed_c10d.py:99;main@/x/pipe.py:40");
            else
                pipe_nccl(job, rank, "AllReduce", 300 + stage, rank / job->stages, job->replicas,
                        -1, job->sequence, at[rank], end);
            at[rank] = end;
        }
    }
    job->sequence++;
}

// Steps until the window is full: all batches forward, then all back.
static void pipe_run(struct pipe *job)
{
    double at[RANKS_MOST] = {0}, last = 1;
    for (int i = 0; i < RANKS_MOST; i++)
        at[i] = 1;
    for (; last < STORY_WINDOW_MS - 300; job->steps++) {
        for (int replica = 0; replica < job->replicas; replica++)
            for (int back = 0; back < 2; back++)
                for (int batch = 0; batch < job->batches; batch++) {
                    double there = 0;
                    for (int i = 0; i < job->stages; i++) {
                        int rank = replica * job->stages + (back ? job->stages - 1 - i : i);
                        pipe_pass(job, rank, back != 0, &at[rank], &there);
                    }
                }
        if (job->replicas > 1)
            pipe_reduce(job, at);
        for (int i = 0; i < job->stages * job->replicas; i++)
            last = at[i] > last ? at[i] : last;
    }
}

static int pipe_named(const struct pipe *job)
{
    int named = 0;
    for (size_t i = 0; i < job->story.stalls->count; i++)
        named += !strcmp(job->story.stalls->stalls[i].cause, "straggler");
    return named;
}

// The only one that is named; NULL: there is none, or several.
static const struct stall *pipe_late(struct pipe *job)
{
    story_analyse(&job->story);
    return pipe_named(job) == 1 ? story_find(&job->story, "straggler") : NULL;
}

static void pipe_check_clean(struct pipe *job)
{
    story_analyse(&job->story);
    CHECK_INT(pipe_named(job), 0);
}

// sql: what happens to the recording before it is read; NULL: nothing
static void pipe_names_nobody(struct pipe *job, const char *sql)
{
    pipe_open(job);
    pipe_run(job);
    if (sql)
        story_sql(&job->story, sql);
    pipe_check_clean(job);
    story_close(&job->story);
}

TEST(nobody_is_named_in_a_pipeline_of_equal_stages)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        struct pipe job = pipe_of(4, 1);
        job.seed = seed * 7919;
        pipe_open(&job);
        pipe_run(&job);
        pipe_check_clean(&job);
        CHECK_INT(job.story.stalls->heat.blocks, 0);
        story_close(&job.story);
    }
}

TEST(nor_where_it_only_fills_and_drains)
{
    for (int host = 0; host < 2; host++) {
        struct pipe job = pipe_of(4, 1); // one batch: a stage works an eighth of the time, and each
                                         // is waited for by all others
        job.batches = 1;
        job.host = host;
        pipe_names_nobody(&job, NULL);
    }
}

TEST(a_stage_that_works_longer_is_named_with_its_function)
{
    for (int rank = 0; rank < 4; rank++) { // the first and the last one, too
        struct pipe job = pipe_of(4, 1);
        job.extra[rank] = 4;
        pipe_open(&job);
        pipe_run(&job);
        const struct stall *late = pipe_late(&job);
        CHECK(late != NULL);
        if (late) {
            CHECK_INT(late->rank, rank);
            CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
            CHECK_STR(late->deed.function, "attend (pipe.py)");
            // not what they wait in its fill and drain
            CHECK_DBL((double)late->total_ns, 16e6 * job.steps, 4e6 * job.steps);
            CHECK(late->stages);
            CHECK(job.story.stalls->heat.by_work);
            CHECK_INT(job.story.stalls->heat.worst.rank, rank);
        }
        story_close(&job.story);
    }
}

TEST(a_stage_that_works_longer_now_and_then)
{
    struct pipe job = pipe_of(4, 1);
    job.extra[1] = 12;
    job.every = 5;
    pipe_open(&job);
    pipe_run(&job);
    const struct stall *late = pipe_late(&job);
    CHECK(late != NULL);
    if (late) {
        CHECK_INT(late->rank, 1);
        CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
        CHECK_STR(late->deed.function, "attend (pipe.py)");
    }
    story_close(&job.story);
}

TEST(a_stage_with_more_layers_and_one_with_less)
{
    struct pipe job = pipe_of(4, 1);
    job.work[1] = 7.5;
    pipe_open(&job);
    pipe_run(&job);
    const struct stall *late = pipe_late(&job);
    CHECK(late != NULL);
    if (late) {
        CHECK_INT(late->rank, 1);
        CHECK_INT(late->deed.kind, STALL_DEED_KERNEL);
    }
    story_close(&job.story);
    job = pipe_of(4, 1);
    job.work[3] = 2; // the others have as much to do as each other
    pipe_names_nobody(&job, NULL);
}

TEST(one_of_three_stages_with_less_to_do_makes_no_late_ones)
{
    struct pipe job = pipe_of(3, 1);
    job.work[2] = 2;
    pipe_names_nobody(&job, NULL);
    job = pipe_of(3, 1);
    job.extra[1] = 4;
    pipe_open(&job);
    pipe_run(&job);
    const struct stall *late = pipe_late(&job);
    CHECK(late != NULL);
    if (late)
        CHECK_INT(late->rank, 1);
    story_close(&job.story);
}

TEST(a_late_rank_of_two_pipelines_and_not_who_waits_for_it)
{
    for (int rank = -1; rank < 4; rank++) {
        struct pipe job = pipe_of(2, 2); // the other stage of its pipeline comes late to its
                                         // collective, as it waits for this one
        if (rank >= 0)
            job.extra[rank] = 4;
        pipe_open(&job);
        pipe_run(&job);
        const struct stall *late = pipe_late(&job);
        CHECK_INT(pipe_named(&job), rank >= 0);
        if (late) {
            CHECK_INT(late->rank, rank);
            CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
            CHECK_STR(late->deed.function, "attend (pipe.py)");
        }
        story_close(&job.story);
    }
}

// ---- gloo: nobody says for whom a rank waits ----

TEST(a_stage_that_works_longer_by_waits_on_the_host)
{
    for (int rank = -1; rank < 4; rank++) {
        struct pipe job = pipe_of(4, 1);
        job.host = true;
        if (rank >= 0)
            job.extra[rank] = 4;
        pipe_open(&job);
        pipe_run(&job);
        const struct stall *late = pipe_late(&job);
        CHECK_INT(pipe_named(&job), rank >= 0);
        if (late) {
            CHECK_INT(late->rank, rank);
            CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
            CHECK_STR(late->deed.function, "attend (pipe.py)");
        }
        CHECK_INT(job.story.stalls->count, rank >= 0); // waits for each other are no stalls
        story_close(&job.story);
    }
}

// A node for each rank, whose clocks are known within so much.
static void pipe_nodes(struct pipe *job, int error_us)
{
    char sql[400];
    story_sql(
            &job->story, "UPDATE recording SET target = json_set(target, '$.nodes', json_array())");
    for (int i = 0; i < job->stages * job->replicas; i++) {
        snprintf(sql, sizeof sql,
                "UPDATE recording SET target = json_set(target, '$.nodes[#]', json_object('host', 'node-%d', "
                "'process_first', %lld, 'process_last', %lld, 'cpu_first', 0, 'clock_error_ns', %d000))",
                i, (long long)job->process[i], (long long)job->process[i], error_us);
        story_sql(&job->story, sql);
    }
}

TEST(a_stage_on_another_node_is_named_as_far_as_clocks_tell)
{
    for (int host = 0; host < 2; host++)
        for (int known = 0; known < 2; known++) {
            // a step takes some 100 ms, in which no stage works for 200 ms at one go
            struct pipe job = pipe_of(4, 1);
            job.host = host;
            job.extra[1] = 4;
            pipe_open(&job);
            pipe_run(&job);
            pipe_nodes(&job, known ? 10 : 50000);
            const struct stall *late = pipe_late(&job);
            CHECK_INT(pipe_named(&job), known);
            // nor in the map of ranks by time
            CHECK((job.story.stalls->heat.blocks > 0) == (known == 1));
            if (late) {
                CHECK_INT(late->rank, 1);
                CHECK_STR(late->host, "node-1");
            }
            story_close(&job.story);
        }
}

TEST(what_is_waited_for_without_being_seen_is_nobodys)
{
    struct pipe job = pipe_of(4, 1); // what stage 2 does longer was not seen
    job.host = true;
    job.extra[2] = 4;
    pipe_names_nobody(&job, "DELETE FROM sample");
}

// ---- records that are not there, or make no sense ----

TEST(records_that_were_lost_accuse_nobody)
{
    static const char *const lost[] = {
            // from here on
            "DELETE FROM nccl_op WHERE process_id = %lld AND rowid > (SELECT max(rowid) / 2 FROM nccl_op)",
            "DELETE FROM nccl_op WHERE process_id = %lld AND rowid % 5 = 0",
            "DELETE FROM nccl_op WHERE process_id = %lld",
            "DELETE FROM nccl_op WHERE process_id = %lld AND function = 'Recv'",
            "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL WHERE process_id = %lld AND rowid % 5 = 0",
            // of its GPU nothing is known
            "DELETE FROM gpu_op WHERE work_id = %lld - (SELECT min(process_id) FROM nccl_op) + 1",
    };
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        for (int rank = 1; rank < 4; rank += 2) {
            const char *at = strstr(lost[i], "%lld");
            char sql[300];
            struct pipe job = pipe_of_few(4, 1);
            pipe_open(&job);
            pipe_run(&job);
            snprintf(sql, sizeof sql, "%.*s%lld%s", (int)(at - lost[i]), lost[i],
                    (long long)job.process[rank], at + 4);
            story_sql(&job.story, sql);
            pipe_check_clean(&job);
            story_close(&job.story);
        }
}

// A stage of four that hand on one batch waits for seven eighths of its time: of a third of that no
// mean of a block can be made up.
TEST(a_rank_most_of_whose_records_were_lost_accuses_nobody)
{
    for (int rank = 1; rank < 4; rank += 2) {
        char sql[200];
        struct pipe job = pipe_of(4, 1);
        job.batches = 1;
        pipe_open(&job);
        pipe_run(&job);
        snprintf(sql, sizeof sql,
                "DELETE FROM nccl_op WHERE process_id = %lld AND rowid > (SELECT max(rowid) / 3 FROM nccl_op)",
                (long long)job.process[rank]);
        story_sql(&job.story, sql);
        pipe_check_clean(&job);
        story_close(&job.story);
    }
}

// Its communicator was made before anybody asked for times: what it waits there is not known, and
// no work.
TEST(a_rank_whose_collectives_have_no_times_beside_messages)
{
    for (int rank = 0; rank < 4; rank++) {
        char sql[200];
        struct pipe job = pipe_of(2, 2);
        pipe_open(&job);
        pipe_run(&job);
        snprintf(sql, sizeof sql,
                "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL WHERE peer IS NULL AND process_id = %lld",
                (long long)job.process[rank]);
        story_sql(&job.story, sql);
        pipe_check_clean(&job);
        story_close(&job.story);
    }
}

TEST(a_late_stage_is_found_though_records_were_lost)
{
    struct pipe job = pipe_of(4, 1);
    job.extra[2] = 4;
    pipe_open(&job);
    pipe_run(&job);
    story_sql(&job.story, "DELETE FROM nccl_op WHERE rowid % 1000 = 0");
    const struct stall *late = pipe_late(&job);
    CHECK(late != NULL);
    if (late)
        CHECK_INT(late->rank, 2);
    story_close(&job.story);
}

TEST(a_recording_that_begins_at_different_messages)
{
    // each rank was attached to some messages later than the one before
    struct pipe job = pipe_of(4, 1);
    job.extra[2] = 4;
    pipe_open(&job);
    pipe_run(&job);
    story_sql(&job.story,
            "DELETE FROM nccl_op WHERE rowid <= 100 + 30 * (process_id - (SELECT min(process_id) FROM nccl_op))");
    const struct stall *late = pipe_late(&job);
    CHECK(late != NULL);
    if (late)
        CHECK_INT(late->rank, 2);
    story_close(&job.story);
}

TEST(a_stage_that_was_not_recorded_is_missing_and_nobody_is_late_for_it)
{
    struct pipe job = pipe_of(4, 1);
    job.missing = 2;
    job.extra[2] = 4; // stage 3 waits for it
    pipe_open(&job);
    pipe_run(&job);
    pipe_check_clean(&job);
    CHECK_INT(job.story.stalls->missing_count, 1);
    CHECK_INT(job.story.stalls->missing[0].kind, STALL_MISSING_RANKS);
    CHECK_INT(job.story.stalls->missing[0].count, 1);
    CHECK_INT(job.story.stalls->missing[0].of, 4);
    CHECK_INT(job.story.stalls->missing[0].ranks[0], 2);
    story_close(&job.story);
}

// Times as far off as a store may hold them: beyond that it is damaged.
TEST(sends_and_receives_that_do_not_meet)
{
    static const char *const broken[] = {
            "DELETE FROM nccl_op WHERE function = 'Recv'",
            "DELETE FROM nccl_op WHERE function = 'Send'",
            "UPDATE nccl_op SET peer = rank",
            "UPDATE nccl_op SET peer = 99 WHERE rowid % 7 = 0",
            "UPDATE nccl_op SET peer = -1, rank = 9223372036854775807 WHERE rowid % 7 = 0",
            "UPDATE nccl_op SET peer = -9223372036854775807",
            "UPDATE nccl_op SET communicator = 5, rank = 1, peer = 2",
            "UPDATE nccl_op SET enqueued_ns = 0",
            "UPDATE nccl_op SET kernel_end_ns = kernel_start_ns - 1000000",
            "UPDATE nccl_op SET kernel_end_ns = (1 << 61) - 1 WHERE rowid % 11 = 0",
            "UPDATE nccl_op SET kernel_start_ns = -(1 << 61) WHERE rowid % 11 = 0",
            "UPDATE nccl_op SET kernel_start_ns = 1, kernel_end_ns = (1 << 61) - 1 WHERE process_id = (SELECT max(process_id) FROM nccl_op)",
            "UPDATE nccl_op SET kernel_start_ns = NULL",
            "DELETE FROM gpu_op",
            "UPDATE gpu_op SET dur_ns = (1 << 61) - 1 WHERE rowid % 5 = 0",
            "UPDATE gpu_op SET start_ns = 1, dur_ns = (1 << 61) - 1",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct pipe job = pipe_of_few(4, 1);
        pipe_names_nobody(&job, broken[i]);
    }
}

TEST(numbers_of_collectives_that_repeat_beside_messages)
{
    static const char *const broken[] = {
            "UPDATE nccl_op SET sequence = 3 WHERE peer IS NULL",
            "UPDATE nccl_op SET sequence = sequence / 2 WHERE peer IS NULL",
            "UPDATE nccl_op SET sequence = -9223372036854775807 WHERE peer IS NULL AND rowid % 3 = 0",
            "UPDATE nccl_op SET communicator = 300 WHERE peer IS NULL",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct pipe job = pipe_of_few(2, 2);
        pipe_names_nobody(&job, broken[i]);
    }
}

// ---- groups ----

// Ranks 0 and 1, and 2 and 3, hold one layer together, and reduce after each of four; 0 and 2, and
// 1 and 3, at the end of a step.
static void pipe_tensor(struct pipe *job)
{
    double at[4] = {1, 1, 1, 1};
    for (; at[0] < STORY_WINDOW_MS - 100; job->steps++) {
        for (int layer = 0; layer < 4; layer++) {
            for (int rank = 0; rank < 4; rank++) {
                pipe_runs(job, rank, at[rank], at[rank] + job->extra[rank],
                        "project@/x/tensor.py:9;main@/x/tensor.py:31");
                at[rank] += job->extra[rank] + job->work[rank] * (0.95 + 0.1 * pipe_random(job));
            }
            for (int group = 0; group < 2; group++) {
                double *both = &at[2 * group],
                       end = (both[0] > both[1] ? both[0] : both[1]) + link_ms;
                for (int i = 0; i < 2; i++)
                    pipe_nccl(job, 2 * group + i, "AllReduce", 100 + group, i, 2, -1,
                            job->steps * 4 + layer, both[i], end);
                both[0] = both[1] = end;
            }
        }
        for (int part = 0; part < 2; part++) {
            double end = (at[part] > at[part + 2] ? at[part] : at[part + 2]) + 1;
            for (int i = 0; i < 2; i++)
                pipe_nccl(job, part + 2 * i, "AllReduce", 200 + part, i, 2, -1, job->steps,
                        at[part + 2 * i], end);
            at[part] = at[part + 2] = end;
        }
    }
}

// The other one of its group waits for it in each layer, and so comes late to whom it meets at the
// end of the step.
TEST(a_late_rank_of_tensor_parallel_groups_and_not_who_waits_for_it)
{
    for (int rank = -1; rank < 4; rank++) {
        struct pipe job = pipe_of(4, 1);
        if (rank >= 0)
            job.extra[rank] = 2;
        pipe_open(&job);
        pipe_tensor(&job);
        const struct stall *late = pipe_late(&job);
        CHECK_INT(pipe_named(&job), rank >= 0);
        if (late) {
            CHECK_INT(late->rank, rank);
            CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
            CHECK_STR(late->deed.function, "project (tensor.py)");
            CHECK(!late->stages);
        }
        story_close(&job.story);
    }
}

// Data parallel: all reduce in each step, and a checkpoint of all is gathered twice.
static void pipe_gathers(struct pipe *job)
{
    for (double at = 1, last; at < STORY_WINDOW_MS - 100; at = last, job->steps++) {
        double came[RANKS_MOST];
        last = at;
        for (int rank = 0; rank < 4; rank++) {
            pipe_runs(
                    job, rank, at, at + job->extra[rank], "attend@/x/pipe.py:9;main@/x/pipe.py:31");
            came[rank] = at + job->extra[rank] + job->work[rank] * (0.95 + 0.1 * pipe_random(job));
            last = came[rank] > last ? came[rank] : last;
        }
        last += link_ms;
        for (int rank = 0; rank < 4; rank++)
            pipe_nccl(job, rank, "AllReduce", 50, rank, 4, -1, job->steps, came[rank], last);
        for (int rank = 1; rank < 4 && job->steps % 800 == 5; rank++) {
            pipe_nccl(job, rank, "Send", 50, rank, 4, 0, 0, last, last + link_ms);
            pipe_nccl(job, 0, "Recv", 50, 0, 4, rank, 0, last, last + link_ms);
            last += link_ms;
        }
    }
}

// A few messages make no pipeline, of which without the work of GPUs nobody would be named.
TEST(a_late_rank_of_data_parallel_ones_that_seldom_send)
{
    for (int timed = 0; timed < 2; timed++) {
        struct pipe job = pipe_of(4, 1);
        job.extra[2] = 4;
        pipe_open(&job);
        pipe_gathers(&job);
        if (!timed)
            story_sql(
                    &job.story, "UPDATE nccl_op SET kernel_start_ns = NULL, kernel_end_ns = NULL");
        const struct stall *late = pipe_late(&job);
        CHECK(late != NULL);
        if (late) {
            CHECK_INT(late->rank, 2);
            CHECK_INT(late->deed.kind, STALL_DEED_COMPUTES);
            CHECK_STR(late->deed.function, "attend (pipe.py)");
            CHECK(!late->stages);
        }
        story_close(&job.story);
    }
}

// Two jobs of two ranks each in one recording, or two groups that serve requests: one works most of
// the time, the other one sends much.
static void pipe_apart(struct pipe *job)
{
    for (int group = 0; group < 2; group++) {
        double at = 1;
        for (int64_t step = 0; at < STORY_WINDOW_MS - 100; step++) {
            double came[2], end = 0;
            for (int i = 0; i < 2; i++) {
                came[i] = at + job->extra[2 * group + i] +
                        (group ? 3 : 9) * (0.95 + 0.1 * pipe_random(job));
                end = came[i] > end ? came[i] : end;
            }
            end += group ? 6 : link_ms;
            for (int i = 0; i < 2; i++)
                pipe_nccl(
                        job, 2 * group + i, "AllReduce", 100 + group, i, 2, -1, step, came[i], end);
            at = end;
        }
    }
}

TEST(ranks_of_another_job_are_no_measure)
{
    for (int rank = -1; rank < 4; rank++) {
        struct pipe job = pipe_of(4, 1);
        if (rank >= 0)
            job.extra[rank] = 2;
        pipe_open(&job);
        pipe_apart(&job);
        const struct stall *late = pipe_late(&job);
        CHECK_INT(pipe_named(&job), rank >= 0);
        if (late)
            CHECK_INT(late->rank, rank);
        story_close(&job.story);
    }
}
