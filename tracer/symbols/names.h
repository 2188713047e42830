// SPDX-License-Identifier: Apache-2.0
// Interned strings of struct symbols: each text is stored once, at an address that never moves and
// lives until the end. Bounded: at bytes_max new texts are refused and counted.
#ifndef UPGATE_TRACER_SYMBOLS_NAMES_H
#define UPGATE_TRACER_SYMBOLS_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct names {
    struct names_chunk *chunk; // newest first
    const char **slots;        // open addressing, a power of two
    size_t slot_count, count;
    uint64_t bytes, bytes_max;
    uint64_t dropped;
};

// The interned copy of len bytes, or NULL when there is no room: the caller has another word for
// it.
const char *names_intern(struct names *names, const char *text, size_t len);
void names_free(struct names *names);

#endif
