// SPDX-License-Identifier: Apache-2.0
// Reads perf maps piece by piece: only whole lines count, since the last one may be half written. A
// JIT gives the same memory to a new function: of entries at one address the later line holds.
#include "tracer/symbols/perf_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/search.h"
#include "common/strings.h"
#include "tracer/symbols/elf_reader.h"

enum {
    PERF_CHUNK_BYTES = 64 << 10,
    PERF_ENTRIES_MAX = 300000, // 4.8 MB; a large Java server has 60,000
    PERF_FILE_BYTES_MAX = 256 << 20,
    PERF_REFRESH_BYTES = 8 << 20, // at a time: 20 ms, in which no ring must fill. A large Java server has 4 MB
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

static void perf_line(struct perf_map *map, const char *line, const char *end, uint64_t offset)
{
    const char *at = line;
    uint64_t address, size;
    if (!perf_hex(&at, end, &address) || at == end || *at++ != ' ' || !perf_hex(&at, end, &size) ||
        at == end || *at++ != ' ' || at == end || !size)
        return;
    if (map->count == PERF_ENTRIES_MAX) {
        map->dropped++;
        return;
    }
    if (map->count == map->capacity) {
        map->capacity = map->capacity ? map->capacity * 2 : 256;
        if (map->capacity > PERF_ENTRIES_MAX)
            map->capacity = PERF_ENTRIES_MAX;
        map->entries = xrealloc(map->entries, map->capacity * sizeof(*map->entries));
    }
    map->entries[map->count++] =
        (struct perf_entry){address, size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
                            (uint32_t)(offset + (uint64_t)(at - line))};
}

static int perf_compare(const void *a, const void *b)
{
    const struct perf_entry *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

static void perf_sort(struct perf_map *map)
{
    if (!map->count)
        return;
    qsort(map->entries, map->count, sizeof(*map->entries), perf_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->count; i++)
        if (i + 1 == map->count || map->entries[i].address != map->entries[i + 1].address)
            map->entries[kept++] = map->entries[i];
    map->count = kept;
}

bool perf_map_refresh(struct perf_map *map)
{
    struct stat status;
    if (fstat(map->fd, &status))
        return false;
    uint64_t bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    if (bytes < map->read_to)
        map->read_to = map->count = 0;
    if (bytes == map->read_to || map->read_to >= PERF_FILE_BYTES_MAX)
        return false;
    char *chunk = xcalloc(1, PERF_CHUNK_BYTES);
    uint64_t before = map->read_to;
    while (map->read_to < PERF_FILE_BYTES_MAX && map->read_to - before < PERF_REFRESH_BYTES) {
        ssize_t got = pread(map->fd, chunk, PERF_CHUNK_BYTES, (off_t)map->read_to);
        if (got <= 0)
            break;
        const char *line = chunk, *end = chunk + got, *newline;
        while ((newline = memchr(line, '\n', (size_t)(end - line)))) {
            perf_line(map, line, newline, map->read_to + (uint64_t)(line - chunk));
            line = newline + 1;
        }
        // A line longer than a piece is passed over; its tail fails to parse.
        map->read_to += line > chunk ? (uint64_t)(line - chunk)
                                     : got == PERF_CHUNK_BYTES ? (uint64_t)got : 0;
        if (line == chunk && got < PERF_CHUNK_BYTES)
            break;
    }
    free(chunk);
    perf_sort(map);
    return map->read_to != before;
}

size_t perf_map_find(const struct perf_map *map, uint64_t address, char *name, size_t size,
                     uint64_t *ret_offset)
{
    uint32_t after = (uint32_t)search_first(i, map->count, map->entries[i].address > address);
    const struct perf_entry *found = NULL;
    for (uint32_t i = after, back = 0; i-- > 0 && back < PERF_NESTING_MAX; back++)
        if (address - map->entries[i].address < map->entries[i].size &&
            (!found || map->entries[i].name > found->name))
            found = &map->entries[i];
    if (!found)
        return 0;
    ssize_t got = pread(map->fd, name, size - 1, found->name);
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
    return map ? sizeof(*map) + map->capacity * sizeof(*map->entries) : 0;
}

void perf_map_free(struct perf_map *map)
{
    if (!map)
        return;
    close(map->fd);
    free(map->entries);
    free(map);
}
