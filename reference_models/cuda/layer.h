// SPDX-License-Identifier: Apache-2.0
// A linear layer on the GPU by kernel_mlp: forward with its activation, the gradient below with the
// act of the layer below, its own gradients. Which arrays it works on is planned once.
#ifndef UPGATE_CUDA_LAYER_H
#define UPGATE_CUDA_LAYER_H

#include "reference_models/cuda/params.h"

struct layer {
    struct params *params;
    size_t weight, bias; // numbers of parameters
    bool unbiased;       // there is no bias
    size_t in, out;      // padded
    enum kernel_activation activation;
    void *aux; // what the way back of the layer above needs of this one's activation
    struct kernel_mlp_plan *forward, *input, *weights;
};

// Plans the parameters, as network_linear() does.
struct layer layer_add(
        struct params *params, size_t in, size_t out, enum kernel_activation activation);

// One without a bias, as network_matrix().
struct layer layer_add_matrix(struct params *params, size_t in, size_t out);

// Several of the CPU's, of the same x, as one: y[rows][parts][out], out a multiple of 64.
struct layer layer_add_parts(struct params *params, size_t in, size_t out, size_t parts);

// The arrays of a layer, bfloat16: x[rows][in], y[rows][out]; training: dz[rows][out], the gradient
// before the activation, and dx[rows][in], NULL: not wanted. below: the layer that made x, where it
// has an activation: dx is before that then, and the gradient of its bias comes with it; NULL: x is
// what it is.
struct layer_arrays {
    size_t rows;
    const void *x, *dz;
    void *y, *dx;
    const struct layer *below;
};
void layer_plan(
        struct layer *layer, struct device *device, bool train, const struct layer_arrays *arrays);
void layer_forward(const struct layer *layer);
// the gradients of the weight (with no activation: and the bias), then dx
void layer_backward(const struct layer *layer);
void layer_free(struct layer *layer);

#endif
