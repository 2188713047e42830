/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Gaps: what a thread was doing is kept in its task storage when it leaves the CPU, the first waker
 * when it is woken, and the whole is sent when it is back, if it was away for long enough. The
 * scheduler's locks are held here: no map is updated, nothing is allocated.
 *
 * A thread that switches more than 2,000 times a second gets its stack at switch-in instead: it has
 * not run yet, so the kernel can unwind it where it slept, only without the scheduler's own
 * functions and without the user's frames. That keeps a switch at 0.2 us where a stack costs 1 to
 * 2.
 */
#ifndef UPGATE_BPF_SCHED_BPF_H
#define UPGATE_BPF_SCHED_BPF_H

#include "bpf/common.bpf.h"
#include "bpf/python.bpf.h"
#include "bpf/unwind.bpf.h"

enum {
    FUTEX_CMD_MASK = 0x7f,
    FUTEX_PRIVATE_FLAG = 0x80,
    FUTEX_LOCK_PI = 6,
    FUTEX_LOCK_PI2 = 13,
    FUTEX_TID_MASK = 0x3fffffff,
#if defined(__TARGET_ARCH_x86)
    NR_FUTEX = 202,
#else
    NR_FUTEX = 98,
#endif
};

const volatile __u32 switch_arguments = 4;

static __always_inline void enqueue(struct thread *thread, __u32 cpu, __u64 now)
{
    struct queue *queue = &queues[index_of(cpu, CPU_MAX)];

    if (thread->queued)
        return;
    thread->queued = cpu + 1;
    queue->since_ns = now;
    __sync_fetch_and_add(&queue->waiting, 1);
}

static __always_inline void dequeue(struct thread *thread)
{
    struct queue *queue = &queues[index_of(thread->queued - 1, CPU_MAX)];

    thread->queued = 0;
    __sync_fetch_and_add(&queue->waiting, -1);
}

/* A thread id of an inner pid namespace, current's, as the first one has it; 0: not known. */
static __always_inline __u32 outer_id(__u32 inner)
{
    struct task_struct *task;
    __u32 outer = 0;

    if (!ask_owners || !bpf_task_from_vpid)
        return 0;
    task = bpf_task_from_vpid(inner);
    if (task) {
        outer = task->pid;
        bpf_task_release(task);
    }
    return outer;
}

/* Only in the context of the thread: the word of its futex, and who holds glibc's mutex around
 * it. Where it is; 0: the thread waits for none. */
static __always_inline __u64 read_futex(struct thread *thread, struct task_struct *task)
{
    __u64 *args = thread->syscall_args;
    __u32 word = 0, owner = 0, command;

    thread->syscall_nr = read_syscall(task, args);
    if (thread->syscall_nr != NR_FUTEX)
        return 0;
    bpf_probe_read_user(&word, sizeof(word), (void *)args[0]);
    bpf_probe_read_user(&owner, sizeof(owner), (void *)(args[0] + 8)); /* pthread_mutex_t.__owner */
    thread->futex_value = (__u64)owner << 32 | word;
    command = args[1] & FUTEX_CMD_MASK;
    if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2)
        thread->futex_owner = word & FUTEX_TID_MASK;
    else if (word && word <= 2) /* glibc: 1 locked, 2 with waiters */
        thread->futex_owner = owner;
    thread->futex_private = args[1] & FUTEX_PRIVATE_FLAG;
    if (thread->futex_owner && task->thread_pid->level)
        thread->futex_owner = outer_id(thread->futex_owner);
    return args[0];
}

static __always_inline void take_stacks(
        void *ctx, struct thread *thread, struct task_struct *task, __u64 now)
{
    struct python_state *python;
    __u64 futex = 0;
    long bytes;
    bool missed;

    thread->kernel_count = 0;
    thread->user_count = 0;
    thread->python_count = 0;
    thread->python_holder = 0;
    thread->futex_value = 0;
    thread->futex_owner = 0;
    thread->syscall_nr = -1;
    if (thread->prev_state && !(task->flags & PF_KTHREAD))
        /* 0.1 us, and nobody can tell it later: not of the budget */
        futex = read_futex(thread, task);
    if (now - thread->budget_ns > BUDGET_NS) {
        thread->budget_ns = now;
        thread->budget = BUDGET;
    }
    if (!thread->budget)
        return;
    thread->budget--;
    bytes = bpf_get_stack(ctx, thread->kernel, sizeof(thread->kernel), SKIP_OWN_FRAMES);
    if (bytes > 0)
        thread->kernel_count = bytes / 8;
    if (task->flags & PF_KTHREAD)
        return;
    thread->user_count = take_user_stack(ctx, task, UNWIND_SWITCH, thread->user, &missed);
    if (missed)
        thread->flags |= UG_GAP_USER_MISSED;
    python = take_python(task, thread, futex, PYTHON_SWITCH, thread->frames);
    if (!python)
        return;
    thread->flags |= UG_GAP_PYTHON | (python->collects ? UG_GAP_PYTHON_GC : 0);
    thread->python_count = python->count;
    thread->python_holder = python->holder;
}

/* Fields, not the struct: CONFIG_SCHED_INFO and CONFIG_FAIR_GROUP_SCHED leave out what is within.
 */
static __always_inline bool has_account(struct task_struct *task)
{
    return bpf_core_field_exists(task->sched_info.last_queued) &&
            bpf_core_field_exists(task->se.cfs_rq);
}

static __always_inline __u64 run_queue_clock(struct task_struct *task)
{
    return task->se.cfs_rq->rq->clock;
}

static __always_inline void keep_account(struct thread *thread, struct task_struct *task)
{
    if (!has_account(task))
        return;
    thread->out_arrival_ns = task->sched_info.last_arrival;
    thread->out_delay_ns = task->sched_info.run_delay;
    thread->out_clock_ns = run_queue_clock(task);
}

static __always_inline __u32 out_flags(struct task_struct *task, struct task_struct *next)
{
    /* Products where a bit can be one: each branch doubles what the verifier goes through after. */
    __u32 flags = BPF_CORE_READ_BITFIELD(task, in_iowait) * UG_GAP_IOWAIT;

    if (bpf_core_field_exists(task->in_memstall))
        flags |= BPF_CORE_READ_BITFIELD(task, in_memstall) * UG_GAP_MEMSTALL;
    if (bpf_core_field_exists(task->throttled)) {
        if (task->throttled)
            flags |= UG_GAP_THROTTLED;
    } else if (bpf_core_field_exists(struct cfs_rq, throttle_count)) {
        /* `throttled` tells of its own group alone, and the quota may be that of one above it. */
        struct cfs_rq *queue = task->se.cfs_rq;

        if (queue && BPF_CORE_READ(queue, throttle_count))
            flags |= UG_GAP_THROTTLED;
    }
    if (bpf_core_field_exists(task->memcg_nr_pages_over_high) && task->memcg_nr_pages_over_high)
        flags |= UG_GAP_MEMCG_HIGH;
    if (bpf_core_field_exists(task->frozen))
        flags |= BPF_CORE_READ_BITFIELD(task, frozen) * UG_GAP_FROZEN;
    flags |= (task->flags / PF_KTHREAD & 1) * UG_GAP_KTHREAD;
    if (!next->pid)
        flags |= UG_GAP_IDLE_CPU;
    return flags;
}

/* Who holds what the thread waits for. */
static __always_inline void gap_owner(
        struct ug_gap *gap, struct thread *thread, struct task_struct *task)
{
    struct task_struct *owner;

    gap->lock = thread->blocker;
    /* later: of the next wait, where the end of this one was not told */
    if (thread->wait.begin_ns && thread->wait.begin_ns <= gap->out_ns) {
        gap->lock = thread->wait.lock;
        gap->lock_flags = thread->wait.flags;
        gap->lock_kind = thread->wait.kind;
        gap->flags |= thread->wait.owner_flags;
        gap->owner = thread->wait.owner;
    } else if (thread->futex_owner && ask_owners && bpf_task_from_pid) {
        owner = bpf_task_from_pid(thread->futex_owner);
        if (owner) {
            /* What is no mutex has anything there: an owner is of this process, or the futex is
             * shared. */
            if (owner->pid != task->pid && (__u32)owner->tgid != self_tgid &&
                    (owner->tgid == task->tgid || !thread->futex_private)) {
                copy_task(&gap->owner, owner);
                gap->flags |= UG_GAP_OWNER_FUTEX |
                        (owner->on_cpu && !(gap->flags & UG_GAP_NO_IN) ? UG_GAP_OWNER_RUNNING : 0);
            }
            bpf_task_release(owner);
        }
    }
}

static __always_inline void fill_gap(struct ug_gap *gap, struct thread *thread,
        struct task_struct *task, __u64 out_ns, __u64 now)
{
    __builtin_memset(gap, 0, sizeof(*gap));
    gap->head.kind = UG_EVENT_GAP;
    gap->out_ns = out_ns;
    gap->waking_ns = thread->waking_ns;
    gap->in_ns = now;
    copy_task(&gap->task, task);
    gap->flags = thread->flags;
    gap->prev_state = thread->prev_state;
    gap->cpu_out = thread->cpu_out;
    gap->cpu_in = bpf_get_smp_processor_id();
    gap->futex_value = thread->futex_value;
    gap->python_holder = thread->python_holder;
    if (gap->flags & UG_GAP_NO_IN) { /* it may be in another one by now */
        gap->syscall_nr = thread->syscall_nr;
        if (gap->syscall_nr >= 0)
            __builtin_memcpy(gap->syscall_args, thread->syscall_args, sizeof(gap->syscall_args));
    } else {
        gap->syscall_nr = read_syscall(task, gap->syscall_args);
    }
    if (thread->attach_ns)
        gap->flags |= UG_GAP_NO_OUT;
    else {
        gap->next = thread->next;
        gap->next_prio = thread->next_prio;
    }
    if (thread->waking_ns) {
        gap->waker = thread->waker;
        gap->ppid_of_waker = thread->ppid_of_waker;
    }
    gap_owner(gap, thread, task);
}

/* The stacks behind the record. */
static __always_inline void finish_gap(
        struct scratch *scratch, struct thread *thread, struct task_struct *task)
{
    struct ug_gap *gap = (struct ug_gap *)scratch->bytes;
    __u32 at = sizeof(*gap);
    long bytes;

    gap->kernel_count = thread->kernel_count;
    gap->user_count = thread->user_count;
    if (gap->kernel_count) {
        at = append(scratch, at, thread->kernel, gap->kernel_count * 8);
    } else if (!(gap->flags & UG_GAP_NO_IN)) {
        bytes = bpf_get_task_stack(task, scratch->bytes + sizeof(*gap), UG_KSTACK_MAX * 8, 0);
        if (bytes > 0) {
            gap->kernel_count = bytes / 8;
            at += bytes;
        }
    }
    if (gap->user_count)
        at = append(scratch, at, thread->user, gap->user_count * 8);
    if (thread->waking_ns && thread->waker_count) {
        gap->waker_count = thread->waker_count;
        at = append(scratch, at, thread->wakers, gap->waker_count * 8);
    }
    gap->python_count = thread->python_count;
    if (gap->python_count)
        at = append(scratch, at, thread->frames, gap->python_count * 8);
    gap->head.size = at;
}

static __always_inline bool gap_is_cut(struct ug_gap *gap)
{
    return gap->kernel_count == UG_KSTACK_MAX || gap->user_count == UG_USTACK_MAX ||
            gap->python_count == UG_PSTACK_MAX;
}

/* Short gaps are counted, and sampled as time on the CPU is: by some ticks of the time that they
 * last together. */
static __always_inline bool short_is_due(struct thread *thread, __u64 off)
{
    thread->short_gaps++;
    thread->short_gap_ns += off;
    thread->short_due_ns += off;
    if (!sample_period_ns || thread->short_due_ns < UG_SHORT_TICKS * sample_period_ns ||
            thread->short_due_ns < threshold_ns)
        return false;
    thread->short_due_ns = 0;
    thread->flags |= UG_GAP_SHORT;
    return true;
}

/* When it became runnable by the scheduler's account, where no waker was seen: it came while the
 * thread was on its way out, or was not told (end_untold). */
static __always_inline __u64 runnable_since(
        struct thread *thread, struct task_struct *task, __u64 out_ns, __u64 in_ns)
{
    __u64 waited, queued;

    if (!has_account(task))
        return out_ns;
    waited = task->sched_info.run_delay - thread->out_delay_ns;
    queued = task->sched_info.last_queued;
    if (queued)
        waited += run_queue_clock(task) - queued;
    return waited < in_ns - out_ns ? in_ns - waited : out_ns;
}

/* Who tells a wait that ends while the iterator reads those that go on: the thread, as it comes
 * back, or the iterator. Not both. */
static __always_inline bool claim_gap(struct thread *thread, __u64 out_ns)
{
    return __sync_val_compare_and_swap(&thread->out_ns, out_ns, 0) == out_ns;
}

/* The thread was off the CPU from `out_ns` until `in_ns`. prev: who left the CPU for it; NULL: not
 * known. A wait that the iterator has claimed is left to it: it may give it back, and the next
 * switch tells it then. */
static __always_inline void end_gap(struct thread *thread, struct task_struct *task,
        struct task_struct *prev, __u64 out_ns, __u64 in_ns)
{
    struct scratch *scratch;
    struct ug_gap *gap;
    __u64 off = in_ns - out_ns;

    if (off < threshold_ns && !short_is_due(thread, off)) {
        thread->out_ns = 0;
        return;
    }
    scratch = scratch_of(SCRATCH_SWITCH);
    if (!scratch || !claim_gap(thread, out_ns))
        return;
    gap = (struct ug_gap *)scratch->bytes;
    fill_gap(gap, thread, task, out_ns, in_ns);
    if (thread->prev_state && !thread->waking_ns && !thread->attach_ns)
        gap->waking_ns = runnable_since(thread, task, out_ns, in_ns);
    if (prev) {
        copy_other(&gap->before, prev);
        gap->before_prio = prev->prio;
    }
    finish_gap(scratch, thread, task);
    emit_flood(UG_COUNTER_GAP, gap, gap->head.size, gap_is_cut(gap));
}

static __always_inline void switch_in(struct task_struct *task, struct task_struct *prev, __u64 now)
{
    struct thread *thread = thread_of(task);
    __u64 out_ns;

    if (!thread)
        return;
    if (thread->queued)
        dequeue(thread);
    out_ns = thread->out_ns;
    if (!out_ns)
        return;
    end_gap(thread, task, prev, out_ns, now);
}

/*
 * It runs, and was not seen to come back: Linux 6.18 in a virtual machine told neither BPF nor
 * ftrace of switches from threads of process 1 (15 to 45 of 50,000 waits). The scheduler keeps when
 * it came, by the clock of the run queue. That one is of now in a switch; elsewhere (`exits`) it is
 * of the last tick, and what has passed since the switch-out is added to what it was then.
 */
static __always_inline void end_untold(
        struct thread *thread, struct task_struct *task, __u64 now, bool exits)
{
    __u64 out_ns = thread->out_ns, arrival, clock, ago, in_ns;

    if (thread->queued)
        dequeue(thread);
    if (!out_ns)
        return;
    if (!has_account(task)) {
        if (now - out_ns >= threshold_ns)
            count_lost(UG_COUNTER_GAP);
        return;
    }
    arrival = task->sched_info.last_arrival;
    if (arrival == thread->out_arrival_ns) /* it was never away: the iterator saw it as it came */
        return;
    clock = exits ? thread->out_clock_ns + (now - out_ns) : run_queue_clock(task);
    ago = clock > arrival ? clock - arrival : 0;
    in_ns = ago < now - out_ns ? now - ago : out_ns;
    thread->flags |= UG_GAP_NO_IN;
    if (thread->waking_ns > in_ns) { /* a waker that came too late for this wait */
        thread->waking_ns = 0;
        thread->flags &= ~(
                UG_GAP_WAKER_IRQ | UG_GAP_WAKER_SOFTIRQ | UG_GAP_WAKER_NMI | UG_GAP_WAKER_KTHREAD);
    }
    end_gap(thread, task, NULL, out_ns, in_ns);
}

static __always_inline void switch_out(void *ctx, struct task_struct *task,
        struct task_struct *next, bool preempted, __u32 state, __u64 now)
{
    struct thread *thread = thread_of(task);
    __u32 cpu = bpf_get_smp_processor_id();

    if (!thread)
        return;
    if (thread->out_ns)
        end_untold(thread, task, now, false);
    thread->out_ns = now;
    keep_account(thread, task);
    thread->waking_ns = 0;
    thread->attach_ns = 0;
    thread->waker_count = 0;
    thread->cpu_out = cpu;
    thread->flags = out_flags(task, next);
    thread->prev_state = preempted ? 0 : state;
    if (!thread->prev_state) {
        thread->flags |= UG_GAP_PREEMPTED;
        if (!(thread->flags &
                    UG_GAP_THROTTLED)) /* that one waits for its quota, for nobody's CPU */
            enqueue(thread, cpu, now);
    }
    thread->blocker = bpf_core_field_exists(task->blocker) ? task->blocker : 0;
    thread->next_prio = next->prio;
    copy_other(&thread->next, next);
    take_stacks(ctx, thread, task, now);
}

static __u32 switches_in;

/* Before Linux 5.18 the tracepoint does not tell the state; __state may have changed already. */
SEC("tp_btf/sched_switch")
int task_switch(__u64 *ctx)
{
    struct task_struct *prev = (struct task_struct *)ctx[1], *next = (struct task_struct *)ctx[2];
    bool out = is_target(prev->pid), in = is_target(next->pid);
    __u64 now;

    if (in && miss_switch_in && ++switches_in % miss_switch_in == 0)
        in = false;
    if (!out && !in)
        return 0;
    now = bpf_ktime_get_ns();
    if (out)
        switch_out(ctx, prev, next, (bool)ctx[0],
                switch_arguments >= 4 ? (__u32)ARGUMENT(ctx, 3) : prev->__state, now);
    if (in)
        switch_in(next, prev, now);
    return 0;
}

/* In the waker's context, or in that of whom an interrupt hit. */
SEC("tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *task)
{
    struct task_struct *waker;
    struct thread *thread;
    __u64 now;
    long bytes;

    if (!is_target(task->pid))
        return 0;
    thread = thread_of(task);
    if (!thread || !thread->out_ns || thread->waking_ns ||
            (!thread->prev_state && !thread->attach_ns))
        return 0;
    now = bpf_ktime_get_ns();
    thread->waking_ns = now;
    waker = bpf_get_current_task_btf();
    thread->waker.tid = 0;
    thread->waker.tgid = 0;
    thread->waker.comm[0] = 0;
    thread->ppid_of_waker = 0;
    if ((__u32)waker->tgid != self_tgid && waker->pid) {
        copy_task(&thread->waker, waker);
        if (waker->flags & PF_KTHREAD)
            thread->flags |= UG_GAP_WAKER_KTHREAD;
    }
    thread->flags |= context_flags(preempt_count());
    enqueue(thread, bpf_core_field_exists(task->wake_cpu) ? task->wake_cpu : thread->cpu_out, now);
    if (now - thread->out_ns < threshold_ns)
        return 0;
    if (thread->waker.tid)
        thread->ppid_of_waker = waker->real_parent->tgid;
    bytes = bpf_get_stack(ctx, thread->wakers, sizeof(thread->wakers), SKIP_OWN_FRAMES);
    if (bytes > 0)
        thread->waker_count = bytes / 8;
    return 0;
}

#endif
