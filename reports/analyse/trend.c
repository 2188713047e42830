// SPDX-License-Identifier: Apache-2.0
// Theil-Sen: the median of all pairwise slopes. Quadratic, so long series are thinned first.
#include "reports/analyse/trend.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/quantile.h"

struct interval trend_slope(const double *values, int count, double alpha)
{
    struct interval result = {.estimate = NAN, .lower = NAN, .upper = NAN};
    int stride = (count + TREND_VALUES_MAX - 1) / TREND_VALUES_MAX;
    int n = stride ? (count + stride - 1) / stride : 0;
    if (n < 2)
        return result;
    size_t slope_count = (size_t)n * ((size_t)n - 1) / 2, filled = 0;
    double *slopes = xcalloc(slope_count, sizeof *slopes);
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            slopes[filled++] =
                    (values[j * stride] - values[i * stride]) / ((j - i) * (double)stride);
    double high = quantile_select(slopes, slope_count, slope_count / 2);
    double low = slope_count % 2 ? high : quantile_select(slopes, slope_count, slope_count / 2 - 1);
    result.estimate = 0.5 * (low + high);
    if (n >= 5) {
        double score_sd = sqrt(n * (n - 1.0) * (2.0 * n + 5) / 18);
        double reach = -distribution_normal_quantile(alpha / 2) * score_sd;
        double first = floor(((double)slope_count - reach) / 2);
        size_t lower = first > 0 ? (size_t)first : 0;
        result.lower = quantile_select(slopes, slope_count, lower);
        result.upper = quantile_select(slopes, slope_count, slope_count - 1 - lower);
        result.has_bounds = true;
    }
    free(slopes);
    return result;
}
