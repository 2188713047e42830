// SPDX-License-Identifier: Apache-2.0
// Parameters and linear layers. Compiled once per type. Start values come from the workload's own
// generator, drawn in fp64 and rounded to float32, so that they are the same for both types.
#include "reference_models/native/models/network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/models/draw.h"
#include "reference_models/native/rng.h"

static size_t network_entry(struct network *net, const char *name, size_t count)
{
    if (net->params == NETWORK_PARAMS_MAX) {
        fprintf(stderr, "failed to build a model: more than %d parameters\n", NETWORK_PARAMS_MAX);
        abort();
    }
    net->param[net->params] = (struct model_param){.name = name, .count = count};
    return net->params++;
}

size_t network_add(
        struct network *net, const char *name, size_t count, double center, double spread)
{
    size_t entry = network_entry(net, name, count);
    size_t offset = net->count;
    net->center[entry] = center;
    net->spread[entry] = spread;
    net->offset[entry] = offset;
    net->count += (count + 15) / 16 * 16; // each parameter starts on a cache line
    return offset;
}

size_t network_align(struct network *net, size_t reals)
{
    net->count = (net->count + reals - 1) / reals * reals;
    return net->count;
}

struct linear network_matrix(
        struct network *net, const char *name, size_t in, size_t out, size_t rows)
{
    struct linear layer = {.in = in, .out = out, .bias = NETWORK_NO_BIAS};
    layer.weight = network_add(net, name, in * out, 0, sqrt(3.0 / (double)in));
    size_t scratch = ops_gemm_scratch(in, out);
    if (net->train) {
        size_t input = ops_gemm_scratch(out, in), weight = ops_gemm_scratch(rows, out);
        scratch = scratch > input ? scratch : input;
        scratch = scratch > weight ? scratch : weight;
    }
    if (scratch > net->scratch_count)
        net->scratch_count = scratch;
    return layer;
}

struct linear network_linear(
        struct network *net, const char *name, size_t in, size_t out, size_t rows)
{
    struct linear layer = network_matrix(net, name, in, out, rows);
    layer.bias = network_add(net, name, out, 0, 0);
    return layer;
}

static void network_draw(struct network *net, size_t entry)
{
    struct rng rng = rng_stream(net->seed, RNG_USE_PARAM, entry);
    real *value = net->param[entry].value;
    for (size_t i = 0; i < net->param[entry].count; i++) {
        double draw = net->spread[entry] > 0 ? net->spread[entry] * rng_signed(&rng) : 0;
        value[i] = real_start(net->center[entry] + draw);
    }
}

void network_allocate(struct network *net)
{
    if (!net->value)
        net->value = network_reals(net, net->count);
    if (net->train && !net->grad)
        net->grad = network_reals(net, net->count);
    net->scratch = network_reals(net, net->scratch_count);
    for (size_t entry = 0; entry < net->params; entry++) {
        net->param[entry].value = net->value + net->offset[entry];
        network_draw(net, entry);
    }
}

void network_fill(struct network *net, const char *name, real *value, size_t count, double spread)
{
    size_t entry = network_entry(net, name, count);
    net->param[entry].value = value;
    net->spread[entry] = spread;
    net->center[entry] = 0;
    network_draw(net, entry);
}

// PyTorch's weights are [out][in].
struct network_turned {
    real *weight; // [in][out]
    size_t in, out;
};

static void network_set_turned(void *arg, size_t i, double value)
{
    const struct network_turned *turned = arg;
    turned->weight[i % turned->in * turned->out + i / turned->in] = (real)value;
}

void network_start_linear(struct network *net, const struct linear *layer, const char *name)
{
    struct network_turned turned = {
            .weight = net->value + layer->weight, .in = layer->in, .out = layer->out};
    draw_start(net->seed, name, layer->in * layer->out, layer->in, network_set_turned, &turned);
}

static void network_set(void *arg, size_t i, double value)
{
    ((real *)arg)[i] = (real)value;
}

void network_start_table(
        struct network *net, size_t offset, const char *name, size_t rows, size_t dim)
{
    draw_start(net->seed, name, rows * dim, dim, network_set, net->value + offset);
}

real *network_reals(struct network *net, size_t count)
{
    return arena_alloc(&net->arena, count, sizeof(real));
}

void network_linear_forward(
        struct network *net, const struct linear *layer, size_t rows, const real *x, real *y)
{
    ops_gemm(net->pool,
            &(struct gemm){.m = rows,
                    .n = layer->out,
                    .k = layer->in,
                    .a = x,
                    .b = net->value + layer->weight,
                    .bias = layer->bias == NETWORK_NO_BIAS ? NULL : net->value + layer->bias,
                    .c = y,
                    .scratch = net->scratch});
}

void network_linear_backward(struct network *net, const struct linear *layer, size_t rows,
        const real *x, const real *dy, real *dx)
{
    if (layer->bias != NETWORK_NO_BIAS)
        ops_column_sum(net->pool, rows, layer->out, dy, net->grad + layer->bias);
    ops_gemm(net->pool,
            &(struct gemm){.m = layer->in,
                    .n = layer->out,
                    .k = rows,
                    .transpose_a = true,
                    .a = x,
                    .b = dy,
                    .c = net->grad + layer->weight,
                    .scratch = net->scratch});
    if (dx)
        ops_gemm(net->pool,
                &(struct gemm){.m = rows,
                        .n = layer->in,
                        .k = layer->out,
                        .transpose_b = true,
                        .a = dy,
                        .b = net->value + layer->weight,
                        .c = dx,
                        .scratch = net->scratch});
}
