// SPDX-License-Identifier: Apache-2.0
// `upgate merge --reduced`: the shards in a directory, each reduced by itself
// (reports/analyse/reduce), and added as soon as it is. Shards are only read, as many at a time as
// this process has CPUs.
#ifndef UPGATE_HARNESS_RANK_REDUCE_H
#define UPGATE_HARNESS_RANK_REDUCE_H

#include "harness/rank/merge.h"
#include "reports/analyse/reduce/reduced.h"

struct reduce_opts {
    uint64_t window_steps;
    bool dry_run; // only whose they are: no shard is opened
};

// Those that were chosen: ranks may be missing, to which who cannot be reduced is added
// (shards->lacks has a place for each rank). ret->run is NULL when nobody can. *ret is untouched on
// failure.
ERROR_CHECKED int reduce_chosen(struct merge_result *shards, const struct reduce_opts *opts,
        struct reduced *ret, struct error *err);
// Nobody could: -EINVAL, with why not the first one.
int reduce_nobody(const struct merge_result *shards, struct error *err);
// Both, of those that merge_find chose. 0: ranks may be missing, to which who cannot be reduced is
// added. -EINVAL: nobody can. *ret is untouched on failure.
ERROR_CHECKED int reduce_shards(struct merge_result *shards, const struct reduce_opts *opts,
        struct reduced *ret, struct error *err);
// Adds all of them, by halves: list[0] is the sum, the others are empty.
ERROR_CHECKED int reduce_add_all(struct reduced *list, size_t count, struct error *err);

#endif
