// SPDX-License-Identifier: Apache-2.0
// A cache of rows: who is in it, who goes, what moves. By hand, and at random against a list of
// stamps: rows that are changed in their slots are what comes back.
#include <errno.h>
#include <stdlib.h>

#include "reference_models/native/rng.h"
#include "reference_models/native/row_cache.h"
#include "runner.h"

static struct row_cache cache_of(size_t slots, size_t batch)
{
    struct row_cache cache;
    CHECK_INT(row_cache_init(&cache, slots, batch, NULL), 0);
    return cache;
}

TEST(a_row_stays_while_a_batch_wants_it)
{
    struct row_cache cache = cache_of(4, 4);
    static const int64_t first[] = {10, 20, 30}, second[] = {30, 40}, third[] = {50},
                         fourth[] = {10};
    uint32_t a[3], b[2], c[1], d[1];
    CHECK(row_cache_want(&cache, 3, first, a));
    CHECK_INT(cache.out_count, 0);
    CHECK_INT(cache.in_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(a[i], i);
        CHECK_INT(cache.in[i].id, first[i]);
        CHECK(cache.in[i].fresh && cache.in[i].place == i && cache.in[i].slot == i);
    }
    CHECK(row_cache_want(&cache, 2, second, b));
    CHECK_INT(b[0], a[2]);
    CHECK_INT(b[1], 3);
    CHECK_INT(cache.in_count, 1);
    // All four are wanted: no room, and nothing has changed.
    CHECK(!row_cache_want(&cache, 1, third, c));
    CHECK_INT(row_cache_find(&cache, 50), ROW_CACHE_NONE);
    CHECK_INT(cache.hits, 1);
    CHECK_INT(cache.misses, 4);
    CHECK_INT(cache.places, 4);
    // Used last: 10. Of those that nobody wants, 20 goes first; 30 is wanted still.
    row_cache_use(&cache, 3, (const uint32_t[]){a[1], a[2], a[0]});
    row_cache_done(&cache, 3, a);
    CHECK(row_cache_want(&cache, 1, third, c));
    CHECK_INT(cache.out_count, 1);
    CHECK(cache.out[0].place == 1 && cache.out[0].slot == a[1]);
    CHECK_INT(c[0], a[1]);
    CHECK_INT(row_cache_find(&cache, 20), ROW_CACHE_NONE);
    CHECK_INT(row_cache_find(&cache, 30), a[2]);
    // A row that is there costs nothing; one that was there has its old place.
    CHECK(row_cache_want(&cache, 1, fourth, d));
    CHECK_INT(d[0], a[0]);
    CHECK(cache.out_count == 0 && cache.in_count == 0);
    row_cache_done(&cache, 1, d);
    row_cache_done(&cache, 2, b);
    CHECK(row_cache_want(&cache, 1, (const int64_t[]){20}, d));
    CHECK_INT(cache.in_count, 1);
    CHECK(!cache.in[0].fresh && cache.in[0].place == 1);
    CHECK_INT(cache.places, 5);
    row_cache_free(&cache);
}

enum { IDS = 64, SLOTS = 12, BATCH = 4, AHEAD = 3, ROUNDS = 4000 };

struct world {
    struct row_cache cache;
    struct rng rng;
    int in_slot[SLOTS], in_store[IDS], truth[IDS]; // what a row holds; of an id, what it should
    int id_of_place[IDS], wanted[IDS];
    long stamp[IDS], clock; // of an id: when it was used or fetched; 0: not in the cache
    int ids[AHEAD][BATCH], count[AHEAD], batches;
    uint32_t slots[AHEAD][BATCH];
    int refused, evicted;
};

static int world_draw(struct world *world, int *ids)
{
    bool in[IDS] = {false};
    int count = 0;
    for (int i = 0; i < BATCH; i++)
        // low ones come more often
        in[rng_below(&world->rng, i ? 1 + rng_below(&world->rng, IDS) : IDS)] = true;
    for (int id = 0; id < IDS; id++)
        if (in[id])
            ids[count++] = id;
    return count;
}

static void world_move(struct world *world)
{
    const struct row_cache *cache = &world->cache;
    for (size_t i = 0; i < cache->out_count; i++) {
        const struct row_move *move = &cache->out[i];
        int id = world->id_of_place[move->place];
        CHECK(world->stamp[id] > 0 && world->wanted[id] == 0);
        for (int other = 0; other < IDS; other++)
            if (other != id && world->stamp[other] > 0 && world->wanted[other] == 0)
                CHECK(world->stamp[other] > world->stamp[id]);
        world->stamp[id] = 0;
        world->in_store[move->place] = world->in_slot[move->slot];
        world->evicted++;
    }
    for (size_t i = 0; i < cache->in_count; i++) {
        const struct row_move *move = &cache->in[i];
        int id = (int)(move->id >> 36);
        CHECK_INT(world->stamp[id], 0);
        CHECK(move->fresh == (world->truth[id] < 0));
        if (move->fresh)
            world->truth[id] = world->in_store[move->place] = 0;
        world->id_of_place[move->place] = id;
        world->in_slot[move->slot] = world->in_store[move->place];
        world->stamp[id] = ++world->clock;
    }
}

static bool world_want(struct world *world)
{
    int *ids = world->ids[world->batches],
        count = world->count[world->batches] = world_draw(world, ids);
    uint64_t hits = world->cache.hits, misses = world->cache.misses;
    int64_t wide[BATCH] = {0};
    for (int i = 0; i < count; i++)
        wide[i] = (int64_t)ids[i] << 36;
    if (!row_cache_want(&world->cache, (size_t)count, wide, world->slots[world->batches])) {
        CHECK(world->cache.hits == hits && world->cache.misses == misses);
        world->refused++;
        return false;
    }
    CHECK_INT(world->cache.hits + world->cache.misses, hits + misses + (uint64_t)count);
    for (int i = 0; i < count; i++)
        world->wanted[ids[i]]++;
    world_move(world);
    world->batches++;
    return true;
}

static void world_step(struct world *world)
{
    row_cache_use(&world->cache, (size_t)world->count[0], world->slots[0]);
    for (int i = 0; i < world->count[0]; i++) {
        int id = world->ids[0][i];
        CHECK_INT(row_cache_find(&world->cache, (int64_t)id << 36), world->slots[0][i]);
        CHECK_INT(world->in_slot[world->slots[0][i]], world->truth[id]);
        world->truth[id] = ++world->in_slot[world->slots[0][i]];
        world->stamp[id] = ++world->clock;
        world->wanted[id]--;
    }
    row_cache_done(&world->cache, (size_t)world->count[0], world->slots[0]);
    world->batches--;
    memmove(world->ids, world->ids + 1, sizeof world->ids - sizeof *world->ids);
    memmove(world->count, world->count + 1, sizeof world->count - sizeof *world->count);
    memmove(world->slots, world->slots + 1, sizeof world->slots - sizeof *world->slots);
}

TEST(rows_that_come_back_are_those_that_went)
{
    struct world world = {.cache = cache_of(SLOTS - 3, BATCH), .rng = rng_stream(7, 0, 0)};
    for (int id = 0; id < IDS; id++)
        world.truth[id] = -1; // never seen
    for (int round = 0; round < ROUNDS; round++) {
        while (world.batches < AHEAD && world_want(&world))
            ;
        CHECK(world.batches > 0); // one batch always fits
        world_step(&world);
    }
    CHECK(world.refused > 10 && world.evicted > 100);
    CHECK_INT(world.cache.places, IDS);
    row_cache_free(&world.cache);
}

TEST(refused)
{
    struct row_cache cache;
    struct error err = {0};
    CHECK_INT(row_cache_init(&cache, 0, 4, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "a cache of 0 rows is not supported: 1 to 1073741824 are");
    row_cache_free(&cache);
    CHECK_INT(row_cache_init(&cache, ROW_CACHE_SLOTS_MAX + 1, 4, &err), -EINVAL);
    row_cache_free(&cache);
    row_cache_free(&cache);
}
