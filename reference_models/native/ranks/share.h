// SPDX-License-Identifier: Apache-2.0
// Data parallel training: each rank has the model and a batch of its own, and before the optimizer
// the gradients become the mean of all ranks', through shared memory (reduce.h). Replicated, as
// DistributedDataParallel: every rank keeps all parameters; units (model.h) are reduced in buckets
// while the backward pass goes on to the next. Sharded, as fully sharded data parallel: of each
// unit's parameters, mean gradients and state of the optimizer a rank keeps its part; an all-gather
// brings the unit before the forward pass reads it, a reduce-scatter leaves the part of its
// gradients. What was gathered stays until the backward pass is over.
#ifndef UPGATE_NATIVE_SHARE_H
#define UPGATE_NATIVE_SHARE_H

#include "reference_models/native/model.h"
#include "reference_models/native/ops/reduce.h"
#include "reference_models/native/ranks/ranks.h"

// The buckets of DistributedDataParallel: a first small one, so that there is something to send
// soon.
#define SHARE_BUCKET_FIRST_BYTES ((size_t)1 << 20)
#define SHARE_BUCKET_BYTES ((size_t)25 << 20)

// The same in all ranks.
struct share_plan {
    const struct reduce_ops *ops;
    uint32_t ranks; // 1..REDUCE_RANKS_MAX
    bool sharded;
    bool through_root;                        // as in reduce.h; replicated only
    size_t bucket_bytes;                      // of every bucket, at least a unit; 0: the above
    size_t units, first[MODEL_UNITS_MAX + 1]; // as model_ops.units() gives them
};

struct share; // one rank's view

// How much shared memory the ranks need together, zeroed.
size_t share_bytes(const struct share_plan *plan);

// memory, barrier: the same for all ranks. The plan outlives it. Dies in words without memory.
struct share *share_new(
        const struct share_plan *plan, uint32_t rank, void *memory, struct ranks_barrier *barrier);
void share_free(struct share *share); // NULL is fine
// What the model is created with; lives as long as the share.
const struct model_ranks *share_model(const struct share *share);

// All ranks call both: when the model has been created, and behind the last step, after which every
// rank has all parameters.
void share_begin(struct share *share, struct pool *pool); // pool: borrowed
void share_end(struct share *share);

#endif
