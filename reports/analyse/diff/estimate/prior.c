// SPDX-License-Identifier: Apache-2.0
// How sure a difference is: Student's interval from what launches of one side differ by, helped by
// what the store's other contributions say about such launches (empirical Bayes), and whether
// launches of several kinds could have fallen so by chance. Pure.
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/diff/estimate/estimate.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/quantile.h"

enum { PRIOR_STEPS = 24 };

// Of ln(chi-square / degrees), at half its degrees: mean + ln, variance. Recurrence up to 8, then
// the series.
static double digamma(double x)
{
    double sum = 0;
    for (; x < 8; x++)
        sum -= 1 / x;
    double y = 1 / (x * x);
    return sum + log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y / 252));
}

static double trigamma(double x)
{
    double sum = 0;
    for (; x < 8; x++)
        sum += 1 / (x * x);
    double y = 1 / (x * x);
    return sum + 1 / x + y / 2 + y / x * (1.0 / 6 - y * (1.0 / 30 - y / 42));
}

static double trigamma_inverse(double value)
{
    double low = 0.05, high = 1e4;
    for (int i = 0; i < 60; i++) {
        double middle = sqrt(low * high);
        *(trigamma(middle) > value ? &low : &high) = middle;
    }
    return low;
}

// The variance that a thing's size and windows make one expect, but for a factor.
static double prior_shape(const struct diff_estimate *estimate, double relative)
{
    return estimate->within + relative * relative * estimate->squares;
}

struct prior_fit {
    double mean, variance; // of ln(variance / shape), without chi-square's share of the mean
    double chance;         // of the variance: chi-square's share
    double degrees;        // of one of them, the mean
    size_t count;
};

static struct prior_fit prior_fit(
        const struct diff_estimate *const *things, size_t count, double relative)
{
    struct prior_fit fit = {0};
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double half = things[i]->degrees / 2, shape = prior_shape(things[i], relative);
        if (!(half > 0) || !(shape > 0) || !(things[i]->variance > 0))
            continue;
        double value = log(things[i]->variance / shape) - digamma(half) + log(half);
        double step = value - fit.mean;
        fit.count++;
        fit.mean += step / (double)fit.count;
        squares += step * (value - fit.mean);
        fit.chance += trigamma(half);
        fit.degrees += 2 * half;
    }
    fit.chance /= fmax(1, (double)fit.count);
    fit.degrees /= fmax(1, (double)fit.count);
    fit.variance = fit.count > 1 ? squares / (double)(fit.count - 1) : INFINITY;
    return fit;
}

// How much of the launches' spread goes with a thing's size is what makes all of them most alike;
// how alike they are is the prior's weight: as in Smyth's moderated t, but at the upper 99 % bound
// of their unlikeness, for few things look alike by chance.
void diff_prior_learn(
        struct diff_prior *prior, const struct diff_estimate *const *things, size_t count)
{
    const struct prior_fit plain = prior_fit(things, count, 0);
    struct prior_fit best = plain;
    *prior = (struct diff_prior){0};
    for (int i = 0; i < PRIOR_STEPS; i++) {
        double relative = 1e-4 * pow(2, i / 2.0); // to 0.3
        struct prior_fit fit = prior_fit(things, count, relative);
        double better = fit.variance / plain.variance; // 95 % of a likelihood ratio with one degree
        if (fit.count < best.count || !(fit.variance < best.variance) ||
                !((double)fit.count * log(better) < -3.84))
            continue;
        best = fit;
        prior->relative = relative;
    }
    if (best.count < PRIOR_THINGS_MIN)
        return;
    double kurtosis = 4.8 / best.degrees; // beyond the normal's, of ln(chi-square); to 1 %
    double error = sqrt(2 / (double)(best.count - 1) + kurtosis / (double)best.count);
    double unlike = best.variance * (1 + prior_quantile * error) - best.chance;
    prior->scale = exp(best.mean);
    prior->degrees = unlike > 0 ? 2 * trigamma_inverse(unlike) : DBL_MAX;
}

static double prior_t(struct diff_prior *prior, double p, double degrees)
{
    for (size_t i = 0; i < DIFF_PRIOR_KNOWN; i++)
        if (prior->known[i].p == p && prior->known[i].degrees == degrees)
            return prior->known[i].t;
    double t = distribution_t_quantile(p, degrees);
    prior->known[prior->next].p = p;
    prior->known[prior->next].degrees = degrees;
    prior->known[prior->next].t = t;
    prior->next = (prior->next + 1) % DIFF_PRIOR_KNOWN;
    return t;
}

struct prior_posterior {
    double variance, degrees;
};

// What other things say counts for at most as much as the launches that there are: where all of a
// launch moves together, they say the same once more. What its windows say is the least.
static struct prior_posterior prior_posterior(
        const struct diff_prior *prior, uint32_t pairs, const struct diff_estimate *estimate)
{
    double own = estimate->degrees, expected = 0;
    double more = fmin(prior->degrees, 2 * ((double)pairs - 1));
    if (more > 0)
        expected = prior->scale * prior_shape(estimate, prior->relative);
    double variance = own > 0 ? (own * estimate->variance + more * expected) / (own + more) : 0;
    return (struct prior_posterior){fmax(variance, estimate->within), own > 0 ? own + more : 0};
}

static double prior_p(size_t count)
{
    return 1 - prior_alpha / 2 / (double)(count ? count : 1);
}

double diff_units_half(struct diff_prior *prior, const struct diff_units *units,
        const struct diff_estimate *estimate, size_t count)
{
    struct prior_posterior posterior = prior_posterior(prior, units->pairs, estimate);
    if (!(posterior.degrees > 0))
        return NAN;
    return prior_t(prior, prior_p(count), posterior.degrees) * sqrt(posterior.variance) +
            estimate->step_half;
}

double diff_units_half_own(struct diff_prior *prior, const struct diff_estimate *estimate)
{
    if (!(estimate->degrees > 0))
        return NAN;
    return prior_t(prior, prior_p(2), estimate->degrees) *
            sqrt(fmax(estimate->variance, estimate->within)) +
            estimate->step_half;
}

double diff_units_half_of_many(const struct diff_prior *prior, const struct diff_units *units,
        const struct diff_estimate *estimate, size_t count)
{
    return distribution_normal_quantile(prior_p(count)) *
            sqrt(prior_posterior(prior, units->pairs, estimate).variance) +
            estimate->step_half;
}

// Launches of two kinds that differ by `apart`: of q p of them all k of one side can be of one kind
// and all of the other side of the other one, by chance: 2 (q (1 - q))^k. How many are of which
// kind the untraced pairs tell, of which a pair of unlike launches is off by it.
static double modes_chance(double share, size_t pairs, size_t untraced, size_t off)
{
    double apart = share * (1 - share), chance = 2 * pow(apart, (double)pairs);
    if (off >= untraced)
        return chance;
    return chance * distribution_beta_cdf((double)(untraced - off), (double)off + 1, 1 - 2 * apart);
}

bool diff_units_modes(const struct diff_untraced *untraced, uint32_t pairs, double delta)
{
    if (untraced->lo * untraced->hi > 0 && untraced->delta * delta > 0)
        return false;
    double middle = quantile_median(untraced->ratios, untraced->ratio_count), most = 0;
    double shift = fabs(delta) / untraced->step[0];
    size_t off = 0;
    for (size_t i = 0; i < untraced->ratio_count; i++)
        off += fabs(untraced->ratios[i] - middle) > shift / 2;
    for (int i = 1; i <= 50; i++)
        most = fmax(most, modes_chance(i / 100.0, pairs, untraced->ratio_count, off));
    return most > prior_modes;
}
