// SPDX-License-Identifier: Apache-2.0
// What ran on the device beside the kernels of a contribution. A kernel that is the same and takes
// longer may have lost multiprocessors and bandwidth to an all-reduce that hides behind it: then
// that one is what changed. Told by what ran beside it on each side, and by whether the executions
// that had nothing beside them became slower as well. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum { BESIDE_NAMES_MAX = 3, BESIDE_SEEN_MAX = 256, BESIDE_NAME_MAX = 60 };

static size_t beside_first(const struct cost_tree *tree, uint32_t node)
{
    return search_first(middle, tree->beside_count, tree->beside[middle].node >= node);
}

static void beside_add(
        struct diff_beside *seen, size_t *count, const struct cost_node *other, int side, double ns)
{
    size_t i = 0;
    while (i < *count && strcmp(seen[i].name, other->name) != 0)
        i++;
    if (i == BESIDE_SEEN_MAX)
        return;
    if (i == *count)
        seen[(*count)++] = (struct diff_beside){
                .name = other->name, .collective = other->kind == COST_COLLECTIVE};
    seen[i].share[side] += ns;
}

static int beside_compare(const void *left, const void *right)
{
    const struct diff_beside *a = left, *b = right;
    double x = fmax(a->share[0], a->share[1]), y = fmax(b->share[0], b->share[1]);
    if (a->collective != b->collective)
        return a->collective ? -1 : 1;
    return x > y ? -1 : x < y ? 1 : strcmp(a->name, b->name);
}

// Adds what the executions of a group took on one side, with and without others beside them.
static void beside_overlap(const struct cost_tree *const trees[2], const struct align_group *group,
        int side, struct cost_overlap *sum)
{
    const struct cost_tree *tree = trees[side];
    const uint32_t *leaves = side ? group->b : group->a;
    for (size_t i = 0; i < (side ? group->count_b : group->count_a); i++)
        for (int with = 0; with < 2 && leaves[i] < tree->overlap_count; with++) {
            sum->count[with] += tree->overlaps[leaves[i]].count[with];
            sum->ns[with] += tree->overlaps[leaves[i]].ns[with];
        }
}

static void beside_sum(const struct cost_tree *const trees[2],
        const struct diff_contribution *contribution, const struct diff_group *groups,
        struct cost_overlap ret_sum[2])
{
    for (size_t i = 0; i < contribution->group_count; i++)
        for (int side = 0; side < 2; side++)
            beside_overlap(trees, groups[contribution->groups[i]].group, side, &ret_sum[side]);
}

static struct diff_beside beside_named(struct arena *arena, const struct diff_beside *seen)
{
    struct diff_beside named = *seen;
    char label[NAMES_LENGTH_MAX] = "";
    if (!seen->collective)
        names_short(seen->name, label, sizeof label, BESIDE_NAME_MAX);
    named.label = seen->collective ? seen->name : arena_copy(arena, label);
    for (int side = 0; side < 2; side++)
        named.told[side] = seen->share[side] >= beside_told;
    return named;
}

void diff_beside(const struct diff_compared *compared, struct diff_contribution *contribution,
        const struct diff_group *groups)
{
    struct diff_beside seen[BESIDE_SEEN_MAX];
    struct cost_overlap sum[2] = {0};
    size_t count = 0;
    if (contribution->kind != DIFF_KERNEL_SLOWER && contribution->kind != DIFF_CLOCK_THROTTLE)
        return;
    beside_sum(compared->trees, contribution, groups, sum);
    for (size_t i = 0; i < contribution->group_count; i++) {
        const struct align_group *group = groups[contribution->groups[i]].group;
        for (int side = 0; side < 2; side++) {
            const struct cost_tree *tree = compared->trees[side];
            const uint32_t *leaves = side ? group->b : group->a;
            for (size_t k = 0; k < (side ? group->count_b : group->count_a); k++)
                for (size_t at = beside_first(tree, leaves[k]);
                        at < tree->beside_count && tree->beside[at].node == leaves[k]; at++)
                    beside_add(seen, &count, &tree->nodes[tree->beside[at].other], side,
                            (double)tree->beside[at].ns);
        }
    }
    for (size_t i = 0; i < count; i++)
        for (int side = 0; side < 2; side++) {
            double total = (double)(sum[side].ns[0] + sum[side].ns[1]);
            seen[i].share[side] = total > 0 ? fmin(seen[i].share[side] / total, 1) : 0;
        }
    qsort(seen, count, sizeof *seen, beside_compare);
    contribution->beside =
            arena_alloc(compared->arena, BESIDE_NAMES_MAX, sizeof *contribution->beside);
    for (size_t i = 0; i < count; i++) {
        if (fmax(seen[i].share[0], seen[i].share[1]) < beside_min)
            continue;
        contribution->beside_changed |=
                seen[i].collective && fabs(seen[i].share[1] - seen[i].share[0]) >= beside_min;
        if (contribution->beside_count < BESIDE_NAMES_MAX)
            contribution->beside[contribution->beside_count++] =
                    beside_named(compared->arena, &seen[i]);
    }
}

// Mean of the executions of all groups; NAN: too few.
static double beside_mean(const struct cost_overlap *sum, int with)
{
    return sum->count[with] < BESIDE_EXECUTIONS_MIN
            ? NAN
            : (double)sum->ns[with] / (double)sum->count[with];
}

static double beside_part(const struct cost_overlap *sum)
{
    return (double)sum->count[1] / (double)(sum->count[0] + sum->count[1]);
}

// Is it slower by its company alone? The mean execution changes by what both sorts of executions
// change by themselves, and by what moves from one sort to the other, or what the company does to
// those that have it. What those alone changed by is the kernel's own.
static const char *beside_cause(
        struct diff_contribution *contribution, const struct cost_overlap sum[2])
{
    double alone[2], mean[2];
    for (int side = 0; side < 2; side++) {
        const struct cost_overlap *of = &sum[side];
        alone[side] = beside_mean(of, 0);
        mean[side] = (double)(of->ns[0] + of->ns[1]) / (double)(of->count[0] + of->count[1]);
    }
    double change = mean[1] - mean[0], own = alone[1] - alone[0];
    // A kernel that is slower by itself is beside more, too: that is no lead.
    if (fabs(own) > beside_own * fabs(change))
        contribution->beside_changed = false;
    if (!contribution->beside_changed || !isfinite(own))
        return NULL;
    int side = contribution->delta_ns > 0; // who got slower has the company
    const struct diff_beside *most = NULL;
    for (size_t i = 0; i < contribution->beside_count; i++) {
        const struct diff_beside *one = &contribution->beside[i];
        double more = one->share[side] - one->share[!side];
        if (one->collective && more >= beside_min &&
                (!most || more > most->share[side] - most->share[!side]))
            most = one;
    }
    return most ? most->name : NULL;
}

bool diff_beside_overlap(const struct diff_compared *compared,
        struct diff_contribution *contribution, const struct diff_group *groups,
        struct diff_evidence *ret)
{
    struct cost_overlap sum[2] = {0};
    beside_sum(compared->trees, contribution, groups, sum);
    for (int side = 0; side < 2; side++)
        if (sum[side].count[0] + sum[side].count[1] == 0 || !contribution->beside_count)
            return false;
    contribution->beside_cause = beside_cause(contribution, sum);
    *ret = (struct diff_evidence){
            .kind = DIFF_EVIDENCE_OVERLAP, .overlap.cause = contribution->beside_cause != NULL};
    for (int side = 0; side < 2; side++) {
        ret->overlap.share[side] = beside_part(&sum[side]);
        ret->overlap.with[side] = beside_mean(&sum[side], 1);
        ret->overlap.without[side] = beside_mean(&sum[side], 0);
    }
    return true;
}
