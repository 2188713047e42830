// SPDX-License-Identifier: Apache-2.0
// Checks and times norm_forward.cu and norm_backward.cu. The reference is ops_layernorm of the
// native models in float64, whose own tests hold it against finite differences. Expected on an
// H200: docs/KERNELS-GPU.md.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/norm_bench.cu
#include "kernels/bench.h"

#define NORM_EPSILON 1e-5f // of the reference

struct norm_shape {
    int64_t rows, n;
    enum kernel_type type;
    bool rms;
};

// One set of inputs on the device, and on the host in float64 what the reference takes.
struct norm_case {
    struct norm_shape shape;
    struct kernel_norm norm;
    struct kernel_norm_gradient gradient;
    std::vector<double> x, dy, gain, bias;
};

static void norm_set(struct bench *bench, struct norm_case *t, const struct norm_shape *shape)
{
    const size_t n = (size_t)shape->n, count = (size_t)shape->rows * n,
                 size = kernel_type_bytes(shape->type);
    size_t scratch = 0;
    struct error err;

    t->shape = *shape;
    t->norm = {};
    t->norm.type = shape->type;
    t->norm.rms = shape->rms;
    t->norm.rows = shape->rows;
    t->norm.n = shape->n;
    t->norm.epsilon = NORM_EPSILON;
    t->norm.x = bench_draw(bench, shape->type, count, 2, true, &t->x); // a mean that is not 0
    t->norm.gain = bench_draw(bench, shape->type, n, 0.5, true, &t->gain);
    t->norm.bias = shape->rms ? NULL : bench_draw(bench, shape->type, n, 1, false, &t->bias);
    t->norm.y = bench_memory(bench, count * size);
    t->norm.mean =
            shape->rms ? NULL : (float *)bench_memory(bench, (size_t)shape->rows * sizeof(float));
    t->norm.scale = (float *)bench_memory(bench, (size_t)shape->rows * sizeof(float));
    t->gradient.dy = bench_draw(bench, shape->type, count, 1, false, &t->dy);
    t->gradient.dx = bench_memory(bench, count * size);
    t->gradient.dgain = bench_memory(bench, n * size);
    t->gradient.dbias = shape->rms ? NULL : bench_memory(bench, n * size);
    bench_must(kernel_norm_scratch(&t->norm, &scratch, &err), &err);
    t->gradient.scratch = (float *)bench_memory(bench, scratch);
}

static void launch_forward(void *arg, int set, cudaStream_t stream)
{
    struct error err;
    bench_must(kernel_norm_forward(&((struct norm_case *)arg)[set].norm, stream, &err), &err);
}

static void launch_backward(void *arg, int set, cudaStream_t stream)
{
    struct error err;
    struct norm_case *t = (struct norm_case *)arg + set;
    bench_must(kernel_norm_backward(&t->norm, &t->gradient, stream, &err), &err);
}

// Rounding of an output of the type: half a unit in the last place, as a share of the value. Sums
// add a few float32 roundings.
static double norm_limit(enum kernel_type type)
{
    return type == KERNEL_BFLOAT16 ? 0x1p-8 : 2e-6;
}

static double norm_difference(
        const struct norm_case *t, const void *device, const std::vector<double> &want)
{
    const std::vector<double> got = bench_download(t->shape.type, device, want.size());
    return bench_error(got.data(), want.data(), want.size(), norm_limit(t->shape.type));
}

// Runs both ways and compares all outputs.
static void norm_errors(
        struct bench *bench, struct norm_case *t, double *ret_forward, double *ret_backward)
{
    const size_t rows = (size_t)t->shape.rows, n = (size_t)t->shape.n;
    std::vector<double> y(rows * n), mean(rows), scale(rows), dgain(n), dbias(t->shape.rms ? 0 : n);
    struct layernorm reference = {};

    launch_forward(t, 0, bench->stream);
    launch_backward(t, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    reference.rows = rows;
    reference.n = n;
    reference.rms = t->shape.rms;
    reference.x = t->x.data();
    reference.gain = t->gain.data();
    reference.bias = t->bias.data();
    reference.y = y.data();
    reference.mean = mean.data();
    reference.scale = scale.data();
    ops_layernorm(bench->pool, &reference);
    const std::vector<double> got_scale = bench_download(KERNEL_FLOAT32, t->norm.scale, rows);
    *ret_forward = std::max(norm_difference(t, t->norm.y, y),
            bench_error(got_scale.data(), scale.data(), rows, 2e-6));
    if (!t->shape.rms) {
        const std::vector<double> got_mean = bench_download(KERNEL_FLOAT32, t->norm.mean, rows);
        *ret_forward =
                std::max(*ret_forward, bench_error(got_mean.data(), mean.data(), rows, 2e-6));
    }
    std::vector<double> &dx = y; // done with
    ops_layernorm_backward(
            bench->pool, &reference, t->dy.data(), dx.data(), dgain.data(), dbias.data());
    *ret_backward = std::max(
            norm_difference(t, t->gradient.dx, dx), norm_difference(t, t->gradient.dgain, dgain));
    if (!t->shape.rms)
        *ret_backward = std::max(*ret_backward, norm_difference(t, t->gradient.dbias, dbias));
}

static void norm_name(const struct norm_shape *shape, char *text, size_t size)
{
    snprintf(text, size, "%s %lldx%lld %s", shape->rms ? "rms" : "layer", (long long)shape->rows,
            (long long)shape->n, kernel_type_name(shape->type));
}

// Every group of NORM_DISPATCH, its widest and its narrowest row; one row, fewer rows than blocks,
// and many.
static void norm_check_shapes(struct bench *bench)
{
    static const int64_t vectors[] = {
            1, 2, 31, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025, 1536, 1537, 2048};
    static const int64_t rows[] = {1, 7, 1111};
    for (int64_t v : vectors)
        for (int64_t r : rows)
            for (int kind = 0; kind < 4; kind++) {
                struct norm_shape shape = {
                        r, 0, kind & 1 ? KERNEL_FLOAT32 : KERNEL_BFLOAT16, kind >= 2};
                struct norm_case t;
                char name[96];
                double forward, backward;
                if (bench->quick && r > 7)
                    continue;
                shape.n = v * 16 / (int64_t)kernel_type_bytes(shape.type);
                norm_set(bench, &t, &shape);
                norm_errors(bench, &t, &forward, &backward);
                norm_name(&shape, name, sizeof name);
                bench_expect(bench, forward, norm_limit(shape.type), "norm_forward", name);
                bench_expect(bench, backward, norm_limit(shape.type), "norm_backward", name);
                bench_release(bench);
            }
}

static void norm_time(struct bench *bench)
{
    static const struct {
        struct norm_shape shape;
        double forward, backward; // targets; 0: none set for this shape
    } shapes[] = {
            {{8192, 8192, KERNEL_BFLOAT16, false}, 0.95, 0.85},
            {{16384, 4096, KERNEL_BFLOAT16, false}, 0.95, 0.85},
            {{65536, 1024, KERNEL_BFLOAT16, false}, 0.95, 0.85},
            {{8192, 8192, KERNEL_BFLOAT16, true}, 0.95, 0.85},
            {{16384, 4096, KERNEL_BFLOAT16, true}, 0.95, 0.85},
            {{16384, 4096, KERNEL_FLOAT32, false}, 0.95, 0.85},
            {{1024, 12288, KERNEL_BFLOAT16, false}, 0, 0.59}, // 2.5 TB/s of the 4.24 of a copy
    };
    for (const auto &each : shapes) {
        const struct norm_shape *shape = &each.shape;
        const double size = (double)kernel_type_bytes(shape->type),
                     one = (double)shape->rows * (double)shape->n * size;
        const double rows = (shape->rms ? 4.0 : 8.0) * (double)shape->rows;
        const int sets = bench_sets(bench, 2 * one);
        std::vector<struct norm_case> cases((size_t)sets);
        struct bench_row forward = {
                "norm_forward", "", 0, norm_limit(shape->type), 0, each.forward};
        struct bench_row backward = {
                "norm_backward", "", 0, norm_limit(shape->type), 0, each.backward};

        for (struct norm_case &t : cases)
            norm_set(bench, &t, shape);
        norm_errors(bench, &cases[0], &forward.error, &backward.error);
        for (int i = 1; i < sets; i++)
            launch_forward(cases.data(), i, bench->stream); // mean and scale of the way back
        norm_name(shape, forward.shape, sizeof forward.shape);
        norm_name(shape, backward.shape, sizeof backward.shape);
        forward.bytes = 2 * one + rows + (shape->rms ? 1 : 2) * (double)shape->n * size;
        backward.bytes = 3 * one + rows + (shape->rms ? 2 : 3) * (double)shape->n * size;
        bench_report(bench, &forward, bench_time(bench, launch_forward, cases.data(), sets));
        bench_report(bench, &backward, bench_time(bench, launch_backward, cases.data(), sets));
        bench_release(bench);
    }
}

static int norm_host()
{
    alignas(16) static float memory[64];
    struct kernel_norm good = {}, bad;
    struct kernel_norm_gradient gradient = {};
    struct error err;
    size_t bytes;
    int failures = 0;

    good.type = KERNEL_FLOAT32;
    good.rows = 2;
    good.n = 8;
    good.epsilon = NORM_EPSILON;
    good.x = good.gain = good.bias = good.y = memory;
    bad = good;
    bad.type = KERNEL_FLOAT16;
    failures += bench_refused(
            kernel_norm_forward(&bad, 0, &err), &err, "type float16 is not supported");
    bad = good;
    bad.rows = 0;
    failures += bench_refused(kernel_norm_forward(&bad, 0, &err), &err, "0 rows");
    bad = good;
    bad.n = 10;
    failures +=
            bench_refused(kernel_norm_forward(&bad, 0, &err), &err, "a multiple of 4 up to 8192");
    bad.n = 8196;
    failures += bench_refused(kernel_norm_scratch(&bad, &bytes, &err), &err,
            "8196 columns of float32 are not supported");
    bad = good;
    bad.epsilon = NAN;
    failures += bench_refused(kernel_norm_forward(&bad, 0, &err), &err, "epsilon");
    bad = good;
    bad.bias = NULL;
    failures += bench_refused(
            kernel_norm_forward(&bad, 0, &err), &err, "gain and bias must not be NULL");
    bad = good;
    bad.x = memory + 1;
    failures += bench_refused(kernel_norm_forward(&bad, 0, &err), &err, "multiple of 16 bytes");
    bad = good;
    bad.mean = memory;
    failures += bench_refused(kernel_norm_forward(&bad, 0, &err), &err, "both given or both NULL");
    failures +=
            bench_refused(kernel_norm_backward(&good, &gradient, 0, &err), &err, "dy, dx, dgain");
    gradient.dy = gradient.dx = gradient.dgain = gradient.dbias = gradient.scratch = memory;
    failures += bench_refused(
            kernel_norm_backward(&good, &gradient, 0, &err), &err, "needs mean and scale");
    return failures;
}

const struct suite suite_norm = {"norm", norm_host, norm_check_shapes, norm_time};
