// SPDX-License-Identifier: Apache-2.0
// The planted data of the recommender whose ids come and go, from draw.h: batch number n is a
// function of (seed, mode, n), but lies in the stream where those before it end. Reads nothing.
#include "reference_models/native/models/dlrm_cached_data.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/containers/sort.h"
#include "reference_models/native/row_cache.h"

#define CACHED_FRESH 0.1 // share of the latest items
#define CACHED_RECENT 10 // how many of them there are, in windows of the smallest table
#define CACHED_ITEMS ((int64_t)1 << 36) // behind all popular ids of a table
#define CACHED_LOOKUPS_MAX ((uint64_t)1 << 28)

const struct dlrm_cached_shape dlrm_cached_shapes[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = {.tables = 2,
                .dim = 8,
                .batch = 32,
                .drift = 4,
                .cache = 420,
                .table = {{400, 3}, {50, 2}}},
        [MODEL_SIZE_DEMO] = {.tables = 5,
                .dim = 32,
                .batch = 128,
                .drift = 16,
                .cache = 6000,
                .table = {{30000, 6}, {10000, 4}, {3000, 4}, {600, 2}, {60, 1}}},
        [MODEL_SIZE_LARGE] = {.tables = 5,
                .dim = 128,
                .batch = 1024,
                .drift = 1000,
                .cache = 400000,
                .table = {{2000000, 20}, {500000, 10}, {100000, 10}, {20000, 4}, {2000, 2}}},
};

struct dlrm_cached_shape dlrm_cached_shape_of(const struct model_opts *opts)
{
    struct dlrm_cached_shape shape =
            opts->dlrm_cached_shape ? *opts->dlrm_cached_shape : dlrm_cached_shapes[opts->size];
    if (opts->batch)
        shape.batch = opts->batch;
    if (opts->cache_rows)
        shape.cache = opts->cache_rows;
    return shape;
}

size_t dlrm_cached_lookups_max(const struct dlrm_cached_shape *shape)
{
    size_t most = 0;
    for (size_t t = 0; t < shape->tables; t++)
        most += shape->batch * (2 * (size_t)shape->table[t].bag - 1);
    return most;
}

int dlrm_cached_cache_check(const struct dlrm_cached_shape *shape, struct error *err)
{
    size_t lookups = dlrm_cached_lookups_max(shape);
    if (shape->cache >= lookups)
        return 0;
    return error_set(err, -EINVAL,
            "a cache of %zu rows is too small: a batch may name %zu different ids, and all of their rows are in it; "
            "--cache %zu or more",
            shape->cache, lookups, lookups);
}

// --- batches -------------------------------------------------------------------------------------

int dlrm_cached_batch_new(
        const struct dlrm_cached_shape *shape, struct dlrm_cached_batch *ret, struct error *err)
{
    size_t lookups = dlrm_cached_lookups_max(shape);
    struct dlrm_cached_batch batch = {
            .dense = calloc(shape->batch * DLRM_DENSE, sizeof *batch.dense),
            .label = calloc(shape->batch, sizeof *batch.label),
            .offset = calloc(shape->tables * (shape->batch + 1), sizeof *batch.offset),
            .ids = calloc(lookups, sizeof *batch.ids),
            .distinct_id = calloc(lookups, sizeof *batch.distinct_id),
            .begin = calloc(lookups + 1, sizeof *batch.begin),
            .lookup = calloc(lookups, sizeof *batch.lookup),
            .vector = calloc(lookups, sizeof *batch.vector),
            .key = calloc(lookups, sizeof *batch.key)};
    if (!batch.dense || !batch.label || !batch.offset || !batch.ids || !batch.distinct_id ||
            !batch.begin || !batch.lookup || !batch.vector || !batch.key) {
        dlrm_cached_batch_free(&batch);
        return error_set(err, -ENOMEM, "no memory for a batch of %zu samples", shape->batch);
    }
    *ret = batch;
    return 0;
}

void dlrm_cached_batch_free(struct dlrm_cached_batch *batch)
{
    free(batch->dense);
    free(batch->label);
    free(batch->offset);
    free(batch->ids);
    free(batch->distinct_id);
    free(batch->begin);
    free(batch->lookup);
    free(batch->vector);
    free(batch->key);
    *batch = (struct dlrm_cached_batch){.lookups = 0};
}

int dlrm_cached_batch_check(const struct dlrm_cached_shape *shape,
        const struct dlrm_cached_batch *batch, struct error *err)
{
    for (size_t t = 0; t < shape->tables; t++) {
        const uint32_t *offset = batch->offset + t * (shape->batch + 1);
        int64_t first = (int64_t)t << DLRM_CACHED_TABLE_BITS,
                end = (int64_t)(t + 1) << DLRM_CACHED_TABLE_BITS;
        for (size_t b = 0; b < shape->batch; b++) {
            if (offset[b + 1] <= offset[b])
                return error_set(err, -EINVAL,
                        "bag %zu of table %zu is empty; a bag names one id at least", b, t);
            for (size_t i = offset[b]; i < offset[b + 1]; i++)
                if (batch->ids[i] < first || batch->ids[i] >= end)
                    return error_set(err, -EINVAL,
                            "id %" PRId64
                            " of bag %zu of table %zu is out of range: its ids are %" PRId64
                            " to %" PRId64,
                            batch->ids[i], b, t, first, end - 1);
        }
    }
    return 0;
}

// --- the stream ----------------------------------------------------------------------------------

static int stream_refuse(const struct dlrm_cached_shape *shape, struct error *err)
{
    uint64_t lookups = 0;
    if (shape->tables < 1 || shape->tables > DLRM_TABLES_MAX)
        return error_set(err, -EINVAL, "%zu tables are not supported: 1 to %d are", shape->tables,
                DLRM_TABLES_MAX);
    if (shape->batch < 1 || shape->batch > 1 << 20)
        return error_set(err, -EINVAL, "batches of %zu samples are not supported: 1 to %d are",
                shape->batch, 1 << 20);
    for (size_t t = 0; t < shape->tables; t++) {
        const struct dlrm_table_shape *table = &shape->table[t];
        if (table->bag < 1)
            return error_set(err, -EINVAL,
                    "the bags of table %zu are empty; a bag names one id at least", t);
        if (table->rows < 1 || table->rows > 1u << 31)
            return error_set(err, -EINVAL, "table %zu has %u popular ids: 1 to 2^31 are supported",
                    t, table->rows);
        lookups += shape->batch * (2 * (uint64_t)table->bag - 1);
    }
    if (lookups > CACHED_LOOKUPS_MAX)
        return error_set(err, -EINVAL, "a batch may name %" PRIu64 " ids: up to 2^28 are supported",
                lookups);
    return 0;
}

int dlrm_cached_stream_init(struct dlrm_cached_stream *stream,
        const struct dlrm_cached_shape *shape, uint64_t seed, bool train, struct error *err)
{
    *stream = (struct dlrm_cached_stream){.shape = shape,
            .draw = draw_of(seed, train ? "dlrm-cached/train" : "dlrm-cached/infer")};
    int rc = stream_refuse(shape, err);
    for (size_t t = 0; rc == 0 && t < shape->tables; t++)
        rc = zipf_blocks_init(&stream->zipf[t], shape->table[t].rows, err);
    return rc;
}

void dlrm_cached_stream_free(struct dlrm_cached_stream *stream)
{
    for (size_t t = 0; t < DLRM_TABLES_MAX; t++)
        zipf_blocks_free(&stream->zipf[t]);
    *stream = (struct dlrm_cached_stream){.shape = NULL};
}

// How old the oldest of the latest items is.
static double stream_window(const struct dlrm_cached_shape *shape)
{
    uint32_t least = shape->table[0].rows;
    for (size_t t = 1; t < shape->tables; t++)
        least = shape->table[t].rows < least ? shape->table[t].rows : least;
    return least;
}

// PyTorch's model draws arrays: how long all bags are, then a block, a place in it, whether it is
// one of the latest, and its age, of every id.
static void stream_table(
        struct dlrm_cached_stream *stream, size_t t, struct dlrm_cached_batch *batch)
{
    const struct dlrm_cached_shape *shape = stream->shape;
    uint32_t *offset = batch->offset + t * (shape->batch + 1);
    double window = stream_window(shape);
    offset[0] = (uint32_t)batch->lookups;
    for (size_t b = 0; b < shape->batch; b++)
        offset[b + 1] = offset[b] + 1 +
                (uint32_t)draw_below(&stream->draw, 2 * (uint64_t)shape->table[t].bag - 1);
    size_t count = offset[shape->batch] - offset[0];
    struct draw block = stream->draw, inside = block, latest = block, age = block;
    inside.k += count;
    latest.k += 2 * count;
    age.k += 3 * count;
    stream->draw.k += 4 * count;
    for (size_t b = 0; b < shape->batch; b++) {
        for (size_t i = offset[b]; i < offset[b + 1]; i++) {
            double in_block = draw_uniform(&block), in_width = draw_uniform(&inside),
                   years = draw_uniform(&age);
            bool fresh = draw_uniform(&latest) < CACHED_FRESH;
            int64_t old = (int64_t)(years * years * window * CACHED_RECENT);
            int64_t id = fresh ? CACHED_ITEMS + stream->next * (int64_t)shape->drift - old
                               : zipf_blocks_id(&stream->zipf[t], in_block, in_width);
            batch->ids[i] = id + ((int64_t)t << DLRM_CACHED_TABLE_BITS);
            batch->key[i] = (struct dlrm_cached_key){.id = batch->ids[i],
                    .lookup = (uint32_t)i,
                    .vector = (uint32_t)(b * (shape->tables + 1) + t + 1)};
        }
        batch->label[b] = clicks_score(batch->label[b], batch->ids[offset[b]]);
    }
    batch->lookups += count;
}

static void stream_sort(struct dlrm_cached_batch *batch)
{
    sort_in_place(batch->key, batch->lookups, x, y,
            x->id < y->id || (x->id == y->id && x->lookup < y->lookup));
    batch->distinct = 0;
    for (size_t k = 0; k < batch->lookups; k++) {
        const struct dlrm_cached_key *key = &batch->key[k];
        if (k == 0 || key->id != key[-1].id) {
            batch->distinct_id[batch->distinct] = key->id;
            batch->begin[batch->distinct++] = (uint32_t)k;
        }
        batch->lookup[k] = key->lookup;
        batch->vector[k] = key->vector;
    }
    batch->begin[batch->distinct] = (uint32_t)batch->lookups;
}

void dlrm_cached_draw(struct dlrm_cached_stream *stream, struct dlrm_cached_batch *batch)
{
    const struct dlrm_cached_shape *shape = stream->shape;
    // the scores, until all is drawn that they depend on
    clicks_begin(&stream->draw, shape->batch, batch->dense, batch->label);
    batch->lookups = 0;
    for (size_t t = 0; t < shape->tables; t++)
        stream_table(stream, t, batch);
    clicks_end(&stream->draw, shape->batch, batch->label);
    stream->next++;
    stream_sort(batch);
}

size_t dlrm_cached_notes(const struct row_cache *cache, struct model_note *ret)
{
    ret[0] = (struct model_note){"cache_hits", cache->hits};
    ret[1] = (struct model_note){"cache_misses", cache->misses};
    ret[2] = (struct model_note){"new_ids", cache->places};
    return 3;
}

void dlrm_cached_row(size_t dim, uint64_t seed, int64_t id, double *ret)
{
    double bound = pow((double)dim, -0.5);
    for (size_t j = 0; j < dim; j++) {
        uint64_t counter = (uint64_t)id * DRAW_STEP + (j + 1) * 0xbf58476d1ce4e5b9u + seed;
        // rng_mix() adds a step before it mixes, PyTorch's model does not.
        ret[j] = (double)(rng_mix(counter - DRAW_STEP) >> 11) * (2 * bound * 0x1p-53) - bound;
    }
}
