// SPDX-License-Identifier: Apache-2.0
// Calls that wait for what they launched. Correlation ids count up and what a GPU hands back is in nearly the same
// order: four neighbours share a place in memory, and such fours are spread, so that two ranges of ids do not pile up.
#include "tracer/gpu/calls.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum {
    CALLS_BITS_MIN = 10,
    CALLS_BITS_MAX = 19,       // 524,288 x 40 bytes: a second of the highest launch rate before CUPTI hands over
    CALLS_PROBES_MAX = 256,    // ids of a damaged spool may collide on purpose
    CALLS_KEEP_MAX = 1 << (CALLS_BITS_MAX - 2), // launches of which nothing came yet
};
static const int64_t CALLS_AGE_NS = 2000000000;
static const uint32_t CALLS_KEEP_MS = 30000; // a kernel may wait that long behind others

struct calls_table {
    struct call *slots;
    uint32_t bits, count;
};

struct calls {
    struct calls_table young, old;
    void (*given_up)(void *context, const struct call *call);
    void *context;
    int64_t aged_ns;
    int64_t *slots_left;
    uint64_t crowded;
};

static void table_init(struct calls_table *table, uint32_t bits)
{
    *table = (struct calls_table){.slots = xcalloc((size_t)1 << bits, sizeof *table->slots), .bits = bits};
}

// The slot of an id, or the free one where it belongs; NULL: too crowded.
static struct call *table_slot(const struct calls_table *table, uint32_t correlation)
{
    uint32_t mask = (1u << table->bits) - 1;
    uint32_t at = (((correlation >> 2) * 0x9e3779b1u >> 8) << 2 | (correlation & 3)) & mask;
    for (int probe = 0; probe < CALLS_PROBES_MAX; probe++, at = (at + 1) & mask)
        if (!(table->slots[at].flags & CALL_USED) || table->slots[at].correlation == correlation)
            return &table->slots[at];
    return NULL;
}

static struct call *table_find(const struct calls_table *table, uint32_t correlation)
{
    struct call *slot = table_slot(table, correlation);
    return slot && (slot->flags & CALL_USED) ? slot : NULL;
}

static bool table_put(struct calls_table *table, const struct call *call)
{
    struct call *slot = table_slot(table, call->correlation);
    if (!slot)
        return false;
    if (!(slot->flags & CALL_USED)) {
        *slot = *call;
        slot->flags |= CALL_USED;
        table->count++;
        return true;
    }
    // A runtime call and the driver call inside it can have one id: the outer one is what the program called.
    if (call->start_gpu < slot->start_gpu) {
        uint32_t matched = slot->flags & CALL_MATCHED;
        *slot = *call;
        slot->flags |= CALL_USED | matched;
    }
    return true;
}

static bool table_grow(struct calls_table *table, int64_t *slots_left)
{
    int64_t more = (int64_t)1 << table->bits;
    if (table->bits >= CALLS_BITS_MAX || more > *slots_left)
        return false;
    struct calls_table grown;
    table_init(&grown, table->bits + 1);
    *slots_left -= more;
    for (uint32_t at = 0; at < 1u << table->bits; at++)
        if (table->slots[at].flags & CALL_USED)
            table_put(&grown, &table->slots[at]);
    free(table->slots);
    *table = grown;
    return true;
}

static void table_free(struct calls_table *table, int64_t *slots_left)
{
    if (table->slots)
        *slots_left += (int64_t)1 << table->bits;
    free(table->slots);
    table->slots = NULL;
}

struct calls *calls_new(int64_t *slots_left, void (*given_up)(void *context, const struct call *call), void *context)
{
    struct calls *calls = xcalloc(1, sizeof *calls);
    calls->given_up = given_up;
    calls->context = context;
    calls->slots_left = slots_left;
    *slots_left -= 2 << CALLS_BITS_MIN;
    table_init(&calls->young, CALLS_BITS_MIN);
    table_init(&calls->old, CALLS_BITS_MIN);
    return calls;
}

void calls_free(struct calls *calls)
{
    if (!calls)
        return;
    table_free(&calls->young, calls->slots_left);
    table_free(&calls->old, calls->slots_left);
    free(calls);
}

// The young table becomes the old one. Launches of which nothing came are taken over while there is room.
static void calls_turn(struct calls *calls, int64_t now_ns, bool crowded)
{
    struct calls_table old = calls->old;
    calls->old = calls->young;
    uint32_t kept = 0;
    *calls->slots_left -= 1 << CALLS_BITS_MIN;
    table_init(&calls->young, CALLS_BITS_MIN);
    for (uint32_t at = 0; at < 1u << old.bits; at++) {
        struct call *call = &old.slots[at];
        if (!(call->flags & CALL_USED))
            continue;
        bool waits = (call->flags & CALL_GRAPH) ||
                     ((call->flags & CALL_LAUNCHES) && !(call->flags & CALL_MATCHED));
        bool keep = waits && (uint32_t)(now_ns / 1000000) - call->arrived_ms < CALLS_KEEP_MS && kept < CALLS_KEEP_MAX;
        if (keep && calls->young.count * 2 >= 1u << calls->young.bits)
            keep = table_grow(&calls->young, calls->slots_left);
        if (keep && table_put(&calls->young, call)) {
            kept++;
            continue;
        }
        calls->crowded += crowded && waits;
        calls->given_up(calls->context, call);
    }
    table_free(&old, calls->slots_left);
    calls->aged_ns = now_ns;
}

void calls_add(struct calls *calls, const struct call *call, int64_t now_ns)
{
    struct call *known = table_find(&calls->old, call->correlation);
    if (known) { // the inner or the outer one of it
        table_put(&calls->old, call);
        return;
    }
    bool full = calls->young.count * 2 >= 1u << calls->young.bits && !table_grow(&calls->young, calls->slots_left);
    if (full && calls->young.count * 4 >= 3u << calls->young.bits)
        calls_turn(calls, now_ns, true);
    if (!table_put(&calls->young, call)) {
        calls->crowded++;
        calls->given_up(calls->context, call);
    }
}

struct call *calls_find(struct calls *calls, uint32_t correlation)
{
    struct call *call = table_find(&calls->young, correlation);
    return call ? call : table_find(&calls->old, correlation);
}

void calls_age(struct calls *calls, int64_t now_ns)
{
    if (now_ns - calls->aged_ns >= CALLS_AGE_NS && (calls->old.count || calls->young.count))
        calls_turn(calls, now_ns, false);
}

static void calls_give_up_all(struct calls *calls, struct calls_table *table)
{
    for (uint32_t at = 0; at < 1u << table->bits; at++)
        if (table->slots[at].flags & CALL_USED)
            calls->given_up(calls->context, &table->slots[at]);
    table_free(table, calls->slots_left);
    *calls->slots_left -= 1 << CALLS_BITS_MIN;
    table_init(table, CALLS_BITS_MIN);
}

void calls_flush(struct calls *calls)
{
    calls_give_up_all(calls, &calls->old);
    calls_give_up_all(calls, &calls->young);
}

uint64_t calls_crowded(const struct calls *calls)
{
    return calls->crowded;
}
