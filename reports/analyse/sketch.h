// SPDX-License-Identifier: Apache-2.0
// A long tensor as few numbers that keep distances: neighbouring values are summed with random
// signs, the same for every tensor, and divided by the root of their number. The difference of two
// sketches is the sketch of the difference, and its mean square is that of the difference: so what
// compares tensors compares sketches. An error of a whole part is kept as large as it is; one of a
// single value shrinks by the root of the values in its sum.
#ifndef UPGATE_ANALYSE_SKETCH_H
#define UPGATE_ANALYSE_SKETCH_H

#include <stddef.h>

enum { SKETCH_SUMS = 4096 };

struct sketch { // {0}: empty
    double sums[SKETCH_SUMS];
    double broken[SKETCH_SUMS]; // NaN, else an Inf of this sum; 0: all are finite
    size_t count, at;
};

// For a tensor of count values, more than SKETCH_SUMS; then all of them in order, in pieces.
void sketch_begin(struct sketch *sketch, size_t count);
void sketch_add(struct sketch *sketch, const double *values, size_t count);
void sketch_end(const struct sketch *sketch, double *ret_sums); // SKETCH_SUMS of them
// The first value of a sum, of a tensor of count values; sum SKETCH_SUMS: count.
size_t sketch_first(size_t sum, size_t count);

#endif
