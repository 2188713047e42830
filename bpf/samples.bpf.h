/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ticks of the CPU clock, on every CPU that is not idle. Sent are those that hit a target, the
 * watched owner of a lock, who runs while a target waits for this CPU, and who is in the kernel
 * while a target spins for a sleeping lock elsewhere (it spins as long as the owner runs: no switch
 * and no tracepoint tell of it).
 */
#ifndef UPGATE_BPF_SAMPLES_BPF_H
#define UPGATE_BPF_SAMPLES_BPF_H

#include "bpf/locks.bpf.h"
#include "bpf/python.bpf.h"
#include "bpf/unwind.bpf.h"

static __always_inline bool in_user(struct sample_context *ctx)
{
#if defined(__TARGET_ARCH_x86)
    return ctx->cs & 3;
#else
    return (ctx->pstate & 15) == 0;
#endif
}

static __always_inline bool spins(__u64 ip)
{
    for (int i = 0; i < 4; i++)
        if (ip >= spin_begin[i] && ip < spin_end[i])
            return true;
    return false;
}

static __always_inline __u32 why_sample(struct task_struct *task, bool user, __u64 now)
{
    __u32 tid = task->pid, cpu = bpf_get_smp_processor_id(), why = 0;

    if (is_target(tid))
        why |= UG_SAMPLE_TARGET;
    if (active_count > 0 && owns_awaited(task))
        why |= UG_SAMPLE_OWNER;
    if (queues[index_of(cpu, CPU_MAX)].waiting > 0)
        why |= UG_SAMPLE_NEIGHBOUR;
    if (!user && now < spin_until_ns)
        why |= UG_SAMPLE_SPIN;
    return why;
}

SEC("perf_event")
int sample_tick(struct sample_context *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    bool user = in_user(ctx);
    struct scratch *scratch;
    struct ug_sample *sample;
    __u32 at = sizeof(*sample), why, count;
    bool missed;
    __u64 now;
    long bytes;

    if (!task->pid || (__u32)task->tgid == self_tgid)
        return 0;
    now = bpf_ktime_get_ns();
    why = why_sample(task, user, now);
    if (why & UG_SAMPLE_TARGET && !user && spins(ctx->ip)) {
        spin_until_ns = now + 2 * sample_period_ns;
        why |= UG_SAMPLE_SPIN;
    }
    if (!why)
        return 0;
    scratch = scratch_of(SCRATCH_SAMPLE);
    if (!scratch)
        return 0;
    sample = (struct ug_sample *)scratch->bytes;
    __builtin_memset(sample, 0, sizeof(*sample));
    sample->head.kind = UG_EVENT_SAMPLE;
    sample->at_ns = now;
    copy_task(&sample->task, task);
    sample->cpu = bpf_get_smp_processor_id();
    sample->prio = task->prio;
    count = preempt_count(); /* the tick itself is one hard interrupt */
    if (count & SOFTIRQ_SERVING || (count & HARDIRQ_MASK) > HARDIRQ_ONE)
        why |= UG_SAMPLE_IRQ;
    sample->why = why | (user ? UG_SAMPLE_USER : 0);
    if (!user) {
        bytes = bpf_get_stack(ctx, scratch->bytes + sizeof(*sample), UG_KSTACK_MAX * 8, 0);
        if (bytes > 0) {
            sample->kernel_count = bytes / 8;
            at += bytes;
        }
    }
    if (!(task->flags & PF_KTHREAD)) {
        KEEP_VALUE(at);
        at &= 511;
        sample->user_count =
                take_user_stack(ctx, task, UNWIND_SAMPLE, scratch->bytes + at, &missed);
        at += sample->user_count * 8;
        if (missed)
            sample->why |= UG_SAMPLE_USER_MISSED;
        if (why & UG_SAMPLE_TARGET)
            at = append_python(
                    scratch, task, PYTHON_SAMPLE, at, &sample->why, &sample->python_count);
    }
    sample->head.size = at;
    emit_flood(UG_COUNTER_SAMPLE, sample, at,
            sample->kernel_count == UG_KSTACK_MAX || sample->user_count == UG_USTACK_MAX ||
                    sample->python_count == UG_PSTACK_MAX);
    return 0;
}

#endif
