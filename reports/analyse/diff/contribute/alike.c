// SPDX-License-Identifier: Apache-2.0
// Differences that many groups show together and that are one: all kernels slower by one factor
// (the GPU's clock), all functions slower by about the factor by which threads were lost. Changes
// the kind of those groups; contributions.c then makes them one. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/diff/thresholds.h"

struct alike_ratio {
    double ratio, weight;
};

static int alike_compare(const void *left, const void *right)
{
    double a = ((const struct alike_ratio *)left)->ratio,
           b = ((const struct alike_ratio *)right)->ratio;
    return a < b ? -1 : a > b;
}

static double alike_median(struct alike_ratio *ratios, size_t count, double total)
{
    qsort(ratios, count, sizeof *ratios, alike_compare);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        if ((sum += ratios[i].weight) >= total / 2)
            return ratios[i].ratio;
    return NAN;
}

// How long one execution takes, candidate over baseline: as it was traced, for tracing does not
// touch what runs on the GPU.
static double alike_kernel_ratio(
        const struct diff_compared *compared, const struct diff_group *group)
{
    if (diff_leaf(compared->trees, group)->kind != COST_KERNEL ||
            group->group->match > ALIGN_RESOURCES)
        return NAN;
    double a = group->busy_a / group->count_a / compared->units->scale[0],
           b = group->busy_b / group->count_b / compared->units->scale[1];
    return a > 0 && b > 0 && isfinite(a) && isfinite(b) ? b / a : NAN;
}

static bool alike_is_near(double ratio, double median)
{
    return fabs(ratio - median) <= alike_clock_spread * fabs(median - 1);
}

static void alike_clock(
        const struct diff_compared *compared, struct diff_group *groups, size_t count)
{
    struct alike_ratio *ratios = xcalloc(count + 1, sizeof *ratios);
    double total = 0, near = 0;
    size_t kernels = 0, near_kernels = 0;
    for (size_t i = 0; i < count; i++) {
        double ratio = alike_kernel_ratio(compared, &groups[i]);
        if (!isfinite(ratio))
            continue;
        ratios[kernels++] = (struct alike_ratio){ratio, groups[i].busy_a};
        total += groups[i].busy_a;
    }
    double median = alike_median(ratios, kernels, total);
    for (size_t i = 0; i < kernels; i++) {
        bool is_near = alike_is_near(ratios[i].ratio, median);
        near += is_near ? ratios[i].weight : 0;
        near_kernels += is_near;
    }
    free(ratios);
    if (kernels < ALIKE_KERNELS_MIN || !(fabs(median - 1) > alike_clock_min) ||
            near < alike_clock_share * total || near_kernels < ALIKE_KERNELS_MIN ||
            (double)near_kernels < alike_clock_kernels * (double)kernels)
        return;
    for (size_t i = 0; i < count; i++)
        if (isfinite(alike_kernel_ratio(compared, &groups[i])) &&
                alike_is_near(alike_kernel_ratio(compared, &groups[i]), median))
            groups[i].kind = DIFF_CLOCK_THROTTLE;
}

// Half the threads, and what they shared takes up to twice as long; what one thread did alone does
// not change.
static void alike_threads(
        const struct diff_compared *compared, struct diff_group *groups, size_t count)
{
    const struct diff_parallel *a = &compared->parallel[0], *b = &compared->parallel[1];
    if (a->launches == 0 || b->launches == 0 || a->running <= 0 || b->running <= 0)
        return;
    double running = a->running / b->running;
    bool lost = running > alike_threads_min && a->threads >= b->threads + alike_threads_apart;
    bool won = running < 1 / alike_threads_min && b->threads >= a->threads + alike_threads_apart;
    if (!lost && !won)
        return;
    double most = alike_threads_most * (lost ? a->threads / b->threads : b->threads / a->threads);
    for (size_t i = 0; i < count; i++) {
        struct diff_group *group = &groups[i];
        double ratio = lost ? group->b / group->a : group->a / group->b;
        bool matched = group->group->match <= ALIGN_NORMALISED &&
                diff_leaf(compared->trees, group)->kind == COST_FUNCTION;
        if (matched && group->kind == DIFF_CPU_FUNCTION_SLOWER && ratio > alike_threads_least &&
                ratio < most)
            group->kind = DIFF_PARALLELISM;
    }
}

void diff_alike(const struct diff_compared *compared, struct diff_group *groups, size_t count)
{
    alike_clock(compared, groups, count);
    alike_threads(compared, groups, count);
}
