// SPDX-License-Identifier: Apache-2.0
// Mappings of a process into kinds and files: directories by hand, ourselves, and the rows in a
// store.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/proc.h"
#include "harness/contain/resident.h"
#include "tests/unit/runner.h"

static char world[64];

static void world_smaps(const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/smaps", world);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void world_begin(const char *text)
{
    snprintf(world, sizeof world, "/tmp/upgate_resident_XXXXXX");
    CHECK(mkdtemp(world) != NULL);
    world_smaps(text);
}

static void world_pagemap(const uint64_t *entries, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/pagemap", world);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(entries, sizeof *entries, count, file) == count &&
            fclose(file) == 0);
}

static void world_end(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/pagemap", world);
    unlink(path);
    snprintf(path, sizeof path, "%s/smaps", world);
    unlink(path);
    CHECK_INT(rmdir(world), 0);
}

static const struct resident_row *row_of(
        const struct resident *resident, enum resident_kind kind, const char *name)
{
    for (size_t i = 0; i < resident->count; i++)
        if (resident->rows[i].kind == kind && strcmp(resident->rows[i].name, name) == 0)
            return &resident->rows[i];
    return NULL;
}

static int64_t bytes_of(const struct resident *resident, enum resident_kind kind, const char *name)
{
    const struct resident_row *row = row_of(resident, kind, name);
    return row ? row->resident_bytes : -1;
}

#define MAPPING(permissions, path, rss, anonymous) \
    "7f0000000000-7f0001000000 " permissions " 00000000 fe:01 5   " path "\nRss: " #rss \
    " kB\nAnonymous: " #anonymous " kB\n"

static const char kinds[] = MAPPING("r-xp", "/opt/torch/lib/libtorch_cpu.so.1.13.0", 100,
        0) MAPPING("rw-p", "/opt/torch/lib/libtorch_cpu.so.1.13.0", 20, 16) MAPPING("r-xp",
        "/usr/lib/libtorch_cpu.so.1.13.0", 1,
        0) MAPPING("r--p", "/data/set a (deleted)", 7, 0) MAPPING("rw-p", "[heap]", 50, 50)
        MAPPING("rw-p", "", 40, 40) MAPPING("rw-p", "[anon:arena]", 4, 4) MAPPING("rw-p", "[stack]",
                3, 3) MAPPING("rw-s", "/dev/shm/torch_1 (deleted)", 8, 0) MAPPING("rw-s",
                "/memfd:x (deleted)", 9, 0) MAPPING("rw-s", "/SYSV00000000 (deleted)", 2, 0)
                MAPPING("rw-s", "/dev/zero (deleted)", 1, 0) MAPPING("rw-s", "/dev/nvidia0", 6, 0)
                        MAPPING("r-xp", "[vdso]", 5, 0) MAPPING("---p", "/lib/guard.so", 0, 0);

TEST(kinds_and_names)
{
    struct resident resident = {0};
    int64_t sum = 0;
    world_begin(kinds);
    CHECK_INT(resident_add(&resident, world), 0);
    resident_sort(&resident, 10);
    // from wherever
    CHECK_INT(bytes_of(&resident, RESIDENT_FILE, "libtorch_cpu.so.1.13.0"), 121 * 1024);
    CHECK_INT(
            row_of(&resident, RESIDENT_FILE, "libtorch_cpu.so.1.13.0")->anonymous_bytes, 16 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_FILE, "set a"), 7 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_HEAP, ""), 50 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_ANONYMOUS, ""), 44 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_STACK, ""), 3 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_SHARED, ""), 20 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_OTHER, ""), 11 * 1024);
    CHECK_INT(resident.count, 7); // nothing that is not in memory
    CHECK_STR(resident.rows[0].name, "libtorch_cpu.so.1.13.0");
    for (size_t i = 0; i < resident.count; i++) {
        sum += resident.rows[i].resident_bytes;
        CHECK(i == 0 || resident.rows[i].resident_bytes <= resident.rows[i - 1].resident_bytes);
    }
    CHECK_INT(sum, 256 * 1024);
    // A second process of the tree has its own.
    CHECK_INT(resident_add(&resident, world), 0);
    CHECK_INT(bytes_of(&resident, RESIDENT_HEAP, ""), 100 * 1024);
    CHECK_INT(resident.count, 7);
    resident_clear(&resident);
    CHECK_INT(resident.count, 0);
    world_end();
}

TEST(bounded)
{
    struct resident resident = {0};
    char *text = malloc(1 << 20), *at = text;
    int64_t sum = 0;
    size_t files = 0;
    for (int i = 1; i <= 300; i++)
        at += sprintf(at,
                "%x000-%x000 r--p 00000000 fe:01 5 /lib/lib%d.so\nRss: %d kB\nAnonymous: 1 kB\n", i,
                i + 1, i, i);
    strcpy(at, MAPPING("rw-p", "", 1, 1));
    world_begin(text);
    CHECK_INT(resident_add(&resident, world), 0);
    resident_sort(&resident, 20);
    for (size_t i = 0; i < resident.count; i++) {
        sum += resident.rows[i].resident_bytes;
        files += resident.rows[i].kind == RESIDENT_FILE && *resident.rows[i].name;
    }
    CHECK_INT(files, 20);
    CHECK_INT(resident.count, 22);
    CHECK_INT(sum, (300 * 301 / 2 + 1) * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_FILE, "lib281.so"), 281 * 1024);
    CHECK_INT(bytes_of(&resident, RESIDENT_FILE, ""), 280 * 281 / 2 * 1024);
    CHECK_INT(row_of(&resident, RESIDENT_FILE, "")->anonymous_bytes, 280 * 1024);
    resident_clear(&resident);
    free(text);
    world_end();
}

// Which pages: runs of them, as many as are kept, and no more bytes than the kernel counts.
TEST(ranges_of_pages)
{
    enum { PAGES = 300001 };
    struct resident resident = {0};
    uint64_t *entries = calloc(PAGES + 16, sizeof *entries);
    int64_t sum = 0;
    world_begin("1000-6000 rw-p 00000000 00:00 0 \nRss: 12 kB\nAnonymous: 12 kB\n"
                "6000-8000 r--p 00000000 fe:01 5 /lib/libc.so.6\nRss: 4 kB\nAnonymous: 0 kB\n"
                "8000-9000 rw-p 00000000 00:00 0 \nRss: 0 kB\nAnonymous: 0 kB\n");
    entries[1] = entries[2] = entries[4] = UINT64_C(1) << 63; // of 1000 to 6000
    entries[3] = UINT64_C(1) << 62;                           // swapped out
    entries[6] = entries[7] = UINT64_C(1) << 63; // both are mapped, one is the page of zeros
    entries[8] = UINT64_C(1) << 63;
    world_pagemap(entries, 16);
    CHECK_INT(resident_add(&resident, world), 0);
    CHECK_INT(resident.range_count, 3);
    CHECK_INT(resident.ranges[0].begin, 0x1000);
    CHECK_INT(resident.ranges[0].end, 0x3000);
    CHECK_INT(resident.ranges[0].bytes, 0x2000);
    CHECK_INT(resident.ranges[1].begin, 0x4000);
    CHECK_INT(resident.ranges[1].end, 0x5000);
    CHECK_STR(resident.ranges[2].name, "libc.so.6");
    CHECK_INT(resident.ranges[2].bytes, 0x1000);
    resident_clear(&resident);
    world_end();

    char text[256];
    snprintf(text, sizeof text, "1000-%x000 rw-p 00000000 00:00 0 \nRss: %d kB\nAnonymous: 0 kB\n",
            PAGES + 1, (PAGES + 1) / 2 * 4);
    world_begin(text);
    for (size_t i = 0; i <= PAGES; i++)
        entries[i] = i % 2 ? UINT64_C(1) << 63 : 0;
    world_pagemap(entries, PAGES + 1);
    CHECK_INT(resident_add(&resident, world), 0);
    resident_sort(&resident, 10);
    CHECK(resident.range_count > 0 && resident.range_count <= 16384);
    for (size_t i = 0; i < resident.range_count; i++) {
        sum += resident.ranges[i].bytes;
        CHECK(i == 0 || resident.ranges[i].begin >= resident.ranges[i - 1].end);
    }
    CHECK_INT(sum, (int64_t)(PAGES + 1) / 2 * 4096);
    resident_clear(&resident);
    // it ends too early: a mapping is a range
    CHECK_INT(truncate(strcat(strcpy(text, world), "/pagemap"), 4096), 0);
    CHECK_INT(resident_add(&resident, world), 0);
    CHECK_INT(resident.range_count, 1);
    CHECK_INT(resident.ranges[0].end, (int64_t)(PAGES + 1) << 12);
    CHECK_INT(resident.ranges[0].bytes, resident.rows[0].resident_bytes);
    resident_clear(&resident);
    free(entries);
    world_end();
}

TEST(ranges_of_ourselves)
{
    enum { BYTES = 8 << 20, KEPT = 2 << 20 };
    struct resident resident = {0};
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && madvise(memory, BYTES, MADV_NOHUGEPAGE) == 0);
    memset(memory, 1, BYTES);
    CHECK_INT(madvise(memory + KEPT, BYTES - 2 * KEPT, MADV_DONTNEED), 0);
    CHECK_INT(resident_add(&resident, "/proc/self"), 0);
    CHECK(resident.at_ns > 0);
    size_t found = 0;
    for (size_t i = 0; i < resident.range_count; i++) {
        const struct resident_range *range = &resident.ranges[i];
        bool first = range->begin == (uint64_t)memory && range->end == range->begin + KEPT;
        bool last = range->begin == (uint64_t)memory + BYTES - KEPT &&
                range->end == range->begin + KEPT;
        found += (first || last) && range->bytes == KEPT && range->kind == RESIDENT_ANONYMOUS;
    }
    CHECK_INT(found, 2);
    resident_clear(&resident);
    munmap(memory, BYTES);
}

TEST(nobody)
{
    struct resident resident = {0};
    CHECK(resident_add(&resident, "/tmp/upgate_no_such_process") < 0);
    resident_sort(&resident, 3);
    CHECK_INT(resident.count, 0);
    resident_clear(&resident);
}

TEST(of_ourselves_with_anonymous_memory_and_a_file)
{
    enum { ANONYMOUS = 24 << 20, FILE_BYTES = 8 << 20 };
    struct resident before = {0}, after = {0};
    char path[] = "/var/tmp/upgate_resident_XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && ftruncate(fd, FILE_BYTES) == 0);
    CHECK_INT(resident_add(&before, "/proc/self"), 0);
    char *memory =
            mmap(NULL, ANONYMOUS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(memory != MAP_FAILED && file != MAP_FAILED);
    memset(memory, 1, ANONYMOUS);
    memset(file, 1, FILE_BYTES);
    CHECK_INT(resident_add(&after, "/proc/self"), 0);
    int64_t told = proc_status_number("/proc/self", "VmRSS") * 1024, sum = 0;
    for (size_t i = 0; i < after.count; i++)
        sum += after.rows[i].resident_bytes;
    const struct resident_row *row = row_of(&after, RESIDENT_FILE, strrchr(path, '/') + 1);
    CHECK(row != NULL);
    CHECK_INT(row->resident_bytes, FILE_BYTES);
    CHECK_INT(row->anonymous_bytes, FILE_BYTES); // written to: no longer the file's
    int64_t more =
            bytes_of(&after, RESIDENT_ANONYMOUS, "") - bytes_of(&before, RESIDENT_ANONYMOUS, "");
    CHECK(more >= ANONYMOUS && more < ANONYMOUS + (1 << 20));
    CHECK(llabs(sum - told) <= told / 20); // the kernel's own counter is behind by some pages a CPU
    resident_clear(&before);
    resident_clear(&after);
    munmap(memory, ANONYMOUS);
    munmap(file, FILE_BYTES);
    close(fd);
    unlink(path);
}

TEST(rows_in_a_store)
{
    struct store *store = NULL;
    struct error err = {0};
    struct resident resident = {0};
    int64_t value = 0;
    CHECK_INT(store_open("", STORE_CREATE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO side VALUES (0, 'old', '{}', NULL)", ""), 0);
    CHECK_INT(store_exec(store, &err,
                      "INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train')", ""),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO pair VALUES (1, 1, 0, 'traced', 1, 0, 'steps', 5, 'valid', NULL, NULL, 1, 2)",
                    ""),
            0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) "
                    "VALUES (1, 1, 0, 'ok', 1, 2, '{}')",
                    ""),
            0);
    world_begin(kinds);
    CHECK_INT(resident_add(&resident, world), 0);
    resident_sort(&resident, 1);
    CHECK_INT(resident_store(&resident, 1, store, &err), 0);
    CHECK_INT(
            store_get_int(store, &value, &err,
                    "SELECT sum(resident_bytes) FROM v_memory WHERE workload = 'w' AND side = 'a'",
                    ""),
            0);
    CHECK_INT(value, 256 * 1024);
    CHECK_INT(store_get_int(store, &value, &err,
                      "SELECT resident_bytes FROM launch_memory WHERE kind = 'file' AND name = ''",
                      ""),
            0);
    CHECK_INT(value, 7 * 1024);
    CHECK_INT(store_get_int(
                      store, &value, &err, "SELECT count(DISTINCT kind) FROM launch_memory", ""),
            0);
    CHECK_INT(value, RESIDENT_KIND_COUNT);
    CHECK_INT(store_get_int(store, &value, &err,
                      "SELECT count(*) FROM launch_range WHERE at_ns > 0 AND tgid = 0", ""),
            0);
    CHECK_INT(value, 1); // the directory has all mappings at one address
    resident_clear(&resident);
    store_close(store);
    world_end();
}
