// SPDX-License-Identifier: Apache-2.0
// What the decoders of decode.c (kernels, calls, the walk) and decode_kinds.c (the others) share:
// reading fields, and writing records in batches, of which decode_room.c has the parts that are
// rarely run.
#ifndef UPGATE_TRACER_INJECT_DECODE_DECODE_INSIDE_H
#define UPGATE_TRACER_INJECT_DECODE_DECODE_INSIDE_H

#include <stdbool.h>
#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/decode/decode.h"
#include "tracer/inject/decode/layout.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// CUpti_ActivityKind
enum {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_KERNEL = 3,
    KIND_DEVICE = 8,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_NAME = 11,
    KIND_MARKER = 12,
    KIND_OVERHEAD = 17,
    KIND_MEMCPY2 = 22,
    KIND_STREAM = 37,
    KIND_SYNCHRONIZATION = 38,
    KIND_MEMORY2 = 49,
    KIND_MEMORY_POOL = 50,
    KIND_GRAPH_TRACE = 51,
};

enum { DECODE_PAGES_KNOWN = 16 };

struct batch {
    unsigned char *start, *at, *end; // from start to at: written and not published
    uint64_t seen[UG_PRODUCER_COUNT], dropped[UG_PRODUCER_COUNT];
};

struct decoder {
    struct batch batch;
    const struct cupti_layout *layout;
    uint32_t producers; // bit by enum ug_spool_producer: wanted
    bool keep;
    uint64_t zero_time;
    uintptr_t pages[DECODE_PAGES_KNOWN]; // that were readable in this buffer
};

// Publishes what is open.
void decode_close(struct batch *batch);
// Room for at least `bytes`, what is open being published; false: none.
bool decode_refill(struct batch *batch, size_t bytes);
// Strings write records of their own, so what is open is published before: ask before batch_room.
// 0: no text, or dropped.
uint32_t decode_static_string(struct decoder *decoder, const char *text);
// Of a text that need not stay: by content, always.
uint32_t decode_passing_string(struct decoder *decoder, const char *text);

// The decoders of the kinds that are not kernels or calls; put NULL: passed over.
struct decode_put {
    uint8_t producer; // enum ug_spool_producer
    void (*put)(struct decoder *decoder, const unsigned char *in);
};
extern const struct decode_put decode_puts[LAYOUT_KIND_COUNT];

ALWAYS_INLINE uint32_t u32(const unsigned char *record, int offset)
{
    uint32_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

ALWAYS_INLINE uint64_t u64(const unsigned char *record, int offset)
{
    uint64_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

ALWAYS_INLINE uint16_t u16(const unsigned char *record, int offset)
{
    uint16_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

// A pointer that CUPTI gave; what no process can have at an address is no text: nothing is mapped
// below 4 KiB, and user space ends at 2^47 on x86-64 (2^56 with five levels of page tables), at
// 2^48 on arm64 (2^52 with large addresses). What lies between is asked of the kernel before it is
// read (decode_room.c).
ALWAYS_INLINE const char *text_at(const unsigned char *record, int offset)
{
    uint64_t value = u64(record, offset);
    return value >= 4096 && value < 1ull << 56 ? (const char *)(uintptr_t)value : NULL;
}

ALWAYS_INLINE void *batch_room(struct batch *batch, enum ug_spool_producer producer, size_t bytes)
{
    batch->seen[producer]++;
    if (__builtin_expect((size_t)(batch->end - batch->at) < bytes, 0) &&
            !decode_refill(batch, bytes)) {
        batch->dropped[producer]++;
        return NULL;
    }
    void *record = batch->at;
    batch->at += bytes;
    return record;
}

ALWAYS_INLINE struct ug_rec_head head(enum ug_record_type type, size_t bytes, uint32_t tid)
{
    return (struct ug_rec_head){.type = (uint16_t)type, .bytes = (uint16_t)bytes, .tid = tid};
}

// CUPTI gives 0 where it could not take a time, and at times an end before the start.
ALWAYS_INLINE void put_times(struct decoder *decoder, uint64_t start, uint64_t end,
        uint64_t *ret_start, uint64_t *ret_end)
{
    if (__builtin_expect(!start || end < start || end >> 63, 0)) {
        decoder->zero_time++;
        start = end = 0;
    }
    *ret_start = start;
    *ret_end = end;
}

#endif
