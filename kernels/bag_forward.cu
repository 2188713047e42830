// SPDX-License-Identifier: Apache-2.0
// Embedding bags, forward: out[bags][tables][dim] = sum, mean or weighted sum of the rows that each
// bag names. Rows and out float32, float16 or bfloat16, sums in float32; ids and offsets int64;
// several tables in one launch.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bag_forward.cu
// Bytes: each row that is named once, ids, offsets and weights once, out once. One operation a
// value read: bound by memory, and by how many rows are in flight.
//
// As many lanes as a row has 16-byte vectors (4 to 32) have one bag, UNROLL rows of it on their way
// before the first is added: the 32 warps of a multiprocessor have 128 KiB in flight, some four
// times what the latency of memory asks for. The bags of a warp go on together until the longest
// ends. Of 64 registers, which 32 warps leave a thread, 32 are of the rows on their way, so little
// else may stay over the loop: no local memory. Checked and timed by bag_bench.cu.
#include "kernels/bags.cuh"

#define BAG_WARPS 8 // of a block

template <typename T, int LANES, int VECS, int UNROLL, bool WEIGHTED>
static __global__ void __launch_bounds__(BAG_WARPS * 32, VECS > 2 ? 1 : 4)
        bag_forward(int count, int bags, int tables, int vectors, bool mean,
                const __grid_constant__ struct bags_tables table, const int64_t *__restrict__ ids,
                const int64_t *__restrict__ offsets, const float *__restrict__ weights,
                uint4 *__restrict__ out)
{
    constexpr int VALUES = vector_lanes<T>;
    const int number = (int)((blockIdx.x * (BAG_WARPS * 32) + threadIdx.x) / LANES),
              lane = (int)threadIdx.x % LANES;
    const bool exists = number < count;
    const uint4 *rows = (const uint4 *)table.rows[exists ? number / bags : 0] + lane;
    uint32_t from = exists ? (uint32_t)offsets[number] : 0; // ids are less than 2^31
    const int length = exists ? (int)((uint32_t)offsets[number + 1] - from) : 0;
    int left = length, longest = LANES == 32 ? length : __reduce_max_sync(0xffffffffu, length);
    float sum[VECS][VALUES] = {};

    // LANES ids at a time, one a lane; behind the bag's last, -1
    for (; longest > 0; longest -= LANES) {
        const int id = lane < left ? (int)ids[from + lane] : -1;
        const float weight = WEIGHTED && lane < left ? weights[from + lane] : 0;
        from += LANES;
        left -= LANES;
        for (int base = 0; base < LANES && base < longest; base += UNROLL) {
            uint4 raw[UNROLL][VECS];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const int row = __shfl_sync(0xffffffffu, id, base + u, LANES);
#pragma unroll
                for (int v = 0; v < VECS; v++)
                    raw[u][v] = row >= 0 && v * 32 + lane < vectors
                            ? __ldg(rows + (int64_t)row * vectors + v * 32)
                            : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const float scale =
                        WEIGHTED ? __shfl_sync(0xffffffffu, weight, base + u, LANES) : 1;
#pragma unroll
                for (int v = 0; v < VECS; v++) {
                    float value[VALUES];
                    vector_unpack(raw[u][v], value, T());
#pragma unroll
                    for (int k = 0; k < VALUES; k++)
                        sum[v][k] += WEIGHTED ? scale * value[k] : value[k];
                }
            }
        }
    }
    int again = number; // the compiler does not see that it has divided it before: a quotient kept
                        // over the loop costs registers
    asm volatile("" : "+r"(again));
    const int which = again / bags, bag = again - which * bags;
    const float share = !WEIGHTED && mean && length > 0 ? 1 / (float)length : 1;
#pragma unroll
    for (int v = 0; v < VECS; v++) {
#pragma unroll
        for (int k = 0; k < VALUES; k++)
            sum[v][k] *= share;
        if (exists && v * 32 + lane < vectors)
            __stcs(out + ((int64_t)bag * tables + which) * vectors + v * 32 + lane,
                    vector_pack(sum[v], T()));
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename T> struct bag_forward_launch {
    template <int LANES, int VECS, int UNROLL, bool WEIGHTED>
    static int launch(
            const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err)
    {
        const int64_t count = bags->tables * bags->bags;
        struct bags_tables table = {};
        for (int64_t t = 0; t < bags->tables; t++)
            table.rows[t] = bags->rows[t];
        constexpr int EACH = BAG_WARPS * 32 / LANES; // bags of a block
        bag_forward<T, LANES, VECS, UNROLL, WEIGHTED>
                <<<(unsigned)((count + EACH - 1) / EACH), BAG_WARPS * 32, 0, stream>>>((int)count,
                        (int)bags->bags, (int)bags->tables, (int)(bags->dim / vector_lanes<T>),
                        bags->pooling == KERNEL_MEAN, table, bags->ids, bags->offsets,
                        bags->weights, (uint4 *)out);
        return device_error(cudaGetLastError(), "launch bag_forward", err);
    }
    template <int LANES, int VECS, int UNROLL>
    static int run(
            const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err)
    {
        return bags->pooling == KERNEL_WEIGHTED
                ? launch<LANES, VECS, UNROLL, true>(bags, out, stream, err)
                : launch<LANES, VECS, UNROLL, false>(bags, out, stream, err);
    }
    static int any(
            const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err)
    {
        const int64_t vectors = bags->dim / vector_lanes<T>;
        return vectors <= 4     ? run<4, 1, 4>(bags, out, stream, err)
                : vectors <= 8  ? run<8, 1, 8>(bags, out, stream, err)
                : vectors <= 16 ? run<16, 1, 8>(bags, out, stream, err)
                : vectors <= 32 ? run<32, 1, 8>(bags, out, stream, err)
                : vectors <= 64 ? run<32, 2, 4>(bags, out, stream, err)
                                : run<32, 4, 2>(bags, out, stream, err);
    }
};

int kernel_bag_forward(
        const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err)
{
    int rc = bags_refuse(bags, err);
    if (rc)
        return rc;
    if (!out || (uintptr_t)out % 16 != 0)
        return error_set(err, -EINVAL,
                "embedding bag: out is NULL or does not start at a multiple of 16 bytes");
    if (bags->places)
        return error_set(err, -EINVAL,
                "embedding bag: places are of the update; the lookup's ids are the slots themselves");
    return bags->type == KERNEL_FLOAT32 ? bag_forward_launch<float>::any(bags, out, stream, err)
            : bags->type == KERNEL_FLOAT16
            ? bag_forward_launch<__half>::any(bags, out, stream, err)
            : bag_forward_launch<__nv_bfloat16>::any(bags, out, stream, err);
}
#endif
