// SPDX-License-Identifier: Apache-2.0
// The mean: its Student t interval, and how often signs drawn by a coin give as large a one. What
// the typical value (signed_rank.h) does not see, a few large values, decides here.
#ifndef UPGATE_ANALYSE_MEAN_INTERVAL_H
#define UPGATE_ANALYSE_MEAN_INTERVAL_H

#include "reports/analyse/signed_rank.h"

// Bounds at one-sided alpha each; has_bounds is false below two values.
struct interval mean_interval(const double *values, int count, double alpha);

// P(sum of the values with random signs >= their sum): the chance of it when each pair might as
// well have been turned round. Exact whatever the distribution for up to MEAN_SIGNS_EXACT values
// that are not 0; of more the smaller ones are taken together as normal. 1 when all are 0.
enum { MEAN_SIGNS_EXACT = 16 };
double mean_sign_p(const double *values, int count);

#endif
