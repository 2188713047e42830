// SPDX-License-Identifier: Apache-2.0
// A layer norm on the GPU, as norm.h says it.
#include "reference_models/cuda/norm.h"

#define EPSILON 1e-5f // as the CPU's

struct norm norm_add(struct params *params, size_t width)
{
    struct norm norm = {
            .params = params, .gain = params_add(params, PARAMS_NARROW, 1, width), .width = width};
    norm.bias = params_add(params, PARAMS_NARROW, 1, width);
    return norm;
}

void norm_buffers(struct norm *norm, struct device *device, size_t rows)
{
    norm->mean = device_alloc(device, rows * 4, "activations");
    norm->scale = device_alloc(device, rows * 4, "activations");
}

struct kernel_norm norm_work(const struct norm *norm, size_t rows, const void *x, void *y)
{
    return (struct kernel_norm){.type = KERNEL_BFLOAT16,
            .rows = (int64_t)rows,
            .n = (int64_t)norm->width,
            .epsilon = EPSILON,
            .x = x,
            .gain = params_copy(norm->params, norm->gain),
            .bias = params_copy(norm->params, norm->bias),
            .y = y,
            .mean = norm->mean,
            .scale = norm->scale};
}

void norm_forward(
        const struct norm *norm, struct device *device, size_t rows, const void *x, void *y)
{
    const struct kernel_norm work = norm_work(norm, rows, x, y);
    device_must(device, kernel_norm_forward(&work, device->stream, &device->err));
}

void norm_backward(const struct norm *norm, struct device *device, size_t rows, const void *x,
        const void *dy, void *dx, void *scratch)
{
    const struct kernel_norm work = norm_work(norm, rows, x, NULL);
    const struct kernel_norm_gradient gradient = {.dy = dy,
            .dx = dx,
            .dgain = params_narrow_grad(norm->params, norm->gain),
            .dbias = params_narrow_grad(norm->params, norm->bias),
            .scratch = scratch};
    device_must(device, kernel_norm_backward(&work, &gradient, device->stream, &device->err));
}
