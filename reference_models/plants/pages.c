// SPDX-License-Identifier: Apache-2.0
// Plants about the pages themselves: a victim that gives its memory back and faults it in again
// (madvise), one that changes protections while a sibling runs on another CPU (tlb), huge pages
// made behind its back (khugepaged), pages moved away under it (compaction).
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PURGE_BYTES ((size_t)192 << 20)
#define PURGE_PIECE ((size_t)16 << 10)
// Each flush waits for the other CPU: 2 to 5 us on bare metal, more on a VM.
#define PROTECT_TIMES 20000
#define HUGE_BYTES ((size_t)256 << 20)
// Given back in pieces: one call for all of it would be a stall of its own.
#define GIVEN_BYTES ((size_t)1 << 20)
#define HOLES_BYTES ((size_t)256 << 20)
#define MOVED_BYTES ((size_t)256 << 20)
// A bound, not a pace: a machine is not compacted for ever because a plant was forgotten.
#define COMPACT_MAX 30

// madvise: an allocator that purges everything it has, piece by piece.
static void act_purge(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    static char *region;
    if (!region)
        region = plant_map(PURGE_BYTES);
    if (!region)
        return;
    for (size_t at = 0; at < PURGE_BYTES; at += PURGE_PIECE) {
        plant_touch(region + at, PURGE_PIECE);
        madvise(region + at, PURGE_PIECE, MADV_DONTNEED);
    }
}

static int start_madvise(struct plant *plant, struct error *err)
{
    static const struct plant_self self = {.act = act_purge};
    return plant_victim_self(plant, &self, err);
}

// tlb: each change of protection must reach the CPU on which the sibling runs.
static void spin(struct plant *plant, void *arg)
{
    (void)arg;
    while (!plant_stopped(plant))
        plant_burn_ns(PLANT_MS);
}

static void act_protect(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    static char *page;
    if (!page)
        page = plant_map(page_bytes);
    if (!page)
        return;
    for (int i = 0; i < PROTECT_TIMES; i++) {
        *(volatile char *)page = 1;
        mprotect(page, page_bytes, PROT_READ);
        mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
    }
}

static void victim_protects(struct plant *plant, void *arg)
{
    (void)arg;
    plant_thread(plant, "pl-spin", plant->cpu_other, spin, NULL);
    static const struct plant_self self = {.act = act_protect};
    plant_self_steps(plant, &self);
}

static int start_tlb(struct plant *plant, struct error *err)
{
    int rc = plant_need_cpus(err);
    return rc ? rc : plant_victim(plant, "pl-victim", victim_protects, NULL, err);
}

// khugepaged: a sibling makes memory that can be collapsed, without end.
static void act_offer(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    static char *region;
    if (!region)
        region = plant_map(HUGE_BYTES);
    if (!region)
        return;
    madvise(region, HUGE_BYTES, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < HUGE_BYTES; at += GIVEN_BYTES)
        madvise(region + at, GIVEN_BYTES, MADV_DONTNEED);
    plant_touch(region, HUGE_BYTES);
    madvise(region, HUGE_BYTES, MADV_HUGEPAGE);
}

static int start_khugepaged(struct plant *plant, struct error *err)
{
#define THP "/sys/kernel/mm/transparent_hugepage/"
    static const char *const settings[][2] = {
            {THP "enabled", "madvise"},
            {THP "khugepaged/scan_sleep_millisecs", "0"},
            {THP "khugepaged/alloc_sleep_millisecs", "0"},
            {THP "khugepaged/pages_to_scan", "131072"},
    };
#undef THP
    static const struct plant_sibling sibling = {
            "pl-heap", 1000 * PLANT_MS, act_offer, plant_step_map, false};
    int rc = plant_need_cpus(err);
    for (size_t i = 0; !rc && !plant->innocent && i < sizeof(settings) / sizeof(settings[0]); i++)
        rc = plant_setting(plant, settings[i][0], settings[i][1], err);
    if (!rc)
        rc = plant_victim_sibling(plant, &sibling, err);
    // The kernel's thread is to blame, whose pid we do not know.
    if (!plant->innocent)
        snprintf(plant->culprit_comm, sizeof(plant->culprit_comm), "khugepaged");
    plant->culprit_count = 0;
    return rc;
}

// compaction: the victim reads its memory in every step, the culprit has the kernel move it.
static void step_read(struct plant *plant, void *arg)
{
    (void)plant;
    char *memory = *(char **)arg;
    static size_t at;
    for (size_t end = at + (MOVED_BYTES / 8); at < end; at += 4096)
        *(volatile char *)(memory + at) += 1;
    at %= MOVED_BYTES;
}

// Every other page is given back, so that blocks with free pages are everywhere: worth the move.
static void make_holes(char *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    plant_touch(memory, bytes);
    for (size_t at = page; at < bytes; at += 2 * page)
        madvise(memory + at, page, MADV_DONTNEED);
}

static void victim_moved(struct plant *plant, void *arg)
{
    (void)arg;
    char *memory = plant_memory(MOVED_BYTES);
    plant_steps(plant, step_read, &memory);
}

static void compact(struct plant *plant, void *arg)
{
    char **holes = arg;
    if (*holes)
        munmap(*holes, HOLES_BYTES);
    if (atomic_load(&plant->share->acts) >= COMPACT_MAX)
        return;
    *holes = plant_map(HOLES_BYTES);
    if (!*holes)
        return;
    make_holes(*holes, HOLES_BYTES);
    plant_write("/proc/sys/vm/compact_memory", "1");
}

static void compactor(struct plant *plant, void *arg)
{
    (void)arg;
    char *holes = NULL;
    plant_pin(plant->cpu_other);
    plant_every(plant, 1500 * PLANT_MS, compact, &holes);
}

static int start_compaction(struct plant *plant, struct error *err)
{
    if (access("/proc/sys/vm/compact_memory", W_OK))
        return error_set(err, -ENOTSUP, "/proc/sys/vm/compact_memory cannot be written: %s",
                strerror(errno));
    int rc = plant_need_cpus(err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_moved, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-compact", compactor, NULL, err);
}

const struct plant_kind plants_pages[] = {
        {"madvise", start_madvise},
        {"tlb", start_tlb},
        {"khugepaged", start_khugepaged},
        {"compaction", start_compaction},
        {NULL, NULL},
};
