// SPDX-License-Identifier: Apache-2.0
// Loading one traced launch: which windows are made of steps, blocks and slices, which are cold,
// which process is which rank, what of the GPU's tables is kept, and that no damaged row or page
// brings it down. Stores are made by SQL in a scratch directory.
#include "reports/analyse/stalls/launch_work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

enum { MS = 1000000 };

// Launch 1 is side 0, launch 2 side 1 of a traced pair; their recordings and main processes have
// the same numbers.
struct world {
    char dir[64], path[96];
    struct store *store;
    struct launch_trace *trace;
    struct error err;
};

static void world_sql(struct world *world, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
static void world_sql(struct world *world, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char sql[4000], *text = NULL;
    vsnprintf(sql, sizeof sql, fmt, args);
    va_end(args);
    if (sqlite3_exec(store_db(world->store), sql, NULL, NULL, &text) != SQLITE_OK) {
        printf("    %s: %s\n", sql, text);
        exit(1);
    }
}

// Times in ms from here on are of the launches: they started at 1000 ms.
static void world_open(struct world *world, const char *interleave)
{
    *world = (struct world){0};
    snprintf(world->dir, sizeof world->dir, "/tmp/upgate-launch-XXXXXX");
    if (!mkdtemp(world->dir))
        exit(1);
    snprintf(world->path, sizeof world->path, "%s/run.db", world->dir);
    if (store_open(world->path, STORE_CREATE, &world->store, &world->err))
        exit(1);
    world_sql(world,
            "BEGIN; INSERT INTO side VALUES (0, 'old', '{}', NULL), (1, 'new', '{}', NULL);"
            "INSERT INTO workload VALUES (1, 'train', 'train', 'steps', NULL, NULL);");
    for (int pair = 1; pair <= 2; pair++)
        world_sql(world,
                "INSERT INTO pair VALUES (%d, 1, %d, 'traced', 7, 0, '%s', 10, 'valid', NULL, NULL, 0, 1)",
                pair, pair - 1, interleave);
    for (int id = 1; id <= 2; id++)
        world_sql(world,
                "INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) VALUES "
                "(%d, 2, %d, 'ok', "
                "1000000000, 9000000000, '{}');"
                "INSERT INTO recording VALUES (%d, %d, 900000000, 9100000000, 1000000, 199, 1, '{}', '[]');"
                "INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, kind) VALUES (%d, %d, "
                "%d, 1, 1, 'python3', "
                "'target');"
                "INSERT INTO thread VALUES (%d, %d, %d, 'python3', NULL, NULL), (%d, %d, %d, 'worker', "
                "NULL, NULL);"
                "INSERT INTO thread_total VALUES (%d, 10, 9, 1000, 7000000000);"
                "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags) VALUES (%d, "
                "1101000000, 1101500000, "
                "1102500000, 1, 0);",
                id, id - 1, id, id, id, id, 1000 + id, id * 10, id, 1000 + id, id * 10 + 1, id,
                1100 + id, id * 10, id * 10);
}

// Steps of `length` ms each that begin every 10 ms from 100 ms on, of launch 1.
static void world_steps(struct world *world, int rank, int count, int length)
{
    for (int i = 0; i < count; i++)
        world_sql(world, "INSERT INTO step VALUES (1, %d, %d, %lld, %lld, NULL, 32)", rank, i,
                100LL * MS + i * 10LL * MS, (long long)length * MS);
}

#define WORLD_BLOCK "(pair_id, couple, side, ran_first, first_step, steps, begin_ns, active_ns)"

// Couples of `steps` steps; the block of couple k begins with its first step.
static void world_blocks(struct world *world, int count, int steps)
{
    for (int i = 0; i < count; i++)
        world_sql(world, "INSERT INTO block %s VALUES (2, %d, 0, 1, %d, %d, %lld, %lld)",
                WORLD_BLOCK, i, i * steps, steps, 1100LL * MS + i * steps * 10LL * MS,
                steps * 10LL * MS);
}

// A stream and two kernels: works id * 10 and id * 10 + 1 of the process.
static void world_gpu(struct world *world, int process)
{
    world_sql(world,
            "INSERT OR IGNORE INTO string VALUES (1, '_Z4gemm'), (2, '_Z4relu'), (3, 'cudaLaunchKernel'), (4, "
            "'cudaStreamSynchronize'), (5, 'layers.3.attn');"
            "INSERT OR IGNORE INTO gpu_kernel VALUES (1, 1, 'gemm(float*)', 8, 4, 1, 256, 1, 1, NULL, NULL, "
            "NULL, 90, 1024, 2048, 16, "
            "0.5), (2, 2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)', 1, 1, 1, "
            "32, 1, 1, NULL, NULL, "
            "NULL, 32, 0, 0, 0, 0.5);"
            "INSERT INTO gpu_process VALUES (%d, 'traced', NULL, 1, 130000, NULL, NULL, NULL, NULL, 1.0, 100, "
            "900, 10);"
            "INSERT INTO gpu_stream VALUES (%d, %d, 0, 1, 7, NULL, NULL);"
            "INSERT INTO gpu_work VALUES (%d, 0, %d, 1, 3, %d, NULL, NULL, NULL, NULL), (%d, 0, %d, 2, 3, %d, "
            "NULL, NULL, 77, 5);",
            process, process, process, process * 10, process, process * 10, process * 10 + 1,
            process, process * 10);
}

static void world_op(struct world *world, double at_ms, double length_ms, int work)
{
    world_sql(world, "INSERT INTO gpu_op VALUES (%lld, %lld, %d, 20000, 4000, 1)",
            1000LL * MS + (long long)(at_ms * MS), (long long)(length_ms * MS), work);
}

static int world_load_with(struct world *world, struct launch_trace_opts opts)
{
    launch_work_free(world->trace);
    world->trace = NULL;
    world->err = (struct error){0};
    return launch_work_load(world->store, 1, &opts, &world->trace, &world->err);
}

static const struct launch_trace *world_load(struct world *world)
{
    if (world_load_with(world, (struct launch_trace_opts){0})) {
        printf("    load: %s\n", world->err.text);
        exit(1);
    }
    return world->trace;
}

static void world_commit(struct world *world)
{
    world_sql(world, "COMMIT");
}

static void world_close(struct world *world)
{
    launch_work_free(world->trace);
    store_close(world->store);
    unlink(world->path);
    char journal[120];
    snprintf(journal, sizeof journal, "%s-journal", world->path);
    unlink(journal);
    rmdir(world->dir);
}

// The first one of a kind; none: one of no kind.
static struct launch_doubt doubt_of(const struct launch_trace *trace, enum launch_doubt_kind kind)
{
    for (size_t i = 0; i < trace->doubt_count; i++)
        if (trace->doubts[i].kind == kind)
            return trace->doubts[i];
    return (struct launch_doubt){.kind = LAUNCH_DOUBT_KINDS};
}

static bool doubts(
        const struct launch_trace *trace, enum launch_doubt_kind kind, int64_t count, int64_t of)
{
    struct launch_doubt doubt = doubt_of(trace, kind);
    return doubt.kind == kind && doubt.count == count && doubt.of == of;
}

static int64_t at_ms(double ms)
{
    return 1000LL * MS + (int64_t)(ms * MS);
}

// ---- windows ----

TEST(steps_are_windows_with_the_couple_of_their_block)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 20, 2);
    const struct launch_trace *trace = world_load(&world);
    CHECK(trace->has_steps && !trace->has_gpu);
    CHECK_INT(trace->step_count, 40);
    CHECK_INT(trace->cold_count, 5); // where steps never get steady: too few to say
    CHECK_INT(trace->window_count, 35);
    CHECK_INT(trace->windows[0].first_step, 5);
    CHECK_INT(trace->windows[0].couple, 2);
    CHECK_INT(trace->windows[0].begin, at_ms(150));
    CHECK_INT(trace->windows[0].end, at_ms(158));
    CHECK_INT(trace->windows[34].couple, 19);
    CHECK_INT(trace->windows[34].steps, 1);
    CHECK_INT(trace->pair, 1);
    CHECK_INT(trace->side, 0);
    CHECK_INT(trace->recording_id, 1);
    CHECK_INT(trace->ranks[0].window_count, 35);
    world_close(&world);
}

TEST(steady_start_by_the_gates_rule)
{
    struct world world;
    world_open(&world, "launches");
    for (int i = 0; i < 200; i++) { // the first 20 are slow
        int length = i < 20 ? 9 : 4;
        world_sql(&world, "INSERT INTO step VALUES (1, 0, %d, %lld, %lld, NULL, 32)", i,
                100LL * MS + i * 10LL * MS, (long long)length * MS + i % 3 * 1000);
    }
    const struct launch_trace *trace = world_load(&world);
    CHECK(trace->cold_count >= 20 && trace->cold_count <= 30);
    CHECK_INT(trace->window_count + trace->cold_count, 200);
    CHECK_INT(trace->windows[0].couple, -1);
    world_close(&world);
}

TEST(short_launch_keeps_half_of_its_steps)
{
    for (int count = 1; count <= 9; count++) {
        struct world world;
        world_open(&world, "launches");
        world_steps(&world, 0, count, 8);
        const struct launch_trace *trace = world_load(&world);
        CHECK_INT(trace->cold_count, count / 2 < 5 ? count / 2 : 5);
        CHECK_INT(trace->window_count + trace->cold_count, (size_t)count);
        world_close(&world);
    }
}

TEST(gpu_windows_are_blocks)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    for (int i = 0; i < 40; i++)
        world_op(&world, 101 + i * 10, 2, 10);
    const struct launch_trace *trace = world_load(&world);
    CHECK(trace->has_gpu);
    CHECK_INT(trace->cold_count, 2); // steps 0 to 4 are cold: block 1 begins with one of them
    CHECK_INT(trace->window_count, 8);
    CHECK_INT(trace->windows[0].first_step, 8);
    CHECK_INT(trace->windows[0].steps, 4);
    CHECK_INT(trace->windows[0].couple, 2);
    CHECK_INT(trace->windows[0].begin, at_ms(180));
    CHECK_INT(trace->windows[0].end, at_ms(218));
    CHECK_INT(trace->op_count, 40);
    world_close(&world);
}

TEST(one_block_is_never_all_cold)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 4, 8);
    world_blocks(&world, 1, 4);
    world_gpu(&world, 1);
    world_op(&world, 105, 2, 10);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->cold_count, 0);
    CHECK_INT(trace->window_count, 1);
    world_close(&world);
}

TEST(gpu_without_turns_has_groups_of_steps)
{
    struct world world;
    world_open(&world, "launches");
    world_steps(&world, 0, 100, 8);
    world_gpu(&world, 1);
    world_op(&world, 300, 2, 10);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->window_count + trace->cold_count, 20);
    CHECK_INT(trace->windows[0].steps, 5);
    CHECK_INT(trace->windows[0].couple, -1);
    world_close(&world);
}

TEST(gpu_that_ran_in_no_window_leaves_steps)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 20, 2);
    world_gpu(&world, 1);
    world_op(&world, 10, 20, 10); // setting up
    const struct launch_trace *trace = world_load(&world);
    CHECK(!trace->has_gpu);
    CHECK_INT(trace->op_count, 0);
    CHECK_INT(trace->window_count, 35);
    world_close(&world);
}

TEST(slices_are_windows)
{
    struct world world;
    world_open(&world, "slices");
    world_steps(&world, 0, 10, 8); // frozen in their middle: not looked at
    for (int i = 0; i < 6; i++)
        world_sql(&world, "INSERT INTO block %s VALUES (2, %d, 0, 1, NULL, NULL, %lld, %d)",
                WORLD_BLOCK, i, 1100LL * MS + i * 40LL * MS, 20 * MS);
    const struct launch_trace *trace = world_load(&world);
    CHECK(!trace->has_steps);
    CHECK_INT(trace->cold_count, 1);
    CHECK_INT(trace->window_count, 5);
    CHECK_INT(trace->windows[0].couple, 1);
    CHECK_INT(trace->windows[0].begin, at_ms(140));
    CHECK_INT(trace->windows[0].end, at_ms(160));
    CHECK_INT(trace->windows[0].steps, 1);
    world_close(&world);
}

TEST(launch_without_steps_is_one_window)
{
    struct world world;
    world_open(&world, "launches");
    const struct launch_trace *trace = world_load(&world);
    CHECK(!trace->has_steps);
    CHECK_INT(trace->rank_count, 1);
    CHECK_INT(trace->window_count, 1);
    CHECK_INT(trace->cold_count, 0);
    CHECK_INT(trace->windows[0].begin, at_ms(0));
    CHECK_INT(trace->windows[0].end, at_ms(8000));
    CHECK_INT(trace->ranks[0].process, 0); // who works
    CHECK_INT(trace->ranks[0].process_id, 1);
    world_close(&world);
}

TEST(steps_outside_the_recording_do_not_count)
{
    struct world world;
    world_open(&world, "launches");
    world_sql(
            &world, "UPDATE recording SET begin_ns = 1150000000, end_ns = 1405000000 WHERE id = 1");
    world_steps(&world, 0, 40, 8);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->window_count + trace->cold_count, 25);
    CHECK_INT(trace->steps[0].begin, at_ms(100)); // they are told
    CHECK(doubts(trace, LAUNCH_DOUBT_OUTSIDE, 15, 0));
    world_close(&world);
}

TEST(lost_and_overlapping_steps)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_sql(&world, "DELETE FROM step WHERE idx IN (21, 28, 29, 30, 31)");
    world_sql(&world, "UPDATE step SET dur_ns = 25000000 WHERE idx = 33"); // runs into 34 and 35
    const struct launch_trace *trace = world_load(&world);
    int64_t end = 0;
    for (size_t i = 0; i < trace->window_count; i++) {
        CHECK(trace->windows[i].begin >= end && trace->windows[i].end > trace->windows[i].begin);
        CHECK_INT(trace->windows[i].couple, trace->windows[i].first_step / 4);
        end = trace->windows[i].end;
    }
    world_close(&world);
}

// ---- ranks ----

TEST(ranks_by_their_pids)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world,
            "INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, kind) VALUES (5, "
            "1, 900, 1, 1, 'python3', "
            "'target'); INSERT INTO thread VALUES (50, 5, 900, 'python3', NULL, NULL);"
            "INSERT INTO launch_rank VALUES (1, 0, 1001), (1, 1, 900)");
    world_steps(&world, 0, 10, 8);
    world_steps(&world, 1, 10, 7);
    world_sql(&world,
            "INSERT INTO phase_span VALUES (1, 1, 100000000, 0, 5000000, 'forward'), (1, 1, "
            "100000000, 1, 2000000, 'attn'), "
            "(1, 1, 106000000, 0, 1000000, 'forward')");
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->rank_count, 2);
    CHECK_INT(trace->ranks[0].process_id, 1);
    CHECK_INT(trace->ranks[1].process_id, 5);
    CHECK_INT(trace->host->threads[trace->ranks[1].thread].tid, 900);
    CHECK_INT(trace->host->processes[trace->ranks[0].process].tgid, 1001);
    CHECK_INT(trace->window_count, 10);
    CHECK_INT(trace->ranks[1].window_first, 5);
    CHECK_INT(trace->ranks[0].phase_count, 0);
    CHECK_INT(trace->ranks[1].phase_first, 0);
    CHECK_INT(trace->ranks[1].phase_count, 3);
    CHECK_STR(trace->phases[1].name, "attn");
    CHECK_INT(trace->phases[1].depth, 1);
    CHECK(trace->phases[2].name == trace->phases[0].name);
    CHECK_INT(trace->doubt_count, 0);
    world_close(&world);
}

TEST(older_store_takes_who_leads)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world,
            "INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, kind) VALUES (5, "
            "1, 900, 1, 1, 'sh', "
            "'target'); INSERT INTO thread VALUES (50, 5, 900, 'sh', NULL, NULL); INSERT INTO "
            "thread_total VALUES (50, 1, 1, 1, 1000)");
    world_steps(&world, 0, 10, 8);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->ranks[0].process_id, 1);
    CHECK_INT(trace->host->threads[trace->ranks[0].thread].tid, 1001);
    CHECK_INT(trace->doubt_count, 0);
    world_close(&world);
}

TEST(ranks_of_another_namespace_in_the_order_of_pids)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world,
            "INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, kind) VALUES (5, "
            "1, 900, 1, 1, 'python3', "
            "'target'); INSERT INTO thread VALUES (50, 5, 900, 'python3', NULL, NULL); INSERT INTO "
            "thread_total VALUES (50, 1, 1, "
            "1, 6000000000); INSERT INTO launch_rank VALUES (1, 0, 7), (1, 1, 8)");
    world_steps(&world, 0, 10, 8);
    world_steps(&world, 1, 10, 7);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->ranks[0].process_id, 5);
    CHECK_INT(trace->ranks[1].process_id, 1);
    CHECK(doubts(trace, LAUNCH_DOUBT_RANKS_BY_PID, 0, 0));
    // one is known: the other may be anybody
    world_sql(&world, "UPDATE launch_rank SET pid = 1001 WHERE rank = 0");
    trace = world_load(&world);
    CHECK_INT(trace->ranks[0].process_id, 1);
    CHECK_INT(trace->ranks[1].process_id, 0);
    CHECK(trace->ranks[1].process == LAUNCH_TRACE_NONE &&
            trace->ranks[1].thread == LAUNCH_TRACE_NONE);
    CHECK(doubts(trace, LAUNCH_DOUBT_RANKS_UNKNOWN, 1, 2));
    world_close(&world);
}

TEST(no_recording)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world, "UPDATE recording SET launch_id = NULL WHERE id = 1");
    CHECK_INT(world_load_with(&world, (struct launch_trace_opts){0}), -ENOENT);
    CHECK(strstr(world.err.text, "no recording of launch 1"));
    CHECK(!world.trace);
    CHECK_INT(launch_work_load(world.store, 99, NULL, &world.trace, NULL), -ENOENT);
    world_close(&world);
}

TEST(host_that_was_not_recorded)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world, "DELETE FROM gap");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    world_op(&world, 301, 2, 10);
    const struct launch_trace *trace = world_load(&world);
    CHECK(!trace->host && !trace->host_work);
    CHECK(doubts(trace, LAUNCH_DOUBT_NO_HOST, 0, 0));
    CHECK_INT(trace->op_count, 1);
    CHECK_INT(trace->ranks[0].process_id, 1); // who has a GPU
    CHECK(trace->works[trace->ops[0].work].thread == LAUNCH_TRACE_NONE);
    CHECK_INT(trace->works[trace->ops[0].work].rank, 0);
    world_close(&world);
}

TEST(host_parts_are_sorted_and_say_the_cause)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world,
            "INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_out, cpu_in, "
            "next_thread) VALUES "
            "(10, 1130000000, NULL, 1134000000, 0, 0, 0, 0, 20)"); // preempted
    world_steps(&world, 0, 10, 8);
    const struct launch_trace *trace = world_load(&world);
    CHECK(trace->host && trace->host_work && trace->host_work->part_first);
    size_t parts = trace->host_work->part_count;
    CHECK(parts > 0);
    CHECK_INT(trace->host_work->part_first[trace->host->thread_count], parts);
    world_close(&world);
}

// The stall analysis looks at the launch's turns alone; what it did before its first step is kept
// apart.
TEST(samples_outside_of_the_turns)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 20, 2);
    world_sql(&world,
            "INSERT INTO sample (thread_id, at_ns, cpu, why) VALUES (10, 1000500000, 0, 1), (10, 1105000000, 0, 1), "
            // the last is of the other launch
            "(11, 1950000000, 0, 1), (20, 1105000000, 0, 1)");
    const struct trace *host = world_load(&world)->host;
    CHECK_INT(host->sample_count, 1);
    CHECK_INT(host->samples[0].at, at_ms(105));
    CHECK_INT(host->outside_count, 2);
    CHECK_INT(host->outside[0].at, at_ms(0.5));
    CHECK_INT(host->threads[host->outside[0].thread].id, 10);
    CHECK_INT(host->threads[host->outside[1].thread].id, 11);
    world_close(&world);
}

// ---- the GPU's side ----

TEST(ops_are_sorted_and_cut_to_windows)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    world_gpu(&world, 2);
    world_op(&world, 301, 2, 11);
    world_op(&world, 205, 2, 10);
    world_op(&world, 205, 2, 10);
    world_op(&world, 50, 2, 10);              // before all
    world_op(&world, 219, 0.5, 10);           // between blocks
    world_op(&world, 217, 4, 10);             // into the gap
    world_op(&world, 219, 4, 10);             // out of it
    world_op(&world, 600, 4, 10);             // behind all
    world_op(&world, 206, 2, 20);             // of the other side
    for (int round = 0; round < 2; round++) { // by SQL inside a transaction, then by pages
        const struct launch_trace *trace = world_load(&world);
        CHECK_INT(trace->op_count, 5);
        const double expected[] = {205, 205, 217, 219, 301};
        for (size_t i = 0; i < trace->op_count; i++)
            CHECK_INT(trace->ops[i].start, at_ms(expected[i]));
        const struct launch_op *last = &trace->ops[4];
        const struct launch_work *work = &trace->works[last->work];
        CHECK_INT(last->dur, 2 * MS);
        CHECK_INT(last->call_ago, 20000);
        CHECK_INT(last->call_dur, 4000);
        CHECK_STR(work->call_name, "cudaLaunchKernel");
        CHECK_INT(work->graph, 77);
        CHECK_INT(work->graph_node, 5);
        CHECK(trace->kernels[work->kernel].comm);
        const struct launch_kernel *gemm = &trace->kernels[trace->works[trace->ops[0].work].kernel];
        CHECK_STR(gemm->name, "gemm(float*)");
        CHECK(!gemm->comm);
        CHECK_INT(gemm->grid[1], 4);
        CHECK_INT(gemm->shared_bytes, 3072);
        CHECK_INT(trace->stream_count, 1);
        if (!round)
            world_commit(&world);
    }
    world_close(&world);
}

TEST(op_without_call_and_long_ones)
{
    struct world world;
    world_open(&world, "launches");
    world_gpu(&world, 1);
    world_sql(&world,
            "INSERT INTO gpu_op VALUES (1000000000, 6000000000, 10, NULL, NULL, 1), (1000000001, "
            "-5, 10, 5000000000, -1, 2), "
            "(1000000002, 5, 10, -700, 300, 3)");
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->op_count, 3);
    CHECK_INT(trace->ops[0].dur, UINT32_MAX);
    CHECK_INT(trace->ops[0].call_ago, UINT32_MAX);
    CHECK_INT(trace->ops[0].call_dur, 0);
    CHECK_INT(trace->ops[1].dur, 0);
    CHECK_INT(trace->ops[1].call_ago, UINT32_MAX);
    CHECK_INT(trace->ops[2].call_ago, UINT32_MAX);
    CHECK(doubts(trace, LAUNCH_DOUBT_EARLY, 1, 3));
    world_close(&world);
}

// Several levels of pages, two recordings behind each other: what the pages say is what SQL says.
TEST(many_ops_by_pages_and_by_sql)
{
    struct world world;
    world_open(&world, "launches");
    world_gpu(&world, 1);
    world_gpu(&world, 2);
    const int recordings[] = {2, 1, 2};
    for (int i = 0; i < 3; i++)
        world_sql(&world,
                "WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 79999) INSERT "
                "INTO gpu_op SELECT "
                "1000000000 + k * 50000 - (k %% 1000 = 7) * 200000, 3000 + k %% 77, %d + k %% 2, CASE WHEN "
                "k %% 5 THEN 9000 + k %% 300 END, "
                "CASE WHEN k %% 5 THEN k %% 70000 END, k FROM n",
                recordings[i] * 10);
    const struct launch_trace *trace = world_load(&world);
    size_t count = trace->op_count;
    struct launch_op *ops = xcalloc(count + 1, sizeof *ops);
    memcpy(ops, trace->ops, count * sizeof *ops);
    CHECK_INT(count, 80000);
    for (size_t i = 1; i < count; i++)
        if (ops[i].start < ops[i - 1].start)
            CHECK(!"sorted");
    world_commit(&world);
    trace = world_load(&world);
    CHECK_INT(trace->op_count, count);
    CHECK(!memcmp(trace->ops, ops, count * sizeof *ops));
    free(ops);
    world_close(&world);
}

TEST(calls_syncs_marks_ranges_collectives_nodes)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    world_op(&world, 301, 2, 10);
    world_sql(&world,
            "INSERT INTO gpu_call VALUES (1302000000, 1000000, 1, 10, 4, 9, 0), (1301000000, 500000, 1, "
            "10, 3, 8, 0), (5000000000, 1, 1, "
            "10, 4, 10, 0);"
            "INSERT INTO gpu_sync VALUES (1302000100, 999000, 1, 3, 1, 10, 9, NULL, NULL), (1303500000, "
            "1000, 1, 4, NULL, NULL, 99, "
            "NULL, NULL), (1303600000, 1000, 1, 2, 1, NULL, 98, NULL, NULL);"
            "INSERT INTO python_mark VALUES (1, 10, 1300000000, 1, 5, 0), (1, 10, 1299000000, 3, NULL, 20);"
            "INSERT INTO nvtx_range VALUES (1300000000, 2000000, 1, 10, 5, NULL), (1300000000, 3000000, 1, "
            "10, 4, NULL), (1300000000, "
            "NULL, 1, 10, 4, NULL);"
            "INSERT INTO nccl_op VALUES (1, 10, 1301000000, 1303000000, 1301100000, 1302900000, -5, "
            "'world', 0, 2, NULL, 41, 'AllReduce', "
            "'f32', 'Ring', 'LL', 1024, 4096, 8, 16, 4);"
            "INSERT INTO gpu_graph_node VALUES (1, 5, 10, 1200000000, NULL);");
    const struct launch_trace *trace = world_load(&world);
    // the sync that has its call is one with it; the one of the GPU is none
    CHECK_INT(trace->call_count, 3);
    CHECK_STR(trace->calls[0].name, "cudaLaunchKernel");
    CHECK_STR(trace->calls[1].name, "cudaStreamSynchronize");
    CHECK_INT(trace->calls[1].end, at_ms(303));
    CHECK_STR(trace->calls[2].name, "wait for a context");
    CHECK_INT(trace->calls[0].rank, 0);
    CHECK_INT(trace->calls[0].thread, trace->ranks[0].thread);
    CHECK_INT(trace->mark_count, 2);
    CHECK_INT(trace->marks[0].value, 20);
    CHECK(!trace->marks[0].name);
    CHECK_STR(trace->marks[1].name, "layers.3.attn");
    CHECK_INT(trace->range_count, 2);
    CHECK_STR(trace->ranges[0].name, "cudaStreamSynchronize"); // the outer one
    CHECK_INT(trace->nccl_count, 1);
    CHECK_STR(trace->nccl[0].protocol, "LL");
    CHECK_INT(trace->nccl[0].kernel_end - trace->nccl[0].kernel_begin, 1800000);
    // of AllReduce: each function has numbers of its own
    CHECK_INT(trace->nccl[0].sequence, 41 * 8);
    CHECK_INT(trace->node_count, 1);
    CHECK_INT(trace->nodes[0].node, 5);
    CHECK_INT(trace->nodes[0].rank, 0);
    CHECK_INT(world_load_with(&world, (struct launch_trace_opts){.host_only = true}), 0);
    CHECK(world.trace->host && !world.trace->op_count && !world.trace->call_count);
    world_close(&world);
}

TEST(process_without_a_rank_is_kept)
{
    struct world world;
    world_open(&world, "steps");
    world_sql(&world,
            "INSERT INTO process (id, recording_id, tgid, start_ns, ppid, comm, kind) VALUES (5, "
            "1, 900, 1, 1, 'render', "
            "'target'); INSERT INTO thread VALUES (50, 5, 900, 'render', NULL, NULL); INSERT INTO "
            "launch_rank VALUES (1, 0, 1001)");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    world_gpu(&world, 5);
    world_op(&world, 301, 2, 10);
    world_op(&world, 302, 2, 50);
    world_op(&world, 60, 2, 50);
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->op_count, 2);
    CHECK(trace->works[trace->ops[1].work].rank == LAUNCH_TRACE_NONE);
    CHECK_INT(trace->works[trace->ops[0].work].rank, 0);
    world_close(&world);
}

TEST(doubts_are_told)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 10, 8);
    world_gpu(&world, 1);
    world_op(&world, 150, 2, 10);
    world_sql(&world,
            "INSERT INTO ledger VALUES (1, 1, 'gpu.kernel', 'records', 100, 93, 7, 1, 'buffers "
            "were full'), (2, 1, 'bpf.gap', "
            "'records', 50, 48, 2, 0, NULL), (3, 1, 'steps', 'tensors', 50, 48, 2, 0, NULL), (4, "
            "2, 'gpu.kernel', 'records', 9, 8, 1, "
            "1, NULL), (5, 1, 'gpu.copy', 'records', 9, 9, 0, 0, NULL);"
            "UPDATE gpu_process SET clock_residual_max_ns = 25000");
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->doubt_count, 3);
    struct launch_doubt lost = trace->doubts[0], less = trace->doubts[1];
    CHECK(doubts(trace, LAUNCH_DOUBT_LOST, 7, 100));
    CHECK_STR(lost.producer, "gpu.kernel");
    CHECK_STR(lost.what, "records");
    CHECK_STR(lost.detail, "buffers were full");
    CHECK(less.kind == LAUNCH_DOUBT_LOST && less.count == 2 && less.of == 50 && !less.detail);
    CHECK_STR(less.producer, "bpf.gap");
    CHECK(doubts(trace, LAUNCH_DOUBT_CLOCK, 25, 0));
    world_sql(&world, "UPDATE gpu_process SET state = 'refused', reason = 'CUPTI is in use'");
    struct launch_doubt refused = doubt_of(world_load(&world), LAUNCH_DOUBT_REFUSED);
    CHECK_INT(refused.pid, 1001);
    CHECK_STR(refused.detail, "CUPTI is in use");
    world_close(&world);
}

// ---- damage ----

TEST(references_that_lead_nowhere)
{
    struct world world;
    world_open(&world, "steps");
    world_steps(&world, 0, 40, 8);
    world_blocks(&world, 10, 4);
    world_gpu(&world, 1);
    world_op(&world, 301, 2, 10);
    world_sql(&world,
            "PRAGMA defer_foreign_keys = ON;"
            "INSERT INTO gpu_work VALUES (90, 0, 999, 1, 3, 10, NULL, NULL, NULL, NULL), (91, 300, 1, 777, "
            "888888888, 999999, -1, -1, -1, -1), "
            "(92, -7, 1, -3, -4, -5, NULL, NULL, NULL, NULL);"
            "INSERT INTO gpu_op VALUES (1301000000, 5, 90, 1, 1, 1), (1301000001, 5, 91, 1, 1, 1), "
            "(1301000002, 5, 92, 1, 1, 1), "
            "(1301000003, 5, 123456789012345, 1, 1, 1), (1301000004, 5, -9, 1, 1, 1), "
            "(2305843009213693951, 2305843009213693951, 10, 1, 1, "
            "1), (-2305843009213693952, 1, 10, 1, 1, 1), (1301000005, 2305843009213693951, 10, "
            "2305843009213693951, "
            "-2305843009213693952, 1);"
            "INSERT INTO gpu_call VALUES (1301000000, 5, 99, 10, 4, 1, 0), (1301000000, 5, 1, 9999, 12345, "
            "1, 0), (2305843009213693951, "
            "2305843009213693951, 1, 10, 4, 1, 0);"
            "INSERT INTO gpu_sync VALUES (1301000000, 5, 1, 77, 9, 9, 5, NULL, NULL), (1301000000, 5, 88, "
            "3, 9, 9, 5, NULL, NULL);"
            "INSERT INTO python_mark VALUES (55, 10, 1301000000, 1, 5, 0), (1, 9999, 1301000000, 1, "
            "987654321, 0), (1, 10, "
            "2305843009213693951, 1, 5, 0);"
            "INSERT INTO nvtx_range VALUES (1301000000, -5, 1, 10, 5, NULL), (1301000000, 5, 1, 9999, "
            "987654321, NULL), (1301000000, 5, "
            "66, 10, 5, NULL);"
            "INSERT INTO nccl_op VALUES (77, 10, 1301000000, NULL, NULL, NULL, 0, NULL, 0, 2, NULL, 1, "
            "'x', NULL, NULL, NULL, 0, 0, NULL, "
            "NULL, 1), (1, 9999, -5, -7, NULL, NULL, 0, NULL, 0, 2, NULL, 1, 'x', NULL, NULL, NULL, 0, 0, "
            "NULL, NULL, 1);"
            "INSERT INTO gpu_graph_node VALUES (66, 5, 10, 1200000000, NULL), (1, -5, 9999, -3, NULL);"
            "INSERT INTO step VALUES (1, 5, 9007199254740991, 1000000000000000000, 1000000000000000000, "
            "NULL, NULL), (1, 0, -4, -5, "
            "-6, NULL, NULL);"
            "INSERT INTO block " WORLD_BLOCK
            " VALUES (2, 4000000000, 0, 1, 9007199254740991, 9007199254740991, "
            "1000000000000000000, "
            "1000000000000000000), (2, 900, 0, 1, 800, 9007199254740991, 0, 0);"
            "INSERT INTO phase_span VALUES (1, 0, -2305843009213693952, -1, 2305843009213693951, 'x'), (1, "
            "44, 0, 0, 1, 'x'), (1, 0, 0, "
            "2305843009213693951, 1, 'x');"
            "INSERT INTO launch_rank VALUES (1, 9, -1), (1, -3, 999)");
    const struct launch_trace *trace = world_load(&world);
    CHECK_INT(trace->op_count, 4); // of works 10, 91, 92 and the endless one
    for (size_t i = 0; i < trace->op_count; i++) {
        const struct launch_work *work = &trace->works[trace->ops[i].work];
        CHECK(work->kernel == LAUNCH_TRACE_NONE || work->kernel < trace->kernel_count);
        CHECK(work->thread == LAUNCH_TRACE_NONE || work->thread < trace->host->thread_count);
        CHECK(work->stream < trace->stream_count);
    }
    for (size_t i = 0; i < trace->kernel_count; i++)
        CHECK(trace->kernels[i].name);
    for (size_t i = 0; i < trace->call_count; i++)
        CHECK(trace->calls[i].name);
    CHECK_INT(trace->phase_count, 1);
    world_close(&world);
}

// What is beyond every clock would overflow in what is computed of it: an error that names it, by
// whatever way the table is read.
TEST(times_out_of_range)
{
    static const struct {
        const char *sql, *says;
    } rows[] = {
            {"UPDATE gpu_op SET start_ns = 2305843009213693952 WHERE rowid = 3", "start_ns"},
            {"UPDATE gpu_op SET dur_ns = -9223372036854775808 WHERE rowid = 1", "dur_ns"},
            {"UPDATE gpu_op SET call_ns = 9223372036854775807 WHERE rowid = 1", "call_ns"},
            {"INSERT INTO gpu_call VALUES (-2305843009213693953, 5, 1, 10, 4, 1, 0)", "start_ns"},
            {"INSERT INTO python_mark VALUES (1, 10, 9223372036854775807, 1, 5, 0)", "at_ns"},
            {"INSERT INTO nvtx_range VALUES (1301000000, 9223372036854775807, 1, 10, 5, NULL)",
                    "dur_ns"},
            {"INSERT INTO step VALUES (1, 5, 0, 9223372036854775807, 5, NULL, NULL)", "begin_ns"},
            {"INSERT INTO step VALUES (1, 5, 9007199254740992, 0, 5, NULL, NULL)", "idx"},
            {"INSERT INTO phase_span VALUES (1, 0, 0, 0, 9223372036854775807, 'x')", "dur_ns"},
            {"UPDATE recording SET end_ns = 9223372036854775807", "end_ns"},
            {"UPDATE gpu_process SET clock_residual_max_ns = 9223372036854775807", "residual_ns"},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct world world;
        world_open(&world, "steps");
        world_steps(&world, 0, 40, 8);
        world_blocks(&world, 10, 4);
        world_gpu(&world, 1);
        for (int op = 0; op < 4; op++)
            world_op(&world, 301 + op, 2, 10);
        world_sql(&world, "PRAGMA defer_foreign_keys = ON; DELETE FROM step WHERE rank = 5");
        CHECK_INT(world_load_with(&world, (struct launch_trace_opts){0}), 0);
        world_sql(&world, "%s", rows[i / 2].sql);
        if (i % 2) // read page by page
            world_commit(&world);
        CHECK_INT(world_load_with(&world, (struct launch_trace_opts){0}), -EBADMSG);
        CHECK_CONTAINS(world.err.text, "is damaged");
        CHECK_CONTAINS(world.err.text, rows[i / 2].says);
        world_close(&world);
    }
}

// Bytes of the file turned over: an error in words or an answer, never a crash.
TEST(damaged_pages)
{
    struct world world;
    world_open(&world, "launches");
    world_gpu(&world, 1);
    world_gpu(&world, 2);
    world_sql(&world,
            "WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 29999) "
            "INSERT INTO gpu_op SELECT "
            "1000000000 + k * 50000, 3000, 10 + k / 15000 * 10, 9000, 500, k FROM n;"
            "WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 2999) "
            "INSERT INTO python_mark SELECT 1, 10, "
            "1000000000 + k * 500000, 1, 5, 0 FROM n");
    world_commit(&world);
    store_close(world.store);
    world.store = NULL;
    size_t len;
    char *whole = string_read_file(world.path, 64 << 20, &len);
    srand(7);
    for (int round = 0; round < 60; round++) {
        FILE *file = fopen(world.path, "wb");
        char *bytes = xcalloc(len, 1);
        memcpy(bytes, whole, len);
        for (int i = 0; i < 8; i++) // in headers of pages mostly
            bytes[4096 * (1 + (size_t)rand() % (len / 4096 - 1)) +
                    (size_t)rand() % (i % 2 ? 4096 : 16)] ^= (char)(1 << rand() % 8);
        CHECK(fwrite(bytes, 1, round % 10 ? len : len / 2, file) > 0);
        fclose(file);
        free(bytes);
        struct error err = {0};
        if (store_open(world.path, STORE_READ, &world.store, &err))
            continue;
        int rc = world_load_with(&world, (struct launch_trace_opts){0});
        CHECK(rc == 0 || (rc < 0 && world.err.text[0]));
        launch_work_free(world.trace);
        world.trace = NULL;
        store_close(world.store);
        world.store = NULL;
    }
    free(whole);
    world_close(&world);
}
