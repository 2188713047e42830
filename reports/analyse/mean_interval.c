// SPDX-License-Identifier: Apache-2.0
// Mean with Student t bounds, and the test of its sign.
#include "reports/analyse/mean_interval.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
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

static int mean_by_size(const void *left, const void *right)
{
    double a = fabs(*(const double *)left), b = fabs(*(const double *)right);
    return (a < b) - (a > b);
}

// sums[signs]: of values[count], each negated where its bit is set.
static void mean_signed_sums(const double *values, int count, double *sums)
{
    sums[0] = 0;
    for (int i = 0; i < count; i++) {
        for (unsigned signs = 0; signs < 1u << i; signs++) {
            sums[signs + (1u << i)] = sums[signs] - values[i];
            sums[signs] += values[i];
        }
    }
}

double mean_sign_p(const double *values, int count)
{
    enum { HALF = (MEAN_SIGNS_EXACT + 1) / 2 };
    double low_sums[1 << HALF], high_sums[1 << HALF];
    double *sorted = xcalloc((size_t)(count > 0 ? count : 1), sizeof *sorted);
    double sum = 0, rest = 0, p = 0;
    int used = 0;
    for (int i = 0; i < count; i++)
        if (values[i] != 0)
            sum += sorted[used++] = values[i];
    qsort(sorted, (size_t)used, sizeof *sorted, mean_by_size);
    int exact = used < MEAN_SIGNS_EXACT ? used : MEAN_SIGNS_EXACT;
    for (int i = exact; i < used; i++)
        rest += sorted[i] * sorted[i];
    // Equal on paper must count as equal.
    double least = sum - 1e-12 * fabs(sum);
    int low = exact / 2;
    mean_signed_sums(sorted, low, low_sums);
    mean_signed_sums(sorted + low, exact - low, high_sums);
    for (unsigned signs = 0; signs < 1u << exact; signs++) {
        double flipped = low_sums[signs & ((1u << low) - 1)] + high_sums[signs >> low];
        p += rest > 0 ? distribution_normal_cdf((flipped - sum) / sqrt(rest)) : flipped >= least;
    }
    free(sorted);
    return used ? p / (1u << exact) : 1;
}
