// SPDX-License-Identifier: Apache-2.0
// The ranks that come last in a launch: stragglers.c finds who came last to what and why,
// stragglers_sum.c what that costs and how often it is. Internal to this room and its unit tests.
// One owner thread.
#ifndef UPGATE_DIFF_STRAGGLERS_H
#define UPGATE_DIFF_STRAGGLERS_H

#include "reports/analyse/diff/facts.h"
#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/trace/launch/launch_trace.h"

// Who came last to the collectives of a launch, and by how much. Waits of the others for it are the
// cost.
struct straggler {
    uint32_t rank;      // index in trace->ranks
    int64_t last_count; // collectives it came last to, of `collectives`
    int64_t collectives;
    int64_t late_ns_mean;    // behind the one before it, when it was last
    int64_t wait_ns_step;    // what the others waited for it, a step
    int64_t exposed_ns_step; // and had nothing else to do meanwhile
    double excess, variance; // of last_count beyond its share; by how much that spreads from window
                             // to window
    enum diff_deed deed;     // what it did meanwhile
    const char *why;         // its short name; NULL: not known
    const char *why_name;    // of it, as in the trace
    int64_t why_ns_step;     // by how much it did that longer than the others, a step; 0: not known
};
// By NCCL's rows, or without NCCL by the ranks' arrival at the waits for each other, which are in
// the tree. Returns the number filled, at most max, worst first; without reasons, which take most
// of the time, also those that never came last. Names live in the tree.
size_t stragglers_find(const struct launch_trace *trace, struct cost_tree *tree, bool reasons,
        struct straggler *ret, size_t max);

// ---- between the two files ----

struct arrival {
    uint64_t communicator;
    int64_t sequence, at, enqueued, begin, end; // at: when it came
    int64_t before; // its arrival at the collective before; its enqueueing
    uint32_t rank;
};

struct late {            // a collective that a rank came last to
    size_t first, count; // of arrivals, in order: the last one is late
    int64_t late_ns, wait_ns, exposed_ns;
    uint32_t window; // the how many-th of the late rank
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
