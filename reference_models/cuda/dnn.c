// SPDX-License-Identifier: Apache-2.0
// The side's cuDNN, as dnn.h says it.
#include "reference_models/cuda/dnn.h"

#include <errno.h>

#define DNN_EPSILON 1e-5 // as the CPU's
#define DNN_ALGORITHMS 8

static const float one = 1, zero = 0;

static void dnn_check(const struct dnn *dnn, int status, const char *what)
{
    struct device *device = dnn->device;
    if (status == 0 || device_failed(device))
        return;
    error_set(&device->err, -EIO, "cuDNN %zu: failed to %s: %s (status %d)",
            dnn->library->version(), what, dnn->library->sentence(status), status);
    device_must(device, -EIO);
}

int dnn_open(struct dnn *dnn, struct device *device, struct error *err)
{
    *dnn = (struct dnn){.device = device};
    int rc = dnn_library_open(&dnn->library, err);
    if (rc)
        return rc;
    int status = dnn->library->create(&dnn->handle);
    if (status == 0)
        status = dnn->library->set_stream(dnn->handle, device->stream);
    if (status)
        return error_set(err, -EIO, "cuDNN %zu: failed to create a handle: %s (status %d)",
                dnn->library->version(), dnn->library->sentence(status), status);
    return 0;
}

void dnn_close(struct dnn *dnn)
{
    if (!dnn->handle)
        return;
    cudaStreamSynchronize(dnn->device->stream);
    while (dnn->descriptors > 0) {
        dnn->descriptors--;
        dnn->descriptor[dnn->descriptors].free(dnn->descriptor[dnn->descriptors].at);
    }
    dnn->library->destroy(dnn->handle);
    dnn->handle = NULL;
}

// NULL when something has failed.
static void *dnn_new(struct dnn *dnn, int (*make)(void **), int (*drop)(void *))
{
    void *made = NULL;
    if (device_failed(dnn->device))
        return NULL;
    if (dnn->descriptors == DNN_DESCRIPTORS_MAX) {
        error_set(&dnn->device->err, -ENOMEM, "a model of more than %d descriptors",
                DNN_DESCRIPTORS_MAX);
        device_must(dnn->device, -ENOMEM);
        return NULL;
    }
    int status = make(&made);
    dnn_check(dnn, status, "create a descriptor");
    if (status)
        return NULL;
    dnn->descriptor[dnn->descriptors].at = made;
    dnn->descriptor[dnn->descriptors].free = drop;
    dnn->descriptors++;
    return made;
}

static void *dnn_tensor(struct dnn *dnn, int format, size_t batch, size_t channels, size_t side)
{
    const struct dnn_library *library = dnn->library;
    void *tensor = dnn_new(dnn, library->tensor_new, library->tensor_free);
    if (tensor)
        dnn_check(dnn,
                library->tensor_set(tensor, format, DNN_FLOAT32, (int)batch, (int)channels,
                        (int)side, (int)side),
                "describe an array");
    return tensor;
}

void dnn_plan(struct dnn *dnn, struct dnn_convolution *c)
{
    const struct dnn_library *library = dnn->library;
    int pad = (int)(c->kernel / 2), stride = (int)c->stride, kernel = (int)c->kernel;
    c->x = dnn_tensor(dnn, DNN_NHWC, c->batch, c->channels, c->side);
    c->y = dnn_tensor(dnn, DNN_NHWC, c->batch, c->outputs, (c->side - 1) / c->stride + 1);
    c->column = dnn_tensor(dnn, DNN_NCHW, 1, c->outputs, 1);
    c->filter = dnn_new(dnn, library->filter_new, library->filter_free);
    if (c->filter)
        dnn_check(dnn,
                library->filter_set(c->filter, DNN_FLOAT32, DNN_NHWC, (int)c->outputs,
                        (int)c->channels, kernel, kernel),
                "describe weights");
    for (int pass = 0; pass < DNN_PASSES; pass++) {
        c->conv[pass] = dnn_new(dnn, library->conv_new, library->conv_free);
        if (!c->conv[pass])
            return;
        dnn_check(dnn,
                library->conv_set(c->conv[pass], pad, pad, stride, stride, 1, 1,
                        DNN_CROSS_CORRELATION, DNN_FLOAT32),
                "describe a convolution");
        dnn_check(dnn, library->conv_math(c->conv[pass], DNN_DEFAULT_MATH), "set the default math");
    }
}

void dnn_find(
        struct dnn *dnn, struct dnn_convolution *c, enum dnn_pass pass, const struct dnn_arrays *a)
{
    static const char *const names[DNN_PASSES] = {
            "the forward pass", "the gradient of the input", "the gradient of the weights"};
    const struct dnn_library *library = dnn->library;
    struct device *device = dnn->device;
    struct dnn_perf perf[DNN_ALGORITHMS] = {0};
    void *conv = c->conv[pass], *room = device->workspace;
    const size_t most = KERNEL_MLP_WORKSPACE;
    int count = 0, status;
    if (device_failed(device))
        return;
    if (pass == DNN_FORWARD)
        status = library->find_forward(dnn->handle, c->x, a->x, c->filter, a->weight, conv, c->y,
                a->y, DNN_ALGORITHMS, &count, perf, room, most);
    else if (pass == DNN_INPUT)
        status = library->find_input(dnn->handle, c->filter, a->weight, c->y, a->dy, conv, c->x,
                a->dx, DNN_ALGORITHMS, &count, perf, room, most);
    else
        status = library->find_weight(dnn->handle, c->x, a->x, c->y, a->dy, conv, c->filter,
                a->dweight, DNN_ALGORITHMS, &count, perf, room, most);
    dnn_check(dnn, status, "look for the fastest algorithm of a convolution");
    for (int i = 0; i < count && i < DNN_ALGORITHMS && status == 0; i++) {
        if (perf[i].status || perf[i].memory > most)
            continue;
        c->algorithm[pass] = perf[i].algorithm;
        c->bytes[pass] = perf[i].memory;
        dnn_check(dnn, library->conv_math(conv, perf[i].math), "set the math of an algorithm");
        return;
    }
    if (status)
        return;
    error_set(&device->err, -ENOSYS,
            "cuDNN %zu has no algorithm for %s of a convolution of %zu x %zu images, %zu to %zu channels, kernel %zu, in %zu MiB",
            library->version(), names[pass], c->side, c->side, c->channels, c->outputs, c->kernel,
            most >> 20);
    device_must(device, -ENOSYS);
}

void dnn_run(struct dnn *dnn, const struct dnn_convolution *c, enum dnn_pass pass,
        const struct dnn_arrays *a)
{
    const struct dnn_library *library = dnn->library;
    void *conv = c->conv[pass], *room = dnn->device->workspace;
    int algorithm = c->algorithm[pass];
    size_t bytes = c->bytes[pass];
    if (device_failed(dnn->device))
        return;
    if (pass == DNN_FORWARD)
        dnn_check(dnn,
                library->forward(dnn->handle, &one, c->x, a->x, c->filter, a->weight, conv,
                        algorithm, room, bytes, &zero, c->y, a->y),
                "start a convolution");
    else if (pass == DNN_INPUT)
        dnn_check(dnn,
                library->input(dnn->handle, &one, c->filter, a->weight, c->y, a->dy, conv,
                        algorithm, room, bytes, &zero, c->x, a->dx),
                "start the gradient of a convolution's input");
    else
        dnn_check(dnn,
                library->weight(dnn->handle, &one, c->x, a->x, c->y, a->dy, conv, algorithm, room,
                        bytes, &zero, c->filter, a->dweight),
                "start the gradient of a convolution's weights");
}

void dnn_bias(struct dnn *dnn, const struct dnn_convolution *c, const float *bias, float *y)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn, dnn->library->add(dnn->handle, &one, c->column, bias, &one, c->y, y),
                "add a bias");
}

void dnn_bias_backward(
        struct dnn *dnn, const struct dnn_convolution *c, const float *dy, float *dbias)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn, dnn->library->bias(dnn->handle, &one, c->y, dy, &zero, c->column, dbias),
                "start the gradient of a bias");
}

// Running statistics are those of this batch alone: a factor of 1.
void dnn_norm(struct dnn *dnn, const struct dnn_convolution *c, const struct dnn_norm *n)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn,
                dnn->library->norm_train(dnn->handle, DNN_NORM_SPATIAL, &one, &zero, c->y, n->x,
                        c->y, n->y, c->column, n->gain, n->bias, 1.0, n->running_mean,
                        n->running_variance, DNN_EPSILON, n->mean, n->scale),
                "start a batch norm");
}

void dnn_norm_serve(struct dnn *dnn, const struct dnn_convolution *c, const struct dnn_norm *n)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn,
                dnn->library->norm_serve(dnn->handle, DNN_NORM_SPATIAL, &one, &zero, c->y, n->x,
                        c->y, n->y, c->column, n->gain, n->bias, n->running_mean,
                        n->running_variance, DNN_EPSILON),
                "start a batch norm of inference");
}

void dnn_norm_backward(struct dnn *dnn, const struct dnn_convolution *c, const struct dnn_norm *n,
        const float *dy, float *dx, float *dgain, float *dbias)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn,
                dnn->library->norm_backward(dnn->handle, DNN_NORM_SPATIAL, &one, &zero, &one, &zero,
                        c->y, n->x, c->y, dy, c->y, dx, c->column, n->gain, dgain, dbias,
                        DNN_EPSILON, n->mean, n->scale),
                "start the gradient of a batch norm");
}

void dnn_pool_plan(
        struct dnn *dnn, struct dnn_pool *pool, size_t batch, size_t side, size_t channels)
{
    const struct dnn_library *library = dnn->library;
    int window = (int)side;
    pool->x = dnn_tensor(dnn, DNN_NHWC, batch, channels, side);
    pool->y = dnn_tensor(dnn, DNN_NHWC, batch, channels, 1);
    pool->pool = dnn_new(dnn, library->pool_new, library->pool_free);
    if (pool->pool)
        dnn_check(dnn,
                library->pool_set(pool->pool, DNN_POOL_MEAN, DNN_STOP_NAN, window, window, 0, 0,
                        window, window),
                "describe a mean");
}

void dnn_pool(struct dnn *dnn, const struct dnn_pool *pool, const float *x, float *y)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn,
                dnn->library->pool_forward(
                        dnn->handle, pool->pool, &one, pool->x, x, &zero, pool->y, y),
                "start a mean");
}

void dnn_pool_backward(struct dnn *dnn, const struct dnn_pool *pool, const float *x, const float *y,
        const float *dy, float *dx)
{
    if (!device_failed(dnn->device))
        dnn_check(dnn,
                dnn->library->pool_backward(dnn->handle, pool->pool, &one, pool->y, y, pool->y, dy,
                        pool->x, x, &zero, pool->x, dx),
                "start the gradient of a mean");
}
