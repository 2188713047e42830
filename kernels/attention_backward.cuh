// SPDX-License-Identifier: Apache-2.0
// What attention_backward.cu and attention_backward_wide.cu share: the blocks of queries and their
// sums, the tile of keys of a block, how it is brought, a thread's scores and slopes, and the first
// and the last of the three kernels. A shape S says the sizes.
#ifndef UPGATE_KERNELS_ATTENTION_BACKWARD_CUH
#define UPGATE_KERNELS_ATTENTION_BACKWARD_CUH

#include "kernels/attention.cuh"

#define QUERIES 64

// Blocks of queries lie one sequence after the other: the first of sequence s is offset / QUERIES +
// s, so no two share one.
struct backward_scratch {
    float *sums; // [heads][blocks][PARTS][COLUMNS / 8][128 threads][4]
    float *rows; // [heads][blocks][2][QUERIES]: lse * log2(e), infinite where p is to be 0, and
                 // delta
    int blocks;
};
static __device__ __forceinline__ size_t backward_block(
        const struct backward_scratch &scratch, int head, int query, int sequence, int block)
{
    return (size_t)head * (size_t)scratch.blocks + (size_t)(query / QUERIES + sequence + block);
}

struct backward_tile {
    struct attention_place place;
    int sequence, key_head, key; // the first of the tile's keys
    // of the blocks of queries that see some: the first, how many, times heads
    int first, blocks, steps;
    bool none;
};

template <typename S>
static __device__ __forceinline__ struct backward_tile backward_tile(
        const struct attention_sizes &sizes, bool causal, int number)
{
    struct backward_tile tile;
    const struct attention_turn order =
            attention_order_grouped(sizes, sizes.sequences * sizes.key_heads, number);
    tile.key_head = order.pair % sizes.key_heads;
    tile.sequence = order.pair / sizes.key_heads;
    tile.place = attention_place(sizes, tile.sequence);
    // the first keys are seen by the most queries: the longest work comes first
    tile.key = order.turn * S::KEYS;
    tile.none = tile.key >= tile.place.keys;
    tile.first = causal ? max(0, tile.key - tile.place.shift) / QUERIES : 0;
    tile.blocks = max(0, (tile.place.queries + QUERIES - 1) / QUERIES - tile.first);
    tile.steps = tile.blocks * (sizes.heads / sizes.key_heads);
    return tile;
}

template <typename S> static __device__ __forceinline__ void backward_barriers(uint32_t shared)
{
    if (threadIdx.x == 0) {
        barrier_init(shared + S::KV_FULL, 1);
        for (int stage = 0; stage < S::STAGES; stage++) {
            barrier_init(shared + S::Q_FULL + 8 * stage, 1);
            barrier_init(shared + S::O_FULL + 8 * stage, 1);
            barrier_init(shared + S::Q_EMPTY + 8 * stage, S::THREADS - 128);
            barrier_init(shared + S::O_EMPTY + 8 * stage, S::THREADS - 128);
        }
        barriers_ready();
    }
    __syncthreads();
}

template <typename S>
static __device__ __forceinline__ void backward_bring(const CUtensorMap *map_q,
        const CUtensorMap *map_k, const CUtensorMap *map_v, const CUtensorMap *map_dout,
        const struct attention_sizes &sizes, const struct backward_tile &tile,
        const struct backward_scratch &scratch, uint32_t shared)
{
    const int group = sizes.heads / sizes.key_heads;
    barrier_expect(shared + S::KV_FULL, 2 * S::K_BYTES);
    tile_load<S::KEYS, S::DIM>(
            shared, map_k, shared + S::KV_FULL, tile.key_head, tile.place.key + tile.key);
    tile_load<S::KEYS, S::DIM>(
            shared + S::V, map_v, shared + S::KV_FULL, tile.key_head, tile.place.key + tile.key);
    cursor<S::STAGES> at;
    for (int step = 0; step < tile.steps; step++) {
        const int head = tile.key_head * group + step / tile.blocks,
                  block = tile.first + step % tile.blocks;
        const int row = tile.place.query + block * QUERIES;
        const float *rows = scratch.rows +
                backward_block(scratch, head, tile.place.query, tile.sequence, block) * 2 * QUERIES;
        const uint32_t q_full = shared + S::Q_FULL + 8 * at.stage,
                       o_full = shared + S::O_FULL + 8 * at.stage;
        barrier_wait(shared + S::Q_EMPTY + 8 * at.stage, at.parity ^ 1);
        barrier_expect(q_full, S::Q_BYTES + (S::SILU ? 0 : S::ROW_BYTES));
        tile_load<QUERIES, S::DIM>(shared + S::Q + at.stage * S::Q_BYTES, map_q, q_full, head, row);
        if (!S::SILU)
            bytes_load(shared + S::LSE + at.stage * S::ROW_BYTES, rows, S::ROW_BYTES, q_full);
        barrier_wait(shared + S::O_EMPTY + 8 * at.stage, at.parity ^ 1);
        barrier_expect(o_full, S::Q_BYTES + (S::SILU ? 0 : S::ROW_BYTES));
        tile_load<QUERIES, S::DIM>(
                shared + S::O + at.stage * S::Q_BYTES, map_dout, o_full, head, row);
        if (!S::SILU)
            bytes_load(shared + S::DELTA + at.stage * S::ROW_BYTES, rows + QUERIES, S::ROW_BYTES,
                    o_full);
        at.next();
    }
}

static __device__ __forceinline__ float2 shared_pair(uint32_t address)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
    return pair;
}

// The scores of one thread, keys `key` and key + 8 of queries first + 8 * j and the one after,
// become p in `words`, and the slope of silu in `slopes`. Both packed: in float32 they do not fit.
template <typename S>
static __device__ __forceinline__ void backward_scores(const float (&s)[QUERIES / 2],
        uint32_t (&words)[QUERIES / 4], uint32_t (&slopes)[QUERIES / 4],
        const struct attention_sizes &sizes, const struct attention_place &place,
        const float *bias /* of the head, place 0 */, bool masked, bool causal, int key, int first,
        uint32_t lse)
{
    const float scale = S::SILU ? sizes.scale * 0.5f : sizes.scale * LOG2_E;
    const int late = causal ? place.shift : INT_MAX / 2, limit = S::SILU ? place.queries : INT_MAX;
#pragma unroll
    for (int j = 0; j < QUERIES / 8; j++) {
        float p[4], slope[4], base[2] = {0, 0};
        if (!S::SILU) {
            const float2 pair = shared_pair(lse + 32 * j);
            base[0] = pair.x;
            base[1] = pair.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = first + 8 * j + i % 2, at = key + 8 * (i / 2);
            const bool seen = !masked || (at <= query + late && at < place.keys && query < limit);
            const float value = s[4 * j + i];
            if (S::SILU) {
                float h = value * scale;
                if (S::BIAS)
                    h += 0.5f * __ldg(bias + (seen ? query + place.shift - at : 0));
                const float t = fast_tanh(h), sigmoid = fmaf(0.5f, t, 0.5f), silu = fmaf(h, t, h);
                p[i] = seen ? silu : 0;
                slope[i] = seen ? fmaf(silu, 1 - sigmoid, sigmoid) : 0;
            } else {
                p[i] = seen ? fast_exp2(fmaf(value, scale, -base[i % 2])) : 0;
            }
        }
        words[2 * j] = pair_pack(p[0], p[1], typename S::type());
        words[2 * j + 1] = pair_pack(p[2], p[3], typename S::type());
        if (S::SILU) {
            slopes[2 * j] = pair_pack(slope[0], slope[1], typename S::type());
            slopes[2 * j + 1] = pair_pack(slope[2], slope[3], typename S::type());
        }
    }
}

// ds of one thread, packed, and into the tile of ds [KEYS][QUERIES] in shared memory; tile: where
// the thread's first two values are.
template <typename S>
static __device__ __forceinline__ void backward_slopes(const uint32_t (&slopes)[QUERIES / 4],
        const float (&dp)[QUERIES / 2], uint32_t (&words)[QUERIES / 4], uint32_t delta,
        uint32_t tile)
{
#pragma unroll
    for (int j = 0; j < QUERIES / 8; j++) {
        float2 base = make_float2(0, 0);
        if (!S::SILU)
            base = shared_pair(delta + 32 * j);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 slope = pair_unpack(slopes[2 * j + i], typename S::type());
            words[2 * j + i] = pair_pack(slope.x * (dp[4 * j + 2 * i] - base.x),
                    slope.y * (dp[4 * j + 2 * i + 1] - base.y), typename S::type());
        }
        const uint32_t piece = tile ^ 16 * j; // the swizzle; the row's part of it is in tile
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(piece), "r"(words[2 * j]) : "memory");
        asm volatile(
                "st.shared.b32 [%0], %1;" ::"r"(piece + 8 * PANEL_ROW_BYTES), "r"(words[2 * j + 1])
                : "memory");
    }
}

// Adds up the tile of ds along its diagonals, a thread each, 0 to KEYS + QUERIES - 2: all pairs of
// one distance. The tile stays until the second barrier from here. to: where distance 0 of the
// tile's first query and first key belongs; rest: how many are before it and from it on.
template <typename S>
static __device__ __forceinline__ void backward_bias(
        int diagonal, uint32_t tile, float weight, float *to, int before, int rest)
{
    const int distance = diagonal - (S::KEYS - 1);
    float sum = 0;
    if (diagonal >= S::KEYS + QUERIES - 1 || distance < -before || distance >= rest)
        return;
    for (int query = max(0, distance); query < min(QUERIES, distance + S::KEYS); query++) {
        const int key = query - distance;
        uint16_t bits;
        asm volatile(
                "ld.shared.u16 %0, [%1];"
                : "=h"(bits)
                : "r"(tile + key * PANEL_ROW_BYTES + (query / 8 ^ key % 8) * 16 + query % 8 * 2));
        typename S::type value;
        memcpy(&value, &bits, 2);
        sum += (float)value;
    }
    atomicAdd(to + distance, weight * sum);
}

// A block of queries of one head: of the first and the last kernel. x: blocks of the longest
// sequence x sequences, y: heads.
template <typename S>
static __device__ __forceinline__ bool backward_rows(const struct attention_sizes &sizes,
        const struct backward_scratch &scratch, struct attention_place *place, int *row,
        size_t *block)
{
    const int sequence = (int)blockIdx.x % sizes.sequences,
              number = (int)blockIdx.x / sizes.sequences;
    *place = attention_place(sizes, sequence);
    *row = number * QUERIES;
    *block = backward_block(scratch, (int)blockIdx.y, place->query, sequence, number);
    return *row < place->queries;
}

template <typename S>
static __global__ void __launch_bounds__(256)
        backward_begin(const __grid_constant__ struct attention_sizes sizes,
                const __grid_constant__ struct backward_scratch scratch,
                const typename S::type *__restrict__ out, const typename S::type *__restrict__ dout,
                const float *__restrict__ lse)
{
    constexpr int LANES = S::DIM / 8; // of a row, 16 bytes each
    struct attention_place place;
    size_t block;
    int first;
    if (!backward_rows<S>(sizes, scratch, &place, &first, &block))
        return;
    float4 *sums = (float4 *)(scratch.sums + block * QUERIES * S::DIM);
    for (int i = (int)threadIdx.x; i < QUERIES * S::DIM / 4; i += 256)
        sums[i] = make_float4(0, 0, 0, 0);
    for (int i = (int)threadIdx.x / LANES; !S::SILU && i < QUERIES; i += 256 / LANES) {
        const bool inside = first + i < place.queries;
        const int64_t at =
                ((int64_t)(place.query + first + i) * sizes.heads + blockIdx.y) * S::DIM +
                threadIdx.x % LANES * 8;
        float delta = 0;
        if (inside) {
            const uint4 a = *(const uint4 *)(out + at), b = *(const uint4 *)(dout + at);
            const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int word = 0; word < 4; word++) {
                const float2 x = pair_unpack(left[word], typename S::type()),
                             y = pair_unpack(right[word], typename S::type());
                delta = fmaf(x.x, y.x, fmaf(x.y, y.y, delta));
            }
        }
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
        if (threadIdx.x % LANES == 0) {
            const float of_row = inside
                    ? lse[(int64_t)blockIdx.y * sizes.queries + place.query + first + i]
                    : -INFINITY;
            scratch.rows[block * 2 * QUERIES + i] =
                    of_row == -INFINITY ? INFINITY : of_row * LOG2_E;
            scratch.rows[block * 2 * QUERIES + QUERIES + i] = delta;
        }
    }
}

template <typename S>
static __global__ void __launch_bounds__(128 * S::PARTS) backward_end(
        const __grid_constant__ struct attention_sizes sizes,
        const __grid_constant__ struct backward_scratch scratch, typename S::type *__restrict__ dq)
{
    struct attention_place place;
    size_t block;
    int first;
    if (!backward_rows<S>(sizes, scratch, &place, &first, &block))
        return;
    const int part = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128;
    const float4 *from =
            (const float4 *)(scratch.sums + block * QUERIES * S::DIM + part * S::PART_SUMS) +
            thread;
    float sums[S::COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 8; i++) {
        const float4 four = __ldcs(from + 128 * i);
        sums[4 * i] = four.x;
        sums[4 * i + 1] = four.y;
        sums[4 * i + 2] = four.z;
        sums[4 * i + 3] = four.w;
    }
    const int row = first + thread / 32 * 16 + thread % 32 / 4;
    const float scale = sizes.scale * (S::SILU ? sizes.weight : 1), factor[2] = {scale, scale};
    const bool inside[2] = {row < place.queries, row + 8 < place.queries};
    const int64_t stride = (int64_t)sizes.heads * S::DIM;
    sums_store(sums, factor, inside,
            dq + (place.query + row) * stride + blockIdx.y * S::DIM + part * S::COLUMNS, stride);
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static int64_t backward_blocks(const struct kernel_attention *a)
{
    return a->queries / QUERIES + a->sequences;
}

static size_t backward_sums_bytes(const struct kernel_attention *a)
{
    return (size_t)(backward_blocks(a) * a->heads) * (size_t)(QUERIES * a->dim) * 4;
}

template <typename S, typename KERNEL>
static int backward_run(KERNEL *multiply, const struct kernel_attention *a,
        const struct kernel_attention_gradient *g, cudaStream_t stream, struct error *err)
{
    typedef typename S::type T;
    const int64_t turns = (a->longest_keys + S::KEYS - 1) / S::KEYS,
                  pairs = a->sequences * a->key_heads, tiles = turns * pairs;
    const int64_t rows = (a->longest_queries + QUERIES - 1) / QUERIES * a->sequences;
    // read again: q and dout of the head that is at work, and the sums of dq
    const int64_t together = attention_together(a, pairs, a->longest_queries * S::DIM * 8, 3, 1);
    const struct attention_sizes sizes =
            attention_sizes(a, together, turns, attention_grouped(a, pairs, together, turns));
    const struct backward_scratch scratch = {(float *)g->scratch,
            (float *)((char *)g->scratch + backward_sums_bytes(a)), (int)backward_blocks(a)};
    const dim3 blocks((unsigned)rows, (unsigned)a->heads);
    CUtensorMap q, k, v, dout;
    int resident, rc;

    if (tiles > TILES_MAX || rows > TILES_MAX)
        return error_set(err, -EINVAL,
                "attention backward: %lld tiles of keys, %lld of queries: at most %d are supported",
                (long long)tiles, (long long)rows, TILES_MAX);
    if ((rc = tensor_map(&q, a->q, a->type, a->queries, a->heads, S::DIM, QUERIES, err)) ||
            (rc = tensor_map(
                     &dout, g->dout, a->type, a->queries, a->heads, S::DIM, QUERIES, err)) ||
            (rc = tensor_map(&k, a->k, a->type, a->keys, a->key_heads, S::DIM, S::KEYS, err)) ||
            (rc = tensor_map(&v, a->v, a->type, a->keys, a->key_heads, S::DIM, S::KEYS, err)) ||
            (rc = device_resident((const void *)multiply, S::THREADS, S::BYTES, &resident, err)))
        return rc;
    if (S::DBIAS) {
        const cudaError_t error =
                cudaMemsetAsync(g->dbias, 0, (size_t)(a->heads * (2 * a->span - 1)) * 4, stream);
        if (error != cudaSuccess)
            return device_error(error, "clear the gradient of the bias", err);
    }
    if (rows > 0)
        backward_begin<S><<<blocks, 256, 0, stream>>>(
                sizes, scratch, (const T *)a->out, (const T *)g->dout, a->lse);
    if (tiles > 0)
        multiply<<<(unsigned)tiles, S::THREADS, S::BYTES, stream>>>(
                q, k, v, dout, sizes, a->causal, scratch, (T *)g->dk, (T *)g->dv, g->dbias);
    if (rows > 0)
        backward_end<S><<<blocks, 128 * S::PARTS, 0, stream>>>(sizes, scratch, (T *)g->dq);
    return device_error(cudaGetLastError(), "launch attention backward", err);
}

// Heads of 256 columns, of attention_backward_wide.cu.
int backward_wide(const struct kernel_attention *a, const struct kernel_attention_gradient *g,
        cudaStream_t stream, struct error *err);
#endif

#endif
