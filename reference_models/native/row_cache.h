// SPDX-License-Identifier: Apache-2.0
// Which rows of a store lie in a cache of fewer slots: a table from ids to places in the store,
// which grows, and from places to slots. A row stays in its slot as long as a batch wants it, and
// after that until another one needs the slot, the least recently used first. No rows here: the
// caller moves them as `out` and `in` say. The order in which rows are evicted is that of
// torch/dlrm-cached.py, so that hits and misses are the same. One thread at a time; dies in words
// when there is no memory for more places.
#ifndef UPGATE_NATIVE_ROW_CACHE_H
#define UPGATE_NATIVE_ROW_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/containers/map.h"
#include "common/error.h"

#define ROW_CACHE_SLOTS_MAX ((size_t)1 << 30)
#define ROW_CACHE_NONE UINT32_MAX                   // no slot
#define ROW_CACHE_SLOT_BYTES (5 * sizeof(uint32_t)) // of memory, that a slot takes here

struct row_move {
    int64_t id; // of `in` only
    uint32_t place, slot;
    bool fresh; // the id was never seen before: the row has its start values
};

struct row_cache {
    uint32_t slots;
    uint32_t places;       // ids that ever were, each with a place of its own, from 0
    uint64_t hits, misses; // of the different ids of each batch
    // Of the last row_cache_want(): first all of `out`, slot to store; then `in`, store to slot.
    // Every slot of `out` is one of `in`, too.
    struct row_move *out, *in;
    size_t out_count, in_count;
    // Its own.
    struct map place_of;
    uint32_t *slot_of; // [places]
    size_t places_room;
    uint32_t *place_in, *wanted; // [slots]; wanted: by so many batches
    uint32_t *older, *newer; // [slots + 1]: a ring of the used slots by their last use; the last
                             // entry is where it begins and ends
    uint32_t *free_slots;    // [free_count]
    uint32_t free_count, wanted_slots;
};

// slots: 1 to ROW_CACHE_SLOTS_MAX; batch: different ids of a batch at most. -EINVAL, -ENOMEM. To be
// freed in every case; zeroed is fine.
int row_cache_init(struct row_cache *cache, size_t slots, size_t batch, struct error *err);
void row_cache_free(struct row_cache *cache);

// A batch that comes, its different ids: they are in their slots, ret_slots[count], from now on
// until row_cache_done(). false: there are not enough slots that no batch wants; nothing has
// changed then but ret_slots.
bool row_cache_want(struct row_cache *cache, size_t count, const int64_t *ids, uint32_t *ret_slots);
// They are used now, in this order.
void row_cache_use(struct row_cache *cache, size_t count, const uint32_t *slots);
// The batch is done with them.
void row_cache_done(struct row_cache *cache, size_t count, const uint32_t *slots);
// ROW_CACHE_NONE: not in the cache.
uint32_t row_cache_find(const struct row_cache *cache, int64_t id);

#endif
