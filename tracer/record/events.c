// SPDX-License-Identifier: Apache-2.0
// Records of the rings into rows. Called for each record while a ring is read: what is slow
// (symbols of user space) is put off. A record is taken as it is; what it names is looked up in
// tasks and stacks.
#include <string.h>
#include <sys/syscall.h>

#include "common/clock.h"
#include "tracer/record/recorder.h"
#include "tracer/record/task_proc.h"

enum { EVENT_IRQ_FLAGS = UG_GAP_WAKER_IRQ | UG_GAP_WAKER_SOFTIRQ | UG_GAP_WAKER_NMI };

// NULL: nobody who is named, or one whom another recorder has by now (recorder_leave): the programs
// do not know that.
static struct task_thread *event_thread(
        struct recorder *recorder, const struct ug_task *task, int64_t at_ns)
{
    struct task_thread *thread = tasks_thread(recorder->tasks, task, at_ns);
    return thread && !thread->process->has_left ? thread : NULL;
}

static void event_prio(struct row *row, uint32_t thread, uint32_t prio)
{
    if (thread)
        row_int(row, prio);
    else
        row_null(row);
}

// A look's findings are of the wait that it was taken in: the next one may be for another lock of
// the same holder.
static const struct task_look *event_look(
        const struct task_thread *thread, const struct ug_gap *gap)
{
    const struct task_look *look = &thread->look;
    return look->owner && look->at_ns >= (int64_t)gap->out_ns && look->at_ns <= (int64_t)gap->in_ns
            ? look
            : NULL;
}

// They fill what a gap that began before us cannot know.
static uint32_t event_gap_owner(struct recorder *recorder, const struct task_thread *thread,
        const struct ug_gap *gap, uint32_t *flags)
{
    int64_t at_ns = (int64_t)(gap->flags & UG_GAP_OWNER_FUTEX ? gap->in_ns : gap->out_ns);
    uint32_t owner = tasks_thread_id(recorder->tasks, &gap->owner, at_ns, false);
    const struct task_look *look = event_look(thread, gap);
    if (owner || !look || !(gap->flags & (UG_GAP_NO_OUT | UG_GAP_UNFINISHED)))
        return owner;
    *flags |= look->flags & (UG_GAP_OWNER_READER | UG_GAP_OWNER_RUNNING);
    return look->owner;
}

struct event_gap_rows {
    uint32_t kernel, user, waker_stack, waker, next, before, owner, lock_kind, flags;
    uint64_t lock;
    struct python_gap python;
};

static uint32_t event_user_stack(struct recorder *recorder, struct task_thread *thread,
        uint64_t at_ns, const __u64 *addresses, size_t count, bool missed)
{
    count = unwinder_saw(recorder->unwinder, thread->process, at_ns, addresses, count, missed);
    return stacks_user(recorder->stacks, thread->process, at_ns, addresses, count);
}

static void event_gap_look_up(struct recorder *recorder, struct task_thread *thread,
        const struct ug_gap *gap, struct event_gap_rows *rows)
{
    const __u64 *addresses = (const __u64 *)(gap + 1);
    int64_t at_ns = (int64_t)gap->in_ns;
    rows->flags = gap->flags & ~(uint32_t)UG_GAP_NOT_STORED;
    rows->kernel = stacks_kernel(recorder->stacks, addresses, gap->kernel_count);
    rows->user = event_user_stack(recorder, thread, gap->out_ns, addresses + gap->kernel_count,
            gap->user_count, gap->flags & UG_GAP_USER_MISSED);
    rows->waker_stack = stacks_kernel(
            recorder->stacks, addresses + gap->kernel_count + gap->user_count, gap->waker_count);
    // Nobody by name: an interrupt found the CPU idle, or it was us.
    rows->waker = tasks_thread_id(
            recorder->tasks, &gap->waker, (int64_t)gap->waking_ns, gap->flags & EVENT_IRQ_FLAGS);
    rows->next = tasks_thread_id(
            recorder->tasks, &gap->next, (int64_t)gap->out_ns, gap->flags & UG_GAP_IDLE_CPU);
    rows->before = tasks_thread_id(recorder->tasks, &gap->before, at_ns, false);
    rows->owner = event_gap_owner(recorder, thread, gap, &rows->flags);
    rows->lock = gap->lock ? gap->lock : gap->syscall_nr == SYS_futex ? gap->syscall_args[0] : 0;
    rows->lock_kind = gap->lock_kind;
    const struct task_look *look = event_look(thread, gap);
    if (!gap->lock && look && rows->owner == look->owner) {
        rows->lock = look->blocker;
        rows->lock_kind = look->lock_kind;
    }
    if (recorder->python)
        python_for_gap(recorder->python, thread, gap,
                addresses + gap->kernel_count + gap->user_count + gap->waker_count, &rows->python);
    if (rows->python.gil && rows->python.owner) {
        rows->owner = rows->python.owner;
        rows->flags |= UG_GAP_OWNER_FUTEX;
    }
}

// What the system call waits for by its descriptor. The other end of a connection is the owner of
// the wait.
static const char *event_gap_target(
        struct recorder *recorder, const struct ug_gap *gap, struct event_gap_rows *rows)
{
    const char *target = files_target(recorder->files, gap->task.tgid, gap->syscall_nr,
            gap->syscall_args[0], (int64_t)gap->in_ns, clock_monotonic_ns());
    uint32_t peer = target && !rows->owner
            ? files_peer(recorder->files, gap->task.tgid, gap->syscall_args[0])
            : 0;
    if (peer && peer != gap->task.tgid) {
        struct ug_task task = {.tid = peer, .tgid = peer};
        struct task_stat stat;
        if (task_stat_read(peer, &stat))
            memcpy(task.comm, stat.comm, UG_COMM_LEN);
        rows->owner = tasks_thread_id(recorder->tasks, &task, (int64_t)gap->in_ns, false);
    }
    return target;
}

static void event_gap(struct recorder *recorder, const struct ug_gap *gap)
{
    struct task_thread *thread = event_thread(recorder, &gap->task, (int64_t)gap->in_ns);
    if (!thread)
        return;
    tasks_make_target(recorder->tasks, thread->process);
    struct event_gap_rows rows = {0};
    event_gap_look_up(recorder, thread, gap, &rows);
    const char *target = gap->syscall_nr >= 0 ? event_gap_target(recorder, gap, &rows) : NULL;
    struct row row = writer_row(recorder->writer, WRITER_GAP);
    row_int(&row, thread->id);
    row_int(&row, (int64_t)gap->out_ns);
    row_time(&row, gap->waking_ns);
    row_int(&row, (int64_t)gap->in_ns);
    row_int(&row, gap->prev_state);
    row_int(&row, rows.flags);
    row_int(&row, gap->cpu_out);
    row_int(&row, gap->cpu_in);
    row_id(&row, rows.kernel);
    row_id(&row, rows.user);
    row_id(&row, rows.python.stack);
    row_id(&row, rows.waker);
    row_id(&row, rows.waker_stack);
    row_id(&row, rows.next);
    event_prio(&row, rows.next, gap->next_prio);
    row_id(&row, rows.before);
    event_prio(&row, rows.before, gap->before_prio);
    row_id(&row, rows.owner);
    row_id(&row, rows.lock_kind);
    row_id(&row, (int64_t)rows.lock);
    if (gap->syscall_nr >= 0) {
        row_int(&row, gap->syscall_nr);
        row_int(&row, (int64_t)gap->syscall_args[0]);
        row_int(&row, (int64_t)gap->syscall_args[1]);
        row_text(&row, target);
    } else {
        for (int i = 0; i < 4; i++)
            row_null(&row);
    }
    writer_put(recorder->writer, &row);
}

static void event_sample(struct recorder *recorder, const struct ug_sample *sample)
{
    const __u64 *addresses = (const __u64 *)(sample + 1);
    struct task_thread *thread =
            tasks_thread(recorder->tasks, &sample->task, (int64_t)sample->at_ns);
    if (!thread)
        return;
    uint32_t why = sample->why & ~(uint32_t)(thread->process->has_left ? UG_SAMPLE_TARGET : 0),
             python = 0, user = 0;
    bool target = why & UG_SAMPLE_TARGET, late = false;
    if (thread->process->has_left && !(why & (UG_SAMPLE_OWNER | UG_SAMPLE_NEIGHBOUR)))
        return;
    // Of a mere neighbour it matters that it ran; its symbols would cost more than the rest of the
    // recording.
    if (why & (UG_SAMPLE_TARGET | UG_SAMPLE_OWNER))
        user = event_user_stack(recorder, thread, sample->at_ns, addresses + sample->kernel_count,
                sample->user_count, sample->why & UG_SAMPLE_USER_MISSED);
    if (target)
        tasks_make_target(recorder->tasks, thread->process);
    if (target && recorder->python)
        python = python_for_sample(recorder->python, thread, sample,
                addresses + sample->kernel_count + sample->user_count, &late);
    struct row row = writer_row(recorder->writer, WRITER_SAMPLE);
    row_int(&row, thread->id);
    row_int(&row, (int64_t)sample->at_ns);
    row_int(&row, sample->cpu);
    row_int(&row, (why & ~(uint32_t)UG_SAMPLE_NOT_STORED) | (late ? UG_SAMPLE_LATE : 0));
    row_id(&row, stacks_kernel(recorder->stacks, addresses, sample->kernel_count));
    row_id(&row, user);
    row_id(&row, python);
    writer_put(recorder->writer, &row);
}

static void event_fault(struct recorder *recorder, const struct ug_fault *fault)
{
    const __u64 *addresses = (const __u64 *)(fault + 1);
    struct task_thread *thread = event_thread(recorder, &fault->task, (int64_t)fault->at_ns);
    if (!thread)
        return;
    tasks_make_target(recorder->tasks, thread->process);
    uint32_t user = event_user_stack(recorder, thread, fault->at_ns, addresses, fault->user_count,
            fault->why & UG_SAMPLE_USER_MISSED);
    uint32_t python = recorder->python
            ? python_for_fault(recorder->python, thread, fault, addresses + fault->user_count)
            : 0;
    struct row row = writer_row(recorder->writer, WRITER_FAULT);
    row_int(&row, thread->id);
    row_int(&row, (int64_t)fault->at_ns);
    row_int(&row, (int64_t)fault->address);
    row_int(&row, fault->level);
    row_id(&row, user);
    row_id(&row, python);
    writer_put(recorder->writer, &row);
}

static void event_lock(struct recorder *recorder, const struct ug_lock *lock)
{
    const __u64 *addresses = (const __u64 *)(lock + 1);
    int64_t at_ns = (int64_t)lock->end_ns;
    struct task_thread *thread = event_thread(recorder, &lock->task, at_ns);
    if (!thread)
        return;
    tasks_make_target(recorder->tasks, thread->process);
    struct row row = writer_row(recorder->writer, WRITER_LOCK);
    row_int(&row, thread->id);
    row_int(&row, (int64_t)lock->begin_ns);
    row_int(&row, at_ns);
    row_int(&row, (int64_t)lock->lock);
    row_int(&row, lock->lock_kind);
    row_int(&row, (int64_t)lock->lock_flags | (int64_t)lock->owner_flags << 32);
    row_id(&row, tasks_thread_id(recorder->tasks, &lock->owner, (int64_t)lock->begin_ns, false));
    row_id(&row, stacks_kernel(recorder->stacks, addresses, lock->kernel_count));
    row_id(&row,
            stacks_kernel(recorder->stacks, addresses + lock->kernel_count, lock->owner_count));
    writer_put(recorder->writer, &row);
}

static void event_fact(struct recorder *recorder, const struct ug_fact *fact)
{
    int64_t at_ns = (int64_t)fact->end_ns;
    const struct task_thread *thread =
            fact->task.tid ? tasks_thread_by_tid(recorder->tasks, fact->task.tid) : NULL;
    if (thread && thread->process->has_left)
        return;
    uint32_t target = tasks_thread_id(recorder->tasks, &fact->task, at_ns, false);
    uint32_t actor = tasks_thread_id(recorder->tasks, &fact->actor, at_ns, false);
    struct row row = writer_row(recorder->writer, WRITER_FACT);
    row_int(&row, recorder->recording_id);
    row_int(&row, fact->what);
    row_int(&row, (int64_t)fact->begin_ns);
    row_int(&row, at_ns);
    row_int(&row, fact->cpu);
    row_id(&row, target);
    row_id(&row, actor);
    row_int(&row, fact->flags);
    for (size_t i = 0; i < sizeof fact->value / sizeof *fact->value; i++)
        row_int(&row, (int64_t)fact->value[i]);
    row_id(&row, stacks_kernel(recorder->stacks, (const __u64 *)(fact + 1), fact->kernel_count));
    writer_put(recorder->writer, &row);
}

static void event_task(struct recorder *recorder, const struct ug_task_event *event)
{
    tasks_event(recorder->tasks, event);
    if (event->what == UG_TASK_EXEC ||
            (event->what == UG_TASK_EXIT && event->task.tid == event->task.tgid))
        unwinder_forget(recorder->unwinder, event->task.tgid);
    if (event->what == UG_TASK_EXEC && recorder->python)
        python_forget(recorder->python, event->task.tgid);
    // The kernel's task storage may be busy just when a child is born (bpf_task_storage_get gives
    // up then), which would make it nobody's target; its exec is told all the same.
    if (event->what == UG_TASK_EXEC && !event->target && !recorder->no_children &&
            recorder->missed_count < RECORDER_MISSED_MAX &&
            tasks_is_target(recorder->tasks, event->ppid))
        recorder->missed[recorder->missed_count++] = event->task.tgid;
    recorder->ask_alive |= event->target && event->what == UG_TASK_EXIT;
}

static void event_state(struct recorder *recorder, const struct ug_state *state)
{
    int64_t at_ns = (int64_t)state->at_ns;
    struct task_thread *thread = event_thread(recorder, &state->task, at_ns);
    if (!thread)
        return;
    tasks_make_target(recorder->tasks, thread->process);
    if (state->on_cpu || thread->sleep_switch_count != state->switch_count ||
            !thread->sleep_since_ns) {
        thread->sleep_switch_count = state->switch_count;
        thread->sleep_since_ns = state->on_cpu ? 0
                : state->last_switch_ns        ? (int64_t)state->last_switch_ns
                                               : at_ns;
        thread->look = (struct task_look){0};
        if (recorder->python)
            python_moved(recorder->python);
    }
    if (state->on_cpu)
        return;
    if (state->owner.tid) {
        thread->look.at_ns = at_ns;
        thread->look.owner = tasks_thread_id(recorder->tasks, &state->owner, at_ns, false);
        thread->look.blocker = state->blocker;
        thread->look.lock_kind = state->lock_kind;
        thread->look.flags = state->flags;
    }
    if (recorder->python)
        python_state(recorder->python, thread, state);
}

static void event_total(struct recorder *recorder, const struct ug_total *total)
{
    const struct task_thread *known = tasks_thread_by_tid(recorder->tasks, total->tid);
    if (!known || known->process->tgid != total->tgid || known->process->has_left)
        return;
    struct ug_task task = {.tid = total->tid, .tgid = total->tgid};
    memcpy(task.comm, known->comm, sizeof task.comm);
    // 0: also of a process that was just seen to have ended
    uint32_t thread = tasks_thread_id(recorder->tasks, &task, 0, false);
    struct row row = writer_row(recorder->writer, WRITER_TOTAL);
    row_int(&row, thread);
    row_int(&row, (int64_t)total->switches);
    row_int(&row, (int64_t)total->short_gaps);
    row_int(&row, (int64_t)total->short_gap_ns);
    row_int(&row, (int64_t)total->run_ns);
    writer_put(recorder->writer, &row);
}

void recorder_on_mapping(void *context, const struct mapping_event *event)
{
    struct recorder *recorder = context;
    symbols_mapping(recorder->symbols, event);
    if (recorder->gpu)
        gpu_side_mapping(recorder->gpu, event);
}

void recorder_on_event(void *context, const struct ug_head *event)
{
    struct recorder *recorder = context;
    switch (event->kind) {
    case UG_EVENT_GAP:
        event_gap(recorder, (const struct ug_gap *)event);
        break;
    case UG_EVENT_SAMPLE:
        event_sample(recorder, (const struct ug_sample *)event);
        break;
    case UG_EVENT_FAULT:
        event_fault(recorder, (const struct ug_fault *)event);
        break;
    case UG_EVENT_LOCK:
        event_lock(recorder, (const struct ug_lock *)event);
        break;
    case UG_EVENT_TASK:
        event_task(recorder, (const struct ug_task_event *)event);
        break;
    case UG_EVENT_FACT:
        event_fact(recorder, (const struct ug_fact *)event);
        break;
    case UG_EVENT_STATE:
        event_state(recorder, (const struct ug_state *)event);
        break;
    case UG_EVENT_TOTAL:
        event_total(recorder, (const struct ug_total *)event);
        break;
    default: // of a newer kernel side: never, they are built together
        break;
    }
}
