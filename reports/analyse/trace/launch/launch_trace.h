// SPDX-License-Identifier: Apache-2.0
// One traced launch in memory: the stretches of it that are compared, its ranks, phases, what the
// host did (the trace of the stall analysis) and what the GPU did. Reads the store; made and freed
// launch by launch, so that only one side's events of one launch are in memory at a time. One owner
// thread.
#ifndef UPGATE_TRACE_LAUNCH_TRACE_H
#define UPGATE_TRACE_LAUNCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/trace/launch/launch_doubt.h"
#include "reports/analyse/trace/trace.h"
#include "tracer/store/store.h"

#define LAUNCH_TRACE_NONE UINT32_MAX

// A stretch of the launch's own turns. GPU: a block of steps, from the begin of its first to the
// end of its last (it ends with a wait for the device, so what a block launched ran in it). No GPU:
// one step. Without steps: a block of slices, or the launch. The first block (of the step protocol:
// the first steps until the launch is steady) is cold and left out of windows; it is in cold.
struct launch_window {
    int64_t begin, end;
    uint32_t rank; // index of ranks
    uint32_t first_step, steps;
    int32_t couple; // -1: none
};

struct launch_rank {
    int32_t rank;
    uint32_t process;   // of host->processes; LAUNCH_TRACE_NONE: its host side was not recorded
    uint32_t thread;    // of host->threads: the one that makes the steps
    int64_t process_id; // of table process, for the GPU tables; 0: not known
    uint32_t window_first, window_count;
    uint32_t phase_first, phase_count;
};

struct launch_step {
    int64_t begin, end;
    uint32_t rank, idx;
};

struct launch_phase { // by rank and begin; an outer one before those in it
    int64_t begin, end;
    const char *name;
    uint32_t rank;
    uint8_t depth;
};

struct launch_kernel {
    const char *name; // demangled
    uint32_t grid[3], block[3];
    uint32_t registers, shared_bytes, local_bytes;
    bool comm; // NCCL's
};

struct launch_work {       // table gpu_work
    uint32_t rank;         // index; LAUNCH_TRACE_NONE: a process without steps
    uint32_t stream;       // dense, for interval unions
    uint32_t kernel;       // LAUNCH_TRACE_NONE: no kernel
    uint32_t thread;       // of host->threads; LAUNCH_TRACE_NONE
    const char *call_name; // NULL
    int64_t bytes;
    uint64_t graph, graph_node;
    uint32_t memory;
    uint8_t kind; // as gpu_work.kind
};

// 24 bytes each: launches have ten millions of them.
struct launch_op {
    int64_t start;
    uint32_t dur; // ns, at most 4.2 s
    uint32_t work;
    uint32_t call_ago; // start minus begin of the call; UINT32_MAX: not known, or longer
    uint32_t call_dur;
};

struct launch_call { // table gpu_call, and syncs with their calls; by start
    int64_t begin, end;
    const char *name;
    uint32_t thread; // of host->threads; LAUNCH_TRACE_NONE
    uint32_t rank;
};

struct launch_nccl {                            // by enqueued
    int64_t enqueued, kernel_begin, kernel_end; // kernel_*: 0 = not told
    int64_t bytes, sequence;
    uint64_t communicator;
    const char *function, *datatype, *algorithm, *protocol; // NULL: not told
    uint32_t rank;                                          // index of ranks
    int32_t ranks, channels;
};

struct launch_mark { // python_mark, by rank and time
    int64_t at;
    const char *name; // NULL: none
    int64_t value;
    uint32_t thread; // of host->threads; LAUNCH_TRACE_NONE
    uint32_t rank;
    uint8_t kind; // enum ug_mark_kind
};

struct launch_node { // gpu_graph_node: where a node of a graph was captured
    uint64_t node;
    int64_t at;
    uint32_t thread;
    uint32_t rank; // its process numbers the nodes
};

struct launch_range { // nvtx
    int64_t begin, end;
    const char *name;
    uint32_t thread;
};

struct launch_trace {
    struct arena *arena;
    struct trace *host;     // NULL: the host side was not recorded
    struct work *host_work; // the stall analysis' parts of it, sorted: stalls/launch_work.h; NULL:
                            // not made, or with host
    int64_t launch_id, recording_id;
    uint32_t pair;  // index among the traced pairs of the workload
    int side;       // 0, 1
    bool has_gpu;   // something ran on a GPU in windows
    bool has_steps; // windows are of steps; false where the sides took turns by slices, in the
                    // middle of steps
    struct launch_rank *ranks;
    struct launch_window *windows; // by rank, begin
    struct launch_window *cold;
    struct launch_step *steps; // of all ranks, by rank and index
    struct launch_phase *phases;
    struct launch_kernel *kernels;
    struct launch_work *works;
    struct launch_op *ops; // inside windows (and cold), by start
    struct launch_call *calls;
    struct launch_nccl *nccl;
    struct launch_mark *marks;
    struct launch_node *nodes;   // by node, rank
    struct launch_range *ranges; // by begin, an outer one before those in it
    size_t rank_count, window_count, cold_count, step_count, phase_count, kernel_count, work_count,
            op_count, call_count, nccl_count, mark_count, node_count, range_count;
    uint32_t stream_count;
    struct launch_doubt *doubts; // what makes the trace doubtful
    size_t doubt_count;
};

struct launch_trace_opts {
    bool host_only; // for the flame graph
};

// -ENOENT: the launch has no recording. opts NULL: all of it.
int launch_trace_load(struct store *store, int64_t launch_id, const struct launch_trace_opts *opts,
        struct launch_trace **ret_trace, struct error *err);
void launch_trace_free(struct launch_trace *trace); // NULL ok

#endif
