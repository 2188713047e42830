// SPDX-License-Identifier: Apache-2.0
// Hodges-Lehmann and the exact signed-rank interval (docs/METRICS.md has the formulas). Memory and
// time grow with the square of the count: callers thin out above some thousands (turns.c does).
#include "reports/analyse/signed_rank.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/quantile.h"

// Null probabilities of T+ = 0 … n(n+1)/2; the caller frees. Each rank k is in the sum or not, by a
// fair coin: p_k(t) = (p_{k-1}(t) + p_{k-1}(t - k)) / 2.
static double *signed_rank_pmf(int n)
{
    int top = n * (n + 1) / 2;
    double *pmf = xcalloc((size_t)top + 1, sizeof *pmf);
    pmf[0] = 1;
    for (int k = 1, reach = 0; k <= n; k++) {
        reach += k;
        for (int t = reach; t >= 0; t--)
            pmf[t] = 0.5 * (pmf[t] + (t >= k ? pmf[t - k] : 0));
    }
    return pmf;
}

double signed_rank_cdf(int n, int t)
{
    double *pmf = signed_rank_pmf(n), sum = 0;
    for (int i = 0; i <= t && i <= n * (n + 1) / 2; i++)
        sum += pmf[i];
    free(pmf);
    return sum;
}

int signed_rank_critical(int n, double alpha)
{
    if (n > SIGNED_RANK_EXACT_MAX) {
        double mean = n * (n + 1.0) / 4, sd = sqrt(n * (n + 1.0) * (2.0 * n + 1) / 24);
        return (int)floor(mean + distribution_normal_quantile(alpha) * sd - 0.5);
    }
    double *pmf = signed_rank_pmf(n), sum = 0;
    int critical = -1;
    // 1e-12: 2^-n summed must count as <= alpha when they are equal on paper.
    for (int t = 0; t <= n * (n + 1) / 2; t++) {
        sum += pmf[t];
        if (sum > alpha * (1 + 1e-12))
            break;
        critical = t;
    }
    free(pmf);
    return n > 0 ? critical : -1;
}

int signed_rank_observations_min(double alpha)
{
    return (int)ceil(log2(1 / alpha) - 1e-9);
}

struct interval signed_rank_interval(const double *values, int count, double alpha)
{
    struct interval result = {.estimate = NAN, .lower = NAN, .upper = NAN};
    if (count <= 0)
        return result;
    size_t walsh_count = (size_t)count * ((size_t)count + 1) / 2, filled = 0;
    double *walsh = xcalloc(walsh_count, sizeof *walsh);
    for (int i = 0; i < count; i++)
        for (int j = i; j < count; j++)
            walsh[filled++] = 0.5 * (values[i] + values[j]);
    // Three order statistics by selection: sorting half a million averages would cost ten times
    // more.
    double high = quantile_select(walsh, walsh_count, walsh_count / 2);
    double low = walsh_count % 2 ? high : quantile_select(walsh, walsh_count, walsh_count / 2 - 1);
    result.estimate = 0.5 * (low + high);
    int critical = signed_rank_critical(count, alpha);
    if (critical >= 0) {
        // W_(q+1) and W_(M-q) in one-based order statistics.
        result.lower = quantile_select(walsh, walsh_count, (size_t)critical);
        result.upper = quantile_select(walsh, walsh_count, walsh_count - 1 - (size_t)critical);
        result.has_bounds = true;
    }
    free(walsh);
    return result;
}
