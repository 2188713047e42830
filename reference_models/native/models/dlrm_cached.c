// SPDX-License-Identifier: Apache-2.0
// Deep learning recommender whose ids are not known beforehand: the rows of all ids that ever came
// (vector and Adagrad sum) lie in a store that grows, those of the batches ahead and of the latest
// ones before in a cache of fewer rows. Embedding bags over the cache, a bottom MLP, dot
// interaction, a top MLP, binary cross-entropy; Adagrad on the rows, SGD on the rest. Inputs from
// dlrm_cached_data.h, start values from there and draw.h: those of torch/dlrm-cached.py. Compiled
// once per type.
//
// A row of a new id starts with values of its id, and no row is in two places that differ: so
// losses do not depend on the size of the cache, and neither does the checksum, in which the rows
// are not.
#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reference_models/native/models/dlrm_cached_data.h"
#include "reference_models/native/models/network.h"
#include "reference_models/native/models/perceptron.h"
#include "reference_models/native/room.h"
#include "reference_models/native/row_cache.h"

#define STORE_BLOCK 4096 // rows that the store grows by

enum { CACHED_RING = DLRM_CACHED_AHEAD + 1 };

// A batch and where its rows are, from when they are wanted on.
struct coming {
    struct dlrm_cached_batch batch;
    uint32_t *slot;        // [batch.distinct]
    uint32_t *lookup_slot; // [batch.lookups]
};

struct model {
    struct network net;
    struct dlrm_cached_shape shape;
    struct dlrm_cached_stream stream;
    struct dlrm_cached_batch spare; // for repeats of drawing, see ops.h
    // Batches drawn, oldest first; the rows of the first `wanted` are in the cache. The first is
    // the step's, once there is one.
    struct coming ring[CACHED_RING];
    size_t first, drawn, wanted;
    bool loaded;
    struct row_cache cache;
    real *value, *square; // of the cache, [slots][dim]
    real **block;         // of the store: [STORE_BLOCK][2][dim] each
    size_t blocks;
    bool sgd;
    real rate;
    size_t vectors, width; // of the interaction
    struct perceptron bottom, top;
    struct bag bag[DLRM_TABLES_MAX];
    // concat[batch][vectors][dim]: bottom output, then the bag of each table.
    real *dense, *label, *concat, *features, *row_loss, *dlogits, *dfeatures, *dconcat, *dbottom;
};

// --- rows between store and cache ----------------------------------------------------------------

static struct coming *cached_coming(struct model *model, size_t i)
{
    return &model->ring[(model->first + i) % CACHED_RING];
}

static real *store_row(const struct model *model, uint32_t place)
{
    return model->block[place / STORE_BLOCK] + (size_t)(place % STORE_BLOCK) * 2 * model->shape.dim;
}

static void store_grow(struct model *model)
{
    while ((size_t)model->cache.places > model->blocks * STORE_BLOCK) {
        model->block = xrealloc(model->block, (model->blocks + 1) * sizeof *model->block);
        model->block[model->blocks++] =
                network_reals(&model->net, (size_t)STORE_BLOCK * 2 * model->shape.dim);
    }
}

static void store_put_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct model *model = arg;
    size_t dim = model->shape.dim;
    real nowhere[2 * OPS_BAG_DIM_MAX];
    for (size_t i = begin; i < end; i++) {
        const struct row_move *move = &model->cache.out[i];
        real *to = again ? nowhere : store_row(model, move->place);
        memcpy(to, model->value + move->slot * dim, dim * sizeof *to);
        memcpy(to + dim, model->square + move->slot * dim, dim * sizeof *to);
    }
    __asm__ volatile("" : : "r"(nowhere) : "memory"); // what is written there counts as used
}

static void store_fetch_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct model *model = arg;
    size_t dim = model->shape.dim;
    real nowhere[2 * OPS_BAG_DIM_MAX];
    double start[OPS_BAG_DIM_MAX];
    for (size_t i = begin; i < end; i++) {
        const struct row_move *move = &model->cache.in[i];
        real *row = store_row(model, move->place);
        if (move->fresh) {
            dlrm_cached_row(dim, model->net.seed, move->id, start);
            real *to = again ? nowhere : row; // its sums are 0 as the block is
            for (size_t j = 0; j < dim; j++)
                to[j] = (real)start[j];
        }
        memcpy(again ? nowhere : model->value + move->slot * dim, row, dim * sizeof *row);
        memcpy(again ? nowhere : model->square + move->slot * dim, row + dim, dim * sizeof *row);
    }
    __asm__ volatile("" : : "r"(nowhere) : "memory");
}

struct wish {
    struct model *model;
    struct coming *coming;
    bool granted;
};

// One item. A repeat only looks up: it would want the rows twice.
static void cached_want_part(void *arg, size_t begin, size_t end, bool again)
{
    struct wish *wish = arg;
    struct row_cache *cache = &wish->model->cache;
    struct coming *coming = wish->coming;
    const struct dlrm_cached_batch *batch = &coming->batch;
    uint32_t found = 0;
    (void)begin;
    (void)end;
    for (size_t i = 0; again && i < batch->distinct; i++)
        found += row_cache_find(cache, batch->distinct_id[i]);
    __asm__ volatile("" : : "r"(found));
    if (!again)
        wish->granted = row_cache_want(cache, batch->distinct, batch->distinct_id, coming->slot);
    for (size_t i = 0; wish->granted && i < batch->distinct; i++)
        for (size_t k = batch->begin[i]; k < batch->begin[i + 1]; k++)
            coming->lookup_slot[batch->lookup[k]] = coming->slot[i];
}

static void cached_want(struct model *model, struct wish *wish)
{
    pool_for(model->net.pool,
            &(struct pool_work){.count = 1,
                    .cost = 30.0 * (double)wish->coming->batch.distinct,
                    POOL_FN(cached_want_part),
                    .arg = wish});
}

// The rows of as many of the drawn batches as fit. One of them always does, see cached_refuse().
static void cached_prefetch(struct model *model)
{
    while (model->wanted < model->drawn) {
        struct wish wish = {.model = model, .coming = cached_coming(model, model->wanted)};
        cached_want(model, &wish);
        if (!wish.granted)
            break;
        store_grow(model);
        pool_for(model->net.pool,
                &(struct pool_work){.count = model->cache.out_count,
                        .cost = 4.0 * (double)model->shape.dim,
                        POOL_FN(store_put_part),
                        .arg = model});
        pool_for(model->net.pool,
                &(struct pool_work){.count = model->cache.in_count,
                        .cost = 4.0 * (double)model->shape.dim,
                        POOL_FN(store_fetch_part),
                        .arg = model});
        model->wanted++;
    }
}

// --- inputs --------------------------------------------------------------------------------------

// One item: a batch begins where the one before it ends. A repeat draws the one behind it, into the
// spare.
static void cached_draw_part(void *arg, size_t begin, size_t end, bool again)
{
    struct model *model = arg;
    struct dlrm_cached_stream copy = model->stream;
    (void)begin;
    (void)end;
    if (again)
        dlrm_cached_draw(&copy, &model->spare);
    else
        dlrm_cached_draw(&model->stream, &cached_coming(model, model->drawn)->batch);
}

static void cached_draw(struct model *model)
{
    pool_for(model->net.pool,
            &(struct pool_work){.count = 1,
                    .cost = 100.0 * (double)dlrm_cached_lookups_max(&model->shape),
                    POOL_FN(cached_draw_part),
                    .arg = model});
    model->drawn++;
}

static void cached_take(struct model *model)
{
    const struct coming *now = cached_coming(model, 0),
                        *spare = model->wanted > 1 ? cached_coming(model, 1) : now;
    const struct dlrm_cached_shape *shape = &model->shape;
    row_cache_use(&model->cache, now->batch.distinct, now->slot);
    for (size_t t = 0; t < shape->tables; t++) {
        struct bag *bag = &model->bag[t];
        bag->ids = now->lookup_slot;
        bag->offset = now->batch.offset + t * (shape->batch + 1);
        bag->spare_ids = spare->lookup_slot;
        bag->spare_offset = spare->batch.offset + t * (shape->batch + 1);
    }
    for (size_t i = 0; i < shape->batch * DLRM_DENSE; i++)
        model->dense[i] = (real)now->batch.dense[i];
    for (size_t i = 0; i < shape->batch; i++)
        model->label[i] = (real)now->batch.label[i];
}

// Batches come in the order of the stream, whatever the step's number.
static void cached_load(struct model *model, uint64_t step)
{
    (void)step;
    if (model->loaded) {
        const struct coming *last = cached_coming(model, 0);
        row_cache_done(&model->cache, last->batch.distinct, last->slot);
        model->first = (model->first + 1) % CACHED_RING;
        model->drawn--;
        model->wanted--;
    }
    cached_draw(model);
    cached_prefetch(model);
    model->loaded = true;
    cached_take(model);
}

// --- the model -----------------------------------------------------------------------------------

static void cached_destroy(struct model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < CACHED_RING; i++) {
        dlrm_cached_batch_free(&model->ring[i].batch);
        free(model->ring[i].slot);
        free(model->ring[i].lookup_slot);
    }
    dlrm_cached_batch_free(&model->spare);
    dlrm_cached_stream_free(&model->stream);
    row_cache_free(&model->cache);
    free(model->block);
    arena_free(&model->net.arena);
    free(model);
}

static int cached_refuse(const struct dlrm_cached_shape *shape, struct error *err)
{
    if (shape->dim < 1 || shape->dim > OPS_BAG_DIM_MAX)
        return error_set(err, -EINVAL, "rows of %zu values are not supported: 1 to %d are",
                shape->dim, OPS_BAG_DIM_MAX);
    return dlrm_cached_cache_check(shape, err);
}

static int cached_batches(struct model *model, struct error *err)
{
    size_t lookups = dlrm_cached_lookups_max(&model->shape);
    int rc = dlrm_cached_batch_new(&model->shape, &model->spare, err);
    for (size_t i = 0; rc == 0 && i < CACHED_RING; i++) {
        struct coming *coming = &model->ring[i];
        rc = dlrm_cached_batch_new(&model->shape, &coming->batch, err);
        coming->slot = calloc(lookups, sizeof *coming->slot);
        coming->lookup_slot = calloc(lookups, sizeof *coming->lookup_slot);
        if (rc == 0 && (!coming->slot || !coming->lookup_slot))
            rc = error_set(err, -ENOMEM, "no memory for the rows of a batch of %zu samples",
                    model->shape.batch);
    }
    return rc;
}

static void cached_plan(struct model *model)
{
    static const char *const bottom[] = {"bottom.0.weight", "bottom.2.weight", "bottom.4.weight"};
    static const char *const top[] = {"top.0.weight", "top.2.weight", "top.4.weight"};
    struct network *net = &model->net;
    size_t batch = model->shape.batch, dim = model->shape.dim, slots = model->shape.cache;
    model->top.open = true;
    perceptron_widths(dim, model->bottom.width, model->top.width);
    perceptron_plan(net, &model->bottom, bottom, DLRM_DENSE, batch);
    perceptron_plan(net, &model->top, top, model->width, batch);
    network_allocate(net);
    perceptron_begin(net, &model->bottom, bottom, batch);
    perceptron_begin(net, &model->top, top, batch);
    model->value = network_reals(net, slots * dim);
    model->square = network_reals(net, slots * dim);
    if (model->sgd)
        network_fill(net, "rows", model->value, slots * dim, 0);
}

static void cached_buffers(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_cached_shape *shape = &model->shape;
    size_t batch = shape->batch, concat = batch * model->vectors * shape->dim;
    model->dense = network_reals(net, batch * DLRM_DENSE);
    model->label = network_reals(net, batch);
    model->concat = network_reals(net, concat);
    model->features = network_reals(net, batch * model->width);
    if (net->train) {
        model->row_loss = network_reals(net, batch);
        model->dlogits = network_reals(net, batch);
        model->dfeatures = network_reals(net, batch * model->width);
        model->dconcat = network_reals(net, concat);
        model->dbottom = network_reals(net, batch * shape->dim);
    }
    for (size_t t = 0; t < shape->tables; t++)
        model->bag[t] = (struct bag){.size = shape->table[t].bag,
                .table = model->value,
                .out = model->concat + (t + 1) * shape->dim};
}

// Before any of it is made: the books of a cache are written at once, too.
static int cached_room(const struct dlrm_cached_shape *shape, struct error *err)
{
    size_t bytes = shape->cache * (2 * shape->dim * sizeof(real) + ROW_CACHE_SLOT_BYTES);
    if (shape->cache > ROW_CACHE_SLOTS_MAX)
        return 0; // row_cache_init() has the word
    int rc = room_take(bytes, "the rows of the cache (--cache)", err);
    if (rc == 0)
        room_taken(bytes);
    return rc;
}

static int cached_create_parts(struct model *model, struct error *err)
{
    int rc = dlrm_cached_stream_init(
            &model->stream, &model->shape, model->net.seed, model->net.train, err);
    if (rc == 0)
        rc = cached_refuse(&model->shape, err);
    if (rc == 0)
        rc = cached_room(&model->shape, err);
    if (rc == 0)
        rc = row_cache_init(
                &model->cache, model->shape.cache, dlrm_cached_lookups_max(&model->shape), err);
    if (rc == 0)
        rc = cached_batches(model, err);
    if (rc)
        return rc;
    cached_plan(model);
    cached_buffers(model);
    for (int i = 0; rc == 0 && i < DLRM_CACHED_AHEAD; i++) {
        cached_draw(model);
        rc = dlrm_cached_batch_check(
                &model->shape, &cached_coming(model, model->drawn - 1)->batch, err);
        if (rc == 0)
            cached_prefetch(model);
    }
    return rc;
}

static int cached_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the dlrm-cached: out of memory");
    model->shape = dlrm_cached_shape_of(opts);
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    model->sgd = opts->plain_sgd;
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate : DLRM_CACHED_RATE);
    model->vectors = model->shape.tables + 1;
    model->width = OPS_INTERACT_WIDTH(model->vectors, model->shape.dim);
    int rc = cached_create_parts(model, err);
    if (rc) {
        cached_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

static void cached_forward(struct model *model)
{
    struct network *net = &model->net;
    const struct dlrm_cached_shape *shape = &model->shape;
    size_t batch = shape->batch, stride = model->vectors * shape->dim;
    struct bags bags = {.tables = shape->tables,
            .rows = batch,
            .dim = shape->dim,
            .out_stride = stride,
            .bag = model->bag};
    ops_bag(net->pool, &bags);
    const real *bottom = perceptron_forward(net, &model->bottom, batch, model->dense);
    ops_copy_rows(net->pool, batch, shape->dim, bottom, shape->dim, model->concat, stride);
    ops_interact(net->pool, batch, model->vectors, shape->dim, model->concat, model->features);
    perceptron_forward(net, &model->top, batch, model->features);
}

static const real *cached_scores(const struct model *model)
{
    return model->top.hidden[PERCEPTRON_LAYERS - 1];
}

static double cached_loss(struct model *model)
{
    return ops_bce_loss(model->net.pool, model->shape.batch, cached_scores(model), model->label,
            model->row_loss, model->dlogits);
}

static void cached_backward(struct model *model)
{
    struct network *net = &model->net;
    size_t batch = model->shape.batch, dim = model->shape.dim;
    perceptron_backward(net, &model->top, batch, model->features, model->dlogits, model->dfeatures);
    ops_interact_backward(
            net->pool, batch, model->vectors, dim, model->concat, model->dfeatures, model->dconcat);
    ops_copy_rows(net->pool, batch, dim, model->dconcat, model->vectors * dim, model->dbottom, dim);
    perceptron_backward(net, &model->bottom, batch, model->dense, model->dbottom, NULL);
}

static void cached_update(struct model *model)
{
    const struct coming *now = cached_coming(model, 0);
    struct bag_rows rows = {.rows = now->batch.distinct,
            .dim = model->shape.dim,
            .row = now->slot,
            .begin = now->batch.begin,
            .vector = now->batch.vector,
            .dout = model->dconcat,
            .table = model->value,
            .square = model->sgd ? NULL : model->square};
    ops_sgd(model->net.pool, model->net.count, model->rate, model->net.grad, model->net.value);
    ops_bag_update(model->net.pool, &rows, model->sgd ? model->rate : (real)DLRM_CACHED_ROWS_RATE,
            (real)DLRM_CACHED_EPSILON);
}

static size_t cached_samples(const struct model *model)
{
    return model->shape.batch;
}

static const void *cached_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->shape.batch;
    return cached_scores(model);
}

static const struct model_param *cached_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

static size_t cached_notes(const struct model *model, struct model_note *ret)
{
    return dlrm_cached_notes(&model->cache, ret);
}

const struct model_ops NATIVE_NAME(dlrm_cached_ops) = {
        .name = "dlrm-cached",
        .real_bytes = sizeof(real),
        .create = cached_create,
        .destroy = cached_destroy,
        .load = cached_load,
        .forward = cached_forward,
        .loss = cached_loss,
        .backward = cached_backward,
        .update = cached_update,
        .samples = cached_samples,
        .logits = cached_logits,
        .params = cached_params,
        .notes = cached_notes,
};
