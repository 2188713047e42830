// SPDX-License-Identifier: Apache-2.0
// What the step loop sees of a reference model, whatever the model and the type: inputs of a step,
// forward, loss, backward, update. One thread drives a model; its pool does the work.
#ifndef UPGATE_NATIVE_MODEL_H
#define UPGATE_NATIVE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reference_models/native/pool.h"

enum model_size { MODEL_SIZE_SMALL, MODEL_SIZE_DEMO, MODEL_SIZE_LARGE, MODEL_SIZE_COUNT };

struct alltoall;
struct dlrm_cached_shape;
struct hstu_shape;
struct transformer_shape;
struct vision_shape;

// A model as one of several ranks that train it together. Its parameters and its gradients are flat
// arrays, cut into units: what the forward pass reads, and the backward pass is done with, at a
// time. `= {0}`: a rank that meets no other.
#define MODEL_UNITS_MAX 16
struct model_ranks {
    uint32_t rank;       // reads its own part of the inputs
    void *value, *grad;  // the flat arrays, zeroed, the caller's; NULL: the model has its own
    size_t updated;      // what update() works on, reals of
    void *updated_value; // these; NULL: the flat arrays
    const void *updated_grad;
    void *arg;
    // forward() is about to read the unit's parameters; NULL: nobody asks
    void (*before)(void *arg, size_t unit);
    // backward() has written its gradients; the last unit comes first
    void (*after)(void *arg, size_t unit);
    const struct alltoall *alltoall; // dlrm-sharded: what the ranks send each other
                                     // (ops/alltoall.h), all in the same order
};

struct model_opts {
    uint64_t seed;
    enum model_size size;
    bool train;     // keeps what the way back needs, and the optimizer's state
    bool plain_sgd; // SGD in place of Adam, Adagrad or momentum, rows of a cache being parameters
                    // too (the gradient check uses it); on a GPU vision can, too; -EINVAL of the
                    // others that have Adam or Adagrad
    double learning_rate;  // 0 = the model's own
    const char *text_path; // transformer: directory of texts
    size_t decode;     // transformer, inference: bytes of a sequence decoded one at a time; 0: none
    size_t batch;      // samples in one batch at most (hstu: users); 0 = the size's own
    size_t cache_rows; // dlrm-cached: rows of its cache; 0: the size's own
    uint64_t budget_bytes; // dlrm-sharded: memory of a rank for tables and their optimizer state;
                           // 0: 1.25 of an equal share
    const struct model_ranks *ranks; // transformer: that of torch/transformer.py, value by value;
                                     // outlives the model. NULL: the native one
    const struct hstu_shape *hstu_shape;               // another than the size's; NULL: that
    const struct dlrm_cached_shape *dlrm_cached_shape; // likewise
    const struct vision_shape *vision_shape;           // likewise
    const struct transformer_shape *transformer_shape; // likewise; of several ranks only
    struct pool *pool;                                 // borrowed; outlives the model
};

struct model_param {
    const char *name;
    void *value; // reals of the model's type
    size_t count;
};

struct model_note {
    const char *name;
    uint64_t value;
};
#define MODEL_NOTES_MAX 4

struct model;

struct model_ops {
    const char *name;
    size_t real_bytes; // 4 or 8
    // Every byte a step touches is mapped and written when this returns 0, but for rows of ids that
    // come later. -EINVAL or -errno.
    int (*create)(const struct model_opts *opts, struct model **ret_model, struct error *err);
    void (*destroy)(struct model *model); // NULL is fine
    // The inputs: a function of seed and step; dlrm-cached: of seed and how many have been loaded.
    void (*load)(struct model *model, uint64_t step);
    void (*forward)(struct model *model);
    void (*decode)(struct model *model); // inference, behind forward(), which was the prompt then;
                                         // NULL: no such thing
    double (*loss)(struct model *model); // mean over the batch; training only, as what follows
    void (*backward)(struct model *model);
    void (*update)(struct model *model);
    // On a device, where the four above only start the work (NULL on the CPU): waits for it; the
    // loss, which loss() has not.
    double (*settle)(struct model *model);
    // NaN into every parameter; NULL: params() are the parameters themselves, not copies
    void (*poison)(struct model *model);
    // With opts.ranks, whatever it is now: unit u is reals first[u] up to first[u + 1], multiples
    // of REDUCE_BLOCK. Returns how many units.
    size_t (*units)(const struct model_opts *opts, size_t first[MODEL_UNITS_MAX + 1]);
    // How large the parts of the boxes must be that so many ranks need (ret->ranks, which is set).
    // -EINVAL: it cannot be, as when the tables do not fit. NULL: ranks send each other nothing but
    // gradients.
    int (*boxes)(const struct model_opts *opts, struct alltoall *ret, struct error *err);
    size_t (*samples)(const struct model *model); // items in one batch
    // Decoding: [decode + 1][samples][of a row], the first of the prompt's last row.
    const void *(*logits)(const struct model *model, size_t *ret_count);
    const struct model_param *(*params)(const struct model *model, size_t *ret_count);
    // What else the result line says, counted up to now: how many of ret[MODEL_NOTES_MAX]. NULL:
    // nothing.
    size_t (*notes)(const struct model *model, struct model_note *ret);

    // Serving (inference only; NULL: the model has none): put() fills the rows of a batch with the
    // numbers of requests, forward() computes the first set_rows() of them, score() reads the
    // answers. most numbers of a request
    size_t (*request_values)(const struct model *model, size_t *ret_least);
    // -EINVAL: a number that the model does not take; the row is as it was then.
    int (*put)(
            struct model *model, size_t row, const double *values, size_t count, struct error *err);
    void (*set_rows)(struct model *model, size_t rows); // 1..batch
    double (*score)(const struct model *model, size_t row);
};

extern const struct model_ops dlrm_ops_f32, dlrm_ops_f64, transformer_ops_f32, transformer_ops_f64,
        hstu_ops_f32, hstu_ops_f64;
extern const struct model_ops dlrm_cached_ops_f32, dlrm_cached_ops_f64, dlrm_sharded_ops_f32,
        dlrm_sharded_ops_f64, vision_ops_f32, vision_ops_f64;
// of reference_models/cuda
extern const struct model_ops dlrm_ops_cuda, transformer_ops_cuda, hstu_ops_cuda;
extern const struct model_ops dlrm_cached_ops_cuda, vision_ops_cuda; // likewise

#endif
