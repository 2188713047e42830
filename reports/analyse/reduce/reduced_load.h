// SPDX-License-Identifier: Apache-2.0
// From the shard of one rank to its reduced form, where the shard lies: its steps, waits, kernels and phases window by window, and when it
// came to which collective. Reads the store only. What lies before the first step or behind the last is in no window. One owner thread.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_LOAD_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_LOAD_H

#include "reports/analyse/reduce/reduced.h"
#include "tracer/store/store.h"

struct reduced_source { // whose shard it is
    const char *run, *host, *boot;
    int64_t restart;
    int32_t rank, ranks;
    int64_t pid; // of the worker
    int64_t wall_minus_monotonic_ns, clock_error_ns; // of its node; error -1: not known
    bool ended;  // its recorder was ended in order
};

// -EINVAL: it has several ranks, which its rows do not tell apart. -E2BIG: REDUCED_MEETINGS_MAX. Else -errno. *ret is untouched on failure.
ERROR_CHECKED int reduced_load(struct store *store, const struct reduced_source *source, uint64_t window_steps, struct reduced *ret,
                               struct error *err);

#endif
