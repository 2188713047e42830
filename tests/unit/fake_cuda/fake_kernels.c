// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels.h on the host, by the native models' operations in float32, operands and
// results rounded to their types as the kernels do: what a model on the GPU computes, without one.
// What a kernel leaves alone stays alone here.
#define NATIVE_REAL_BITS 32
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cache.h"
#include "reference_models/native/ops/ops.h"

static struct pool *fake_pool(void)
{
    static struct pool *pool;
    if (!pool && pool_new(1, &pool, NULL))
        abort();
    return pool;
}

static float fake_get(enum kernel_type type, const void *from, size_t at)
{
    if (type == KERNEL_FLOAT32)
        return ((const float *)from)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void fake_put(enum kernel_type type, void *to, size_t at, float value)
{
    uint32_t bits;
    if (type == KERNEL_FLOAT32) {
        ((float *)to)[at] = value;
        return;
    }
    memcpy(&bits, &value, 4);
    if (value == value)
        bits += 0x7fff + (bits >> 16 & 1); // to the nearest, ties to even
    ((uint16_t *)to)[at] = (uint16_t)(bits >> 16);
}

int kernel_side(const char *directory, struct kernel_origins *ret, struct error *err)
{
    *ret = (struct kernel_origins){.side = 334, .program = 12};
    if (strcmp(directory, "whole") == 0)
        return 0;
    return error_set(err, -EINVAL, "no .cubin in %s", directory);
}

static float *fake_floats(size_t count)
{
    return calloc(count + 1, sizeof(float));
}

static float *fake_wide(enum kernel_type type, const void *from, size_t count)
{
    float *values = fake_floats(count);
    for (size_t i = 0; i < count; i++)
        values[i] = fake_get(type, from, i);
    return values;
}

// Takes `values`.
static void fake_narrow(enum kernel_type type, void *to, float *values, size_t count)
{
    for (size_t i = 0; i < count && to; i++)
        fake_put(type, to, i, values[i]);
    free(values);
}

static float fake_pointwise(const struct kernel_pointwise *w, float a, float b)
{
    float share = 1 / (1 + expf(-a));
    switch (w->op) {
    case KERNEL_POINT_ADD:
        return a + w->factor * b;
    case KERNEL_POINT_MUL:
        return a * b;
    case KERNEL_POINT_SILU:
        return a * share;
    case KERNEL_POINT_SILU_GRADIENT:
        return b * share * (1 + a * (1 - share));
    case KERNEL_POINT_RELU:
        return a < 0 ? 0 : a;
    case KERNEL_POINT_RELU_GRADIENT:
        return a <= 0 ? 0 : b;
    default:
        return a;
    }
}

int kernel_pointwise(const struct kernel_pointwise *w, cudaStream_t stream, struct error *err)
{
    (void)stream;
    if (w->columns < 1 || w->columns % 8 || w->a.row % 8 || w->b.row % 8 || w->out.row % 8 ||
            w->a.outer % 8 || w->b.outer % 8 || w->out.outer % 8 || w->rows < 1 || w->outer < 1 ||
            !w->a.at || !w->out.at ||
            ((uintptr_t)w->a.at | (uintptr_t)w->b.at | (uintptr_t)w->out.at) % 16)
        return error_set(err, -EINVAL, "pointwise: what kernels.h does not allow");
    for (int64_t outer = 0; outer < w->outer; outer++)
        for (int64_t row = 0; row < w->rows; row++)
            for (int64_t c = 0; c < w->columns; c++) {
                float a = fake_get(
                        w->a.type, w->a.at, (size_t)(outer * w->a.outer + row * w->a.row + c));
                float b = w->b.at ? fake_get(w->b.type, w->b.at,
                                            (size_t)(outer * w->b.outer + row * w->b.row + c))
                                  : 0;
                fake_put(w->out.type, w->out.at,
                        (size_t)(outer * w->out.outer + row * w->out.row + c),
                        fake_pointwise(w, a, b));
            }
    return 0;
}

int kernel_binary_entropy(
        const struct kernel_binary_entropy *b, cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)b->rows, stride = (size_t)b->stride;
    float *logits = fake_floats(rows), *dlogits = fake_floats(rows);
    (void)stream;
    (void)err;
    for (size_t row = 0; row < rows; row++)
        logits[row] = fake_get(b->type, b->logits, row * stride);
    ops_bce_loss(fake_pool(), rows, logits, b->label, b->loss, dlogits);
    for (size_t row = 0; row < rows && b->dlogits; row++)
        for (size_t i = 0; i < stride; i++)
            fake_put(b->type, b->dlogits, row * stride + i,
                    i ? 0 : dlogits[row] * (float)rows * b->scale);
    free(logits);
    free(dlogits);
    return 0;
}

// --- layers --------------------------------------------------------------------------------------

struct kernel_mlp_plan {
    struct kernel_mlp mlp;
};

int kernel_mlp_plan(const struct kernel_mlp *m, struct kernel_mlp_plan **ret, struct error *err)
{
    bool act = m->activation != KERNEL_IDENTITY;
    if (m->inputs % (m->pass == KERNEL_MLP_INPUT && act ? 128 : 8) ||
            m->outputs % (m->pass == KERNEL_MLP_FORWARD && act ? 128 : 8))
        return error_set(err, -EINVAL, "mlp: what kernels.h does not allow: %lld to %lld",
                (long long)m->inputs, (long long)m->outputs);
    *ret = calloc(1, sizeof **ret);
    (*ret)->mlp = *m;
    return kernel_mlp_run(*ret, NULL, err); // as the real one, which times them
}

void kernel_mlp_plan_free(struct kernel_mlp_plan *plan)
{
    free(plan);
}

static float *fake_product(size_t m, size_t n, size_t k, bool turn_a, bool turn_b, const float *a,
        const float *b, const float *bias)
{
    float *c = fake_floats(m * n), *scratch = fake_floats(ops_gemm_scratch(k, n));
    ops_gemm(fake_pool(),
            &(struct gemm){.m = m,
                    .n = n,
                    .k = k,
                    .transpose_a = turn_a,
                    .transpose_b = turn_b,
                    .a = a,
                    .b = b,
                    .bias = bias,
                    .c = c,
                    .scratch = scratch});
    free(scratch);
    return c;
}

// relu keeps a bit of each value, gelu the value.
static void fake_mlp_forward(const struct kernel_mlp *m, float *z, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (m->activation == KERNEL_RELU) {
            unsigned char *bits = (unsigned char *)m->aux + i / 8,
                          bit = (unsigned char)(1u << i % 8);
            *bits = z[i] > 0 ? *bits | bit : *bits & (unsigned char)~bit;
            z[i] = z[i] > 0 ? z[i] : 0;
        } else if (m->activation == KERNEL_GELU) {
            fake_put(m->type, m->aux, i, z[i]);
            z[i] = fake_get(m->type, m->aux, i);
        }
    }
    if (m->activation == KERNEL_GELU)
        ops_gelu(fake_pool(), count, z, z);
}

static void fake_mlp_input(const struct kernel_mlp *m, float *dy, size_t count)
{
    for (size_t i = 0; i < count && m->activation == KERNEL_RELU; i++)
        if (!(((const unsigned char *)m->aux)[i / 8] >> i % 8 & 1))
            dy[i] = 0;
    if (m->activation == KERNEL_GELU) {
        float *x = fake_wide(m->type, m->aux, count);
        ops_gelu_backward(fake_pool(), count, x, dy, dy);
        free(x);
    }
}

int kernel_mlp_run(const struct kernel_mlp_plan *plan, cudaStream_t stream, struct error *err)
{
    const struct kernel_mlp *m = &plan->mlp;
    size_t rows = (size_t)m->rows, in = (size_t)m->inputs, out = (size_t)m->outputs;
    float *x = m->pass == KERNEL_MLP_INPUT ? NULL : fake_wide(m->type, m->x, rows * in);
    float *dz = m->pass == KERNEL_MLP_FORWARD ? NULL : fake_wide(m->type, m->dz, rows * out);
    float *weight = m->pass == KERNEL_MLP_WEIGHT ? NULL : fake_wide(m->type, m->weight, in * out),
          *made;
    (void)stream;
    (void)err;
    if (m->pass == KERNEL_MLP_FORWARD) {
        float *bias = fake_wide(m->type, m->bias, out);
        made = fake_product(rows, out, in, false, true, x, weight, bias);
        free(bias);
        fake_mlp_forward(m, made, rows * out);
        fake_narrow(m->type, m->out, made, rows * out);
    } else if (m->pass == KERNEL_MLP_INPUT) {
        made = fake_product(rows, in, out, false, false, dz, weight, NULL);
        fake_mlp_input(m, made, rows * in);
        if (m->dbias) {
            float *sum = fake_floats(in);
            ops_column_sum(fake_pool(), rows, in, made, sum);
            fake_narrow(m->type, m->dbias, sum, in);
        }
        fake_narrow(m->type, m->out, made, rows * in);
    } else {
        made = fake_product(out, in, rows, true, false, dz, x, NULL);
        if (m->dbias) {
            float *sum = fake_floats(out);
            ops_column_sum(fake_pool(), rows, out, dz, sum);
            fake_narrow(m->type, m->dbias, sum, out);
        }
        fake_narrow(m->type, m->out, made, in * out);
    }
    free(x);
    free(dz);
    free(weight);
    return 0;
}

// --- tables --------------------------------------------------------------------------------------

int kernel_bags_check(const struct kernel_bags *bags, cudaStream_t stream, struct error *err)
{
    (void)stream;
    for (int64_t bag = 0; bag < bags->tables * bags->bags; bag++)
        for (int64_t i = bags->offsets[bag]; i < bags->offsets[bag + 1]; i++)
            if (bags->ids[i] < 0 || bags->ids[i] >= bags->row_counts[bag / bags->bags])
                return error_set(err, -EINVAL,
                        "embedding bag: id %lld at place %lld is out of range",
                        (long long)bags->ids[i], (long long)i);
    return 0;
}

int kernel_bag_forward(
        const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err)
{
    size_t dim = (size_t)bags->dim;
    (void)stream;
    if (dim < 1 || dim % 4 || dim > 512)
        return error_set(err, -EINVAL, "embedding bag: rows of %zu", dim);
    for (int64_t number = 0; number < bags->tables * bags->bags; number++) {
        int64_t table = number / bags->bags, bag = number % bags->bags;
        for (size_t j = 0; j < dim; j++) {
            float sum = 0;
            for (int64_t i = bags->offsets[number]; i < bags->offsets[number + 1]; i++)
                sum += fake_get(bags->type, bags->rows[table], (size_t)bags->ids[i] * dim + j);
            fake_put(bags->type, out, (size_t)(bag * bags->tables + table) * dim + j, sum);
        }
    }
    return 0;
}

int kernel_bag_update_scratch(const struct kernel_bags *bags, size_t *ret_bytes, struct error *err)
{
    (void)err;
    *ret_bytes = (size_t)bags->ids_count * 16;
    return 0;
}

// Adagrad of each element, of a cache's rows.
static int fake_adagrad(const struct kernel_bags *bags, const struct kernel_update *update,
        const float *dout, struct error *err)
{
    size_t dim = (size_t)bags->dim, rows = (size_t)bags->row_counts[0];
    float *grad = fake_floats(rows * dim);
    int rc = 0;
    for (int64_t number = 0; number < bags->tables * bags->bags; number++) {
        const float *from =
                dout + (size_t)(number % bags->bags * bags->tables + number / bags->bags) * dim;
        for (int64_t i = bags->offsets[number]; i < bags->offsets[number + 1]; i++) {
            size_t row = (size_t)bags->ids[i];
            if (row >= rows || bags->places[row] < 0 || bags->places[row] >= bags->slots)
                rc = error_set(err, -EINVAL, "embedding update: number %zu of %zu", row, rows);
            for (size_t j = 0; j < dim && rc == 0; j++)
                grad[row * dim + j] += from[j];
        }
    }
    for (size_t i = 0; i < rows * dim && rc == 0; i++) {
        size_t at = (size_t)bags->places[i / dim] * dim + i % dim;
        update->state[at] += grad[i] * grad[i];
        ((float *)bags->rows[0])[at] -=
                update->rate * grad[i] / (sqrtf(update->state[at]) + update->epsilon);
    }
    free(grad);
    return rc;
}

// A row's gradient is summed first; here, with SGD, each lookup is taken by itself, which is the
// same but for rounding.
int kernel_bag_update(const struct kernel_bags *bags, const struct kernel_update *update,
        const float *dout, void *scratch, size_t scratch_bytes, cudaStream_t stream,
        struct error *err)
{
    size_t dim = (size_t)bags->dim;
    bool each = update->optimizer == KERNEL_ADAGRAD_EACH;
    (void)stream;
    if ((!each && update->optimizer != KERNEL_SGD) || each != (bags->places != NULL) || !scratch ||
            scratch_bytes < (size_t)bags->ids_count * 16)
        return error_set(err, -EINVAL,
                "embedding update: neither SGD nor Adagrad of each element in a cache, or too little scratch");
    if (each)
        return fake_adagrad(bags, update, dout, err);
    for (int64_t number = 0; number < bags->tables * bags->bags; number++) {
        int64_t table = number / bags->bags, bag = number % bags->bags;
        for (int64_t i = bags->offsets[number]; i < bags->offsets[number + 1]; i++)
            for (size_t j = 0; j < dim; j++)
                ((float *)bags->rows[table])[(size_t)bags->ids[i] * dim + j] -=
                        update->rate * dout[(size_t)(bag * bags->tables + table) * dim + j];
    }
    return 0;
}

int kernel_cache_move(const struct kernel_cache_moves *m, cudaStream_t stream, struct error *err)
{
    size_t dim = (size_t)m->dim;
    (void)stream;
    for (int64_t i = 0; i < m->count; i++) {
        const struct kernel_cache_move *move = &m->moves[i];
        if (dim % 4 || m->planes < 1 || m->planes > KERNEL_CACHE_PLANES_MAX || move->slot < 0 ||
                ((uintptr_t)move->in | (uintptr_t)move->out) % 16)
            return error_set(err, -EINVAL, "embedding cache: what cache.h does not allow");
        for (int plane = 0; plane < m->planes; plane++) {
            float *slot = m->slots[plane] + (size_t)move->slot * dim;
            if (move->out)
                memcpy(move->out + (size_t)plane * dim, slot, dim * sizeof *slot);
            memcpy(slot, move->in + (size_t)plane * dim, dim * sizeof *slot);
        }
    }
    return 0;
}

int kernel_adam(const struct kernel_update *update, int64_t count, const float *grad, float *param,
        float *m, float *v, cudaStream_t stream, struct error *err)
{
    const struct adam adam = {.rate = update->rate,
            .beta1 = update->beta1,
            .beta2 = update->beta2,
            .epsilon = update->epsilon,
            .step = (uint64_t)update->step};
    (void)stream;
    (void)err;
    ops_adam(fake_pool(), (size_t)count, &adam, grad, param, m, v);
    return 0;
}

// --- interaction ---------------------------------------------------------------------------------

int kernel_interaction_forward(
        const struct kernel_interaction *i, void *out, cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)i->rows, vectors = (size_t)i->vectors, dim = (size_t)i->dim,
           width = OPS_INTERACT_WIDTH(vectors, dim);
    float *x = fake_wide(i->type, i->x, rows * vectors * dim), *y = fake_floats(rows * width);
    (void)stream;
    if ((dim != 32 && dim != 64 && dim != 128) || i->stride % 8 || (size_t)i->stride < width)
        return error_set(err, -EINVAL, "interaction: what kernels.h does not allow");
    ops_interact(fake_pool(), rows, vectors, dim, x, y);
    for (size_t row = 0; row < rows; row++)
        for (size_t j = 0; j < (size_t)i->stride; j++)
            fake_put(i->type, out, row * (size_t)i->stride + j, j < width ? y[row * width + j] : 0);
    free(x);
    free(y);
    return 0;
}

int kernel_interaction_backward(const struct kernel_interaction *i, const void *dout, void *dx,
        cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)i->rows, vectors = (size_t)i->vectors, dim = (size_t)i->dim,
           width = OPS_INTERACT_WIDTH(vectors, dim);
    float *x = fake_wide(i->type, i->x, rows * vectors * dim), *dy = fake_floats(rows * width),
          *made = fake_floats(rows * vectors * dim);
    (void)stream;
    (void)err;
    for (size_t row = 0; row < rows; row++)
        for (size_t j = 0; j < width; j++)
            dy[row * width + j] = fake_get(i->type, dout, row * (size_t)i->stride + j);
    ops_interact_backward(fake_pool(), rows, vectors, dim, x, dy, made);
    fake_narrow(i->type, dx, made, rows * vectors * dim);
    free(x);
    free(dy);
    return 0;
}

// --- norms, cross entropy ------------------------------------------------------------------------

int kernel_norm_forward(const struct kernel_norm *n, cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)n->rows, width = (size_t)n->n;
    float *x = fake_wide(n->type, n->x, rows * width), *gain = fake_wide(n->type, n->gain, width),
          *bias = fake_wide(n->type, n->bias, width);
    float *y = fake_floats(rows * width), *mean = fake_floats(rows), *scale = fake_floats(rows);
    (void)stream;
    if (n->epsilon != 1e-5f || n->rms)
        return error_set(err, -EINVAL,
                "norm: the native models' epsilon is 1e-5, and they have no RMS norm");
    ops_layernorm(fake_pool(),
            &(struct layernorm){.rows = rows,
                    .n = width,
                    .x = x,
                    .gain = gain,
                    .bias = bias,
                    .y = y,
                    .mean = mean,
                    .scale = scale});
    fake_narrow(n->type, n->y, y, rows * width);
    fake_narrow(KERNEL_FLOAT32, n->mean, mean, rows);
    fake_narrow(KERNEL_FLOAT32, n->scale, scale, rows);
    free(x);
    free(gain);
    free(bias);
    return 0;
}

int kernel_norm_scratch(const struct kernel_norm *norm, size_t *ret_bytes, struct error *err)
{
    (void)err;
    *ret_bytes = (size_t)norm->n * 8;
    return 0;
}

int kernel_norm_backward(const struct kernel_norm *n, const struct kernel_norm_gradient *g,
        cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)n->rows, width = (size_t)n->n;
    float *x = fake_wide(n->type, n->x, rows * width), *gain = fake_wide(n->type, n->gain, width),
          *dy = fake_wide(n->type, g->dy, rows * width);
    float *dx = fake_floats(rows * width), *dgain = fake_floats(width), *dbias = fake_floats(width);
    (void)stream;
    (void)err;
    ops_layernorm_backward(fake_pool(),
            &(struct layernorm){.rows = rows,
                    .n = width,
                    .x = x,
                    .gain = gain,
                    .mean = n->mean,
                    .scale = n->scale},
            dy, dx, dgain, dbias);
    fake_narrow(n->type, g->dx, dx, rows * width);
    fake_narrow(n->type, g->dgain, dgain, width);
    fake_narrow(n->type, g->dbias, dbias, width);
    free(x);
    free(gain);
    free(dy);
    return 0;
}

int kernel_cross_entropy(
        const struct kernel_cross_entropy *e, cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)e->rows, n = (size_t)e->n;
    float *logits = fake_wide(e->type, e->logits, rows * n), *dlogits = fake_floats(rows * n);
    (void)stream;
    (void)err;
    ops_softmax_loss(fake_pool(), rows, n, logits, (const uint32_t *)e->target, e->loss, dlogits);
    for (size_t i = 0; i < rows * n; i++)
        dlogits[i] *= (float)rows * e->scale;
    fake_narrow(e->type, e->dlogits, dlogits, rows * n);
    free(logits);
    return 0;
}

// --- attention -----------------------------------------------------------------------------------

int kernel_attention_scratch(
        const struct kernel_attention *attention, size_t *ret_bytes, struct error *err)
{
    (void)attention;
    (void)err;
    *ret_bytes = 16;
    return 0;
}

struct fake_attention {
    const struct kernel_attention *a;
    float *q, *k, *v, *dout, *out, *dq, *dk, *dv;
};

// One query of one head: the weights of the keys that it sees, and with dout what it adds to the
// gradients.
static void fake_softmax(
        struct fake_attention *f, size_t query, size_t key, size_t seen, size_t head)
{
    const struct kernel_attention *a = f->a;
    size_t dim = (size_t)a->dim, heads = (size_t)a->heads, key_heads = (size_t)a->key_heads,
           own = (query * heads + head) * dim;
    size_t first = (key * key_heads + head * key_heads / heads) * dim, stride = key_heads * dim;
    float *p = fake_floats(seen), *dp = fake_floats(seen), top = -INFINITY, sum = 0, dot = 0;
    for (size_t j = 0; j < seen; j++) {
        for (size_t d = 0; d < dim; d++)
            p[j] += a->scale * f->q[own + d] * f->k[first + j * stride + d];
        top = p[j] > top ? p[j] : top;
    }
    for (size_t j = 0; j < seen; j++)
        sum += p[j] = expf(p[j] - top);
    a->lse[head * (size_t)a->queries + query] = top + logf(sum);
    for (size_t j = 0; j < seen; j++) {
        p[j] /= sum;
        for (size_t d = 0; d < dim; d++) {
            f->out[own + d] += p[j] * f->v[first + j * stride + d];
            dp[j] += f->dout ? f->dout[own + d] * f->v[first + j * stride + d] : 0;
        }
        dot += p[j] * dp[j];
    }
    for (size_t j = 0; j < seen && f->dout; j++)
        for (size_t d = 0; d < dim; d++) {
            float ds = a->scale * p[j] * (dp[j] - dot);
            f->dv[first + j * stride + d] += p[j] * f->dout[own + d];
            f->dk[first + j * stride + d] += ds * f->q[own + d];
            f->dq[own + d] += ds * f->k[first + j * stride + d];
        }
    free(p);
    free(dp);
}

static int fake_attention_check(const struct kernel_attention *a, struct error *err)
{
    int32_t queries = 0, keys = 0;
    for (int64_t s = 0; s < a->sequences; s++) {
        int32_t own_queries = a->query_offsets[s + 1] - a->query_offsets[s],
                own_keys = a->key_offsets[s + 1] - a->key_offsets[s];
        if (own_queries < 0 || own_keys < 0 || own_queries > a->longest_queries ||
                own_keys > a->longest_keys)
            return error_set(err, -EINVAL, "attention: sequence %lld has %d queries and %d keys",
                    (long long)s, own_queries, own_keys);
        queries += own_queries;
        keys += own_keys;
    }
    if (queries != a->queries || keys != a->keys || a->query_offsets[0] || a->key_offsets[0] ||
            (a->dim != 64 && a->dim != 128))
        return error_set(err, -EINVAL, "attention: offsets end at %d and %d, or heads of %lld",
                queries, keys, (long long)a->dim);
    if (((uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->out) % 16)
        return error_set(err, -EINVAL, "attention: no multiple of 16 bytes");
    return 0;
}

static void fake_softmax_all(struct fake_attention *f)
{
    const struct kernel_attention *a = f->a;
    for (int64_t s = 0; s < a->sequences; s++) {
        int32_t queries = a->query_offsets[s + 1] - a->query_offsets[s],
                keys = a->key_offsets[s + 1] - a->key_offsets[s];
        for (int32_t i = 0; i < queries; i++)
            for (int64_t head = 0; head < a->heads; head++) {
                int32_t seen = a->causal ? i + 1 + keys - queries : keys;
                fake_softmax(f, (size_t)(a->query_offsets[s] + i), (size_t)a->key_offsets[s],
                        seen > 0 ? (size_t)seen : 0, (size_t)head);
            }
    }
}

static struct fake_attention fake_attention_open(const struct kernel_attention *a)
{
    size_t rows = (size_t)(a->queries * a->heads * a->dim),
           key_rows = (size_t)(a->keys * a->key_heads * a->dim);
    return (struct fake_attention){.a = a,
            .q = fake_wide(a->type, a->q, rows),
            .k = fake_wide(a->type, a->k, key_rows),
            .v = fake_wide(a->type, a->v, key_rows),
            .out = fake_floats(rows),
            .dq = fake_floats(rows),
            .dk = fake_floats(key_rows),
            .dv = fake_floats(key_rows)};
}

static void fake_attention_close(struct fake_attention *f)
{
    float *all[] = {f->q, f->k, f->v, f->dout, f->out, f->dq, f->dk, f->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// SiLU's is the native models' own.
static struct silu_attention fake_silu(const struct fake_attention *f)
{
    const struct kernel_attention *a = f->a;
    return (struct silu_attention){.sequences = (size_t)a->sequences,
            .heads = (size_t)a->heads,
            .dim = (size_t)a->dim,
            .span = (size_t)(a->bias ? a->span : a->longest_keys + a->longest_queries + 1),
            .longest_keys = (size_t)a->longest_keys,
            .causal = a->causal,
            .scale = a->scale,
            .weight = a->weight,
            .query_offset = (const uint32_t *)a->query_offsets,
            .key_offset = (const uint32_t *)a->key_offsets,
            .q = f->q,
            .k = f->k,
            .v = f->v,
            .bias = a->bias,
            .out = f->out};
}

static void fake_take(enum kernel_type type, void *to, float **values, size_t count)
{
    fake_narrow(type, to, *values, count);
    *values = NULL;
}

int kernel_attention_forward(
        const struct kernel_attention *a, cudaStream_t stream, struct error *err)
{
    int rc = fake_attention_check(a, err);
    (void)stream;
    if (rc)
        return rc;
    struct fake_attention f = fake_attention_open(a);
    if (a->scores == KERNEL_SOFTMAX) {
        fake_softmax_all(&f);
    } else {
        struct silu_attention silu = fake_silu(&f);
        silu.scratch = fake_floats(ops_silu_attention_scratch(&silu, false));
        ops_silu_attention(fake_pool(), &silu);
        free(silu.scratch);
    }
    fake_take(a->type, a->out, &f.out, (size_t)(a->queries * a->heads * a->dim));
    fake_attention_close(&f);
    return 0;
}

int kernel_attention_backward(const struct kernel_attention *a,
        const struct kernel_attention_gradient *g, cudaStream_t stream, struct error *err)
{
    size_t rows = (size_t)(a->queries * a->heads * a->dim),
           key_rows = (size_t)(a->keys * a->key_heads * a->dim);
    int rc = fake_attention_check(a, err);
    (void)stream;
    if (rc)
        return rc;
    struct fake_attention f = fake_attention_open(a);
    f.dout = fake_wide(a->type, g->dout, rows);
    if (a->scores == KERNEL_SOFTMAX) {
        fake_softmax_all(&f);
    } else {
        struct silu_attention silu = fake_silu(&f);
        silu.scratch = fake_floats(ops_silu_attention_scratch(&silu, true));
        ops_silu_attention_backward(fake_pool(), &silu,
                &(struct silu_attention_gradient){
                        .dout = f.dout, .dq = f.dq, .dk = f.dk, .dv = f.dv, .dbias = g->dbias});
        free(silu.scratch);
    }
    fake_take(a->type, g->dq, &f.dq, rows);
    fake_take(a->type, g->dk, &f.dk, key_rows);
    fake_take(a->type, g->dv, &f.dv, key_rows);
    fake_attention_close(&f);
    return 0;
}
