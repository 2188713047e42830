// SPDX-License-Identifier: Apache-2.0
// What a contribution rests on: time and executions on both sides, what changed in shape, where it
// is, what is below it, what to do about a stall. Facts; reports/render/diff has their words. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/stalls/stalls.h"

enum { EVIDENCE_TOP = 4, EVIDENCE_PLACES = 3, EVIDENCE_NAME_MAX = 60, EVIDENCE_MEMBERS_MAX = 4000 };

struct evidence {
    const struct diff_compared *compared;
    struct diff_contribution *contribution;
    const struct diff_group *groups;
    struct diff_evidence facts[DIFF_EVIDENCE_MAX];
    size_t count;
};

static void evidence_add(struct evidence *evidence, struct diff_evidence fact)
{
    if (evidence->count < DIFF_EVIDENCE_MAX)
        evidence->facts[evidence->count++] = fact;
}

static void evidence_end(struct evidence *evidence)
{
    struct diff_contribution *contribution = evidence->contribution;
    struct diff_evidence *facts =
            arena_alloc(evidence->compared->arena, evidence->count + 1, sizeof *facts);
    memcpy(facts, evidence->facts, evidence->count * sizeof *facts);
    contribution->evidence = facts;
    contribution->evidence_count = evidence->count;
}

static void evidence_sides(
        struct evidence *evidence, enum diff_evidence_kind kind, double a, double b)
{
    evidence_add(evidence,
            (struct diff_evidence){.kind = kind,
                    .sides = {evidence->compared->untraced->unit, {a, b}, {NAN, NAN}}});
}

// Of the times: waiting for launches, which an operation of one side has taken over (launches.c).
static void evidence_launches(struct evidence *evidence, double launch[2])
{
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_compared *compared = evidence->compared;
    launch[0] = launch[1] = 0;
    for (size_t i = 0; i < contribution->group_count; i++) {
        const struct diff_group *group = &evidence->groups[contribution->groups[i]];
        launch[0] += fmax(group->launch_a, 0);
        launch[1] += fmax(group->launch_b, 0);
    }
    if (launch[0] + launch[1] > contributions_floor * compared->untraced->step[0])
        evidence_sides(evidence,
                contribution->kind == DIFF_SYNC_ADDED ? DIFF_EVIDENCE_LATE_BEHIND
                                                      : DIFF_EVIDENCE_LAUNCH_WAIT,
                launch[0], launch[1]);
}

static void evidence_times(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_compared *compared = evidence->compared;
    bool counted =
            isfinite(contribution->count_a) && contribution->count_a + contribution->count_b > 0;
    evidence_add(evidence,
            (struct diff_evidence){.kind = DIFF_EVIDENCE_TIMES,
                    .sides = {compared->untraced->unit, {contribution->a_ns, contribution->b_ns},
                            {contribution->count_a, contribution->count_b}}});
    double busy_a = contribution->busy_a_ns, busy_b = contribution->busy_b_ns;
    double least = contributions_floor * compared->untraced->step[0];
    double launch[2];
    evidence_launches(evidence, launch);
    bool hidden = fabs(busy_a + launch[0] - contribution->a_ns) > least ||
            fabs(busy_b + launch[1] - contribution->b_ns) > least;
    if (hidden)
        evidence_sides(evidence, DIFF_EVIDENCE_BUSY, busy_a, busy_b);
    if (counted && contribution->count_a > 0 && contribution->count_b > 0 && busy_a > 0)
        evidence_sides(evidence, DIFF_EVIDENCE_EXECUTION, busy_a / contribution->count_a,
                busy_b / contribution->count_b);
}

static void evidence_shape(struct evidence *evidence)
{
    const struct diff_compared *compared = evidence->compared;
    const struct align_group *top = evidence->groups[evidence->contribution->groups[0]].group;
    if (top->count_a != 1 || top->count_b != 1) // shapes of other work
        return;
    const struct cost_node *a = &compared->trees[0]->nodes[top->a[0]],
                           *b = &compared->trees[1]->nodes[top->b[0]];
    const struct cost_shape *x = &a->shape, *y = &b->shape;
    bool renamed = a->kind == COST_COLLECTIVE && b->kind == COST_COLLECTIVE &&
            strcmp(a->name, b->name) != 0;
    if (!renamed && memcmp(x->grid, y->grid, sizeof x->grid) == 0 &&
            memcmp(x->block, y->block, sizeof x->block) == 0 && x->registers == y->registers &&
            x->shared_bytes == y->shared_bytes && x->bytes == y->bytes)
        return;
    struct cost_shape *shapes = arena_alloc(compared->arena, 2, sizeof *shapes);
    shapes[0] = *x;
    shapes[1] = *y;
    evidence_add(evidence,
            (struct diff_evidence){.kind = DIFF_EVIDENCE_SHAPE,
                    .shape = {shapes, {renamed ? a->name : NULL, renamed ? b->name : NULL}}});
}

static void evidence_names(struct evidence *evidence)
{
    const struct diff_compared *compared = evidence->compared;
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_group *top = &evidence->groups[contribution->groups[0]];
    const struct align_group *group = top->group;
    char a[NAMES_LENGTH_MAX] = "", b[NAMES_LENGTH_MAX] = "";
    if (group->match < ALIGN_RESOURCES || group->match > ALIGN_GROUP || !top->name_a ||
            !top->name_b)
        return;
    struct diff_evidence fact = {.kind = DIFF_EVIDENCE_NAMES,
            .names = {.count = {group->count_a, group->count_b}, .match = group->match}};
    if (group->count_a > 1 || group->count_b > 1) {
        for (int side = 0; side < 2; side++)
            fact.names.name[side] = contributions_group_side(compared, top, side);
        evidence_add(evidence, fact);
        return;
    }
    names_short(top->name_a, a, sizeof a, 2 * EVIDENCE_NAME_MAX);
    names_short(top->name_b, b, sizeof b, 2 * EVIDENCE_NAME_MAX);
    if (strcmp(a, b) == 0)
        return;
    fact.names.name[0] = arena_copy(compared->arena, a);
    fact.names.name[1] = arena_copy(compared->arena, b);
    evidence_add(evidence, fact);
}

static int sum_compare(const void *left, const void *right)
{
    const struct diff_evidence_part *a = left, *b = right;
    double x = fabs(a->delta_ns), y = fabs(b->delta_ns);
    return x > y ? -1 : x < y ? 1 : strcmp(a->name, b->name);
}

static int sum_compare_name(const void *left, const void *right)
{
    const struct diff_evidence_part *a = left, *b = right;
    return strcmp(a->name, b->name);
}

// Equal names become one, largest change first; returns how many there are.
static size_t sums_merge(struct diff_evidence_part *sums, size_t count)
{
    size_t kept = 0;
    qsort(sums, count, sizeof *sums, sum_compare_name);
    for (size_t i = 0; i < count; i++) {
        if (kept && strcmp(sums[kept - 1].name, sums[i].name) == 0)
            sums[kept - 1].delta_ns += sums[i].delta_ns;
        else
            sums[kept++] = sums[i];
    }
    qsort(sums, kept, sizeof *sums, sum_compare);
    return kept;
}

// The first `max` of them, without those that are too small for a word.
static void sums_take(struct evidence *evidence, enum diff_evidence_kind kind,
        const struct diff_evidence_part *sums, size_t count, size_t max, size_t of)
{
    struct diff_evidence_part *parts =
            arena_alloc(evidence->compared->arena, max + 1, sizeof *parts);
    size_t kept = 0;
    for (; kept < count && kept < max; kept++) {
        if (kept && fabs(sums[kept].delta_ns) < evidence_share * fabs(sums[0].delta_ns))
            break;
        parts[kept] = sums[kept];
    }
    evidence_add(evidence, (struct diff_evidence){.kind = kind, .list = {parts, kept, of}});
}

// What most of the change is of: by place, or by function where there are several.
static void evidence_most(
        struct evidence *evidence, enum diff_evidence_kind kind, size_t max, size_t of)
{
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_compared *compared = evidence->compared;
    const bool places = kind == DIFF_EVIDENCE_PLACES;
    size_t count = contribution->group_count < EVIDENCE_MEMBERS_MAX ? contribution->group_count
                                                                    : EVIDENCE_MEMBERS_MAX;
    struct diff_evidence_part *sums = xcalloc(count + 1, sizeof *sums);
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &evidence->groups[contribution->groups[i]];
        const struct cost_node *leaf = diff_leaf(compared->trees, group);
        char name[NAMES_LENGTH_MAX] = "";
        if (!places)
            names_short(leaf->name, name, sizeof name, EVIDENCE_NAME_MAX);
        sums[i] = (struct diff_evidence_part){places
                        ? diff_place(compared->places, group->side, leaf->parent)
                        : arena_copy(compared->arena, name),
                group->b - group->a, NAN};
    }
    size_t kinds = sums_merge(sums, count);
    if (places || kinds > 1)
        sums_take(evidence, kind, sums, kinds, max, places ? of : kinds);
    free(sums);
}

static void evidence_places(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    size_t places = diff_places_count(evidence->compared->trees, evidence->groups,
            contribution->groups, contribution->group_count);
    if (places > 1)
        evidence_most(evidence, DIFF_EVIDENCE_PLACES, EVIDENCE_PLACES, places);
}

// What contributions of several functions are made of.
static void evidence_parts(struct evidence *evidence)
{
    evidence_most(evidence, DIFF_EVIDENCE_FUNCTIONS, EVIDENCE_TOP, 0);
}

// What shares of its parts are of: its change, or all that goes the same way where other parts take
// of that. No share is more than all.
static double evidence_whole(const struct diff_contribution *contribution)
{
    double own = 0;
    for (size_t i = 0; i < contribution->part_count; i++) {
        double delta = contribution->parts[i].b_ns - contribution->parts[i].a_ns;
        own += delta * contribution->delta_ns > 0 ? fabs(delta) : 0;
    }
    return copysign(fmax(fabs(contribution->delta_ns), own), contribution->delta_ns);
}

// What a contribution of a place is spread over, with each one's share of it.
static void evidence_spread(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    const double whole = evidence_whole(contribution);
    const size_t max = 2 * EVIDENCE_TOP;
    struct diff_evidence_part *parts = arena_alloc(evidence->compared->arena, max, sizeof *parts);
    size_t told = 0;
    for (; told < contribution->part_count && told < max; told++) {
        const struct diff_contribution_part *part = &contribution->parts[told];
        double delta = part->b_ns - part->a_ns, share = delta / whole;
        if (!(share >= evidence_share))
            break;
        parts[told] = (struct diff_evidence_part){part->label, delta, share};
    }
    evidence_add(evidence,
            (struct diff_evidence){.kind = diff_kind_is_code(contribution->kind)
                            ? DIFF_EVIDENCE_CAUSES
                            : DIFF_EVIDENCE_SPREAD,
                    .list = {parts, told, contribution->part_count}});
}

static void evidence_stall(struct evidence *evidence)
{
    const struct cost_node *leaf = diff_leaf(
            evidence->compared->trees, &evidence->groups[evidence->contribution->groups[0]]);
    const struct stall_cause *cause = leaf->kind == COST_STALL ? stall_cause_of(leaf->name) : NULL;
    if (cause && evidence->contribution->delta_ns > 0)
        evidence_add(evidence,
                (struct diff_evidence){
                        .kind = DIFF_EVIDENCE_STALL, .stall = {cause->id, leaf->module}});
}

static void evidence_special(struct evidence *evidence)
{
    const struct diff_compared *compared = evidence->compared;
    const struct diff_contribution *contribution = evidence->contribution;
    const struct diff_parallel *a = &compared->parallel[0], *b = &compared->parallel[1];
    switch (contribution->kind) {
    case DIFF_CLOCK_THROTTLE:
        evidence_add(evidence,
                (struct diff_evidence){.kind = DIFF_EVIDENCE_CLOCK,
                        .clock = {contribution->group_count,
                                {contribution->busy_a_ns, contribution->busy_b_ns}}});
        break;
    case DIFF_PARALLELISM:
        evidence_add(evidence,
                (struct diff_evidence){.kind = DIFF_EVIDENCE_THREADS,
                        .threads = {{a->threads, b->threads}, {a->running, b->running},
                                contribution->group_count}});
        break;
    case DIFF_NATIVE_CODE:
        evidence_add(evidence, (struct diff_evidence){.kind = DIFF_EVIDENCE_NO_NAMES});
        break;
    case DIFF_CODE_MOVED:
        evidence_add(evidence,
                (struct diff_evidence){.kind = DIFF_EVIDENCE_ALSO_LATER,
                        .number = contribution->delta_ns > 0 ? 0 : 1});
        break;
    default:
        break;
    }
}

static void evidence_beside(struct evidence *evidence)
{
    struct diff_contribution *contribution = evidence->contribution;
    struct diff_evidence overlap;
    diff_beside(evidence->compared, contribution, evidence->groups);
    if (contribution->beside_count)
        evidence_add(evidence,
                (struct diff_evidence){.kind = DIFF_EVIDENCE_BESIDE,
                        .beside = {contribution->beside, contribution->beside_count}});
    if (diff_beside_overlap(evidence->compared, contribution, evidence->groups, &overlap))
        evidence_add(evidence, overlap);
}

static void evidence_gather(struct evidence *evidence)
{
    const struct diff_contribution *contribution = evidence->contribution;
    evidence_times(evidence);
    // there the launches' own values tell
    if (contribution->few && evidence->compared->subject == DIFF_SUBJECT_STEPS)
        evidence_add(evidence,
                (struct diff_evidence){
                        .kind = DIFF_EVIDENCE_FEW, .number = evidence->compared->units->pairs});
    if (!contribution->named && contribution->rank > 20)
        return; // nobody asks for more of what is noise
    if (contribution->part_count) {
        evidence_spread(evidence);
        if (contribution->kind == DIFF_CODE_MOVED)
            evidence_special(evidence);
        if (contribution->kind == DIFF_NATIVE_CODE) {
            evidence_special(evidence);
            evidence_parts(evidence);
        }
        evidence_places(evidence);
        return;
    }
    evidence_beside(evidence);
    evidence_special(evidence);
    evidence_names(evidence);
    evidence_shape(evidence);
    evidence_parts(evidence);
    evidence_places(evidence);
    evidence_stall(evidence);
}

void diff_evidence(const struct diff_compared *compared, struct diff_contribution *contribution,
        const struct diff_group *groups)
{
    struct evidence evidence = {
            .compared = compared, .contribution = contribution, .groups = groups};
    evidence_gather(&evidence);
    evidence_end(&evidence);
}

void diff_contributions(const json_t *differences, const struct diff_compared *compared,
        struct diff_contributed *ret)
{
    diff_contribute(compared, ret);
    for (size_t i = 0; i < ret->count; i++) {
        struct diff_contribution *made = &ret->contributions[i];
        diff_evidence(compared, made, ret->groups);
        if (made->named)
            diff_suspects(differences, compared, made, ret->groups);
    }
}
