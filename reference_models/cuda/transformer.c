// SPDX-License-Identifier: Apache-2.0
// The language model of native/models/transformer.c on the GPU: the same shapes, start values and
// text. Parameters in float32, everything between the tables and the loss in bfloat16 with sums in
// float32. Inference is one pass over whole windows, or prefill and decode with a cache of keys and
// values. As one of several ranks (opts.ranks) it is the model of torch/transformer.py, but for
// GELU, which is that of the products here, by tanh. Reads kernels.h's launchers only.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference_models/cuda/exchange.h"
#include "reference_models/cuda/layer.h"
#include "reference_models/cuda/norm.h"
#include "reference_models/cuda/pointwise.h"
#include "reference_models/native/models/transformer_data.h"

#define VOCABULARY TRANSFORMER_VOCABULARY

enum { PART_Q, PART_K, PART_V, PARTS };

#define ROW_MAX \
    ((size_t)512) // values of a row of a table that the launchers of bags take, in float32

struct block {
    struct norm norm1, norm2;
    // step: of decoding, a row of each sequence
    struct layer qkv, out, up, down, step_qkv, step_out, step_up, step_down;
    void *x, *normed1, *parts, *mixed, *mid, *normed2, *active; // parts[3][rows][dim]
    void *cache; // [2][batch][context][dim]: keys, values
    float *lse;
};

// The inputs of a step, in pinned memory: a row's ids are its byte's and its place's, in one table
// of both; where that has rows too wide for one bag, those of each piece of the row.
struct inputs {
    int64_t *ids; // [batch][context][pieces][2]
    int32_t *target;
};

struct model {
    struct device device;
    struct params params;
    struct transformer_shape shape;
    struct text text;
    uint64_t seed;
    bool train;
    float rate;
    const struct model_ranks *ranks;        // NULL: alone, and the native model
    struct exchange *exchange;              // of several ranks that train; else NULL
    size_t unit_first[MODEL_UNITS_MAX + 1]; // as exchange_new() takes them
    // rows: batch * context; bytes decoded one at a time, and those before
    size_t rows, decode, prompt;
    size_t token, position;
    size_t pieces; // of a row of the tables, each a bag of its own
    struct block block[TRANSFORMER_LAYERS_MAX];
    struct norm norm;
    struct layer head;
    struct inputs inputs;
    uint32_t *drawn; // [2][rows]
    int64_t *ids, *offsets;
    int32_t *target, *sequences; // sequences: offsets of rows, of one pass; decoding: of each step,
                                 // see transformer_offsets()
    float *embedded, *row_loss, *logits32;
    void *branch, *qkv, *last, *tail, *normed, *logits; // bfloat16, as what follows
    void *dlogits, *dx, *dbranch, *dnorm, *dsum, *dhidden, *dparts, *dqkv;
    void *norm_scratch, *attention_scratch, *scratch;
    size_t scratch_bytes;
    float *host_loss, *host_logits;
    struct model_param name[PARAMS_MAX];
};

// --- what it is made of --------------------------------------------------------------------------

static void transformer_plan(struct model *model)
{
    struct params *params = &model->params;
    size_t dim = model->shape.dim;
    // Neighbours in memory: 256 * dim values are a multiple of what entries are aligned to.
    model->token = params_add_wide(params, VOCABULARY * dim);
    model->position = params_add_wide(params, model->shape.context * dim);
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *block = &model->block[i];
        model->unit_first[1 + i] = params->narrow;
        block->norm1 = norm_add(params, dim);
        block->qkv = layer_add(params, dim, 3 * dim, KERNEL_IDENTITY);
        block->out = layer_add(params, dim, dim, KERNEL_IDENTITY);
        block->norm2 = norm_add(params, dim);
        block->up = layer_add(params, dim, 4 * dim, KERNEL_GELU);
        block->down = layer_add(params, 4 * dim, dim, KERNEL_IDENTITY);
    }
    model->unit_first[1 + model->shape.layers] = params->narrow;
    model->norm = norm_add(params, dim);
    model->head = model->ranks ? layer_add_matrix(params, dim, VOCABULARY)
                               : layer_add(params, dim, VOCABULARY, KERNEL_IDENTITY);
    model->unit_first[2 + model->shape.layers] = params->narrow;
}

static void *transformer_array(struct model *model, size_t columns)
{
    return device_alloc(&model->device, model->rows * columns * 2, "activations");
}

static void transformer_buffers(struct model *model)
{
    struct device *device = &model->device;
    size_t dim = model->shape.dim, rows = model->rows;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *block = &model->block[i];
        void **const arrays[] = {
                &block->x, &block->normed1, &block->mixed, &block->mid, &block->normed2};
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
            *arrays[k] = transformer_array(model, dim);
        block->parts = transformer_array(model, 3 * dim);
        block->active = transformer_array(model, 4 * dim);
        block->lse = device_alloc(device, model->shape.heads * rows * 4, "activations");
        if (model->decode)
            block->cache = transformer_array(model, 2 * dim);
        norm_buffers(&block->norm1, &model->device, model->rows);
        norm_buffers(&block->norm2, &model->device, model->rows);
    }
    norm_buffers(&model->norm, &model->device, model->rows);
    model->embedded = device_alloc(device, rows * dim * 4, "activations");
    void **const arrays[] = {&model->branch, &model->last, &model->tail, &model->normed};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++)
        *arrays[k] = transformer_array(model, dim);
    model->qkv = transformer_array(model, 3 * dim);
    model->logits = transformer_array(model, VOCABULARY);
    model->logits32 = device_alloc(device, rows * VOCABULARY * 4, "the answers");
    model->host_logits = device_pinned(device, rows * VOCABULARY * 4);
    if (!model->train)
        return;
    model->row_loss = device_alloc(device, rows * 4, "the losses");
    model->host_loss = device_pinned(device, rows * 4);
    void **const gradients[] = {&model->dx, &model->dbranch, &model->dnorm, &model->dsum};
    for (size_t k = 0; k < sizeof gradients / sizeof *gradients; k++)
        *gradients[k] = transformer_array(model, dim);
    model->dlogits = transformer_array(model, VOCABULARY);
    model->dhidden = transformer_array(model, 4 * dim);
    model->dparts = transformer_array(model, 3 * dim);
    model->dqkv = transformer_array(model, 3 * dim);
}

// The rows of a pass over `n` new rows of each sequence: queries [0, n, 2n...]; where there is a
// cache each sequence has a second one of no queries, which covers the rows of the cache that are
// not yet filled. Returns how many offsets it wrote.
static size_t transformer_offsets(
        const struct model *model, size_t n, size_t seen, int32_t *queries, int32_t *keys)
{
    size_t each = model->decode ? 2 : 1, count = each * model->shape.batch;
    for (size_t i = 0; i <= count; i++) {
        size_t b = i / each;
        queries[i] = (int32_t)((b + i % each) * n);
        keys[i] = (int32_t)(model->decode ? b * model->shape.context + i % each * seen : b * n);
    }
    return count + 1;
}

static size_t transformer_offsets_count(const struct model *model)
{
    return (model->decode ? 2 : 1) * model->shape.batch + 1;
}

static void transformer_inputs(struct model *model)
{
    struct device *device = &model->device;
    size_t rows = model->rows, passes = model->decode + 1, count = transformer_offsets_count(model);
    size_t bags = rows * model->pieces;
    int64_t *offsets = malloc((bags + 1) * sizeof *offsets);
    int32_t *sequences = malloc(2 * passes * count * sizeof *sequences);
    model->drawn = malloc(2 * rows * sizeof *model->drawn);
    if (!offsets || !sequences || !model->drawn)
        device_must(device, error_set(&device->err, -ENOMEM, "no memory for the inputs"));
    for (size_t i = 0; offsets && i <= bags; i++)
        offsets[i] = 2 * (int64_t)i;
    for (size_t pass = 0; sequences && pass < passes; pass++)
        transformer_offsets(model, pass ? 1 : model->prompt, model->prompt + pass,
                sequences + 2 * pass * count, sequences + (2 * pass + 1) * count);
    model->inputs.ids = device_pinned(device, bags * 16);
    model->inputs.target = device_pinned(device, rows * 4);
    model->ids = device_alloc(device, bags * 16, "the ids");
    model->offsets = device_alloc(device, (bags + 1) * 8, "the ids");
    model->target = device_alloc(device, rows * 4, "the targets");
    model->sequences = device_alloc(device, 2 * passes * count * 4, "the sequences");
    device_upload(device, model->offsets, offsets, (bags + 1) * 8);
    device_upload(device, model->sequences, sequences, 2 * passes * count * 4);
    device_wait(device);
    free(offsets);
    free(sequences);
}

static void transformer_layers(struct model *model)
{
    struct device *device = &model->device;
    size_t rows = model->decode ? model->shape.batch * model->prompt : model->rows,
           batch = model->shape.batch;
    bool train = model->train;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *b = &model->block[i];
        const struct {
            struct layer *layer, *step;
            struct layer_arrays arrays;
        } layers[] = {{&b->qkv, &b->step_qkv,
                              {rows, b->normed1, model->dqkv, model->qkv, model->dbranch, NULL}},
                {&b->out, &b->step_out,
                        {rows, b->mixed, model->dsum, model->branch, model->dbranch, NULL}},
                {&b->up, &b->step_up,
                        {rows, b->normed2, model->dhidden, b->active, model->dbranch, NULL}},
                {&b->down, &b->step_down,
                        {rows, b->active, model->dx, model->branch, model->dhidden, &b->up}}};
        for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
            struct layer_arrays step = layers[k].arrays;
            step.rows = batch;
            if (model->decode) {
                *layers[k].step = *layers[k].layer;
                layer_plan(layers[k].step, device, false, &step);
            }
            layer_plan(layers[k].layer, device, train, &layers[k].arrays);
        }
    }
    layer_plan(&model->head, device, train,
            &(struct layer_arrays){model->decode ? batch : rows, model->normed, model->dlogits,
                    model->logits, model->dnorm, NULL});
}

// --- operations ----------------------------------------------------------------------------------

// out = a, or a + b, of [outer][rows][dim]; operands of bfloat16 unless their type says otherwise.
static void transformer_pointwise(struct model *model, size_t outer, size_t rows,
        struct kernel_operand a, struct kernel_operand b, struct kernel_operand out)
{
    pointwise(&model->device, b.at ? KERNEL_POINT_ADD : KERNEL_POINT_COPY, outer, rows,
            model->shape.dim, a, b, out);
}

static void transformer_add(struct model *model, size_t rows, void *a, void *b, void *out)
{
    size_t dim = model->shape.dim;
    transformer_pointwise(model, 1, rows, pointwise_bfloat16(a, 0, dim),
            pointwise_bfloat16(b, 0, dim), pointwise_bfloat16(out, 0, dim));
}

static struct kernel_attention transformer_attention(
        const struct model *model, const struct block *block, size_t pass)
{
    const struct transformer_shape *shape = &model->shape;
    size_t part = model->rows * shape->dim * 2, count = transformer_offsets_count(model),
           n = pass ? 1 : model->prompt;
    int64_t rows = (int64_t)(shape->batch * n), keys = model->decode ? (int64_t)model->rows : rows;
    char *parts = block->parts, *cache = block->cache;
    return (struct kernel_attention){.type = KERNEL_BFLOAT16,
            .scores = KERNEL_SOFTMAX,
            .causal = true,
            .sequences = (int64_t)count - 1,
            .heads = (int64_t)shape->heads,
            .key_heads = (int64_t)shape->heads,
            .dim = (int64_t)(shape->dim / shape->heads),
            .queries = rows,
            .keys = keys,
            .longest_queries = (int64_t)n,
            .longest_keys = (int64_t)(model->decode ? shape->context : n),
            .scale = 1 / sqrtf((float)(shape->dim / shape->heads)),
            .query_offsets = model->sequences + 2 * pass * count,
            .key_offsets = model->sequences + (2 * pass + 1) * count,
            .q = parts,
            .k = model->decode ? cache : parts + part,
            .v = model->decode ? cache + part : parts + 2 * part,
            .out = block->mixed,
            .lse = block->lse};
}

// --- creating ------------------------------------------------------------------------------------

static struct kernel_bags transformer_bags(
        const struct model *model, int64_t rows, const int64_t *ids, float *table)
{
    const int64_t pieces = (int64_t)model->pieces;
    struct kernel_bags bags = {.type = KERNEL_FLOAT32,
            .pooling = KERNEL_SUM,
            .tables = 1,
            .bags = rows * pieces,
            .dim = (int64_t)model->shape.dim / pieces,
            .ids_count = 2 * rows * pieces,
            .ids = ids,
            .offsets = model->offsets};
    bags.rows[0] = table;
    bags.row_counts[0] = (int64_t)(VOCABULARY + model->shape.context) * pieces;
    return bags;
}

// What this rank and the others exchange; NULL: there are no others, or it does not train.
static const struct exchange_plan *transformer_exchange(const struct model *model)
{
    return model->ranks && model->train ? model->ranks->arg : NULL;
}

static struct kernel_cross_entropy transformer_entropy(const struct model *model)
{
    const struct exchange_plan *plan = transformer_exchange(model);
    size_t rows = model->rows * (plan ? plan->ranks : 1); // the gradients of all ranks are added
    return (struct kernel_cross_entropy){.type = KERNEL_BFLOAT16,
            .rows = (int64_t)model->rows,
            .n = (int64_t)VOCABULARY,
            .scale = 1 / (float)rows,
            .logits = model->logits,
            .target = model->target,
            .loss = model->row_loss,
            .dlogits = model->dlogits};
}

static void transformer_scratch(struct model *model)
{
    struct device *device = &model->device;
    const struct kernel_norm norm = norm_work(&model->norm, model->rows, model->last, NULL);
    const struct kernel_attention attention = transformer_attention(model, &model->block[0], 0);
    const struct kernel_bags bags = transformer_bags(model, (int64_t)model->rows, model->ids,
            params_wide_grad(&model->params, model->token));
    size_t norm_bytes = 0, attention_bytes = 0;
    if (device_failed(device))
        return;
    device_must(device, kernel_norm_scratch(&norm, &norm_bytes, &device->err));
    device_must(device, kernel_attention_scratch(&attention, &attention_bytes, &device->err));
    device_must(device, kernel_bag_update_scratch(&bags, &model->scratch_bytes, &device->err));
    model->norm_scratch = device_alloc(device, norm_bytes, "the norms' gradients");
    model->attention_scratch = device_alloc(device, attention_bytes, "attention's gradients");
    model->scratch = device_alloc(device, model->scratch_bytes, "the sort of the ids");
}

static void transformer_destroy(struct model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *b = &model->block[i];
        struct layer *layers[] = {&b->qkv, &b->out, &b->up, &b->down, &b->step_qkv, &b->step_out,
                &b->step_up, &b->step_down};
        for (size_t k = 0; k < sizeof layers / sizeof *layers; k++)
            layer_free(layers[k]);
    }
    layer_free(&model->head);
    exchange_free(model->exchange);
    device_close(&model->device);
    params_free(&model->params);
    text_free(&model->text);
    free(model->drawn);
    free(model);
}

static int transformer_refuse(
        const struct model *model, const struct model_opts *opts, struct error *err)
{
    const struct transformer_shape *shape = &model->shape;
    size_t head = shape->dim / shape->heads;
    if (opts->plain_sgd)
        return error_set(err, -EINVAL, "plain SGD is not supported on the GPU: Adam is");
    if (model->decode >= shape->context)
        return error_set(err, -EINVAL,
                "%zu bytes to decode are too many: a sequence has %zu, and at least one is the prompt",
                model->decode, shape->context);
    if (head != 64 && head != 128)
        return error_set(err, -EINVAL,
                "heads of %zu are not supported on the GPU: 64 and 128 are; --size large", head);
    if (shape->dim > 2 * ROW_MAX)
        return error_set(err, -EINVAL, "rows of %zu are not supported on the GPU: up to %zu are",
                shape->dim, 2 * ROW_MAX);
    return 0;
}

static int transformer_create_from(
        struct model *model, const struct model_opts *opts, struct error *err)
{
    struct model_opts cpu_opts = *opts;
    struct model *cpu = NULL;
    size_t count;
    cpu_opts.train = false;
    cpu_opts.batch = 1; // it computes nothing: its activations would be gigabytes of each rank
    int rc = transformer_ops_f32.create(&cpu_opts, &cpu, err);
    if (rc)
        return rc;
    const struct model_param *start = transformer_ops_f32.params(cpu, &count);
    memcpy(model->name, start, count * sizeof *start);
    const struct exchange_plan *plan = transformer_exchange(model);
    transformer_plan(model);
    model->params.shards = plan && plan->sharded ? plan->ranks : 0;
    params_allocate(&model->params, &model->device, model->train, true, start, count);
    transformer_ops_f32.destroy(cpu);
    transformer_buffers(model);
    transformer_inputs(model);
    transformer_layers(model);
    if (model->train)
        transformer_scratch(model);
    rc = device_created(&model->device, err);
    if (rc == 0 && plan)
        rc = exchange_new(plan, model->ranks->rank, &model->params, model->shape.layers + 2,
                model->unit_first, &model->exchange, err);
    return rc;
}

static int transformer_open(struct model *model, struct error *err)
{
    const struct exchange_plan *plan = model->ranks ? model->ranks->arg : NULL;
    return plan ? device_open_rank(&model->device, model->ranks->rank, plan->ranks, err)
                : device_open(&model->device, err);
}

static int transformer_create(
        const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the transformer: out of memory");
    model->ranks = opts->ranks;
    model->shape = (opts->ranks ? transformer_shapes_ranks : transformer_shapes)[opts->size];
    if (opts->ranks && opts->transformer_shape)
        model->shape = *opts->transformer_shape;
    if (opts->batch)
        model->shape.batch = opts->batch;
    model->rows = model->shape.batch * model->shape.context;
    model->pieces = model->shape.dim > ROW_MAX ? 2 : 1;
    model->seed = opts->seed;
    model->train = opts->train;
    model->decode = opts->train ? 0 : opts->decode;
    model->prompt = model->shape.context - model->decode;
    model->rate = (float)(opts->learning_rate > 0 ? opts->learning_rate
                    : opts->ranks                 ? TRANSFORMER_RANKS_RATE
                                                  : TRANSFORMER_RATE(model->shape.dim));
    int rc = transformer_refuse(model, opts, err);
    if (rc == 0)
        rc = transformer_open(model, err);
    if (rc == 0)
        rc = transformer_data_open(opts->text_path, &model->text, err);
    if (rc == 0)
        rc = transformer_create_from(model, opts, err);
    if (rc) {
        transformer_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

// --- a step --------------------------------------------------------------------------------------

static void transformer_load(struct model *model, uint64_t step)
{
    struct device *device = &model->device;
    uint32_t *token = model->drawn, *target = model->drawn + model->rows;
    size_t batch = model->shape.batch, context = model->shape.context, pieces = model->pieces;
    if (model->ranks)
        transformer_data_draw_rank(&model->text, &model->shape, model->seed, model->train,
                model->ranks->rank, step, token, target);
    else
        transformer_data_draw(&model->text, &model->shape, model->seed, step, token, target);
    for (size_t b = 0; b < batch; b++)
        for (size_t i = 0; i < context; i++) {
            // Rows of a pass are neighbours: first all of the prompts, then each place of all
            // sequences.
            size_t row = i < model->prompt ? b * model->prompt + i : i * batch + b;
            for (size_t piece = 0; piece < pieces; piece++) {
                int64_t *ids = model->inputs.ids + 2 * (row * pieces + piece);
                ids[0] = (int64_t)(token[b * context + i] * pieces + piece);
                ids[1] = (int64_t)((VOCABULARY + i) * pieces + piece);
            }
            model->inputs.target[row] = (int32_t)target[b * context + i];
        }
    device_upload(device, model->ids, model->inputs.ids, model->rows * pieces * 16);
    device_upload(device, model->target, model->inputs.target, model->rows * 4);
}

// Of several ranks: the forward pass is about to read a unit's parameters.
static void transformer_before(struct model *model, size_t unit)
{
    if (model->exchange)
        exchange_before(model->exchange, unit);
}

// The backward pass has its gradients.
static void transformer_after(struct model *model, size_t unit)
{
    if (model->exchange)
        exchange_after(model->exchange, unit);
}

// The new rows' queries where attention reads them, their keys and values too, or into the cache
// behind `first`.
static void transformer_split(struct model *model, struct block *block, size_t first, size_t n)
{
    size_t dim = model->shape.dim, part = model->rows * dim, batch = model->shape.batch,
           context = model->shape.context;
    if (!model->decode) {
        transformer_pointwise(model, PARTS, model->rows,
                pointwise_bfloat16(model->qkv, dim, 3 * dim), POINTWISE_NONE,
                pointwise_bfloat16(block->parts, part, dim));
        return;
    }
    transformer_pointwise(model, 1, batch * n, pointwise_bfloat16(model->qkv, 0, 3 * dim),
            POINTWISE_NONE, pointwise_bfloat16(block->parts, 0, dim));
    for (size_t which = 0; which < 2; which++)
        transformer_pointwise(model, batch, n,
                pointwise_bfloat16(
                        (char *)model->qkv + 2 * (which + 1) * dim, n * 3 * dim, 3 * dim),
                POINTWISE_NONE,
                pointwise_bfloat16((char *)block->cache + 2 * (which * part + first * dim),
                        context * dim, dim));
}

static void transformer_block_forward(
        struct model *model, struct block *block, size_t pass, void *next)
{
    struct device *device = &model->device;
    size_t n = pass ? 1 : model->prompt, rows = model->shape.batch * n;
    const struct kernel_attention attention = transformer_attention(model, block, pass);
    norm_forward(&block->norm1, &model->device, rows, block->x, block->normed1);
    layer_forward(pass ? &block->step_qkv : &block->qkv);
    transformer_split(model, block, pass ? model->prompt + pass - 1 : 0, n);
    device_must(device, kernel_attention_forward(&attention, device->stream, &device->err));
    layer_forward(pass ? &block->step_out : &block->out);
    transformer_add(model, rows, block->x, model->branch, block->mid);
    norm_forward(&block->norm2, &model->device, rows, block->mid, block->normed2);
    layer_forward(pass ? &block->step_up : &block->up);
    layer_forward(pass ? &block->step_down : &block->down);
    transformer_add(model, rows, block->mid, model->branch, next);
}

// Pass 0: the whole window, or the prompts; pass i: byte prompt + i - 1 of each sequence.
static void transformer_pass(struct model *model, size_t pass)
{
    struct device *device = &model->device;
    size_t batch = model->shape.batch, n = pass ? 1 : model->prompt, rows = batch * n,
           dim = model->shape.dim, layers = model->shape.layers;
    size_t first = pass ? (model->prompt + pass - 1) * batch : 0;
    const struct kernel_bags bags = transformer_bags(model, (int64_t)rows,
            model->ids + 2 * first * model->pieces, params_value(&model->params, model->token));
    transformer_before(model, 0);
    device_must(device, kernel_bag_forward(&bags, model->embedded, device->stream, &device->err));
    transformer_pointwise(model, 1, rows,
            (struct kernel_operand){
                    .at = model->embedded, .type = KERNEL_FLOAT32, .row = (int64_t)dim},
            POINTWISE_NONE, pointwise_bfloat16(model->block[0].x, 0, dim));
    for (size_t i = 0; i < layers; i++) {
        transformer_before(model, 1 + i);
        transformer_block_forward(model, &model->block[i], pass,
                i + 1 < layers ? model->block[i + 1].x : model->last);
    }
    transformer_before(model, 1 + layers);
    if (model->decode) // of the last row of each sequence only
        transformer_pointwise(model, 1, batch,
                pointwise_bfloat16((char *)model->last + 2 * (n - 1) * dim, 0, n * dim),
                POINTWISE_NONE, pointwise_bfloat16(model->tail, 0, dim));
    size_t answers = model->decode ? batch : rows;
    norm_forward(&model->norm, &model->device, answers, model->decode ? model->tail : model->last,
            model->normed);
    layer_forward(&model->head);
    if (model->train)
        return;
    const struct kernel_pointwise copy = {.op = KERNEL_POINT_COPY,
            .outer = 1,
            .rows = (int64_t)answers,
            .columns = (int64_t)VOCABULARY,
            .a = {.at = model->logits, .type = KERNEL_BFLOAT16, .row = (int64_t)VOCABULARY},
            .out = {.at = model->logits32 + pass * batch * VOCABULARY,
                    .type = KERNEL_FLOAT32,
                    .row = (int64_t)VOCABULARY}};
    device_must(device, kernel_pointwise(&copy, device->stream, &device->err));
}

static size_t transformer_answers(const struct model *model)
{
    return (model->decode ? (model->decode + 1) * model->shape.batch : model->rows) * VOCABULARY;
}

// A request is answered when its answers are on the host.
static void transformer_answer(struct model *model)
{
    device_download(
            &model->device, model->host_logits, model->logits32, transformer_answers(model) * 4);
    device_wait(&model->device);
}

static void transformer_forward(struct model *model)
{
    transformer_pass(model, 0);
    if (!model->train && !model->decode)
        transformer_answer(model);
}

static void transformer_decode(struct model *model)
{
    for (size_t pass = 1; pass <= model->decode; pass++)
        transformer_pass(model, pass);
    transformer_answer(model);
}

static double transformer_loss(struct model *model)
{
    struct device *device = &model->device;
    const struct kernel_cross_entropy entropy = transformer_entropy(model);
    device_must(device, kernel_cross_entropy(&entropy, device->stream, &device->err));
    device_download(device, model->host_loss, model->row_loss, model->rows * 4);
    return NAN;
}

// model->dx holds the gradient of the block's output and then that of its input.
static void transformer_block_backward(struct model *model, struct block *block)
{
    struct device *device = &model->device;
    size_t dim = model->shape.dim, part = model->rows * dim;
    char *dparts = model->dparts;
    const struct kernel_attention attention = transformer_attention(model, block, 0);
    const struct kernel_attention_gradient gradient = {.dout = model->dbranch,
            .dq = dparts,
            .dk = dparts + 2 * part,
            .dv = dparts + 4 * part,
            .scratch = model->attention_scratch};
    layer_backward(&block->down);
    layer_backward(&block->up);
    norm_backward(&block->norm2, &model->device, model->rows, block->mid, model->dbranch,
            model->dnorm, model->norm_scratch);
    transformer_add(model, model->rows, model->dx, model->dnorm, model->dsum);
    layer_backward(&block->out);
    device_must(
            device, kernel_attention_backward(&attention, &gradient, device->stream, &device->err));
    transformer_pointwise(model, PARTS, model->rows, pointwise_bfloat16(dparts, part, dim),
            POINTWISE_NONE, pointwise_bfloat16(model->dqkv, dim, 3 * dim));
    layer_backward(&block->qkv);
    norm_backward(&block->norm1, &model->device, model->rows, block->x, model->dbranch,
            model->dnorm, model->norm_scratch);
    transformer_add(model, model->rows, model->dsum, model->dnorm, model->dx);
}

static void transformer_backward(struct model *model)
{
    struct device *device = &model->device;
    // into the gradients, which start at 0
    const struct kernel_update add = {.optimizer = KERNEL_SGD, .rate = -1};
    size_t dim = model->shape.dim, tables = (VOCABULARY + model->shape.context) * dim;
    float *grad = params_wide_grad(&model->params, model->token);
    const struct kernel_bags bags = transformer_bags(model, (int64_t)model->rows, model->ids, grad);
    layer_backward(&model->head);
    norm_backward(&model->norm, &model->device, model->rows, model->last, model->dnorm, model->dx,
            model->norm_scratch);
    transformer_after(model, 1 + model->shape.layers);
    for (size_t i = model->shape.layers; i-- > 0;) {
        transformer_block_backward(model, &model->block[i]);
        transformer_after(model, 1 + i);
    }
    transformer_pointwise(model, 1, model->rows, pointwise_bfloat16(model->dx, 0, dim),
            POINTWISE_NONE,
            (struct kernel_operand){
                    .at = model->embedded, .type = KERNEL_FLOAT32, .row = (int64_t)dim});
    device_zero(device, grad, tables * 4);
    device_must(device,
            kernel_bag_update(&bags, &add, model->embedded, model->scratch, model->scratch_bytes,
                    device->stream, &device->err));
    transformer_after(model, 0);
}

static void transformer_update(struct model *model)
{
    if (model->exchange) {
        exchange_update(model->exchange, model->rate, (float)TRANSFORMER_BETA1,
                (float)TRANSFORMER_RANKS_BETA2, (float)TRANSFORMER_EPSILON,
                (float)TRANSFORMER_RANKS_DECAY);
        return;
    }
    params_adam(&model->params, model->rate, (float)TRANSFORMER_BETA1, (float)TRANSFORMER_BETA2,
            (float)TRANSFORMER_EPSILON);
}

static double transformer_settle(struct model *model)
{
    double sum = 0;
    device_wait(&model->device);
    for (size_t row = 0; row < model->rows; row++)
        sum += (double)model->host_loss[row];
    return sum / (double)model->rows;
}

static size_t transformer_samples(const struct model *model)
{
    return model->shape.batch;
}

// Of training they are fetched when somebody asks.
static const void *transformer_logits(const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const;
    *ret_count = transformer_answers(model);
    if (model->train) {
        const struct kernel_pointwise copy = {.op = KERNEL_POINT_COPY,
                .outer = 1,
                .rows = 1,
                .columns = (int64_t)*ret_count,
                .a = {.at = model->logits, .type = KERNEL_BFLOAT16},
                .out = {.at = model->logits32, .type = KERNEL_FLOAT32}};
        device_must(
                &model->device, kernel_pointwise(&copy, model->device.stream, &model->device.err));
        transformer_answer(model);
    }
    return model->host_logits;
}

static void transformer_poison(struct model *model)
{
    params_poison(&model->params);
}

static const struct model_param *transformer_params(
        const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const; // the copies are its own
    if (model->exchange)
        exchange_gather(model->exchange);
    return params_download(&model->params, model->name, NULL, 0, ret_count);
}

const struct model_ops transformer_ops_cuda = {
        .name = "transformer",
        .real_bytes = 4,
        .create = transformer_create,
        .destroy = transformer_destroy,
        .load = transformer_load,
        .forward = transformer_forward,
        .decode = transformer_decode,
        .loss = transformer_loss,
        .backward = transformer_backward,
        .update = transformer_update,
        .settle = transformer_settle,
        .poison = transformer_poison,
        .samples = transformer_samples,
        .logits = transformer_logits,
        .params = transformer_params,
};
