// SPDX-License-Identifier: Apache-2.0
// The models on the GPU without one: their launchers stand in tests/unit/fake_cuda. Their losses and answers must follow the
// CPU's in float64, within what bfloat16 loses; what they cannot run on is refused before the first step.
#include <errno.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include "reference_models/native/models/hstu_data.h"
#include "runner.h"

#ifdef __SANITIZE_ADDRESS__
#define STEPS 1 // every index once
#else
#define STEPS 4
#endif
#define CHANGE_LIMIT (STEPS > 1 ? 0.15 : 0.3) // of what the steps changed; one of bfloat16's roundings is 0.004, a sum of few rows has many, and masks of relu flip

static struct pool *pool;

static struct model *model_new(const struct model_ops *ops, struct model_opts opts)
{
    struct error err = {0};
    struct model *model = NULL;
    if (!pool)
        CHECK_INT(pool_new(1, &pool, NULL), 0);
    opts.pool = pool;
    int rc = ops->create(&opts, &model, &err);
    if (rc)
        runner_fail(__FILE__, __LINE__, "create: %s", err.text);
    return model;
}

static double step_loss(const struct model_ops *ops, struct model *model, uint64_t step)
{
    ops->load(model, step);
    ops->forward(model);
    double loss = ops->loss(model);
    ops->backward(model);
    ops->update(model);
    return ops->settle ? ops->settle(model) : loss;
}

static double value_of(const struct model_ops *ops, const void *values, size_t i)
{
    return ops->real_bytes == 4 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

// The norm of the difference over that of the CPU's; with `start`: of how far each is from it.
static double difference(const struct model_ops *a, const void *x, const struct model_ops *b, const void *y, size_t count, const double *start)
{
    double square = 0, whole = 0;
    for (size_t i = 0; i < count; i++) {
        double d = value_of(a, x, i) - value_of(b, y, i), own = value_of(b, y, i) - (start ? start[i] : 0);
        square += d * d;
        whole += own * own;
    }
    return whole > 0 ? sqrt(square / whole) : square > 0;
}

// Steps of training: losses, then what every parameter became.
static void check_twins(const struct model_ops *cuda, const struct model_ops *cpu, struct model_opts opts, double limit)
{
    opts.train = true;
    struct model *a = model_new(cuda, opts), *b = model_new(cpu, opts);
    size_t count_a, count_b;
    const struct model_param *y = cpu->params(b, &count_b);
    double *start[64];
    for (size_t i = 0; i < count_b; i++) {
        start[i] = malloc(y[i].count * sizeof **start);
        for (size_t j = 0; j < y[i].count; j++)
            start[i][j] = value_of(cpu, y[i].value, j);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        double on_gpu = step_loss(cuda, a, step), on_cpu = step_loss(cpu, b, step);
        CHECK_DBL(on_gpu, on_cpu, limit * fabs(on_cpu));
    }
    const struct model_param *x = cuda->params(a, &count_a);
    CHECK_INT(count_a, count_b);
    for (size_t i = 0; i < count_b; i++) {
        CHECK_INT(x[i].count, y[i].count);
        double off = difference(cuda, x[i].value, cpu, y[i].value, y[i].count, start[i]);
        // A bias of keys changes no softmax: Adam makes whole steps of what rounding leaves of its gradient, 0.
        bool keys = i > 0 && strcmp(y[i].name, "qkv") == 0 && strcmp(y[i - 1].name, "qkv") == 0;
        if (!(off < (keys ? 1 : CHANGE_LIMIT)))
            runner_fail(__FILE__, __LINE__, "%s: parameter %zu, %s: its change is off by %g", cuda->name, i, y[i].name, off);
        free(start[i]);
    }
    cuda->destroy(a);
    cpu->destroy(b);
    CHECK_INT(fake_cuda.allocations, 0);
}

static void check_answers(const struct model_ops *cuda, const struct model_ops *cpu, struct model_opts opts, double limit)
{
    struct model *a = model_new(cuda, opts), *b = model_new(cpu, opts);
    for (uint64_t step = 0; step < STEPS && step < 2; step++) {
        size_t count_a, count_b;
        cuda->load(a, step);
        cuda->forward(a);
        cpu->load(b, step);
        cpu->forward(b);
        if (opts.decode) {
            cuda->decode(a);
            cpu->decode(b);
        }
        const void *x = cuda->logits(a, &count_a), *y = cpu->logits(b, &count_b);
        CHECK_INT(count_a, count_b);
        CHECK(difference(cuda, x, cpu, y, count_b, NULL) < limit);
    }
    cuda->destroy(a);
    cpu->destroy(b);
}

TEST(dlrm_follows_the_cpu)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_DEMO, .batch = 64};
    check_twins(&dlrm_ops_cuda, &dlrm_ops_f64, opts, 0.004);
    check_answers(&dlrm_ops_cuda, &dlrm_ops_f64, opts, 0.02);
}

// Heads of 64: the size that has them, of fewer and shorter sequences.
TEST(transformer_follows_the_cpu)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_LARGE, .batch = 1, .text_path = "/nonexistent"};
    check_twins(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
}

TEST(transformer_answers_as_the_cpu_does)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_LARGE, .batch = 2, .text_path = "/nonexistent"};
    check_answers(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
    opts.decode = 5;
    check_answers(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
}

// Heads of 64, short histories, two batches of different lengths in turn.
TEST(hstu_follows_the_cpu)
{
    static const struct hstu_shape shape = {.layers = 2, .width = 128, .heads = 2, .users = 4, .history = 40, .targets = 5, .items = 300, .pool = 2, .rate = 0.05};
    struct model_opts opts = {.seed = 3, .hstu_shape = &shape};
    check_twins(&hstu_ops_cuda, &hstu_ops_f64, opts, 0.03); // 1.1 % in a build without fused multiply-add
    check_answers(&hstu_ops_cuda, &hstu_ops_f64, opts, 0.02);
}

static void check_refused(const struct model_ops *ops, struct model_opts opts, int rc, const char *words)
{
    struct error err = {0};
    struct model *model = NULL;
    if (!pool)
        CHECK_INT(pool_new(1, &pool, NULL), 0);
    opts.pool = pool;
    CHECK_INT(ops->create(&opts, &model, &err), rc);
    CHECK(strstr(err.text, words) != NULL);
    if (!strstr(err.text, words))
        runner_fail(__FILE__, __LINE__, "said '%s', not '%s'", err.text, words);
    CHECK(model == NULL);
    CHECK_INT(fake_cuda.allocations, 0);
}

TEST(what_cannot_run_is_refused)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_DEMO, .batch = 64, .train = true};
    const struct fake_cuda usual = fake_cuda;
    struct model_opts decode = {.size = MODEL_SIZE_LARGE, .decode = 256};
    check_refused(&transformer_ops_cuda, (struct model_opts){.size = MODEL_SIZE_DEMO}, -EINVAL, "heads of 16");
    check_refused(&hstu_ops_cuda, (struct model_opts){.size = MODEL_SIZE_DEMO}, -EINVAL, "heads of 32");
    check_refused(&transformer_ops_cuda, decode, -EINVAL, "256 bytes to decode are too many");
    check_refused(&dlrm_ops_cuda, (struct model_opts){.size = MODEL_SIZE_SMALL}, -EINVAL, "rows of 16");
    setenv("UPGATE_KERNELS", "/nonexistent", 1);
    check_refused(&dlrm_ops_cuda, opts, -EINVAL, "UPGATE_KERNELS: no .cubin in /nonexistent");
    unsetenv("UPGATE_KERNELS");
    fake_cuda.driver = 0;
    check_refused(&dlrm_ops_cuda, opts, -ENODEV, "there is no NVIDIA driver");
    fake_cuda.driver = 12040;
    check_refused(&dlrm_ops_cuda, opts, -ENODEV, "takes programs up to CUDA 12.4, this one is of 13.0");
    fake_cuda = usual;
    fake_cuda.gpus = 0;
    check_refused(&dlrm_ops_cuda, opts, -ENODEV, "there is no GPU");
    fake_cuda = usual;
    fake_cuda.major = 8;
    check_refused(&dlrm_ops_cuda, opts, -EINVAL, "compute capability 8.0");
    fake_cuda = usual;
    fake_cuda.memory = (size_t)80 << 20;
    check_refused(&dlrm_ops_cuda, opts, -ENOMEM, "no room on the GPU for a table: 12.2 MiB more are needed");
    fake_cuda = usual;
}
