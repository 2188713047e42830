// SPDX-License-Identifier: Apache-2.0
// The residual network of native/models/vision.c on the GPU: the same shapes, start values and
// inputs, images as there. All in float32; convolutions, batch norm and the mean over an image by
// the side's own cuDNN (dnn.h), the rest by kernels.h's launchers. The layer behind the mean is a
// convolution of images of one pixel, its classes padded to a row of HEAD with logits that no
// softmax sees.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference_models/cuda/dnn.h"
#include "reference_models/cuda/params.h"
#include "reference_models/cuda/pointwise.h"
#include "reference_models/native/models/vision_data.h"

#define HEAD 16 // params_padded(VISION_CLASSES)

// A convolution and the norm behind it.
struct layer {
    struct dnn_convolution conv;
    size_t weight, gain, bias, count; // numbers of parameters; values of its output
    float *convolved, *mean, *scale, *running_mean, *running_variance;
};

enum { BLOCK_FIRST, BLOCK_SECOND, BLOCK_SHORTCUT, BLOCK_LAYERS };
struct block {
    struct layer layer[BLOCK_LAYERS];
    size_t inputs; // values of its input
    bool shortcut; // of another shape; else its layer is not there
    float *hidden, *out;
};

// The inputs of a step, in pinned memory.
struct inputs {
    float *image; // [batch][image][image][VISION_COLORS]
    int32_t *target;
};

struct model {
    struct device device;
    struct dnn dnn;
    struct params params;
    struct vision_shape shape;
    bool train, plain_sgd;
    bool served; // batch norm takes the running statistics
    bool learns; // batch norm leaves them
    float rate;
    struct layer stem;
    struct block block[VISION_BLOCKS_MAX];
    size_t blocks, output_count; // output_count: of the largest layer
    struct dnn_pool pool;
    struct dnn_convolution head;
    size_t head_weight, head_bias;
    struct inputs *inputs; // of each step of the pool
    float *image, *active, *normed, *beside, *sum, *pooled, *logits;
    float *velocity, *row_loss, *dlogits, *dpooled, *dx, *dnext, *dsum, *dconvolved, *dbranch;
    int32_t *target;
    float *host_loss, *host_logits, *answers;
    struct model_param name[PARAMS_MAX];
};

// --- what it is made of --------------------------------------------------------------------------

static float *vision_floats(struct model *model, size_t count, const char *what)
{
    return device_alloc(&model->device, count * sizeof(float), what);
}

// Returns the height and width of its output.
static size_t vision_layer_plan(struct model *model, struct layer *layer, size_t side,
        size_t inputs, size_t outputs, size_t kernel, size_t stride)
{
    size_t next = vision_side(side, stride);
    layer->conv = (struct dnn_convolution){.batch = model->shape.batch,
            .side = side,
            .channels = inputs,
            .kernel = kernel,
            .stride = stride,
            .outputs = outputs};
    layer->weight = params_add_turned(&model->params, kernel * kernel * inputs, outputs);
    layer->gain = params_add_wide(&model->params, outputs);
    layer->bias = params_add_wide(&model->params, outputs);
    layer->count = model->shape.batch * next * next * outputs;
    model->output_count = layer->count > model->output_count ? layer->count : model->output_count;
    dnn_plan(&model->dnn, &layer->conv);
    return next;
}

// In the order of the CPU's parameters.
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
        block->inputs = shape->batch * of->side * of->side * of->inputs;
        side = vision_layer_plan(model, &block->layer[BLOCK_FIRST], of->side, of->inputs,
                of->outputs, 3, of->stride);
        vision_layer_plan(model, &block->layer[BLOCK_SECOND], side, of->outputs, of->outputs, 3, 1);
        block->shortcut = of->shortcut;
        if (block->shortcut)
            vision_layer_plan(model, &block->layer[BLOCK_SHORTCUT], of->side, of->inputs,
                    of->outputs, 1, of->stride);
    }
    size_t inputs = made[model->blocks - 1].outputs;
    dnn_pool_plan(&model->dnn, &model->pool, shape->batch, side, inputs);
    model->head = (struct dnn_convolution){.batch = shape->batch,
            .side = 1,
            .channels = inputs,
            .kernel = 1,
            .stride = 1,
            .outputs = HEAD};
    model->head_weight = params_add(&model->params, PARAMS_WIDE, inputs, VISION_CLASSES);
    model->head_bias = params_add(&model->params, PARAMS_WIDE, 1, VISION_CLASSES);
    dnn_plan(&model->dnn, &model->head);
}

static void vision_layer_buffers(struct model *model, struct layer *layer)
{
    size_t outputs = layer->conv.outputs;
    layer->convolved = vision_floats(model, layer->count, "activations");
    layer->mean = vision_floats(model, outputs, "activations");
    layer->scale = vision_floats(model, outputs, "activations");
    if (model->train)
        return;
    layer->running_mean = vision_floats(model, outputs, "the statistics of inference");
    layer->running_variance = vision_floats(model, outputs, "the statistics of inference");
}

static void vision_gradients(struct model *model)
{
    size_t batch = model->shape.batch;
    float **const wide[] = {
            &model->dx, &model->dnext, &model->dsum, &model->dconvolved, &model->dbranch};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = vision_floats(model, model->output_count, "the gradients of activations");
    model->velocity = vision_floats(model, model->params.wide, "the optimizer's state");
    model->row_loss = vision_floats(model, batch, "the losses");
    model->dlogits = vision_floats(model, batch * HEAD, "the gradients of activations");
    model->dpooled =
            vision_floats(model, batch * model->head.channels, "the gradients of activations");
    model->host_loss = device_pinned(&model->device, batch * sizeof(float));
}

static void vision_buffers(struct model *model)
{
    struct device *device = &model->device;
    size_t batch = model->shape.batch;
    vision_layer_buffers(model, &model->stem);
    model->active = vision_floats(model, model->stem.count, "activations");
    for (size_t i = 0; i < model->blocks; i++) {
        struct block *block = &model->block[i];
        for (int k = 0; k < (block->shortcut ? BLOCK_LAYERS : BLOCK_SHORTCUT); k++)
            vision_layer_buffers(model, &block->layer[k]);
        block->hidden = vision_floats(model, block->layer[BLOCK_FIRST].count, "activations");
        block->out = vision_floats(model, block->layer[BLOCK_SECOND].count, "activations");
    }
    model->image = vision_floats(model, batch * vision_image_values(&model->shape), "the images");
    model->target = device_alloc(device, batch * sizeof *model->target, "the classes");
    model->normed = vision_floats(model, model->output_count, "activations");
    model->beside = vision_floats(model, model->output_count, "activations");
    model->sum = vision_floats(model, model->output_count, "activations");
    model->pooled = vision_floats(model, batch * model->head.channels, "activations");
    model->logits = vision_floats(model, batch * HEAD, "the answers");
    model->host_logits = device_pinned(device, batch * HEAD * sizeof(float));
    model->answers = device_pinned(device, batch * VISION_CLASSES * sizeof(float));
    if (model->train)
        vision_gradients(model);
}

// What block i reads; of i = blocks: the output of the last one.
static float *vision_input(const struct model *model, size_t i)
{
    return i ? model->block[i - 1].out : model->active;
}

static void vision_find_passes(
        struct model *model, struct dnn_convolution *conv, const struct dnn_arrays *arrays)
{
    dnn_find(&model->dnn, conv, DNN_FORWARD, arrays);
    if (model->train)
        dnn_find(&model->dnn, conv, DNN_WEIGHT, arrays);
    if (model->train && arrays->dx)
        dnn_find(&model->dnn, conv, DNN_INPUT, arrays);
}

static void vision_find_layer(struct model *model, struct layer *layer, const float *x, float *dx)
{
    vision_find_passes(model, &layer->conv,
            &(struct dnn_arrays){.x = x,
                    .weight = params_value(&model->params, layer->weight),
                    .y = layer->convolved,
                    .dy = model->dconvolved,
                    .dx = dx,
                    .dweight =
                            model->train ? params_wide_grad(&model->params, layer->weight) : NULL});
}

// The fastest algorithms, on arrays that a step writes anew.
static void vision_find(struct model *model)
{
    if (device_failed(&model->device))
        return;
    vision_find_layer(model, &model->stem, model->image, NULL);
    for (size_t i = 0; i < model->blocks; i++) {
        struct block *block = &model->block[i];
        vision_find_layer(model, &block->layer[BLOCK_FIRST], vision_input(model, i), model->dx);
        vision_find_layer(model, &block->layer[BLOCK_SECOND], block->hidden, model->dx);
        if (block->shortcut)
            vision_find_layer(
                    model, &block->layer[BLOCK_SHORTCUT], vision_input(model, i), model->dx);
    }
    vision_find_passes(model, &model->head,
            &(struct dnn_arrays){.x = model->pooled,
                    .weight = params_value(&model->params, model->head_weight),
                    .y = model->logits,
                    .dy = model->dlogits,
                    .dx = model->dpooled,
                    .dweight = model->train ? params_wide_grad(&model->params, model->head_weight)
                                            : NULL});
}

// --- inputs --------------------------------------------------------------------------------------

static void vision_draw_inputs(struct model *model, uint64_t seed, uint64_t step,
        const double *patterns, struct inputs *to)
{
    const struct vision_shape *shape = &model->shape;
    size_t values = vision_image_values(shape), pixels = shape->image * shape->image;
    to->image = device_pinned(&model->device, shape->batch * values * sizeof *to->image);
    to->target = device_pinned(&model->device, shape->batch * sizeof *to->target);
    for (size_t i = 0; i < shape->batch && !device_failed(&model->device); i++) {
        struct vision_image image = vision_image(shape, seed, model->train, step, i, patterns);
        to->target[i] = (int32_t)image.target;
        for (size_t color = 0; color < VISION_COLORS; color++)
            for (size_t pixel = 0; pixel < pixels; pixel++)
                to->image[i * values + pixel * VISION_COLORS + color] =
                        (float)vision_value(&image, color * pixels + pixel);
    }
}

static void vision_inputs(struct model *model, uint64_t seed)
{
    struct device *device = &model->device;
    double *patterns =
            malloc(VISION_CLASSES * vision_image_values(&model->shape) * sizeof *patterns);
    model->inputs = calloc(model->shape.pool, sizeof *model->inputs);
    if (!patterns || !model->inputs)
        device_must(device, error_set(&device->err, -ENOMEM, "no memory for the inputs"));
    else
        vision_patterns(&model->shape, seed, patterns);
    for (size_t i = 0; i < model->shape.pool && !device_failed(device); i++)
        vision_draw_inputs(model, seed, i, patterns, &model->inputs[i]);
    free(patterns);
}

static void vision_load(struct model *model, uint64_t step)
{
    const struct vision_shape *shape = &model->shape;
    const struct inputs *inputs = &model->inputs[step % shape->pool];
    device_upload(&model->device, model->image, inputs->image,
            shape->batch * vision_image_values(shape) * sizeof(float));
    device_upload(
            &model->device, model->target, inputs->target, shape->batch * sizeof *model->target);
}

// --- forward -------------------------------------------------------------------------------------

// out = op(a, b) of so many values, with a factor for b.
static void vision_each(struct model *model, enum kernel_pointwise_op op, size_t count, float *a,
        float factor, float *b, float *out)
{
    struct device *device = &model->device;
    const struct kernel_pointwise work = {.op = op,
            .outer = 1,
            .rows = 1,
            .columns = (int64_t)count,
            .factor = factor,
            .a = pointwise_float32(a, 0),
            .b = pointwise_float32(b, 0),
            .out = pointwise_float32(out, 0)};
    if (!device_failed(device))
        device_must(device, kernel_pointwise(&work, device->stream, &device->err));
}

static void vision_relu(struct model *model, size_t count, float *x, float *y)
{
    vision_each(model, KERNEL_POINT_RELU, count, x, 1, NULL, y);
}

static void vision_relu_backward(struct model *model, size_t count, float *y, float *dy, float *dx)
{
    vision_each(model, KERNEL_POINT_RELU_GRADIENT, count, y, 1, dy, dx);
}

static struct dnn_norm vision_norm(const struct model *model, const struct layer *layer, float *y)
{
    bool running = model->learns || model->served;
    return (struct dnn_norm){.x = layer->convolved,
            .gain = params_value(&model->params, layer->gain),
            .bias = params_value(&model->params, layer->bias),
            .y = y,
            .mean = layer->mean,
            .scale = layer->scale,
            .running_mean = running ? layer->running_mean : NULL,
            .running_variance = running ? layer->running_variance : NULL};
}

static void vision_layer_forward(
        struct model *model, const struct layer *layer, const float *x, float *y)
{
    const struct dnn_arrays arrays = {
            .x = x, .weight = params_value(&model->params, layer->weight), .y = layer->convolved};
    const struct dnn_norm norm = vision_norm(model, layer, y);
    dnn_run(&model->dnn, &layer->conv, DNN_FORWARD, &arrays);
    if (model->served)
        dnn_norm_serve(&model->dnn, &layer->conv, &norm);
    else
        dnn_norm(&model->dnn, &layer->conv, &norm);
}

static void vision_block_forward(struct model *model, const struct block *block, float *x)
{
    size_t count = block->layer[BLOCK_SECOND].count;
    vision_layer_forward(model, &block->layer[BLOCK_FIRST], x, model->normed);
    vision_relu(model, count, model->normed, block->hidden);
    vision_layer_forward(model, &block->layer[BLOCK_SECOND], block->hidden, model->normed);
    if (block->shortcut)
        vision_layer_forward(model, &block->layer[BLOCK_SHORTCUT], x, model->beside);
    vision_each(model, KERNEL_POINT_ADD, count, model->normed, 1,
            block->shortcut ? model->beside : x, model->sum);
    vision_relu(model, count, model->sum, block->out);
}

static void vision_start_forward(struct model *model)
{
    const struct params *params = &model->params;
    vision_layer_forward(model, &model->stem, model->image, model->normed);
    vision_relu(model, model->stem.count, model->normed, model->active);
    for (size_t i = 0; i < model->blocks; i++)
        vision_block_forward(model, &model->block[i], vision_input(model, i));
    dnn_pool(&model->dnn, &model->pool, vision_input(model, model->blocks), model->pooled);
    const struct dnn_arrays arrays = {.x = model->pooled,
            .weight = params_value(params, model->head_weight),
            .y = model->logits};
    dnn_run(&model->dnn, &model->head, DNN_FORWARD, &arrays);
    dnn_bias(&model->dnn, &model->head, params_value(params, model->head_bias), model->logits);
    device_download(&model->device, model->host_logits, model->logits,
            model->shape.batch * HEAD * sizeof(float));
}

// A request is answered when its scores are on the host.
static void vision_forward(struct model *model)
{
    vision_start_forward(model);
    if (!model->train)
        device_wait(&model->device);
}

static double vision_loss(struct model *model)
{
    struct device *device = &model->device;
    size_t batch = model->shape.batch;
    const struct kernel_cross_entropy entropy = {.type = KERNEL_FLOAT32,
            .rows = (int64_t)batch,
            .n = HEAD,
            .scale = 1 / (float)batch,
            .logits = model->logits,
            .target = model->target,
            .loss = model->row_loss,
            .dlogits = model->dlogits};
    device_must(device, kernel_cross_entropy(&entropy, device->stream, &device->err));
    device_download(device, model->host_loss, model->row_loss, batch * sizeof(float));
    return NAN;
}

// --- creating ------------------------------------------------------------------------------------

static void vision_destroy(struct model *model)
{
    if (!model)
        return;
    dnn_close(&model->dnn);
    device_close(&model->device);
    params_free(&model->params);
    free(model->inputs);
    free(model);
}

static int vision_refuse(const struct vision_shape *shape, struct error *err)
{
    int rc = vision_shape_check(shape, err);
    for (size_t stage = 0; stage < shape->stages && rc == 0; stage++)
        if (shape->channels[stage] % 8 != 0)
            rc = error_set(err, -EINVAL,
                    "%zu channels are not supported on the GPU: a multiple of 8 is",
                    shape->channels[stage]);
    return rc;
}

// The logits of the padding: their exponentials are 0, and so are their gradients. No larger: a
// kernel's exponent of the largest of a few logits is rounded to their size, and must stay near 0
// where all of them are padding.
static void vision_pad_head(struct model *model)
{
    static const float none[HEAD - VISION_CLASSES] = {-1e4f, -1e4f, -1e4f, -1e4f, -1e4f, -1e4f};
    if (!device_failed(&model->device))
        device_upload(&model->device,
                params_value(&model->params, model->head_bias) + VISION_CLASSES, none, sizeof none);
}

// The start values are those of any batch: the CPU's model has a small one.
static int vision_create_from(struct model *model, const struct model_opts *opts, struct error *err)
{
    struct model_opts cpu_opts = *opts;
    struct model *cpu = NULL;
    size_t count;
    cpu_opts.train = true;
    cpu_opts.batch = model->shape.batch < 2 ? model->shape.batch : 2;
    int rc = vision_ops_f32.create(&cpu_opts, &cpu, err);
    if (rc)
        return rc;
    const struct model_param *start = vision_ops_f32.params(cpu, &count);
    memcpy(model->name, start, count * sizeof *start);
    vision_plan(model);
    params_allocate(&model->params, &model->device, model->train, false, start, count);
    vision_ops_f32.destroy(cpu);
    vision_pad_head(model);
    vision_buffers(model);
    vision_inputs(model, opts->seed);
    vision_find(model);
    // the running statistics, from the first batch
    if (!model->train && !device_failed(&model->device)) {
        vision_load(model, 0);
        model->learns = true;
        vision_start_forward(model);
        model->learns = false;
        model->served = true;
    }
    return device_created(&model->device, err);
}

static int vision_create(const struct model_opts *opts, struct model **ret_model, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, -ENOMEM, "failed to create the vision model: out of memory");
    model->shape = vision_shape_of(opts);
    model->train = opts->train;
    model->plain_sgd = opts->plain_sgd;
    model->rate = (float)(opts->learning_rate > 0 ? opts->learning_rate : VISION_RATE);
    int rc = vision_refuse(&model->shape, err);
    if (rc == 0)
        rc = device_open(&model->device, err);
    if (rc == 0)
        rc = dnn_open(&model->dnn, &model->device, err);
    if (rc == 0)
        rc = vision_create_from(model, opts, err);
    if (rc) {
        vision_destroy(model);
        return rc;
    }
    *ret_model = model;
    return 0;
}

// --- backward ------------------------------------------------------------------------------------

// dx: NULL for none.
static void vision_layer_backward(
        struct model *model, const struct layer *layer, const float *x, const float *dy, float *dx)
{
    const struct params *params = &model->params;
    const struct dnn_norm norm = vision_norm(model, layer, NULL);
    const struct dnn_arrays arrays = {.x = x,
            .weight = params_value(params, layer->weight),
            .dy = model->dconvolved,
            .dx = dx,
            .dweight = params_wide_grad(params, layer->weight)};
    dnn_norm_backward(&model->dnn, &layer->conv, &norm, dy, model->dconvolved,
            params_wide_grad(params, layer->gain), params_wide_grad(params, layer->bias));
    dnn_run(&model->dnn, &layer->conv, DNN_WEIGHT, &arrays);
    if (dx)
        dnn_run(&model->dnn, &layer->conv, DNN_INPUT, &arrays);
}

// model->dx holds the gradient of the block's output and then that of its input.
static void vision_block_backward(struct model *model, const struct block *block, const float *x)
{
    size_t count = block->layer[BLOCK_SECOND].count;
    vision_relu_backward(model, count, block->out, model->dx, model->dsum);
    vision_layer_backward(
            model, &block->layer[BLOCK_SECOND], block->hidden, model->dsum, model->dbranch);
    vision_relu_backward(model, count, block->hidden, model->dbranch, model->dx);
    vision_layer_backward(model, &block->layer[BLOCK_FIRST], x, model->dx, model->dbranch);
    if (block->shortcut)
        vision_layer_backward(model, &block->layer[BLOCK_SHORTCUT], x, model->dsum, model->dx);
    vision_each(model, KERNEL_POINT_ADD, block->inputs, model->dbranch, 1,
            block->shortcut ? model->dx : model->dsum, model->dnext);
    float *next = model->dnext;
    model->dnext = model->dx;
    model->dx = next;
}

static void vision_backward(struct model *model)
{
    const struct params *params = &model->params;
    const struct dnn_arrays head = {.x = model->pooled,
            .weight = params_value(params, model->head_weight),
            .dy = model->dlogits,
            .dx = model->dpooled,
            .dweight = params_wide_grad(params, model->head_weight)};
    dnn_bias_backward(
            &model->dnn, &model->head, model->dlogits, params_wide_grad(params, model->head_bias));
    dnn_run(&model->dnn, &model->head, DNN_WEIGHT, &head);
    dnn_run(&model->dnn, &model->head, DNN_INPUT, &head);
    dnn_pool_backward(&model->dnn, &model->pool, vision_input(model, model->blocks), model->pooled,
            model->dpooled, model->dx);
    for (size_t i = model->blocks; i-- > 0;)
        vision_block_backward(model, &model->block[i], vision_input(model, i));
    vision_relu_backward(model, model->stem.count, model->active, model->dx, model->dsum);
    vision_layer_backward(model, &model->stem, model->image, model->dsum, NULL);
}

// SGD with momentum: velocity = momentum * velocity + gradient, value -= rate * velocity.
static void vision_update(struct model *model)
{
    struct params *params = &model->params;
    float *step = model->plain_sgd ? params->grad : model->velocity;
    if (!model->plain_sgd)
        vision_each(model, KERNEL_POINT_ADD, params->wide, params->grad, (float)VISION_MOMENTUM,
                model->velocity, model->velocity);
    vision_each(model, KERNEL_POINT_ADD, params->wide, params->value, -model->rate, step,
            params->value);
}

// --- what the step loop asks ---------------------------------------------------------------------

static double vision_settle(struct model *model)
{
    double sum = 0;
    device_wait(&model->device);
    for (size_t row = 0; row < model->shape.batch; row++)
        sum += (double)model->host_loss[row];
    return sum / (double)model->shape.batch;
}

static size_t vision_samples(const struct model *model)
{
    return model->shape.batch;
}

static const void *vision_logits(const struct model *model, size_t *ret_count)
{
    *ret_count = model->shape.batch * VISION_CLASSES;
    for (size_t row = 0; row < model->shape.batch; row++)
        memcpy(model->answers + row * VISION_CLASSES, model->host_logits + row * HEAD,
                VISION_CLASSES * sizeof(float));
    return model->answers;
}

static void vision_poison(struct model *model)
{
    params_poison(&model->params);
}

static const struct model_param *vision_params(const struct model *model_const, size_t *ret_count)
{
    struct model *model = (struct model *)model_const; // the copies are its own
    return params_download(&model->params, model->name, NULL, 0, ret_count);
}

const struct model_ops vision_ops_cuda = {
        .name = "vision",
        .real_bytes = 4,
        .create = vision_create,
        .destroy = vision_destroy,
        .load = vision_load,
        .forward = vision_forward,
        .loss = vision_loss,
        .backward = vision_backward,
        .update = vision_update,
        .settle = vision_settle,
        .poison = vision_poison,
        .samples = vision_samples,
        .logits = vision_logits,
        .params = vision_params,
};
