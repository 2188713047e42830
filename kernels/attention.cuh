// SPDX-License-Identifier: Apache-2.0
// What attention_forward.cu and attention_backward.cu share: the sizes of a problem as the kernels take them, what is refused, the place of
// a sequence, and the pieces of a product over a whole tile.
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
    float scale, weight;
    const int32_t *query_offsets, *key_offsets;
    const float *bias;
};

static inline struct attention_sizes attention_sizes(const struct kernel_attention *a)
{
    return {(int)a->sequences, (int)a->heads, (int)a->key_heads, (int)a->queries,  (int)a->keys, (int)a->span, a->scale,
            a->weight,         a->query_offsets, a->key_offsets, a->bias};
}

// One sequence: its first rows and its lengths. Key j is seen by query i where j <= i + shift, when causal.
struct attention_place {
    int query, queries, key, keys, shift;
};

static __device__ __forceinline__ struct attention_place attention_place(const struct attention_sizes &sizes, int sequence)
{
    struct attention_place place;
    place.query = sizes.query_offsets[sequence];
    place.queries = sizes.query_offsets[sequence + 1] - place.query;
    place.key = sizes.key_offsets[sequence];
    place.keys = sizes.key_offsets[sequence + 1] - place.key;
    place.shift = place.keys - place.queries;
    return place;
}

// sums[64][N] (+)= 64 rows of the left tile times the N rows of the right one, both summed along their rows of DIM columns.
template <typename T, int N, int DIM, int LEFT_ROWS, int RIGHT_ROWS>
static __device__ __forceinline__ void products_along(float (&sums)[N / 2], uint64_t left, uint64_t right)
{
#pragma unroll
    for (int step = 0; step < DIM / 16; step++)
        wgmma<N>::template tiles<T, false, false>(sums, left + step_along<LEFT_ROWS>(step), right + step_along<RIGHT_ROWS>(step), step > 0);
}
// sums[64][N] (+)= 64 x SUM values in registers times SUM rows of the right tile, N columns.
template <typename T, int N, int SUM>
static __device__ __forceinline__ void products_down(float (&sums)[N / 2], const uint32_t (&left)[SUM / 4], uint64_t right, bool keep)
{
#pragma unroll
    for (int step = 0; step < SUM / 16; step++)
        wgmma<N>::template registers<T, true>(sums, left + 4 * step, right + step_down(step), step > 0 || keep);
}

// Stores a warp's 16 rows of `sums` (as sums_pack() says), times one factor for row and one for row + 8, to to[row * stride]. The four
// threads of a row turn 4 x 4 words round so that each has 16 bytes of its own. inside: of the two rows.
template <typename T, int COUNT>
static __device__ __forceinline__ void sums_store(const float (&sums)[COUNT], const float (&factor)[2], const bool (&inside)[2], T *to,
                                                  int64_t stride)
{
    const int quad = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        T *row = to + 8 * half * stride;
#pragma unroll
        for (int group = 0; group < COUNT / 16; group++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pair_pack(sums[16 * group + 4 * i + 2 * half] * factor[half],
                                    sums[16 * group + 4 * i + 2 * half + 1] * factor[half], T());
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const uint32_t other = __shfl_xor_sync(0xffffffffu, quad & 1 ? word[i] : word[i + 1], 1);
                word[i] = quad & 1 ? other : word[i];
                word[i + 1] = quad & 1 ? word[i + 1] : other;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t other = __shfl_xor_sync(0xffffffffu, quad & 2 ? word[i] : word[i + 2], 2);
                word[i] = quad & 2 ? other : word[i];
                word[i + 2] = quad & 2 ? word[i + 2] : other;
            }
            if (inside[half])
                *(uint4 *)(row + 32 * group + 8 * quad) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

static inline int attention_check(const struct kernel_attention *a, struct error *err)
{
    const bool silu = a->scores == KERNEL_SILU;
    if (a->type != KERNEL_FLOAT16 && a->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL, "attention: type %s is not supported: float16 and bfloat16 are", kernel_type_name(a->type));
    if (a->scores != KERNEL_SOFTMAX && a->scores != KERNEL_SILU)
        return error_set(err, -EINVAL, "attention: scores %d: softmax (0) or SiLU (1)", (int)a->scores);
    if (a->dim != 64 && a->dim != 128 && !(a->dim == 256 && silu))
        return error_set(err, -EINVAL, "attention: heads of %lld columns are not supported: 64, 128%s are", (long long)a->dim,
                         silu ? " and 256" : "");
    if (a->sequences < 1 || a->sequences > 1 << 20)
        return error_set(err, -EINVAL, "attention: %lld sequences: 1 to %d are supported", (long long)a->sequences, 1 << 20);
    if (a->heads < 1 || a->heads > HEADS_MAX || a->key_heads < 1 || a->heads % a->key_heads != 0)
        return error_set(err, -EINVAL, "attention: %lld heads over %lld of keys: 1 to %d, the first a multiple of the second",
                         (long long)a->heads, (long long)a->key_heads, HEADS_MAX);
    if (a->queries < 0 || a->keys < 0 || a->queries > 1 << 30 || a->keys > 1 << 30)
        return error_set(err, -EINVAL, "attention: %lld queries and %lld keys: 0 to %d are supported", (long long)a->queries,
                         (long long)a->keys, 1 << 30);
    if (a->longest_queries < 0 || a->longest_keys < 0 || a->longest_queries > a->queries || a->longest_keys > a->keys)
        return error_set(err, -EINVAL, "attention: the longest sequence has %lld queries and %lld keys, all have %lld and %lld",
                         (long long)a->longest_queries, (long long)a->longest_keys, (long long)a->queries, (long long)a->keys);
    if (!(a->scale > 0 && a->scale < INFINITY) || (silu && !(fabsf(a->weight) < INFINITY)))
        return error_set(err, -EINVAL, "attention: scale %g, weight %g: the scale must be above 0, both finite", (double)a->scale,
                         (double)a->weight);
    if (a->bias && (!silu || a->span < a->longest_queries || a->span < a->longest_keys || a->span > SPAN_MAX))
        return error_set(err, -EINVAL, "attention: a bias of span %lld: of SiLU only, no less than the longest sequence, at most %d",
                         (long long)a->span, SPAN_MAX);
    if (!a->query_offsets || !a->key_offsets)
        return error_set(err, -EINVAL, "attention: query_offsets and key_offsets must not be NULL");
    if (!a->q || !a->k || !a->v || !a->out ||
        ((uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->out) % 16 != 0)
        return error_set(err, -EINVAL, "attention: q, k, v or out is NULL or does not start at a multiple of 16 bytes");
    return 0;
}

#endif
