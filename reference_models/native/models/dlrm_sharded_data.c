// SPDX-License-Identifier: Apache-2.0
// The batches of a rank. How long the bags of a batch are decides where the next one begins in the
// stream; so where all of the pool begin is found once, and a batch is drawn when its step comes.
// Reads nothing.
#include "reference_models/native/models/dlrm_sharded_data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SHARDED_INFER_FACTOR 4

const struct dlrm_sharded_shape dlrm_sharded_shapes[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = {.tables = 3,
                .dim = 8,
                .batch = 32,
                .pool = 8,
                .table = {{800, 3}, {100, 2}, {20, 1}}},
        [MODEL_SIZE_DEMO] = {.tables = 8,
                .dim = 32,
                .batch = 128,
                .pool = 96,
                .table = {{60000, 6}, {20000, 4}, {6000, 4}, {2000, 2}, {600, 2}, {200, 1}, {60, 1},
                        {20, 1}}},
        [MODEL_SIZE_LARGE] = {.tables = 12,
                .dim = 128,
                .batch = 4096,
                .pool = 8,
                .table = {{4000000, 20}, {1000000, 10}, {300000, 10}, {100000, 6}, {40000, 4},
                        {10000, 4}, {3000, 2}, {1000, 2}, {300, 1}, {100, 1}, {30, 1}, {10, 1}}},
};

size_t dlrm_sharded_samples(const struct dlrm_sharded_shape *shape, bool train)
{
    return shape->batch * (train ? 1 : SHARDED_INFER_FACTOR);
}

size_t dlrm_sharded_lookups_max(
        const struct dlrm_sharded_shape *shape, size_t table, size_t samples)
{
    return samples * (2 * (size_t)shape->table[table].bag - 1);
}

struct dlrm_sharded_batch dlrm_sharded_batch_new(
        struct arena *arena, const struct dlrm_sharded_shape *shape, size_t samples)
{
    struct dlrm_sharded_batch batch = {
            .dense = arena_alloc(arena, samples * DLRM_DENSE, sizeof *batch.dense),
            .label = arena_alloc(arena, samples, sizeof *batch.label)};
    for (size_t t = 0; t < shape->tables; t++) {
        batch.offset[t] = arena_alloc(arena, samples + 1, sizeof *batch.offset[t]);
        batch.ids[t] = arena_alloc(
                arena, dlrm_sharded_lookups_max(shape, t, samples), sizeof *batch.ids[t]);
    }
    return batch;
}

static uint32_t stream_length(const struct dlrm_sharded_shape *shape, size_t t, struct draw *draw)
{
    return 1 + (uint32_t)draw_below(draw, 2 * (uint64_t)shape->table[t].bag - 1);
}

// An id takes two values: its block, and its place there.
static void stream_find(struct dlrm_sharded_stream *stream)
{
    struct draw draw = stream->draw;
    for (size_t n = 0; n < stream->pool; n++) {
        stream->begin[n] = draw.k;
        draw.k += stream->samples * DLRM_DENSE;
        for (size_t t = 0; t < stream->shape->tables; t++) {
            uint64_t ids = 0;
            for (size_t b = 0; b < stream->samples; b++)
                ids += stream_length(stream->shape, t, &draw);
            draw.k += 2 * ids;
        }
        draw.k += stream->samples; // labels
    }
}

int dlrm_sharded_stream_init(struct dlrm_sharded_stream *stream,
        const struct dlrm_sharded_shape *shape, uint64_t seed, bool train, uint32_t rank,
        struct error *err)
{
    char name[32];
    size_t pool = train ? shape->pool : shape->pool / SHARDED_INFER_FACTOR;
    int length = snprintf(name, sizeof name, "dlrm/%s", train ? "train" : "infer");
    if (rank)
        snprintf(name + length, sizeof name - (size_t)length, "/%" PRIu32, rank);
    *stream = (struct dlrm_sharded_stream){.shape = shape,
            .samples = dlrm_sharded_samples(shape, train),
            .pool = pool ? pool : 1,
            .draw = draw_of(seed, name)};
    stream->begin = calloc(stream->pool, sizeof *stream->begin);
    if (!stream->begin)
        return error_set(err, -ENOMEM, "no memory for a pool of %zu batches", stream->pool);
    for (size_t t = 0; t < shape->tables; t++) {
        int rc = zipf_blocks_init(&stream->zipf[t], shape->table[t].rows, err);
        if (rc)
            return rc;
    }
    stream_find(stream);
    return 0;
}

void dlrm_sharded_stream_free(struct dlrm_sharded_stream *stream)
{
    for (size_t t = 0; t < DLRM_TABLES_MAX; t++)
        zipf_blocks_free(&stream->zipf[t]);
    free(stream->begin);
    *stream = (struct dlrm_sharded_stream){.shape = NULL};
}

// PyTorch's model draws arrays: how long all bags are, then a block of every id, then a place in it
// of every id.
static void stream_table(const struct dlrm_sharded_stream *stream, size_t t, struct draw *draw,
        struct dlrm_sharded_batch *batch)
{
    uint32_t *offset = batch->offset[t], *ids = batch->ids[t];
    offset[0] = 0;
    for (size_t b = 0; b < stream->samples; b++)
        offset[b + 1] = offset[b] + stream_length(stream->shape, t, draw);
    struct draw inside = *draw;
    uint32_t count = offset[stream->samples];
    inside.k += count;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)zipf_blocks_id(
                &stream->zipf[t], draw_uniform(draw), draw_uniform(&inside));
    *draw = inside;
    for (size_t b = 0; b < stream->samples; b++)
        batch->label[b] = clicks_score(batch->label[b], ids[offset[b]]);
}

void dlrm_sharded_draw(
        const struct dlrm_sharded_stream *stream, uint64_t step, struct dlrm_sharded_batch *batch)
{
    struct draw draw = stream->draw;
    draw.k = stream->begin[step % stream->pool];
    // the scores, until all is drawn that they depend on
    clicks_begin(&draw, stream->samples, batch->dense, batch->label);
    for (size_t t = 0; t < stream->shape->tables; t++)
        stream_table(stream, t, &draw, batch);
    clicks_end(&draw, stream->samples, batch->label);
}
