// SPDX-License-Identifier: Apache-2.0
// The parts of stalls: each is a piece of time that one thread of the target lost to one cause.
// Made from gaps (classify.c, gil.c), lock waits (holder.c), samples (oncpu.c) and facts (facts.c);
// waits for other threads are then followed to their end (chain.c), and merge.c puts them together.
// One owner thread.
#ifndef UPGATE_STALLS_PARTS_H
#define UPGATE_STALLS_PARTS_H

#include "reports/analyse/stalls/causes.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/analyse/trace/trace.h"

enum part_split { SPLIT_BLOCKED, SPLIT_RUN_QUEUE, SPLIT_PREEMPTED, SPLIT_ON_CPU, SPLIT_COUNT };

// Kinds of waits that an idle thread makes as well.
enum part_soft {
    SOFT_NO,
    SOFT_FUTEX,
    SOFT_POLL,
    SOFT_SLEEP,
    SOFT_CHILD,
    SOFT_PIPE,
    SOFT_SOCKET,
    SOFT_OTHER
};

// In notes, beside doubts: of a wait for a GPU, what that did was recorded, and it had nothing to
// do.
enum { NOTE_GPU_KNOWN = 1 << STALL_DOUBT_BITS, NOTE_BITS = STALL_DOUBT_BITS + 1 };

struct part {
    int64_t begin, end;
    uint32_t thread;
    uint32_t gap, sample; // the evidence; TRACE_NONE
    uint32_t culprit;     // thread; TRACE_NONE
    uint32_t culprit_stack;
    uint32_t waits_for; // thread that ended the wait or holds what it waits for; TRACE_NONE
    uint32_t hop_first; // in work.hops
    uint16_t notes;     // enum stall_doubt, NOTE_GPU_KNOWN
    uint8_t hop_count, cause, split, via, soft;
    float confidence;
};

struct part_hop {
    uint32_t from, to, gap;
    uint8_t via;
};

struct work {
    struct trace *trace;
    struct part *parts;
    size_t part_count, part_capacity;
    uint32_t *part_first; // [thread_count + 1], after parts_sort
    int64_t *part_reach;  // of each part: the latest end of its thread's up to it; likewise
    struct part_hop *hops;
    size_t hop_count;
    uint8_t *taken;  // of each gap: part of a longer story already
    uint8_t *needed; // of each part while chains are followed: one that leads waits for its thread
                     // meanwhile
    uint32_t *owner_samples; // of lock owners and kernel neighbours, by time
    size_t owner_sample_count;
    uint32_t *compilers; // processes
    size_t compiler_count;
    int64_t idle_ns;
};

void work_init(struct work *work, struct trace *trace);
void work_free(struct work *work);
struct part *parts_add(struct work *work, uint32_t thread, int64_t begin, int64_t end,
        enum cause cause, enum part_split split);
void parts_sort(struct work *work); // by thread and begin; fills part_first and part_reach
// Parts of the thread that may overlap [begin, end): *ret_last is one behind the last.
uint32_t parts_range(
        const struct work *work, uint32_t thread, int64_t begin, int64_t end, uint32_t *ret_last);
bool parts_blamable(const struct trace *trace,
        uint32_t thread); // neither nobody, nor the idle task, nor upgate
int64_t parts_overlap(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end);

// The cause of the first row whose mark is there; where that is reclaim, by whose limit.
// CAUSE_COUNT: none.
struct parts_deed {
    enum mark mark;
    enum cause cause;
};
enum cause parts_deed(struct marks marks, const struct parts_deed *rows, size_t count);
// What a task that holds others up was doing; CAUSE_COUNT: nothing known.
enum cause parts_activity(struct marks marks);

// holder.c: who held the lock that the part's thread waited for in [part.begin, part.end), and why.
struct holder_hint {
    uint32_t owner, waker;             // TRACE_NONE
    uint32_t waker_stack, owner_stack; // 0
    bool reader, is_mmap;
};
void holder_find(struct work *work, struct part *part, const struct holder_hint *hint);
void holder_spins(struct work *work); // lock waits that were spent on the CPU

void gil_stitch(struct work *work); // before classify_gaps
void classify_gaps(struct work *work);
// What a wait is by its own stack, without whom it waits for; CAUSE_COUNT: nothing that is known,
// or what an idle thread does as well.
enum cause classify_alone(const struct trace *trace, const struct trace_gap *gap);
void oncpu_find(struct work *work);
void facts_find(struct work *work);
void chain_follow(struct work
                *work); // after all others: decides soft waits, moves blame to the end of chains
// gpu_waits.c: causes whose waits end when a GPU has done something.
bool gpu_waits_is(enum cause cause);
bool gpu_waits_any(const struct work *work);
// Of such waits only what they cost stays, where it was recorded what the GPU did. late:
// [process_count], ranks that are told as stragglers. live: the recording goes on, and what lies
// behind the last record of a GPU is not told where that is seconds ago only. Parts are sorted,
// before and behind. Without trace_load_gpus nothing changes.
void gpu_waits_take(struct work *work, const bool *late, bool live);
// stalls.c: all of it in its order, on what work_init made. The parts are final and sorted then;
// idle waits are gone.
void work_find(struct work *work);

// cpu.c: a wait for a CPU.
void cpu_wait(struct work *work, const struct trace_gap *gap, uint32_t gap_index, int64_t begin);
// The first fact of this kind that overlaps [begin, end) and was done by somebody outside the
// process of `thread`; NULL: none.
const struct trace_fact *facts_by_other(
        const struct trace *trace, int what, uint32_t thread, int64_t begin, int64_t end);
// cpu.stat counted it
bool facts_throttled(const struct trace *trace, uint32_t thread, int64_t begin, int64_t end);
// Was the waker really the one who ended the wait? Not in interrupts, except softirqs of its own
// sending.
bool classify_real_waker(const struct trace *trace, const struct trace_gap *gap);

#endif
