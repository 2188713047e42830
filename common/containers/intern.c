// SPDX-License-Identifier: Apache-2.0
// The intern table: copies in an arena, their numbers in a map by hash; the bytes are compared.
#include "common/containers/intern.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/arena.h"
#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"

struct intern_item {
    const char *bytes;
    size_t len;
};

struct intern {
    struct arena *arena;
    struct map map;
    struct intern_item *items;
    uint32_t count;
};

struct intern *intern_new(void)
{
    struct intern *intern = xcalloc(1, sizeof *intern);
    intern->arena = arena_new();
    return intern;
}

void intern_free(struct intern *intern)
{
    if (!intern)
        return;
    arena_free(intern->arena);
    map_free(&intern->map);
    free(intern->items);
    free(intern);
}

static uint32_t intern_seek(
        const struct intern *intern, uint64_t hash, const void *bytes, size_t len)
{
    size_t at;
    uint32_t number = map_first(&intern->map, hash, &at);
    while (number != MAP_NONE &&
            (intern->items[number].len != len ||
                    memcmp(intern->items[number].bytes, bytes, len) != 0))
        number = map_next(&intern->map, hash, &at);
    return number;
}

uint32_t intern_find(const struct intern *intern, const void *bytes, size_t len)
{
    return intern_seek(intern, hash_bytes(0, bytes, len), bytes, len);
}

uint32_t intern_number(struct intern *intern, const void *bytes, size_t len)
{
    uint64_t hash = hash_bytes(0, bytes, len);
    uint32_t number = intern_seek(intern, hash, bytes, len);
    if (number != MAP_NONE)
        return number;
    if (intern->count == INTERN_NONE)
        abort(); // memory ends long before
    char *copy = arena_alloc(intern->arena, len + 1, 1);
    memcpy(copy, bytes, len);
    map_add(&intern->map, hash, intern->count);
    vector_push(intern->items, intern->count, (struct intern_item){copy, len});
    return intern->count - 1;
}

uint32_t intern_text(struct intern *intern, const char *text)
{
    return intern_number(intern, text, strlen(text));
}

const char *intern_get(const struct intern *intern, uint32_t number)
{
    return intern->items[number].bytes;
}

uint32_t intern_count(const struct intern *intern)
{
    return intern->count;
}

void intern_clear(struct intern *intern)
{
    arena_free(intern->arena);
    intern->arena = arena_new();
    map_clear(&intern->map);
    intern->count = 0;
}
