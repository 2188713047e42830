// SPDX-License-Identifier: Apache-2.0
// What the recommender with a cache of rows is and reads, the same for every type, and the same as
// the PyTorch model's (torch/dlrm-cached.py), value by value. Ids are numbers of 64 bits: most are
// of a fixed set after Zipf's law, a tenth are of the latest items, and with every batch come some
// that were never seen before.
#ifndef UPGATE_NATIVE_DLRM_CACHED_DATA_H
#define UPGATE_NATIVE_DLRM_CACHED_DATA_H

#include "reference_models/native/models/clicks.h"
#include "reference_models/native/models/dlrm_data.h"

#define DLRM_CACHED_AHEAD 3        // batches whose rows are fetched before their step
#define DLRM_CACHED_TABLE_BITS 40  // ids of table t: t << 40 up to (t + 1) << 40
#define DLRM_CACHED_RATE 0.1       // of SGD
#define DLRM_CACHED_ROWS_RATE 0.01 // of Adagrad, on the rows
#define DLRM_CACHED_EPSILON 1e-10

struct row_cache;

struct dlrm_cached_shape {
    size_t tables, dim, batch;
    size_t drift; // items that come with a batch
    size_t cache; // rows of the cache
    // rows: popular ids; bag: mean ids of a bag, which has 1 to 2 * bag - 1
    struct dlrm_table_shape table[DLRM_TABLES_MAX];
};

extern const struct dlrm_cached_shape dlrm_cached_shapes[MODEL_SIZE_COUNT];

// The shape of opts or of its size, with the batch and the cache of opts. Not checked.
struct dlrm_cached_shape dlrm_cached_shape_of(const struct model_opts *opts);

// Ids that a batch can have at most, all of them different.
size_t dlrm_cached_lookups_max(const struct dlrm_cached_shape *shape);

// -EINVAL: whatever the batches name, the cache must hold one of them.
int dlrm_cached_cache_check(const struct dlrm_cached_shape *shape, struct error *err);

struct dlrm_cached_key {
    int64_t id;
    uint32_t lookup, vector;
};

// Bag b of table t holds ids[offset[t * (batch + 1) + b]] up to ids[offset[t * (batch + 1) + b +
// 1]].
struct dlrm_cached_batch {
    double *dense, *label; // [batch][DLRM_DENSE], [batch]
    size_t lookups;        // ids of all tables
    uint32_t *offset;      // [tables][batch + 1]
    int64_t *ids;          // [lookups], table by table
    // The same by id: `distinct` of them, rising. Id number i was named begin[i + 1] - begin[i]
    // times, first to last: as ids[lookup[k]], for vector[k] of [batch][tables + 1], in which
    // vector 0 is the dense features'.
    size_t distinct;
    int64_t *distinct_id;        // [distinct]
    uint32_t *begin;             // [distinct + 1]
    uint32_t *lookup, *vector;   // [lookups]
    struct dlrm_cached_key *key; // [lookups], to sort by
};
// Room for a batch. -ENOMEM. Freed by dlrm_cached_batch_free(), zeroed is fine.
int dlrm_cached_batch_new(
        const struct dlrm_cached_shape *shape, struct dlrm_cached_batch *ret, struct error *err);
void dlrm_cached_batch_free(struct dlrm_cached_batch *batch);
// -EINVAL and which: an empty bag, an id that is not of its table.
int dlrm_cached_batch_check(const struct dlrm_cached_shape *shape,
        const struct dlrm_cached_batch *batch, struct error *err);

// Batches drawn one after the other. A copy draws the same ones again, and is not freed.
struct dlrm_cached_stream {
    const struct dlrm_cached_shape *shape; // borrowed
    struct draw draw;
    int64_t next; // number of the batch that comes
    struct zipf_blocks zipf[DLRM_TABLES_MAX];
};
// -EINVAL: a shape that cannot be, such as one with empty bags; -ENOMEM. To be freed in every case,
// zeroed is fine.
int dlrm_cached_stream_init(struct dlrm_cached_stream *stream,
        const struct dlrm_cached_shape *shape, uint64_t seed, bool train, struct error *err);
void dlrm_cached_stream_free(struct dlrm_cached_stream *stream);
void dlrm_cached_draw(struct dlrm_cached_stream *stream, struct dlrm_cached_batch *batch);

// What the result line tells of the cache: how many of ret[MODEL_NOTES_MAX].
size_t dlrm_cached_notes(const struct row_cache *cache, struct model_note *ret);

// The start values of an id's row, whenever it comes: ret[dim].
void dlrm_cached_row(size_t dim, uint64_t seed, int64_t id, double *ret);

#endif
