// SPDX-License-Identifier: Apache-2.0
// HSTU's pointwise attention, weight * silu(scale * q k^T + bias) v, over sequences of different
// lengths, forward and backward. Compiled once per type. No softmax: a query's sum over its keys
// may be taken in parts. An item is a row of one head (of the bias: a distance); the way back
// computes the scores again, so that nothing is kept between.
#include "reference_models/native/ops/ops.h"

struct silu_work {
    struct silu_attention shape;
    struct silu_attention_gradient gradient;
};

struct silu_place {
    size_t head, query, key, queries, keys; // the first rows of the sequence and its lengths
};

// The sequence in which `row` lies, by bisection; empty ones are passed over.
static size_t silu_sequence(const uint32_t *offset, size_t sequences, size_t row)
{
    size_t low = 0, high = sequences;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (offset[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static struct silu_place silu_place(
        const struct silu_attention *shape, size_t head, size_t sequence)
{
    const uint32_t *queries = shape->query_offset + sequence, *keys = shape->key_offset + sequence;
    return (struct silu_place){
            head, queries[0], keys[0], queries[1] - queries[0], keys[1] - keys[0]};
}

// Keys that query i of the sequence sees: the last query sees all.
static size_t silu_seen(
        const struct silu_attention *shape, const struct silu_place *place, size_t i)
{
    if (!shape->causal)
        return place->keys;
    size_t seen = i + 1 + place->keys;
    return seen > place->queries ? seen - place->queries : 0;
}

static const real *silu_row(
        const struct silu_attention *shape, const real *x, size_t row, size_t head)
{
    return x + (row * shape->heads + head) * shape->dim;
}

static real *silu_scores(const struct silu_attention *shape, real *scores, size_t row, size_t head)
{
    return scores + (head * shape->query_offset[shape->sequences] + row) * shape->longest_keys;
}

static inline real silu_dot(size_t dim, const real *restrict a, const real *restrict b)
{
    real sum = 0;
    NATIVE_SIMD_SUM(sum)
    for (size_t j = 0; j < dim; j++)
        sum += a[j] * b[j];
    return sum;
}

static inline void silu_add(size_t dim, real factor, const real *restrict x, real *restrict sum)
{
    NATIVE_SIMD
    for (size_t j = 0; j < dim; j++)
        sum[j] += factor * x[j];
}

// The scores of one query before silu: keys 0 to what is returned.
static inline size_t silu_query_scores(const struct silu_attention *shape,
        const struct silu_place *place, size_t i, real *restrict scores)
{
    size_t seen = silu_seen(shape, place, i), span = 2 * shape->span - 1;
    const real *query = silu_row(shape, shape->q, place->query + i, place->head);
    // Places count from the ends of both: the last query stands where the last key does.
    size_t middle = shape->span - 1 + i + place->keys - place->queries;
    const real *bias = shape->bias ? shape->bias + place->head * span + middle : NULL;
    for (size_t j = 0; j < seen; j++) {
        real s = shape->scale *
                silu_dot(shape->dim, query, silu_row(shape, shape->k, place->key + j, place->head));
        scores[j] = bias ? s + *(bias - j) : s;
    }
    return seen;
}

NATIVE_CLONES static void silu_forward_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct silu_work *work = arg;
    const struct silu_attention *shape = &work->shape;
    size_t dim = shape->dim;
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t row = item / shape->heads, head = item % shape->heads;
        struct silu_place place =
                silu_place(shape, head, silu_sequence(shape->query_offset, shape->sequences, row));
        real *restrict scores = silu_scores(shape, shape->scratch, row, head);
        size_t seen = silu_query_scores(shape, &place, row - place.query, scores);
        real *restrict out = shape->out + (row * shape->heads + head) * dim;
        NATIVE_SIMD
        for (size_t j = 0; j < seen; j++)
            scores[j] *= shape->weight * real_sigmoid(scores[j]);
        memset(out, 0, dim * sizeof *out);
        for (size_t j = 0; j < seen; j++)
            silu_add(dim, scores[j], silu_row(shape, shape->v, place.key + j, head), out);
    }
}

// Rows of the query: what each key's v counts in out to scratch, the gradient of the score behind
// it, and dq.
NATIVE_CLONES static void silu_query_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct silu_work *work = arg;
    const struct silu_attention *shape = &work->shape;
    size_t dim = shape->dim;
    real *slopes = shape->scratch + ops_silu_attention_scratch(shape, false);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t row = item / shape->heads, head = item % shape->heads;
        struct silu_place place =
                silu_place(shape, head, silu_sequence(shape->query_offset, shape->sequences, row));
        real *restrict scores = silu_scores(shape, shape->scratch, row, head);
        real *restrict slope = silu_scores(shape, slopes, row, head);
        size_t seen = silu_query_scores(shape, &place, row - place.query, scores);
        const real *dout = silu_row(shape, work->gradient.dout, row, head);
        real *restrict dq = work->gradient.dq + (row * shape->heads + head) * dim;
        for (size_t j = 0; j < seen; j++)
            slope[j] = silu_dot(dim, dout, silu_row(shape, shape->v, place.key + j, head));
        NATIVE_SIMD
        for (size_t j = 0; j < seen; j++) {
            real s = scores[j], share = real_sigmoid(s);
            scores[j] = shape->weight * s * share;
            slope[j] *= shape->weight * share * (1 + s * (1 - share));
        }
        memset(dq, 0, dim * sizeof *dq);
        for (size_t j = 0; j < seen; j++)
            silu_add(dim, shape->scale * slope[j], silu_row(shape, shape->k, place.key + j, head),
                    dq);
    }
}

// Rows of the key and value: dk and dv, summed over the queries that saw them.
NATIVE_CLONES static void silu_key_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct silu_work *work = arg;
    const struct silu_attention *shape = &work->shape;
    size_t dim = shape->dim;
    real *slopes = shape->scratch + ops_silu_attention_scratch(shape, false);
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t row = item / shape->heads, head = item % shape->heads;
        struct silu_place place =
                silu_place(shape, head, silu_sequence(shape->key_offset, shape->sequences, row));
        size_t j = row - place.key,
               first = shape->causal && j + place.queries > place.keys
                ? j + place.queries - place.keys
                : 0;
        real *restrict dk = work->gradient.dk + (row * shape->heads + head) * dim;
        real *restrict dv = work->gradient.dv + (row * shape->heads + head) * dim;
        memset(dk, 0, dim * sizeof *dk);
        memset(dv, 0, dim * sizeof *dv);
        for (size_t i = first; i < place.queries; i++) {
            size_t query = place.query + i;
            silu_add(dim, silu_scores(shape, shape->scratch, query, head)[j],
                    silu_row(shape, work->gradient.dout, query, head), dv);
            silu_add(dim, shape->scale * silu_scores(shape, slopes, query, head)[j],
                    silu_row(shape, shape->q, query, head), dk);
        }
    }
}

// A distance of one head, over all sequences.
static void silu_bias_part(void *arg, size_t begin, size_t end, bool again)
{
    const struct silu_work *work = arg;
    const struct silu_attention *shape = &work->shape;
    real *slopes = shape->scratch + ops_silu_attention_scratch(shape, false);
    size_t span = 2 * shape->span - 1;
    (void)again;
    for (size_t item = begin; item < end; item++) {
        size_t head = item / span, distance = item % span;
        real sum = 0;
        for (size_t s = 0; s < shape->sequences; s++) {
            struct silu_place place = silu_place(shape, head, s);
            for (size_t i = 0; i < place.queries; i++) {
                // less j: the distance
                size_t at = shape->span - 1 + i + place.keys - place.queries;
                size_t j = at - distance; // beyond all keys where it is negative
                if (j < silu_seen(shape, &place, i))
                    sum += silu_scores(shape, slopes, place.query + i, head)[j];
            }
        }
        work->gradient.dbias[item] = sum;
    }
}

size_t ops_silu_attention_scratch(const struct silu_attention *shape, bool backward)
{
    return (backward ? 2 : 1) * shape->heads * shape->query_offset[shape->sequences] *
            shape->longest_keys;
}

static void silu_for(struct pool *pool, struct silu_work *work, size_t rows, double operations,
        pool_fn fn, const char *name)
{
    const struct silu_attention *shape = &work->shape;
    pool_for(pool,
            &(struct pool_work){.count = rows * shape->heads,
                    .cost = operations * (double)(shape->longest_keys * shape->dim) + 1,
                    .fn = fn,
                    .name = name,
                    .arg = work});
}

void ops_silu_attention(struct pool *pool, const struct silu_attention *attention)
{
    struct silu_work work = {.shape = *attention};
    silu_for(pool, &work, attention->query_offset[attention->sequences], 2,
            POOL_NAMED(silu_forward_part));
}

void ops_silu_attention_backward(struct pool *pool, const struct silu_attention *attention,
        const struct silu_attention_gradient *gradient)
{
    struct silu_work work = {.shape = *attention, .gradient = *gradient};
    size_t span = 2 * attention->span - 1;
    silu_for(pool, &work, attention->query_offset[attention->sequences], 3,
            POOL_NAMED(silu_query_part));
    silu_for(
            pool, &work, attention->key_offset[attention->sequences], 2, POOL_NAMED(silu_key_part));
    if (gradient->dbias)
        pool_for(pool,
                &(struct pool_work){.count = attention->heads * span,
                        .cost = (double)attention->query_offset[attention->sequences],
                        POOL_FN(silu_bias_part),
                        .arg = &work});
}
