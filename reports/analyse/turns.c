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

static const double turns_odd_alpha = 0.01;
// A first step colder by less moves a block of 4 by 0.1 %; a last step that waits for a device is
// far above 5 %.
static const double turns_cold_min = 0.005, turns_late_min = 0.05;
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

// Is this single step of a side's blocks measurably slower than the middle one? One step against
// one step: against a mean or median of several, the skew of the noise alone would make a
// difference.
static bool turns_step_odd(const struct turns_couple *couples, int count, int side, bool last,
        double least, double *scratch)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        const struct turns_block *block = &couples[i].sides[side];
        double single = last ? block->last_ns : block->first_ns;
        if (single > 0 && block->middle_ns > 0)
            scratch[used++] = log(single / block->middle_ns);
    }
    int thinned;
    if (!used)
        return false;
    double *values = turns_thin(scratch, used, &thinned);
    struct interval interval = signed_rank_interval(values, thinned, turns_odd_alpha);
    free(values);
    return interval.has_bounds && interval.lower > 0 && interval.estimate > least;
}

double turns_block_time(const struct turns_block *block, enum turns_estimator estimator)
{
    switch (estimator) {
    case TURNS_MEDIAN:
        return block->median_ns;
    case TURNS_REST:
        return block->rest_ns;
    default:
        return block->mean_ns;
    }
}

static bool turns_all_have(
        const struct turns_couple *couples, int count, enum turns_estimator estimator)
{
    for (int i = 0; i < count; i++)
        for (int side = 0; side < TURNS_SIDES; side++)
            if (!(turns_block_time(&couples[i].sides[side], estimator) > 0))
                return false;
    return true;
}

struct turns_result turns_ratio(const struct turns_couple *couples, int count)
{
    double *ratios = xcalloc((size_t)(count > 0 ? count : 1), sizeof *ratios);
    bool cold = false, late = false, waits = false;
    for (int side = 0; side < TURNS_SIDES; side++) {
        cold = cold || turns_step_odd(couples, count, side, false, turns_cold_min, ratios);
        late = late || turns_step_odd(couples, count, side, true, turns_late_min, ratios);
        waits = waits || turns_step_odd(couples, count, side, true, M_LN2, ratios);
    }
    // The same for both sides and all couples, or the ratio would compare unlike things.
    enum turns_estimator estimator = TURNS_MEAN;
    if (!late && turns_all_have(couples, count, TURNS_MEDIAN))
        estimator = TURNS_MEDIAN;
    else if (cold && turns_all_have(couples, count, TURNS_REST))
        estimator = TURNS_REST;
    int used = 0;
    for (int i = 0; i < count; i++) {
        double time_a = turns_block_time(&couples[i].sides[0], estimator);
        double time_b = turns_block_time(&couples[i].sides[1], estimator);
        if (time_a > 0 && time_b > 0)
            ratios[used++] = log(time_b / time_a);
    }
    struct turns_result result = turns_center(ratios, used);
    result.estimator = estimator;
    result.first_cold = cold;
    result.last_waits = waits;
    free(ratios);
    return result;
}
