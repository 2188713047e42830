// SPDX-License-Identifier: Apache-2.0
// The dot interaction of DLRM, forward and backward, as kernels.h says it; with its check and
// timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/interaction.cu
// Bytes: forward x once, out once; backward x and dout once, dx once. Operations: 2 * 32 * 32 * dim
// a row forward, twice that backward; by the matrix units (mma.sync) a tenth of the time that
// memory takes.
//
// A warp has one row, forward one after the other. Forward: x x^T. A thread loads 16 bytes of the
// vectors lane / 4 + 8 * g, columns 8 * (lane % 4) + 32 * c: that is at once the left and the right
// side of the product, as both sum over the columns in the same order, whichever it is. Only the
// tiles that touch the lower triangle are multiplied. Backward: dx = G x, G[i][j] = dout of the
// pair, 0 for i == j, plus dout's first dim for dx[0]; x goes through shared memory, as the sum
// runs over its rows. The reference is ops_interact of the native models in float64. Expected on an
// H200: docs/KERNELS-GPU.md.
#include "kernels/bench.h"

#include "kernels/hopper.cuh"

#define INTERACTION_WARPS 4
#define INTERACTION_VECTORS 32
#define INTERACTION_OUT_MAX 640 // the first vector, the pairs, and up to a multiple of 8

struct interaction_sizes {
    int64_t rows;
    int vectors, stride;
};

// sums[16][8] += left[16][16] right[8][16]^T
static __device__ __forceinline__ void mma_16x8(float (&sums)[4], uint32_t a0, uint32_t a1,
        uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, __nv_bfloat16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void mma_16x8(float (&sums)[4], uint32_t a0, uint32_t a1,
        uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, __half)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Place of the pair among the pairs, i > j.
static __device__ __forceinline__ int interaction_pair(int i, int j)
{
    return i * (i - 1) / 2 + j;
}

template <typename T, int DIM>
static __global__ void __launch_bounds__(32 * INTERACTION_WARPS) interaction_forward(
        struct interaction_sizes sizes, const T *__restrict__ x /* [rows][vectors][DIM] */,
        T *__restrict__ out /* [rows][stride] */)
{
    __shared__ __align__(16) T staged[INTERACTION_WARPS][INTERACTION_OUT_MAX];
    const int lane = (int)threadIdx.x % 32, quad = lane % 4,
              width = DIM + interaction_pair(sizes.vectors, 0);
    const int64_t step = (int64_t)gridDim.x * INTERACTION_WARPS;
    T *const result = staged[threadIdx.x / 32];
    uint4 part[4][DIM / 32];
    auto bring = [&](int64_t row) {
        const T *from = x + row * sizes.vectors * DIM + 8 * quad;
#pragma unroll
        for (int g = 0; g < 4; g++)
#pragma unroll
            for (int c = 0; c < DIM / 32; c++) {
                const int vector = lane / 4 + 8 * g;
                part[g][c] = vector < sizes.vectors
                        ? __ldcs((const uint4 *)(from + vector * DIM + 32 * c))
                        : make_uint4(0, 0, 0, 0);
            }
    };
    int64_t row = (int64_t)blockIdx.x * INTERACTION_WARPS + threadIdx.x / 32;
    if (row >= sizes.rows) // the whole warp
        return;
    for (int i = width + lane; i < (width + 7) / 8 * 8; i += 32)
        result[i] = (T)0.0f;
    bring(row);
    for (; row < sizes.rows; row += step) {
        float sums[6][4] = {};
        // tile 0, 1: vectors 0 to 15 with 0 to 7, 8 to 15; tile 2 to 5: 16 to 31 with 0 to 7, ...
        // 24 to 31
#pragma unroll
        for (int c = 0; c < DIM / 32; c++)
#pragma unroll
            for (int tile = 0; tile < 6; tile++) {
                const int high = tile < 2 ? 0 : 2, right = tile < 2 ? tile : tile - 2;
                const uint4 &a = part[high][c], &b = part[high + 1][c], &r = part[right][c];
                mma_16x8(sums[tile], a.x, b.x, a.y, b.y, r.x, r.y, T());
                mma_16x8(sums[tile], a.z, b.z, a.w, b.w, r.z, r.w, T());
            }
        if (lane < 4) {
#pragma unroll
            for (int c = 0; c < DIM / 32; c++)
                *(uint4 *)(result + 32 * c + 8 * quad) = part[0][c];
        }
        if (row + step < sizes.rows) // on its way while this one is written
            bring(row + step);
#pragma unroll
        for (int tile = 0; tile < 6; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int a = (tile < 2 ? 0 : 16) + lane / 4 + i / 2 * 8,
                          b = 8 * (tile < 2 ? tile : tile - 2) + 2 * quad + i % 2;
                if (b < a && a < sizes.vectors)
                    result[DIM + interaction_pair(a, b)] = (T)sums[tile][i];
            }
        __syncwarp();
        for (int i = lane; i < sizes.stride / 8; i += 32)
            __stcs((uint4 *)(out + row * sizes.stride) + i,
                    8 * i < width ? ((const uint4 *)result)[i] : make_uint4(0, 0, 0, 0));
        __syncwarp();
    }
}

// Four 8 x 8 tiles of 16-bit values, each turned; lane's row of one of them at `shared`.
static __device__ __forceinline__ void tiles_turned(uint32_t (&words)[4], uint32_t shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared)
                 : "memory");
}

template <typename T, int DIM>
static __global__ void __launch_bounds__(32 * INTERACTION_WARPS) interaction_backward(
        struct interaction_sizes sizes, const T *__restrict__ x /* [rows][vectors][DIM] */,
        const T *__restrict__ dout /* [rows][stride] */, T *__restrict__ dx /* as x */)
{
    extern __shared__ __align__(16) char dynamic[];
    constexpr int PITCH = DIM * 2 + 16; // bytes from a vector to the next: eight in a column of 16
                                        // bytes are in different banks
    constexpr int EACH = INTERACTION_VECTORS * PITCH + INTERACTION_OUT_MAX * 2;
    const int lane = (int)threadIdx.x % 32, quad = lane % 4;
    const int64_t row = (int64_t)blockIdx.x * INTERACTION_WARPS + threadIdx.x / 32;
    if (row >= sizes.rows)
        return;
    char *const vectors = dynamic + threadIdx.x / 32 * EACH;
    const T *const gradients = (const T *)(vectors + INTERACTION_VECTORS * PITCH);
    const int width = DIM + interaction_pair(sizes.vectors, 0), pieces = sizes.vectors * (DIM / 8);
    const uint4 *from = (const uint4 *)(x + row * sizes.vectors * DIM),
                *from_out = (const uint4 *)(dout + row * sizes.stride);
    for (int i = lane; i < pieces; i += 32)
        async_copy(vectors + i / (DIM / 8) * PITCH + i % (DIM / 8) * 16, from + i);
    for (int i = lane; i < (width + 7) / 8; i += 32)
        async_copy((char *)gradients + 16 * i, from_out + i);
    for (int i = pieces + lane; i < INTERACTION_VECTORS * (DIM / 8); i += 32)
        *(uint4 *)(vectors + i / (DIM / 8) * PITCH + i % (DIM / 8) * 16) = make_uint4(0, 0, 0, 0);
    async_commit();
    async_wait<0>();
    __syncwarp();
    auto gradient = [&](int i, int j) {
        const int high = max(i, j), low = min(i, j);
        return i != j && high < sizes.vectors ? gradients[DIM + interaction_pair(high, low)]
                                              : (T)0.0f;
    };
    // the left side: vectors 16 * m + lane / 4 and 8 more, of columns 16 * k + 2 * quad and 8 more
    // two each
    uint32_t left[2][2][4];
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int a = 16 * m + lane / 4 + i % 2 * 8, b = 16 * k + 2 * quad + i / 2 * 8;
                const T pair[2] = {gradient(a, b), gradient(a, b + 1)};
                memcpy(&left[m][k][i], pair, 4);
            }
    // a row of the four tiles: the vectors 0 to 31
    const uint32_t mine = shared_address(vectors) + (uint32_t)lane * PITCH;
    T *const to = dx + row * sizes.vectors * DIM;
#pragma unroll
    // 32 columns at once: then a thread has 16 bytes of each vector
    for (int n = 0; n < DIM / 32; n++) {
        float sums[2][4][4] = {};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t right[4];
            if (lane / 4 == 0) { // vector 0
                const float2 first = pair_unpack(
                        *(const uint32_t *)(gradients + 32 * n + 8 * c + 2 * quad), T());
                sums[0][c][0] = first.x;
                sums[0][c][1] = first.y;
            }
            tiles_turned(right, mine + 64 * n + 16 * c);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                mma_16x8(sums[m][c], left[m][0][0], left[m][0][1], left[m][0][2], left[m][0][3],
                        right[0], right[1], T());
                mma_16x8(sums[m][c], left[m][1][0], left[m][1][1], left[m][1][2], left[m][1][3],
                        right[2], right[3], T());
            }
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const int vector = 16 * m + lane / 4;
            const float factor[2] = {1, 1}, *const flat = &sums[m][0][0];
            float all[16];
#pragma unroll
            for (int i = 0; i < 16; i++)
                all[i] = flat[i];
            const bool inside[2] = {vector < sizes.vectors, vector + 8 < sizes.vectors};
            sums_store(all, factor, inside, to + vector * DIM + 32 * n, (int64_t)DIM);
        }
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static int interaction_refuse(
        const struct kernel_interaction *i, const void *out, struct error *err)
{
    if (i->type != KERNEL_FLOAT16 && i->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL,
                "interaction: type %s is not supported: float16 and bfloat16 are",
                kernel_type_name(i->type));
    if (i->vectors < 1 || i->vectors > INTERACTION_VECTORS ||
            (i->dim != 32 && i->dim != 64 && i->dim != 128))
        return error_set(err, -EINVAL,
                "interaction: %lld vectors of %lld are not supported: 1 to %d of 32, 64 or 128 are",
                (long long)i->vectors, (long long)i->dim, INTERACTION_VECTORS);
    if (i->rows < 1 || i->rows > (int64_t)INTERACTION_WARPS * INT32_MAX)
        return error_set(err, -EINVAL, "interaction: %lld rows: 1 to %lld are supported",
                (long long)i->rows, (long long)INTERACTION_WARPS * INT32_MAX);
    const int64_t width = i->dim + i->vectors * (i->vectors - 1) / 2;
    if (i->stride < width || i->stride % 8 != 0 || i->stride > 1 << 20)
        return error_set(err, -EINVAL,
                "interaction: a stride of %lld: a multiple of 8 from %lld to %d is supported",
                (long long)i->stride, (long long)(width + 7) / 8 * 8, 1 << 20);
    if (!i->x || !out || ((uintptr_t)i->x | (uintptr_t)out) % 16 != 0)
        return error_set(err, -EINVAL,
                "interaction: x, out, dout or dx is NULL or does not start at a multiple of 16 bytes");
    return 0;
}

template <typename T, int DIM>
static int interaction_run(const struct kernel_interaction *i, const void *dout, void *out,
        cudaStream_t stream, struct error *err)
{
    const size_t bytes = INTERACTION_WARPS *
            (INTERACTION_VECTORS * (size_t)(DIM * 2 + 16) + INTERACTION_OUT_MAX * 2);
    const struct interaction_sizes sizes = {i->rows, (int)i->vectors, (int)i->stride};
    const unsigned blocks = (unsigned)((i->rows + INTERACTION_WARPS - 1) / INTERACTION_WARPS);
    int resident, rc;
    if (!dout) {
        if ((rc = device_resident((const void *)interaction_forward<T, DIM>, 32 * INTERACTION_WARPS,
                     0, &resident, err)))
            return rc;
        const unsigned grid = blocks < (unsigned)resident ? blocks : (unsigned)resident;
        interaction_forward<T, DIM>
                <<<grid, 32 * INTERACTION_WARPS, 0, stream>>>(sizes, (const T *)i->x, (T *)out);
    } else {
        if ((rc = device_resident((const void *)interaction_backward<T, DIM>,
                     32 * INTERACTION_WARPS, bytes, &resident, err)))
            return rc;
        interaction_backward<T, DIM><<<blocks, 32 * INTERACTION_WARPS, bytes, stream>>>(
                sizes, (const T *)i->x, (const T *)dout, (T *)out);
    }
    return device_error(cudaGetLastError(), "launch interaction", err);
}

template <typename T>
static int interaction_dim(const struct kernel_interaction *i, const void *dout, void *out,
        cudaStream_t stream, struct error *err)
{
    return i->dim == 32    ? interaction_run<T, 32>(i, dout, out, stream, err)
            : i->dim == 64 ? interaction_run<T, 64>(i, dout, out, stream, err)
                           : interaction_run<T, 128>(i, dout, out, stream, err);
}

int kernel_interaction_forward(
        const struct kernel_interaction *i, void *out, cudaStream_t stream, struct error *err)
{
    int rc = interaction_refuse(i, out, err);
    if (rc)
        return rc;
    return i->type == KERNEL_FLOAT16 ? interaction_dim<__half>(i, NULL, out, stream, err)
                                     : interaction_dim<__nv_bfloat16>(i, NULL, out, stream, err);
}

int kernel_interaction_backward(const struct kernel_interaction *i, const void *dout, void *dx,
        cudaStream_t stream, struct error *err)
{
    int rc = interaction_refuse(i, dx, err);
    if (rc == 0)
        rc = interaction_refuse(i, dout, err);
    if (rc)
        return rc;
    return i->type == KERNEL_FLOAT16 ? interaction_dim<__half>(i, dout, dx, stream, err)
                                     : interaction_dim<__nv_bfloat16>(i, dout, dx, stream, err);
}

struct interaction_case {
    struct kernel_interaction interaction;
    size_t distinct;
    std::vector<double> x, dout; // of the distinct rows
    void *out, *dout_device, *dx;
};

static void launch_interaction(void *arg, int, cudaStream_t stream)
{
    const struct interaction_case *t = (const struct interaction_case *)arg;
    struct error err;
    bench_must(kernel_interaction_forward(&t->interaction, t->out, stream, &err), &err);
}

static void launch_interaction_backward(void *arg, int, cudaStream_t stream)
{
    const struct interaction_case *t = (const struct interaction_case *)arg;
    struct error err;
    bench_must(kernel_interaction_backward(&t->interaction, t->dout_device, t->dx, stream, &err),
            &err);
}

static void interaction_set(struct bench *bench, struct interaction_case *t, enum kernel_type type,
        size_t rows, size_t vectors, size_t dim, size_t pad, size_t distinct)
{
    const size_t stride = (OPS_INTERACT_WIDTH(vectors, dim) + 7) / 8 * 8 + pad,
                 times = rows / distinct;
    t->distinct = distinct;
    const void *x = bench_draw(bench, type, distinct * vectors * dim, 1, false, &t->x);
    const void *dout = bench_draw(bench, type, distinct * stride, 1, false, &t->dout);
    x = bench_repeat(bench, x, distinct * vectors * dim * 2, times);
    t->dout_device = bench_repeat(bench, dout, distinct * stride * 2, times);
    t->out = bench_memory(bench, rows * stride * 2);
    t->dx = bench_memory(bench, rows * vectors * dim * 2);
    t->interaction = {type, (int64_t)rows, (int64_t)vectors, (int64_t)dim, (int64_t)stride, x};
}

static double interaction_limit(enum kernel_type type)
{
    return type == KERNEL_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

// Launches both; compares the first and the last of the distinct rows.
static void interaction_errors(struct bench *bench, const struct interaction_case *t,
        double *ret_forward, double *ret_backward)
{
    const struct kernel_interaction *i = &t->interaction;
    const size_t vectors = (size_t)i->vectors, dim = (size_t)i->dim, stride = (size_t)i->stride,
                 width = OPS_INTERACT_WIDTH(vectors, dim);
    const size_t distinct = t->distinct, each = vectors * dim;
    std::vector<double> narrow(distinct * width), out(distinct * stride), dx(distinct * each);

    launch_interaction((void *)t, 0, bench->stream);
    launch_interaction_backward((void *)t, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    ops_interact(bench->pool, distinct, vectors, dim, t->x.data(), narrow.data());
    for (size_t row = 0; row < distinct; row++)
        std::copy_n(&narrow[row * width], width, &out[row * stride]); // and zeros
    for (size_t row = 0; row < distinct; row++)
        std::copy_n(&t->dout[row * stride], width, &narrow[row * width]);
    ops_interact_backward(
            bench->pool, distinct, vectors, dim, t->x.data(), narrow.data(), dx.data());
    *ret_forward = *ret_backward = 0;
    for (size_t first : {(size_t)0, (size_t)i->rows - distinct}) {
        const std::vector<double> got = bench_download(
                i->type, (const char *)t->out + first * stride * 2, distinct * stride);
        const std::vector<double> got_dx =
                bench_download(i->type, (const char *)t->dx + first * each * 2, distinct * each);
        *ret_forward = std::max(*ret_forward,
                bench_error(got.data(), out.data(), out.size(), interaction_limit(i->type)));
        *ret_backward = std::max(*ret_backward,
                bench_error(got_dx.data(), dx.data(), dx.size(), interaction_limit(i->type)));
    }
}

static void interaction_check(struct bench *bench)
{
    for (enum kernel_type type : {KERNEL_FLOAT16, KERNEL_BFLOAT16})
        for (size_t dim : {32, 64, 128})
            for (size_t vectors : {1, 2, 8, 9, 16, 17, 27, 31, 32})
                for (size_t pad : {0, 64}) {
                    const size_t rows = bench->quick ? 5 : vectors == 27 ? 5003 : 261;
                    struct interaction_case t;
                    double forward, backward;
                    char name[96];
                    if (bench->quick && (vectors % 9 != 0 || pad))
                        continue;
                    interaction_set(bench, &t, type, rows, vectors, dim, pad, rows);
                    snprintf(name, sizeof name, "%zux%zux%zu %s, pad %zu", rows, vectors, dim,
                            kernel_type_name(type), pad);
                    interaction_errors(bench, &t, &forward, &backward);
                    bench_expect(
                            bench, forward, interaction_limit(type), "interaction_forward", name);
                    bench_expect(
                            bench, backward, interaction_limit(type), "interaction_backward", name);
                    bench_release(bench);
                }
}

static void interaction_time(struct bench *bench)
{
    static const struct {
        size_t rows, vectors, dim;
    } shapes[] = {{65536, 27, 128}, {262144, 27, 64}};
    for (const auto &shape : shapes) {
        const enum kernel_type type = KERNEL_BFLOAT16;
        struct interaction_case t;
        struct bench_row forward = {"interaction_forward", "", 0, interaction_limit(type), 0, 0.90},
                         backward = forward;
        backward.kernel = "interaction_backward";
        interaction_set(bench, &t, type, shape.rows, shape.vectors, shape.dim, 0, 2048);
        snprintf(forward.shape, sizeof forward.shape, "%zux%zux%zu %s", shape.rows, shape.vectors,
                shape.dim, kernel_type_name(type));
        memcpy(backward.shape, forward.shape, sizeof backward.shape);
        const double x = 2.0 * (double)(shape.rows * shape.vectors * shape.dim),
                     out = 2.0 * (double)t.interaction.stride * (double)shape.rows;
        forward.bytes = x + out;
        backward.bytes = 2 * x + out;
        interaction_errors(bench, &t, &forward.error, &backward.error);
        bench_report(bench, &forward, bench_time(bench, launch_interaction, &t, 1));
        bench_report(bench, &backward, bench_time(bench, launch_interaction_backward, &t, 1));
        bench_release(bench);
    }
}

static int interaction_host()
{
    alignas(16) static float memory[64];
    const struct kernel_interaction good = {KERNEL_BFLOAT16, 1, 2, 32, 40, memory};
    struct kernel_interaction bad;
    struct error err;
    int failures = 0;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_interaction_forward(&bad, memory, 0, &err), &err, words); \
    failures += \
            bench_refused(kernel_interaction_backward(&bad, memory, memory, 0, &err), &err, words)
    REFUSED(type, KERNEL_FLOAT32, "type float32 is not supported");
    REFUSED(vectors, 33, "33 vectors of 32");
    REFUSED(vectors, 0, "0 vectors of 32");
    REFUSED(dim, 48, "2 vectors of 48");
    REFUSED(rows, 0, "0 rows");
    REFUSED(stride, 32, "a stride of 32: a multiple of 8 from 40");
    REFUSED(stride, 41, "a stride of 41");
    REFUSED(x, memory + 1, "multiple of 16 bytes");
#undef REFUSED
    failures += bench_refused(kernel_interaction_forward(&good, NULL, 0, &err), &err, "is NULL");
    failures += bench_refused(
            kernel_interaction_backward(&good, NULL, memory, 0, &err), &err, "is NULL");
    return failures;
}

const struct suite suite_interaction = {
        "interaction", interaction_host, interaction_check, interaction_time};
#endif
