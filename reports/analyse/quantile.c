// SPDX-License-Identifier: Apache-2.0
// Order statistics and moments. Reads arrays of its callers, writes nothing else. No inference
// here: intervals are in signed_rank.c and mean_interval.c.
#include "reports/analyse/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

static int quantile_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void quantile_sort(double *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof *values, quantile_compare);
}

double quantile_select(double *values, size_t count, size_t k)
{
    ptrdiff_t lo = 0, hi = (ptrdiff_t)count - 1, want = (ptrdiff_t)k;
    while (lo < hi) {
        double pivot = values[lo + (hi - lo) / 2];
        ptrdiff_t i = lo, j = hi;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                double swap = values[i];
                values[i++] = values[j];
                values[j--] = swap;
            }
        }
        if (want <= j)
            hi = j;
        else if (want >= i)
            lo = i;
        else
            break; // between j and i everything equals the pivot
    }
    return values[want];
}

double quantile_median(const double *values, size_t count)
{
    if (!count)
        return NAN;
    double *copy = xcalloc(count, sizeof *copy);
    memcpy(copy, values, count * sizeof *copy);
    quantile_sort(copy, count);
    double median = count % 2 ? copy[count / 2] : 0.5 * (copy[count / 2 - 1] + copy[count / 2]);
    free(copy);
    return median;
}

double quantile_nearest_rank(const double *sorted, size_t count, double p)
{
    if (!count)
        return NAN;
    // 1e-9: 0.99 * 700 is 693.0000000000001 in binary and must stay rank 693.
    double rank = ceil(p * (double)count - 1e-9);
    size_t idx = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[idx < count ? idx : count - 1];
}

double quantile_mean(const double *values, size_t count)
{
    if (!count)
        return NAN;
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

double quantile_sd(const double *values, size_t count)
{
    if (count < 2)
        return NAN;
    double mean = quantile_mean(values, count), sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return sqrt(sum / (double)(count - 1));
}

double quantile_mad_sd(const double *values, size_t count)
{
    if (!count)
        return NAN;
    double median = quantile_median(values, count);
    double *deviation = xcalloc(count, sizeof *deviation);
    for (size_t i = 0; i < count; i++)
        deviation[i] = fabs(values[i] - median);
    double mad = quantile_median(deviation, count);
    free(deviation);
    return 1.4826 * mad;
}
