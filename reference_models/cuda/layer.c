// SPDX-License-Identifier: Apache-2.0
// A linear layer on the GPU, as layer.h says it.
#include "reference_models/cuda/layer.h"

struct layer layer_add(
        struct params *params, size_t in, size_t out, enum kernel_activation activation)
{
    struct layer layer = {.params = params,
            .in = params_padded(in),
            .out = params_padded(out),
            .activation = activation};
    layer.weight = params_add(params, PARAMS_NARROW, in, out);
    layer.bias = params_add(params, PARAMS_NARROW, 1, out);
    return layer;
}

struct layer layer_add_matrix(struct params *params, size_t in, size_t out)
{
    struct layer layer = {.params = params,
            .in = params_padded(in),
            .out = params_padded(out),
            .activation = KERNEL_IDENTITY,
            .unbiased = true};
    layer.weight = params_add(params, PARAMS_NARROW, in, out);
    return layer;
}

struct layer layer_add_parts(struct params *params, size_t in, size_t out, size_t parts)
{
    struct layer layer = {.params = params,
            .in = params_padded(in),
            .out = parts * out,
            .activation = KERNEL_IDENTITY};
    layer.weight = params_add_parts(params, in, out, parts);
    layer.bias = layer.weight + 1;
    return layer;
}

static void layer_one(struct device *device, struct kernel_mlp mlp, enum kernel_mlp_pass pass,
        struct kernel_mlp_plan **ret)
{
    mlp.pass = pass;
    if (!device_failed(device))
        device_must(device, kernel_mlp_plan(&mlp, ret, &device->err));
}

void layer_plan(
        struct layer *layer, struct device *device, bool train, const struct layer_arrays *arrays)
{
    const struct params *params = layer->params;
    struct kernel_mlp mlp = {.type = KERNEL_BFLOAT16,
            .activation = layer->activation,
            .rows = (int64_t)arrays->rows,
            .inputs = (int64_t)layer->in,
            .outputs = (int64_t)layer->out,
            .x = arrays->x,
            .weight = params_copy(params, layer->weight),
            .dz = arrays->dz,
            .bias = layer->unbiased
                    ? device_alloc(device, layer->out * 2, "zeros in place of a bias")
                    : params_copy(params, layer->bias),
            .out = arrays->y,
            .workspace = device->workspace};
    if (layer->activation != KERNEL_IDENTITY) {
        size_t bits = layer->activation == KERNEL_GELU ? 16 : 1;
        layer->aux = device_alloc(device, arrays->rows * layer->out * bits / 8, "activations");
        mlp.aux = layer->aux;
    }
    layer_one(device, mlp, KERNEL_MLP_FORWARD, &layer->forward);
    if (!train)
        return;
    mlp.aux = NULL;
    mlp.activation = KERNEL_IDENTITY;
    mlp.out = params_narrow_grad(params, layer->weight);
    // With an activation the gradient of the bias comes from the layer above.
    mlp.dbias = layer->activation == KERNEL_IDENTITY && !layer->unbiased
            ? params_narrow_grad(params, layer->bias)
            : NULL;
    layer_one(device, mlp, KERNEL_MLP_WEIGHT, &layer->weights);
    if (!arrays->dx)
        return;
    mlp.dbias = NULL;
    mlp.out = arrays->dx;
    if (arrays->below) {
        mlp.activation = arrays->below->activation;
        mlp.aux = arrays->below->aux;
        mlp.dbias = params_narrow_grad(params, arrays->below->bias);
    }
    layer_one(device, mlp, KERNEL_MLP_INPUT, &layer->input);
}

static void layer_run(const struct layer *layer, const struct kernel_mlp_plan *plan)
{
    struct device *device = layer->params->device;
    if (plan)
        device_must(device, kernel_mlp_run(plan, device->stream, &device->err));
}

void layer_forward(const struct layer *layer)
{
    layer_run(layer, layer->forward);
}

void layer_backward(const struct layer *layer)
{
    layer_run(layer, layer->weights);
    layer_run(layer, layer->input);
}

void layer_free(struct layer *layer)
{
    kernel_mlp_plan_free(layer->forward);
    kernel_mlp_plan_free(layer->input);
    kernel_mlp_plan_free(layer->weights);
}
