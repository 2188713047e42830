// SPDX-License-Identifier: Apache-2.0
// Processes and threads that records name. Rows are written once a record names them and again,
// whole, when something of them changed (about once a second), so that a record costs one look-up
// here.
#include "tracer/record/tasks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/budget.h"
#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"
#include "tracer/record/task_proc.h"

enum {
    TASKS_BUCKETS = 8192,
    // a record may name somebody this long after the end: rings are read in ms
    TASKS_KEEP_NS = 2000000000,
    // how long a stranger's pid is taken to be the same process unasked
    TASKS_CHECK_NS = 1000000000,
    TASKS_UNNAMED_S = 10,   // how long a stranger that called exec is kept for a record to name it
    TASKS_RANKS_MAX = 4096, // of a job, with the processes that inherit their environment
    TASKS_ASKED_MAX = 8192, // strangers asked for a sign of life a flush: 2 ms
    TASKS_SHARE_DIVISOR = 200,  // 0.5 % for asking /proc about those who are born or call exec: a
                                // loop of that took 6 %
    TASKS_BURST_NS = 100000000, // some 2,000 of them
    // After exec no interpreter is looked for: CPython needs 10 ms until it can be walked, and who
    // is another program by then, over and over, would be looked through each time.
    TASKS_PYTHON_NS = 30000000,
    // Each question that is not answered in time lasts, and all processes of a job may wait for one
    // thing: who did not answer is asked again so much later, then twice as late, to 32 s.
    TASKS_AGAIN_NS = 2000000000,
    TASKS_AGAIN_SHIFT_MAX = 4,
};

struct tasks {
    struct writer *writer;
    int64_t recording_id;
    struct task_process *processes[TASKS_BUCKETS];
    struct task_thread *threads[TASKS_BUCKETS];
    uint32_t process_count, thread_count, target_threads;
    size_t ask_next; // bucket
    struct task_rank *ranks;
    size_t rank_count;
    struct budget budget;
    uint64_t dropped;
};

static bool tasks_may_ask(const struct task_process *process)
{
    return !process->ask_next_ns || clock_monotonic_ns() >= process->ask_next_ns;
}

static void tasks_asked(struct task_process *process, bool later)
{
    uint32_t shift = process->asked_late < TASKS_AGAIN_SHIFT_MAX ? process->asked_late
                                                                 : TASKS_AGAIN_SHIFT_MAX;
    process->ask_next_ns = later ? clock_monotonic_ns() + ((int64_t)TASKS_AGAIN_NS << shift) : 0;
    process->asked_late = later ? process->asked_late + 1 : 0;
}

void tasks_ask_again(struct tasks *tasks)
{
    for (size_t i = 0; i < TASKS_BUCKETS; i++)
        for (struct task_process *process = tasks->processes[i]; process; process = process->next)
            process->ask_next_ns = 0;
}

static void tasks_read_process(struct task_process *process)
{
    struct task_stat stat;
    if (process->tgid == 0 || !task_stat_read(process->tgid, &stat))
        return;
    if (!process->start_ns)
        process->start_ns = stat.start_ns;
    process->ppid = stat.ppid;
    task_comm_set(process->comm, stat.comm);
    process->named_ns = clock_monotonic_ns();
    if (stat.flags & TASK_PF_KTHREAD)
        process->kind = TASK_KERNEL;
    bool later;
    char *cmdline = task_cmdline_read(process->tgid, &later); // if so, when its row is written
    if (cmdline) { // a zombie has none any more: what it was stays
        free(process->cmdline);
        process->cmdline = cmdline;
    }
    process->dirty = true;
}

// Of one that was born or became another program: the event has told the rest. Where it may not be
// read now, the next flush does.
static void tasks_read_cmdline(struct tasks *tasks, struct task_process *process)
{
    bool later;
    free(process->cmdline);
    process->cmdline = NULL;
    process->dirty = true;
    if (!budget_affords(&tasks->budget))
        return;
    budget_begin(&tasks->budget);
    if (process->start_ns)
        process->cmdline = task_cmdline_read(process->tgid, &later);
    else // the event did not tell when it began, by which it is known from another one with its pid
        tasks_read_process(process);
    budget_end(&tasks->budget);
}

void tasks_read_again(struct task_process *process)
{
    struct task_stat stat;
    if (task_stat_read(process->tgid, &stat) && strcmp(stat.comm, process->comm) != 0)
        tasks_read_process(process);
}

// What the kernel's programs tell, to the tick that /proc makes of it: a time namespace of ours
// adds to it before it is cut to ticks (common/proc.c).
static uint64_t tasks_start(const struct ug_task_event *event)
{
    int64_t ahead_ns = clock_boottime_ahead_ns();
    if (!event->start_ns || !ahead_ns)
        return event->start_ns;
    int64_t ticks = ((int64_t)event->start_ns + ahead_ns) / PROC_TICK_NS - ahead_ns / PROC_TICK_NS;
    return (uint64_t)ticks * PROC_TICK_NS;
}

static bool tasks_same_start(uint64_t a, uint64_t b)
{
    return !a || !b || a / PROC_TICK_NS == b / PROC_TICK_NS;
}

static struct task_process *tasks_find_process(struct tasks *tasks, uint32_t tgid)
{
    struct task_process *process = tasks->processes[tgid % TASKS_BUCKETS];
    while (process && process->tgid != tgid)
        process = process->next;
    return process;
}

// A new process goes in front of one with the same pid, which is found no more and is freed by a
// later flush.
static struct task_process *tasks_add_process(
        struct tasks *tasks, uint32_t tgid, uint64_t start_ns, bool target)
{
    if (!target && tasks->process_count >= TASKS_MAX) {
        tasks->dropped++;
        return NULL;
    }
    struct task_process *process = xcalloc(1, sizeof *process),
                        **bucket = &tasks->processes[tgid % TASKS_BUCKETS];
    *process = (struct task_process){.next = *bucket, .tgid = tgid, .start_ns = start_ns};
    *bucket = process;
    tasks->process_count++;
    return process;
}

static void tasks_end_process(struct task_process *process, int64_t at_ns)
{
    if (process->ended)
        return;
    process->ended = true;
    if (!process->has_exit) // else its own record has told when
        process->ended_ns = at_ns;
    process->dirty = true;
}

// A stranger's end is not reported by every kernel side: ask /proc now and then whether it is still
// the same.
static bool tasks_is_other(struct task_process *process, int64_t at_ns)
{
    struct task_stat stat;
    if (process->ended)
        return at_ns > process->ended_ns + TASKS_CHECK_NS;
    if (process->kind != TASK_OTHER || at_ns - process->checked_ns < TASKS_CHECK_NS)
        return false;
    process->checked_ns = at_ns;
    return task_stat_read(process->tgid, &stat) &&
            !tasks_same_start(stat.start_ns, process->start_ns);
}

static struct task_process *tasks_process(
        struct tasks *tasks, uint32_t tgid, const char *comm, int64_t at_ns, bool target)
{
    struct task_process *process = tasks_find_process(tasks, tgid);
    if (process && !tasks_is_other(process, at_ns))
        return process;
    if (process)
        tasks_end_process(process, at_ns);
    process = tasks_add_process(tasks, tgid, 0, target);
    if (!process)
        return NULL;
    process->checked_ns = at_ns;
    process->python_next_ns = 0;
    task_comm_set(process->comm, comm);
    tasks_read_process(process);
    return process;
}

static struct task_thread *tasks_find_thread(struct tasks *tasks, uint32_t tid)
{
    struct task_thread *thread = tasks->threads[tid % TASKS_BUCKETS];
    while (thread && thread->tid != tid)
        thread = thread->next;
    return thread;
}

static struct task_thread *tasks_add_thread(struct tasks *tasks, struct task_process *process,
        uint32_t tid, const char *comm, int64_t at_ns)
{
    if (!process || (process->kind != TASK_TARGET && tasks->thread_count >= TASKS_MAX)) {
        tasks->dropped += process != NULL;
        return NULL;
    }
    struct task_thread *thread = xcalloc(1, sizeof *thread),
                       **bucket = &tasks->threads[tid % TASKS_BUCKETS];
    *thread = (struct task_thread){
            .next = *bucket, .process = process, .tid = tid, .named_ns = at_ns};
    task_comm_set(thread->comm, comm);
    *bucket = thread;
    tasks->thread_count++;
    return thread;
}

static void tasks_rename(struct task_thread *thread, const char *comm, int64_t at_ns)
{
    if (!comm[0] || at_ns <= thread->named_ns)
        return;
    thread->named_ns = at_ns;
    char name[UG_COMM_LEN + 1];
    task_comm_set(name, comm);
    if (strcmp(thread->comm, name) == 0)
        return;
    memcpy(thread->comm, name, sizeof name);
    thread->dirty = true;
    struct task_process *process = thread->process;
    if (thread->tid == process->tgid && at_ns > process->named_ns) {
        memcpy(process->comm, name, sizeof name);
        process->named_ns = at_ns;
        process->dirty = true;
    }
}

// Whose id it was then: one that called exec has that of another (tasks_take_over), of which
// records come later than that.
static struct task_thread *tasks_find_thread_at(
        struct tasks *tasks, const struct ug_task *task, int64_t at_ns)
{
    struct task_thread *newest = tasks_find_thread(tasks, task->tid);
    for (struct task_thread *thread = newest; thread && at_ns; thread = thread->next)
        if (thread->tid == task->tid && thread->process->tgid == task->tgid &&
                thread->started_ns <= at_ns)
            return thread;
    return newest;
}

struct task_thread *tasks_thread(struct tasks *tasks, const struct ug_task *task, int64_t at_ns)
{
    if (task->tid == 0 && task->comm[0] == 0)
        return NULL;
    struct task_thread *thread = tasks_find_thread_at(tasks, task, at_ns);
    bool same = thread && thread->process->tgid == task->tgid &&
            !(thread->ended && at_ns > thread->ended_ns + TASKS_CHECK_NS) &&
            !tasks_is_other(thread->process, at_ns);
    if (!same) {
        struct task_process *process = tasks_process(tasks, task->tgid, task->comm, at_ns, false);
        thread = tasks_add_thread(tasks, process, task->tid, task->comm, at_ns);
    }
    if (!thread)
        return NULL;
    if (task->tid)
        tasks_rename(thread, task->comm, at_ns);
    if (!task->tid)
        thread->process->kind = TASK_IDLE;
    if (!thread->id) {
        if (!thread->process->id) {
            thread->process->id = writer_next_id(tasks->writer, WRITER_PROCESS);
            thread->process->dirty = true;
        }
        thread->id = writer_next_id(tasks->writer, WRITER_THREAD);
        thread->dirty = true;
        tasks->target_threads += thread->process->kind == TASK_TARGET;
    }
    return thread;
}

uint32_t tasks_thread_id(struct tasks *tasks, const struct ug_task *task, int64_t at_ns, bool idle)
{
    static const struct ug_task idle_task = {.comm = "swapper"};
    if (task->tid == 0 && (idle || task->comm[0])) // one idle task is as good as another
        task = &idle_task;
    const struct task_thread *thread = tasks_thread(tasks, task, at_ns);
    return thread ? thread->id : 0;
}

struct task_thread *tasks_thread_by_tid(struct tasks *tasks, uint32_t tid)
{
    struct task_thread *thread = tasks_find_thread(tasks, tid);
    return thread && !thread->ended ? thread : NULL;
}

void tasks_make_target(struct tasks *tasks, struct task_process *process)
{
    (void)tasks;
    if (process->kind == TASK_TARGET || process->has_left)
        return;
    process->kind = TASK_TARGET;
    process->dirty = true;
}

static void tasks_set_left(struct task_process *process)
{
    process->has_left = true;
    process->rank_generation = 0; // is looked for anew where it comes again
    if (process->kind == TASK_TARGET)
        process->kind = TASK_OTHER;
    process->dirty = true;
}

static bool tasks_has_left(struct tasks *tasks, uint32_t tgid)
{
    const struct task_process *process = tasks_find_process(tasks, tgid);
    return process && process->has_left;
}

// Those of its children that are targets by now. False: none was.
static bool tasks_leave_children(struct tasks *tasks)
{
    bool some = false;
    for (size_t i = 0; i < TASKS_BUCKETS; i++)
        for (struct task_process *process = tasks->processes[i]; process; process = process->next)
            if (process->kind == TASK_TARGET && tasks_has_left(tasks, process->ppid)) {
                tasks_set_left(process);
                some = true;
            }
    return some;
}

void tasks_leave(struct tasks *tasks, uint32_t tgid)
{
    struct task_process *process = tasks_find_process(tasks, tgid);
    if (!process)
        return;
    tasks_set_left(process);
    while (tasks_leave_children(tasks))
        ;
    size_t kept = 0;
    for (size_t i = 0; i < tasks->rank_count; i++)
        if (!tasks_has_left(tasks, tasks->ranks[i].tgid))
            tasks->ranks[kept++] = tasks->ranks[i];
    tasks->rank_count = kept;
}

bool tasks_is_target(struct tasks *tasks, uint32_t tgid)
{
    const struct task_process *process = tasks_find_process(tasks, tgid);
    return process && process->kind == TASK_TARGET && !process->ended;
}

bool tasks_was_target(struct tasks *tasks, uint32_t tgid)
{
    const struct task_process *process = tasks_find_process(tasks, tgid);
    return process && process->kind == TASK_TARGET;
}

struct task_process *tasks_target(struct tasks *tasks, uint32_t tgid)
{
    struct task_stat stat;
    if (!task_stat_read(tgid, &stat))
        return NULL;
    struct task_process *process = tasks_process(tasks, tgid, stat.comm, 0, true);
    if (process && !process->id)
        process->id = writer_next_id(tasks->writer, WRITER_PROCESS);
    if (process) {
        process->has_left = false; // it may have come again
        tasks_make_target(tasks, process);
    }
    return process;
}

static void tasks_on_birth(struct tasks *tasks, const struct ug_task_event *event, bool fork)
{
    int64_t at_ns = (int64_t)event->at_ns;
    uint64_t start_ns = tasks_start(event);
    struct task_process *process = tasks_find_process(tasks, event->task.tgid);
    bool main_thread = event->task.tid == event->task.tgid;
    bool other = process && main_thread && start_ns &&
            (process->ended || !tasks_same_start(process->start_ns, start_ns));
    if (other)
        tasks_end_process(process, at_ns);
    if (!process || other) {
        process = main_thread
                ? tasks_add_process(tasks, event->task.tgid, start_ns, event->target)
                : tasks_process(tasks, event->task.tgid, event->task.comm, at_ns, event->target);
        if (!process)
            return;
        if (main_thread) { // else it was read from /proc
            task_comm_set(process->comm, event->task.comm);
            process->named_ns = at_ns;
        }
        if (main_thread && event->target)
            // strangers are read when a record names them or they call exec
            tasks_read_cmdline(tasks, process);
    }
    if (fork && main_thread && tasks_has_left(tasks, event->ppid))
        tasks_set_left(process);
    if (event->target)
        // before its thread is added, which is never refused then
        tasks_make_target(tasks, process);
    if (main_thread) {
        process->ppid = event->ppid;
        process->checked_ns = at_ns;
        if (start_ns)
            process->start_ns = start_ns;
        if (fork)
            process->started_ns = at_ns;
        process->dirty = true; // a record from the other ring may have been first
    }
    struct task_thread *old = tasks_find_thread(tasks, event->task.tid);
    if (!old || old->ended || old->process != process)
        old = tasks_add_thread(tasks, process, event->task.tid, event->task.comm, at_ns);
    if (old && fork) {
        old->started_ns = at_ns;
        old->dirty = true;
    }
}

static void tasks_end_thread(struct task_thread *thread, int64_t at_ns)
{
    if (thread->ended)
        return;
    thread->ended = true;
    thread->ended_ns = at_ns;
    thread->dirty = true;
}

// A thread that calls exec outlives the others and takes the id of the process. Its own is used no
// more, of which no end is told; that of the main thread has an end, which was none of the process.
// It goes on as another thread.
static void tasks_take_over(
        struct tasks *tasks, struct task_process *process, const struct ug_task_event *event)
{
    int64_t at_ns = (int64_t)event->at_ns;
    const uint32_t tids[] = {event->old_tid, event->task.tid};
    for (size_t i = 0; i < sizeof tids / sizeof *tids; i++) {
        struct task_thread *thread = tasks_find_thread(tasks, tids[i]);
        if (thread && thread->process == process)
            tasks_end_thread(thread, at_ns);
    }
    process->has_exit = false;
    if (!process->id && !event->target) // a stranger whom nobody has named is forgotten, and no
                                        // thread may point at it then
        return;
    struct task_thread *thread =
            tasks_add_thread(tasks, process, event->task.tid, event->task.comm, at_ns);
    if (thread)
        thread->started_ns = at_ns;
}

static void tasks_on_exec(struct tasks *tasks, const struct ug_task_event *event)
{
    int64_t at_ns = (int64_t)event->at_ns;
    uint64_t start_ns = tasks_start(event);
    struct task_process *process = tasks_find_process(tasks, event->task.tgid);
    if (process && (process->ended || !tasks_same_start(process->start_ns, start_ns))) {
        tasks_end_process(process, at_ns);
        process = NULL;
    }
    if (!process)
        process = tasks_add_process(tasks, event->task.tgid, start_ns, event->target);
    if (!process)
        return;
    process->generation++;
    process->snapshot = false;
    tasks_asked(process, false); // its memory map is a new one
    process->python_next_ns = at_ns + TASKS_PYTHON_NS;
    process->python_tries = 0;
    process->checked_ns = at_ns;
    process->ppid = event->ppid;
    task_comm_set(process->comm, event->task.comm);
    process->named_ns = at_ns;
    if (event->old_tid && event->old_tid != event->task.tid)
        tasks_take_over(tasks, process, event);
    struct task_thread *thread = tasks_find_thread(tasks, event->task.tid);
    if (thread && thread->process == process)
        tasks_rename(thread, event->task.comm, at_ns);
    tasks_read_cmdline(tasks, process);
}

static void tasks_on_exit(struct tasks *tasks, const struct ug_task_event *event)
{
    struct task_thread *thread = tasks_find_thread(tasks, event->task.tid);
    if (thread && thread->process->tgid == event->task.tgid)
        tasks_end_thread(thread, (int64_t)event->at_ns);
    struct task_process *process = tasks_find_process(tasks, event->task.tgid);
    if (!process || event->task.tid != event->task.tgid)
        return;
    process->has_exit = true; // threads may live on without the main thread: /proc is asked then
    process->exit_code = event->exit_code;
    process->ended_ns = (int64_t)event->at_ns;
    process->dirty = true;
    if (process->kind != TASK_TARGET)
        process->ended = true;
}

void tasks_event(struct tasks *tasks, const struct ug_task_event *event)
{
    switch (event->what) {
    case UG_TASK_SEEN:
    case UG_TASK_FORK:
        tasks_on_birth(tasks, event, event->what == UG_TASK_FORK);
        break;
    case UG_TASK_EXEC:
        tasks_on_exec(tasks, event);
        break;
    case UG_TASK_EXIT:
        tasks_on_exit(tasks, event);
        break;
    case UG_TASK_RENAME: {
        struct task_thread *thread = tasks_find_thread(tasks, event->task.tid);
        if (thread && thread->process->tgid == event->task.tgid)
            tasks_rename(thread, event->task.comm, (int64_t)event->at_ns);
        break;
    }
    default:
        break;
    }
    struct task_process *process =
            event->target ? tasks_find_process(tasks, event->task.tgid) : NULL;
    if (process) {
        tasks_make_target(tasks, process);
        if (!process->id)
            process->id = writer_next_id(tasks->writer, WRITER_PROCESS);
    }
}

// Once a program that it runs: what a program sets itself later is not seen by anybody outside.
static void tasks_find_rank(struct tasks *tasks, struct task_process *process)
{
    struct task_rank rank = {.tgid = process->tgid, .start_ns = process->start_ns};
    if (process->kind != TASK_TARGET || process->ended ||
            process->rank_generation > process->generation ||
            tasks->rank_count >= TASKS_RANKS_MAX || !tasks_may_ask(process))
        return;
    bool later, told = task_rank_read(process->tgid, &rank.rank, &rank.ranks, &later);
    tasks_asked(process, later);
    if (!later) // else by a later flush
        process->rank_generation = process->generation + 1;
    if (!told)
        return;
    for (size_t i = 0; i < tasks->rank_count; i++)
        if (tasks->ranks[i].tgid == rank.tgid && tasks->ranks[i].start_ns == rank.start_ns) {
            tasks->ranks[i] = rank;
            return;
        }
    vector_push(tasks->ranks, tasks->rank_count, rank);
}

const struct task_rank *tasks_ranks(const struct tasks *tasks, size_t *ret_count)
{
    *ret_count = tasks->rank_count;
    return tasks->ranks;
}

static void tasks_write_process(struct tasks *tasks, struct task_process *process)
{
    static const char *const kinds[] = {[TASK_OTHER] = "other",
            [TASK_TARGET] = "target",
            [TASK_KERNEL] = "kernel",
            [TASK_IDLE] = "idle"};
    bool asks =
            !process->cmdline && !process->ended && process->kind != TASK_KERNEL && process->tgid;
    if (asks && tasks_may_ask(process)) {
        bool later;
        process->cmdline = task_cmdline_read(process->tgid, &later);
        tasks_asked(process, later);
    }
    struct row row = writer_row(tasks->writer, WRITER_PROCESS);
    row_int(&row, process->id);
    row_int(&row, tasks->recording_id);
    row_int(&row, process->tgid);
    row_int(&row, (int64_t)process->start_ns);
    row_id(&row, process->ppid);
    row_text(&row, process->comm);
    row_text(&row, process->cmdline);
    row_text(&row, kinds[process->kind]);
    row_id(&row, process->started_ns);
    // A stranger's end was noticed some time later.
    row_id(&row, process->ended && process->kind == TASK_TARGET ? process->ended_ns : 0);
    if (process->has_exit && process->ended)
        row_int(&row, process->exit_code);
    else
        row_null(&row);
    writer_put(tasks->writer, &row);
    process->dirty = asks && process->ask_next_ns;
}

static void tasks_write_thread(struct tasks *tasks, struct task_thread *thread)
{
    struct row row = writer_row(tasks->writer, WRITER_THREAD);
    row_int(&row, thread->id);
    row_int(&row, thread->process->id);
    row_int(&row, thread->tid);
    row_text(&row, thread->comm);
    row_id(&row, thread->started_ns);
    row_id(&row, thread->ended ? thread->ended_ns : 0);
    writer_put(tasks->writer, &row);
    thread->dirty = false;
}

// Threads go before their process: they point at it.
static void tasks_flush_threads(struct tasks *tasks, int64_t now_ns, bool all)
{
    for (size_t i = 0; i < TASKS_BUCKETS; i++) {
        for (struct task_thread **at = &tasks->threads[i]; *at;) {
            struct task_thread *thread = *at;
            if (thread->dirty && thread->id)
                tasks_write_thread(tasks, thread);
            struct task_process *process = thread->process;
            bool gone = (thread->ended && now_ns - thread->ended_ns > TASKS_KEEP_NS) ||
                    (process->ended && now_ns - process->ended_ns > TASKS_KEEP_NS) || all;
            if (!gone) {
                at = &thread->next;
                continue;
            }
            *at = thread->next;
            free(thread);
            tasks->thread_count--;
        }
    }
}

// The kernel side tells the end of targets only. Some strangers a second, in turn.
static void tasks_ask_strangers(struct tasks *tasks, int64_t now_ns)
{
    int asked = 0;
    for (size_t i = 0; i < TASKS_BUCKETS && asked < TASKS_ASKED_MAX; i++) {
        struct task_process *process = tasks->processes[tasks->ask_next];
        tasks->ask_next = (tasks->ask_next + 1) % TASKS_BUCKETS;
        for (; process; process = process->next) {
            if (process->ended || process->kind == TASK_TARGET || process->kind == TASK_IDLE)
                continue;
            asked++;
            if (kill((pid_t)process->tgid, 0) < 0 && errno == ESRCH)
                tasks_end_process(process, now_ns);
        }
    }
}

static bool tasks_is_done(const struct task_process *process, int64_t now_ns)
{
    // Twice as long as its threads, which point at it.
    if (process->ended && now_ns - process->ended_ns > 2 * (int64_t)TASKS_KEEP_NS)
        return true;
    return !process->id && process->kind != TASK_TARGET &&
            now_ns - process->checked_ns > TASKS_UNNAMED_S * (int64_t)1000000000;
}

void tasks_flush(struct tasks *tasks, int64_t now_ns, bool all,
        void (*process_gone)(void *context, struct task_process *process), void *context)
{
    if (!all)
        tasks_ask_strangers(tasks, now_ns);
    tasks_flush_threads(tasks, now_ns, all);
    for (size_t i = 0; i < TASKS_BUCKETS; i++) {
        for (struct task_process **at = &tasks->processes[i]; *at;) {
            struct task_process *process = *at;
            tasks_find_rank(tasks, process);
            if (process->dirty && process->id)
                tasks_write_process(tasks, process);
            if (!all && !tasks_is_done(process, now_ns)) {
                at = &process->next;
                continue;
            }
            *at = process->next;
            if (process_gone)
                process_gone(context, process);
            free(process->cmdline);
            free(process);
            tasks->process_count--;
        }
    }
}

// Asked about processes: a main thread may end before the others, and a zombie may stay for ever.
static bool tasks_lives(const struct task_process *process)
{
    struct task_stat stat;
    return task_stat_read(process->tgid, &stat) &&
            tasks_same_start(stat.start_ns, process->start_ns) && stat.state != 'X' &&
            (stat.state != 'Z' || stat.threads > 1);
}

uint32_t tasks_targets_alive(struct tasks *tasks, int64_t now_ns)
{
    uint32_t alive = 0;
    for (size_t i = 0; i < TASKS_BUCKETS; i++) {
        for (struct task_process *process = tasks->processes[i]; process; process = process->next) {
            if (process->kind != TASK_TARGET || process->ended)
                continue;
            if (tasks_lives(process))
                alive++;
            else
                tasks_end_process(process, now_ns);
        }
    }
    return alive;
}

void tasks_each_target(struct tasks *tasks,
        void (*each)(void *context, struct task_process *process), void *context)
{
    for (size_t i = 0; i < TASKS_BUCKETS; i++)
        for (struct task_process *process = tasks->processes[i]; process; process = process->next)
            if (process->kind == TASK_TARGET && !process->ended)
                each(context, process);
}

uint64_t tasks_dropped(const struct tasks *tasks)
{
    return tasks->dropped;
}

uint32_t tasks_target_threads(const struct tasks *tasks)
{
    return tasks->target_threads;
}

struct tasks *tasks_new(struct writer *writer, int64_t recording_id)
{
    struct tasks *tasks = xcalloc(1, sizeof *tasks);
    tasks->writer = writer;
    tasks->recording_id = recording_id;
    tasks->budget = (struct budget){.divisor = TASKS_SHARE_DIVISOR, .burst_ns = TASKS_BURST_NS};
    return tasks;
}

void tasks_free(struct tasks *tasks,
        void (*process_gone)(void *context, struct task_process *process), void *context)
{
    if (!tasks)
        return;
    tasks_flush(tasks, 0, true, process_gone, context);
    free(tasks->ranks);
    free(tasks);
}
