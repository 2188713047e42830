// SPDX-License-Identifier: Apache-2.0
// Latencies of one stage: bins of both arms, and the ratio of their quantiles by counting above a
// threshold: the candidate's quantile is r times the baseline's where as many of its requests lie
// above r times the threshold as of the baseline's above it.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_LATENCY_H
#define UPGATE_REPORTS_ANALYSE_CANARY_LATENCY_H

#include <stdint.h>

#include "reports/analyse/canary/counts.h"
#include "reports/analyse/canary/second.h"

// Sums over the seconds in which both arms answered.
struct canary_latency {
    double count[CANARY_ARMS][CANARY_BINS];
    // each request times the candidate's share of its second
    double share[CANARY_ARMS][CANARY_BINS];
};

// Nothing is added where an arm had none. ret_answered: requests in the bins of each arm.
void canary_latency_add(struct canary_latency *latency,
        const struct canary_second arms[CANARY_ARMS], double ret_answered[CANARY_ARMS]);

// Thresholds are positions on the scale of bins; within a bin requests lie evenly.
double canary_position(double ratio); // by how many bins a ratio moves
double canary_moved(double position); // its inverse
// of one second, at a few positions
double canary_above(const uint32_t bins[CANARY_BINS], double position);

// Of many requests, or at many positions: a tail, how many lie above each border; of the last, 0.
double canary_tail_above(const double tail[CANARY_BINS + 1], double position);
// The border of a bin above which about `fraction` of the requests lie (nearest by ratio), never 0
// of them unless there are none; -1 without requests.
int canary_threshold(const double tail[CANARY_BINS + 1], double fraction);

struct canary_tails {
    double count[CANARY_ARMS][CANARY_BINS + 1], share[CANARY_ARMS][CANARY_BINS + 1];
};
void canary_tails_of(const struct canary_latency *latency, struct canary_tails *ret_tails);

// Ratio of quantiles at the baseline's `threshold`: estimate; confidence sequence, each end at
// alpha. NaN: not known, or no end.
double canary_tails_ratio(const struct canary_tails *tails, int threshold);
void canary_tails_bounds(const struct canary_tails *tails, int threshold, double dispersion,
        double alpha, double *ret_low, double *ret_high);

#endif
