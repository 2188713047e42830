/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Facts of memory: reclaim, compaction, migration, collapse, dirty pages, victims. As in
 * facts.bpf.h, whose helpers they use.
 */
#ifndef UPGATE_BPF_FACTS_MEMORY_BPF_H
#define UPGATE_BPF_FACTS_MEMORY_BPF_H

#include "bpf/facts.bpf.h"

enum {
    RUNNING_SLOTS = 64,
};

const volatile __u32 migrate_arguments = 8;
const volatile __u32 dirty_arguments = 8;
const volatile __u32 victim_arguments = 2;

/* Compactions going on: by whom, since when. */
struct running {
    __u32 tid;
    __u32 padding;
    __u64 begin_ns;
};
static struct running compactions[RUNNING_SLOTS];

static __always_inline struct thread *current_thread(void)
{
    struct task_struct *task = bpf_get_current_task_btf();

    return is_target(task->pid) ? thread_of(task) : NULL;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(fact_reclaim_begin, int order)
{
    struct thread *thread = current_thread();

    if (thread) {
        thread->fact_begin_ns = bpf_ktime_get_ns();
        thread->fact_order = order;
    }
    return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(fact_reclaim_end, unsigned long reclaimed)
{
    struct thread *thread = current_thread();
    __u64 now, begin;

    if (!thread || !thread->fact_begin_ns)
        return 0;
    now = bpf_ktime_get_ns();
    begin = thread->fact_begin_ns;
    thread->fact_begin_ns = 0;
    if (now - begin >= threshold_ns)
        send_interval(ctx, SCRATCH_RECLAIM, UG_FACT_RECLAIM, true, begin, now, thread->fact_order,
                reclaimed);
    return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(fact_memcg_begin, int order)
{
    struct thread *thread = current_thread();

    if (thread)
        thread->memcg_begin_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(fact_memcg_end, unsigned long reclaimed)
{
    struct thread *thread = current_thread();
    __u64 now, begin;

    if (!thread || !thread->memcg_begin_ns)
        return 0;
    now = bpf_ktime_get_ns();
    begin = thread->memcg_begin_ns;
    thread->memcg_begin_ns = 0;
    if (now - begin >= threshold_ns)
        send_interval(ctx, SCRATCH_MEMCG, UG_FACT_MEMCG_RECLAIM, true, begin, now, 0, reclaimed);
    return 0;
}

SEC("tp_btf/mm_vmscan_throttled")
int BPF_PROG(fact_reclaim_throttled, int node, int timeout_us, int delayed_us, int reason)
{
    __u64 now = bpf_ktime_get_ns(), waited_ns = (__u64)delayed_us * 1000;

    if (current_thread() && waited_ns >= threshold_ns)
        send_interval(ctx, SCRATCH_THROTTLED, UG_FACT_RECLAIM_THROTTLE, true, now - waited_ns, now,
                delayed_us, reason);
    return 0;
}

/* By whomever: who compacts moves pages of the target, too. */
SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(fact_compaction_begin)
{
    __u32 tid = bpf_get_current_pid_tgid();
    struct running *slot = &compactions[index_of(tid, RUNNING_SLOTS)];

    slot->tid = tid;
    slot->begin_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(fact_compaction_end)
{
    __u32 tid = bpf_get_current_pid_tgid();
    struct running *slot = &compactions[index_of(tid, RUNNING_SLOTS)];
    __u64 now = bpf_ktime_get_ns();

    if (slot->tid == tid && slot->begin_ns && now - slot->begin_ns >= threshold_ns)
        send_interval(ctx, SCRATCH_COMPACTION, UG_FACT_COMPACTION, is_target(tid), slot->begin_ns,
                now, 0, 0);
    slot->begin_ns = 0;
    return 0;
}

SEC("tp_btf/mm_migrate_pages")
int fact_migrate(__u64 *ctx)
{
    struct task_struct *actor = bpf_get_current_task_btf();
    __u64 reason = 0;

    if (migrate_arguments == 8)
        reason = (__u32)ARGUMENT(ctx, 7);
    else if (migrate_arguments == 7)
        reason = (__u32)ARGUMENT(ctx, 6);
    count_fact(UG_FACT_MIGRATE, is_target(actor->pid), actor, ctx[0], ctx[1], reason);
    return 0;
}

SEC("tp_btf/mm_collapse_huge_page")
int BPF_PROG(fact_collapse, struct mm_struct *mm, int isolated, int status)
{
    struct task_struct *owner = NULL;
    struct ug_fact fact;
    __u64 now;

    if (!bpf_core_field_exists(mm->owner))
        return 0;
    owner = mm->owner;
    if (!owner || !is_target(owner->pid))
        return 0;
    now = bpf_ktime_get_ns();
    fill_fact(&fact, UG_FACT_COLLAPSE, owner, bpf_get_current_task_btf(), now, now);
    fact.value[0] = isolated;
    fact.value[1] = status;
    send_fact(&fact);
    return 0;
}

SEC("tp_btf/balance_dirty_pages")
int fact_dirty_pause(__u64 *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct ug_fact fact;
    __s64 pause = 0;
    __u64 now;

    if (!is_target(task->pid))
        return 0;
    if (dirty_arguments == 8)
        pause = (__s64)ARGUMENT(ctx, 6);
    else if (dirty_arguments == 12)
        pause = (__s64)ARGUMENT(ctx, 10);
    if (pause <= 0)
        return 0;
    now = bpf_ktime_get_ns();
    fill_fact(&fact, UG_FACT_DIRTY_PAUSE, task, task, now, now);
    fact.value[0] = (__u64)pause * tick_ns / 1000000;
    send_fact(&fact);
    return 0;
}

SEC("tp_btf/mark_victim")
int fact_oom_victim(__u64 *ctx)
{
    struct task_struct *actor = bpf_get_current_task_btf();
    __u64 now = bpf_ktime_get_ns();
    struct ug_fact fact;

    fill_fact(&fact, UG_FACT_OOM_VICTIM, NULL, actor, now, now);
    if (victim_arguments >= 2) {
        struct task_struct *victim = (struct task_struct *)ctx[0];

        copy_task(&fact.task, victim);
    } else {
        fact.task.tid = fact.task.tgid = (__u32)ctx[0];
    }
    send_fact(&fact);
    return 0;
}

#endif
