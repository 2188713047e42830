// SPDX-License-Identifier: Apache-2.0
// Theil-Sen slope with Sen's interval (normal approximation of Kendall's score): a trend that
// outliers and bursts do not make.
#ifndef UPGATE_ANALYSE_TREND_H
#define UPGATE_ANALYSE_TREND_H

#include "reports/analyse/signed_rank.h"

enum { TREND_VALUES_MAX = 1000 }; // longer series are read at every k-th value

// Slope per index of values[0 … count). Two-sided level alpha; has_bounds is false below 5 values.
struct interval trend_slope(const double *values, int count, double alpha);

#endif
