// SPDX-License-Identifier: Apache-2.0
// Between the files that load one traced launch (launch_trace*.c): what is known while it is loaded
// and not afterwards. One owner thread.
#ifndef UPGATE_TRACE_LAUNCH_TRACE_INSIDE_H
#define UPGATE_TRACE_LAUNCH_TRACE_INSIDE_H

#include "reports/analyse/trace/launch/launch_trace.h"

struct load_process { // every one of the store, by id
    int64_t id;
    int64_t recording_id, started_ns, ended_ns; // 0: not seen
    int32_t tgid;
    uint32_t rank; // index; LAUNCH_TRACE_NONE
    bool target, gpu;
};

struct load_block {                        // of the launch's side, by couple
    int64_t begin, end, first_step, steps; // first_step -1: of slices
    int32_t couple;
};

struct load_span {
    int64_t begin, end;
};

// The stretches of one rank that count, without overlaps, by begin; `at`: where the last question
// was answered, `last`: the stretch that was the answer.
struct load_spans {
    struct load_span *spans, last;
    size_t count, at;
};

struct load {
    struct store *store;
    struct launch_trace *trace;
    struct error *err; // not NULL
    int64_t pair_id, started, ended;
    int64_t recording_begin, recording_end; // end INT64_MAX: not told
    struct load_process *processes;
    struct load_block *blocks;
    int32_t *rank_pids; // of ranks, in their own pid namespace; 0: not told
    size_t process_count, block_count;
    struct trace_ids process_ids, thread_ids; // -> processes, host->threads
    struct load_spans *spans;                 // of ranks; the last one: of all of them
    const char **texts; // by id of table string, as far as they were asked for
    size_t text_capacity;
    uint64_t steps_outside; // the recording
};

// launch_trace.c
void load_doubt(struct load *load, struct launch_doubt doubt); // copies its texts
// of table string; NULL: there is none
const char *load_text(struct load *load, int64_t id);
uint32_t load_thread(const struct load *load, int64_t id);     // of host->threads
uint32_t load_process_at(const struct load *load, int64_t id); // of this launch; LAUNCH_TRACE_NONE

// Recording of a process; 0: not known.
int64_t load_owner(const struct load *load, int64_t process_id);
// Does something of a process count? False: it is not of this launch, damaged, or in no window.
bool load_place(
        struct load *load, int64_t process_id, int64_t begin, int64_t length, uint32_t *ret_rank);

// launch_trace_ranks.c: the ranks, and which process and thread is which.
int load_ranks(struct load *load);
int load_processes(struct load *load);
void load_match_ranks(struct load *load);

// launch_trace_steps.c: steps, blocks, phases; then windows, which may be made again.
int load_steps(struct load *load);
int load_phases(struct load *load);
void load_windows(struct load *load);
bool load_spans_seek(struct load_spans *spans, int64_t begin, int64_t end);
static inline bool load_spans_touch(struct load_spans *spans, int64_t begin, int64_t end)
{
    return (begin >= spans->last.begin && begin < spans->last.end) ||
            load_spans_seek(spans, begin, end);
}
static inline struct load_spans *load_spans_of(struct load *load, uint32_t rank)
{
    return &load->spans[rank < load->trace->rank_count ? rank : load->trace->rank_count];
}

// launch_trace_gpu.c: works and kernels; operations.
int load_gpu(struct load *load);
int load_calls(struct load *load); // launch_trace_calls.c: calls, collectives
int load_marks(struct load *load); // launch_trace_marks.c: marks, ranges, graph nodes

#endif
