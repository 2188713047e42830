// SPDX-License-Identifier: Apache-2.0
// Prefaulted memory in blocks of at least 2 MiB, on huge pages where the kernel gives them: which
// 4 KiB pages a launch draws decides which sets of the L2 its tables share, and that draw was most
// of the spread between launches that a bursty neighbour left (docs/OVERHEAD.md). Not a general
// allocator: nothing is freed before the end.
#include "reference_models/native/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "reference_models/native/room.h"

#define ARENA_HUGE_PAGE ((size_t)2 << 20)
#define ARENA_ALIGN ((size_t)64)
#define ARENA_PAGE ((size_t)4096)
#define ARENA_UNASKED \
    ((size_t)16 << 20) // what is taken in smaller blocks without asking whether there is room

struct arena_block {
    struct arena_block *next;
    size_t bytes;
    char padding[ARENA_ALIGN - sizeof(void *) - sizeof(size_t)];
};

_Static_assert(sizeof(struct arena_block) == ARENA_ALIGN, "the first object starts aligned");

static struct arena_block *arena_block_new(struct arena *arena, size_t bytes)
{
    struct error err = {0};
    bytes = (bytes + sizeof(struct arena_block) + ARENA_HUGE_PAGE - 1) / ARENA_HUGE_PAGE *
            ARENA_HUGE_PAGE;
    size_t mapped = bytes + ARENA_HUGE_PAGE;
    arena->unasked_bytes += bytes;
    bool asked = arena->unasked_bytes >= ARENA_UNASKED;
    if (asked && room_take(bytes, "the arrays of the model", &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(error_exit_code(err.code));
    }
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        fprintf(stderr, "failed to map %zu bytes: out of memory; try --size small\n", bytes);
        exit(4);
    }
    // What lies outside the aligned part goes back, so that the block can be unmapped by its size.
    size_t head = (ARENA_HUGE_PAGE - (uintptr_t)start % ARENA_HUGE_PAGE) % ARENA_HUGE_PAGE;
    char *map = start + head;
    if (head)
        munmap(start, head);
    munmap(map + bytes, mapped - head - bytes);
    madvise(map, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += ARENA_PAGE)
        ((volatile char *)map)[i] = 0;
    if (asked) {
        room_taken(bytes);
        arena->unasked_bytes = 0;
    }
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
        struct arena_block *block = arena_block_new(arena, bytes);
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
