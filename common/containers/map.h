// SPDX-License-Identifier: Apache-2.0
// The one hash table: from a 64-bit key to a 32-bit value, mostly the index of something in an
// array. Open addressing, 12 bytes a slot, at most half of them used. Where the key is a hash of
// something longer, map_first and map_next give all values of the key, and the caller compares. No
// order. `= {0}` is empty. One owner thread.
#ifndef UPGATE_COMMON_CONTAINERS_MAP_H
#define UPGATE_COMMON_CONTAINERS_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/containers/hash.h"

#define MAP_NONE UINT32_MAX // no value

struct map_slot {
    uint32_t key_low, key_high, value; // MAP_NONE: free
};
struct map {
    struct map_slot *slots;
    size_t mask, count;
};

// Beside other values of the same key. value: not MAP_NONE.
void map_add(struct map *map, uint64_t key, uint32_t value);
// Where the value of a key stands, until the next call that adds. MAP_NONE stands there: it is new;
// not set, it is none.
uint32_t *map_put(struct map *map, uint64_t key);
// that value of the key, once; no matter where there is none
void map_remove(struct map *map, uint64_t key, uint32_t value);
void map_clear(struct map *map); // keeps its memory
void map_free(struct map *map);
size_t map_bytes(const struct map *map);

static inline size_t map_home(const struct map *map, uint64_t key)
{
    return hash_mix(0, key) & map->mask;
}

// The value at or behind slot *at with this key, and its slot; MAP_NONE: none.
static inline uint32_t map_seek(const struct map *map, uint64_t key, size_t *at)
{
    for (;; *at = (*at + 1) & map->mask) {
        const struct map_slot *slot = &map->slots[*at];
        if (slot->value == MAP_NONE ||
                (slot->key_low == (uint32_t)key && slot->key_high == (uint32_t)(key >> 32)))
            return slot->value;
    }
}

static inline uint32_t map_first(const struct map *map, uint64_t key, size_t *ret_at)
{
    if (!map->slots)
        return MAP_NONE;
    *ret_at = map_home(map, key);
    return map_seek(map, key, ret_at);
}

static inline uint32_t map_next(const struct map *map, uint64_t key, size_t *at)
{
    *at = (*at + 1) & map->mask;
    return map_seek(map, key, at);
}

// MAP_NONE: not there.
static inline uint32_t map_get(const struct map *map, uint64_t key)
{
    size_t at;
    return map_first(map, key, &at);
}

#endif
