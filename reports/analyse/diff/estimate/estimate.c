// SPDX-License-Identifier: Apache-2.0
// How large a difference is, and what its launches say about it. It is estimated from all units, as
// a share of the traced time times the untraced step. How far it may be off by chance is what
// launches of one side differ by among each other: no number of windows within a launch tells that.
// prior.c makes intervals of it. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/estimate/estimate.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/quantile.h"

struct units_moments {
    double n, mean, squares;
};

static void moments_add(struct units_moments *moments, double value)
{
    double step = value - moments->mean;
    moments->n++;
    moments->mean += step / moments->n;
    moments->squares += step * (value - moments->mean);
}

struct units_spread {                 // what the launches of all pairs say
    struct units_moments launches[2]; // their means
    struct units_moments pairs;       // the differences of the means of a pair
    double least, most;               // of those
    double within;                    // sum over pairs: variance of a difference by its own windows
};

struct units_sums { // of one launch
    double ns, wall, steps;
};

// What a thing takes is told as its share of the traced time, times the untraced step. So its error
// is that of a ratio: a window in which everything took longer says little about one thing, and is
// counted by what the thing took beyond its share of that window (the ratio estimator's
// linearisation; the mean stays). A rare long event moves both, and most of it cancels.
static double units_rate(
        const struct diff_units *units, int side, const struct units_sums *sums, double share)
{
    if (!(sums->steps > 0))
        return NAN;
    double usual = sums->steps * units->total_wall[side] / units->total_steps[side];
    return units->scale[side] * (sums->ns - share * (sums->wall - usual)) / sums->steps;
}

static double moments_variance(const struct units_moments *moments) // of the mean
{
    return moments->n > 1 ? moments->squares / (moments->n - 1) / moments->n : 0;
}

static void spread_pair(struct units_spread *spread, const double rate[2],
        const struct units_moments *couples, const struct units_moments alone[2])
{
    if (!isfinite(rate[0]) || !isfinite(rate[1]))
        return;
    double difference = rate[1] - rate[0];
    for (int side = 0; side < 2; side++)
        moments_add(&spread->launches[side], rate[side]);
    spread->within += couples->n > 0 ? moments_variance(couples)
                                     : moments_variance(&alone[0]) + moments_variance(&alone[1]);
    spread->least = spread->pairs.n > 0 ? fmin(spread->least, difference) : difference;
    spread->most = spread->pairs.n > 0 ? fmax(spread->most, difference) : difference;
    moments_add(&spread->pairs, difference);
}

static void units_spread(const struct diff_units *units, double *const ns[2], const double share[2],
        struct units_spread *spread)
{
    for (size_t i = 0; i < units->count;) {
        struct units_moments couples = {0}, alone[2] = {0};
        struct units_sums sums[2] = {0};
        uint32_t pair = units->units[i].pair;
        for (; i < units->count && units->units[i].pair == pair; i++) {
            const struct diff_unit *unit = &units->units[i];
            double rate[2];
            for (int side = 0; side < 2; side++) {
                struct units_sums own = {ns[side][i], unit->wall[side], unit->steps[side]};
                rate[side] = units_rate(units, side, &own, share[side]);
                if (!isfinite(rate[side]))
                    continue;
                moments_add(&alone[side], rate[side]);
                sums[side].ns += own.ns;
                sums[side].wall += own.wall;
                sums[side].steps += own.steps;
            }
            if (unit->side < 0 && isfinite(rate[0]) && isfinite(rate[1]))
                moments_add(&couples, rate[1] - rate[0]);
        }
        const double rate[2] = {
                units_rate(units, 0, &sums[0], share[0]), units_rate(units, 1, &sums[1], share[1])};
        spread_pair(spread, rate, &couples, alone);
    }
}

// ln(b / a) of the traced step, pair by pair.
static void step_traced(const struct diff_units *units, struct units_moments *ratios)
{
    for (size_t i = 0; i < units->count;) {
        struct units_sums sums[2] = {0};
        uint32_t pair = units->units[i].pair;
        for (; i < units->count && units->units[i].pair == pair; i++)
            for (int side = 0; side < 2; side++)
                if (units->units[i].steps[side] > 0) {
                    sums[side].wall += units->units[i].wall[side];
                    sums[side].steps += units->units[i].steps[side];
                }
        if (sums[0].steps > 0 && sums[1].steps > 0)
            moments_add(ratios, log(sums[1].wall / sums[1].steps / (sums[0].wall / sums[0].steps)));
    }
}

// What changed one side's traced steps more than the other's, if it is in one thing, has moved all
// others by this factor. Only as much of it as is told from noise (95 %).
static double step_distortion(const struct diff_units *units, const struct diff_untraced *untraced,
        double error, double degrees)
{
    double ratio = units->scale[0] / units->scale[1];
    if (untraced->launches)
        ratio = units->total_wall[1] / units->total_wall[0] * untraced->step[0] / untraced->step[1];
    double apart = isfinite(ratio) && ratio > 0 ? fabs(log(ratio)) : 0;
    double noise = degrees > 0 ? distribution_t_quantile(units_apart_quantile, degrees) * error : 0;
    return apart > noise ? 1 - exp(noise - apart) : 0;
}

void diff_units_step(struct diff_units *units, const struct diff_untraced *untraced)
{
    struct units_moments traced = {0}, own = {0};
    step_traced(units, &traced);
    for (size_t i = 0; i < untraced->ratio_count; i++)
        moments_add(&own, untraced->ratios[i]);
    double degrees = fmax(traced.n - 1, 0) + fmax(own.n - 1, 0);
    double sd = degrees > 0 ? sqrt((traced.squares + own.squares) / degrees) : 0;
    units->step_half =
            isfinite(untraced->lo) ? (untraced->hi - untraced->lo) / 2 / untraced->step[0] : 0;
    if (degrees > 0)
        units->step_half = distribution_t_quantile(1 - units_step_alpha / 2, degrees) * sd /
                sqrt(own.n > 0 ? own.n : traced.n);
    units->distortion = step_distortion(
            units, untraced, sd * sqrt(1 / traced.n + (own.n > 0 ? 1 / own.n : 0)), degrees);
}

void diff_units_estimate(
        const struct diff_units *units, double *const ns[2], struct diff_estimate *ret)
{
    double sums[2] = {0};
    *ret = (struct diff_estimate){0};
    for (size_t i = 0; i < units->count; i++) {
        sums[0] += ns[0][i];
        sums[1] += ns[1][i];
        ret->units_hit += ns[0][i] > 0 || ns[1][i] > 0;
    }
    ret->a = units->scale[0] * sums[0] / units->total_steps[0];
    ret->b = units->scale[1] * sums[1] / units->total_steps[1];
    ret->delta = ret->b - ret->a;
    struct units_spread spread = {0};
    const double share[2] = {sums[0] / units->total_wall[0], sums[1] / units->total_wall[1]};
    units_spread(units, ns, share, &spread);
    double pairs = spread.pairs.n;
    ret->within = pairs > 0 ? spread.within / pairs / pairs : 0;
    for (int side = 0; side < 2 && pairs > 1; side++) {
        ret->variance += moments_variance(&spread.launches[side]);
        ret->degrees += sums[side] > 0 ? pairs - 1 : 0;
    }
    ret->squares = pairs > 0 ? (ret->a * ret->a + ret->b * ret->b) / pairs : 0;
    ret->step_half =
            units->step_half * (ret->a + ret->b) / 2 + units->distortion * fmax(ret->a, ret->b);
    if (spread.least * spread.most > 0)
        ret->nearest = fmin(fabs(spread.least), fabs(spread.most)) * (spread.least < 0 ? -1 : 1);
    ret->agrees = spread.least * spread.most > 0 &&
            fmin(fabs(spread.least), fabs(spread.most)) >= units_agree * fabs(spread.pairs.mean);
}
