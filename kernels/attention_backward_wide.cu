// SPDX-License-Identifier: Apache-2.0
// Attention backward of HSTU (SiLU) with heads of 256 columns, as kernels.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c
//         kernels/attention_backward_wide.cu
// Operations: 10 * dim for each pair of query and key that see each other. Bytes: as
// attention_backward.cu, but sums of dq for 64 keys a block.
//
// As attention_backward.cu, which see for the names, but that dk and dv of 64 keys are 128 sums a
// thread each, so that one group of warps cannot hold both. So the two groups have work of their
// own on the same 64 keys: the first scores, p and dv; the second dp, ds and dk; and each half of
// dq's columns, 64 at a time. p and ds stay in the registers of who multiplies by them. What passes
// through shared memory: the slope of silu from the first to the second, thread by thread, and ds
// for dq. While one group is at its scores or slopes, the other multiplies. Registers: 128 sums, 32
// of scores or dp, 32 of dq, 16 words of p or ds: 208 of 240.
#include "kernels/attention_backward.cuh"

template <typename T, bool BIAS_, bool DBIAS_> struct wide_shape {
    typedef T type;
    static constexpr int DIM = 256, KEYS = 64, STAGES = 2, THREADS = 384;
    static constexpr bool SILU = true, BIAS = BIAS_, DBIAS = DBIAS_;
    static constexpr int PARTS = 4, COLUMNS = DIM / PARTS, PART_SUMS = QUERIES * COLUMNS; // of dq
    static constexpr uint32_t K_BYTES = KEYS * DIM * 2, Q_BYTES = QUERIES * DIM * 2,
                              DS_BYTES = KEYS * QUERIES * 2, ROW_BYTES = 0;
    static constexpr uint32_t V = K_BYTES, Q = V + K_BYTES, O = Q + STAGES * Q_BYTES,
                              DS = O + STAGES * Q_BYTES, SLOPES = DS + DS_BYTES, LSE = SLOPES,
                              DELTA = SLOPES; // there are none
    static constexpr uint32_t KV_FULL = SLOPES + DS_BYTES, Q_FULL = KV_FULL + 8,
                              Q_EMPTY = Q_FULL + 8 * STAGES, O_FULL = Q_EMPTY + 8 * STAGES,
                              O_EMPTY = O_FULL + 8 * STAGES, SLOPES_FULL = O_EMPTY + 8 * STAGES,
                              DS_FULL = SLOPES_FULL + 8, BYTES = DS_FULL + 8 + 1024;
};

// Of slopes and ds there is one place each. Step i ends phase i of both barriers, so its parity is
// that of i: the stage, as there are two. SLOPES_FULL: every thread of both groups arrives, the
// first group's behind its slopes(i) and its products of ds(i - 1), the second's behind its own
// products of ds(i - 1); the second waits, then reads slopes(i) and writes ds(i). DS_FULL: the
// second arrives behind both; both wait, then multiply by ds(i), and the first writes slopes(i +
// 1). Nobody ends phase i + 1 of one before all have passed their wait for i. racecheck follows
// these, but not a named barrier of which some arrive and others wait.
template <typename S> static __device__ __forceinline__ void wide_barriers(uint32_t shared)
{
    static_assert(S::STAGES == 2, "the stage is the parity of SLOPES_FULL and DS_FULL");
    if (threadIdx.x == 0) {
        barrier_init(shared + S::SLOPES_FULL, 256);
        barrier_init(shared + S::DS_FULL, 128);
    }
    backward_barriers<S>(shared); // by the same thread, and the block's own barrier
}

static __device__ __forceinline__ void wide_put(uint32_t to, const uint32_t (&words)[QUERIES / 4])
{
#pragma unroll
    for (int i = 0; i < QUERIES / 16; i++)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + 2048 * i),
                     "r"(words[4 * i]), "r"(words[4 * i + 1]), "r"(words[4 * i + 2]),
                     "r"(words[4 * i + 3])
                     : "memory");
}
static __device__ __forceinline__ void wide_get(uint32_t from, uint32_t (&words)[QUERIES / 4])
{
#pragma unroll
    for (int i = 0; i < QUERIES / 16; i++)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[4 * i]), "=r"(words[4 * i + 1]), "=r"(words[4 * i + 2]),
                     "=r"(words[4 * i + 3])
                     : "r"(from + 2048 * i)
                     : "memory");
}

// 64 columns of dq from the tile of ds, and into the sums of the block of queries.
template <typename S>
static __device__ __forceinline__ void wide_queries(
        float (&dq)[QUERIES / 2], uint32_t shared, int part)
{
    const uint64_t ds = tile_again(tile_descriptor(shared + S::DS, 0)),
                   k = tile_again(tile_descriptor(shared + part * S::KEYS * PANEL_ROW_BYTES, 0));
#pragma unroll
    for (int i = 0; i < S::KEYS / 16; i++)
        wgmma<S::COLUMNS>::template tiles<typename S::type, true, true>(
                dq, ds + step_down(i), k + step_down(i), i > 0);
}
template <typename S>
static __device__ __forceinline__ void wide_add(const float (&dq)[QUERIES / 2], float *to)
{
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 8; i++)
        asm volatile(
                "red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 512 * i),
                "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                : "memory");
}

// A group of warps over all blocks of queries. LEADS: the first group.
template <typename S, bool LEADS>
static __device__ __forceinline__ void wide_products(const struct attention_sizes &sizes,
        bool causal, const struct backward_tile &tile, const struct backward_scratch &scratch,
        uint32_t shared, typename S::type *out, float *dbias)
{
    typedef typename S::type T;
    const int thread = (int)threadIdx.x % 128, lane = thread % 32,
              row = thread / 32 * 16 + lane / 4, quad = lane % 4;
    const int key = tile.key + row, heads = sizes.heads / sizes.key_heads;
    // Of the first product, of scores or dp: k and q, or v and dout. Of the second, of dv or dk:
    // dout or q.
    const uint64_t left = tile_descriptor(shared + (LEADS ? 0 : S::V), 0),
                   right = tile_descriptor(shared + (LEADS ? S::Q : S::O), 0),
                   down = tile_descriptor(
                           shared + (LEADS ? S::O : S::Q), QUERIES * PANEL_ROW_BYTES);
    constexpr uint32_t FIRST_FULL = LEADS ? S::Q_FULL : S::O_FULL,
                       FIRST_EMPTY = LEADS ? S::Q_EMPTY : S::O_EMPTY,
                       SECOND_FULL = LEADS ? S::O_FULL : S::Q_FULL,
                       SECOND_EMPTY = LEADS ? S::O_EMPTY : S::Q_EMPTY;
    constexpr int PART = LEADS ? 0 : 2;
    const uint32_t slopes_at = shared + S::SLOPES + 16 * thread,
                   ds_at = shared + S::DS + row * PANEL_ROW_BYTES + row % 8 * 16 + 4 * quad;
    float sums[S::DIM / 2], s[QUERIES / 2], dq[QUERIES / 2];
    cursor<S::STAGES> at;
    int head = tile.key_head * heads, block = tile.first;
    // One block of queries; its scores or dp are there, those of the next are when it ends.
    auto step = [&](auto last) {
        constexpr bool LAST = decltype(last)::value;
        const cursor<S::STAGES> here = at;
        const uint32_t here_tile = here.stage * (S::Q_BYTES >> 4);
        const int first = block * QUERIES;
        uint32_t words[QUERIES / 4], slopes[QUERIES / 4];
        at.next();
        barrier_arrive(shared + FIRST_EMPTY + 8 * here.stage);
        if (LEADS) {
            const bool masked = (causal && tile.key + S::KEYS - 1 > first + tile.place.shift) ||
                    tile.key + S::KEYS > tile.place.keys || first + QUERIES > tile.place.queries;
            const float *bias = S::BIAS
                    ? sizes.bias + (int64_t)head * (2 * sizes.span - 1) + sizes.span - 1
                    : NULL;
            if (masked)
                backward_scores<S>(s, words, slopes, sizes, tile.place, bias, true, causal, key,
                        first + 2 * quad, 0);
            else
                backward_scores<S>(s, words, slopes, sizes, tile.place, bias, false, causal, key,
                        first + 2 * quad, 0);
            wide_put(slopes_at, slopes);
            barrier_arrive(shared + S::SLOPES_FULL);
        } else {
            barrier_arrive(shared + S::SLOPES_FULL);
            barrier_wait(shared + S::SLOPES_FULL, here.stage);
            wide_get(slopes_at, slopes);
            backward_slopes<S>(slopes, s, words, 0, ds_at);
            shared_to_engines();
            barrier_arrive(shared + S::DS_FULL);
        }
        barrier_wait(shared + SECOND_FULL + 8 * here.stage, here.parity);
        sums_pin(sums);
        products_begin();
        products_down<T, S::DIM, QUERIES>(sums, words, down + here_tile, true);
        products_commit();
        barrier_wait(shared + S::DS_FULL, here.stage);
        products_begin();
        wide_queries<S>(dq, shared, PART);
        products_commit();
        if (!LAST) {
            const uint32_t next_tile = at.stage * (S::Q_BYTES >> 4);
            barrier_wait(shared + FIRST_FULL + 8 * at.stage, at.parity);
            products_begin();
            products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(
                    s, tile_again(left), right + next_tile);
            products_commit();
        }
        if (S::DBIAS && !LEADS) {
            const int zero = sizes.span - 1, distance = zero + first + tile.place.shift - tile.key;
            backward_bias<S>(thread, shared + S::DS, sizes.weight,
                    dbias + (int64_t)head * (2 * zero + 1) + distance, distance,
                    2 * zero + 1 - distance);
        }
        products_wait<LAST ? 0 : 1>();
        sums_pin(dq);
        words_pin(words);
        barrier_arrive(shared + SECOND_EMPTY + 8 * here.stage);
        float *to = scratch.sums + 4 * thread + PART * S::PART_SUMS +
                backward_block(scratch, head, tile.place.query, tile.sequence, block) * QUERIES *
                        S::DIM;
        wide_add<S>(dq, to);
        sums_pin(dq);
        products_begin();
        wide_queries<S>(dq, shared, PART + 1);
        products_commit();
        products_wait<0>();
        sums_pin(s);
        sums_pin(dq);
        wide_add<S>(dq, to + S::PART_SUMS);
        if (++block == tile.first + tile.blocks) {
            block = tile.first;
            head++;
        }
    };

#pragma unroll
    for (int i = 0; i < S::DIM / 2; i++)
        sums[i] = 0;
    if (tile.steps > 0) {
        barrier_wait(shared + S::KV_FULL, 0);
        barrier_wait(shared + FIRST_FULL, 0);
        products_begin();
        products_along<T, QUERIES, S::DIM, S::KEYS, QUERIES>(s, tile_again(left), right);
        products_commit();
        products_wait<0>();
        sums_pin(s);
        for (int number = 0; number < tile.steps - 1; number++)
            step(std::false_type());
        step(std::true_type());
        sums_pin(sums);
    }
    const float weight = sizes.weight * (LEADS ? 1 : sizes.scale), factor[2] = {weight, weight};
    const bool inside[2] = {key < tile.place.keys, key + 8 < tile.place.keys};
    const int64_t stride = (int64_t)sizes.key_heads * S::DIM;
    sums_store(sums, factor, inside, out + (tile.place.key + key) * stride + tile.key_head * S::DIM,
            stride);
}

template <typename S>
static __global__ void __launch_bounds__(S::THREADS, 1) backward_multiply_wide(
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
    wide_barriers<S>(shared);
    if (threadIdx.x < 128) {
        registers_lower<24>();
        if (threadIdx.x == 0 && tile.steps > 0)
            backward_bring<S>(&map_q, &map_k, &map_v, &map_dout, sizes, tile, scratch, shared);
    } else {
        registers_raise<240>();
        if (threadIdx.x < 256)
            wide_products<S, true>(sizes, causal, tile, scratch, shared, dv, dbias);
        else
            wide_products<S, false>(sizes, causal, tile, scratch, shared, dk, dbias);
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename S>
static int wide_run(const struct kernel_attention *a, const struct kernel_attention_gradient *g,
        cudaStream_t stream, struct error *err)
{
    return backward_run<S>(backward_multiply_wide<S>, a, g, stream, err);
}

template <typename T>
static int wide_type(const struct kernel_attention *a, const struct kernel_attention_gradient *g,
        cudaStream_t stream, struct error *err)
{
    return g->dbias   ? wide_run<wide_shape<T, true, true>>(a, g, stream, err)
            : a->bias ? wide_run<wide_shape<T, true, false>>(a, g, stream, err)
                      : wide_run<wide_shape<T, false, false>>(a, g, stream, err);
}

int backward_wide(const struct kernel_attention *a, const struct kernel_attention_gradient *g,
        cudaStream_t stream, struct error *err)
{
    if (a->variant)
        return error_set(err, -ERANGE,
                "attention backward: there is no variant %d of this type and dim", a->variant);
    return a->type == KERNEL_FLOAT16 ? wide_type<__half>(a, g, stream, err)
                                     : wide_type<__nv_bfloat16>(a, g, stream, err);
}
#endif
