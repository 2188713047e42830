// SPDX-License-Identifier: Apache-2.0
// All-to-all through memory that all ranks see. Every rank has a box of a few parts there; ranks
// write into boxes, meet, and read. Who writes where is the model's affair. One meeting between
// writing and reading is enough for a part, if another part's comes before the next writing into
// this one: nobody gets past that other meeting before all have read.
#ifndef UPGATE_NATIVE_ALLTOALL_H
#define UPGATE_NATIVE_ALLTOALL_H

#include <stddef.h>
#include <stdint.h>

#define ALLTOALL_PARTS 3
#define ALLTOALL_ALIGN ((size_t)64)

// One rank's view; all but `rank` is the same in all ranks.
struct alltoall {
    uint32_t rank, ranks;
    size_t part_bytes[ALLTOALL_PARTS]; // of every box
    char *memory;            // alltoall_bytes() of it, aligned to ALLTOALL_ALIGN, borrowed
    void (*meet)(void *arg); // returns when all ranks have called it
    void *arg;
};

// Where a part begins in a box; that of ALLTOALL_PARTS: how large a box is.
static inline size_t alltoall_begin(const struct alltoall *alltoall, int part)
{
    size_t begin = 0;
    for (int i = 0; i < part; i++)
        begin += (alltoall->part_bytes[i] + ALLTOALL_ALIGN - 1) / ALLTOALL_ALIGN * ALLTOALL_ALIGN;
    return begin;
}

static inline size_t alltoall_bytes(const struct alltoall *alltoall)
{
    return alltoall->ranks * alltoall_begin(alltoall, ALLTOALL_PARTS);
}

static inline void *alltoall_part(const struct alltoall *alltoall, uint32_t rank, int part)
{
    return alltoall->memory + rank * alltoall_begin(alltoall, ALLTOALL_PARTS) +
            alltoall_begin(alltoall, part);
}

static inline void alltoall_meet(const struct alltoall *alltoall)
{
    alltoall->meet(alltoall->arg);
}

#endif
