// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes: LEB128 with the fewest bytes, so that one number has one form, and what is the
// same is so byte by byte. Reading never goes beyond the end: what is not there, or in another
// form, makes `bad` true, and every later number is 0.
#ifndef UPGATE_COMMON_CONTAINERS_VARINT_H
#define UPGATE_COMMON_CONTAINERS_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VARINT_SIZE_MAX = 10 }; // of one number

struct varints { // that are read
    const uint8_t *at, *end;
    bool bad;
};

static inline size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

static inline size_t varint_put(uint8_t *at, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        at[size++] = (uint8_t)(value | 0x80);
    at[size++] = (uint8_t)value;
    return size;
}

static inline uint64_t varint_get(struct varints *bytes)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * VARINT_SIZE_MAX && bytes->at < bytes->end && !bytes->bad;
            shift += 7) {
        uint8_t byte = *bytes->at++;
        if (shift == 63 && byte > 1) // more than 64 bits
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        if (!byte && shift) // a needless zero
            break;
        return value;
    }
    bytes->bad = true;
    return 0;
}

// The next `size` bytes; NULL and bad: there are not so many.
static inline const uint8_t *varint_take(struct varints *bytes, size_t size)
{
    const uint8_t *at = bytes->at;
    if (bytes->bad || size > (size_t)(bytes->end - at)) {
        bytes->bad = true;
        return NULL;
    }
    bytes->at += size;
    return at;
}

// Signed numbers: 0, -1, 1, -2, …
static inline uint64_t varint_zigzag(int64_t value)
{
    return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static inline int64_t varint_unzigzag(uint64_t value)
{
    return (int64_t)(value & 1 ? ~(value >> 1) : value >> 1);
}

#endif
