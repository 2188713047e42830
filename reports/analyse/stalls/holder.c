// SPDX-License-Identifier: Apache-2.0
// Who held a kernel lock, and what for. Witnesses: the owner that was recorded at the begin of the
// wait, the task whose unlock woke the waiter, samples of tasks that ran as owners within the wait,
// and the owner's stack when it slept. A running owner has no stack to be read from outside, so the
// samples decide what it did; a lock held by readers names one of many, so one witness alone is
// worth less.
#include "common/containers/search.h"
#include "reports/analyse/stalls/parts.h"

enum { HOLDER_CANDIDATES_MAX = 8, HOLDER_SAMPLES_MAX = 400 };

struct holder_candidate {
    uint32_t thread;
    bool owner, waker;
    int samples;                   // within the wait
    int activity[CAUSE_COUNT + 1]; // witnesses of each
    uint32_t stacks[CAUSE_COUNT + 1];
};

static struct holder_candidate *holder_candidate(const struct trace *trace,
        struct holder_candidate *list, int *count, uint32_t thread, uint32_t victim)
{
    if (!parts_blamable(trace, thread) || thread == victim)
        return NULL;
    for (int i = 0; i < *count; i++)
        if (list[i].thread == thread)
            return &list[i];
    if (*count == HOLDER_CANDIDATES_MAX)
        return NULL;
    list[*count] = (struct holder_candidate){.thread = thread};
    return &list[(*count)++];
}

static void holder_witness(const struct trace *trace, struct holder_candidate *one, uint32_t stack)
{
    enum cause cause = stack ? parts_activity(trace_marks(trace, stack)) : CAUSE_COUNT;
    one->activity[cause]++;
    if (!one->stacks[cause])
        one->stacks[cause] = stack;
}

// In the kernel while a thread of the target spins: any task of the machine may be. Only the
// process's own threads have locks of its memory, but for those that look into others'.
static bool holder_suspect(const struct trace *trace, const struct trace_sample *sample,
        const struct part *part, bool is_mmap)
{
    enum cause deed = parts_activity(trace_marks(trace, sample->kernel));
    if (deed == CAUSE_COUNT)
        return false;
    if (trace->threads[sample->thread].process == trace->threads[part->thread].process)
        return true;
    if (part->cause == CAUSE_RSTAT_LOCK) // one for the whole machine
        return deed == CAUSE_RSTAT_LOCK || deed == CAUSE_ZOMBIE_MEMCG;
    return is_mmap && (deed == CAUSE_SMAPS_READ || deed == CAUSE_KHUGEPAGED);
}

static void holder_read_samples(struct work *work, const struct part *part, bool is_mmap,
        struct holder_candidate *list, int *count)
{
    const struct trace *trace = work->trace;
    size_t low = search_first(middle, work->owner_sample_count,
            trace->samples[work->owner_samples[middle]].at >= part->begin);
    for (int n = 0; low < work->owner_sample_count && n < HOLDER_SAMPLES_MAX; low++, n++) {
        const struct trace_sample *sample = &trace->samples[work->owner_samples[low]];
        if (sample->at >= part->end)
            break;
        if (!(sample->why & UG_SAMPLE_OWNER) && !holder_suspect(trace, sample, part, is_mmap))
            continue;
        holder_candidate(trace, list, count, sample->thread, part->thread);
    }
    for (int i = 0; i < *count; i++) {
        const struct trace_thread *thread = &trace->threads[list[i].thread];
        uint32_t at = trace_sample_from(trace, list[i].thread, part->begin);
        for (int n = 0; at < thread->sample_first + thread->sample_count && n < HOLDER_SAMPLES_MAX;
                at++, n++) {
            if (trace->samples[at].at >= part->end)
                break;
            list[i].samples++;
            holder_witness(trace, &list[i], trace->samples[at].kernel);
        }
    }
}

// The owner's own sleep within the wait tells what it did, when it is of the target.
static void holder_read_gaps(
        const struct trace *trace, const struct part *part, struct holder_candidate *one)
{
    const struct trace_thread *thread = &trace->threads[one->thread];
    for (uint32_t i = trace_gap_from(trace, one->thread, part->begin);
            i < thread->gap_first + thread->gap_count; i++) {
        if (trace->gaps[i].out >= part->end)
            break;
        if (trace->gaps[i].kernel)
            holder_witness(trace, one, trace->gaps[i].kernel);
    }
}

static enum cause holder_activity(const struct holder_candidate *one)
{
    enum cause best = CAUSE_COUNT;
    for (int i = 0; i < CAUSE_COUNT; i++)
        if (one->activity[i] > (best == CAUSE_COUNT ? 0 : one->activity[best]))
            best = (enum cause)i;
    return best;
}

static double holder_score(const struct holder_candidate *one, bool is_mmap)
{
    double score = 3 * one->owner + 2.5 * one->waker + (one->samples > 4 ? 4 : one->samples) * 0.5;
    if (holder_activity(one) < CAUSE_COUNT)
        score += is_mmap ? 3 : 0.5;
    return score;
}

static void holder_conclude(const struct trace *trace, struct part *part,
        const struct holder_hint *hint, const struct holder_candidate *best)
{
    enum cause activity = holder_activity(best);
    double doubt = 1; // product of what each witness leaves open
    if (best->owner)
        doubt *= hint->reader ? 0.55 : 0.3;
    if (best->waker)
        doubt *= 0.3;
    if (best->samples && activity < CAUSE_COUNT)
        doubt *= best->samples > 1 ? 0.2 : 0.35;
    else if (activity < CAUSE_COUNT)
        doubt *= 0.5;
    if (!best->owner && !best->waker && doubt < 0.35)
        doubt = 0.35;
    part->confidence = (float)(0.99 - 0.9 * doubt < 0.05 ? 0.05 : 0.99 - 0.9 * doubt);
    if (hint->reader && !(best->waker && best->samples))
        part->notes |= STALL_DOUBT_READER;
    if (!best->owner)
        part->notes |= hint->owner == TRACE_NONE ? STALL_DOUBT_NO_OWNER : STALL_DOUBT_DISAGREE;
    part->culprit = part->waits_for = best->thread;
    part->culprit_stack =
            best->stacks[activity] ? best->stacks[activity] : best->stacks[CAUSE_COUNT];
    if (activity == CAUSE_COUNT)
        part->notes |= STALL_DOUBT_NO_ACTIVITY;
    else if (hint->is_mmap)
        part->cause = (uint8_t)activity;
    const struct trace_process *process = &trace->processes[trace->threads[best->thread].process];
    if (hint->is_mmap && part->cause == CAUSE_MMAP_LOCK && process->kind == TRACE_KERNEL &&
            // khugepaged itself, its stack unseen
            process->comm[0] == 'k' && process->comm[1] == 'h')
        part->cause = CAUSE_KHUGEPAGED;
}

void holder_find(struct work *work, struct part *part, const struct holder_hint *hint)
{
    const struct trace *trace = work->trace;
    struct holder_candidate list[HOLDER_CANDIDATES_MAX];
    int count = 0;
    struct holder_candidate *one = holder_candidate(trace, list, &count, hint->owner, part->thread);
    if (one) {
        one->owner = true;
        if (hint->owner_stack)
            holder_witness(trace, one, hint->owner_stack);
    }
    one = holder_candidate(trace, list, &count, hint->waker, part->thread);
    if (one) {
        one->waker = true;
        if (hint->waker_stack)
            holder_witness(trace, one, hint->waker_stack);
    }
    holder_read_samples(work, part, hint->is_mmap, list, &count);
    const struct holder_candidate *best = NULL;
    for (int i = 0; i < count; i++) {
        if (trace_is_target(trace, list[i].thread))
            holder_read_gaps(trace, part, &list[i]);
        if (!best || holder_score(&list[i], hint->is_mmap) > holder_score(best, hint->is_mmap))
            best = &list[i];
    }
    if (best) {
        holder_conclude(trace, part, hint, best);
        return;
    }
    part->notes |= STALL_DOUBT_NO_OWNER | STALL_DOUBT_NO_ACTIVITY;
    part->confidence = 0.4F;
}

static enum cause holder_spin_cause(const struct trace *trace, const struct trace_lock *lock)
{
    struct marks marks = trace_marks(trace, lock->kernel);
    if (lock->kind == UG_LOCK_MMAP)
        return CAUSE_MMAP_LOCK;
    if (marks_has(marks, MARK_GPU_DRIVER))
        return CAUSE_DRIVER_LOCK;
    if (marks_has(marks, MARK_RSTAT))
        return CAUSE_RSTAT_LOCK;
    return marks_has(marks, MARK_INODE) && lock->kind == UG_LOCK_RWSEM ? CAUSE_RWSEM_INODE
                                                                       : CAUSE_KERNEL_MUTEX;
}

// A wait whose thread stayed on the CPU (an optimistic spin) has no gap: it is a part of its own.
void holder_spins(struct work *work)
{
    const struct trace *trace = work->trace;
    for (size_t i = 0; i < trace->lock_count; i++) {
        const struct trace_lock *lock = &trace->locks[i];
        const struct trace_thread *thread = &trace->threads[lock->thread];
        if (!trace_is_target(trace, lock->thread))
            continue;
        int64_t slept = 0;
        uint32_t low = trace_gap_from(trace, lock->thread, lock->begin);
        for (; low < thread->gap_first + thread->gap_count && trace->gaps[low].out < lock->end;
                low++)
            slept += parts_overlap(
                    lock->begin, lock->end, trace->gaps[low].out, trace->gaps[low].in);
        if (slept * 2 >= lock->end - lock->begin)
            continue;
        struct part *part = parts_add(work, lock->thread, lock->begin, lock->end,
                holder_spin_cause(trace, lock), SPLIT_ON_CPU);
        part->via = lock->kind == UG_LOCK_MMAP ? VIA_MMAP_LOCK : VIA_KERNEL_LOCK;
        uint32_t sample = trace_sample_from(trace, lock->thread, lock->begin);
        if (sample < thread->sample_first + thread->sample_count &&
                trace->samples[sample].at < lock->end)
            part->sample = sample;
        struct holder_hint hint = {lock->owner, TRACE_NONE, 0, lock->owner_stack,
                lock->owner_flags & UG_GAP_OWNER_READER, part->cause == CAUSE_MMAP_LOCK};
        holder_find(work, part, &hint);
    }
}
