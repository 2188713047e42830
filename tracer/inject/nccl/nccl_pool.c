// SPDX-License-Identifier: Apache-2.0
// The operations in flight. When is one over? NCCL's stop of a collective only says that it was
// enqueued; its kernel reports a start and a stop for each channel, from the proxy thread, later.
// So a slot counts: it is over once it was enqueued, as many channels as NCCL announced have
// reported, and none of them is still running. Where NCCL does not say how many (v1 to v3, NVLS),
// it is over after a quiet time. One word with the generation holds all of it, changed by
// compare-and-swap: who moves it to its last state writes the record.
#include "tracer/inject/nccl/nccl_pool.h"

#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include "tracer/inject/spool/spool_writer.h"

enum {
    PROBES = 16, // slots looked at for a free one
    SWEEPS = 2,  // old slots looked at for every new operation: all of them every 512
    LIVE_BITS = 14,
};

#define COUNT_MAX ((1u << LIVE_BITS) - 1)
#define LIVE_ONE 1ull
#define SEEN_ONE (1ull << LIVE_BITS)
#define STATE_CLAIMED (1ull << 28) // somebody writes the record
#define STATE_ENQUEUED (1ull << 29)
#define STATE_READY (1ull << 30) // filled in
#define STATE_USED (1ull << 31)

#define QUIET_NS 5000000ull       // no channel for so long, their number not known: over
#define MISSING_NS 1000000000ull  // channels that were announced did not come
#define GIVE_UP_NS 60000000000ull // "never seen to end", so that a hang is in the recording too

#define KIND_SHIFT 61
#define COMM_SHIFT 44
#define SLOT_SHIFT 32

struct nccl_comm nccl_comms[NCCL_COMMS + 1];
_Static_assert(NCCL_SLOTS <= 1 << (COMM_SHIFT - SLOT_SHIFT), "a slot's number fits");

void *nccl_handle(enum nccl_handle_kind kind, uint64_t value)
{
    return (void *)(uintptr_t)((uint64_t)kind << KIND_SHIFT | value);
}

enum nccl_handle_kind nccl_handle_kind(const void *handle)
{
    uint64_t kind = (uint64_t)(uintptr_t)handle >> KIND_SHIFT;
    return kind <= NCCL_HANDLE_CALL ? (enum nccl_handle_kind)kind : NCCL_HANDLE_NONE;
}

uint64_t nccl_handle_value(const void *handle)
{
    return (uint64_t)(uintptr_t)handle & ((1ull << KIND_SHIFT) - 1);
}

uint64_t nccl_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

struct nccl_slot *nccl_slots_map(void)
{
    void *memory = mmap(NULL, NCCL_SLOTS * sizeof(struct nccl_slot), PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint32_t generation(uint64_t state)
{
    return (uint32_t)(state >> 32);
}

static uint32_t live(uint64_t state)
{
    return (uint32_t)(state & COUNT_MAX);
}

static uint32_t seen(uint64_t state)
{
    return (uint32_t)(state >> LIVE_BITS) & COUNT_MAX;
}

// The slot of a handle, wherever its communicator is in its life. NULL: never ours.
static struct nccl_slot *slot_of(const void *handle, struct nccl_comm **ret_comm)
{
    uint64_t value = nccl_handle_value(handle);
    uint64_t comm = value >> COMM_SHIFT;
    uint64_t index = (value >> SLOT_SHIFT) & ((1u << (COMM_SHIFT - SLOT_SHIFT)) - 1);
    if (comm >= NCCL_COMMS || index >= NCCL_SLOTS || !nccl_comms[comm].slots)
        return NULL;
    *ret_comm = &nccl_comms[comm];
    return &nccl_comms[comm].slots[index];
}

// In flight, and the one that the handle meant.
static bool is_current(uint64_t state, const void *handle)
{
    return generation(state) == (uint32_t)nccl_handle_value(handle) && (state & STATE_READY) &&
            !(state & STATE_CLAIMED);
}

static bool is_over(const struct nccl_slot *slot, uint64_t state)
{
    uint32_t children = atomic_load_explicit(&slot->children, memory_order_relaxed);
    return (state & STATE_ENQUEUED) && live(state) == 0 && seen(state) > 0 &&
            seen(state) >= children;
}

// Over, and known to be: no channel can come any more.
static bool is_complete(const struct nccl_slot *slot, uint64_t state)
{
    return atomic_load_explicit(&slot->children, memory_order_relaxed) > 0 && is_over(slot, state);
}

// Takes the slot in this very state, writes it and frees it.
static void claim(struct nccl_comm *comm, struct nccl_slot *slot, uint64_t state, bool is_last)
{
    if (!atomic_compare_exchange_strong_explicit(&slot->state, &state, state | STATE_CLAIMED,
                memory_order_acq_rel, memory_order_relaxed))
        return; // it moved on: who moved it looks after it
    const struct nccl_op *op = &slot->op;
    bool is_exact = op->reports != NCCL_REPORTS_CHANNELS || op->children > 0 || seen(state) == 0;
    nccl_record_write(
            comm, slot, is_over(slot, state), is_exact ? op->channels : seen(state), is_last);
    atomic_store_explicit(&slot->state, state & ~0xffffffffull, memory_order_release);
}

static void settle(struct nccl_comm *comm, struct nccl_slot *slot, uint64_t now, bool is_last)
{
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (!(state & STATE_READY) || (state & STATE_CLAIMED))
        return;
    uint64_t last = atomic_load_explicit(&slot->last_stop_ns, memory_order_relaxed);
    uint64_t since = last ? last : atomic_load_explicit(&slot->started_ns, memory_order_relaxed);
    uint64_t quiet = now > since ? now - since : 0;
    uint32_t children = atomic_load_explicit(&slot->children, memory_order_relaxed);
    uint64_t limit = seen(state) > 0 && children == 0 ? QUIET_NS : MISSING_NS;
    bool is_idle = (state & STATE_ENQUEUED) && live(state) == 0;
    // Without any child yet the kernel may still wait for its turn, unless this NCCL reports the
    // network only.
    bool is_waiting =
            seen(state) == 0 && !atomic_load_explicit(&slot->is_optional, memory_order_relaxed);
    if (is_last || (is_idle && !is_waiting && quiet >= limit) || quiet >= GIVE_UP_NS)
        claim(comm, slot, state, is_last);
}

void nccl_comm_settle(struct nccl_comm *comm, bool is_last)
{
    if (!comm->slots)
        return;
    uint64_t now = nccl_now();
    for (uint32_t i = 0; i < NCCL_SLOTS; i++)
        settle(comm, &comm->slots[i], now, is_last);
}

// A free slot, ours from now on, and its new state. NULL: none.
static struct nccl_slot *take(struct nccl_comm *comm, uint64_t now, uint64_t *ret_state)
{
    uint32_t first = atomic_fetch_add_explicit(&comm->next, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < PROBES; i++) {
        struct nccl_slot *slot = &comm->slots[(first + i) % NCCL_SLOTS];
        settle(comm, slot, now, false);
        uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        uint64_t taken = (uint64_t)(generation(state) + 1) << 32 | STATE_USED;
        if (!(state & STATE_USED) &&
                atomic_compare_exchange_strong_explicit(
                        &slot->state, &state, taken, memory_order_acq_rel, memory_order_relaxed)) {
            *ret_state = taken;
            return slot;
        }
    }
    return NULL;
}

void *nccl_op_start(struct nccl_comm *comm, const struct nccl_op *op)
{
    uint64_t now = nccl_now(), state;
    if (!comm->slots) {
        nccl_record_drop();
        return NULL;
    }
    uint32_t old = atomic_fetch_add_explicit(&comm->swept, SWEEPS, memory_order_relaxed);
    for (uint32_t i = 0; i < SWEEPS; i++)
        settle(comm, &comm->slots[(old + i) % NCCL_SLOTS], now, false);
    struct nccl_slot *slot = take(comm, now, &state);
    if (!slot) {
        nccl_record_drop();
        return NULL;
    }
    slot->op = *op;
    slot->enqueued_ns = op->called_ns ? op->called_ns : now;
    slot->tid = spool_tid();
    atomic_store_explicit(&slot->started_ns, now, memory_order_relaxed);
    atomic_store_explicit(&slot->children, op->children, memory_order_relaxed);
    atomic_store_explicit(
            &slot->is_optional, op->reports == NCCL_REPORTS_NETWORK, memory_order_relaxed);
    atomic_store_explicit(
            &slot->is_childless, op->reports == NCCL_REPORTS_NOTHING, memory_order_relaxed);
    atomic_store_explicit(&slot->last_stop_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->gpu_start, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&slot->gpu_end, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->state, state | STATE_READY, memory_order_release);
    uint64_t value = (uint64_t)(comm - nccl_comms) << COMM_SHIFT |
            (uint64_t)(slot - comm->slots) << SLOT_SHIFT | generation(state);
    return nccl_handle(NCCL_HANDLE_OP, value);
}

void nccl_op_enqueued(void *handle)
{
    struct nccl_comm *comm;
    struct nccl_slot *slot = slot_of(handle, &comm);
    if (!slot)
        return;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire), next;
    do {
        if (!is_current(state, handle) || (state & STATE_ENQUEUED))
            return;
        next = state | STATE_ENQUEUED;
    } while (!atomic_compare_exchange_weak_explicit(
            &slot->state, &state, next, memory_order_acq_rel, memory_order_acquire));
    if (atomic_load_explicit(&slot->is_childless, memory_order_relaxed) || is_complete(slot, next))
        claim(comm, slot, next, false);
}

static void keep_min(_Atomic uint64_t *place, uint64_t value)
{
    uint64_t old = atomic_load_explicit(place, memory_order_relaxed);
    while (value < old &&
            !atomic_compare_exchange_weak_explicit(
                    place, &old, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void keep_max(_Atomic uint64_t *place, uint64_t value)
{
    uint64_t old = atomic_load_explicit(place, memory_order_relaxed);
    while (value > old &&
            !atomic_compare_exchange_weak_explicit(
                    place, &old, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

void *nccl_child_start(void *operation, uint64_t ptimer)
{
    struct nccl_comm *comm;
    struct nccl_slot *slot =
            nccl_handle_kind(operation) == NCCL_HANDLE_OP ? slot_of(operation, &comm) : NULL;
    if (!slot)
        return NULL;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire), next;
    do {
        if (!is_current(state, operation) || seen(state) == COUNT_MAX)
            return NULL;
        next = state + LIVE_ONE + SEEN_ONE;
    } while (!atomic_compare_exchange_weak_explicit(
            &slot->state, &state, next, memory_order_acq_rel, memory_order_acquire));
    if (ptimer) {
        nccl_record_clock(comm, nccl_now(), ptimer);
        keep_min(&slot->gpu_start, ptimer);
    }
    return nccl_handle(NCCL_HANDLE_CHILD, nccl_handle_value(operation));
}

void nccl_child_ptimer(void *child, uint64_t ptimer)
{
    struct nccl_comm *comm;
    struct nccl_slot *slot = slot_of(child, &comm);
    if (!slot || !ptimer ||
            !is_current(atomic_load_explicit(&slot->state, memory_order_acquire), child))
        return;
    nccl_record_clock(comm, nccl_now(), ptimer);
    keep_max(&slot->gpu_end, ptimer);
}

void nccl_child_stop(void *child)
{
    struct nccl_comm *comm;
    struct nccl_slot *slot = slot_of(child, &comm);
    if (!slot)
        return;
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire), next;
    if (is_current(state, child))
        keep_max(&slot->last_stop_ns, nccl_now());
    do {
        if (!is_current(state, child) || live(state) == 0)
            return;
        next = state - LIVE_ONE;
    } while (!atomic_compare_exchange_weak_explicit(
            &slot->state, &state, next, memory_order_acq_rel, memory_order_acquire));
    if (is_complete(slot, next))
        claim(comm, slot, next, false);
}
