// SPDX-License-Identifier: Apache-2.0
// The two networks of recommenders that PyTorch has too (torch/dlrm.py), whatever computes them:
// three linear layers each.
#ifndef UPGATE_NATIVE_PERCEPTRON_WIDTHS_H
#define UPGATE_NATIVE_PERCEPTRON_WIDTHS_H

#include <stddef.h>

enum { PERCEPTRON_LAYERS = 3 };

// Of rows of `dim` values: the outputs of each layer of the bottom network and of the top one,
// ret[PERCEPTRON_LAYERS] each.
static inline void perceptron_widths(size_t dim, size_t *ret_bottom, size_t *ret_top)
{
    const size_t bottom[PERCEPTRON_LAYERS] = {8 * dim, 4 * dim, dim},
                 top[PERCEPTRON_LAYERS] = {16 * dim, 8 * dim, 1};
    for (size_t i = 0; i < PERCEPTRON_LAYERS; i++) {
        ret_bottom[i] = bottom[i];
        ret_top[i] = top[i];
    }
}

#endif
