// SPDX-License-Identifier: Apache-2.0
// A layer norm on the GPU by kernel_norm, of bfloat16 rows.
#ifndef UPGATE_CUDA_NORM_H
#define UPGATE_CUDA_NORM_H

#include "reference_models/cuda/params.h"

struct norm {
    struct params *params;
    size_t gain, bias; // numbers of parameters
    size_t width;
    float *mean, *scale; // [rows]
};

struct norm norm_add(struct params *params, size_t width); // plans the parameters
void norm_buffers(struct norm *norm, struct device *device, size_t rows);
// What the kernel is asked for: x[rows][width] to y, NULL on the way back.
struct kernel_norm norm_work(const struct norm *norm, size_t rows, const void *x, void *y);
void norm_forward(
        const struct norm *norm, struct device *device, size_t rows, const void *x, void *y);
// Gradients of gain and bias, and dx. `scratch`: kernel_norm_scratch() of norm_work().
void norm_backward(const struct norm *norm, struct device *device, size_t rows, const void *x,
        const void *dy, void *dx, void *scratch);

#endif
