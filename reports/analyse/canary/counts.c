// SPDX-License-Identifier: Apache-2.0
// The likelihood of a ratio of rates, mixtures over it, and what is bisected from them.
#include "reports/analyse/canary/counts.h"

#include <math.h>

#include "common/containers/search.h"
#include "reports/analyse/distribution.h"

enum {
    COUNTS_BISECTIONS = 40 // halves 24 (of ln ratio) to 2e-11
};
// what is beyond 160,000 times as much is without end
static const double counts_log_ratio_max = 12;

// Bets: logarithms of ratios in steps of the root of 2, so that none is further off than a fifth
// (which loses 3 % of the growth). Their weights favour what a canary is for, ratios of 1.3 to 2.5;
// the others cost 1 to 2 more in ln e.
const double canary_bet[CANARY_BETS] = {0.020000, 0.028284, 0.040000, 0.056569, 0.080000, 0.113137,
        0.160000, 0.226274, 0.320000, 0.452548, 0.640000, 0.905097, 1.280000, 1.810193, 2.560000,
        3.620387};
const double canary_bet_weight[CANARY_BETS] = {0.018810, 0.022807, 0.028070, 0.035087, 0.044501,
        0.057017, 0.072982, 0.091227, 0.107326, 0.114034, 0.107326, 0.091227, 0.072982, 0.057017,
        0.044501, 0.035086};

static const double counts_more[CANARY_BETS] = { // expm1() of the bets
        0.02020134002675581, 0.028687790272868295, 0.040810774192388224, 0.058199628055575624,
        0.08328706767495855, 0.11978533303106567, 0.17351087099181023, 0.25391919207149466,
        0.37712776433595707, 0.5723133402452298, 0.8964808793049514, 1.472171712083588,
        2.5966397255692817, 5.111626862396379, 11.935817315543076, 36.35202025716661};

void canary_counts_add(struct canary_counts *counts, double events_baseline,
        double events_candidate, double requests_baseline, double requests_candidate,
        double dispersion)
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

// ln of the likelihood of a ratio over that of 1; what the spread of the shares takes off is left
// out, to the safe side.
static double counts_log(const struct canary_counts *counts, double log_ratio)
{
    if (!(counts->all > 0))
        return 0;
    return counts->candidate * log_ratio -
            counts->all * log1p(counts_share(counts) * expm1(log_ratio));
}

// The same with the spread of the shares, to the second order: where the ratio is the one to be
// refuted, leaving it out would not be the safe side.
static double counts_log_refuted(const struct canary_counts *counts, double log_ratio)
{
    if (!(counts->all > 0))
        return 0;
    double share = counts_share(counts), effect = expm1(log_ratio);
    double spread = fmax(counts->share2 / counts->all - share * share, 0);
    double part = effect / (1 + share * effect);
    return counts_log(counts, log_ratio) + 0.5 * counts->all * spread * part * part;
}

static void counts_sum(struct canary_counts *sum, const struct canary_counts *more, double times)
{
    sum->candidate += times * more->candidate;
    sum->all += times * more->all;
    sum->share += times * more->share;
    sum->share2 += times * more->share2;
}

void canary_counts_sum(struct canary_counts *sum, const struct canary_counts *more)
{
    counts_sum(sum, more, 1);
}

// What rounding leaves of nothing is nothing.
void canary_counts_less(struct canary_counts *sum, const struct canary_counts *part)
{
    double rest = 1e-9 * sum->all;
    counts_sum(sum, part, -1);
    if (!(sum->all > rest))
        *sum = (struct canary_counts){0};
    sum->candidate = fmin(fmax(sum->candidate, 0), sum->all);
    if (sum->candidate < rest)
        sum->candidate = 0;
}

bool canary_counts_bets(const struct canary_counts *second, double ret_logs[CANARY_BETS])
{
    if (!(second->all > 0))
        return false;
    double share = counts_share(second);
    for (int i = 0; i < CANARY_BETS; i++)
        ret_logs[i] =
                second->candidate * canary_bet[i] - second->all * log1p(share * counts_more[i]);
    return true;
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
    double logs[CANARY_BETS];
    for (int i = 0; i < CANARY_BETS; i++)
        logs[i] = counts_log_trail(trail, log_ratio + sign * canary_bet[i]);
    return distribution_log_sum(logs, canary_bet_weight, CANARY_BETS);
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

// Of the candidate's events, expected at the ratio. Less as many as there were is the derivative of
// the likelihood by its logarithm.
static double counts_expected(struct canary_trail trail, double log_ratio)
{
    double ratio = exp(log_ratio), expected = 0;
    for (int k = 0; k < trail.count; k++) {
        const struct canary_counts *counts = &trail.stages[k];
        if (counts->all > 0)
            expected += counts->all * counts_share(counts) * ratio /
                    (1 + counts_share(counts) * (ratio - 1));
    }
    return expected;
}

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
    search_narrow(mid, lo, hi, COUNTS_BISECTIONS, counts_expected(trail, mid) >= candidate);
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
static double counts_bound(
        const struct canary_counts *stage, double likely, double sign, double needed)
{
    double inside = fmin(fmax(likely, -counts_log_ratio_max), counts_log_ratio_max);
    double outside = sign * counts_log_ratio_max;
    if (counts_refutes(stage, outside, sign) < needed)
        return sign * INFINITY;
    search_narrow(
            mid, inside, outside, COUNTS_BISECTIONS, counts_refutes(stage, mid, sign) >= needed);
    return outside;
}

void canary_counts_bounds(
        const struct canary_counts *stage, double alpha, double *ret_low, double *ret_high)
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

double canary_counts_growth(double rate_baseline, double rate_candidate, double share, double ratio)
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
