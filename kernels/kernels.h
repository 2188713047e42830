// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels/: what a model in C or CUDA calls. Row-major, contiguous tensors in
// device memory that starts at a multiple of 16 bytes; the caller owns them. A launcher looks at
// its arguments first (-EINVAL and a sentence: nothing was launched), then puts its work into
// `stream` and returns at once; any thread, the device that is current.
#ifndef UPGATE_KERNELS_KERNELS_H
#define UPGATE_KERNELS_KERNELS_H

#ifndef __cplusplus
#include <stdbool.h>
#endif
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/error.h"

enum kernel_type { KERNEL_FLOAT32, KERNEL_FLOAT16, KERNEL_BFLOAT16 };
const char *kernel_type_name(enum kernel_type type);
size_t kernel_type_bytes(enum kernel_type type);

// y = (x - mean) * scale * gain + bias over the n columns of each row, scale = 1 / sqrt(variance +
// epsilon); `rms`: no mean and no bias, scale = 1 / sqrt(mean of squares + epsilon). All of `type`
// (float32 or bfloat16) but mean and scale, which the way back reads; both may be NULL where there
// is none.
struct kernel_norm {
    enum kernel_type type;
    bool rms;
    int64_t rows, n;
    float epsilon;
    const void *x, *gain, *bias; // [rows][n], [n], [n]
    void *y;                     // [rows][n]
    float *mean, *scale;         // [rows]
};
int kernel_norm_forward(const struct kernel_norm *norm, cudaStream_t stream, struct error *err);
// dx[rows][n], dgain[n], dbias[n] (rms: none) from dy[rows][n]; y is not read. scratch:
// kernel_norm_scratch() bytes.
struct kernel_norm_gradient {
    const void *dy;
    void *dx, *dgain, *dbias;
    float *scratch;
};
int kernel_norm_scratch(const struct kernel_norm *norm, size_t *ret_bytes, struct error *err);
int kernel_norm_backward(const struct kernel_norm *norm,
        const struct kernel_norm_gradient *gradient, cudaStream_t stream, struct error *err);

// Lookups of `bags` bags in each of `tables` tables. Bag b of table t is number t * bags + b; its
// ids are ids[offsets[number]] up to ids[offsets[number + 1]]. Tables share dim and type; a row is
// a multiple of 16 bytes.
#define KERNEL_TABLES_MAX 64
// weighted: sum of weights[i] * row
enum kernel_pooling { KERNEL_SUM, KERNEL_MEAN, KERNEL_WEIGHTED };
struct kernel_bags {
    enum kernel_type type;
    enum kernel_pooling pooling;
    int64_t tables, bags, dim, ids_count;
    void *rows[KERNEL_TABLES_MAX];         // [row_count][dim] each; written by the update only
    int64_t row_counts[KERNEL_TABLES_MAX]; // 1 to 2^31 - 1
    const int64_t *ids, *offsets;          // [ids_count], [tables * bags + 1]
    const float *weights;                  // [ids_count], of KERNEL_WEIGHTED
    const int32_t *places; // NULL; or, of the update only, in a cache (cache.h): row i of any
                           // table, and its state, is
    int64_t slots;         // row places[i] of rows[0], which has `slots`
};
// Reads ids and offsets on the device and waits: -EINVAL and which id of which bag is out of range,
// or which offset is wrong. The launchers below trust what this has seen; an empty bag is no error,
// its sum is 0.
int kernel_bags_check(const struct kernel_bags *bags, cudaStream_t stream, struct error *err);
// out[bags][tables][dim], of the tables' type; sums are in float32.
int kernel_bag_forward(
        const struct kernel_bags *bags, void *out, cudaStream_t stream, struct error *err);

// One step of an optimizer on every row that a bag names, float32 tables only: the gradient of a
// row is the sum of dout (weighted, or over the bag's length) of all lookups of it, added in the
// order of the ids: the same bits each time. state: row-wise Adagrad [all rows]: mean square so
// far; Adam [2][all rows][dim]: m, then v, moved only where a row is named; Adagrad of each element
// [all rows][dim]: sum of squares so far.
enum kernel_optimizer { KERNEL_SGD, KERNEL_ADAGRAD, KERNEL_ADAM, KERNEL_ADAGRAD_EACH };
struct kernel_update {
    enum kernel_optimizer optimizer;
    float rate, epsilon, beta1, beta2;
    int64_t step; // of Adam, from 1
    float *state;
};
int kernel_bag_update_scratch(const struct kernel_bags *bags, size_t *ret_bytes, struct error *err);
int kernel_bag_update(const struct kernel_bags *bags, const struct kernel_update *update,
        const float *dout, void *scratch, size_t scratch_bytes, cudaStream_t stream,
        struct error *err);

// Adam with bias correction over all of param[count], float32; m and v start at 0. state is not
// read.
int kernel_adam(const struct kernel_update *update, int64_t count, const float *grad, float *param,
        float *m, float *v, cudaStream_t stream, struct error *err);

// Cross entropy of logits[rows][n] against target[rows], 0 to n - 1: loss[row] = log(sum of
// exp(logits)) - logits[target], and, unless dlogits is NULL, dlogits = scale * (softmax(logits) -
// 1 at the target). float32, float16 or bfloat16, sums in float32; a row is a multiple of 16 bytes.
// A row of which every logit is -infinity gives NaN. dlogits may be logits itself.
struct kernel_cross_entropy {
    enum kernel_type type;
    int64_t rows, n;
    float scale; // above 0; 1 / rows: the gradient of the mean
    const void *logits;
    const int32_t *target;
    float *loss;
    void *dlogits;
};
// Reads the targets on the device and waits: -EINVAL and which row's is out of range. The launcher
// trusts what this has seen.
int kernel_cross_entropy_check(
        const struct kernel_cross_entropy *entropy, cudaStream_t stream, struct error *err);
int kernel_cross_entropy(
        const struct kernel_cross_entropy *entropy, cudaStream_t stream, struct error *err);

// Binary cross entropy of one logit a row, logits[row * stride], against label[row], 0 or 1:
// loss[row], and, unless dlogits is NULL, dlogits[row * stride] = scale * (sigmoid(logit) - label)
// and zeros up to the next row's. float32 or bfloat16, computed in float32.
struct kernel_binary_entropy {
    enum kernel_type type;
    int64_t rows, stride;
    float scale; // above 0; 1 / rows: the gradient of the mean
    const void *logits;
    const float *label;
    float *loss;
    void *dlogits;
};
int kernel_binary_entropy(
        const struct kernel_binary_entropy *entropy, cudaStream_t stream, struct error *err);

// One operation on every value of [outer][rows][columns]: copy: a; add: a + factor * b; mul: a * b;
// silu(a) = a * sigmoid(a); its gradient: b * silu'(a); relu: a, or 0 where a is less; its
// gradient: b, or 0 where a is 0 or less. Operands have a type (float32 or bfloat16) and strides of
// their own, in values: `outer` and `row`; the columns are neighbours. Columns and strides are
// multiples of 8. out may be an operand with the same type and strides.
enum kernel_pointwise_op {
    KERNEL_POINT_COPY,
    KERNEL_POINT_ADD,
    KERNEL_POINT_MUL,
    KERNEL_POINT_SILU,
    KERNEL_POINT_SILU_GRADIENT,
    KERNEL_POINT_RELU,
    KERNEL_POINT_RELU_GRADIENT
};
struct kernel_operand {
    void *at; // of a and b read only
    enum kernel_type type;
    int64_t outer, row;
};
struct kernel_pointwise {
    enum kernel_pointwise_op op;
    int64_t outer, rows, columns;
    float factor; // of add
    struct kernel_operand a, b, out;
};
int kernel_pointwise(const struct kernel_pointwise *work, cudaStream_t stream, struct error *err);

// The interaction of DLRM: of x[rows][vectors][dim], out[row][stride] = x[row][0], then the dot
// products of all pairs of vectors in the order (1,0) (2,0) (2,1) ..., then zeros. float16 or
// bfloat16, sums in float32; 1 to 32 vectors of 32, 64 or 128; stride a multiple of 8.
struct kernel_interaction {
    enum kernel_type type;
    int64_t rows, vectors, dim, stride;
    const void *x;
};
int kernel_interaction_forward(const struct kernel_interaction *interaction, void *out,
        cudaStream_t stream, struct error *err);
// dx from dout, of x's and out's shapes; what dout has behind the pairs is not read.
int kernel_interaction_backward(const struct kernel_interaction *interaction, const void *dout,
        void *dx, cudaStream_t stream, struct error *err);

// A layer of a perceptron through the side's own cuBLASLt, with what follows the product in its
// epilogue. float16 or bfloat16, sums in float32. act: relu, gelu in its tanh form, or none
// (identity).
//   forward: y[rows][outputs] = act(x[rows][inputs] weight[outputs][inputs]^T + bias[outputs]), and
//            in aux what the way back needs
//   input:   from dz[rows][outputs], the gradient before this layer's act, that before the act of
//            the layer below, which made x: (dz weight) * act'(aux of below), and its sum over the
//            rows, dbias[inputs]
//   weight:  dweight[outputs][inputs] = dz^T x, and, unless dbias is NULL, dbias[outputs]: the sum
//            of dz over the rows
// inputs and outputs are multiples of 8; those that have an act (forward: outputs, input: inputs)
// of 128. aux: relu rows * columns / 8 bytes, gelu rows * columns * 2; identity has none, and its
// input pass no dbias.
enum kernel_activation { KERNEL_RELU, KERNEL_GELU, KERNEL_IDENTITY };
enum kernel_mlp_pass { KERNEL_MLP_FORWARD, KERNEL_MLP_INPUT, KERNEL_MLP_WEIGHT };
struct kernel_mlp {
    enum kernel_type type;
    enum kernel_activation activation;
    enum kernel_mlp_pass pass;
    int64_t rows, inputs, outputs;
    const void *x, *weight, *dz; // what the pass reads of these
    const void *bias;            // forward
    void *aux;                   // forward: written; input: read, of the layer below
    void *out, *dbias; // y, the gradient below (with dbias, of the layer below) or dweight (with
                       // dbias, its own)
    void *workspace;   // KERNEL_MLP_WORKSPACE bytes at a multiple of 256
};
#define KERNEL_MLP_WORKSPACE ((size_t)64 << 20)
// Takes the fastest of the library's algorithms: it runs each on the pointers of the plan and
// waits; `run` launches it with the same pointers. -ENOSYS: there is no cuBLASLt, or none that can
// do this.
struct kernel_mlp_plan;
int kernel_mlp_plan(const struct kernel_mlp *mlp, struct kernel_mlp_plan **ret, struct error *err);
int kernel_mlp_run(const struct kernel_mlp_plan *plan, cudaStream_t stream, struct error *err);
void kernel_mlp_plan_free(struct kernel_mlp_plan *plan);

// A table from ids to places 0 to slots - 1, the rows of an embedding table. 32 slots are a bucket;
// an id has one bucket, and when that is full the least recently used of its ids goes. The caller
// allocates, all four at multiples of 32 bytes; kernel_hash_clear() first. Any id but INT64_MIN.
#define KERNEL_HASH_BUCKET 32
struct kernel_hash {
    int64_t slots;    // a multiple of 32, up to 2^30
    int64_t *ids;     // [slots]
    uint32_t *used;   // [slots]: the latest step in which the id was looked up or inserted
    uint8_t *digests; // [slots]: a part of the id's hash, 0: the slot is free
    uint32_t *locks;  // [slots / 32]
};
// What a call took out of the table, in no fixed order; counts[0]: how many ids, counts[1]: how
// many of the ids that were to be inserted had no place, as no slot of their bucket may be evicted.
// All in device memory, set anew by the call.
struct kernel_hash_evicted {
    int64_t *ids;     // [the count of the insert, or slots]; both NULL: they are counted only
    int32_t *places;  // likewise
    uint32_t *counts; // [2]
};
int kernel_hash_clear(const struct kernel_hash *hash, cudaStream_t stream, struct error *err);
// places[i]: the place of ids[i], -1: none. step, from 1: when the ids are used, now or later; 0:
// is not remembered.
int kernel_hash_lookup(const struct kernel_hash *hash, int64_t count, const int64_t *ids,
        uint32_t step, int32_t *places, cudaStream_t stream, struct error *err);
// The same, and ids that are not there are inserted: the same id many times has one place. No id
// used in step `keep` (1 to `step`) or later is evicted.
int kernel_hash_insert(const struct kernel_hash *hash, int64_t count, const int64_t *ids,
        uint32_t step, uint32_t keep, int32_t *places, const struct kernel_hash_evicted *evicted,
        cudaStream_t stream, struct error *err);
// Takes out all ids last used before `step`.
int kernel_hash_evict(const struct kernel_hash *hash, uint32_t step,
        const struct kernel_hash_evicted *evicted, cudaStream_t stream, struct error *err);

// Attention over sequences of different lengths, packed: sequence s has the rows query_offsets[s]
// up to query_offsets[s + 1] of q and out, and key_offsets[s] up to key_offsets[s + 1] of k and v;
// either may be none. Head h reads head h * key_heads / heads of k and v. causal: the last query
// sees all keys of its sequence, the one before it all but the last, and so on.
//   softmax: out = softmax(scale * q k^T) v; lse: log of the sum of exponentials, which the way
//       back reads. No keys: 0, and -infinity.
//   SiLU (HSTU): out = weight * silu(scale * q k^T + bias) v, bias[h][span - 1 + (place of the
//       query - place of the key)], places from the ends of the sequence; NULL: none. lse is
//       neither read nor written.
// float16 or bfloat16, sums in float32; dim 64, 128 or (SiLU) 256. A NaN may reach the sequence
// before its own. -ENOSYS: not a Hopper GPU. The offsets are read on the device and trusted: they
// start at 0, never fall, end at queries or keys; no sequence is longer than said.
enum kernel_scores { KERNEL_SOFTMAX, KERNEL_SILU };
struct kernel_attention {
    enum kernel_type type;
    enum kernel_scores scores;
    bool causal;
    int64_t sequences, heads, key_heads, dim, queries, keys, longest_queries, longest_keys;
    float scale, weight;
    const int32_t *query_offsets, *key_offsets; // [sequences + 1]
    const float *bias;                          // [heads][2 * span - 1]
    int64_t span;          // no less than the longest sequence, where there is a bias
    const void *q, *k, *v; // [queries][heads][dim], [keys][key_heads][dim]
    void *out;             // [queries][heads][dim]
    float *lse;            // [heads][queries]
    int variant; // of the tiles, for timing; 0: the default; one that this shape has not: -ERANGE
    int64_t together; // for timing: pairs of a sequence and a head (backward: of keys) whose tiles
                      // run together; 0: what the L2 holds
};
int kernel_attention_forward(
        const struct kernel_attention *attention, cudaStream_t stream, struct error *err);
// dq, dk, dv from dout, of q's, k's, v's shapes; of the forward's struct q, k, v, out and lse are
// read (SiLU: not out and lse). The sums over all keys in dq are added in no fixed order, in
// float32: its last bits differ from run to run; dk's and dv's do not. scratch:
// kernel_attention_scratch() bytes, at a multiple of 16. dbias: NULL, or the gradient of the bias,
// of its shape, added up as dq.
struct kernel_attention_gradient {
    const void *dout;
    void *dq, *dk, *dv, *scratch;
    float *dbias;
};
int kernel_attention_scratch(
        const struct kernel_attention *attention, size_t *ret_bytes, struct error *err);
int kernel_attention_backward(const struct kernel_attention *attention,
        const struct kernel_attention_gradient *gradient, cudaStream_t stream, struct error *err);

// From here on the launchers launch, in place of this program's kernels, those of the same name in
// the *.cubin of a directory, which another compiler made (ci/gpu/compilers); those of libraries
// (CUB) that it lacks stay the program's. -EINVAL: there is none, or another kernel of this program
// is in none of them; -EIO: the driver takes one not, as of another architecture.
struct kernel_origins {
    size_t side, program; // how many of the program's kernels, by name, are the side's and the
                          // program's own from here on
};
int kernel_side(const char *directory, struct kernel_origins *ret, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
