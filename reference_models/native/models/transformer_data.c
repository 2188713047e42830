// SPDX-License-Identifier: Apache-2.0
// The windows that the language model reads: a function of (seed, step) only, with several ranks of
// (seed, mode, rank, step).
#include "reference_models/native/models/transformer_data.h"

#include <inttypes.h>
#include <stdio.h>

#include "reference_models/native/models/draw.h"
#include "reference_models/native/rng.h"

const struct transformer_shape transformer_shapes[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = {.layers = 1, .dim = 32, .heads = 2, .context = 32, .batch = 8},
        [MODEL_SIZE_DEMO] = {.layers = 2, .dim = 64, .heads = 4, .context = 64, .batch = 6},
        // heads of 64: what kernels/ has
        [MODEL_SIZE_LARGE] = {.layers = 4, .dim = 256, .heads = 4, .context = 256, .batch = 8},
};

const struct transformer_shape transformer_shapes_ranks[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = {.layers = 1, .dim = 32, .heads = 2, .context = 32, .batch = 4},
        [MODEL_SIZE_DEMO] = {.layers = 2, .dim = 128, .heads = 4, .context = 64, .batch = 4},
        [MODEL_SIZE_LARGE] = {.layers = 12, .dim = 768, .heads = 12, .context = 512, .batch = 16},
};

int transformer_data_open(const char *path, struct text *ret_text, struct error *err)
{
    if (!path)
        path = TEXT_PATH_DEFAULT;
    int rc = text_load(path, ret_text, err);
    if (rc == 0 && ret_text->generated)
        fprintf(stderr, "'%s' holds less than %zu bytes of text, continuing with generated text\n",
                path, TEXT_BYTES_MIN);
    else if (rc == 0 && ret_text->truncated)
        fprintf(stderr, "'%s' holds more than %zu bytes of text, ignoring the rest\n", path,
                TEXT_BYTES_MAX);
    return rc;
}

static void transformer_data_window(
        const unsigned char *from, size_t context, uint32_t *token, uint32_t *target)
{
    for (size_t i = 0; i < context; i++) {
        token[i] = from[i];
        target[i] = from[i + 1];
    }
}

void transformer_data_draw(const struct text *text, const struct transformer_shape *shape,
        uint64_t seed, uint64_t step, uint32_t *token, uint32_t *target)
{
    size_t context = shape->context;
    for (size_t b = 0; b < shape->batch; b++) {
        struct rng rng = rng_stream(seed, RNG_USE_INPUT, step * shape->batch + b);
        const unsigned char *from = text->bytes + rng_below(&rng, text->count - context);
        transformer_data_window(from, context, token + b * context, target + b * context);
    }
}

void transformer_data_draw_rank(const struct text *text, const struct transformer_shape *shape,
        uint64_t seed, bool train, uint32_t rank, uint64_t step, uint32_t *token, uint32_t *target)
{
    size_t context = shape->context;
    char stream[48];
    snprintf(stream, sizeof stream, "transformer/%s/%" PRIu32, train ? "train" : "infer", rank);
    struct draw draw = draw_of(seed, stream);
    draw.k = step * shape->batch;
    for (size_t b = 0; b < shape->batch; b++)
        transformer_data_window(text->bytes + draw_below(&draw, text->count - context), context,
                token + b * context, target + b * context);
}
