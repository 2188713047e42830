// SPDX-License-Identifier: Apache-2.0
// Sums of weighted differences of means, as polynomials of the ratio that is asked about.
#include "reports/analyse/canary/mean.h"

#include <math.h>

#include "common/containers/search.h"
#include "reports/analyse/distribution.h"

enum { MEAN_BISECTIONS = 40 };
// The mixture is sharpest for a sum of about ten times this weight: 20,000 requests of each arm.
static const double mean_prior_weight = 1000;
static const double mean_log_ratio_max = 5;
// Long blocks begin at what short ones say and need ten pairs to leave it.
static const double mean_long_pairs = 10;

void canary_means_add(struct canary_means *means, double mean_baseline, double mean_candidate,
        double requests_baseline, double requests_candidate)
{
    if (!(requests_baseline > 0) || !(requests_candidate > 0))
        return;
    double weight =
            requests_baseline * requests_candidate / (requests_baseline + requests_candidate);
    double baseline = weight * mean_baseline, candidate = weight * mean_candidate;
    means->baseline += baseline;
    means->candidate += candidate;
    means->square_baseline += baseline * baseline;
    means->square_both += baseline * candidate;
    means->square_candidate += candidate * candidate;
    means->weight += weight;
}

static double mean_excess(const struct canary_means *means, double ratio)
{
    return means->candidate - ratio * means->baseline;
}

static double mean_variance(const struct canary_means *means, double ratio)
{
    return means->square_candidate - 2 * ratio * means->square_both +
            ratio * ratio * means->square_baseline;
}

static void mean_sum(struct canary_means *sum, const struct canary_means *more, double times)
{
    sum->baseline += times * more->baseline;
    sum->candidate += times * more->candidate;
    sum->square_baseline += times * more->square_baseline;
    sum->square_both += times * more->square_both;
    sum->square_candidate += times * more->square_candidate;
    sum->weight += times * more->weight;
}

void canary_means_sum(struct canary_means *sum, const struct canary_means *more)
{
    mean_sum(sum, more, 1);
}

void canary_means_less(struct canary_means *sum, const struct canary_means *part)
{
    mean_sum(sum, part, -1);
}

// For a difference that is as likely above 0 as below, cosh(bx) exp(-b^2 x^2 / 2) <= 1.
void canary_means_bets(const struct canary_means *second, double scale, double inflation,
        double ret_logs[CANARY_BETS])
{
    double excess = mean_excess(second, 1), variance = inflation * mean_variance(second, 1);
    for (int i = 0; i < CANARY_BETS; i++) {
        double bet = canary_bet[i] / sqrt(scale);
        ret_logs[i] = bet * excess - 0.5 * bet * bet * variance;
    }
}

// ln of the mixture over half a normal of bets of one sign: variance `prior`^-1.
static double mean_mixture(double excess, double variance, double prior)
{
    double z = excess / sqrt(variance + prior);
    // 0 below -38: then the evidence is far below 0 anyway
    double tail = distribution_normal_cdf(z);
    return 0.5 * log(prior / (variance + prior)) + 0.5 * z * z + log(2 * fmax(tail, 1e-300));
}

double canary_means_evidence(const struct canary_means *past, const struct canary_means *now,
        double ratio, enum canary_side side, double scale, double inflation)
{
    double excess = mean_excess(past, ratio) + mean_excess(now, ratio);
    double variance = inflation * (mean_variance(past, ratio) + mean_variance(now, ratio));
    if (!(scale > 0) || !(variance > 0))
        return 0;
    return mean_mixture(
            side == CANARY_WORSE ? excess : -excess, variance, scale * mean_prior_weight);
}

double canary_means_ratio(const struct canary_means *means)
{
    return means->baseline > 0 ? means->candidate / means->baseline : NAN;
}

double canary_means_beyond(const struct canary_means *past, const struct canary_means *now,
        double ratio, double inflation)
{
    double excess = mean_excess(past, ratio) + mean_excess(now, ratio);
    double variance = inflation * (mean_variance(past, ratio) + mean_variance(now, ratio));
    return excess > 0 && variance > 0 ? excess / sqrt(variance) : 0;
}

void canary_means_bounds(const struct canary_means *means, double alpha, double scale,
        double inflation, double *ret_low, double *ret_high)
{
    static const struct canary_means none;
    double ratio = canary_means_ratio(means), needed = log(1 / alpha);
    *ret_low = *ret_high = NAN;
    if (!(ratio > 0) || !(scale > 0))
        return;
    for (int sign = -1; sign <= 1; sign += 2) {
        enum canary_side side = sign < 0 ? CANARY_WORSE : CANARY_BETTER;
        // of the logarithm, from the estimate
        double inside = 0, outside = sign * mean_log_ratio_max;
        if (canary_means_evidence(&none, means, ratio * exp(outside), side, scale, inflation) <
                needed)
            continue;
        search_narrow(mid, inside, outside, MEAN_BISECTIONS,
                canary_means_evidence(&none, means, ratio * exp(mid), side, scale, inflation) >=
                        needed);
        *(sign < 0 ? ret_low : ret_high) = ratio * exp(outside);
    }
}

static void mean_pair(double mean, double requests, double *before, double *before_requests,
        double *square, double *count)
{
    if (!(requests > 0))
        return;
    if (!(*before_requests > 0)) {
        *before = mean;
        *before_requests = requests;
        return;
    }
    double difference = mean - *before;
    *square += difference * difference / (1 / requests + 1 / *before_requests);
    *count += 1;
    *before_requests = 0;
}

void canary_spells_add(struct canary_spells *spells, double mean, double requests)
{
    mean_pair(mean, requests, &spells->before_1, &spells->before_1_requests, &spells->square_1,
            &spells->count_1);
    if (requests > 0) {
        spells->sum += mean * requests;
        spells->requests += requests;
    }
    if (++spells->seconds < 10)
        return;
    mean_pair(spells->requests > 0 ? spells->sum / spells->requests : 0, spells->requests,
            &spells->before_10, &spells->before_10_requests, &spells->square_10, &spells->count_10);
    spells->sum = spells->requests = 0;
    spells->seconds = 0;
}

double canary_spells_value(const struct canary_spells *spells)
{
    if (!(spells->square_1 > 0))
        return 1;
    double brief = spells->square_1 / spells->count_1;
    double lasting =
            (spells->square_10 + mean_long_pairs * brief) / (spells->count_10 + mean_long_pairs);
    return fmax(1, lasting / brief);
}
