// SPDX-License-Identifier: Apache-2.0
// Tensor operations of the reference workloads, forward and backward. All arrays are row-major and
// contiguous unless a leading dimension is given; the caller owns them. Every call computes its
// whole result (nothing is accumulated into an output, except parameters by the update operations),
// so that any part may be repeated. Include real.h's NATIVE_REAL_BITS first: names get the suffix
// of the type.
#ifndef UPGATE_NATIVE_OPS_H
#define UPGATE_NATIVE_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "reference_models/native/arena.h"
#include "reference_models/native/pool.h"
#include "reference_models/native/ops/ops_names.h"
#include "reference_models/native/ops/real.h"

// C[m][n] = op(A)[m][k] * op(B)[k][n] + bias[n] (bias may be NULL). transpose_a: A is stored
// [k][m]; transpose_b: B is stored [n][k]. scratch: room for ops_gemm_scratch(k, n) reals.
struct gemm {
    size_t m, n, k;
    bool transpose_a, transpose_b;
    const real *a, *b, *bias;
    real *c, *scratch;
};
size_t ops_gemm_scratch(size_t k, size_t n);
void ops_gemm(struct pool *pool, const struct gemm *gemm);

// y = max(x, 0); dx = dy where y > 0.
void ops_relu(struct pool *pool, size_t count, const real *x, real *y);
void ops_relu_backward(struct pool *pool, size_t count, const real *y, const real *dy, real *dx);
// The tanh form of GELU.
void ops_gelu(struct pool *pool, size_t count, const real *x, real *y);
void ops_gelu_backward(struct pool *pool, size_t count, const real *x, const real *dy, real *dx);
// GELU itself, x * Phi(x) with erf, which is what PyTorch's is.
void ops_gelu_erf(struct pool *pool, size_t count, const real *x, real *y);
void ops_gelu_erf_backward(
        struct pool *pool, size_t count, const real *x, const real *dy, real *dx);
void ops_add(struct pool *pool, size_t count, const real *a, const real *b, real *sum);
void ops_mul(struct pool *pool, size_t count, const real *a, const real *b, real *product);
// y = x * sigmoid(x), and its gradient from x.
void ops_silu(struct pool *pool, size_t count, const real *x, real *y);
void ops_silu_backward(struct pool *pool, size_t count, const real *x, const real *dy, real *dx);
// sum[n] = over rows of x[rows][n]: the gradient of a bias.
void ops_column_sum(struct pool *pool, size_t rows, size_t n, const real *x, real *sum);

void ops_sgd(struct pool *pool, size_t count, real rate, const real *grad, real *param);
// SGD with momentum: velocity = momentum * velocity + grad, param -= rate * velocity. velocity
// starts at 0.
void ops_sgd_momentum(struct pool *pool, size_t count, real rate, real momentum, const real *grad,
        real *param, real *velocity);
// Adam with bias correction of `step` (from 1); m and v start at 0.
struct adam {
    real rate, beta1, beta2, epsilon;
    uint64_t step;
};
void ops_adam(struct pool *pool, size_t count, const struct adam *adam, const real *grad,
        real *param, real *m, real *v);
// AdamW: before it the parameters lose the share rate * decay of themselves.
void ops_adamw(struct pool *pool, size_t count, const struct adam *adam, real decay,
        const real *grad, real *param, real *m, real *v);

// Row-wise layer norm over n columns; saves mean and 1/sd of each row for the way back. rms: RMS
// norm, in which the mean counts as 0 and there is no bias (nor dbias: NULL).
struct layernorm {
    size_t rows, n;
    bool rms;
    const real *x, *gain, *bias;
    real *y, *mean, *scale;
};
void ops_layernorm(struct pool *pool, const struct layernorm *norm);
void ops_layernorm_backward(struct pool *pool, const struct layernorm *norm, const real *dy,
        real *dx, real *dgain, real *dbias);

// Batch norm: each column of x[rows][n] by its mean and variance over the rows. mean and scale,
// which is 1/sd, are of the columns. Running statistics are those that inference takes in place of
// a batch's own: here of one batch, with the variance over rows - 1 that PyTorch has there.
struct batchnorm {
    size_t rows, n; // with `running` two rows at least
    const real *x, *gain, *bias;
    real *y, *mean, *scale;
    real *running;   // [2][n]: where mean and scale for inference go; NULL: nowhere
    double *scratch; // ops_batchnorm_scratch(rows, n) of them; not of ops_batchnorm_apply()
};
size_t ops_batchnorm_scratch(size_t rows, size_t n);
// writes mean, scale, running and y
void ops_batchnorm(struct pool *pool, const struct batchnorm *norm);
// writes y from mean and scale as they are
void ops_batchnorm_apply(struct pool *pool, const struct batchnorm *norm);
// Of ops_batchnorm(), whose x, mean and scale it reads.
void ops_batchnorm_backward(struct pool *pool, const struct batchnorm *norm, const real *dy,
        real *dx, real *dgain, real *dbias);

// What a square kernel of odd size sees of images [batch][height][width][channels] that are padded
// by half of it with 0: a convolution is the product of these patches [batch][out height][out
// width][kernel][kernel][channels] and of its weights.
struct patches {
    size_t batch, height, width, channels, kernel, stride;
};
static inline size_t ops_patches_side(size_t side, size_t stride) // of height or width, 1 or more
{
    return (side - 1) / stride + 1;
}
static inline size_t ops_patches_rows(const struct patches *patches) // how many patches
{
    return patches->batch * ops_patches_side(patches->height, patches->stride) *
            ops_patches_side(patches->width, patches->stride);
}
void ops_im2col(struct pool *pool, const struct patches *patches, const real *image, real *patch);
// its gradient
void ops_col2im(struct pool *pool, const struct patches *patches, const real *dpatch, real *dimage);
// y[images][n] = the mean of x[images][pixels][n] over the pixels, and its gradient.
void ops_mean_pool(
        struct pool *pool, size_t images, size_t pixels, size_t n, const real *x, real *y);
void ops_mean_pool_backward(
        struct pool *pool, size_t images, size_t pixels, size_t n, const real *dy, real *dx);

// Mean cross-entropy of logits[rows][n] against target[rows]; dlogits is its gradient. row_loss has
// room for rows reals. Returns the mean loss.
double ops_softmax_loss(struct pool *pool, size_t rows, size_t n, const real *logits,
        const uint32_t *target, real *row_loss, real *dlogits);
// Mean binary cross-entropy of logits[rows] against label[rows] (0 or 1), likewise.
double ops_bce_loss(struct pool *pool, size_t rows, const real *logits, const real *label,
        real *row_loss, real *dlogits);

// Embedding bags over several tables: out[table] + row * out_stride gets the sum of the rows of
// table[.][dim] named by ids[rows][size], or, of bags of different sizes, by ids[offset[row]] up to
// ids[offset[row + 1]]. Repeats look up spare_ids instead, into nowhere: a row
// just looked up is still in the cache and would cost less than the work that it stands for.
struct bag {
    size_t size;                           // with offsets: the mean, for what it costs
    const uint32_t *ids, *spare_ids;       // spare_ids: of another batch
    const uint32_t *offset, *spare_offset; // [rows + 1]; NULL: all have `size`
    real *table, *out;
    const real *dout;
};
#define OPS_BAG_DIM_MAX 256
struct bags {
    size_t tables, rows, dim, out_stride;
    const struct bag *bag;
};
void ops_bag(struct pool *pool, const struct bags *bags);
// table[id] -= rate * dout for each id of each bag: the sparse SGD update, duplicates in order.
void ops_bag_sgd(struct pool *pool, const struct bags *bags, real rate);

// The rows that a batch named, each once: the gradient of table[row[i]] is the sum of
// dout[vector[k]], k from begin[i] up to begin[i + 1], in this order. Adagrad of each element:
// square += gradient^2, table -= rate * gradient / (sqrt(square) + epsilon). square NULL: SGD.
struct bag_rows {
    size_t rows, dim;
    const uint32_t *row, *begin, *vector; // [rows], all different; [rows + 1]; [begin[rows]]
    const real *dout;                     // [.][dim]
    real *table, *square;                 // [.][dim]
};
void ops_bag_update(struct pool *pool, const struct bag_rows *rows, real rate, real epsilon);

// out[rows][dim] = token_table[token] + position_table[row % context]; and the gradients of both.
struct token {
    size_t rows, dim, context, vocabulary;
    const uint32_t *token;
};
void ops_token(struct pool *pool, const struct token *embed, const real *token_table,
        const real *position_table, real *out);
void ops_token_backward(struct pool *pool, const struct token *embed, const real *dout,
        real *dtoken_table, real *dposition_table);

// to[row * to_stride] up to `dim` behind it = from[row * from_stride]...
void ops_copy_rows(struct pool *pool, size_t rows, size_t dim, const real *from, size_t from_stride,
        real *to, size_t to_stride);
// to[row * to_stride] up to `dim` behind it = the sum over the parts, 1 or more, of from[part][row
// * from_stride[part]]..., by the divisor.
#define OPS_SUM_PARTS_MAX 64
struct row_sum {
    size_t rows, dim, parts, to_stride;
    const real *from[OPS_SUM_PARTS_MAX];
    size_t from_stride[OPS_SUM_PARTS_MAX];
    real *to;
    real divisor;
};
void ops_sum_rows(struct pool *pool, const struct row_sum *sum);

// out[row] = x[row][0][:] followed by the dot products of all pairs of the `vectors` vectors of
// x[rows][vectors][dim], in the order (1,0) (2,0) (2,1) ...
#define OPS_INTERACT_WIDTH(vectors, dim) ((dim) + (vectors) * ((vectors)-1) / 2)
void ops_interact(
        struct pool *pool, size_t rows, size_t vectors, size_t dim, const real *x, real *out);
void ops_interact_backward(struct pool *pool, size_t rows, size_t vectors, size_t dim,
        const real *x, const real *dout, real *dx);

// Causal multi-head attention. qkv[batch][context][3][heads][dim]; out[batch][context][heads][dim].
// prob[batch][heads][context][context] is kept for the way back; scratch: 2 * batch * context *
// heads * dim reals; dprob like prob.
struct attention {
    size_t batch, context, heads, dim;
    const real *qkv;
    real *out, *prob, *scratch;
};
void ops_attention(struct pool *pool, const struct attention *attention);
void ops_attention_backward(struct pool *pool, const struct attention *attention, const real *dout,
        real *dprob, real *dqkv);

// The same of `rows` new rows of each sequence behind the `first` that are in its cache, where
// their keys and values are put: what ops_attention() gives for these rows of a whole sequence.
// qkv[batch][rows][3][heads][dim]; key and value [batch][capacity][heads][dim];
// out[batch][rows][heads][dim]; scratch: batch * heads * capacity reals.
struct attention_cached {
    size_t batch, rows, first, capacity, heads, dim;
    const real *qkv;
    real *key, *value, *out, *scratch;
};
void ops_attention_cached(struct pool *pool, const struct attention_cached *attention);

// HSTU's attention: out = weight * silu(scale * q k^T + bias) v. Sequence s has the rows
// query_offset[s] up to query_offset[s + 1] of q and out [queries][heads][dim], and key_offset[s]
// up to key_offset[s + 1] of k and v; either may be none. causal: the last query sees all keys of
// its sequence, the one before it all but the last, and so on. bias[heads][2 * span - 1], or NULL:
// [span - 1 + (place of the query - place of the key)], places from the ends of the sequence.
// scratch: ops_silu_attention_scratch() reals.
struct silu_attention {
    size_t sequences, heads, dim, span, longest_keys;
    bool causal;
    real scale, weight;
    const uint32_t *query_offset, *key_offset;
    const real *q, *k, *v, *bias;
    real *out, *scratch;
};
struct silu_attention_gradient {
    const real *dout;
    real *dq, *dk, *dv, *dbias; // dbias: NULL for none
};
size_t ops_silu_attention_scratch(const struct silu_attention *shape, bool backward);
void ops_silu_attention(struct pool *pool, const struct silu_attention *attention);
void ops_silu_attention_backward(struct pool *pool, const struct silu_attention *attention,
        const struct silu_attention_gradient *gradient);

#endif
