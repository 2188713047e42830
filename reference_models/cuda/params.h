// SPDX-License-Identifier: Apache-2.0
// The parameters of a model on the GPU: values in float32, beside them the copy in bfloat16 that
// products read, and the gradients. Planned in the order in which the CPU's model has them: its
// start values become the GPU's. A matrix is turned, [out][in], both padded with zeros to multiples
// of 8, and stays zero there.
#ifndef UPGATE_CUDA_PARAMS_H
#define UPGATE_CUDA_PARAMS_H

#include "reference_models/cuda/device.h"
#include "reference_models/native/model.h"

#define PARAMS_MAX 192

enum params_kind {
    PARAMS_NARROW, // its gradient comes as bfloat16, from products and norms
    PARAMS_WIDE    // its gradient comes as float32, and it is read as float32
};

struct params_entry {
    enum params_kind kind;
    // of the CPU's [in][out]; offset: into the arrays of its kind, then into all
    size_t in, out, in_padded, offset;
};

struct params {
    struct device *device;
    struct params_entry entry[PARAMS_MAX];
    size_t entries, narrow, wide; // values of each kind; wide ones lie behind the narrow
    float *value, *grad, *adam_m, *adam_v;
    void *copy, *narrow_grad; // bfloat16, of the narrow ones
    uint64_t updates;
    size_t shards; // so many ranks part the optimizer's state between them; 0: nobody; set before
                   // params_allocate()
    struct model_param host[PARAMS_MAX]; // of params_download()
    float *host_values;
};

static inline size_t params_padded(size_t count)
{
    return (count + 7) / 8 * 8;
}

// Plans a matrix [in][out] of the CPU's; a vector is [1][out]. Returns its number.
size_t params_add(struct params *params, enum params_kind kind, size_t in, size_t out);
// Plans `parts` layers of the CPU's, each a matrix [in][out] and its bias, as one: their matrices
// are neighbours, and so are their biases. Returns the number of the first matrix, whose bias is
// the next; out is a multiple of 64.
size_t params_add_parts(struct params *params, size_t in, size_t out, size_t parts);
// Plans a vector that is kept as it is, whatever its length: tables, biases by distance.
size_t params_add_wide(struct params *params, size_t count);
// Plans a matrix [in][out] of the CPU's whose rows [out][in] are not padded: weights of
// convolutions. Its gradient comes as float32.
size_t params_add_turned(struct params *params, size_t in, size_t out);
// Allocates, and fills from the CPU's model: its first `entries` parameters.
void params_allocate(struct params *params, struct device *device, bool train, bool adam,
        const struct model_param *start, size_t count);

float *params_value(const struct params *params, size_t number);      // float32
float *params_wide_grad(const struct params *params, size_t number);  // of a wide one
void *params_copy(const struct params *params, size_t number);        // bfloat16, of a narrow one
void *params_narrow_grad(const struct params *params, size_t number); // likewise

void params_sgd(struct params *params, float rate);
void params_adam(struct params *params, float rate, float beta1, float beta2, float epsilon);
// Of several ranks (exchange.h), on the values begin to begin + count, multiples of 8. narrow: the
// bfloat16 copies of the values; widen: the gradients in float32. adamw: its state begins at
// `state`; params->updates has been counted, and the copies are not made.
struct params_adamw {
    float rate, beta1, beta2, epsilon, decay;
};
void params_narrow(const struct params *params, size_t begin, size_t count, cudaStream_t stream);
void params_widen(const struct params *params, size_t begin, size_t count, cudaStream_t stream);
void params_adamw(struct params *params, const struct params_adamw *adamw, size_t begin,
        size_t state, size_t count);
void params_poison(struct params *params); // a NaN into each

// Copies of all, in the CPU's order and layout; `more` is put behind them. Waits.
const struct model_param *params_download(struct params *params, const struct model_param *names,
        const struct model_param *more, size_t more_count, size_t *ret_count);
void params_free(struct params *params);

#endif
