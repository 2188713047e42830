// SPDX-License-Identifier: Apache-2.0
// What the generative recommender is and reads, the same for every type and device, and the same as
// the PyTorch model's (torch/hstu.py), value by value: users with histories of different lengths,
// each event an item and whether it was clicked, and several targets whose clicks a planted rule
// draws from the item and from the taste that only the history tells.
#ifndef UPGATE_NATIVE_HSTU_DATA_H
#define UPGATE_NATIVE_HSTU_DATA_H

#include "reference_models/native/model.h"

#define HSTU_LAYERS_MAX 8
#define HSTU_BAG \
    2 // rows of the table that an event is: its item, and behind the items what was done with it
enum hstu_action { HSTU_SKIPPED, HSTU_CLICKED, HSTU_TARGET, HSTU_ACTIONS };

struct hstu_shape {
    // history: the longest; users, targets: of a training step
    size_t layers, width, heads, users, history, targets, items;
    size_t pool; // batches with inputs of their own, taken in turn
    double rate; // of SGD
};

extern const struct hstu_shape hstu_shapes[MODEL_SIZE_COUNT];

// Distances of a bias: a target stands behind the history, and of inference there are four times as
// many.
static inline size_t hstu_span(const struct hstu_shape *shape)
{
    return shape->history + 4 * shape->targets;
}

// The inputs of a step, as every arithmetic of the model wants them: rows of all histories, one
// behind the other, then the targets of each user.
struct hstu_batch {
    size_t users, targets; // of a user
    uint32_t *history;     // [users + 1]: where a user's history starts; the last: how many rows
    uint32_t *ids;         // [history rows + users * targets][HSTU_BAG]
    double *label;         // [users * targets]
};
// Room for the batches of this mode; users: 0: the shape's own. -ENOMEM. Freed by
// hstu_batch_free(), zeroed is fine.
int hstu_batch_new(const struct hstu_shape *shape, bool train, size_t users, struct hstu_batch *ret,
        struct error *err);
void hstu_batch_free(struct hstu_batch *batch);
static inline size_t hstu_rows_max(const struct hstu_shape *shape, const struct hstu_batch *batch)
{
    return batch->users * (shape->history + batch->targets);
}
void hstu_draw(const struct hstu_shape *shape, uint64_t seed, bool train, uint64_t step,
        struct hstu_batch *batch);

#endif
