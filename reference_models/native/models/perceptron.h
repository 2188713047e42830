// SPDX-License-Identifier: Apache-2.0
// The perceptrons of recommenders that PyTorch has too: three linear layers. Per type, see real.h.
#ifndef UPGATE_NATIVE_PERCEPTRON_H
#define UPGATE_NATIVE_PERCEPTRON_H

#include "reference_models/native/models/network.h"
#include "reference_models/native/models/perceptron_widths.h"

#define perceptron_plan NATIVE_NAME(perceptron_plan)
#define perceptron_begin NATIVE_NAME(perceptron_begin)
#define perceptron_forward NATIVE_NAME(perceptron_forward)
#define perceptron_backward NATIVE_NAME(perceptron_backward)

// Linear layers, each with a ReLU behind it, but for the last one of an open perceptron.
struct perceptron {
    bool open;
    size_t width[PERCEPTRON_LAYERS];
    struct linear layer[PERCEPTRON_LAYERS];
    // [batch][width], before and behind the ReLU
    real *hidden[PERCEPTRON_LAYERS], *active[PERCEPTRON_LAYERS];
    real *dhidden[PERCEPTRON_LAYERS], *dactive[PERCEPTRON_LAYERS];
};

// open and width are set. Before network_allocate(): plans the layers over in[rows][in]. names: of
// the weights in the PyTorch model.
void perceptron_plan(struct network *net, struct perceptron *perceptron, const char *const *names,
        size_t in, size_t rows);
// Behind network_allocate(): the start values, and what is between the layers.
void perceptron_begin(
        struct network *net, struct perceptron *perceptron, const char *const *names, size_t rows);
// The output, [rows][width of the last layer]; the perceptron's.
const real *perceptron_forward(
        struct network *net, const struct perceptron *perceptron, size_t rows, const real *x);
// dx: NULL, or the gradient of x.
void perceptron_backward(struct network *net, const struct perceptron *perceptron, size_t rows,
        const real *x, const real *dy, real *dx);

#endif
