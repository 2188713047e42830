// SPDX-License-Identifier: Apache-2.0
// Byte-level language model: token and position embedding, pre-norm blocks of causal attention and
// a GELU MLP, final norm, logits over 256 bytes; cross-entropy of the next byte; Adam (or SGD).
// Reads windows of a text (text.h). Compiled once per type. Not a sampler: it never generates text.
//
// As one of several ranks (opts.ranks) it is the model of torch/transformer.py, value by value: its
// shapes, start values and inputs, GELU with erf, no bias in the head, AdamW. What the ranks tell
// each other is share.c's; here are the places in between where they may.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/models/network.h"
#include "reference_models/native/models/transformer_data.h"
#include "reference_models/native/ops/reduce.h"

// Units: the tables, each block, the last norm with the head.
_Static_assert(TRANSFORMER_LAYERS_MAX + 2 <= MODEL_UNITS_MAX, "a unit of each");

struct norm {
    size_t gain, bias; // offsets into the parameters
};

// One block and its activations, which the way back reads.
struct block {
    struct norm norm1, norm2;
    struct linear qkv, out, up, down;
    real *x, *normed1, *mean1, *scale1, *qkv_act, *prob, *mixed, *mid;
    real *normed2, *mean2, *scale2, *hidden, *active;
    real *key, *value; // what decoding has kept: [batch][context][dim]
};

struct model {
    struct network net;
    struct transformer_shape shape;
    size_t rows; // batch * context
    // bytes decoded one at a time, and those before; decode 0: none, all rows at once
    size_t decode, prompt;
    // of each sequence: rows in the cache, and the new ones of this pass
    size_t pass_first, pass_rows;
    uint32_t *pass_token; // [batch][pass_rows]
    real *tail;           // [batch][dim]: the last row of each sequence
    struct text text;
    bool plain_sgd;
    real rate;
    uint64_t updates;
    const struct model_ranks *ranks; // NULL: alone, and the native model
    size_t units, unit_first[MODEL_UNITS_MAX + 1];
    size_t updated; // reals that update() works on: of these two
    real *updated_value;
    const real *updated_grad;
    size_t token_table, position_table;
    struct block block[TRANSFORMER_LAYERS_MAX];
    struct norm norm;
    struct linear head;
    uint32_t *token, *target;
    uint32_t *length; // of each request, serving
    real *branch, *attention_scratch, *last, *normed, *mean, *scale, *logits;
    real *row_loss, *dlogits, *dx, *dbranch, *dsum, *dhidden, *dqkv, *dprob; // training
    real *adam_m, *adam_v;
};

static struct norm transformer_norm(
        struct network *net, const char *gain, const char *bias, size_t dim)
{
    struct norm norm;
    norm.gain = network_add(net, gain, dim, 1, 0);
    norm.bias = network_add(net, bias, dim, 0, 0);
    return norm;
}

static void transformer_unit(struct model *model)
{
    if (model->ranks)
        model->unit_first[model->units++] = network_align(&model->net, REDUCE_BLOCK);
}

static void transformer_plan(struct model *model)
{
    struct network *net = &model->net;
    size_t dim = model->shape.dim, rows = model->rows;
    transformer_unit(model);
    model->token_table = network_add(net, "token", TRANSFORMER_VOCABULARY * dim, 0, 0.5);
    model->position_table = network_add(net, "position", model->shape.context * dim, 0, 0.1);
    for (size_t i = 0; i < model->shape.layers; i++) {
        struct block *block = &model->block[i];
        transformer_unit(model);
        block->norm1 = transformer_norm(net, "norm1.gain", "norm1.bias", dim);
        block->qkv = network_linear(net, "qkv", dim, 3 * dim, rows);
        block->out = network_linear(net, "out", dim, dim, rows);
        block->norm2 = transformer_norm(net, "norm2.gain", "norm2.bias", dim);
        block->up = network_linear(net, "up", dim, 4 * dim, rows);
        block->down = network_linear(net, "down", 4 * dim, dim, rows);
    }
    transformer_unit(model);
    model->norm = transformer_norm(net, "norm.gain", "norm.bias", dim);
    model->head = (model->ranks ? network_matrix : network_linear)(
            net, "head", dim, TRANSFORMER_VOCABULARY, rows);
    if (model->ranks)
        model->unit_first[model->units] = network_align(net, REDUCE_BLOCK);
}

static size_t transformer_units(const struct model_opts *opts, size_t first[MODEL_UNITS_MAX + 1])
{
    static const struct model_ranks any = {.rank = 0};
    struct model model = {.ranks = &any,
            .shape = opts->transformer_shape ? *opts->transformer_shape
                                             : transformer_shapes_ranks[opts->size]};
    transformer_plan(&model);
    memcpy(first, model.unit_first, sizeof model.unit_first);
    return model.units;
}

// Gains are 1 and biases 0 in both models.
static void transformer_start_ranks(struct model *model)
{
    struct network *net = &model->net;
    size_t dim = model->shape.dim;
    network_start_table(net, model->token_table, "token.weight", TRANSFORMER_VOCABULARY, dim);
    network_start_table(net, model->position_table, "position.weight", model->shape.context, dim);
    for (size_t i = 0; i < model->shape.layers; i++) {
        const struct block *block = &model->block[i];
        const struct linear *layer[] = {&block->qkv, &block->out, &block->up, &block->down};
        static const char *const names[] = {"qkv", "out", "mlp.0", "mlp.2"};
        for (size_t j = 0; j < sizeof layer / sizeof *layer; j++) {
            char name[48];
            snprintf(name, sizeof name, "blocks.%zu.%s.weight", i, names[j]);
            network_start_linear(net, layer[j], name);
        }
    }
    network_start_linear(net, &model->head, "head.weight");
}

// The flat arrays, and what update() works on.
static void transformer_arrays(struct model *model)
{
    const struct model_ranks *ranks = model->ranks;
    struct network *net = &model->net;
    if (ranks) {
        net->value = ranks->value;
        net->grad = ranks->grad;
    }
    network_allocate(net);
    if (ranks)
        transformer_start_ranks(model);
    model->updated = net->count;
    model->updated_value = net->value;
    model->updated_grad = net->grad;
    if (ranks && ranks->updated_value) {
        model->updated = ranks->updated;
        model->updated_value = ranks->updated_value;
        model->updated_grad = ranks->updated_grad;
    }
}

static void transformer_block_buffers(struct model *model, struct block *block)
{
    struct network *net = &model->net;
    size_t rows = model->rows, dim = model->shape.dim;
    size_t prob = model->shape.batch * model->shape.heads * model->shape.context;
    block->x = network_reals(net, rows * dim);
    block->normed1 = network_reals(net, rows * dim);
    block->mean1 = network_reals(net, rows);
    block->scale1 = network_reals(net, rows);
    block->qkv_act = network_reals(net, rows * 3 * dim);
    block->prob = network_reals(net, prob * model->shape.context);
    block->mixed = network_reals(net, rows * dim);
    block->mid = network_reals(net, rows * dim);
    block->key = model->decode ? network_reals(net, rows * dim) : NULL;
    block->value = model->decode ? network_reals(net, rows * dim) : NULL;
    block->normed2 = network_reals(net, rows * dim);
    block->mean2 = network_reals(net, rows);
    block->scale2 = network_reals(net, rows);
    block->hidden = network_reals(net, rows * 4 * dim);
    block->active = network_reals(net, rows * 4 * dim);
}

static void transformer_buffers(struct model *model)
{
    struct network *net = &model->net;
    size_t rows = model->rows, dim = model->shape.dim;
    for (size_t i = 0; i < model->shape.layers; i++)
        transformer_block_buffers(model, &model->block[i]);
    model->token = arena_alloc(&net->arena, rows, sizeof *model->token);
    model->target = arena_alloc(&net->arena, rows, sizeof *model->target);
    model->length = arena_alloc(&net->arena, model->shape.batch, sizeof *model->length);
    model->branch = network_reals(net, rows * dim);
    model->attention_scratch = network_reals(net, 2 * rows * dim);
    model->last = network_reals(net, rows * dim);
    model->normed = network_reals(net, rows * dim);
    model->mean = network_reals(net, rows);
    model->scale = network_reals(net, rows);
    model->logits = network_reals(net, rows * TRANSFORMER_VOCABULARY);
    model->pass_token = arena_alloc(&net->arena, rows, sizeof *model->pass_token);
    model->tail = network_reals(net, model->shape.batch * dim);
    if (!net->train)
        return;
    model->row_loss = network_reals(net, rows);
    model->dlogits = network_reals(net, rows * TRANSFORMER_VOCABULARY);
    model->dx = network_reals(net, rows * dim);
    model->dbranch = network_reals(net, rows * dim);
    model->dsum = network_reals(net, rows * dim);
    model->dhidden = network_reals(net, 2 * rows * 4 * dim);
    model->dqkv = network_reals(net, rows * 3 * dim);
    model->dprob = network_reals(net,
            model->shape.batch * model->shape.heads * model->shape.context * model->shape.context);
    model->adam_m = network_reals(net, model->plain_sgd ? 0 : model->updated);
    model->adam_v = network_reals(net, model->plain_sgd ? 0 : model->updated);
}

static void transformer_destroy(struct model *model)
{
    if (!model)
        return;
    text_free(&model->text);
    arena_free(&model->net.arena);
    free(model);
}

static int transformer_create(
        const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the transformer: out of memory");
    int rc = transformer_data_open(opts->text_path, &model->text, err);
    if (rc) {
        transformer_destroy(model);
        return rc;
    }
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    model->ranks = opts->ranks;
    model->shape = (opts->ranks ? transformer_shapes_ranks : transformer_shapes)[opts->size];
    if (opts->ranks && opts->transformer_shape)
        model->shape = *opts->transformer_shape;
    if (opts->batch)
        model->shape.batch = opts->batch;
    model->rows = model->shape.batch * model->shape.context;
    model->plain_sgd = opts->plain_sgd;
    model->decode = opts->train ? 0 : opts->decode;
    model->prompt = model->shape.context - model->decode;
    if (model->decode >= model->shape.context) {
        rc = error_set(err, -EINVAL,
                "%zu bytes to decode are too many: a sequence has %zu, and at least one is the prompt",
                model->decode, model->shape.context);
        transformer_destroy(model);
        return rc;
    }
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate
                    : opts->plain_sgd            ? 0.1
                    : opts->ranks                ? TRANSFORMER_RANKS_RATE
                                                 : TRANSFORMER_RATE(model->shape.dim));
    transformer_plan(model);
    transformer_arrays(model);
    transformer_buffers(model);
    *ret_model = model;
    return 0;
}

static void transformer_load(struct model *model, uint64_t step)
{
    if (model->ranks)
        transformer_data_draw_rank(&model->text, &model->shape, model->net.seed, model->net.train,
                model->ranks->rank, step, model->token, model->target);
    else
        transformer_data_draw(
                &model->text, &model->shape, model->net.seed, step, model->token, model->target);
}

static void transformer_before(const struct model *model, size_t unit)
{
    if (model->ranks && model->ranks->before)
        model->ranks->before(model->ranks->arg, unit);
}

static void transformer_after(const struct model *model, size_t unit)
{
    if (model->ranks && model->ranks->after)
        model->ranks->after(model->ranks->arg, unit);
}

static struct layernorm transformer_layernorm(struct model *model, const struct norm *norm,
        const real *x, real *y, real *mean, real *scale)
{
    return (struct layernorm){.rows = model->rows,
            .n = model->shape.dim,
            .x = x,
            .gain = model->net.value + norm->gain,
            .bias = model->net.value + norm->bias,
            .y = y,
            .mean = mean,
            .scale = scale};
}

static struct attention transformer_attention(struct model *model, const struct block *block)
{
    return (struct attention){.batch = model->shape.batch,
            .context = model->shape.context,
            .heads = model->shape.heads,
            .dim = model->shape.dim / model->shape.heads,
            .qkv = block->qkv_act,
            .out = block->mixed,
            .prob = block->prob,
            .scratch = model->attention_scratch};
}

static void transformer_attend(struct model *model, struct block *block)
{
    struct attention attention = transformer_attention(model, block);
    if (!model->decode) {
        ops_attention(model->net.pool, &attention);
        return;
    }
    ops_attention_cached(model->net.pool,
            &(struct attention_cached){.batch = attention.batch,
                    .rows = model->pass_rows,
                    .first = model->pass_first,
                    .capacity = model->shape.context,
                    .heads = attention.heads,
                    .dim = attention.dim,
                    .qkv = block->qkv_act,
                    .key = block->key,
                    .value = block->value,
                    .out = block->mixed,
                    .scratch = block->prob});
}

static void transformer_block_forward(struct model *model, struct block *block, real *next)
{
    struct network *net = &model->net;
    size_t rows = model->rows, count = rows * model->shape.dim;
    struct layernorm norm1 = transformer_layernorm(
            model, &block->norm1, block->x, block->normed1, block->mean1, block->scale1);
    ops_layernorm(net->pool, &norm1);
    network_linear_forward(net, &block->qkv, rows, block->normed1, block->qkv_act);
    transformer_attend(model, block);
    network_linear_forward(net, &block->out, rows, block->mixed, model->branch);
    ops_add(net->pool, count, block->x, model->branch, block->mid);
    struct layernorm norm2 = transformer_layernorm(
            model, &block->norm2, block->mid, block->normed2, block->mean2, block->scale2);
    ops_layernorm(net->pool, &norm2);
    network_linear_forward(net, &block->up, rows, block->normed2, block->hidden);
    (model->ranks ? ops_gelu_erf : ops_gelu)(
            net->pool, rows * block->up.out, block->hidden, block->active);
    network_linear_forward(net, &block->down, rows, block->active, model->branch);
    ops_add(net->pool, count, block->mid, model->branch, next);
}

static struct token transformer_token(struct model *model)
{
    return (struct token){.rows = model->rows,
            .dim = model->shape.dim,
            .context = model->shape.context,
            .vocabulary = TRANSFORMER_VOCABULARY,
            .token = model->token};
}

static void transformer_blocks(struct model *model)
{
    size_t layers = model->shape.layers;
    for (size_t i = 0; i < layers; i++) {
        transformer_before(model, i + 1);
        transformer_block_forward(
                model, &model->block[i], i + 1 < layers ? model->block[i + 1].x : model->last);
    }
}

// The bytes first to first + rows of each sequence, behind those in the cache; the logits of what
// follows the last of them.
static void transformer_pass(struct model *model, size_t first, size_t rows, real *logits)
{
    struct network *net = &model->net;
    size_t batch = model->shape.batch, context = model->shape.context, dim = model->shape.dim;
    model->pass_first = first;
    model->pass_rows = rows;
    model->rows = batch * rows;
    for (size_t b = 0; b < batch; b++)
        memcpy(model->pass_token + b * rows, model->token + b * context + first,
                rows * sizeof *model->pass_token);
    struct token token = {.rows = model->rows,
            .dim = dim,
            .context = rows,
            .vocabulary = TRANSFORMER_VOCABULARY,
            .token = model->pass_token};
    ops_token(net->pool, &token, net->value + model->token_table,
            net->value + model->position_table + first * dim, model->block[0].x);
    transformer_blocks(model);
    for (size_t b = 0; b < batch; b++)
        memcpy(model->tail + b * dim, model->last + ((b + 1) * rows - 1) * dim, dim * sizeof(real));
    model->rows = batch;
    struct layernorm norm = transformer_layernorm(
            model, &model->norm, model->tail, model->normed, model->mean, model->scale);
    ops_layernorm(net->pool, &norm);
    network_linear_forward(net, &model->head, batch, model->normed, logits);
}

// The bytes of the text are taken, not those that the model would choose: every precision decodes
// the same.
static void transformer_decode(struct model *model)
{
    for (size_t i = 0; i < model->decode; i++)
        transformer_pass(model, model->prompt + i, 1,
                model->logits + (i + 1) * model->shape.batch * TRANSFORMER_VOCABULARY);
}

static void transformer_forward(struct model *model)
{
    struct network *net = &model->net;
    struct token token = transformer_token(model);
    if (model->decode) {
        transformer_pass(model, 0, model->prompt, model->logits);
        return;
    }
    transformer_before(model, 0);
    ops_token(net->pool, &token, net->value + model->token_table,
            net->value + model->position_table, model->block[0].x);
    transformer_blocks(model);
    transformer_before(model, model->shape.layers + 1);
    struct layernorm norm = transformer_layernorm(
            model, &model->norm, model->last, model->normed, model->mean, model->scale);
    ops_layernorm(net->pool, &norm);
    network_linear_forward(net, &model->head, model->rows, model->normed, model->logits);
}

static double transformer_loss(struct model *model)
{
    return ops_softmax_loss(model->net.pool, model->rows, TRANSFORMER_VOCABULARY, model->logits,
            model->target, model->row_loss, model->dlogits);
}

// model->dx holds the gradient of the block's output and then that of its input.
static void transformer_block_backward(struct model *model, struct block *block)
{
    struct network *net = &model->net;
    size_t rows = model->rows, count = rows * model->shape.dim, wide = rows * block->up.out;
    real *dactive = model->dhidden, *dhidden = model->dhidden + wide;
    network_linear_backward(net, &block->down, rows, block->active, model->dx, dactive);
    (model->ranks ? ops_gelu_erf_backward : ops_gelu_backward)(
            net->pool, wide, block->hidden, dactive, dhidden);
    network_linear_backward(net, &block->up, rows, block->normed2, dhidden, model->dbranch);
    struct layernorm norm2 = transformer_layernorm(
            model, &block->norm2, block->mid, block->normed2, block->mean2, block->scale2);
    ops_layernorm_backward(net->pool, &norm2, model->dbranch, model->branch,
            net->grad + block->norm2.gain, net->grad + block->norm2.bias);
    ops_add(net->pool, count, model->dx, model->branch, model->dsum);
    network_linear_backward(net, &block->out, rows, block->mixed, model->dsum, model->dbranch);
    struct attention attention = transformer_attention(model, block);
    ops_attention_backward(net->pool, &attention, model->dbranch, model->dprob, model->dqkv);
    network_linear_backward(net, &block->qkv, rows, block->normed1, model->dqkv, model->dbranch);
    struct layernorm norm1 = transformer_layernorm(
            model, &block->norm1, block->x, block->normed1, block->mean1, block->scale1);
    ops_layernorm_backward(net->pool, &norm1, model->dbranch, model->branch,
            net->grad + block->norm1.gain, net->grad + block->norm1.bias);
    ops_add(net->pool, count, model->dsum, model->branch, model->dx);
}

static void transformer_backward(struct model *model)
{
    struct network *net = &model->net;
    network_linear_backward(
            net, &model->head, model->rows, model->normed, model->dlogits, model->dbranch);
    struct layernorm norm = transformer_layernorm(
            model, &model->norm, model->last, model->normed, model->mean, model->scale);
    ops_layernorm_backward(net->pool, &norm, model->dbranch, model->dx,
            net->grad + model->norm.gain, net->grad + model->norm.bias);
    transformer_after(model, model->shape.layers + 1);
    for (size_t i = model->shape.layers; i-- > 0;) {
        transformer_block_backward(model, &model->block[i]);
        transformer_after(model, i + 1);
    }
    struct token token = transformer_token(model);
    ops_token_backward(net->pool, &token, model->dx, net->grad + model->token_table,
            net->grad + model->position_table);
    transformer_after(model, 0);
}

static void transformer_update(struct model *model)
{
    struct network *net = &model->net;
    struct adam adam = {.rate = model->rate,
            .beta1 = (real)TRANSFORMER_BETA1,
            .beta2 = (real)(model->ranks ? TRANSFORMER_RANKS_BETA2 : TRANSFORMER_BETA2),
            .epsilon = (real)TRANSFORMER_EPSILON,
            .step = ++model->updates};
    if (model->plain_sgd)
        ops_sgd(net->pool, model->updated, model->rate, model->updated_grad, model->updated_value);
    else
        ops_adamw(net->pool, model->updated, &adam,
                (real)(model->ranks ? TRANSFORMER_RANKS_DECAY : 0), model->updated_grad,
                model->updated_value, model->adam_m, model->adam_v);
}

// Parameters that are kept elsewhere, sharded, are poisoned there: they write over the model's own.
static void transformer_poison(struct model *model)
{
    for (size_t i = 0; i < model->net.params; i++)
        ((real *)model->net.param[i].value)[0] = (real)NAN;
    for (size_t i = 0; model->updated_value != model->net.value && i < model->updated;
            i += REDUCE_BLOCK)
        model->updated_value[i] = (real)NAN;
}

static size_t transformer_samples(const struct model *model)
{
    return model->shape.batch;
}

static const void *transformer_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = (model->decode ? (model->decode + 1) * model->shape.batch : model->rows) *
            TRANSFORMER_VOCABULARY;
    return model->logits;
}

static const struct model_param *transformer_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

static size_t transformer_request_values(const struct model *model, size_t *ret_least)
{
    *ret_least = 2;
    return model->shape.context + 1;
}

// A text as bytes. Attention is causal: what fills the row behind it changes nothing.
static int transformer_put(
        struct model *model, size_t row, const double *values, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] >= 0 && values[i] <= 255))
            return error_set(err, -EINVAL, "features[%zu] is %g; a byte is a number from 0 to 255",
                    i, values[i]);
    }
    uint32_t *token = model->token + row * model->shape.context;
    uint32_t *target = model->target + row * model->shape.context;
    for (size_t i = 0; i < model->shape.context; i++) {
        token[i] = i + 1 < count ? (uint32_t)values[i] : 0;
        target[i] = i + 1 < count ? (uint32_t)values[i + 1] : 0;
    }
    model->length[row] = (uint32_t)count;
    return 0;
}

static void transformer_set_rows(struct model *model, size_t rows)
{
    model->shape.batch = rows;
    model->rows = rows * model->shape.context;
}

// Log-probability of the last byte after the others.
static double transformer_score(const struct model *model, size_t row)
{
    size_t at = row * model->shape.context + model->length[row] - 2;
    const real *logits = model->logits + at * TRANSFORMER_VOCABULARY;
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < TRANSFORMER_VOCABULARY; i++)
        // with fmax gcc 12 for arm64 dies at -O3
        top = (double)logits[i] > top ? (double)logits[i] : top;
    for (size_t i = 0; i < TRANSFORMER_VOCABULARY; i++)
        sum += exp((double)logits[i] - top);
    return (double)logits[model->target[at]] - top - log(sum);
}

const struct model_ops NATIVE_NAME(transformer_ops) = {
        .name = "transformer",
        .real_bytes = sizeof(real),
        .create = transformer_create,
        .destroy = transformer_destroy,
        .load = transformer_load,
        .forward = transformer_forward,
        .decode = transformer_decode,
        .loss = transformer_loss,
        .backward = transformer_backward,
        .update = transformer_update,
        .poison = transformer_poison,
        .units = transformer_units,
        .samples = transformer_samples,
        .logits = transformer_logits,
        .params = transformer_params,
        .request_values = transformer_request_values,
        .put = transformer_put,
        .set_rows = transformer_set_rows,
        .score = transformer_score,
};
