// SPDX-License-Identifier: Apache-2.0
// Convolution, batch norm and the mean over an image by the side's own cuDNN, in float32; images
// [batch][side][side][channels], weights [out][kernel][kernel][channels]. Math is cuDNN's default,
// which allows TF32, as PyTorch's does. Failures are those of device.h.
#ifndef UPGATE_CUDA_DNN_H
#define UPGATE_CUDA_DNN_H

#include "reference_models/cuda/device.h"
#include "reference_models/cuda/dnn_library.h"

#define DNN_DESCRIPTORS_MAX 512

struct dnn {
    struct device *device;
    const struct dnn_library *library;
    void *handle;
    struct {
        void *at;
        int (*free)(void *at);
    } descriptor[DNN_DESCRIPTORS_MAX];
    size_t descriptors;
};

enum dnn_pass { DNN_FORWARD, DNN_INPUT, DNN_WEIGHT, DNN_PASSES };

// A convolution that pads by half of its odd kernel, and what is of its output's shape.
struct dnn_convolution {
    size_t batch, side, channels, kernel, stride, outputs; // set by the caller
    void *x, *y, *column, *filter, *conv[DNN_PASSES];      // column: of [outputs]
    int algorithm[DNN_PASSES];
    size_t bytes[DNN_PASSES]; // of the device's workspace
};

// Of a convolution; what no pass reads may be NULL.
struct dnn_arrays {
    const float *x, *weight;
    float *y;
    const float *dy;
    float *dx, *dweight;
};

// -ENOSYS: there is no cuDNN.
int dnn_open(struct dnn *dnn, struct device *device, struct error *err);
void dnn_close(struct dnn *dnn); // before the device is closed; zeroed is fine

void dnn_plan(struct dnn *dnn, struct dnn_convolution *convolution);
// Takes the fastest of the library's algorithms for a pass, as cudnn.benchmark does: it runs each,
// writes the results' arrays, and waits.
void dnn_find(struct dnn *dnn, struct dnn_convolution *convolution, enum dnn_pass pass,
        const struct dnn_arrays *arrays);
// y; or dx; or dweight.
void dnn_run(struct dnn *dnn, const struct dnn_convolution *convolution, enum dnn_pass pass,
        const struct dnn_arrays *arrays);
// y += bias[outputs], and the bias' gradient.
void dnn_bias(
        struct dnn *dnn, const struct dnn_convolution *convolution, const float *bias, float *y);
void dnn_bias_backward(
        struct dnn *dnn, const struct dnn_convolution *convolution, const float *dy, float *dbias);

// Batch norm of x, which is of the shape of a convolution's y.
struct dnn_norm {
    const float *x, *gain, *bias;
    float *y, *mean, *scale;                // mean, scale: of the batch, for the way back
    float *running_mean, *running_variance; // those of the batch, for inference; both NULL: nowhere
};
void dnn_norm(
        struct dnn *dnn, const struct dnn_convolution *convolution, const struct dnn_norm *norm);
// by the running ones
void dnn_norm_serve(
        struct dnn *dnn, const struct dnn_convolution *convolution, const struct dnn_norm *norm);
void dnn_norm_backward(struct dnn *dnn, const struct dnn_convolution *convolution,
        const struct dnn_norm *norm, const float *dy, float *dx, float *dgain, float *dbias);

// The mean over each image [side][side][channels].
struct dnn_pool {
    void *x, *y, *pool;
};
void dnn_pool_plan(
        struct dnn *dnn, struct dnn_pool *pool, size_t batch, size_t side, size_t channels);
void dnn_pool(struct dnn *dnn, const struct dnn_pool *pool, const float *x, float *y);
void dnn_pool_backward(struct dnn *dnn, const struct dnn_pool *pool, const float *x, const float *y,
        const float *dy, float *dx);

#endif
