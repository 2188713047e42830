// SPDX-License-Identifier: Apache-2.0
// Arrays that grow, the binary search, the sort, the hash table, the intern table, the arena.
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/arena.h"
#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "tests/unit/runner.h"

TEST(vector_keeps_what_was_pushed)
{
    uint32_t *items = NULL;
    int count = 0; // counts of any type
    int wrong = 0;
    for (uint32_t i = 0; i < 100000; i++)
        vector_push(items, count, i);
    for (uint32_t i = 0; i < 100000; i++)
        wrong += items[i] != i;
    CHECK_INT(count, 100000);
    CHECK_INT(wrong, 0);
    free(items);
}

// As a stack at every border of its growth: ASan sees a room that is too small.
TEST(vector_goes_down_and_up)
{
    for (size_t top = 1; top < 70; top++)
        for (size_t bottom = 0; bottom <= top; bottom++) {
            struct pair {
                size_t a, b;
            } *items = NULL;
            size_t count = 0;
            while (count < top)
                vector_push(items, count, (struct pair){count, top});
            count = bottom;
            for (size_t i = 0; i < 2 * top; i++) {
                struct pair *one = vector_add(items, count);
                CHECK(one->a == 0 && one->b == 0);
                *one = (struct pair){count - 1, top};
            }
            for (size_t i = 0; i < count; i++)
                CHECK(items[i].a == i && items[i].b == top);
            free(items);
        }
}

TEST(vector_reserves_at_least_what_is_asked)
{
    size_t capacity = 0;
    char *items = vector_reserve(NULL, &capacity, 3, 1);
    CHECK_INT(capacity, 8);
    items = vector_reserve(items, &capacity, 9, 1);
    CHECK_INT(capacity, 16);
    items = vector_reserve(items, &capacity, 1000, 1);
    CHECK_INT(capacity, 1000);
    memset(items, 1, capacity);
    CHECK(vector_reserve(items, &capacity, 1000, 1) == items);
    items = vector_reserve_zero(items, &capacity, 1001, 1);
    int kept = 0, zeroes = 0;
    for (size_t i = 0; i < capacity; i++)
        *(i < 1000 ? &kept : &zeroes) += items[i] == (i < 1000);
    CHECK_INT(kept, 1000);
    CHECK_INT(zeroes, capacity - 1000);
    free(items);
}

TEST(search_narrows_to_neighbours)
{
    double out = 0, in = 2;
    search_narrow(x, out, in, 1000, x * x >= 2);
    CHECK(out * out < 2 && in * in >= 2);
    CHECK_DBL(nextafter(out, 2), in, 0);
    out = 2; // from above, and not to the end
    in = 0;
    search_narrow(x, out, in, 10, x * x <= 2);
    CHECK(out * out > 2 && in * in <= 2);
    CHECK_DBL(out - in, 2 / 1024.0, 1e-12);
}

TEST(search_finds_the_first)
{
    int values[40];
    for (int count = 0; count < 40; count++)
        for (int want = -1; want <= 2 * count + 1; want++) {
            int linear = 0;
            for (int i = 0; i < count; i++)
                values[i] = 2 * (i / 3); // some are equal
            while (linear < count && values[linear] < want)
                linear++;
            CHECK_INT(search_first(i, count, values[i] >= want), linear);
            if (count > 4)
                CHECK_INT(search_between(i, 2, count - 1, values[i] >= want),
                        linear < 2                   ? 2
                                : linear > count - 1 ? count - 1
                                                     : linear);
        }
}

TEST(map_gives_back_values)
{
    struct map map = {0};
    int wrong = 0;
    CHECK(map_get(&map, 0) == MAP_NONE);
    map_clear(&map); // nothing in it yet
    for (uint64_t i = 0; i < 50000; i++) {
        uint32_t *value = map_put(&map, i << 40); // low bits are all the same; 0 is a key, too
        wrong += *value != MAP_NONE;
        *value = (uint32_t)i;
    }
    for (uint64_t i = 0; i < 50000; i++) {
        wrong += map_get(&map, i << 40) != i || *map_put(&map, i << 40) != i;
        wrong += map_get(&map, i << 40 | 1) != MAP_NONE;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(map.count, 50000);
    CHECK(map_bytes(&map) >= 2 * 50000 * 12 && map_bytes(&map) <= 4 * 50000 * 12);
    map_clear(&map);
    CHECK(map_get(&map, 1ull << 40) == MAP_NONE && map.count == 0);
    map_free(&map);
    map_free(&map);
}

TEST(map_does_not_grow_by_what_is_not_set)
{
    struct map map = {0};
    *map_put(&map, 1) = 7;
    for (uint64_t i = 0; i < 100000; i++)
        CHECK(*map_put(&map, i << 20 | 2) == MAP_NONE);
    CHECK_INT(map_get(&map, 1), 7);
    CHECK(map_get(&map, 2) == MAP_NONE);
    CHECK(map_bytes(&map) <= 1024);
    map_free(&map);
}

// Against a table that says how often each value of each key is there.
TEST(map_removes)
{
    enum { KEYS = 40, VALUES = 4 };
    struct map map = {0};
    uint32_t there[KEYS][VALUES] = {0}, count = 0, wrong = 0, state = 1;
    map_remove(&map, 1, 1); // nothing in it yet
    for (int i = 0; i < 20000; i++) {
        state = state * 1664525 + 1013904223;
        uint32_t key = (state >> 16) % KEYS, value = (state >> 8) % VALUES;
        if (state >> 31 || count > KEYS) {
            map_remove(&map, key, value);
            count -= there[key][value] > 0;
            there[key][value] -= there[key][value] > 0;
        } else {
            map_add(&map, key, value);
            there[key][value]++;
            count++;
        }
        wrong += map.count != count;
        for (key = 0; key < KEYS; key++) {
            uint32_t seen[VALUES] = {0};
            size_t at;
            for (value = map_first(&map, key, &at); value != MAP_NONE;
                    value = map_next(&map, key, &at))
                seen[value]++;
            wrong += memcmp(seen, there[key], sizeof seen) != 0;
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(map_bytes(&map) <= 4 * KEYS * 12);
    map_free(&map);
}

TEST(map_gives_all_values_of_a_key)
{
    struct map map = {0};
    for (uint32_t i = 0; i < 3000; i++)
        map_add(&map, i % 30, i);
    for (uint64_t key = 0; key < 31; key++) {
        size_t at;
        uint64_t sum = 0, count = 0;
        for (uint32_t value = map_first(&map, key, &at); value != MAP_NONE;
                value = map_next(&map, key, &at)) {
            CHECK_INT(value % 30, key);
            sum += value / 30;
            count++;
        }
        CHECK_INT(count, key < 30 ? 100 : 0);
        CHECK_INT(sum, key < 30 ? 99 * 100 / 2 : 0);
    }
    map_free(&map);
}

TEST(hash_tells_lengths_and_seeds_apart)
{
    CHECK(hash_bytes(1, "abcdefghi", 9) != hash_bytes(1, "abcdefghj", 9));
    CHECK(hash_bytes(1, "abcdefgh", 8) != hash_bytes(2, "abcdefgh", 8));
    CHECK(hash_bytes(1, "\0", 1) != hash_bytes(1, "\0\0", 2));
}

TEST(intern_numbers_texts)
{
    struct intern *intern = intern_new();
    char text[32];
    CHECK(intern_find(intern, "", 0) == INTERN_NONE);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 5000; i++) {
            int len = snprintf(text, sizeof text, "%u%s", i, i % 2 ? "" : " and a longer one");
            CHECK_INT(intern_number(intern, text, (size_t)len), i);
            CHECK_INT(intern_find(intern, text, (size_t)len), i);
            CHECK_STR(intern_get(intern, i), text);
        }
    CHECK_INT(intern_count(intern), 5000);
    // of the length that was said
    CHECK(intern_find(intern, "1", 1) == 1 && intern_find(intern, "10", 1) == 1);
    CHECK_INT(intern_number(intern, "", 0), 5000);
    CHECK_INT(intern_text(intern, ""), 5000);
    CHECK_INT(intern_number(intern, "\0", 1), 5001); // a NUL is a byte like others
    intern_clear(intern);
    CHECK_INT(intern_count(intern), 0);
    CHECK(intern_find(intern, "1", 1) == INTERN_NONE);
    CHECK_INT(intern_text(intern, "7"), 0);
    intern_free(intern);
    intern_free(NULL);
}

TEST(arena_gives_zeroed_memory)
{
    struct arena *arena = arena_new();
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
        char *bytes = arena_alloc(arena, size, 1), *copy;
        size_t used = 0;
        for (size_t i = 0; i < size; i++)
            used += bytes[i] != 0;
        CHECK_INT(used, 0);
        CHECK_INT((uintptr_t)bytes % 16, 0);
        memset(bytes, 0xff, size); // nobody else's
        copy = arena_print(arena, "%zu", size);
        CHECK_INT(strtoul(copy, NULL, 10), size);
    }
    CHECK(arena_copy(arena, NULL) == NULL);
    arena_free(arena);
    arena_free(NULL);
}

struct sorted {
    uint32_t key, number;
};

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

TEST(sort_of_any_length_and_order)
{
    enum { COUNT_MAX = 70, BIG = 100000 };
    static const uint32_t ranges[] = {1, 2, 10, UINT32_MAX}; // of keys: all equal, few, many
    struct sorted *items = malloc(BIG * sizeof *items);
    uint64_t state = 7;
    for (size_t turn = 0; turn < 4 * COUNT_MAX + 6; turn++) {
        size_t count = turn < 4 * COUNT_MAX ? turn / 4 : BIG;
        uint64_t sum = 0, wrong = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t key = turn == 4 * COUNT_MAX + 4 ? i
                    : turn == 4 * COUNT_MAX + 5      ? BIG - i
                                                     : next_random(&state) % ranges[turn % 4];
            items[i] = (struct sorted){key, i};
        }
        sort_in_place(
                items, count, x, y, x->key < y->key || (x->key == y->key && x->number < y->number));
        for (size_t i = 0; i < count; i++) {
            sum += items[i].number;
            wrong += i &&
                    (items[i - 1].key > items[i].key ||
                            (items[i - 1].key == items[i].key &&
                                    items[i - 1].number >= items[i].number));
        }
        CHECK_INT(wrong, 0);
        // none twice: with the order of equal keys, each once
        CHECK_INT(sum, count ? (uint64_t)count * (count - 1) / 2 : 0);
    }
    free(items);
}
