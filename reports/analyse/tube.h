// SPDX-License-Identifier: Apache-2.0
// Loss curves of two versions: same seeds, same data order. The candidate's curve must stay in a
// tube around the baseline's whose width is what another seed does to the baseline at the same
// step, and its final loss must be equivalent.
#ifndef UPGATE_ANALYSE_TUBE_H
#define UPGATE_ANALYSE_TUBE_H

#include "reports/analyse/signed_rank.h"

enum { TUBE_SEEDS_MIN = 5 };

struct tube_input {
    const double *a, *b; // losses [seed * step_count + step]; pairs of the same seed
    int seed_count, step_count;
};

enum tube_state {
    TUBE_INSIDE,
    TUBE_OUTSIDE,
    TUBE_FEW_SEEDS,    // fewer than TUBE_SEEDS_MIN, and not equal either
    TUBE_NOT_FINITE_A, // the baseline's loss has NaN or Inf: no measure
    TUBE_NOT_FINITE_B,
    TUBE_STATE_COUNT
};

struct tube_result {
    enum tube_state state;
    double share_outside; // of all (seed, step) points
    double worst;         // largest |b - a| over the width of the tube there; 1 = on its edge
    int worst_step, worst_seed;
    double worst_width, worst_distance; // of the tube and of |b - a| there
    double difference;                  // largest relative |b - a| / |a|
};

struct tube_result tube_compare(const struct tube_input *input);
// Relative difference of the final losses (mean of the last tenth of the steps) of each seed, by
// the signed-rank interval at one-sided alpha. Relative to the final loss, or to a tenth of the
// first one where that is larger: a loss near 0 has no ratio worth judging.
struct interval tube_final(const struct tube_input *input, double alpha);

#endif
