// SPDX-License-Identifier: Apache-2.0
// Residual network on images: a convolution, blocks of two with a way around them, the mean over
// each image, ten classes; batch norm and relu behind the convolutions; cross-entropy, SGD with
// momentum. Inference takes the statistics of batch norm that one batch of training leaves;
// training itself reads none, and so keeps none. Inputs from vision_data.h, start values from
// draw.h: those of torch/vision.py. Compiled once per type.
//
// Images lie as [batch][height][width][channels], so that a convolution is a product with its
// patches (ops_im2col()) and its output is the rows of the norm. A block:
// relu(norm(conv(relu(norm(conv(x))))) + x), where x of another shape goes through a norm(conv(x)),
// too.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/models/network.h"
#include "reference_models/native/models/vision_data.h"

// A convolution and the norm behind it.
struct layer {
    struct patches patches; // of its input
    struct linear conv;     // weight[kernel][kernel][channels][out]
    size_t gain, bias, rows;
    real *convolved;              // [rows][out]
    real *mean, *scale, *running; // [out], [out], [2][out]
};

enum { BLOCK_FIRST, BLOCK_SECOND, BLOCK_SHORTCUT, BLOCK_LAYERS };
struct block {
    struct layer layer[BLOCK_LAYERS];
    bool shortcut;      // of another shape; else its layer is not there
    real *hidden, *out; // behind the first relu and the second
};

struct model {
    struct network net;
    struct vision_shape shape;
    real rate;
    bool plain_sgd;
    bool served; // batch norm takes the running statistics
    bool learns; // batch norm leaves them
    uint64_t step;
    double *pattern;
    uint32_t *target;
    struct layer stem;
    struct block block[VISION_BLOCKS_MAX];
    size_t blocks, pixels; // pixels: of an image behind the last block
    struct linear head;
    // Largest of all layers, of: patches, outputs, scratch of the norm.
    size_t patch_count, output_count, scratch_count;
    real *image, *active, *patch, *normed, *beside, *sum, *pooled, *logits;
    double *norm_scratch;
    // No operation adds into its own input: a repeat would do so twice.
    real *velocity, *row_loss, *dlogits, *dpooled, *dx, *dnext, *dsum, *dconvolved, *dbranch;
};

// --- plan, memory, start values ------------------------------------------------------------------

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Returns the height and width of its output.
static size_t vision_layer_plan(struct model *model, struct layer *layer, size_t side,
        size_t inputs, size_t outputs, size_t kernel, size_t stride)
{
    struct network *net = &model->net;
    layer->patches = (struct patches){.batch = model->shape.batch,
            .height = side,
            .width = side,
            .channels = inputs,
            .kernel = kernel,
            .stride = stride};
    layer->rows = ops_patches_rows(&layer->patches);
    layer->conv = network_matrix(net, "conv", kernel * kernel * inputs, outputs, layer->rows);
    layer->gain = network_add(net, "norm.gain", outputs, 1, 0);
    layer->bias = network_add(net, "norm.bias", outputs, 0, 0);
    model->patch_count = larger(model->patch_count, layer->rows * layer->conv.in);
    model->output_count = larger(model->output_count, layer->rows * outputs);
    model->scratch_count =
            larger(model->scratch_count, ops_batchnorm_scratch(layer->rows, outputs));
    return ops_patches_side(side, stride);
}

static void vision_plan(struct model *model)
{
    const struct vision_shape *shape = &model->shape;
    struct vision_block_shape made[VISION_BLOCKS_MAX];
    size_t side = vision_layer_plan(model, &model->stem, shape->image, VISION_COLORS,
            shape->channels[0], 3, vision_stem_stride(shape));
    model->blocks = vision_block_shapes(shape, made);
    for (size_t i = 0; i < model->blocks; i++) {
        struct block *block = &model->block[i];
        const struct vision_block_shape *of = &made[i];
        side = vision_layer_plan(model, &block->layer[BLOCK_FIRST], of->side, of->inputs,
                of->outputs, 3, of->stride);
        vision_layer_plan(model, &block->layer[BLOCK_SECOND], side, of->outputs, of->outputs, 3, 1);
        block->shortcut = of->shortcut;
        if (block->shortcut)
            vision_layer_plan(model, &block->layer[BLOCK_SHORTCUT], of->side, of->inputs,
                    of->outputs, 1, of->stride);
    }
    size_t inputs = made[model->blocks - 1].outputs;
    model->pixels = side * side;
    model->head = network_linear(&model->net, "head", inputs, VISION_CLASSES, shape->batch);
    network_allocate(&model->net);
}

// PyTorch's weights are [out][channels][kernel][kernel].
struct vision_kernel {
    real *weight;
    size_t channels, taps, outputs;
};

static void vision_set_kernel(void *arg, size_t i, double value)
{
    const struct vision_kernel *kernel = arg;
    size_t output = i / (kernel->channels * kernel->taps),
           channel = i / kernel->taps % kernel->channels, tap = i % kernel->taps;
    kernel->weight[(tap * kernel->channels + channel) * kernel->outputs + output] = (real)value;
}

static void vision_start_layer(struct network *net, const struct layer *layer, const char *name)
{
    struct vision_kernel kernel = {.weight = net->value + layer->conv.weight,
            .channels = layer->patches.channels,
            .taps = layer->patches.kernel * layer->patches.kernel,
            .outputs = layer->conv.out};
    draw_start(net->seed, name, layer->conv.in * layer->conv.out, layer->conv.in, vision_set_kernel,
            &kernel);
}

static void vision_start_values(struct model *model)
{
    static const char *const names[BLOCK_LAYERS] = {"body.conv1", "body.conv2", "shortcut.conv"};
    struct network *net = &model->net;
    vision_start_layer(net, &model->stem, "stem.conv.weight");
    for (size_t i = 0; i < model->blocks; i++) {
        const struct block *block = &model->block[i];
        for (int k = 0; k < (block->shortcut ? BLOCK_LAYERS : BLOCK_SHORTCUT); k++) {
            char name[64];
            snprintf(name, sizeof name, "blocks.%zu.%s.weight", i, names[k]);
            vision_start_layer(net, &block->layer[k], name);
        }
    }
    network_start_linear(net, &model->head, "head.weight");
}

static void vision_layer_buffers(struct network *net, struct layer *layer)
{
    size_t outputs = layer->conv.out;
    layer->convolved = network_reals(net, layer->rows * outputs);
    layer->mean = network_reals(net, outputs);
    layer->scale = network_reals(net, outputs);
    layer->running = network_reals(net, 2 * outputs);
}

static size_t vision_count(const struct layer *layer)
{
    return layer->rows * layer->conv.out;
}

static void vision_buffers(struct model *model)
{
    struct network *net = &model->net;
    const struct vision_shape *shape = &model->shape;
    size_t batch = shape->batch;
    vision_layer_buffers(net, &model->stem);
    model->active = network_reals(net, vision_count(&model->stem));
    for (size_t i = 0; i < model->blocks; i++) {
        struct block *block = &model->block[i];
        for (int k = 0; k < (block->shortcut ? BLOCK_LAYERS : BLOCK_SHORTCUT); k++)
            vision_layer_buffers(net, &block->layer[k]);
        block->hidden = network_reals(net, vision_count(&block->layer[BLOCK_FIRST]));
        block->out = network_reals(net, vision_count(&block->layer[BLOCK_SECOND]));
    }
    model->pattern = arena_alloc(
            &net->arena, VISION_CLASSES * vision_image_values(shape), sizeof *model->pattern);
    model->target = arena_alloc(&net->arena, batch, sizeof *model->target);
    model->norm_scratch =
            arena_alloc(&net->arena, model->scratch_count, sizeof *model->norm_scratch);
    model->image = network_reals(net, batch * vision_image_values(shape));
    model->patch = network_reals(net, model->patch_count);
    model->normed = network_reals(net, model->output_count);
    model->beside = network_reals(net, model->output_count);
    model->sum = network_reals(net, model->output_count);
    model->pooled = network_reals(net, batch * model->head.in);
    model->logits = network_reals(net, batch * VISION_CLASSES);
    if (!net->train)
        return;
    model->velocity = network_reals(net, net->count);
    model->row_loss = network_reals(net, batch);
    model->dlogits = network_reals(net, batch * VISION_CLASSES);
    model->dpooled = network_reals(net, batch * model->head.in);
    real **const wide[] = {
            &model->dx, &model->dnext, &model->dsum, &model->dconvolved, &model->dbranch};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = network_reals(net, model->output_count);
}

static void vision_destroy(struct model *model)
{
    if (!model)
        return;
    arena_free(&model->net.arena);
    free(model);
}

// --- inputs --------------------------------------------------------------------------------------

// Item = an image.
static void vision_load_part(void *arg, size_t begin, size_t end, bool again)
{
    struct model *model = arg;
    const struct vision_shape *shape = &model->shape;
    size_t pixels = shape->image * shape->image;
    (void)again;
    for (size_t i = begin; i < end; i++) {
        struct vision_image image = vision_image(
                shape, model->net.seed, model->net.train, model->step, i, model->pattern);
        real *to = model->image + i * vision_image_values(shape);
        model->target[i] = image.target;
        for (size_t color = 0; color < VISION_COLORS; color++)
            for (size_t pixel = 0; pixel < pixels; pixel++)
                to[pixel * VISION_COLORS + color] =
                        (real)vision_value(&image, color * pixels + pixel);
    }
}

static void vision_load(struct model *model, uint64_t step)
{
    model->step = step;
    pool_for(model->net.pool,
            &(struct pool_work){.count = model->shape.batch,
                    .cost = 8.0 * (double)vision_image_values(&model->shape),
                    POOL_FN(vision_load_part),
                    .arg = model});
}

// --- forward -------------------------------------------------------------------------------------

static struct batchnorm vision_norm(const struct model *model, const struct layer *layer, real *y)
{
    return (struct batchnorm){.rows = layer->rows,
            .n = layer->conv.out,
            .x = layer->convolved,
            .gain = model->net.value + layer->gain,
            .bias = model->net.value + layer->bias,
            .y = y,
            .mean = model->served ? layer->running : layer->mean,
            .scale = model->served ? layer->running + layer->conv.out : layer->scale,
            .running = model->learns ? layer->running : NULL,
            .scratch = model->norm_scratch};
}

static void vision_layer_forward(
        struct model *model, const struct layer *layer, const real *x, real *y)
{
    struct network *net = &model->net;
    struct batchnorm norm = vision_norm(model, layer, y);
    ops_im2col(net->pool, &layer->patches, x, model->patch);
    network_linear_forward(net, &layer->conv, layer->rows, model->patch, layer->convolved);
    if (model->served)
        ops_batchnorm_apply(net->pool, &norm);
    else
        ops_batchnorm(net->pool, &norm);
}

static void vision_block_forward(struct model *model, const struct block *block, const real *x)
{
    struct pool *pool = model->net.pool;
    size_t count = vision_count(&block->layer[BLOCK_SECOND]);
    vision_layer_forward(model, &block->layer[BLOCK_FIRST], x, model->normed);
    ops_relu(pool, count, model->normed, block->hidden);
    vision_layer_forward(model, &block->layer[BLOCK_SECOND], block->hidden, model->normed);
    if (block->shortcut)
        vision_layer_forward(model, &block->layer[BLOCK_SHORTCUT], x, model->beside);
    ops_add(pool, count, model->normed, block->shortcut ? model->beside : x, model->sum);
    ops_relu(pool, count, model->sum, block->out);
}

// What block i reads; of i = blocks: the output of the last one.
static const real *vision_input(const struct model *model, size_t i)
{
    return i ? model->block[i - 1].out : model->active;
}

static void vision_forward(struct model *model)
{
    struct network *net = &model->net;
    vision_layer_forward(model, &model->stem, model->image, model->normed);
    ops_relu(net->pool, vision_count(&model->stem), model->normed, model->active);
    for (size_t i = 0; i < model->blocks; i++)
        vision_block_forward(model, &model->block[i], vision_input(model, i));
    ops_mean_pool(net->pool, model->shape.batch, model->pixels, model->head.in,
            vision_input(model, model->blocks), model->pooled);
    network_linear_forward(net, &model->head, model->shape.batch, model->pooled, model->logits);
}

static double vision_loss(struct model *model)
{
    return ops_softmax_loss(model->net.pool, model->shape.batch, VISION_CLASSES, model->logits,
            model->target, model->row_loss, model->dlogits);
}

// The running statistics of inference, from the first batch.
static void vision_take_statistics(struct model *model)
{
    vision_load(model, 0);
    model->learns = true;
    vision_forward(model);
    model->learns = false;
    model->served = true;
}

static int vision_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct vision_shape shape = vision_shape_of(opts);
    int rc = vision_shape_check(&shape, err);
    if (rc)
        return rc;
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the vision model: out of memory");
    model->shape = shape;
    model->net = (struct network){.pool = opts->pool, .seed = opts->seed, .train = opts->train};
    model->rate = (real)(opts->learning_rate > 0 ? opts->learning_rate : VISION_RATE);
    model->plain_sgd = opts->plain_sgd;
    vision_plan(model);
    vision_buffers(model);
    vision_start_values(model);
    vision_patterns(&model->shape, opts->seed, model->pattern);
    if (!opts->train)
        vision_take_statistics(model);
    *ret_model = model;
    return 0;
}

// --- backward ------------------------------------------------------------------------------------

// dx: NULL for none. All layers share the room for patches: they are taken again, and their
// gradient takes their place.
static void vision_layer_backward(
        struct model *model, const struct layer *layer, const real *x, const real *dy, real *dx)
{
    struct network *net = &model->net;
    struct batchnorm norm = vision_norm(model, layer, NULL);
    ops_batchnorm_backward(net->pool, &norm, dy, model->dconvolved, net->grad + layer->gain,
            net->grad + layer->bias);
    ops_im2col(net->pool, &layer->patches, x, model->patch);
    network_linear_backward(net, &layer->conv, layer->rows, model->patch, model->dconvolved,
            dx ? model->patch : NULL);
    if (dx)
        ops_col2im(net->pool, &layer->patches, model->patch, dx);
}

// model->dx holds the gradient of the block's output and then that of its input.
static void vision_block_backward(struct model *model, const struct block *block, const real *x)
{
    struct pool *pool = model->net.pool;
    const struct layer *first = &block->layer[BLOCK_FIRST];
    size_t count = vision_count(&block->layer[BLOCK_SECOND]);
    size_t inputs = first->patches.batch * first->patches.height * first->patches.width *
            first->patches.channels;
    ops_relu_backward(pool, count, block->out, model->dx, model->dsum);
    vision_layer_backward(
            model, &block->layer[BLOCK_SECOND], block->hidden, model->dsum, model->dbranch);
    ops_relu_backward(pool, count, block->hidden, model->dbranch, model->dx);
    vision_layer_backward(model, first, x, model->dx, model->dbranch);
    if (block->shortcut)
        vision_layer_backward(model, &block->layer[BLOCK_SHORTCUT], x, model->dsum, model->dx);
    ops_add(pool, inputs, model->dbranch, block->shortcut ? model->dx : model->dsum, model->dnext);
    real *next = model->dnext;
    model->dnext = model->dx;
    model->dx = next;
}

static void vision_backward(struct model *model)
{
    struct network *net = &model->net;
    size_t batch = model->shape.batch;
    network_linear_backward(
            net, &model->head, batch, model->pooled, model->dlogits, model->dpooled);
    ops_mean_pool_backward(
            net->pool, batch, model->pixels, model->head.in, model->dpooled, model->dx);
    for (size_t i = model->blocks; i-- > 0;)
        vision_block_backward(model, &model->block[i], vision_input(model, i));
    ops_relu_backward(net->pool, vision_count(&model->stem), model->active, model->dx, model->dsum);
    vision_layer_backward(model, &model->stem, model->image, model->dsum, NULL);
}

static void vision_update(struct model *model)
{
    struct network *net = &model->net;
    if (model->plain_sgd)
        ops_sgd(net->pool, net->count, model->rate, net->grad, net->value);
    else
        ops_sgd_momentum(net->pool, net->count, model->rate, (real)VISION_MOMENTUM, net->grad,
                net->value, model->velocity);
}

// --- what the step loop asks ---------------------------------------------------------------------

static size_t vision_samples(const struct model *model)
{
    return model->shape.batch;
}

static const void *vision_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->shape.batch * VISION_CLASSES;
    return model->logits;
}

static const struct model_param *vision_params(const struct model *model, size_t *ret_count)
{
    *ret_count = model->net.params;
    return model->net.param;
}

const struct model_ops NATIVE_NAME(vision_ops) = {
        .name = "vision",
        .real_bytes = sizeof(real),
        .create = vision_create,
        .destroy = vision_destroy,
        .load = vision_load,
        .forward = vision_forward,
        .loss = vision_loss,
        .backward = vision_backward,
        .update = vision_update,
        .samples = vision_samples,
        .logits = vision_logits,
        .params = vision_params,
};
