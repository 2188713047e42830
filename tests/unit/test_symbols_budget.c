// SPDX-License-Identifier: Apache-2.0
// What names may cost in memory: perf maps take room before they grow, in parts, and never more
// than was told.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"
#include "tracer/symbols/perf_map.h"

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_below(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

// Lines of functions of 16 bytes at random places, in which the last of each place holds. Returns
// the last name of each.
enum { PLACES = 50000 };

static void write_lines(FILE *file, uint32_t *names, uint32_t *name, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t place = random_below(PLACES);
        names[place] = ++*name;
        fprintf(file, "%llx 10 f%u\n", (unsigned long long)(0x10000 + 16 * place), *name);
    }
    fflush(file);
}

// It must have told before what it takes.
static bool refresh(struct perf_map *map, uint64_t bytes_max)
{
    uint64_t before = perf_map_bytes(map), growth = perf_map_growth(map);
    bool grown = perf_map_refresh(map, bytes_max);
    CHECK(perf_map_bytes(map) <= before + growth);
    return grown;
}

TEST(perf_map_in_parts_is_the_same)
{
    // more than a refresh takes, too
    static const int parts[] = {1, 255, 2, 7000, 100, 60000, 3, 200000, 1, 9000};
    uint32_t *names = calloc(PLACES, sizeof *names), name = 0;
    int fd = memfd_create("perf", MFD_CLOEXEC);
    FILE *file = fdopen(dup(fd), "w");
    struct perf_map *map = perf_map_new(fd);
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
        write_lines(file, names, &name, parts[part]);
        CHECK(refresh(map, UINT64_MAX));
        while (refresh(map, UINT64_MAX))
            ;
    }
    int wrong = 0;
    for (uint64_t place = 0; place < PLACES; place++) {
        char got[64] = "", want[64];
        uint64_t offset = 0;
        size_t len = perf_map_find(map, 0x10000 + 16 * place + 5, got, sizeof got, &offset);
        snprintf(want, sizeof want, "f%u", names[place]);
        wrong += names[place] ? !len || strcmp(got, want) || offset != 5 : len != 0;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(map->dropped, 0);
    CHECK(map->count <= PLACES);
    perf_map_free(map);
    fclose(file);
    free(names);
}

TEST(perf_map_keeps_to_what_it_may_take)
{
    uint32_t *names = calloc(PLACES, sizeof *names), name = 0;
    int fd = memfd_create("perf", MFD_CLOEXEC);
    FILE *file = fdopen(dup(fd), "w");
    struct perf_map *map = perf_map_new(fd);
    write_lines(file, names, &name, 40000);
    while (refresh(map, 300 << 10))
        ;
    CHECK(perf_map_bytes(map) <= 300 << 10);
    CHECK(map->count > 10000 && map->dropped > 0 && map->count + map->dropped <= 40000);
    CHECK_INT(ftruncate(fd, 0), 0); // anew: what is there stays, and is enough
    rewind(file);
    write_lines(file, names, &name, 1000);
    CHECK(refresh(map, 0));
    CHECK(map->count > 900 && map->count <= 1000);
    perf_map_free(map);
    fclose(file);
    free(names);
}

static void make_process(pid_t pid, uint64_t lines)
{
    struct world_fake fake = {.pid = pid,
            .start = 100,
            .stack = 4096,
            .base = 0x7f0000000000,
            .library = SYMBOLS_WHOLE};
    world_fake(&fake);
    unlink(world_path("proc/%d/root", (int)pid));
    world_directory(world_path("proc/%d/root/tmp", (int)pid));
    world_write(world_path("proc/%d/status", (int)pid), "Name:\tx\nNSpid:\t%d\nNSpgid:\t%d\n",
            (int)pid, (int)pid);
    world_write(world_path("proc/%d/maps", (int)pid), "200000-80000000 r-xp 00000000 00:00 0 \n");
    FILE *file = fopen(world_path("proc/%d/root/tmp/perf-%d.map", (int)pid, (int)pid), "w");
    for (uint64_t i = 0; i < lines; i++)
        fprintf(file, "%llx 10 f%llu\n", (unsigned long long)(0x200000 + 16 * i),
                (unsigned long long)i);
    fclose(file);
}

// Eight processes with maps of 640 kB each, and 2 MB for all and the rest: at no moment there is
// more, and the ELF file keeps its table.
TEST(perf_maps_of_many_processes_share_half_of_the_budget)
{
    enum { PROCESSES = 8, LINES = 40000 };
    struct symbols *symbols = world_symbols(
            (struct symbols_opts){.proc_path = world_path("proc"), .bytes_max = 2 << 20});
    struct symbols_stats stats;
    struct symbol symbol;
    uint64_t most = 0;
    int known = 0;
    for (pid_t pid = 100; pid < 100 + PROCESSES; pid++)
        make_process(pid, LINES);
    struct world_fake fake = {.pid = 99,
            .start = 100,
            .stack = 4096,
            .base = 0x7f0000000000,
            .library = SYMBOLS_WHOLE};
    world_fake(&fake);
    symbols_process_lookup_at(
            symbols, 99, 0, UINT64_MAX, world_fake_address(&fake, FIXTURE_HIDDEN), &symbol);
    CHECK(symbol.known);
    // A map is read again only while reading takes a small share of the time: until each was
    // evicted once, and then one more.
    for (int round = 0; round < 3 || (stats.files_evicted <= PROCESSES && round < 3000); round++) {
        if (round >= 3)
            usleep(10000);
        for (pid_t pid = 100; pid < 100 + PROCESSES; pid++)
            for (uint64_t i = 0; i < LINES; i += 1000) {
                symbols_process_lookup_at(symbols, pid, 0, UINT64_MAX, 0x200008 + 16 * i, &symbol);
                known += symbol.known;
                symbols_stats(symbols, &stats);
                most = stats.bytes_tables > most ? stats.bytes_tables : most;
            }
    }
    CHECK(known > 100);
    CHECK(most <= 2 << 20);
    CHECK_INT(stats.files_loaded, 1);
    CHECK(stats.files_evicted > PROCESSES);
    symbols_free(symbols);
}
