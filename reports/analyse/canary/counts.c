// SPDX-License-Identifier: Apache-2.0
// The likelihood of a ratio of rates, mixtures over it, and what is bisected from them.
#include "reports/analyse/canary/counts.h"

#include <math.h>

enum {
    COUNTS_BISECTIONS = 40 // halves 24 (of ln ratio) to 2e-11
};
static const double counts_log_ratio_max = 12; // what is beyond 160,000 times as much is without end

// Bets: logarithms of ratios in steps of the root of 2, so that none is further off than a fifth (which loses 3 % of the growth).
// Their weights favour what a canary is for, ratios of 1.3 to 2.5; the others cost 1 to 2 more in ln e.
const double canary_bet[CANARY_BETS] = {
    0.020000, 0.028284, 0.040000, 0.056569, 0.080000, 0.113137, 0.160000, 0.226274,
    0.320000, 0.452548, 0.640000, 0.905097, 1.280000, 1.810193, 2.560000, 3.620387};
const double canary_bet_weight[CANARY_BETS] = {
    0.018810, 0.022807, 0.028070, 0.035087, 0.044501, 0.057017, 0.072982, 0.091227,
    0.107326, 0.114034, 0.107326, 0.091227, 0.072982, 0.057017, 0.044501, 0.035086};

void canary_counts_add(struct canary_counts *counts, double events_baseline,
                       double events_candidate, double requests_baseline,
                       double requests_candidate, double dispersion)
{
    double events = (events_baseline + events_candidate) / dispersion;
    if (!(events > 0) || !(requests_baseline > 0) || !(requests_candidate > 0))
        return;
    double share = requests_candidate / (requests_baseline + requests_candidate);
    counts->candidate += events_candidate / dispersion;
    counts->all += events;
    counts->share += events * share;
    counts->share2 += events * share * share;
}

static double counts_share(const struct canary_counts *counts)
{
    return counts->share / counts->all;
}

// ln of the likelihood of a ratio over that of 1; what the spread of the shares takes off is left out, to the safe side.
static double counts_log(const struct canary_counts *counts, double log_ratio)
{
    if (!(counts->all > 0))
        return 0;
    return counts->candidate * log_ratio -
           counts->all * log1p(counts_share(counts) * expm1(log_ratio));
}

// The same with the spread of the shares, to the second order: where the ratio is the one to be refuted, leaving it out would not
// be the safe side.
static double counts_log_refuted(const struct canary_counts *counts, double log_ratio)
{
    if (!(counts->all > 0))
        return 0;
    double share = counts_share(counts), effect = expm1(log_ratio);
    double spread = fmax(counts->share2 / counts->all - share * share, 0);
    double part = effect / (1 + share * effect);
    return counts_log(counts, log_ratio) + 0.5 * counts->all * spread * part * part;
}

void canary_counts_sum(struct canary_counts *sum, const struct canary_counts *more)
{
    sum->candidate += more->candidate;
    sum->all += more->all;
    sum->share += more->share;
    sum->share2 += more->share2;
}

void canary_counts_bets(const struct canary_counts *second, double ret_logs[CANARY_BETS])
{
    for (int i = 0; i < CANARY_BETS; i++)
        ret_logs[i] = counts_log(second, canary_bet[i]);
}

static double counts_log_trail(struct canary_trail trail, double log_ratio)
{
    double sum = 0;
    for (int i = 0; i < trail.count; i++)
        sum += counts_log(&trail.stages[i], log_ratio);
    return sum;
}

// ln of the mixture of the bets, relative to `log_ratio`.
static double counts_mixture(struct canary_trail trail, double log_ratio, double sign)
{
    double logs[CANARY_BETS], highest = -INFINITY, sum = 0;
    for (int i = 0; i < CANARY_BETS; i++) {
        logs[i] = counts_log_trail(trail, log_ratio + sign * canary_bet[i]);
        highest = fmax(highest, logs[i]);
    }
    for (int i = 0; i < CANARY_BETS; i++)
        sum += canary_bet_weight[i] * exp(logs[i] - highest);
    return highest + log(sum);
}

double canary_counts_evidence(struct canary_trail trail, enum canary_side side)
{
    return counts_mixture(trail, 0, side == CANARY_WORSE ? 1 : -1);
}

double canary_counts_evidence_max(struct canary_trail trail)
{
    double sum = 0;
    for (int i = 0; i < trail.count; i++) {
        const struct canary_counts *counts = &trail.stages[i];
        if (!(counts->candidate > counts->share))
            continue; // a stage in which it is not worse speaks for no worse ratio
        double part = counts->candidate / counts->all, share = counts_share(counts);
        sum += counts->candidate * log(part / share);
        if (part < 1)
            sum += (counts->all - counts->candidate) * log((1 - part) / (1 - share));
    }
    return sum;
}

// Its derivative by the logarithm of the ratio falls: bisection finds the one zero.
double canary_counts_ratio(struct canary_trail trail)
{
    double candidate = 0, all = 0;
    for (int i = 0; i < trail.count; i++) {
        candidate += trail.stages[i].candidate;
        all += trail.stages[i].all;
    }
    if (!(all > 0))
        return NAN;
    if (!(candidate > 0))
        return 0;
    if (!(candidate < all * (1 - 1e-12))) // sums of quotients: equal but for rounding
        return INFINITY;
    double lo = -counts_log_ratio_max, hi = counts_log_ratio_max;
    for (int i = 0; i < COUNTS_BISECTIONS; i++) {
        double mid = 0.5 * (lo + hi), ratio = exp(mid), expected = 0;
        for (int k = 0; k < trail.count; k++) {
            const struct canary_counts *counts = &trail.stages[k];
            if (!(counts->all > 0))
                continue;
            double share = counts_share(counts);
            expected += counts->all * share * ratio / (1 - share + share * ratio);
        }
        if (expected < candidate)
            lo = mid;
        else
            hi = mid;
    }
    return exp(0.5 * (lo + hi));
}

double canary_counts_beyond(struct canary_trail trail, double ratio)
{
    double likely = canary_counts_ratio(trail);
    if (!(likely > ratio))
        return 0;
    double at = isinf(likely) ? counts_log_ratio_max : log(likely);
    double more = counts_log_trail(trail, at) - counts_log_trail(trail, log(ratio));
    return sqrt(2 * fmax(more, 0));
}

// ln e against "the ratio is `log_ratio` or further to the side of `sign`".
static double counts_refutes(const struct canary_counts *stage, double log_ratio, double sign)
{
    struct canary_trail trail = {stage, 1};
    return counts_mixture(trail, log_ratio, -sign) - counts_log_refuted(stage, log_ratio);
}

// The ratio nearest to the likely one, on the side of `sign`, that is refuted.
static double counts_bound(const struct canary_counts *stage, double likely, double sign,
                           double needed)
{
    double inside = fmin(fmax(likely, -counts_log_ratio_max), counts_log_ratio_max);
    double outside = sign * counts_log_ratio_max;
    if (counts_refutes(stage, outside, sign) < needed)
        return sign * INFINITY;
    for (int i = 0; i < COUNTS_BISECTIONS; i++) {
        double mid = 0.5 * (inside + outside);
        if (counts_refutes(stage, mid, sign) < needed)
            inside = mid;
        else
            outside = mid;
    }
    return outside;
}

void canary_counts_bounds(const struct canary_counts *stage, double alpha, double *ret_low,
                          double *ret_high)
{
    struct canary_trail trail = {stage, 1};
    double ratio = canary_counts_ratio(trail), needed = log(1 / alpha);
    *ret_low = 0;
    *ret_high = INFINITY;
    if (isnan(ratio))
        return;
    if (ratio > 0)
        *ret_low = exp(counts_bound(stage, log(ratio), -1, needed));
    if (isfinite(ratio))
        *ret_high = exp(counts_bound(stage, log(ratio), 1, needed));
}

double canary_counts_growth(double rate_baseline, double rate_candidate, double share,
                            double ratio)
{
    double candidate = share * rate_candidate, all = candidate + (1 - share) * rate_baseline;
    double null = share * ratio / (1 - share + share * ratio);
    if (!(all > 0) || !(null > 0) || !(null < 1))
        return 0;
    double part = candidate / all, growth = 0;
    if (part > 0)
        growth += part * log(part / null);
    if (part < 1)
        growth += (1 - part) * log((1 - part) / (1 - null));
    return all * growth;
}
