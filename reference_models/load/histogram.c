// SPDX-License-Identifier: Apache-2.0
// Bins by the highest bit and the seven below it.
#include "reference_models/load/histogram.h"

#include <math.h>

static int histogram_bin(uint64_t ns)
{
    if (ns < 128)
        return (int)ns;
    int top = 63 - __builtin_clzll(ns); // 7 or more
    int bin = (top - 6) * 128 + (int)((ns >> (top - 7)) - 128);
    return bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1;
}

static double histogram_middle(int bin)
{
    if (bin < 128)
        return bin;
    int shift = bin / 128 - 1;
    double low = ldexp(128 + bin % 128, shift);
    return low + (ldexp(1, shift) - 1) / 2;
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    histogram->bins[histogram_bin((uint64_t)ns)]++;
    histogram->count++;
    histogram->sum_ns += (double)ns;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

double histogram_quantile(const struct histogram *histogram, double q)
{
    if (!histogram->count)
        return NAN;
    double rank = ceil(q * (double)histogram->count);
    uint64_t below = 0;
    for (int bin = 0; bin < HISTOGRAM_BINS; bin++) {
        below += histogram->bins[bin];
        if (histogram->bins[bin] && (double)below >= rank)
            return fmin(histogram_middle(bin), (double)histogram->max_ns);
    }
    return (double)histogram->max_ns;
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum_ns / (double)histogram->count : NAN;
}
