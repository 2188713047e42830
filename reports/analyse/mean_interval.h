// SPDX-License-Identifier: Apache-2.0
// Mean and Student t interval: the cross-check of the signed-rank interval, never the judge.
#ifndef UPGATE_ANALYSE_MEAN_INTERVAL_H
#define UPGATE_ANALYSE_MEAN_INTERVAL_H

#include "reports/analyse/signed_rank.h"

// Bounds at one-sided alpha each; has_bounds is false below two values.
struct interval mean_interval(const double *values, int count, double alpha);

#endif
