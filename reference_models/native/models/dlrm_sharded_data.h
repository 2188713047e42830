// SPDX-License-Identifier: Apache-2.0
// What the recommender of several ranks reads, the same for every type, and the same as
// torch/dlrm-sharded.py reads, which are the batches of torch/dlrm_data.py: a pool for each rank,
// in training and in inference, value by value.
#ifndef UPGATE_NATIVE_DLRM_SHARDED_DATA_H
#define UPGATE_NATIVE_DLRM_SHARDED_DATA_H

#include "reference_models/native/arena.h"
#include "reference_models/native/models/clicks.h"
#include "reference_models/native/models/dlrm_data.h"

struct dlrm_sharded_shape {
    // of training: samples of a rank's batch, batches that come again and again
    size_t tables, dim, batch, pool;
    // bag: mean ids of a bag, which has 1 to 2 * bag - 1
    struct dlrm_table_shape table[DLRM_TABLES_MAX];
};

extern const struct dlrm_sharded_shape dlrm_sharded_shapes[MODEL_SIZE_COUNT];

// Samples of a batch: a request ranks more candidates than a step of training has samples.
size_t dlrm_sharded_samples(const struct dlrm_sharded_shape *shape, bool train);
// Ids that the bags of a table can have at most, of so many samples.
size_t dlrm_sharded_lookups_max(
        const struct dlrm_sharded_shape *shape, size_t table, size_t samples);

// Bag b of table t holds ids[t][offset[t][b]] up to ids[t][offset[t][b + 1]].
struct dlrm_sharded_batch {
    double *dense, *label; // [samples][DLRM_DENSE], [samples]
    uint32_t *offset[DLRM_TABLES_MAX], *ids[DLRM_TABLES_MAX];
};
// Room for a batch, in the arena. Dies in words without memory.
struct dlrm_sharded_batch dlrm_sharded_batch_new(
        struct arena *arena, const struct dlrm_sharded_shape *shape, size_t samples);

struct dlrm_sharded_stream {
    const struct dlrm_sharded_shape *shape; // borrowed
    size_t samples, pool;
    struct draw draw;
    uint64_t *begin; // [pool]: where a batch begins in the stream
    struct zipf_blocks zipf[DLRM_TABLES_MAX];
};
// The batches of a rank. -ENOMEM. To be freed in every case, zeroed is fine.
int dlrm_sharded_stream_init(struct dlrm_sharded_stream *stream,
        const struct dlrm_sharded_shape *shape, uint64_t seed, bool train, uint32_t rank,
        struct error *err);
void dlrm_sharded_stream_free(struct dlrm_sharded_stream *stream);
void dlrm_sharded_draw(
        const struct dlrm_sharded_stream *stream, uint64_t step, struct dlrm_sharded_batch *batch);

#endif
