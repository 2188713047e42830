// SPDX-License-Identifier: Apache-2.0
// From the hash of a content to its row.
#include "tracer/record/idmap.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { IDMAP_FIRST_CAPACITY = 1024 };

void idmap_init(struct idmap *map, size_t max)
{
    *map = (struct idmap){.max = max};
}

void idmap_free(struct idmap *map)
{
    free(map->keys);
    free(map->values);
    *map = (struct idmap){.max = map->max};
}

static size_t idmap_slot(const struct idmap *map, uint64_t key)
{
    size_t at = (size_t)(key ^ key >> 32) & (map->capacity - 1);
    while (map->keys[at] && map->keys[at] != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

uint32_t idmap_get(const struct idmap *map, uint64_t key)
{
    key += key == 0;
    return map->capacity ? map->values[idmap_slot(map, key)] : 0;
}

static void idmap_grow(struct idmap *map)
{
    struct idmap old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : IDMAP_FIRST_CAPACITY;
    map->keys = xcalloc(map->capacity, sizeof *map->keys);
    map->values = xcalloc(map->capacity, sizeof *map->values);
    for (size_t i = 0; i < old.capacity; i++) {
        if (!old.keys[i])
            continue;
        size_t at = idmap_slot(map, old.keys[i]);
        map->keys[at] = old.keys[i];
        map->values[at] = old.values[i];
    }
    free(old.keys);
    free(old.values);
}

bool idmap_put(struct idmap *map, uint64_t key, uint32_t value)
{
    key += key == 0;
    if (map->count >= map->max)
        return false;
    if (map->count * 4 >= map->capacity * 3) // longer chains than that cost more than the copy
        idmap_grow(map);
    size_t at = idmap_slot(map, key);
    map->count += map->keys[at] == 0;
    map->keys[at] = key;
    map->values[at] = value;
    return true;
}

uint64_t idmap_hash(uint64_t seed, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t hash = seed * 0x9e3779b97f4a7c15u ^ len;
    while (len) {
        uint64_t word = 0;
        size_t take = len < sizeof word ? len : sizeof word;
        memcpy(&word, at, take);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        at += take;
        len -= take;
    }
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 29;
}
