// SPDX-License-Identifier: Apache-2.0
// Signed sums of neighbours. The signs are bits of a generator that is asked by position, so that
// both sides, and every version of us, sum alike: they stand in stores.
#include "reports/analyse/sketch.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t sketch_signs(size_t word) // splitmix64 at this place
{
    uint64_t bits = ((uint64_t)word + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

size_t sketch_first(size_t sum, size_t count)
{
    size_t whole = count / SKETCH_SUMS, rest = count % SKETCH_SUMS;
    return sum * whole + sum * rest / SKETCH_SUMS;
}

void sketch_begin(struct sketch *sketch, size_t count)
{
    memset(sketch, 0, sizeof *sketch);
    sketch->count = count;
}

void sketch_add(struct sketch *sketch, const double *values, size_t count)
{
    // The sum that holds a place: the guess is at most one too low.
    size_t sum = (size_t)((double)sketch->at / (double)sketch->count * SKETCH_SUMS);
    while (sum > 0 && sketch_first(sum, sketch->count) > sketch->at)
        sum--;
    size_t next = sketch_first(sum + 1, sketch->count);
    uint64_t signs = sketch_signs(sketch->at / 64);
    for (size_t i = 0; i < count && sketch->at < sketch->count; i++, sketch->at++) {
        if (sketch->at % 64 == 0)
            signs = sketch_signs(sketch->at / 64);
        while (sketch->at >= next)
            next = sketch_first(++sum + 1, sketch->count);
        if (isfinite(values[i]))
            sketch->sums[sum] += signs >> (sketch->at % 64) & 1 ? values[i] : -values[i];
        else if (isnan(values[i]) || sketch->broken[sum] == 0)
            sketch->broken[sum] = values[i];
    }
}

void sketch_end(const struct sketch *sketch, double *ret_sums)
{
    for (size_t sum = 0; sum < SKETCH_SUMS; sum++) {
        size_t width = sketch_first(sum + 1, sketch->count) - sketch_first(sum, sketch->count);
        ret_sums[sum] = sketch->broken[sum] != 0 ? sketch->broken[sum]
                                                 : sketch->sums[sum] / sqrt((double)width);
    }
}
