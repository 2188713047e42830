// SPDX-License-Identifier: Apache-2.0
// Calls that wait for what they launched. Correlation ids count up, and what a GPU hands back is in
// nearly the same order: the id itself is the hash, so neighbours in time are neighbours in memory.
// The place of a call that has launched its one thing is given to the next that wants it; until
// then it is found (a copy may come as two).
#include "tracer/gpu/calls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/strings.h"

enum {
    CALLS_BITS_MIN = 10,
    // 524,288 x 40 bytes: a second of the highest launch rate before CUPTI hands over
    CALLS_BITS_MAX = 19,
    CALLS_PROBES_MAX = 16,
    CALLS_KEEP_MAX = 1 << (CALLS_BITS_MAX - 2), // launches of which nothing came yet
};
static const int64_t CALLS_AGE_NS = 4000000000;
static const uint32_t CALLS_KEEP_MS = 30000; // a kernel may wait that long behind others

struct calls_table {
    struct call *slots;
    uint32_t bits, live; // live: not matched yet, and graphs
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
    // Straight from the system: large blocks come and go every four seconds, and what is not
    // touched is not there.
    void *slots = mmap(NULL, sizeof *table->slots << bits, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        slots = xcalloc(SIZE_MAX / 2, 1); // dies in words
    *table = (struct calls_table){.slots = slots, .bits = bits};
}

static bool call_is_over(const struct call *call)
{
    return (call->flags & CALL_MATCHED) && !(call->flags & CALL_GRAPH);
}

static struct call *table_find(const struct calls_table *table, uint32_t correlation)
{
    uint32_t mask = (1u << table->bits) - 1, at = correlation & mask;
    for (int probe = 0; probe < CALLS_PROBES_MAX; probe++, at = (at + 1) & mask) {
        if (!(table->slots[at].flags & CALL_USED))
            return NULL;
        if (table->slots[at].correlation == correlation)
            return &table->slots[at];
    }
    return NULL;
}

// A runtime call and the driver call inside it can have one id: the outer one is what the program
// called.
static void call_merge(struct call *known, const struct call *call)
{
    if (call->start_gpu >= known->start_gpu)
        return;
    uint32_t matched = known->flags & CALL_MATCHED;
    *known = *call;
    known->flags |= CALL_USED | matched;
}

// False: no place for it within reach.
static bool table_put(struct calls_table *table, const struct call *call)
{
    uint32_t mask = (1u << table->bits) - 1, at = call->correlation & mask;
    struct call *place = NULL;
    for (int probe = 0; probe < CALLS_PROBES_MAX; probe++, at = (at + 1) & mask) {
        struct call *slot = &table->slots[at];
        bool used = slot->flags & CALL_USED;
        if (used && slot->correlation == call->correlation) {
            call_merge(slot, call);
            return true;
        }
        if (!place && (!used || call_is_over(slot)))
            place = slot;
        if (!used)
            break;
    }
    if (!place)
        return false;
    *place = *call;
    place->flags |= CALL_USED;
    table->live += !call_is_over(place);
    return true;
}

static bool calls_grow(struct calls *calls, struct calls_table *table)
{
    int64_t more = (int64_t)1 << table->bits;
    if (table->bits >= CALLS_BITS_MAX || more > *calls->slots_left)
        return false;
    struct calls_table grown;
    table_init(&grown, table->bits + 1);
    *calls->slots_left -= more;
    for (uint32_t at = 0; at < 1u << table->bits; at++)
        if ((table->slots[at].flags & CALL_USED) && !call_is_over(&table->slots[at]) &&
                !table_put(&grown, &table->slots[at])) { // hardly: neighbours stay neighbours
            calls->crowded++;
            calls->given_up(calls->context, &table->slots[at]);
        }
    munmap(table->slots, sizeof *table->slots << table->bits);
    *table = grown;
    return true;
}

static void table_free(struct calls_table *table, int64_t *slots_left)
{
    if (!table->slots)
        return;
    *slots_left += (int64_t)1 << table->bits;
    munmap(table->slots, sizeof *table->slots << table->bits);
    table->slots = NULL;
}

struct calls *calls_new(int64_t *slots_left,
        void (*given_up)(void *context, const struct call *call), void *context)
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

// The young table becomes the old one. Launches of which nothing came are taken over while there is
// room.
static void calls_turn(struct calls *calls, int64_t now_ns, bool crowded)
{
    struct calls_table old = calls->old;
    calls->old = calls->young;
    uint32_t kept = 0, bits = CALLS_BITS_MIN;
    *calls->slots_left += (int64_t)1 << old.bits; // freed below
    while (bits < calls->old.bits && 1u << bits < calls->old.live * 2 &&
            *calls->slots_left >= 2 << bits)
        bits++;
    *calls->slots_left -= 1 << bits;
    table_init(&calls->young, bits);
    for (uint32_t at = 0; at < 1u << old.bits; at++) {
        struct call *call = &old.slots[at];
        if (!(call->flags & CALL_USED) || call_is_over(call))
            continue;
        bool fresh = (call->flags & CALL_LAUNCHES) &&
                (uint32_t)(now_ns / 1000000) - call->arrived_ms < CALLS_KEEP_MS;
        bool room = fresh && kept < CALLS_KEEP_MAX &&
                (calls->young.live * 2 < 1u << calls->young.bits ||
                        calls_grow(calls, &calls->young));
        if (room && table_put(&calls->young, call)) {
            kept++;
            continue;
        }
        calls->crowded += crowded && !(call->flags & CALL_MATCHED);
        calls->given_up(calls->context, call);
    }
    munmap(old.slots, sizeof *old.slots << old.bits);
    calls->aged_ns = now_ns;
}

void calls_add(struct calls *calls, const struct call *call, int64_t now_ns)
{
    struct calls_table *young = &calls->young;
    if (young->live * 2 >= 1u << young->bits && !calls_grow(calls, young) &&
            young->live * 4ull >= 3ull << young->bits)
        calls_turn(calls, now_ns, true);
    // Ids that lie far apart, of launches that wait since the last turn, can want the same place: a
    // larger table parts them.
    while (!table_put(young, call))
        if (!calls_grow(calls, young)) {
            calls->crowded++;
            calls->given_up(calls->context, call);
            return;
        }
}

void calls_matched(struct calls *calls, struct call *call)
{
    if (call->flags & CALL_MATCHED)
        return;
    call->flags |= CALL_MATCHED;
    struct calls_table *table = call >= calls->young.slots &&
                    call < calls->young.slots + ((size_t)1 << calls->young.bits)
            ? &calls->young
            : &calls->old;
    table->live -= call_is_over(call);
}

struct call *calls_find(struct calls *calls, uint32_t correlation)
{
    struct call *call = table_find(&calls->young, correlation);
    return call ? call : table_find(&calls->old, correlation);
}

void calls_age(struct calls *calls, int64_t now_ns)
{
    if (now_ns - calls->aged_ns >= CALLS_AGE_NS && (calls->old.live || calls->young.live))
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
