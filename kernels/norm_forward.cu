// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, forward. x, y [rows][n], float32 or bfloat16; gain, bias [n]; mean, 1/sd [rows], float32.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/norm_forward.cu
// Bytes: x read once, y written once, 8 a row for mean and scale; gain and bias once. About 8 operations a value: bound by memory.
//
// Blocks stay on their multiprocessor and take rows in turn. Each thread copies its own 16-byte vectors of the coming rows into
// a ring of its own in shared memory, so that rows are in flight while others are summed, at no cost in registers and without a
// barrier. The row is then held in registers: mean first, variance about that mean, so that nothing cancels. Checked and timed
// by norm_bench.cu.
#include "kernels/norm_shape.cuh"

#ifndef NORM_STAGES
#define NORM_STAGES 3
#endif

// Narrow rows stay within a warp, which needs no barrier. Calls run<GROUP, VECS>(arguments): GROUP threads a row, VECS vectors
// a thread, the least that hold `vectors`.
#define NORM_DISPATCH(vectors, run, ...)                                                                                      \
    ((vectors) <= 32     ? run<32, 1>(__VA_ARGS__)                                                                            \
     : (vectors) <= 64   ? run<32, 2>(__VA_ARGS__)                                                                            \
     : (vectors) <= 128  ? run<32, 4>(__VA_ARGS__)                                                                            \
     : (vectors) <= 256  ? run<128, 2>(__VA_ARGS__)                                                                           \
     : (vectors) <= 512  ? run<128, 4>(__VA_ARGS__)                                                                           \
     : (vectors) <= 1024 ? run<256, 4>(__VA_ARGS__)                                                                           \
     : (vectors) <= 1536 ? run<384, 4>(__VA_ARGS__)                                                                           \
                         : run<512, 4>(__VA_ARGS__))

template <typename T, int GROUP, int VECS, bool RMS>
static __global__ void __launch_bounds__(GROUP < 128 ? 128 : GROUP, GROUP < 128 ? 8 : 1024 / GROUP)
    norm_forward(int64_t rows, int n, float epsilon, const T *__restrict__ x, const T *__restrict__ gain,
                 const T *__restrict__ bias, T *__restrict__ y, float *__restrict__ ret_mean, float *__restrict__ ret_scale)
{
    constexpr int LANES = vector_lanes<T>, BLOCK = GROUP < 128 ? 128 : GROUP, GROUPS = BLOCK / GROUP;
    extern __shared__ uint4 ring[]; // [NORM_STAGES][VECS][BLOCK]
    __shared__ float slots[2][BLOCK / 32];
    const int thread = (int)threadIdx.x, lane = thread % GROUP, vectors = n / LANES;
    const int64_t stride = (int64_t)gridDim.x * GROUPS;
    int64_t row = (int64_t)blockIdx.x * GROUPS + thread / GROUP;
    int parity = 0, slot = 0;

    auto fetch = [&](const T *from, bool exists, int to) {
#pragma unroll
        for (int v = 0; v < VECS; v++)
            if (exists && v * GROUP + lane < vectors)
                async_copy(&ring[(to * VECS + v) * BLOCK + thread], from + (v * GROUP + lane) * LANES);
    };
#pragma unroll
    for (int s = 0; s < NORM_STAGES - 1; s++) {
        fetch(x + (row + s * stride) * n, row + s * stride < rows, s);
        async_commit();
    }
    // A group of more than a warp is the whole block (GROUPS is 1): its threads leave the loop together.
    for (; row < rows; row += stride) {
        float value[VECS][LANES];
        float sum = 0, square = 0;
        const int64_t coming = row + (NORM_STAGES - 1) * stride;
        fetch(x + coming * n, coming < rows, slot == 0 ? NORM_STAGES - 1 : slot - 1);
        async_commit();
        async_wait<NORM_STAGES - 1>();
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            const bool inside = v * GROUP + lane < vectors;
            vector_unpack(inside ? ring[(slot * VECS + v) * BLOCK + thread] : make_uint4(0, 0, 0, 0), value[v], T());
        }
        slot = slot == NORM_STAGES - 1 ? 0 : slot + 1;
        float mean = 0;
        if (!RMS) {
#pragma unroll
            for (int v = 0; v < VECS; v++)
#pragma unroll
                for (int i = 0; i < LANES; i++)
                    sum += value[v][i];
            mean = group_sum<GROUP>(sum, slots[parity]) / (float)n;
            parity ^= 1;
        }
#pragma unroll
        for (int v = 0; v < VECS; v++)
            if (v * GROUP + lane < vectors)
#pragma unroll
                for (int i = 0; i < LANES; i++)
                    square += (value[v][i] - mean) * (value[v][i] - mean);
        const float scale = 1 / sqrtf(group_sum<GROUP>(square, slots[parity]) / (float)n + epsilon);
        parity ^= 1;
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            float g[LANES], b[LANES] = {};
            if (v * GROUP + lane >= vectors)
                break;
            vector_unpack(__ldg((const uint4 *)gain + v * GROUP + lane), g, T()); // from the L1 after the first row
            if (!RMS)
                vector_unpack(__ldg((const uint4 *)bias + v * GROUP + lane), b, T());
#pragma unroll
            for (int i = 0; i < LANES; i++)
                value[v][i] = (value[v][i] - mean) * scale * g[i] + b[i];
            __stcs((uint4 *)(y + row * n) + v * GROUP + lane, vector_pack(value[v], T()));
        }
        if (lane == 0 && ret_scale) {
            ret_scale[row] = scale;
            if (!RMS)
                ret_mean[row] = mean;
        }
    }
}

template <typename T, bool RMS> struct norm_forward_launch {
    template <int GROUP, int VECS>
    static int run(const struct kernel_norm *norm, cudaStream_t stream, struct error *err)
    {
        constexpr int BLOCK = GROUP < 128 ? 128 : GROUP;
        constexpr size_t BYTES = sizeof(uint4) * NORM_STAGES * VECS * BLOCK;
        static int resident; // of this instance; the same on every call, so a race writes what is there
        int64_t needed = (norm->rows * GROUP + BLOCK - 1) / BLOCK;
        if (!resident) {
            int rc = device_resident((const void *)norm_forward<T, GROUP, VECS, RMS>, BLOCK, BYTES, &resident, err);
            if (rc)
                return rc;
        }
        unsigned blocks = (unsigned)(needed < resident ? needed : resident);
        norm_forward<T, GROUP, VECS, RMS><<<blocks, BLOCK, BYTES, stream>>>(
            norm->rows, (int)norm->n, norm->epsilon, (const T *)norm->x, (const T *)norm->gain, (const T *)norm->bias,
            (T *)norm->y, norm->mean, norm->scale);
        return device_error(cudaGetLastError(), "launch norm_forward", err);
    }
    static int any(const struct kernel_norm *norm, cudaStream_t stream, struct error *err)
    {
        return NORM_DISPATCH(norm->n / vector_lanes<T>, run, norm, stream, err);
    }
};

int kernel_norm_forward(const struct kernel_norm *norm, cudaStream_t stream, struct error *err)
{
    int rc = norm_check(norm, err);
    if (rc)
        return rc;
    if (!norm->y)
        return error_set(err, -EINVAL, "norm: y must not be NULL");
    if (!norm->rms && !norm->mean != !norm->scale)
        return error_set(err, -EINVAL, "norm: mean and scale are both given or both NULL");
    if (norm->type == KERNEL_FLOAT32)
        return norm->rms ? norm_forward_launch<float, true>::any(norm, stream, err)
                         : norm_forward_launch<float, false>::any(norm, stream, err);
    return norm->rms ? norm_forward_launch<__nv_bfloat16, true>::any(norm, stream, err)
                     : norm_forward_launch<__nv_bfloat16, false>::any(norm, stream, err);
}
