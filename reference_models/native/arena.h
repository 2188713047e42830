// SPDX-License-Identifier: Apache-2.0
// Memory of a workload: mapped, zeroed and faulted in before the first step, so that the time of a
// step does not depend on page faults. Freed as a whole.
#ifndef UPGATE_NATIVE_ARENA_H
#define UPGATE_NATIVE_ARENA_H

#include <stddef.h>

struct arena_block;

// `= {0}` is an empty arena.
struct arena {
    struct arena_block *blocks;
    size_t used_bytes; // in the newest block
    size_t total_bytes;
    size_t unasked_bytes; // written since it was last asked whether there is room
};

// 64-byte aligned and zeroed. Dies in words when the machine or a control group has no memory left
// for it (room.h), as xcalloc does.
void *arena_alloc(struct arena *arena, size_t count, size_t size);
void arena_free(struct arena *arena);

#endif
