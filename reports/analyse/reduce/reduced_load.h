// SPDX-License-Identifier: Apache-2.0
// From the shard of one rank to its reduced form, where the shard lies: its steps, waits, kernels
// and phases window by window, and when it came to which collective. Of a shard of several ranks
// (one recorder around their launcher) each is reduced as if it were alone: what is of its process
// and of those that descend from it. But for records that the recorder lost: whose they were is not
// known, and the first rank has all of them. Reads the store only. What lies before the first step
// or behind the last is in no window. One owner thread.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_LOAD_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_LOAD_H

#include "reports/analyse/reduce/reduced.h"
#include "tracer/store/store.h"

enum { REDUCED_LOAD_RANKS_MAX = 1024 }; // of one shard

struct reduced_source { // whose shard it is
    const char *run, *host, *boot;
    int64_t restart;
    int32_t rank, ranks;
    // of a shard of several ranks: which, as they rise; NULL: it is of `rank`
    const int32_t *several;
    size_t several_count;
    int64_t pid; // of the worker; of several ranks, of what started them
    int64_t wall_minus_monotonic_ns, clock_error_ns; // of its node; error -1: not known
    bool ended;                                      // its recorder was ended in order
};

// -EINVAL: it has several ranks that are not said to be there, or one of them twice. -E2BIG:
// REDUCED_MEETINGS_MAX. Else -errno. *ret is untouched on failure.
ERROR_CHECKED int reduced_load(struct store *store, const struct reduced_source *source,
        uint64_t window_steps, struct reduced *ret, struct error *err);

#endif
