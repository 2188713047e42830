// SPDX-License-Identifier: Apache-2.0
// What a number of pairs can find: the minimum detectable effect, and the number of pairs that
// would settle a cell. Both are plans, not tests: they use the spread as if it were known.
#ifndef UPGATE_ANALYSE_POWER_H
#define UPGATE_ANALYSE_POWER_H

#include "reports/analyse/signed_rank.h"

#define POWER_DEFAULT 0.90

// (t_{1-alpha,n-1} + t_{power,n-1}) sd / sqrt(n), as a fraction (exp(x) - 1). NAN below two pairs.
double power_mde(double sd, int pairs, double alpha, double power);
// Pairs after which an effect of theta (log, positive = worse) is told from the margin (fraction)
// with this power; -1: unknown or beyond POWER_PAIRS_MAX.
long power_pairs_needed(double sd, double theta, double margin, double alpha, double power);
// The sd with which a Student t interval of `pairs` values would be as wide as this interval: the
// spread as the signed-rank interval sees it, which outliers move little. NAN without bounds.
double power_sd_of_interval(const struct interval *interval, int pairs, double alpha);

enum { POWER_PAIRS_MAX = 100000 };

#endif
