// SPDX-License-Identifier: Apache-2.0
// The arena: a list of blocks, the newest first. Small requests share a block of 64 KiB, large ones
// have their own.
#include "common/containers/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { ARENA_BLOCK_BYTES = 64 * 1024, ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, capacity;
};

struct arena {
    struct arena_block *blocks;
};

struct arena *arena_new(void)
{
    return xcalloc(1, sizeof(struct arena));
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

static size_t arena_head(void)
{
    return (sizeof(struct arena_block) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size)
{
    if (size && count > (SIZE_MAX / 2) / size)
        abort(); // a count that no recording can have: our bug
    size_t bytes = (count * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    struct arena_block *block = arena->blocks;
    if (!block || block->capacity - block->used < bytes) {
        size_t capacity = bytes > ARENA_BLOCK_BYTES / 4 ? bytes : ARENA_BLOCK_BYTES;
        block = xcalloc(1, arena_head() + capacity);
        block->capacity = capacity;
        if (capacity == bytes && arena->blocks) { // keep the shared block in front
            block->next = arena->blocks->next;
            arena->blocks->next = block;
        } else {
            block->next = arena->blocks;
            arena->blocks = block;
        }
    }
    void *bytes_at = (char *)block + arena_head() + block->used;
    block->used += bytes;
    return bytes_at;
}

char *arena_copy(struct arena *arena, const char *text)
{
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(arena_alloc(arena, size, 1), text, size);
}

char *arena_copy_utf8(struct arena *arena, const char *text)
{
    char *copy = arena_copy(arena, text);
    if (copy)
        string_make_utf8(copy, strlen(copy));
    return copy;
}

char *arena_print(struct arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    char *copy = arena_copy(arena, text);
    free(text);
    return copy;
}
