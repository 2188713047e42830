// SPDX-License-Identifier: Apache-2.0
// Causal multi-head attention, forward and backward. Compiled once per type. Rows i and
// context - 1 - i make one item, so that all items cost the same although row i has i + 1 keys.
// Keys and values are transposed first: then every inner loop runs over neighbours in memory.
#include "reference_models/native/ops/ops.h"

struct attention_work {
    struct attention shape;
    const real *dout;
    real *dprob, *dqkv;
};

static size_t attention_pairs(const struct attention *shape)
{
    return (shape->context + 1) / 2;
}

// which: 0 = query, 1 = key, 2 = value.
static size_t attention_qkv_idx(
        const struct attention *shape, size_t head, size_t row, size_t which)
{
    size_t batch = head / shape->heads, h = head % shape->heads;
    return (((batch * shape->context + row) * 3 + which) * shape->heads + h) * shape->dim;
}

static size_t attention_out_idx(const struct attention *shape, size_t head, size_t row)
{
    size_t batch = head / shape->heads, h = head % shape->heads;
    return ((batch * shape->context + row) * shape->heads + h) * shape->dim;
}

// The two rows of an item; equal for the middle row of an odd context, which is then done once.
static void attention_item_rows(const struct attention *shape, size_t item, size_t *ret_head,
        size_t ret_rows[2], size_t *ret_count)
{
    size_t pairs = attention_pairs(shape);
    *ret_head = item / pairs;
    ret_rows[0] = item % pairs;
    ret_rows[1] = shape->context - 1 - ret_rows[0];
    *ret_count = ret_rows[0] == ret_rows[1] ? 1 : 2;
}

// Item = one head of one sequence: keys to scratch[0][head][dim][context], values to scratch[1].
static void attention_transpose_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct attention_work *work = arg;
    const struct attention *shape = &work->shape;
    size_t size = shape->batch * shape->heads * shape->dim * shape->context;
    (void)again;
    for (size_t head = begin; head < end; head++) {
        for (size_t which = 0; which < 2; which++) {
            real *to = shape->scratch + which * size + head * shape->dim * shape->context;
            for (size_t row = 0; row < shape->context; row++) {
                const real *from = shape->qkv + attention_qkv_idx(shape, head, row, which + 1);
                for (size_t j = 0; j < shape->dim; j++)
                    to[j * shape->context + row] = from[j];
            }
        }
    }
}

static void attention_for(struct pool *pool, struct attention_work *work, double operations,
        pool_fn fn, const char *name)
{
    const struct attention *shape = &work->shape;
    double keys = (double)shape->context + 1;
    pool_for(pool,
            &(struct pool_work){.count = shape->batch * shape->heads * attention_pairs(shape),
                    .cost = operations * keys * (double)shape->dim,
                    .fn = fn,
                    .name = name,
                    .arg = work});
}

// to[0..keys) = sum over j of x[j] * transposed[j][0..keys)
static inline void attention_scores(size_t keys, size_t dim, size_t context, const real *x,
        const real *transposed, real *restrict to)
{
    for (size_t i = 0; i < keys; i++)
        to[i] = 0;
    for (size_t j = 0; j < dim; j++) {
        const real *restrict from = transposed + j * context;
        real factor = x[j];
        NATIVE_SIMD
        for (size_t i = 0; i < keys; i++)
            to[i] += factor * from[i];
    }
}

static inline void attention_softmax(size_t keys, real factor, real *restrict x)
{
    real top = x[0], sum = 0;
    NATIVE_SIMD_MAX(top)
    for (size_t i = 0; i < keys; i++)
        top = x[i] > top ? x[i] : top;
    NATIVE_SIMD_SUM(sum)
    for (size_t i = 0; i < keys; i++) {
        x[i] = real_exp((x[i] - top) * factor);
        sum += x[i];
    }
    real scale = 1 / sum;
    NATIVE_SIMD
    for (size_t i = 0; i < keys; i++)
        x[i] *= scale;
}

NATIVE_CLONES static void attention_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct attention_work *work = arg;
    const struct attention *shape = &work->shape;
    size_t context = shape->context, dim = shape->dim, stride = 3 * shape->heads * dim;
    real factor = 1 / NATIVE_SQRT((real)dim);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t head, rows[2], count;
        attention_item_rows(shape, item, &head, rows, &count);
        const real *key = shape->scratch + head * dim * context;
        const real *value = shape->qkv + attention_qkv_idx(shape, head, 0, 2);
        for (size_t r = 0; r < count; r++) {
            const real *query = shape->qkv + attention_qkv_idx(shape, head, rows[r], 0);
            real *restrict prob = shape->prob + (head * context + rows[r]) * context;
            real *restrict out = shape->out + attention_out_idx(shape, head, rows[r]);
            size_t keys = rows[r] + 1;
            attention_scores(keys, dim, context, query, key, prob);
            attention_softmax(keys, factor, prob);
            memset(prob + keys, 0, (context - keys) * sizeof *prob);
            memset(out, 0, dim * sizeof *out);
            for (size_t i = 0; i < keys; i++) {
                const real *restrict v = value + i * stride;
                NATIVE_SIMD
                for (size_t j = 0; j < dim; j++)
                    out[j] += prob[i] * v[j];
            }
        }
    }
}

static void attention_transpose(struct pool *pool, struct attention_work *work)
{
    const struct attention *shape = &work->shape;
    pool_for(pool,
            &(struct pool_work){.count = shape->batch * shape->heads,
                    .cost = 24.0 * (double)(shape->context * shape->dim),
                    POOL_FN(attention_transpose_part),
                    .arg = work});
}

void ops_attention(struct pool *pool, const struct attention *attention)
{
    struct attention_work work = {.shape = *attention};
    attention_transpose(pool, &work);
    attention_for(pool, &work, 10, POOL_NAMED(attention_part));
}

// Rows of the query: dprob = the gradient of the scores, and dq.
NATIVE_CLONES static void attention_query_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct attention_work *work = arg;
    const struct attention *shape = &work->shape;
    size_t context = shape->context, dim = shape->dim, stride = 3 * shape->heads * dim;
    size_t size = shape->batch * shape->heads * dim * context;
    real factor = 1 / NATIVE_SQRT((real)dim);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t head, rows[2], count;
        attention_item_rows(shape, item, &head, rows, &count);
        const real *value = shape->scratch + size + head * dim * context;
        const real *key = shape->qkv + attention_qkv_idx(shape, head, 0, 1);
        for (size_t r = 0; r < count; r++) {
            const real *dout = work->dout + attention_out_idx(shape, head, rows[r]);
            const real *restrict prob = shape->prob + (head * context + rows[r]) * context;
            real *restrict d = work->dprob + (head * context + rows[r]) * context;
            real *restrict dquery = work->dqkv + attention_qkv_idx(shape, head, rows[r], 0);
            size_t keys = rows[r] + 1;
            attention_scores(keys, dim, context, dout, value, d);
            real dot = 0;
            NATIVE_SIMD_SUM(dot)
            for (size_t i = 0; i < keys; i++)
                dot += d[i] * prob[i];
            NATIVE_SIMD
            for (size_t i = 0; i < keys; i++)
                d[i] = prob[i] * (d[i] - dot) * factor;
            memset(dquery, 0, dim * sizeof *dquery);
            for (size_t i = 0; i < keys; i++) {
                const real *restrict k = key + i * stride;
                NATIVE_SIMD
                for (size_t j = 0; j < dim; j++)
                    dquery[j] += d[i] * k[j];
            }
        }
    }
}

// Rows of the key and value: dk and dv, summed over the queries that saw them.
NATIVE_CLONES static void attention_key_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct attention_work *work = arg;
    const struct attention *shape = &work->shape;
    size_t context = shape->context, dim = shape->dim;
    size_t stride = 3 * shape->heads * dim, out_stride = shape->heads * dim;
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t head, rows[2], count;
        attention_item_rows(shape, item, &head, rows, &count);
        const real *query = shape->qkv + attention_qkv_idx(shape, head, 0, 0);
        const real *dout = work->dout + attention_out_idx(shape, head, 0);
        for (size_t r = 0; r < count; r++) {
            const real *prob = shape->prob + head * context * context + rows[r];
            const real *dscore = work->dprob + head * context * context + rows[r];
            real *restrict dkey = work->dqkv + attention_qkv_idx(shape, head, rows[r], 1);
            real *restrict dvalue = work->dqkv + attention_qkv_idx(shape, head, rows[r], 2);
            memset(dkey, 0, dim * sizeof *dkey);
            memset(dvalue, 0, dim * sizeof *dvalue);
            for (size_t i = rows[r]; i < context; i++) {
                const real *restrict q = query + i * stride, *restrict d = dout + i * out_stride;
                real s = dscore[i * context], p = prob[i * context];
                NATIVE_SIMD
                for (size_t j = 0; j < dim; j++) {
                    dkey[j] += s * q[j];
                    dvalue[j] += p * d[j];
                }
            }
        }
    }
}

void ops_attention_backward(struct pool *pool, const struct attention *attention, const real *dout,
        real *dprob, real *dqkv)
{
    struct attention_work work = {.shape = *attention, .dout = dout, .dprob = dprob, .dqkv = dqkv};
    attention_transpose(pool, &work); // scratch may have served another layer since
    attention_for(pool, &work, 8, POOL_NAMED(attention_query_part));
    attention_for(pool, &work, 8, POOL_NAMED(attention_key_part));
}

// Item = one head of one sequence: its new keys and values into the cache, then its new rows in
// turn.
NATIVE_CLONES static void attention_cached_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct attention_cached *work = arg;
    size_t heads = work->heads, dim = work->dim, stride = heads * dim;
    real factor = 1 / NATIVE_SQRT((real)dim);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t batch = item / heads, head = item % heads;
        real *key = work->key + batch * work->capacity * stride + head * dim;
        real *value = work->value + batch * work->capacity * stride + head * dim;
        real *restrict prob = work->scratch + item * work->capacity;
        for (size_t row = 0; row < work->rows; row++) {
            const real *from = work->qkv + ((batch * work->rows + row) * 3 * heads + head) * dim;
            size_t keys = work->first + row + 1;
            memcpy(key + (keys - 1) * stride, from + stride, dim * sizeof(real));
            memcpy(value + (keys - 1) * stride, from + 2 * stride, dim * sizeof(real));
            for (size_t i = 0; i < keys; i++) {
                const real *restrict k = key + i * stride;
                real sum = 0;
                NATIVE_SIMD_SUM(sum)
                for (size_t j = 0; j < dim; j++)
                    sum += from[j] * k[j];
                prob[i] = sum;
            }
            attention_softmax(keys, factor, prob);
            real *restrict out = work->out + ((batch * work->rows + row) * heads + head) * dim;
            memset(out, 0, dim * sizeof *out);
            for (size_t i = 0; i < keys; i++) {
                const real *restrict v = value + i * stride;
                NATIVE_SIMD
                for (size_t j = 0; j < dim; j++)
                    out[j] += prob[i] * v[j];
            }
        }
    }
}

void ops_attention_cached(struct pool *pool, const struct attention_cached *attention)
{
    struct attention_cached work = *attention;
    double keys = (double)work.rows * ((double)work.first + ((double)work.rows + 1) / 2);
    pool_for(pool,
            &(struct pool_work){.count = work.batch * work.heads,
                    .cost = 10 * keys * (double)work.dim,
                    POOL_FN(attention_cached_part),
                    .arg = &work});
}
