// SPDX-License-Identifier: Apache-2.0
// Streams by their names, and the start values of parameters (torch/common.py, initialise()). Reads
// nothing.
#include "reference_models/native/models/draw.h"

#include <math.h>
#include <stdio.h>

struct draw draw_of(uint64_t seed, const char *name)
{
    struct draw draw = {.state = rng_mix(seed)};
    for (; *name; name++)
        draw.state = rng_mix(draw.state ^ (unsigned char)*name);
    return draw;
}

void draw_start_from(uint64_t seed, const char *name, size_t first, size_t count,
        size_t last_dimension, void (*fn)(void *arg, size_t i, double value), void *arg)
{
    char stream[64];
    double bound = pow((double)last_dimension, -0.5);
    snprintf(stream, sizeof stream, "weight/%s", name);
    struct draw draw = draw_of(seed, stream);
    draw.k = first;
    for (size_t i = 0; i < count; i++)
        fn(arg, i, draw_uniform(&draw) * (2 * bound) - bound);
}

void draw_start(uint64_t seed, const char *name, size_t count, size_t last_dimension,
        void (*fn)(void *arg, size_t i, double value), void *arg)
{
    draw_start_from(seed, name, 0, count, last_dimension, fn, arg);
}
