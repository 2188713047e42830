// SPDX-License-Identifier: Apache-2.0
// Where the time of one side went: a tree of places (phase, module, Python function, ...) whose
// leaves are what took the time (kernel, CPU function, stall, gap), with a row for each leaf and
// window. All traced launches of a side go into one tree. The rows of a window sum to its wall
// time: that is what makes every sum above close. Pure memory, one owner thread.
#ifndef UPGATE_DIFF_COST_TREE_H
#define UPGATE_DIFF_COST_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COST_NONE UINT32_MAX // no node, no window

// What an instant of a step was spent on; an instant belongs to the first one that holds.
enum cost_class {
    COST_GPU_COMPUTE,  // a kernel that is no communication runs
    COST_COMM_EXPOSED, // communication alone; on a host: waiting for another rank
    COST_COPY,         // a copy or a set, and nothing above it
    COST_LAUNCH_BOUND, // the GPU has nothing because the host, which runs, has not launched it yet
    COST_HOST_RUN,     // host code runs, and there is no GPU
    COST_HOST_STALLED, // the host is off the CPU, or held up on it
    COST_DATA_WAIT,    // it waits for the next batch
    COST_IDLE,         // none of these: nothing is known to run
    COST_CLASS_COUNT
};

enum cost_kind { // of a node
    COST_ROOT,
    // Places, outermost first.
    COST_PHASE,  // of the step protocol; "step" where there are none
    COST_MODULE, // of a model: "layers.3.attn"
    COST_RANGE,  // NVTX
    COST_PYTHON, // a Python function: name "Linear.forward", module "torch/nn/modules/linear.py"
    // What took the time: leaves.
    COST_KERNEL,
    COST_GRAPH,      // a CUDA graph as a whole
    COST_TRANSFER,   // copy: "HtoD pinned", "DtoD"; set: "set"
    COST_COLLECTIVE, // NCCL kernel or the host's wait: "AllReduce f32 / Ring LL128", "wait for rank
                     // 3"
    COST_FUNCTION,   // native function; module = file name of the library
    COST_STALL, // name = cause of the stall analysis ("smaps_read"); module = comm of the culprit,
                // NULL
    COST_SYNC,  // a call that waits for the device while the device has nothing to do
    COST_GAP,   // between things that are known: name says between what
    COST_KIND_COUNT
};

struct cost_shape { // 0: does not apply, or not known
    uint32_t grid[3], block[3];
    uint32_t registers, shared_bytes, local_bytes;
    int64_t bytes; // of a transfer or collective
    uint64_t graph_node;
};

// What the name of a COST_COLLECTIVE says. It follows from the name, and is no part of what tells
// nodes apart.
struct cost_collective {
    const char *function, *what, *how; // "AllReduce", "AllReduce f32", "Ring LL128"; NULL: a kernel
                                       // of which NCCL told nothing; how NULL: not told
    bool waits;                        // a host's wait for another rank:
    int32_t rank;                      // -1: which one is not known
};

struct cost_node {
    uint32_t parent, first_child, last_child, next_sibling; // COST_NONE
    uint8_t kind;                                           // enum cost_kind
    uint8_t class;                                          // enum cost_class; of leaves
    uint16_t depth;                                         // the root has 0
    uint32_t occurrence; // the k-th of its name, shape and parent within a step (kernels), from 0
    const char *name;    // never NULL; as it is: mangled names demangled, otherwise untouched
    const char *module;  // NULL: none
    struct cost_shape shape;
    struct cost_collective collective;
    double order;        // mean place among the leaves of a step; host leaves: 0
    int64_t ns, busy_ns; // of itself, over all windows. busy: also where something else was to
                         // blame for the instant
    int64_t count;       // executions; of samples: how many ticks
    uint32_t row_last;   // internal: its newest row
};

// A stretch of one side's own turn that is compared as a whole.
struct cost_window {
    uint32_t pair;  // index of the traced pair, from 0: the same on both sides
    int32_t couple; // of blocks: the same on both sides; -1: launches took no turns
    uint32_t rank;
    uint32_t steps;      // in it; 1 where there are no steps
    uint32_t first_step; // index in the launch; 0 where there are none
    int64_t wall_ns;     // end - begin
};

struct cost_row {
    uint32_t node, window;
    int64_t ns, busy_ns;
    int64_t count;
};

// Operations of the device at one time, over all windows: how long `other` ran while executions of
// `node` did.
struct cost_beside {
    uint32_t node, other;
    int64_t ns;
};

// Executions of a leaf on the device, whole ones: [0] alone, [1] with others beside them for at
// least a twentieth of their time.
struct cost_overlap {
    int64_t count[2], ns[2];
};

// What of a leaf of the device's waiting (gap) was before executions of `node`, which the host had
// not launched yet; of a wait for the device: what was behind it, until the host was as far ahead
// again.
struct cost_late {
    uint32_t node, gap, window;
    int64_t ns;
};

// A sample of a thread that was about to launch `node` had this Python function on its stack; one
// entry for each of its functions.
struct cost_caller {
    uint32_t node;
    uint16_t depth;            // functions around it
    const char *name, *module; // of the tree
};

// A function of the launches' other instants, which are in no window: what only one side does in
// its windows, the other may do there.
struct cost_elsewhere {
    enum cost_kind kind;       // COST_PYTHON; COST_FUNCTION: as the leaf
    const char *name, *module; // of the tree
    int64_t ticks;             // samples that show it
};

struct cost_tree {
    struct cost_node *nodes; // [0] is the root
    struct cost_window *windows;
    struct cost_row *rows;            // rows of one node are not side by side; see cost_tree_finish
    struct cost_late *lates;          // in no order
    struct cost_caller *callers;      // a sample's one after the other, outermost first
    struct cost_elsewhere *elsewhere; // each function once; none: nobody looked
    struct cost_beside *beside;       // after cost_tree_finish by node, then other
    struct cost_overlap *overlaps;    // by node, below overlap_count; those after have none
    size_t node_count, window_count, row_count, beside_count, overlap_count, late_count,
            caller_count, elsewhere_count;
    struct cost_tree_memory *memory;
};

struct cost_key {
    enum cost_kind kind;
    enum cost_class class; // of leaves
    const char *name, *module;
    const struct cost_shape *shape; // NULL: none
    uint32_t occurrence;
    const struct cost_collective *collective; // NULL: none
};

bool cost_shape_same(const struct cost_shape *a, const struct cost_shape *b);
uint64_t cost_shape_hash(uint64_t hash, const struct cost_shape *shape);

struct cost_tree *cost_tree_new(void);
void cost_tree_free(struct cost_tree *tree); // NULL ok
// A copy of the text that lives as long as the tree; equal texts are one. NULL gives NULL.
const char *cost_tree_text(struct cost_tree *tree, const char *text);
// The child of parent (0: the root) with this key, made when it is not there.
uint32_t cost_tree_child(struct cost_tree *tree, uint32_t parent, const struct cost_key *key);
uint32_t cost_tree_window(struct cost_tree *tree, const struct cost_window *window);
// Adds to the row of a leaf in a window. ns and busy_ns may be 0. Windows are best filled one after
// the other.
void cost_tree_add(struct cost_tree *tree, uint32_t node, uint32_t window, int64_t ns,
        int64_t busy_ns, int64_t count);
// Notes that the leaf stood at place `position` of a step, for `order`.
void cost_tree_place(struct cost_tree *tree, uint32_t node, double position);
void cost_tree_caller(struct cost_tree *tree, const struct cost_caller *caller);
// adds; module: NULL ok
void cost_tree_elsewhere(struct cost_tree *tree, enum cost_kind kind, const char *name,
        const char *module, int64_t ticks);
void cost_tree_late(struct cost_tree *tree, const struct cost_late *late);
void cost_tree_beside(struct cost_tree *tree, const struct cost_beside *beside);
void cost_tree_overlap(struct cost_tree *tree, uint32_t node, const struct cost_overlap *overlap);
// Sorts the rows by node, then window, merging equal ones. Nodes without rows stay, and so do ids.
// After it nothing is added. Rows of node n are rows[first[n]] to rows[first[n + 1]].
const uint32_t *cost_tree_finish(struct cost_tree *tree);
// After it: sum of its own ns and of all below it.
int64_t cost_tree_below_ns(const struct cost_tree *tree, uint32_t node);
// Of each node: samples of functions below it, its own among them. The caller frees.
double *cost_tree_ticks(const struct cost_tree *tree);
// "gpu_compute", "comm_exposed", "copy", "launch_bound", ...
const char *cost_class_word(enum cost_class class);

#endif
