// SPDX-License-Identifier: Apache-2.0
// Attention backward: dq, dk, dv from dout, as kernels.h says it; heads of 64 and 128 columns (256:
// attention_backward_wide.cu).
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c
//         kernels/attention_backward.cu
// Operations: 10 * dim for each pair of query and key that see each other (five products; the
// forward has two). Bytes: as the forward, and the sums of dq: 4 * dim for each pair of a query and
// a block of KEYS keys, added in the L2.
//
//   p = softmax(scale q k^T) (from lse) or silu(x), x = scale q k^T + bias
//   dv = p^T dout, dp = dout v^T
//   ds = p (dp - delta), delta = the row's sum of dout * out; or dp silu'(x)
//   dq = scale ds k, dk = scale ds^T q
//
// Three kernels. backward_begin: delta and lse in blocks of QUERIES of one sequence, sums of dq to
// 0. backward_multiply: a block has KEYS keys of one head of keys, 64 for each of two groups, and
// goes over all blocks of queries of all heads that read them. Everything is held turned (keys
// down, queries across): p^T and ds^T are left sides straight from registers, dk and dv stay in
// registers and are written once, by one block. ds^T goes to shared memory too, where both groups
// take it for their halves of dq, which are added to float32 sums in the order in which a thread
// holds them. While scores become p, dp is multiplied; while dp becomes ds, dv; while the sums of
// dq leave, dk and the next scores. backward_end: dq from the sums. Registers at dim 128: 128 sums
// of dk and dv, 32 scores, 32 of dp or dq, 16 words of ds: 208 of 240.
#include "kernels/attention_backward.cuh"

template <typename T, int DIM_, bool SILU_, bool BIAS_, bool OWN_KEYS_, bool DBIAS_ = false>
struct backward_shape {
    typedef T type;
    static constexpr int DIM = DIM_, KEYS = 128, STAGES = 2, THREADS = 384;
    static constexpr bool SILU = SILU_, BIAS = BIAS_, DBIAS = DBIAS_;
    // What a group multiplies of dq: its half of the columns over all keys of the tile, or all
    // columns over its own 64 keys, added twice.
    static constexpr bool OWN_KEYS = OWN_KEYS_;
    static constexpr int PARTS = OWN_KEYS ? 1 : 2, COLUMNS = DIM / PARTS,
                         PART_SUMS = QUERIES * COLUMNS;
    static constexpr uint32_t K_BYTES = KEYS * DIM * 2, Q_BYTES = QUERIES * DIM * 2,
                              DS_BYTES = KEYS * QUERIES * 2, ROW_BYTES = QUERIES * 4;
    static constexpr uint32_t V = K_BYTES, Q = V + K_BYTES, O = Q + STAGES * Q_BYTES,
                              DS = O + STAGES * Q_BYTES, LSE = DS + 2 * DS_BYTES,
                              DELTA = LSE + STAGES * ROW_BYTES;
    static constexpr uint32_t KV_FULL = DELTA + STAGES * ROW_BYTES, Q_FULL = KV_FULL + 8,
                              Q_EMPTY = Q_FULL + 8 * STAGES, O_FULL = Q_EMPTY + 8 * STAGES,
                              O_EMPTY = O_FULL + 8 * STAGES, BYTES = O_EMPTY + 8 * STAGES + 1024;
};

template <typename S>
static __device__ __forceinline__ void backward_products(const struct attention_sizes &sizes,
        bool causal, const struct backward_tile &tile, const struct backward_scratch &scratch,
        uint32_t shared, typename S::type *dk, typename S::type *dv, float *dbias)
{
    typedef typename S::type T;
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0),
              thread = (int)threadIdx.x % 128, lane = thread % 32;
    const int row = 64 * group + thread / 32 * 16 + lane / 4, quad = lane % 4,
              heads = sizes.heads / sizes.key_heads;
    const uint64_t k = tile_descriptor(shared + 64 * group * PANEL_ROW_BYTES, 0),
                   v = k + (S::V >> 4);
    const uint64_t q = tile_descriptor(shared + S::Q, 0), o = tile_descriptor(shared + S::O, 0);
    const uint64_t q_down = tile_descriptor(shared + S::Q, QUERIES * PANEL_ROW_BYTES),
                   o_down = tile_descriptor(shared + S::O, QUERIES * PANEL_ROW_BYTES);
    const int own = group * 64 * PANEL_ROW_BYTES, columns = group * S::COLUMNS;
    const uint64_t k_part = tile_descriptor(shared +
                                   (S::OWN_KEYS ? own
                                                : columns / 64 * S::KEYS * PANEL_ROW_BYTES +
                                                           columns % 64 * 2),
                           0),
                   ds_part = tile_descriptor(shared + S::DS + (S::OWN_KEYS ? own : 0), 0);
    const uint32_t ds_start = shared + S::DS + row * PANEL_ROW_BYTES + row % 8 * 16 + 4 * quad;
    const int key = tile.key + row, key_end = tile.key + 64 * group + 64; // behind the group's last
    float sums_k[S::DIM / 2], sums_v[S::DIM / 2], s[QUERIES / 2], dp[QUERIES / 2];
    // dq where dp was, if it is as large: there are no other registers left then.
    float apart[S::COLUMNS == QUERIES ? 1 : S::COLUMNS / 2],
            (&dq)[S::COLUMNS / 2] = *(float(*)[S::COLUMNS / 2])(S::COLUMNS == QUERIES ? dp : apart);
    cursor<S::STAGES> at;
    int head = tile.key_head * heads, block = tile.first;
    // Every thread for itself: lse and delta are read by ordinary loads, and racecheck takes an
    // arrival for the thread's own reads only.
    auto release = [&](uint32_t barrier) { barrier_arrive(shared + barrier); };
    // One block of queries; its scores and dp are under way, those of the next are when it ends.
    auto step = [&](int number, auto last) {
        constexpr bool LAST = decltype(last)::value;
        const cursor<S::STAGES> here = at;
        const uint32_t here_tile = here.stage * (S::Q_BYTES >> 4),
                       ds_tile = number % 2 * S::DS_BYTES;
        const int first = block * QUERIES;
        uint32_t p_words[QUERIES / 4], slopes[QUERIES / 4], ds_words[QUERIES / 4];
        at.next();
        const uint32_t next_tile = at.stage * (S::Q_BYTES >> 4);
        products_wait<1>();
        sums_pin(s);
        const bool masked = (causal && key_end - 1 > first + tile.place.shift) ||
                key_end > tile.place.keys || (S::SILU && first + QUERIES > tile.place.queries);
        const float *bias =
                S::BIAS ? sizes.bias + (int64_t)head * (2 * sizes.span - 1) + sizes.span - 1 : NULL;
        const uint32_t lse = shared + S::LSE + here.stage * S::ROW_BYTES + 8 * quad;
        if (masked)
            backward_scores<S>(s, p_words, slopes, sizes, tile.place, bias, true, causal, key,
                    first + 2 * quad, lse);
        else
            backward_scores<S>(s, p_words, slopes, sizes, tile.place, bias, false, causal, key,
                    first + 2 * quad, lse);
        sums_pin(sums_v);
        products_begin();
        products_down<T, S::DIM, QUERIES>(sums_v, p_words, o_down + here_tile, true);
        products_commit();
        products_wait<1>();
        sums_pin(dp);
        backward_slopes<S>(S::SILU ? slopes : p_words, dp, ds_words,
                shared + S::DELTA + here.stage * S::ROW_BYTES + 8 * quad, ds_start + ds_tile);
        shared_to_engines();
        if (!LAST)
            barrier_wait(shared + S::Q_FULL + 8 * at.stage, at.parity);
        named_sync(S::OWN_KEYS ? 1 + group : 1, S::OWN_KEYS ? 128 : 256);
        const uint64_t k_now = tile_again(k_part), ds_now = tile_again(ds_part + (ds_tile >> 4));
        products_begin();
#pragma unroll
        for (int i = 0; i < (S::OWN_KEYS ? 64 : S::KEYS) / 16; i++)
            wgmma<S::COLUMNS>::template tiles<T, true, true>(
                    dq, ds_now + step_down(i), k_now + step_down(i), i > 0);
        products_commit();
        products_wait<1>();
        words_pin(p_words);
        release(S::O_EMPTY + 8 * here.stage);
        sums_pin(sums_k);
        products_begin();
        products_down<T, S::DIM, QUERIES>(sums_k, ds_words, q_down + here_tile, true);
        products_commit();
        if (!LAST) {
            products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(s, tile_again(k), q + next_tile);
            products_commit();
        }
        if (S::DBIAS) {
            const int zero = sizes.span - 1, at = zero + first + tile.place.shift - tile.key;
            backward_bias<S>((int)threadIdx.x - 128, shared + S::DS + ds_tile, sizes.weight,
                    dbias + (int64_t)head * (2 * zero + 1) + at, at, 2 * zero + 1 - at);
        }
        products_wait<LAST ? 1 : 2>();
        sums_pin(dq);
        float *to = scratch.sums + 4 * thread + (S::OWN_KEYS ? 0 : group * S::PART_SUMS) +
                backward_block(scratch, head, tile.place.query, tile.sequence, block) * QUERIES *
                        S::DIM;
#pragma unroll
        for (int i = 0; i < S::COLUMNS / 8; i++)
            asm volatile(
                    "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 512 * i),
                    "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                    : "memory");
        if (!LAST) {
            barrier_wait(shared + S::O_FULL + 8 * at.stage, at.parity);
            products_begin();
            products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(dp, tile_again(v), o + next_tile);
            products_commit();
            products_wait<2>();
        } else {
            products_wait<0>();
        }
        words_pin(ds_words);
        release(S::Q_EMPTY + 8 * here.stage);
        if (++block == tile.first + tile.blocks) {
            block = tile.first;
            head++;
        }
    };

#pragma unroll
    for (int i = 0; i < S::DIM / 2; i++)
        sums_k[i] = sums_v[i] = 0;
    if (tile.steps > 0) {
        barrier_wait(shared + S::KV_FULL, 0);
        barrier_wait(shared + S::Q_FULL, 0);
        barrier_wait(shared + S::O_FULL, 0);
        products_begin();
        products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(s, tile_again(k), q);
        products_commit();
        products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(dp, tile_again(v), o);
        products_commit();
        for (int number = 0; number < tile.steps - 1; number++)
            step(number, std::false_type());
        step(tile.steps - 1, std::true_type());
        sums_pin(sums_k);
        sums_pin(sums_v);
    }
    const float weight = S::SILU ? sizes.weight : 1,
                of_k[2] = {sizes.scale * weight, sizes.scale * weight}, of_v[2] = {weight, weight};
    const bool inside[2] = {key < tile.place.keys, key + 8 < tile.place.keys};
    const int64_t stride = (int64_t)sizes.key_heads * S::DIM,
                  start = (tile.place.key + key) * stride + tile.key_head * S::DIM;
    sums_store(sums_v, of_v, inside, dv + start, stride);
    sums_store(sums_k, of_k, inside, dk + start, stride);
}

template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) backward_multiply(
        const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
        const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_dout,
        const __grid_constant__ struct attention_sizes sizes, bool causal,
        const __grid_constant__ struct backward_scratch scratch, typename S::type *__restrict__ dk,
        typename S::type *__restrict__ dv, float *__restrict__ dbias)
{
    extern __shared__ char dynamic[];
    const uint32_t shared = (shared_address(dynamic) + 1023) & ~1023u;
    const struct backward_tile tile = backward_tile<S>(sizes, causal, (int)blockIdx.x);
    if (tile.none)
        return;
    backward_barriers<S>(shared);
    if (threadIdx.x < 128) {
        registers_lower<24>();
        if (threadIdx.x == 0 && tile.steps > 0)
            backward_bring<S>(&map_q, &map_k, &map_v, &map_dout, sizes, tile, scratch, shared);
    } else {
        registers_raise<240>();
        backward_products<S>(sizes, causal, tile, scratch, shared, dk, dv, dbias);
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename S>
static int backward_tiles(const struct kernel_attention *a,
        const struct kernel_attention_gradient *g, cudaStream_t stream, struct error *err)
{
    return backward_run<S>(backward_multiply<S>, a, g, stream, err);
}

template <typename T, bool SILU, bool BIAS>
static int backward_dim(const struct kernel_attention *a, const struct kernel_attention_gradient *g,
        cudaStream_t stream, struct error *err)
{
    if constexpr (std::is_same<T, __nv_bfloat16>::value && !SILU)
        if (a->dim == 64 && a->variant == 1)
            return backward_tiles<backward_shape<T, 64, SILU, BIAS, true>>(a, g, stream, err);
    if (a->variant)
        return error_set(err, -ERANGE,
                "attention backward: there is no variant %d of this type and dim", a->variant);
    if constexpr (BIAS)
        if (g->dbias)
            return a->dim == 64 ? backward_tiles<backward_shape<T, 64, SILU, BIAS, false, true>>(
                                          a, g, stream, err)
                                : backward_tiles<backward_shape<T, 128, SILU, BIAS, false, true>>(
                                          a, g, stream, err);
    return a->dim == 64
            ? backward_tiles<backward_shape<T, 64, SILU, BIAS, false>>(a, g, stream, err)
            : backward_tiles<backward_shape<T, 128, SILU, BIAS, false>>(a, g, stream, err);
}

int kernel_attention_scratch(const struct kernel_attention *a, size_t *ret_bytes, struct error *err)
{
    int rc = attention_check(a, err);
    if (rc == 0)
        *ret_bytes =
                backward_sums_bytes(a) + (size_t)(backward_blocks(a) * a->heads) * 2 * QUERIES * 4;
    return rc;
}

int kernel_attention_backward(const struct kernel_attention *a,
        const struct kernel_attention_gradient *g, cudaStream_t stream, struct error *err)
{
    int rc = attention_check(a, err);
    if (rc)
        return rc;
    if (a->scores == KERNEL_SOFTMAX && !a->lse)
        return error_set(err, -EINVAL, "attention backward: lse must not be NULL");
    if (!g->dout || !g->dq || !g->dk || !g->dv || !g->scratch ||
            ((uintptr_t)g->dout | (uintptr_t)g->dq | (uintptr_t)g->dk | (uintptr_t)g->dv |
                    (uintptr_t)g->scratch) %
                            16 !=
                    0)
        return error_set(err, -EINVAL,
                "attention backward: dout, dq, dk, dv or scratch is NULL or does not start at a multiple of 16 bytes");
    if (g->dbias && !a->bias)
        return error_set(err, -EINVAL, "attention backward: dbias without a bias");
    const bool half = a->type == KERNEL_FLOAT16;
    if (a->dim == 256)
        return backward_wide(a, g, stream, err);
    if (a->scores == KERNEL_SOFTMAX)
        return half ? backward_dim<__half, false, false>(a, g, stream, err)
                    : backward_dim<__nv_bfloat16, false, false>(a, g, stream, err);
    if (a->bias)
        return half ? backward_dim<__half, true, true>(a, g, stream, err)
                    : backward_dim<__nv_bfloat16, true, true>(a, g, stream, err);
    return half ? backward_dim<__half, true, false>(a, g, stream, err)
                : backward_dim<__nv_bfloat16, true, false>(a, g, stream, err);
}
#endif
