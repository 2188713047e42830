// SPDX-License-Identifier: Apache-2.0
// The windows that the language model reads: a function of (seed, step) only.
#include "reference_models/native/transformer_data.h"

#include <stdio.h>

#include "reference_models/native/rng.h"

const struct transformer_shape transformer_shapes[MODEL_SIZE_COUNT] = {
    [MODEL_SIZE_SMALL] = {.layers = 1, .dim = 32, .heads = 2, .context = 32, .batch = 8},
    [MODEL_SIZE_DEMO] = {.layers = 2, .dim = 64, .heads = 4, .context = 64, .batch = 6},
    [MODEL_SIZE_LARGE] = {.layers = 4, .dim = 256, .heads = 4, .context = 256, .batch = 8}, // heads of 64: what kernels/ has
};

int transformer_data_open(const char *path, struct text *ret_text, struct error *err)
{
    if (!path)
        path = TEXT_PATH_DEFAULT;
    int rc = text_load(path, ret_text, err);
    if (rc == 0 && ret_text->generated)
        fprintf(stderr, "'%s' holds less than %zu bytes of text, continuing with generated text\n", path, TEXT_BYTES_MIN);
    else if (rc == 0 && ret_text->truncated)
        fprintf(stderr, "'%s' holds more than %zu bytes of text, ignoring the rest\n", path, TEXT_BYTES_MAX);
    return rc;
}

void transformer_data_draw(const struct text *text, const struct transformer_shape *shape, uint64_t seed, uint64_t step,
                           uint32_t *token, uint32_t *target)
{
    size_t context = shape->context;
    for (size_t b = 0; b < shape->batch; b++) {
        struct rng rng = rng_stream(seed, RNG_USE_INPUT, step * shape->batch + b);
        const unsigned char *from = text->bytes + rng_below(&rng, text->count - context);
        for (size_t i = 0; i < context; i++) {
            token[b * context + i] = from[i];
            target[b * context + i] = from[i + 1];
        }
    }
}
