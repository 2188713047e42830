// SPDX-License-Identifier: Apache-2.0
// The work of one rank in an all-reduce through shared memory, per type: add up one chunk of all
// inputs (reduce-scatter), copy the other chunks (all-gather). What allreduce does besides: fill
// the own input, check exactly; its inputs are whole numbers below 2^10, so that the sum is exact
// in any order and in either type.
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
    bool mean;         // the mean of the inputs in place of their sum
    bool sharded;      // output[i] has room for the chunk of rank i alone, and gather() writes to
                       // `whole`
    void *input[REDUCE_RANKS_MAX];  // of every rank
    void *output[REDUCE_RANKS_MAX]; // of every rank: its chunk of the sum, then all of it
    void *whole;                    // of this rank, with `sharded`: all chunks, count reals
    void *spare;                    // of this rank, count reals: where repeats of gather write
    double *block_square;           // scratch of the check: count / REDUCE_BLOCK entries
    uint64_t *block_wrong;          // likewise
};

// Where the chunk of a rank begins, in blocks; it ends where that of the next one begins.
static inline size_t reduce_first_block(const struct reduce *reduce, uint32_t rank)
{
    if (reduce->through_root)
        return rank ? reduce->count / REDUCE_BLOCK : 0;
    return reduce->count / REDUCE_BLOCK * rank / reduce->ranks;
}

struct reduce_ops {
    size_t real_bytes;
    void (*fill)(const struct reduce *reduce, uint64_t step); // writes input[rank]
    void (*scatter)(const struct reduce *reduce); // the rank's chunk of the sum -> output[rank]
    // all other chunks -> output[rank]; sharded: all chunks -> whole
    void (*gather)(const struct reduce *reduce);
    // Looks at an eighth of output[rank], all of it in 8 steps. Returns the number of wrong sums
    // and in *ret_loss the mean square of what it saw.
    uint64_t (*check)(const struct reduce *reduce, uint64_t step, double *ret_loss);
    void (*poison)(const struct reduce *reduce); // NaN into every block of input[rank]
};

extern const struct reduce_ops reduce_ops_f32, reduce_ops_f64;

#endif
