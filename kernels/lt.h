// SPDX-License-Identifier: Apache-2.0
// cuBLASLt of the side that runs, opened at run time, so that the build needs none:
// UPGATE_CUBLASLT, or libcublasLt.so.13 or .12 of $CUDA_HOME/lib64, which a side's `cuda` sets, or
// of the loader's directories. Declared here is what its ABI has had since 11.4.
#ifndef UPGATE_KERNELS_LT_H
#define UPGATE_KERNELS_LT_H

#include "kernels/kernels.h"

#define LT_ALGORITHMS \
    8 // asked for; their order is the library's guess, so that who wants the fastest launches each
#define LT_WORKSPACE KERNEL_MLP_WORKSPACE
#define LT_COMPUTE_32F 68
#define LT_COMPUTE_32F_FAST_TF32 77
enum lt_attribute {
    LT_TRANSPOSE_A = 3,
    LT_TRANSPOSE_B = 4,
    LT_EPILOGUE = 7,
    LT_BIAS = 8,
    LT_AUX = 11,
    LT_AUX_STRIDE = 12
};
enum lt_epilogue {
    LT_NONE = 1,
    LT_PLAIN_BIAS = 4,
    LT_RIGHT_SUM = 512,
    LT_RELU_AUX_BIAS = 134,
    LT_RELU_BACK_BIAS = 152,
    LT_GELU_AUX_BIAS = 164,
    LT_GELU_BACK_BIAS = 208
};
enum { LT_PREFERENCE_WORKSPACE = 1 };

struct lt_heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct lt {
    int (*create)(void **handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
            int wanted, struct lt_heuristic *results, int *ret_count);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
            const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
            void *d_layout, const void *algorithm, void *workspace, size_t workspace_bytes,
            cudaStream_t stream);
    void *handle;
};

// The one of this process, opened by the first call, which must have returned before a second
// thread asks. -ENOSYS when there is none.
int lt_open(const struct lt **ret, struct error *err);
// Those that multiply so within LT_WORKSPACE; a, b, out: layouts. -ENOSYS when there is none.
int lt_algorithms(const struct lt *lt, void *desc, void *a, void *b, void *out,
        struct lt_heuristic (*ret)[LT_ALGORITHMS], int *ret_count, struct error *err);
// 0, or -EIO and "cuBLASLt: failed to WHAT: status N".
int lt_error(int status, const char *what, struct error *err);

#endif
