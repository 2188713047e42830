// SPDX-License-Identifier: Apache-2.0
// Operations that reduce over the columns of a row: layer norm, RMS norm and the two losses.
// Compiled once per type. An item is a row, except for the gradients of gain and bias, where it is
// a block of columns.
#include "reference_models/native/ops/ops.h"

#include <math.h>

#define NORM_EPSILON ((real)1e-5)
#define NORM_COLUMNS (64 / sizeof(real))

NATIVE_CLONES static void layernorm_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct layernorm *norm = arg;
    size_t n = norm->n;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = norm->x + row * n;
        real *restrict y = norm->y + row * n;
        real sum = 0, square = 0;
        NATIVE_SIMD_SUM(sum)
        for (size_t j = 0; j < n; j++)
            sum += x[j];
        real mean = norm->rms ? 0 : sum / (real)n;
        NATIVE_SIMD_SUM(square)
        for (size_t j = 0; j < n; j++)
            square += (x[j] - mean) * (x[j] - mean);
        real scale = 1 / NATIVE_SQRT(square / (real)n + NORM_EPSILON);
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            y[j] = (x[j] - mean) * scale * norm->gain[j];
        NATIVE_SIMD
        for (size_t j = 0; j < (norm->rms ? 0 : n); j++)
            y[j] += norm->bias[j];
        norm->mean[row] = mean;
        norm->scale[row] = scale;
    }
}

void ops_layernorm(struct pool *pool, const struct layernorm *norm)
{
    struct layernorm copy = *norm;
    pool_for(pool,
            &(struct pool_work){.count = norm->rows,
                    .cost = 14.0 * (double)norm->n,
                    POOL_FN(layernorm_part),
                    .arg = &copy});
}

struct layernorm_gradient {
    struct layernorm norm;
    const real *dy;
    real *dx, *dgain, *dbias;
};

NATIVE_CLONES static void layernorm_dx_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct layernorm_gradient *work = arg;
    const struct layernorm *norm = &work->norm;
    const real *restrict gain = norm->gain;
    size_t n = norm->n;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = norm->x + row * n, *restrict dy = work->dy + row * n;
        real *restrict dx = work->dx + row * n;
        real mean = norm->mean[row], scale = norm->scale[row];
        real sum = 0, dot = 0;
        NATIVE_SIMD_SUM(sum)
        for (size_t j = 0; j < n; j++)
            sum += dy[j] * gain[j];
        NATIVE_SIMD_SUM(dot)
        for (size_t j = 0; j < n; j++)
            dot += dy[j] * gain[j] * (x[j] - mean) * scale;
        sum = norm->rms ? 0 : sum / (real)n;
        dot /= (real)n;
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            dx[j] = scale * (dy[j] * gain[j] - sum - (x[j] - mean) * scale * dot);
    }
}

NATIVE_CLONES static void layernorm_gain_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct layernorm_gradient *work = arg;
    const struct layernorm *norm = &work->norm;
    (void)again;
    for (size_t block = begin; block < end; block++) {
        size_t first = block * NORM_COLUMNS;
        size_t width = norm->n - first < NORM_COLUMNS ? norm->n - first : NORM_COLUMNS;
        real gain[NORM_COLUMNS] = {0}, bias[NORM_COLUMNS] = {0};
        for (size_t row = 0; row < norm->rows; row++) {
            const real *restrict x = norm->x + row * norm->n + first;
            const real *restrict dy = work->dy + row * norm->n + first;
            real mean = norm->mean[row], scale = norm->scale[row];
            NATIVE_SIMD
            for (size_t j = 0; j < width; j++) {
                gain[j] += dy[j] * (x[j] - mean) * scale;
                bias[j] += dy[j];
            }
        }
        memcpy(work->dgain + first, gain, width * sizeof *gain);
        if (!norm->rms)
            memcpy(work->dbias + first, bias, width * sizeof *bias);
    }
}

void ops_layernorm_backward(struct pool *pool, const struct layernorm *norm, const real *dy,
        real *dx, real *dgain, real *dbias)
{
    struct layernorm_gradient work = {
            .norm = *norm, .dy = dy, .dx = dx, .dgain = dgain, .dbias = dbias};
    pool_for(pool,
            &(struct pool_work){.count = norm->rows,
                    .cost = 20.0 * (double)norm->n,
                    POOL_FN(layernorm_dx_part),
                    .arg = &work});
    pool_for(pool,
            &(struct pool_work){.count = (norm->n + NORM_COLUMNS - 1) / NORM_COLUMNS,
                    .cost = 12.0 * (double)(norm->rows * NORM_COLUMNS),
                    POOL_FN(layernorm_gain_part),
                    .arg = &work});
}

struct loss {
    size_t rows, n;
    const real *logits, *label;
    const uint32_t *target;
    real *row_loss, *dlogits;
};

NATIVE_CLONES static void softmax_loss_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct loss *work = arg;
    size_t n = work->n;
    real share = 1 / (real)work->rows;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = work->logits + row * n;
        real *restrict d = work->dlogits + row * n;
        real top = x[0], sum = 0;
        NATIVE_SIMD_MAX(top)
        for (size_t j = 0; j < n; j++)
            top = x[j] > top ? x[j] : top;
        NATIVE_SIMD_SUM(sum)
        for (size_t j = 0; j < n; j++) {
            d[j] = real_exp(x[j] - top);
            sum += d[j];
        }
        uint32_t target = work->target[row];
        work->row_loss[row] = (real)(log((double)sum) + (double)top - (double)x[target]);
        real scale = share / sum;
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            d[j] *= scale;
        d[target] -= share;
    }
}

// The rows are added in order and in fp64, so that the loss does not depend on the threads.
static double loss_mean(const real *row_loss, size_t rows)
{
    double sum = 0;
    for (size_t row = 0; row < rows; row++)
        sum += (double)row_loss[row];
    return sum / (double)rows;
}

double ops_softmax_loss(struct pool *pool, size_t rows, size_t n, const real *logits,
        const uint32_t *target, real *row_loss, real *dlogits)
{
    struct loss work = {.rows = rows,
            .n = n,
            .logits = logits,
            .target = target,
            .row_loss = row_loss,
            .dlogits = dlogits};
    pool_for(pool,
            &(struct pool_work){.count = rows,
                    .cost = 32.0 * (double)n + 200,
                    POOL_FN(softmax_loss_part),
                    .arg = &work});
    return loss_mean(row_loss, rows);
}

static void bce_loss_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct loss *work = arg;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        double x = (double)work->logits[row], y = (double)work->label[row];
        double e = exp(-fabs(x)); // log(1 + e^x) without overflow on either side
        double p = x < 0 ? e / (1 + e) : 1 / (1 + e);
        work->row_loss[row] = (real)((x < 0 ? 0 : x) - x * y + log1p(e));
        work->dlogits[row] = (real)((p - y) / (double)work->rows);
    }
}

double ops_bce_loss(struct pool *pool, size_t rows, const real *logits, const real *label,
        real *row_loss, real *dlogits)
{
    struct loss work = {.rows = rows,
            .logits = logits,
            .label = label,
            .row_loss = row_loss,
            .dlogits = dlogits};
    pool_for(pool,
            &(struct pool_work){.count = rows, .cost = 400, POOL_FN(bce_loss_part), .arg = &work});
    return loss_mean(row_loss, rows);
}
