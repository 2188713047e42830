// SPDX-License-Identifier: Apache-2.0
// The work of one rank in an all-reduce through shared memory, per type: fill the own input, add up
// one chunk of all inputs (reduce-scatter), copy the other chunks (all-gather), check exactly.
// Inputs are whole numbers below 2^10, so that the sum is exact in any order and in either type.
#ifndef UPGATE_NATIVE_REDUCE_H
#define UPGATE_NATIVE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference_models/native/pool.h"

#define REDUCE_RANKS_MAX 64
#define REDUCE_BLOCK ((size_t)2048) // elements of an item; counts are multiples of it

// One rank's view. Arrays hold `count` reals of the type of the functions.
struct reduce {
    struct pool *pool;
    uint32_t rank, ranks;
    size_t count;
    uint64_t seed;
    bool through_root; // planted: rank 0 adds up everything, the others copy it from there
    void *input[REDUCE_RANKS_MAX];  // of every rank
    void *output[REDUCE_RANKS_MAX]; // of every rank: its chunk of the sum, then all of it
    void *spare;                    // of this rank, count reals: where repeats of gather write
    double *block_square;           // scratch of the check: count / REDUCE_BLOCK entries
    uint64_t *block_wrong;          // likewise
};

struct reduce_ops {
    size_t real_bytes;
    void (*fill)(const struct reduce *reduce, uint64_t step); // writes input[rank]
    void (*scatter)(const struct reduce *reduce); // the rank's chunk of the sum -> output[rank]
    void (*gather)(const struct reduce *reduce);  // all other chunks -> output[rank]
    // Looks at an eighth of output[rank], all of it in 8 steps. Returns the number of wrong sums
    // and in *ret_loss the mean square of what it saw.
    uint64_t (*check)(const struct reduce *reduce, uint64_t step, double *ret_loss);
    void (*poison)(const struct reduce *reduce); // NaN into every block of input[rank]
};

extern const struct reduce_ops reduce_ops_f32, reduce_ops_f64;

#endif
