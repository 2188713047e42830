// SPDX-License-Identifier: Apache-2.0
// The power of the e-process by itself over the grid of the design's live simulations, and the
// speed of the fold.
#ifndef UPGATE_CI_SIM_CANARY_SIM_GRID_H
#define UPGATE_CI_SIM_CANARY_SIM_GRID_H

#include <stdbool.h>
#include <stdio.h>

void grid_counts(FILE *file, int streams, int jobs); // errors, then p99
bool grid_speed(FILE *file);                         // false: a day takes longer than a second

#endif
