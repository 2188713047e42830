// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, backward. x, dy, dx [rows][n], float32 or bfloat16; gain, dgain, dbias
// [n]; mean, 1/sd [rows].
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/norm_backward.cu
// Bytes: x and dy read once, dx written once, 8 a row for mean and scale; gain, dgain and dbias
// once. About 16 operations a value: bound by memory.
//
// With xhat = (x - mean) * scale and g = dy * gain:  dx = scale * (g - mean(g) - xhat * mean(g *
// xhat)); RMS: no mean(g). dgain = sum over rows of dy * xhat, dbias of dy: each thread keeps those
// of its columns in registers over all rows of its block, blocks write one partial sum each, and a
// second kernel adds the partials in their order: the same bits each time. Checked and timed by
// norm_bench.cu.
#include "kernels/norm_shape.cuh"

#define NORM_STAGES 3
#define NORM_SLICES 32 // of the partial sums, added side by side

// A group holds 2 vectors a thread: the sums of the gradients of gain and bias stay in registers
// over all rows of a block. Calls run<GROUP, VECS>(arguments) of the least group that holds
// `vectors`.
#define NORM_DISPATCH(vectors, run, ...) \
    ((vectors) <= 32                    ? run<32, 1>(__VA_ARGS__) \
                    : (vectors) <= 64   ? run<32, 2>(__VA_ARGS__) \
                    : (vectors) <= 128  ? run<64, 2>(__VA_ARGS__) \
                    : (vectors) <= 256  ? run<128, 2>(__VA_ARGS__) \
                    : (vectors) <= 512  ? run<256, 2>(__VA_ARGS__) \
                    : (vectors) <= 1024 ? run<512, 2>(__VA_ARGS__) \
                    : (vectors) <= 1536 ? run<768, 2>(__VA_ARGS__) \
                                        : run<1024, 2>(__VA_ARGS__))

// Threads of a block: a whole number of groups. Two blocks of 256 hide each other's barriers (layer
// norm, 4096 columns on an H200: 0.90 of the copy, 0.86 with one of 512); RMS norm has less to do
// and is better off with one (0.91, 0.81).
template <int GROUP, bool RMS> constexpr int norm_block = GROUP >= 512 ? GROUP : RMS ? 512 : 256;

// FULL: the row fills all vectors of the group, so that none is asked whether it is inside.
template <typename T, int GROUP, int VECS, bool RMS, bool FULL>
static __global__ void __launch_bounds__(norm_block<GROUP, RMS>, 1)
        norm_backward(int64_t rows, int n, float share /* 1 / n */, const T *__restrict__ x,
                const T *__restrict__ dy, const T *__restrict__ gain,
                const float *__restrict__ means, const float *__restrict__ scales,
                T *__restrict__ dx, float *__restrict__ partial /* [RMS ? 1 : 2][gridDim.x][n] */)
{
    constexpr int LANES = vector_lanes<T>, BLOCK = norm_block<GROUP, RMS>, GROUPS = BLOCK / GROUP;
    extern __shared__ uint4 ring[]; // [NORM_STAGES][x, dy][VECS][BLOCK], then gain [VECS][BLOCK]
    __shared__ float2 slots[2][BLOCK / 32];
    const int thread = (int)threadIdx.x, lane = thread % GROUP, group = thread / GROUP,
              vectors = n / LANES;
    const int64_t stride = (int64_t)gridDim.x * GROUPS;
    float dgain[VECS][LANES] = {}, dbias[VECS][LANES] = {};
    int parity = 0, slot = 0;

    auto inside = [&](int v) { return FULL || v * GROUP + lane < vectors; };
    auto fetch = [&](const T *from, bool exists, int to) {
        if (exists)
#pragma unroll
            for (int v = 0; v < VECS; v++)
                if (inside(v))
                    async_copy(&ring[(to * VECS + v) * BLOCK + thread],
                            (const uint4 *)from + v * GROUP + lane);
    };
    int64_t row = (int64_t)blockIdx.x * GROUPS + group;
    launch_next(); // norm_backward_finish may be set up
    launch_wait();
    fetch(gain, true, 2 * NORM_STAGES);
#pragma unroll
    for (int s = 0; s < NORM_STAGES - 1; s++) {
        const int64_t coming = row + s * stride;
        fetch(x + coming * n, coming < rows, 2 * s);
        fetch(dy + coming * n, coming < rows, 2 * s + 1);
        async_commit();
    }
    float next_mean = !RMS && row < rows ? means[row] : 0,
          next_scale = row < rows ? scales[row] : 0;
    // All groups of the block make the same number of rounds, some of them without a row:
    // group_sum() has a barrier.
    for (int64_t base = (int64_t)blockIdx.x * GROUPS; base < rows; base += stride, row += stride) {
        const bool here = row < rows;
        const float mean = next_mean, scale = next_scale;
        const int64_t coming = row + (NORM_STAGES - 1) * stride;
        const int to = slot == 0 ? NORM_STAGES - 1 : slot - 1;
        fetch(x + coming * n, coming < rows, 2 * to);
        fetch(dy + coming * n, coming < rows, 2 * to + 1);
        async_commit();
        if (row + stride < rows) {
            next_mean = RMS ? 0 : means[row + stride];
            next_scale = scales[row + stride];
        }
        async_wait<NORM_STAGES - 1>();
        float sum = 0, dot = 0;
        const float shift = -mean * scale;
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            float a[LANES], d[LANES], g[LANES];
            if (!here || !inside(v))
                break;
            vector_unpack(ring[((2 * slot) * VECS + v) * BLOCK + thread], a, T());
            vector_unpack(ring[((2 * slot + 1) * VECS + v) * BLOCK + thread], d, T());
            vector_unpack(ring[(2 * NORM_STAGES * VECS + v) * BLOCK + thread], g, T());
#pragma unroll
            for (int i = 0; i < LANES; i++) {
                const float hat = a[i] * scale + shift, grad = d[i] * g[i];
                dgain[v][i] += d[i] * hat;
                dbias[v][i] += d[i];
                sum += grad;
                dot += grad * hat;
            }
        }
        group_sums<GROUP>(sum, dot, slots[parity]);
        const float of_hat = -scale * dot * share, constant = RMS ? 0 : -scale * sum * share;
        parity ^= 1;
#pragma unroll
        for (int v = 0; v < VECS; v++) {
            float a[LANES], d[LANES], g[LANES];
            if (!here || !inside(v))
                break;
            vector_unpack(ring[((2 * slot) * VECS + v) * BLOCK + thread], a, T());
            vector_unpack(ring[((2 * slot + 1) * VECS + v) * BLOCK + thread], d, T());
            vector_unpack(ring[(2 * NORM_STAGES * VECS + v) * BLOCK + thread], g, T());
#pragma unroll
            for (int i = 0; i < LANES; i++)
                d[i] = scale * (d[i] * g[i]) + ((a[i] * scale + shift) * of_hat + constant);
            __stcs((uint4 *)(dx + row * n) + v * GROUP + lane, vector_pack(d, T()));
        }
        slot = slot == NORM_STAGES - 1 ? 0 : slot + 1;
    }
    // The groups of the block add theirs one after the other, in memory that the ring no longer
    // needs.
    async_wait<0>();
    __syncthreads();
    float *total = (float *)ring; // [RMS ? 1 : 2][n]
    for (int turn = 0; turn < GROUPS; turn++) {
#pragma unroll
        for (int v = 0; v < VECS; v++)
#pragma unroll
            for (int i = 0; i < LANES; i++)
                if (turn == group && inside(v)) {
                    const int column = (v * GROUP + lane) * LANES + i;
                    total[column] = dgain[v][i] + (turn == 0 ? 0 : total[column]);
                    if (!RMS)
                        total[n + column] = dbias[v][i] + (turn == 0 ? 0 : total[n + column]);
                }
        __syncthreads();
    }
    for (int i = thread; i < (RMS ? 1 : 2) * (n / 4); i += BLOCK) {
        const int half = i >= n / 4, column = i - half * (n / 4);
        ((float4 *)partial)[((int64_t)half * gridDim.x + blockIdx.x) * (n / 4) + column] =
                ((const float4 *)total)[i];
    }
}

// A block adds 32 columns: 8 threads of 4 columns side by side, NORM_SLICES slices of the partials.
template <typename T>
static __global__ void __launch_bounds__(8 * NORM_SLICES) norm_backward_finish(int n, int count,
        const float4 *__restrict__ partial /* [2][count][n] */, T *__restrict__ dgain,
        T *__restrict__ dbias)
{
    __shared__ float4 slices[NORM_SLICES][8];
    // column: of 4
    const int column = (int)blockIdx.x * 8 + (int)threadIdx.x, slice = (int)threadIdx.y;
    const float4 *from = partial + (int64_t)blockIdx.y * count * (n / 4);
    float4 sum = make_float4(0, 0, 0, 0);
    launch_next();
    launch_wait();
    if (column < n / 4)
#pragma unroll 4
        for (int i = slice; i < count; i += NORM_SLICES) {
            const float4 more = from[(int64_t)i * (n / 4) + column];
            sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
    slices[slice][threadIdx.x] = sum;
    __syncthreads();
    if (slice != 0 || column >= n / 4)
        return;
    for (int i = 1; i < NORM_SLICES; i++) {
        const float4 more = slices[i][threadIdx.x];
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    T *to = (blockIdx.y ? dbias : dgain) + column * 4;
    to[0] = (T)sum.x;
    to[1] = (T)sum.y;
    to[2] = (T)sum.z;
    to[3] = (T)sum.w;
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <typename T, bool RMS> struct norm_backward_launch {
    template <int GROUP, int VECS> static constexpr size_t bytes()
    {
        return sizeof(uint4) * (2 * NORM_STAGES + 1) * VECS * norm_block<GROUP, RMS>;
    }
    // ret_blocks alone, or the launch when there is a gradient.
    template <int GROUP, int VECS, bool FULL>
    static int launch(const struct kernel_norm *norm, const struct kernel_norm_gradient *gradient,
            int *ret_blocks, cudaStream_t stream, struct error *err)
    {
        constexpr int BLOCK = norm_block<GROUP, RMS>;
        static int resident; // of this instance; the same on every call, so a race writes what is
                             // there
        int64_t needed = (norm->rows * GROUP + BLOCK - 1) / BLOCK;
        if (!resident) {
            int rc = device_resident((const void *)norm_backward<T, GROUP, VECS, RMS, FULL>, BLOCK,
                    bytes<GROUP, VECS>(), &resident, err);
            if (rc)
                return rc;
        }
        unsigned blocks = (unsigned)(needed < resident ? needed : resident);
        *ret_blocks = (int)blocks;
        if (!gradient)
            return 0;
        cudaError_t error = device_launch_early(norm_backward<T, GROUP, VECS, RMS, FULL>, blocks,
                BLOCK, bytes<GROUP, VECS>(), stream, norm->rows, norm->n, 1 / (float)norm->n,
                (const T *)norm->x, (const T *)gradient->dy, (const T *)norm->gain, norm->mean,
                norm->scale, (T *)gradient->dx, gradient->scratch);
        if (error == cudaSuccess)
            error = device_launch_early(norm_backward_finish<T>,
                    dim3((unsigned)((norm->n + 31) / 32), RMS ? 1 : 2), dim3(8, NORM_SLICES), 0,
                    stream, norm->n, blocks, (const float4 *)gradient->scratch,
                    (T *)gradient->dgain, (T *)gradient->dbias);
        return device_error(error, "launch norm_backward", err);
    }
    template <int GROUP, int VECS>
    static int run(const struct kernel_norm *norm, const struct kernel_norm_gradient *gradient,
            int *ret_blocks, cudaStream_t stream, struct error *err)
    {
        return norm->n == (int64_t)GROUP * VECS * vector_lanes<T>
                ? launch<GROUP, VECS, true>(norm, gradient, ret_blocks, stream, err)
                : launch<GROUP, VECS, false>(norm, gradient, ret_blocks, stream, err);
    }
    static int any(const struct kernel_norm *norm, const struct kernel_norm_gradient *gradient,
            int *ret_blocks, cudaStream_t stream, struct error *err)
    {
        return NORM_DISPATCH(
                norm->n / vector_lanes<T>, run, norm, gradient, ret_blocks, stream, err);
    }
};

static int norm_backward_any(const struct kernel_norm *norm,
        const struct kernel_norm_gradient *gradient, int *ret_blocks, cudaStream_t stream,
        struct error *err)
{
    if (norm->type == KERNEL_FLOAT32)
        return norm->rms
                ? norm_backward_launch<float, true>::any(norm, gradient, ret_blocks, stream, err)
                : norm_backward_launch<float, false>::any(norm, gradient, ret_blocks, stream, err);
    return norm->rms ? norm_backward_launch<__nv_bfloat16, true>::any(
                               norm, gradient, ret_blocks, stream, err)
                     : norm_backward_launch<__nv_bfloat16, false>::any(
                               norm, gradient, ret_blocks, stream, err);
}

int kernel_norm_scratch(const struct kernel_norm *norm, size_t *ret_bytes, struct error *err)
{
    int blocks = 0, rc = norm_check(norm, err);
    if (!rc)
        rc = norm_backward_any(norm, NULL, &blocks, 0, err);
    if (!rc)
        *ret_bytes = sizeof(float) * (norm->rms ? 1 : 2) * (size_t)norm->n * (size_t)blocks;
    return rc;
}

int kernel_norm_backward(const struct kernel_norm *norm,
        const struct kernel_norm_gradient *gradient, cudaStream_t stream, struct error *err)
{
    int blocks, rc = norm_check(norm, err);
    if (rc)
        return rc;
    if (!gradient->dy || !gradient->dx || !gradient->dgain || (!norm->rms && !gradient->dbias) ||
            !gradient->scratch)
        return error_set(err, -EINVAL, "norm: dy, dx, dgain, dbias and scratch must not be NULL");
    if (!norm->scale || (!norm->rms && !norm->mean))
        return error_set(err, -EINVAL, "norm: the way back needs mean and scale of the way there");
    if (((uintptr_t)gradient->dy | (uintptr_t)gradient->dx | (uintptr_t)gradient->scratch) % 16 !=
            0)
        return error_set(err, -EINVAL, "norm: a tensor does not start at a multiple of 16 bytes");
    return norm_backward_any(norm, gradient, &blocks, stream, err);
}
#endif
