// SPDX-License-Identifier: Apache-2.0
// As much of cuDNN as reference_models/cuda calls, on the host, as a library that is opened by
// UPGATE_CUDNN: plain loops in double, images [n][h][w][c]. Other layouts, factors and algorithms
// than the model's, or a workspace that is too small, are refused with status 2000.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BAD 2000
#define ALGORITHM 1 // the only one that works
#define WORKSPACE ((size_t)64)

struct fake_shape { // of an array; of weights: n is how many there are
    int format, n, c, h, w;
};

struct fake_conv {
    int pad, stride, math;
};

struct fake_pool {
    int side;
};

struct fake_perf {
    int algorithm, status;
    float ms;
    size_t memory;
    int determinism, math, reserved[3];
};

static int fake_new(void **ret, size_t bytes)
{
    *ret = calloc(1, bytes);
    return *ret ? 0 : BAD;
}

static int fake_free(void *at)
{
    free(at);
    return 0;
}

static int fake_factors(const void *alpha, float beta_wanted, const void *beta)
{
    return *(const float *)alpha == 1 && *(const float *)beta == beta_wanted;
}

static size_t fake_count(const struct fake_shape *s)
{
    return (size_t)s->n * (size_t)s->c * (size_t)s->h * (size_t)s->w;
}

size_t cudnnGetVersion(void)
{
    return 90100;
}
const char *cudnnGetErrorString(int status)
{
    return status ? "what the fake does not allow" : "none";
}
int cudnnCreate(void **handle)
{
    return fake_new(handle, 1);
}
int cudnnDestroy(void *handle)
{
    return fake_free(handle);
}
int cudnnSetStream(void *handle, void *stream)
{
    return handle && stream ? 0 : BAD;
}
int cudnnCreateTensorDescriptor(void **ret)
{
    return fake_new(ret, sizeof(struct fake_shape));
}
int cudnnDestroyTensorDescriptor(void *at)
{
    return fake_free(at);
}
int cudnnCreateFilterDescriptor(void **ret)
{
    return fake_new(ret, sizeof(struct fake_shape));
}
int cudnnDestroyFilterDescriptor(void *at)
{
    return fake_free(at);
}
int cudnnCreateConvolutionDescriptor(void **ret)
{
    return fake_new(ret, sizeof(struct fake_conv));
}
int cudnnDestroyConvolutionDescriptor(void *at)
{
    return fake_free(at);
}
int cudnnCreatePoolingDescriptor(void **ret)
{
    return fake_new(ret, sizeof(struct fake_pool));
}
int cudnnDestroyPoolingDescriptor(void *at)
{
    return fake_free(at);
}

int cudnnSetTensor4dDescriptor(void *tensor, int format, int type, int n, int c, int h, int w)
{
    *(struct fake_shape *)tensor = (struct fake_shape){format, n, c, h, w};
    return type == 0 && (format == 1 || (n == 1 && h == 1 && w == 1)) ? 0 : BAD;
}

int cudnnSetFilter4dDescriptor(void *filter, int type, int format, int k, int c, int h, int w)
{
    *(struct fake_shape *)filter = (struct fake_shape){format, k, c, h, w};
    return type == 0 && format == 1 && h == w ? 0 : BAD;
}

int cudnnSetConvolution2dDescriptor(void *conv, int pad_h, int pad_w, int u, int v, int dilation_h,
        int dilation_w, int mode, int type)
{
    *(struct fake_conv *)conv = (struct fake_conv){.pad = pad_h, .stride = u, .math = -1};
    return pad_h == pad_w && u == v && dilation_h == 1 && dilation_w == 1 && mode == 1 && type == 0
            ? 0
            : BAD;
}

int cudnnSetConvolutionMathType(void *conv, int math)
{
    ((struct fake_conv *)conv)->math = math;
    return 0;
}

// --- convolution ---------------------------------------------------------------------------------

static int fake_fits(const struct fake_shape *x, const struct fake_shape *w,
        const struct fake_conv *conv, const struct fake_shape *y)
{
    int side = (x->h + 2 * conv->pad - w->h) / conv->stride + 1;
    return x->n == y->n && x->c == w->c && w->n == y->c && y->h == side && y->w == side &&
            x->h == x->w && conv->math >= 0;
}

enum fake_pass { FAKE_FORWARD, FAKE_INPUT, FAKE_WEIGHT };

// Each product of a value of x, one of w and one of y, in the direction of the pass.
static int fake_convolve(enum fake_pass pass, const struct fake_shape *sx, float *x,
        const struct fake_shape *sw, float *w, const struct fake_conv *conv,
        const struct fake_shape *sy, float *y)
{
    const struct fake_shape *made = pass == FAKE_FORWARD ? sy : pass == FAKE_INPUT ? sx : sw;
    double *sum = calloc(fake_count(made), sizeof *sum);
    if (!sum || !fake_fits(sx, sw, conv, sy)) {
        free(sum);
        return BAD;
    }
    for (int n = 0; n < sy->n; n++)
        for (int row = 0; row < sy->h; row++)
            for (int column = 0; column < sy->w; column++)
                for (int tap = 0; tap < sw->h * sw->w; tap++) {
                    int from_row = row * conv->stride - conv->pad + tap / sw->w,
                        from_column = column * conv->stride - conv->pad + tap % sw->w;
                    if (from_row < 0 || from_row >= sx->h || from_column < 0 ||
                            from_column >= sx->w)
                        continue;
                    for (int k = 0; k < sw->n; k++)
                        for (int c = 0; c < sw->c; c++) {
                            int at_x = ((n * sx->h + from_row) * sx->w + from_column) * sx->c + c;
                            int at_w = (k * sw->h * sw->w + tap) * sw->c + c,
                                at_y = ((n * sy->h + row) * sy->w + column) * sy->c + k;
                            if (pass == FAKE_FORWARD)
                                sum[at_y] += (double)x[at_x] * (double)w[at_w];
                            else if (pass == FAKE_INPUT)
                                sum[at_x] += (double)y[at_y] * (double)w[at_w];
                            else
                                sum[at_w] += (double)y[at_y] * (double)x[at_x];
                        }
                }
    float *to = pass == FAKE_FORWARD ? y : pass == FAKE_INPUT ? x : w;
    for (size_t i = 0; i < fake_count(made); i++)
        to[i] = (float)sum[i];
    free(sum);
    return 0;
}

// The first does not work, the second does; the result is overwritten.
static int fake_find(const struct fake_shape *made, void *result, int asked, int *ret_count,
        struct fake_perf *ret, void *workspace, size_t bytes)
{
    if (asked < 2 || !result || !workspace || bytes < WORKSPACE)
        return BAD;
    memset(result, 0xff, fake_count(made) * sizeof(float));
    ret[0] = (struct fake_perf){.algorithm = 6, .status = 3000, .ms = -1};
    ret[1] = (struct fake_perf){.algorithm = ALGORITHM, .ms = 1, .memory = WORKSPACE};
    *ret_count = 2;
    return 0;
}

static int fake_ready(
        const void *alpha, const void *beta, int algorithm, const void *workspace, size_t bytes)
{
    return fake_factors(alpha, 0, beta) && algorithm == ALGORITHM && workspace &&
            bytes == WORKSPACE;
}

int cudnnFindConvolutionForwardAlgorithmEx(void *handle, void *sx, const void *x, void *sw,
        const void *w, void *conv, void *sy, void *y, int asked, int *ret_count,
        struct fake_perf *ret, void *workspace, size_t bytes)
{
    return handle && x && w && fake_fits(sx, sw, conv, sy)
            ? fake_find(sy, y, asked, ret_count, ret, workspace, bytes)
            : BAD;
}

int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, void *sw, const void *w, void *sy,
        const void *dy, void *conv, void *sx, void *dx, int asked, int *ret_count,
        struct fake_perf *ret, void *workspace, size_t bytes)
{
    return handle && dy && w && fake_fits(sx, sw, conv, sy)
            ? fake_find(sx, dx, asked, ret_count, ret, workspace, bytes)
            : BAD;
}

int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, void *sx, const void *x, void *sy,
        const void *dy, void *conv, void *sw, void *dw, int asked, int *ret_count,
        struct fake_perf *ret, void *workspace, size_t bytes)
{
    return handle && dy && x && fake_fits(sx, sw, conv, sy)
            ? fake_find(sw, dw, asked, ret_count, ret, workspace, bytes)
            : BAD;
}

int cudnnConvolutionForward(void *handle, const void *alpha, void *sx, void *x, void *sw, void *w,
        void *conv, int algorithm, void *workspace, size_t bytes, const void *beta, void *sy,
        void *y)
{
    return handle && fake_ready(alpha, beta, algorithm, workspace, bytes)
            ? fake_convolve(FAKE_FORWARD, sx, x, sw, w, conv, sy, y)
            : BAD;
}

int cudnnConvolutionBackwardData(void *handle, const void *alpha, void *sw, void *w, void *sy,
        void *dy, void *conv, int algorithm, void *workspace, size_t bytes, const void *beta,
        void *sx, void *dx)
{
    return handle && fake_ready(alpha, beta, algorithm, workspace, bytes)
            ? fake_convolve(FAKE_INPUT, sx, dx, sw, w, conv, sy, dy)
            : BAD;
}

int cudnnConvolutionBackwardFilter(void *handle, const void *alpha, void *sx, void *x, void *sy,
        void *dy, void *conv, int algorithm, void *workspace, size_t bytes, const void *beta,
        void *sw, void *dw)
{
    return handle && fake_ready(alpha, beta, algorithm, workspace, bytes)
            ? fake_convolve(FAKE_WEIGHT, sx, x, sw, dw, conv, sy, dy)
            : BAD;
}

int cudnnConvolutionBackwardBias(void *handle, const void *alpha, const struct fake_shape *sy,
        const float *dy, const void *beta, const struct fake_shape *column, float *db)
{
    if (!handle || !fake_factors(alpha, 0, beta) || column->c != sy->c)
        return BAD;
    memset(db, 0, (size_t)sy->c * sizeof *db);
    for (size_t i = 0; i < fake_count(sy); i++)
        db[i % (size_t)sy->c] += dy[i];
    return 0;
}

int cudnnAddTensor(void *handle, const void *alpha, const struct fake_shape *column, const float *a,
        const void *beta, const struct fake_shape *s, float *c)
{
    if (!handle || !fake_factors(alpha, 1, beta) || column->c != s->c)
        return BAD;
    for (size_t i = 0; i < fake_count(s); i++)
        c[i] += a[i % (size_t)s->c];
    return 0;
}

// --- batch norm ----------------------------------------------------------------------------------

// Sums over the rows, of a, or of the products of a and (b - mean) * scale where there is a mean.
static double fake_sum(const struct fake_shape *s, size_t c, const float *a, const float *b,
        double mean, double scale)
{
    double sum = 0;
    for (size_t i = c; i < fake_count(s); i += (size_t)s->c)
        sum += (double)a[i] * (b ? ((double)b[i] - mean) * scale : 1);
    return sum;
}

static int fake_normable(int mode, const struct fake_shape *x, const struct fake_shape *y,
        const struct fake_shape *column, double epsilon)
{
    return mode == 1 && fake_count(x) == fake_count(y) && x->c == y->c && column->c == x->c &&
            epsilon == 1e-5;
}

int cudnnBatchNormalizationForwardTraining(void *handle, int mode, const void *alpha,
        const void *beta, const struct fake_shape *sx, const float *x, const struct fake_shape *sy,
        float *y, const struct fake_shape *column, const float *gain, const float *bias,
        double factor, float *running_mean, float *running_variance, double epsilon,
        float *ret_mean, float *ret_scale)
{
    double rows = (double)fake_count(sx) / sx->c;
    if (!handle || !fake_factors(alpha, 0, beta) || !fake_normable(mode, sx, sy, column, epsilon) ||
            factor != 1 || !running_mean != !running_variance)
        return BAD;
    for (size_t c = 0; c < (size_t)sx->c; c++) {
        double mean = fake_sum(sx, c, x, NULL, 0, 1) / rows, square = 0;
        for (size_t i = c; i < fake_count(sx); i += (size_t)sx->c)
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
        double scale = 1 / sqrt(square / rows + epsilon);
        for (size_t i = c; i < fake_count(sx); i += (size_t)sx->c)
            y[i] = (float)(((double)x[i] - mean) * scale * (double)gain[c] + (double)bias[c]);
        ret_mean[c] = (float)mean;
        ret_scale[c] = (float)scale;
        if (running_mean) {
            running_mean[c] = (float)mean;
            running_variance[c] = (float)(square / (rows - 1));
        }
    }
    return 0;
}

int cudnnBatchNormalizationForwardInference(void *handle, int mode, const void *alpha,
        const void *beta, const struct fake_shape *sx, const float *x, const struct fake_shape *sy,
        float *y, const struct fake_shape *column, const float *gain, const float *bias,
        const float *mean, const float *variance, double epsilon)
{
    if (!handle || !fake_factors(alpha, 0, beta) || !fake_normable(mode, sx, sy, column, epsilon))
        return BAD;
    for (size_t i = 0; i < fake_count(sx); i++) {
        size_t c = i % (size_t)sx->c;
        y[i] = (float)(((double)x[i] - (double)mean[c]) / sqrt((double)variance[c] + epsilon) *
                        (double)gain[c] +
                (double)bias[c]);
    }
    return 0;
}

int cudnnBatchNormalizationBackward(void *handle, int mode, const void *alpha, const void *beta,
        const void *alpha_params, const void *beta_params, const struct fake_shape *sx,
        const float *x, const struct fake_shape *sdy, const float *dy, const struct fake_shape *sdx,
        float *dx, const struct fake_shape *column, const float *gain, float *dgain, float *dbias,
        double epsilon, const float *mean, const float *scale)
{
    double rows = (double)fake_count(sx) / sx->c;
    if (!handle || !fake_factors(alpha, 0, beta) || !fake_factors(alpha_params, 0, beta_params) ||
            !fake_normable(mode, sx, sdy, column, epsilon) ||
            !fake_normable(mode, sx, sdx, column, epsilon))
        return BAD;
    for (size_t c = 0; c < (size_t)sx->c; c++) {
        double center = (double)mean[c], width = (double)scale[c];
        double sum = fake_sum(sx, c, dy, NULL, 0, 1), along = fake_sum(sx, c, dy, x, center, width);
        for (size_t i = c; i < fake_count(sx); i += (size_t)sx->c)
            dx[i] = (float)((double)gain[c] * width *
                    ((double)dy[i] - sum / rows - ((double)x[i] - center) * width * along / rows));
        dgain[c] = (float)along;
        dbias[c] = (float)sum;
    }
    return 0;
}

// --- the mean over an image ----------------------------------------------------------------------

int cudnnSetPooling2dDescriptor(void *pool, int mode, int nan, int height, int width, int pad_h,
        int pad_w, int stride_h, int stride_w)
{
    ((struct fake_pool *)pool)->side = height;
    return mode == 1 && nan == 0 && height == width && pad_h == 0 && pad_w == 0 &&
                    stride_h == height && stride_w == width
            ? 0
            : BAD;
}

static int fake_pooled(
        const struct fake_pool *pool, const struct fake_shape *x, const struct fake_shape *y)
{
    return pool->side == x->h && pool->side == x->w && y->h == 1 && y->w == 1 && x->n == y->n &&
            x->c == y->c;
}

int cudnnPoolingForward(void *handle, const struct fake_pool *pool, const void *alpha,
        const struct fake_shape *sx, const float *x, const void *beta, const struct fake_shape *sy,
        float *y)
{
    size_t pixels = (size_t)sx->h * (size_t)sx->w, channels = (size_t)sx->c;
    if (!handle || !fake_factors(alpha, 0, beta) || !fake_pooled(pool, sx, sy))
        return BAD;
    memset(y, 0, fake_count(sy) * sizeof *y);
    for (size_t i = 0; i < fake_count(sx); i++)
        y[i / (pixels * channels) * channels + i % channels] += x[i] / (float)pixels;
    return 0;
}

int cudnnPoolingBackward(void *handle, const struct fake_pool *pool, const void *alpha,
        const struct fake_shape *sy, const float *y, const struct fake_shape *sdy, const float *dy,
        const struct fake_shape *sx, const float *x, const void *beta, const struct fake_shape *sdx,
        float *dx)
{
    size_t pixels = (size_t)sx->h * (size_t)sx->w, channels = (size_t)sx->c;
    if (!handle || !x || !y || !fake_factors(alpha, 0, beta) || !fake_pooled(pool, sx, sy) ||
            !fake_pooled(pool, sdx, sdy))
        return BAD;
    for (size_t i = 0; i < fake_count(sx); i++)
        dx[i] = dy[i / (pixels * channels) * channels + i % channels] / (float)pixels;
    return 0;
}
