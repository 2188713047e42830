/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The iterator over all tasks, in five modes: mark the threads of the processes asked for, look
 * what the targets are doing now, send the gaps that have not ended yet, or that will not be seen
 * to end, with what is left of series of facts, and read the totals. It runs in the loader's
 * context, which reads the records as a file: no ring that 5,000 threads at once could overflow.
 */
#ifndef UPGATE_BPF_STATE_BPF_H
#define UPGATE_BPF_STATE_BPF_H

#include "bpf/facts.bpf.h"
#include "bpf/locks.bpf.h"
#include "bpf/sched.bpf.h"
#include "bpf/tasks.bpf.h"

/* False: the file's buffer is full; the kernel comes again with the same task and an empty one. */
static __always_inline bool write_record(
        struct seq_file *seq, __u32 counter, void *record, __u32 size, bool cut)
{
    struct ug_counts *counts = bpf_map_lookup_elem(&counters, &counter);

    KEEP_VALUE(size);
    size &= 4095;
    if (!counts || bpf_seq_write(seq, record, size))
        return false;
    __sync_fetch_and_add(&counts->seen, 1);
    __sync_fetch_and_add(&counts->kept, 1);
    if (cut)
        __sync_fetch_and_add(&counts->truncated, 1);
    return true;
}

static __always_inline void mark_wanted(struct seq_file *seq, struct task_struct *task)
{
    __u32 tgid = task->tgid;
    struct ug_task_event event;
    struct thread *thread;
    __u64 now;

    if (tgid == self_tgid || task->flags & PF_EXITING || is_target(task->pid) ||
            !bpf_map_lookup_elem(&wanted, &tgid) ||
            (skip_own_children && (__u32)task->real_parent->tgid == self_tgid))
        return;
    fill_task(&event, task, UG_TASK_SEEN, true);
    if (!write_record(seq, UG_COUNTER_TASK, &event, sizeof(event), false))
        return;
    thread = mark(task);
    if (!thread) {
        if (iterator_mode == MODE_MARK_AGAIN)
            count_unfollowed(task);
        return;
    }
    if (!task->on_cpu) {
        now = bpf_ktime_get_ns();
        thread->prev_state = task->__state;
        thread->flags = out_flags(task, task) & ~UG_GAP_IDLE_CPU;
        if (!thread->prev_state)
            thread->flags |= UG_GAP_PREEMPTED;
        thread->blocker = bpf_core_field_exists(task->blocker) ? task->blocker : 0;
        thread->attach_ns = now;
        thread->out_ns = now;
        keep_account(thread, task);
    }
}

static __always_inline bool may_wait_for_mmap_lock(struct ug_state *state, struct task_struct *task)
{
    /* A kernel with blocker tells it of every sleep that no signal ends: a killable one is left.
     * Waits for the disk say so. */
    __u32 sleep = bpf_core_field_exists(task->blocker) ? TASK_KILLABLE : TASK_UNINTERRUPTIBLE;

    return !(state->flags & UG_GAP_IOWAIT) && (state->state & sleep) == sleep;
}

/* For a wait that began before we came: task_struct.blocker tells a sleep that no signal ends,
 * the mm the rest. */
static __always_inline void state_owner(
        struct ug_state *state, struct task_struct *task, struct thread *thread)
{
    enum {
        BLOCKER_MUTEX,
        BLOCKER_SEMAPHORE,
        BLOCKER_RWSEM_READER,
        BLOCKER_RWSEM_WRITER,
        BLOCKER_MASK = 3
    };
    struct task_struct *owner;
    struct mm_struct *mm = task->mm;
    __u64 lock = 0, word, pointer;
    bool guessed = false;

    if (bpf_core_field_exists(task->blocker))
        state->blocker = task->blocker;
    if (state->blocker) {
        lock = state->blocker & ~(__u64)BLOCKER_MASK;
        state->lock_kind = UG_LOCK_RWSEM;
        if ((state->blocker & BLOCKER_MASK) == BLOCKER_MUTEX)
            state->lock_kind = UG_LOCK_MUTEX;
        else if ((state->blocker & BLOCKER_MASK) == BLOCKER_SEMAPHORE)
            state->lock_kind = UG_LOCK_SEMAPHORE;
        else if (is_mmap_lock(task, lock))
            state->lock_kind = UG_LOCK_MMAP;
    } else if (thread->wait.begin_ns) {
        lock = thread->wait.lock;
        state->lock_kind = thread->wait.kind;
    } else if (mm && may_wait_for_mmap_lock(state, task) && is_mmap_lock_held(mm)) {
        guessed = true;
        lock = (__u64)mm + bpf_core_field_offset(struct mm_struct, mmap_lock);
        state->lock_kind = UG_LOCK_MMAP;
    }
    word = lock ? read_owner(lock, state->lock_kind) : 0;
    pointer = word & ~(__u64)OWNER_FLAGS;
    if (pointer == (__u64)task) { /* nobody waits for himself: it is something else */
        if (guessed)
            state->lock_kind = UG_LOCK_NONE;
        return;
    }
    if (!pointer)
        return;
    if (!ask_owners || !bpf_task_from_pid) {
        guess_owner(&state->owner, pointer);
        if (state->lock_kind != UG_LOCK_MUTEX && word & RWSEM_READER_OWNED)
            state->flags |= UG_GAP_OWNER_READER;
        return;
    }
    owner = bpf_task_from_pid(BPF_CORE_READ((struct task_struct *)pointer, pid));
    if (!owner)
        return;
    if ((__u64)owner == pointer && (__u32)owner->tgid != self_tgid) {
        copy_task(&state->owner, owner);
        if (state->lock_kind != UG_LOCK_MUTEX && word & RWSEM_READER_OWNED)
            state->flags |= UG_GAP_OWNER_READER;
        if (owner->on_cpu)
            state->flags |= UG_GAP_OWNER_RUNNING;
    }
    bpf_task_release(owner);
}

static __always_inline void look(
        struct seq_file *seq, struct task_struct *task, struct thread *thread)
{
    struct scratch *scratch = scratch_of(SCRATCH_ITERATOR);
    struct ug_state *state;
    __u32 at = sizeof(*state);
    long bytes;

    if (!scratch)
        return;
    state = (struct ug_state *)scratch->bytes;
    __builtin_memset(state, 0, sizeof(*state));
    state->head.kind = UG_EVENT_STATE;
    state->at_ns = bpf_ktime_get_ns();
    copy_task(&state->task, task);
    state->last_switch_ns = thread->attach_ns ? 0 : thread->out_ns;
    state->switch_count = task->nvcsw + task->nivcsw;
    state->state = task->__state;
    state->on_cpu = task->on_cpu;
    state->syscall_nr = -1;
    if (!state->on_cpu) {
        state->syscall_nr = read_syscall(task, state->syscall_args);
        state->flags = out_flags(task, task) & ~UG_GAP_IDLE_CPU;
        state_owner(state, task, thread);
        bytes = bpf_get_task_stack(task, scratch->bytes + sizeof(*state), UG_KSTACK_MAX * 8, 0);
        if (bytes > 0) {
            state->kernel_count = bytes / 8;
            at += bytes;
        }
    }
    state->head.size = at;
    write_record(seq, UG_COUNTER_STATE, state, at, state->kernel_count == UG_KSTACK_MAX);
}

/* In the middle of a recording its whole gap comes once the thread has come back: this one counts
 * as no gap. */
static __always_inline void send_unfinished(
        struct seq_file *seq, struct task_struct *task, struct thread *thread, bool last)
{
    struct scratch *scratch;
    struct ug_gap *gap;
    __u64 out_ns = thread->out_ns, now = bpf_ktime_get_ns();

    if (!out_ns || now - out_ns < threshold_ns)
        return;
    if (task->on_cpu) {                        /* it is back, which was not told: see end_untold */
        if (last && claim_gap(thread, out_ns)) /* lost, and not told by its next switch as well */
            count_lost(UG_COUNTER_GAP);
        return;
    }
    scratch = scratch_of(SCRATCH_ITERATOR);
    if (!scratch)
        return;
    gap = (struct ug_gap *)scratch->bytes;
    fill_gap(gap, thread, task, out_ns, now);
    gap->flags |= UG_GAP_UNFINISHED;
    finish_gap(scratch, thread, task);
    /* it has come back meanwhile: this may be of two waits */
    if (last ? !claim_gap(thread, out_ns) : thread->out_ns != out_ns)
        return;
    if (write_record(seq, last ? UG_COUNTER_GAP : UG_COUNTER_STATE, gap, gap->head.size,
                gap_is_cut(gap)) ||
            !last)
        return;
    /* To be told when the kernel comes again; unless it has gone off again already, for the next
     * wait, or may have been at its end. */
    if (task->flags & PF_EXITING || __sync_val_compare_and_swap(&thread->out_ns, 0, out_ns))
        count_lost(UG_COUNTER_GAP);
}

static __always_inline void write_total(
        struct seq_file *seq, struct task_struct *task, struct thread *thread)
{
    struct ug_total total;

    fill_total(&total, task, thread);
    bpf_seq_write(seq, &total, sizeof(total));
}

SEC("iter/task")
int each_task(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    struct thread *thread;

    if (!task) { /* behind the last one; verifiers that go through loops step by step are spared
                    this one */
        if (iterator_mode == MODE_UNFINISHED && have_loop)
            bpf_loop(UG_TALLIES, send_rest, NULL, 0);
        return 0;
    }
    if (iterator_mode == MODE_MARK || iterator_mode == MODE_MARK_AGAIN) {
        mark_wanted(ctx->meta->seq, task);
        return 0;
    }
    if (!is_target(task->pid))
        return 0;
    thread = thread_of(task);
    if (!thread)
        return 0;
    if (iterator_mode == MODE_LOOK)
        look(ctx->meta->seq, task, thread);
    else if (iterator_mode == MODE_WAITING || iterator_mode == MODE_UNFINISHED)
        send_unfinished(ctx->meta->seq, task, thread, iterator_mode == MODE_UNFINISHED);
    else if (iterator_mode == MODE_TOTALS)
        write_total(ctx->meta->seq, task, thread);
    return 0;
}

#endif
