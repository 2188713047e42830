// SPDX-License-Identifier: Apache-2.0
// What both ways of a norm refuse.
#ifndef UPGATE_KERNELS_NORM_SHAPE_CUH
#define UPGATE_KERNELS_NORM_SHAPE_CUH

#include "kernels/device.cuh"

#define NORM_VECTORS_MAX 2048 // of 16 bytes, of a row: what the widest group of threads holds

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static inline int norm_check(const struct kernel_norm *norm, struct error *err)
{
    if (norm->type != KERNEL_FLOAT32 && norm->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL, "norm: type %s is not supported; float32 and bfloat16 are",
                kernel_type_name(norm->type));
    int64_t lanes = 16 / (int64_t)kernel_type_bytes(norm->type);
    if (norm->rows < 1 || norm->n < 1)
        return error_set(err, -EINVAL, "norm: %lld rows of %lld columns: both must be at least 1",
                (long long)norm->rows, (long long)norm->n);
    if (norm->rows > INT32_MAX)
        return error_set(err, -EINVAL, "norm: %lld rows are not supported: up to 2^31 - 1 are",
                (long long)norm->rows);
    if (norm->n % lanes != 0 || norm->n / lanes > NORM_VECTORS_MAX)
        return error_set(err, -EINVAL,
                "norm: %lld columns of %s are not supported: a multiple of %lld up to %lld is",
                (long long)norm->n, kernel_type_name(norm->type), (long long)lanes,
                (long long)lanes * NORM_VECTORS_MAX);
    if (!(norm->epsilon >= 0))
        return error_set(
                err, -EINVAL, "norm: epsilon is %g: it must be 0 or more", (double)norm->epsilon);
    if (!norm->x || !norm->gain || (!norm->rms && !norm->bias))
        return error_set(
                err, -EINVAL, "norm: x, gain%s must not be NULL", norm->rms ? "" : " and bias");
    if (((uintptr_t)norm->x | (uintptr_t)norm->gain | (uintptr_t)norm->bias | (uintptr_t)norm->y) %
                    16 !=
            0)
        return error_set(err, -EINVAL, "norm: a tensor does not start at a multiple of 16 bytes");
    return 0;
}
#endif

#endif
