// SPDX-License-Identifier: Apache-2.0
// What made the first step longer or shorter. Every traced launch has one, so the trees are made of the first steps alone; once.c
// explains them, scaled to the first step of the untraced launches. Reads launches; one owner thread.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/path/gpu_path.h"
#include "reports/analyse/diff/path/host_path.h"

// Told from 0, and from the difference of all other steps: what those spend more is explained there.
bool diff_first_wanted(const struct diff_job *job)
{
    const struct diff_untraced *of = &job->untraced;
    double lo = isfinite(of->lo) ? of->lo : of->delta, hi = isfinite(of->hi) ? of->hi : of->delta;
    return of->cold.lo * of->cold.hi > 0 && !(of->cold.lo <= hi && of->cold.hi >= lo);
}

// The first step of a rank, if it is the launch's first one and lies in what was recorded. Steps are
// by rank: *step goes on from where the rank before was found.
static bool first_window(const struct launch_trace *trace, uint32_t rank, size_t *step,
                         struct launch_window *ret)
{
    while (*step < trace->step_count && trace->steps[*step].rank < rank)
        (*step)++;
    if (*step == trace->step_count || trace->steps[*step].rank != rank)
        return false;
    const struct launch_step *first = &trace->steps[*step];
    if (first->idx != 0 || first->end <= first->begin)
        return false;
    bool recorded = false;
    for (size_t i = 0; i < trace->cold_count; i++)
        recorded |= trace->cold[i].rank == rank && trace->cold[i].first_step == 0;
    for (size_t i = 0; i < trace->window_count; i++)
        recorded |= trace->windows[i].rank == rank && trace->windows[i].first_step == 0;
    *ret = (struct launch_window){first->begin, first->end, rank, 0, 1, 0};
    return recorded;
}

void diff_first_add(const struct launch_trace *trace, struct cost_tree *tree)
{
    if (!trace->has_steps)
        return;
    struct launch_trace first = *trace; // the same launch, of which only the first steps are looked at
    first.windows = xcalloc(trace->rank_count + 1, sizeof *first.windows);
    first.ranks = xcalloc(trace->rank_count + 1, sizeof *first.ranks);
    first.window_count = 0;
    size_t step = 0;
    for (uint32_t rank = 0; rank < trace->rank_count; rank++) {
        first.ranks[rank] = trace->ranks[rank];
        first.ranks[rank].window_first = (uint32_t)first.window_count;
        first.ranks[rank].window_count =
            first_window(trace, rank, &step, &first.windows[first.window_count]);
        first.window_count += first.ranks[rank].window_count;
    }
    if (first.window_count) {
        struct host_path *host = host_path_new(&first, tree);
        launch_path_add(&first, host, tree);
        host_path_free(host);
    }
    free(first.windows);
    free(first.ranks);
}

void diff_first(struct diff_job *job)
{
    const struct diff_untraced *of = &job->untraced;
    if (job->workload->first.trees[0])
        diff_once(job, "first step", &of->cold, &job->workload->first);
}
