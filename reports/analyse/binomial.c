// SPDX-License-Identifier: Apache-2.0
// Binomial bound and tails through the incomplete beta function. Pure formulas.
#include "reports/analyse/binomial.h"

#include <math.h>

#include "common/containers/search.h"
#include "reports/analyse/distribution.h"

double binomial_upper_bound(long events, long trials, double confidence)
{
    if (trials <= 0 || events >= trials)
        return 1;
    return distribution_beta_quantile((double)events + 1, (double)(trials - events), confidence);
}

double binomial_tail(long events, long trials, double p)
{
    if (events <= 0)
        return 1;
    if (events > trials)
        return 0;
    return distribution_beta_cdf((double)events, (double)(trials - events) + 1, p);
}

long binomial_requests_min(double percentile, long over, double alpha)
{
    // P(at most `over` above | n) = I_percentile(n - over, over + 1) falls with n: bisection.
    long lo = over + 1, hi = lo;
    while (distribution_beta_cdf((double)(hi - over), (double)over + 1, percentile) > alpha)
        hi *= 2;
    return (long)search_between(n, (size_t)lo, (size_t)hi,
            distribution_beta_cdf((double)((long)n - over), (double)over + 1, percentile) <= alpha);
}
