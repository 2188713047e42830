// SPDX-License-Identifier: Apache-2.0
// What both models are built from: the parameters in one flat array (so that the optimizer is one
// pass), their gradients beside them, and the linear layer. Per type, see real.h.
#ifndef UPGATE_NATIVE_NETWORK_H
#define UPGATE_NATIVE_NETWORK_H

#include "reference_models/native/model.h"
#include "reference_models/native/ops/ops.h"

#define network_add NATIVE_NAME(network_add)
#define network_allocate NATIVE_NAME(network_allocate)
#define network_reals NATIVE_NAME(network_reals)
#define network_fill NATIVE_NAME(network_fill)
#define network_align NATIVE_NAME(network_align)
#define network_linear NATIVE_NAME(network_linear)
#define network_matrix NATIVE_NAME(network_matrix)
#define network_linear_forward NATIVE_NAME(network_linear_forward)
#define network_linear_backward NATIVE_NAME(network_linear_backward)
#define network_start_linear NATIVE_NAME(network_start_linear)
#define network_start_table NATIVE_NAME(network_start_table)

#define NETWORK_PARAMS_MAX 160

struct network {
    struct arena arena;
    struct pool *pool;
    uint64_t seed;
    bool train;
    size_t count; // parameters in the flat arrays
    real *value, *grad;
    real *scratch; // of ops_gemm
    size_t scratch_count;
    struct model_param param[NETWORK_PARAMS_MAX];
    double spread[NETWORK_PARAMS_MAX]; // start values are uniform in +-spread around center
    double center[NETWORK_PARAMS_MAX];
    size_t offset[NETWORK_PARAMS_MAX];
    size_t params;
};

struct linear {
    size_t in, out, weight, bias; // weight[in][out] and bias[out]: offsets into the flat arrays
};
#define NETWORK_NO_BIAS SIZE_MAX // in place of its offset

// Plan a parameter; its offset in the flat arrays. name: a literal.
size_t network_add(
        struct network *net, const char *name, size_t count, double center, double spread);
// Plan a linear layer for products of up to `rows` rows.
struct linear network_linear(
        struct network *net, const char *name, size_t in, size_t out, size_t rows);
// The same without bias.
struct linear network_matrix(
        struct network *net, const char *name, size_t in, size_t out, size_t rows);
// What is planned next starts at a multiple of so many reals; returns where.
size_t network_align(struct network *net, size_t reals);
// Allocate and fill what was planned; a flat array that is there already stays the caller's.
// Afterwards param[] holds the values' addresses.
void network_allocate(struct network *net);
// The start values that the PyTorch model has under this name (draw.h), in place of its own: of a
// linear layer, [out][in] there, and of a table [rows][dim].
void network_start_linear(struct network *net, const struct linear *layer, const char *name);
void network_start_table(
        struct network *net, size_t offset, const char *name, size_t rows, size_t dim);
// A parameter outside the flat arrays, with its own update: filled at once.
void network_fill(struct network *net, const char *name, real *value, size_t count, double spread);

real *network_reals(struct network *net, size_t count); // zeroed, lives as long as the network

// y[rows][out] = x[rows][in] * weight + bias
void network_linear_forward(
        struct network *net, const struct linear *layer, size_t rows, const real *x, real *y);
// Gradients of weight and bias; dx too unless it is NULL.
void network_linear_backward(struct network *net, const struct linear *layer, size_t rows,
        const real *x, const real *dy, real *dx);

#endif
