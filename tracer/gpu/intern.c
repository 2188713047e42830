// SPDX-License-Identifier: Apache-2.0
// Equal keys get equal numbers: open addressing over an array of keys, at most half full.
#include "tracer/gpu/intern.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { INTERN_CAPACITY_MIN = 64 };

struct intern {
    uint32_t words, max, count, capacity;
    uint64_t *keys;   // capacity x words
    uint32_t *hashes; // of each number
    uint32_t *index;  // 2 x capacity: number + 1, 0 = free
};

static uint32_t intern_hash(const uint64_t *key, uint32_t words)
{
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (uint32_t i = 0; i < words; i++) {
        hash = (hash ^ key[i]) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    return (uint32_t)hash;
}

static void intern_size(struct intern *intern, uint32_t capacity)
{
    intern->capacity = capacity;
    intern->keys = xrealloc(intern->keys, (size_t)capacity * intern->words * sizeof *intern->keys);
    intern->hashes = xrealloc(intern->hashes, capacity * sizeof *intern->hashes);
    free(intern->index);
    intern->index = xcalloc((size_t)capacity * 2, sizeof *intern->index);
    uint32_t mask = capacity * 2 - 1;
    for (uint32_t number = 0; number < intern->count; number++) {
        uint32_t at = intern->hashes[number] & mask;
        while (intern->index[at])
            at = (at + 1) & mask;
        intern->index[at] = number + 1;
    }
}

struct intern *intern_new(uint32_t words, uint32_t max)
{
    struct intern *intern = xcalloc(1, sizeof *intern);
    intern->words = words;
    intern->max = max;
    intern_size(intern, INTERN_CAPACITY_MIN);
    return intern;
}

void intern_free(struct intern *intern)
{
    if (!intern)
        return;
    free(intern->keys);
    free(intern->hashes);
    free(intern->index);
    free(intern);
}

uint32_t intern_number(struct intern *intern, const uint64_t *key, bool *ret_new)
{
    uint32_t hash = intern_hash(key, intern->words), mask = intern->capacity * 2 - 1, at = hash & mask;
    *ret_new = false;
    for (uint32_t number; (number = intern->index[at]) != 0; at = (at + 1) & mask)
        if (intern->hashes[number - 1] == hash &&
            memcmp(&intern->keys[(size_t)(number - 1) * intern->words], key, intern->words * sizeof *key) == 0)
            return number - 1;
    if (intern->count >= intern->max)
        return INTERN_FULL;
    if (intern->count == intern->capacity) {
        intern_size(intern, intern->capacity * 2);
        mask = intern->capacity * 2 - 1;
        for (at = hash & mask; intern->index[at];)
            at = (at + 1) & mask;
    }
    memcpy(&intern->keys[(size_t)intern->count * intern->words], key, intern->words * sizeof *key);
    intern->hashes[intern->count] = hash;
    intern->index[at] = ++intern->count;
    *ret_new = true;
    return intern->count - 1;
}

bool intern_is(const struct intern *intern, uint32_t number, const uint64_t *key)
{
    return number < intern->count &&
           memcmp(&intern->keys[(size_t)number * intern->words], key, intern->words * sizeof *key) == 0;
}

uint32_t intern_count(const struct intern *intern)
{
    return intern->count;
}

void intern_clear(struct intern *intern)
{
    intern->count = 0;
    intern_size(intern, INTERN_CAPACITY_MIN);
}
