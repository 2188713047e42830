// SPDX-License-Identifier: Apache-2.0
// Reads perf maps piece by piece: only whole lines count, since the last one may be half written. A
// JIT gives the same memory to a new function: of entries at one address the later line holds.
#include "tracer/symbols/perf_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"
#include "common/target/file.h"

enum {
    PERF_CHUNK_BYTES = 64 << 10,
    PERF_LINE_BYTES_MIN = 6,
    PERF_ENTRIES_MAX = 300000, // 4.8 MB; a large Java server has 60,000
    PERF_FILE_BYTES_MAX = 256 << 20,
    // At a time: 20 ms, in which no ring must fill. A large Java server has 4 MB. A piece begins
    // while fewer were added.
    PERF_REFRESH_BYTES = 8 << 20,
    PERF_REFRESH_ENTRIES = 48000,
    PERF_STEP = 8192, // entries by which a large table grows: 128 KiB, which the system moves
                      // without a copy
    PERF_NESTING_MAX = 16,
};

struct perf_map *perf_map_new(int fd)
{
    struct perf_map *map = xcalloc(1, sizeof(*map));
    map->fd = fd;
    return map;
}

static bool perf_hex(const char **at, const char *end, uint64_t *ret)
{
    const char *from = *at;
    uint64_t value = 0;
    if (end - *at > 2 && (*at)[0] == '0' && ((*at)[1] | 32) == 'x')
        from = *at += 2; // some JITs write the prefix
    for (; *at < end && *at - from <= 16; ++*at) {
        int c = (unsigned char)**at, low = c | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0)
            break;
        value = value << 4 | (unsigned)digit;
    }
    *ret = value;
    return *at > from && *at - from <= 16;
}

static uint64_t perf_bytes_of(uint64_t entries)
{
    return sizeof(struct perf_map) + entries * sizeof(struct perf_entry);
}

static uint32_t perf_capacity_next(uint32_t capacity)
{
    uint32_t next = capacity < PERF_STEP ? (capacity ? capacity * 2 : 256) : capacity + PERF_STEP;
    return next < PERF_ENTRIES_MAX ? next : PERF_ENTRIES_MAX;
}

// Room for one more. False: none.
static bool perf_room(struct perf_map *map, uint64_t bytes_max)
{
    if (map->count < map->capacity)
        return true;
    uint32_t next = perf_capacity_next(map->capacity);
    if (next == map->capacity || perf_bytes_of(next) > bytes_max)
        return false;
    map->capacity = next;
    map->entries = xrealloc(map->entries, map->capacity * sizeof(*map->entries));
    return true;
}

static void perf_line(struct perf_map *map, const char *line, const char *end, uint64_t offset,
        uint64_t bytes_max)
{
    const char *at = line;
    uint64_t address, size;
    if (!perf_hex(&at, end, &address) || at == end || *at++ != ' ' || !perf_hex(&at, end, &size) ||
            at == end || *at++ != ' ' || at == end || !size)
        return;
    if (!perf_room(map, bytes_max)) {
        map->dropped++;
        return;
    }
    map->entries[map->count++] =
            (struct perf_entry){address, size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
                    (uint32_t)(offset + (uint64_t)(at - line))};
}

static bool perf_before(const struct perf_entry *a, const struct perf_entry *b)
{
    return a->address != b->address ? a->address < b->address : a->name < b->name;
}

// Those from `sorted` on are new. They are sorted by themselves and put between the others from the
// end on, so that only they are copied.
static void perf_merge(struct perf_map *map, uint32_t sorted)
{
    uint32_t more = map->count - sorted;
    if (!more)
        return;
    struct perf_entry *fresh = map->entries + sorted;
    sort_in_place(fresh, more, x, y, perf_before(x, y));
    if (!sorted || perf_before(&fresh[-1], fresh))
        return;
    struct perf_entry *copy = xcalloc(more, sizeof(*copy));
    memcpy(copy, fresh, more * sizeof(*copy));
    for (uint32_t at = map->count; more; at--) {
        bool old = sorted && perf_before(&copy[more - 1], &map->entries[sorted - 1]);
        map->entries[at - 1] = old ? map->entries[--sorted] : copy[--more];
    }
    free(copy);
}

// Of those at one address the last line holds.
static void perf_drop_replaced(struct perf_map *map)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->count; i++)
        if (i + 1 == map->count || map->entries[i].address != map->entries[i + 1].address)
            map->entries[kept++] = map->entries[i];
    map->count = kept;
}

// What there is to read, as far as one refresh reads. 0: nothing.
static uint64_t perf_unread(const struct perf_map *map, uint64_t *ret_from)
{
    struct stat status;
    *ret_from = map->read_to;
    if (target_file_status(map->fd, &status))
        return 0;
    uint64_t bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    *ret_from = bytes < map->read_to ? 0 : map->read_to;
    if (bytes == map->read_to || *ret_from >= PERF_FILE_BYTES_MAX)
        return 0;
    uint64_t left = bytes - *ret_from;
    return left < PERF_REFRESH_BYTES ? left : PERF_REFRESH_BYTES;
}

uint64_t perf_map_growth(const struct perf_map *map)
{
    uint64_t from = 0, most = PERF_REFRESH_ENTRIES + PERF_CHUNK_BYTES / PERF_LINE_BYTES_MIN;
    uint64_t unread = perf_unread(map, &from), lines = unread / PERF_LINE_BYTES_MIN;
    uint64_t need = unread ? (from ? map->count : 0) + (lines < most ? lines : most) : 0;
    uint32_t capacity = map->capacity, next;
    while (capacity < need && (next = perf_capacity_next(capacity)) > capacity)
        capacity = next;
    return (capacity - map->capacity) * sizeof(*map->entries);
}

bool perf_map_refresh(struct perf_map *map, uint64_t bytes_max)
{
    uint64_t from = 0, unread = perf_unread(map, &from);
    bool shorter = from != map->read_to;
    if (!unread && !shorter)
        return false;
    if (shorter)
        map->read_to = map->count = 0;
    uint32_t sorted = map->count;
    char *chunk = xcalloc(1, PERF_CHUNK_BYTES);
    while (map->read_to < PERF_FILE_BYTES_MAX && map->read_to - from < PERF_REFRESH_BYTES &&
            map->count - sorted < PERF_REFRESH_ENTRIES) {
        ssize_t got = target_file_read(map->fd, chunk, PERF_CHUNK_BYTES, map->read_to);
        if (got <= 0)
            break;
        const char *line = chunk, *end = chunk + got, *newline;
        while ((newline = memchr(line, '\n', (size_t)(end - line)))) {
            perf_line(map, line, newline, map->read_to + (uint64_t)(line - chunk), bytes_max);
            line = newline + 1;
        }
        // A line longer than a piece is passed over; its tail fails to parse.
        map->read_to += line > chunk      ? (uint64_t)(line - chunk)
                : got == PERF_CHUNK_BYTES ? (uint64_t)got
                                          : 0;
        if (line == chunk && got < PERF_CHUNK_BYTES)
            break;
    }
    free(chunk);
    perf_merge(map, sorted);
    perf_drop_replaced(map);
    return map->read_to != from || shorter;
}

size_t perf_map_find(
        const struct perf_map *map, uint64_t address, char *name, size_t size, uint64_t *ret_offset)
{
    uint32_t after = (uint32_t)search_first(i, map->count, map->entries[i].address > address);
    const struct perf_entry *found = NULL;
    for (uint32_t i = after, back = 0; i-- > 0 && back < PERF_NESTING_MAX; back++)
        if (address - map->entries[i].address < map->entries[i].size &&
                (!found || map->entries[i].name > found->name))
            found = &map->entries[i];
    if (!found)
        return 0;
    ssize_t got = target_file_read(map->fd, name, size - 1, found->name);
    if (got <= 0)
        return 0;
    const char *newline = memchr(name, '\n', (size_t)got);
    size_t len = newline ? (size_t)(newline - name) : (size_t)got;
    len = strnlen(name, len);
    name[len] = '\0';
    *ret_offset = address - found->address;
    return len;
}

uint64_t perf_map_bytes(const struct perf_map *map)
{
    return map ? perf_bytes_of(map->capacity) : 0;
}

void perf_map_free(struct perf_map *map)
{
    if (!map)
        return;
    close(map->fd);
    free(map->entries);
    free(map);
}
