// SPDX-License-Identifier: Apache-2.0
// Layers of a perceptron by cuBLASLt with fused epilogues, as kernels.h says it; with their check
// and timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/mlp.cu
// Operations: 2 * rows * inputs * outputs each pass. Bytes that the epilogue saves: forward the
// product written and read once more; input the same, and the result read again for dbias. Bound by
// the matrix units. Row-major tensors are its column-major ones turned: y^T = weight x^T.
// The references are ops_gemm, ops_relu, ops_gelu, ops_column_sum of the native models in float64.
// Expected on an H200: docs/KERNELS-GPU.md.
#include "kernels/bench.h"

#include <library_types.h>

#include "kernels/device.cuh"
#include "kernels/lt.h"

#define MLP_RUNS 5

struct kernel_mlp_plan {
    struct kernel_mlp mlp;
    const struct lt *lt;
    void *desc, *a_layout, *b_layout, *out_layout;
    struct lt_heuristic algorithm;
};

static int mlp_refuse(const struct kernel_mlp *m, struct error *err)
{
    if (m->type != KERNEL_FLOAT16 && m->type != KERNEL_BFLOAT16)
        return error_set(err, -EINVAL, "mlp: type %s is not supported: float16 and bfloat16 are",
                kernel_type_name(m->type));
    if (m->activation < KERNEL_RELU || m->activation > KERNEL_IDENTITY ||
            m->pass < KERNEL_MLP_FORWARD || m->pass > KERNEL_MLP_WEIGHT)
        return error_set(err, -EINVAL,
                "mlp: activation %d, pass %d: relu (0), gelu (1) or identity (2), forward (0), input (1) or weight (2)",
                (int)m->activation, (int)m->pass);
    const bool forward = m->pass == KERNEL_MLP_FORWARD, input = m->pass == KERNEL_MLP_INPUT,
               act = m->activation != KERNEL_IDENTITY;
    const int64_t of_inputs = input && act ? 128 : 8, of_outputs = forward && act ? 128 : 8;
    if (m->rows < 1 || m->rows > 1 << 28 || m->inputs < 1 || m->inputs > 1 << 24 ||
            m->outputs < 1 || m->outputs > 1 << 24 || m->inputs % of_inputs != 0 ||
            m->outputs % of_outputs != 0)
        return error_set(err, -EINVAL,
                "mlp: %lld rows of %lld to %lld are not supported: 1 to 2^28 of multiples of %lld and %lld up to 2^24 are",
                (long long)m->rows, (long long)m->inputs, (long long)m->outputs,
                (long long)of_inputs, (long long)of_outputs);
    const void *const pointers[] = {m->out, m->workspace, input ? m->weight : m->x,
            forward ? m->weight : m->dz, (forward || input) && act ? m->aux : m->out,
            forward                              ? m->bias
                    : m->dbias || (input && act) ? m->dbias
                                                 : m->out};
    for (const void *pointer : pointers)
        if (!pointer || (uintptr_t)pointer % 16 != 0)
            return error_set(err, -EINVAL,
                    "mlp: something that this pass needs is NULL or does not start at a multiple of 16 bytes");
    return 0;
}

// The fastest of the algorithms, each launched a few times.
static int mlp_fastest(
        struct kernel_mlp_plan *p, const struct lt_heuristic *found, int count, struct error *err)
{
    cudaEvent_t begin = NULL, end = NULL;
    cudaError_t error = cudaEventCreate(&begin);
    float best = INFINITY;
    int at = -1, rc = 0;
    if (error == cudaSuccess)
        error = cudaEventCreate(&end);
    for (int i = 0; i < count && error == cudaSuccess && !rc; i++) {
        float ms = 0;
        p->algorithm = found[i];
        // one that the library proposes and then refuses is passed over
        if (kernel_mlp_run(p, 0, err))
            continue;
        error = cudaEventRecord(begin, 0);
        for (int run = 0; run < MLP_RUNS && error == cudaSuccess && !rc; run++)
            rc = kernel_mlp_run(p, 0, err);
        if (error == cudaSuccess)
            error = cudaEventRecord(end, 0);
        if (error == cudaSuccess)
            error = cudaEventSynchronize(end);
        if (error == cudaSuccess)
            error = cudaEventElapsedTime(&ms, begin, end);
        if (ms < best) {
            best = ms;
            at = i;
        }
    }
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    if (rc)
        return rc;
    if (error != cudaSuccess)
        return device_error(error, "time the algorithms of a layer", err);
    if (at < 0)
        return error_set(err, -ENOSYS,
                "cuBLASLt runs none of the %d algorithms that it has for this layer", count);
    p->algorithm = found[at];
    return 0;
}

static int mlp_describe(struct kernel_mlp_plan *p, struct error *err)
{
    const struct kernel_mlp *m = &p->mlp;
    const struct lt *lt = p->lt;
    const int type = m->type == KERNEL_FLOAT16 ? CUDA_R_16F : CUDA_R_16BF, yes = 1;
    const bool forward = m->pass == KERNEL_MLP_FORWARD, weight = m->pass == KERNEL_MLP_WEIGHT;
    static const int forwards[] = {LT_RELU_AUX_BIAS, LT_GELU_AUX_BIAS, LT_PLAIN_BIAS},
                     backs[] = {LT_RELU_BACK_BIAS, LT_GELU_BACK_BIAS, LT_NONE};
    const int epilogue = weight ? m->dbias ? LT_RIGHT_SUM : LT_NONE
                                : (forward ? forwards : backs)[m->activation];
    const bool biased = epilogue != LT_NONE,
               with_aux = biased && !weight && m->activation != KERNEL_IDENTITY;
    const uint64_t rows = (uint64_t)m->rows, inputs = (uint64_t)m->inputs,
                   outputs = (uint64_t)m->outputs;
    const int64_t columns = forward ? m->outputs : m->inputs; // of the result
    const void *bias = forward ? m->bias : m->dbias;
    struct lt_heuristic found[LT_ALGORITHMS];
    int count = 0,
        rc = lt_error(
                lt->desc_create(&p->desc, LT_COMPUTE_32F, CUDA_R_32F), "create a descriptor", err);

    if (!rc && forward)
        rc = lt_error(
                lt->desc_set(p->desc, LT_TRANSPOSE_A, &yes, sizeof yes), "turn the left side", err);
    if (!rc && weight)
        rc = lt_error(lt->desc_set(p->desc, LT_TRANSPOSE_B, &yes, sizeof yes),
                "turn the right side", err);
    if (!rc)
        rc = lt_error(lt->desc_set(p->desc, LT_EPILOGUE, &epilogue, sizeof epilogue),
                "set the epilogue", err);
    if (!rc && biased)
        rc = lt_error(lt->desc_set(p->desc, LT_BIAS, &bias, sizeof bias), "set the bias", err);
    if (!rc && with_aux &&
            !(rc = lt_error(lt->desc_set(p->desc, LT_AUX, &m->aux, sizeof m->aux), "set aux", err)))
        rc = lt_error(lt->desc_set(p->desc, LT_AUX_STRIDE, &columns, sizeof columns),
                "set aux's stride", err);
    if (!rc)
        rc = lt_error(
                lt->layout_create(&p->a_layout, type, inputs, weight ? rows : outputs, m->inputs),
                "describe the left side", err);
    if (!rc)
        rc = lt_error(lt->layout_create(&p->b_layout, type, forward ? inputs : outputs, rows,
                              forward ? m->inputs : m->outputs),
                "describe the right side", err);
    if (!rc)
        rc = lt_error(lt->layout_create(&p->out_layout, type, (uint64_t)columns,
                              weight ? outputs : rows, columns),
                "describe the result", err);
    if (!rc)
        rc = lt_algorithms(
                lt, p->desc, p->a_layout, p->b_layout, p->out_layout, &found, &count, err);
    return rc ? rc : mlp_fastest(p, found, count, err);
}

int kernel_mlp_plan(const struct kernel_mlp *mlp, struct kernel_mlp_plan **ret, struct error *err)
{
    const struct lt *lt;
    int rc = mlp_refuse(mlp, err);

    *ret = NULL;
    if (rc || (rc = lt_open(&lt, err)))
        return rc;
    struct kernel_mlp_plan *p = (struct kernel_mlp_plan *)calloc(1, sizeof *p);
    if (!p)
        return error_set(err, -ENOMEM, "mlp: out of memory");
    p->mlp = *mlp;
    p->lt = lt;
    rc = mlp_describe(p, err);
    if (rc)
        kernel_mlp_plan_free(p);
    else
        *ret = p;
    return rc;
}

int kernel_mlp_run(const struct kernel_mlp_plan *p, cudaStream_t stream, struct error *err)
{
    const struct kernel_mlp *m = &p->mlp;
    const float one = 1, zero = 0;
    const void *a = m->pass == KERNEL_MLP_WEIGHT ? m->x : m->weight,
               *b = m->pass == KERNEL_MLP_FORWARD ? m->x : m->dz;
    return lt_error(p->lt->matmul(p->lt->handle, p->desc, &one, a, p->a_layout, b, p->b_layout,
                            &zero, m->out, p->out_layout, m->out, p->out_layout,
                            p->algorithm.algorithm, m->workspace, KERNEL_MLP_WORKSPACE, stream),
            "launch a layer", err);
}

void kernel_mlp_plan_free(struct kernel_mlp_plan *p)
{
    if (!p)
        return;
    if (p->desc)
        p->lt->desc_destroy(p->desc);
    for (void *layout : {p->a_layout, p->b_layout, p->out_layout})
        if (layout)
            p->lt->layout_destroy(layout);
    free(p);
}

// Two layers: y = act(x weight^T + bias) with n0 to n1 columns, and the way back through the next,
// of n1 to n2: dz of it, and its weight.
struct mlp_case {
    enum kernel_type type;
    enum kernel_activation activation;
    size_t distinct, rows, n0, n1, n2; // `distinct` rows, over and over
    std::vector<double> x = {}, weight = {}, bias = {}, dz = {}, next_weight = {};
    // dbias: of the layer below; identity: none
    void *y = NULL, *aux = NULL, *below = NULL, *dbias = NULL, *dweight = NULL, *own_dbias = NULL;
    struct kernel_mlp_plan *plans[3] = {}; // by pass
};

static void launch_mlp(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(kernel_mlp_run((const struct kernel_mlp_plan *)arg, stream, &err), &err);
}

static double mlp_limit(enum kernel_type type)
{
    return type == KERNEL_FLOAT16 ? 0x1p-10 : 0x1p-8;
}

static void mlp_set(struct bench *bench, struct mlp_case *t)
{
    const size_t times = t->rows / t->distinct;
    struct error err;
    const void *x = bench_draw(bench, t->type, t->distinct * t->n0, 1, false, &t->x);
    const void *dz = bench_draw(bench, t->type, t->distinct * t->n2, 1, false, &t->dz);
    const void *weight =
            bench_draw(bench, t->type, t->n1 * t->n0, 2 / sqrt((double)t->n0), false, &t->weight);
    const void *next_weight = bench_draw(
            bench, t->type, t->n2 * t->n1, 2 / sqrt((double)t->n2), false, &t->next_weight);
    struct kernel_mlp mlp = {};

    mlp.type = t->type;
    mlp.activation = t->activation;
    mlp.rows = (int64_t)t->rows;
    mlp.workspace = bench_memory(bench, KERNEL_MLP_WORKSPACE);
    t->y = bench_memory(bench, t->rows * t->n1 * 2);
    if (t->activation != KERNEL_IDENTITY) {
        t->aux = bench_memory(bench, t->rows * t->n1 * (t->activation == KERNEL_GELU ? 16 : 1) / 8);
        t->dbias = bench_memory(bench, t->n1 * 2);
    }
    t->own_dbias = bench_memory(bench, t->n2 * 2);
    t->below = bench_memory(bench, t->rows * t->n1 * 2);
    t->dweight = bench_memory(bench, t->n2 * t->n1 * 2);
    mlp.inputs = (int64_t)t->n0;
    mlp.outputs = (int64_t)t->n1;
    mlp.x = bench_repeat(bench, x, t->distinct * t->n0 * 2, times);
    mlp.weight = weight;
    mlp.bias = bench_draw(bench, t->type, t->n1, 0.5, false, &t->bias);
    mlp.aux = t->aux;
    mlp.out = t->y;
    bench_must(kernel_mlp_plan(&mlp, &t->plans[KERNEL_MLP_FORWARD], &err), &err);
    mlp.pass = KERNEL_MLP_INPUT;
    mlp.inputs = (int64_t)t->n1;
    mlp.outputs = (int64_t)t->n2;
    mlp.dz = bench_repeat(bench, dz, t->distinct * t->n2 * 2, times);
    mlp.weight = next_weight;
    mlp.out = t->below;
    mlp.dbias = t->dbias;
    bench_must(kernel_mlp_plan(&mlp, &t->plans[KERNEL_MLP_INPUT], &err), &err);
    mlp.pass = KERNEL_MLP_WEIGHT;
    mlp.x = t->y;
    mlp.out = t->dweight;
    mlp.dbias = t->own_dbias;
    bench_must(kernel_mlp_plan(&mlp, &t->plans[KERNEL_MLP_WEIGHT], &err), &err);
}

static std::vector<double> mlp_product(struct bench *bench, size_t m, size_t n, size_t k,
        bool turn_a, bool turn_b, const double *a, const double *b, const double *bias)
{
    std::vector<double> c(m * n), scratch(ops_gemm_scratch(k, n));
    const struct gemm gemm = {m, n, k, turn_a, turn_b, a, b, bias, c.data(), scratch.data()};
    ops_gemm(bench->pool, &gemm);
    return c;
}

// Runs the three passes in turn; errors by pass. The way back is compared from the y and the aux
// that the device made: a sum near 0 has a sign of its own in float32.
static void mlp_errors(struct bench *bench, const struct mlp_case *t, double (&ret)[3])
{
    const double limit = mlp_limit(t->type), times = (double)(t->rows / t->distinct);
    const size_t rows = t->distinct, count = rows * t->n1;
    std::vector<double> want(count), dbias(t->n1);

    for (struct kernel_mlp_plan *plan : t->plans)
        launch_mlp(plan, 0, bench->stream);
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    std::vector<double> z = mlp_product(
            bench, rows, t->n1, t->n0, false, true, t->x.data(), t->weight.data(), t->bias.data());
    if (t->activation == KERNEL_IDENTITY)
        want = z;
    else
        (t->activation == KERNEL_GELU ? ops_gelu : ops_relu)(
                bench->pool, count, z.data(), want.data());
    const std::vector<double> y = bench_download(t->type, t->y, count);
    const std::vector<double> last =
            bench_download(t->type, (const char *)t->y + (t->rows - rows) * t->n1 * 2, count);
    ret[0] = std::max(bench_error(y.data(), want.data(), count, limit),
            bench_error(last.data(), want.data(), count, limit));
    const std::vector<double> dy = mlp_product(
            bench, rows, t->n1, t->n2, false, false, t->dz.data(), t->next_weight.data(), NULL);
    if (t->activation == KERNEL_IDENTITY) {
        want = dy;
    } else if (t->activation == KERNEL_GELU) {
        const std::vector<double> aux = bench_download(t->type, t->aux, count);
        ret[0] = std::max(ret[0], bench_error(aux.data(), z.data(), count, limit));
        ops_gelu_backward(bench->pool, count, aux.data(), dy.data(), want.data());
    } else {
        ops_relu_backward(bench->pool, count, y.data(), dy.data(), want.data());
    }
    const std::vector<double> below = bench_download(t->type, t->below, count);
    ret[1] = bench_error(below.data(), want.data(), count, 2 * limit);
    if (t->dbias) {
        const std::vector<double> got_bias = bench_download(t->type, t->dbias, t->n1);
        ops_column_sum(bench->pool, rows, t->n1, want.data(), dbias.data());
        for (double &value : dbias)
            value *= times;
        ret[1] = std::max(ret[1], bench_error(got_bias.data(), dbias.data(), t->n1, 2 * limit));
    }
    std::vector<double> own(t->n2);
    ops_column_sum(bench->pool, rows, t->n2, t->dz.data(), own.data());
    for (double &value : own)
        value *= times;
    std::vector<double> dweight =
            mlp_product(bench, t->n2, t->n1, rows, true, false, t->dz.data(), y.data(), NULL);
    for (double &value : dweight)
        value *= times;
    const std::vector<double> got_weight = bench_download(t->type, t->dweight, t->n2 * t->n1);
    ret[2] = std::max(bench_error(got_weight.data(), dweight.data(), dweight.size(), limit),
            bench_error(
                    bench_download(t->type, t->own_dbias, t->n2).data(), own.data(), t->n2, limit));
}

static void mlp_release(struct bench *bench, struct mlp_case *t)
{
    bench_release(bench);
    for (struct kernel_mlp_plan *&plan : t->plans) {
        kernel_mlp_plan_free(plan);
        plan = NULL;
    }
}

static const char *const mlp_activations[] = {"relu", "gelu", "identity"};
static const char *const mlp_names[] = {"mlp_forward", "mlp_input", "mlp_weight"};

static bool mlp_library()
{
    const struct lt *lt;
    struct error err;
    if (lt_open(&lt, &err) == 0)
        return true;
    fprintf(stderr, "upgate_kernels: mlp: left out: %s\n", err.text);
    return false;
}

static void mlp_check(struct bench *bench)
{
    static const size_t shapes[][4] = {
            {1, 128, 128, 128}, {7, 128, 256, 384}, {300, 512, 256, 128}, {1000, 384, 1024, 512}};
    if (bench->quick) {
        bench->cases++; // what a checker finds in the library's kernels is not ours
        return;
    }
    if (!mlp_library())
        return;
    for (enum kernel_type type : {KERNEL_FLOAT16, KERNEL_BFLOAT16})
        for (enum kernel_activation activation : {KERNEL_RELU, KERNEL_GELU, KERNEL_IDENTITY})
            for (const auto &shape : shapes) {
                // columns divided by: 16 to 128 of them
                const size_t width = activation == KERNEL_IDENTITY ? 8 : 1;
                struct mlp_case t = {type, activation, shape[0], shape[0], shape[1] / width,
                        shape[2] / width, shape[3] / width};
                double errors[3];
                char name[96];
                mlp_set(bench, &t);
                mlp_errors(bench, &t, errors);
                snprintf(name, sizeof name, "%s %zux%zux%zux%zu %s", mlp_activations[activation],
                        t.rows, t.n0, t.n1, t.n2, kernel_type_name(type));
                for (int pass = 0; pass < 3; pass++)
                    bench_expect(bench, errors[pass],
                            pass == 1 ? 2 * mlp_limit(type) : mlp_limit(type), mlp_names[pass],
                            name);
                mlp_release(bench, &t);
            }
}

static void mlp_time(struct bench *bench)
{
    static const struct {
        enum kernel_activation activation;
        size_t rows, n;
    } shapes[] = {
            {KERNEL_RELU, 16384, 4096}, {KERNEL_GELU, 16384, 4096}, {KERNEL_RELU, 65536, 1024}};
    if (!mlp_library())
        return;
    for (const auto &shape : shapes) {
        struct mlp_case t = {
                KERNEL_BFLOAT16, shape.activation, 128, shape.rows, shape.n, shape.n, shape.n};
        double errors[3];
        mlp_set(bench, &t);
        mlp_errors(bench, &t, errors);
        for (int pass = 0; pass < 3; pass++) {
            struct bench_row row = {mlp_names[pass], "", errors[pass],
                    (pass == 1 ? 2 : 1) * mlp_limit(t.type), 0, 0,
                    2.0 * (double)shape.rows * (double)shape.n * (double)shape.n};
            snprintf(row.shape, sizeof row.shape, "%s %zux%zux%zu bfloat16",
                    mlp_activations[shape.activation], shape.rows, shape.n, shape.n);
            bench_report(bench, &row, bench_time_products(bench, launch_mlp, t.plans[pass], 1));
        }
        mlp_release(bench, &t);
    }
}

static int mlp_host()
{
    alignas(16) static float memory[64];
    struct kernel_mlp good = {KERNEL_BFLOAT16, KERNEL_RELU, KERNEL_MLP_FORWARD, 1, 128, 128, memory,
                              memory, memory, memory, memory, memory, memory, memory},
                      bad;
    struct kernel_mlp_plan *plan;
    struct error err;
    int failures = 0;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_mlp_plan(&bad, &plan, &err), &err, words)
    REFUSED(type, KERNEL_FLOAT32, "type float32 is not supported");
    REFUSED(activation, (enum kernel_activation)3, "activation 3");
    REFUSED(pass, (enum kernel_mlp_pass)3, "pass 3");
    REFUSED(rows, 0, "0 rows of 128");
    REFUSED(inputs, 100, "1 rows of 100 to 128");
    REFUSED(outputs, 1 << 25, "up to 2^24");
    REFUSED(outputs, 64, "multiples of 8 and 128");
    REFUSED(aux, NULL, "is NULL");
    REFUSED(x, memory + 1, "multiple of 16 bytes");
    good.activation = KERNEL_IDENTITY;
    REFUSED(inputs, 4, "multiples of 8 and 8");
    good.activation = KERNEL_RELU;
    good.pass = KERNEL_MLP_INPUT;
    REFUSED(inputs, 64, "multiples of 128 and 8");
    REFUSED(dbias, NULL, "is NULL");
    REFUSED(dz, NULL, "is NULL");
#undef REFUSED
    return failures;
}

const struct suite suite_mlp = {"mlp", mlp_host, mlp_check, mlp_time};
