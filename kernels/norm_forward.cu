// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, forward. x, y [rows][n], float32 or bfloat16; gain, bias [n]; mean, 1/sd
// [rows], float32.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/norm_forward.cu
// Bytes: x read once, y written once, 8 a row for mean and scale; gain and bias once. About 8
// operations a value: bound by memory.
//
// A group of threads holds a row in registers: mean first, variance about that mean, so that
// nothing cancels. A row a group and no more: blocks that stayed and took rows in turn, the coming
// ones on their way in shared memory, were slower on an H200 (0.78 to 0.84 of the copy): the
// slowest multiprocessor decided, here the next free one takes the next row. Checked and timed by
// norm_bench.cu.
#include "kernels/norm_shape.cuh"

// Narrow rows stay within a warp, which needs no barrier. Calls run<GROUP, VECS>(arguments): GROUP
// threads a row, VECS vectors a thread, the least that hold `vectors`.
#define NORM_DISPATCH(vectors, run, ...) \
    ((vectors) <= 32                    ? run<32, 1>(__VA_ARGS__) \
                    : (vectors) <= 64   ? run<32, 2>(__VA_ARGS__) \
                    : (vectors) <= 128  ? run<32, 4>(__VA_ARGS__) \
                    : (vectors) <= 256  ? run<128, 2>(__VA_ARGS__) \
                    : (vectors) <= 512  ? run<128, 4>(__VA_ARGS__) \
                    : (vectors) <= 1024 ? run<256, 4>(__VA_ARGS__) \
                    : (vectors) <= 1536 ? run<384, 4>(__VA_ARGS__) \
                                        : run<512, 4>(__VA_ARGS__))

// FULL: the row fills all vectors of the group, so that none is asked whether it is inside.
template <typename T, int GROUP, int VECS, bool RMS, bool FULL>
static __global__ void __launch_bounds__(GROUP < 128 ? 128 : GROUP, GROUP < 128 ? 6 : 1024 / GROUP)
        norm_forward(int64_t rows, int n, float share /* 1 / n */, float epsilon,
                const T *__restrict__ x, const T *__restrict__ gain, const T *__restrict__ bias,
                T *__restrict__ y, float *__restrict__ ret_mean, float *__restrict__ ret_scale)
{
    constexpr int LANES = vector_lanes<T>, BLOCK = GROUP < 128 ? 128 : GROUP,
                  GROUPS = BLOCK / GROUP;
    __shared__ float slots[2][BLOCK / 32];
    const int thread = (int)threadIdx.x, lane = thread % GROUP, vectors = n / LANES;
    const int64_t row = (int64_t)blockIdx.x * GROUPS + thread / GROUP;
    uint4 raw[VECS];
    float value[VECS][LANES]; // then its distance from the mean
    float sum = 0, square = 0, mean = 0;

    launch_next();   // a successor of the same kind may be set up
    if (row >= rows) // a whole warp: wider groups are whole blocks, and those have a row
        return;
    auto inside = [&](int v) { return FULL || v * GROUP + lane < vectors; };
    const uint4 *from = (const uint4 *)(x + row * n) + lane;
    launch_wait();
#pragma unroll
    for (int v = 0; v < VECS; v++)
        raw[v] = inside(v) ? __ldcs(from + v * GROUP) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int v = 0; v < VECS; v++)
        vector_unpack(raw[v], value[v], T());
    if (!RMS) {
#pragma unroll
        for (int v = 0; v < VECS; v++)
#pragma unroll
            for (int i = 0; i < LANES; i++)
                sum += value[v][i];
        mean = group_sum<GROUP>(sum, slots[0]) * share;
    }
#pragma unroll
    for (int v = 0; v < VECS; v++)
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            value[v][i] = inside(v) ? value[v][i] - mean : 0;
            square += value[v][i] * value[v][i];
        }
    const float scale = rsqrtf(group_sum<GROUP>(square, slots[1]) * share + epsilon);
    uint4 *to = (uint4 *)(y + row * n) + lane;
#pragma unroll
    for (int v = 0; v < VECS; v++)
        if (inside(v)) {
            float g[LANES], b[LANES] = {};
            vector_unpack(__ldg((const uint4 *)gain + v * GROUP + lane), g, T());
            if (!RMS)
                vector_unpack(__ldg((const uint4 *)bias + v * GROUP + lane), b, T());
#pragma unroll
            for (int i = 0; i < LANES; i++)
                value[v][i] = value[v][i] * scale * g[i] + b[i];
            __stcs(to + v * GROUP, vector_pack(value[v], T()));
        }
    if (lane == 0 && ret_scale) {
        ret_scale[row] = scale;
        if (!RMS)
            ret_mean[row] = mean;
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename T, bool RMS> struct norm_forward_launch {
    template <int GROUP, int VECS, bool FULL>
    static int launch(const struct kernel_norm *norm, cudaStream_t stream, struct error *err)
    {
        constexpr int BLOCK = GROUP < 128 ? 128 : GROUP, GROUPS = BLOCK / GROUP;
        return device_error(device_launch_early(norm_forward<T, GROUP, VECS, RMS, FULL>,
                                    dim3((unsigned)((norm->rows + GROUPS - 1) / GROUPS)), BLOCK, 0,
                                    stream, norm->rows, norm->n, 1 / (float)norm->n, norm->epsilon,
                                    (const T *)norm->x, (const T *)norm->gain,
                                    (const T *)norm->bias, (T *)norm->y, norm->mean, norm->scale),
                "launch norm_forward", err);
    }
    template <int GROUP, int VECS>
    static int run(const struct kernel_norm *norm, cudaStream_t stream, struct error *err)
    {
        return norm->n == (int64_t)GROUP * VECS * vector_lanes<T>
                ? launch<GROUP, VECS, true>(norm, stream, err)
                : launch<GROUP, VECS, false>(norm, stream, err);
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
#endif
