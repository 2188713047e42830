// SPDX-License-Identifier: Apache-2.0
// Texts to ids, for all threads at once and without waiting: an open-addressed table of slots, each
// set once by compare-and-swap from 0 to the place of an entry that is whole by then. Nothing is
// ever taken out. Two threads that bring the same new text at once may both write its record to the
// spool, with the same id: a reader expects that. When the table or the texts are full, a new text
// gets id 0 and counts as dropped; known ones keep working.
#include "tracer/inject/spool/strings.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tracer/inject/spool/spool_writer.h"

enum {
    SLOTS = 1 << 17,         // a launch stack brings some 10,000 frames, a model 500 kernels
    STRINGS_MAX = SLOTS / 2, // so that a probe finds its end after 2 or 3 slots
    ARENA_BYTES = 16 << 20,  // 250 bytes a text
    TEXT_BYTES_MAX = 4000,
    ADDRESSES = 1 << STRINGS_ADDRESS_BITS,
};

struct entry {
    uint32_t id;
    uint32_t written; // run in which its record went to the spool, 0: never
    uint32_t hash;    // lower half; the upper one is in the slot
    uint32_t text_bytes;
    char text[];
};

static struct {
    uint64_t *slots; // upper half of the hash << 32 | offset of the entry / 8 + 1
    unsigned char *arena;
    uint32_t arena_used;
    uint32_t count;
} strings;

struct strings_address *strings_addresses;
uint32_t strings_generation, strings_run_number;

static const size_t slots_bytes = SLOTS * sizeof(uint64_t);
static const size_t addresses_bytes = ADDRESSES * sizeof(struct strings_address);
static const size_t map_bytes =
        SLOTS * sizeof(uint64_t) + ADDRESSES * sizeof(struct strings_address) + (size_t)ARENA_BYTES;

int strings_create(void)
{
    if (strings.slots)
        return 0;
    unsigned char *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    strings_addresses = (struct strings_address *)(map + slots_bytes);
    strings.arena = map + slots_bytes + addresses_bytes;
    strings.arena_used = strings.count = 0;
    strings_run_number = strings_generation = 1;
    strings.slots = (uint64_t *)map;
    return 0;
}

void strings_forget(void)
{
    if (strings.slots)
        munmap(strings.slots, map_bytes);
    strings.slots = NULL;
}

// --- by content
// -----------------------------------------------------------------------------------

// Eight bytes at a time; a kernel's name is 200 bytes long and comes here once a module.
static uint64_t hash_text(const char *text, size_t bytes)
{
    uint64_t hash = 0x9e3779b97f4a7c15ull ^ bytes;
    while (bytes) {
        uint64_t word = 0;
        size_t part = bytes < 8 ? bytes : 8;
        memcpy(&word, text, part);
        hash = (hash ^ word) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
        text += part;
        bytes -= part;
    }
    return hash;
}

static struct entry *entry_at(uint64_t slot)
{
    return (struct entry *)(strings.arena + ((slot & 0xffffffffu) - 1) * 8);
}

static bool entry_is(const struct entry *entry, uint64_t hash, const char *text, size_t bytes)
{
    return entry->hash == (uint32_t)hash && entry->text_bytes == bytes &&
            !memcmp(entry->text, text, bytes);
}

// The slot's value of a new entry, 0: full. share: of 4 parts of the table and the arena that it
// may fill.
static uint64_t entry_new(uint64_t hash, const char *text, size_t bytes, uint32_t share)
{
    uint32_t size = (uint32_t)((sizeof(struct entry) + bytes + 7) & ~(size_t)7);
    uint32_t at = __atomic_load_n(&strings.arena_used, __ATOMIC_RELAXED);
    uint32_t count = __atomic_load_n(&strings.count, __ATOMIC_RELAXED);
    if (count >= STRINGS_MAX / 4 * share)
        return 0;
    do {
        if (at > ARENA_BYTES / 4 * share - size)
            return 0;
    } while (!__atomic_compare_exchange_n(
            &strings.arena_used, &at, at + size, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    // A thread that loses the race for the slot leaves a hole in the ids and in the arena.
    do {
        if (count >= STRINGS_MAX / 4 * share)
            return 0;
    } while (!__atomic_compare_exchange_n(
            &strings.count, &count, count + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct entry *entry = (struct entry *)(strings.arena + at);
    entry->id = count + 1;
    entry->written = 0;
    entry->hash = (uint32_t)hash;
    entry->text_bytes = (uint32_t)bytes;
    memcpy(entry->text, text, bytes);
    return hash >> 32 << 32 | (at / 8 + 1);
}

static struct entry *entry_find(const char *text, size_t bytes, uint32_t share)
{
    uint64_t hash = hash_text(text, bytes), fresh = 0;
    for (uint32_t i = (uint32_t)hash % SLOTS, n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        uint64_t slot = __atomic_load_n(&strings.slots[i], __ATOMIC_ACQUIRE);
        if (!slot) {
            if (!fresh)
                fresh = entry_new(hash, text, bytes, share);
            if (!fresh)
                return NULL;
            if (__atomic_compare_exchange_n(
                        &strings.slots[i], &slot, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return entry_at(fresh);
        }
        if (slot >> 32 == hash >> 32 && entry_is(entry_at(slot), hash, text, bytes))
            return entry_at(slot);
    }
    return NULL;
}

static bool write_record(const struct entry *entry)
{
    size_t padded = (entry->text_bytes + 1 + 7) & ~(size_t)7; // an end is always there
    size_t bytes = sizeof(struct ug_rec_string) + padded;
    struct ug_rec_string *record = spool_reserve(UG_PRODUCER_OTHER, bytes);
    if (!record)
        return false;
    record->head = (struct ug_rec_head){.type = UG_REC_STRING, .bytes = (uint16_t)bytes};
    record->id = entry->id;
    record->text_bytes = entry->text_bytes;
    char *text = (char *)(record + 1);
    memset(text + padded - 8, 0, 8);
    memcpy(text, entry->text, entry->text_bytes);
    spool_publish(bytes);
    return true;
}

static uint32_t string_id(const char *text, size_t text_bytes, uint32_t share)
{
    if (!spool_header() || !text || !text_bytes)
        return 0;
    if (text_bytes > TEXT_BYTES_MAX) {
        text_bytes = TEXT_BYTES_MAX;
        while (text_bytes > TEXT_BYTES_MAX - 4 && ((unsigned char)text[text_bytes] & 0xc0) == 0x80)
            text_bytes--; // not within a character of UTF-8
    }
    uint32_t run = __atomic_load_n(&strings_run_number, __ATOMIC_ACQUIRE);
    struct entry *entry = entry_find(text, text_bytes, share);
    if (!entry) {
        spool_drop(UG_PRODUCER_OTHER);
        return 0;
    }
    if (__atomic_load_n(&entry->written, __ATOMIC_ACQUIRE) != run) {
        if (!write_record(entry))
            return 0;
        __atomic_store_n(&entry->written, run, __ATOMIC_RELEASE);
    }
    return entry->id;
}

// Ranges that are named by a number ("step 12345") must not take the room of kernels: those have a
// fourth of it alone.
uint32_t spool_string(const char *text, size_t text_bytes)
{
    return string_id(text, text_bytes, 3);
}

// --- by address
// -----------------------------------------------------------------------------------

uint32_t spool_static_string(const char *text)
{
    if (!text || !spool_header())
        return 0;
    uint64_t where = (uint64_t)(uintptr_t)text;
    uint64_t generation = __atomic_load_n(&strings_generation, __ATOMIC_ACQUIRE);
    uint32_t id = strings_known(text);
    if (id)
        return id;
    id = string_id(text, strnlen(text, TEXT_BYTES_MAX + 1), 4);
    if (id) {
        struct strings_address *address =
                &strings_addresses[where * 0x9e3779b97f4a7c15ull >> (64 - STRINGS_ADDRESS_BITS)];
        uint64_t value = generation << 32 | id;
        __atomic_store_n(&address->value, value, __ATOMIC_RELEASE);
        __atomic_store_n(&address->mixed, value ^ where, __ATOMIC_RELEASE);
    }
    return id;
}

void spool_forget_addresses(void)
{
    __atomic_fetch_add(&strings_generation, 1, __ATOMIC_ACQ_REL);
}

void spool_restart_strings(void)
{
    __atomic_fetch_add(&strings_run_number, 1, __ATOMIC_ACQ_REL);
    spool_forget_addresses();
}
