// SPDX-License-Identifier: Apache-2.0
// Python stacks of the target. Where the BPF programs can walk a process's frames, they come with
// its records, and here they are named. Else they are walked from outside, a moment after a sample,
// and while a thread still sleeps (a record of its gap comes when it runs again: too late); so are
// those of threads that have slept since before the interpreter was found. Looks for that come
// every 5 ms, 20 ms when nothing moves, and rarely where there is nothing to walk or to read; they
// cost less than 1.6 % of a core, and what is left out is counted. A walk from outside belongs to a
// gap only if it began after the switch-out and ended before the switch-in: then it is exact. One
// thread.
#ifndef UPGATE_TRACER_RECORD_PYTHON_H
#define UPGATE_TRACER_RECORD_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/capture.h"
#include "tracer/record/stacks.h"
#include "tracer/record/tasks.h"

enum {
    PYTHON_LOOK_NS = 5000000, // the length of a GIL slice: each slice is looked at about once
};

struct python_reader;

struct python_reader *python_new(struct tasks *tasks, struct stacks *stacks, int64_t threshold_ns,
        uint32_t targets_max,
        bool prompt);                           // targets_max: interpreters followed at one time
void python_free(struct python_reader *reader); // NULL ok
// before the first search
void python_attach(struct python_reader *reader, struct capture *capture);
void python_forget(struct python_reader *reader, uint32_t tgid); // it is another program now
void python_process_gone(void *reader, struct task_process *process);

// Look for interpreters in processes of the target that have not been asked lately.
void python_search(struct python_reader *reader, int64_t now_ns);
uint32_t python_found(const struct python_reader *reader); // ever
// May a look be made now (5 ms since the last one, and paid for)? Then: capture_look() with
// python_state() for each record, and python_look_end().
bool python_look_begin(struct python_reader *reader, int64_t now_ns);
void python_state(
        struct python_reader *reader, struct task_thread *thread, const struct ug_state *state);
// the look found a thread that runs, or has run since the last one
void python_moved(struct python_reader *reader);
void python_look_end(struct python_reader *reader);
int64_t python_next_look_ns(const struct python_reader *reader, int64_t now_ns);

// Before a commit, the last one or another: every stack has a row, and as many names as can be
// read.
void python_settle(struct python_reader *reader, bool last);

// What the looks found about a gap. *ret_owner: the thread that held the GIL it waited for, as a
// row.
struct python_gap {
    uint32_t stack;
    uint32_t owner;
    bool gil; // it waited for the GIL
};
// words: the frames of the record.
void python_for_gap(struct python_reader *reader, struct task_thread *thread,
        const struct ug_gap *gap, const __u64 *words, struct python_gap *ret);
// The stack of a sample: as it came with the record, or a walk over a thread that was on its CPU a
// moment ago; 0: no Python, or no time for it. *ret_late: so long ago that it may be in another
// function by now.
uint32_t python_for_sample(struct python_reader *reader, struct task_thread *thread,
        const struct ug_sample *sample, const __u64 *words, bool *ret_late);

// The frames that came with another record (why: UG_SAMPLE_PYTHON…); 0: none did. Nobody is walked
// for it.
uint32_t python_for_fault(struct python_reader *reader, struct task_thread *thread,
        const struct ug_fault *fault, const __u64 *words);

struct python_counts {
    uint64_t wanted; // walks that were asked for
    uint64_t walked;
    uint64_t skipped; // no time: over 2 % of a core
    uint64_t failed;
    uint64_t looks, looks_skipped;
    uint64_t in_kernel; // of those that were walked
};
void python_counts(const struct python_reader *reader, struct python_counts *ret);
// why one could not be read; NULL: none
const char *python_refused(const struct python_reader *reader);

#endif
