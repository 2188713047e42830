// SPDX-License-Identifier: Apache-2.0
// The string pool: texts lie one behind the other in 64 KiB chunks, a hash table of pointers finds
// them. Nothing is ever thrown out, because the answers of lookups point here. Owner thread only.
// Not common/intern.h: numbers, lengths and keys beside each text would take 40 to 80 bytes of it
// instead of 16 to 32, and so half of the names that fit into bytes_max.
#include "tracer/symbols/names.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { NAMES_CHUNK_BYTES = 64 << 10, NAMES_SLOTS_FIRST = 1024, NAMES_TEXT_MAX = 4096 };

struct names_chunk {
    struct names_chunk *next;
    size_t used;
    char text[];
};

static uint64_t names_hash(const char *text, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325ULL; // FNV-1a: names are short
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 29;
}

static size_t names_slot(const struct names *names, const char *text, size_t len)
{
    size_t at = names_hash(text, len) & (names->slot_count - 1);
    for (; names->slots[at]; at = (at + 1) & (names->slot_count - 1))
        if (!strncmp(names->slots[at], text, len) && !names->slots[at][len])
            break;
    return at;
}

static void names_grow(struct names *names)
{
    struct names bigger = *names;
    bigger.slot_count = names->slot_count ? names->slot_count * 2 : NAMES_SLOTS_FIRST;
    bigger.slots = xcalloc(bigger.slot_count, sizeof(*bigger.slots));
    for (size_t i = 0; i < names->slot_count; i++)
        if (names->slots[i])
            bigger.slots[names_slot(&bigger, names->slots[i], strlen(names->slots[i]))] =
                    names->slots[i];
    bigger.bytes += (bigger.slot_count - names->slot_count) * sizeof(*bigger.slots);
    free(names->slots);
    *names = bigger;
}

// Room for need bytes, NULL at the limit.
static char *names_room(struct names *names, size_t need)
{
    if (!names->chunk || NAMES_CHUNK_BYTES - names->chunk->used < need) {
        if (need > NAMES_CHUNK_BYTES || names->bytes + NAMES_CHUNK_BYTES > names->bytes_max)
            return NULL;
        struct names_chunk *chunk = xcalloc(1, sizeof(*chunk) + NAMES_CHUNK_BYTES);
        chunk->next = names->chunk;
        names->chunk = chunk;
        names->bytes += NAMES_CHUNK_BYTES;
    }
    char *room = names->chunk->text + names->chunk->used;
    names->chunk->used += need;
    return room;
}

const char *names_intern(struct names *names, const char *text, size_t len)
{
    char clean[NAMES_TEXT_MAX];
    len = strnlen(text, len < sizeof(clean) ? len : sizeof(clean));
    // Names come from files of the traced process: they must not break the store or a terminal.
    memcpy(clean, text, len);
    string_make_utf8(clean, len);
    text = clean;
    if (names->count * 2 >= names->slot_count)
        names_grow(names);
    size_t at = names_slot(names, text, len);
    if (names->slots[at])
        return names->slots[at];
    char *copy = names_room(names, len + 1);
    if (!copy) {
        names->dropped++;
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    names->slots[at] = copy;
    names->count++;
    return copy;
}

void names_free(struct names *names)
{
    while (names->chunk) {
        struct names_chunk *next = names->chunk->next;
        free(names->chunk);
        names->chunk = next;
    }
    free(names->slots);
    *names = (struct names){0};
}
