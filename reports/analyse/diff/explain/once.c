// SPDX-License-Identifier: Apache-2.0
// What each traced launch has once: its first step, its CPU time. The steps' machinery is run over
// trees of one window a launch: alignment, groups, scaled to the untraced launches. One value a
// launch gives no interval worth the name: what is told is what is larger (or smaller) on the
// candidate in every launch, and its values stand beside it. Reads launches; one owner thread.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/path/gpu_path.h"

enum { ONCE_PARTS_MAX = 10, ONCE_PLACES_MAX = 16, ONCE_LAUNCHES_MAX = 16 };

// Scaled time of a contribution of each launch that has both sides.
static void once_values(const struct diff_compared *compared, const struct diff_launches *launches,
        const struct diff_contribution *contribution, double *ret[2], size_t *ret_count)
{
    const struct diff_units *units = compared->units;
    double *ns[2] = {
            xcalloc(units->count + 1, sizeof **ns), xcalloc(units->count + 1, sizeof **ns)};
    for (size_t i = 0; i < contribution->group_count; i++)
        diff_groups_add(
                compared, launches, &compared->alignment->groups[contribution->groups[i]], ns);
    size_t count = 0;
    for (size_t i = 0; i < units->count && count < ONCE_LAUNCHES_MAX; i++) {
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

bool diff_launches_apart(double *const values[2], size_t count, double delta, bool wide)
{
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < count; i++) {
            least[side] = fmin(least[side], values[side][i]);
            most[side] = fmax(most[side], values[side][i]);
        }
    double between = delta > 0 ? least[1] - most[0] : least[0] - most[1];
    return count > 1 && between > (wide ? fmax(most[0] - least[0], most[1] - least[1]) : 0);
}

static int once_part_compare(const void *left, const void *right)
{
    const struct diff_launch_part *a = left, *b = right;
    double x = fabs(a->contribution.delta_ns), y = fabs(b->contribution.delta_ns);
    return x > y ? -1 : x < y ? 1 : a->contribution.rank - b->contribution.rank;
}

size_t diff_launch_parts(const json_t *differences, const struct diff_compared *compared,
        const struct diff_group *groups, struct diff_launch_part *parts, size_t count)
{
    qsort(parts, count, sizeof *parts, once_part_compare);
    count = count < ONCE_PARTS_MAX ? count : ONCE_PARTS_MAX;
    for (size_t i = 0; i < count; i++) {
        struct diff_contribution *made = &parts[i].contribution;
        made->rank = (int)i + 1;
        made->named = true;
        made->ci_lo_ns = made->ci_hi_ns = NAN;
        if (!made->suspect_count)
            diff_suspects(differences, compared, made, groups);
    }
    return count;
}

static void once_parts(const json_t *differences, const struct diff_compared *compared,
        const struct diff_contributed *made, struct diff_once *ret)
{
    const double delta_ns = compared->untraced->delta, floor = DIFF_PART_MIN * fabs(delta_ns);
    struct diff_launch_part *parts = arena_alloc(compared->arena, made->count + 1, sizeof *parts);
    size_t count = 0;
    for (size_t i = 0; i < made->count; i++) {
        struct diff_launch_part part = {.contribution = made->contributions[i]};
        if (fabs(part.contribution.delta_ns) < floor || part.contribution.delta_ns * delta_ns < 0)
            continue; // small, or against what is to be explained
        for (int side = 0; side < 2; side++)
            part.launch_ns[side] = arena_alloc(compared->arena, ONCE_LAUNCHES_MAX, sizeof(double));
        once_values(
                compared, made->launches, &part.contribution, part.launch_ns, &part.launch_count);
        if (diff_launches_apart(
                    part.launch_ns, part.launch_count, part.contribution.delta_ns, true))
            parts[count++] = part;
    }
    ret->parts = parts;
    ret->part_count = diff_launch_parts(differences, compared, made->groups, parts, count);
}

// The outermost node above a leaf: its phase, or its thread.
static uint32_t once_outermost(const struct cost_tree *tree, uint32_t node)
{
    while (node != 0 && tree->nodes[node].parent != 0 && tree->nodes[node].parent != COST_NONE)
        node = tree->nodes[node].parent;
    return node;
}

static int once_place_compare(const void *left, const void *right)
{
    const struct diff_once_place *a = left, *b = right;
    double x = fabs(a->b_ns - a->a_ns), y = fabs(b->b_ns - b->a_ns);
    return x > y ? -1 : x < y ? 1 : strcmp(a->name, b->name);
}

// As they come; of more than are told those that differ most, and the others together. Takes
// places.
static void once_places_keep(
        struct arena *arena, struct diff_once_place *places, size_t count, struct diff_once *ret)
{
    size_t kept = count < ONCE_PLACES_MAX ? count : ONCE_PLACES_MAX;
    if (count > kept)
        qsort(places, count, sizeof *places, once_place_compare);
    ret->phases = arena_alloc(arena, ONCE_PLACES_MAX + 1, sizeof *ret->phases);
    for (size_t i = 0; i < kept; i++) {
        ret->phases[i] = places[i];
        ret->phases[i].name = arena_copy(arena, places[i].name);
    }
    ret->phase_count = kept;
    if (count > kept) {
        struct diff_once_place *others = &ret->phases[ret->phase_count++];
        *others = (struct diff_once_place){.others = count - kept};
        for (size_t i = kept; i < count; i++) {
            others->a_ns += places[i].a_ns;
            others->b_ns += places[i].b_ns;
        }
    }
    free(places);
}

static void once_places(const struct diff_compared *compared, struct diff_once *ret)
{
    struct intern *names = intern_new();
    struct diff_once_place *places = NULL; // by number of the name
    size_t count = 0;
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = compared->trees[side];
        double factor = compared->units->scale[side] / compared->units->total_steps[side];
        uint32_t *place_of = xcalloc(tree->node_count + 1, sizeof *place_of); // and 1
        for (size_t r = 0; r < tree->row_count; r++) {
            const struct cost_row *row = &tree->rows[r];
            uint32_t node = once_outermost(tree, row->node);
            const char *name = tree->nodes[node].kind == COST_PHASE ? tree->nodes[node].name : NULL;
            if (!name || compared->units->of_window[side][row->window] == UINT32_MAX)
                continue;
            if (!place_of[node])
                place_of[node] = intern_text(names, name) + 1;
            if (place_of[node] > count)
                vector_push(places, count,
                        (struct diff_once_place){.name = intern_get(names, place_of[node] - 1)});
            struct diff_once_place *place = &places[place_of[node] - 1];
            *(side ? &place->b_ns : &place->a_ns) += factor * (double)row->ns;
        }
        free(place_of);
    }
    once_places_keep(compared->arena, places, count, ret);
    intern_free(names);
}

static void once_compare(
        const struct diff_input *input, const struct diff_compared *compared, struct diff_once *ret)
{
    struct diff_contributed made;
    diff_contributions(input->differences, compared, &made);
    once_parts(input->differences, compared, &made, ret);
    once_places(compared, ret);
    ret->pairs = compared->units->pairs;
    diff_contributed_clear(&made);
}

// From trees of a window of couple 0 a launch; of: of both sides, b - a within lo and hi.
static void once_explain(const struct diff_input *input, enum diff_subject subject,
        const struct diff_untraced_once *of, bool has_gpu, struct diff_once *ret)
{
    const struct diff_untraced untraced = {
            .unit = subject == DIFF_SUBJECT_FIRST ? "first step" : "CPU time",
            .step = {of->of[0], of->of[1]},
            .delta = of->of[1] - of->of[0],
            .lo = of->lo,
            .hi = of->hi,
            .mean = true}; // each counts, however long it took
    if (!ret->trees[0]->window_count || !ret->trees[1]->window_count) {
        ret->why_not = DIFF_ONCE_NOT_TRACED;
        return;
    }
    struct diff_units units;
    struct diff_compared compared = {.arena = input->arena,
            .subject = subject,
            .trees = {ret->trees[0], ret->trees[1]},
            .untraced = &untraced,
            .units = &units,
            .has_gpu = has_gpu,
            .places = diff_places_new(input->arena, ret->trees[0], ret->trees[1])};
    for (int side = 0; side < 2; side++) {
        compared.first[side] = cost_tree_finish(ret->trees[side]);
        diff_take_foreign(ret->trees[side]);
    }
    if (diff_units_make(compared.trees, &untraced, &units)) {
        const struct align_opts opts = {.ignore_names = input->opts->ignore_names};
        struct alignment *alignment = align_trees(ret->trees[0], ret->trees[1], &opts);
        compared.alignment = alignment;
        once_compare(input, &compared, ret);
        alignment_free(alignment);
    }
    if (!ret->pairs)
        ret->why_not = DIFF_ONCE_NO_PAIR;
    else if (!ret->part_count)
        ret->why_not = ret->pairs == 1 ? DIFF_ONCE_ONE_LAUNCH : DIFF_ONCE_NOT_ALIKE;
    diff_units_clear(&units);
}

// ---- the first step ----

// Told from 0, and from the difference of all other steps: what those spend more is explained
// there.
bool diff_first_wanted(const struct diff_untraced *of)
{
    double lo = isfinite(of->lo) ? of->lo : of->delta, hi = isfinite(of->hi) ? of->hi : of->delta;
    return of->cold.lo * of->cold.hi > 0 && !(of->cold.lo <= hi && of->cold.hi >= lo);
}

// The first step of a rank, if it is the launch's first one and lies in what was recorded. Steps
// are by rank: *step goes on from where the rank before was found.
static bool first_window(
        const struct launch_trace *trace, uint32_t rank, size_t *step, struct launch_window *ret)
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
    // the same launch, of which only the first steps are looked at
    struct launch_trace first = *trace;
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
        host_path_elsewhere(host);
        host_path_free(host);
    }
    free(first.windows);
    free(first.ranks);
}

void diff_first(const struct diff_input *input, const struct diff_untraced *untraced, bool has_gpu,
        struct diff_once *ret)
{
    if (ret->trees[0])
        once_explain(input, DIFF_SUBJECT_FIRST, &untraced->cold, has_gpu, ret);
}

// ---- CPU time ----
// The ticks of all threads and processes of the target, whether a step waits for them or not (a
// pool that spins between two loops, a worker that computes).

// Told from 0, and by another factor than the step, by its estimate: a step that is measured badly
// hides nothing. The time that a step takes more is CPU time, too, and is explained with it; where
// most of the CPU time is not that, an interval that is wide enough for it hides nothing either.
bool diff_cpu_wanted(const struct diff_untraced *of)
{
    double as_step = of->delta / of->step[0] * of->cpu.of[0], delta = of->cpu.of[1] - of->cpu.of[0];
    bool as_much = of->cpu.lo <= as_step && as_step <= of->cpu.hi &&
            fabs(delta - as_step) <= fabs(delta) / 2;
    return of->cpu.lo * of->cpu.hi > 0 && !as_much;
}

void diff_cpu_add(const struct launch_trace *trace, struct cost_tree *tree)
{
    if (!trace->host_work || !trace->rank_count)
        return;
    // the same launch without its calls, of which there are ten millions
    struct launch_trace ticks = *trace;
    ticks.call_count = 0;
    struct host_path *host = host_path_new(&ticks, tree);
    uint32_t window = cost_tree_window(
            tree, &(struct cost_window){.pair = trace->pair, .couple = 0, .steps = 1});
    int64_t cpu_ns = host_path_cpu(host, window);
    tree->windows[window].wall_ns = cpu_ns;
    host_path_free(host);
}

void diff_cpu(const struct diff_input *input, const struct diff_untraced *untraced, bool has_gpu,
        struct diff_once *ret)
{
    if (!ret->trees[0])
        return;
    once_explain(input, DIFF_SUBJECT_CPU, &untraced->cpu, has_gpu, ret);
    // the first one says the times again, as those of a step
    for (size_t i = 0; i < ret->part_count; i++) {
        struct diff_contribution *made = &ret->parts[i].contribution;
        if (!made->evidence_count)
            continue;
        made->evidence++;
        made->evidence_count--;
    }
}
