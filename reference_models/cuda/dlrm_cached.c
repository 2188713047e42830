// SPDX-License-Identifier: Apache-2.0
// The recommender of native/models/dlrm_cached.c on the GPU: the same shapes, start values and
// inputs, and the same books of its cache (row_cache.h), so the same hits, misses and new ids. All
// rows, each with its squares of Adagrad, lie in pinned memory of the host, which grows; those of
// the cache on the GPU, in float32. What lies between the rows and the loss is bfloat16 with sums
// in float32, parameters are float32.
//
// A step launches everything before it waits. The rows of batches ahead move meanwhile, on a stream
// of their own, and the host draws a batch. Two events order the streams: `there`, a batch's rows
// are in their slots; `released`, the last step is done with its own, which may leave now.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "kernels/cache.h"
#include "reference_models/cuda/layer.h"
#include "reference_models/cuda/pointwise.h"
#include "reference_models/native/models/dlrm_cached_data.h"
#include "reference_models/native/models/perceptron_widths.h"
#include "reference_models/native/row_cache.h"

#define STORE_BLOCK 16384 // rows that the store grows by
#define DENSE ((DLRM_DENSE + 7) / 8 * 8)
#define LOGITS 8    // columns of the last layer: one, padded
#define DIM_MAX 128 // of a row

enum { CACHED_WINDOW = DLRM_CACHED_AHEAD + 1, CACHED_RING = CACHED_WINDOW + 1 };

// A batch and where its rows are, from when they are wanted on.
struct coming {
    struct dlrm_cached_batch batch;
    uint32_t *slot;                  // [batch.distinct]
    struct kernel_cache_move *moves; // pinned; those that bring its rows
    cudaEvent_t there;
};

// Of a step, in pinned memory and on the GPU.
struct inputs {
    int64_t *slots, *ranks; // [lookups]: the row's slot, and its number among the batch's
    int32_t *places;        // [distinct]: the slot of each number
    int64_t *offsets;       // [tables * batch + 1]
    float *dense, *label;   // [batch][DENSE], [batch]
};

struct model {
    struct device device;
    struct params params;
    struct pool *pool;
    struct dlrm_cached_shape shape;
    struct dlrm_cached_stream stream;
    uint64_t seed;
    bool train, loaded;
    float rate;
    // Batches drawn, oldest first; the rows of the first `wanted` are in the cache, or on their
    // way. The first is the step's, once there is one.
    struct coming ring[CACHED_RING];
    size_t first, drawn, wanted;
    struct row_cache cache;
    float **leaving; // [slots]: where in the store a row goes that leaves, while moves are made
    float **block;   // of the store: [STORE_BLOCK][planes][dim] each, pinned
    size_t blocks;
    int planes;            // of a row: values; in training, squares too
    float *value, *square; // of the cache, [slots][dim]
    cudaStream_t link;     // of the moves
    cudaEvent_t released;
    struct kernel_cache_move *moves;
    struct inputs host, gpu;
    struct layer bottom[PERCEPTRON_LAYERS], top[PERCEPTRON_LAYERS];
    struct kernel_bags lookup, named; // of the bags; of what an update names
    struct kernel_update update;
    struct kernel_interaction interaction;
    struct kernel_binary_entropy entropy;
    float *row_loss, *pooled, *dpooled, *logits32;
    // bfloat16; bottom_out: before its ReLU
    void *dense, *bottom_active[2], *bottom_out, *concat, *features, *top_active[2], *logits;
    void *dbottom[2], *dbottom_out, *dconcat, *dfeatures, *dtop[2], *dlogits;
    void *scratch;
    size_t scratch_bytes;
    float *host_loss, *host_logits, *answers; // answers: the logits without their padding
    struct model_param name[PARAMS_MAX];      // of the CPU's parameters; the addresses are its
};

static void cached_check(struct model *model, cudaError_t error, const char *what)
{
    struct device *device = &model->device;
    if (error == cudaSuccess || device_failed(device))
        return;
    device_must(device,
            error_set(&device->err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
                    "failed to %s: %s (%s)", what, cudaGetErrorString(error),
                    cudaGetErrorName(error)));
}

static struct coming *cached_coming(struct model *model, size_t i)
{
    return &model->ring[(model->first + i) % CACHED_RING];
}

// --- rows between store and cache ----------------------------------------------------------------

static float *store_row(const struct model *model, uint32_t place)
{
    return model->block[place / STORE_BLOCK] +
            (size_t)(place % STORE_BLOCK) * (size_t)model->planes * model->shape.dim;
}

static void store_grow(struct model *model)
{
    size_t bytes = (size_t)STORE_BLOCK * (size_t)model->planes * model->shape.dim * sizeof(float);
    while (!device_failed(&model->device) &&
            (size_t)model->cache.places > model->blocks * STORE_BLOCK) {
        void *block = NULL;
        if (cudaMallocHost(&block, bytes) != cudaSuccess) {
            cudaGetLastError(); // it is not the next launch's
            device_must(&model->device,
                    error_set(&model->device.err, -ENOMEM,
                            "failed to pin %.1f MiB of the host's memory: %u different ids have "
                            "come, and each has a row there; fewer steps?",
                            (double)bytes / 0x1p20, model->cache.places));
            return;
        }
        model->block = xrealloc(model->block, (model->blocks + 1) * sizeof *model->block);
        model->block[model->blocks++] = block;
    }
}

struct moving {
    const struct model *model;
    struct kernel_cache_move *moves;
};

// A row that is new gets its start values in the store, and moves from there as others do.
static void moving_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct moving *moving = arg;
    const struct model *model = moving->model;
    size_t dim = model->shape.dim;
    double start[DIM_MAX];
    (void)again; // the same values once more
    for (size_t i = begin; i < end; i++) {
        const struct row_move *in = &model->cache.in[i];
        float *row = store_row(model, in->place);
        moving->moves[i] = (struct kernel_cache_move){
                .out = model->leaving[in->slot], .in = row, .slot = in->slot};
        if (!in->fresh)
            continue;
        dlrm_cached_row(dim, model->seed, in->id, start);
        for (size_t j = 0; j < dim; j++)
            row[j] = (float)start[j];
        if (model->planes > 1)
            memset(row + dim, 0, dim * sizeof *row);
    }
}

// late: the next step waits for these rows.
static void cached_move(struct model *model, const struct coming *coming, bool late)
{
    struct device *device = &model->device;
    const struct kernel_cache_moves moves = {.count = (int64_t)model->cache.in_count,
            .dim = (int64_t)model->shape.dim,
            .planes = model->planes,
            .slots = {model->value, model->square},
            .moves = model->moves,
            .late = late};
    cached_check(model,
            cudaMemcpyAsync(model->moves, coming->moves,
                    model->cache.in_count * sizeof *model->moves, cudaMemcpyHostToDevice,
                    model->link),
            "copy to the GPU");
    if (!device_failed(device))
        device_must(device, kernel_cache_move(&moves, model->link, &device->err));
    cached_check(model, cudaEventRecord(coming->there, model->link), "record an event");
}

// false: there are not enough slots that no batch wants.
static bool cached_want(struct model *model, size_t i)
{
    struct coming *coming = cached_coming(model, i);
    struct row_cache *cache = &model->cache;
    struct moving moving = {.model = model, .moves = coming->moves};
    if (device_failed(&model->device) ||
            !row_cache_want(cache, coming->batch.distinct, coming->batch.distinct_id, coming->slot))
        return false;
    store_grow(model);
    if (device_failed(&model->device))
        return false;
    // else the store has what the slot has
    for (size_t k = 0; k < cache->out_count && model->train; k++)
        model->leaving[cache->out[k].slot] = store_row(model, cache->out[k].place);
    pool_for(model->pool,
            &(struct pool_work){.count = cache->in_count,
                    .cost = 4.0 * (double)model->shape.dim,
                    POOL_FN(moving_part),
                    .arg = &moving});
    for (size_t k = 0; k < cache->out_count; k++)
        model->leaving[cache->out[k].slot] = NULL;
    cached_move(model, coming, i == 0);
    return true;
}

// The rows of as many of the drawn batches as fit. One of them always does, see
// dlrm_cached_cache_check().
static void cached_prefetch(struct model *model)
{
    if (device_failed(&model->device))
        return;
    cached_check(model, cudaStreamWaitEvent(model->link, model->released, 0), "wait for an event");
    while (model->wanted < CACHED_WINDOW && model->wanted < model->drawn &&
            cached_want(model, model->wanted))
        model->wanted++;
}

// --- inputs --------------------------------------------------------------------------------------

static void cached_draw(struct model *model)
{
    dlrm_cached_draw(&model->stream, &cached_coming(model, model->drawn)->batch);
    model->drawn++;
}

// The slots may be others' now. While the GPU works: the batch behind those whose rows are asked
// for; it only asks for its own at the next load, as the CPU's does.
static void cached_release(struct model *model)
{
    cached_check(model, cudaEventRecord(model->released, model->device.stream), "record an event");
    if (model->drawn < CACHED_RING)
        cached_draw(model);
}

static void cached_take(struct model *model)
{
    struct device *device = &model->device;
    const struct coming *now = cached_coming(model, 0);
    const struct dlrm_cached_batch *batch = &now->batch;
    const struct inputs *host = &model->host, *gpu = &model->gpu;
    size_t rows = model->shape.batch, tables = model->shape.tables;
    row_cache_use(&model->cache, batch->distinct, now->slot);
    for (size_t i = 0; i < batch->distinct; i++) {
        host->places[i] = (int32_t)now->slot[i];
        for (size_t k = batch->begin[i]; k < batch->begin[i + 1]; k++) {
            host->slots[batch->lookup[k]] = now->slot[i];
            host->ranks[batch->lookup[k]] = (int64_t)i;
        }
    }
    for (size_t t = 0; t < tables; t++)
        for (size_t row = 0; row <= rows; row++) // where a table ends the next one begins
            host->offsets[t * rows + row] = batch->offset[t * (rows + 1) + row];
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < DENSE; i++)
            host->dense[row * DENSE + i] =
                    i < DLRM_DENSE ? (float)batch->dense[row * DLRM_DENSE + i] : 0;
        host->label[row] = (float)batch->label[row];
    }
    device_upload(device, gpu->slots, host->slots, batch->lookups * sizeof *gpu->slots);
    device_upload(device, gpu->offsets, host->offsets, (tables * rows + 1) * sizeof *gpu->offsets);
    device_upload(device, gpu->dense, host->dense, rows * DENSE * sizeof *gpu->dense);
    if (model->train) {
        device_upload(device, gpu->ranks, host->ranks, batch->lookups * sizeof *gpu->ranks);
        device_upload(device, gpu->places, host->places, batch->distinct * sizeof *gpu->places);
        device_upload(device, gpu->label, host->label, rows * sizeof *gpu->label);
    }
    cached_check(model, cudaStreamWaitEvent(device->stream, now->there, 0), "wait for an event");
    model->lookup.ids_count = model->named.ids_count = (int64_t)batch->lookups;
    for (size_t t = 0; t < tables; t++)
        model->named.row_counts[t] = (int64_t)batch->distinct;
}

// Batches come in the order of the stream, whatever the step's number. The step before has been
// waited for: its inputs are overwritten.
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
    if (model->drawn < CACHED_WINDOW)
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
    if (model->link)
        cudaStreamSynchronize(model->link);
    for (int i = 0; i < PERCEPTRON_LAYERS; i++) {
        layer_free(&model->bottom[i]);
        layer_free(&model->top[i]);
    }
    device_close(&model->device);
    for (size_t i = 0; i < model->blocks; i++)
        cudaFreeHost(model->block[i]);
    for (size_t i = 0; i < CACHED_RING; i++) {
        if (model->ring[i].there)
            cudaEventDestroy(model->ring[i].there);
        dlrm_cached_batch_free(&model->ring[i].batch);
        free(model->ring[i].slot);
    }
    if (model->released)
        cudaEventDestroy(model->released);
    if (model->link)
        cudaStreamDestroy(model->link);
    params_free(&model->params);
    dlrm_cached_stream_free(&model->stream);
    row_cache_free(&model->cache);
    free(model->leaving);
    free(model->block);
    free(model);
}

static int cached_refuse(
        const struct dlrm_cached_shape *shape, const struct model_opts *opts, struct error *err)
{
    if (opts->plain_sgd)
        return error_set(err, -EINVAL,
                "rows that learn by plain SGD are not supported on the GPU: by Adagrad they are");
    if (shape->dim != 32 && shape->dim != 64 && shape->dim != DIM_MAX)
        return error_set(err, -EINVAL,
                "rows of %zu are not supported on the GPU: 32, 64 or 128; --size demo or large",
                shape->dim);
    return dlrm_cached_cache_check(shape, err);
}

static void cached_plan(struct model *model)
{
    const size_t dim = model->shape.dim, vectors = model->shape.tables + 1;
    size_t bottom[1 + PERCEPTRON_LAYERS] = {DLRM_DENSE},
                      top[1 + PERCEPTRON_LAYERS] = {dim + vectors * (vectors - 1) / 2};
    perceptron_widths(dim, bottom + 1, top + 1);
    for (int i = 0; i < PERCEPTRON_LAYERS; i++) // the ReLU behind the bottom's last is an operation
                                                // of its own: of 32 or 64 columns
        model->bottom[i] = layer_add(
                &model->params, bottom[i], bottom[i + 1], i < 2 ? KERNEL_RELU : KERNEL_IDENTITY);
    for (int i = 0; i < PERCEPTRON_LAYERS; i++)
        model->top[i] = layer_add(
                &model->params, top[i], top[i + 1], i < 2 ? KERNEL_RELU : KERNEL_IDENTITY);
}

static void cached_buffers(struct model *model)
{
    struct device *device = &model->device;
    const struct dlrm_cached_shape *shape = &model->shape;
    const size_t batch = shape->batch, dim = shape->dim, vectors = shape->tables + 1,
                 pooled = batch * shape->tables * dim;
    const size_t lookups = dlrm_cached_lookups_max(shape), offsets = shape->tables * batch + 1;
    const struct {
        void *to;
        size_t bytes;
        bool train;
        const char *what;
    } arrays[] = {{&model->value, shape->cache * dim * 4, false, "the rows of the cache (--cache)"},
            {&model->square, shape->cache * dim * 4, true, "the rows of the cache (--cache)"},
            {&model->moves, lookups * sizeof *model->moves, false, "the moves of rows"},
            {&model->gpu.slots, lookups * 8, false, "the ids"},
            {&model->gpu.ranks, lookups * 8, true, "the ids"},
            {&model->gpu.places, lookups * 4, true, "the ids"},
            {&model->gpu.offsets, offsets * 8, false, "the bags"},
            {&model->gpu.dense, batch * DENSE * 4, false, "activations"},
            {&model->gpu.label, batch * 4, true, "activations"},
            {&model->row_loss, batch * 4, true, "activations"},
            {&model->pooled, pooled * 4, false, "activations"},
            {&model->dpooled, pooled * 4, true, "activations"},
            {&model->logits32, batch * LOGITS * 4, false, "activations"},
            {&model->dense, batch * DENSE * 2, false, "activations"},
            {&model->bottom_active[0], batch * model->bottom[0].out * 2, false, "activations"},
            {&model->bottom_active[1], batch * model->bottom[1].out * 2, false, "activations"},
            {&model->bottom_out, batch * dim * 2, false, "activations"},
            {&model->concat, batch * vectors * dim * 2, false, "activations"},
            {&model->features, batch * model->top[0].in * 2, false, "activations"},
            {&model->top_active[0], batch * model->top[0].out * 2, false, "activations"},
            {&model->top_active[1], batch * model->top[1].out * 2, false, "activations"},
            {&model->logits, batch * LOGITS * 2, false, "activations"},
            {&model->dbottom[0], batch * model->bottom[0].out * 2, true, "activations"},
            {&model->dbottom[1], batch * model->bottom[1].out * 2, true, "activations"},
            {&model->dbottom_out, batch * dim * 2, true, "activations"},
            {&model->dconcat, batch * vectors * dim * 2, true, "activations"},
            {&model->dfeatures, batch * model->top[0].in * 2, true, "activations"},
            {&model->dtop[0], batch * model->top[0].out * 2, true, "activations"},
            {&model->dtop[1], batch * model->top[1].out * 2, true, "activations"},
            {&model->dlogits, batch * LOGITS * 2, true, "activations"}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (arrays[i].train && !model->train)
            continue;
        void *memory = device_alloc(device, arrays[i].bytes, arrays[i].what);
        memcpy(arrays[i].to, &memory, sizeof memory);
    }
    model->host = (struct inputs){.slots = device_pinned(device, lookups * 8),
            .ranks = device_pinned(device, lookups * 8),
            .places = device_pinned(device, lookups * 4),
            .offsets = device_pinned(device, offsets * 8),
            .dense = device_pinned(device, batch * DENSE * 4),
            .label = device_pinned(device, batch * 4)};
    model->host_loss = device_pinned(device, batch * 4);
    model->host_logits = device_pinned(device, batch * LOGITS * 4);
    model->answers = device_pinned(device, batch * 4);
}

static void cached_layers(struct model *model)
{
    const size_t rows = model->shape.batch;
    struct layer *bottom = model->bottom, *top = model->top;
    const struct {
        struct layer *layer;
        struct layer_arrays arrays;
        // clang-format off
    } layers[] = {
        {&bottom[0], {rows, model->dense, model->dbottom[0], model->bottom_active[0], NULL, NULL}},
        {&bottom[1], {rows, model->bottom_active[0], model->dbottom[1], model->bottom_active[1],
         model->dbottom[0], &bottom[0]}},
        {&bottom[2], {rows, model->bottom_active[1], model->dbottom_out, model->bottom_out,
         model->dbottom[1], &bottom[1]}},
        {&top[0], {rows, model->features, model->dtop[0], model->top_active[0], model->dfeatures,
         NULL}},
        {&top[1], {rows, model->top_active[0], model->dtop[1], model->top_active[1],
         model->dtop[0], &top[0]}},
        {&top[2], {rows, model->top_active[1], model->dlogits, model->logits, model->dtop[1],
         &top[1]}},
    };
    // clang-format on
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        layer_plan(layers[i].layer, &model->device, model->train, &layers[i].arrays);
}

// All tables are one: the cache. An update names rows by their number among the batch's, so that
// their gradients are added up in the order of the ids, whatever the slots.
static void cached_launchers(struct model *model)
{
    struct device *device = &model->device;
    const struct dlrm_cached_shape *shape = &model->shape;
    const int64_t lookups = (int64_t)dlrm_cached_lookups_max(shape), slots = (int64_t)shape->cache,
                  batch = (int64_t)shape->batch;
    model->lookup = (struct kernel_bags){.type = KERNEL_FLOAT32,
            .pooling = KERNEL_SUM,
            .tables = (int64_t)shape->tables,
            .bags = batch,
            .dim = (int64_t)shape->dim,
            .ids_count = lookups,
            .ids = model->gpu.slots,
            .offsets = model->gpu.offsets};
    for (size_t t = 0; t < shape->tables; t++) {
        model->lookup.rows[t] = model->value;
        model->lookup.row_counts[t] = slots;
    }
    model->named = model->lookup;
    model->named.ids = model->gpu.ranks;
    model->named.places = model->gpu.places;
    model->named.slots = slots;
    for (size_t t = 0; t < shape->tables; t++)
        model->named.row_counts[t] = lookups; // at most
    model->update = (struct kernel_update){.optimizer = KERNEL_ADAGRAD_EACH,
            .rate = (float)DLRM_CACHED_ROWS_RATE,
            .epsilon = (float)DLRM_CACHED_EPSILON,
            .state = model->square};
    model->interaction = (struct kernel_interaction){.type = KERNEL_BFLOAT16,
            .rows = batch,
            .vectors = (int64_t)shape->tables + 1,
            .dim = (int64_t)shape->dim,
            .stride = (int64_t)model->top[0].in,
            .x = model->concat};
    model->entropy = (struct kernel_binary_entropy){.type = KERNEL_BFLOAT16,
            .rows = batch,
            .stride = LOGITS,
            .scale = 1 / (float)batch,
            .logits = model->logits,
            .label = model->gpu.label,
            .loss = model->row_loss,
            .dlogits = model->dlogits};
    if (!model->train || device_failed(device))
        return;
    device_must(
            device, kernel_bag_update_scratch(&model->named, &model->scratch_bytes, &device->err));
    model->scratch = device_alloc(device, model->scratch_bytes, "the sort of the ids");
}

static int cached_batches(struct model *model, struct error *err)
{
    size_t lookups = dlrm_cached_lookups_max(&model->shape);
    int rc = 0;
    model->leaving = calloc(model->shape.cache, sizeof *model->leaving);
    if (!model->leaving)
        return error_set(err, -ENOMEM, "no memory for a cache of %zu rows", model->shape.cache);
    for (size_t i = 0; rc == 0 && i < CACHED_RING; i++) {
        struct coming *coming = &model->ring[i];
        rc = dlrm_cached_batch_new(&model->shape, &coming->batch, err);
        coming->slot = calloc(lookups, sizeof *coming->slot);
        coming->moves = device_pinned(&model->device, lookups * sizeof *coming->moves);
        cached_check(model, cudaEventCreateWithFlags(&coming->there, cudaEventDisableTiming),
                "create an event");
        if (rc == 0 && !coming->slot)
            rc = error_set(err, -ENOMEM, "no memory for the rows of a batch of %zu samples",
                    model->shape.batch);
    }
    cached_check(model, cudaStreamCreateWithFlags(&model->link, cudaStreamNonBlocking),
            "create a stream");
    cached_check(model, cudaEventCreateWithFlags(&model->released, cudaEventDisableTiming),
            "create an event");
    return rc;
}

// The first batches, drawn and looked at: what is launched later trusts what it is given.
static int cached_begin(struct model *model, struct error *err)
{
    int rc = 0;
    device_wait(&model->device); // the slots have been cleared, which is another stream's work
    for (int i = 0; rc == 0 && i < DLRM_CACHED_AHEAD; i++) {
        cached_draw(model);
        rc = dlrm_cached_batch_check(
                &model->shape, &cached_coming(model, model->drawn - 1)->batch, err);
    }
    if (rc)
        return rc;
    cached_prefetch(model);
    return device_created(&model->device, err);
}

// The CPU's model is there for its start values only.
static int cached_create_from(struct model *model, const struct model_opts *opts, struct error *err)
{
    struct model_opts cpu_opts = *opts;
    struct model *cpu = NULL;
    size_t count;
    cpu_opts.train = false;
    cpu_opts.cache_rows = dlrm_cached_lookups_max(&model->shape); // no row of it is asked for
    int rc = dlrm_cached_ops_f32.create(&cpu_opts, &cpu, err);
    if (rc)
        return rc;
    const struct model_param *start = dlrm_cached_ops_f32.params(cpu, &count);
    memcpy(model->name, start, count * sizeof *start);
    cached_plan(model);
    params_allocate(&model->params, &model->device, model->train, false, start, count);
    dlrm_cached_ops_f32.destroy(cpu);
    cached_buffers(model);
    cached_layers(model);
    cached_launchers(model);
    rc = cached_batches(model, err);
    return rc ? rc : cached_begin(model, err);
}

static int cached_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the dlrm-cached: out of memory");
    model->shape = dlrm_cached_shape_of(opts);
    model->pool = opts->pool;
    model->seed = opts->seed;
    model->train = opts->train;
    model->planes = opts->train ? 2 : 1;
    model->rate = (float)(opts->learning_rate > 0 ? opts->learning_rate : DLRM_CACHED_RATE);
    int rc = dlrm_cached_stream_init(&model->stream, &model->shape, opts->seed, opts->train, err);
    if (rc == 0)
        rc = cached_refuse(&model->shape, opts, err);
    if (rc == 0)
        rc = row_cache_init(
                &model->cache, model->shape.cache, dlrm_cached_lookups_max(&model->shape), err);
    if (rc == 0)
        rc = device_open(&model->device, err);
    if (rc == 0)
        rc = cached_create_from(model, opts, err);
    if (rc) {
        cached_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

static void cached_start_forward(struct model *model)
{
    struct device *device = &model->device;
    const size_t batch = model->shape.batch, dim = model->shape.dim,
                 pooled = model->shape.tables * dim, row = pooled + dim;
    device_must(device,
            kernel_bag_forward(&model->lookup, model->pooled, device->stream, &device->err));
    pointwise(device, KERNEL_POINT_COPY, 1, batch, pooled, pointwise_float32(model->pooled, pooled),
            POINTWISE_NONE, pointwise_bfloat16((char *)model->concat + 2 * dim, 0, row));
    pointwise(device, KERNEL_POINT_COPY, 1, batch, DENSE,
            pointwise_float32(model->gpu.dense, DENSE), POINTWISE_NONE,
            pointwise_bfloat16(model->dense, 0, DENSE));
    for (int i = 0; i < PERCEPTRON_LAYERS; i++)
        layer_forward(&model->bottom[i]);
    pointwise(device, KERNEL_POINT_RELU, 1, batch, dim,
            pointwise_bfloat16(model->bottom_out, 0, dim), POINTWISE_NONE,
            pointwise_bfloat16(model->concat, 0, row));
    device_must(device,
            kernel_interaction_forward(
                    &model->interaction, model->features, device->stream, &device->err));
    for (int i = 0; i < PERCEPTRON_LAYERS; i++)
        layer_forward(&model->top[i]);
    pointwise(device, KERNEL_POINT_COPY, 1, batch, LOGITS,
            pointwise_bfloat16(model->logits, 0, LOGITS), POINTWISE_NONE,
            pointwise_float32(model->logits32, LOGITS));
    device_download(device, model->host_logits, model->logits32, batch * LOGITS * 4);
}

// A request is answered when its scores are on the host.
static void cached_forward(struct model *model)
{
    cached_start_forward(model);
    if (model->train)
        return;
    cached_release(model);
    device_wait(&model->device);
}

static double cached_loss(struct model *model)
{
    struct device *device = &model->device;
    device_must(device, kernel_binary_entropy(&model->entropy, device->stream, &device->err));
    device_download(device, model->host_loss, model->row_loss, model->shape.batch * 4);
    return NAN;
}

static void cached_backward(struct model *model)
{
    struct device *device = &model->device;
    const size_t batch = model->shape.batch, dim = model->shape.dim,
                 pooled = model->shape.tables * dim, row = pooled + dim;
    for (int i = PERCEPTRON_LAYERS - 1; i >= 0; i--)
        layer_backward(&model->top[i]);
    device_must(device,
            kernel_interaction_backward(&model->interaction, model->dfeatures, model->dconcat,
                    device->stream, &device->err));
    pointwise(device, KERNEL_POINT_RELU_GRADIENT, 1, batch, dim,
            pointwise_bfloat16(model->bottom_out, 0, dim),
            pointwise_bfloat16(model->dconcat, 0, row),
            pointwise_bfloat16(model->dbottom_out, 0, dim));
    pointwise(device, KERNEL_POINT_COPY, 1, batch, pooled,
            pointwise_bfloat16((char *)model->dconcat + 2 * dim, 0, row), POINTWISE_NONE,
            pointwise_float32(model->dpooled, pooled));
    for (int i = PERCEPTRON_LAYERS - 1; i >= 0; i--)
        layer_backward(&model->bottom[i]);
}

static void cached_update(struct model *model)
{
    struct device *device = &model->device;
    params_sgd(&model->params, model->rate);
    device_must(device,
            kernel_bag_update(&model->named, &model->update, model->dpooled, model->scratch,
                    model->scratch_bytes, device->stream, &device->err));
    cached_release(model);
}

static double cached_settle(struct model *model)
{
    double sum = 0;
    device_wait(&model->device);
    for (size_t row = 0; row < model->shape.batch; row++)
        sum += (double)model->host_loss[row];
    return sum / (double)model->shape.batch;
}

static void cached_poison(struct model *model)
{
    params_poison(&model->params);
}

static size_t cached_samples(const struct model *model)
{
    return model->shape.batch;
}

static const void *cached_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->shape.batch;
    for (size_t row = 0; row < *ret_count; row++)
        model->answers[row] = model->host_logits[row * LOGITS];
    return model->answers;
}

static const struct model_param *cached_params(const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const; // the copies are its own
    return params_download(&model->params, model->name, NULL, 0, ret_count);
}

static size_t cached_notes(const struct model *model, struct model_note *ret)
{
    return dlrm_cached_notes(&model->cache, ret);
}

const struct model_ops dlrm_cached_ops_cuda = {
        .name = "dlrm-cached",
        .real_bytes = 4,
        .create = cached_create,
        .destroy = cached_destroy,
        .load = cached_load,
        .forward = cached_forward,
        .loss = cached_loss,
        .backward = cached_backward,
        .update = cached_update,
        .settle = cached_settle,
        .poison = cached_poison,
        .samples = cached_samples,
        .logits = cached_logits,
        .params = cached_params,
        .notes = cached_notes,
};
