// SPDX-License-Identifier: Apache-2.0
// Binary cross entropy with its gradient, as kernels.h says it; with its check and timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/binary_entropy.cu
// Bytes: of a row its logit and label, loss and the gradient's row; some 30 operations. A thread
// has a row: rows are few, it is bound by its launch. The reference is ops_bce_loss of the native
// models in float64. Expected on an H200: not yet measured.
#include "kernels/bench.h"

#include "kernels/device.cuh"

#define BINARY_BLOCK 128

template <typename T>
static __global__ void binary_entropy(int64_t rows, int stride, float scale,
        const T *__restrict__ logits, const float *__restrict__ label, float *__restrict__ loss,
        T *dlogits)
{
    const int64_t row = (int64_t)blockIdx.x * BINARY_BLOCK + threadIdx.x;
    if (row >= rows)
        return;
    // log(1 + e^x) without overflow on either side
    const float x = (float)logits[row * stride], y = label[row], e = expf(-fabsf(x));
    loss[row] = (x < 0 ? 0 : x) - x * y + log1pf(e);
    if (!dlogits)
        return;
    for (int i = 1; i < stride; i++)
        dlogits[row * stride + i] = (T)0.0f;
    dlogits[row * stride] = (T)(((x < 0 ? e : 1) / (1 + e) - y) * scale);
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
int kernel_binary_entropy(
        const struct kernel_binary_entropy *b, cudaStream_t stream, struct error *err)
{
    if (b->type != KERNEL_FLOAT32 && b->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL,
                "binary entropy: type %s is not supported: float32 and bfloat16 are",
                kernel_type_name(b->type));
    if (b->rows < 1 || b->rows > (int64_t)INT32_MAX * BINARY_BLOCK || b->stride < 1 ||
            b->stride > 1024)
        return error_set(err, -EINVAL,
                "binary entropy: %lld rows of stride %lld: from 1 row, a stride of 1 to 1024",
                (long long)b->rows, (long long)b->stride);
    if (!(b->scale > 0 && b->scale < INFINITY))
        return error_set(err, -EINVAL, "binary entropy: scale %g: it must be above 0 and finite",
                (double)b->scale);
    if (!b->logits || !b->label || !b->loss)
        return error_set(err, -EINVAL, "binary entropy: logits, label and loss must not be NULL");
    const unsigned blocks = (unsigned)((b->rows + BINARY_BLOCK - 1) / BINARY_BLOCK);
    if (b->type == KERNEL_FLOAT32)
        binary_entropy<<<blocks, BINARY_BLOCK, 0, stream>>>(b->rows, (int)b->stride, b->scale,
                (const float *)b->logits, b->label, b->loss, (float *)b->dlogits);
    else
        binary_entropy<<<blocks, BINARY_BLOCK, 0, stream>>>(b->rows, (int)b->stride, b->scale,
                (const __nv_bfloat16 *)b->logits, b->label, b->loss, (__nv_bfloat16 *)b->dlogits);
    return device_error(cudaGetLastError(), "launch binary_entropy", err);
}

struct binary_case {
    struct kernel_binary_entropy work;
    std::vector<double> logits, label;
};

static void launch_binary(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(
            kernel_binary_entropy((const struct kernel_binary_entropy *)arg, stream, &err), &err);
}

static double binary_error(struct bench *bench, struct binary_case *t, enum kernel_type type,
        int64_t rows, int64_t stride)
{
    const size_t n = (size_t)rows, count = (size_t)(rows * stride);
    std::vector<float> label(n);
    std::vector<double> logits(n), want(n), dwant(n), padded(count);
    t->label.resize(n);
    for (size_t i = 0; i < n; i++)
        t->label[i] = label[i] = (float)(rng_next(&bench->rng) & 1);
    t->work = {type, rows, stride, 1 / (float)rows,
            bench_draw(bench, type, count, 12, false, &t->logits), NULL, NULL, NULL};
    t->work.label = (const float *)bench_upload(bench, label.data(), n * 4);
    t->work.loss = (float *)bench_memory(bench, n * 4);
    t->work.dlogits = bench_memory(bench, count * kernel_type_bytes(type));
    launch_binary(&t->work, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    for (size_t i = 0; i < n; i++)
        logits[i] = t->logits[i * (size_t)stride];
    ops_bce_loss(bench->pool, n, logits.data(), t->label.data(), want.data(), dwant.data());
    for (size_t i = 0; i < n; i++)
        padded[i * (size_t)stride] = dwant[i];
    const double limit = type == KERNEL_BFLOAT16 ? 0x1p-8 : 1e-6;
    const std::vector<double> loss = bench_download(KERNEL_FLOAT32, t->work.loss, n),
                              dlogits = bench_download(type, t->work.dlogits, count);
    return std::max(bench_error(loss.data(), want.data(), n, 1e-6),
            bench_error(dlogits.data(), padded.data(), count, limit));
}

static void binary_check(struct bench *bench)
{
    static const int64_t shapes[][2] = {{1, 1}, {127, 8}, {128, 1}, {1000, 8}, {4097, 16}};
    for (enum kernel_type type : {KERNEL_FLOAT32, KERNEL_BFLOAT16})
        for (const auto &shape : shapes) {
            struct binary_case t;
            char name[96];
            snprintf(name, sizeof name, "%lldx%lld %s", (long long)shape[0], (long long)shape[1],
                    kernel_type_name(type));
            bench_expect(bench, binary_error(bench, &t, type, shape[0], shape[1]),
                    type == KERNEL_BFLOAT16 ? 0x1p-8 : 1e-6, "binary_entropy", name);
            bench_release(bench);
        }
}

static void binary_time(struct bench *bench)
{
    struct binary_case t;
    struct bench_row row = {"binary_entropy", "1048576x8 bfloat16", 0, 0x1p-8, 40.0 * 1048576, 0};
    row.error = binary_error(bench, &t, KERNEL_BFLOAT16, 1048576, 8);
    bench_report(bench, &row, bench_time(bench, launch_binary, &t.work, 1));
    bench_release(bench);
}

static int binary_host()
{
    alignas(16) static float memory[8];
    const struct kernel_binary_entropy good = {
            KERNEL_FLOAT32, 1, 1, 1, memory, memory, memory, memory};
    struct kernel_binary_entropy bad;
    struct error err;
    int failures = 0;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_binary_entropy(&bad, 0, &err), &err, words)
    REFUSED(type, KERNEL_FLOAT16, "float16 is not supported");
    REFUSED(rows, 0, "0 rows");
    REFUSED(stride, 0, "stride 0");
    REFUSED(scale, NAN, "must be above 0");
    REFUSED(label, NULL, "must not be NULL");
#undef REFUSED
    return failures;
}

const struct suite suite_binary_entropy = {
        "binary_entropy", binary_host, binary_check, binary_time};
#endif
