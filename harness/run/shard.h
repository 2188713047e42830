// SPDX-License-Identifier: Apache-2.0
// A shard: a store of its own for one recorder, which gives out row numbers and holds transactions
// as it likes, and whose recordings are then taken into the run's store under new numbers. Lives in
// memory and, where it grows, in a file without a name: a kill leaves nothing of it.
#ifndef UPGATE_HARNESS_RUN_SHARD_H
#define UPGATE_HARNESS_RUN_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

// Where a shard goes in the store.
struct shard_place {
    int64_t launch_id; // of the recordings; 0: none
    // Not 0: all of it becomes part of this recording, whose row is there. `{0}` beside it: another
    // rank of the same node, none of whose processes is known yet.
    int64_t recording_id;
    int64_t process_first; // rows of table process from here on are of the same node: whom they
                           // have is not stored again
    int64_t shift_ns;      // is added to times, not to lengths
    int64_t drift_from_ns; // and drift times what they are behind this one: the clock of the shard
                           // runs at another rate than that of the store
    double drift;
    int64_t cpu_first; // is added to numbers of CPUs; -1: they become -1, not known
    int32_t rank; // names its steps, where it has one rank's, and the counters of its cgroup; -1:
                  // they have their names already
    bool several; // it has more than that one: their steps have their names already
    // Of several: a JSON array of the ranks whose cgroup has the counters that are no rank's by
    // name; "[]": of all in the store, as they are. NULL: they are those of `rank`.
    const char *cgroup_ranks;
    bool machine; // with the counters of the whole machine: once for a node is enough
};

int shard_open(struct store **ret_shard, struct error *err); // closed with store_close
// Everything a recorder has written, as recordings of a launch. One transaction of the store.
int shard_merge(struct store *store, struct store *shard, int64_t launch_id, struct error *err);
// The same at any place. The shard may be one that was opened to be read; it stays as it is.
// -EBADMSG: it is damaged; -ENOSPC, -EBUSY, -EIO: what cannot be read or written, mostly the store.
int shard_take(struct store *store, struct store *shard, const struct shard_place *place,
        struct error *err);

#endif
