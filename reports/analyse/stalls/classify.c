// SPDX-License-Identifier: Apache-2.0
// From a gap to its cause. First what the scheduler itself says (stopped, traced, frozen,
// throttled, runnable), then locks, then what the stack means; waits that an idle thread makes as
// well are left to chain.c. Works with stacks that lack the frames of .sched.text, and without any
// stack.
#include "reports/analyse/stalls/parts.h"

#include <signal.h>
#include <string.h>

#include "common/containers/search.h"

// Bits of task_struct.__state, the same from 5.14 on (include/linux/sched.h).
enum {
    STATE_UNINTERRUPTIBLE = 0x2,
    STATE_STOPPED = 0x4,
    STATE_TRACED = 0x8,
    STATE_NOLOAD = 0x400,
    STATE_FROZEN = 0x8000
};

bool classify_real_waker(const struct trace *trace, const struct trace_gap *gap)
{
    if (gap->waker == TRACE_NONE || !gap->waking || !parts_blamable(trace, gap->waker))
        return false;
    struct marks marks = trace_marks(trace, gap->waker_stack);
    if (gap->flags & (UG_GAP_WAKER_IRQ | UG_GAP_WAKER_NMI) || marks_has(marks, MARK_IRQ) ||
            marks_has(marks, MARK_TIMER) || marks_has(marks, MARK_BLOCK_DONE))
        return false;
    if (gap->flags & UG_GAP_WAKER_SOFTIRQ ||
            marks_has(marks, MARK_SOFTIRQ)) // loopback: it sent to itself
        return marks_has(marks, MARK_SOCKET_SEND) && marks_has(marks, MARK_BH_ENABLE);
    return true;
}

static void classify_blame_waker(
        const struct trace *trace, const struct trace_gap *gap, struct part *part, float confidence)
{
    if (!classify_real_waker(trace, gap)) {
        part->notes |= STALL_DOUBT_NO_OWNER;
        return;
    }
    part->culprit = gap->waker;
    part->culprit_stack = gap->waker_stack;
    part->confidence = confidence;
}

// A thread of the kernel that passes on what a server or a peer elsewhere has answered (rpciod, a
// receiver of CIFS, threaded NAPI).
static bool classify_delivers(const struct trace *trace, uint32_t thread)
{
    return thread != TRACE_NONE &&
            trace->processes[trace->threads[thread].process].kind == TRACE_KERNEL;
}

// Stopped from outside: the fact at the begin names who did it, the waker who ended it.
static void classify_held(struct work *work, const struct trace_gap *gap, struct part *part)
{
    const struct trace *trace = work->trace;
    enum { NEAR_NS = 20000000 }; // from the signal to the last thread's stop
    int what = part->cause == CAUSE_SIGSTOP       ? UG_FACT_SIGNAL
            : part->cause == CAUSE_CGROUP_FREEZER ? UG_FACT_CGROUP_FREEZE
                                                  : 0; // nothing notes a ptrace
    part->via = part->cause == CAUSE_SIGSTOP ? VIA_SIGNAL
            : part->cause == CAUSE_PTRACE    ? VIA_PTRACE
                                             : VIA_FREEZER;
    part->confidence = 0.7F;
    // Of what began before the recording only the end was seen, and who ends it may be who helps.
    if (what && gap->flags & UG_GAP_NO_OUT) {
        part->notes |= STALL_DOUBT_NO_OWNER;
        return;
    }
    classify_blame_waker(trace, gap, part, 0.85F);
    if (!what)
        return;
    for (size_t i = trace_fact_from(trace, gap->out - NEAR_NS); i < trace->fact_count; i++) {
        const struct trace_fact *fact = &trace->facts[i];
        if (fact->begin > gap->out + NEAR_NS / 4)
            break;
        if (fact->what != what || !parts_blamable(trace, fact->actor) || fact->flags)
            continue;
        if (what == UG_FACT_SIGNAL && fact->value[0] != SIGSTOP && fact->value[0] != SIGTSTP &&
                fact->value[0] != SIGTTIN && fact->value[0] != SIGTTOU)
            continue;
        if (what == UG_FACT_CGROUP_FREEZE && !fact->value[0])
            continue;
        if (what == UG_FACT_SIGNAL && fact->target != TRACE_NONE &&
                trace->threads[fact->target].process != trace->threads[gap->thread].process)
            continue;
        part->culprit = fact->actor;
        if (fact->kernel)
            part->culprit_stack = fact->kernel;
        part->confidence = 0.97F;
        part->notes &= (uint16_t)~STALL_DOUBT_NO_OWNER;
    }
}

static struct marks classify_leaf(const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    if (!row->count)
        return (struct marks){{0, 0}};
    const struct trace_frame *frame = &trace->frames[trace->stack_frames[row->first]];
    return marks_of_function('k', frame->name, frame->module);
}

// The lock's cause, or CAUSE_COUNT: this was no wait for a lock.
static enum cause classify_lock(
        const struct trace *trace, const struct trace_gap *gap, struct marks marks)
{
    if (gap->lock_kind == UG_LOCK_MMAP)
        return CAUSE_MMAP_LOCK;
    bool rwsem = gap->lock_kind == UG_LOCK_RWSEM || gap->lock_kind == UG_LOCK_PERCPU_RWSEM ||
            marks_has(marks, MARK_RWSEM_WAIT);
    bool lock = rwsem || gap->lock_kind == UG_LOCK_MUTEX || gap->lock_kind == UG_LOCK_RTMUTEX ||
            gap->lock_kind == UG_LOCK_SEMAPHORE || marks_has(marks, MARK_MUTEX_WAIT);
    bool sleeps_hard = gap->state & STATE_UNINTERRUPTIBLE && !(gap->state & STATE_NOLOAD);
    struct marks leaf =
            sleeps_hard && !lock ? classify_leaf(trace, gap->kernel) : (struct marks){{0, 0}};
    if (marks_has(leaf, MARK_MMAP_SITE) &&
            !marks_has(marks, MARK_FOLIO_WAIT)) // without the frames of .sched.text
        return CAUSE_MMAP_LOCK;
    if (marks_has(leaf, MARK_INODE))
        return CAUSE_RWSEM_INODE;
    if (!lock)
        return CAUSE_COUNT;
    if (marks_has(marks, MARK_GPU_DRIVER))
        return CAUSE_DRIVER_LOCK;
    if (marks_has(marks, MARK_RSTAT))
        return CAUSE_RSTAT_LOCK;
    bool inode = marks_has(marks, MARK_INODE);
    if (rwsem && !gap->lock_kind && marks_has(marks, MARK_MMAP_SITE) && !inode &&
            !marks_has(marks, MARK_FILE_FAULT))
        return CAUSE_MMAP_LOCK;
    return rwsem && inode ? CAUSE_RWSEM_INODE : CAUSE_KERNEL_MUTEX;
}

static void classify_lock_part(struct work *work, const struct trace_gap *gap, struct part *part)
{
    const struct trace *trace = work->trace;
    bool is_mmap = part->cause == CAUSE_MMAP_LOCK;
    part->via = is_mmap ? VIA_MMAP_LOCK : VIA_KERNEL_LOCK;
    struct holder_hint hint = {
            gap->owner, TRACE_NONE, 0, 0, gap->flags & UG_GAP_OWNER_READER, is_mmap};
    if (classify_real_waker(trace, gap) &&
            (!gap->waker_stack || marks_has(trace_marks(trace, gap->waker_stack), MARK_UNLOCK) ||
                    parts_activity(trace_marks(trace, gap->waker_stack)) < CAUSE_COUNT)) {
        hint.waker = gap->waker;
        hint.waker_stack = gap->waker_stack;
    }
    const struct trace_thread *thread = &trace->threads[gap->thread];
    size_t end = (size_t)thread->lock_first + thread->lock_count;
    size_t at =
            search_between(middle, thread->lock_first, end, trace->locks[middle].end > gap->out);
    if (at < end && trace->locks[at].begin < part->end) {
        const struct trace_lock *lock = &trace->locks[at];
        if (hint.owner == TRACE_NONE) {
            hint.owner = lock->owner;
            hint.reader = lock->owner_flags & UG_GAP_OWNER_READER;
        }
        if (hint.owner == lock->owner)
            hint.owner_stack = lock->owner_stack;
    }
    holder_find(work, part, &hint);
}

static enum cause classify_memory_or_disk(const struct trace_gap *gap, struct marks marks)
{
    bool fault = marks_has(marks, MARK_FAULT);
    if (marks_has(marks, MARK_MEMCG_HIGH))
        return CAUSE_MEMORY_HIGH;
    static const struct parts_deed deeds[] = {
            {MARK_MIGRATION_WAIT, CAUSE_PAGE_MIGRATION},
            {MARK_NUMA, CAUSE_NUMA_BALANCING},
            {MARK_COMPACT, CAUSE_COMPACTION},
            {MARK_RECLAIM, CAUSE_DIRECT_RECLAIM},
            {MARK_FUSE, CAUSE_FUSE_HANG},
            {MARK_RPC, CAUSE_FUSE_HANG},
            {MARK_SWAP, CAUSE_SWAP_IN},
            {MARK_DIRTY, CAUSE_DIRTY_THROTTLE},
            {MARK_JOURNAL, CAUSE_FSYNC_JOURNAL},
            {MARK_FSYNC, CAUSE_FSYNC_JOURNAL},
            {MARK_MEMCG, CAUSE_MEMCG_RECLAIM},
    };
    enum cause cause = parts_deed(marks, deeds, sizeof deeds / sizeof deeds[0]);
    if (cause < CAUSE_COUNT)
        return cause;
    bool waits_for_disk = marks_has(marks, MARK_FOLIO_WAIT) || marks_has(marks, MARK_BLOCK_WAIT) ||
            gap->flags & UG_GAP_IOWAIT;
    bool hard = gap->state & STATE_UNINTERRUPTIBLE && !(gap->state & STATE_NOLOAD);
    if (fault && (marks_has(marks, MARK_FILE_FAULT) || waits_for_disk))
        return CAUSE_MAJOR_FAULT;
    if (marks_has(marks, MARK_POPULATE) && waits_for_disk)
        return CAUSE_MAJOR_FAULT;
    if (waits_for_disk ||
            (marks_has(marks, MARK_FILE_READ) && hard && !marks_has(marks, MARK_PIPE_READ)))
        return CAUSE_DISK_READ;
    return CAUSE_COUNT;
}

static void classify_culprit_of_memory(
        struct work *work, const struct trace_gap *gap, struct part *part)
{
    const struct trace *trace = work->trace;
    enum { BEFORE_NS = 50000000 };
    part->via = VIA_MEMORY;
    if (part->cause == CAUSE_FUSE_HANG) {
        part->via = VIA_FILE;
        if (classify_delivers(trace, gap->waker))
            part->notes |= STALL_DOUBT_NO_OWNER;
        else
            classify_blame_waker(trace, gap, part, 0.9F);
        part->waits_for = part->culprit;
        return;
    }
    if (part->cause == CAUSE_DISK_READ || part->cause == CAUSE_MAJOR_FAULT ||
            part->cause == CAUSE_FSYNC_JOURNAL || part->cause == CAUSE_DIRTY_THROTTLE)
        part->via = VIA_FILE;
    if (part->cause != CAUSE_PAGE_MIGRATION)
        return;
    const struct trace_fact *fact =
            facts_by_other(trace, UG_FACT_MIGRATE, gap->thread, part->begin - BEFORE_NS, part->end);
    if (!fact)
        fact = facts_by_other(
                trace, UG_FACT_COMPACTION, gap->thread, part->begin - BEFORE_NS, part->end);
    if (fact) {
        part->culprit = fact->actor;
        part->culprit_stack = fact->kernel;
        part->confidence = 0.9F;
        return;
    }
    classify_blame_waker(trace, gap, part, 0.8F);
}

// Waits that an idle thread makes as well. SOFT_NO: none of them.
static enum part_soft classify_soft(
        const struct trace *trace, const struct trace_gap *gap, struct marks marks)
{
    const char *target = trace->texts[gap->target];
    if (marks_has(marks, MARK_SLEEP))
        return SOFT_SLEEP;
    if (marks_has(marks, MARK_FUTEX))
        return SOFT_FUTEX;
    if (marks_has(marks, MARK_EPOLL) || marks_has(marks, MARK_POLL))
        return !strncmp(target, "socket:", 7) ? SOFT_SOCKET : SOFT_POLL;
    if (marks_has(marks, MARK_CHILD))
        return SOFT_CHILD;
    bool reads = marks_has(marks, MARK_READ) ||
            marks_has(marks_of_syscall(trace->machine, gap->syscall), MARK_READ);
    if (marks_has(marks, MARK_PIPE_READ) || (reads && !strncmp(target, "pipe:", 5)))
        return SOFT_PIPE;
    if (marks_has(marks, MARK_ACCEPT) || marks_has(marks, MARK_SIGWAIT) ||
            marks_has(marks, MARK_WORKER_IDLE))
        return SOFT_SLEEP;
    if (marks_has(marks, MARK_SOCKET_RECV) || marks_has(marks, MARK_SOCKET_SEND))
        return SOFT_SOCKET;
    return SOFT_NO;
}

// Does the owner word of glibc's mutex name who holds it? Only a mutex has that word: behind any
// other futex lies a number that may be some task's, so the owner must be a thread that can hold
// it, of the process itself, or of another program where the stack says that this is a lock. In a
// wait that was taken for one for the GIL it is the holder of the GIL.
static bool classify_owns_mutex(const struct trace *trace, const struct trace_gap *gap)
{
    struct marks user = trace_marks(trace, gap->user);
    bool lock = marks_has(user, MARK_MUTEX_USER);
    if (gap->owner == TRACE_NONE || gap->owner == gap->thread ||
            !(gap->flags & UG_GAP_OWNER_FUTEX) ||
            marks_has(trace_marks(trace, gap->python), MARK_TAKE_GIL) ||
            (marks_has(user, MARK_COND) && !lock))
        return false;
    uint32_t owner = trace->threads[gap->owner].process,
             waits = trace->threads[gap->thread].process;
    enum trace_kind kind = trace->processes[owner].kind;
    return owner == waits || (lock && (kind == TRACE_TARGET || kind == TRACE_OTHER));
}

static void classify_blocked(
        struct work *work, const struct trace_gap *gap, uint32_t index, int64_t end)
{
    const struct trace *trace = work->trace;
    struct marks marks = trace_kernel_marks(trace, gap), user = trace_marks(trace, gap->user);
    bool frozen = gap->state & STATE_FROZEN || gap->flags & UG_GAP_FROZEN ||
            marks_has(marks, MARK_FREEZE) ||
            (marks_has(marks, MARK_GET_SIGNAL) && !marks_has(marks, MARK_SIGNAL_END)) ||
            marks_has(trace_marks(trace, gap->waker_stack), MARK_THAW);
    bool stopped = gap->state & STATE_STOPPED || marks_has(marks, MARK_STOP);
    // A traced launch is held between its turns many times a second: what that cuts short, a sleep
    // or a poll, is our doing, and nobody else's could be told from it.
    if (trace->launch_id && (frozen || stopped))
        return;
    struct part *part = parts_add(work, gap->thread, gap->out, end, CAUSE_UNKNOWN, SPLIT_BLOCKED);
    part->gap = index;
    if (gap->flags & (UG_GAP_UNFINISHED | UG_GAP_NO_OUT)) {
        part->notes |= STALL_DOUBT_UNFINISHED;
        part->confidence = 0.7F;
    }
    if (gap->state & STATE_TRACED || marks_has(marks, MARK_PTRACE))
        part->cause = CAUSE_PTRACE;
    else if (stopped)
        part->cause = CAUSE_SIGSTOP;
    else if (frozen)
        part->cause = CAUSE_CGROUP_FREEZER;
    if (part->cause != CAUSE_UNKNOWN) {
        classify_held(work, gap, part);
        return;
    }
    enum cause cause = classify_lock(trace, gap, marks);
    if (cause < CAUSE_COUNT) {
        part->cause = (uint8_t)cause;
        classify_lock_part(work, gap, part);
        return;
    }
    cause = classify_memory_or_disk(gap, marks);
    if (cause < CAUSE_COUNT) {
        part->cause = (uint8_t)cause;
        classify_culprit_of_memory(work, gap, part);
        return;
    }
    if (marks_has(marks, MARK_PIPE_WRITE)) {
        part->cause = CAUSE_PIPE_WRITE;
        part->via = VIA_PIPE;
        classify_blame_waker(trace, gap, part, 0.9F);
        part->waits_for = part->culprit;
        return;
    }
    if (marks_has(user, MARK_CUDA_ALLOC) || marks_has(user, MARK_CUDA_LOAD) ||
            marks_has(user, MARK_CUDA_SYNC)) {
        part->cause = marks_has(user, MARK_CUDA_ALLOC) ? CAUSE_ALLOC_RETRY
                : marks_has(user, MARK_CUDA_LOAD)      ? CAUSE_DRIVER_LOCK
                                                       : CAUSE_GPU_SYNC;
        part->confidence = 0.8F;
        return;
    }
    if (marks_has(marks, MARK_GPU_DRIVER) && !marks_has(marks, MARK_POLL)) {
        part->cause = CAUSE_DRIVER_LOCK;
        part->via = VIA_KERNEL_LOCK;
        classify_blame_waker(trace, gap, part, 0.6F);
        return;
    }
    part->soft = (uint8_t)classify_soft(trace, gap, marks);
    part->waits_for = classify_real_waker(trace, gap) ? gap->waker : TRACE_NONE;
    // Another CPU delivered the packets: then who waked says nothing, the process at the other end
    // does.
    if (part->soft == SOFT_SOCKET &&
            (part->waits_for == TRACE_NONE || classify_delivers(trace, part->waits_for)))
        part->waits_for = gap->owner;
    bool owned = classify_owns_mutex(trace, gap);
    if (part->soft == SOFT_FUTEX &&
            (owned || (marks_has(user, MARK_MUTEX_USER) && !marks_has(user, MARK_COND)))) {
        part->cause = CAUSE_PTHREAD_MUTEX;
        part->soft = SOFT_NO;
        part->via = VIA_MUTEX;
        // Who woke it has unlocked it, if that was a thread of the program.
        bool unlocked = trace_is_target(trace, part->waits_for);
        part->culprit = owned ? gap->owner : unlocked ? part->waits_for : TRACE_NONE;
        part->notes |= part->culprit == TRACE_NONE ? STALL_DOUBT_NO_OWNER : 0;
        part->waits_for = part->culprit;
        part->culprit_stack = part->culprit == gap->waker && unlocked ? gap->waker_stack : 0;
        part->confidence = owned ? 0.9F : 0.7F;
        return;
    }
    // The kernel clears it before it sleeps for memory.high: a wait that is known for something
    // else is none for that.
    if (part->soft == SOFT_NO && gap->flags & UG_GAP_MEMCG_HIGH) {
        part->cause = CAUSE_MEMORY_HIGH;
        part->via = VIA_MEMORY;
        part->waits_for = TRACE_NONE;
        part->confidence = 0.6F;
        return;
    }
    if (part->soft == SOFT_NO) {
        bool hard = gap->state & STATE_UNINTERRUPTIBLE && !(gap->state & STATE_NOLOAD);
        part->soft = hard ? SOFT_NO : SOFT_OTHER;
        part->confidence = 0.3F;
    }
    part->via = part->soft == SOFT_PIPE ? VIA_PIPE
            : part->soft == SOFT_SOCKET ? VIA_SOCKET
            : part->soft == SOFT_FUTEX  ? VIA_FUTEX
            : part->soft == SOFT_CHILD  ? VIA_CHILD
                                        : VIA_WAKE;
    if (part->soft != SOFT_NO)
        part->cause = CAUSE_IDLE;
}

enum cause classify_alone(const struct trace *trace, const struct trace_gap *gap)
{
    struct marks marks = trace_kernel_marks(trace, gap);
    if (!gap->waking || gap->flags & UG_GAP_KTHREAD)
        return CAUSE_COUNT;
    enum cause cause = classify_lock(trace, gap, marks);
    return cause < CAUSE_COUNT ? cause : classify_memory_or_disk(gap, marks);
}

void classify_gaps(struct work *work)
{
    const struct trace *trace = work->trace;
    int64_t least = trace->threshold_ns > 1000000 ? trace->threshold_ns : 1000000;
    for (size_t i = 0; i < trace->gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (work->taken[i] || !trace_is_target(trace, gap->thread) || gap->flags & UG_GAP_KTHREAD)
            continue;
        bool runnable = !gap->waking && (gap->flags & UG_GAP_PREEMPTED || gap->state == 0) &&
                !(gap->flags & UG_GAP_NO_OUT && gap->state);
        if (runnable) {
            cpu_wait(work, gap, (uint32_t)i, gap->out);
            continue;
        }
        int64_t end = gap->waking ? gap->waking : gap->in;
        if (end > gap->out)
            classify_blocked(work, gap, (uint32_t)i, end);
        if (gap->in - end >= least)
            cpu_wait(work, gap, (uint32_t)i, end);
    }
}
