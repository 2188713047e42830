/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Page faults of the target with the address and the stacks of who touched the page: perf's
 * software event, which counts faults on every architecture, those of the kernel on memory of the
 * target (read(2) into a buffer) too. It runs before the fault is handled, in the context of the
 * task, so that no second one can come between.
 *
 * Sampled are pages, not faults: a page of the sample has each of its faults told, so that the last
 * one is known of memory that is given back and touched again. The tick of a page that is not in
 * the sample costs 0.1 us of the fault's 1.6 (measured in a virtual machine). How large the sample
 * is depends on what is left of a budget of a CPU's own: from every 32nd page to every 4,096th;
 * ug_fault_is_of tells which. Every huge page's first page is in it more often, for it is one
 * fault.
 */
#ifndef UPGATE_FAULTS_BPF_H
#define UPGATE_FAULTS_BPF_H

#include "bpf/python.bpf.h"
#include "bpf/unwind.bpf.h"

enum {
    /* A record of PyTorch's stacks takes 42 us (docs/OVERHEAD.md): 125 a second are 0.5 % of a CPU.
     * Saved up are as many as a program needs that begins, or that touches some hundred MB at once.
     */
    FAULT_TOKEN_NS = 8000000,
    FAULT_TOKENS_MAX = 400,
    FAULT_LEVEL_MIN = 5,
};

struct fault_budget {
    __u64 filled_ns;
    __u64 tokens;
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct fault_budget);
} fault_budgets SEC(".maps");

static __always_inline struct fault_budget *fault_budget(__u64 now)
{
    __u32 zero = 0;
    __u64 earned;
    struct fault_budget *budget = bpf_map_lookup_elem(&fault_budgets, &zero);

    if (!budget)
        return NULL;
    earned = (now - budget->filled_ns) / FAULT_TOKEN_NS;
    if (earned) {
        budget->tokens = earned > FAULT_TOKENS_MAX || budget->tokens + earned > FAULT_TOKENS_MAX
                ? FAULT_TOKENS_MAX
                : budget->tokens + earned;
        budget->filled_ns =
                earned > FAULT_TOKENS_MAX ? now : budget->filled_ns + earned * FAULT_TOKEN_NS;
    }
    return budget;
}

/* Of 2^level pages one: the less is left, the fewer. The first 130 MB take half of what is saved
 * up, 300 MB seven eighths. */
static __always_inline __u32 fault_level(__u64 tokens)
{
    __u32 level = FAULT_LEVEL_MIN;

    if (tokens <= FAULT_TOKENS_MAX * 7 / 8)
        level = 6;
    if (tokens <= FAULT_TOKENS_MAX * 5 / 8)
        level = 7;
    if (tokens <= FAULT_TOKENS_MAX * 3 / 8)
        level = 8;
    if (tokens <= FAULT_TOKENS_MAX / 4)
        level = 9;
    if (tokens <= FAULT_TOKENS_MAX / 8)
        level = 10;
    if (tokens <= FAULT_TOKENS_MAX / 16)
        level = UG_FAULT_LEVEL_MAX;
    return level;
}

SEC("perf_event")
int fault_tick(struct sample_context *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct scratch *scratch;
    struct ug_fault *fault;
    struct fault_budget *budget;
    __u32 at = sizeof(*fault), level;
    __u64 now, address = ctx->addr;
    bool missed;

    if (!is_target(task->pid) || task->flags & PF_KTHREAD)
        return 0;
    if (!ug_fault_is_of(address, FAULT_LEVEL_MIN)) /* most of them */
        return 0;
    now = bpf_ktime_get_ns();
    budget = fault_budget(now);
    if (!budget)
        return 0;
    level = fault_level(budget->tokens);
    if (!ug_fault_is_of(address, level))
        return 0;
    /* Gaps and locks are in the same ring, and one that is lost breaks the recording's word; many
     * CPUs may begin to touch memory at once. */
    if (!budget->tokens ||
            bpf_ringbuf_query(&ring_flood, BPF_RB_AVAIL_DATA) >
                    bpf_ringbuf_query(&ring_flood, BPF_RB_RING_SIZE) / 2) {
        count_lost(UG_COUNTER_FAULT);
        return 0;
    }
    budget->tokens--;
    scratch = scratch_of(SCRATCH_FAULT);
    if (!scratch)
        return 0;
    fault = (struct ug_fault *)scratch->bytes;
    __builtin_memset(fault, 0, sizeof(*fault));
    fault->head.kind = UG_EVENT_FAULT;
    fault->at_ns = now;
    fault->address = address;
    fault->level = level;
    copy_task(&fault->task, task);
    fault->user_count =
            take_user_stack(ctx, task, UNWIND_FAULT, scratch->bytes + sizeof(*fault), &missed);
    at += fault->user_count * 8;
    if (missed)
        fault->why |= UG_SAMPLE_USER_MISSED;
    at = append_python(scratch, task, PYTHON_FAULT, at, &fault->why, &fault->python_count);
    fault->head.size = at;
    emit_flood(UG_COUNTER_FAULT, fault, at,
            fault->user_count == UG_USTACK_MAX || fault->python_count == UG_PSTACK_MAX);
    return 0;
}

#endif
