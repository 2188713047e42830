// SPDX-License-Identifier: Apache-2.0
// From couples of blocks to one log ratio a pair, and how long the next pair should be. Reads
// arrays; which couples belong to the steady part is the caller's choice.
#include "reports/analyse/turns.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/power.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/signed_rank.h"

static const double turns_cold_alpha = 0.01;
static const double turns_cold_min =
    0.005; // a first step colder by less moves a block of 4 by 0.1 %
static const double turns_error_alpha = 0.025;

// Means of neighbours, so that the quadratic estimate stays below 2 million averages.
static double *turns_thin(const double *values, int count, int *ret_count)
{
    int stride = (count + TURNS_COUPLES_MAX - 1) / TURNS_COUPLES_MAX;
    int thinned = (count + stride - 1) / stride;
    double *result = xcalloc((size_t)thinned, sizeof *result);
    for (int i = 0; i < thinned; i++) {
        int from = i * stride, to = from + stride < count ? from + stride : count;
        result[i] = quantile_mean(values + from, (size_t)(to - from));
    }
    *ret_count = thinned;
    return result;
}

struct turns_result turns_center(const double *log_ratios, int count)
{
    struct turns_result result = {.log_ratio = NAN, .within_sd = NAN, .couples = count};
    if (count <= 0)
        return result;
    int used;
    double *values = turns_thin(log_ratios, count, &used);
    struct interval interval = signed_rank_interval(values, used, turns_error_alpha);
    result.log_ratio = interval.estimate;
    // Too few couples for the interval: the plain standard error, which bursts widen.
    result.within_sd = interval.has_bounds
                           ? power_sd_of_interval(&interval, used, turns_error_alpha) / sqrt(used)
                           : quantile_sd(values, (size_t)used) / sqrt(used);
    free(values);
    return result;
}

// Is the first step of this side's blocks measurably slower than the others?
static bool turns_side_cold(const struct turns_couple *couples, int count, int side,
                            double *scratch)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        const struct turns_block *block = &couples[i].sides[side];
        if (block->first_ns > 0 && block->rest_ns > 0)
            scratch[used++] = log(block->first_ns / block->rest_ns);
    }
    int thinned;
    if (!used)
        return false;
    double *values = turns_thin(scratch, used, &thinned);
    struct interval interval = signed_rank_interval(values, thinned, turns_cold_alpha);
    free(values);
    return interval.has_bounds && interval.lower > 0 && interval.estimate > turns_cold_min;
}

struct turns_result turns_ratio(const struct turns_couple *couples, int count)
{
    double *ratios = xcalloc((size_t)(count > 0 ? count : 1), sizeof *ratios);
    bool cold =
        turns_side_cold(couples, count, 0, ratios) || turns_side_cold(couples, count, 1, ratios);
    // Without a rest in every couple nothing can be dropped alike on both sides.
    for (int i = 0; cold && i < count; i++)
        cold = couples[i].sides[0].rest_ns > 0 && couples[i].sides[1].rest_ns > 0;
    int used = 0;
    for (int i = 0; i < count; i++) {
        const struct turns_block *a = &couples[i].sides[0], *b = &couples[i].sides[1];
        double time_a = cold ? a->rest_ns : a->step_ns, time_b = cold ? b->rest_ns : b->step_ns;
        if (time_a > 0 && time_b > 0)
            ratios[used++] = log(time_b / time_a);
    }
    struct turns_result result = turns_center(ratios, used);
    result.first_dropped = cold;
    free(ratios);
    return result;
}

int turns_couples_wanted(const struct turns_plan *plan)
{
    double wanted = plan->couples;
    if (plan->within_sd >= 0 && plan->couples > 0) {
        // The observed spread of pairs holds the spread within them; what is left is the launch's
        // own.
        double own =
            plan->pair_sd >= 0
                ? sqrt(fmax(0, plan->pair_sd * plan->pair_sd - plan->within_sd * plan->within_sd))
                : 0;
        double target = 0.5 * fmax(own, plan->spread_floor);
        double excess = plan->within_sd / target;
        wanted = target > 0 ? ceil(plan->couples * excess * excess - 1e-9) : plan->couples;
    }
    if (!(wanted <= plan->couples_max))
        wanted = plan->couples_max;
    return wanted < plan->couples_min ? plan->couples_min : (int)wanted;
}
