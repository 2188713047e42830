// SPDX-License-Identifier: Apache-2.0
// Whether the difference is one rank that comes late. The others wait for it in their collectives,
// so what shows as their exposed communication is that rank's doing: it is said first, with what
// the rank did meanwhile. No time is added or moved: contributions sum as they did. Pure.
#include <math.h>
#include <string.h>

#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/thresholds.h"

static bool late_mostly(const struct diff_straggler *last)
{
    double count = (double)last->collectives, error = sqrt(late_most * (1 - late_most) / count);
    return count > 0 && (double)last->last_count / count > late_most + late_errors * error;
}

// The very thing that the rank did longer: of its side, by the name that both have from the trace.
static bool late_is_cause(
        const struct diff_contribution *contribution, const struct diff_straggler *last)
{
    const char *name = last->side ? contribution->name_b : contribution->name_a;
    return name && last->why_name && strcmp(name, last->why_name) == 0;
}

// What the others wait more for it than for the same rank of the other side, untraced.
static double late_wait(const struct diff_workload *workload, const struct diff_straggler *last)
{
    const struct diff_straggler *before = diff_straggler_of(
            workload->stragglers, workload->straggler_count, !last->side, last->rank);
    double wait = last->wait_ns / workload->traced_ratio[last->side];
    return wait - (before ? before->wait_ns / workload->traced_ratio[!last->side] : 0);
}

// The wait for the rank, or what it does longer than the others, among what is named; NULL: neither
// is as large as half of the largest.
static struct diff_contribution *late_contribution(
        const struct diff_workload *workload, const struct diff_straggler *last)
{
    double sign = workload->delta_ns, largest = 0;
    for (size_t i = 0; i < workload->contribution_count && workload->contributions[i].named; i++) {
        struct diff_contribution *contribution = &workload->contributions[i];
        if (contribution->delta_ns * sign <= 0)
            continue;
        largest = largest > 0 ? largest : fabs(contribution->delta_ns);
        if (fabs(contribution->delta_ns) < late_half * largest)
            return NULL;
        bool wait = contribution->kind == DIFF_COMM_EXPOSED || late_is_cause(contribution, last);
        // It may come last as often on the other side, by next to nothing: what counts is the wait.
        if (wait && late_wait(workload, last) >= late_half * fabs(contribution->delta_ns))
            return contribution;
    }
    return NULL;
}

void diff_late(struct arena *arena, struct diff_workload *workload)
{
    if (!(workload->delta_lo_ns * workload->delta_hi_ns > 0))
        return;
    int side = workload->delta_ns > 0; // who got slower has the late rank
    const struct diff_straggler *last = NULL;
    for (size_t i = 0; i < workload->straggler_count; i++) {
        const struct diff_straggler *one = &workload->stragglers[i];
        if (one->side == side && (!last || one->last_count > last->last_count))
            last = one;
    }
    struct diff_contribution *contribution =
            last && late_mostly(last) ? late_contribution(workload, last) : NULL;
    if (!contribution)
        return;
    workload->late = last;
    diff_straggler_of(workload->stragglers, workload->straggler_count, last->side, last->rank)
            ->told = true; // it is the difference
    if (contribution->evidence_count < DIFF_EVIDENCE_MAX) {
        struct diff_evidence *evidence =
                arena_alloc(arena, contribution->evidence_count + 1, sizeof *evidence);
        evidence[0] = (struct diff_evidence){.kind = DIFF_EVIDENCE_LATE_RANK, .late = last};
        for (size_t i = 0; i < contribution->evidence_count; i++)
            evidence[i + 1] = contribution->evidence[i];
        contribution->evidence = evidence;
        contribution->evidence_count++;
    }
    // They wait for a rank: no version of what carries the collective is to blame.
    if (contribution->kind == DIFF_COMM_EXPOSED)
        contribution->suspect_count = 0;
}
