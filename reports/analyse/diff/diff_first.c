// SPDX-License-Identifier: Apache-2.0
// What made the first step longer or shorter. Every traced launch has one, so the steps' machinery is
// run over the first steps alone: trees, alignment, groups, scaled to the first step of the untraced
// launches. One step a launch gives no interval worth the name: what is told is what is larger (or
// smaller) on the candidate in every launch, and its values stand beside it. Reads launches; one
// owner thread.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/diff_job.h"
#include "reports/analyse/diff/path/gpu_path.h"
#include "reports/analyse/diff/path/host_path.h"

enum { FIRST_PARTS_MAX = 10, FIRST_PHASES_MAX = 16, FIRST_LAUNCHES_MAX = 16 };

// Of the difference of the first step: of two launches a side one part in three lies apart by
// chance, and what is smaller explains nothing.
static const double first_part_min = 0.05;

// Told from 0, and from the difference of all other steps: what those spend more is explained there.
bool diff_first_wanted(const struct diff_job *job)
{
    const struct diff_untraced *of = &job->untraced;
    double lo = isfinite(of->lo) ? of->lo : of->delta, hi = isfinite(of->hi) ? of->hi : of->delta;
    return of->cold_lo * of->cold_hi > 0 && !(of->cold_lo <= hi && of->cold_hi >= lo);
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

// Scaled time of a contribution in the first step of each launch that has both sides.
static void first_values(const struct diff_job *job, const struct diff_contribution *contribution,
                         double *ret[2], size_t *ret_count)
{
    const struct diff_units *units = &job->units;
    double *ns[2] = {xcalloc(units->count + 1, sizeof **ns),
                     xcalloc(units->count + 1, sizeof **ns)};
    for (size_t i = 0; i < contribution->group_count; i++)
        diff_groups_add(job, &job->workload->alignment->groups[contribution->groups[i]], ns);
    size_t count = 0;
    for (size_t i = 0; i < units->count && count < FIRST_LAUNCHES_MAX; i++) {
        const struct diff_unit *unit = &units->units[i];
        if (unit->steps[0] <= 0 || unit->steps[1] <= 0)
            continue;
        for (int side = 0; side < 2; side++)
            ret[side][count] = units->scale[side] * ns[side][i] / unit->steps[side];
        count++;
    }
    *ret_count = count;
    free(ns[0]);
    free(ns[1]);
}

// Every launch of one side takes more than every launch of the other, by more than the launches of
// either side lie apart. One launch a side says nothing of that.
static bool first_apart(double *const values[2], size_t count, double delta)
{
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < count; i++) {
            least[side] = fmin(least[side], values[side][i]);
            most[side] = fmax(most[side], values[side][i]);
        }
    double between = delta > 0 ? least[1] - most[0] : least[0] - most[1];
    return count > 1 && between > fmax(most[0] - least[0], most[1] - least[1]);
}

int diff_launch_part_compare(const void *left, const void *right)
{
    const struct diff_launch_part *a = left, *b = right;
    double x = fabs(a->contribution.delta_ns), y = fabs(b->contribution.delta_ns);
    return x > y ? -1 : x < y ? 1 : a->contribution.rank - b->contribution.rank;
}

static void first_parts(struct diff_job *job, struct diff_first *ret)
{
    const struct diff_workload *workload = job->workload;
    struct diff_launch_part *parts =
        arena_alloc(job->arena, workload->contribution_count + 1, sizeof *parts);
    double floor = first_part_min * fabs(workload->delta_ns);
    size_t count = 0;
    for (size_t i = 0; i < workload->contribution_count; i++) {
        struct diff_launch_part part = {.contribution = workload->contributions[i]};
        if (fabs(part.contribution.delta_ns) < floor ||
            part.contribution.delta_ns * workload->delta_ns < 0)
            continue; // small, or against what is to be explained
        for (int side = 0; side < 2; side++)
            part.launch_ns[side] = arena_alloc(job->arena, FIRST_LAUNCHES_MAX, sizeof(double));
        first_values(job, &part.contribution, part.launch_ns, &part.launch_count);
        if (first_apart(part.launch_ns, part.launch_count, part.contribution.delta_ns))
            parts[count++] = part;
    }
    qsort(parts, count, sizeof *parts, diff_launch_part_compare);
    ret->parts = parts;
    ret->part_count = count < FIRST_PARTS_MAX ? count : FIRST_PARTS_MAX;
    struct diff_group *groups = xcalloc(workload->alignment->count + 1, sizeof *groups);
    diff_groups_make(job, groups);
    for (size_t i = 0; i < ret->part_count; i++) {
        struct diff_contribution *made = &parts[i].contribution;
        made->rank = (int)i + 1;
        made->named = true;
        made->ci_lo_ns = made->ci_hi_ns = NAN;
        if (!made->suspect_count)
            diff_suspects(job, made, groups);
    }
    free(groups);
}

// The outermost place of a leaf: its phase.
static const char *first_phase_of(const struct cost_tree *tree, uint32_t node)
{
    while (node != 0 && node != COST_NONE && tree->nodes[node].parent != 0 &&
           tree->nodes[node].parent != COST_NONE)
        node = tree->nodes[node].parent;
    return tree->nodes[node].kind == COST_PHASE ? tree->nodes[node].name : NULL;
}

static void first_phases(struct diff_job *job, struct diff_first *ret)
{
    struct diff_first_phase *phases =
        arena_alloc(job->arena, FIRST_PHASES_MAX + 1, sizeof *phases);
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = job->workload->trees[side];
        double factor = job->units.scale[side] / job->units.total_steps[side];
        for (size_t r = 0; r < tree->row_count; r++) {
            const struct cost_row *row = &tree->rows[r];
            const char *name = first_phase_of(tree, row->node);
            size_t at = 0;
            if (!name || job->units.of_window[side][row->window] == UINT32_MAX)
                continue;
            while (at < ret->phase_count && strcmp(phases[at].name, name) != 0)
                at++;
            if (at == FIRST_PHASES_MAX)
                continue;
            if (at == ret->phase_count)
                phases[ret->phase_count++].name = arena_copy(job->arena, name);
            *(side ? &phases[at].b_ns : &phases[at].a_ns) += factor * (double)row->ns;
        }
    }
    ret->phases = phases;
}

// The steps' job, of the first steps.
static void first_job(const struct diff_job *job, struct diff_workload *workload,
                      struct diff_job *ret)
{
    const struct diff_untraced *of = &job->untraced;
    *workload = (struct diff_workload){.name = job->workload->name,
                                       .unit = "first step",
                                       .step_a_ns = of->cold[0],
                                       .step_b_ns = of->cold[1],
                                       .delta_ns = of->cold[1] - of->cold[0],
                                       .delta_lo_ns = of->cold_lo,
                                       .delta_hi_ns = of->cold_hi};
    *ret = *job;
    ret->workload = workload;
    ret->untraced = (struct diff_untraced){.unit = "first step",
                                           .step = {of->cold[0], of->cold[1]},
                                           .delta = workload->delta_ns,
                                           .lo = of->cold_lo,
                                           .hi = of->cold_hi,
                                           .mean = true, // each counts, however long it took
                                           .cold = {NAN, NAN},
                                           .cold_lo = NAN,
                                           .cold_hi = NAN};
    ret->units = (struct diff_units){0};
    ret->note_count = 0;
    ret->single = true;
    memset(ret->parallel, 0, sizeof ret->parallel);
    for (int side = 0; side < 2; side++) {
        workload->trees[side] = job->workload->first.trees[side];
        ret->first[side] = cost_tree_finish(workload->trees[side]);
        ret->place_names[side] = NULL;
        ret->trunk[side] = NULL;
        diff_take_foreign(workload->trees[side]);
    }
}

void diff_first(struct diff_job *job)
{
    struct diff_first *ret = &job->workload->first;
    struct diff_workload workload;
    struct diff_job first;
    if (!ret->trees[0])
        return;
    if (!ret->trees[0]->window_count || !ret->trees[1]->window_count) {
        ret->why_not = "the first steps are not in the traces";
        return;
    }
    first_job(job, &workload, &first);
    if (diff_units_make(&first)) {
        const struct align_opts opts = {.ignore_names = job->opts->ignore_names};
        workload.alignment = align_trees(workload.trees[0], workload.trees[1], &opts);
        diff_contribute(&first);
        first_parts(&first, ret);
        first_phases(&first, ret);
        ret->pairs = first.units.pairs;
        alignment_free(workload.alignment);
    }
    if (!ret->pairs)
        ret->why_not = "no pair of traced launches has both first steps";
    else if (!ret->part_count)
        ret->why_not = ret->pairs == 1 ? "one traced launch a side does not tell which part of it differs"
                                       : "no part of it differs in all traced launches alike";
    diff_units_clear(&first.units);
}
