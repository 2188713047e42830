// SPDX-License-Identifier: Apache-2.0
// Order statistics and moments of small arrays. Functions without "sorted" in their contract leave
// the array as it was. An empty array gives NAN: absent, not zero.
#ifndef UPGATE_ANALYSE_QUANTILE_H
#define UPGATE_ANALYSE_QUANTILE_H

#include <stddef.h>

void quantile_sort(double *values, size_t count); // rising; no NAN inside
double quantile_median(const double *values, size_t count);
// Nearest rank: the smallest value with at least p of all values at or below it; 0 < p <= 1. No
// interpolation, so p99 of few values errs to the slow side.
double quantile_nearest_rank(const double *sorted, size_t count, double p);
double quantile_mean(const double *values, size_t count);
double quantile_sd(const double *values, size_t count); // of a sample (n - 1); NAN below 2
double quantile_mad_sd(const double *values,
        size_t count); // 1.4826 * MAD: sd that outliers do not move
// The k-th smallest (0-based); reorders the array.
double quantile_select(double *values, size_t count, size_t k);

#endif
