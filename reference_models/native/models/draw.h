// SPDX-License-Identifier: Apache-2.0
// Seeded values of the workloads that PyTorch has too: those of torch/draw.py, bit by bit. A value
// is a function of the seed, the name of its stream and its number; integers and fp64 only.
#ifndef UPGATE_NATIVE_DRAW_H
#define UPGATE_NATIVE_DRAW_H

#include <stddef.h>
#include <stdint.h>

#include "reference_models/native/rng.h"

#define DRAW_STEP 0x9e3779b97f4a7c15u

struct draw {
    uint64_t state, k; // k: values drawn so far; a stream may be entered anywhere
};

struct draw draw_of(uint64_t seed, const char *name);

static inline uint64_t draw_next(struct draw *draw)
{
    return rng_mix(draw->k++ * DRAW_STEP + draw->state);
}

static inline double draw_uniform(struct draw *draw) // [0, 1), 53 bits
{
    return (double)(draw_next(draw) >> 11) * 0x1p-53;
}

static inline uint64_t draw_below(struct draw *draw, uint64_t bound) // [0, bound), bound up to 2^32
{
    return ((draw_next(draw) >> 32) * bound) >> 32;
}

// The start values of a parameter of two dimensions, by its name in the PyTorch model: fn(arg, i,
// value) for each.
void draw_start(uint64_t seed, const char *name, size_t count, size_t last_dimension,
        void (*fn)(void *arg, size_t i, double value), void *arg);
// Of these the `count` from number `first` on; i counts from 0.
void draw_start_from(uint64_t seed, const char *name, size_t first, size_t count,
        size_t last_dimension, void (*fn)(void *arg, size_t i, double value), void *arg);

#endif
