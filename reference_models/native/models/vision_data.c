// SPDX-License-Identifier: Apache-2.0
// The planted images, from draw.h: a function of (seed, mode, step, place in the batch) only. Reads
// nothing.
#include "reference_models/native/models/vision_data.h"

#include <errno.h>

#define VISION_IMAGE_MAX 4096
#define VISION_CHANNELS_MAX 8192
#define VISION_BATCH_MAX ((size_t)1 << 20)

// clang-format off
const struct vision_shape vision_shapes[MODEL_SIZE_COUNT] = {
    [MODEL_SIZE_SMALL] = {.image = 12, .stages = 2, .blocks = 1, .channels = {8, 16}, .batch = 4,
     .pool = 8},
    [MODEL_SIZE_DEMO] = {.image = 24, .stages = 3, .blocks = 1, .channels = {16, 32, 64}, .batch =
     8, .pool = 16},
    [MODEL_SIZE_LARGE] = {.image = 224, .stages = 4, .blocks = 2, .channels = {64, 128, 256, 512},
     .batch = 64, .pool = 2},
};
// clang-format on

struct vision_shape vision_shape_of(const struct model_opts *opts)
{
    struct vision_shape shape =
            opts->vision_shape ? *opts->vision_shape : vision_shapes[opts->size];
    if (opts->batch)
        shape.batch = opts->batch;
    return shape;
}

size_t vision_block_shapes(const struct vision_shape *shape, struct vision_block_shape *ret)
{
    size_t count = 0, inputs = shape->channels[0],
           side = vision_side(shape->image, vision_stem_stride(shape));
    for (size_t stage = 0; stage < shape->stages; stage++) {
        for (size_t k = 0; k < shape->blocks; k++) {
            size_t outputs = shape->channels[stage], stride = stage > 0 && k == 0 ? 2 : 1;
            ret[count++] = (struct vision_block_shape){.side = side,
                    .inputs = inputs,
                    .outputs = outputs,
                    .stride = stride,
                    .shortcut = stride != 1 || inputs != outputs};
            side = vision_side(side, stride);
            inputs = outputs;
        }
    }
    return count;
}

int vision_shape_check(const struct vision_shape *shape, struct error *err)
{
    if (shape->stages < 1 || shape->stages > VISION_STAGES_MAX)
        return error_set(err, -EINVAL, "a network of %zu stages: it has 1 to %d", shape->stages,
                VISION_STAGES_MAX);
    if (shape->blocks < 1 || shape->blocks > VISION_BLOCKS_MAX / shape->stages)
        return error_set(err, -EINVAL, "%zu blocks in each of %zu stages: there are 1 to %zu",
                shape->blocks, shape->stages, VISION_BLOCKS_MAX / shape->stages);
    for (size_t stage = 0; stage < shape->stages; stage++)
        if (shape->channels[stage] < 1 || shape->channels[stage] > VISION_CHANNELS_MAX)
            return error_set(err, -EINVAL, "stage %zu has %zu channels: it has 1 to %d", stage,
                    shape->channels[stage], VISION_CHANNELS_MAX);
    if (shape->image < 1 || shape->image > VISION_IMAGE_MAX)
        return error_set(err, -EINVAL, "images of %zu rows: they have 1 to %d", shape->image,
                VISION_IMAGE_MAX);
    if (shape->batch < 1 || shape->batch > VISION_BATCH_MAX)
        return error_set(err, -EINVAL, "a batch of %zu images: it has 1 to %zu", shape->batch,
                VISION_BATCH_MAX);
    if (shape->pool < 1)
        return error_set(err, -EINVAL, "a pool of 0 batches: there is nothing to read");
    struct vision_block_shape blocks[VISION_BLOCKS_MAX] = {0};
    const struct vision_block_shape *last = &blocks[vision_block_shapes(shape, blocks) - 1];
    size_t side = vision_side(last->side, last->stride);
    if (shape->batch * side * side < 2) // PyTorch refuses it, too
        return error_set(err, -EINVAL,
                "the last stage has one value of each channel, which has no variance: take a larger batch or image");
    return 0;
}

void vision_patterns(const struct vision_shape *shape, uint64_t seed, double *ret)
{
    struct draw draw = draw_of(seed, "vision/patterns");
    for (size_t i = 0; i < VISION_CLASSES * vision_image_values(shape); i++)
        ret[i] = draw_uniform(&draw) - 0.5;
}

// The classes of a batch come before the noise of its images.
struct vision_image vision_image(const struct vision_shape *shape, uint64_t seed, bool train,
        uint64_t step, size_t i, const double *patterns)
{
    size_t values = vision_image_values(shape);
    struct draw draw = draw_of(seed, train ? "vision/train" : "vision/infer");
    draw.k = step % shape->pool * (shape->batch * (1 + values));
    struct vision_image image = {.noise = draw};
    image.noise.k += shape->batch + i * values;
    draw.k += i;
    image.target = (uint32_t)draw_below(&draw, VISION_CLASSES);
    image.pattern = patterns + image.target * values;
    return image;
}
