// SPDX-License-Identifier: Apache-2.0
// Questions about the steps of the ranks of one launch.
#ifndef UPGATE_GATE_RANK_ROWS_H
#define UPGATE_GATE_RANK_ROWS_H

#include "harness/gate/measure/pair_rows.h"

// The rank whose steps took longest in sum: the others wait for it. NULL: no steps.
const struct rank_rows *rank_rows_slowest(const struct launch_rows *launch);
double *rank_rows_durations(const struct rank_rows *rank); // each > 0; caller frees
// Position of step idx, or -1.
int rank_rows_find(const struct rank_rows *rank, int64_t idx);
// Samples of all ranks in the steps [from, to); NAN when one is not known, or there are none.
double rank_rows_samples(const struct launch_rows *rows, int64_t from, int64_t to);

#endif
