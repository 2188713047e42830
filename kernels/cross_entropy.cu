// SPDX-License-Identifier: Apache-2.0
// Cross entropy of logits against targets, the loss and its gradient in one pass, as kernels.h says
// it; with its check and timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/cross_entropy.cu
// Bytes: logits once, dlogits once, 8 a row. Two exponentials an element, 16 a cycle and
// multiprocessor: at 2 bytes an element some 0.9 of the time that memory takes, so both must
// overlap.
//
// A block stays, and takes every gridDim-th row. entropy_resident: rows that fit two or three times
// into shared memory: the copy engine brings the next while this one is reduced and written.
// entropy_streamed: longer rows are read twice, the second time from the L2. The sum runs along:
// each thread keeps its largest logit, and what the sum so far is worth beside it. The reference is
// ops_softmax_loss of the native models in float64. Expected on an H200: docs/KERNELS-GPU.md.
#include "kernels/bench.h"

#include "kernels/hopper.cuh"

#define ENTROPY_THREADS 1024
#define ENTROPY_SHARED ((size_t)224 << 10)
#define ENTROPY_LOG2_E 1.44269504088896340736f

struct entropy_sizes {
    int64_t rows;
    int n;
    float scale;
};

// The largest value so far, and the sum of 2^(log2(e) * (value - largest)).
struct entropy_sum {
    float most, sum;
};

static __device__ __forceinline__ float entropy_base(float most)
{
    return most == -INFINITY ? 0 : most * ENTROPY_LOG2_E;
}

static __device__ __forceinline__ struct entropy_sum entropy_join(
        struct entropy_sum a, struct entropy_sum b)
{
    const float most = fmaxf(a.most, b.most), base = entropy_base(most);
    return {most,
            a.sum * fast_exp2(a.most * ENTROPY_LOG2_E - base) +
                    b.sum * fast_exp2(b.most * ENTROPY_LOG2_E - base)};
}

template <int COUNT>
static __device__ __forceinline__ void entropy_add(struct entropy_sum &sum, const float (&x)[COUNT])
{
    float most = fmaxf(sum.most, x[0]), total = 0;
#pragma unroll
    for (int i = 1; i < COUNT; i++)
        most = fmaxf(most, x[i]);
    const float base = entropy_base(most);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        total += fast_exp2(fmaf(x[i], ENTROPY_LOG2_E, -base));
    sum.sum = fmaf(sum.sum, fast_exp2(sum.most * ENTROPY_LOG2_E - base), total);
    sum.most = most;
}

// log2(e) times the log of the sum of exponentials of the block's row, in each thread. slots: 32,
// in shared memory.
static __device__ __forceinline__ float entropy_log_sum(
        struct entropy_sum sum, struct entropy_sum *slots)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum = entropy_join(sum,
                {__shfl_xor_sync(0xffffffffu, sum.most, distance),
                        __shfl_xor_sync(0xffffffffu, sum.sum, distance)});
    if (threadIdx.x % 32 == 0)
        slots[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = slots[threadIdx.x % 32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum = entropy_join(sum,
                {__shfl_xor_sync(0xffffffffu, sum.most, distance),
                        __shfl_xor_sync(0xffffffffu, sum.sum, distance)});
    return sum.most * ENTROPY_LOG2_E + log2f(sum.sum);
}

// 16 bytes of logits, the first of column `first`, as their gradient: scale and log_sum are in one
// `base`.
template <typename T>
static __device__ __forceinline__ uint4 entropy_gradient(
        const uint4 &raw, float base, float scale, int first, int target)
{
    float x[vector_lanes<T>];
    vector_unpack(raw, x, T());
#pragma unroll
    for (int i = 0; i < vector_lanes<T>; i++)
        x[i] = fast_exp2(fmaf(x[i], ENTROPY_LOG2_E, base));
    if ((unsigned)(target - first) < (unsigned)vector_lanes<T>) {
#pragma unroll
        for (int i = 0; i < vector_lanes<T>; i++)
            x[i] -= first + i == target ? scale : 0;
    }
    return vector_pack(x, T());
}

template <typename T, int STAGES>
static __global__ void __launch_bounds__(ENTROPY_THREADS, 1) entropy_resident(
        struct entropy_sizes sizes, const T *__restrict__ logits /* [rows][n], dlogits too */,
        const int32_t *__restrict__ target, float *__restrict__ loss, T *dlogits)
{
    extern __shared__ __align__(16) char dynamic[];
    __shared__ struct entropy_sum slots[32];
    __shared__ __align__(8) uint64_t full[STAGES];
    const uint32_t row_bytes = (uint32_t)sizes.n * (uint32_t)sizeof(T);
    const int vectors = sizes.n / vector_lanes<T>;
    const float log2_scale = log2f(sizes.scale);
    auto bring = [&](int64_t row, uint32_t stage) {
        barrier_expect(shared_address(&full[stage]), row_bytes);
        bytes_load(shared_address(dynamic) + stage * row_bytes, logits + row * sizes.n, row_bytes,
                shared_address(&full[stage]));
    };

    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < STAGES; stage++)
            barrier_init(shared_address(&full[stage]), 1);
        barriers_ready();
        for (uint32_t stage = 0; stage < STAGES; stage++)
            if (blockIdx.x + (int64_t)stage * gridDim.x < sizes.rows)
                bring(blockIdx.x + (int64_t)stage * gridDim.x, stage);
    }
    __syncthreads();
    cursor<STAGES> at;
    for (int64_t row = blockIdx.x; row < sizes.rows; row += gridDim.x) {
        const uint4 *x = (const uint4 *)(dynamic + at.stage * row_bytes);
        const int wanted = __ldg(target + row);
        struct entropy_sum sum = {-INFINITY, 0};
        barrier_wait(shared_address(&full[at.stage]), at.parity);
        for (int i = (int)threadIdx.x; i < vectors; i += ENTROPY_THREADS) {
            float values[vector_lanes<T>];
            vector_unpack(x[i], values, T());
            entropy_add(sum, values);
        }
        const float log_sum = entropy_log_sum(sum, slots);
        if (threadIdx.x == 0)
            loss[row] = log_sum / ENTROPY_LOG2_E - (float)((const T *)x)[wanted];
        if (dlogits) {
            uint4 *to = (uint4 *)(dlogits + row * sizes.n);
            for (int i = (int)threadIdx.x; i < vectors; i += ENTROPY_THREADS)
                __stcs(to + i,
                        entropy_gradient<T>(x[i], log2_scale - log_sum, sizes.scale,
                                i * vector_lanes<T>, wanted));
        }
        __syncthreads(); // all have read the row, and the slots
        const int64_t next = row + (int64_t)STAGES * gridDim.x;
        if (threadIdx.x == 0 && next < sizes.rows)
            bring(next, at.stage);
        at.next();
    }
}

template <typename T>
static __global__ void __launch_bounds__(ENTROPY_THREADS, 1)
        entropy_streamed(struct entropy_sizes sizes, const T *logits,
                const int32_t *__restrict__ target, float *__restrict__ loss, T *dlogits)
{
    __shared__ struct entropy_sum slots[32];
    const int vectors = sizes.n / vector_lanes<T>;
    const float log2_scale = log2f(sizes.scale);
    for (int64_t row = blockIdx.x; row < sizes.rows; row += gridDim.x) {
        const uint4 *x = (const uint4 *)(logits + row * sizes.n);
        const int wanted = __ldg(target + row);
        // before dlogits, which may be logits, is written
        const float at_target = (float)logits[row * sizes.n + wanted];
        struct entropy_sum sum = {-INFINITY, 0};
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < vectors; i += ENTROPY_THREADS) {
            float values[vector_lanes<T>];
            vector_unpack(x[i], values, T());
            entropy_add(sum, values);
        }
        const float log_sum = entropy_log_sum(sum, slots);
        if (threadIdx.x == 0)
            loss[row] = log_sum / ENTROPY_LOG2_E - at_target;
        if (dlogits) {
            uint4 *to = (uint4 *)(dlogits + row * sizes.n);
#pragma unroll 4
            for (int i = (int)threadIdx.x; i < vectors; i += ENTROPY_THREADS)
                __stcs(to + i,
                        entropy_gradient<T>(__ldcs(x + i), log2_scale - log_sum, sizes.scale,
                                i * vector_lanes<T>, wanted));
        }
        __syncthreads();
    }
}

static __global__ void entropy_look(
        int64_t rows, int64_t n, const int32_t *target, unsigned long long *first)
{
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows;
            row += (int64_t)gridDim.x * blockDim.x)
        if (target[row] < 0 || target[row] >= n)
            atomicMin(first, (unsigned long long)row);
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static int entropy_refuse(const struct kernel_cross_entropy *e, struct error *err)
{
    const int64_t size = (int64_t)kernel_type_bytes(e->type);
    if (e->type != KERNEL_FLOAT32 && e->type != KERNEL_FLOAT16 && e->type != KERNEL_BFLOAT16)
        return error_set(
                err, -EINVAL, "cross entropy: type %s is not supported", kernel_type_name(e->type));
    if (e->rows < 1 || e->n < 1 || e->n > 1 << 28 || e->n * size % 16 != 0)
        return error_set(err, -EINVAL,
                "cross entropy: %lld rows of %lld %s are not supported: 1 or more of a multiple of %lld up to 2^28 are",
                (long long)e->rows, (long long)e->n, kernel_type_name(e->type),
                (long long)(16 / size));
    if (!(e->scale > 0 && e->scale < INFINITY))
        return error_set(err, -EINVAL, "cross entropy: scale %g: it must be above 0 and finite",
                (double)e->scale);
    if (!e->logits || !e->target || !e->loss ||
            ((uintptr_t)e->logits | (uintptr_t)e->dlogits) % 16 != 0)
        return error_set(err, -EINVAL,
                "cross entropy: logits, target or loss is NULL, or logits or dlogits does not start at a multiple of "
                "16 bytes");
    return 0;
}

int kernel_cross_entropy_check(
        const struct kernel_cross_entropy *e, cudaStream_t stream, struct error *err)
{
    unsigned long long first = ~0ull, *found = NULL;
    int32_t wrong = 0;
    int rc = entropy_refuse(e, err);

    if (rc)
        return rc;
    cudaError_t error = cudaMallocAsync((void **)&found, sizeof *found, stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(found, 0xff, sizeof *found, stream);
    if (error == cudaSuccess) {
        entropy_look<<<256, 256, 0, stream>>>(e->rows, e->n, e->target, found);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(&first, found, sizeof first, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (found)
        cudaFreeAsync(found, stream);
    if (error == cudaSuccess && first != ~0ull)
        error = cudaMemcpy(&wrong, e->target + first, sizeof wrong, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        return device_error(error, "check the targets", err);
    if (first != ~0ull)
        return error_set(err, -EINVAL,
                "cross entropy: the target of row %llu is %d: it must be 0 to %lld", first, wrong,
                (long long)e->n - 1);
    return 0;
}

template <typename T>
static int entropy_run(const struct kernel_cross_entropy *e, cudaStream_t stream, struct error *err)
{
    const struct entropy_sizes sizes = {e->rows, (int)e->n, e->scale};
    const size_t row = (size_t)e->n * sizeof(T);
    const int stages = 3 * row <= ENTROPY_SHARED ? 3 : 2 * row <= ENTROPY_SHARED ? 2 : 0;
    const void *kernel = stages == 3 ? (const void *)entropy_resident<T, 3>
            : stages                 ? (const void *)entropy_resident<T, 2>
                                     : (const void *)entropy_streamed<T>;
    const T *logits = (const T *)e->logits;
    T *dlogits = (T *)e->dlogits;
    int blocks, rc = device_resident(kernel, ENTROPY_THREADS, (size_t)stages * row, &blocks, err);
    if (rc)
        return rc;
    if (blocks > e->rows)
        blocks = (int)e->rows;
    if (stages == 3)
        entropy_resident<T, 3><<<blocks, ENTROPY_THREADS, 3 * row, stream>>>(
                sizes, logits, e->target, e->loss, dlogits);
    else if (stages == 2)
        entropy_resident<T, 2><<<blocks, ENTROPY_THREADS, 2 * row, stream>>>(
                sizes, logits, e->target, e->loss, dlogits);
    else
        entropy_streamed<T><<<blocks, ENTROPY_THREADS, 0, stream>>>(
                sizes, logits, e->target, e->loss, dlogits);
    return device_error(cudaGetLastError(), "launch cross entropy", err);
}

int kernel_cross_entropy(
        const struct kernel_cross_entropy *e, cudaStream_t stream, struct error *err)
{
    int rc = entropy_refuse(e, err);
    if (rc)
        return rc;
    return e->type == KERNEL_FLOAT32    ? entropy_run<float>(e, stream, err)
            : e->type == KERNEL_FLOAT16 ? entropy_run<__half>(e, stream, err)
                                        : entropy_run<__nv_bfloat16>(e, stream, err);
}

struct entropy_case {
    struct kernel_cross_entropy entropy;
    std::vector<double> logits;
    std::vector<uint32_t> target;
};

static void launch_entropy(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(
            kernel_cross_entropy(&((const struct entropy_case *)arg)->entropy, stream, &err), &err);
}

// `distinct` rows, over and over until there are `rows`.
static void entropy_set(struct bench *bench, struct entropy_case *t, enum kernel_type type,
        size_t rows, size_t n, size_t distinct)
{
    struct error err;
    const size_t bytes = distinct * n * kernel_type_bytes(type);
    t->entropy = {type, (int64_t)rows, (int64_t)n, 1 / (float)distinct, NULL, NULL, NULL, NULL};
    const void *logits = bench_draw(bench, type, distinct * n, 8, false, &t->logits);
    t->target.resize(distinct);
    for (uint32_t &target : t->target)
        target = (uint32_t)rng_below(&bench->rng, n);
    t->target[0] = 0;
    t->target[distinct - 1] = (uint32_t)n - 1;
    t->entropy.logits = bench_repeat(bench, logits, bytes, rows / distinct);
    t->entropy.target = (const int32_t *)bench_repeat(bench,
            bench_upload(bench, t->target.data(), distinct * 4), distinct * 4, rows / distinct);
    t->entropy.loss = (float *)bench_memory(bench, rows * 4);
    t->entropy.dlogits = bench_memory(bench, rows * n * kernel_type_bytes(type));
    bench_must(kernel_cross_entropy_check(&t->entropy, bench->stream, &err), &err);
}

#define ENTROPY_LOSS_LIMIT 2e-6

static double entropy_limit(enum kernel_type type)
{
    // dlogits of float16 are small: fewer bits
    return type == KERNEL_FLOAT32 ? 4e-6 : type == KERNEL_FLOAT16 ? 0x1p-9 : 0x1p-8;
}

// Launches, and compares the first and the last of the distinct rows. Errors in parts of dlogits'
// limit.
static double entropy_error(struct bench *bench, const struct entropy_case *t)
{
    const size_t distinct = t->target.size(), n = (size_t)t->entropy.n,
                 rows = (size_t)t->entropy.rows;
    const double limit = entropy_limit(t->entropy.type);
    std::vector<double> loss(distinct), dlogits(distinct * n);
    double worst = 0;

    launch_entropy((void *)t, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    ops_softmax_loss(bench->pool, distinct, n, t->logits.data(), t->target.data(), loss.data(),
            dlogits.data());
    for (size_t first : {(size_t)0, rows - distinct}) {
        const std::vector<double> got_loss =
                bench_download(KERNEL_FLOAT32, t->entropy.loss + first, distinct);
        worst = std::max(worst,
                limit / ENTROPY_LOSS_LIMIT *
                        bench_error(got_loss.data(), loss.data(), distinct, ENTROPY_LOSS_LIMIT));
        const std::vector<double> got = bench_download(t->entropy.type,
                (const char *)t->entropy.dlogits + first * n * kernel_type_bytes(t->entropy.type),
                distinct * n);
        worst = std::max(worst, bench_error(got.data(), dlogits.data(), distinct * n, limit));
    }
    return worst;
}

static void entropy_check_rows(struct bench *bench, enum kernel_type type, size_t n, size_t rows)
{
    struct entropy_case t;
    char name[96];
    entropy_set(bench, &t, type, rows, n, rows);
    snprintf(name, sizeof name, "%zux%zu %s", rows, n, kernel_type_name(type));
    bench_expect(bench, entropy_error(bench, &t), entropy_limit(type), "cross_entropy", name);
    const std::vector<double> both = bench_download(KERNEL_FLOAT32, t.entropy.loss, rows);
    bench_poison(t.entropy.loss, rows * 4);
    void *dlogits = t.entropy.dlogits;
    t.entropy.dlogits = NULL; // the loss alone: the same bits
    launch_entropy(&t, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    bool same = both == bench_download(KERNEL_FLOAT32, t.entropy.loss, rows);
    const std::vector<double> want = bench_download(type, dlogits, rows * n);
    t.entropy.dlogits = (void *)t.entropy.logits; // in place: the same bits
    launch_entropy(&t, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    same = same && want == bench_download(type, t.entropy.logits, rows * n);
    bench_expect(bench, same ? 0 : INFINITY, 0, "cross_entropy, loss alone and in place", name);
    bench_release(bench);
}

static void entropy_check(struct bench *bench)
{
    static const size_t widths[] = {
            8, 16, 1000, 8192, 8200, 28672, 38224, 38232, 50304, 57344, 57352, 128256};
    for (enum kernel_type type : {KERNEL_FLOAT32, KERNEL_FLOAT16, KERNEL_BFLOAT16})
        for (size_t n : widths)
            if (!bench->quick || n <= 57352)
                entropy_check_rows(bench, type, n, n <= 8200 ? 300 : bench->quick ? 2 : 280);
    // a target that must be refused, and the sentence for it
    struct entropy_case t;
    struct error err;
    const int32_t wrong[] = {8, -1};
    for (int32_t value : wrong) {
        char words[64];
        entropy_set(bench, &t, KERNEL_FLOAT32, 300, 8, 300);
        BENCH_CHECK(
                cudaMemcpy((void *)(t.entropy.target + 299), &value, 4, cudaMemcpyHostToDevice));
        snprintf(words, sizeof words, "the target of row 299 is %d: it must be 0 to 7", value);
        bench_expect(bench,
                bench_refused(
                        kernel_cross_entropy_check(&t.entropy, bench->stream, &err), &err, words)
                        ? INFINITY
                        : 0,
                0, "cross_entropy, refused", words);
        bench_release(bench);
    }
}

static void entropy_time(struct bench *bench)
{
    static const struct {
        enum kernel_type type;
        size_t rows, n;
        double target;
    } shapes[] = {{KERNEL_BFLOAT16, 8192, 50304, 0.85}, {KERNEL_BFLOAT16, 8192, 32768, 0.85},
            {KERNEL_BFLOAT16, 8192, 128256, 0}, {KERNEL_FLOAT32, 8192, 32768, 0}};
    for (const auto &shape : shapes) {
        struct entropy_case t;
        struct bench_row row = {"cross_entropy", "", 0, entropy_limit(shape.type), 0, shape.target};
        entropy_set(bench, &t, shape.type, shape.rows, shape.n, 256);
        snprintf(row.shape, sizeof row.shape, "%zux%zu %s", shape.rows, shape.n,
                kernel_type_name(shape.type));
        row.bytes = 2.0 * (double)(shape.rows * shape.n * kernel_type_bytes(shape.type)) +
                8.0 * (double)shape.rows;
        row.error = entropy_error(bench, &t);
        bench_report(bench, &row, bench_time(bench, launch_entropy, &t, 1));
        bench_release(bench);
    }
}

static int entropy_host()
{
    alignas(16) static float memory[64];
    const struct kernel_cross_entropy good = {
            KERNEL_FLOAT32, 1, 8, 1, memory, (const int32_t *)memory, memory, memory};
    struct kernel_cross_entropy bad;
    struct error err;
    int failures = 0;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_cross_entropy(&bad, 0, &err), &err, words)
    REFUSED(rows, 0, "0 rows of 8 float32");
    REFUSED(n, 50257, "1 rows of 50257 float32 are not supported: 1 or more of a multiple of 4");
    REFUSED(n, (1 << 28) + 4, "up to 2^28");
    REFUSED(type, (enum kernel_type)7, "type unknown");
    REFUSED(scale, 0, "scale 0");
    REFUSED(scale, NAN, "above 0 and finite");
    REFUSED(target, NULL, "is NULL");
    REFUSED(dlogits, memory + 1, "multiple of 16 bytes");
#undef REFUSED
    return failures;
}

const struct suite suite_cross_entropy = {
        "cross_entropy", entropy_host, entropy_check, entropy_time};
#endif
