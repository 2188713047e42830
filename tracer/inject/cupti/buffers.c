// SPDX-License-Identifier: Apache-2.0
// The pool. A slot is COLD (never used: zero, without memory), READY (zero, with memory), OUT
// (CUPTI's) or DIRTY (came back). CUPTI asks for one every 8,000 launches of a thread or so; the
// control thread makes DIRTY ones READY.
#include "tracer/inject/cupti/buffers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "tracer/inject/inject.h"
#include "tracer/inject/spool/spool_writer.h"

// 2 MiB: 8,000 launches of 256 bytes, 25 ms at the highest rate a GPU takes. 96: a thread of the
// workload holds one (CUPTI 13 has buffers per thread), and four at a time are being read or
// zeroed.
#define BUFFER_BYTES (2u << 20)
#define BUFFER_COUNT 96u
#define BUFFER_READY_WANTED 4u
// 48 MiB: what a burst has used stays; above that memory goes back.
#define BUFFER_READY_MAX 24u
// Memory of these is taken when they are used; 64, so that two threads of CUPTI hardly ever write
// into the same one.
#define DISCARD_BYTES (32u << 10)
#define DISCARD_COUNT 64u
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum slot_state { SLOT_COLD, SLOT_READY, SLOT_OUT, SLOT_DIRTY, SLOT_CLEANING };

static struct {
    uint8_t *base;
    _Atomic uint32_t states[BUFFER_COUNT];
    _Atomic uint32_t discard_users[DISCARD_COUNT];
    _Atomic uint32_t next_discard;
    _Atomic(const struct cupti_layout *) layout;
} pool;

static uint8_t discard[DISCARD_COUNT][DISCARD_BYTES] __attribute__((aligned(64)));

int buffers_create(void)
{
    if (pool.base != NULL)
        return 0;
    // One more than needed, so that each can lie on a huge page of its own, as x86 has them.
    size_t bytes = ((size_t)BUFFER_COUNT + 1) * BUFFER_BYTES;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    pool.base = (uint8_t *)(((uintptr_t)base + BUFFER_BYTES - 1) & ~(uintptr_t)(BUFFER_BYTES - 1));
    madvise(pool.base, (size_t)BUFFER_COUNT * BUFFER_BYTES, MADV_HUGEPAGE);
    return 0;
}

void buffers_decode_with(const struct cupti_layout *layout)
{
    atomic_store(&pool.layout, layout);
}

static bool slot_take(uint32_t from, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < BUFFER_COUNT; i++) {
        uint32_t state = from;
        if (atomic_load_explicit(&pool.states[i], memory_order_relaxed) == from &&
                atomic_compare_exchange_strong(&pool.states[i], &state, SLOT_OUT)) {
            *ret_slot = i;
            return true;
        }
    }
    return false;
}

static void header_add(uint64_t *counter, uint64_t count)
{
    __atomic_fetch_add(counter, count, __ATOMIC_RELAXED);
}

// Zeroed (promised to CUPTI of every buffer; 3 us) when nobody has it; the rare one that is shared
// is not, for another may be writing.
static uint8_t *discard_take(void)
{
    for (uint32_t i = 0; i < DISCARD_COUNT; i++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_strong(&pool.discard_users[i], &nobody, 1))
            return memset(discard[i], 0, DISCARD_BYTES);
    }
    uint32_t at = atomic_fetch_add(&pool.next_discard, 1) % DISCARD_COUNT;
    atomic_fetch_add(&pool.discard_users[at], 1);
    return discard[at];
}

void buffers_requested(uint8_t **buffer, size_t *size, size_t *records_max)
{
    struct ug_spool_header *header = inject_alive() ? spool_header() : NULL;
    uint32_t slot = 0;
    bool found = false;
    *records_max = 0;
    if (header != NULL && pool.base != NULL) {
        header_add(&header->cupti_buffers_requested, 1);
        found = slot_take(SLOT_READY, &slot);
        if (!found) {
            found = slot_take(SLOT_COLD, &slot);
            inject_wake();
        }
        if (!found && slot_take(SLOT_DIRTY, &slot)) {
            // 0.1 ms here is better than 8,000 records lost.
            memset(pool.base + (size_t)slot * BUFFER_BYTES, 0, BUFFER_BYTES);
            found = true;
        }
    }
    if (found) {
        *buffer = pool.base + (size_t)slot * BUFFER_BYTES;
        *size = BUFFER_BYTES;
        return;
    }
    *buffer = discard_take();
    *size = DISCARD_BYTES;
}

static void buffer_decode(struct ug_spool_header *header, const uint8_t *buffer, size_t valid)
{
    const struct cupti_layout *layout = atomic_load(&pool.layout);
    uint32_t kinds = __atomic_load_n(&header->have_kinds, __ATOMIC_RELAXED);
    struct decode_counts counts = {0};
    if (layout == NULL || valid == 0 || kinds == 0)
        return;
#ifdef UPGATE_INJECT_NOP
    kinds |= UG_WANT_NOTHING_KEPT;
#endif
    decode_buffer(layout, buffer, valid, kinds, &counts);
    if (counts.unknown > 0)
        header_add(&header->unknown_records, counts.unknown);
}

void buffers_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    struct ug_spool_header *header = inject_alive() ? spool_header() : NULL;
    (void)context;
    (void)stream;
    if (header != NULL)
        header_add(&header->cupti_buffers_completed, 1);
    size_t in_discard = (uintptr_t)buffer - (uintptr_t)discard;
    if (in_discard < sizeof(discard)) {
        atomic_fetch_sub(&pool.discard_users[in_discard / DISCARD_BYTES], 1);
        if (header != NULL)
            header_add(&header->cupti_buffers_discarded, 1);
        return;
    }
    if (pool.base == NULL || buffer < pool.base ||
            buffer >= pool.base + (size_t)BUFFER_COUNT * BUFFER_BYTES)
        return; // another's, who registered its callbacks before us
    if (header != NULL)
        buffer_decode(header, buffer, valid < size ? valid : size);
    atomic_store(&pool.states[(size_t)(buffer - pool.base) / BUFFER_BYTES], SLOT_DIRTY);
}

static bool slot_clean(uint32_t slot)
{
    uint8_t *buffer = pool.base + (size_t)slot * BUFFER_BYTES;
    uint32_t state = SLOT_DIRTY;
    if (atomic_compare_exchange_strong(&pool.states[slot], &state, SLOT_CLEANING)) {
        memset(buffer, 0, BUFFER_BYTES);
    } else if (state == SLOT_COLD &&
            atomic_compare_exchange_strong(&pool.states[slot], &state, SLOT_CLEANING)) {
        // Page faults here and not in the workload's thread; before Linux 5.14 by hand.
        if (madvise(buffer, BUFFER_BYTES, MADV_POPULATE_WRITE) != 0)
            memset(buffer, 0, BUFFER_BYTES);
    } else {
        return false;
    }
    atomic_store(&pool.states[slot], SLOT_READY);
    return true;
}

// Its memory goes back to the system; it is zero again, too.
static void slot_cool(uint32_t slot, uint32_t from)
{
    uint32_t state = from;
    if (!atomic_compare_exchange_strong(&pool.states[slot], &state, SLOT_CLEANING))
        return;
    bool is_cold =
            madvise(pool.base + (size_t)slot * BUFFER_BYTES, BUFFER_BYTES, MADV_DONTNEED) == 0;
    atomic_store(&pool.states[slot], is_cold ? SLOT_COLD : from);
}

// What CUPTI still holds stays.
void buffers_release(void)
{
    for (uint32_t i = 0; pool.base != NULL && i < BUFFER_COUNT; i++) {
        slot_cool(i, SLOT_DIRTY);
        slot_cool(i, SLOT_READY);
    }
}

// DIRTY ones while they are few, for their memory is there anyway; COLD ones only as many as are
// wanted ahead.
void buffers_refresh(void)
{
    uint32_t ready = 0;
    if (pool.base == NULL)
        return;
    for (uint32_t i = 0; i < BUFFER_COUNT; i++) {
        uint32_t state = atomic_load(&pool.states[i]);
        if (state == SLOT_DIRTY && ready >= BUFFER_READY_MAX)
            slot_cool(i, SLOT_DIRTY);
        else if (state == SLOT_READY || (state == SLOT_DIRTY && slot_clean(i)))
            ready++;
    }
    for (uint32_t i = 0; i < BUFFER_COUNT && ready < BUFFER_READY_WANTED; i++) {
        if (atomic_load(&pool.states[i]) == SLOT_COLD && slot_clean(i))
            ready++;
    }
}
