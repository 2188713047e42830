// SPDX-License-Identifier: Apache-2.0
// What a convolution is besides its product: the patches that the kernel sees, and the way back of
// their values to the image; and the mean over an image. Compiled once per type.
#include "reference_models/native/ops/ops.h"

struct patches_work {
    struct patches shape;
    const real *from;
    real *to;
};

// Item = a patch.
static void im2col_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct patches_work *work = arg;
    const struct patches *shape = &work->shape;
    size_t channels = shape->channels, kernel = shape->kernel, half = kernel / 2;
    size_t out_height = ops_patches_side(shape->height, shape->stride),
           out_width = ops_patches_side(shape->width, shape->stride);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        const real *image = work->from +
                item / (out_height * out_width) * shape->height * shape->width * channels;
        size_t top = item / out_width % out_height * shape->stride,
               left = item % out_width * shape->stride;
        real *to = work->to + item * kernel * kernel * channels;
        for (size_t tap = 0; tap < kernel * kernel; tap++, to += channels) {
            size_t y = top + tap / kernel, x = left + tap % kernel; // from the edge of the padding
            if (y < half || y - half >= shape->height || x < half || x - half >= shape->width)
                memset(to, 0, channels * sizeof *to);
            else
                memcpy(to, image + ((y - half) * shape->width + x - half) * channels,
                        channels * sizeof *to);
        }
    }
}

// Item = a pixel of the image: what its copies in the patches got, in the order of the kernel.
NATIVE_CLONES static void col2im_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct patches_work *work = arg;
    const struct patches *shape = &work->shape;
    size_t channels = shape->channels, kernel = shape->kernel, half = kernel / 2,
           stride = shape->stride;
    size_t out_height = ops_patches_side(shape->height, stride),
           out_width = ops_patches_side(shape->width, stride);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t first = item / (shape->height * shape->width) * out_height * out_width;
        size_t bottom = item / shape->width % shape->height + half,
               right = item % shape->width + half;
        real *restrict to = work->to + item * channels;
        memset(to, 0, channels * sizeof *to);
        for (size_t tap = 0; tap < kernel * kernel; tap++) {
            size_t ky = tap / kernel, kx = tap % kernel;
            if (bottom < ky || (bottom - ky) % stride || right < kx || (right - kx) % stride)
                continue;
            size_t y = (bottom - ky) / stride, x = (right - kx) / stride;
            if (y >= out_height || x >= out_width)
                continue;
            const real *restrict from =
                    work->from + ((first + y * out_width + x) * kernel * kernel + tap) * channels;
            NATIVE_SIMD
            for (size_t j = 0; j < channels; j++)
                to[j] += from[j];
        }
    }
}

void ops_im2col(struct pool *pool, const struct patches *patches, const real *image, real *patch)
{
    struct patches_work work = {.shape = *patches, .from = image, .to = patch};
    pool_for(pool,
            &(struct pool_work){.count = ops_patches_rows(patches),
                    .cost = (double)(patches->kernel * patches->kernel * (patches->channels + 8)),
                    POOL_FN(im2col_part),
                    .arg = &work});
}

void ops_col2im(struct pool *pool, const struct patches *patches, const real *dpatch, real *dimage)
{
    struct patches_work work = {.shape = *patches, .from = dpatch, .to = dimage};
    pool_for(pool,
            &(struct pool_work){.count = patches->batch * patches->height * patches->width,
                    .cost = (double)(patches->kernel * patches->kernel * (patches->channels + 8)),
                    POOL_FN(col2im_part),
                    .arg = &work});
}

struct mean_pool {
    size_t pixels, n;
    const real *from;
    real *to;
};

// Item = an image; its pixels are added in order.
NATIVE_CLONES static void mean_pool_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct mean_pool *work = arg;
    size_t n = work->n;
    (void)again;
    for (size_t image = begin; image < end; image++) {
        real *restrict y = work->to + image * n;
        memset(y, 0, n * sizeof *y);
        for (size_t pixel = 0; pixel < work->pixels; pixel++) {
            const real *restrict x = work->from + (image * work->pixels + pixel) * n;
            NATIVE_SIMD
            for (size_t j = 0; j < n; j++)
                y[j] += x[j];
        }
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            y[j] /= (real)work->pixels;
    }
}

// Item = a pixel.
NATIVE_CLONES static void mean_pool_backward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct mean_pool *work = arg;
    size_t n = work->n;
    (void)again;
    for (size_t item = begin; item < end; item++) {
        const real *restrict dy = work->from + item / work->pixels * n;
        real *restrict dx = work->to + item * n;
        NATIVE_SIMD
        for (size_t j = 0; j < n; j++)
            dx[j] = dy[j] / (real)work->pixels;
    }
}

void ops_mean_pool(
        struct pool *pool, size_t images, size_t pixels, size_t n, const real *x, real *y)
{
    struct mean_pool work = {.pixels = pixels, .n = n, .from = x, .to = y};
    pool_for(pool,
            &(struct pool_work){.count = images,
                    .cost = 4.0 * (double)(pixels * n),
                    POOL_FN(mean_pool_part),
                    .arg = &work});
}

void ops_mean_pool_backward(
        struct pool *pool, size_t images, size_t pixels, size_t n, const real *dy, real *dx)
{
    struct mean_pool work = {.pixels = pixels, .n = n, .from = dy, .to = dx};
    pool_for(pool,
            &(struct pool_work){.count = images * pixels,
                    .cost = 4.0 * (double)n,
                    POOL_FN(mean_pool_backward_part),
                    .arg = &work});
}
