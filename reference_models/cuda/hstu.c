// SPDX-License-Identifier: Apache-2.0
// The generative recommender of native/models/hstu.c on the GPU: the same shapes, start values and
// inputs. Parameters and the table of items in float32, everything between it and the loss in
// bfloat16 with sums in float32. Reads kernels.h's launchers only.
//
// Products take as many rows as a batch can have at most: their plans are made once. Rows behind a
// batch's own are finite, as memory starts at 0, and their gradients are 0: they add nothing.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference_models/cuda/layer.h"
#include "reference_models/cuda/norm.h"
#include "reference_models/cuda/pointwise.h"
#include "reference_models/native/models/hstu_data.h"

#define LOGITS 8 // columns of the last layer: one, padded

enum { HSTU_U, HSTU_V, HSTU_Q, HSTU_K, HSTU_PARTS };
enum hstu_call { HSTU_HISTORY, HSTU_TARGETS, HSTU_SELF, HSTU_CALLS };

struct block {
    struct norm norm1, norm2;
    struct layer uvqk, out;
    size_t position;
    // z[rows][4][width], active[4][rows][width]
    void *x, *normed1, *z, *active, *mixed, *normed2, *gated;
};

// The inputs of a step, in pinned memory.
struct inputs {
    int64_t *ids;     // [rows][HSTU_BAG]
    int32_t *history; // [users + 1]
    float *label;
    size_t longest;
};

struct model {
    struct device device;
    struct params params;
    struct hstu_shape shape;
    struct hstu_batch batch;
    bool train;
    float rate;
    size_t rows_max, history_rows, target_rows, rows, longest; // the last four: of this batch
    struct block block[HSTU_LAYERS_MAX];
    struct norm norm;
    struct layer head;
    struct inputs *inputs; // of each step of the pool
    float *table, *embedded, *label, *row_loss, *logits32, *dposition[HSTU_CALLS];
    int64_t *ids, *offsets;
    int32_t *history, *target_offset, *self_offset;
    void *last, *branch, *crossed, *self, *normed, *logits; // bfloat16, as what follows
    void *dlogits, *dx, *dbranch, *dnormed, *dgated, *dgate, *dmixed, *dactive, *dz, *dk[2], *dv[2],
            *dq[2];
    void *norm_scratch, *attention_scratch, *scratch;
    size_t scratch_bytes;
    float *host_loss, *host_logits, *answers, *host_table;
    struct model_param name[PARAMS_MAX];
};

// --- what it is made of --------------------------------------------------------------------------

static size_t hstu_positions(const struct hstu_shape *shape)
{
    return shape->heads * (2 * hstu_span(shape) - 1);
}

static void hstu_plan(struct model *model)
{
    struct params *params = &model->params;
    size_t width = model->shape.width;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *block = &model->block[i];
        block->norm1 = norm_add(params, width);
        block->uvqk = layer_add_parts(params, width, width, HSTU_PARTS);
        block->position = params_add_wide(params, hstu_positions(&model->shape));
        block->norm2 = norm_add(params, width);
        block->out = layer_add(params, width, width, KERNEL_IDENTITY);
    }
    model->norm = norm_add(params, width);
    model->head = layer_add(params, width, 1, KERNEL_IDENTITY);
}

static void *hstu_array(struct model *model, size_t columns)
{
    return device_alloc(&model->device, model->rows_max * columns * 2, "activations");
}

static void hstu_gradients(struct model *model)
{
    struct device *device = &model->device;
    size_t width = model->shape.width, targets = model->batch.users * model->batch.targets;
    void **const arrays[] = {&model->dx, &model->dbranch, &model->dnormed, &model->dgated,
            &model->dgate, &model->dmixed, &model->dk[0], &model->dk[1], &model->dv[0],
            &model->dv[1]};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = hstu_array(model, width);
    model->dactive = hstu_array(model, HSTU_PARTS * width);
    model->dz = hstu_array(model, HSTU_PARTS * width);
    for (size_t i = 0; i < 2; i++)
        model->dq[i] = device_alloc(device, targets * width * 2, "activations");
    // A call of targets writes its bias' gradient so much further on, see hstu_attention().
    for (size_t i = 0; i < HSTU_CALLS; i++)
        model->dposition[i] = device_alloc(device,
                (params_padded(hstu_positions(&model->shape)) + model->batch.targets) * 4,
                "the gradients");
    model->dlogits = device_alloc(device, targets * LOGITS * 2, "activations");
    model->row_loss = device_alloc(device, targets * 4, "the losses");
    model->host_loss = device_pinned(device, targets * 4);
}

static void hstu_buffers(struct model *model)
{
    struct device *device = &model->device;
    size_t width = model->shape.width, targets = model->batch.users * model->batch.targets;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *b = &model->block[i];
        void **const arrays[] = {&b->x, &b->normed1, &b->mixed, &b->normed2, &b->gated};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
            *arrays[k] = hstu_array(model, width);
        b->z = hstu_array(model, HSTU_PARTS * width);
        b->active = hstu_array(model, HSTU_PARTS * width);
        norm_buffers(&b->norm1, &model->device, model->rows_max);
        norm_buffers(&b->norm2, &model->device, model->rows_max);
    }
    norm_buffers(&model->norm, &model->device, model->rows_max);
    model->last = hstu_array(model, width);
    model->branch = hstu_array(model, width);
    model->embedded = device_alloc(device, model->rows_max * width * 4, "activations");
    void **const arrays[] = {&model->crossed, &model->self, &model->normed};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = device_alloc(device, targets * width * 2, "activations");
    model->logits = device_alloc(device, targets * LOGITS * 2, "activations");
    model->logits32 = device_alloc(device, targets * LOGITS * 4, "the answers");
    model->label = device_alloc(device, targets * 4, "the labels");
    model->host_logits = device_pinned(device, targets * LOGITS * 4);
    model->answers = device_pinned(device, targets * 4);
    if (model->train)
        hstu_gradients(model);
}

static void hstu_layers(struct model *model)
{
    struct device *device = &model->device;
    size_t rows = model->rows_max;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *b = &model->block[i];
        layer_plan(&b->uvqk, device, model->train,
                &(struct layer_arrays){rows, b->normed1, model->dz, b->z, model->dnormed, NULL});
        layer_plan(&b->out, device, model->train,
                &(struct layer_arrays){
                        rows, b->gated, model->dx, model->branch, model->dgated, NULL});
    }
    layer_plan(&model->head, device, model->train,
            &(struct layer_arrays){model->batch.users * model->batch.targets, model->normed,
                    model->dlogits, model->logits, model->dnormed, NULL});
}

// --- inputs --------------------------------------------------------------------------------------

static void hstu_constant_offsets(struct model *model)
{
    struct device *device = &model->device;
    size_t users = model->batch.users, targets = users * model->batch.targets,
           rows = model->rows_max;
    int64_t *offsets = malloc((rows + 1) * sizeof *offsets);
    int32_t *sequences = malloc((users + targets + 2) * sizeof *sequences);
    if (!offsets || !sequences)
        device_must(device, error_set(&device->err, -ENOMEM, "no memory for the inputs"));
    for (size_t i = 0; offsets && i <= rows; i++)
        offsets[i] = HSTU_BAG * (int64_t)i;
    for (size_t u = 0; sequences && u <= users; u++)
        sequences[u] = (int32_t)(u * model->batch.targets);
    for (size_t t = 0; sequences && t <= targets; t++)
        sequences[users + 1 + t] = (int32_t)t;
    device_upload(device, model->offsets, offsets, (rows + 1) * 8);
    device_upload(device, model->target_offset, sequences, (users + 1) * 4);
    device_upload(device, model->self_offset, sequences + users + 1, (targets + 1) * 4);
    device_wait(device);
    free(offsets);
    free(sequences);
}

static void hstu_draw_inputs(struct model *model, uint64_t seed, uint64_t step, struct inputs *to)
{
    struct device *device = &model->device;
    size_t users = model->batch.users, targets = users * model->batch.targets;
    to->ids = device_pinned(device, model->rows_max * HSTU_BAG * 8);
    to->history = device_pinned(device, (users + 1) * 4);
    to->label = device_pinned(device, targets * 4);
    if (device_failed(device))
        return;
    hstu_draw(&model->shape, seed, model->train, step, &model->batch);
    for (size_t i = 0; i < (model->batch.history[users] + targets) * HSTU_BAG; i++)
        to->ids[i] = model->batch.ids[i];
    for (size_t u = 0; u <= users; u++) {
        size_t length = u ? model->batch.history[u] - model->batch.history[u - 1] : 0;
        to->history[u] = (int32_t)model->batch.history[u];
        to->longest = length > to->longest ? length : to->longest;
    }
    for (size_t t = 0; t < targets; t++)
        to->label[t] = (float)model->batch.label[t];
}

static void hstu_inputs(struct model *model, uint64_t seed)
{
    struct device *device = &model->device;
    size_t users = model->batch.users, targets = users * model->batch.targets;
    model->ids = device_alloc(device, model->rows_max * HSTU_BAG * 8, "the ids");
    model->offsets = device_alloc(device, (model->rows_max + 1) * 8, "the ids");
    model->history = device_alloc(device, (users + 1) * 4, "the histories");
    model->target_offset = device_alloc(device, (users + 1) * 4, "the targets");
    model->self_offset = device_alloc(device, (targets + 1) * 4, "the targets");
    hstu_constant_offsets(model);
    model->inputs = calloc(model->shape.pool, sizeof *model->inputs);
    if (!model->inputs)
        device_must(device, error_set(&device->err, -ENOMEM, "no memory for the inputs"));
    for (size_t i = 0; i < model->shape.pool && !device_failed(device); i++)
        hstu_draw_inputs(model, seed, i, &model->inputs[i]);
}

static void hstu_load(struct model *model, uint64_t step)
{
    struct device *device = &model->device;
    const struct inputs *inputs = &model->inputs[step % model->shape.pool];
    model->history_rows = (size_t)inputs->history[model->batch.users];
    model->target_rows = model->batch.users * model->batch.targets;
    model->rows = model->history_rows + model->target_rows;
    model->longest = inputs->longest;
    device_upload(device, model->ids, inputs->ids, model->rows * HSTU_BAG * 8);
    device_upload(device, model->history, inputs->history, (model->batch.users + 1) * 4);
    device_upload(device, model->label, inputs->label, model->target_rows * 4);
}

// --- operations ----------------------------------------------------------------------------------

// Of two arrays of rows of the model's width, from row `first` on.
static void hstu_rows(struct model *model, enum kernel_pointwise_op op, size_t first, size_t rows,
        void *a, void *b, void *out)
{
    size_t width = model->shape.width, from = 2 * first * width;
    pointwise(&model->device, op, 1, rows, width, pointwise_bfloat16((char *)a + from, 0, width),
            pointwise_bfloat16((char *)b + from, 0, width),
            pointwise_bfloat16((char *)out + from, 0, width));
}

// Part of active or dactive: [rows_max][width], from row `first` on.
static void *hstu_part(const struct model *model, void *parts, size_t part, size_t first)
{
    return (char *)parts + 2 * (part * model->rows_max + first) * model->shape.width;
}

// A target's place is behind the history: its distance to an event is that of the ends, and as many
// more as there are targets.
static struct kernel_attention hstu_attention(
        const struct model *model, const struct block *block, enum hstu_call call)
{
    const struct hstu_shape *shape = &model->shape;
    const int32_t *offset = call == HSTU_HISTORY ? model->history
            : call == HSTU_TARGETS               ? model->target_offset
                                                 : model->self_offset;
    size_t head = shape->width / shape->heads, targets = model->history_rows,
           keys = call == HSTU_SELF ? targets : 0;
    size_t of_targets = call == HSTU_SELF ? 1 : model->batch.targets;
    return (struct kernel_attention){.type = KERNEL_BFLOAT16,
            .scores = KERNEL_SILU,
            .causal = call == HSTU_HISTORY,
            .sequences = (int64_t)(call == HSTU_SELF ? model->target_rows : model->batch.users),
            .heads = (int64_t)shape->heads,
            .key_heads = (int64_t)shape->heads,
            .dim = (int64_t)head,
            .queries = (int64_t)(call == HSTU_HISTORY ? model->history_rows : model->target_rows),
            .keys = (int64_t)(call == HSTU_SELF ? model->target_rows : model->history_rows),
            .longest_queries = (int64_t)(call == HSTU_HISTORY ? model->longest : of_targets),
            .longest_keys = (int64_t)(call == HSTU_SELF ? 1 : model->longest),
            .scale = 1 / sqrtf((float)head),
            .weight = 1 / (float)shape->history,
            .query_offsets = offset,
            .key_offsets = call == HSTU_SELF ? offset : model->history,
            .bias = params_value(&model->params, block->position) +
                    (call == HSTU_TARGETS ? model->batch.targets : 0),
            .span = (int64_t)hstu_span(shape),
            .q = hstu_part(model, block->active, HSTU_Q, call == HSTU_HISTORY ? 0 : targets),
            .k = hstu_part(model, block->active, HSTU_K, keys),
            .v = hstu_part(model, block->active, HSTU_V, keys),
            .out = call == HSTU_HISTORY    ? block->mixed
                    : call == HSTU_TARGETS ? model->crossed
                                           : model->self};
}

static struct kernel_bags hstu_bags(const struct model *model)
{
    struct kernel_bags bags = {.type = KERNEL_FLOAT32,
            .pooling = KERNEL_SUM,
            .tables = 1,
            .bags = (int64_t)model->rows,
            .dim = (int64_t)model->shape.width,
            .ids_count = HSTU_BAG * (int64_t)model->rows,
            .ids = model->ids,
            .offsets = model->offsets};
    bags.rows[0] = model->table;
    bags.row_counts[0] = (int64_t)(model->shape.items + HSTU_ACTIONS);
    return bags;
}

// --- creating ------------------------------------------------------------------------------------

// Of the largest batch.
static void hstu_scratch(struct model *model)
{
    struct device *device = &model->device;
    const struct kernel_norm norm = norm_work(&model->norm, model->rows_max, model->last, NULL);
    size_t norm_bytes = 0, most = 0;
    model->rows = model->rows_max;
    model->target_rows = model->batch.users * model->batch.targets;
    model->history_rows = model->rows_max - model->target_rows;
    model->longest = model->shape.history;
    if (device_failed(device))
        return;
    const struct kernel_bags bags = hstu_bags(model);
    device_must(device, kernel_norm_scratch(&norm, &norm_bytes, &device->err));
    for (enum hstu_call call = HSTU_HISTORY; call < HSTU_CALLS; call++) {
        const struct kernel_attention attention = hstu_attention(model, &model->block[0], call);
        size_t bytes = 0;
        device_must(device, kernel_attention_scratch(&attention, &bytes, &device->err));
        most = bytes > most ? bytes : most;
    }
    device_must(device, kernel_bag_update_scratch(&bags, &model->scratch_bytes, &device->err));
    model->norm_scratch = device_alloc(device, norm_bytes, "the norms' gradients");
    model->attention_scratch = device_alloc(device, most, "attention's gradients");
    model->scratch = device_alloc(device, model->scratch_bytes, "the sort of the ids");
}

static void hstu_destroy(struct model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->shape.layers; i++) {
        layer_free(&model->block[i].uvqk);
        layer_free(&model->block[i].out);
    }
    layer_free(&model->head);
    device_close(&model->device);
    params_free(&model->params);
    hstu_batch_free(&model->batch);
    free(model->inputs);
    free(model->host_table);
    free(model);
}

static int hstu_refuse(const struct hstu_shape *shape, struct error *err)
{
    size_t head = shape->width / shape->heads;
    if (head != 64 && head != 128)
        return error_set(err, -EINVAL,
                "heads of %zu are not supported on the GPU: 64 and 128 are; --size large", head);
    if (shape->width % 64 != 0)
        return error_set(err, -EINVAL,
                "a width of %zu is not supported on the GPU: a multiple of 64 is", shape->width);
    return 0;
}

static int hstu_create_from(struct model *model, const struct model_opts *opts, struct error *err)
{
    struct model_opts cpu_opts = *opts;
    struct model *cpu = NULL;
    size_t count, bytes = (model->shape.items + HSTU_ACTIONS) * model->shape.width * 4;
    cpu_opts.train = false;
    int rc = hstu_ops_f32.create(&cpu_opts, &cpu, err);
    if (rc)
        return rc;
    const struct model_param *start = hstu_ops_f32.params(cpu, &count);
    memcpy(model->name, start, count * sizeof *start);
    hstu_plan(model);
    params_allocate(&model->params, &model->device, model->train, false, start, count);
    model->table = device_alloc(&model->device, bytes, "the table of items");
    device_upload(&model->device, model->table, start[count - 1].value, bytes);
    device_wait(&model->device);
    hstu_ops_f32.destroy(cpu);
    hstu_buffers(model);
    hstu_inputs(model, opts->seed);
    hstu_layers(model);
    if (model->train)
        hstu_scratch(model);
    return device_created(&model->device, err);
}

static int hstu_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the hstu: out of memory");
    model->shape = opts->hstu_shape ? *opts->hstu_shape : hstu_shapes[opts->size];
    model->train = opts->train;
    model->rate = (float)(opts->learning_rate > 0 ? opts->learning_rate : model->shape.rate);
    int rc = hstu_refuse(&model->shape, err);
    if (rc == 0)
        rc = device_open(&model->device, err);
    if (rc == 0)
        rc = hstu_batch_new(&model->shape, opts->train, opts->batch, &model->batch, err);
    if (rc == 0) {
        model->rows_max = hstu_rows_max(&model->shape, &model->batch);
        rc = hstu_create_from(model, opts, err);
    }
    if (rc == 0) { // the launchers trust what this has seen
        hstu_load(model, 0);
        const struct kernel_bags bags = hstu_bags(model);
        rc = kernel_bags_check(&bags, model->device.stream, err);
    }
    if (rc) {
        hstu_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

// --- a step --------------------------------------------------------------------------------------

// Rows from which on a block has an output: in the last one only the targets do.
static size_t hstu_first(const struct model *model, const struct block *block)
{
    return block == &model->block[model->shape.layers - 1] ? model->history_rows : 0;
}

static void *hstu_from(const struct model *model, void *array, size_t first)
{
    return (char *)array + 2 * first * model->shape.width;
}

static void hstu_block_forward(struct model *model, struct block *block, void *next)
{
    struct device *device = &model->device;
    size_t width = model->shape.width, first = hstu_first(model, block),
           count = model->rows - first;
    norm_forward(&block->norm1, &model->device, model->rows, block->x, block->normed1);
    layer_forward(&block->uvqk);
    pointwise(&model->device, KERNEL_POINT_SILU, HSTU_PARTS, model->rows, width,
            pointwise_bfloat16(block->z, width, HSTU_PARTS * width), POINTWISE_NONE,
            pointwise_bfloat16(block->active, model->rows_max * width, width));
    for (enum hstu_call call = first ? HSTU_TARGETS : HSTU_HISTORY; call < HSTU_CALLS; call++) {
        const struct kernel_attention attention = hstu_attention(model, block, call);
        device_must(device, kernel_attention_forward(&attention, device->stream, &device->err));
    }
    hstu_rows(model, KERNEL_POINT_ADD, 0, model->target_rows, model->crossed, model->self,
            hstu_from(model, block->mixed, model->history_rows));
    norm_forward(&block->norm2, &model->device, count, hstu_from(model, block->mixed, first),
            hstu_from(model, block->normed2, first));
    hstu_rows(model, KERNEL_POINT_MUL, first, count, block->normed2,
            hstu_part(model, block->active, HSTU_U, 0), block->gated);
    layer_forward(&block->out);
    hstu_rows(model, KERNEL_POINT_ADD, first, count, block->x, model->branch, next);
}

static void hstu_start_forward(struct model *model)
{
    struct device *device = &model->device;
    size_t width = model->shape.width, layers = model->shape.layers;
    const struct kernel_bags bags = hstu_bags(model);
    device_must(device, kernel_bag_forward(&bags, model->embedded, device->stream, &device->err));
    pointwise(&model->device, KERNEL_POINT_COPY, 1, model->rows, width,
            pointwise_float32(model->embedded, width), POINTWISE_NONE,
            pointwise_bfloat16(model->block[0].x, 0, width));
    for (size_t i = 0; i < layers; i++)
        hstu_block_forward(
                model, &model->block[i], i + 1 < layers ? model->block[i + 1].x : model->last);
    norm_forward(&model->norm, &model->device, model->target_rows,
            hstu_from(model, model->last, model->history_rows), model->normed);
    layer_forward(&model->head);
    pointwise(&model->device, KERNEL_POINT_COPY, 1, model->target_rows, LOGITS,
            pointwise_bfloat16(model->logits, 0, LOGITS), POINTWISE_NONE,
            pointwise_float32(model->logits32, LOGITS));
    device_download(device, model->host_logits, model->logits32, model->target_rows * LOGITS * 4);
}

// A request is answered when its scores are on the host.
static void hstu_forward(struct model *model)
{
    hstu_start_forward(model);
    if (!model->train)
        device_wait(&model->device);
}

static double hstu_loss(struct model *model)
{
    struct device *device = &model->device;
    const struct kernel_binary_entropy entropy = {.type = KERNEL_BFLOAT16,
            .rows = (int64_t)model->target_rows,
            .stride = LOGITS,
            .scale = 1 / (float)model->target_rows,
            .logits = model->logits,
            .label = model->label,
            .loss = model->row_loss,
            .dlogits = model->dlogits};
    device_must(device, kernel_binary_entropy(&entropy, device->stream, &device->err));
    device_download(device, model->host_loss, model->row_loss, model->target_rows * 4);
    return NAN;
}

// The gradients of q, k, v and of the biases: each call's, added.
static void hstu_attention_backward(struct model *model, struct block *block)
{
    struct device *device = &model->device;
    size_t width = model->shape.width, history = model->history_rows,
           positions = params_padded(hstu_positions(&model->shape));
    bool last = hstu_first(model, block) > 0;
    void *dk = hstu_part(model, model->dactive, HSTU_K, 0),
         *dv = hstu_part(model, model->dactive, HSTU_V, 0);
    void *dq = hstu_part(model, model->dactive, HSTU_Q, 0),
         *dtargets = hstu_from(model, model->dmixed, history);
    const struct kernel_attention_gradient gradients[HSTU_CALLS] = {
            {model->dmixed, dq, model->dk[0], model->dv[0], model->attention_scratch,
                    model->dposition[HSTU_HISTORY]},
            {dtargets, model->dq[0], last ? dk : model->dk[1], last ? dv : model->dv[1],
                    model->attention_scratch,
                    model->dposition[HSTU_TARGETS] + model->batch.targets},
            {dtargets, model->dq[1], hstu_from(model, dk, history), hstu_from(model, dv, history),
                    model->attention_scratch, model->dposition[HSTU_SELF]}};
    for (enum hstu_call call = last ? HSTU_TARGETS : HSTU_HISTORY; call < HSTU_CALLS; call++) {
        const struct kernel_attention attention = hstu_attention(model, block, call);
        device_must(device,
                kernel_attention_backward(
                        &attention, &gradients[call], device->stream, &device->err));
    }
    pointwise(&model->device, KERNEL_POINT_ADD, 1, model->target_rows, width,
            pointwise_bfloat16(model->dq[0], 0, width), pointwise_bfloat16(model->dq[1], 0, width),
            pointwise_bfloat16(hstu_from(model, dq, history), 0, width));
    const struct kernel_operand sum =
            pointwise_float32(params_wide_grad(&model->params, block->position), 0);
    pointwise(&model->device, KERNEL_POINT_ADD, 1, 1, positions,
            pointwise_float32(model->dposition[HSTU_TARGETS], 0),
            pointwise_float32(model->dposition[HSTU_SELF], 0), sum);
    if (last) { // the history attends to nothing
        device_zero(device, dq, history * width * 2);
        return;
    }
    pointwise(&model->device, KERNEL_POINT_ADD, 1, 1, positions, sum,
            pointwise_float32(model->dposition[HSTU_HISTORY], 0), sum);
    hstu_rows(model, KERNEL_POINT_ADD, 0, history, model->dk[0], model->dk[1], dk);
    hstu_rows(model, KERNEL_POINT_ADD, 0, history, model->dv[0], model->dv[1], dv);
}

// model->dx holds the gradient of the block's output and then that of its input.
static void hstu_block_backward(struct model *model, struct block *block)
{
    size_t width = model->shape.width, first = hstu_first(model, block),
           count = model->rows - first;
    void *u = hstu_part(model, block->active, HSTU_U, 0),
         *du = hstu_part(model, model->dactive, HSTU_U, 0);
    layer_backward(&block->out);
    hstu_rows(model, KERNEL_POINT_MUL, first, count, model->dgated, block->normed2, du);
    device_zero(&model->device, du, first * width * 2);
    hstu_rows(model, KERNEL_POINT_MUL, first, count, model->dgated, u, model->dgate);
    norm_backward(&block->norm2, &model->device, count, hstu_from(model, block->mixed, first),
            hstu_from(model, model->dgate, first), hstu_from(model, model->dmixed, first),
            model->norm_scratch);
    hstu_attention_backward(model, block);
    pointwise(&model->device, KERNEL_POINT_SILU_GRADIENT, HSTU_PARTS, model->rows_max, width,
            pointwise_bfloat16(block->z, width, HSTU_PARTS * width),
            pointwise_bfloat16(model->dactive, model->rows_max * width, width),
            pointwise_bfloat16(model->dz, width, HSTU_PARTS * width));
    layer_backward(&block->uvqk);
    norm_backward(&block->norm1, &model->device, model->rows, block->x, model->dnormed,
            model->dbranch, model->norm_scratch);
    hstu_rows(model, KERNEL_POINT_ADD, 0, model->rows, model->dx, model->dbranch, model->dx);
}

// Rows behind the batch's own: another batch may have had some there.
static void hstu_clear_rest(struct model *model)
{
    size_t width = model->shape.width, rest = (model->rows_max - model->rows) * width * 2;
    device_zero(&model->device, model->dx, model->history_rows * width * 2);
    device_zero(&model->device, hstu_from(model, model->dx, model->rows), rest);
    for (size_t part = 0; part < HSTU_PARTS; part++)
        device_zero(&model->device, hstu_part(model, model->dactive, part, model->rows), rest);
}

static void hstu_backward(struct model *model)
{
    hstu_clear_rest(model);
    layer_backward(&model->head);
    norm_backward(&model->norm, &model->device, model->target_rows,
            hstu_from(model, model->last, model->history_rows), model->dnormed,
            hstu_from(model, model->dx, model->history_rows), model->norm_scratch);
    for (size_t i = model->shape.layers; i-- > 0;)
        hstu_block_backward(model, &model->block[i]);
}

static void hstu_update(struct model *model)
{
    struct device *device = &model->device;
    size_t width = model->shape.width;
    const struct kernel_bags bags = hstu_bags(model);
    const struct kernel_update update = {.optimizer = KERNEL_SGD, .rate = model->rate};
    params_sgd(&model->params, model->rate);
    pointwise(&model->device, KERNEL_POINT_COPY, 1, model->rows, width,
            pointwise_bfloat16(model->dx, 0, width), POINTWISE_NONE,
            pointwise_float32(model->embedded, width));
    device_must(device,
            kernel_bag_update(&bags, &update, model->embedded, model->scratch, model->scratch_bytes,
                    device->stream, &device->err));
}

static double hstu_settle(struct model *model)
{
    double sum = 0;
    device_wait(&model->device);
    for (size_t row = 0; row < model->target_rows; row++)
        sum += (double)model->host_loss[row];
    return sum / (double)model->target_rows;
}

static size_t hstu_samples(const struct model *model)
{
    return model->batch.users * model->batch.targets;
}

static const void *hstu_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->target_rows;
    for (size_t row = 0; row < model->target_rows; row++)
        model->answers[row] = model->host_logits[row * LOGITS];
    return model->answers;
}

static void hstu_poison(struct model *model)
{
    static const float nan_value = NAN;
    device_upload(&model->device, model->table, &nan_value, sizeof nan_value);
    params_poison(&model->params);
}

static const struct model_param *hstu_params(const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const; // the copies are its own
    size_t count = (model->shape.items + HSTU_ACTIONS) * model->shape.width;
    free(model->host_table);
    model->host_table = malloc(count * 4);
    if (!model->host_table)
        device_must(&model->device,
                error_set(&model->device.err, -ENOMEM, "no memory for a copy of the table"));
    device_download(&model->device, model->host_table, model->table, count * 4);
    const struct model_param table = {.name = "table", .value = model->host_table, .count = count};
    return params_download(&model->params, model->name, &table, 1, ret_count);
}

const struct model_ops hstu_ops_cuda = {
        .name = "hstu",
        .real_bytes = 4,
        .create = hstu_create,
        .destroy = hstu_destroy,
        .load = hstu_load,
        .forward = hstu_forward,
        .loss = hstu_loss,
        .backward = hstu_backward,
        .update = hstu_update,
        .settle = hstu_settle,
        .poison = hstu_poison,
        .samples = hstu_samples,
        .logits = hstu_logits,
        .params = hstu_params,
};
