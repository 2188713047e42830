// SPDX-License-Identifier: Apache-2.0
// Waits for Python's GIL. CPython waits in slices of 5 ms (sys.getswitchinterval) that a timer
// ends, so one wait of 80 ms is a row of 16 short ones: they are put together here, and the holder
// is who was recorded as such, else who ran meanwhile, else who woke the thread in the end. Which
// gap is such a slice the recorder says, where it could read the interpreter: it compared the futex
// with the interpreter's own data. Elsewhere take_gil in the stack says so, or the length of the
// slices lets it be guessed.
#include "reports/analyse/stalls/parts.h"

enum {
    GIL_SLICE_MIN_NS = 4000000,
    GIL_SLICE_MAX_NS = 7000000, // 5 ms and the timer's slack on a loaded machine
    GIL_BETWEEN_MAX_NS = 1000000,
    GIL_SITE_BYTES = 64, // the two words of one condition variable
};

enum gil_gap { GIL_NO, GIL_SLICE, GIL_LAST };

// Is this gap a slice of a wait for the GIL, or, after slices, the last and shorter piece of it?
static enum gil_gap gil_gap(const struct trace *trace, const struct trace_gap *gap)
{
    struct marks kernel = trace_marks(trace, gap->kernel), user = trace_marks(trace, gap->user);
    bool futex = marks_has(kernel, MARK_FUTEX) ||
            (!gap->kernel && marks_has(marks_of_syscall(trace->machine, gap->syscall), MARK_FUTEX));
    if (!gap->waking || !futex || gap->state & 0xe) // neither D nor stopped nor traced
        return GIL_NO;
    if (marks_has(user, MARK_TAKE_GIL))
        return GIL_SLICE;
    if (marks_has(user, MARK_COND) && marks_has(user, MARK_OMP))
        return GIL_NO;
    int64_t slept = gap->waking - gap->out;
    struct marks waker = trace_marks(trace, gap->waker_stack);
    bool by_timer = gap->flags & (UG_GAP_WAKER_IRQ | UG_GAP_WAKER_SOFTIRQ) ||
            marks_has(waker, MARK_TIMER) || marks_has(waker, MARK_IRQ);
    if (by_timer)
        return slept >= GIL_SLICE_MIN_NS && slept <= GIL_SLICE_MAX_NS ? GIL_SLICE : GIL_NO;
    return slept < GIL_SLICE_MAX_NS ? GIL_LAST : GIL_NO;
}

// Could the recorder read the interpreter then? Without its mark a gap is no wait for the GIL.
static bool gil_read(const struct trace *trace, const struct trace_gap *gap)
{
    return gap->out >= trace->processes[trace->threads[gap->thread].process].python_read_ns;
}

static bool gil_marked(const struct trace *trace, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        if (marks_has(trace_marks(trace, trace->gaps[i].python), MARK_TAKE_GIL))
            return true;
    return false;
}

static bool gil_same_site(const struct trace_gap *a, const struct trace_gap *b)
{
    int64_t distance = a->arg0 > b->arg0 ? a->arg0 - b->arg0 : b->arg0 - a->arg0;
    return distance <= GIL_SITE_BYTES;
}

// The thread of the process that ran most in the episode.
static uint32_t gil_runner(const struct trace *trace, uint32_t thread, int64_t begin, int64_t end)
{
    uint32_t best = TRACE_NONE;
    int64_t best_ns = 0;
    for (uint32_t i = 0; i < trace->thread_count; i++) {
        if (i == thread || trace->threads[i].process != trace->threads[thread].process ||
                !trace->threads[i].sample_count)
            continue;
        int64_t ran = trace_ran_ns(trace, i, begin, end);
        if (ran > best_ns) {
            best_ns = ran;
            best = i;
        }
    }
    return best_ns * 5 >= end - begin ? best : TRACE_NONE;
}

static uint32_t gil_owner(const struct trace *trace, uint32_t first, uint32_t last)
{
    uint32_t best = TRACE_NONE;
    int votes = 0; // majority of those that have one (Boyer and Moore)
    for (uint32_t i = first; i < last; i++) {
        uint32_t owner = trace->gaps[i].owner;
        if (owner == TRACE_NONE || owner == trace->gaps[i].thread ||
                trace->threads[owner].process != trace->threads[trace->gaps[i].thread].process)
            continue;
        if (!votes)
            best = owner;
        votes += owner == best ? 1 : -1;
    }
    return best;
}

static void gil_episode(struct work *work, uint32_t first, uint32_t last)
{
    const struct trace *trace = work->trace;
    const struct trace_gap *begin = &trace->gaps[first], *end = &trace->gaps[last - 1];
    uint32_t owner = gil_owner(trace, first, last);
    // A Python thread that polls a queue looks like one that waits for the GIL: the recorder's
    // mark, its owner or take_gil itself tells, and one slice is enough then. Only where the
    // interpreter could not be read the length of the slices has to do.
    bool marked = gil_marked(trace, first, last);
    bool certain = marked || owner != TRACE_NONE ||
            marks_has(trace_marks(trace, begin->user), MARK_TAKE_GIL);
    if (!certain && (last - first < 2 || gil_read(trace, end)))
        return;
    uint32_t runner = gil_runner(trace, begin->thread, begin->out, end->in);
    struct part *part =
            parts_add(work, begin->thread, begin->out, end->in, CAUSE_GIL_WAIT, SPLIT_BLOCKED);
    part->gap = first;
    part->via = VIA_GIL;
    part->culprit = owner != TRACE_NONE ? owner : runner;
    if (part->culprit == TRACE_NONE && classify_real_waker(trace, end)) {
        part->culprit = end->waker;
        part->notes |= STALL_DOUBT_INFERRED;
    }
    part->waits_for = part->culprit;
    part->confidence = owner == TRACE_NONE && runner == TRACE_NONE ? 0.6F
            : owner == runner || last - first >= 4                 ? 0.95F
                                                                   : 0.85F;
    if (!certain)
        part->confidence -= 0.1F;
    for (uint32_t i = first; i < last; i++)
        work->taken[i] = 1;
}

static void gil_thread(struct work *work, uint32_t thread)
{
    const struct trace *trace = work->trace;
    uint32_t at = trace->threads[thread].gap_first, stop = at + trace->threads[thread].gap_count;
    while (at < stop) {
        if (gil_gap(trace, &trace->gaps[at]) != GIL_SLICE) {
            at++;
            continue;
        }
        uint32_t last = at + 1;
        while (last < stop &&
                trace->gaps[last].out - trace->gaps[last - 1].in < GIL_BETWEEN_MAX_NS &&
                gil_same_site(&trace->gaps[at], &trace->gaps[last])) {
            enum gil_gap kind = gil_gap(trace, &trace->gaps[last]);
            if (kind == GIL_NO)
                break;
            last++;
            if (kind == GIL_LAST)
                break;
        }
        gil_episode(work, at, last);
        at = last;
    }
}

void gil_stitch(struct work *work)
{
    for (uint32_t i = 0; i < work->trace->thread_count; i++)
        if (trace_is_target(work->trace, i) &&
                work->trace->processes[work->trace->threads[i].process].python)
            gil_thread(work, i);
}
