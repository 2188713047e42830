// SPDX-License-Identifier: Apache-2.0
// Mean with Student t bounds. Outliers widen it, which is what the cross-check looks for.
#include "reports/analyse/mean_interval.h"

#include <math.h>
#include <stddef.h>

#include "reports/analyse/distribution.h"
#include "reports/analyse/quantile.h"

struct interval mean_interval(const double *values, int count, double alpha)
{
    struct interval result = {.estimate = NAN, .lower = NAN, .upper = NAN};
    if (count <= 0)
        return result;
    result.estimate = quantile_mean(values, (size_t)count);
    if (count < 2)
        return result;
    double half = distribution_t_quantile(1 - alpha, count - 1) *
                  quantile_sd(values, (size_t)count) / sqrt(count);
    result.lower = result.estimate - half;
    result.upper = result.estimate + half;
    result.has_bounds = true;
    return result;
}
