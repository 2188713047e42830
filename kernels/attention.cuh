// SPDX-License-Identifier: Apache-2.0
// What attention_forward.cu and attention_backward.cu share: the sizes of a problem as the kernels
// take them, what is refused, the place of a sequence, and the pieces of a product over a whole
// tile.
#ifndef UPGATE_KERNELS_ATTENTION_CUH
#define UPGATE_KERNELS_ATTENTION_CUH

#include <limits.h>
#include <math.h>

#include "kernels/hopper.cuh"

#define LOG2_E 1.44269504088896340736f
#define TILES_MAX (1 << 30) // of a launch: a block's next tile is still an int
#define HEADS_MAX 65535     // of a grid's second dimension
#define SPAN_MAX (1 << 28)

struct attention_sizes {
    int sequences, heads, key_heads, queries, keys, span;
    int together, turns, grouped; // see attention_order(), attention_order_grouped()
    float scale, weight;
    const int32_t *query_offsets, *key_offsets;
    const float *bias;
};

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
// together, grouped: of the order of tiles; turns: tiles of the longest sequence.
static inline struct attention_sizes attention_sizes(
        const struct kernel_attention *a, int64_t together, int64_t turns, int64_t grouped)
{
    return {(int)a->sequences, (int)a->heads, (int)a->key_heads, (int)a->queries, (int)a->keys,
            (int)a->span, (int)together, (int)turns, (int)grouped, a->scale, a->weight,
            a->query_offsets, a->key_offsets, a->bias};
}

// How many pairs of a sequence and a head run together: `each` bytes are what the tiles of one pair
// read again and again, and they must stay in part / whole of the L2, the rest is for what passes
// through; in 4096 x 128 all pairs at once read k and v from memory for every tile, 4.4 GB where
// 0.5 are enough.
static inline int64_t attention_together(
        const struct kernel_attention *a, int64_t pairs, int64_t each, int64_t whole, int64_t part)
{
    int device = 0, bytes = 0;
    if (a->together)
        return a->together < pairs ? a->together : pairs;
    if (cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device) != cudaSuccess)
        bytes = 0; // the launch will say what is wrong
    const int64_t fit = bytes * part / whole / (each + 1);
    return fit < 1 ? 1 : fit < pairs ? fit : pairs;
}

// How many pairs run by groups of `together`, each block a tile. When causal, the last pairs run
// all together, so many that their tiles are three of the longest for each multiprocessor, half as
// long on average: what is begun last are the shortest.
static inline int64_t attention_grouped(
        const struct kernel_attention *a, int64_t pairs, int64_t together, int64_t turns)
{
    int device = 0, multiprocessors = 0;
    if (!a->causal || turns < 2 || cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
                    cudaSuccess)
        return pairs;
    const int64_t last = 3 * multiprocessors / turns + 1;
    return last < pairs ? (pairs - last) / together * together : 0;
}
#endif

// Tile `number`: `together` pairs take turns, the first tile of each, then the second of each; then
// come the next pairs.
struct attention_turn {
    int pair, turn;
};

static __device__ __forceinline__ struct attention_turn attention_order(
        const struct attention_sizes &sizes, int pairs, int number)
{
    const int each = sizes.together * sizes.turns, first = number / each * sizes.together,
              rest = number % each;
    const int size = min(sizes.together, pairs - first);
    return {first + rest % size, rest / size};
}

// The same up to pair `grouped`; all that are left take turns. Of the backward pass: in the forward
// one blocks ask for tile after tile.
static __device__ __forceinline__ struct attention_turn attention_order_grouped(
        const struct attention_sizes &sizes, int pairs, int number)
{
    const int rest = number - sizes.grouped * sizes.turns, size = pairs - sizes.grouped;
    return rest < 0 ? attention_order(sizes, pairs, number)
                    : attention_turn{sizes.grouped + rest % size, rest / size};
}

// One sequence: its first rows and its lengths. Key j is seen by query i where j <= i + shift, when
// causal.
struct attention_place {
    int query, queries, key, keys, shift;
};

static __device__ __forceinline__ struct attention_place attention_place(
        const struct attention_sizes &sizes, int sequence)
{
    struct attention_place place;
    place.query = sizes.query_offsets[sequence];
    place.queries = sizes.query_offsets[sequence + 1] - place.query;
    place.key = sizes.key_offsets[sequence];
    place.keys = sizes.key_offsets[sequence + 1] - place.key;
    place.shift = place.keys - place.queries;
    return place;
}

// sums[64][N] (+)= 64 rows of the left tile times the N rows of the right one, both summed along
// their rows of DIM columns.
template <typename T, int N, int DIM, int LEFT_ROWS, int RIGHT_ROWS>
static __device__ __forceinline__ void products_along(
        float (&sums)[N / 2], uint64_t left, uint64_t right)
{
#pragma unroll
    for (int step = 0; step < DIM / 16; step++)
        wgmma<N>::template tiles<T, false, false>(sums, left + step_along<LEFT_ROWS>(step),
                right + step_along<RIGHT_ROWS>(step), step > 0);
}
// sums[64][N] (+)= 64 x SUM values in registers times SUM rows of the right tile, N columns.
template <typename T, int N, int SUM>
static __device__ __forceinline__ void products_down(
        float (&sums)[N / 2], const uint32_t (&left)[SUM / 4], uint64_t right, bool keep)
{
#pragma unroll
    for (int step = 0; step < SUM / 16; step++)
        wgmma<N>::template registers<T, true>(
                sums, left + 4 * step, right + step_down(step), step > 0 || keep);
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static inline int attention_check(const struct kernel_attention *a, struct error *err)
{
    const bool silu = a->scores == KERNEL_SILU;
    if (a->type != KERNEL_FLOAT16 && a->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL,
                "attention: type %s is not supported: float16 and bfloat16 are",
                kernel_type_name(a->type));
    if (a->scores != KERNEL_SOFTMAX && a->scores != KERNEL_SILU)
        return error_set(
                err, -EINVAL, "attention: scores %d: softmax (0) or SiLU (1)", (int)a->scores);
    if (a->dim != 64 && a->dim != 128 && !(a->dim == 256 && silu))
        return error_set(err, -EINVAL,
                "attention: heads of %lld columns are not supported: 64, 128%s are",
                (long long)a->dim, silu ? " and 256" : "");
    if (a->sequences < 1 || a->sequences > 1 << 20)
        return error_set(err, -EINVAL, "attention: %lld sequences: 1 to %d are supported",
                (long long)a->sequences, 1 << 20);
    if (a->heads < 1 || a->heads > HEADS_MAX || a->key_heads < 1 || a->heads % a->key_heads != 0)
        return error_set(err, -EINVAL,
                "attention: %lld heads over %lld of keys: 1 to %d, the first a multiple of the second",
                (long long)a->heads, (long long)a->key_heads, HEADS_MAX);
    if (a->queries < 0 || a->keys < 0 || a->queries > 1 << 30 || a->keys > 1 << 30)
        return error_set(err, -EINVAL,
                "attention: %lld queries and %lld keys: 0 to %d are supported",
                (long long)a->queries, (long long)a->keys, 1 << 30);
    if (a->longest_queries < 0 || a->longest_keys < 0 || a->longest_queries > a->queries ||
            a->longest_keys > a->keys)
        return error_set(err, -EINVAL,
                "attention: the longest sequence has %lld queries and %lld keys, all have %lld and %lld",
                (long long)a->longest_queries, (long long)a->longest_keys, (long long)a->queries,
                (long long)a->keys);
    if (!(a->scale > 0 && a->scale < INFINITY) || (silu && !(fabsf(a->weight) < INFINITY)))
        return error_set(err, -EINVAL,
                "attention: scale %g, weight %g: the scale must be above 0, both finite",
                (double)a->scale, (double)a->weight);
    if (a->bias &&
            (!silu || a->span < a->longest_queries || a->span < a->longest_keys ||
                    a->span > SPAN_MAX))
        return error_set(err, -EINVAL,
                "attention: a bias of span %lld: of SiLU only, no less than the longest sequence, at most %d",
                (long long)a->span, SPAN_MAX);
    if (a->together < 0)
        return error_set(
                err, -EINVAL, "attention: %lld pairs together: 0 or more", (long long)a->together);
    if (!a->query_offsets || !a->key_offsets)
        return error_set(err, -EINVAL, "attention: query_offsets and key_offsets must not be NULL");
    if (!a->q || !a->k || !a->v || !a->out ||
            ((uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->out) % 16 != 0)
        return error_set(err, -EINVAL,
                "attention: q, k, v or out is NULL or does not start at a multiple of 16 bytes");
    int device = 0, major = 0;
    if (cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
                    cudaSuccess &&
            major != 9)
        return error_set(err, -ENOSYS,
                "attention: GPUs of compute capability %d are not supported: 9 (Hopper) is, whose wgmma it is made of",
                major);
    return 0;
}
#endif

#endif
