// SPDX-License-Identifier: Apache-2.0
// Attention forward: softmax(scale * q k^T) v, or weight * silu(scale * q k^T + bias) v, as
// kernels.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/attention_forward.cu
// Operations: 4 * dim for each pair of query and key that see each other (causal: half of all
// pairs). Bytes: q, k, v, out once, some 1000 operations each at 8192 keys: bound by the matrix
// units. The exponentials are second: one a pair at 16 a cycle and multiprocessor take half as long
// as the products at dim 128, all of it at 64.
//
// A block stays (one a multiprocessor) and takes tiles of 64 * GROUPS queries of one head, the
// longest first. One thread brings q, then k and v in pieces of KEYS rows, last first, into STAGES
// places; GROUPS warpgroups of 64 queries each multiply. A group starts q k^T of a piece together
// with p v of the one before, and turns the scores of this into p while that still runs; with TURNS
// the groups start their products in turn, so that one multiplies while the other has its
// exponentials.
#include "kernels/attention.cuh"

template <typename T, int DIM_, int GROUPS_, int KEYS_, int STAGES_, bool SILU_, bool BIAS_,
        bool TURNS_>
struct forward_shape {
    typedef T type;
    static constexpr int DIM = DIM_, GROUPS = GROUPS_, KEYS = KEYS_, STAGES = STAGES_,
                         ROWS = 64 * GROUPS;
    static constexpr bool SILU = SILU_, BIAS = BIAS_, TURNS = TURNS_;
    static constexpr int THREADS = 128 * (GROUPS + 1), RAISED = GROUPS == 2 ? 240 : 160,
                         LOWERED = GROUPS == 2 ? 24 : 32;
    static constexpr uint32_t Q_BYTES = ROWS * DIM * 2, PIECE_BYTES = KEYS * DIM * 2;
    static constexpr uint32_t K = Q_BYTES, V = K + STAGES * PIECE_BYTES,
                              BARRIERS = V + STAGES * PIECE_BYTES;
    static constexpr uint32_t Q_FULL = BARRIERS, Q_EMPTY = Q_FULL + 8, K_FULL = Q_EMPTY + 8,
                              K_EMPTY = K_FULL + 8 * STAGES, V_FULL = K_EMPTY + 8 * STAGES,
                              V_EMPTY = V_FULL + 8 * STAGES, BYTES = V_EMPTY + 8 * STAGES + 1024;
};

// A tile of queries: none when there is no such row; pieces 0 when it sees no keys.
struct forward_tile {
    struct attention_place place;
    int head, row, pieces;
    bool none;
};

template <typename S>
static __device__ __forceinline__ struct forward_tile forward_tile(
        const struct attention_sizes &sizes, bool causal, int number)
{
    struct forward_tile tile;
    const struct attention_turn order =
            attention_order(sizes, sizes.sequences * sizes.heads, number);
    const int turn = order.turn;
    tile.head = order.pair % sizes.heads;
    tile.place = attention_place(sizes, order.pair / sizes.heads);
    const int count = (tile.place.queries + S::ROWS - 1) / S::ROWS;
    tile.row = (causal ? count - 1 - turn : turn) * S::ROWS;
    tile.none = turn >= count;
    const int seen =
            causal ? min(tile.place.keys, tile.row + S::ROWS + tile.place.shift) : tile.place.keys;
    tile.pieces = seen > 0 ? (seen + S::KEYS - 1) / S::KEYS : 0;
    return tile;
}

// The tile of this block in a round of all blocks. Where pairs come one after the other, the rounds
// go there and back, as the first tiles of a round are longer than the last.
static __device__ __forceinline__ int forward_number(const struct attention_sizes &sizes, int round)
{
    const int block = (int)blockIdx.x, blocks = (int)gridDim.x;
    return round * blocks +
            (round % 2 && sizes.together < sizes.sequences * sizes.heads ? blocks - 1 - block
                                                                         : block);
}

template <typename S>
static __device__ __forceinline__ void forward_bring(const CUtensorMap *map_q,
        const CUtensorMap *map_k, const CUtensorMap *map_v, const struct attention_sizes &sizes,
        bool causal, int tiles, uint32_t shared)
{
    cursor<S::STAGES> at_k, at_v;
    uint32_t parity = 0;
    for (int round = 0; round * (int)gridDim.x < tiles; round++) {
        if (forward_number(sizes, round) >= tiles)
            continue;
        const struct forward_tile tile =
                forward_tile<S>(sizes, causal, forward_number(sizes, round));
        if (tile.none || tile.pieces == 0)
            continue;
        const int head = tile.head / (sizes.heads / sizes.key_heads);
        auto bring = [&](cursor<S::STAGES> &at, const CUtensorMap *map, uint32_t tiles_at,
                             uint32_t full, uint32_t empty, int piece) {
            barrier_wait(shared + empty + 8 * at.stage, at.parity ^ 1);
            barrier_expect(shared + full + 8 * at.stage, S::PIECE_BYTES);
            tile_load<S::KEYS, S::DIM>(shared + tiles_at + at.stage * S::PIECE_BYTES, map,
                    shared + full + 8 * at.stage, head, tile.place.key + piece * S::KEYS);
            at.next();
        };
        bring(at_k, map_k, S::K, S::K_FULL, S::K_EMPTY, tile.pieces - 1);
        barrier_wait(shared + S::Q_EMPTY, parity ^ 1);
        barrier_expect(shared + S::Q_FULL, S::Q_BYTES);
        tile_load<S::ROWS, S::DIM>(
                shared, map_q, shared + S::Q_FULL, tile.head, tile.place.query + tile.row);
        parity ^= 1;
        for (int piece = tile.pieces - 2; piece >= 0; piece--) {
            bring(at_k, map_k, S::K, S::K_FULL, S::K_EMPTY, piece);
            bring(at_v, map_v, S::V, S::V_FULL, S::V_EMPTY, piece + 1);
        }
        bring(at_v, map_v, S::V, S::V_FULL, S::V_EMPTY, 0);
    }
}

// The scores of one thread: two rows of a piece. They become p; `factor` is what earlier sums are
// now worth.
template <typename S> struct forward_scores {
    static constexpr int COUNT = S::KEYS / 2;
    float maximum[2], sum[2], factor[2];
    int last[2];              // the last key that the row sees
    const float *bias_row[2]; // so that bias_row[r][-key] is its bias

    __device__ __forceinline__ void start(const struct attention_sizes &sizes,
            const struct forward_tile &tile, bool causal, int row)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int query = row + 8 * r;
            maximum[r] = -INFINITY;
            sum[r] = 0;
            last[r] = causal ? min(query + tile.place.shift, tile.place.keys - 1)
                             : tile.place.keys - 1;
            if (S::BIAS)
                bias_row[r] = sizes.bias + (int64_t)tile.head * (2 * sizes.span - 1) + sizes.span -
                        1 + min(query, tile.place.queries - 1) + tile.place.shift;
        }
    }

    __device__ __forceinline__ void softmax(
            float (&s)[COUNT], float scale /* times log2(e) */, bool masked, int first)
    {
        if (masked) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                s[i] = first + i / 4 * 8 + i % 2 <= last[i / 2 % 2] ? s[i] : -INFINITY;
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most[2] = {s[2 * r], s[2 * r + 1]}, total[2] = {0, 0};
#pragma unroll
            for (int i = 4; i < COUNT; i += 4) {
                most[0] = fmaxf(most[0], s[i + 2 * r]);
                most[1] = fmaxf(most[1], s[i + 2 * r + 1]);
            }
            float high = fmaxf(most[0], most[1]);
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
            high = fmaxf(high, maximum[r]);
            const float base = high == -INFINITY ? 0 : high * scale;
            factor[r] = fast_exp2(maximum[r] * scale - base);
            maximum[r] = high;
#pragma unroll
            for (int i = 0; i < COUNT; i += 4) {
                s[i + 2 * r] = fast_exp2(s[i + 2 * r] * scale - base);
                s[i + 2 * r + 1] = fast_exp2(s[i + 2 * r + 1] * scale - base);
                total[0] += s[i + 2 * r];
                total[1] += s[i + 2 * r + 1];
            }
            sum[r] = sum[r] * factor[r] + total[0] + total[1];
        }
    }

    // x * sigmoid(x) = h + h * tanh(h), h = x / 2.
    __device__ __forceinline__ void silu(
            float (&s)[COUNT], float scale /* halved */, bool masked, int first)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int r = i / 2 % 2, key = first + i / 4 * 8 + i % 2;
            float h = s[i] * scale;
            if (S::BIAS)
                h += 0.5f * __ldg(bias_row[r] - (masked ? max(min(key, last[r]), 0) : key));
            s[i] = fmaf(h, fast_tanh(h), h);
        }
        if (masked) {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                s[i] = first + i / 4 * 8 + i % 2 <= last[i / 2 % 2] ? s[i] : 0;
        }
    }

    __device__ __forceinline__ void score(float (&s)[COUNT], float scale, bool masked, int first)
    {
        if (S::SILU)
            silu(s, scale, masked, first);
        else
            softmax(s, scale, masked, first);
    }
};

template <typename S>
static __device__ __forceinline__ void forward_multiply(const struct attention_sizes &sizes,
        bool causal, int tiles, uint32_t shared, typename S::type *out, float *lse)
{
    typedef typename S::type T;
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0),
              thread = (int)threadIdx.x % 128, lane = thread % 32;
    const int row_in_tile = 64 * group + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
    const uint64_t q = tile_descriptor(shared + 64 * group * PANEL_ROW_BYTES, 0);
    const uint64_t k = tile_descriptor(shared + S::K, 0),
                   v = tile_descriptor(shared + S::V, S::KEYS * PANEL_ROW_BYTES);
    const float scale = S::SILU ? sizes.scale * 0.5f : sizes.scale * LOG2_E;
    cursor<S::STAGES> at_k, at_v;
    uint32_t parity = 0;
    auto release = [&](uint32_t barrier) {
        if (lane == 0)
            barrier_arrive(shared + barrier);
    };

    if (S::TURNS && group == S::GROUPS - 1)
        named_arrive(1, 256); // the first group's turn is first
    for (int round = 0; round * (int)gridDim.x < tiles; round++) {
        if (forward_number(sizes, round) >= tiles)
            continue;
        const struct forward_tile tile =
                forward_tile<S>(sizes, causal, forward_number(sizes, round));
        if (tile.none)
            continue;
        const int row = tile.row + row_in_tile;
        const int shown = causal
                ? min(tile.place.keys, tile.row + 64 * group + tile.place.shift + 1)
                : tile.place.keys;
        // pieces that every row of the group sees all of
        const int whole = shown > 0 ? shown / S::KEYS : 0;
        struct forward_scores<S> scores;
        float o[S::DIM / 2], s[S::KEYS / 2];
        uint32_t p[S::KEYS / 4];
        scores.start(sizes, tile, causal, row);
#pragma unroll
        for (int i = 0; i < S::DIM / 2; i++)
            o[i] = 0;
        if (tile.pieces > 0) {
            barrier_wait(shared + S::Q_FULL, parity);
            barrier_wait(shared + S::K_FULL + 8 * at_k.stage, at_k.parity);
            products_begin();
            products_along<T, S::KEYS, S::DIM, S::ROWS, S::KEYS>(
                    s, q, k + at_k.stage * (S::PIECE_BYTES >> 4));
            products_commit();
            products_wait<0>();
            sums_pin(s);
            release(S::K_EMPTY + 8 * at_k.stage);
            at_k.next();
            scores.score(s, scale, tile.pieces - 1 >= whole, (tile.pieces - 1) * S::KEYS + column);
            sums_pack<T>(s, p);
            barrier_wait(shared + S::V_FULL + 8 * at_v.stage, at_v.parity);
            for (int piece = tile.pieces - 2; piece >= 0; piece--) {
                barrier_wait(shared + S::K_FULL + 8 * at_k.stage, at_k.parity);
                if (S::TURNS)
                    named_sync(1 + group, 256);
                sums_pin(s);
                sums_pin(o);
                products_begin();
                products_along<T, S::KEYS, S::DIM, S::ROWS, S::KEYS>(
                        s, q, k + at_k.stage * (S::PIECE_BYTES >> 4));
                products_commit();
                products_down<T, S::DIM, S::KEYS>(
                        o, p, v + at_v.stage * (S::PIECE_BYTES >> 4), true);
                products_commit();
                if (S::TURNS)
                    named_arrive(1 + (group + 1) % S::GROUPS, 256);
                products_wait<1>();
                sums_pin(s);
                release(S::K_EMPTY + 8 * at_k.stage);
                at_k.next();
                scores.score(s, scale, piece >= whole, piece * S::KEYS + column);
                const uint32_t used = S::V_EMPTY + 8 * at_v.stage;
                at_v.next();
                // the wait for the next v stands here because of its branch: ptxas puts the
                // exponentials behind
                sums_pin(s);
                // products_wait() where there is none
                barrier_wait(shared + S::V_FULL + 8 * at_v.stage, at_v.parity);
                products_wait<0>();
                sums_pin(o);
                release(used);
                sums_pack<T>(s, p);
                if (!S::SILU) {
#pragma unroll
                    for (int i = 0; i < S::DIM / 2; i++)
                        o[i] *= scores.factor[i / 2 % 2];
                }
            }
            release(S::Q_EMPTY);
            parity ^= 1;
            sums_pin(o);
            products_begin();
            products_down<T, S::DIM, S::KEYS>(o, p, v + at_v.stage * (S::PIECE_BYTES >> 4), true);
            products_commit();
            products_wait<0>();
            sums_pin(o);
            release(S::V_EMPTY + 8 * at_v.stage);
            at_v.next();
        }
        float factor[2] = {sizes.weight, sizes.weight};
        const bool inside[2] = {row < tile.place.queries, row + 8 < tile.place.queries};
        if (!S::SILU) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float sum = scores.sum[r];
                sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                factor[r] = sum > 0 ? 1 / sum : 0;
                if (lane % 4 == 0 && inside[r])
                    lse[(int64_t)tile.head * sizes.queries + tile.place.query + row + 8 * r] =
                            sum > 0 ? scores.maximum[r] * sizes.scale + logf(sum) : -INFINITY;
            }
        }
        const int64_t stride = (int64_t)sizes.heads * S::DIM;
        sums_store(o, factor, inside, out + (tile.place.query + row) * stride + tile.head * S::DIM,
                stride);
    }
}

template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) attention_forward(
        const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
        const __grid_constant__ CUtensorMap map_v,
        const __grid_constant__ struct attention_sizes sizes, bool causal, int tiles,
        typename S::type *__restrict__ out, float *__restrict__ lse)
{
    extern __shared__ char dynamic[];
    const uint32_t shared = (shared_address(dynamic) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        barrier_init(shared + S::Q_FULL, 1);
        barrier_init(shared + S::Q_EMPTY, 4 * S::GROUPS);
        for (int stage = 0; stage < S::STAGES; stage++) {
            barrier_init(shared + S::K_FULL + 8 * stage, 1);
            barrier_init(shared + S::V_FULL + 8 * stage, 1);
            barrier_init(shared + S::K_EMPTY + 8 * stage, 4 * S::GROUPS);
            barrier_init(shared + S::V_EMPTY + 8 * stage, 4 * S::GROUPS);
        }
        barriers_ready();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_lower<S::LOWERED>();
        if (threadIdx.x == 0)
            forward_bring<S>(&map_q, &map_k, &map_v, sizes, causal, tiles, shared);
    } else {
        registers_raise<S::RAISED>();
        forward_multiply<S>(sizes, causal, tiles, shared, out, lse);
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename S>
static int forward_run(const struct kernel_attention *a, cudaStream_t stream, struct error *err)
{
    typedef typename S::type T;
    const int64_t turns = (a->longest_queries + S::ROWS - 1) / S::ROWS,
                  pairs = a->sequences * a->heads, tiles = turns * pairs;
    // all at once when the L2 holds all k and v, else one by one: what is between was slower for
    // both, as its rounds are uneven; but by twos with 256 columns, of which a pair's tiles are the
    // fewest rounds
    const int64_t fit = attention_together(
            a, pairs, a->longest_keys * S::DIM * 4 / (a->heads / a->key_heads), 5, 3);
    const int64_t together = a->together || fit == pairs ? fit : S::DIM == 256 && pairs > 1 ? 2 : 1;
    const struct attention_sizes sizes = attention_sizes(a, together, turns, pairs);
    CUtensorMap q, k, v;
    int resident, rc;

    if (tiles > TILES_MAX)
        return error_set(err, -EINVAL, "attention: %lld tiles of queries: at most %d are supported",
                (long long)tiles, TILES_MAX);
    if (tiles == 0)
        return 0;
    if ((rc = tensor_map(&q, a->q, a->type, a->queries, a->heads, S::DIM, S::ROWS, err)) ||
            (rc = tensor_map(&k, a->k, a->type, a->keys, a->key_heads, S::DIM, S::KEYS, err)) ||
            (rc = tensor_map(&v, a->v, a->type, a->keys, a->key_heads, S::DIM, S::KEYS, err)) ||
            (rc = device_resident(
                     (const void *)attention_forward<S>, S::THREADS, S::BYTES, &resident, err)))
        return rc;
    const int blocks = (int)(tiles < resident ? tiles : resident);
    attention_forward<S><<<blocks, S::THREADS, S::BYTES, stream>>>(
            q, k, v, sizes, a->causal, (int)tiles, (T *)a->out, a->lse);
    return device_error(cudaGetLastError(), "launch attention_forward", err);
}

// Each dim's tiles; by a number those that are there to be timed (12 of the 24 s of CPU that this
// file takes to compile).
template <typename T, bool SILU, bool BIAS>
static int forward_dim(const struct kernel_attention *a, cudaStream_t stream, struct error *err)
{
#define RUN(DIM, GROUPS, KEYS, STAGES, TURNS) \
    forward_run<forward_shape<T, DIM, GROUPS, KEYS, STAGES, SILU, BIAS, TURNS>>(a, stream, err)
    if constexpr (std::is_same<T, __nv_bfloat16>::value && !BIAS)
        switch ((int)a->dim * 10 + a->variant) {
        case 641:
            return RUN(64, 2, 128, 2, true);
        case 642:
            return RUN(64, 3, 128, 2, false);
        case 643:
            return RUN(64, 2, 192, 2, true);
        case 644:
            return RUN(64, 3, 96, 3, true);
        case 1281:
            return RUN(128, 2, 128, 2, true);
        case 1282:
            return RUN(128, 2, 176, 2, true);
        case 1283:
            return RUN(128, 2, 96, 3, SILU);
        case 1284:
            return RUN(128, 2, 160, 2, true);
        case 1285:
            return RUN(128, 2, 160, 2, false);
        case 1286:
            return RUN(128, 2, 176, 2, false);
        }
    if constexpr (std::is_same<T, __nv_bfloat16>::value && !BIAS && SILU)
        switch ((int)a->dim * 10 + a->variant) {
        case 2561:
            return RUN(256, 2, 64, 2, true);
        case 2562:
            return RUN(256, 2, 80, 2, true);
        case 2563:
            return RUN(256, 2, 80, 2, false);
        }
    if (a->variant)
        return error_set(
                err, -ERANGE, "attention: there is no variant %d of this type and dim", a->variant);
    if (a->dim == 64)
        return RUN(64, BIAS ? 2 : 3, 128, 2, true);
    constexpr bool HALF = std::is_same<T, __half>::value; // not timed without turns
    if constexpr (!SILU)
        if (a->dim == 128)
            return a->causal ? RUN(128, 2, 160, 2, HALF) : RUN(128, 2, 176, 2, true);
    if (a->dim == 128)
        return RUN(128, 2, 128, 2, true);
    if constexpr (SILU)
        return RUN(256, 2, 64, 2, false);
    return -EINVAL; // attention_check() has refused it
#undef RUN
}

int kernel_attention_forward(
        const struct kernel_attention *a, cudaStream_t stream, struct error *err)
{
    int rc = attention_check(a, err);
    if (rc)
        return rc;
    if (a->scores == KERNEL_SOFTMAX && !a->lse)
        return error_set(err, -EINVAL, "attention: lse must not be NULL");
    const bool half = a->type == KERNEL_FLOAT16;
    if (a->scores == KERNEL_SOFTMAX)
        return half ? forward_dim<__half, false, false>(a, stream, err)
                    : forward_dim<__nv_bfloat16, false, false>(a, stream, err);
    if (a->bias)
        return half ? forward_dim<__half, true, true>(a, stream, err)
                    : forward_dim<__nv_bfloat16, true, true>(a, stream, err);
    return half ? forward_dim<__half, true, false>(a, stream, err)
                : forward_dim<__nv_bfloat16, true, false>(a, stream, err);
}
#endif
