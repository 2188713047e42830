// SPDX-License-Identifier: Apache-2.0
// Between the files of the stragglers: stragglers.c finds who came last to what and why, stragglers_sum.c what that costs and how
// often it is. One owner thread.
#ifndef UPGATE_DIFF_STRAGGLERS_INSIDE_H
#define UPGATE_DIFF_STRAGGLERS_INSIDE_H

#include "reports/analyse/diff/path/gpu_path.h"

struct arrival {
    uint64_t communicator;
    int64_t sequence, at, enqueued, begin, end; // at: when it came
    int64_t before;                             // its arrival at the collective before; its enqueueing
    uint32_t rank;
};

struct late { // a collective that a rank came last to
    size_t first, count; // of arrivals, in order: the last one is late
    int64_t late_ns, wait_ns, exposed_ns;
    uint32_t window;     // the how many-th of the late rank
};

struct search {
    const struct launch_trace *trace;
    struct arrival *arrivals;
    struct late *lates;
    size_t arrival_count, late_count;
    int64_t *steps; // of each rank in windows
    bool told;      // at is when its kernel began
};

void stragglers_exposed(struct search *search); // exposed_ns of the lates
// By rank into all[rank_count], worst first; false: nobody waited for anybody.
bool stragglers_sum(struct search *search, const struct cost_tree *tree, struct straggler *all);

#endif
