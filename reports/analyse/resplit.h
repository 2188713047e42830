// SPDX-License-Identifier: Apache-2.0
// Cheap A/A gates: in a run of a side against itself the order of the two launches of a pair means
// nothing, so each pair may be turned round by a coin. Every re-split is a gate that must not fail.
// They share their launches, so they are weaker evidence than fresh A/A runs, and are marked as
// such.
#ifndef UPGATE_ANALYSE_RESPLIT_H
#define UPGATE_ANALYSE_RESPLIT_H

#include <stdint.h>

#include "reports/analyse/looks.h"

struct resplit_cell {
    struct looks_rule rule;
    const double *values; // oriented log ratios of the pairs, NAN where a pair has none
    int count;            // the same number of pairs in every cell
};

// Judge `gates` re-splits of these cells (all metrics of a pair turn together); returns how many
// have a failing cell. The same seed gives the same answer.
int resplit_false_fails(const struct resplit_cell *cells, int cell_count, int gates, uint64_t seed);

#endif
