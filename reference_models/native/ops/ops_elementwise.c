// SPDX-License-Identifier: Apache-2.0
// Operations that go once over their arrays: activations, sums, optimizers. Compiled once per type.
// An item is a block of OPS_BLOCK elements, so that threads and repeats get pieces of one size.
#include "reference_models/native/ops/ops.h"

#include <math.h>

#define OPS_BLOCK ((size_t)512)
#define GELU_SCALE ((real)0.7978845608028654) // sqrt(2 / pi)
#define GELU_CUBIC ((real)0.044715)
#define GELU_ROOT_HALF ((real)0.7071067811865476)
#define GELU_DENSITY ((real)0.3989422804014327) // 1 / sqrt(2 pi)

struct elementwise {
    size_t count;
    const real *x, *dy;
    real *out;
};

static void elementwise_for(struct pool *pool, const struct elementwise *work, double operations,
        pool_fn fn, const char *name)
{
    pool_for(pool,
            &(struct pool_work){.count = (work->count + OPS_BLOCK - 1) / OPS_BLOCK,
                    .cost = operations * (double)OPS_BLOCK,
                    .fn = fn,
                    .name = name,
                    .arg = (void *)work});
}

static size_t block_end(size_t count, size_t end)
{
    return end * OPS_BLOCK < count ? end * OPS_BLOCK : count;
}

NATIVE_CLONES static void relu_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x;
    real *restrict y = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; // this way round NaN passes
}

void ops_relu(struct pool *pool, size_t count, const real *x, real *y)
{
    elementwise_for(pool, &(struct elementwise){.count = count, .x = x, .out = y}, 4,
            POOL_NAMED(relu_part));
}

NATIVE_CLONES static void relu_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict y = work->x, *restrict dy = work->dy;
    real *restrict dx = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

void ops_relu_backward(struct pool *pool, size_t count, const real *y, const real *dy, real *dx)
{
    struct elementwise work = {.count = count, .x = y, .dy = dy, .out = dx};
    elementwise_for(pool, &work, 5, POOL_NAMED(relu_backward_part));
}

NATIVE_CLONES static void gelu_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x;
    real *restrict y = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        real inner = GELU_SCALE * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
        y[i] = (real)0.5 * x[i] * (1 + real_tanh(inner));
    }
}

void ops_gelu(struct pool *pool, size_t count, const real *x, real *y)
{
    elementwise_for(pool, &(struct elementwise){.count = count, .x = x, .out = y}, 48,
            POOL_NAMED(gelu_part));
}

NATIVE_CLONES static void gelu_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x, *restrict dy = work->dy;
    real *restrict dx = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        real square = x[i] * x[i];
        real t = real_tanh(GELU_SCALE * (x[i] + GELU_CUBIC * square * x[i]));
        real slope = GELU_SCALE * (1 + 3 * GELU_CUBIC * square);
        dx[i] = dy[i] * (real)0.5 * (1 + t + x[i] * (1 - t * t) * slope);
    }
}

void ops_gelu_backward(struct pool *pool, size_t count, const real *x, const real *dy, real *dx)
{
    struct elementwise work = {.count = count, .x = x, .dy = dy, .out = dx};
    elementwise_for(pool, &work, 60, POOL_NAMED(gelu_backward_part));
}

// Not in lanes: erf is the C library's, element by element.
static void gelu_erf_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x;
    real *restrict y = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        y[i] = (real)0.5 * x[i] * (1 + NATIVE_ERF(GELU_ROOT_HALF * x[i]));
}

void ops_gelu_erf(struct pool *pool, size_t count, const real *x, real *y)
{
    elementwise_for(pool, &(struct elementwise){.count = count, .x = x, .out = y}, 60,
            POOL_NAMED(gelu_erf_part));
}

static void gelu_erf_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x, *restrict dy = work->dy;
    real *restrict dx = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        real share = (real)0.5 * (1 + NATIVE_ERF(GELU_ROOT_HALF * x[i]));
        dx[i] = dy[i] * (share + x[i] * GELU_DENSITY * real_exp((real)-0.5 * x[i] * x[i]));
    }
}

void ops_gelu_erf_backward(struct pool *pool, size_t count, const real *x, const real *dy, real *dx)
{
    struct elementwise work = {.count = count, .x = x, .dy = dy, .out = dx};
    elementwise_for(pool, &work, 90, POOL_NAMED(gelu_erf_backward_part));
}

NATIVE_CLONES static void add_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict a = work->x, *restrict b = work->dy;
    real *restrict sum = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        sum[i] = a[i] + b[i];
}

void ops_add(struct pool *pool, size_t count, const real *a, const real *b, real *sum)
{
    struct elementwise work = {.count = count, .x = a, .dy = b, .out = sum};
    elementwise_for(pool, &work, 5, POOL_NAMED(add_part));
}

NATIVE_CLONES static void mul_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict a = work->x, *restrict b = work->dy;
    real *restrict product = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        product[i] = a[i] * b[i];
}

void ops_mul(struct pool *pool, size_t count, const real *a, const real *b, real *product)
{
    struct elementwise work = {.count = count, .x = a, .dy = b, .out = product};
    elementwise_for(pool, &work, 5, POOL_NAMED(mul_part));
}

NATIVE_CLONES static void silu_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x;
    real *restrict y = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        y[i] = x[i] * real_sigmoid(x[i]);
}

void ops_silu(struct pool *pool, size_t count, const real *x, real *y)
{
    elementwise_for(pool, &(struct elementwise){.count = count, .x = x, .out = y}, 40,
            POOL_NAMED(silu_part));
}

NATIVE_CLONES static void silu_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct elementwise *work = arg;
    const real *restrict x = work->x, *restrict dy = work->dy;
    real *restrict dx = work->out;
    (void)again;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        real share = real_sigmoid(x[i]);
        dx[i] = dy[i] * share * (1 + x[i] * (1 - share));
    }
}

void ops_silu_backward(struct pool *pool, size_t count, const real *x, const real *dy, real *dx)
{
    struct elementwise work = {.count = count, .x = x, .dy = dy, .out = dx};
    elementwise_for(pool, &work, 44, POOL_NAMED(silu_backward_part));
}

#define COLUMN_BLOCK (64 / sizeof(real))

struct column_sum {
    size_t rows, n;
    const real *x;
    real *sum;
};

// Item = COLUMN_BLOCK columns; the rows are added in order, whatever the threads.
NATIVE_CLONES static void column_sum_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct column_sum *work = arg;
    (void)again;
    for (size_t block = begin; block < end; block++) {
        size_t first = block * COLUMN_BLOCK;
        size_t width = work->n - first < COLUMN_BLOCK ? work->n - first : COLUMN_BLOCK;
        real sum[COLUMN_BLOCK] = {0};
        for (size_t row = 0; row < work->rows; row++) {
            const real *restrict x = work->x + row * work->n + first;
            if (width == COLUMN_BLOCK) {
                NATIVE_SIMD
                for (size_t j = 0; j < COLUMN_BLOCK; j++)
                    sum[j] += x[j];
            } else {
                for (size_t j = 0; j < width; j++)
                    sum[j] += x[j];
            }
        }
        memcpy(work->sum + first, sum, width * sizeof *sum);
    }
}

void ops_column_sum(struct pool *pool, size_t rows, size_t n, const real *x, real *sum)
{
    struct column_sum work = {.rows = rows, .n = n, .x = x, .sum = sum};
    pool_for(pool,
            &(struct pool_work){.count = (n + COLUMN_BLOCK - 1) / COLUMN_BLOCK,
                    .cost = 4.0 * (double)(rows * COLUMN_BLOCK),
                    POOL_FN(column_sum_part),
                    .arg = &work});
}

struct update {
    size_t count;
    // keep: of a parameter, before Adam
    real rate, keep, beta1, beta2, epsilon, correction1, correction2;
    const real *grad;
    real *param, *m, *v;
};

static void update_for(
        struct pool *pool, struct update *work, double operations, pool_fn fn, const char *name)
{
    pool_for(pool,
            &(struct pool_work){.count = (work->count + OPS_BLOCK - 1) / OPS_BLOCK,
                    .cost = operations * (double)OPS_BLOCK,
                    .fn = fn,
                    .name = name,
                    .arg = work});
}

NATIVE_CLONES static void sgd_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct update *work = arg;
    const real *restrict grad = work->grad;
    real *restrict param = work->param;
    real rate = again ? 0 : work->rate;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++)
        param[i] -= rate * grad[i];
}

void ops_sgd(struct pool *pool, size_t count, real rate, const real *grad, real *param)
{
    struct update work = {.count = count, .rate = rate, .grad = grad, .param = param};
    update_for(pool, &work, 6, POOL_NAMED(sgd_part));
}

// A repeat keeps the velocity and the parameter.
NATIVE_CLONES static void sgd_momentum_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct update *work = arg;
    const real *restrict grad = work->grad;
    real *restrict param = work->param, *restrict velocity = work->m;
    real keep = again ? 1 : work->beta1, take = again ? 0 : 1, rate = again ? 0 : work->rate;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        velocity[i] = keep * velocity[i] + take * grad[i];
        param[i] -= rate * velocity[i];
    }
}

void ops_sgd_momentum(struct pool *pool, size_t count, real rate, real momentum, const real *grad,
        real *param, real *velocity)
{
    struct update work = {.count = count,
            .rate = rate,
            .beta1 = momentum,
            .grad = grad,
            .param = param,
            .m = velocity};
    update_for(pool, &work, 10, POOL_NAMED(sgd_momentum_part));
}

// A repeat keeps m, v and the parameter: every new share is 0 and every old one 1.
NATIVE_CLONES static void adam_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct update *work = arg;
    const real *restrict grad = work->grad;
    real *restrict param = work->param, *restrict m = work->m, *restrict v = work->v;
    real keep1 = again ? 1 : work->beta1, keep2 = again ? 1 : work->beta2;
    real take1 = again ? 0 : 1 - work->beta1, take2 = again ? 0 : 1 - work->beta2;
    real rate = again ? 0 : work->rate, keep = again ? 1 : work->keep;
    size_t last = block_end(work->count, end);
    NATIVE_SIMD
    for (size_t i = begin * OPS_BLOCK; i < last; i++) {
        m[i] = keep1 * m[i] + take1 * grad[i];
        v[i] = keep2 * v[i] + take2 * grad[i] * grad[i];
        real root = NATIVE_SQRT(v[i] * work->correction2);
        param[i] = keep * param[i] - rate * work->correction1 * m[i] / (root + work->epsilon);
    }
}

void ops_adamw(struct pool *pool, size_t count, const struct adam *adam, real decay,
        const real *grad, real *param, real *m, real *v)
{
    struct update work = {
            .count = count,
            .rate = adam->rate,
            .keep = 1 - adam->rate * decay,
            .beta1 = adam->beta1,
            .beta2 = adam->beta2,
            .epsilon = adam->epsilon,
            .correction1 = (real)(1 / (1 - pow((double)adam->beta1, (double)adam->step))),
            .correction2 = (real)(1 / (1 - pow((double)adam->beta2, (double)adam->step))),
            .grad = grad,
            .param = param,
            .m = m,
            .v = v,
    };
    update_for(pool, &work, 30, POOL_NAMED(adam_part));
}

void ops_adam(struct pool *pool, size_t count, const struct adam *adam, const real *grad,
        real *param, real *m, real *v)
{
    ops_adamw(pool, count, adam, 0, grad, param, m, v);
}
