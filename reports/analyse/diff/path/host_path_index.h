// SPDX-License-Identifier: Apache-2.0
// Between the parts of host_path: the launch's phases as disjoint stretches, each asked thread's
// ticks and gaps with the leaf and the Python stack they stand for, and the memo from those to
// nodes of the tree. Made once, O(log n) to ask. One owner thread.
#ifndef UPGATE_DIFF_HOST_PATH_INDEX_H
#define UPGATE_DIFF_HOST_PATH_INDEX_H

#include "common/containers/map.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/stalls/parts.h"

enum {
    HOST_DEPTH_MAX = 8,   // threads followed from one wait
    HOST_NEAREST = 8,     // ticks that stand for a stretch without one
    HOST_FRAMES_MAX = 64, // Python functions of a place, the innermost
};
#define HOST_NONE UINT32_MAX

// ---- phases (host_path_phases.c) ----

enum { HOST_CHAIN_STEP, HOST_CHAIN_BETWEEN }; // in a step and no phase; between steps

// A way of phases, outermost first. Those two come first.
struct host_chain {
    uint32_t parent; // HOST_NONE
    const char *name;
    uint32_t node; // of the tree; HOST_NONE: not made yet
    bool data;     // the next batch is fetched in it
};
struct host_stretch {
    int64_t begin; // up to the next one's
    uint32_t chain;
};
struct host_rank {
    struct host_stretch *stretches; // [0] begins at INT64_MIN
    size_t stretch_count;
    struct trace_window *syncs; // calls that wait for the device, of the step thread; disjoint
    const char **sync_names;
    size_t sync_count;
};

// ---- leaves and places (host_path_names.c) ----

enum host_leaf_flag {
    HOST_LEAF_SPIN = 1, // it waits on the CPU for other threads
    HOST_LEAF_GC = 2,
    HOST_LEAF_CALL = 4, // a system call
};
struct host_leaf {
    const char *name, *module; // of the tree
    uint8_t kind, flags;
    struct cost_collective collective;
};
enum host_frame_flag {
    HOST_FRAME_SEEN = 1,
    HOST_FRAME_DROP = 2,   // import machinery, how threads and processes begin
    HOST_FRAME_SCRIPT = 4, // <module>: left out where it is outermost
    HOST_FRAME_INNER = 8,  // says something only as the innermost one
    HOST_FRAME_GC = 16,
};
struct host_frame { // of Python
    const char *name, *module;
    uint8_t flags;
};
enum host_stack_flag { // of Python; pairs: looked at, and what was found
    HOST_STACK_SEEN = 1,
    HOST_STACK_COLLECTIVE = 2,
    HOST_STACK_READ = 4,
    HOST_STACK_USEFUL = 8, // has a function that can be a place
};

// ---- threads (host_path_threads.c) ----

struct host_tick {
    int64_t at;
    uint32_t chain, leaf, python;
    int32_t cpu;
};
struct host_off { // disjoint, in order
    int64_t begin, end;
    uint32_t gap, chain, leaf, python;
};
struct host_thread {
    struct host_tick *ticks;
    struct host_off *offs;
    // off the CPU, each time for less than a recorded gap takes; disjoint, in order
    struct trace_window *shorts;
    size_t tick_count, off_count, short_count;
    uint32_t *pool;       // ticks by chain, then time
    uint32_t *pool_first; // [chain_count + 1]
    uint32_t chain_count; // when it was made
    bool python;          // some of its stacks have Python functions
};

struct host_path {
    const struct launch_trace *trace;
    const struct trace *host; // NULL
    struct cost_tree *tree;
    struct host_rank *ranks;
    struct host_chain *chains;
    size_t chain_count;
    struct host_leaf *leaves;
    size_t leaf_count;
    struct host_frame *frames;    // of host->frames
    uint8_t *stacks;              // of host->stacks: enum host_stack_flag
    struct host_thread **threads; // of host->threads; NULL: not asked yet
    uint32_t *rank_of;            // of host->processes: whose work it does; HOST_NONE
    char *script;                 // directory of the program, ends with '/'; NULL
    struct map chain_of;          // (parent, name's index) -> chain
    struct map leaf_of_stack, leaf_of_name, place_of, node_of;
};

// Index of the stretch that holds the instant.
size_t host_stretch_at(const struct host_path *path, uint32_t rank, int64_t at);
uint32_t host_chain_node(struct host_path *path, uint32_t chain);
void host_phases_index(struct host_path *path);
void host_syncs_index(struct host_path *path, uint32_t rank);
// The call that waits for the device at an instant, or the next one after it; sync_count: none.
size_t host_sync_from(const struct host_rank *rank, int64_t at);

// The file of a Python function as both sides have it: "torch/optim/adam.py", "train.py"; the
// caller frees. script: NULL ok.
char *host_python_module(const char *script, const char *file);
// says something only as the innermost one
bool host_is_plumbing(const char *name, const char *module);
// import machinery, how threads and processes begin
bool host_is_dropped(const char *name, const char *module);

uint32_t host_leaf_named(
        struct host_path *path, enum cost_kind kind, const char *name, const char *module);
// What the thread executed: kernel function or native function. 0 for no stack.
uint32_t host_leaf_of_stacks(struct host_path *path, uint32_t kernel, uint32_t user);
// and what its Python stack tells of the collector
uint32_t host_leaf_of_sample(struct host_path *path, const struct trace_sample *sample);
uint32_t host_leaf_collector(struct host_path *path); // Python's garbage collection
// The place below a phase that a Python stack stands for.
uint32_t host_place(struct host_path *path, uint32_t chain, uint32_t python);
uint32_t host_place_collector(struct host_path *path, uint32_t chain);
uint32_t host_node(struct host_path *path, uint32_t place, uint32_t leaf, enum cost_class class);
bool host_is_collective(struct host_path *path, uint32_t user, uint32_t python);
// not one that was taken out of turn
static inline bool host_is_tick(const struct trace_sample *sample)
{
    unsigned other = UG_SAMPLE_OWNER | UG_SAMPLE_NEIGHBOUR | UG_SAMPLE_SPIN;
    return !(sample->why & other) || sample->why & UG_SAMPLE_TARGET;
}
// has a function that can be a place
bool host_stack_useful(struct host_path *path, uint32_t python);

struct host_thread *host_thread_get(struct host_path *path, uint32_t thread, uint32_t rank);
void host_thread_free(struct host_thread *thread);
// First off stretch that ends after an instant; off_count: none.
size_t host_off_from(const struct host_thread *thread, int64_t at);
// First tick at or after an instant.
size_t host_tick_from(const struct host_thread *thread, int64_t at);
// Nearest ticks of the same chain, nearest first. Returns the number.
size_t host_ticks_near(
        const struct host_thread *thread, uint32_t chain, int64_t at, uint32_t ret[HOST_NEAREST]);
// The Python stack of the nearest tick or gap of this chain. 0: none.
uint32_t host_python_near(const struct host_thread *thread, uint32_t chain, int64_t at);

// ---- the walk (host_path.c, host_path_waits.c) ----

struct host_walk {
    struct host_path *path;
    uint32_t rank, window, chain;
    enum cost_class run; // of an instant in which code runs
    uint32_t visited[HOST_DEPTH_MAX + 1];
    int depth; // threads followed: visited[depth] is the one looked at
    // Of the wait that is being followed, depth > 0:
    uint32_t wait_python; // where the step thread was
    uint32_t wait_leaf;   // what the time is if nothing better is known
    enum cost_class wait_class;
    bool data; // for the next batch
};
void host_walk_give(struct host_walk *walk, uint32_t python, uint32_t leaf, enum cost_class class,
        int64_t ns, int64_t count);
// [begin, end) of one chain, of a thread.
void host_walk_thread(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end);
void host_walk_off(struct host_walk *walk, uint32_t thread, const struct host_off *off,
        int64_t begin, int64_t end);
// [begin, end) off the CPU without a recorded gap.
void host_walk_short(
        struct host_walk *walk, const struct host_thread *thread, int64_t begin, int64_t end);
// [begin, end) of a part whose cause is known.
void host_walk_part(struct host_walk *walk, const struct part *part, uint32_t python, int64_t begin,
        int64_t end);
// The first part of the thread, on the CPU or off it, that overlaps [begin, end).
bool host_walk_next_part(const struct host_path *path, uint32_t thread, bool on_cpu, int64_t begin,
        int64_t end, const struct part **ret_part);

#endif
