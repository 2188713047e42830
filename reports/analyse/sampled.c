// SPDX-License-Identifier: Apache-2.0
// Distances of empirical distributions.
#include "reports/analyse/sampled.h"

#include <math.h>

double sampled_distance(
        const double *sorted_a, size_t count_a, const double *sorted_b, size_t count_b)
{
    if (!count_a || !count_b)
        return NAN;
    double furthest = 0;
    for (size_t i = 0, j = 0; i < count_a && j < count_b;) {
        double at = fmin(sorted_a[i], sorted_b[j]);
        while (i < count_a && sorted_a[i] <= at) // tokens: many are equal
            i++;
        while (j < count_b && sorted_b[j] <= at)
            j++;
        furthest = fmax(furthest, fabs((double)i / (double)count_a - (double)j / (double)count_b));
    }
    return furthest;
}

double sampled_log_ratio(double distance, double distance_own, size_t count)
{
    double step = 1 / (double)count;
    return log(fmax(distance, step) / fmax(distance_own, step));
}
