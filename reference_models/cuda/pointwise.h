// SPDX-License-Identifier: Apache-2.0
// kernel_pointwise() as the models ask for it.
#ifndef UPGATE_CUDA_POINTWISE_H
#define UPGATE_CUDA_POINTWISE_H

#include "kernels/kernels.h"
#include "reference_models/cuda/device.h"

#define POINTWISE_NONE ((struct kernel_operand){.at = NULL})

// An array whose rows lie `row` values apart, and its blocks of rows `outer`.
static inline struct kernel_operand pointwise_bfloat16(void *at, size_t outer, size_t row)
{
    return (struct kernel_operand){
            .at = at, .type = KERNEL_BFLOAT16, .outer = (int64_t)outer, .row = (int64_t)row};
}

static inline struct kernel_operand pointwise_float32(float *at, size_t row)
{
    return (struct kernel_operand){.at = at, .type = KERNEL_FLOAT32, .row = (int64_t)row};
}

// out = op(a, b), of [outer][rows][columns].
static inline void pointwise(struct device *device, enum kernel_pointwise_op op, size_t outer,
        size_t rows, size_t columns, struct kernel_operand a, struct kernel_operand b,
        struct kernel_operand out)
{
    const struct kernel_pointwise work = {.op = op,
            .outer = (int64_t)outer,
            .rows = (int64_t)rows,
            .columns = (int64_t)columns,
            .factor = 1,
            .a = a,
            .b = b,
            .out = out};
    device_must(device, kernel_pointwise(&work, device->stream, &device->err));
}

#endif
