// SPDX-License-Identifier: Apache-2.0
// A Python in a block of our own memory, laid out as any version lays it out, that a target reads
// through a function of ours: every field can be made a lie.
#ifndef UPGATE_TESTS_UNIT_PYSTACK_WORLD_H
#define UPGATE_TESTS_UNIT_PYSTACK_WORLD_H

#include "tracer/pystack/target.h"

#define WORLD_BASE 0x7f0012340000ull
#define WORLD_SIZE (256u << 10)
#define WORLD_TID 4711u // of the first thread; the next has one more

struct world {
    uint8_t *bytes;
    size_t used;
    bool is_gone; // the process has ended: no read works any more
    struct layout layout;
    struct target target;
    uint64_t runtime, interpreter, gil, gc, threads[2];
    uint64_t cframes[2];
    uint64_t code_type, string_type, bytes_type;
};

// A started interpreter of 3.minor with two threads without frames, and a target that reads it.
void world_new(struct world *world, int minor);
void world_free(struct world *world);

uint64_t world_take(struct world *world, size_t size); // fresh zeroed memory
void world_put(struct world *world, uint64_t address, uint64_t value, size_t size);
void world_fill(struct world *world, uint64_t address, const void *bytes, size_t len);

uint64_t world_string(struct world *world, const char *text); // ASCII
uint64_t world_wide(struct world *world, unsigned kind, const void *units, size_t count);
uint64_t world_code(struct world *world, const char *name, const char *file, int first_line);
// A frame at its 4th instruction, which in every world_code is on the line after the first.
uint64_t world_frame(struct world *world, uint64_t code, uint64_t back);
void world_leaf(struct world *world, int thread, uint64_t frame);

int world_walk(struct world *world, unsigned tid, struct pystack_frame *frames, size_t max,
        size_t *ret_count, unsigned *ret_flags);

#endif
