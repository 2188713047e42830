// SPDX-License-Identifier: Apache-2.0
// Batch norm: each column of x[rows][n] by its mean and variance over the rows. Compiled once per
// type. Sums over rows are taken in fp64 for both types, as PyTorch takes them: in blocks of a
// fixed number of rows, whose sums are put together in order, so that the result does not depend on
// the threads.
#include "reference_models/native/ops/ops.h"

#include <math.h>

#define BATCHNORM_EPSILON 1e-5
#define BATCHNORM_ROWS ((size_t)64)

struct batchnorm_work {
    struct batchnorm norm;
    const real *dy;
    real *dx, *dgain, *dbias;
};

static size_t batchnorm_blocks(size_t rows)
{
    return (rows + BATCHNORM_ROWS - 1) / BATCHNORM_ROWS;
}

static size_t batchnorm_block_rows(const struct batchnorm *norm, size_t block)
{
    size_t left = norm->rows - block * BATCHNORM_ROWS;
    return left < BATCHNORM_ROWS ? left : BATCHNORM_ROWS;
}

size_t ops_batchnorm_scratch(size_t rows, size_t n)
{
    return batchnorm_blocks(rows) * 2 * n;
}

// Item = a block of rows: its means, and its squares around them.
NATIVE_CLONES static void batchnorm_block_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm *norm = &((const struct batchnorm_work *)arg)->norm;
    size_t n = norm->n;
    (void)again;
    for (size_t block = begin; block < end; block++) {
        size_t rows = batchnorm_block_rows(norm, block);
        const real *first = norm->x + block * BATCHNORM_ROWS * n;
        double *restrict mean = norm->scratch + block * 2 * n, *restrict square = mean + n;
        memset(mean, 0, 2 * n * sizeof *mean);
        for (size_t row = 0; row < rows; row++) {
            const real *restrict x = first + row * n;
            NATIVE_SIMD
            for (size_t j = 0; j < n; j++)
                mean[j] += (double)x[j];
        }
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            mean[j] /= (double)rows;
        for (size_t row = 0; row < rows; row++) {
            const real *restrict x = first + row * n;
            NATIVE_SIMD
            for (size_t j = 0; j < n; j++)
                square[j] += ((double)x[j] - mean[j]) * ((double)x[j] - mean[j]);
        }
    }
}

// Item = a column.
static void batchnorm_column_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm *norm = &((const struct batchnorm_work *)arg)->norm;
    size_t n = norm->n, blocks = batchnorm_blocks(norm->rows);
    double rows = (double)norm->rows;
    (void)again;
    for (size_t j = begin; j < end; j++) {
        double mean = 0, square = 0;
        for (size_t block = 0; block < blocks; block++)
            mean += norm->scratch[block * 2 * n + j] * (double)batchnorm_block_rows(norm, block);
        mean /= rows;
        for (size_t block = 0; block < blocks; block++) {
            double off = norm->scratch[block * 2 * n + j] - mean;
            square += norm->scratch[(block * 2 + 1) * n + j] +
                    off * off * (double)batchnorm_block_rows(norm, block);
        }
        norm->mean[j] = (real)mean;
        norm->scale[j] = (real)(1 / sqrt(square / rows + BATCHNORM_EPSILON));
        if (norm->running) {
            norm->running[j] = (real)mean;
            norm->running[n + j] = (real)(1 / sqrt(square / (rows - 1) + BATCHNORM_EPSILON));
        }
    }
}

// Item = a row.
NATIVE_CLONES static void batchnorm_apply_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm *norm = &((const struct batchnorm_work *)arg)->norm;
    const real *restrict mean = norm->mean, *restrict scale = norm->scale,
                         *restrict gain = norm->gain, *restrict bias = norm->bias;
    size_t n = norm->n;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = norm->x + row * n;
        real *restrict y = norm->y + row * n;
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            y[j] = (x[j] - mean[j]) * scale[j] * gain[j] + bias[j];
    }
}

static void batchnorm_for(struct pool *pool, struct batchnorm_work *work, size_t count, double cost,
        pool_fn fn, const char *name)
{
    pool_for(pool,
            &(struct pool_work){.count = count, .cost = cost, .fn = fn, .name = name, .arg = work});
}

void ops_batchnorm_apply(struct pool *pool, const struct batchnorm *norm)
{
    struct batchnorm_work work = {.norm = *norm};
    batchnorm_for(pool, &work, norm->rows, 6.0 * (double)norm->n, POOL_NAMED(batchnorm_apply_part));
}

void ops_batchnorm(struct pool *pool, const struct batchnorm *norm)
{
    struct batchnorm_work work = {.norm = *norm};
    size_t blocks = batchnorm_blocks(norm->rows);
    batchnorm_for(pool, &work, blocks, 10.0 * (double)(BATCHNORM_ROWS * norm->n),
            POOL_NAMED(batchnorm_block_part));
    batchnorm_for(
            pool, &work, norm->n, 10.0 * (double)blocks + 40, POOL_NAMED(batchnorm_column_part));
    ops_batchnorm_apply(pool, norm);
}

// Item = a block of rows: its share of the gradients of bias and gain.
NATIVE_CLONES static void batchnorm_gain_block_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm_work *work = arg;
    const struct batchnorm *norm = &work->norm;
    const real *restrict mean = norm->mean, *restrict scale = norm->scale;
    size_t n = norm->n;
    (void)again;
    for (size_t block = begin; block < end; block++) {
        double *restrict bias = norm->scratch + block * 2 * n, *restrict gain = bias + n;
        memset(bias, 0, 2 * n * sizeof *bias);
        for (size_t row = 0; row < batchnorm_block_rows(norm, block); row++) {
            const real *restrict x = norm->x + (block * BATCHNORM_ROWS + row) * n;
            const real *restrict dy = work->dy + (block * BATCHNORM_ROWS + row) * n;
            NATIVE_SIMD
            for (size_t j = 0; j < n; j++) {
                bias[j] += (double)dy[j];
                gain[j] += (double)(dy[j] * ((x[j] - mean[j]) * scale[j]));
            }
        }
    }
}

// Item = a column.
static void batchnorm_gain_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm_work *work = arg;
    const struct batchnorm *norm = &work->norm;
    size_t n = norm->n;
    (void)again;
    for (size_t j = begin; j < end; j++) {
        double bias = 0, gain = 0;
        for (size_t block = 0; block < batchnorm_blocks(norm->rows); block++) {
            bias += norm->scratch[block * 2 * n + j];
            gain += norm->scratch[(block * 2 + 1) * n + j];
        }
        work->dbias[j] = (real)bias;
        work->dgain[j] = (real)gain;
    }
}

// Item = a row. Mean and variance depend on every row: what they pass on is the mean of dy and of
// dy times the normed value.
NATIVE_CLONES static void batchnorm_dx_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct batchnorm_work *work = arg;
    const struct batchnorm *norm = &work->norm;
    const real *restrict mean = norm->mean, *restrict scale = norm->scale,
                         *restrict gain = norm->gain;
    const real *restrict dgain = work->dgain, *restrict dbias = work->dbias;
    real share = 1 / (real)norm->rows;
    size_t n = norm->n;
    (void)again;
    for (size_t row = begin; row < end; row++) {
        const real *restrict x = norm->x + row * n, *restrict dy = work->dy + row * n;
        real *restrict dx = work->dx + row * n;
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            dx[j] = gain[j] * scale[j] *
                    (dy[j] - share * (dbias[j] + (x[j] - mean[j]) * scale[j] * dgain[j]));
    }
}

void ops_batchnorm_backward(struct pool *pool, const struct batchnorm *norm, const real *dy,
        real *dx, real *dgain, real *dbias)
{
    struct batchnorm_work work = {
            .norm = *norm, .dy = dy, .dx = dx, .dgain = dgain, .dbias = dbias};
    size_t blocks = batchnorm_blocks(norm->rows);
    batchnorm_for(pool, &work, blocks, 8.0 * (double)(BATCHNORM_ROWS * norm->n),
            POOL_NAMED(batchnorm_gain_block_part));
    batchnorm_for(pool, &work, norm->n, 4.0 * (double)blocks + 10, POOL_NAMED(batchnorm_gain_part));
    batchnorm_for(pool, &work, norm->rows, 12.0 * (double)norm->n, POOL_NAMED(batchnorm_dx_part));
}
