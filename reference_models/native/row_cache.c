// SPDX-License-Identifier: Apache-2.0
// The bookkeeping of a cache of rows: who is where, who goes. See row_cache.h.
#include "reference_models/native/row_cache.h"

#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"

static void ring_take(struct row_cache *cache, uint32_t slot)
{
    cache->newer[cache->older[slot]] = cache->newer[slot];
    cache->older[cache->newer[slot]] = cache->older[slot];
}

static void ring_put(struct row_cache *cache, uint32_t slot)
{
    uint32_t end = cache->slots, newest = cache->older[end];
    cache->newer[newest] = slot;
    cache->older[slot] = newest;
    cache->newer[slot] = end;
    cache->older[end] = slot;
}

int row_cache_init(struct row_cache *cache, size_t slots, size_t batch, struct error *err)
{
    *cache = (struct row_cache){.slots = 0};
    if (slots < 1 || slots > ROW_CACHE_SLOTS_MAX)
        return error_set(err, -EINVAL, "a cache of %zu rows is not supported: 1 to %zu are", slots,
                ROW_CACHE_SLOTS_MAX);
    cache->slots = (uint32_t)slots;
    cache->out = calloc(batch, sizeof *cache->out);
    cache->in = calloc(batch, sizeof *cache->in);
    cache->place_in = calloc(slots, sizeof *cache->place_in);
    cache->wanted = calloc(slots, sizeof *cache->wanted);
    cache->older = calloc(slots + 1, sizeof *cache->older);
    cache->newer = calloc(slots + 1, sizeof *cache->newer);
    cache->free_slots = calloc(slots, sizeof *cache->free_slots);
    if (!cache->out || !cache->in || !cache->place_in || !cache->wanted || !cache->older ||
            !cache->newer || !cache->free_slots)
        return error_set(err, -ENOMEM, "no memory for a cache of %zu rows", slots);
    cache->older[slots] = cache->newer[slots] = cache->slots;
    for (size_t i = 0; i < slots; i++)
        cache->free_slots[i] = (uint32_t)(slots - 1 - i);
    cache->free_count = cache->slots;
    return 0;
}

void row_cache_free(struct row_cache *cache)
{
    free(cache->out);
    free(cache->in);
    free(cache->slot_of);
    free(cache->place_in);
    free(cache->wanted);
    free(cache->older);
    free(cache->newer);
    free(cache->free_slots);
    map_free(&cache->place_of);
    *cache = (struct row_cache){.slots = 0};
}

uint32_t row_cache_find(const struct row_cache *cache, int64_t id)
{
    uint32_t place = map_get(&cache->place_of, (uint64_t)id);
    return place == MAP_NONE ? ROW_CACHE_NONE : cache->slot_of[place];
}

static void cache_evict(struct row_cache *cache, size_t count)
{
    uint32_t end = cache->slots, next = cache->newer[end];
    cache->out_count = 0;
    while (cache->out_count < count && next != end) {
        uint32_t slot = next;
        next = cache->newer[slot];
        if (cache->wanted[slot])
            continue;
        ring_take(cache, slot);
        cache->slot_of[cache->place_in[slot]] = ROW_CACHE_NONE;
        cache->out[cache->out_count++] =
                (struct row_move){.place = cache->place_in[slot], .slot = slot};
        cache->free_slots[cache->free_count++] = slot;
    }
}

static uint32_t cache_place(struct row_cache *cache, int64_t id, bool *ret_fresh)
{
    uint32_t *place = map_put(&cache->place_of, (uint64_t)id);
    *ret_fresh = *place == MAP_NONE;
    if (!*ret_fresh)
        return *place;
    if (cache->places == cache->places_room) {
        cache->places_room = cache->places_room ? 2 * cache->places_room : 1024;
        cache->slot_of = xrealloc(cache->slot_of, cache->places_room * sizeof *cache->slot_of);
    }
    return *place = cache->places++;
}

static uint32_t cache_fetch(struct row_cache *cache, int64_t id)
{
    struct row_move move = {.id = id, .slot = cache->free_slots[--cache->free_count]};
    move.place = cache_place(cache, id, &move.fresh);
    cache->slot_of[move.place] = move.slot;
    cache->place_in[move.slot] = move.place;
    cache->wanted[move.slot] = 1;
    cache->wanted_slots++;
    ring_put(cache, move.slot);
    cache->in[cache->in_count++] = move;
    return move.slot;
}

bool row_cache_want(struct row_cache *cache, size_t count, const int64_t *ids, uint32_t *ret_slots)
{
    // woken: there, and no batch wanted them
    size_t missing = 0, woken = 0, used = cache->slots - cache->free_count;
    for (size_t i = 0; i < count; i++) {
        ret_slots[i] = row_cache_find(cache, ids[i]);
        if (ret_slots[i] == ROW_CACHE_NONE)
            missing++;
        else
            woken += cache->wanted[ret_slots[i]] == 0;
    }
    if (missing > cache->free_count + (used - cache->wanted_slots - woken))
        return false;
    cache->hits += count - missing;
    cache->misses += missing;
    for (size_t i = 0; i < count; i++)
        if (ret_slots[i] != ROW_CACHE_NONE && cache->wanted[ret_slots[i]]++ == 0)
            cache->wanted_slots++;
    cache_evict(cache, missing > cache->free_count ? missing - cache->free_count : 0);
    cache->in_count = 0;
    for (size_t i = 0; i < count; i++)
        if (ret_slots[i] == ROW_CACHE_NONE)
            ret_slots[i] = cache_fetch(cache, ids[i]);
    return true;
}

void row_cache_use(struct row_cache *cache, size_t count, const uint32_t *slots)
{
    for (size_t i = 0; i < count; i++) {
        ring_take(cache, slots[i]);
        ring_put(cache, slots[i]);
    }
}

void row_cache_done(struct row_cache *cache, size_t count, const uint32_t *slots)
{
    for (size_t i = 0; i < count; i++)
        if (--cache->wanted[slots[i]] == 0)
            cache->wanted_slots--;
}
