// SPDX-License-Identifier: Apache-2.0
// The code of one process over time. The present is one sorted array: 300 entries of PyTorch, found
// by halving; the past is searched entry by entry, and mostly empty.
#include "tracer/symbols/mapping_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"

// Of a path without " (deleted)", which only maps says.
static size_t mapping_path_len(const char *path)
{
    size_t len = strlen(path), mark = strlen(" (deleted)");
    return len > mark && !strcmp(path + len - mark, " (deleted)") ? len - mark : len;
}

// Does an address in both mean the same? What one of them does not tell, the build-id or the inode,
// cannot differ.
static bool mapping_same(const struct mapping *a, const struct mapping *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == MAPPING_VDSO)
        return true;
    if (a->kind == MAPPING_JIT && !mapping_is_memory_file(a) && !mapping_is_memory_file(b))
        return true; // what a JIT puts there is told by its perf map
    if (a->start - a->offset != b->start - b->offset ||
            (a->build_id && b->build_id && a->build_id != b->build_id) ||
            (a->inode && b->inode && a->inode != b->inode))
        return false;
    size_t len = mapping_path_len(a->path);
    return a->path == b->path ||
            (len == mapping_path_len(b->path) && !memcmp(a->path, b->path, len));
}

void mapping_table_change(struct mapping_table *table, uint64_t at_ns)
{
    table->change_ns[table->changes++ % MAPPING_CHANGES_MAX] = at_ns;
}

static struct mapping mapping_part(const struct mapping *one, uint64_t start, uint64_t end)
{
    struct mapping part = *one;
    part.offset += start - part.start;
    part.start = start;
    part.end = end;
    return part;
}

// Keep the part from start to end of one that has gone.
static void mapping_table_bury(struct mapping_table *table, const struct mapping *one,
        uint64_t start, uint64_t end, uint64_t until_ns)
{
    uint32_t at;
    if (table->past_count == MAPPING_PAST_MAX) { // the oldest goes
        at = table->past_next++ % MAPPING_PAST_MAX;
    } else {
        at = table->past_count++;
        table->past = vector_reserve(
                table->past, &table->past_capacity, table->past_count, sizeof(*table->past));
    }
    table->past[at] = mapping_part(one, start, end);
    table->past[at].until_ns = until_ns;
}

// The first that ends behind the address.
static uint32_t mapping_table_at(const struct mapping_table *table, uint64_t address)
{
    return (uint32_t)search_first(i, table->count, table->all[i].end > address);
}

// Put `with` of them in the place of those from first to last - 1. False: no room.
static bool mapping_table_splice(struct mapping_table *table, uint32_t first, uint32_t last,
        const struct mapping *with, uint32_t with_count)
{
    uint32_t count = table->count - (last - first) + with_count;
    if (count > MAPPINGS_MAX) {
        table->dropped++;
        return false;
    }
    // half more: 256 processes keep theirs, and a mapping has 88 bytes
    if (count > table->capacity) {
        table->capacity = count + count / 2;
        table->all = xrealloc(table->all, table->capacity * sizeof(*table->all));
    }
    memmove(table->all + first + with_count, table->all + last,
            (table->count - last) * sizeof(*table->all));
    memcpy(table->all + first, with, with_count * sizeof(*with));
    table->count = count;
    return true;
}

// It comes after all that lies there.
static void mapping_table_place(struct mapping_table *table, const struct mapping *one)
{
    uint32_t first = mapping_table_at(table, one->start), last = first, with_count = 0;
    struct mapping with[3];
    bool changed = false;
    while (last < table->count && table->all[last].start < one->end)
        last++;
    if (last - first == 1 && table->all[first].start <= one->start &&
            table->all[first].end >= one->end && mapping_same(&table->all[first], one))
        return;
    if (first < last && table->all[first].start < one->start)
        with[with_count++] = mapping_part(&table->all[first], table->all[first].start, one->start);
    with[with_count++] = *one;
    if (first < last && table->all[last - 1].end > one->end)
        with[with_count++] =
                mapping_part(&table->all[last - 1], one->end, table->all[last - 1].end);
    for (uint32_t i = first; i < last; i++) {
        const struct mapping *old = &table->all[i];
        if (mapping_same(old, one))
            continue;
        mapping_table_bury(table, old, old->start > one->start ? old->start : one->start,
                old->end < one->end ? old->end : one->end, one->since_ns);
        changed = true;
    }
    if (mapping_table_splice(table, first, last, with, with_count) && changed)
        mapping_table_change(table, one->since_ns);
}

// What came later took its place, though it was told first.
static void mapping_table_place_late(
        struct mapping_table *table, const struct mapping *one, uint64_t until_ns)
{
    mapping_table_bury(table, one, one->start, one->end, until_ns);
    mapping_table_change(table, one->since_ns);
    mapping_table_change(table, until_ns);
}

void mapping_table_add(struct mapping_table *table, const struct mapping *one)
{
    uint64_t start = one->start;
    if (one->since_ns < table->ended_ns) {
        mapping_table_place_late(table, one, table->ended_ns);
        return;
    }
    while (start < one->end) {
        uint32_t at = mapping_table_at(table, start);
        while (at < table->count && table->all[at].start < one->end &&
                table->all[at].since_ns <= one->since_ns)
            at++;
        bool later = at < table->count && table->all[at].start < one->end;
        struct mapping next =
                later ? table->all[at] : (struct mapping){.start = one->end, .end = one->end};
        if (next.start > start) {
            struct mapping part = mapping_part(one, start, next.start);
            mapping_table_place(table, &part);
            start = next.start;
        }
        uint64_t end = next.end < one->end ? next.end : one->end;
        if (later && !mapping_same(&next, one)) {
            struct mapping part = mapping_part(one, start, end);
            mapping_table_place_late(table, &part, next.since_ns);
        }
        start = end;
    }
}

void mapping_table_end(struct mapping_table *table, uint64_t at_ns)
{
    uint32_t kept = 0;
    if (at_ns < table->ended_ns)
        return;
    table->ended_ns = at_ns;
    for (uint32_t i = 0; i < table->count; i++) {
        if (table->all[i].since_ns >= at_ns)
            table->all[kept++] = table->all[i];
        else
            mapping_table_bury(
                    table, &table->all[i], table->all[i].start, table->all[i].end, at_ns);
    }
    table->count = kept;
    for (uint32_t i = 0; i < table->past_count; i++)
        if (table->past[i].since_ns < at_ns && table->past[i].until_ns > at_ns)
            table->past[i].until_ns = at_ns;
    mapping_table_change(table, at_ns);
}

bool mapping_table_has(const struct mapping_table *table, const struct mapping *one)
{
    uint32_t at = mapping_table_at(table, one->start);
    return at < table->count && table->all[at].start <= one->start &&
            table->all[at].end >= one->end && mapping_same(&table->all[at], one);
}

void mapping_table_update(
        struct mapping_table *table, const struct mappings *maps, uint64_t at_ns, bool first)
{
    struct mapping_table now = {.all = maps->all, .count = maps->count};
    uint32_t kept = 0, changes = table->changes;
    uint64_t since_ns = first && !table->count ? table->ended_ns : at_ns;
    bool differs = false;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct mapping *old = &table->all[i];
        uint32_t at = mapping_table_at(&now, old->start);
        // what lies there is told below
        bool there = at < now.count && now.all[at].start < old->end;
        if (there || old->since_ns > at_ns || maps->dropped) { // what was left out may be just that
            table->all[kept++] = *old;
            continue;
        }
        mapping_table_bury(table, old, old->start, old->end, at_ns);
        differs = true;
    }
    table->count = kept;
    for (uint32_t i = 0; i < maps->count; i++) {
        struct mapping one = maps->all[i];
        one.since_ns = since_ns;
        if (mapping_table_has(table, &one))
            continue;
        mapping_table_add(table, &one);
        differs = true;
    }
    if (differs && !first && table->changes == changes)
        mapping_table_change(table, at_ns); // what was at no place before may be at one now
    table->dropped += maps->dropped;
}

static void mapping_table_inherit(struct mapping_table *table, struct mapping one)
{
    one.since_ns = one.until_ns = 0;
    one.unopenable = false;
    mapping_table_add(table, &one);
}

void mapping_table_copy(
        struct mapping_table *table, const struct mapping_table *from, uint64_t at_ns)
{
    for (uint32_t i = 0; i < from->past_count; i++)
        if (from->past[i].since_ns <= at_ns && at_ns < from->past[i].until_ns)
            mapping_table_inherit(table, from->past[i]);
    for (uint32_t i = 0; i < from->count; i++)
        if (from->all[i].since_ns <= at_ns)
            mapping_table_inherit(table, from->all[i]);
}

// Of two that lay there, which one at at_ns? The last that had come by then; else the first that
// came later.
static struct mapping *mapping_nearer(struct mapping *a, struct mapping *b, uint64_t at_ns)
{
    if (!a || !b)
        return a ? a : b;
    bool a_had_come = a->since_ns <= at_ns, b_had_come = b->since_ns <= at_ns;
    if (a_had_come != b_had_come)
        return a_had_come ? a : b;
    return (a->since_ns >= b->since_ns) == a_had_come ? a : b;
}

struct mapping *mapping_table_find(
        const struct mapping_table *table, uint64_t address, uint64_t at_ns)
{
    struct mapping *found = NULL;
    uint32_t at = mapping_table_at(table, address);
    if (at < table->count && table->all[at].start <= address)
        found = &table->all[at];
    for (uint32_t i = 0; i < table->past_count; i++) {
        struct mapping *one = &table->past[i];
        if (address >= one->start && address < one->end && at_ns < one->until_ns)
            found = mapping_nearer(found, one, at_ns);
    }
    return found;
}

uint32_t mapping_table_epoch(const struct mapping_table *table, uint64_t at_ns)
{
    uint32_t kept = table->changes < MAPPING_CHANGES_MAX ? table->changes : MAPPING_CHANGES_MAX,
             later = 0;
    for (uint32_t i = 0; i < kept; i++)
        later += table->change_ns[i] > at_ns;
    return table->changes - later;
}

uint64_t mapping_table_bytes(const struct mapping_table *table)
{
    return (table->capacity + table->past_capacity) * sizeof(struct mapping);
}

void mapping_table_free(struct mapping_table *table)
{
    free(table->all);
    free(table->past);
    *table = (struct mapping_table){0};
}
