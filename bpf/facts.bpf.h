/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Facts: what the kernel says of itself at tracepoints that are quiet on a healthy machine. Each
 * program is optional. Intervals are sent when they reach the threshold; what may come in floods is
 * counted and sent at most ten times a second for each thread. How many arguments a tracepoint has
 * on this kernel is a setting: the verifier drops the branches that are not taken.
 */
#ifndef UPGATE_BPF_FACTS_BPF_H
#define UPGATE_BPF_FACTS_BPF_H

#include "bpf/common.bpf.h"
#include "bpf/tally.h"

enum {
    CGROUP_DEPTH = 10,
};

const volatile __u64 tick_ns = 4000000; /* a jiffy */

static struct ug_tally tallies[UG_TALLIES];

/* When the interrupt that this CPU serves began; a hard one may come inside a soft one. */
struct interrupts {
    __u64 soft_ns;
    __u64 hard_ns;
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct interrupts);
} interrupts SEC(".maps");

static __always_inline void fill_fact(struct ug_fact *fact, __u32 what, struct task_struct *task,
        struct task_struct *actor, __u64 begin_ns, __u64 end_ns)
{
    __builtin_memset(fact, 0, sizeof(*fact));
    fact->head.kind = UG_EVENT_FACT;
    fact->head.size = sizeof(*fact);
    fact->begin_ns = begin_ns;
    fact->end_ns = end_ns;
    if (task)
        copy_other(&fact->task, task);
    if (actor)
        copy_other(&fact->actor, actor);
    fact->what = what;
    fact->cpu = bpf_get_smp_processor_id();
    fact->flags = context_flags(preempt_count()) >> 7;
}

static __always_inline void send_fact(struct ug_fact *fact)
{
    emit_rare(UG_COUNTER_FACT, fact, sizeof(*fact), false);
}

/* An interval of current with its kernel stack. */
static __always_inline void send_interval(void *ctx, __u32 which, __u32 what, bool target,
        __u64 begin_ns, __u64 now, __u64 first, __u64 second)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct scratch *scratch = scratch_of(which);
    struct ug_fact *fact;
    __u32 at = sizeof(*fact);
    long bytes;

    if (!scratch)
        return;
    fact = (struct ug_fact *)scratch->bytes;
    fill_fact(fact, what, NULL, task, begin_ns, now);
    if (target)
        fact->task = fact->actor;
    fact->value[0] = first;
    fact->value[1] = second;
    bytes = bpf_get_stack(ctx, scratch->bytes + sizeof(*fact), UG_KSTACK_MAX * 8, SKIP_OWN_FRAMES);
    if (bytes > 0) {
        fact->kernel_count = bytes / 8;
        at += bytes;
    }
    fact->head.size = at;
    emit_rare(UG_COUNTER_FACT, fact, at, fact->kernel_count == UG_KSTACK_MAX);
}

static __always_inline void send_tally(struct ug_tally *tally, struct ug_fact *fact, __u64 end_ns)
{
    fill_fact(fact, (__u32)tally->key, NULL, NULL, tally->begin_ns, end_ns);
    fact->actor = tally->actor;
    if (tally->target)
        fact->task = tally->actor;
    fact->flags = tally->flags;
    fact->value[0] = tally->value[0];
    fact->value[1] = tally->value[1];
    fact->value[2] = tally->value[2];
    send_fact(fact);
}

static __always_inline void begin_tally(struct ug_tally *tally, __u64 now)
{
    tally->begin_ns = now;
    tally->value[0] = tally->value[1] = 0;
    tally->unsent = false;
}

/* Add to the tally of a thread. Of a new series it is sent at once, later as a sum every period; a
 * pause of a period ends the series, so that no interval lies over idle time. */
static __always_inline void count_fact(
        __u32 what, bool target, struct task_struct *actor, __u64 first, __u64 second, __u64 third)
{
    __u32 tid = actor ? actor->pid : 0;
    __u64 now = bpf_ktime_get_ns(), key = (__u64)tid << 32 | what;
    __u32 place = ug_tally_place(tallies, key, now);
    struct ug_tally *tally = &tallies[index_of(place, UG_TALLIES)];
    struct ug_fact fact;
    bool series;

    if (place >= UG_TALLIES) {
        count_lost(UG_COUNTER_FACT);
        return;
    }
    series = tally->key == key && now - tally->last_ns < UG_TALLY_NS;
    if (!series) {
        if (tally->unsent)
            send_tally(tally, &fact, tally->last_ns);
        tally->key = key;
        begin_tally(tally, now);
        if (actor)
            copy_other(&tally->actor, actor);
        else
            __builtin_memset(&tally->actor, 0, sizeof(tally->actor));
        tally->target = target;
    }
    tally->value[0] += first;
    tally->value[1] += second;
    tally->value[2] = third;
    tally->flags = context_flags(preempt_count()) >> 7;
    tally->last_ns = now;
    tally->unsent = true;
    if (series && now - tally->begin_ns < UG_TALLY_NS)
        return;
    send_tally(tally, &fact, now);
    begin_tally(tally, now);
}

/* What is left of a series at the end: no fact comes any more that would send it. */
static long send_rest(__u64 i, void *unused)
{
    struct ug_tally *tally = &tallies[index_of(i, UG_TALLIES)];
    struct scratch *scratch = scratch_of(SCRATCH_ITERATOR);

    if (!scratch || !tally->unsent)
        return 0;
    send_tally(tally, (struct ug_fact *)scratch->bytes, tally->last_ns);
    begin_tally(tally, tally->last_ns);
    return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(fact_signal, int number, struct kernel_siginfo *info, struct task_struct *task)
{
    enum { KILL = 9, CONT = 18, STOP = 19, TSTP = 20, TTIN = 21, TTOU = 22 };
    struct task_struct *actor = bpf_get_current_task_btf();
    struct ug_fact fact;
    __u64 now;

    if (number != KILL && (number < CONT || number > TTOU))
        return 0;
    if (!is_target(task->pid) || (__u32)actor->tgid == self_tgid)
        return 0;
    now = bpf_ktime_get_ns();
    fill_fact(&fact, UG_FACT_SIGNAL, task, actor, now, now);
    fact.value[0] = number;
    send_fact(&fact);
    return 0;
}

static __always_inline struct interrupts *current_interrupts(void)
{
    __u32 zero = 0;

    return bpf_map_lookup_elem(&interrupts, &zero);
}

static __always_inline void end_interrupt(__u64 begin, __u32 what, __u64 number)
{
    __u64 now = bpf_ktime_get_ns();
    struct ug_fact fact;

    if (!begin || now - begin < LONG_NS)
        return;
    fill_fact(&fact, what, bpf_get_current_task_btf(), NULL, begin, now);
    fact.value[0] = number;
    send_fact(&fact);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(fact_softirq_begin, unsigned int vector)
{
    struct interrupts *served = current_interrupts();

    if (served)
        served->soft_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(fact_softirq_end, unsigned int vector)
{
    struct interrupts *served = current_interrupts();

    if (served)
        end_interrupt(served->soft_ns, UG_FACT_SOFTIRQ, vector);
    return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(fact_irq_begin, int irq)
{
    struct interrupts *served = current_interrupts();

    if (served)
        served->hard_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(fact_irq_end, int irq)
{
    struct interrupts *served = current_interrupts();

    if (served)
        end_interrupt(served->hard_ns, UG_FACT_HARDIRQ, irq);
    return 0;
}

static __always_inline void numa_fact(struct task_struct *task, __u64 which)
{
    __u64 now = bpf_ktime_get_ns();
    struct ug_fact fact;

    if (!is_target(task->pid))
        return;
    fill_fact(&fact, UG_FACT_NUMA, task, bpf_get_current_task_btf(), now, now);
    fact.value[0] = which;
    send_fact(&fact);
}

SEC("tp_btf/sched_move_numa")
int BPF_PROG(fact_move_numa, struct task_struct *task)
{
    numa_fact(task, 0);
    return 0;
}

SEC("tp_btf/sched_swap_numa")
int BPF_PROG(fact_swap_numa, struct task_struct *task)
{
    numa_fact(task, 1);
    return 0;
}

struct freeze_search {
    __u64 cgroup, self; /* self: as the parent of others it is known by that */
    __u64 last; /* the one that was asked for last, in vain: processes of a job are mostly in one */
    bool found;
};

/* Is the cgroup that of the process, or above it? In the hierarchy of version 2, where the
 * tracepoint is. */
static __always_inline bool holds_process(struct freeze_search *search, __u32 tgid)
{
    struct task_struct *task = bpf_task_from_pid(tgid);
    struct cgroup_subsys_state *state;
    struct cgroup *own;
    bool found;

    if (!task)
        return false;
    own = BPF_CORE_READ(task, cgroups, dfl_cgrp);
    bpf_task_release(task);
    if ((__u64)own == search->last)
        return false;
    search->last = (__u64)own;
    found = (__u64)own == search->cgroup;
    state = BPF_CORE_READ(own, self.parent);
    for (int depth = 0; depth < CGROUP_DEPTH && state && !found; depth++) {
        found = (__u64)state == search->self;
        state = BPF_CORE_READ(state, parent);
    }
    return found;
}

static long freeze_each(__u64 i, struct freeze_search *search)
{
    __u32 tgid = leaders[index_of(i, LEADERS_MAX)];

    if (!tgid || !holds_process(search, tgid))
        return 0;
    search->found = true;
    return 1;
}

static __always_inline void freeze_fact(struct cgroup *cgroup, __u64 freeze)
{
    __u64 now = bpf_ktime_get_ns();
    struct freeze_search search = {0};
    struct ug_fact fact;

    if (!ask_owners || !bpf_task_from_pid)
        return;
    search.cgroup = (__u64)cgroup;
    search.self = (__u64)cgroup + bpf_core_field_offset(struct cgroup, self);
    bpf_loop(LEADERS_MAX, freeze_each, &search, 0);
    if (!search.found)
        return;
    fill_fact(&fact, UG_FACT_CGROUP_FREEZE, NULL, bpf_get_current_task_btf(), now, now);
    fact.value[0] = freeze;
    fact.value[1] = BPF_CORE_READ(cgroup, kn, id);
    send_fact(&fact);
}

SEC("tp_btf/cgroup_freeze")
int BPF_PROG(fact_freeze, struct cgroup *cgroup)
{
    freeze_fact(cgroup, 1);
    return 0;
}

SEC("tp_btf/cgroup_unfreeze")
int BPF_PROG(fact_unfreeze, struct cgroup *cgroup)
{
    freeze_fact(cgroup, 0);
    return 0;
}

/* In a softirq: whose connection it is, is not told here. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(fact_retransmit)
{
    count_fact(UG_FACT_TCP_RETRANSMIT, false, NULL, 1, 0, 0);
    return 0;
}

SEC("tp_btf/cgroup_rstat_lock_contended")
int BPF_PROG(fact_rstat)
{
    struct task_struct *task = bpf_get_current_task_btf();

    if (is_target(task->pid))
        count_fact(UG_FACT_RSTAT_LOCK, true, task, 1, 0, 0);
    return 0;
}

SEC("tp_btf/jbd2_run_stats")
int BPF_PROG(fact_journal, unsigned int device, unsigned int transaction,
        struct transaction_run_stats_s *stats)
{
    __u64 now = bpf_ktime_get_ns(), took_ns;
    struct ug_fact fact;

    if (!stats) /* never, but newer verifiers trust no tracepoint of a module */
        return 0;
    took_ns = (stats->rs_locked + stats->rs_flushing + stats->rs_logging) * tick_ns;
    if (!took_ns || took_ns < threshold_ns)
        return 0;
    fill_fact(&fact, UG_FACT_JOURNAL, NULL, bpf_get_current_task_btf(), now - took_ns, now);
    fact.value[0] = took_ns / 1000000;
    send_fact(&fact);
    return 0;
}

#endif
