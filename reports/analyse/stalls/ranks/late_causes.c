// SPDX-License-Identifier: Apache-2.0
// Which cause of stalls makes a rank late: the parts of each, and waits below the threshold, set
// against the others' mean. What the rank computes longer costs it its turns of waiting for a CPU
// as well, on a machine where all wait for one.
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/stalls/ranks/late_why.h"

// Who waits in a collective has no cause of its own for that, also where its chain leads to what
// holds the late rank up.
static bool why_counts(const struct trace *trace, const struct part *part)
{
    return part->cause < CAUSE_UNKNOWN && part->cause != CAUSE_GPU_SYNC &&
            part->cause != CAUSE_FUTEX_WAIT && part->cause != CAUSE_NETWORK_PEER &&
            part->cause != CAUSE_STRAGGLER &&
            (part->gap == TRACE_NONE || part->split != SPLIT_BLOCKED ||
                    !ranks_waits(trace, &trace->gaps[part->gap]));
}

// Whose doing the late rank's parts of its cause are: of the process that took most of their time.
// The longest of all may be another's, who was in the way once. No part is kept: those of waits for
// others are taken out before this is told.
static void why_culprit(const struct why *why, struct late_rank *straggler)
{
    const struct trace *trace = why->ranks->trace;
    // by each process; the last: by nobody known
    struct {
        int64_t sum, longest;
        const struct part *part;
    } *done = xcalloc(trace->process_count + 1, sizeof *done);
    size_t most = trace->process_count;
    uint32_t last,
            first = parts_range(why->work, why->ranks->rows[straggler->row].thread, why->begin,
                    why->end, &last);
    for (uint32_t k = first; k < last; k++) {
        const struct part *part = &why->work->parts[k];
        int64_t ns = parts_overlap(part->begin, part->end, why->begin, why->end);
        bool named = part->culprit != TRACE_NONE;
        size_t by = named ? trace->threads[part->culprit].process : trace->process_count;
        if (!ns || !why_counts(trace, part) || part->cause != straggler->cause)
            continue;
        done[by].sum += named ? 4 * ns : ns; // one that names somebody shows more
        if (ns > done[by].longest) {
            done[by].longest = ns;
            done[by].part = part;
        }
        most = done[by].sum > done[most].sum ? by : most;
    }
    const struct part *part = done[most].part;
    straggler->culprit = part ? part->culprit : TRACE_NONE;
    straggler->culprit_stack = part ? part->culprit_stack : 0;
    free(done);
}

// What nearly all of the rank's longer waits for its memory map were for. Of those below the
// threshold nobody's stack is known.
static enum cause why_mmap_deed(const struct why *why, size_t index)
{
    int64_t sums[CAUSE_COUNT + 1] = {0}, all = 0;
    uint32_t counts[CAUSE_COUNT + 1] = {0};
    enum cause best = CAUSE_MMAP_LOCK;
    uint32_t last,
            first = parts_range(
                    why->work, why->ranks->rows[index].thread, why->begin, why->end, &last);
    for (uint32_t k = first; k < last; k++) {
        const struct part *part = &why->work->parts[k];
        if (part->via != VIA_MMAP_LOCK)
            continue;
        int64_t ns = parts_overlap(part->begin, part->end, why->begin, why->end);
        all += ns;
        sums[part->cause] += ns;
        counts[part->cause] += ns > 0;
        if (sums[part->cause] > sums[best])
            best = (enum cause)part->cause;
    }
    return groups_deed_known(counts[best], sums[best], all) ? best : CAUSE_MMAP_LOCK;
}

// Waits below the threshold, such as each of many reads of a fast disk.
static void why_short_causes(struct why *why, size_t late, double *sums)
{
    const struct trace *trace = why->ranks->trace;
    enum cause deed = why_mmap_deed(why, late);
    for (size_t i = 0; i < trace->short_count; i++) {
        const struct trace_gap *gap = &trace->shorts[i];
        uint32_t row = why->ranks->short_rows[i];
        enum cause cause = row != TRACE_NONE && gap->out >= why->begin && gap->in <= why->end
                ? classify_alone(trace, gap)
                : CAUSE_COUNT;
        cause = cause == CAUSE_MMAP_LOCK ? deed : cause;
        if (cause >= CAUSE_COUNT)
            continue;
        double more = (double)trace->short_ns *
                (row == late ? 1 : -1 / (double)(why->ranks->row_count - 1));
        sums[cause] += more;
        why->cause_slept += more;
    }
}

// How long the others waited for a CPU, in the mean; what that made of each ns of theirs on it. Who
// computes more waits more: only what is beyond that is done to it.
static double why_queue(struct why *why, size_t late)
{
    const struct trace *trace = why->ranks->trace;
    double queued = 0, ran = 0, others = (double)(why->ranks->row_count - 1);
    for (size_t i = 0; i < why->ranks->row_count; i++) {
        uint32_t thread = why->ranks->rows[i].thread, last,
                 first = parts_range(why->work, thread, why->begin, why->end, &last);
        if (i == late)
            continue;
        ran += (double)trace_ran_ns(trace, thread, why->begin, why->end) / others;
        for (uint32_t k = first; k < last; k++) {
            const struct part *part = &why->work->parts[k];
            if (part->cause == CAUSE_CPU_CONTENTION && why_counts(trace, part))
                queued += (double)parts_overlap(part->begin, part->end, why->begin, why->end) /
                        others;
        }
    }
    double own = (double)trace_ran_ns(trace, why->ranks->rows[late].thread, why->begin, why->end);
    why->dear = ran > 0 ? 1 + queued / ran : 1;
    return ran > 0 && own > ran ? queued * own / ran : queued;
}

void why_causes(struct why *why, struct late_rank *straggler)
{
    const struct trace *trace = why->ranks->trace;
    double sums[CAUSE_COUNT] = {0}, best = 0;
    size_t others = why->ranks->row_count - 1;
    sums[CAUSE_CPU_CONTENTION] = -why_queue(why, straggler->row);
    for (size_t i = 0; i < why->ranks->row_count; i++) {
        bool late = i == straggler->row;
        uint32_t last,
                first = parts_range(
                        why->work, why->ranks->rows[i].thread, why->begin, why->end, &last);
        for (uint32_t k = first; k < last; k++) {
            const struct part *part = &why->work->parts[k];
            double ns = (double)parts_overlap(part->begin, part->end, why->begin, why->end);
            if (!why_counts(trace, part) || (part->cause == CAUSE_CPU_CONTENTION && !late))
                continue;
            double more = (late ? ns : -ns / (double)others) *
                    (part->split == SPLIT_ON_CPU ? why->dear : 1);
            sums[part->cause] += more;
            why->cause_ran += part->split == SPLIT_ON_CPU ? more : 0;
            why->cause_slept += part->split == SPLIT_BLOCKED ? more : 0;
        }
    }
    why_short_causes(why, straggler->row, sums);
    for (int i = 0; i < CAUSE_COUNT; i++) {
        why->causes += sums[i];
        if (sums[i] > best) {
            best = sums[i];
            straggler->cause = (enum cause)i;
        }
    }
    straggler->deed_ns = (int64_t)best;
}

// The cause stands where nothing else is more of the lateness: not computing, nor waiting for what
// has no cause, nor what was not seen.
void why_decide(const struct why *why, struct late_rank *straggler)
{
    double computing = why->ran * why->dear - why->cause_ran,
           waiting = why->slept - why->cause_slept, best = (double)straggler->deed_ns;
    double unseen = (double)straggler->excess_ns - why->causes - computing - waiting;
    if (best < computing || best < waiting || best < unseen)
        straggler->cause = CAUSE_COUNT;
    why_culprit(why, straggler);
}
