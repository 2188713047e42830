// SPDX-License-Identifier: Apache-2.0
// What reduced ranks say of each rank, and who of them is slow: by who came last to NCCL's
// collectives, else by who waited less than the others. A rank is named where `upgate stalls`
// would: by more than late_rank_errors and late_rank_share (reports/analyse/stalls/ranks). Why it
// is late a reduced file does not know.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_TABLE_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_TABLE_H

#include "reports/analyse/reduce/reduced.h"

struct reduced_row { // a rank
    int32_t rank;
    const char *host; // of the reduced, which must live as long
    char gpu[48];     // "GPU-1a2b3c4d-0011-2233-4455-66778899aabb"; "": it has none that is known
    char model[REDUCED_MODEL_MAX + 1]; // of that; "": not known
    uint64_t steps, dropped;
    double step_p50_ns, step_p99_ns; // NaN: no steps
    double step_error;               // by how much of themselves they may be wrong
    double ns[GIST_SPREAD_COUNT];    // of all steps together
    // the last one, with the name "": others; count 0: none
    struct gist_phase phases[GIST_PHASES_MAX + 1];
    uint64_t last;     // collectives to which it came last
    double late_ns;    // the others waited for it, in the mean of them, of all steps together; NaN:
                       // not known
    double more_share; // of the time of the steps, by how much that is more than for the others;
                       // NaN: not known
    bool late;         // it is named
    bool ended;        // its recorder was, in order: else what came later may lack
};

enum reduced_why {     // why nobody is named, whoever came last
    REDUCED_TOLD,      // nothing is in the way
    REDUCED_WHY_ALONE, // fewer than two ranks
    REDUCED_WHY_NO_STEPS,
    REDUCED_WHY_MESSAGES, // ranks send to each other: they hand on each other's lateness
    REDUCED_WHY_GROUPS,   // collectives are of some of the ranks: the same
    REDUCED_WHY_MIXED,    // some came when kernels began, others when they were called for
    REDUCED_WHY_FEW,      // too few collectives, or waits, or windows that all have
    REDUCED_WHY_CLOCKS, // of too few collectives it is told who came last: each node has one rank,
                        // and their clocks are not known well enough
    REDUCED_WHY_COUNT
};

struct reduced_table {
    struct reduced_row *rows; // whom the others waited for most comes first
    size_t count;
    bool by_collectives;           // else by waits on the host
    uint64_t collectives, unclear; // unclear: across nodes their clocks do not tell who came last;
                                   // it is told within each node
    uint64_t told; // of them, of which it is told at all, if only within a node that has several
                   // ranks
    enum reduced_why why;
};

void reduced_table_make(const struct reduced *reduced, struct reduced_table *ret);
void reduced_table_free(struct reduced_table *table);

#endif
