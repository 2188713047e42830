// SPDX-License-Identifier: Apache-2.0
// Gives the BPF programs what they unwind user stacks with: tables of the code that stacks have led
// into (tracer/unwind), and for each process where they lie. Nothing is loaded before a stack has
// ended for want of it; one table, 4 MiB of code, takes 1 to 5 ms and 100 KB of kernel memory.
// Bounded in CPU time, in tables and in processes; the least recently asked for goes.
#ifndef UPGATE_TRACER_RECORD_UNWINDER_H
#define UPGATE_TRACER_RECORD_UNWINDER_H

#include "bpf/capture.h"
#include "tracer/record/tasks.h"
#include "tracer/symbols/symbols.h"

struct unwinder;

// prompt: a traced launch, which may cost more. NULL where the machine has no use for it.
struct unwinder *unwinder_new(
        struct capture *capture, struct symbols *symbols, uint32_t processes_max, bool prompt);
void unwinder_free(struct unwinder *unwinder); // NULL ok; all of these

// A user stack as the programs took it; `missed`: it led into code without a table. Returns how
// many of its addresses are to be kept: one that was read where a frame pointer should be, and is
// no code, is not.
size_t unwinder_saw(struct unwinder *unwinder, const struct task_process *process, uint64_t at_ns,
        const __u64 *addresses, size_t count, bool missed);
// it has ended, or is another program now
void unwinder_forget(struct unwinder *unwinder, uint32_t tgid);

struct unwinder_counts {
    // built; code without any; thrown out; put off for what they cost
    uint64_t tables, without, evicted, late;
    uint64_t words, rules;
};
void unwinder_counts(const struct unwinder *unwinder, struct unwinder_counts *ret);

#endif
