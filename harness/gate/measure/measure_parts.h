// SPDX-License-Identifier: Apache-2.0
// What the files that measure a pair share.
#ifndef UPGATE_GATE_MEASURE_PARTS_H
#define UPGATE_GATE_MEASURE_PARTS_H

#include "harness/gate/measure/measure.h"

enum { MEASURE_WARM_UP_MIN = 5 }; // steps; as steady.c's default

// A pair while it is measured.
struct measure_state {
    const struct pair_rows *rows;
    struct measure_pair *pair;
    const struct rank_rows *slowest[PLAN_SIDES]; // NULL: the side made no steps
    double *durations[PLAN_SIDES];               // of its steps
    int64_t start; // step from which on all counts; what came before is the warm-up
};

void measure_put(struct measure_launch *launch, enum metric_id metric, double value,
        enum measure_reason otherwise);
// its steps are requests that arrive by a schedule
bool measure_has_arrivals(const struct rank_rows *rank);
// Is the block whole and behind the warm-up on both sides?
bool measure_counts(const struct measure_state *state, const struct block_rows *block);

// The typical step (measure_typical.c), and from where on steps count.
void measure_find_start(struct measure_state *state);
void measure_typical(struct measure_state *state);
// Sums: the mean step, throughput, slow steps, the warm-up, and what is left behind the last step
// (measure_sums.c).
void measure_sums(struct measure_state *state);
// Latency of requests (measure_latency.c).
void measure_latency(const struct measure_state *state);

#endif
