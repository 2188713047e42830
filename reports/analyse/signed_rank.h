// SPDX-License-Identifier: Apache-2.0
// Hodges-Lehmann estimate and the exact interval from inverting Wilcoxon's signed-rank test. Valid
// for any distribution that is symmetric about theta, which a random order within pairs gives under
// the null. The unit is the pair of launches, or the couple of blocks within one pair.
#ifndef UPGATE_ANALYSE_SIGNED_RANK_H
#define UPGATE_ANALYSE_SIGNED_RANK_H

#include <stdbool.h>

enum { SIGNED_RANK_EXACT_MAX = 60 }; // above it the null distribution is taken as normal

struct interval {
    double estimate;     // NAN when there is no observation
    double lower, upper; // each bound at one-sided alpha; NAN when has_bounds is false
    bool has_bounds;     // false: too few observations for this alpha
};

// P(T+ <= t) of n untied observations under the null; n <= SIGNED_RANK_EXACT_MAX.
double signed_rank_cdf(int n, int t);
// The largest t with P(T+ <= t) <= alpha, or -1: no interval at this alpha with n observations.
int signed_rank_critical(int n, double alpha);
// The least n that gives an interval at one-sided alpha: 5 (.05), 7 (.01), 9 (.002), 10 (.001).
int signed_rank_observations_min(double alpha);
struct interval signed_rank_interval(const double *values, int count, double alpha);

#endif
