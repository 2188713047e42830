// SPDX-License-Identifier: Apache-2.0
// Linear layers with a ReLU behind each, forward and backward. Compiled once per type.
#include "reference_models/native/models/perceptron.h"

void perceptron_plan(struct network *net, struct perceptron *perceptron, const char *const *names,
        size_t in, size_t rows)
{
    for (int i = 0; i < PERCEPTRON_LAYERS; i++) {
        perceptron->layer[i] = network_linear(net, names[i], in, perceptron->width[i], rows);
        in = perceptron->width[i];
    }
}

void perceptron_begin(
        struct network *net, struct perceptron *perceptron, const char *const *names, size_t rows)
{
    for (int i = 0; i < PERCEPTRON_LAYERS; i++) {
        size_t reals = rows * perceptron->width[i];
        bool last = i == PERCEPTRON_LAYERS - 1;
        network_start_linear(net, &perceptron->layer[i], names[i]);
        perceptron->hidden[i] = network_reals(net, reals);
        perceptron->active[i] = last && perceptron->open ? NULL : network_reals(net, reals);
        if (net->train && !(last && perceptron->open))
            perceptron->dhidden[i] = network_reals(net, reals);
        if (net->train && !last)
            perceptron->dactive[i] = network_reals(net, reals);
    }
}

const real *perceptron_forward(
        struct network *net, const struct perceptron *perceptron, size_t rows, const real *x)
{
    for (int i = 0; i < PERCEPTRON_LAYERS; i++) {
        network_linear_forward(net, &perceptron->layer[i], rows, x, perceptron->hidden[i]);
        x = perceptron->hidden[i];
        if (!perceptron->active[i])
            continue;
        ops_relu(net->pool, rows * perceptron->width[i], perceptron->hidden[i],
                perceptron->active[i]);
        x = perceptron->active[i];
    }
    return x;
}

void perceptron_backward(struct network *net, const struct perceptron *perceptron, size_t rows,
        const real *x, const real *dy, real *dx)
{
    for (int i = PERCEPTRON_LAYERS - 1; i >= 0; i--) {
        if (perceptron->active[i]) {
            ops_relu_backward(net->pool, rows * perceptron->width[i], perceptron->active[i], dy,
                    perceptron->dhidden[i]);
            dy = perceptron->dhidden[i];
        }
        real *below = i ? perceptron->dactive[i - 1] : dx;
        network_linear_backward(
                net, &perceptron->layer[i], rows, i ? perceptron->active[i - 1] : x, dy, below);
        dy = below;
    }
}
