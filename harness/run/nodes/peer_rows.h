// SPDX-License-Identifier: Apache-2.0
// What another node has recorded of a pair, out of its store into ours. Inside the caller's
// transaction.
#ifndef UPGATE_HARNESS_RUN_PEER_ROWS_H
#define UPGATE_HARNESS_RUN_PEER_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

// Ranks, steps, losses, outputs, phases and counters of its launches become ours; of a block stays
// the one of the slower node, as the job goes on when the last of its ranks has arrived; memory is
// that of the node that holds most, CPU time the sum.
ERROR_CHECKED int peer_rows_take(struct store *store, int64_t pair_id, struct store *peer,
        int64_t peer_pair_id, struct error *err);

#endif
