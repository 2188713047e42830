// SPDX-License-Identifier: Apache-2.0
// Latencies in nanoseconds, counted in bins: 128 in each power of two, so that a quantile is within
// 0.4 %; exact below 128 ns; the last bin holds what is above 2.4 h.
#ifndef UPGATE_LOAD_HISTOGRAM_H
#define UPGATE_LOAD_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BINS = 38 * 128 };

struct histogram {
    uint64_t count, bins[HISTOGRAM_BINS];
    double sum_ns;
    int64_t max_ns;
};

void histogram_add(struct histogram *histogram, int64_t ns); // below 0 counts as 0
// ns, nearest rank; NaN without any
double histogram_quantile(const struct histogram *histogram, double q);
double histogram_mean(const struct histogram *histogram); // ns; NaN without any

#endif
