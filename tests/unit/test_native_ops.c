// SPDX-License-Identifier: Apache-2.0
// The operations of the language model and of the optimizers, in fp64: forward against plain code,
// backward against finite differences, repeats and threads without any effect on a bit.
#define NATIVE_REAL_BITS 64
#include <stdlib.h>

#include "reference_models/native/ops/ops.h"
#include "test_native_gradient.h"

enum { ROWS = 7, N = 19 };

static struct pool *pool_with(size_t threads, double extra)
{
    struct pool *pool = NULL;
    CHECK_INT(pool_new(threads, &pool, NULL), 0);
    pool_set_extra(pool, extra);
    return pool;
}

TEST(exp_double_is_accurate)
{
    long double worst = 0;
    for (double x = -700; x < 700; x += 0.0317) {
        long double want = expl((long double)x), error = ((long double)real_exp(x) - want) / want;
        worst = fmaxl(worst, fabsl(error));
    }
    CHECK(worst < 4e-16L);
    CHECK(isnan(real_exp(NAN)));
}

struct unary {
    struct pool *pool;
    double x[ROWS * N], y[ROWS * N], weight[ROWS * N], dx[ROWS * N];
    void (*forward)(struct pool *pool, size_t count, const real *x, real *y);
};

static double unary_value(void *arg)
{
    struct unary *t = arg;
    t->forward(t->pool, ROWS * N, t->x, t->y);
    return gradient_dot(t->y, t->weight, ROWS * N);
}

// off: how far its values may be from x times the normal distribution's share below x.
static void check_gelu(void (*forward)(struct pool *pool, size_t count, const real *x, real *y),
        void (*backward)(struct pool *pool, size_t count, const real *x, const real *dy, real *dx),
        double off)
{
    struct unary t = {.pool = pool_with(1, 0), .forward = forward};
    gradient_draw(t.x, ROWS * N, 1);
    gradient_draw(t.weight, ROWS * N, 2);
    for (size_t i = 0; i < ROWS * N; i++)
        t.x[i] *= 3;
    unary_value(&t);
    for (size_t i = 0; i < ROWS * N; i++)
        CHECK_DBL(t.y[i], 0.5 * t.x[i] * erfc(-t.x[i] / sqrt(2)), off);
    backward(t.pool, ROWS * N, t.x, t.weight, t.dx);
    gradient_check(unary_value, &t, t.x, t.dx, ROWS * N, 1);
    pool_free(t.pool);
}

TEST(gelu_gradient)
{
    check_gelu(ops_gelu, ops_gelu_backward, 1e-3); // approximates it by tanh
}

TEST(gelu_erf_gradient)
{
    check_gelu(ops_gelu_erf, ops_gelu_erf_backward, 1e-14);
}

TEST(relu_gradient)
{
    struct unary t = {.pool = pool_with(1, 0), .forward = ops_relu};
    gradient_draw(t.x, ROWS * N, 3);
    gradient_draw(t.weight, ROWS * N, 4);
    unary_value(&t);
    ops_relu_backward(t.pool, ROWS * N, t.y, t.weight, t.dx);
    gradient_check(unary_value, &t, t.x, t.dx, ROWS * N, 1);
    double nan_in[1] = {NAN}, nan_out[1];
    ops_relu(t.pool, 1, nan_in, nan_out);
    CHECK(isnan(nan_out[0]));
    pool_free(t.pool);
}

struct norm_case {
    struct pool *pool;
    struct layernorm norm;
    double x[ROWS * N], gain[N], bias[N], y[ROWS * N], mean[ROWS], scale[ROWS], weight[ROWS * N];
};

static double norm_value(void *arg)
{
    struct norm_case *t = arg;
    ops_layernorm(t->pool, &t->norm);
    return gradient_dot(t->y, t->weight, ROWS * N);
}

TEST(layernorm_gradient)
{
    struct norm_case t = {.pool = pool_with(1, 0)};
    t.norm = (struct layernorm){.rows = ROWS,
            .n = N,
            .x = t.x,
            .gain = t.gain,
            .bias = t.bias,
            .y = t.y,
            .mean = t.mean,
            .scale = t.scale};
    gradient_draw(t.x, ROWS * N, 5);
    gradient_draw(t.gain, N, 6);
    gradient_draw(t.bias, N, 7);
    gradient_draw(t.weight, ROWS * N, 8);
    double dx[ROWS * N], dgain[N], dbias[N];
    norm_value(&t);
    ops_layernorm_backward(t.pool, &t.norm, t.weight, dx, dgain, dbias);
    gradient_check(norm_value, &t, t.x, dx, ROWS * N, 1);
    gradient_check(norm_value, &t, t.gain, dgain, N, 1);
    gradient_check(norm_value, &t, t.bias, dbias, N, 1);
    pool_free(t.pool);
}

TEST(rmsnorm_gradient)
{
    struct norm_case t = {.pool = pool_with(1, 0)};
    t.norm = (struct layernorm){.rows = ROWS,
            .n = N,
            .rms = true,
            .x = t.x,
            .gain = t.gain,
            .y = t.y,
            .mean = t.mean,
            .scale = t.scale};
    gradient_draw(t.x, ROWS * N, 5);
    gradient_draw(t.gain, N, 6);
    gradient_draw(t.weight, ROWS * N, 8);
    double dx[ROWS * N], dgain[N], square = 0;
    norm_value(&t);
    for (size_t j = 0; j < N; j++)
        square += t.x[j] * t.x[j] / N;
    CHECK_DBL(t.y[3], t.x[3] / sqrt(square + 1e-5) * t.gain[3], 1e-14);
    ops_layernorm_backward(t.pool, &t.norm, t.weight, dx, dgain, NULL);
    gradient_check(norm_value, &t, t.x, dx, ROWS * N, 1);
    gradient_check(norm_value, &t, t.gain, dgain, N, 1);
    pool_free(t.pool);
}

struct loss_case {
    struct pool *pool;
    uint32_t target[ROWS];
    double logits[ROWS * N], label[ROWS], row_loss[ROWS], dlogits[ROWS * N];
};

static double softmax_value(void *arg)
{
    struct loss_case *t = arg;
    return ops_softmax_loss(t->pool, ROWS, N, t->logits, t->target, t->row_loss, t->dlogits);
}

TEST(softmax_loss_gradient)
{
    struct loss_case t = {.pool = pool_with(1, 0), .target = {0, 18, 3, 3, 9, 1, 2}};
    gradient_draw(t.logits, ROWS * N, 9);
    double sum = 0;
    for (size_t j = 0; j < N; j++)
        sum += exp(t.logits[j]);
    softmax_value(&t);
    CHECK_DBL(t.row_loss[0], log(sum) - t.logits[0], 1e-14);
    double claimed[ROWS * N];
    memcpy(claimed, t.dlogits, sizeof claimed);
    gradient_check(softmax_value, &t, t.logits, claimed, ROWS * N, 1);
    pool_free(t.pool);
}

static double bce_value(void *arg)
{
    struct loss_case *t = arg;
    return ops_bce_loss(t->pool, ROWS, t->logits, t->label, t->row_loss, t->dlogits);
}

TEST(bce_loss_gradient)
{
    struct loss_case t = {.pool = pool_with(1, 0), .label = {0, 1, 1, 0, 1, 0, 0}};
    gradient_draw(t.logits, ROWS, 10);
    bce_value(&t);
    CHECK_DBL(t.row_loss[1], -log(1 / (1 + exp(-t.logits[1]))), 1e-14);
    double claimed[ROWS];
    memcpy(claimed, t.dlogits, sizeof claimed);
    gradient_check(bce_value, &t, t.logits, claimed, ROWS, 1);
    t.logits[0] = 800; // far out, where exp() alone would overflow
    t.logits[1] = -800;
    bce_value(&t);
    CHECK_DBL(t.row_loss[0], 800, 1e-9);
    CHECK_DBL(t.row_loss[1], 800, 1e-9);
    pool_free(t.pool);
}

TEST(column_sum_and_add)
{
    struct pool *pool = pool_with(2, 0);
    double x[ROWS * N], y[ROWS * N], sum[N], both[ROWS * N];
    gradient_draw(x, ROWS * N, 11);
    gradient_draw(y, ROWS * N, 12);
    ops_column_sum(pool, ROWS, N, x, sum);
    for (size_t j = 0; j < N; j++) {
        double want = 0;
        for (size_t i = 0; i < ROWS; i++)
            want += x[i * N + j];
        CHECK_DBL(sum[j], want, 1e-15);
    }
    ops_add(pool, ROWS * N, x, y, both);
    for (size_t i = 0; i < ROWS * N; i++)
        CHECK_DBL(both[i], x[i] + y[i], 0);
    pool_free(pool);
}

TEST(optimizers_follow_their_formula)
{
    struct pool *pool = pool_with(1, 0);
    double grad[N], param[N], m[N] = {0}, v[N] = {0}, want[N], start[N];
    gradient_draw(grad, N, 13);
    gradient_draw(start, N, 14);
    memcpy(param, start, sizeof param);
    ops_sgd(pool, N, 0.1, grad, param);
    for (size_t i = 0; i < N; i++)
        CHECK_DBL(param[i], start[i] - 0.1 * grad[i], 1e-15);
    memcpy(param, start, sizeof param);
    memcpy(want, start, sizeof want);
    double wm[N] = {0}, wv[N] = {0};
    for (uint64_t step = 1; step <= 3; step++) {
        ops_adam(pool, N, &(struct adam){0.01, 0.9, 0.99, 1e-8, step}, grad, param, m, v);
        for (size_t i = 0; i < N; i++) {
            wm[i] = 0.9 * wm[i] + 0.1 * grad[i];
            wv[i] = 0.99 * wv[i] + 0.01 * grad[i] * grad[i];
            double mean = wm[i] / (1 - pow(0.9, (double)step));
            double root = sqrt(wv[i] / (1 - pow(0.99, (double)step)));
            want[i] -= 0.01 * mean / (root + 1e-8);
            CHECK_DBL(param[i], want[i], 1e-13);
        }
    }
    pool_free(pool);
}

TEST(adamw_decays_before_adam)
{
    struct pool *pool = pool_with(1, 0);
    double grad[N], start[N], param[N], want[N], m[2][N] = {{0}}, v[2][N] = {{0}};
    gradient_draw(grad, N, 15);
    gradient_draw(start, N, 16);
    memcpy(param, start, sizeof param);
    for (size_t i = 0; i < N; i++)
        want[i] = start[i] * (1 - 0.01 * 0.5);
    ops_adamw(pool, N, &(struct adam){0.01, 0.9, 0.99, 1e-8, 1}, 0.5, grad, param, m[0], v[0]);
    ops_adam(pool, N, &(struct adam){0.01, 0.9, 0.99, 1e-8, 1}, grad, want, m[1], v[1]);
    for (size_t i = 0; i < N; i++) {
        CHECK_DBL(param[i], want[i], 1e-15);
        // no part of the gradient, as it is in Adam with L2
        CHECK(m[0][i] == m[1][i] && v[0][i] == v[1][i]);
    }
    pool_free(pool);
}

// All operations that write in place, on a pool that repeats each item two to three times.
TEST(repeats_change_no_bit)
{
    struct pool *once = pool_with(1, 0), *often = pool_with(2, 2.5);
    enum { COUNT = 5000 };
    double *x[2][4];
    for (int side = 0; side < 2; side++) {
        struct pool *pool = side ? often : once;
        for (int i = 0; i < 4; i++) {
            x[side][i] = malloc(COUNT * sizeof(double));
            gradient_draw(x[side][i], COUNT, 20 + (uint64_t)i);
        }
        for (size_t i = 0; i < COUNT; i++)
            x[side][3][i] = fabs(x[side][3][i]);
        ops_sgd(pool, COUNT, 0.1, x[side][0], x[side][1]);
        ops_adamw(pool, COUNT, &(struct adam){0.01, 0.9, 0.99, 1e-8, 5}, 0.1, x[side][0],
                x[side][1], x[side][2], x[side][3]);
        ops_gelu(pool, COUNT, x[side][1], x[side][0]);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(memcmp(x[0][i], x[1][i], COUNT * sizeof(double)) == 0);
        free(x[0][i]);
        free(x[1][i]);
    }
    pool_free(once);
    pool_free(often);
}
