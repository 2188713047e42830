/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Births, execs, deaths and names. Threads and children of a target become targets before they run
 * for the first time; every exec of the machine is told, so that a culprit that lived for a moment
 * has a name.
 */
#ifndef UPGATE_BPF_TASKS_BPF_H
#define UPGATE_BPF_TASKS_BPF_H

#include "bpf/common.bpf.h"
#include "bpf/sched.bpf.h"

static __always_inline void fill_task(
        struct ug_task_event *event, struct task_struct *task, __u32 what, bool target)
{
    __builtin_memset(event, 0, sizeof(*event));
    event->head.kind = UG_EVENT_TASK;
    event->head.size = sizeof(*event);
    event->at_ns = bpf_ktime_get_ns();
    event->start_ns = task->start_boottime;
    copy_task(&event->task, task);
    event->what = what;
    event->ppid = task->real_parent->tgid;
    event->target = target;
    event->exit_code = what == UG_TASK_EXIT ? task->exit_code : 0;
}

static __always_inline void emit_task(struct task_struct *task, __u32 what)
{
    struct ug_task_event event;

    fill_task(&event, task, what, true);
    emit_rare(UG_COUNTER_TASK, &event, sizeof(event), false);
}

/* Where two have the same place it stays that of the first while that lives. */
static __always_inline void keep_leader(__u32 tgid)
{
    __u32 *leader = &leaders[index_of(tgid, LEADERS_MAX)];

    if (!is_target(*leader))
        *leader = tgid;
}

/* What the totals tell counts from here on. */
static __always_inline void begin_totals(struct thread *thread, struct task_struct *task)
{
    thread->base_switches = task->nvcsw + task->nivcsw;
    thread->base_run_ns = task->se.sum_exec_runtime;
    thread->short_gaps = 0;
    thread->short_gap_ns = 0;
}

static __always_inline void fill_total(
        struct ug_total *total, struct task_struct *task, struct thread *thread)
{
    total->head.kind = UG_EVENT_TOTAL;
    total->head.size = sizeof(*total);
    total->tid = task->pid;
    total->tgid = task->tgid;
    total->switches = task->nvcsw + task->nivcsw - thread->base_switches;
    total->short_gaps = thread->short_gaps;
    total->short_gap_ns = thread->short_gap_ns;
    total->run_ns = task->se.sum_exec_runtime - thread->base_run_ns;
}

/* At the end of the recording it cannot be asked any more. */
static __always_inline void emit_total(struct task_struct *task, struct thread *thread)
{
    struct ug_total total;

    fill_total(&total, task, thread);
    if (total.run_ns >= threshold_ns || total.short_gap_ns >= threshold_ns)
        emit_rare(UG_COUNTER_TASK, &total, sizeof(total), false);
}

/* Storage first, then the bit: who sees the bit finds the storage. */
static __always_inline struct thread *mark(struct task_struct *task)
{
    struct thread *thread = make_thread(task);

    if (!thread || thread->marked)
        return NULL;
    thread->marked = 1;
    begin_totals(thread, task);
    set_target(task->pid);
    if (task->flags &
            PF_EXITING) { /* task_exit may have been before: nobody would clear the bit again */
        clear_target(task->pid);
        forget_thread(task->pid);
        return NULL;
    }
    if (task->pid == task->tgid)
        keep_leader(task->pid);
    return thread;
}

/* Of whom nothing can be kept is not followed. Who is marked already has storage, who exits needs
 * none. */
static __always_inline void count_unfollowed(struct task_struct *task)
{
    if (!(task->flags & PF_EXITING) && !thread_of(task))
        count_lost(UG_COUNTER_TASK);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
    if (!is_target(parent->pid))
        return 0;
    if (child->tgid != parent->tgid && !follow_children)
        return 0;
    if (is_target(child->pid)) /* the iterator was here already */
        return 0;
    if (mark(child))
        emit_task(child, UG_TASK_FORK);
    else
        count_unfollowed(child);
    return 0;
}

static __always_inline void rename_thread(__u32 old_tid, __u32 tid)
{
    struct thread *thread = keep_threads ? bpf_map_lookup_elem(&threads_kept, &old_tid) : NULL;

    if (!thread)
        return;
    bpf_map_update_elem(&threads_kept, &tid, thread, BPF_ANY);
    bpf_map_delete_elem(&threads_kept, &old_tid);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(task_exec, struct task_struct *task, int old_tid, struct linux_binprm *binprm)
{
    bool target = is_target(old_tid) || is_target(task->pid);
    struct thread *thread;
    struct ug_task_event event;

    if ((__u32)task->tgid == self_tgid)
        return 0;
    if (target && old_tid != task->pid) { /* a thread that execs takes the id of its leader */
        rename_thread(old_tid, task->pid);
        clear_target(old_tid);
        set_target(task->pid);
        thread = thread_of(task);
        if (thread) /* of that id it is another one */
            begin_totals(thread, task);
    }
    fill_task(&event, task, UG_TASK_EXEC, target);
    event.old_tid = old_tid;
    emit_rare(UG_COUNTER_TASK, &event, sizeof(event), false);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task)
{
    struct thread *thread;

    if (!is_target(task->pid))
        return 0;
    thread = thread_of(task);
    if (thread && thread->out_ns)
        end_untold(thread, task, bpf_ktime_get_ns(), true);
    clear_target(task->pid);
    if (thread)
        emit_total(task, thread);
    forget_thread(task->pid);
    emit_task(task, UG_TASK_EXIT);
    return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(task_name, struct task_struct *task, const char *name)
{
    struct ug_task_event event;

    if (!is_target(task->pid))
        return 0;
    fill_task(&event, task, UG_TASK_RENAME, true);
    bpf_probe_read_kernel_str(event.task.comm, sizeof(event.task.comm), name);
    emit_rare(UG_COUNTER_TASK, &event, sizeof(event), false);
    return 0;
}

#endif
