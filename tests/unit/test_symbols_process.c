// SPDX-License-Identifier: Apache-2.0
// Who a process is, and the limits of the caches, in a /proc made of files: pids are reused,
// programs replaced and processes ended without waiting for the kernel to do so.
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"
#include "tracer/symbols/debug_file.h"

static const uint64_t hour_ns = 3600000000000;

static struct symbols *fake_symbols(struct symbols_opts opts)
{
    opts.proc_path = world_path("proc");
    opts.debug_path = world_path("debug");
    return world_symbols(opts);
}

static struct world_fake fake_of(pid_t pid, const char *library)
{
    return (struct world_fake){
            .pid = pid, .start = 100, .stack = 4096, .base = 0x7f0000000000, .library = library};
}

static const char *name_of(struct symbols *symbols, const struct world_fake *fake, int which)
{
    struct symbol symbol;
    symbols_process_lookup_at(
            symbols, fake->pid, 0, UINT64_MAX, world_fake_address(fake, which), &symbol);
    return symbol.name;
}

static const char *name_at(struct symbols *symbols, const struct world_fake *fake, uint64_t ip)
{
    struct symbol symbol;
    symbols_process_lookup_at(symbols, fake->pid, fake->start, UINT64_MAX, ip, &symbol);
    return symbol.name;
}

TEST(reused_pid_is_another_process)
{
    struct world_fake first = fake_of(77, SYMBOLS_WHOLE);
    struct world_fake second = first;
    uint64_t ip = world_fake_address(&first, FIXTURE_HIDDEN);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&first);
    CHECK_STR(name_of(symbols, &first, FIXTURE_HIDDEN), "fixture_hidden");
    second.start = 200;
    second.library = SYMBOLS_STRIPPED; // the same addresses, another file
    world_fake(&second);
    CHECK_CONTAINS(name_of(symbols, &second, FIXTURE_HIDDEN), "stripped.so+0x");
    CHECK_STR(name_at(symbols, &first, ip), "fixture_hidden");
    CHECK_CONTAINS(name_at(symbols, &second, ip), "stripped.so+0x");
    first.start = 150; // nobody
    CHECK_STR(name_at(symbols, &first, ip), "[ended]");
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.processes, 2);
    symbols_free(symbols);
}

TEST(ended_process_does_not_read_of_its_successor)
{
    struct world_fake first = fake_of(76, SYMBOLS_WHOLE);
    struct world_fake second = first;
    uint64_t ip = world_fake_address(&first, FIXTURE_HIDDEN);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&first);
    CHECK_STR(name_at(symbols, &first, first.base - 1), "[anon]"); // maps read, no file opened
    second.start = 200;
    world_fake(&second);
    CHECK_STR(name_of(symbols, &second, FIXTURE_HIDDEN), "fixture_hidden");
    // The made maps have an inode that is not the file's: nothing proves that it is the same.
    CHECK_CONTAINS(name_at(symbols, &first, ip), "whole.so+0x");
    symbols_free(symbols);
}

TEST(exec_brings_new_maps)
{
    struct world_fake fake = fake_of(78, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    fake.library = SYMBOLS_STRIPPED;
    world_fake(&fake); // the address is covered, so nothing asks for new maps
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    fake.stack = 8192;
    world_fake(&fake);
    CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "stripped.so+0x");
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.processes, 1);
    symbols_free(symbols);
}

TEST(zombie_and_ended_process_keep_what_was_read)
{
    struct world_fake fake = fake_of(79, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    CHECK_INT(symbols_process_snapshot(symbols, fake.pid, NULL, NULL), 0);
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.files_open, 1); // opened, but no table is built yet
    CHECK_INT(stats.files_loaded, 0);
    // On its way out the maps are empty before the state tells.
    world_write(world_path("proc/%d/maps", fake.pid), "%s", "");
    CHECK_STR(name_at(symbols, &fake, fake.base - 1), "[anon]");
    CHECK_STR(name_of(symbols, &fake, FIXTURE_EXPORTED), "fixture_exported");
    fake.state = 'Z';
    fake.stack = 0;
    world_fake(&fake);
    world_write(world_path("proc/%d/maps", fake.pid), "%s", "");
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    world_fake_gone(fake.pid);
    CHECK_STR(name_of(symbols, &fake, FIXTURE_CLONE), "fixture_clone");
    CHECK_STR(name_at(symbols, &fake, fake.base - 1), "[anon]");
    symbols_free(symbols);
}

TEST(proc_is_not_read_again_too_soon)
{
    struct world_fake fake = fake_of(80, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){.recheck_ns = hour_ns});
    world_fake(&fake);
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    for (int i = 0; i < 100; i++)
        CHECK_STR(name_at(symbols, &fake, fake.base - 1 - (uint64_t)i), "[anon]");
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.maps_reads, 1);
    CHECK_INT(stats.maps_held_back, 100);
    CHECK_INT(stats.lookups, 101);
    CHECK_INT(stats.unknown, 100);
    symbols_free(symbols);
}

static double seconds_between(const struct timespec *begin, const struct timespec *end)
{
    return (double)(end->tv_sec - begin->tv_sec) + (double)(end->tv_nsec - begin->tv_nsec) / 1e9;
}

// A stack of garbage in a process of 20,000 mappings, asked for all the time.
TEST(garbage_costs_a_bounded_share)
{
    enum { MAPPINGS = 20000, LOOKS = 300 };
    struct world_fake fake = fake_of(81, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){.recheck_ns = 1});
    world_fake(&fake);
    struct strbuf maps = {0};
    for (uint64_t i = 0; i < MAPPINGS; i++)
        strbuf_add(&maps, "%llx-%llx r-xp 00000000 00:01 %llu /tmp/lib%llu.so\n",
                0x7f0000000000ull + i * 8192, 0x7f0000001000ull + i * 8192, (unsigned long long)i,
                (unsigned long long)i);
    world_write(world_path("proc/%d/maps", fake.pid), "%s", maps.text);
    strbuf_free(&maps);
    struct timespec cpu[2], wall[2], first, pause = {.tv_nsec = 2000000};
    double read_s = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &first);
    CHECK_STR(name_at(symbols, &fake, 4096), "[anon]");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
    clock_gettime(CLOCK_MONOTONIC, &wall[0]);
    for (int i = 0; i < LOOKS; i++) {
        struct timespec look[2];
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &look[0]);
        CHECK_STR(name_at(symbols, &fake, 4096), "[anon]");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &look[1]);
        read_s = fmax(read_s, seconds_between(&look[0], &look[1]));
        nanosleep(&pause, NULL);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
    clock_gettime(CLOCK_MONOTONIC, &wall[1]);
    double cpu_s = seconds_between(&cpu[0], &cpu[1]), wall_s = seconds_between(&wall[0], &wall[1]);
    // As on a busy machine the same work may take several times the CPU, it is the longest that is
    // taken for a reading.
    read_s = fmax(read_s, seconds_between(&first, &cpu[0]));
    printf("    %.1f %% of a CPU; to read the maps once took at most %.1f ms\n",
            100 * cpu_s / wall_s, 1e3 * read_s);
    // 20 ms and 2 % for the maps, the last two readings beyond that, and the looks themselves; 24 %
    // without a limit.
    CHECK(cpu_s < 0.02 + 2 * read_s + 0.04 * wall_s);
    symbols_free(symbols);
}

TEST(mapping_that_came_later_is_found)
{
    struct world_fake fake = fake_of(81, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    fake.base = 0x7e0000000000;
    world_fake(&fake);
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    symbols_free(symbols);
}

TEST(least_recently_used_process_goes)
{
    struct world_fake fake = {
            .start = 100, .stack = 1 << 20, .base = 0x7f0000000000, .library = SYMBOLS_WHOLE};
    struct symbols *symbols = fake_symbols((struct symbols_opts){.processes_max = 3});
    struct symbols_stats stats;
    for (fake.pid = 1; fake.pid <= 5; fake.pid++) {
        world_fake(&fake);
        CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    }
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.processes, 3);
    CHECK_INT(stats.processes_evicted, 2);
    CHECK_INT(stats.files_open, 1); // shared by all
    CHECK_INT(stats.files_loaded, 1);
    fake.pid = 1;
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    symbols_free(symbols);
}

TEST(least_recently_used_file_goes)
{
    struct symbols *symbols = fake_symbols((struct symbols_opts){.files_max = 2});
    struct world_fake fakes[4];
    struct symbols_stats stats;
    for (int i = 0; i < 4; i++) {
        world_copy(SYMBOLS_WHOLE, world_path("lib%d.so", i));
        fakes[i] = (struct world_fake){.pid = 90 + i,
                .start = 1,
                .stack = 4096,
                .base = 0x7f0000000000,
                .library = world_path("lib%d.so", i)};
        world_fake(&fakes[i]);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 4; i++)
            CHECK_STR(name_of(symbols, &fakes[i], FIXTURE_HIDDEN), "fixture_hidden");
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.files_open, 2);
    CHECK_INT(stats.files_evicted, 6);
    symbols_free(symbols);
}

TEST(open_files_leave_room_for_others)
{
    enum { FDS = 48, LIBRARIES = 20 };
    struct rlimit limit = {FDS, FDS};
    struct symbols_stats stats;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    for (int i = 0; i < LIBRARIES; i++) {
        const char *library = world_path("lib%d.so", i);
        world_copy(SYMBOLS_WHOLE, library);
        struct world_fake fake = fake_of(100 + i, library);
        world_fake(&fake);
        CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    }
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.files_open, FDS / 4);
    CHECK_INT(stats.files_refused, 0);
    symbols_free(symbols);
}

TEST(memory_stays_below_the_maximum)
{
    enum { ROOM = 760 }; // mappings of four processes, less than half of it, and two small tables
    struct symbols *symbols = fake_symbols((struct symbols_opts){.bytes_max = ROOM});
    struct symbols_stats stats;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 4; i++) {
            const char *library = world_path("lib%d.so", i);
            if (!round)
                world_copy(SYMBOLS_WHOLE, library);
            struct world_fake fake = {
                    .pid = 90 + i, .start = 1, .stack = 4096, .base = 1 << 20, .library = library};
            world_fake(&fake);
            // Not the one of before: recent answers need no table.
            int which = round ? FIXTURE_CLONE : FIXTURE_HIDDEN;
            CHECK_STR(name_of(symbols, &fake, which), round ? "fixture_clone" : "fixture_hidden");
            symbols_stats(symbols, &stats);
            CHECK(stats.bytes_tables <= ROOM);
        }
    CHECK(stats.files_evicted > 0);
    CHECK_INT(stats.files_open, 4); // tables go, files stay open
    symbols_free(symbols);
}

TEST(names_stay_below_the_maximum)
{
    struct world_fake fake = fake_of(82, SYMBOLS_STRIPPED);
    struct symbols *symbols = fake_symbols((struct symbols_opts){.strings_bytes_max = 200 << 10});
    struct symbols_stats stats;
    struct symbol symbol;
    world_fake(&fake);
    for (uint64_t i = 0; i < 20000; i++) // beyond the functions all are unknown
        symbols_process_lookup_at(symbols, fake.pid, 0, UINT64_MAX, fake.base + i % 4096, &symbol);
    world_write(world_path("proc/82/maps"), "7f0000000000-7f0009000000 r-xp 0 08:01 1 %s\n",
            SYMBOLS_STRIPPED);
    world_write(world_path("proc/82/stat"),
            "82 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 1 1 1 8 9 8192 0\n");
    for (uint64_t i = 0; i < 20000; i++)
        symbols_process_lookup_at(symbols, fake.pid, 0, UINT64_MAX, fake.base + 4096 * i, &symbol);
    CHECK_CONTAINS(symbol.name, "libsymbols_fixture_stripped.so");
    symbols_stats(symbols, &stats);
    CHECK(stats.bytes_strings < (200 << 10) + (512 << 10)); // the pool and its hash table
    CHECK(stats.strings_dropped > 0);
    symbols_free(symbols);
}

TEST(perf_map_of_a_container)
{
    struct symbol symbol;
    struct world_fake fake = fake_of(83, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    const char *root = world_path("proc/83/root");
    unlink(root);
    world_directory(world_path("proc/83/root/tmp"));
    world_write(world_path("proc/83/status"), "Name:\tx\nNSpid:\t83\t12\t5\nNSpgid:\t83\t12\t5\n");
    world_write(world_path("proc/83/maps"), "200000-201000 r-xp 00000000 00:00 0 \n");
    world_write(world_path("proc/83/root/tmp/perf-5.map"),
            "200000 10 old\nnonsense\n\n200010 zz bad\n200020 0x10 hex\n200000 10 new\n"
            "200030 1");
    symbols_process_lookup_at(symbols, 83, 0, UINT64_MAX, 0x200001, &symbol);
    CHECK_STR(symbol.name, "new"); // the later line of one address
    symbols_process_lookup_at(symbols, 83, 0, UINT64_MAX, 0x200025, &symbol);
    CHECK_STR(symbol.name, "hex");
    symbols_process_lookup_at(symbols, 83, 0, UINT64_MAX, 0x200015, &symbol);
    CHECK_STR(symbol.name, "[jit]");
    world_append(world_path("proc/83/root/tmp/perf-5.map"), "0 half\n"); // ends the half line
    symbols_process_lookup_at(symbols, 83, 0, UINT64_MAX, 0x20003f, &symbol);
    CHECK_STR(symbol.name, "half");
    world_append(world_path("proc/83/root/tmp/perf-5.map"), "200018 30 over two older ones\n");
    symbols_process_lookup_at(symbols, 83, 0, UINT64_MAX, 0x200025, &symbol);
    CHECK_STR(symbol.name, "over two older ones");
    symbols_free(symbols);
}

TEST(perf_map_must_be_a_plain_file_inside)
{
    struct symbol symbol;
    struct world_fake fake = fake_of(84, SYMBOLS_WHOLE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    unlink(world_path("proc/84/root"));
    world_directory(world_path("proc/84/root/tmp"));
    world_write(world_path("proc/84/maps"), "200000-201000 r-xp 00000000 00:00 0 \n");
    world_write(world_path("outside"), "200000 1000 leaked\n");
    CHECK_INT(symlink(world_path("outside"), world_path("proc/84/root/tmp/perf-84.map")), 0);
    symbols_process_lookup_at(symbols, 84, 0, UINT64_MAX, 0x200001, &symbol);
    CHECK_STR(symbol.name, "[jit]");
    unlink(world_path("proc/84/root/tmp/perf-84.map"));
    CHECK_INT(mkfifo(world_path("proc/84/root/tmp/perf-84.map"), 0600), 0);
    symbols_process_lookup_at(symbols, 84, 0, UINT64_MAX, 0x200001, &symbol); // would hang for ever
    CHECK_STR(symbol.name, "[jit]");
    symbols_free(symbols);
}

TEST(damaged_proc_files_are_survived)
{
    static const char *const maps[] = {"", "\n", "garbage\n", "1-2\n",
            "ffffffffffffffff-0 r-xp 0 0:0 0 /x\n",
            "0-ffffffffffffffff r-xp ffffffffffffffff ff:ff 18446744073709551615 /etc/passwd\n",
            "200000-201000 r-xp 0 0:0 0 /dev/null\n100000-300000 r-xp 0 0:0 0 /dev/zero\n",
            "200000-201000 r-xp 0 0:0 7 relative\n", "200000-201000 r-xp 0 0:0 7 /a\xff\xfe\n",
            "200000-201000 r-xp 0 0:0 7 /\n",
            "200000-201000 r-xp 0 0:0 7 /no such file (deleted)\n"};
    static const char *const stats[] = {"", "85", "85 (", "85 )", "85 (x) S", "85 (x) S 1 2 3\n"};
    struct symbol symbol;
    struct world_fake fake = fake_of(85, SYMBOLS_WHOLE);
    for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
        struct symbols *symbols = fake_symbols((struct symbols_opts){0});
        world_fake(&fake);
        world_write(world_path("proc/85/maps"), "%s", maps[i]);
        symbols_process_lookup_at(symbols, 85, 0, UINT64_MAX, 0x200001, &symbol);
        CHECK(!symbol.known);
        CHECK(symbol.name && symbol.module);
        symbols_free(symbols);
    }
    for (size_t i = 0; i < sizeof(stats) / sizeof(*stats); i++) {
        struct symbols *symbols = fake_symbols((struct symbols_opts){0});
        world_write(world_path("proc/85/stat"), "%s", stats[i]);
        symbols_process_lookup_at(symbols, 85, 0, UINT64_MAX, 0x200001, &symbol);
        CHECK_STR(symbol.name, "[ended]");
        symbols_free(symbols);
    }
}

// --- functions without a name --------------------------------------------------------------------

static struct symbol symbol_at(struct symbols *symbols, const struct world_fake *fake, uint64_t ip)
{
    struct symbol symbol;
    symbols_process_lookup_at(symbols, fake->pid, 0, UINT64_MAX, ip, &symbol);
    return symbol;
}

TEST(two_addresses_of_a_nameless_function_are_one_function)
{
    char want[128];
    struct world_fake fake = fake_of(90, SYMBOLS_STRIPPED);
    uint64_t hidden = world_fake_address(&fake, FIXTURE_HIDDEN),
             clone = world_fake_address(&fake, FIXTURE_CLONE);
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    snprintf(want, sizeof want, "libsymbols_fixture_stripped.so+0x%llx",
            (unsigned long long)world_library_address(SYMBOLS_STRIPPED, FIXTURE_HIDDEN));
    for (uint64_t i = 0; i < 4; i++) { // the shortest code of such a function has four bytes
        struct symbol symbol = symbol_at(symbols, &fake, hidden + i);
        CHECK_STR(symbol.name, want);
        CHECK_INT(symbol.offset, i);
        CHECK(!symbol.known);
    }
    struct symbol other = symbol_at(symbols, &fake, clone + 1);
    CHECK(strcmp(other.name, want) != 0);
    CHECK_STR(symbol_at(symbols, &fake, clone).name, other.name);
    CHECK_INT(other.offset, 1);
    // What has a symbol keeps it.
    CHECK_STR(symbol_at(symbols, &fake, world_fake_address(&fake, FIXTURE_EXPORTED) + 1).name,
            "fixture_exported");
    symbols_free(symbols);
}

// Of each function symbol in a symbol table of the file that is called `name`.
static int change_symbols(char *bytes, const char *name, void (*change)(Elf64_Sym *symbol))
{
    Elf64_Ehdr header;
    int count = 0;
    memcpy(&header, bytes, sizeof header);
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section, names;
        memcpy(&section, bytes + header.e_shoff + (size_t)i * sizeof section, sizeof section);
        if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM)
            continue;
        memcpy(&names, bytes + header.e_shoff + section.sh_link * sizeof names, sizeof names);
        for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            memcpy(&symbol, bytes + section.sh_offset + at, sizeof symbol);
            if (strcmp(bytes + names.sh_offset + symbol.st_name, name) != 0)
                continue;
            change(&symbol);
            memcpy(bytes + section.sh_offset + at, &symbol, sizeof symbol);
            count++;
        }
    }
    return count;
}

static void without_size(Elf64_Sym *symbol)
{
    symbol->st_size = 0;
}

static void without_name(Elf64_Sym *symbol)
{
    symbol->st_name = 0;
}

// A function by hand has no size in the symbol table: what lies behind it may be another's.
TEST(a_function_without_size_does_not_name_its_neighbour)
{
    size_t len = 0;
    const char *library = world_path("libunsized.so");
    char *bytes = string_read_file(SYMBOLS_WHOLE, 64 << 20, &len);
    // Whichever the compiler has put first.
    bool hidden = world_library_address(SYMBOLS_WHOLE, FIXTURE_HIDDEN) <
            world_library_address(SYMBOLS_WHOLE, FIXTURE_CLONE);
    CHECK(bytes);
    CHECK_INT(change_symbols(bytes, "fixture_hidden", hidden ? without_size : without_name), 1);
    CHECK_INT(change_symbols(
                      bytes, "fixture_clone.constprop.0", hidden ? without_name : without_size),
            1);
    FILE *file = fopen(library, "we");
    CHECK(file && fwrite(bytes, 1, len, file) == len && fclose(file) == 0);
    free(bytes);
    struct world_fake fake = fake_of(91, library);
    uint64_t first = world_fake_address(&fake, hidden ? FIXTURE_HIDDEN : FIXTURE_CLONE);
    uint64_t second = world_fake_address(&fake, hidden ? FIXTURE_CLONE : FIXTURE_HIDDEN);
    CHECK(second - first < 4096); // it would be in reach
    struct symbols *symbols = fake_symbols((struct symbols_opts){0});
    world_fake(&fake);
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_STR(symbol_at(symbols, &fake, first + i).name,
                hidden ? "fixture_hidden" : "fixture_clone");
        CHECK_CONTAINS(symbol_at(symbols, &fake, second + i).name, "libunsized.so+0x");
        CHECK(!symbol_at(symbols, &fake, second + i).known);
    }
    symbols_free(symbols);
}

// --- separate debug files ------------------------------------------------------------------------

// A process with a root of its own, in which the stripped library is /lib/libinner.so. Returns the
// root.
static const char *fake_inside(struct world_fake *fake)
{
    size_t len = 0;
    const char *root = world_path("inner"), *own = world_path("proc/%d/root", (int)fake->pid);
    world_directory(world_path("inner/lib"));
    fake->library = world_path("inner/lib/libinner.so");
    world_copy(SYMBOLS_STRIPPED, fake->library);
    world_fake(fake);
    char *maps = string_read_file(world_path("proc/%d/maps", (int)fake->pid), 1 << 16, &len),
         *at = maps ? strstr(maps, root) : NULL;
    CHECK(at);
    memmove(at, at + strlen(root), strlen(at + strlen(root)) + 1);
    world_write(world_path("proc/%d/maps", (int)fake->pid), "%s", maps);
    free(maps);
    CHECK(remove(own) == 0 && symlink(root, own) == 0);
    return root;
}

static const char *debug_file_in(const char *root)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/usr/lib/debug/.build-id/%.2s", root, SYMBOLS_BUILD_ID);
    world_directory(path);
    const char *file = world_path(
            "inner/usr/lib/debug/.build-id/%.2s/%s.debug", SYMBOLS_BUILD_ID, &SYMBOLS_BUILD_ID[2]);
    CHECK_CONTAINS(file, root);
    return file;
}

TEST(debug_file_in_the_root_of_the_process)
{
    struct world_fake fake = fake_of(92, NULL);
    world_copy(SYMBOLS_WHOLE, debug_file_in(fake_inside(&fake)));
    struct symbols *symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    CHECK_STR(symbol_at(symbols, &fake, world_fake_address(&fake, FIXTURE_HIDDEN)).module,
            "libinner.so");
    symbols_free(symbols);
}

TEST(debug_file_of_another_build_in_the_root_is_not_believed)
{
    struct world_fake fake = fake_of(93, NULL);
    world_copy(SYMBOLS_PIE, debug_file_in(fake_inside(&fake)));
    struct symbols *symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "libinner.so+0x");
    symbols_free(symbols);
    // Then those of the host are next.
    world_directory(world_path("debug/.build-id/%.2s", SYMBOLS_BUILD_ID));
    world_copy(SYMBOLS_WHOLE,
            world_path("debug/.build-id/%.2s/%s.debug", SYMBOLS_BUILD_ID, &SYMBOLS_BUILD_ID[2]));
    symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    symbols_free(symbols);
}

TEST(debug_file_in_the_root_leads_nowhere_else)
{
    struct world_fake fake = fake_of(94, NULL);
    // there is no such file in that root
    CHECK_INT(symlink(SYMBOLS_WHOLE, debug_file_in(fake_inside(&fake))), 0);
    struct symbols *symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "libinner.so+0x");
    symbols_free(symbols);
}

// Each question may be one more that waits for good, and with a few of these nothing is asked any
// more.
TEST(roots_that_did_not_answer_are_not_searched)
{
    struct world_fake fake = fake_of(98, NULL);
    struct elf_image image = {0};
    uint32_t silent = 0;
    size_t counts[2];
    world_copy(SYMBOLS_WHOLE, debug_file_in(fake_inside(&fake)));
    int fd = open(fake.library, O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_image_read(fd, &image), 0);
    const struct debug_search search = {.path = "/lib/libinner.so",
            .proc = world_path("proc"),
            .tgid = fake.pid,
            .silent = &silent,
            .debug_path = world_path("debug")};
    for (int i = 0; i < 2; i++) {
        struct elf_table table = {0};
        counts[i] = debug_table_load(&table, &image, fd, &search, 1000);
        elf_table_free(&table);
        silent = DEBUG_SILENT_MAX;
    }
    CHECK(counts[0] > counts[1] && counts[1] > 0);
    close(fd);
}

// Other processes have it mapped, too: what one with a root of its own offers must not name it for
// them.
TEST(a_file_of_ours_is_not_named_by_the_root_of_a_process)
{
    struct world_fake fake = fake_of(95, NULL);
    const char *root = fake_inside(&fake), *debug = debug_file_in(root),
               *own = world_path("proc/95/root");
    const char *library = world_path("libshared.so"), *inside = world_path("inner%s", library);
    char *directory = xstrdup(inside);
    *strrchr(directory, '/') = '\0';
    world_directory(directory);
    free(directory);
    world_copy(SYMBOLS_WHOLE, debug);
    world_copy(SYMBOLS_STRIPPED, library);
    CHECK_INT(link(library, inside), 0);
    fake.library = library;
    world_fake(&fake);
    CHECK(remove(own) == 0 && symlink(root, own) == 0);
    struct symbols *symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "libshared.so+0x");
    CHECK_STR(name_of(symbols, &fake, FIXTURE_EXPORTED), "fixture_exported");
    symbols_free(symbols);
}

// The same of the vdso, of which there is one, whoever asks first.
TEST(the_vdso_is_not_named_by_the_root_of_a_process)
{
    static const char *const paths[] = {"/lib/libinner.so", "[vdso]"};
    struct world_fake fake = fake_of(99, NULL);
    struct elf_image image = {0};
    uint32_t silent = 0;
    size_t counts[2];
    world_copy(SYMBOLS_WHOLE, debug_file_in(fake_inside(&fake)));
    int fd = open(fake.library, O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_image_read(fd, &image), 0);
    for (int i = 0; i < 2; i++) {
        const struct debug_search search = {.path = paths[i],
                .proc = world_path("proc"),
                .tgid = fake.pid,
                .silent = &silent,
                .debug_path = world_path("debug")};
        struct elf_table table = {0};
        counts[i] = debug_table_load(&table, &image, fd, &search, 1000);
        elf_table_free(&table);
    }
    CHECK(counts[0] > counts[1] && counts[1] > 0);
    close(fd);
}

static const char *cached(const char *build_id)
{
    world_directory(world_path("cache/%s", build_id));
    return world_path("cache/%s/debuginfo", build_id);
}

TEST(debug_file_that_debuginfod_fetched_before)
{
    struct world_fake fake = fake_of(96, SYMBOLS_STRIPPED);
    world_fake(&fake);
    world_copy(SYMBOLS_WHOLE, cached(SYMBOLS_BUILD_ID));
    struct symbols *symbols =
            fake_symbols((struct symbols_opts){.cache_path = world_path("cache")});
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    symbols_free(symbols);
    setenv("DEBUGINFOD_CACHE_PATH", world_path("cache"), 1); // where the user has it
    symbols = fake_symbols((struct symbols_opts){0});
    CHECK_STR(name_of(symbols, &fake, FIXTURE_HIDDEN), "fixture_hidden");
    symbols_free(symbols);
    symbols = fake_symbols((struct symbols_opts){.cache_path = ""});
    CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "stripped.so+0x");
    symbols_free(symbols);
}

TEST(debuginfods_cache_is_not_believed_either)
{
    struct world_fake fake = fake_of(97, SYMBOLS_STRIPPED);
    world_fake(&fake);
    // NULL: of another build; "": no server had one
    const char *file = cached(SYMBOLS_BUILD_ID), *const texts[] = {NULL, "", "no ELF file"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i])
            world_write(file, "%s", texts[i]);
        else
            world_copy(SYMBOLS_PIE, file);
        struct symbols *symbols =
                fake_symbols((struct symbols_opts){.cache_path = world_path("cache")});
        CHECK_CONTAINS(name_of(symbols, &fake, FIXTURE_HIDDEN), "stripped.so+0x");
        CHECK_STR(name_of(symbols, &fake, FIXTURE_EXPORTED), "fixture_exported");
        symbols_free(symbols);
    }
}
