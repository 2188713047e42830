// SPDX-License-Identifier: Apache-2.0
// The planted data of the generative recommender, from draw.h: a function of (seed, mode, step)
// only. Reads nothing.
#include "reference_models/native/models/hstu_data.h"

#include <errno.h>
#include <stdlib.h>

#include "reference_models/native/models/draw.h"

#define HSTU_TASTES 4

// With large's loss a rate of 0.02 rises, one of 0.01 falls for 400 steps: half of that.
// clang-format off
const struct hstu_shape hstu_shapes[MODEL_SIZE_COUNT] = {
    [MODEL_SIZE_SMALL] = {.layers = 1, .width = 16, .heads = 2, .users = 4, .history = 16, .targets
     = 4, .items = 500, .pool = 8, .rate = 0.05},
    [MODEL_SIZE_DEMO] = {.layers = 2, .width = 64, .heads = 2, .users = 8, .history = 64, .targets
     = 8, .items = 20000, .pool = 32, .rate = 0.05},
    [MODEL_SIZE_LARGE] = {.layers = 4, .width = 512, .heads = 4, .users = 8, .history = 2048,
     .targets = 64, .items = 1000000, .pool = 8, .rate = 0.005},
};
// clang-format on

int hstu_batch_new(const struct hstu_shape *shape, bool train, size_t users, struct hstu_batch *ret,
        struct error *err)
{
    size_t own = train ? shape->users : shape->users / 4 > 0 ? shape->users / 4 : 1;
    struct hstu_batch batch = {
            .users = users ? users : own, .targets = train ? shape->targets : 4 * shape->targets};
    batch.history = calloc(batch.users + 1, sizeof *batch.history);
    batch.ids = calloc(hstu_rows_max(shape, &batch) * HSTU_BAG, sizeof *batch.ids);
    batch.label = calloc(batch.users * batch.targets, sizeof *batch.label);
    if (!batch.history || !batch.ids || !batch.label) {
        hstu_batch_free(&batch);
        return error_set(err, -ENOMEM, "no memory for the histories of %zu users", batch.users);
    }
    *ret = batch;
    return 0;
}

void hstu_batch_free(struct hstu_batch *batch)
{
    free(batch->history);
    free(batch->ids);
    free(batch->label);
    *batch = (struct hstu_batch){.users = 0};
}

void hstu_draw(const struct hstu_shape *shape, uint64_t seed, bool train, uint64_t step,
        struct hstu_batch *batch)
{
    size_t users = batch->users, history = shape->history, all = history + batch->targets,
           each = users * all;
    struct draw draw = draw_of(seed, train ? "hstu/train" : "hstu/infer");
    draw.k = step % shape->pool * (2 * users + 3 * each);
    batch->history[0] = 0;
    for (size_t u = 0; u < users; u++)
        batch->history[u + 1] =
                batch->history[u] + (uint32_t)(history - draw_below(&draw, history / 2 + 1));
    struct draw tastes = draw, first = draw, second, third; // each of its own part of the stream
    first.k += users;
    second = first;
    second.k += each;
    third = second;
    third.k += each;
    for (size_t u = 0; u < users; u++) {
        uint32_t taste = (uint32_t)draw_below(&tastes, HSTU_TASTES),
                 length = batch->history[u + 1] - batch->history[u];
        for (size_t p = 0; p < all; p++) {
            uint32_t item =
                    (uint32_t)(draw_uniform(&first) * draw_uniform(&second) * (double)shape->items);
            double chance = draw_uniform(&third);
            bool liked = item % HSTU_TASTES == taste;
            if (p >= length && p < history)
                continue; // drawn, but behind the history's end
            size_t target = u * batch->targets + p - history,
                   row = p < history ? batch->history[u] + p : batch->history[users] + target;
            batch->ids[row * HSTU_BAG] = item;
            batch->ids[row * HSTU_BAG + 1] = (uint32_t)shape->items +
                    (p >= history                                  ? HSTU_TARGET
                                    : chance < (liked ? 0.8 : 0.3) ? HSTU_CLICKED
                                                                   : HSTU_SKIPPED);
            if (p >= history)
                batch->label[target] = chance <
                        (liked ? 0.5 : 0.25) + (double)((uint64_t)item * 40503 % 1024) * 0x1p-12;
        }
    }
}
