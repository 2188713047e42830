// SPDX-License-Identifier: Apache-2.0
// How sure a difference is. It is estimated from all units, as a share of the traced time times the
// untraced step; its variance comes from the spread of the couples within a pair and from the spread
// of pairs of launches, and beside it stands how far tracing changed the sides unlike. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/diff_job.h"
#include "reports/analyse/distribution.h"

enum {
    UNITS_SPREAD_DEGREES = 8, // the least that the spread between launches counts for: judged pairs
                             // are few, but they are a prior
    UNITS_RUNS = 10 // of couples of a pair: what lasts for many couples shows in their means
};
static const double units_alpha = 0.01, units_agree = 0.2, units_apart_quantile = 1.96;

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

struct units_within {               // what the units of all pairs say about their mean
    double squares, degrees, units; // of couples
    struct units_moments runs;      // squares about each pair's mean of runs; n: less one a pair
    double run_count;
    double variance,
        variance_degrees;       // of the mean of pairs without couples, and its Satterthwaite sum
    struct units_moments pairs; // of the pairs' differences
    double unit_variance; // of a pair's difference, by its own units: for the spread between pairs
    double least, most;   // of the pairs' differences
};

static void within_pair(struct units_within *within, const struct units_moments *couples,
                        const struct units_moments alone[2])
{
    double difference = 0, variance = 0;
    if (couples->n > 0) {
        difference = couples->mean;
        within->squares += couples->squares;
        within->degrees += couples->n - 1;
        within->units += couples->n;
        variance = couples->n > 1 ? couples->squares / (couples->n - 1) / couples->n : 0;
    } else if (alone[0].n > 0 && alone[1].n > 0) {
        difference = alone[1].mean - alone[0].mean;
        for (int side = 0; side < 2; side++) {
            double v =
                alone[side].n > 1 ? alone[side].squares / (alone[side].n - 1) / alone[side].n : 0;
            variance += v;
            within->variance += v;
            within->variance_degrees += alone[side].n > 1 ? v * v / (alone[side].n - 1) : 0;
        }
    } else {
        return;
    }
    within->unit_variance += variance;
    within->least = within->pairs.n > 0 ? fmin(within->least, difference) : difference;
    within->most = within->pairs.n > 0 ? fmax(within->most, difference) : difference;
    moments_add(&within->pairs, difference);
}

// What a thing takes is told as its share of the traced time, times the untraced step. So its error
// is that of a ratio: a window in which everything took longer says little about one thing, and is
// counted by what the thing took beyond its share of that window (the ratio estimator's
// linearisation; the mean stays). A rare long event moves both, and most of it cancels.
static double units_rate(const struct diff_units *units, int side, size_t unit, double ns,
                         double share)
{
    double steps = units->units[unit].steps[side];
    if (!(steps > 0))
        return NAN;
    double usual = steps * units->total_wall[side] / units->total_steps[side];
    return units->scale[side] * (ns - share * (units->units[unit].wall[side] - usual)) / steps;
}

static double within_run_length(const struct diff_units *units, size_t begin)
{
    size_t end = begin;
    while (end < units->count && units->units[end].pair == units->units[begin].pair)
        end++;
    return fmax(1, floor((double)(end - begin) / UNITS_RUNS));
}

static void units_within(const struct diff_job *job, double *const ns[2], const double share[2],
                         struct units_within *within)
{
    const struct diff_units *units = &job->units;
    for (size_t i = 0; i < units->count;) {
        struct units_moments couples = {0}, alone[2] = {0}, run = {0}, runs = {0};
        uint32_t pair = units->units[i].pair;
        double run_length = within_run_length(units, i);
        for (; i < units->count && units->units[i].pair == pair; i++) {
            const struct diff_unit *unit = &units->units[i];
            double rate[2];
            for (int side = 0; side < 2; side++)
                rate[side] = units_rate(units, side, i, ns[side][i], share[side]);
            if (unit->side < 0 && isfinite(rate[0]) && isfinite(rate[1])) {
                moments_add(&couples, rate[1] - rate[0]);
                moments_add(&run, rate[1] - rate[0]);
            }
            if (run.n >= run_length) {
                moments_add(&runs, run.mean);
                run = (struct units_moments){0};
            }
            for (int side = 0; side < 2; side++)
                if (isfinite(rate[side]))
                    moments_add(&alone[side], rate[side]);
        }
        within_pair(within, &couples, alone);
        if (run_length > 1 && runs.n > 1) {
            within->runs.squares += runs.squares;
            within->runs.n += runs.n - 1;
            within->run_count += runs.n;
        }
    }
}

// Satterthwaite: a sum of variances, each with its own degrees of freedom.
static void estimate_add(struct diff_estimate *estimate, double *weights, double variance,
                         double degrees)
{
    if (!(variance > 0))
        return;
    estimate->variance += variance;
    *weights += variance * variance / (degrees > 0.5 ? degrees : 0.5);
}

// Which of two threads waits for the other's CPU lasts for many couples, and couples then say less than
// their number. The means of runs of couples tell: where they spread more than couples that know nothing of
// each other would, by more than chance has it (99 %, Wilson and Hilferty's quantile of chi-square), theirs
// is the variance.
static bool within_lasts(const struct units_within *within, double *variance)
{
    double degrees = within->runs.n;
    if (degrees < UNITS_RUNS - 1)
        return false;
    double root = 1 - 2 / (9 * degrees) + 2.326 * sqrt(2 / (9 * degrees));
    double runs = within->runs.squares / degrees / within->run_count;
    bool lasts = runs > *variance * root * root * root;
    *variance = lasts ? runs : *variance;
    return lasts;
}

static void within_variance(const struct units_within *within, struct diff_estimate *ret,
                            double *weights)
{
    double pairs = within->pairs.n;
    if (within->units > 0 && within->degrees > 0) {
        double variance = within->squares / within->degrees / within->units;
        bool lasts = within_lasts(within, &variance);
        estimate_add(ret, weights, variance, lasts ? within->runs.n : within->degrees);
    }
    if (within->variance > 0)
        estimate_add(ret, weights, within->variance / (pairs * pairs),
                     within->variance * within->variance / within->variance_degrees);
}

double diff_apart_error(const struct diff_job *job)
{
    const struct diff_units *units = &job->units;
    if (strcmp(job->untraced.unit, "launch") == 0)
        return 0;
    struct units_within within = {0};
    struct diff_estimate estimate = {0};
    double *wall[2], weights = 0;
    const double none[2] = {0};
    for (int side = 0; side < 2; side++) {
        wall[side] = xcalloc(units->count + 1, sizeof **wall);
        double step = job->untraced.step[side];
        for (size_t i = 0; i < units->count; i++)
            wall[side][i] = units->units[i].steps[side] > 0 ? units->units[i].wall[side] / step : 0;
    }
    units_within(job, wall, none, &within);
    free(wall[0]);
    free(wall[1]);
    within_variance(&within, &estimate, &weights);
    double pairs = within.pairs.n;
    double own =
        pairs > 1 ? within.pairs.squares / (pairs - 1) - within.unit_variance / pairs : 0;
    double variance = estimate.variance + (own > 0 ? own / pairs : 0);
    double untraced = isfinite(job->untraced.error) ? job->untraced.error : 0;
    return sqrt(variance + untraced * untraced);
}

// What changed one side's traced steps more than the other's, if it is in one thing, has moved all
// others by this factor. Only as much of it as is told from noise (95 %): what noise does to the
// scale is in the variance already, for that is one of a ratio.
static double units_distortion(const struct diff_job *job)
{
    const struct diff_units *units = &job->units;
    double ratio = units->scale[0] / units->scale[1];
    if (strcmp(job->untraced.unit, "launch") == 0)
        ratio = units->total_wall[1] / units->total_wall[0] * job->untraced.step[0] /
                job->untraced.step[1];
    double apart = isfinite(ratio) && ratio > 0 ? fabs(log(ratio)) : 0;
    double beyond = apart - units_apart_quantile * units->apart_error;
    return beyond > 0 ? 1 - exp(-beyond) : 0;
}

static void estimate_variance(const struct diff_job *job, const struct units_within *within,
                              struct diff_estimate *ret)
{
    double weights = 0, size = (ret->a + ret->b) / 2, pairs = within->pairs.n;
    within_variance(within, ret, &weights);
    double between = 0, degrees = 0,
           own =
               pairs > 1 ? within->pairs.squares / (pairs - 1) - within->unit_variance / pairs : 0;
    double prior = job->untraced.spread * size;
    if (isfinite(prior)) {
        double known = job->untraced.pairs - 1;
        known = known < UNITS_SPREAD_DEGREES ? UNITS_SPREAD_DEGREES : known;
        degrees = known + pairs - 1;
        between = (known * prior * prior + (pairs - 1) * fmax(own, 0)) / degrees;
    } else if (pairs > 1) {
        degrees = pairs - 1;
        between = fmax(own, 0);
    }
    estimate_add(ret, &weights, between / pairs, degrees);
    ret->systematic = units_distortion(job) * fmax(ret->a, ret->b);
    bool known = within->degrees > 0 || within->variance > 0 || pairs > 1;
    ret->degrees = weights > 0 ? ret->variance * ret->variance / weights : INFINITY;
    if (!known)
        ret->variance = ret->degrees = NAN;
}

void diff_units_estimate(const struct diff_job *job, double *const ns[2], struct diff_estimate *ret)
{
    const struct diff_units *units = &job->units;
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
    struct units_within within = {0};
    const double share[2] = {sums[0] / units->total_wall[0], sums[1] / units->total_wall[1]};
    units_within(job, ns, share, &within);
    estimate_variance(job, &within, ret);
    if (within.least * within.most > 0)
        ret->nearest = fmin(fabs(within.least), fabs(within.most)) * (within.least < 0 ? -1 : 1);
    ret->agrees = within.least * within.most > 0 && fmin(fabs(within.least), fabs(within.most)) >=
                                                        units_agree * fabs(within.pairs.mean);
}

// Above 30 degrees the series is within 1e-5 of the bisection, and there are thousands of
// contributions.
static double units_t(double p, double degrees)
{
    if (degrees <= 30)
        return distribution_t_quantile(p, degrees);
    double z = distribution_normal_quantile(p), z2 = z * z, v = degrees;
    return z + z * (z2 + 1) / (4 * v) + z * ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
           z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v);
}

double diff_units_half(const struct diff_estimate *estimate, size_t count)
{
    if (isnan(estimate->variance))
        return NAN;
    double p = 1 - units_alpha / 2 / (double)(count ? count : 1);
    double degrees = estimate->degrees < 1e9 ? estimate->degrees : 1e9;
    return units_t(p, degrees) * sqrt(estimate->variance) + estimate->systematic;
}
