// SPDX-License-Identifier: Apache-2.0
// What ran on the device beside the kernels of a contribution. A kernel that is the same and takes
// longer may have lost multiprocessors and bandwidth to an all-reduce that hides behind it: then
// that one is what changed. Told by what ran beside it on each side, and by whether the executions
// that had nothing beside them became slower as well. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/strings.h"
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
static void beside_overlap(const struct diff_job *job, const struct align_group *group, int side,
        struct cost_overlap *sum)
{
    const struct cost_tree *tree = job->workload->trees[side];
    const uint32_t *leaves = side ? group->b : group->a;
    for (size_t i = 0; i < (side ? group->count_b : group->count_a); i++)
        for (int with = 0; with < 2 && leaves[i] < tree->overlap_count; with++) {
            sum->count[with] += tree->overlaps[leaves[i]].count[with];
            sum->ns[with] += tree->overlaps[leaves[i]].ns[with];
        }
}

static void beside_sum(const struct diff_job *job, const struct diff_contribution *contribution,
        const struct diff_group *groups, struct cost_overlap ret_sum[2])
{
    for (size_t i = 0; i < contribution->group_count; i++)
        for (int side = 0; side < 2; side++)
            beside_overlap(job, groups[contribution->groups[i]].group, side, &ret_sum[side]);
}

void diff_beside(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups)
{
    struct diff_beside seen[BESIDE_SEEN_MAX];
    struct cost_overlap sum[2] = {0};
    size_t count = 0;
    if (contribution->kind != DIFF_KERNEL_SLOWER && contribution->kind != DIFF_CLOCK_THROTTLE)
        return;
    beside_sum(job, contribution, groups, sum);
    for (size_t i = 0; i < contribution->group_count; i++) {
        const struct align_group *group = groups[contribution->groups[i]].group;
        for (int side = 0; side < 2; side++) {
            const struct cost_tree *tree = job->workload->trees[side];
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
    contribution->beside = arena_alloc(job->arena, BESIDE_NAMES_MAX, sizeof *contribution->beside);
    for (size_t i = 0; i < count; i++) {
        if (fmax(seen[i].share[0], seen[i].share[1]) < beside_min)
            continue;
        contribution->beside_changed |=
                seen[i].collective && fabs(seen[i].share[1] - seen[i].share[0]) >= beside_min;
        if (contribution->beside_count < BESIDE_NAMES_MAX)
            contribution->beside[contribution->beside_count++] = seen[i];
    }
}

static void beside_list(struct strbuf *text, const struct diff_contribution *contribution, int side)
{
    bool any = false;
    strbuf_add(text, "%s", side ? "; b: " : "a: ");
    for (size_t i = 0; i < contribution->beside_count; i++) {
        const struct diff_beside *one = &contribution->beside[i];
        char name[NAMES_LENGTH_MAX] = "";
        if (one->share[side] < beside_told)
            continue;
        if (!one->collective)
            names_short(one->name, name, sizeof name, BESIDE_NAME_MAX);
        strbuf_add(text, "%s%s %.0f %% of its time", any ? ", " : "",
                one->collective ? one->name : name, 100 * one->share[side]);
        any = true;
    }
    if (!any)
        strbuf_add(text, "nothing");
}

const char *diff_beside_text(struct diff_job *job, const struct diff_contribution *contribution)
{
    if (!contribution->beside_count)
        return NULL;
    struct strbuf text = {0};
    strbuf_add(&text, "beside it on the same device: ");
    beside_list(&text, contribution, 0);
    beside_list(&text, contribution, 1);
    return diff_text(job, &text);
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

static void beside_means(
        struct diff_job *job, struct strbuf *text, const struct cost_overlap sum[2], int with)
{
    double a = beside_mean(&sum[0], with), b = beside_mean(&sum[1], with);
    if (!isfinite(a) && !isfinite(b))
        return;
    strbuf_add(text, "; one of %s: a %s, b %s", with ? "them" : "the others",
            isfinite(a) ? diff_time(job, a) : "-", isfinite(b) ? diff_time(job, b) : "-");
    if (isfinite(a) && isfinite(b) && a > 0)
        strbuf_add(text, " (%+.1f %%)", 100 * (b / a - 1));
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

// "others ran beside 32 % (a) and 95 % (b) of the executions; one of them: a 250 us, b 290 us (+16
// %); one of the others: a 190 us, b 191 us (+0.5 %)": is it slower by itself, or by its company?
const char *diff_beside_split(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups)
{
    struct cost_overlap sum[2] = {0};
    beside_sum(job, contribution, groups, sum);
    for (int side = 0; side < 2; side++)
        if (sum[side].count[0] + sum[side].count[1] == 0 || !contribution->beside_count)
            return NULL;
    contribution->beside_cause = beside_cause(contribution, sum);
    struct strbuf text = {0};
    strbuf_add(&text, "others ran beside %.0f %% (a) and %.0f %% (b) of the executions",
            100 * beside_part(&sum[0]), 100 * beside_part(&sum[1]));
    beside_means(job, &text, sum, 1);
    beside_means(job, &text, sum, 0);
    if (contribution->beside_cause)
        strbuf_add(&text, ": the kernel is the same, what runs beside it is not");
    return diff_text(job, &text);
}
