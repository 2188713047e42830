// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather over buffers that all ranks see. Compiled once per type. No barrier
// in here: the caller puts one after fill() and one after scatter().
#include "reference_models/native/ops/reduce.h"

#include <math.h>

#include "reference_models/native/ops/real.h"
#include "reference_models/native/rng.h"

#define REDUCE_WINDOWS 8

struct reduce_work {
    const struct reduce *reduce;
    size_t first; // block of the whole array where item 0 lies
    uint32_t key[REDUCE_RANKS_MAX];
};

static uint32_t reduce_key(const struct reduce *reduce, uint64_t step, uint32_t rank)
{
    return (uint32_t)rng_mix(rng_mix(reduce->seed ^ step) + rank);
}

// -1024 .. 1023
static inline int32_t reduce_value(uint32_t i, uint32_t key)
{
    return (int32_t)((i * 2654435761u + key) >> 21) - 1024;
}

static void reduce_for(
        struct reduce_work *work, size_t blocks, double operations, pool_fn fn, const char *name)
{
    pool_for(work->reduce->pool,
            &(struct pool_work){.count = blocks,
                    .cost = operations * (double)REDUCE_BLOCK,
                    .fn = fn,
                    .name = name,
                    .arg = work});
}

NATIVE_CLONES static void reduce_fill_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct reduce_work *work = arg;
    const struct reduce *reduce = work->reduce;
    real *restrict to = reduce->input[reduce->rank];
    uint32_t key = work->key[0];
    (void)again;
    NATIVE_SIMD
    for (size_t i = begin * REDUCE_BLOCK; i < end * REDUCE_BLOCK; i++)
        to[i] = (real)reduce_value((uint32_t)i, key);
}

static void reduce_fill(const struct reduce *reduce, uint64_t step)
{
    struct reduce_work work = {.reduce = reduce};
    work.key[0] = reduce_key(reduce, step, reduce->rank);
    reduce_for(&work, reduce->count / REDUCE_BLOCK, 1, POOL_NAMED(reduce_fill_part));
}

NATIVE_CLONES static void reduce_scatter_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct reduce_work *work = arg;
    const struct reduce *reduce = work->reduce;
    size_t origin = reduce->sharded ? work->first : 0;
    real share = 1 / (real)reduce->ranks;
    (void)again;
    for (size_t block = work->first + begin; block < work->first + end; block++) {
        size_t offset = block * REDUCE_BLOCK;
        real *restrict to = (real *)reduce->output[reduce->rank] + (block - origin) * REDUCE_BLOCK;
        const real *restrict first = (const real *)reduce->input[0] + offset;
        if (reduce->ranks == 1) {
            memcpy(to, first, REDUCE_BLOCK * sizeof(real));
            continue;
        }
        const real *restrict second = (const real *)reduce->input[1] + offset;
        NATIVE_SIMD
        for (size_t i = 0; i < REDUCE_BLOCK; i++)
            to[i] = first[i] + second[i];
        for (uint32_t rank = 2; rank < reduce->ranks; rank++) {
            const real *restrict from = (const real *)reduce->input[rank] + offset;
            NATIVE_SIMD
            for (size_t i = 0; i < REDUCE_BLOCK; i++)
                to[i] += from[i];
        }
        if (!reduce->mean)
            continue;
        NATIVE_SIMD
        for (size_t i = 0; i < REDUCE_BLOCK; i++)
            to[i] *= share;
    }
}

static void reduce_scatter(const struct reduce *reduce)
{
    struct reduce_work work = {.reduce = reduce, .first = reduce_first_block(reduce, reduce->rank)};
    size_t blocks = reduce_first_block(reduce, reduce->rank + 1) - work.first;
    reduce_for(&work, blocks, reduce->ranks, POOL_NAMED(reduce_scatter_part));
}

// Item = a block of the array; the rank that summed it up is the one whose chunk it lies in.
// Repeats write to spare memory, which is cold. Those of fill and scatter stay in place and find a
// warm cache; so a planted 5 % cost 4.3 % with all in place, and 4.8 (demo) to 5.0 % (small) this
// way.
static void reduce_gather_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct reduce_work *work = arg;
    const struct reduce *reduce = work->reduce;
    uint32_t owner = 0;
    for (size_t block = begin; block < end; block++) {
        while (block >= reduce_first_block(reduce, owner + 1))
            owner++;
        if (owner == reduce->rank && !reduce->sharded)
            continue;
        size_t origin = reduce->sharded ? reduce_first_block(reduce, owner) : 0;
        real *to = again          ? reduce->spare
                : reduce->sharded ? reduce->whole
                                  : reduce->output[reduce->rank];
        const real *from = reduce->output[owner];
        memcpy(to + block * REDUCE_BLOCK, from + (block - origin) * REDUCE_BLOCK,
                REDUCE_BLOCK * sizeof(real));
    }
}

static void reduce_gather(const struct reduce *reduce)
{
    struct reduce_work work = {.reduce = reduce};
    reduce_for(&work, reduce->count / REDUCE_BLOCK, 1, POOL_NAMED(reduce_gather_part));
}

NATIVE_CLONES static void reduce_check_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct reduce_work *work = arg;
    const struct reduce *reduce = work->reduce;
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t offset = (work->first + item) * REDUCE_BLOCK;
        const real *restrict got = (const real *)reduce->output[reduce->rank] + offset;
        int32_t sum[REDUCE_BLOCK];
        memset(sum, 0, sizeof sum);
        for (uint32_t rank = 0; rank < reduce->ranks; rank++) {
            uint32_t key = work->key[rank];
            NATIVE_SIMD
            for (size_t i = 0; i < REDUCE_BLOCK; i++)
                sum[i] += reduce_value((uint32_t)(offset + i), key);
        }
        uint64_t wrong = 0;
        double square = 0;
        NATIVE_SIMD_SUM(wrong)
        for (size_t i = 0; i < REDUCE_BLOCK; i++)
            wrong += got[i] != (real)sum[i];
        NATIVE_SIMD_SUM(square)
        for (size_t i = 0; i < REDUCE_BLOCK; i++)
            square += (double)got[i] * (double)got[i];
        reduce->block_wrong[item] = wrong;
        reduce->block_square[item] = square;
    }
}

static uint64_t reduce_check(const struct reduce *reduce, uint64_t step, double *ret_loss)
{
    size_t all = reduce->count / REDUCE_BLOCK;
    size_t window = (all + REDUCE_WINDOWS - 1) / REDUCE_WINDOWS;
    struct reduce_work work = {.reduce = reduce, .first = step % REDUCE_WINDOWS * window};
    for (uint32_t rank = 0; rank < reduce->ranks; rank++)
        work.key[rank] = reduce_key(reduce, step, rank);
    if (work.first >= all)
        work.first = 0;
    size_t blocks = all - work.first < window ? all - work.first : window;
    reduce_for(&work, blocks, 2 * reduce->ranks + 2, POOL_NAMED(reduce_check_part));
    uint64_t wrong = 0;
    double square = 0;
    for (size_t i = 0; i < blocks; i++) {
        wrong += reduce->block_wrong[i];
        square += reduce->block_square[i];
    }
    *ret_loss = square / (double)(blocks * REDUCE_BLOCK);
    return wrong;
}

static void reduce_poison(const struct reduce *reduce)
{
    real *input = reduce->input[reduce->rank];
    for (size_t i = 0; i < reduce->count; i += REDUCE_BLOCK)
        input[i] = (real)NAN;
}

const struct reduce_ops NATIVE_NAME(reduce_ops) = {
        .real_bytes = sizeof(real),
        .fill = reduce_fill,
        .scatter = reduce_scatter,
        .gather = reduce_gather,
        .check = reduce_check,
        .poison = reduce_poison,
};
