// SPDX-License-Identifier: Apache-2.0
// What a stage can and cannot see, from the growth of ln e at a given traffic. Latency is taken as
// lognormal here, and only here.
#include <math.h>

#include "common/containers/search.h"
#include "reports/analyse/canary/evidence_state.h"
#include "reports/analyse/canary/rate.h"
#include "reports/analyse/distribution.h"

enum { FORESEE_BISECTIONS = 50 };
static const double foresee_power_z = 0.8416; // 80 % lie above it
static const double foresee_ratio_max = 1000;

struct foresee {
    enum canary_metric metric;
    double share, opens, needed, alpha, margin, sigma, dispersion, error_rate;
};

static double foresee_fraction(const struct foresee *see)
{
    return see->metric == CANARY_LATENCY_P50 ? 0.5 : 0.01;
}

// Part of requests above the baseline's quantile times `moved`, of an arm whose latency is `ratio`
// times the baseline's.
static double foresee_above(const struct foresee *see, double moved, double ratio)
{
    double z = -distribution_normal_quantile(foresee_fraction(see));
    return distribution_normal_cdf(-(z + log(moved / ratio) / see->sigma));
}

// Mean and standard deviation of ln e against `null` after one request.
static void foresee_growth(double baseline, double candidate, double share, double null,
        double *ret_mean, double *ret_sd)
{
    double all = share * candidate + (1 - share) * baseline;
    double part = all > 0 ? share * candidate / all : 0;
    double at_null = share * null / (1 - share + share * null);
    *ret_mean = canary_counts_growth(baseline, candidate, share, null);
    *ret_sd = 0;
    if (part > 0 && part < 1)
        *ret_sd = sqrt(all * part * (1 - part)) *
                fabs(log(part / at_null) - log((1 - part) / (1 - at_null)));
}

// Is a candidate `ratio` times as bad rolled back with probability 0.8 within so many requests of
// both arms?
static bool foresee_sees(const struct foresee *see, double ratio, double requests)
{
    double mean, sd, beyond, beyond_sd, inflate = see->dispersion;
    if (see->metric == CANARY_LATENCY_MEAN) {
        double variance = expm1(see->sigma * see->sigma), weight = see->share * (1 - see->share);
        double z = (ratio - 1) * sqrt(requests * weight / variance / inflate);
        double z_margin = z - see->margin * sqrt(requests * weight / variance / inflate);
        z -= foresee_power_z;
        return z > 0 && 0.5 * z * z >= see->needed + EVIDENCE_MIXTURE_COST &&
                z_margin - foresee_power_z >= EVIDENCE_BEYOND_SE;
    }
    bool tail = see->metric == CANARY_LATENCY_P50 || see->metric == CANARY_LATENCY_P99;
    double baseline = tail ? foresee_fraction(see) : see->error_rate;
    double candidate = tail ? foresee_above(see, 1, ratio) : fmin(ratio * see->error_rate, 1);
    foresee_growth(baseline, candidate, see->share, 1, &mean, &sd);
    if (tail)
        foresee_growth(baseline, foresee_above(see, 1 + see->margin, ratio), see->share, 1, &beyond,
                &beyond_sd);
    else
        foresee_growth(baseline, candidate, see->share, 1 + see->margin, &beyond, &beyond_sd);
    double count = requests / inflate, spread = sqrt(count);
    return ratio > 1 + see->margin &&
            count * mean - foresee_power_z * spread * sd >= see->needed + EVIDENCE_MIXTURE_COST &&
            sqrt(2 * count * beyond) - foresee_power_z >= EVIDENCE_BEYOND_SE;
}

static double foresee_seen(const struct foresee *see, double requests)
{
    double lo = 0, hi = log(foresee_ratio_max); // of the logarithm
    if (!foresee_sees(see, foresee_ratio_max, requests))
        return INFINITY;
    search_narrow(mid, lo, hi, FORESEE_BISECTIONS, foresee_sees(see, exp(mid), requests));
    return exp(hi);
}

// Requests of both arms until an equal candidate passes, typically.
static double foresee_pass(const struct foresee *see, uint64_t stage_requests)
{
    double needed = (log(1 / see->alpha) + EVIDENCE_MIXTURE_COST) * see->dispersion;
    double below = 1 + see->margin / see->opens, growth;
    if (see->metric == CANARY_LATENCY_MEAN) {
        double effect = below - 1, variance = expm1(see->sigma * see->sigma);
        growth = see->share * (1 - see->share) * effect * effect / (2 * variance);
        return growth > 0 ? needed / growth : INFINITY;
    }
    if (see->metric == CANARY_LATENCY_P50 || see->metric == CANARY_LATENCY_P99) {
        double fraction = foresee_fraction(see), left = foresee_above(see, 1 + see->margin, 1);
        double at = fmin((fraction - (1 - see->opens) * left) / see->opens, 0.99);
        growth = canary_counts_growth(fmax(at, fraction), left, see->share, 1);
        return growth > 0 ? needed / growth : INFINITY;
    }
    growth = canary_counts_growth(see->error_rate, see->error_rate, see->share, below);
    double own = canary_rate_requests(
            see->error_rate, fmin(EVIDENCE_ERROR_FLOOR / see->opens, 1), see->alpha);
    if (see->opens < 1 && stage_requests && see->error_rate * (double)stage_requests < 1)
        own = fmin(own, (double)stage_requests);
    return fmin(growth > 0 ? needed / growth : INFINITY, own / see->share);
}

struct canary_foresight canary_foresee(const struct canary_rules *rules, enum canary_metric metric,
        double share, double soak_s, const struct canary_traffic *traffic)
{
    const struct canary_rule *rule = &rules->metrics[metric];
    double all = fmax(traffic->requests_per_s * soak_s, 0), mine = all * share;
    struct canary_foresight sight = {.requests = mine < 1e18 ? (uint64_t)mine : UINT64_MAX,
            .seen_ratio = INFINITY,
            .pass_s = INFINITY,
            .zero_error_bound = canary_rate_bound(0, mine, rules->alpha)};
    if (!isnan(rule->limit)) { // one answer more than the limit is seen when it comes; nothing has
                               // to be waited for
        sight.pass_s = traffic->requests_per_s * share > 0 ? 1 / (traffic->requests_per_s * share)
                                                           : INFINITY;
        return sight;
    }
    if (!(share > 0 && share < 1) || !(traffic->requests_per_s > 0))
        return sight; // with one arm nothing is compared
    struct foresee see = {.metric = metric,
            .share = share,
            .opens = traffic->opens > 0 && traffic->opens < 1 ? traffic->opens : 1,
            .needed = canary_evidence_needed(rules) - log(1 - EVIDENCE_LATE_PART),
            .alpha = rules->alpha,
            .margin = rule->margin,
            .sigma = traffic->latency_sigma > 0 ? traffic->latency_sigma : 0.5,
            .dispersion = fmax(traffic->dispersion, 1),
            .error_rate = fmax(traffic->error_rate, 0)};
    sight.seen_ratio = foresee_seen(&see, all);
    sight.pass_s = foresee_pass(&see, traffic->stage_requests) / traffic->requests_per_s;
    return sight;
}
