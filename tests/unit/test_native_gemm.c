// SPDX-License-Identifier: Apache-2.0
// The matrix product as float32 against a plain fp64 loop, in all four orders and at all edges, and
// the exponential against the C library.
#define NATIVE_REAL_BITS 32
#include <stdlib.h>

#include "reference_models/native/ops/ops.h"
#include "reference_models/native/rng.h"
#include "runner.h"

static real *draw(struct rng *rng, size_t count)
{
    real *to = malloc((count + 1) * sizeof *to);
    for (size_t i = 0; i < count; i++)
        to[i] = real_start(rng_signed(rng));
    to[count] = 12345; // a guard: nobody may write here
    return to;
}

// Largest error in units of what fp32 may lose over k terms of size 1.
static double gemm_error(const struct gemm *g)
{
    double worst = 0;
    for (size_t i = 0; i < g->m; i++) {
        for (size_t j = 0; j < g->n; j++) {
            double sum = g->bias ? (double)g->bias[j] : 0;
            for (size_t p = 0; p < g->k; p++) {
                double a = g->transpose_a ? g->a[p * g->m + i] : g->a[i * g->k + p];
                double b = g->transpose_b ? g->b[j * g->k + p] : g->b[p * g->n + j];
                sum += a * b;
            }
            worst = fmax(worst, fabs((double)g->c[i * g->n + j] - sum));
        }
    }
    return worst / (6e-8 * (double)(g->k + 2));
}

static void check_gemm(struct pool *pool, size_t m, size_t n, size_t k, int order, bool with_bias)
{
    struct rng rng = rng_stream(m * 1000 + n, k, (uint64_t)order);
    real *a = draw(&rng, m * k), *b = draw(&rng, k * n), *bias = draw(&rng, n);
    real *c = draw(&rng, m * n), *scratch = draw(&rng, ops_gemm_scratch(k, n));
    struct gemm g = {.m = m,
            .n = n,
            .k = k,
            .transpose_a = order & 1,
            .transpose_b = order & 2,
            .a = a,
            .b = b,
            .bias = with_bias ? bias : NULL,
            .c = c,
            .scratch = scratch};
    ops_gemm(pool, &g);
    CHECK(gemm_error(&g) < 1);
    CHECK(c[m * n] == 12345);
    CHECK(scratch[ops_gemm_scratch(k, n)] == 12345);
    free(a);
    free(b);
    free(bias);
    free(c);
    free(scratch);
}

TEST(product_in_all_orders_and_at_edges)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {6, 16, 4}, {7, 17, 3}, {5, 33, 64}, {13, 1, 29},
            {24, 48, 513}, {12, 16, 512}, {3, 100, 1030}};
    for (size_t threads = 1; threads <= 3; threads++) {
        struct pool *pool;
        CHECK_INT(pool_new(threads, &pool, NULL), 0);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int order = 0; order < 4; order++)
                check_gemm(pool, shapes[s][0], shapes[s][1], shapes[s][2], order, order % 2);
        }
        pool_free(pool);
    }
}

TEST(product_passes_nan)
{
    struct pool *pool;
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    real a[4] = {1, NAN, 0, 1}, b[4] = {1, 2, 3, 4}, c[4], scratch[64];
    ops_gemm(pool,
            &(struct gemm){.m = 2, .n = 2, .k = 2, .a = a, .b = b, .c = c, .scratch = scratch});
    CHECK(isnan(c[0]) && isnan(c[1]));
    CHECK_DBL(c[2], 3, 0);
    CHECK_DBL(c[3], 4, 0);
    pool_free(pool);
}

TEST(exp_float_is_accurate)
{
    double worst = 0;
    for (double x = -86; x < 88; x += 0.00317) {
        double want = exp((double)(real)x);
        worst = fmax(worst, fabs((double)real_exp((real)x) - want) / want);
    }
    CHECK(worst < 1.2e-7);
    CHECK(isnan(real_exp(NAN)));
    CHECK(real_exp(-INFINITY) < 1e-37f);
    CHECK_DBL(real_exp(0), 1, 0);
    CHECK_DBL(real_tanh(40), 1, 0);
    CHECK_DBL(real_tanh(-40), -1, 0);
    CHECK_DBL(real_tanh((real)0.3), tanh(0.3), 1e-7);
    CHECK_DBL(real_sigmoid((real)0.3), 1 / (1 + exp(-0.3)), 1e-7);
}
