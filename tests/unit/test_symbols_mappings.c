// SPDX-License-Identifier: Apache-2.0
// What was mapped when: the table against an oracle, events in any order, and names by the moment
// in a /proc made of files, of processes that fork, become another program, and end before anybody
// asks.
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"
#include "tracer/symbols/mapping_table.h"

enum { PAGE = 4096 };

static struct mapping mapping_of(
        uint64_t first, uint64_t pages, const char *path, uint64_t since_ns)
{
    return (struct mapping){.start = first * PAGE,
            .end = (first + pages) * PAGE,
            .path = path,
            .since_ns = since_ns};
}

static const char *path_at(const struct mapping_table *table, uint64_t page, uint64_t at_ns)
{
    const struct mapping *found = mapping_table_find(table, page * PAGE + 7, at_ns);
    return found ? found->path : "nothing";
}

TEST(another_library_in_the_same_place)
{
    struct mapping_table table = {0};
    struct mapping one = mapping_of(10, 4, "/one", 100), two = mapping_of(11, 2, "/two", 200);
    mapping_table_add(&table, &one);
    mapping_table_add(&table, &two);
    CHECK_INT(table.count, 3); // the rest on both sides
    CHECK_STR(path_at(&table, 11, 150), "/one");
    CHECK_STR(path_at(&table, 11, 200), "/two");
    CHECK_STR(path_at(&table, 13, 200), "/one");
    CHECK_STR(path_at(&table, 11, 50), "/one"); // nothing is known of that time: what came first
    CHECK_STR(path_at(&table, 14, 200), "nothing");
    CHECK_INT(mapping_table_find(&table, 13 * PAGE, 200)->offset, 3 * PAGE);
    CHECK_INT(mapping_table_epoch(&table, 199), 0);
    CHECK_INT(mapping_table_epoch(&table, 200), 1);
    mapping_table_add(&table, &two); // again the same: nothing changes its meaning
    CHECK_INT(table.changes, 1);
    mapping_table_free(&table);
}

TEST(events_out_of_order)
{
    struct mapping_table table = {0};
    struct mapping one = mapping_of(10, 1, "/one", 100), two = mapping_of(10, 1, "/two", 200);
    struct mapping three = mapping_of(10, 1, "/three", 300);
    mapping_table_add(&table, &three);
    mapping_table_add(&table, &one);
    mapping_table_add(&table, &two);
    CHECK_STR(path_at(&table, 10, 120), "/one");
    CHECK_STR(path_at(&table, 10, 220), "/two");
    CHECK_STR(path_at(&table, 10, 320), "/three");
    mapping_table_end(&table, 250); // exec, told late: the third is of the new program
    CHECK_STR(path_at(&table, 10, 220), "/two");
    CHECK_STR(path_at(&table, 10, 320), "/three");
    mapping_table_end(&table, 400);
    CHECK_STR(path_at(&table, 10, 320), "/three");
    CHECK_STR(path_at(&table, 10, 400), "nothing");
    mapping_table_free(&table);
}

enum { LIST = 40, PAGES = 24, ROUNDS = 600 };

static bool table_is_right(
        const struct mapping_table *table, const struct mapping *events, int round)
{
    for (uint64_t page = 1; page <= PAGES; page++)
        for (uint64_t at_ns = 5; at_ns < 10 * LIST + 20; at_ns += 10) {
            const struct mapping *wanted = NULL;
            for (int i = 0; i < LIST; i++)
                if (events[i].start <= page * PAGE && page * PAGE < events[i].end &&
                        events[i].since_ns <= at_ns &&
                        (!wanted || events[i].since_ns > wanted->since_ns))
                    wanted = &events[i];
            if (wanted && strcmp(path_at(table, page, at_ns), wanted->path)) {
                printf("    round %d, page %d at %d\n", round, (int)page, (int)at_ns);
                CHECK_STR(path_at(table, page, at_ns), wanted->path);
                return false;
            }
        }
    return true;
}

// Against a list of all events: those of four files as they come, and those of many in a random
// order of arrival.
TEST(random_events_against_a_list)
{
    unsigned seed = 7;
    char paths[LIST][8];
    int round = 0;
    for (; round < ROUNDS; round++) {
        struct mapping_table table = {0};
        struct mapping events[LIST];
        bool ordered = round % 2;
        for (int i = 0; i < LIST; i++) {
            uint64_t first = 1 + (uint64_t)rand_r(&seed) % PAGES,
                     pages = 1 + (uint64_t)rand_r(&seed) % 6;
            snprintf(paths[i], sizeof(paths[i]), "/%d", ordered ? rand_r(&seed) % 4 : i);
            events[i] = mapping_of(first, pages, paths[i], 10 * ((uint64_t)i + 1));
            // pieces of one path mean the same wherever they lie
            events[i].offset = events[i].start;
        }
        for (int i = 0; i < LIST - 4 && !ordered; i++) { // at most some places from its own
            int j = i + rand_r(&seed) % 4;
            struct mapping other = events[i];
            events[i] = events[j];
            events[j] = other;
        }
        for (int i = 0; i < LIST; i++)
            mapping_table_add(&table, &events[i]);
        bool right = table_is_right(&table, events, round);
        mapping_table_free(&table);
        if (!right)
            break;
    }
    CHECK_INT(round, ROUNDS);
}

TEST(a_fork_has_what_its_parent_had)
{
    struct mapping_table parent = {0}, child = {0};
    struct mapping one = mapping_of(10, 1, "/one", 100), two = mapping_of(10, 1, "/two", 200);
    struct mapping three = mapping_of(20, 1, "/three", 300);
    mapping_table_add(&parent, &one);
    mapping_table_add(&parent, &two);
    mapping_table_add(&parent, &three);
    mapping_table_copy(&child, &parent, 150);
    CHECK_STR(path_at(&child, 10, 160), "/one");
    CHECK_STR(path_at(&child, 20, 160), "nothing");
    mapping_table_free(&child);
    mapping_table_copy(&child, &parent, 250);
    CHECK_STR(path_at(&child, 10, 260), "/two");
    mapping_table_free(&child);
    mapping_table_free(&parent);
}

// --- names ---------------------------------------------------------------------------------------

static const uint64_t base = 0x7f0000000000;

static struct symbols *following(struct symbols_opts opts)
{
    opts.proc_path = world_path("proc");
    opts.debug_path = world_path("debug");
    struct symbols *symbols = world_symbols(opts);
    symbols_follow(symbols);
    return symbols;
}

static struct world_fake fake_of(pid_t pid, const char *library)
{
    return (struct world_fake){
            .pid = pid, .start = 1, .stack = PAGE, .base = base, .library = library};
}

// The library mapped whole, so that offsets are those of the file.
static void map_library(struct symbols *symbols, pid_t pid, const char *library, uint64_t at_ns)
{
    struct stat status = {0};
    stat(library, &status);
    struct mapping_event event = {.what = MAPPING_EVENT_ADDED,
            .tgid = pid,
            .at_ns = at_ns,
            .start = base,
            .end = base + (1 << 20),
            .device = status.st_dev,
            .inode = status.st_ino,
            .path = library};
    symbols_mapping(symbols, &event);
}

static void tell(struct symbols *symbols, enum mapping_event_what what, pid_t pid, uint64_t at_ns)
{
    symbols_mapping(symbols,
            &(struct mapping_event){.what = what, .tgid = pid, .at_ns = at_ns, .path = ""});
}

static const char *name_at(struct symbols *symbols, pid_t pid, uint64_t ip, uint64_t at_ns)
{
    struct symbol symbol;
    symbols_process_lookup_at(symbols, pid, 1, at_ns, ip, &symbol);
    return symbol.name;
}

// Its address where the library's file is mapped from its begin on.
static uint64_t hidden_in_file(void)
{
    struct world_fake fake = fake_of(1, SYMBOLS_WHOLE);
    char *text = NULL;
    unsigned long long start, end, offset;
    size_t room = 0;
    world_fake(&fake);
    FILE *maps = fopen(world_path("proc/1/maps"), "r");
    uint64_t ip = 0;
    while (maps && getline(&text, &room, maps) > 0)
        if (sscanf(text, "%llx-%llx r-xp %llx", &start, &end, &offset) == 3)
            ip = world_fake_address(&fake, FIXTURE_HIDDEN) + offset;
    if (maps)
        fclose(maps);
    free(text);
    return ip;
}

TEST(named_by_its_moment)
{
    struct world_fake fake = fake_of(70, SYMBOLS_WHOLE);
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    uint64_t ip = hidden_in_file();
    world_fake(&fake);
    world_write(world_path("proc/70/maps"), "%s", "400000-401000 r-xp 0 08:01 11 /nowhere\n");
    CHECK_INT(symbols_process_snapshot(symbols, 70, &birth, NULL), 0);
    map_library(symbols, 70, SYMBOLS_WHOLE, 1000);
    CHECK_INT(symbols_process_epoch(symbols, 70, 1, 1000), 0);
    CHECK_STR(name_at(symbols, 70, ip, 1500), "fixture_hidden");
    map_library(symbols, 70, SYMBOLS_STRIPPED, 2000);
    CHECK_INT(symbols_process_epoch(symbols, 70, 1, 1999), 0);
    CHECK_INT(symbols_process_epoch(symbols, 70, 1, 2000), 1);
    CHECK_STR(name_at(symbols, 70, ip, 1500), "fixture_hidden");
    CHECK_CONTAINS(name_at(symbols, 70, ip, 2500), "stripped.so+0x");
    world_fake_gone(70); // it changes nothing
    CHECK_STR(name_at(symbols, 70, ip, 1500), "fixture_hidden");
    CHECK_CONTAINS(name_at(symbols, 70, ip, 2500), "stripped.so+0x");
    tell(symbols, MAPPING_EVENT_EXEC, 70, 3000);
    CHECK_CONTAINS(name_at(symbols, 70, ip, 2999), "stripped.so+0x");
    symbols_free(symbols);
}

// Nobody asked for it while it lived: what it mapped was held, and what it had is its parent's.
TEST(ended_before_anybody_asked)
{
    struct world_fake parent = fake_of(71, SYMBOLS_WHOLE);
    struct symbols *symbols = following((struct symbols_opts){0});
    uint64_t ip = hidden_in_file(), of_parent = world_fake_address(&parent, FIXTURE_HIDDEN);
    struct symbols_birth birth = {.start = 1, .at_ns = 20000000000, .parent = 71};
    world_fake(&parent);
    map_library(symbols, 72, SYMBOLS_WHOLE, 30000000000);
    CHECK_INT(symbols_process_snapshot(symbols, 72, &birth, NULL), 0);
    CHECK_STR(name_at(symbols, 72, ip, 30000000001), "fixture_hidden");
    CHECK_STR(name_at(symbols, 72, of_parent, 25000000000), "fixture_hidden");
    birth.parent = 0;
    // of that one nothing is known
    CHECK_INT(symbols_process_snapshot(symbols, 73, &birth, NULL), -ESRCH);
    symbols_free(symbols);
}

// A file of that name with another content is not the one that was mapped.
TEST(replaced_file_is_not_taken)
{
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    uint64_t ip = hidden_in_file();
    const char *library = world_path("libreplaced.so");
    world_copy(SYMBOLS_WHOLE, library);
    map_library(symbols, 74, library, 30000000000);
    world_copy(SYMBOLS_WHOLE, world_path("other.so")); // the inode stays taken
    rename(world_path("other.so"), world_path("libreplaced.so"));
    CHECK_INT(symbols_process_snapshot(symbols, 74, &birth, NULL), 0);
    CHECK_CONTAINS(name_at(symbols, 74, ip, 30000000001), "libreplaced.so+0x");
    struct mapping_event event = {.what = MAPPING_EVENT_ADDED,
            .tgid = 75,
            .at_ns = 30000000000,
            .start = base,
            .end = base + (1 << 20),
            .path = SYMBOLS_WHOLE,
            .build_id = "00112233"};
    symbols_mapping(symbols, &event);
    CHECK_INT(symbols_process_snapshot(symbols, 75, &birth, NULL), 0);
    CHECK_CONTAINS(name_at(symbols, 75, ip, 30000000001), "whole.so+0x");
    symbols_free(symbols);
}

TEST(lost_events_are_read_from_proc)
{
    struct world_fake fake = fake_of(76, SYMBOLS_WHOLE);
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    struct symbols_stats stats;
    struct timespec now;
    world_fake(&fake);
    uint64_t ip = world_fake_address(&fake, FIXTURE_HIDDEN);
    CHECK_INT(symbols_process_snapshot(symbols, 76, &birth, NULL), 0);
    CHECK_STR(name_at(symbols, 76, ip, UINT64_MAX), "fixture_hidden");
    fake.library = SYMBOLS_STRIPPED;
    world_fake(&fake);
    CHECK_INT(symbols_process_epoch(symbols, 76, 1, UINT64_MAX), 0); // no event tells of it
    clock_gettime(CLOCK_MONOTONIC, &now);
    tell(symbols, MAPPING_EVENT_LOST, 0, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    CHECK_INT(symbols_process_epoch(symbols, 76, 1, UINT64_MAX), 1);
    CHECK_CONTAINS(name_at(symbols, 76, ip, UINT64_MAX), "stripped.so+0x");
    CHECK_INT(symbols_process_epoch(symbols, 76, 1, UINT64_MAX), 1);
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.maps_reads, 2);
    symbols_free(symbols);
}

// A FIFO that nobody writes into is read as the maps are of a process whose mmap lock somebody
// holds. What is known stays, the epoch too, and a second later all is as it is then: the first had
// other maps before, the second none.
TEST(maps_that_do_not_come_hold_nobody_up)
{
    struct world_fake fake[] = {fake_of(90, SYMBOLS_WHOLE), fake_of(91, SYMBOLS_WHOLE)};
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    struct symbols_stats stats;
    // a process is asked again 2 s later
    struct timespec now, pause = {.tv_sec = 2, .tv_nsec = 500000000};
    struct error err = {0};
    world_fake(&fake[0]);
    world_fake(&fake[1]);
    uint64_t ip = world_fake_address(&fake[0], FIXTURE_HIDDEN);
    CHECK_INT(symbols_process_snapshot(symbols, 90, &birth, NULL), 0);
    for (int i = 0; i < 2; i++) {
        const char *path = world_path("proc/%d/maps", (int)fake[i].pid);
        CHECK_INT(remove(path), 0);
        CHECK_INT(mkfifo(path, 0600), 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    tell(symbols, MAPPING_EVENT_LOST, 0, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    alarm(60);
    CHECK_INT(symbols_process_epoch(symbols, 90, 1, UINT64_MAX), 0);
    CHECK_STR(name_at(symbols, 90, ip, UINT64_MAX), "fixture_hidden");
    CHECK_INT(symbols_process_snapshot(symbols, 91, &birth, &err), -EAGAIN);
    CHECK_STR(name_at(symbols, 91, ip, UINT64_MAX), "[anon]");
    CHECK_INT(symbols_process_epoch(symbols, 91, 1, UINT64_MAX), 0);
    alarm(0);
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.maps_reads, 1);
    CHECK(stats.maps_silent >= 2);
    fake[0].library = SYMBOLS_STRIPPED;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(remove(world_path("proc/%d/maps", (int)fake[i].pid)), 0);
        world_fake(&fake[i]);
    }
    nanosleep(&pause, NULL);
    CHECK_INT(symbols_process_epoch(symbols, 90, 1, UINT64_MAX), 1);
    CHECK_CONTAINS(name_at(symbols, 90, ip, UINT64_MAX), "stripped.so+0x");
    // else what had no name would have none for good
    CHECK_INT(symbols_process_epoch(symbols, 91, 1, UINT64_MAX), 1);
    CHECK_STR(name_at(symbols, 91, ip, UINT64_MAX), "fixture_hidden");
    symbols_free(symbols);
}

// Since exec all has been told, and /proc, which may say something else by now, is not asked;
// unless events were lost.
TEST(what_was_told_since_exec_is_not_read_again)
{
    struct world_fake fake = fake_of(80, SYMBOLS_STRIPPED);
    struct symbols_birth birth = {.start = 1};
    struct symbols_stats stats;
    uint64_t ip = hidden_in_file();
    for (int lost = 0; lost < 2; lost++) {
        struct symbols *symbols = following((struct symbols_opts){0});
        world_fake(&fake);
        tell(symbols, MAPPING_EVENT_EXEC, 80, 30000000000);
        map_library(symbols, 80, SYMBOLS_WHOLE, 30000000001);
        if (lost)
            tell(symbols, MAPPING_EVENT_LOST, 0, 30000000002);
        CHECK_INT(symbols_process_snapshot(symbols, 80, &birth, NULL), 0);
        symbols_stats(symbols, &stats);
        CHECK_INT(stats.maps_reads, lost);
        CHECK_INT(stats.files_open, 1 + lost); // held from now on
        CHECK_STR(name_at(symbols, 80, ip, 30000000003), "fixture_hidden");
        symbols_free(symbols);
    }
}

// More than are kept, and the library, which lies behind them, was known before.
TEST(more_mappings_than_are_kept)
{
    struct world_fake fake = fake_of(79, SYMBOLS_WHOLE);
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    struct symbols_stats stats;
    struct timespec now;
    world_fake(&fake);
    uint64_t ip = world_fake_address(&fake, FIXTURE_HIDDEN);
    CHECK_INT(symbols_process_snapshot(symbols, 79, &birth, NULL), 0);
    struct strbuf maps = {0};
    for (unsigned i = 0; i < 2 * MAPPINGS_MAX; i++)
        strbuf_add(&maps, "%x-%x r-xp 0 08:01 11 /nowhere\n", (i + 1) * 2 * PAGE,
                (i + 1) * 2 * PAGE + PAGE);
    world_write(world_path("proc/79/maps"), "%s", maps.text);
    strbuf_free(&maps);
    clock_gettime(CLOCK_MONOTONIC, &now);
    tell(symbols, MAPPING_EVENT_LOST, 0, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    symbols_process_epoch(symbols, 79, 1, UINT64_MAX);
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.maps_reads, 2);
    CHECK_STR(name_at(symbols, 79, ip, UINT64_MAX), "fixture_hidden");
    CHECK_CONTAINS(name_at(symbols, 79, 4 * PAGE + 1, UINT64_MAX), "nowhere+0x");
    symbols_free(symbols);
}

// A target that maps as fast as it can, and strangers that do: memory and CPU stay bounded, others
// keep their names.
TEST(storm_of_mappings)
{
    enum { EVENTS = 300000 };
    struct world_fake fake = fake_of(77, SYMBOLS_WHOLE);
    struct symbols *symbols = following((struct symbols_opts){0});
    struct symbols_birth birth = {.start = 1};
    struct symbols_stats stats;
    struct timespec cpu[2];
    world_fake(&fake);
    uint64_t ip = world_fake_address(&fake, FIXTURE_HIDDEN);
    fake.pid = 78;
    world_fake(&fake);
    CHECK_INT(symbols_process_snapshot(symbols, 77, &birth, NULL), 0);
    CHECK_INT(symbols_process_snapshot(symbols, 78, &birth, NULL), 0);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[0]);
    for (uint64_t i = 0; i < EVENTS; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/no/such/lib%d.so", (int)(i % 50000));
        struct mapping_event event = {.what = MAPPING_EVENT_ADDED,
                .tgid = i % 2 ? 77 : 100000 + (pid_t)i,
                .at_ns = i + 1,
                .start = i * 8192,
                .end = i * 8192 + PAGE,
                .path = path};
        symbols_mapping(symbols, &event);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu[1]);
    double us = ((double)(cpu[1].tv_sec - cpu[0].tv_sec) * 1e9 +
                        (double)(cpu[1].tv_nsec - cpu[0].tv_nsec)) /
            1e3 / EVENTS;
    symbols_stats(symbols, &stats);
    printf("    %.2f us an event, %d KiB, %d skipped\n", us, (int)(stats.bytes_tables >> 10),
            (int)stats.mappings_skipped);
    CHECK(stats.mappings_skipped > EVENTS / 4);
    CHECK(stats.bytes_tables < 4 << 20);
    CHECK_STR(name_at(symbols, 78, ip, UINT64_MAX), "fixture_hidden");
    symbols_free(symbols);
}
