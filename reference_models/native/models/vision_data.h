// SPDX-License-Identifier: Apache-2.0
// What the residual network is and reads, the same for every type, and the same as the PyTorch
// model's (torch/vision.py), value by value: images that are a pattern of their class under noise.
#ifndef UPGATE_NATIVE_VISION_DATA_H
#define UPGATE_NATIVE_VISION_DATA_H

#include "reference_models/native/model.h"
#include "reference_models/native/models/draw.h"

#define VISION_CLASSES 10
#define VISION_COLORS 3
#define VISION_STAGES_MAX 8
#define VISION_BLOCKS_MAX 16 // of all stages
#define VISION_RATE 0.02     // of SGD
#define VISION_MOMENTUM 0.9  // likewise

struct vision_shape {
    size_t image;                       // height and width
    size_t stages, blocks;              // blocks: in each stage
    size_t channels[VISION_STAGES_MAX]; // of each stage; height and width are halved from one to
                                        // the next
    size_t batch, pool;                 // pool: batches with inputs of their own, taken in turn
};

extern const struct vision_shape vision_shapes[MODEL_SIZE_COUNT];

// The shape of opts or of its size, with the batch of opts. Not checked.
struct vision_shape vision_shape_of(const struct model_opts *opts);

// -EINVAL and why no network has this shape.
int vision_shape_check(const struct vision_shape *shape, struct error *err);

static inline size_t vision_stem_stride(const struct vision_shape *shape)
{
    return shape->image < 64 ? 1 : 4;
}

// Height and width behind a convolution that pads by half of its odd kernel.
static inline size_t vision_side(size_t side, size_t stride)
{
    return (side - 1) / stride + 1;
}

// A block: two convolutions, the first with the stride, and a way around them, which has a
// convolution where the block's output is of another shape than its input.
struct vision_block_shape {
    // side: height and width of its input; inputs, outputs: channels
    size_t side, inputs, outputs, stride;
    bool shortcut;
};
// Of a checked shape, in the order in which they follow the stem: how many of
// ret[VISION_BLOCKS_MAX].
size_t vision_block_shapes(const struct vision_shape *shape, struct vision_block_shape *ret);

static inline size_t vision_image_values(const struct vision_shape *shape)
{
    return VISION_COLORS * shape->image * shape->image;
}

// ret[VISION_CLASSES][VISION_COLORS][image][image]
void vision_patterns(const struct vision_shape *shape, uint64_t seed, double *ret);

// An image that is about to be drawn.
struct vision_image {
    uint32_t target; // its class
    struct draw noise;
    const double *pattern; // of its class
};
struct vision_image vision_image(const struct vision_shape *shape, uint64_t seed, bool train,
        uint64_t step, size_t i, const double *patterns);
// Its values, in the order of [VISION_COLORS][image][image]: k is 0, 1, 2, ...
static inline double vision_value(struct vision_image *image, size_t k)
{
    return draw_uniform(&image->noise) * 2 - 1 + image->pattern[k];
}

#endif
