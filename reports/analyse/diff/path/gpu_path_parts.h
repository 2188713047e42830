// SPDX-License-Identifier: Apache-2.0
// Between the files of the GPU's path: gpu_path.c sweeps over time, gpu_path_leaf.c says which leaf
// an operation is, gpu_path_place.c where it was called, gpu_path_gap.c what an instant was in
// which the device had nothing. One rank at a time; one owner thread.
#ifndef UPGATE_DIFF_GPU_PATH_PARTS_H
#define UPGATE_DIFF_GPU_PATH_PARTS_H

#include "common/containers/map.h"
#include "reports/analyse/diff/path/gpu_path.h"

// Which of two operations at one instant is on the path: the lower one.
enum gpu_level { GPU_COMPUTE, GPU_COMM, GPU_COPY, GPU_LEVEL_COUNT };

// What a value was from a time on. The first entry is from the begin of time. Questions come nearly
// in the order of time.
struct gpu_timeline {
    int64_t *at;
    uint32_t *value;
    size_t count, cursor;
};

struct gpu_amount { // of a leaf in the window that is being swept
    int64_t ns, busy_ns;
    int64_t late_ns, latency_ns; // of an operation: how long the device waited for its launch,
                                 // which is in leaves of their own
    uint32_t count, placed;
    uint64_t place_sum;
    bool touched; // in this window; one look instead of one at each amount
};

struct gpu_places;  // gpu_path_place.c
struct gpu_comm;    // gpu_path_comm.c
struct gpu_leaves;  // gpu_path_leaf.c
struct gpu_gaps;    // gpu_path_gap.c
struct gpu_beside;  // gpu_path_beside.c
struct gpu_callers; // gpu_path_callers.c

struct gpu_path {
    const struct launch_trace *trace;
    struct host_path *host;
    struct cost_tree *tree;
    uint32_t rank, window; // index of trace->ranks; of the tree's windows
    uint8_t *levels;       // enum gpu_level, by work
    struct gpu_places *places;
    struct gpu_timeline phases, *lines; // of the places: nodes of phases; by time line, what ran
    uint32_t last_phase, last_module, last_place;
    struct gpu_comm *comm;
    struct gpu_leaves *leaves;
    struct gpu_gaps *gaps;
    struct gpu_beside *beside;   // NULL: one stream, so nothing runs beside anything
    struct gpu_callers *callers; // NULL: no samples
    struct gpu_amount *amounts;  // by node of the tree
    uint32_t *touched;           // nodes with amounts
    size_t amount_capacity, touched_count, touched_capacity;
};

struct gpu_leaves *gpu_leaves_new(struct gpu_path *path); // after places and comm
void gpu_leaves_free(struct gpu_leaves *leaves);
// The leaf of an operation. In the order of their starts: it counts which one of its kind in its
// step it is.
uint32_t gpu_leaf_of(struct gpu_path *path, const struct launch_op *op);

struct gpu_comm *gpu_comm_new(struct gpu_path *path); // fills levels, too
void gpu_comm_free(struct gpu_comm *comm);
// index of trace->nccl; SIZE_MAX: not known
size_t gpu_comm_row(const struct gpu_path *path, const struct launch_op *op);
// "AllReduce f32 / Ring LL128": what was asked for, then how it was done. Texts are the tree's.
const char *gpu_comm_name(
        struct cost_tree *tree, const struct launch_nccl *row, struct cost_collective *ret);

struct gpu_places *gpu_places_new(struct gpu_path *path);
void gpu_places_free(struct gpu_path *path);
int64_t gpu_place_phase_end(struct gpu_path *path, int64_t at); // when it is over
// time line of its modules; COST_NONE: it ran none
uint32_t gpu_place_line(const struct gpu_path *path, uint32_t thread);
// node of the place
uint32_t gpu_place_find(struct gpu_path *path, uint32_t phase, uint32_t module);
uint32_t gpu_place_at(struct gpu_path *path, uint32_t thread, int64_t at); // all of that
// of a node of a graph; false: not known
bool gpu_place_captured(struct gpu_path *path, uint64_t node, uint32_t *ret_module);

struct gpu_gaps *gpu_gaps_new(struct gpu_path *path);
void gpu_gaps_free(struct gpu_gaps *gaps);
// Tells the tree what the device waited for launches of a leaf.
void gpu_gap_flush(struct gpu_path *path, uint32_t leaf, const struct gpu_amount *amount);
// Gives [begin, end), in which nothing ran, to leaves. before: what ran last; next: what runs at
// `end`; NULL: nothing in this window. next_leaf: leaf of next.
void gpu_gap_add(struct gpu_path *path, int64_t begin, int64_t end, const struct launch_op *before,
        const struct launch_op *next, uint32_t next_leaf);

// gpu_path_chain.c: which of the operations from `first` to `last`, all of one window, the end of
// the window waited for, through streams and from stream to stream. ret_critical: by index minus
// first, zeroed.
void gpu_chain_find(struct gpu_path *path, const uint32_t *order, size_t first, size_t last,
        uint8_t *ret_critical);

struct gpu_beside *gpu_beside_new(const struct gpu_path *path);
void gpu_beside_free(struct gpu_path *path); // writes to the tree what was found
// In the order of their starts. counted: it began in a window; else it only stands beside others.
void gpu_beside_add(struct gpu_path *path, const struct launch_op *op, uint32_t leaf, bool counted);

struct gpu_callers *gpu_callers_new(const struct gpu_path *path);
void gpu_callers_free(struct gpu_callers *callers); // NULL ok
// In the order of their starts: tells the tree which Python functions it was launched from, where a
// sample says so.
void gpu_callers_add(struct gpu_path *path, const struct launch_op *op, uint32_t leaf);

void gpu_amount_grow(struct gpu_path *path, uint32_t node);
static inline struct gpu_amount *gpu_amount(struct gpu_path *path, uint32_t node)
{
    if (node >= path->amount_capacity)
        gpu_amount_grow(path, node);
    struct gpu_amount *amount = &path->amounts[node];
    if (!amount->touched) {
        amount->touched = true;
        path->touched[path->touched_count++] = node;
        if (path->touched_count == path->touched_capacity)
            gpu_amount_grow(path, node);
    }
    return amount;
}

void gpu_timeline_add(struct gpu_timeline *timeline, int64_t at, uint32_t value);
void gpu_timeline_free(struct gpu_timeline *timeline);
size_t gpu_timeline_seek(struct gpu_timeline *timeline, int64_t at); // for those far away
static inline uint32_t gpu_timeline_at(struct gpu_timeline *timeline, int64_t at)
{
    size_t i = timeline->cursor;
    if (at < timeline->at[i] || (i + 1 < timeline->count && at >= timeline->at[i + 1]))
        i = gpu_timeline_seek(timeline, at);
    return timeline->value[i];
}

// node of the phase in which the host was
static inline uint32_t gpu_place_phase(struct gpu_path *path, int64_t at)
{
    return gpu_timeline_at(&path->phases, at);
}

// mostly as the one before
static inline uint32_t gpu_place_of(struct gpu_path *path, uint32_t phase, uint32_t module)
{
    if (phase == path->last_phase && module == path->last_module)
        return path->last_place;
    return gpu_place_find(path, phase, module);
}

// its start, when the call is not known
static inline int64_t gpu_call_begin(const struct launch_op *op)
{
    return op->call_ago == UINT32_MAX ? op->start : op->start - op->call_ago;
}

#endif
