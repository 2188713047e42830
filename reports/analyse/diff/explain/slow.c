// SPDX-License-Identifier: Apache-2.0
// What rare slow steps (every 20th, a checkpoint, a collection) have that the typical steps of the
// same launch have not, and what the slowest requests did that the others did not. No other part
// tells it: the middle of the steps passes over them. The windows of each traced launch are divided
// by the gate's own rule (slow_steps.h); the steps' machinery, with the alignment that there is, is
// run over the slow ones, and each part of them counts by what it takes beyond its mean in typical
// ones. Slow steps are few and differ in number from launch to launch, which leaves no interval
// worth the name. That the sides differ the gate has told from many untraced launches; of the
// traced ones it is asked that every one of a side lies beyond every one of the other, part by
// part. Where they overlap in sum, as on a busy machine, a part has to lie beyond by more than its
// own spread, and the gate's way. Reads the cells; one owner thread.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "contracts/metrics.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/slow_steps.h"

enum { SLOW_LAUNCHES_TOLD = 16 };
enum { SLOW_TYPICAL, SLOW_SLOW, SLOW_CLASSES, SLOW_NEITHER = SLOW_CLASSES }; // of a window

struct slow_launch {                                // the launch of a side in a pair
    double steps[SLOW_CLASSES], wall[SLOW_CLASSES]; // of its windows, over all ranks
    double longest;                                 // what the steps of its slowest rank take
    struct slow_steps found;                        // of that rank
};

struct slow {
    struct diff_compared compared; // all steps' trees, with the units of the slow windows
    struct diff_untraced untraced;
    struct diff_units units;
    struct diff_contributed made;      // of the slow windows
    const struct diff_launches *moves; // of those and of typical ones
    struct diff_slow *told;
    uint8_t *class[2];               // of each window
    struct slow_launch *launches[2]; // of each pair
    bool *both;                      // of each pair: it has typical steps of both sides
    uint32_t pairs;                  // indices of pairs are below it
    size_t pair_count;               // of both
};

// --- who asks ------------------------------------------------------------------------------------

static bool slow_failed(const struct diff_cell *cell)
{
    return cell->gates && cell->fails;
}

static bool slow_open(const struct diff_cell *cell)
{
    return cell->gates && (cell->fails || cell->inconclusive);
}

static bool slow_from_0(const struct diff_cell *cell)
{
    return cell->lo > 1 || cell->hi < 1;
}

// The mean step fails wherever the typical one does, and p99 where the median does: that is
// explained with the typical step. Such a cell asks where it says more than the typical one.
static bool slow_asks(const struct diff_cell *cell, const struct diff_cell *typical)
{
    double usual = isfinite(typical->ratio) ? typical->ratio : 1;
    bool beyond = cell->lo > usual || cell->hi < usual;
    bool alone =
            slow_open(cell) && !(slow_failed(cell) ? slow_failed(typical) : slow_open(typical));
    return alone || (slow_from_0(cell) && beyond);
}

// Those that fail first. sign: which way the gate has told the candidate to be; 0: not told.
static bool slow_asked(const struct diff_cell *cells, struct diff_slow *told, double *ret_sign)
{
    const struct diff_cell none = {.ratio = NAN, .lo = NAN, .hi = NAN};
    const struct diff_cell *step = &cells[METRIC_STEP_TIME], *request = &cells[METRIC_LATENCY_P50];
    const struct {
        enum metric_id metric;
        const struct diff_cell *typical;
    } asking[] = {{METRIC_SLOW_STEPS, &none},
            {METRIC_MEAN_STEP_TIME, isfinite(step->ratio) ? step : request},
            {METRIC_LATENCY_P99, isfinite(request->ratio) ? request : step}};
    const size_t count = sizeof asking / sizeof *asking;
    for (size_t i = 0; i < 2 * count; i++) {
        enum metric_id metric = asking[i % count].metric;
        const struct diff_cell *cell = &cells[metric];
        if (slow_failed(cell) != (i < count) || !slow_asks(cell, asking[i % count].typical))
            continue;
        told->metric = metric_infos[metric].name;
        told->failed = slow_failed(cell);
        told->open = slow_open(cell) && !slow_failed(cell);
        told->typical_failed = slow_failed(step) || slow_failed(request);
        told->tail = metric == METRIC_LATENCY_P99;
        *ret_sign = slow_failed(cell) ? 1 : !slow_from_0(cell) ? 0 : cell->lo > 1 ? 1 : -1;
        return true;
    }
    return false;
}

// --- which windows are slow ----------------------------------------------------------------------

static double slow_window_steps(const struct cost_window *window)
{
    return window->steps ? window->steps : 1;
}

// Windows of one rank of a launch. What other programs took is out of them already, as the gate
// excuses it. A window of several steps (a device's) is as long as its slow step would be, were all
// that it takes longer in one: what is lost is a whole step.
static void slow_divide(struct slow *slow, int side, size_t begin, size_t count)
{
    const struct cost_window *windows = &slow->compared.trees[side]->windows[begin];
    struct slow_launch *launch = &slow->launches[side][windows->pair];
    double *durations = xcalloc(count, sizeof *durations), wall = 0;
    int64_t *idx = xcalloc(count, sizeof *idx);
    for (size_t i = 0; i < count; i++)
        durations[i] = (double)windows[i].wall_ns / slow_window_steps(&windows[i]);
    double typical_ns = quantile_median(durations, count);
    for (size_t i = 0; i < count; i++) {
        durations[i] =
                (double)windows[i].wall_ns - (slow_window_steps(&windows[i]) - 1) * typical_ns;
        idx[i] = windows[i].first_step;
        wall += (double)windows[i].wall_ns;
    }
    struct slow_steps found = slow->told->tail
            ? slow_steps_tail(idx, durations, (int)count, slow_quantile)
            : slow_steps_find(idx, durations, NULL, (int)count);
    // of a damaged store's windows none may be typical
    for (size_t i = 0; found.limit_ns > 0 && i < count; i++) {
        int class = durations[i] >= found.limit_ns ? SLOW_SLOW : SLOW_TYPICAL;
        slow->class[side][begin + i] = (uint8_t) class;
        launch->steps[class] += slow_window_steps(&windows[i]);
        launch->wall[class] += (double)windows[i].wall_ns;
    }
    if (found.limit_ns > 0 && wall > launch->longest) {
        launch->longest = wall;
        launch->found = found;
    }
    free(durations);
    free(idx);
}

static void slow_divide_side(struct slow *slow, int side)
{
    const struct cost_tree *tree = slow->compared.trees[side];
    memset(slow->class[side], SLOW_NEITHER, tree -> window_count);
    for (size_t begin = 0, end; begin < tree->window_count; begin = end) {
        const struct cost_window *first = &tree->windows[begin];
        for (end = begin + 1; end < tree->window_count; end++)
            if (tree->windows[end].pair != first->pair || tree->windows[end].rank != first->rank)
                break;
        // Slices and whole launches have no numbers: they are no steps.
        if (tree->windows[end - 1].first_step > first->first_step)
            slow_divide(slow, side, begin, end - begin);
    }
}

static void slow_make(struct slow *slow)
{
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = slow->compared.trees[side];
        for (size_t w = 0; w < tree->window_count; w++)
            slow->pairs =
                    tree->windows[w].pair >= slow->pairs ? tree->windows[w].pair + 1 : slow->pairs;
        slow->class[side] = xcalloc(tree->window_count + 1, sizeof *slow->class[side]);
    }
    slow->both = xcalloc((size_t)slow->pairs + 1, sizeof *slow->both);
    for (int side = 0; side < 2; side++) {
        slow->launches[side] = xcalloc((size_t)slow->pairs + 1, sizeof *slow->launches[side]);
        slow_divide_side(slow, side);
    }
    for (uint32_t pair = 0; pair < slow->pairs; pair++) {
        slow->both[pair] = slow->launches[0][pair].steps[SLOW_TYPICAL] > 0 &&
                slow->launches[1][pair].steps[SLOW_TYPICAL] > 0;
        slow->pair_count += slow->both[pair];
    }
}

static void slow_free(struct slow *slow)
{
    for (int side = 0; side < 2; side++) {
        free(slow->class[side]);
        free(slow->launches[side]);
    }
    free(slow->both);
    diff_contributed_clear(&slow->made);
    diff_units_clear(&slow->units);
}

// --- what they take beyond typical ones ----------------------------------------------------------

// What it is told of: of the mean step, or of one of the slowest requests.
static double slow_steps_of(const struct slow *slow, const struct slow_launch *launch)
{
    return launch->steps[SLOW_SLOW] + (slow->told->tail ? 0 : launch->steps[SLOW_TYPICAL]);
}

// ns[side][pair][class] of the pairs -> what a launch's slow steps have beyond its typical ones, of
// each pair of both sides. sums: of all launches together.
static void slow_excess(const struct slow *slow, double (*const ns[2])[SLOW_CLASSES],
        double *const values[2], double sums[2])
{
    for (int side = 0; side < 2; side++) {
        double scale = slow->units.scale[side], sum = 0, steps = 0;
        size_t at = 0;
        for (uint32_t pair = 0; pair < slow->pairs; pair++) {
            const struct slow_launch *launch = &slow->launches[side][pair];
            if (!slow->both[pair])
                continue;
            double usual = ns[side][pair][SLOW_TYPICAL] / launch->steps[SLOW_TYPICAL];
            double beyond = ns[side][pair][SLOW_SLOW] - usual * launch->steps[SLOW_SLOW],
                   of = slow_steps_of(slow, launch);
            values[side][at++] = scale * beyond / of;
            sum += beyond;
            steps += of;
        }
        sums[side] = steps > 0 ? scale * sum / steps : 0;
    }
}

// That a leaf of no known work took the time explains nothing.
static bool slow_is_unseen(const struct slow *slow, uint32_t group)
{
    return diff_leaf(slow->compared.trees, &slow->made.groups[group])->class == COST_IDLE;
}

static void slow_values(const struct slow *slow, const uint32_t *groups, size_t count,
        double *const values[2], double sums[2])
{
    double(*ns[2])[SLOW_CLASSES] = {xcalloc((size_t)slow->pairs + 1, sizeof *ns[0]),
            xcalloc((size_t)slow->pairs + 1, sizeof *ns[1])};
    double *const units[2] = {(double *)ns[0], (double *)ns[1]}; // a unit is a class of a pair
    for (size_t i = 0; i < count; i++)
        if (!slow_is_unseen(slow, groups[i]))
            diff_groups_add(&slow->compared, slow->moves,
                    &slow->compared.alignment->groups[groups[i]], units);
    slow_excess(slow, ns, values, sums);
    free(ns[0]);
    free(ns[1]);
}

static void slow_found(struct slow *slow, int side)
{
    const struct slow_steps **found = xcalloc((size_t)slow->pairs + 1, sizeof *found);
    int count = 0;
    for (uint32_t pair = 0; pair < slow->pairs; pair++)
        if (slow->both[pair])
            found[count++] = &slow->launches[side][pair].found;
    slow->told->found[side] = slow_steps_sum(found, count);
    free(found);
}

// In sum. True: the sides differ by it, as the gate says; overlaps: not in every launch.
static bool slow_sum(struct slow *slow, double sign)
{
    struct diff_slow *told = slow->told;
    double(*ns[2])[SLOW_CLASSES] = {xcalloc((size_t)slow->pairs + 1, sizeof *ns[0]),
            xcalloc((size_t)slow->pairs + 1, sizeof *ns[1])};
    double sums[2] = {0};
    for (int side = 0; side < 2; side++) {
        told->launch_ns[side] = arena_alloc(
                slow->compared.arena, slow->pair_count + 1, sizeof *told->launch_ns[side]);
        for (uint32_t pair = 0; pair < slow->pairs; pair++)
            memcpy(ns[side][pair], slow->launches[side][pair].wall, sizeof ns[side][pair]);
        slow_found(slow, side);
    }
    slow_excess(slow, ns, told->launch_ns, sums);
    free(ns[0]);
    free(ns[1]);
    told->a_ns = sums[0];
    told->b_ns = sums[1];
    told->launch_count =
            slow->pair_count < SLOW_LAUNCHES_TOLD ? slow->pair_count : SLOW_LAUNCHES_TOLD;
    double delta = sums[1] - sums[0];
    bool apart = diff_launches_apart(told->launch_ns, slow->pair_count, delta, false);
    // one launch a side has nothing to overlap with
    told->overlaps = slow->pair_count > 1 && !apart;
    return told->overlaps ? delta * sign > 0 : apart && delta * sign >= 0;
}

// --- parts of it ---------------------------------------------------------------------------------

// Units: 2 x pair + class, as slow_values has them. Windows of typical steps are in none of them at
// first: what the parts are called is what they are in the slow steps.
static void slow_units_windows(struct slow *slow, bool typical)
{
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = slow->compared.trees[side];
        for (size_t w = 0; w < tree->window_count; w++) {
            uint32_t pair = tree->windows[w].pair, class = slow->class[side][w];
            bool counts =
                    slow->both[pair] && (class == SLOW_SLOW || (typical && class == SLOW_TYPICAL));
            slow->units.of_window[side][w] = counts ? SLOW_CLASSES * pair + class : UINT32_MAX;
        }
    }
}

static void slow_units_make(struct slow *slow)
{
    struct diff_units *units = &slow->units;
    units->count = (size_t)SLOW_CLASSES * slow->pairs;
    units->units = xcalloc(units->count + 1, sizeof *units->units);
    units->pairs = (uint32_t)slow->pair_count;
    for (uint32_t i = 0; i < units->count; i++)
        units->units[i] = (struct diff_unit){.pair = i / SLOW_CLASSES, .couple = -1, .side = -1};
    for (int side = 0; side < 2; side++) {
        size_t windows = slow->compared.trees[side]->window_count;
        units->of_window[side] = xcalloc(windows + 1, sizeof *units->of_window[side]);
        units->steps[side] = xcalloc(windows + 1, sizeof *units->steps[side]);
        for (uint32_t pair = 0; pair < slow->pairs; pair++) {
            const struct slow_launch *launch = &slow->launches[side][pair];
            struct diff_unit *unit = &units->units[SLOW_CLASSES * pair + SLOW_SLOW];
            if (!slow->both[pair])
                continue;
            unit->steps[side] = slow_steps_of(slow, launch);
            unit->wall[side] = launch->wall[SLOW_TYPICAL] + launch->wall[SLOW_SLOW];
            units->total_steps[side] += unit->steps[side];
            units->total_wall[side] += unit->wall[side];
        }
    }
}

static bool slow_is_blind(const struct diff_slow *told)
{
    return fabs(told->unseen_ns) > fabs(told->b_ns - told->a_ns) / 2;
}

// Of each group what slow steps have beyond typical ones: where most of it is, and how much was not
// seen.
static void slow_groups(struct slow *slow, double *const scratch[2])
{
    struct diff_slow *told = slow->told;
    size_t count = slow->compared.alignment->count, member_count = 0;
    uint32_t *members = xcalloc(count + 1, sizeof *members);
    double total = told->b_ns - told->a_ns, seen = 0;
    for (uint32_t g = 0; g < count; g++) {
        double sums[2];
        slow_values(slow, &g, 1, scratch, sums);
        slow->made.groups[g].a = sums[0];
        slow->made.groups[g].b = sums[1];
        seen += sums[1] - sums[0];
        if ((sums[1] - sums[0]) * total > 0)
            members[member_count++] = g;
    }
    diff_groups_sort(slow->made.groups, members, member_count);
    told->unseen_ns = total - seen;
    // Of what was seen, next to nothing would say where.
    told->where = slow_is_blind(told)
            ? ""
            : diff_where(slow->compared.places, slow->made.groups, members, member_count, NULL);
    free(members);
}

// What says nothing of what a part has beyond typical steps is left away: executions, busy time,
// evidence.
static void slow_part_fill(struct slow *slow, const double sums[2], double *const values[2],
        struct diff_launch_part *part)
{
    struct diff_contribution *made = &part->contribution;
    made->few = false;
    made->a_ns = sums[0];
    made->b_ns = sums[1];
    made->delta_ns = sums[1] - sums[0];
    made->busy_a_ns = made->busy_b_ns = made->count_a = made->count_b = NAN;
    made->evidence_count = made->part_count = made->beside_count = 0;
    made->beside_changed = false;
    made->beside_cause = NULL;
    part->launch_count = slow->told->launch_count;
    for (int side = 0; side < 2; side++) {
        part->launch_ns[side] = arena_alloc(
                slow->compared.arena, part->launch_count + 1, sizeof *part->launch_ns[side]);
        memcpy(part->launch_ns[side], values[side], part->launch_count * sizeof *values[side]);
    }
}

// What is smaller explains nothing. Where the launches overlap, the sum is what chance made of it,
// and may be next to 0: then also what is a small part of what slow steps of the side that has more
// take in a usual launch.
static double slow_least(const struct slow *slow)
{
    const struct diff_slow *told = slow->told;
    double total = told->b_ns - told->a_ns;
    double usual =
            told->overlaps ? quantile_median(told->launch_ns[total > 0], slow->pair_count) : 0;
    return DIFF_PART_MIN * fmax(fabs(total), usual);
}

static void slow_parts(struct slow *slow, const json_t *differences, double *const scratch[2])
{
    const struct diff_contributed *made = &slow->made;
    struct diff_slow *told = slow->told;
    const double least = slow_least(slow);
    struct diff_launch_part *parts =
            arena_alloc(slow->compared.arena, made->count + 1, sizeof *parts);
    double total = told->b_ns - told->a_ns, sums[2];
    size_t count = 0;
    for (size_t i = 0; i < made->count; i++) {
        const struct diff_contribution *of = &made->contributions[i];
        slow_values(slow, of->groups, of->group_count, scratch, sums);
        double delta = sums[1] - sums[0];
        if (fabs(delta) < least ||
                !diff_launches_apart(scratch, slow->pair_count, delta, told->overlaps) ||
                (told->overlaps && delta * total < 0))
            continue;
        parts[count] = (struct diff_launch_part){.contribution = *of};
        slow_part_fill(slow, sums, scratch, &parts[count++]);
    }
    told->parts = parts;
    told->part_count = diff_launch_parts(differences, &slow->compared, made->groups, parts, count);
    double own = 0; // of those that go the same way
    for (size_t i = 0; i < told->part_count; i++) {
        told->told_ns += parts[i].contribution.delta_ns;
        own += parts[i].contribution.delta_ns * total > 0 ? fabs(parts[i].contribution.delta_ns)
                                                          : 0;
    }
    if (told->told_ns * total <= 0) { // together they do not explain it
        told->part_count = 0;
        told->told_ns = 0;
    }
    // Where others take of it, or launches overlap, whose sum is what chance made of it, the
    // difference is less than what goes the same way.
    for (size_t i = 0; i < told->part_count; i++)
        parts[i].contribution.share =
                parts[i].contribution.delta_ns / copysign(fmax(fabs(total), own), total);
}

static void slow_explain(struct slow *slow, const json_t *differences)
{
    double *const scratch[2] = {xcalloc(slow->pair_count + 1, sizeof *scratch[0]),
            xcalloc(slow->pair_count + 1, sizeof *scratch[1])};
    slow_units_make(slow);
    slow_units_windows(slow, false);
    diff_contributions(differences, &slow->compared, &slow->made);
    slow_units_windows(slow, true);
    slow->moves = diff_launches_make(&slow->compared); // which moves between groups by windows
    slow_groups(slow, scratch);
    slow_parts(slow, differences, scratch);
    free(scratch[0]);
    free(scratch[1]);
}

static enum diff_slow_why slow_why_not(const struct slow *slow, bool differs)
{
    const struct diff_slow *told = slow->told;
    double steps = 0;
    for (uint32_t pair = 0; pair < slow->pairs; pair++)
        for (int side = 0; side < 2 && slow->both[pair]; side++)
            steps += slow->launches[side][pair].steps[SLOW_SLOW];
    if (!slow->pair_count)
        return DIFF_SLOW_NO_PAIR;
    if (!(steps > 0))
        return DIFF_SLOW_NONE;
    if (slow->pair_count == 1)
        return DIFF_SLOW_ONE_LAUNCH;
    if (told->part_count)
        return DIFF_SLOW_EXPLAINED;
    if (!differs || told->overlaps)
        return DIFF_SLOW_NOT_EVERY;
    return slow_is_blind(told) ? DIFF_SLOW_BLIND : DIFF_SLOW_NOT_ALIKE;
}

// All steps' trees; the units are not made yet.
static void slow_begin(const struct diff_compared *of, struct diff_slow *told, struct slow *slow)
{
    slow->told = told;
    slow->compared = *of;
    slow->compared.subject = DIFF_SUBJECT_SLOW;
    slow->compared.untraced = &slow->untraced;
    slow->compared.units = &slow->units;
    memset(slow->compared.parallel, 0, sizeof slow->compared.parallel);
    slow->untraced = *of->untraced;
    slow->untraced.lo = slow->untraced.hi = NAN;
    slow->untraced.ratio_count = 0;
    slow->units = (struct diff_units){.scale = {of->units->scale[0], of->units->scale[1]}};
}

int diff_slow(const struct diff_input *input, const struct diff_compared *compared,
        struct diff_slow *ret, struct error *err)
{
    struct diff_cell cells[METRIC_COUNT];
    double sign = 0;
    int rc = diff_cells(input, cells, err);
    if (rc || compared->untraced->launches || !slow_asked(cells, ret, &sign))
        return rc;
    struct slow slow = {0};
    slow_begin(compared, ret, &slow);
    slow_make(&slow);
    bool differs = slow_sum(&slow, sign);
    if (differs)
        slow_explain(&slow, input->differences);
    if (ret->overlaps) // where most of the sum is, chance made too
        ret->where = ret->part_count ? "" : NULL;
    ret->why_not = slow_why_not(&slow, differs);
    // Then the contributions are those of the mean step: that no slow steps made it takes nothing
    // from them.
    if (compared->untraced->mean && !ret->part_count &&
            strcmp(ret->metric, metric_infos[METRIC_MEAN_STEP_TIME].name) == 0)
        *ret = (struct diff_slow){0};
    slow_free(&slow);
    return 0;
}
