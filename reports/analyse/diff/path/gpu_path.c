// SPDX-License-Identifier: Apache-2.0
// The sweep over the time of a window: at each instant a kernel that computes is on the path before
// communication, that before a copy; of several kernels the one that the window's end waits for
// (gpu_path_chain.c), else the one that began first. With nothing of them it is a gap, which
// gpu_path_gap.c explains. Ops come in the order of their starts, so what runs at an instant stands
// in a few queues, and whoever is over is dropped when it comes to the front: a constant effort for
// each of ten millions. What leaves get in a window is summed here and written to the tree once a
// window. Reads a struct launch_trace, writes a struct cost_tree; one owner thread.
#include "reports/analyse/diff/path/gpu_path.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

// Queues, the first with something in it wins. What the window's end waits for is before what it
// does not wait for, but communication: exposed is what no kernel covers, whoever waits for it.
enum {
    CRITICAL_COMPUTE,
    CRITICAL_COPY,
    QUEUE_OTHERS,
    QUEUE_COUNT = QUEUE_OTHERS + GPU_LEVEL_COUNT
};
// from one kernel of the chain to the next, with others beside it: still the chain's
enum { CHAIN_GAP_NS_MAX = 5000 };

struct running { // an operation that began and may not be over
    int64_t end;
    uint32_t op, leaf;
};

struct queue { // in the order of start
    struct running *items;
    size_t first, end, capacity;
};

struct sweep {
    struct gpu_path path;
    struct queue queues[QUEUE_COUNT];
    uint32_t filled;   // bits of queues: those without have nothing in them
    int64_t chain_end; // of what the window's end waits for, the last one that was on the path
    uint8_t *critical;
    size_t critical_capacity;
    bool several;                   // streams with kernels
    const struct launch_op *before; // what was on the path last
    const struct launch_window *window;
};

void gpu_timeline_add(struct gpu_timeline *timeline, int64_t at, uint32_t value)
{
    timeline->at = vector_room(timeline->at, timeline->count, sizeof *timeline->at);
    timeline->value = vector_room(timeline->value, timeline->count, sizeof *timeline->value);
    timeline->at[timeline->count] = timeline->count ? at : INT64_MIN;
    timeline->value[timeline->count++] = value;
}

void gpu_timeline_free(struct gpu_timeline *timeline)
{
    free(timeline->at);
    free(timeline->value);
    *timeline = (struct gpu_timeline){0};
}

size_t gpu_timeline_seek(struct gpu_timeline *timeline, int64_t at)
{
    size_t low = 0, high = timeline->count, i = timeline->cursor;
    for (int k = 0; k < 8; k++) { // mostly it is a neighbour
        if (at < timeline->at[i])
            high = i--;
        else if (i + 1 < timeline->count && at >= timeline->at[i + 1])
            low = ++i;
        else
            return timeline->cursor = i;
    }
    return timeline->cursor = search_between(middle, low + 1, high, timeline->at[middle] > at) - 1;
}

void gpu_amount_grow(struct gpu_path *path, uint32_t node)
{
    path->amounts = vector_reserve_zero(
            path->amounts, &path->amount_capacity, (size_t)node + 1, sizeof *path->amounts);
    path->touched = vector_reserve(
            path->touched, &path->touched_capacity, path->touched_count + 1, sizeof *path->touched);
}

static void amounts_flush(struct gpu_path *path)
{
    for (size_t i = 0; i < path->touched_count; i++) {
        struct gpu_amount *amount = &path->amounts[path->touched[i]];
        if (amount->ns || amount->busy_ns || amount->count)
            cost_tree_add(path->tree, path->touched[i], path->window, amount->ns, amount->busy_ns,
                    amount->count);
        if (amount->late_ns || amount->latency_ns)
            gpu_gap_flush(path, path->touched[i], amount);
        if (amount->placed)
            cost_tree_place(
                    path->tree, path->touched[i], (double)amount->place_sum / amount->placed);
        *amount = (struct gpu_amount){0};
    }
    path->touched_count = 0;
}

static void queue_grow(struct queue *queue)
{
    if (queue->first > queue->capacity / 2) {
        memmove(queue->items, queue->items + queue->first,
                (queue->end - queue->first) * sizeof *queue->items);
        queue->end -= queue->first;
        queue->first = 0;
    } else {
        queue->items = vector_reserve(
                queue->items, &queue->capacity, queue->end + 1, sizeof *queue->items);
    }
}

static inline void sweep_push(struct sweep *sweep, uint32_t level, struct running item)
{
    struct queue *queue = &sweep->queues[level];
    sweep->filled |= 1u << level;
    if (queue->first == queue->end)
        queue->first = queue->end = 0;
    if (queue->end == queue->capacity)
        queue_grow(queue);
    queue->items[queue->end++] = item;
}

// What is on the path at an instant, and in which queue. NULL: nothing runs.
static inline const struct running *sweep_front(
        struct sweep *sweep, int64_t now, uint32_t *ret_level)
{
    while (sweep->filled) {
        uint32_t level = (uint32_t)__builtin_ctz(sweep->filled);
        struct queue *queue = &sweep->queues[level];
        while (queue->first < queue->end && queue->items[queue->first].end <= now)
            queue->first++;
        *ret_level = level;
        if (queue->first < queue->end)
            return &queue->items[queue->first];
        sweep->filled &= sweep->filled - 1;
    }
    return NULL;
}

// Gives [from, to) to what runs there; nothing begins in between. next begins at `to`, NULL: the
// window ends.
static void sweep_to(struct sweep *sweep, int64_t from, int64_t to, const struct launch_op *next,
        uint32_t next_leaf, bool critical)
{
    while (from < to) {
        uint32_t level = QUEUE_COUNT;
        const struct running *running = sweep_front(sweep, from, &level);
        bool chain = critical && level >= QUEUE_OTHERS && from == sweep->chain_end &&
                to - from <= CHAIN_GAP_NS_MAX;
        if (!running || chain) {
            gpu_gap_add(&sweep->path, from, to, sweep->before, next, next_leaf);
            return;
        }
        int64_t end = running->end < to ? running->end : to;
        if (level < QUEUE_OTHERS)
            sweep->chain_end = end;
        gpu_amount(&sweep->path, running->leaf)->ns += end - from;
        sweep->before = &sweep->path.trace->ops[running->op];
        from = end;
    }
}

// What began before the window and still runs in it.
static void sweep_carry(struct sweep *sweep)
{
    const struct launch_window *window = sweep->window;
    for (int level = 0; level < QUEUE_COUNT; level++) {
        struct queue *queue = &sweep->queues[level];
        size_t kept = 0;
        for (size_t i = queue->first; i < queue->end; i++) {
            struct running item = queue->items[i];
            if (item.end <= window->begin)
                continue;
            gpu_amount(&sweep->path, item.leaf)->busy_ns +=
                    (item.end < window->end ? item.end : window->end) - window->begin;
            queue->items[kept++] = item;
        }
        queue->first = 0;
        queue->end = kept;
        sweep->filled = kept ? sweep->filled | 1u << level : sweep->filled & ~(1u << level);
    }
    sweep->before = NULL;
    sweep->chain_end = INT64_MIN;
}

// Where the window's ops are known and there are kernels on several streams: whom its end waits
// for. Returns the first op in it.
static size_t sweep_chain(struct sweep *sweep, const uint32_t *order, size_t count, size_t at)
{
    const struct launch_op *ops = sweep->path.trace->ops;
    if (!sweep->several)
        return count;
    while (at < count && ops[order ? order[at] : at].start < sweep->window->begin)
        at++;
    size_t last = at;
    while (last < count && ops[order ? order[last] : last].start < sweep->window->end)
        last++;
    sweep->critical = vector_reserve(sweep->critical, &sweep->critical_capacity, last - at, 1);
    if (last > at) {
        memset(sweep->critical, 0, last - at);
        gpu_chain_find(&sweep->path, order, at, last, sweep->critical);
    }
    return at;
}

// Does an operation run alone from its begin to its end? Then it needs no queue, and most do.
static inline bool sweep_alone(
        struct sweep *sweep, const struct launch_op *op, int64_t end, const struct launch_op *next)
{
    uint32_t level;
    return !sweep->several && end <= sweep->window->end && (!next || end <= next->start) &&
            !sweep_front(sweep, op->start, &level);
}

// Ops of the rank from `at` on in the order of start, until the window's end. Returns where the
// next window goes on.
static size_t sweep_window(struct sweep *sweep, const uint32_t *order, size_t count, size_t at)
{
    const struct launch_window *window = sweep->window;
    const struct launch_op *ops = sweep->path.trace->ops;
    int64_t now = window->begin;
    bool carried = false;
    size_t chain = sweep_chain(sweep, order, count, at);
    for (; at < count; at++) {
        uint32_t index = order ? order[at] : (uint32_t)at;
        const struct launch_op *op = &ops[index];
        if (op->start >= window->end)
            break;
        uint32_t leaf = gpu_leaf_of(&sweep->path, op), level = sweep->path.levels[op->work];
        int64_t end = op->start + op->dur;
        if (sweep->path.callers)
            gpu_callers_add(&sweep->path, op, leaf);
        if (sweep->path.beside)
            gpu_beside_add(&sweep->path, op, leaf, op->start >= window->begin);
        // between turns, or cold: it counts as far as it reaches in
        if (op->start < window->begin) {
            if (end > window->begin)
                sweep_push(sweep, QUEUE_OTHERS + level, (struct running){end, index, leaf});
            continue;
        }
        if (!carried)
            sweep_carry(sweep);
        carried = true;
        bool critical = level != GPU_COMM && at >= chain && sweep->critical[at - chain];
        if (now < op->start) {
            if (sweep->filled)
                sweep_to(sweep, now, op->start, op, leaf, critical);
            else
                gpu_gap_add(&sweep->path, now, op->start, sweep->before, op, leaf);
            now = op->start;
        }
        struct gpu_amount *amount = gpu_amount(&sweep->path, leaf);
        amount->count++;
        amount->busy_ns += (end < window->end ? end : window->end) - op->start;
        if (!op->dur)
            continue;
        const struct launch_op *after =
                at + 1 < count ? &ops[order ? order[at + 1] : at + 1] : NULL;
        if (sweep_alone(sweep, op, end, after)) {
            amount->ns += op->dur;
            sweep->before = op;
            now = end;
            continue;
        }
        level = !critical              ? QUEUE_OTHERS + level
                : level == GPU_COMPUTE ? CRITICAL_COMPUTE
                                       : CRITICAL_COPY;
        sweep_push(sweep, level, (struct running){end, index, leaf});
    }
    if (!carried)
        sweep_carry(sweep);
    sweep_to(sweep, now, window->end, NULL, COST_NONE, false);
    return at;
}

// The indexes of the rank's ops; NULL: all are its.
static uint32_t *rank_ops(const struct launch_trace *trace, uint32_t rank, size_t *ret_count)
{
    bool all = true;
    for (size_t i = 0; i < trace->work_count; i++)
        all &= trace->works[i].rank == rank;
    *ret_count = trace->op_count;
    if (all)
        return NULL;
    size_t count = 0;
    for (size_t i = 0; i < trace->op_count; i++)
        count += trace->works[trace->ops[i].work].rank == rank;
    uint32_t *order = xcalloc(count + 1, sizeof *order);
    *ret_count = 0;
    for (size_t i = 0; i < trace->op_count; i++)
        if (trace->works[trace->ops[i].work].rank == rank)
            order[(*ret_count)++] = (uint32_t)i;
    return order;
}

static bool several_streams(const struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    uint32_t first = COST_NONE;
    for (size_t i = 0; i < trace->work_count; i++) {
        const struct launch_work *work = &trace->works[i];
        if (work->rank != path->rank || path->levels[i] != GPU_COMPUTE)
            continue;
        if (first != COST_NONE && work->stream != first)
            return true;
        first = work->stream;
    }
    return false;
}

static void sweep_rank(const struct launch_trace *trace, struct host_path *host,
        struct cost_tree *tree, uint32_t rank, const uint32_t *windows)
{
    struct sweep sweep = {.path = {.trace = trace, .host = host, .tree = tree, .rank = rank}};
    size_t count, at = 0;
    uint32_t *order = rank_ops(trace, rank, &count);
    sweep.path.places = gpu_places_new(&sweep.path);
    sweep.path.comm = gpu_comm_new(&sweep.path);
    sweep.path.leaves = gpu_leaves_new(&sweep.path);
    sweep.path.gaps = gpu_gaps_new(&sweep.path);
    sweep.path.beside = gpu_beside_new(&sweep.path);
    sweep.path.callers = gpu_callers_new(&sweep.path);
    gpu_amount_grow(&sweep.path, (uint32_t)tree->node_count);
    sweep.several = several_streams(&sweep.path);
    for (size_t i = 0; i < trace->window_count; i++) {
        sweep.window = &trace->windows[i];
        if (sweep.window->rank != rank || sweep.window->end <= sweep.window->begin)
            continue;
        sweep.path.window = windows[i];
        if (count)
            at = sweep_window(&sweep, order, count, at);
        else // a rank that has nothing on the device
            host_path_add(
                    host, rank, sweep.window->begin, sweep.window->end, COST_HOST_RUN, windows[i]);
        amounts_flush(&sweep.path);
    }
    gpu_beside_free(&sweep.path);
    gpu_callers_free(sweep.path.callers);
    gpu_gaps_free(sweep.path.gaps);
    gpu_leaves_free(sweep.path.leaves);
    gpu_comm_free(sweep.path.comm);
    gpu_places_free(&sweep.path);
    free(sweep.path.levels);
    free(sweep.critical);
    free(sweep.path.amounts);
    free(sweep.path.touched);
    for (int level = 0; level < QUEUE_COUNT; level++)
        free(sweep.queues[level].items);
    free(order);
}

void launch_path_add(
        const struct launch_trace *trace, struct host_path *host, struct cost_tree *tree)
{
    uint32_t *windows = xcalloc(trace->window_count + 1, sizeof *windows);
    for (size_t i = 0; i < trace->window_count; i++) {
        const struct launch_window *window = &trace->windows[i];
        int64_t wall = window->end > window->begin ? window->end - window->begin : 0;
        windows[i] = cost_tree_window(tree,
                &(struct cost_window){.pair = trace->pair,
                        .couple = window->couple,
                        .rank = window->rank,
                        .steps = window->steps ? window->steps : 1,
                        .first_step = window->first_step,
                        .wall_ns = wall});
        if (!trace->has_gpu && wall)
            host_path_add(
                    host, window->rank, window->begin, window->end, COST_HOST_RUN, windows[i]);
    }
    for (uint32_t rank = 0; trace->has_gpu && rank < trace->rank_count; rank++)
        sweep_rank(trace, host, tree, rank, windows);
    free(windows);
}
