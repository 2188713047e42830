// SPDX-License-Identifier: Apache-2.0
// Python stacks of the target.
#include "tracer/record/python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "common/budget.h"
#include "common/clock.h"
#include "common/containers/hash.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/pystack/pystack.h"
#include "tracer/record/python_data.h"
#include "tracer/record/python_frames.h"

enum {
    PYTHON_SHARE_DIVISOR = 64, // of one core: 1.6 %; the rest of the recorder takes 0.6 %
    // 20 %: a walk takes up to 100 us, and 1,000 samples a second want one
    PYTHON_PROMPT_DIVISOR = 5,
    PYTHON_QUIET_NS_MAX = 20000000, // between looks when the last ones found every thread as it was
    PYTHON_IDLE_NS_MAX = 640000000, // and when they have nothing to walk
    PYTHON_REFRESH_NS = 1000000000, // a stack that was seen before may be of other functions so
                                    // long, at the same addresses
    PYTHON_BURST_NS = 20000000,     // a second's share
    PYTHON_REFRESH_BURST_NS = PYTHON_BURST_NS / 2, // of one look: the other half is for walks
    PYTHON_WALKS_MAX = 256,                        // of one look
    PYTHON_HOLDERS_MAX = 128,                      // looks whose GIL holder is remembered: 0.6 s
    // a sample read later than this is no guide to what the thread does now
    PYTHON_SAMPLE_OLD_NS = 8000000,
    // From then on a stack may be of another function: of phases of 5 ms two thirds of the stacks
    // that were up to 8 ms late belonged to another phase, of those within 1 ms 6 %.
    PYTHON_SAMPLE_LATE_NS = 1000000,
    PYTHON_RETRY_NS = 100000000, // first repetition of the search; doubled each time, to 3 s
    PYTHON_TRIES_MAX = 12,
    PYTHON_OPEN_DIVISOR = 200, // 0.5 %: a target may call exec all the time, and have 20,000
                               // mappings to be looked through
    PYTHON_OPEN_BURST_NS = 300000000,
};

static const char python_leaf_gil[] = "[gil]", python_leaf_gc[] = "[gc]";

struct python {
    struct pystack *ps;
    struct task_process *process;
    struct python_data data; // where the GIL lives
    struct {
        int64_t at_ns;
        uint32_t tid;
    } holders[PYTHON_HOLDERS_MAX];
    size_t holder_next;
    bool holder_fresh; // read in this look
    int64_t told_ns;   // since then the programs walk its frames; 0: they do not
    int64_t refresh_ns;
    uint32_t epoch; // of its code objects
    // Somebody holds its mmap_lock. To read its memory takes the same lock: we would wait until the
    // stall that we record is over, behind its victim.
    bool memory_busy;   // as this look tells
    bool memory_locked; // as was asked at memory_asked_ns
    int64_t memory_asked_ns;
};

struct python_walk {
    struct task_thread *thread;
    uint64_t switch_count;
    bool gil; // it waits for the GIL
};

struct python_reader {
    struct tasks *tasks;
    struct stacks *stacks;
    struct capture *capture; // NULL: its programs do not walk
    struct python_frames *frames_taken;
    int64_t threshold_ns;
    int64_t interval_ns; // between looks
    bool moved;          // a thread ran since the last look
    struct budget opening, walking;
    int64_t next_look_ns, look_begin_ns;
    struct python **pythons;
    uint32_t count, targets_max;
    uint32_t refresh_next; // modulo count: whose code objects are read again next
    struct python_walk walks[PYTHON_WALKS_MAX];
    size_t walk_count;
    struct pystack_frame frames[PYSTACK_FRAMES_MAX];
    struct python_counts counts;
    uint32_t found; // ever
    char refused[300];
};

struct python_reader *python_new(struct tasks *tasks, struct stacks *stacks, int64_t threshold_ns,
        uint32_t targets_max, bool prompt)
{
    struct python_reader *reader = xcalloc(1, sizeof *reader);
    reader->targets_max = targets_max;
    reader->pythons = xcalloc(targets_max, sizeof(struct python *));
    reader->tasks = tasks;
    reader->stacks = stacks;
    reader->threshold_ns = threshold_ns;
    reader->interval_ns = PYTHON_LOOK_NS;
    reader->frames_taken = python_frames_new(stacks);
    reader->opening =
            (struct budget){.divisor = PYTHON_OPEN_DIVISOR, .burst_ns = PYTHON_OPEN_BURST_NS};
    reader->walking =
            (struct budget){.divisor = prompt ? PYTHON_PROMPT_DIVISOR : PYTHON_SHARE_DIVISOR,
                    .burst_ns = PYTHON_BURST_NS};
    return reader;
}

static void python_close(struct python_reader *reader, struct python *python)
{
    for (uint32_t i = 0; i < reader->count; i++) {
        if (reader->pythons[i] != python)
            continue;
        reader->pythons[i] = reader->pythons[--reader->count];
        break;
    }
    python->process->python = NULL;
    if (python->told_ns)
        capture_python_process(reader->capture, (pid_t)python->process->tgid, NULL);
    python_frames_name(reader->frames_taken, python->ps, false);
    pystack_close(python->ps);
    free(python);
}

void python_free(struct python_reader *reader)
{
    while (reader && reader->count)
        python_close(reader, reader->pythons[0]);
    if (reader)
        python_frames_free(reader->frames_taken);
    if (reader)
        free(reader->pythons);
    free(reader);
}

void python_attach(struct python_reader *reader, struct capture *capture)
{
    reader->capture = capture_unwinds(capture) ? capture : NULL;
}

void python_process_gone(void *context, struct task_process *process)
{
    if (process->python)
        python_close(context, process->python);
}

void python_forget(struct python_reader *reader, uint32_t tgid)
{
    for (uint32_t i = reader->count; i-- > 0;) {
        struct task_process *process = reader->pythons[i]->process;
        if (process->tgid != tgid || process->ended)
            continue;
        python_close(reader, reader->pythons[i]);
        process->python_next_ns = 0;
    }
}

// Asked before its memory is read. A look tells who waits for the lock; where nobody does, as
// beside a fork of many gigabytes, it may be held all the same.
static bool python_is_busy(struct python *python)
{
    int64_t now_ns = clock_monotonic_ns();
    if (!python->memory_busy && now_ns - python->memory_asked_ns >= PYTHON_LOOK_NS) {
        python->memory_asked_ns = now_ns;
        python->memory_locked = !target_memory_is_free((pid_t)python->process->tgid);
    }
    return python->memory_busy || python->memory_locked;
}

// --- interpreters --------------------------------------------------------------------------------

// From now on its frames come with its records, where that can be.
static void python_tell(struct python_reader *reader, struct python *python)
{
    struct ug_python_process shape;
    if (reader->capture && python_frames_shape(python->ps, &shape) &&
            capture_python_process(reader->capture, (pid_t)python->process->tgid, &shape) == 0)
        python->told_ns = clock_monotonic_ns();
    reader->interval_ns = PYTHON_LOOK_NS; // threads that sleep already have to be walked
    reader->next_look_ns = 0;
}

static void python_open(void *context, struct task_process *process)
{
    struct python_reader *reader = context;
    int64_t now_ns = reader->look_begin_ns;
    if (process->python || process->python_next_ns > now_ns ||
            reader->count == reader->targets_max || !budget_affords(&reader->opening))
        return;
    struct error err = {0};
    struct pystack *ps = NULL;
    struct python_data data = {0};
    budget_begin(&reader->opening);
    int rc = pystack_open((pid_t)process->tgid, &ps, &err);
    // without it no wait would be one for the GIL, for good: found anew
    if (rc == 0 && python_data_find(process->tgid, &data)) {
        pystack_close(ps);
        rc = -EIO;
    }
    budget_end(&reader->opening);
    if (rc) {
        if (rc == -ENOTSUP || rc == -EPERM)
            snprintf(reader->refused, sizeof reader->refused, "%.*s",
                    (int)sizeof reader->refused - 1, err.text);
        bool again = (rc == -ENOENT || rc == -EIO) && ++process->python_tries < PYTHON_TRIES_MAX;
        uint32_t shift = process->python_tries < 5 ? process->python_tries : 5;
        process->python_next_ns = again ? now_ns + ((int64_t)PYTHON_RETRY_NS << shift) : INT64_MAX;
        return;
    }
    struct python *python = xcalloc(1, sizeof *python);
    python->ps = ps;
    python->process = process;
    python->data = data;
    process->python = python;
    reader->pythons[reader->count++] = python;
    reader->found++;
    python_tell(reader, python);
}

void python_search(struct python_reader *reader, int64_t now_ns)
{
    reader->look_begin_ns = now_ns;
    tasks_each_target(reader->tasks, python_open, reader);
}

uint32_t python_found(const struct python_reader *reader)
{
    return reader->found;
}

// The process is gone or runs another program: found anew, or never.
static void python_lost(struct python_reader *reader, struct python *python, int rc)
{
    if (rc != -ESRCH)
        return;
    python->process->python_next_ns = 0;
    python_close(reader, python);
}

// --- looks ---------------------------------------------------------------------------------------

bool python_look_begin(struct python_reader *reader, int64_t now_ns)
{
    if (!reader->count || now_ns < reader->next_look_ns)
        return false;
    reader->next_look_ns = now_ns + reader->interval_ns;
    if (!budget_affords(&reader->walking)) {
        reader->counts.looks_skipped++;
        return false;
    }
    reader->counts.looks++;
    reader->look_begin_ns = now_ns;
    budget_begin(&reader->walking);
    reader->moved = false;
    reader->walk_count = 0;
    for (uint32_t i = 0; i < reader->count; i++)
        reader->pythons[i]->holder_fresh = reader->pythons[i]->memory_busy = false;
    return true;
}

int64_t python_next_look_ns(const struct python_reader *reader, int64_t now_ns)
{
    return !reader->count                   ? INT64_MAX
            : reader->next_look_ns > now_ns ? reader->next_look_ns
                                            : now_ns + PYTHON_LOOK_NS;
}

void python_moved(struct python_reader *reader)
{
    reader->moved = true;
}

static bool python_is_gil_wait(const struct python *python, int64_t syscall_nr, uint64_t address)
{
    return syscall_nr == SYS_futex && python_data_holds(&python->data, address);
}

void python_state(
        struct python_reader *reader, struct task_thread *thread, const struct ug_state *state)
{
    struct python *python = thread->process->python;
    if (python && state->lock_kind == UG_LOCK_MMAP)
        python->memory_busy = true;
    bool walked = thread->walked_switch_count == state->switch_count && thread->look.end_ns;
    // The record of this stay off the CPU will have its frames.
    bool in_kernel = python && python->told_ns && (int64_t)state->last_switch_ns > python->told_ns;
    if (!python || walked || in_kernel ||
            (int64_t)state->at_ns - thread->sleep_since_ns < reader->threshold_ns)
        return;
    reader->counts.wanted++;
    if (reader->walk_count == PYTHON_WALKS_MAX) {
        reader->counts.skipped++;
        return;
    }
    reader->walks[reader->walk_count++] = (struct python_walk){.thread = thread,
            .switch_count = state->switch_count,
            .gil = python_is_gil_wait(python, state->syscall_nr, state->syscall_args[0])};
}

// One walk of a thread; the row of its stack, or 0.
static uint32_t python_walk_thread(
        struct python_reader *reader, struct task_thread *thread, bool waits_for_gil)
{
    struct python *python = thread->process->python;
    size_t count = 0;
    unsigned flags = 0;
    int rc = pystack_walk(python->ps, (pid_t)thread->tid, reader->frames, PYSTACK_FRAMES_MAX,
            &count, &flags, NULL);
    if (rc) {
        reader->counts.failed += rc != -ENOENT;
        reader->counts.wanted -= rc == -ENOENT; // a thread of a C library
        python_lost(reader, python, rc);
        return 0;
    }
    reader->counts.walked++;
    if (flags & PYSTACK_TORN) // of a running thread: what is left is a guess
        return 0;
    bool gc = (flags & PYSTACK_IN_GC) && (flags & PYSTACK_HAS_GIL);
    const char *leaf = waits_for_gil ? python_leaf_gil : gc ? python_leaf_gc : NULL;
    return stacks_python(reader->stacks, leaf, reader->frames, count);
}

static void python_note_holder(struct python_reader *reader, struct python *python)
{
    pid_t tid = 0;
    if (python->told_ns || python->holder_fresh || python_is_busy(python))
        return;
    int rc = pystack_gil_holder(python->ps, &tid, NULL);
    if (rc) {
        python_lost(reader, python, rc);
        return;
    }
    python->holder_fresh = true;
    python->holders[python->holder_next].at_ns = clock_monotonic_ns();
    python->holders[python->holder_next].tid = (uint32_t)tid;
    python->holder_next = (python->holder_next + 1) % PYTHON_HOLDERS_MAX;
}

// Are the old names still true? Of very many interpreters the next look goes on where this one
// ends.
static void python_refresh(struct python_reader *reader)
{
    for (uint32_t i = 0; i < reader->count; i++, reader->refresh_next++) {
        struct python *python = reader->pythons[reader->refresh_next % reader->count];
        if (!python->told_ns || reader->look_begin_ns - python->refresh_ns < PYTHON_REFRESH_NS)
            continue;
        if (budget_took_ns(&reader->walking) > PYTHON_REFRESH_BURST_NS)
            break;
        if (python_is_busy(python))
            continue;
        python->refresh_ns = reader->look_begin_ns;
        python->epoch += pystack_refresh(python->ps, true);
    }
}

// Names of what came with records.
static void python_read_names(struct python_reader *reader, struct python *python)
{
    if (!python->told_ns)
        return;
    python->epoch += pystack_refresh(python->ps, false);
    if (python_frames_wait(reader->frames_taken, python->ps) && !python_is_busy(python))
        python_frames_name(reader->frames_taken, python->ps, true);
}

void python_settle(struct python_reader *reader, bool last)
{
    for (uint32_t i = 0; i < reader->count; i++) {
        struct python *python = reader->pythons[i];
        bool waits = python_frames_wait(reader->frames_taken, python->ps),
             busy = waits && python_is_busy(python);
        if (waits && (last || !busy))
            python_frames_name(reader->frames_taken, python->ps, !busy);
    }
    python_frames_tell(reader->frames_taken);
}

// When the next look is due, as seldom as there is little to see.
static void python_pace(struct python_reader *reader)
{
    bool outside = false;
    for (uint32_t i = 0; i < reader->count; i++)
        outside |= !reader->pythons[i]->told_ns;
    int64_t max_ns = outside ? PYTHON_QUIET_NS_MAX : PYTHON_IDLE_NS_MAX;
    bool busy = outside && reader->moved;
    reader->interval_ns = busy                 ? PYTHON_LOOK_NS
            : reader->interval_ns * 2 > max_ns ? max_ns
                                               : reader->interval_ns * 2;
    // Kept waiting, the memory was busy.
    reader->next_look_ns = reader->look_begin_ns +
            (python_frames_wait(reader->frames_taken, NULL) ? PYTHON_LOOK_NS : reader->interval_ns);
}

void python_look_end(struct python_reader *reader)
{
    python_refresh(reader);
    for (uint32_t i = reader->count; i-- > 0;) {
        python_read_names(reader, reader->pythons[i]);
        python_note_holder(reader, reader->pythons[i]);
    }
    for (size_t i = 0; i < reader->walk_count; i++) {
        struct task_thread *thread = reader->walks[i].thread;
        if (!thread->process->python)
            continue;
        // Also a look that many threads make long must end.
        if (budget_took_ns(&reader->walking) > PYTHON_BURST_NS ||
                python_is_busy(thread->process->python)) {
            reader->counts.skipped++;
            continue;
        }
        thread->look.begin_ns = clock_monotonic_ns();
        thread->look.gil = reader->walks[i].gil;
        thread->look.python_stack = python_walk_thread(reader, thread, reader->walks[i].gil);
        thread->look.end_ns = clock_monotonic_ns();
        thread->walked_switch_count = reader->walks[i].switch_count;
    }
    budget_end(&reader->walking);
    reader->walk_count = 0;
    python_pace(reader);
}

// --- what they found -----------------------------------------------------------------------------

// The stack that came with a record.
static uint32_t python_taken(struct python_reader *reader, struct python *python, const char *leaf,
        const __u64 *words, size_t count)
{
    struct task_process *process = python->process;
    uint64_t key = hash_mix((uint64_t)process->id << 32 | process->generation, python->epoch);
    reader->counts.wanted++;
    reader->counts.walked++;
    reader->counts.in_kernel++;
    uint32_t stack = python_frames_row(reader->frames_taken, python->ps, key, leaf, words, count);
    int64_t soon_ns = reader->look_begin_ns + PYTHON_LOOK_NS;
    if (python_frames_wait(reader->frames_taken, NULL) && reader->next_look_ns > soon_ns)
        reader->next_look_ns = soon_ns;
    return stack;
}

// Who held the GIL when the thread began to wait for it; or while the gap lasted, as far as a look
// fell into it: the last one counts.
static uint32_t python_holder(
        struct python_reader *reader, const struct python *python, const struct ug_gap *gap)
{
    uint32_t tid = 0;
    int64_t best_ns = 0;
    pid_t taken = 0;
    if (gap->python_holder && pystack_host_tid(python->ps, gap->python_holder, &taken) == 0)
        tid = (uint32_t)taken;
    for (size_t i = 0; i < PYTHON_HOLDERS_MAX && !tid; i++) {
        int64_t at_ns = python->holders[i].at_ns;
        bool inside = at_ns >= (int64_t)gap->out_ns && at_ns <= (int64_t)gap->in_ns;
        if (inside && at_ns > best_ns && python->holders[i].tid &&
                python->holders[i].tid != gap->task.tid) {
            best_ns = at_ns;
            tid = python->holders[i].tid;
        }
    }
    const struct task_thread *thread = tid ? tasks_thread_by_tid(reader->tasks, tid) : NULL;
    if (thread && thread->id)
        return thread->id;
    struct ug_task task = {.tid = tid, .tgid = gap->task.tgid};
    memcpy(task.comm, gap->task.comm, sizeof task.comm);
    return tid ? tasks_thread_id(reader->tasks, &task, (int64_t)gap->in_ns, false) : 0;
}

void python_for_gap(struct python_reader *reader, struct task_thread *thread,
        const struct ug_gap *gap, const __u64 *words, struct python_gap *ret)
{
    const struct task_look *look = &thread->look;
    struct python *python = thread->process->python;
    *ret = (struct python_gap){0};
    ret->gil = python && python_is_gil_wait(python, gap->syscall_nr, gap->syscall_args[0]);
    if (python && gap->flags & UG_GAP_PYTHON)
        ret->stack = python_taken(reader, python,
                ret->gil                                ? python_leaf_gil
                        : gap->flags & UG_GAP_PYTHON_GC ? python_leaf_gc
                                                        : NULL,
                words, gap->python_count);
    // A thread that moved on between the look and the walk waits for something else now.
    else if (look->end_ns && look->gil == ret->gil && look->begin_ns >= (int64_t)gap->out_ns &&
            look->end_ns <= (int64_t)gap->in_ns)
        ret->stack = look->python_stack;
    if (!ret->gil)
        return;
    if (!ret->stack) // no look fell into it; that it was the GIL is known all the same
        ret->stack = stacks_python(reader->stacks, python_leaf_gil, NULL, 0);
    ret->owner = python_holder(reader, python, gap);
}

uint32_t python_for_sample(struct python_reader *reader, struct task_thread *thread,
        const struct ug_sample *sample, const __u64 *words, bool *ret_late)
{
    struct python *python = thread->process->python;
    int64_t at_ns = (int64_t)sample->at_ns;
    *ret_late = false;
    if (python && sample->why & UG_SAMPLE_PYTHON)
        return python_taken(reader, python,
                sample->why & UG_SAMPLE_PYTHON_GC ? python_leaf_gc : NULL, words,
                sample->python_count);
    if (!python || thread->ended)
        return 0;
    int64_t now_ns = clock_monotonic_ns();
    reader->counts.wanted++;
    if (now_ns - at_ns > PYTHON_SAMPLE_OLD_NS || !budget_affords(&reader->walking)) {
        reader->counts.skipped++;
        return 0;
    }
    budget_begin(&reader->walking);
    bool busy = python_is_busy(python);
    reader->counts.skipped += busy;
    uint32_t stack = busy ? 0 : python_walk_thread(reader, thread, false);
    *ret_late = stack && clock_monotonic_ns() - at_ns > PYTHON_SAMPLE_LATE_NS;
    budget_end(&reader->walking);
    return stack;
}

uint32_t python_for_fault(struct python_reader *reader, struct task_thread *thread,
        const struct ug_fault *fault, const __u64 *words)
{
    struct python *python = thread->process->python;
    if (!python || !(fault->why & UG_SAMPLE_PYTHON))
        return 0;
    return python_taken(reader, python, fault->why & UG_SAMPLE_PYTHON_GC ? python_leaf_gc : NULL,
            words, fault->python_count);
}

void python_counts(const struct python_reader *reader, struct python_counts *ret)
{
    uint64_t unnamed = python_frames_unnamed(reader->frames_taken);
    *ret = reader->counts;
    ret->walked -= unnamed;
    ret->failed += unnamed;
}

const char *python_refused(const struct python_reader *reader)
{
    return reader->refused[0] ? reader->refused : NULL;
}
