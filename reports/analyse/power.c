// SPDX-License-Identifier: Apache-2.0
// Minimum detectable effect and the pairs that would settle a cell. Pure formulas.
#include "reports/analyse/power.h"

#include <math.h>

#include "reports/analyse/distribution.h"

double power_mde(double sd, int pairs, double alpha, double power)
{
    if (pairs < 2)
        return NAN;
    double quantiles = distribution_t_quantile(1 - alpha, pairs - 1) +
            distribution_t_quantile(power, pairs - 1);
    return expm1(quantiles * sd / sqrt(pairs));
}

long power_pairs_needed(double sd, double theta, double margin, double alpha, double power)
{
    double distance = fabs(log1p(margin) - theta);
    double quantiles =
            distribution_normal_quantile(1 - alpha) + distribution_normal_quantile(power);
    double pairs = ceil(pow(quantiles * sd / distance, 2));
    if (!(pairs <= POWER_PAIRS_MAX)) // also NAN, and infinity when theta lies on the margin
        return -1;
    long least = signed_rank_observations_min(alpha);
    return (long)pairs > least ? (long)pairs : least;
}

double power_sd_of_interval(const struct interval *interval, int pairs, double alpha)
{
    if (!interval->has_bounds || pairs < 2)
        return NAN;
    double half = 0.5 * (interval->upper - interval->lower);
    return half * sqrt(pairs) / distribution_t_quantile(1 - alpha, pairs - 1);
}
