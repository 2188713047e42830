// SPDX-License-Identifier: Apache-2.0
// Another process's memory, read only. Every address comes from that process and may be anything: a
// bad one is an error code, never a fault here. Reads of one walk share a few pages, so that the
// frames of a thread, which stand next to each other, cost one system call a page.
#ifndef UPGATE_TRACER_PYSTACK_MEMORY_H
#define UPGATE_TRACER_PYSTACK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_PAGE 4096 // what is read at once: a page, or a part of one of 64 KiB
#define MEMORY_PAGES 48  // of one walk; when they are full, reads go straight to the process

struct memory_span {
    uint64_t address;
    void *buf;
    size_t len;
    bool ok; // out: all of it was read
};

// Read every span; `ok` says which were. Returns 0, or -ESRCH, -EPERM when nothing can be read at
// all. Tests put their own function here.
typedef int (*memory_fn)(void *ctx, struct memory_span *spans, size_t count);

struct memory {
    memory_fn fn;
    void *ctx;
    uint64_t reads; // calls of fn
    size_t page_count;
    uint64_t pages_at[MEMORY_PAGES];
    bool pages_ok[MEMORY_PAGES];
    uint8_t (*pages)[MEMORY_PAGE];
};

int memory_init(struct memory *memory, memory_fn fn, void *ctx); // -ENOMEM
void memory_clear(struct memory *memory);

// The reader of a live process: ctx points at its pid_t.
int memory_read_process(void *ctx, struct memory_span *spans, size_t count);

// Forget the pages that were read: the process may have changed them.
void memory_refresh(struct memory *memory);

// Through the pages; -EFAULT for an address that cannot be read, else what fn returned.
int memory_read(struct memory *memory, uint64_t address, void *buf, size_t len);
// Straight from the process, as it is now.
int memory_read_now(struct memory *memory, struct memory_span *spans, size_t count);

// memory_read of one word.
int memory_u64(struct memory *memory, uint64_t address, uint64_t *ret);

#endif
