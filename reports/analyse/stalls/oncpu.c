// SPDX-License-Identifier: Apache-2.0
// Stalls on the CPU: the thread runs, but not its program. Found from cpu-clock samples:
// neighbouring ticks that show the same foreign work are one part. One tick alone proves a few ms
// at most; merge.c demands a real share or a long row before it speaks of a stall.
#include "reports/analyse/stalls/parts.h"

static enum cause oncpu_cause(const struct trace *trace, const struct trace_sample *sample)
{
    struct marks kernel = trace_marks(trace, sample->kernel);
    struct marks user =
            marks_join(trace_marks(trace, sample->user), trace_marks(trace, sample->python));
    // What it sends to itself over loopback is received in its own context: no storm.
    bool own_send = marks_has(kernel, MARK_SOCKET_SEND) && marks_has(kernel, MARK_BH_ENABLE);
    if ((sample->why & UG_SAMPLE_IRQ && !own_send) ||
            (marks_has(kernel, MARK_SOFTIRQ) && marks_has(kernel, MARK_NET_RX) &&
                    !marks_has(kernel, MARK_SOCKET_SEND)))
        return CAUSE_SOFTIRQ_STORM;
    enum cause cause = parts_activity(kernel);
    if (cause < CAUSE_COUNT)
        return cause;
    if (marks_has(kernel, MARK_SPIN)) {
        if (marks_has(kernel, MARK_GPU_DRIVER))
            return CAUSE_DRIVER_LOCK;
        return marks_has(kernel, MARK_INODE) ? CAUSE_RWSEM_INODE
                : marks_has(kernel, MARK_MMAP_SITE) && !marks_has(kernel, MARK_FAULT)
                ? CAUSE_MMAP_LOCK
                : CAUSE_KERNEL_MUTEX;
    }
    if (marks_has(kernel, MARK_MIGRATE) || marks_has(kernel, MARK_MIGRATION_WAIT))
        return CAUSE_PAGE_MIGRATION;
    if (marks_has(user, MARK_GC))
        return CAUSE_PYTHON_GC;
    if (marks_has(user, MARK_CUDA_ALLOC))
        return CAUSE_ALLOC_RETRY;
    return marks_has(user, MARK_CUDA_SYNC) ? CAUSE_GPU_SYNC : CAUSE_COUNT;
}

// Who is to blame for work in this thread's own context: itself, unless somebody else asked for it.
static void oncpu_blame(struct work *work, struct part *part)
{
    const struct trace *trace = work->trace;
    switch (part->cause) {
    case CAUSE_MMAP_LOCK:
    case CAUSE_RWSEM_INODE:
    case CAUSE_KERNEL_MUTEX:
    case CAUSE_DRIVER_LOCK: {
        struct holder_hint hint = {
                TRACE_NONE, TRACE_NONE, 0, 0, false, part->cause == CAUSE_MMAP_LOCK};
        part->via = part->cause == CAUSE_MMAP_LOCK ? VIA_MMAP_LOCK : VIA_KERNEL_LOCK;
        holder_find(work, part, &hint);
        return;
    }
    case CAUSE_PAGE_MIGRATION: {
        const struct trace_fact *fact = facts_by_other(
                trace, UG_FACT_MIGRATE, part->thread, part->begin - 50000000, part->end);
        part->culprit = fact ? fact->actor : TRACE_NONE;
        part->culprit_stack = fact ? fact->kernel : 0;
        return;
    }
    case CAUSE_FORK_LARGE:
    case CAUSE_MUNMAP_LARGE:
    case CAUSE_PAGE_POPULATE:
    case CAUSE_MADVISE_STORM:
    case CAUSE_TLB_SHOOTDOWN:
    case CAUSE_SMAPS_READ:
    case CAUSE_ZOMBIE_MEMCG:
    case CAUSE_RSTAT_LOCK:
        part->culprit = part->thread;
        part->culprit_stack = trace->samples[part->sample].kernel;
        return;
    default:
        return;
    }
}

// Calls in a loop: ticks also hit what lies between them, and the page faults that follow.
static bool oncpu_is_storm(enum cause cause)
{
    return cause == CAUSE_MADVISE_STORM || cause == CAUSE_TLB_SHOOTDOWN;
}

// One behind the last sample of the row that begins at `first`.
static uint32_t oncpu_row(
        const struct trace *trace, uint32_t first, uint32_t stop, enum cause cause)
{
    int64_t reach = trace->tick_ns * (oncpu_is_storm(cause) ? 32 : 16) / 10;
    uint32_t last = first;
    for (uint32_t i = first + 1;
            i < stop && trace->samples[i].at - trace->samples[last].at <= reach; i++) {
        if (oncpu_cause(trace, &trace->samples[i]) == cause)
            last = i;
        else if (!oncpu_is_storm(cause))
            break;
    }
    return last + 1;
}

static void oncpu_thread(struct work *work, uint32_t thread)
{
    const struct trace *trace = work->trace;
    int64_t tick = trace->tick_ns;
    uint32_t first = trace->threads[thread].sample_first,
             last = first + trace->threads[thread].sample_count;
    for (uint32_t i = first; i < last;) {
        enum cause cause = oncpu_cause(trace, &trace->samples[i]);
        if (cause == CAUSE_COUNT) {
            i++;
            continue;
        }
        uint32_t k = oncpu_row(trace, i, last, cause);
        int64_t begin = trace->samples[i].at - tick / 2, end = trace->samples[k - 1].at + tick / 2;
        if (trace_clip(trace, &begin, &end)) {
            struct part *part = parts_add(work, thread, begin, end, cause, SPLIT_ON_CPU);
            part->sample = i;
            part->confidence = 0.85F;
            oncpu_blame(work, part);
        }
        i = k;
    }
}

void oncpu_find(struct work *work)
{
    if (!work->trace->tick_ns)
        return;
    for (uint32_t i = 0; i < work->trace->thread_count; i++)
        if (trace_is_target(work->trace, i))
            oncpu_thread(work, i);
}
