// SPDX-License-Identifier: Apache-2.0
// A hash table from one 64-bit number to a 32-bit one, for the memos of host_path: each of millions of ticks asks it for the
// leaf of its stacks and the node of its place. Nothing is ever removed, and nothing depends on its order.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/host_path_index.h"

static size_t host_map_home(const struct host_map *map, uint64_t key)
{
    key ^= key >> 31;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key >> 32 ^ key) & map->mask;
}

static struct host_map_slot *host_map_find(const struct host_map *map, uint64_t key)
{
    size_t at = host_map_home(map, key);
    while (map->slots[at].value != HOST_NONE && map->slots[at].key != key)
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

uint32_t host_map_get(const struct host_map *map, uint64_t key)
{
    return map->slots ? host_map_find(map, key)->value : HOST_NONE;
}

static void host_map_grow(struct host_map *map)
{
    struct host_map old = *map;
    size_t size = old.slots ? (old.mask + 1) * 2 : 64;
    map->slots = xcalloc(size, sizeof *map->slots);
    map->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        map->slots[i].value = HOST_NONE;
    for (size_t i = 0; old.slots && i <= old.mask; i++)
        if (old.slots[i].value != HOST_NONE)
            *host_map_find(map, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

void host_map_put(struct host_map *map, uint64_t key, uint32_t value)
{
    if (!map->slots || (map->used + 1) * 2 > map->mask)
        host_map_grow(map);
    struct host_map_slot *slot = host_map_find(map, key);
    map->used += slot->value == HOST_NONE;
    *slot = (struct host_map_slot){key, value};
}

void host_map_clear(struct host_map *map)
{
    for (size_t i = 0; map->used && i <= map->mask; i++)
        map->slots[i].value = HOST_NONE;
    map->used = 0;
}

void host_map_free(struct host_map *map)
{
    free(map->slots);
    *map = (struct host_map){0};
}
