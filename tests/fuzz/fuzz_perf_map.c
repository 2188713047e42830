// SPDX-License-Identifier: Apache-2.0
// /tmp/perf-PID.map of a target, and its /proc/PID/maps. The first byte: how much of the perf map
// is there at first.
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tracer/symbols/mapping_table.h"
#include "tracer/symbols/perf_map.h"

static void read_perf_map(const uint8_t *data, size_t size, size_t first)
{
    int fd = fuzz_memfd(data, first < size ? first : size);
    struct perf_map *map = perf_map_new(fd); // takes fd
    int same = dup(fd);
    perf_map_refresh(map, UINT64_MAX);
    fuzz_require(pwrite(same, data, size, 0) == (ssize_t)size, "room");
    perf_map_refresh(map, UINT64_MAX);
    char name[512];
    for (uint32_t i = 0; i < map->count; i++) {
        uint64_t offset = 0;
        size_t len = perf_map_find(map, map->entries[i].address, name, sizeof name, &offset);
        fuzz_require(len < sizeof name && strlen(name) <= len, "a name that ends");
        perf_map_find(map, map->entries[i].address + map->entries[i].size - 1, name, sizeof name,
                &offset);
    }
    perf_map_find(map, 0, name, sizeof name, &(uint64_t){0});
    perf_map_find(map, UINT64_MAX, name, sizeof name, &(uint64_t){0});
    fuzz_require(ftruncate(same, (off_t)size / 2) == 0, "a file that can be cut");
    perf_map_refresh(map, UINT64_MAX);
    close(same);
    perf_map_free(map);
}

static void read_maps(const uint8_t *data, size_t size)
{
    struct names names = {.bytes_max = 1 << 20};
    struct mappings mappings = {0};
    fuzz_write(fuzz_path("maps"), data, size);
    struct mapping_table table = {0};
    if (mappings_read(fuzz_path("."), &names, &mappings) == 0) {
        for (uint32_t i = 0; i < mappings.count; i++) {
            fuzz_require(
                    !i || mappings.all[i - 1].start <= mappings.all[i].start, "mappings in order");
            mapping_is_memory_file(&mappings.all[i]);
            mapping_table_add(&table, &mappings.all[i]);
            mapping_table_find(&table, mappings.all[i].start, UINT64_MAX);
        }
        mapping_table_update(&table, &mappings, size, false);
    }
    mapping_table_free(&table);
    mappings_free(&mappings);
    names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    size_t first = fuzz_take(&input, 1);
    read_perf_map(input.data, input.size, first);
    read_maps(input.data, input.size);
    return 0;
}
