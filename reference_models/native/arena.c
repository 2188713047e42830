// SPDX-License-Identifier: Apache-2.0
// Prefaulted memory in blocks of at least 1 MiB. Huge pages are refused: whether one is free
// differs from launch to launch, and khugepaged swaps them in while the steps run; 4 KiB pages are
// the same every time. Not a general allocator: nothing is freed before the end.
#include "reference_models/native/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ARENA_BLOCK_BYTES ((size_t)1 << 20)
#define ARENA_ALIGN ((size_t)64)
#define ARENA_PAGE ((size_t)4096)

struct arena_block {
    struct arena_block *next;
    size_t bytes;
    char padding[ARENA_ALIGN - sizeof(void *) - sizeof(size_t)];
};

_Static_assert(sizeof(struct arena_block) == ARENA_ALIGN, "the first object starts aligned");

static struct arena_block *arena_block_new(size_t bytes)
{
    bytes = (bytes + sizeof(struct arena_block) + ARENA_PAGE - 1) / ARENA_PAGE * ARENA_PAGE;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "failed to map %zu bytes: out of memory; try --size small\n", bytes);
        exit(4);
    }
    madvise(map, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += ARENA_PAGE)
        ((volatile char *)map)[i] = 0;
    struct arena_block *block = (struct arena_block *)map;
    block->bytes = bytes;
    return block;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        fprintf(stderr, "failed to allocate %zu objects of %zu bytes: too many\n", count, size);
        exit(4);
    }
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (!arena->blocks || arena->blocks->bytes - arena->used_bytes < bytes) {
        struct arena_block *block =
            arena_block_new(bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES);
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used_bytes = sizeof(struct arena_block);
    }
    void *object = (char *)arena->blocks + arena->used_bytes;
    arena->used_bytes += bytes;
    arena->total_bytes += bytes;
    return object;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *next = arena->blocks->next;
        munmap(arena->blocks, arena->blocks->bytes);
        arena->blocks = next;
    }
    arena->used_bytes = 0;
    arena->total_bytes = 0;
}
