// SPDX-License-Identifier: Apache-2.0
// The code objects of a process that were seen, by address: name, file and line table, read once. A
// known object is recognised by its type and by its own five fields (the addresses of its strings
// and table, and its first line), so an object that took a freed one's place is read anew.
#ifndef UPGATE_TRACER_PYSTACK_CODE_H
#define UPGATE_TRACER_PYSTACK_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tracer/pystack/layout.h"
#include "tracer/pystack/memory.h"

#define CODE_CACHE_SLOTS 16384       // a power of two
#define CODE_CACHE_ENTRIES 12288     // torch with a model has some 6000 functions that ever run
#define CODE_CACHE_BYTES (48u << 20) // of strings and tables; then all is forgotten
#define CODE_TABLE_MAX (64u << 10)   // bytes of a line table; the longest in the stdlib has 5 KiB

struct code {
    uint64_t address;
    uint64_t fields[4]; // addresses of the name, the file and the line table; the first line
    char *function;
    char *file;
    uint8_t *lines;
    size_t lines_len;
    int first_line;
    int64_t line_offset; // of the last line that was asked for
    int line;
    uint64_t round; // in which it was read last
};

struct code_cache {
    const struct layout *layout;
    struct memory *memory;
    uint64_t code_type, string_type, bytes_type; // 0: not known, not checked
    struct code **slots;
    size_t count, bytes;
    uint64_t misses;
    uint64_t round;
    bool changed; // one was found in the place of another since code_cache_refresh
};

int code_cache_init(struct code_cache *cache, const struct layout *layout, struct memory *memory);
void code_cache_clear(struct code_cache *cache); // frees everything; works half-built

// Before a walk: forget all when the bounds are reached. What the last walk returned is gone then.
void code_cache_trim(struct code_cache *cache);

// Bytes of a code object that code_cache_get wants.
size_t code_head_size(const struct layout *layout);

// The code object at `address` whose first bytes are `head`. NULL: it is none (or no memory).
const struct code *code_cache_get(struct code_cache *cache, uint64_t address, const uint8_t *head);

// The one of that address as it was when it was read; NULL: not known.
const struct code *code_cache_known(const struct code_cache *cache, uint64_t address);
// A new round: what is named from now on is to be read again first, each code object once; `all`:
// all that are known, now. True: since the last time one was found gone, or another in its place.
bool code_cache_refresh(struct code_cache *cache, bool all);

// The line of the instruction `offset` bytes into it; 0: not known.
int code_line(const struct layout *layout, const struct code *code, int64_t offset);

// A str object of the process as valid UTF-8 into buf, cut to its size. -EFAULT: none.
int code_read_string(struct code_cache *cache, uint64_t address, char *buf, size_t size);

#endif
