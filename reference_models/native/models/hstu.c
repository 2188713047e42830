// SPDX-License-Identifier: Apache-2.0
// Generative recommender: each event of a user's history is a row, its blocks attend to itself and
// the events before it by HSTU's SiLU attention with a bias by distance; a target attends to the
// whole history of its user and to itself, not to the other targets, so that one pass scores all of
// them. Binary cross-entropy of their clicks; SGD, sparse on the table of items. Inputs from
// hstu_data.h, start values from draw.h: those of torch/hstu.py. Compiled once per type.
//
// A block: u, v, q, k = silu(norm(x) W); x + (norm(attention(q, k, v)) * u) W. In the last block
// only targets attend.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/models/draw.h"
#include "reference_models/native/models/hstu_data.h"
#include "reference_models/native/models/network.h"

enum { HSTU_U, HSTU_V, HSTU_Q, HSTU_K, HSTU_PARTS };
// Three calls of attention: the history to itself, the targets to it, each target to itself.
enum hstu_call { HSTU_HISTORY, HSTU_TARGETS, HSTU_SELF, HSTU_CALLS };

// Activations [rows][width of what it is].
struct block {
    size_t gain1, bias1, gain2, bias2, position; // offsets into the parameters; position[heads][2 *
                                                 // span - 1], its first half unused
    struct linear part[HSTU_PARTS], out;
    real *x, *normed1, *mean1, *scale1, *z[HSTU_PARTS], *active[HSTU_PARTS], *mixed, *normed2,
            *mean2, *scale2, *gated;
};

struct model {
    struct network net;
    struct hstu_shape shape;
    struct hstu_batch batch, spare; // spare: for repeats, see ops.h
    uint64_t step;
    real rate;
    size_t history_rows, target_rows, rows; // of this batch
    uint32_t *target_offset, *self_offset;  // [users + 1]; [target rows + 1]
    struct block block[HSTU_LAYERS_MAX];
    size_t gain, bias; // of the last norm
    struct linear head;
    real *table, *label, *last, *normed, *mean, *scale, *logits, *branch, *scores, *crossed, *self;
    // No operation adds into its own input: a repeat would do so twice.
    real *row_loss, *dlogits, *dx, *dnext, *dbranch, *dnormed, *dsum, *dmixed, *dgated;
    real *dk[2], *dv[2], *dq[2], *dposition[HSTU_CALLS], *dposition_sum;
    real *dactive[HSTU_PARTS], *dz;
};

static size_t hstu_positions(const struct hstu_shape *shape)
{
    return shape->heads * (2 * hstu_span(shape) - 1);
}

// Start values of matrices that PyTorch has turned, and has as one.
struct hstu_turned {
    real *to[HSTU_PARTS]; // each [in][out]
    size_t in, out;
};

static void hstu_set_turned(void *arg, size_t i, double value)
{
    struct hstu_turned *turned = arg;
    size_t row = i / turned->in; // of all parts
    turned->to[row / turned->out][i % turned->in * turned->out + row % turned->out] = (real)value;
}

static void hstu_set(void *arg, size_t i, double value)
{
    ((real *)arg)[i] = (real)value;
}

struct hstu_position_start {
    real *to;
    size_t span;
};

static void hstu_set_position(void *arg, size_t i, double value)
{
    struct hstu_position_start *start = arg;
    start->to[i / start->span * (2 * start->span - 1) + start->span - 1 + i % start->span] =
            (real)value;
}

static void hstu_start_values(struct model *model)
{
    const struct hstu_shape *shape = &model->shape;
    size_t width = shape->width, span = hstu_span(shape);
    real *value = model->net.value;
    char name[48];
    for (size_t i = 0; i < shape->layers; i++) {
        struct block *block = &model->block[i];
        struct hstu_turned uvqk = {.in = width, .out = width};
        for (int part = 0; part < HSTU_PARTS; part++)
            uvqk.to[part] = value + block->part[part].weight;
        struct hstu_position_start position = {value + block->position, span};
        snprintf(name, sizeof name, "layers.%zu.uvqk.weight", i);
        draw_start(
                model->net.seed, name, HSTU_PARTS * width * width, width, hstu_set_turned, &uvqk);
        snprintf(name, sizeof name, "layers.%zu.place_bias", i);
        draw_start(model->net.seed, name, shape->heads * span, span, hstu_set_position, &position);
        snprintf(name, sizeof name, "layers.%zu.out.weight", i);
        network_start_linear(&model->net, &block->out, name);
    }
    network_start_linear(&model->net, &model->head, "head.weight");
    draw_start(
            model->net.seed, "items.weight", shape->items * width, width, hstu_set, model->table);
    draw_start(model->net.seed, "actions.weight", HSTU_ACTIONS * width, width, hstu_set,
            model->table + shape->items * width);
}

static void hstu_plan(struct model *model)
{
    static const char *const names[HSTU_PARTS] = {"u", "v", "q", "k"};
    struct network *net = &model->net;
    const struct hstu_shape *shape = &model->shape;
    size_t width = shape->width, rows = hstu_rows_max(shape, &model->batch);
    for (size_t i = 0; i < shape->layers; i++) {
        struct block *block = &model->block[i];
        block->gain1 = network_add(net, "norm.gain", width, 1, 0);
        block->bias1 = network_add(net, "norm.bias", width, 0, 0);
        for (int part = 0; part < HSTU_PARTS; part++)
            block->part[part] = network_linear(net, names[part], width, width, rows);
        block->position = network_add(net, "place_bias", hstu_positions(shape), 0, 0);
        block->gain2 = network_add(net, "gate_norm.gain", width, 1, 0);
        block->bias2 = network_add(net, "gate_norm.bias", width, 0, 0);
        block->out = network_linear(net, "out", width, width, rows);
    }
    model->gain = network_add(net, "final_norm.gain", width, 1, 0);
    model->bias = network_add(net, "final_norm.bias", width, 0, 0);
    model->head = network_linear(net, "head", width, 1, rows);
    network_allocate(net);
    size_t reals = (shape->items + HSTU_ACTIONS) * width;
    model->table = network_reals(net, reals);
    network_fill(net, "table", model->table, reals, 0);
    hstu_start_values(model);
}

static void hstu_allocate(struct network *net, real ***to, size_t count, size_t reals)
{
    for (size_t i = 0; i < count; i++)
        *to[i] = network_reals(net, reals);
}
#define HSTU_ALLOCATE(net, reals, ...) \
    hstu_allocate(net, (real * *[]){__VA_ARGS__}, \
            sizeof((real **[]){__VA_ARGS__}) / sizeof(real **), reals)

static void hstu_buffers(struct model *model)
{
    struct network *net = &model->net;
    const struct hstu_shape *shape = &model->shape;
    size_t rows = hstu_rows_max(shape, &model->batch),
           targets = model->batch.users * model->batch.targets, width = rows * shape->width;
    // A call of targets writes its bias' gradient so much further on, see hstu_attention().
    size_t positions = hstu_positions(shape) + model->batch.targets;
    model->target_offset = arena_alloc(&net->arena, model->batch.users + 1, sizeof(uint32_t));
    model->self_offset = arena_alloc(&net->arena, targets + 1, sizeof(uint32_t));
    for (size_t i = 0; i < shape->layers; i++) {
        struct block *b = &model->block[i];
        HSTU_ALLOCATE(net, width, &b->x, &b->normed1, &b->mixed, &b->normed2, &b->gated);
        HSTU_ALLOCATE(net, rows, &b->mean1, &b->scale1, &b->mean2, &b->scale2);
        for (int part = 0; part < HSTU_PARTS; part++)
            HSTU_ALLOCATE(net, width, &b->z[part], &b->active[part]);
    }
    HSTU_ALLOCATE(net, targets, &model->label, &model->mean, &model->scale, &model->logits);
    HSTU_ALLOCATE(net, targets * shape->width, &model->normed, &model->crossed, &model->self);
    HSTU_ALLOCATE(net, width, &model->last, &model->branch);
    model->scores = network_reals(net, (net->train ? 2 : 1) * shape->heads * rows * shape->history);
    if (!net->train)
        return;
    HSTU_ALLOCATE(net, targets, &model->row_loss, &model->dlogits);
    HSTU_ALLOCATE(net, width, &model->dx, &model->dnext, &model->dsum, &model->dbranch,
            &model->dnormed, &model->dmixed, &model->dgated, &model->dz, &model->dk[0],
            &model->dk[1], &model->dv[0], &model->dv[1], &model->dactive[HSTU_U],
            &model->dactive[HSTU_V], &model->dactive[HSTU_Q], &model->dactive[HSTU_K]);
    HSTU_ALLOCATE(net, targets * shape->width, &model->dq[0], &model->dq[1]);
    HSTU_ALLOCATE(net, positions, &model->dposition[HSTU_HISTORY], &model->dposition[HSTU_TARGETS],
            &model->dposition[HSTU_SELF], &model->dposition_sum);
}

static void hstu_destroy(struct model *model)
{
    if (!model)
        return;
    hstu_batch_free(&model->batch);
    hstu_batch_free(&model->spare);
    arena_free(&model->net.arena);
    free(model);
}

// One item: users' lengths come before their rows. A repeat draws another step, into the spare.
static void hstu_load_part(void *arg, size_t begin, size_t end, bool again)
{
    struct model *model = arg;
    (void)begin;
    (void)end;
    hstu_draw(&model->shape, model->net.seed, model->net.train,
            again ? model->step + 1 : model->step, again ? &model->spare : &model->batch);
}

static void hstu_load(struct model *model, uint64_t step)
{
    model->step = step;
    pool_for(model->net.pool,
            &(struct pool_work){.count = 1,
                    .cost = 60.0 * (double)hstu_rows_max(&model->shape, &model->batch),
                    POOL_FN(hstu_load_part),
                    .arg = model});
    model->history_rows = model->batch.history[model->batch.users];
    model->target_rows = model->batch.users * model->batch.targets;
    model->rows = model->history_rows + model->target_rows;
    for (size_t i = 0; i < model->target_rows; i++)
        model->label[i] = (real)model->batch.label[i];
}

static int hstu_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the hstu: out of memory");
    model->shape = opts->hstu_shape ? *opts->hstu_shape : hstu_shapes[opts->size];
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    int rc = hstu_batch_new(&model->shape, opts->train, opts->batch, &model->batch, err);
    if (rc == 0)
        rc = hstu_batch_new(&model->shape, opts->train, opts->batch, &model->spare, err);
    if (rc) {
        hstu_destroy(model);
        return rc;
    }
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate : model->shape.rate);
    hstu_plan(model);
    hstu_buffers(model);
    for (size_t u = 0; u <= model->batch.users; u++)
        model->target_offset[u] = (uint32_t)(u * model->batch.targets);
    for (size_t t = 0; t <= model->batch.users * model->batch.targets; t++)
        model->self_offset[t] = (uint32_t)t;
    hstu_load_part(model, 0, 1, true);
    *ret_model = model;
    return 0;
}

static struct layernorm hstu_norm(const struct model *model, size_t gain, size_t bias, size_t rows,
        const real *x, real *y, real *mean, real *scale)
{
    return (struct layernorm){.rows = rows,
            .n = model->shape.width,
            .x = x,
            .gain = model->net.value + gain,
            .bias = model->net.value + bias,
            .y = y,
            .mean = mean,
            .scale = scale};
}

static struct layernorm hstu_norm1(const struct model *model, const struct block *block)
{
    return hstu_norm(model, block->gain1, block->bias1, model->rows, block->x, block->normed1,
            block->mean1, block->scale1);
}

// Rows from which on a block has an output: in the last one only the targets do.
static size_t hstu_first(const struct model *model, const struct block *block)
{
    return block == &model->block[model->shape.layers - 1] ? model->history_rows : 0;
}

static struct layernorm hstu_norm2(const struct model *model, const struct block *block)
{
    size_t first = hstu_first(model, block), from = first * model->shape.width;
    return hstu_norm(model, block->gain2, block->bias2, model->rows - first, block->mixed + from,
            block->normed2 + from, block->mean2 + first, block->scale2 + first);
}

// A target's place is behind the history: its distance to an event is that of the ends, and as many
// more as there are targets.
static struct silu_attention hstu_attention(
        const struct model *model, const struct block *block, enum hstu_call call)
{
    const struct hstu_shape *shape = &model->shape;
    size_t targets = model->history_rows * shape->width,
           queries = call == HSTU_HISTORY ? 0 : targets, keys = call == HSTU_SELF ? targets : 0;
    const uint32_t *offset = call == HSTU_HISTORY ? model->batch.history
            : call == HSTU_TARGETS                ? model->target_offset
                                                  : model->self_offset;
    return (struct silu_attention){
            .sequences = call == HSTU_SELF ? model->target_rows : model->batch.users,
            .heads = shape->heads,
            .dim = shape->width / shape->heads,
            .span = hstu_span(shape),
            .longest_keys = call == HSTU_SELF ? 1 : shape->history,
            .causal = call == HSTU_HISTORY,
            .scale = 1 / NATIVE_SQRT((real)(shape->width / shape->heads)),
            .weight = 1 / (real)shape->history,
            .query_offset = offset,
            .key_offset = call == HSTU_SELF ? offset : model->batch.history,
            .q = block->active[HSTU_Q] + queries,
            .k = block->active[HSTU_K] + keys,
            .v = block->active[HSTU_V] + keys,
            .bias = model->net.value + block->position +
                    (call == HSTU_TARGETS ? model->batch.targets : 0),
            .out = call == HSTU_HISTORY    ? block->mixed
                    : call == HSTU_TARGETS ? model->crossed
                                           : model->self,
            .scratch = model->scores};
}

static void hstu_block_forward(struct model *model, struct block *block, real *next)
{
    struct network *net = &model->net;
    size_t rows = model->rows, width = model->shape.width, first = hstu_first(model, block),
           from = first * width, count = (rows - first) * width;
    struct layernorm norm1 = hstu_norm1(model, block), norm2 = hstu_norm2(model, block);
    ops_layernorm(net->pool, &norm1);
    for (int part = 0; part < HSTU_PARTS; part++) {
        network_linear_forward(net, &block->part[part], rows, block->normed1, block->z[part]);
        ops_silu(net->pool, rows * width, block->z[part], block->active[part]);
    }
    for (enum hstu_call call = first ? HSTU_TARGETS : HSTU_HISTORY; call < HSTU_CALLS; call++) {
        struct silu_attention attention = hstu_attention(model, block, call);
        ops_silu_attention(net->pool, &attention);
    }
    ops_add(net->pool, model->target_rows * width, model->crossed, model->self,
            block->mixed + model->history_rows * width);
    ops_layernorm(net->pool, &norm2);
    ops_mul(net->pool, count, block->normed2 + from, block->active[HSTU_U] + from,
            block->gated + from);
    network_linear_forward(
            net, &block->out, rows - first, block->gated + from, model->branch + from);
    ops_add(net->pool, count, block->x + from, model->branch + from, next + from);
}

static struct bag hstu_bag(const struct model *model, real *out, const real *dout)
{
    return (struct bag){.size = HSTU_BAG,
            .ids = model->batch.ids,
            .spare_ids = model->spare.ids,
            .table = model->table,
            .out = out,
            .dout = dout};
}

static struct bags hstu_bags(const struct model *model, const struct bag *bag)
{
    return (struct bags){.tables = 1,
            .rows = model->rows,
            .dim = model->shape.width,
            .out_stride = model->shape.width,
            .bag = bag};
}

static struct layernorm hstu_last_norm(const struct model *model)
{
    return hstu_norm(model, model->gain, model->bias, model->target_rows,
            model->last + model->history_rows * model->shape.width, model->normed, model->mean,
            model->scale);
}

static void hstu_forward(struct model *model)
{
    struct network *net = &model->net;
    size_t layers = model->shape.layers;
    struct bag bag = hstu_bag(model, model->block[0].x, NULL);
    struct bags bags = hstu_bags(model, &bag);
    ops_bag(net->pool, &bags);
    for (size_t i = 0; i < layers; i++)
        hstu_block_forward(
                model, &model->block[i], i + 1 < layers ? model->block[i + 1].x : model->last);
    struct layernorm norm = hstu_last_norm(model);
    ops_layernorm(net->pool, &norm);
    network_linear_forward(net, &model->head, model->target_rows, model->normed, model->logits);
}

static double hstu_loss(struct model *model)
{
    return ops_bce_loss(model->net.pool, model->target_rows, model->logits, model->label,
            model->row_loss, model->dlogits);
}

// The gradients of q, k, v and of the biases: each call's, added.
static void hstu_attention_backward(struct model *model, struct block *block)
{
    struct network *net = &model->net;
    const struct hstu_shape *shape = &model->shape;
    size_t history = model->history_rows * shape->width,
           targets = model->target_rows * shape->width, positions = hstu_positions(shape);
    bool last = hstu_first(model, block) > 0;
    real *dk = model->dactive[HSTU_K], *dv = model->dactive[HSTU_V], *dq = model->dactive[HSTU_Q];
    const struct silu_attention_gradient gradients[HSTU_CALLS] = {
            {model->dmixed, dq, model->dk[0], model->dv[0], model->dposition[HSTU_HISTORY]},
            {model->dmixed + history, model->dq[0], last ? dk : model->dk[1],
                    last ? dv : model->dv[1],
                    model->dposition[HSTU_TARGETS] + model->batch.targets},
            {model->dmixed + history, model->dq[1], dk + history, dv + history,
                    model->dposition[HSTU_SELF]}};
    for (enum hstu_call call = last ? HSTU_TARGETS : HSTU_HISTORY; call < HSTU_CALLS; call++) {
        struct silu_attention attention = hstu_attention(model, block, call);
        ops_silu_attention_backward(net->pool, &attention, &gradients[call]);
    }
    ops_add(net->pool, targets, model->dq[0], model->dq[1], dq + history);
    real *sum = last ? net->grad + block->position : model->dposition_sum;
    ops_add(net->pool, positions, model->dposition[HSTU_TARGETS], model->dposition[HSTU_SELF], sum);
    if (last) { // the history attends to nothing
        memset(dq, 0, history * sizeof *dq);
        return;
    }
    ops_add(net->pool, positions, sum, model->dposition[HSTU_HISTORY], net->grad + block->position);
    ops_add(net->pool, history, model->dk[0], model->dk[1], dk);
    ops_add(net->pool, history, model->dv[0], model->dv[1], dv);
}

static void swap(real **a, real **b)
{
    real *old = *a;
    *a = *b;
    *b = old;
}

// model->dx holds the gradient of the block's output and then that of its input.
static void hstu_block_backward(struct model *model, struct block *block)
{
    struct network *net = &model->net;
    size_t rows = model->rows, width = model->shape.width, first = hstu_first(model, block),
           from = first * width, count = (rows - first) * width;
    real *du = model->dactive[HSTU_U];
    struct layernorm norm1 = hstu_norm1(model, block), norm2 = hstu_norm2(model, block);
    network_linear_backward(net, &block->out, rows - first, block->gated + from, model->dx + from,
            model->dgated + from);
    ops_mul(net->pool, count, model->dgated + from, block->normed2 + from, du + from);
    memset(du, 0, from * sizeof *du);
    ops_mul(net->pool, count, model->dgated + from, block->active[HSTU_U] + from, model->dz + from);
    ops_layernorm_backward(net->pool, &norm2, model->dz + from, model->dmixed + from,
            net->grad + block->gain2, net->grad + block->bias2);
    hstu_attention_backward(model, block);
    for (int part = 0; part < HSTU_PARTS; part++) {
        ops_silu_backward(net->pool, rows * width, block->z[part], model->dactive[part], model->dz);
        network_linear_backward(net, &block->part[part], rows, block->normed1, model->dz,
                part ? model->dbranch : model->dnormed);
        if (part) {
            ops_add(net->pool, rows * width, model->dnormed, model->dbranch, model->dsum);
            swap(&model->dnormed, &model->dsum);
        }
    }
    ops_layernorm_backward(net->pool, &norm1, model->dnormed, model->dbranch,
            net->grad + block->gain1, net->grad + block->bias1);
    ops_add(net->pool, rows * width, model->dx, model->dbranch, model->dnext);
    swap(&model->dx, &model->dnext);
}

static void hstu_backward(struct model *model)
{
    struct network *net = &model->net;
    size_t history = model->history_rows * model->shape.width;
    network_linear_backward(
            net, &model->head, model->target_rows, model->normed, model->dlogits, model->dnormed);
    struct layernorm norm = hstu_last_norm(model);
    memset(model->dx, 0, history * sizeof(real));
    ops_layernorm_backward(net->pool, &norm, model->dnormed, model->dx + history,
            net->grad + model->gain, net->grad + model->bias);
    for (size_t i = model->shape.layers; i-- > 0;)
        hstu_block_backward(model, &model->block[i]);
}

static void hstu_update(struct model *model)
{
    struct network *net = &model->net;
    struct bag bag = hstu_bag(model, NULL, model->dx);
    struct bags bags = hstu_bags(model, &bag);
    ops_sgd(net->pool, net->count, model->rate, net->grad, net->value);
    ops_bag_sgd(net->pool, &bags, model->rate);
}

static size_t hstu_samples(const struct model *model)
{
    return model->batch.users * model->batch.targets;
}

static const void *hstu_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->target_rows;
    return model->logits;
}

static const struct model_param *hstu_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

const struct model_ops NATIVE_NAME(hstu_ops) = {
        .name = "hstu",
        .real_bytes = sizeof(real),
        .create = hstu_create,
        .destroy = hstu_destroy,
        .load = hstu_load,
        .forward = hstu_forward,
        .loss = hstu_loss,
        .backward = hstu_backward,
        .update = hstu_update,
        .samples = hstu_samples,
        .logits = hstu_logits,
        .params = hstu_params,
};
