// SPDX-License-Identifier: Apache-2.0
// What the language model is and reads, the same for every type and device: its shapes, the
// constants of Adam, and windows of a text (text.h).
#ifndef UPGATE_NATIVE_TRANSFORMER_DATA_H
#define UPGATE_NATIVE_TRANSFORMER_DATA_H

#include "reference_models/native/model.h"
#include "reference_models/native/text.h"

#define TRANSFORMER_VOCABULARY ((size_t)256)
#define TRANSFORMER_LAYERS_MAX 12
#define TRANSFORMER_RATE(dim) (0.192 / (double)(dim)) // of Adam; demo: 0.003
#define TRANSFORMER_BETA1 0.9
#define TRANSFORMER_BETA2 0.99
#define TRANSFORMER_EPSILON 1e-8
// Of several ranks: AdamW of torch/transformer.py.
#define TRANSFORMER_RANKS_RATE 1e-3
#define TRANSFORMER_RANKS_BETA2 0.999
#define TRANSFORMER_RANKS_DECAY 0.01

struct transformer_shape {
    size_t layers, dim, heads, context, batch;
};

extern const struct transformer_shape transformer_shapes[MODEL_SIZE_COUNT];
// torch/transformer.py, the batch of each rank
extern const struct transformer_shape transformer_shapes_ranks[MODEL_SIZE_COUNT];

// Reads the texts of `path`, NULL: the default; says on stderr when there is too little or too
// much. The caller frees.
int transformer_data_open(const char *path, struct text *ret_text, struct error *err);

// The windows of a step: token[batch][context], and target, the byte that follows each.
void transformer_data_draw(const struct text *text, const struct transformer_shape *shape,
        uint64_t seed, uint64_t step, uint32_t *token, uint32_t *target);
// Those of one rank, as torch/transformer.py draws them.
void transformer_data_draw_rank(const struct text *text, const struct transformer_shape *shape,
        uint64_t seed, bool train, uint32_t rank, uint64_t step, uint32_t *token, uint32_t *target);

#endif
