// SPDX-License-Identifier: Apache-2.0
// cuDNN of the side that runs, opened at run time, so that the build needs none: UPGATE_CUDNN, or
// libcudnn.so.9 or .8 of CUDA_HOME's lib64/ or lib/ (a side's `cuda:` key sets it), or the
// loader's. Only calls that cuDNN 8 and 9 both have; their enumerations as numbers.
#ifndef UPGATE_CUDA_DNN_LIBRARY_H
#define UPGATE_CUDA_DNN_LIBRARY_H

#include <cuda_runtime.h>
#include <stddef.h>

#include "common/error.h"

enum { DNN_NCHW, DNN_NHWC };        // cudnnTensorFormat_t
enum { DNN_FLOAT32 = 0 };           // cudnnDataType_t
enum { DNN_CROSS_CORRELATION = 1 }; // cudnnConvolutionMode_t
enum { DNN_DEFAULT_MATH = 0 };      // cudnnMathType_t
enum { DNN_NORM_SPATIAL = 1 };      // cudnnBatchNormMode_t
enum { DNN_POOL_MEAN = 1 };         // cudnnPoolingMode_t: average, padding counted
enum { DNN_STOP_NAN = 0 };          // cudnnNanPropagation_t, of maxima only

// cudnnConvolutionFwdAlgoPerf_t, and the same of the two ways back.
struct dnn_perf {
    int algorithm, status;
    float ms;
    size_t memory;
    int determinism, math, reserved[3];
};
_Static_assert(sizeof(struct dnn_perf) == 48 && offsetof(struct dnn_perf, memory) == 16,
        "the layout of cuDNN's");

// Descriptors are pointers; each call returns a status, 0: done. alpha and beta: result = alpha *
// computed + beta * result, floats.
struct dnn_library {
    size_t (*version)(void);
    const char *(*sentence)(int status);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*tensor_new)(void **tensor);
    int (*tensor_free)(void *tensor);
    int (*tensor_set)(void *tensor, int format, int type, int n, int c, int h, int w);
    int (*filter_new)(void **filter);
    int (*filter_free)(void *filter);
    int (*filter_set)(void *filter, int type, int format, int k, int c, int h, int w);
    int (*conv_new)(void **conv);
    int (*conv_free)(void *conv);
    int (*conv_set)(void *conv, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
            int dilation_w, int mode, int type);
    int (*conv_math)(void *conv, int math);
    int (*find_forward)(void *handle, void *x_tensor, const void *x, void *w_filter, const void *w,
            void *conv, void *y_tensor, void *y, int asked, int *ret_count, struct dnn_perf *ret,
            void *workspace, size_t bytes);
    int (*find_input)(void *handle, void *w_filter, const void *w, void *dy_tensor, const void *dy,
            void *conv, void *dx_tensor, void *dx, int asked, int *ret_count, struct dnn_perf *ret,
            void *workspace, size_t bytes);
    int (*find_weight)(void *handle, void *x_tensor, const void *x, void *dy_tensor, const void *dy,
            void *conv, void *dw_filter, void *dw, int asked, int *ret_count, struct dnn_perf *ret,
            void *workspace, size_t bytes);
    int (*forward)(void *handle, const void *alpha, void *x_tensor, const void *x, void *w_filter,
            const void *w, void *conv, int algorithm, void *workspace, size_t bytes,
            const void *beta, void *y_tensor, void *y);
    int (*input)(void *handle, const void *alpha, void *w_filter, const void *w, void *dy_tensor,
            const void *dy, void *conv, int algorithm, void *workspace, size_t bytes,
            const void *beta, void *dx_tensor, void *dx);
    int (*weight)(void *handle, const void *alpha, void *x_tensor, const void *x, void *dy_tensor,
            const void *dy, void *conv, int algorithm, void *workspace, size_t bytes,
            const void *beta, void *dw_filter, void *dw);
    int (*bias)(void *handle, const void *alpha, void *dy_tensor, const void *dy, const void *beta,
            void *db_tensor, void *db);
    int (*add)(void *handle, const void *alpha, void *a_tensor, const void *a, const void *beta,
            void *c_tensor, void *c);
    int (*norm_train)(void *handle, int mode, const void *alpha, const void *beta, void *x_tensor,
            const void *x, void *y_tensor, void *y, void *norm_tensor, const void *gain,
            const void *bias, double factor, void *running_mean, void *running_variance,
            double epsilon, void *mean, void *scale);
    int (*norm_serve)(void *handle, int mode, const void *alpha, const void *beta, void *x_tensor,
            const void *x, void *y_tensor, void *y, void *norm_tensor, const void *gain,
            const void *bias, const void *mean, const void *variance, double epsilon);
    int (*norm_backward)(void *handle, int mode, const void *alpha, const void *beta,
            const void *alpha_params, const void *beta_params, void *x_tensor, const void *x,
            void *dy_tensor, const void *dy, void *dx_tensor, void *dx, void *norm_tensor,
            const void *gain, void *dgain, void *dbias, double epsilon, const void *mean,
            const void *scale);
    int (*pool_new)(void **pool);
    int (*pool_free)(void *pool);
    int (*pool_set)(void *pool, int mode, int nan, int height, int width, int pad_h, int pad_w,
            int stride_h, int stride_w);
    int (*pool_forward)(void *handle, void *pool, const void *alpha, void *x_tensor, const void *x,
            const void *beta, void *y_tensor, void *y);
    int (*pool_backward)(void *handle, void *pool, const void *alpha, void *y_tensor, const void *y,
            void *dy_tensor, const void *dy, void *x_tensor, const void *x, const void *beta,
            void *dx_tensor, void *dx);
};

// -ENOSYS: there is none, and what was tried; or one that lacks a call.
int dnn_library_open(const struct dnn_library **ret, struct error *err);

#endif
