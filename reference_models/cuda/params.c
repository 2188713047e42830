// SPDX-License-Identifier: Apache-2.0
// The parameters of a model on the GPU, as params.h says it.
#include "reference_models/cuda/params.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS_ALIGN ((size_t)64) // values: 128 bytes of bfloat16

static size_t params_place(struct params *params, enum params_kind kind, size_t in, size_t out,
        size_t in_padded, size_t count)
{
    size_t *end = kind == PARAMS_NARROW ? &params->narrow : &params->wide;
    params->entry[params->entries] = (struct params_entry){
            .kind = kind, .in = in, .out = out, .in_padded = in_padded, .offset = *end};
    *end += (count + PARAMS_ALIGN - 1) / PARAMS_ALIGN * PARAMS_ALIGN;
    return params->entries++;
}

size_t params_add(struct params *params, enum params_kind kind, size_t in, size_t out)
{
    size_t in_padded = in == 1 ? 1 : params_padded(in);
    return params_place(params, kind, in, out, in_padded, in_padded * params_padded(out));
}

size_t params_add_turned(struct params *params, size_t in, size_t out)
{
    return params_place(params, PARAMS_WIDE, in, out, in, in * out);
}

size_t params_add_parts(struct params *params, size_t in, size_t out, size_t parts)
{
    size_t in_padded = params_padded(in), first = params->entries, weights = params->narrow,
           biases = weights + parts * in_padded * out;
    for (size_t part = 0; part < parts; part++) {
        params->entry[params->entries++] = (struct params_entry){.kind = PARAMS_NARROW,
                .in = in,
                .out = out,
                .in_padded = in_padded,
                .offset = weights + part * in_padded * out};
        params->entry[params->entries++] = (struct params_entry){.kind = PARAMS_NARROW,
                .in = 1,
                .out = out,
                .in_padded = 1,
                .offset = biases + part * out};
    }
    params->narrow = biases + parts * out;
    return first;
}

size_t params_add_wide(struct params *params, size_t count)
{
    return params_place(params, PARAMS_WIDE, 1, count, 1, count);
}

static size_t params_offset(const struct params *params, size_t number)
{
    const struct params_entry *entry = &params->entry[number];
    return entry->offset + (entry->kind == PARAMS_WIDE ? params->narrow : 0);
}

void params_widen(const struct params *params, size_t begin, size_t count, cudaStream_t stream)
{
    struct device *device = params->device;
    const struct kernel_pointwise copy = {.op = KERNEL_POINT_COPY,
            .outer = 1,
            .rows = 1,
            .columns = (int64_t)count,
            .a = {.at = (char *)params->narrow_grad + 2 * begin, .type = KERNEL_BFLOAT16},
            .out = {.at = params->grad + begin, .type = KERNEL_FLOAT32}};
    device_must(device, kernel_pointwise(&copy, stream, &device->err));
}

void params_narrow(const struct params *params, size_t begin, size_t count, cudaStream_t stream)
{
    struct device *device = params->device;
    const struct kernel_pointwise copy = {.op = KERNEL_POINT_COPY,
            .outer = 1,
            .rows = 1,
            .columns = (int64_t)count,
            .a = {.at = params->value + begin, .type = KERNEL_FLOAT32},
            .out = {.at = (char *)params->copy + 2 * begin, .type = KERNEL_BFLOAT16}};
    if (count && !device_failed(device))
        device_must(device, kernel_pointwise(&copy, stream, &device->err));
}

static void params_narrow_all(const struct params *params)
{
    params_narrow(params, 0, params->narrow, params->device->stream);
}

// Between the CPU's layout and the GPU's, in host memory.
static void params_turn(
        const struct params *params, size_t number, const float *from, float *to, bool up)
{
    const struct params_entry *entry = &params->entry[number];
    size_t offset = params_offset(params, number);
    for (size_t o = 0; o < entry->out; o++) {
        for (size_t i = 0; i < entry->in; i++) {
            size_t own = offset + o * entry->in_padded + i, cpu = i * entry->out + o;
            if (up)
                to[own] = from[cpu];
            else
                to[cpu] = from[own];
        }
    }
}

void params_allocate(struct params *params, struct device *device, bool train, bool adam,
        const struct model_param *start, size_t count)
{
    size_t all = params->narrow + params->wide;
    params->device = device;
    params->value = device_alloc(device, all * 4, "the parameters");
    params->copy = device_alloc(device, params->narrow * 2, "the parameters' copies");
    if (train) {
        params->narrow_grad = device_alloc(device, params->narrow * 2, "the gradients");
        params->grad = device_alloc(device, all * 4, "the gradients");
    }
    if (train && adam) {
        size_t own = params->shards ? all / params->shards : all;
        params->adam_m = device_alloc(device, own * 4, "the optimizer's state");
        params->adam_v = device_alloc(device, own * 4, "the optimizer's state");
    }
    float *values = calloc(all + 1, sizeof *values);
    if (!values || count < params->entries) {
        device_must(device,
                error_set(&device->err, -ENOMEM,
                        "no memory for the start values, or too few of them"));
        free(values);
        return;
    }
    for (size_t i = 0; i < params->entries; i++)
        params_turn(params, i, start[i].value, values, true);
    device_upload(device, params->value, values, all * 4);
    params_narrow_all(params);
    device_wait(device);
    free(values);
}

float *params_value(const struct params *params, size_t number)
{
    return params->value + params_offset(params, number);
}

float *params_wide_grad(const struct params *params, size_t number)
{
    return params->grad + params_offset(params, number);
}

void *params_copy(const struct params *params, size_t number)
{
    return (char *)params->copy + 2 * params_offset(params, number);
}

void *params_narrow_grad(const struct params *params, size_t number)
{
    return params->narrow_grad ? (char *)params->narrow_grad + 2 * params_offset(params, number)
                               : NULL;
}

void params_sgd(struct params *params, float rate)
{
    struct device *device = params->device;
    params_widen(params, 0, params->narrow, device->stream);
    const struct kernel_pointwise step = {.op = KERNEL_POINT_ADD,
            .outer = 1,
            .rows = 1,
            .columns = (int64_t)(params->narrow + params->wide),
            .factor = -rate,
            .a = {.at = params->value, .type = KERNEL_FLOAT32},
            .b = {.at = params->grad, .type = KERNEL_FLOAT32},
            .out = {.at = params->value, .type = KERNEL_FLOAT32}};
    device_must(device, kernel_pointwise(&step, device->stream, &device->err));
    params_narrow_all(params);
}

void params_adam(struct params *params, float rate, float beta1, float beta2, float epsilon)
{
    struct device *device = params->device;
    const struct kernel_update update = {.optimizer = KERNEL_ADAM,
            .rate = rate,
            .epsilon = epsilon,
            .beta1 = beta1,
            .beta2 = beta2,
            .step = (int64_t)++params->updates};
    params_widen(params, 0, params->narrow, device->stream);
    device_must(device,
            kernel_adam(&update, (int64_t)(params->narrow + params->wide), params->grad,
                    params->value, params->adam_m, params->adam_v, device->stream, &device->err));
    params_narrow_all(params);
}

void params_adamw(struct params *params, const struct params_adamw *adamw, size_t begin,
        size_t state, size_t count)
{
    struct device *device = params->device;
    float *value = params->value + begin;
    const struct kernel_pointwise shrink = {.op = KERNEL_POINT_ADD,
            .outer = 1,
            .rows = 1,
            .columns = (int64_t)count,
            .factor = -adamw->rate * adamw->decay,
            .a = {.at = value, .type = KERNEL_FLOAT32},
            .b = {.at = value, .type = KERNEL_FLOAT32},
            .out = {.at = value, .type = KERNEL_FLOAT32}};
    const struct kernel_update update = {.optimizer = KERNEL_ADAM,
            .rate = adamw->rate,
            .epsilon = adamw->epsilon,
            .beta1 = adamw->beta1,
            .beta2 = adamw->beta2,
            .step = (int64_t)params->updates};
    device_must(device, kernel_pointwise(&shrink, device->stream, &device->err));
    device_must(device,
            kernel_adam(&update, (int64_t)count, params->grad + begin, value,
                    params->adam_m + state, params->adam_v + state, device->stream, &device->err));
}

void params_poison(struct params *params)
{
    static const float nan_value = NAN;
    for (size_t i = 0; i < params->entries; i++)
        device_upload(params->device, params_value(params, i), &nan_value, sizeof nan_value);
    params_narrow_all(params);
    device_wait(params->device);
}

const struct model_param *params_download(struct params *params, const struct model_param *names,
        const struct model_param *more, size_t more_count, size_t *ret_count)
{
    size_t all = params->narrow + params->wide, at = 0;
    free(params->host_values);
    float *values = calloc(all + 1, sizeof *values);
    params->host_values = calloc(all + 1, sizeof *values);
    if (!values || !params->host_values) {
        error_set(&params->device->err, -ENOMEM, "no memory for a copy of the parameters");
        device_must(params->device, -ENOMEM);
    }
    device_download(params->device, values, params->value, all * 4);
    device_wait(params->device);
    for (size_t i = 0; i < params->entries; i++) {
        size_t count = params->entry[i].in * params->entry[i].out;
        params_turn(params, i, values, params->host_values + at, false);
        params->host[i] = (struct model_param){
                .name = names[i].name, .value = params->host_values + at, .count = count};
        at += count;
    }
    if (more_count)
        memcpy(params->host + params->entries, more, more_count * sizeof *more);
    free(values);
    *ret_count = params->entries + more_count;
    return params->host;
}

void params_free(struct params *params)
{
    free(params->host_values);
    params->host_values = NULL;
}
