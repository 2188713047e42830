// SPDX-License-Identifier: Apache-2.0
// The operations of the residual network, in fp64: patches, batch norm, the mean over an image and
// SGD with momentum. Forward against plain code, backward against finite differences, repeats and
// threads without any effect on a bit.
#define NATIVE_REAL_BITS 64
#include <stdlib.h>

#include "reference_models/native/ops/ops.h"
#include "test_native_gradient.h"

// Enough rows for several blocks of batch norm's sums, the last of which is not full.
enum {
    BATCH = 2,
    HEIGHT = 5,
    WIDTH = 4,
    CHANNELS = 3,
    OUT = 2,
    IMAGE = BATCH * HEIGHT * WIDTH * CHANNELS,
    ROWS = 150,
    N = 5,
    PATCH_MAX = IMAGE * 9
};

static struct pool *pool_with(size_t threads, double extra)
{
    struct pool *pool = NULL;
    CHECK_INT(pool_new(threads, &pool, NULL), 0);
    pool_set_extra(pool, extra);
    return pool;
}

static struct patches patches_of(size_t kernel, size_t stride)
{
    return (struct patches){.batch = BATCH,
            .height = HEIGHT,
            .width = WIDTH,
            .channels = CHANNELS,
            .kernel = kernel,
            .stride = stride};
}

// One value of a convolution, by its definition. weight[kernel][kernel][CHANNELS][OUT]
static double convolved(const struct patches *shape, const double *image, const double *weight,
        size_t b, size_t row, size_t column, size_t out)
{
    double sum = 0;
    for (size_t ky = 0; ky < shape->kernel; ky++)
        for (size_t kx = 0; kx < shape->kernel; kx++)
            for (size_t c = 0; c < CHANNELS; c++) {
                long y = (long)(row * shape->stride + ky) - (long)(shape->kernel / 2);
                long x = (long)(column * shape->stride + kx) - (long)(shape->kernel / 2);
                if (y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH)
                    sum += image[((b * HEIGHT + (size_t)y) * WIDTH + (size_t)x) * CHANNELS + c] *
                            weight[((ky * shape->kernel + kx) * CHANNELS + c) * OUT + out];
            }
    return sum;
}

TEST(patches_and_product_are_a_convolution)
{
    struct pool *pool = pool_with(2, 0);
    static double image[IMAGE], weight[9 * CHANNELS * OUT], patch[PATCH_MAX],
            got[BATCH * HEIGHT * WIDTH * OUT], scratch[9 * CHANNELS * 8];
    gradient_draw(image, IMAGE, 1);
    gradient_draw(weight, sizeof weight / sizeof *weight, 2);
    for (size_t kernel = 1; kernel <= 3; kernel += 2)
        for (size_t stride = 1; stride <= 4; stride++) {
            struct patches shape = patches_of(kernel, stride);
            size_t height = ops_patches_side(HEIGHT, stride),
                   width = ops_patches_side(WIDTH, stride), k = kernel * kernel * CHANNELS;
            CHECK_INT(height, (HEIGHT + 2 * (kernel / 2) - kernel) / stride + 1);
            CHECK_INT(ops_patches_rows(&shape), BATCH * height * width);
            CHECK(ops_gemm_scratch(k, OUT) <= sizeof scratch / sizeof *scratch);
            ops_im2col(pool, &shape, image, patch);
            ops_gemm(pool,
                    &(struct gemm){.m = BATCH * height * width,
                            .n = OUT,
                            .k = k,
                            .a = patch,
                            .b = weight,
                            .c = got,
                            .scratch = scratch});
            for (size_t b = 0; b < BATCH; b++)
                for (size_t y = 0; y < height; y++)
                    for (size_t x = 0; x < width; x++)
                        for (size_t out = 0; out < OUT; out++)
                            CHECK_DBL(got[((b * height + y) * width + x) * OUT + out],
                                    convolved(&shape, image, weight, b, y, x, out), 1e-14);
        }
    pool_free(pool);
}

struct patch_case {
    struct pool *pool;
    struct patches shape;
    double image[IMAGE], patch[PATCH_MAX], weight[PATCH_MAX], dimage[IMAGE];
    size_t count;
};

static double patch_value(void *arg)
{
    struct patch_case *t = arg;
    ops_im2col(t->pool, &t->shape, t->image, t->patch);
    return gradient_dot(t->patch, t->weight, t->count);
}

TEST(patches_gradient)
{
    static struct patch_case t;
    t.pool = pool_with(1, 0);
    gradient_draw(t.image, IMAGE, 3);
    gradient_draw(t.weight, PATCH_MAX, 4);
    for (size_t kernel = 1; kernel <= 3; kernel += 2)
        for (size_t stride = 1; stride <= 2; stride++) {
            t.shape = patches_of(kernel, stride);
            t.count = ops_patches_rows(&t.shape) * kernel * kernel * CHANNELS;
            ops_col2im(t.pool, &t.shape, t.weight, t.dimage);
            gradient_check(patch_value, &t, t.image, t.dimage, IMAGE, 1);
        }
    pool_free(t.pool);
}

struct norm_case {
    struct pool *pool;
    struct batchnorm norm;
    double x[ROWS * N], gain[N], bias[N], y[ROWS * N], mean[N], scale[N], running[2 * N],
            scratch[ROWS * N], weight[ROWS * N];
};

static double norm_value(void *arg)
{
    struct norm_case *t = arg;
    ops_batchnorm(t->pool, &t->norm);
    return gradient_dot(t->y, t->weight, ROWS * N);
}

static void norm_case_init(struct norm_case *t)
{
    t->pool = pool_with(1, 0);
    gradient_draw(t->x, ROWS * N, 5);
    gradient_draw(t->gain, N, 6);
    gradient_draw(t->bias, N, 7);
    gradient_draw(t->weight, ROWS * N, 8);
    CHECK(ops_batchnorm_scratch(ROWS, N) <= sizeof t->scratch / sizeof *t->scratch);
    t->norm = (struct batchnorm){.rows = ROWS,
            .n = N,
            .x = t->x,
            .gain = t->gain,
            .bias = t->bias,
            .y = t->y,
            .mean = t->mean,
            .scale = t->scale,
            .running = t->running,
            .scratch = t->scratch};
}

TEST(batchnorm_and_its_running_statistics)
{
    static struct norm_case t;
    norm_case_init(&t);
    for (size_t i = 0; i < ROWS * N; i++)
        t.x[i] += 100; // a variance from sums of squares would be off
    ops_batchnorm(t.pool, &t.norm);
    double mean[N] = {0}, square[N] = {0};
    for (size_t i = 0; i < ROWS * N; i++)
        mean[i % N] += t.x[i] / ROWS;
    for (size_t i = 0; i < ROWS * N; i++)
        square[i % N] += (t.x[i] - mean[i % N]) * (t.x[i] - mean[i % N]);
    for (size_t j = 0; j < N; j++) {
        CHECK_DBL(t.mean[j], mean[j], 1e-12);
        CHECK_DBL(t.scale[j], 1 / sqrt(square[j] / ROWS + 1e-5), 1e-12);
        CHECK_DBL(t.running[j], mean[j], 1e-12);
        // PyTorch's, over one row less
        CHECK_DBL(t.running[N + j], 1 / sqrt(square[j] / (ROWS - 1) + 1e-5), 1e-12);
    }
    for (size_t i = 0; i < ROWS * N; i++)
        CHECK_DBL(t.y[i],
                (t.x[i] - mean[i % N]) / sqrt(square[i % N] / ROWS + 1e-5) * t.gain[i % N] +
                        t.bias[i % N],
                1e-11);
    t.norm.mean = t.running;
    t.norm.scale = t.running + N;
    t.norm.rows = 2; // two rows alone, as inference has them: nothing of the rest, and nothing left
                     // behind
    ops_batchnorm_apply(t.pool, &t.norm);
    for (size_t i = 0; i < 2 * N; i++)
        CHECK_DBL(t.y[i],
                (t.x[i] - mean[i % N]) / sqrt(square[i % N] / (ROWS - 1) + 1e-5) * t.gain[i % N] +
                        t.bias[i % N],
                1e-11);
    CHECK_DBL(t.running[0], mean[0], 1e-12);
    pool_free(t.pool);
}

TEST(batchnorm_gradient)
{
    static struct norm_case t;
    static double dx[ROWS * N], dgain[N], dbias[N];
    norm_case_init(&t);
    norm_value(&t);
    ops_batchnorm_backward(t.pool, &t.norm, t.weight, dx, dgain, dbias);
    gradient_check(norm_value, &t, t.x, dx, ROWS * N, 7);
    gradient_check(norm_value, &t, t.gain, dgain, N, 1);
    gradient_check(norm_value, &t, t.bias, dbias, N, 1);
    pool_free(t.pool);
}

TEST(mean_over_an_image)
{
    enum { IMAGES = 3, PIXELS = 7 };
    struct pool *pool = pool_with(2, 0);
    double x[IMAGES * PIXELS * N], y[IMAGES * N], dx[IMAGES * PIXELS * N];
    gradient_draw(x, IMAGES * PIXELS * N, 9);
    ops_mean_pool(pool, IMAGES, PIXELS, N, x, y);
    ops_mean_pool_backward(pool, IMAGES, PIXELS, N, y, dx);
    for (size_t image = 0; image < IMAGES; image++)
        for (size_t j = 0; j < N; j++) {
            double want = 0;
            for (size_t pixel = 0; pixel < PIXELS; pixel++)
                want += x[(image * PIXELS + pixel) * N + j] / PIXELS;
            CHECK_DBL(y[image * N + j], want, 1e-15);
            for (size_t pixel = 0; pixel < PIXELS; pixel++)
                CHECK_DBL(dx[(image * PIXELS + pixel) * N + j], y[image * N + j] / PIXELS, 1e-16);
        }
    pool_free(pool);
}

TEST(momentum_follows_its_formula)
{
    struct pool *pool = pool_with(1, 0);
    double grad[N], param[N], velocity[N] = {0}, want[N], went[N] = {0};
    gradient_draw(param, N, 10);
    memcpy(want, param, sizeof want);
    for (uint64_t step = 0; step < 3; step++) {
        gradient_draw(grad, N, 11 + step);
        ops_sgd_momentum(pool, N, 0.1, 0.9, grad, param, velocity);
        for (size_t i = 0; i < N; i++) {
            // PyTorch's first is the gradient itself
            went[i] = step ? 0.9 * went[i] + grad[i] : grad[i];
            want[i] -= 0.1 * went[i];
            CHECK_DBL(param[i], want[i], 1e-15);
        }
    }
    pool_free(pool);
}

struct everything {
    double image[IMAGE], patch[PATCH_MAX], dimage[IMAGE], y[ROWS * N], dx[ROWS * N], dgain[N],
            dbias[N], pooled[N], param[5000], velocity[5000];
};

static void compute_everything(struct pool *pool, struct everything *all)
{
    static struct norm_case t;
    static double grad[5000];
    struct patches shape = patches_of(3, 2);
    memset(all, 0, sizeof *all);
    gradient_draw(all->image, IMAGE, 20);
    gradient_draw(grad, 5000, 21);
    gradient_draw(all->param, 5000, 22);
    gradient_draw(all->velocity, 5000, 23);
    norm_case_init(&t);
    ops_im2col(pool, &shape, all->image, all->patch);
    ops_col2im(pool, &shape, all->patch, all->dimage);
    ops_batchnorm(pool, &t.norm);
    ops_batchnorm_backward(pool, &t.norm, t.weight, all->dx, all->dgain, all->dbias);
    memcpy(all->y, t.y, sizeof all->y);
    ops_mean_pool(pool, 1, ROWS, N, all->y, all->pooled);
    ops_sgd_momentum(pool, 5000, 0.1, 0.9, grad, all->param, all->velocity);
    pool_free(t.pool);
}

TEST(repeats_and_threads_change_no_bit)
{
    static struct everything once, often;
    struct pool *one = pool_with(1, 0), *three = pool_with(3, 2.5);
    compute_everything(one, &once);
    compute_everything(three, &often);
    CHECK(memcmp(&once, &often, sizeof once) == 0);
    CHECK(once.pooled[0] != 0 && once.dimage[0] != 0);
    pool_free(one);
    pool_free(three);
}
