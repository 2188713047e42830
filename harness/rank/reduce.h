// SPDX-License-Identifier: Apache-2.0
// `upgate merge --reduced`: the shards in a directory, each reduced by itself (reports/analyse/reduce), and added. Shards are only read, as
// many at a time as this process has CPUs.
#ifndef UPGATE_HARNESS_RANK_REDUCE_H
#define UPGATE_HARNESS_RANK_REDUCE_H

#include "harness/rank/merge.h"
#include "reports/analyse/reduce/reduced.h"

// Which shards: as merge_find, of whose opts it is the same. 0: ranks may be missing, as *ret_shards says (merge_free in any case); who
// cannot be reduced is one of them. -EINVAL as merge_find, and where nobody can. *ret is added to.
ERROR_CHECKED int reduce_shards(const struct merge_opts *opts, uint64_t window_steps, struct merge_result *ret_shards, struct reduced *ret,
                                struct error *err);
// Adds all of them, by halves: list[0] is the sum, the others are empty.
ERROR_CHECKED int reduce_add_all(struct reduced *list, size_t count, struct error *err);

#endif
