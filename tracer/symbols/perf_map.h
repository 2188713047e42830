// SPDX-License-Identifier: Apache-2.0
// /tmp/perf-PID.map of a process: "START SIZE NAME" in hex, a line a function that a JIT compiled.
// The file grows while the process runs. Ranges are kept (16 bytes each), names are read when asked
// for.
#ifndef UPGATE_TRACER_SYMBOLS_PERF_MAP_H
#define UPGATE_TRACER_SYMBOLS_PERF_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct perf_entry {
    uint64_t address;
    uint32_t size, name; // name: offset in the file
};

struct perf_map {
    int fd; // taken over
    uint64_t read_to;
    struct perf_entry *entries;
    uint32_t count, capacity;
    uint64_t dropped; // lines beyond the maximum
};

struct perf_map *perf_map_new(int fd);
// What perf_map_bytes() may be more after the next refresh.
uint64_t perf_map_growth(const struct perf_map *map);
// Read what was written since; a file that became shorter is read anew. What does not fit into
// bytes_max in all is dropped. Beside it 1 MB is taken for a moment. False: nothing new.
bool perf_map_refresh(struct perf_map *map, uint64_t bytes_max);
// The name of the function around the address, newest first, and the offset. 0: none.
size_t perf_map_find(const struct perf_map *map, uint64_t address, char *name, size_t size,
        uint64_t *ret_offset);
uint64_t perf_map_bytes(const struct perf_map *map); // NULL: 0
void perf_map_free(struct perf_map *map);

#endif
