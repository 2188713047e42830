// SPDX-License-Identifier: Apache-2.0
// HSTU's attention over sequences of different lengths, of which some are empty: the sum as it is
// written down, and all gradients against finite differences, in fp64.
#define NATIVE_REAL_BITS 64
#include <stdlib.h>

#include "reference_models/native/ops/ops.h"
#include "test_native_gradient.h"

enum {
    SEQUENCES = 5,
    HEADS = 2,
    DIM = 4,
    SPAN = 7,
    BIASES = HEADS * (2 * SPAN - 1),
    MOST = 20 * HEADS * DIM
};

// Both empty; keys alone; queries alone; fewer queries than keys; the other way round.
static const uint32_t query_offset[SEQUENCES + 1] = {0, 0, 0, 3, 6, 13},
                                               key_offset[SEQUENCES + 1] = {0, 0, 2, 2, 9, 13};

struct fixture {
    struct pool *pool;
    struct silu_attention attention;
    double q[MOST], k[MOST], v[MOST], bias[BIASES], out[MOST], weights[MOST];
};

static struct fixture *fixture_new(bool causal, bool bias)
{
    struct fixture *f = calloc(1, sizeof *f);
    CHECK_INT(pool_new(1, &f->pool, NULL), 0);
    double *const drawn[] = {f->q, f->k, f->v, f->weights};
    for (size_t i = 0; i < 4; i++)
        gradient_draw(drawn[i], MOST, i + 1);
    gradient_draw(f->bias, BIASES, 9);
    f->attention = (struct silu_attention){.sequences = SEQUENCES,
            .heads = HEADS,
            .dim = DIM,
            .span = SPAN,
            .longest_keys = SPAN,
            .causal = causal,
            .scale = 0.7,
            .weight = 0.3,
            .query_offset = query_offset,
            .key_offset = key_offset,
            .q = f->q,
            .k = f->k,
            .v = f->v,
            .bias = bias ? f->bias : NULL,
            .out = f->out};
    f->attention.scratch = malloc(ops_silu_attention_scratch(&f->attention, true) * sizeof(double));
    return f;
}

static void fixture_free(struct fixture *f)
{
    pool_free(f->pool);
    free(f->attention.scratch);
    free(f);
}

static double written_down(const struct fixture *f, int sequence, int i, int head, int j)
{
    int queries = (int)(query_offset[sequence + 1] - query_offset[sequence]);
    int keys = (int)(key_offset[sequence + 1] - key_offset[sequence]);
    double sum = 0;
    for (int key = 0; key < keys; key++) {
        int distance = (i - queries) - (key - keys);
        const double *q =
                f->q + ((query_offset[sequence] + (uint32_t)i) * HEADS + (uint32_t)head) * DIM;
        size_t at = ((key_offset[sequence] + (uint32_t)key) * HEADS + (uint32_t)head) * DIM;
        if (f->attention.causal && distance < 0)
            continue;
        double s = 0;
        for (int d = 0; d < DIM; d++)
            s += q[d] * f->k[at + (size_t)d];
        s = 0.7 * s +
                (f->attention.bias ? f->bias[head * (2 * SPAN - 1) + SPAN - 1 + distance] : 0);
        sum += 0.3 * s / (1 + exp(-s)) * f->v[at + (size_t)j];
    }
    return sum;
}

TEST(silu_attention_is_the_sum_written_down)
{
    for (int variant = 0; variant < 4; variant++) {
        struct fixture *f = fixture_new(variant & 1, variant & 2);
        memset(f->out, 0xff, sizeof f->out);
        ops_silu_attention(f->pool, &f->attention);
        for (int s = 0; s < SEQUENCES; s++)
            for (int i = 0; i < (int)(query_offset[s + 1] - query_offset[s]); i++)
                for (int head = 0; head < HEADS; head++)
                    for (int j = 0; j < DIM; j++)
                        CHECK_DBL(
                                f->out[((query_offset[s] + (uint32_t)i) * HEADS + (uint32_t)head) *
                                                DIM +
                                        (uint32_t)j],
                                written_down(f, s, i, head, j), 1e-14);
        fixture_free(f);
    }
}

static double silu_scalar(void *arg)
{
    struct fixture *f = arg;
    ops_silu_attention(f->pool, &f->attention);
    return gradient_dot(f->out, f->weights, query_offset[SEQUENCES] * HEADS * DIM);
}

TEST(silu_attention_gradients)
{
    for (int variant = 0; variant < 4; variant++) {
        struct fixture *f = fixture_new(variant & 1, variant & 2);
        static double dq[MOST], dk[MOST], dv[MOST], dbias[BIASES];
        struct silu_attention_gradient gradient = {.dout = f->weights,
                .dq = dq,
                .dk = dk,
                .dv = dv,
                .dbias = variant & 2 ? dbias : NULL};
        ops_silu_attention_backward(f->pool, &f->attention, &gradient);
        size_t queries = query_offset[SEQUENCES] * HEADS * DIM,
               keys = key_offset[SEQUENCES] * HEADS * DIM;
        gradient_check(silu_scalar, f, f->q, dq, queries, 1);
        gradient_check(silu_scalar, f, f->k, dk, keys, 1);
        gradient_check(silu_scalar, f, f->v, dv, keys, 1);
        if (variant & 2)
            gradient_check(silu_scalar, f, f->bias, dbias, BIASES, 1);
        fixture_free(f);
    }
}

TEST(elementwise_gradients)
{
    enum { COUNT = 9 };
    struct pool *pool;
    double x[COUNT], dy[COUNT], y[COUNT], dx[COUNT];
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    gradient_draw(x, COUNT, 3);
    gradient_draw(dy, COUNT, 4);
    ops_silu(pool, COUNT, x, y);
    ops_silu_backward(pool, COUNT, x, dy, dx);
    for (int i = 0; i < COUNT; i++) {
        double up = x[i] + 1e-6, down = x[i] - 1e-6;
        CHECK_DBL(y[i], x[i] / (1 + exp(-x[i])), 1e-15);
        CHECK_DBL(dx[i], dy[i] * (up / (1 + exp(-up)) - down / (1 + exp(-down))) / 2e-6, 1e-9);
    }
    ops_mul(pool, COUNT, x, dy, y);
    for (int i = 0; i < COUNT; i++)
        CHECK_DBL(y[i], x[i] * dy[i], 0);
    pool_free(pool);
}
