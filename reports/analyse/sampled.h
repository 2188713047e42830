// SPDX-License-Identifier: Apache-2.0
// Parity of outputs that are drawn at random (sampled tokens, dropout): two versions draw other
// numbers from the same distribution, so values cannot be compared and distributions can. The unit
// is what another seed of the baseline does: the distance between the distributions of the two
// sides, against the distance between two launches of the baseline.
#ifndef UPGATE_ANALYSE_SAMPLED_H
#define UPGATE_ANALYSE_SAMPLED_H

#include <stddef.h>

// The largest difference of the two distribution functions (Kolmogorov and Smirnov); both rise.
// NAN when one is empty.
double sampled_distance(
        const double *sorted_a, size_t count_a, const double *sorted_b, size_t count_b);
// Log ratio of the two distances, held apart from 0 by what one value of count moves.
double sampled_log_ratio(double distance, double distance_own, size_t count);

#endif
