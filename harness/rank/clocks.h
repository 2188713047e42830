// SPDX-License-Identifier: Apache-2.0
// `upgate merge`: the clocks of nodes. What their kernels know of them, and, where NCCL told of
// collectives that ranks of two nodes took part in, what follows from those (clock_fit.h). Reads
// the shards, writes nothing.
#ifndef UPGATE_HARNESS_RANK_CLOCKS_H
#define UPGATE_HARNESS_RANK_CLOCKS_H

#include "harness/rank/merge.h"

// Shards are chosen, nodes and what their kernels know are there. Fills `map` of the nodes; where
// collectives tell more, also their `error_ns` and `by_collectives`. Where they contradict each
// other or the kernels, these count, and a note says so.
void clocks_find(struct merge_result *result);

#endif
