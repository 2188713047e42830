// SPDX-License-Identifier: Apache-2.0
// The hash table's growth, what adds to it and what removes.
#include "common/containers/map.h"

#include <stdlib.h>

#include "common/strings.h"

enum { MAP_SLOTS_FIRST = 64 };

static uint64_t map_key(const struct map_slot *slot)
{
    return (uint64_t)slot->key_high << 32 | slot->key_low;
}

static void map_place(struct map *map, uint64_t key, uint32_t value)
{
    size_t at = map_home(map, key);
    while (map->slots[at].value != MAP_NONE)
        at = (at + 1) & map->mask;
    map->slots[at] = (struct map_slot){(uint32_t)key, (uint32_t)(key >> 32), value};
}

// At most half full, so that a search meets a free slot soon.
static void map_grow(struct map *map)
{
    if (map->slots && map->count * 2 <= map->mask)
        return;
    map->count = 0; // of those that map_put made, only those that were set
    for (size_t i = 0; map->slots && i <= map->mask; i++)
        map->count += map->slots[i].value != MAP_NONE;
    if (map->slots && map->count * 3 <= map->mask)
        return;
    struct map old = *map;
    size_t size = old.slots ? (old.mask + 1) * 2 : MAP_SLOTS_FIRST;
    map->slots = xcalloc(size, sizeof *map->slots);
    map->mask = size - 1;
    memset(map->slots, 0xff, size * sizeof *map->slots); // MAP_NONE everywhere
    for (size_t i = 0; old.slots && i <= old.mask; i++)
        if (old.slots[i].value != MAP_NONE)
            map_place(map, map_key(&old.slots[i]), old.slots[i].value);
    free(old.slots);
}

void map_add(struct map *map, uint64_t key, uint32_t value)
{
    map_grow(map);
    map_place(map, key, value);
    map->count++;
}

uint32_t *map_put(struct map *map, uint64_t key)
{
    map_grow(map);
    size_t at = map_home(map, key);
    if (map_seek(map, key, &at) == MAP_NONE) {
        map->slots[at] = (struct map_slot){(uint32_t)key, (uint32_t)(key >> 32), MAP_NONE};
        map->count++;
    }
    return &map->slots[at].value;
}

// What a search would no longer reach behind the hole moves up into it.
void map_remove(struct map *map, uint64_t key, uint32_t value)
{
    size_t hole = 0;
    for (uint32_t found = map_first(map, key, &hole); found != value;
            found = map_next(map, key, &hole))
        if (found == MAP_NONE)
            return;
    for (size_t at = (hole + 1) & map->mask; map->slots[at].value != MAP_NONE;
            at = (at + 1) & map->mask) {
        size_t home = map_home(map, map_key(&map->slots[at]));
        if (((at - home) & map->mask) >= ((at - hole) & map->mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].value = MAP_NONE;
    map->count--;
}

void map_clear(struct map *map)
{
    if (map->count)
        memset(map->slots, 0xff, (map->mask + 1) * sizeof *map->slots);
    map->count = 0;
}

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}

size_t map_bytes(const struct map *map)
{
    return map->slots ? (map->mask + 1) * sizeof *map->slots : 0;
}
