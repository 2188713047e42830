// SPDX-License-Identifier: Apache-2.0
// Between recordings.c and recordings_ranks.c: the ranks of a job in one recording, by their steps. One owner thread.
#ifndef UPGATE_DIFF_RECORDINGS_RANKS_H
#define UPGATE_DIFF_RECORDINGS_RANKS_H

#include "reports/analyse/diff/recordings/recordings.h"

struct recordings_window {
    struct store *store;
    int64_t recording_id, begin_ns;
    int32_t slices; // seconds
    int32_t least;  // steps of a rank, and seconds: fewer measure no noise
    double alpha;   // of the interval, for all ranks together
};

// Fills what ranks says of steps.
int recordings_ranks_find(const struct recordings_window *window, struct recordings_ranks *ranks, struct error *err);

#endif
