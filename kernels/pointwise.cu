// SPDX-License-Identifier: Apache-2.0
// One operation on every value, with strides and a change of type, as kernels.h says it; with its
// check and timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/pointwise.cu
// Bytes: each operand read once, the result written once; a few operations a value: bound by
// memory. A thread takes 8 values. The references are ops_add, ops_mul, ops_silu, ops_relu and
// their ways back of the native models in float64. Expected on an H200: not yet measured.
#include "kernels/bench.h"

#include "kernels/device.cuh"

#define POINTWISE_BLOCK 256
#define POINTWISE_LANES 8

struct pointwise_params {
    enum kernel_pointwise_op op;
    uint32_t vectors, rows, row_vectors; // of all, of an outer, of a row
    float factor;
    struct kernel_operand a, b, out;
};

static __device__ __forceinline__ void pointwise_load(const struct kernel_operand &from,
        uint32_t outer, uint32_t row, uint32_t column, float (&values)[POINTWISE_LANES])
{
    const int64_t at = outer * from.outer + row * from.row + column;
    if (from.type == KERNEL_FLOAT32) {
        const float4 *place = (const float4 *)((const float *)from.at + at);
        const float4 low = place[0], high = place[1];
        values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
        values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    } else {
        vector_unpack(
                *(const uint4 *)((const __nv_bfloat16 *)from.at + at), values, __nv_bfloat16());
    }
}

static __device__ __forceinline__ float pointwise_one(
        enum kernel_pointwise_op op, float factor, float a, float b)
{
    const float share = 1 / (1 + __expf(-a));
    switch (op) {
    case KERNEL_POINT_ADD:
        return fmaf(factor, b, a);
    case KERNEL_POINT_MUL:
        return a * b;
    case KERNEL_POINT_SILU:
        return a * share;
    case KERNEL_POINT_SILU_GRADIENT:
        return b * share * (1 + a * (1 - share));
    case KERNEL_POINT_RELU:
        return a < 0 ? 0 : a; // NaN stays
    case KERNEL_POINT_RELU_GRADIENT:
        return a <= 0 ? 0 : b;
    default:
        return a;
    }
}

static __global__ void pointwise(struct pointwise_params p)
{
    const uint32_t vector = blockIdx.x * POINTWISE_BLOCK + threadIdx.x;
    float a[POINTWISE_LANES], b[POINTWISE_LANES] = {}, out[POINTWISE_LANES];
    if (vector >= p.vectors)
        return;
    const uint32_t line = vector / p.row_vectors, column = vector % p.row_vectors * POINTWISE_LANES;
    const uint32_t outer = line / p.rows, row = line % p.rows;
    pointwise_load(p.a, outer, row, column, a);
    if (p.b.at)
        pointwise_load(p.b, outer, row, column, b);
#pragma unroll
    for (int i = 0; i < POINTWISE_LANES; i++)
        out[i] = pointwise_one(p.op, p.factor, a[i], b[i]);
    const int64_t at = outer * p.out.outer + row * p.out.row + column;
    if (p.out.type == KERNEL_FLOAT32) {
        float4 *to = (float4 *)((float *)p.out.at + at);
        to[0] = make_float4(out[0], out[1], out[2], out[3]);
        to[1] = make_float4(out[4], out[5], out[6], out[7]);
    } else {
        *(uint4 *)((__nv_bfloat16 *)p.out.at + at) = vector_pack(out, __nv_bfloat16());
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static bool pointwise_two(enum kernel_pointwise_op op)
{
    return op != KERNEL_POINT_COPY && op != KERNEL_POINT_SILU && op != KERNEL_POINT_RELU;
}

static int pointwise_refuse(const struct kernel_pointwise *w, struct error *err)
{
    const bool two = pointwise_two(w->op);
    if (w->op < KERNEL_POINT_COPY || w->op > KERNEL_POINT_RELU_GRADIENT)
        return error_set(
                err, -EINVAL, "pointwise: operation %d: copy (0) to relu gradient (6)", (int)w->op);
    if (w->outer < 1 || w->rows < 1 || w->columns < 1 || w->columns % POINTWISE_LANES != 0 ||
            w->outer > INT32_MAX || w->rows > INT32_MAX || w->columns > INT32_MAX ||
            (double)w->outer * (double)w->rows * (double)w->columns > 8.0 * INT32_MAX)
        return error_set(err, -EINVAL,
                "pointwise: %lld times %lld rows of %lld are not supported: rows of a multiple of 8, up to 2^34 values in all",
                (long long)w->outer, (long long)w->rows, (long long)w->columns);
    if (two != (w->b.at != NULL))
        return error_set(err, -EINVAL,
                "pointwise: b is given for an operation on two operands, and only for that");
    const struct kernel_operand *const operands[] = {&w->a, &w->out, two ? &w->b : &w->a};
    for (const struct kernel_operand *operand : operands)
        if ((operand->type != KERNEL_FLOAT32 && operand->type != KERNEL_BFLOAT16) || !operand->at ||
                (uintptr_t)operand->at % 16 != 0 || operand->outer % POINTWISE_LANES != 0 ||
                operand->row % POINTWISE_LANES != 0 || operand->outer < 0 || operand->row < 0)
            return error_set(err, -EINVAL,
                    "pointwise: an operand that is not float32 or bfloat16, is NULL or no multiple of 16 bytes, or has strides "
                    "that are no multiples of 8");
    return 0;
}

int kernel_pointwise(const struct kernel_pointwise *w, cudaStream_t stream, struct error *err)
{
    int rc = pointwise_refuse(w, err);
    if (rc)
        return rc;
    const uint32_t row_vectors = (uint32_t)(w->columns / POINTWISE_LANES),
                   vectors = (uint32_t)(w->outer * w->rows) * row_vectors;
    const struct pointwise_params p = {
            w->op, vectors, (uint32_t)w->rows, row_vectors, w->factor, w->a, w->b, w->out};
    pointwise<<<(vectors + POINTWISE_BLOCK - 1) / POINTWISE_BLOCK, POINTWISE_BLOCK, 0, stream>>>(p);
    return device_error(cudaGetLastError(), "launch pointwise", err);
}

// Operands of [outer][rows][columns] with gaps of `gap` values behind a row and of a row behind an
// outer.
struct pointwise_case {
    struct kernel_pointwise work;
    size_t gap;
};

static struct kernel_operand pointwise_operand(struct bench *bench, const struct pointwise_case *t,
        enum kernel_type type, bool drawn, std::vector<double> *values)
{
    const int64_t row = t->work.columns + (int64_t)t->gap, outer = (t->work.rows + 1) * row;
    const size_t count = (size_t)(t->work.outer * outer);
    void *at = drawn ? bench_draw(bench, type, count, 4, false, values)
                     : bench_memory(bench, count * kernel_type_bytes(type));
    return {at, type, outer, row};
}

static void pointwise_reference(struct bench *bench, const struct kernel_pointwise *w, size_t n,
        const double *a, const double *b, double *out)
{
    std::vector<double> scaled(n);
    for (size_t i = 0; i < n && b; i++)
        scaled[i] = (double)w->factor * b[i];
    switch (w->op) {
    case KERNEL_POINT_ADD:
        ops_add(bench->pool, n, a, scaled.data(), out);
        break;
    case KERNEL_POINT_MUL:
        ops_mul(bench->pool, n, a, b, out);
        break;
    case KERNEL_POINT_SILU:
        ops_silu(bench->pool, n, a, out);
        break;
    case KERNEL_POINT_SILU_GRADIENT:
        ops_silu_backward(bench->pool, n, a, b, out);
        break;
    case KERNEL_POINT_RELU:
        ops_relu(bench->pool, n, a, out);
        break;
    case KERNEL_POINT_RELU_GRADIENT:
        ops_relu_backward(bench->pool, n, a, b, out);
        break;
    default:
        std::copy(a, a + n, out);
    }
}

static double pointwise_error(struct bench *bench, const struct kernel_pointwise *w,
        const std::vector<double> &a, const std::vector<double> &b)
{
    const size_t n = (size_t)w->columns;
    const std::vector<double> got =
            bench_download(w->out.type, w->out.at, (size_t)(w->outer * w->out.outer));
    const double limit = w->out.type == KERNEL_BFLOAT16 ? 0x1p-8 : 1e-5;
    std::vector<double> want(n);
    double worst = 0;
    for (int64_t outer = 0; outer < w->outer; outer++)
        for (int64_t row = 0; row < w->rows; row++) {
            const double *const right =
                    w->b.at ? &b[(size_t)(outer * w->b.outer + row * w->b.row)] : NULL;
            pointwise_reference(bench, w, n, &a[(size_t)(outer * w->a.outer + row * w->a.row)],
                    right, want.data());
            const double *out = &got[(size_t)(outer * w->out.outer + row * w->out.row)];
            worst = std::max(worst, bench_error(out, want.data(), n, limit));
            if (w->out.row > w->columns && !std::isnan(out[w->columns]))
                return INFINITY; // it wrote behind a row
        }
    return worst;
}

static void launch_pointwise(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(kernel_pointwise((const struct kernel_pointwise *)arg, stream, &err), &err);
}

static const char *const pointwise_names[] = {
        "copy", "add", "mul", "silu", "silu_gradient", "relu", "relu_gradient"};

static void pointwise_check(struct bench *bench)
{
    static const int64_t shapes[][4] = {
            {1, 1, 8, 0}, {1, 7, 64, 0}, {3, 5, 24, 8}, {4, 33, 256, 16}, {2, 1000, 128, 0}};
    static const enum kernel_type types[] = {KERNEL_FLOAT32, KERNEL_BFLOAT16};
    for (int op = KERNEL_POINT_COPY; op <= KERNEL_POINT_RELU_GRADIENT; op++)
        for (const auto &shape : shapes)
            for (int which = 0; which < 8; which++) {
                struct pointwise_case t = {};
                std::vector<double> a, b;
                char name[96];
                t.work.op = (enum kernel_pointwise_op)op;
                t.work.outer = shape[0];
                t.work.rows = shape[1];
                t.work.columns = shape[2];
                t.work.factor = -0.75f;
                t.gap = (size_t)shape[3];
                t.work.a = pointwise_operand(bench, &t, types[which & 1], true, &a);
                if (pointwise_two(t.work.op))
                    t.work.b = pointwise_operand(bench, &t, types[which >> 1 & 1], true, &b);
                t.work.out = pointwise_operand(bench, &t, types[which >> 2], false, NULL);
                launch_pointwise(&t.work, 0, bench->stream);
                BENCH_CHECK(cudaStreamSynchronize(bench->stream));
                snprintf(name, sizeof name, "%s %lldx%lldx%lld types %d", pointwise_names[op],
                        (long long)shape[0], (long long)shape[1], (long long)shape[2], which);
                bench_expect(bench, pointwise_error(bench, &t.work, a, b),
                        which >> 2 ? 0x1p-8 : 1e-5, "pointwise", name);
                bench_release(bench);
            }
}

static void pointwise_time(struct bench *bench)
{
    static const int64_t rows = 65536, columns = 1024;
    for (int op :
            {(int)KERNEL_POINT_COPY, (int)KERNEL_POINT_ADD, (int)KERNEL_POINT_SILU_GRADIENT}) {
        struct pointwise_case t = {};
        std::vector<double> a, b;
        struct bench_row row = {"pointwise", "", 0, 0x1p-8,
                (op == KERNEL_POINT_COPY ? 4.0 : 6.0) * (double)(rows * columns), 0.9};
        t.work = {(enum kernel_pointwise_op)op, 1, rows, columns, 1, {}, {}, {}};
        t.work.a = pointwise_operand(bench, &t, KERNEL_BFLOAT16, true, &a);
        if (op != KERNEL_POINT_COPY)
            t.work.b = pointwise_operand(bench, &t, KERNEL_BFLOAT16, true, &b);
        t.work.out = pointwise_operand(bench, &t, KERNEL_BFLOAT16, false, NULL);
        launch_pointwise(&t.work, 0, bench->stream);
        BENCH_CHECK(cudaStreamSynchronize(bench->stream));
        row.error = pointwise_error(bench, &t.work, a, b);
        snprintf(row.shape, sizeof row.shape, "%s %lldx%lld bfloat16", pointwise_names[op],
                (long long)rows, (long long)columns);
        bench_report(bench, &row, bench_time(bench, launch_pointwise, &t.work, 1));
        bench_release(bench);
    }
}

static int pointwise_host()
{
    alignas(16) static float memory[64];
    const struct kernel_operand operand = {memory, KERNEL_FLOAT32, 8, 8};
    const struct kernel_pointwise good = {KERNEL_POINT_ADD, 1, 1, 8, 1, operand, operand, operand};
    struct kernel_pointwise bad;
    struct error err;
    int failures = 0;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_pointwise(&bad, 0, &err), &err, words)
    REFUSED(op, (enum kernel_pointwise_op)7, "operation 7");
    REFUSED(columns, 12, "1 times 1 rows of 12");
    REFUSED(rows, 0, "0 rows");
    REFUSED(outer, (int64_t)1 << 33, "up to 2^34");
    REFUSED(b.at, NULL, "b is given");
    REFUSED(op, KERNEL_POINT_SILU, "b is given");
    REFUSED(op, KERNEL_POINT_RELU, "b is given");
    REFUSED(a.at, memory + 1, "multiple of 16 bytes");
    REFUSED(out.row, 4, "multiples of 8");
    REFUSED(a.type, KERNEL_FLOAT16, "not float32 or bfloat16");
#undef REFUSED
    return failures;
}

const struct suite suite_pointwise = {"pointwise", pointwise_host, pointwise_check, pointwise_time};
#endif
