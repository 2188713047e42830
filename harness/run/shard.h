// SPDX-License-Identifier: Apache-2.0
// A shard: a store of its own for one recorder, which gives out row numbers and holds transactions
// as it likes, and whose recordings are then taken into the run's store under new numbers. Lives in memory
// and, where it grows, in a file without a name: a kill leaves nothing of it.
#ifndef UPGATE_HARNESS_RUN_SHARD_H
#define UPGATE_HARNESS_RUN_SHARD_H

#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

int shard_open(struct store **ret_shard, struct error *err); // closed with store_close
// Everything a recorder has written, as recordings of a launch. One transaction of the store.
int shard_merge(struct store *store, struct store *shard, int64_t launch_id, struct error *err);

#endif
