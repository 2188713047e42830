/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Page faults of the target, one of so many, with the address and the stacks of who touched the page: perf's software event, which
 * counts faults on every architecture, those of the kernel on memory of the target (read(2) into a buffer) too. The event's
 * period is fixed, so that a tick costs a fault a quarter of itself; what a tick costs with its stacks is held by a budget of a CPU's
 * own. Who is over it is counted in the next record's period.
 *
 * It runs before the fault is handled, in the context of the task, so that no second one can come between.
 */
#ifndef UPGATE_FAULTS_BPF_H
#define UPGATE_FAULTS_BPF_H

#include "bpf/python.bpf.h"
#include "bpf/unwind.bpf.h"

const volatile __u32 fault_period = 1; /* of the event */

enum {
    /* A record of PyTorch's stacks takes 42 us (docs/OVERHEAD.md): 200 a second are 0.8 % of a CPU. Saved up are as many as
     * a program that begins needs: a second's. */
    FAULT_TOKEN_NS = 5000000,
    FAULT_TOKENS_MAX = 200,
    FAULT_BLOCK_BITS = 21, /* a huge page; of a block that was told just now others are told while there is plenty */
};

struct fault_budget {
    __u64 filled_ns;
    __u64 block;
    __u32 tokens;
    __u32 left_out; /* ticks since the last record */
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct fault_budget);
} fault_budgets SEC(".maps");

/* How many ticks the record stands for; 0: there is to be none. */
static __always_inline __u32 fault_afford(__u64 now, __u64 block)
{
    __u32 zero = 0, ticks;
    __u64 earned;
    struct fault_budget *budget = bpf_map_lookup_elem(&fault_budgets, &zero);

    if (!budget)
        return 0;
    earned = (now - budget->filled_ns) / FAULT_TOKEN_NS;
    if (earned) {
        budget->tokens = budget->tokens + earned > FAULT_TOKENS_MAX ? FAULT_TOKENS_MAX : budget->tokens + earned;
        budget->filled_ns = earned > FAULT_TOKENS_MAX ? now : budget->filled_ns + earned * FAULT_TOKEN_NS;
    }
    budget->left_out++;
    if (!budget->tokens || (block == budget->block && budget->tokens < FAULT_TOKENS_MAX / 2))
        return 0;
    budget->tokens--;
    budget->block = block;
    ticks = budget->left_out;
    budget->left_out = 0;
    return ticks;
}

/* Python's frames behind the others; where the record ends then. */
static __always_inline __u32 fault_python(struct scratch *scratch, struct task_struct *task, __u32 at)
{
    struct ug_fault *fault = (struct ug_fault *)scratch->bytes;
    struct python_state *python;
    struct thread *thread = thread_of(task);

    if (!thread)
        return at;
    KEEP_VALUE(at);
    at &= 2047;
    python = take_python(task, thread, 0, PYTHON_FAULT, scratch->bytes + at);
    if (!python)
        return at;
    fault->why |= UG_SAMPLE_PYTHON | (python->collects ? UG_SAMPLE_PYTHON_GC : 0);
    fault->python_count = python->count;
    return at + python->count * 8;
}

SEC("perf_event")
int fault_tick(struct sample_context *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct scratch *scratch;
    struct ug_fault *fault;
    __u32 at = sizeof(*fault), ticks;
    __u64 now, address = ctx->addr;
    bool missed;

    if (!is_target(task->pid) || task->flags & PF_KTHREAD)
        return 0;
    now = bpf_ktime_get_ns();
    ticks = fault_afford(now, address >> FAULT_BLOCK_BITS);
    if (!ticks)
        return 0;
    scratch = scratch_of(SCRATCH_FAULT);
    if (!scratch)
        return 0;
    fault = (struct ug_fault *)scratch->bytes;
    __builtin_memset(fault, 0, sizeof(*fault));
    fault->head.kind = UG_EVENT_FAULT;
    fault->at_ns = now;
    fault->address = address;
    fault->period = ticks * fault_period;
    copy_task(&fault->task, task);
    fault->user_count = take_user_stack(ctx, task, UNWIND_FAULT, scratch->bytes + sizeof(*fault), &missed);
    at += fault->user_count * 8;
    if (missed)
        fault->why |= UG_SAMPLE_USER_MISSED;
    at = fault_python(scratch, task, at);
    fault->head.size = at;
    emit_flood(UG_COUNTER_FAULT, fault, at, fault->user_count == UG_USTACK_MAX || fault->python_count == UG_PSTACK_MAX);
    return 0;
}

#endif
