// SPDX-License-Identifier: Apache-2.0
// The ranks that came last, of all traced launches of a side, and which of them are no noise: some
// rank always comes last. Pure but for the launches it is given.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/explain/stragglers.h"
#include "reports/analyse/diff/thresholds.h"

enum { STRAGGLERS_MAX = 8 };

struct diff_straggler *diff_straggler_of(
        struct diff_straggler *all, size_t count, int side, int32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (all[i].side == side && all[i].rank == rank)
            return &all[i];
    return NULL;
}

static int32_t stragglers_rank(const struct launch_trace *trace, uint32_t index)
{
    return index < trace->rank_count ? trace->ranks[index].rank : (int32_t)index;
}

static void stragglers_first(struct arena *arena, const struct launch_trace *trace,
        const struct straggler *found, size_t count, struct diff_stragglers *to)
{
    struct diff_straggler *all = arena_alloc(arena, to->count + count + 1, sizeof *all);
    for (size_t i = 0; i < to->count; i++)
        all[i] = to->all[i];
    for (size_t i = 0; i < count; i++)
        all[to->count + i] = (struct diff_straggler){
                .rank = stragglers_rank(trace, found[i].rank),
                .side = trace->side,
                .last_count = found[i].last_count,
                .collectives = found[i].collectives,
                .late_ns = (double)found[i].late_ns_mean,
                .wait_ns = (double)found[i].wait_ns_step,
                .exposed_ns = (double)found[i].exposed_ns_step,
                .deed = found[i].deed,
                .why = arena_copy(arena, found[i].why),
                .why_name = arena_copy(arena, found[i].why_name),
                .why_ns = found[i].why_ns_step > 0 ? (double)found[i].why_ns_step : NAN,
        };
    to->all = all;
    to->count += count;
}

void diff_stragglers_add(struct arena *arena, const struct launch_trace *trace,
        struct cost_tree *tree, struct diff_stragglers *to)
{
    bool first = true;
    for (size_t i = 0; i < to->count; i++)
        first &= to->all[i].side != trace->side;
    // Every rank of the later launches: one that is told must have been late in all of them.
    struct straggler *found = xcalloc(trace->rank_count + STRAGGLERS_MAX, sizeof *found);
    size_t count =
            stragglers_find(trace, tree, first, found, first ? STRAGGLERS_MAX : trace->rank_count);
    if (first)
        stragglers_first(arena, trace, found, count, to);
    for (size_t i = 0; i < count; i++) {
        struct diff_straggler *of = diff_straggler_of(
                to->all, to->count, trace->side, stragglers_rank(trace, found[i].rank));
        if (!of)
            continue;
        of->launches++;
        of->ahead += found[i].excess > 0;
        of->excess += found[i].excess;
        of->variance += found[i].variance;
        of->cost_ns += ((double)found[i].exposed_ns_step - of->cost_ns) / (double)of->launches;
    }
    free(found);
}

// More often than on the other side, and it costs more than there: of a rank whose share is small.
static bool stragglers_differ(
        const struct diff_straggler *one, const struct diff_straggler *other, double cost)
{
    double launches = (double)one->launches, of_other = other ? (double)other->launches : 1;
    double more = one->excess / launches - (other ? other->excess / of_other : 0);
    double variance = one->variance / launches / launches +
            (other ? other->variance / of_other / of_other : 0);
    return more > stragglers_errors * sqrt(variance) &&
            one->cost_ns - (other ? other->cost_ns : 0) >= cost;
}

void diff_stragglers_judge(struct diff_workload *workload)
{
    for (size_t i = 0; i < workload->straggler_count; i++) {
        struct diff_straggler *one = &workload->stragglers[i];
        double step = one->side ? workload->step_b_ns : workload->step_a_ns;
        double cost = stragglers_cost * step * workload->traced_ratio[one->side];
        // one launch where the machine favours a rank is none
        bool often = one->ahead == one->launches &&
                one->excess > stragglers_errors * sqrt(one->variance);
        bool differs = one->ahead == one->launches &&
                stragglers_differ(one,
                        diff_straggler_of(workload->stragglers, workload->straggler_count,
                                !one->side, one->rank),
                        cost);
        one->told = one->launches > 0 && (often || differs) && one->cost_ns >= cost;
    }
}
