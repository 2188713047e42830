// SPDX-License-Identifier: Apache-2.0
// The GPU's critical path on launches made by hand: what is on the path, what is hidden, why there
// are gaps, and that every window's leaves sum to its wall time whatever the operations are.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "contracts/spool.h"
#include "reports/analyse/diff/explain/stragglers.h"
#include "reports/analyse/diff/path/gpu_path.h"
#include "tests/unit/runner.h"

enum { OPS_MAX = 4096, WORKS_MAX = 64, MISC_MAX = 256, RANKS_MAX = 4, US = 1000 };

struct rig {
    struct launch_trace trace;
    struct launch_rank ranks[RANKS_MAX];
    struct launch_window windows[MISC_MAX];
    struct launch_step steps[MISC_MAX];
    struct launch_phase phases[MISC_MAX];
    struct launch_kernel kernels[WORKS_MAX];
    struct launch_work works[WORKS_MAX];
    struct launch_op ops[OPS_MAX];
    struct launch_call calls[MISC_MAX];
    struct launch_nccl nccl[MISC_MAX];
    struct launch_mark marks[MISC_MAX];
    struct launch_node nodes[MISC_MAX];
    struct launch_range ranges[MISC_MAX];
    struct host_path *host;
    struct cost_tree *tree;
    const uint32_t *first; // after rig_run
};

static struct rig *rig_new(void)
{
    struct rig *rig = calloc(1, sizeof *rig);
    rig->trace = (struct launch_trace){.has_gpu = true,
            .has_steps = true,
            .ranks = rig->ranks,
            .windows = rig->windows,
            .steps = rig->steps,
            .phases = rig->phases,
            .kernels = rig->kernels,
            .works = rig->works,
            .ops = rig->ops,
            .calls = rig->calls,
            .nccl = rig->nccl,
            .marks = rig->marks,
            .nodes = rig->nodes,
            .ranges = rig->ranges,
            .rank_count = 1};
    for (int i = 0; i < RANKS_MAX; i++)
        rig->ranks[i] = (struct launch_rank){
                .rank = i, .process = LAUNCH_TRACE_NONE, .thread = LAUNCH_TRACE_NONE};
    return rig;
}

static void rig_free(struct rig *rig)
{
    host_path_free(rig->host);
    cost_tree_free(rig->tree);
    free(rig);
}

// A window of one step, of rank 0 unless it says otherwise. All of a rank before the next one.
static void rig_window(struct rig *rig, uint32_t rank, int64_t begin, int64_t end)
{
    size_t at = rig->trace.window_count++;
    if (!rig->ranks[rank].window_count)
        rig->ranks[rank].window_first = (uint32_t)at;
    rig->ranks[rank].window_count++;
    rig->windows[at] = (struct launch_window){
            .begin = begin, .end = end, .rank = rank, .steps = 1, .couple = (int32_t)at};
    rig->steps[rig->trace.step_count++] =
            (struct launch_step){.begin = begin, .end = end, .rank = rank, .idx = (uint32_t)at};
}

static uint32_t rig_kernel(struct rig *rig, const char *name, uint32_t stream)
{
    uint32_t kernel = (uint32_t)rig->trace.kernel_count++, work = (uint32_t)rig->trace.work_count++;
    rig->kernels[kernel] = (struct launch_kernel){.name = name,
            .grid = {1, 1, 1},
            .block = {32, 1, 1},
            .comm = !strncmp(name, "nccl", 4)};
    rig->works[work] = (struct launch_work){.kernel = kernel,
            .stream = stream,
            .thread = LAUNCH_TRACE_NONE,
            .call_name = "cudaLaunchKernel"};
    return work;
}

static uint32_t rig_copy(struct rig *rig, int kind, uint32_t memory, const char *call)
{
    uint32_t work = (uint32_t)rig->trace.work_count++;
    rig->works[work] = (struct launch_work){.kind = (uint8_t)(16 + kind),
            .kernel = LAUNCH_TRACE_NONE,
            .thread = LAUNCH_TRACE_NONE,
            .memory = memory,
            .bytes = 4096,
            .call_name = call};
    return work;
}

static void rig_op(
        struct rig *rig, uint32_t work, int64_t start, int64_t dur, int64_t call, int64_t call_dur)
{
    rig->ops[rig->trace.op_count++] = (struct launch_op){.start = start,
            .dur = (uint32_t)dur,
            .work = work,
            .call_ago = call < 0 ? UINT32_MAX : (uint32_t)(start - call),
            .call_dur = (uint32_t)call_dur};
}

static void rig_mark(struct rig *rig, int64_t at, int kind, const char *name)
{
    rig->marks[rig->trace.mark_count++] = (struct launch_mark){
            .at = at, .name = name, .thread = LAUNCH_TRACE_NONE, .kind = (uint8_t)kind};
}

static void rig_phase(struct rig *rig, int64_t begin, int64_t end, const char *name)
{
    rig->ranks[0].phase_count++;
    rig->phases[rig->trace.phase_count++] =
            (struct launch_phase){.begin = begin, .end = end, .name = name};
}

static void rig_call(struct rig *rig, const char *name, int64_t begin, int64_t end)
{
    rig->calls[rig->trace.call_count++] = (struct launch_call){
            .begin = begin, .end = end, .name = name, .thread = LAUNCH_TRACE_NONE};
}

// Runs, and checks that each window's rows sum to its wall time.
static void rig_run(struct rig *rig)
{
    rig->tree = cost_tree_new();
    rig->host = host_path_new(&rig->trace, rig->tree);
    launch_path_add(&rig->trace, rig->host, rig->tree);
    rig->first = cost_tree_finish(rig->tree);
    CHECK_INT(rig->tree->window_count, rig->trace.window_count);
    int64_t *sums = calloc(rig->tree->window_count + 1, sizeof *sums);
    for (size_t i = 0; i < rig->tree->row_count; i++) {
        CHECK(rig->tree->rows[i].ns >= 0 && rig->tree->rows[i].busy_ns >= 0);
        sums[rig->tree->rows[i].window] += rig->tree->rows[i].ns;
    }
    for (size_t i = 0; i < rig->tree->window_count; i++) {
        CHECK_INT(rig->tree->windows[i].wall_ns, rig->windows[i].end - rig->windows[i].begin);
        CHECK_INT(sums[i], rig->tree->windows[i].wall_ns);
    }
    free(sums);
}

// The leaf of this name; `place` is the name of what is right above it, NULL: whatever. NULL: there
// is none.
static const struct cost_node *rig_leaf(
        const struct rig *rig, const char *name, const char *place, uint32_t occurrence)
{
    for (size_t i = 0; i < rig->tree->node_count; i++) {
        const struct cost_node *node = &rig->tree->nodes[i];
        if (node->kind >= COST_KERNEL && !strcmp(node->name, name) &&
                node->occurrence == occurrence &&
                (!place || !strcmp(rig->tree->nodes[node->parent].name, place)))
            return node;
    }
    return NULL;
}

// Of all leaves of the name; -1: there is none.
static int64_t rig_ns(const struct rig *rig, const char *name)
{
    int64_t ns = -1;
    for (size_t i = 0; i < rig->tree->node_count; i++)
        if (rig->tree->nodes[i].kind >= COST_KERNEL && !strcmp(rig->tree->nodes[i].name, name))
            ns = (ns < 0 ? 0 : ns) + rig->tree->nodes[i].ns;
    return ns;
}

static int64_t rig_class(const struct rig *rig, enum cost_class class)
{
    int64_t ns = 0;
    for (size_t i = 0; i < rig->tree->node_count; i++)
        if (rig->tree->nodes[i].kind >= COST_KERNEL && rig->tree->nodes[i].class == class)
            ns += rig->tree->nodes[i].ns;
    return ns;
}

TEST(hidden_kernel_is_not_on_the_path)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000);
    uint32_t main = rig_kernel(rig, "gemm", 0), side = rig_kernel(rig, "augment", 1);
    rig_op(rig, main, 100, 800, 10, 20);
    rig_op(rig, side, 200, 600, 40, 20);
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "gemm"), 800);
    CHECK_INT(rig_ns(rig, "augment"), 0);
    CHECK_INT(rig_leaf(rig, "augment", NULL, 0)->busy_ns, 600);
    CHECK_INT(rig_leaf(rig, "augment", NULL, 0)->count, 1);
    rig_free(rig);
}

TEST(classes_beat_each_other)
{
    // A copy from 0 to 100, communication from 20 to 80, a kernel from 40 to 60: each owns what is
    // left.
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 100);
    uint32_t copy = rig_copy(rig, UG_COPY_HTOD, 2 * 16 + 3, "cudaMemcpyAsync");
    uint32_t comm = rig_kernel(rig, "ncclDevKernel", 1), kernel = rig_kernel(rig, "gemm", 0);
    rig_op(rig, copy, 0, 100, -1, 0);
    rig_op(rig, comm, 20, 60, -1, 0);
    rig_op(rig, kernel, 40, 20, -1, 0);
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "HtoD pinned"), 40);
    CHECK_INT(rig_ns(rig, "ncclDevKernel"), 40);
    CHECK_INT(rig_ns(rig, "gemm"), 20);
    CHECK_INT(rig_class(rig, COST_COMM_EXPOSED), 40);
    CHECK_INT(rig_class(rig, COST_COPY), 40);
    CHECK_INT(rig_leaf(rig, "HtoD pinned", NULL, 0)->shape.bytes, 4096);
    rig_free(rig);
}

TEST(first_of_two_kernels_owns_the_instant)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 100);
    uint32_t a = rig_kernel(rig, "a", 0), b = rig_kernel(rig, "b", 1), c = rig_kernel(rig, "c", 2);
    rig_op(rig, a, 0, 50, -1, 0);
    rig_op(rig, b, 10, 70, -1, 0);
    rig_op(rig, c, 20, 80, -1, 0);
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "a"), 50);
    CHECK_INT(rig_ns(rig, "b"), 30);
    CHECK_INT(rig_ns(rig, "c"), 20);
    rig_free(rig);
}

TEST(kernel_nobody_waits_for_has_only_what_is_left)
{
    // Ten kernels in a row on one stream, 1 us apart; on another one a kernel that begins before
    // the second of them and lasts over five, then one over six: it owns nothing, as long as it may
    // be.
    int64_t owned[2], walls[2];
    for (int longer = 0; longer < 2; longer++) {
        struct rig *rig = rig_new();
        rig->trace.stream_count = 2;
        rig_window(rig, 0, 0, 2000 * US);
        uint32_t main = rig_kernel(rig, "gemm", 0), side = rig_kernel(rig, "augment", 1);
        for (int i = 0; i < 10; i++) {
            rig_op(rig, main, (10 + 101 * i) * US, 100 * US, (1 + i) * US / 4, US / 8);
            if (i == 0)
                rig_op(rig, side, 50 * US, (500 + 100 * longer) * US, 3 * US, US);
        }
        rig_run(rig);
        owned[longer] = rig_ns(rig, "augment");
        walls[longer] = rig_ns(rig, "gemm");
        rig_free(rig);
    }
    CHECK_INT(owned[0], 0);
    CHECK_INT(owned[1], 0);
    CHECK_INT(walls[0], 1000 * US);
}

TEST(kernel_of_another_stream_that_is_waited_for_is_on_the_path)
{
    // b waits for s on the other stream, which began after a: from 200 on it is s that counts, from
    // its begin as far as a does not.
    struct rig *rig = rig_new();
    rig->trace.stream_count = 3;
    rig_window(rig, 0, 0, 1000 * US);
    uint32_t a = rig_kernel(rig, "a", 0), s = rig_kernel(rig, "s", 1), b = rig_kernel(rig, "b", 0),
             idle = rig_kernel(rig, "idle", 2);
    rig_op(rig, idle, 5 * US, 900 * US, 1 * US, US);
    rig_op(rig, a, 10 * US, 190 * US, 2 * US, US);
    rig_op(rig, s, 100 * US, 400 * US, 3 * US, US);
    rig_op(rig, b, 503 * US, 487 * US, 4 * US, US);
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "s"), 400 * US);
    CHECK_INT(rig_ns(rig, "b"), 487 * US);
    CHECK(rig_ns(rig, "idle") <= 100 * US);
    rig_free(rig);
}

TEST(streams_may_be_steps_ahead)
{
    // The side stream's kernels of all four steps run during the first step of the main stream:
    // each step still counts for itself.
    struct rig *rig = rig_new();
    uint32_t main = rig_kernel(rig, "gemm", 0), side = rig_kernel(rig, "augment", 1);
    rig->trace.stream_count = 2;
    for (int step = 0; step < 4; step++)
        rig->steps[rig->trace.step_count++] =
                (struct launch_step){.begin = step * 100, .end = (step + 1) * 100};
    rig->windows[rig->trace.window_count++] =
            (struct launch_window){.begin = 0, .end = 10000, .steps = 4};
    for (int i = 0; i < 40; i++) {
        int step = i / 10;
        rig_op(rig, main, 500 + i * 200, 190, step * 100 + i % 10, 1); // ten a step
        if (i < 4)
            rig_op(rig, side, 510 + i * 200, 150, i * 100 + 20, 1);
    }
    rig_run(rig);
    for (uint32_t k = 0; k < 10; k++) {
        const struct cost_node *node = rig_leaf(rig, "gemm", NULL, k);
        CHECK_INT(node->count, 4);
        CHECK(node->order >= k && node->order <= k + 1);
    }
    CHECK(rig_leaf(rig, "gemm", NULL, 10) == NULL);
    CHECK_INT(rig_leaf(rig, "augment", NULL, 0)->count, 4);
    rig_free(rig);
}

TEST(window_borders_cut)
{
    // An operation over both windows and the time between them, which is nobody's.
    struct rig *rig = rig_new();
    rig_window(rig, 0, 100, 200);
    rig_window(rig, 0, 300, 400);
    uint32_t kernel = rig_kernel(rig, "long", 0);
    rig_op(rig, kernel, 50, 300, -1, 0);
    rig_run(rig);
    const struct cost_node *node = rig_leaf(rig, "long", NULL, 0);
    CHECK_INT(node->ns, 150);
    CHECK_INT(node->busy_ns, 150);
    rig_free(rig);
}

TEST(modules_and_occurrences)
{
    struct rig *rig = rig_new();
    uint32_t gemm = rig_kernel(rig, "gemm", 0);
    for (int step = 0; step < 3; step++) {
        int64_t at = step * 1000 * US;
        rig_window(rig, 0, at, at + 900 * US);
        rig_phase(rig, at, at + 400 * US, "forward");
        rig_phase(rig, at + 400 * US, at + 900 * US, "update");
        rig_mark(rig, at + 10 * US, UG_MARK_MODULE, "layers.0");
        rig_mark(rig, at + 50 * US, UG_MARK_MODULE, "layers.1");
        rig_mark(rig, at + 420 * US, UG_MARK_BACKWARD, "layers.1");
        rig_mark(rig, at + 500 * US, UG_MARK_MODULE, NULL);
        rig_op(rig, gemm, at + 100 * US, 50 * US, at + 20 * US, 5 * US); // by their calls
        rig_op(rig, gemm, at + 150 * US, 60 * US, at + 30 * US, 5 * US);
        rig_op(rig, gemm, at + 210 * US, 70 * US, at + 60 * US, 5 * US);
        rig_op(rig, gemm, at + 450 * US, 80 * US, at + 430 * US, 5 * US);
        rig_op(rig, gemm, at + 600 * US, 90 * US, at + 510 * US, 5 * US);
    }
    rig_run(rig);
    const struct cost_node *second = rig_leaf(rig, "gemm", "layers.0", 1);
    CHECK_INT(rig_leaf(rig, "gemm", "layers.0", 0)->ns, 150 * US);
    CHECK_INT(second->ns, 180 * US);
    CHECK_INT(second->count, 3);
    CHECK_DBL(second->order, 1, 1e-9);
    CHECK_INT(rig_leaf(rig, "gemm", "update", 0)->ns, 270 * US);
    int backward = 0;
    for (size_t i = 0; i < rig->tree->node_count; i++) {
        const struct cost_node *node = &rig->tree->nodes[i],
                               *module = &rig->tree->nodes[node->parent];
        if (node->kind != COST_KERNEL || strcmp(module->name, "layers.1") ||
                strcmp(rig->tree->nodes[module->parent].name, "backward"))
            continue;
        CHECK_STR(rig->tree->nodes[rig->tree->nodes[module->parent].parent].name, "update");
        CHECK_INT(node->ns, 240 * US);
        backward++;
    }
    CHECK_INT(backward, 1);
    rig_free(rig);
}

TEST(graph_nodes_stand_where_they_were_captured)
{
    struct rig *rig = rig_new();
    rig_mark(rig, 10, UG_MARK_MODULE, "encoder");
    rig_mark(rig, 50, UG_MARK_MODULE, "decoder");
    rig_mark(rig, 90, UG_MARK_MODULE, NULL);
    rig_window(rig, 0, 1000, 2000);
    uint32_t a = rig_kernel(rig, "a", 0), b = rig_kernel(rig, "b", 0);
    rig->works[a].graph_node = 7;
    rig->works[b].graph_node = 9;
    rig->nodes[0] = (struct launch_node){.node = 7, .at = 20, .thread = LAUNCH_TRACE_NONE};
    rig->nodes[1] = (struct launch_node){.node = 9, .at = 60, .thread = LAUNCH_TRACE_NONE};
    rig->trace.node_count = 2;
    rig_op(rig, a, 1100, 100, 1010, 50);
    rig_op(rig, b, 1200, 100, 1010, 50);
    rig_run(rig);
    CHECK_INT(rig_leaf(rig, "a", "encoder", 0)->ns, 100);
    CHECK_INT(rig_leaf(rig, "b", "decoder", 0)->ns, 100);
    rig_free(rig);
}

TEST(ranges_are_places_when_there_is_nothing_else)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000);
    rig->ranges[0] = (struct launch_range){
            .begin = 0, .end = 500, .name = "iteration 17", .thread = LAUNCH_TRACE_NONE};
    rig->ranges[1] = (struct launch_range){
            .begin = 10, .end = 200, .name = "encoder", .thread = LAUNCH_TRACE_NONE};
    rig->trace.range_count = 2;
    uint32_t kernel = rig_kernel(rig, "a", 0);
    rig_op(rig, kernel, 100, 100, 20, 5);
    rig_op(rig, kernel, 300, 100, 250, 5);
    rig_op(rig, kernel, 700, 100, 600, 5);
    rig_run(rig);
    CHECK_INT(rig_leaf(rig, "a", "encoder", 0)->ns, 100);
    CHECK_INT(rig_leaf(rig, "a", "iteration *", 0)->ns, 100);
    CHECK(rig_leaf(rig, "a", "encoder", 0)->parent != rig_leaf(rig, "a", "iteration *", 0)->parent);
    rig_free(rig);
}

TEST(gaps_say_why)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000 * US);
    uint32_t a = rig_kernel(rig, "a", 0);
    rig_op(rig, a, 50 * US, 50 * US, 40 * US, 5 * US);    // 0 to 45: the host; 45 to 50: latency
    rig_op(rig, a, 101 * US, 99 * US, 48 * US, 5 * US);   // queued: 1 us between the two
    rig_op(rig, a, 260 * US, 40 * US, 250 * US, 6 * US);  // 200 to 256: late; 256 to 260: latency
    rig_op(rig, a, 400 * US, 100 * US, 280 * US, 6 * US); // queued, yet 100 us of nothing
    rig_op(rig, a, 510 * US, 490 * US, -1, 0);            // 10 us, and the call is not known
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "the host launches late"), (45 + 56) * US);
    CHECK_INT(rig_ns(rig, "launch latency"), (5 + 4) * US);
    CHECK_INT(rig_class(rig, COST_IDLE), 100 * US);
    CHECK_INT(rig_class(rig, COST_LAUNCH_BOUND), (45 + 56 + 5 + 4 + 1 + 10) * US);
    CHECK_INT(rig_class(rig, COST_GPU_COMPUTE), (50 + 99 + 40 + 100 + 490) * US);
    rig_free(rig);
}

TEST(added_wait_owns_the_gap_behind_it)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000 * US);
    rig_mark(rig, 0, UG_MARK_MODULE, "mlp");
    uint32_t a = rig_kernel(rig, "a", 0),
             item = rig_copy(rig, UG_COPY_DTOH, 3 * 16 + 1, "cudaMemcpy");
    rig_op(rig, a, 0, 200 * US, -1, 0);
    rig_call(rig, "cudaStreamSynchronize", 20 * US, 205 * US);
    rig_op(rig, a, 230 * US, 70 * US, 218 * US, 7 * US);    // 25 us behind the wait, 5 of latency
    rig_op(rig, item, 301 * US, 2 * US, 240 * US, 68 * US); // waits by itself, until 308
    rig_op(rig, a, 330 * US, 70 * US, 318 * US, 7 * US);
    rig_call(rig, "cudaMalloc", 420 * US, 460 * US);
    rig_op(rig, a, 500 * US, 400 * US, 480 * US, 10 * US);
    rig_call(rig, "cudaDeviceSynchronize", 600 * US, 950 * US); // the end of the block
    rig_run(rig);
    CHECK_INT(rig_leaf(rig, "cudaStreamSynchronize", "mlp", 0)->ns, 25 * US);
    CHECK_INT(rig_leaf(rig, "cudaStreamSynchronize", "mlp", 0)->kind, COST_SYNC);
    CHECK_INT(rig_ns(rig, "cudaMemcpy"), 22 * US);
    CHECK_INT(rig_ns(rig, "cudaMalloc"), 40 * US);
    CHECK_INT(rig_ns(rig, "cudaDeviceSynchronize"), 50 * US);
    CHECK_INT(rig_ns(rig, "the host launches late"), (20 + 30 + 50) * US);
    rig_free(rig);
}

TEST(long_wait_for_the_host_is_not_the_calls)
{
    // After the wait the host does something else for 500 us: only what a call takes to get going
    // again is the wait's.
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000 * US);
    uint32_t a = rig_kernel(rig, "a", 0);
    rig_op(rig, a, 0, 100 * US, -1, 0);
    rig_call(rig, "cudaStreamSynchronize", 20 * US, 104 * US);
    rig_op(rig, a, 620 * US, 380 * US, 604 * US, 10 * US);
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "cudaStreamSynchronize"), 54 * US);
    CHECK_INT(rig_ns(rig, "the host launches late"), (614 - 154) * US);
    rig_free(rig);
}

TEST(collectives_have_the_name_of_the_operation)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000);
    uint32_t comm = rig_kernel(rig, "ncclDevKernel_Generic", 0);
    rig_op(rig, comm, 100, 100, 50, 10);
    rig_op(rig, comm, 300, 100, 250, 10);
    rig->nccl[0] = (struct launch_nccl){.enqueued = 40,
            .kernel_begin = 105,
            .kernel_end = 195,
            .bytes = 64,
            .function = "AllReduce",
            .datatype = "ncclFloat32",
            .algorithm = "Ring",
            .protocol = "LL128",
            .ranks = 2};
    rig->nccl[1] = (struct launch_nccl){.enqueued = 240,
            .kernel_begin = 305,
            .kernel_end = 395,
            .bytes = 128,
            .function = "AllGather",
            .datatype = "ncclBfloat16",
            .ranks = 2};
    rig->trace.nccl_count = 2;
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "AllReduce f32 / Ring LL128"), 100);
    CHECK_INT(rig_ns(rig, "AllGather bf16"), 100);
    CHECK_INT(rig_leaf(rig, "AllGather bf16", NULL, 0)->shape.bytes, 128);
    CHECK_STR(rig_leaf(rig, "AllGather bf16", NULL, 0)->collective.what, "AllGather bf16");
    CHECK(!rig_leaf(rig, "AllGather bf16", NULL, 0)->collective.how);
    CHECK_STR(
            rig_leaf(rig, "AllReduce f32 / Ring LL128", NULL, 0)->collective.what, "AllReduce f32");
    CHECK_STR(rig_leaf(rig, "AllReduce f32 / Ring LL128", NULL, 0)->collective.how, "Ring LL128");
    rig_free(rig);
    for (int told = 0; told < 2; told++) { // without the times of the kernels: by the calls
        rig = rig_new();
        rig_window(rig, 0, 0, 1000);
        comm = rig_kernel(rig, "ncclDevKernel_Generic", 0);
        rig_op(rig, comm, 300, 100, 250, 10);
        rig->nccl[0] = (struct launch_nccl){
                .enqueued = told ? 290 : 240, .function = "Broadcast", .ranks = 2};
        rig->trace.nccl_count = 1;
        rig_run(rig);
        CHECK_INT(rig_ns(rig, told ? "ncclDevKernel_Generic" : "Broadcast"), 100);
        rig_free(rig);
    }
}

static uint64_t state = 12345;

static int64_t next_random(int64_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)(state >> 33) % n;
}

TEST(communication_is_found_by_its_times)
{
    // No kernel has NCCL's name, but one runs when NCCL says that its own do.
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 100000 * US);
    uint32_t kernel = rig_kernel(rig, "zc0ffee", 0), other = rig_kernel(rig, "gemm", 1);
    for (int i = 0; i < 20; i++) {
        rig_op(rig, kernel, (1000 + 4000 * i) * US, 500 * US, 900 * US, 10);
        rig_op(rig, other, (2000 + 4000 * i) * US, 500 * US, 900 * US, 10);
        rig->nccl[i] = (struct launch_nccl){.enqueued = 40,
                .kernel_begin = (1002 + 4000 * i) * US,
                .kernel_end = (1499 + 4000 * i) * US,
                .function = "AllReduce",
                .ranks = 2,
                .bytes = 4};
    }
    rig->trace.nccl_count = 20;
    rig_run(rig);
    CHECK_INT(rig_ns(rig, "AllReduce"), 20 * 500 * US);
    CHECK_INT(rig_class(rig, COST_COMM_EXPOSED), 20 * 500 * US);
    CHECK_INT(rig_class(rig, COST_GPU_COMPUTE), 20 * 500 * US);
    rig_free(rig);
}

TEST(sums_close_for_anything)
{
    for (int round = 0; round < 200; round++) {
        struct rig *rig = rig_new();
        int64_t span = 20000, at = 0;
        uint32_t works = 0;
        rig->trace.rank_count = 1 + (size_t)next_random(2);
        rig->trace.has_steps = next_random(4) > 0;
        rig->trace.stream_count = (uint32_t)next_random(6);
        for (uint32_t rank = 0; rank < rig->trace.rank_count; rank++) {
            int64_t begin = next_random(2000);
            for (int i = 0; i < 8; i++, begin += next_random(500)) {
                int64_t end = begin + 1 + next_random(3000);
                rig_window(rig, rank, begin, end);
                begin = end;
            }
        }
        static const char *const names[] = {"a", "b", "ncclDevKernel", "", "a"};
        for (int i = 0; i < 5; i++, works++)
            rig->works[rig_kernel(rig, names[i], (uint32_t)i)].rank =
                    (uint32_t)next_random((int64_t)rig->trace.rank_count);
        for (int i = 0; i < 3; i++, works++)
            rig->works[rig_copy(
                               rig, (int)next_random(70), (uint32_t)next_random(256), "cudaMemcpy")]
                    .rank = i == 2 ? LAUNCH_TRACE_NONE : 0;
        rig->works[next_random(8)].kind = 1;
        for (int i = 0; i < 400 && at < span * 2; i++) {
            at += next_random(4) ? next_random(60) : 0;
            int64_t dur = next_random(5) == 0 ? 0
                    : next_random(10) == 0    ? next_random(5000)
                                              : next_random(80);
            rig_op(rig, (uint32_t)next_random(works), at, dur,
                    next_random(6) ? at - next_random(200) : -1, next_random(300));
            if (next_random(50) == 0)
                rig->ops[rig->trace.op_count - 1].call_dur = UINT32_MAX;
        }
        for (int i = 0; i < 60; i++) {
            static const char *const calls[] = {"cudaStreamSynchronize", "cudaMalloc",
                    "cudaEventQuery", "cuModuleLoadData", "x", "cudaFree"};
            int64_t begin = i * span / 60 + next_random(100);
            rig_call(rig, calls[next_random(6)], begin, begin + next_random(900) - 20);
            rig->calls[i].rank = (uint32_t)next_random((int64_t)rig->trace.rank_count);
        }
        for (int i = 0; i < 100; i++)
            rig_mark(rig, i * span / 100, 1 + (int)next_random(2), next_random(3) ? "m" : NULL);
        for (int i = 0; i < 20; i++) {
            rig->nccl[i] = (struct launch_nccl){.enqueued = i * 900,
                    .kernel_begin = next_random(span),
                    .kernel_end = next_random(span),
                    .rank = (uint32_t)next_random(3),
                    .sequence = i / 2,
                    .ranks = 2};
            rig->trace.nccl_count++;
        }
        rig_run(rig);
        struct straggler found[4];
        CHECK(stragglers_find(&rig->trace, rig->tree, true, found, 4) <= 4);
        rig_free(rig);
    }
}

static int64_t beside_of(const struct rig *rig, const char *name, const char *other)
{
    int64_t ns = 0;
    for (size_t i = 0; i < rig->tree->beside_count; i++) {
        const struct cost_beside *at = &rig->tree->beside[i];
        CHECK(i == 0 || at[-1].node <= at->node);
        if (!strcmp(rig->tree->nodes[at->node].name, name) &&
                !strcmp(rig->tree->nodes[at->other].name, other))
            ns += at->ns;
    }
    return ns;
}

TEST(what_runs_beside_a_kernel_is_kept)
{
    // Of three gemms one is covered by both of two kernels of another stream, one by a tail of 4 %,
    // one by nothing. What began before the window stands beside, and is not counted itself.
    struct rig *rig = rig_new();
    rig_window(rig, 0, 1000, 5000);
    uint32_t gemm = rig_kernel(rig, "gemm", 0), comm = rig_kernel(rig, "other", 1),
             tail = rig_kernel(rig, "before", 1);
    rig->trace.stream_count = 2;
    rig_op(rig, tail, 500, 540, 400, 20);
    rig_op(rig, gemm, 1000, 1000, 900, 20);
    rig_op(rig, gemm, 2000, 400, 900, 20);
    rig_op(rig, comm, 2100, 100, 900, 20);
    rig_op(rig, comm, 2200, 300, 900, 20);
    rig_op(rig, gemm, 3000, 200, 900, 20);
    rig_run(rig);
    CHECK_INT(beside_of(rig, "gemm", "before"), 40);
    CHECK_INT(beside_of(rig, "gemm", "other"), 300);
    CHECK_INT(beside_of(rig, "other", "gemm"), 300);
    CHECK_INT(beside_of(rig, "before", "gemm"), 0);
    struct cost_overlap sum = {0};
    for (size_t i = 0; i < rig->tree->overlap_count; i++)
        for (int with = 0; with < 2 && !strcmp(rig->tree->nodes[i].name, "gemm"); with++) {
            sum.count[with] += rig->tree->overlaps[i].count[with];
            sum.ns[with] += rig->tree->overlaps[i].ns[with];
        }
    CHECK_INT(sum.count[0], 2);
    CHECK_INT(sum.ns[0], 1200);
    CHECK_INT(sum.count[1], 1);
    CHECK_INT(sum.ns[1], 400);
    rig_free(rig);
}

TEST(one_stream_has_nothing_beside)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000);
    uint32_t gemm = rig_kernel(rig, "gemm", 0);
    rig_op(rig, gemm, 100, 300, 50, 20);
    rig_op(rig, gemm, 390, 300, 60, 20); // clocks are read apart
    rig_run(rig);
    CHECK_INT(rig->tree->beside_count, 0);
    rig_free(rig);
}

TEST(no_gpu_and_no_host_is_idle)
{
    struct rig *rig = rig_new();
    rig->trace.has_gpu = false;
    rig_window(rig, 0, 0, 1000);
    rig_run(rig);
    CHECK_INT(rig_class(rig, COST_IDLE), 1000);
    rig_free(rig);
}

TEST(straggler_is_the_one_the_others_wait_for)
{
    // Rank 2 enqueues each collective 300 us after rank 1, which is 20 after rank 0, because of a
    // call.
    struct rig *rig = rig_new();
    rig->trace.rank_count = 3;
    for (uint32_t rank = 0; rank < 3; rank++)
        rig_window(rig, rank, 0, 10000 * US);
    for (int i = 0; i < 10; i++)
        for (uint32_t rank = 0; rank < 3; rank++)
            rig->nccl[rig->trace.nccl_count++] = (struct launch_nccl){.enqueued = i * 1000 * US +
                            (rank == 0                  ? 0
                                            : rank == 1 ? 20
                                                        : 320) *
                                    US,
                    .rank = rank,
                    .ranks = 3,
                    .sequence = i,
                    .communicator = 5,
                    .function = "AllReduce"};
    for (int i = 0; i < 10; i++) {
        rig_call(rig, "cudaMalloc", i * 1000 * US + 10 * US, i * 1000 * US + 310 * US);
        rig->calls[i].rank = 2;
    }
    rig_run(rig);
    struct straggler found[4];
    CHECK_INT(stragglers_find(&rig->trace, rig->tree, true, found, 4), 1);
    CHECK_INT(found[0].rank, 2);
    CHECK_INT(found[0].last_count, 10);
    CHECK_INT(found[0].collectives, 10);
    CHECK_INT(found[0].late_ns_mean, 300 * US);
    CHECK_INT(found[0].wait_ns_step, (320 + 300) / 2 * 10 * US);
    CHECK_INT(found[0].deed, DIFF_DEED_CALL);
    CHECK_STR(found[0].why, "cudaMalloc");
    rig_free(rig);
}

TEST(two_equal_ranks_have_no_straggler)
{
    // Two ranks come last by turns, and rank 1 by 4 ms longer; its lateness hides behind a kernel
    // of rank 0 but for 1 ms of 5.
    struct rig *rig = rig_new();
    rig->trace.rank_count = 2;
    uint32_t gemm = rig_kernel(rig, "gemm", 0), comm = rig_kernel(rig, "ncclAllReduce", 1);
    rig->works[comm].rank = 1;
    for (uint32_t rank = 0; rank < 2; rank++)
        for (int64_t i = 0; i < 20; i++)
            rig_window(rig, rank, i * 10000 * US, (i + 1) * 10000 * US);
    for (int64_t i = 0; i < 20; i++) {
        rig_op(rig, gemm, i * 10000 * US + 1000 * US, 4000 * US, -1, 0);
        for (uint32_t rank = 0; rank < 2; rank++) {
            int64_t begin = i * 10000 * US +
                    (rank == (uint32_t)i % 2 ? rank ? 6000 * US : 2000 * US : 1000 * US);
            rig->nccl[rig->trace.nccl_count++] = (struct launch_nccl){.enqueued = begin,
                    .kernel_begin = begin,
                    .kernel_end = i * 10000 * US + 7000 * US,
                    .rank = rank,
                    .ranks = 2,
                    .sequence = i,
                    .communicator = 5,
                    .function = "AllReduce"};
        }
    }
    rig_run(rig);
    struct straggler found[4];
    CHECK_INT(stragglers_find(&rig->trace, rig->tree, true, found, 4), 2);
    CHECK_INT(found[0].rank, 1);
    CHECK_INT(found[0].wait_ns_step, 2500 * US);
    CHECK_INT(found[0].exposed_ns_step, 500 * US);
    CHECK_INT(found[1].exposed_ns_step, 500 * US); // rank 1 has no kernel of its own meanwhile
    for (int i = 0; i < 2; i++) {
        CHECK_INT(found[i].last_count, 10);
        // of 20 throws of a coin, and of their turns
        CHECK(found[i].excess == 0 && found[i].variance >= 5);
        CHECK(!found[i].why);
    }
    rig_free(rig);
}

TEST(windows_that_agree_are_news_and_collectives_of_one_are_not)
{
    // Rank 1 comes last to 60 of 80: in every window to 3 of 4, or to all of 15 windows and none
    // of 5.
    for (int together = 0; together < 2; together++) {
        struct rig *rig = rig_new();
        rig->trace.rank_count = 2;
        for (uint32_t rank = 0; rank < 2; rank++)
            for (int64_t i = 0; i < 20; i++)
                rig_window(rig, rank, i * 10000 * US, (i + 1) * 10000 * US);
        for (int64_t i = 0; i < 80; i++)
            for (uint32_t rank = 0; rank < 2; rank++) {
                bool last = together ? i / 4 % 4 != 3 : i % 4 != 3;
                rig->nccl[rig->trace.nccl_count++] = (struct launch_nccl){
                        .enqueued = i * 2500 * US + (last == (rank == 1) ? 500 : 100) * US,
                        .rank = rank,
                        .ranks = 2,
                        .sequence = i,
                        .communicator = 5,
                        .function = "AllReduce"};
            }
        rig_run(rig);
        struct straggler found[2];
        CHECK_INT(stragglers_find(&rig->trace, rig->tree, false, found, 2), 2);
        CHECK_INT(found[0].rank, 1);
        CHECK_INT(found[0].last_count, 60);
        CHECK(found[0].excess == 20);
        CHECK((found[0].excess > 4 * sqrt(found[0].variance)) == !together);
        // when kernels began is not told: nothing hides it
        CHECK_INT(found[0].exposed_ns_step, found[0].wait_ns_step);
        rig_free(rig);
    }
}

TEST(straggler_without_nccl_is_the_one_that_was_waited_for)
{
    struct rig *rig = rig_new();
    rig->trace.has_gpu = false;
    rig->trace.rank_count = 3;
    rig->trace.pair = 1;
    for (uint32_t rank = 0; rank < 3; rank++)
        for (int step = 0; step < 2; step++)
            rig_window(rig, rank, step * 1000, step * 1000 + 900);
    rig_run(rig);
    struct cost_tree *tree = cost_tree_new();
    const struct cost_collective two = {.waits = true, .rank = 2}; // whatever it is called
    uint32_t leaf = cost_tree_child(tree, 0,
            &(struct cost_key){.kind = COST_COLLECTIVE,
                    .class = COST_COMM_EXPOSED,
                    .name = "2",
                    .collective = &two});
    for (uint32_t pair = 0; pair < 2; pair++) // another pair's waits are not this launch's
        for (uint32_t rank = 0; rank < 3; rank++) {
            uint32_t window = cost_tree_window(tree,
                    &(struct cost_window){.pair = pair, .rank = rank, .steps = 1, .wall_ns = 900});
            if (rank != 2)
                cost_tree_add(tree, leaf, window, 100 + 100 * rank, 0, 4);
        }
    struct straggler found[4];
    CHECK_INT(stragglers_find(&rig->trace, tree, true, found, 4), 1);
    CHECK_INT(found[0].rank, 2);
    CHECK_INT(found[0].last_count, 8);
    CHECK_INT(found[0].wait_ns_step, (100 + 200) / 2 / 2);
    cost_tree_free(tree);
    rig_free(rig);
}

TEST(graph_as_a_whole_is_a_leaf)
{
    struct rig *rig = rig_new();
    rig_window(rig, 0, 0, 1000);
    rig->works[0] = (struct launch_work){
            .kind = 1, .kernel = LAUNCH_TRACE_NONE, .thread = LAUNCH_TRACE_NONE};
    rig->trace.work_count = 1;
    rig_op(rig, 0, 100, 700, 50, 40);
    rig_run(rig);
    CHECK_INT(rig_leaf(rig, "CUDA graph", NULL, 0)->kind, COST_GRAPH);
    CHECK_INT(rig_class(rig, COST_GPU_COMPUTE), 700);
    rig_free(rig);
}

TEST(ten_thousand_a_millisecond)
{
    // Two million operations of 500 kernels in 20 modules: the time of one is bounded, and so is
    // what is made of them.
    enum { COUNT = 2000000, KERNELS = 50, STEP = 1000 };
    struct rig *rig = rig_new();
    struct launch_op *ops = calloc(COUNT, sizeof *ops);
    struct launch_mark *marks = calloc(COUNT / 50, sizeof *marks);
    struct launch_step *steps = calloc(COUNT / STEP, sizeof *steps);
    static char names[20][16];
    for (int i = 0; i < 20; i++)
        snprintf(names[i], sizeof names[i], "layers.%d", i);
    for (int i = 0; i < KERNELS; i++)
        rig_kernel(rig, i % 2 ? "gemm" : "add", 0);
    for (int i = 0; i < KERNELS; i++)
        rig->kernels[i].grid[0] = (uint32_t)i / 2;
    for (uint32_t i = 0; i < COUNT; i++) {
        ops[i] = (struct launch_op){.start = 2000 * (int64_t)i,
                .dur = 1500,
                .work = i % KERNELS,
                .call_ago = 900,
                .call_dur = 100};
        if (i % 50 == 0)
            marks[i / 50] = (struct launch_mark){.at = 2000 * (int64_t)i - 901,
                    .name = names[i / 50 % 20],
                    .kind = UG_MARK_MODULE,
                    .thread = LAUNCH_TRACE_NONE};
        if (i % STEP == 0)
            steps[i / STEP] = (struct launch_step){
                    .begin = 2000 * (int64_t)i - 902, .end = 2000 * (int64_t)(i + STEP) - 902};
    }
    rig_window(rig, 0, 0, 2000ll * COUNT);
    rig->trace.ops = ops;
    rig->trace.op_count = COUNT;
    rig->trace.marks = marks;
    rig->trace.mark_count = COUNT / 50;
    rig->trace.steps = steps;
    rig->trace.step_count = COUNT / STEP;
    rig_run(rig);
    CHECK_INT(rig_leaf(rig, "gemm", "layers.7", 0)->count, COUNT / STEP);
    CHECK(rig->tree->node_count < 2000);
    free(ops);
    free(marks);
    free(steps);
    rig_free(rig);
}
