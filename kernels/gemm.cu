// SPDX-License-Identifier: Apache-2.0
// Matrix products by the side's own cuBLASLt: y = x weight^T, row-major, sums in float32, float32
// multiplied as TF32; the fastest of the algorithms that it proposes. One of them, bfloat16, 8192 x
// 8192 x 8192, is the rate that every ratio of a matrix kernel is taken to. Inputs are random:
// zeros run some 13 % faster.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/gemm.cu
// Operations: 2 * rows * inputs * outputs. Bound by the matrix units; with 64 rows by reading the
// weight. Row-major tensors are its column-major ones turned: y^T = weight x^T. The reference is
// ops_gemm of the native models in float64.
#include "kernels/bench.h"

#include <errno.h>
#include <library_types.h>

#include "kernels/lt.h"

#define GEMM_SIZE 8192
#define GEMM_DISTINCT \
    128 // rows of x that differ, over and over: as many as the reference multiplies

struct product {
    enum kernel_type type;
    size_t rows, inputs, outputs;
    const struct lt *lt;
    void *desc, *x_layout, *weight_layout, *y_layout;
    struct lt_heuristic algorithms[LT_ALGORITHMS]; // the first is launched
    int count;
    const void *x, *weight;
    void *y, *workspace;
};

static int product_describe(struct product *p, struct error *err)
{
    const int turned = 1,
              compute = p->type == KERNEL_FLOAT32 ? LT_COMPUTE_32F_FAST_TF32 : LT_COMPUTE_32F;
    const int type = p->type == KERNEL_FLOAT32 ? CUDA_R_32F
            : p->type == KERNEL_FLOAT16        ? CUDA_R_16F
                                               : CUDA_R_16BF;
    const int64_t inputs = (int64_t)p->inputs, outputs = (int64_t)p->outputs;
    int rc = lt_open(&p->lt, err);

    if (!rc)
        rc = lt_error(
                p->lt->desc_create(&p->desc, compute, CUDA_R_32F), "create a descriptor", err);
    if (!rc)
        rc = lt_error(p->lt->desc_set(p->desc, LT_TRANSPOSE_A, &turned, sizeof turned),
                "turn the left side", err);
    if (!rc)
        rc = lt_error(p->lt->layout_create(&p->weight_layout, type, p->inputs, p->outputs, inputs),
                "describe the weight", err);
    if (!rc)
        rc = lt_error(p->lt->layout_create(&p->x_layout, type, p->inputs, p->rows, inputs),
                "describe x", err);
    if (!rc)
        rc = lt_error(p->lt->layout_create(&p->y_layout, type, p->outputs, p->rows, outputs),
                "describe the result", err);
    return rc ? rc
              : lt_algorithms(p->lt, p->desc, p->weight_layout, p->x_layout, p->y_layout,
                        &p->algorithms, &p->count, err);
}

static void product_free(struct product *p)
{
    for (void *layout : {p->x_layout, p->weight_layout, p->y_layout})
        if (layout)
            p->lt->layout_destroy(layout);
    if (p->desc)
        p->lt->desc_destroy(p->desc);
}

static int product_run(const struct product *p, cudaStream_t stream, struct error *err)
{
    const float one = 1, zero = 0;
    return lt_error(p->lt->matmul(p->lt->handle, p->desc, &one, p->weight, p->weight_layout, p->x,
                            p->x_layout, &zero, p->y, p->y_layout, p->y, p->y_layout,
                            p->algorithms[0].algorithm, p->workspace, LT_WORKSPACE, stream),
            "launch the GEMM", err);
}

static void product_launch(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(product_run((const struct product *)arg, stream, &err), &err);
}

// One that the library proposes and then refuses is passed over.
static void product_fastest(struct bench *bench, struct product *p)
{
    double best = INFINITY;
    int at = 0;
    struct error err;
    for (int i = 0; i < p->count; i++) {
        std::swap(p->algorithms[0], p->algorithms[i]);
        const double ns = product_run(p, bench->stream, &err)
                ? INFINITY
                : bench_ns(bench->stream, product_launch, p, 1, 3);
        std::swap(p->algorithms[0], p->algorithms[i]);
        if (ns < best) {
            best = ns;
            at = i;
        }
    }
    std::swap(p->algorithms[0], p->algorithms[at]);
}

// It outlives the suite that asks first.
static void *rate_memory(const void *from, size_t bytes)
{
    void *device = NULL;
    BENCH_CHECK(cudaMalloc(&device, bytes));
    if (from)
        BENCH_CHECK(cudaMemcpy(device, from, bytes, cudaMemcpyDeviceToDevice));
    return device;
}

static bool rate_prepare(struct bench *bench, struct product *p)
{
    const size_t count = (size_t)GEMM_SIZE * GEMM_SIZE;
    std::vector<double> values;
    struct error err;
    *p = {};
    p->type = KERNEL_BFLOAT16;
    p->rows = p->inputs = p->outputs = GEMM_SIZE;
    if (product_describe(p, &err)) {
        fprintf(stderr, "upgate_kernels: ratios to the GEMM are 0: %s\n", err.text);
        return false;
    }
    p->x = rate_memory(bench_draw(bench, p->type, count, 1, false, &values), count * 2);
    p->weight = rate_memory(bench_draw(bench, p->type, count, 1, false, &values), count * 2);
    p->y = rate_memory(NULL, count * 2);
    p->workspace = rate_memory(NULL, LT_WORKSPACE);
    product_fastest(bench, p);
    return true;
}

double bench_gemm_rate(struct bench *bench)
{
    static struct product problem;
    static int state; // 0: not yet asked, 1: ready, -1: there is none
    const double operations = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;

    if (state == 0)
        state = rate_prepare(bench, &problem) ? 1 : -1;
    return state == 1 ? operations / bench_ns(bench->stream, product_launch, &problem, 1, 15) : 0;
}

// ---- the suite ----

static double product_limit(enum kernel_type type)
{
    // TF32 drops 13 bits of each input
    return type == KERNEL_FLOAT32 ? 0x1p-9 : type == KERNEL_FLOAT16 ? 0x1p-10 : 0x1p-8;
}

// Draws, multiplies, and returns the error of the first and of the last rows.
static double product_error(struct bench *bench, struct product *p)
{
    const size_t distinct = std::min(p->rows, (size_t)GEMM_DISTINCT),
                 size = kernel_type_bytes(p->type), count = distinct * p->outputs;
    const double limit = product_limit(p->type);
    std::vector<double> x, weight, want(count), scratch(ops_gemm_scratch(p->inputs, p->outputs));
    struct error err;

    p->x = bench_draw(bench, p->type, distinct * p->inputs, 1, false, &x);
    p->x = bench_repeat(bench, p->x, distinct * p->inputs * size, p->rows / distinct);
    p->weight = bench_draw(
            bench, p->type, p->outputs * p->inputs, 2 / sqrt((double)p->inputs), false, &weight);
    p->y = bench_memory(bench, p->rows * p->outputs * size);
    p->workspace = bench_memory(bench, LT_WORKSPACE);
    bench_must(product_describe(p, &err), &err);
    product_fastest(bench, p);
    bench_poison(p->y, p->rows * p->outputs * size);
    product_launch(p, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    const struct gemm gemm = {distinct, p->outputs, p->inputs, false, true, x.data(), weight.data(),
            NULL, want.data(), scratch.data()};
    ops_gemm(bench->pool, &gemm);
    const std::vector<double> first = bench_download(p->type, p->y, count);
    const std::vector<double> last = bench_download(
            p->type, (const char *)p->y + (p->rows - distinct) * p->outputs * size, count);
    return std::max(bench_error(first.data(), want.data(), count, limit),
            bench_error(last.data(), want.data(), count, limit));
}

static void product_shape(const struct product *p, char (&ret)[96])
{
    snprintf(ret, sizeof ret, "%zux%zux%zu %s", p->rows, p->inputs, p->outputs,
            kernel_type_name(p->type));
}

static bool gemm_library()
{
    const struct lt *lt;
    struct error err;
    if (lt_open(&lt, &err) == 0)
        return true;
    fprintf(stderr, "upgate_kernels: gemm: left out: %s\n", err.text);
    return false;
}

static void gemm_check(struct bench *bench)
{
    static const size_t shapes[][3] = {
            {1, 128, 128}, {7, 256, 136}, {128, 72, 512}, {384, 512, 1032}};
    if (bench->quick) {
        bench->cases++; // what a checker finds in the library's kernels is not ours
        return;
    }
    if (!gemm_library())
        return;
    for (enum kernel_type type : {KERNEL_FLOAT32, KERNEL_FLOAT16, KERNEL_BFLOAT16})
        for (const auto &shape : shapes) {
            struct product p = {};
            char name[96];
            p.type = type;
            p.rows = shape[0];
            p.inputs = shape[1];
            p.outputs = shape[2];
            product_shape(&p, name);
            bench_expect(bench, product_error(bench, &p), product_limit(type), "gemm", name);
            product_free(&p);
            bench_release(bench);
        }
}

static void gemm_time(struct bench *bench)
{
    static const struct {
        enum kernel_type type;
        size_t rows, inputs, outputs;
    } shapes[] = {{KERNEL_BFLOAT16, 8192, 8192, 8192}, {KERNEL_FLOAT16, 8192, 8192, 8192},
            {KERNEL_FLOAT32, 8192, 8192, 8192}, {KERNEL_BFLOAT16, 16384, 4096, 4096},
            {KERNEL_BFLOAT16, 65536, 1024, 1024}, {KERNEL_BFLOAT16, 64, 8192, 8192}};
    if (!gemm_library())
        return;
    for (const auto &shape : shapes) {
        struct product p = {};
        p.type = shape.type;
        p.rows = shape.rows;
        p.inputs = shape.inputs;
        p.outputs = shape.outputs;
        const double error = product_error(bench, &p);
        struct bench_row row = {"gemm", "", error, product_limit(p.type), 0, 0,
                2.0 * (double)p.rows * (double)p.inputs * (double)p.outputs};
        product_shape(&p, row.shape);
        bench_report(bench, &row, bench_time_products(bench, product_launch, &p, 1));
        product_free(&p);
        bench_release(bench);
    }
}

// A side without its library is told so.
static int gemm_host()
{
    const char *asked = getenv("UPGATE_CUBLASLT");
    const std::vector<char> before(asked, asked ? asked + strlen(asked) + 1 : asked);
    const struct lt *lt;
    struct error err;
    setenv("UPGATE_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
    const int rc = lt_open(&lt, &err);
    if (asked)
        setenv("UPGATE_CUBLASLT", before.data(), 1);
    else
        unsetenv("UPGATE_CUBLASLT");
    if (rc == -ENOSYS && strstr(err.text, "no cuBLASLt: /nonexistent/libcublasLt.so"))
        return 0;
    printf("gemm: without a library: %d, %s\n", rc, rc ? err.text : "");
    return 1;
}

const struct suite suite_gemm = {"gemm", gemm_host, gemm_check, gemm_time};
