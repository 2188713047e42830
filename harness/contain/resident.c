// SPDX-License-Identifier: Apache-2.0
// Mappings of processes into kinds and files.
#include "harness/contain/resident.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"

enum {
    // are looked at: 80 ms at 10 ns each, while the launch stands still
    RESIDENT_PAGES_MAX = 8 << 20,
    RESIDENT_PAGES_READ = 4096,  // at a time
    RESIDENT_RANGES_MAX = 16384, // PyTorch has some 3,000
};

#define RESIDENT_PRESENT (UINT64_C(1) << 63) // of an entry of pagemap

static const char *const resident_words[RESIDENT_KIND_COUNT] = {
        [RESIDENT_FILE] = "file",
        [RESIDENT_HEAP] = "heap",
        [RESIDENT_ANONYMOUS] = "anonymous",
        [RESIDENT_STACK] = "stack",
        [RESIDENT_SHARED] = "shared",
        [RESIDENT_OTHER] = "other",
};

static bool resident_begins(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

static enum resident_kind resident_kind(const struct proc_mapping *mapping)
{
    static const char *const shared[] = {
            "/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem:"};
    const char *path = mapping->path;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (resident_begins(path, shared[i]))
            return RESIDENT_SHARED;
    if (!*path || resident_begins(path, "[anon:"))
        return RESIDENT_ANONYMOUS;
    if (strcmp(path, "[heap]") == 0)
        return RESIDENT_HEAP;
    if (resident_begins(path, "[stack"))
        return RESIDENT_STACK;
    return *path == '/' && !resident_begins(path, "/dev/") ? RESIDENT_FILE : RESIDENT_OTHER;
}

// Without directories, which are another side's, and without what the kernel says behind it.
static char *resident_name(const char *path)
{
    static const char deleted[] = " (deleted)";
    const char *base = strrchr(path, '/') + 1;
    size_t len = strlen(base), end = sizeof deleted - 1;
    len -= len > end && strcmp(base + len - end, deleted) == 0 ? end : 0;
    char *name = xasprintf("%.*s", (int)len, base);
    string_make_utf8(name, strlen(name));
    if (!*name) { // no file's, and "" is the row of the smallest ones
        free(name);
        return xstrdup("?");
    }
    return name;
}

static void resident_count(struct resident *resident, enum resident_kind kind, char *name,
        const struct proc_usage *usage)
{
    struct resident_row *row = resident->rows, *end = row ? row + resident->count : NULL;
    while (row < end && (row->kind != kind || strcmp(row->name, name) != 0))
        row++;
    if (row < end) {
        free(name);
    } else {
        vector_push(
                resident->rows, resident->count, (struct resident_row){.kind = kind, .name = name});
        row = &resident->rows[resident->count - 1];
    }
    row->resident_bytes += usage->resident_bytes;
    row->anonymous_bytes += usage->anonymous_bytes;
}

// --- which pages ---------------------------------------------------------------------------------

static bool resident_joins(
        const struct resident_range *before, const struct resident_range *range, uint64_t gap_bytes)
{
    return before->pid == range->pid && before->kind == range->kind &&
            range->begin - before->end <= gap_bytes && strcmp(before->name, range->name) == 0;
}

// Neighbours become one, first those that lie closest. What cannot be joined goes from the end: its
// pages are nobody's then.
static void resident_bound_ranges(struct resident *resident)
{
    for (uint64_t gap = 1 << 13;
            resident->range_count > RESIDENT_RANGES_MAX && gap < UINT64_C(1) << 48; gap *= 2) {
        size_t kept = 1;
        for (size_t i = 1; i < resident->range_count; i++) {
            struct resident_range *before = &resident->ranges[kept - 1],
                                  *range = &resident->ranges[i];
            if (!resident_joins(before, range, gap)) {
                resident->ranges[kept++] = *range;
                continue;
            }
            before->end = range->end;
            before->bytes += range->bytes;
            free(range->name);
        }
        resident->range_count = kept;
    }
    while (resident->range_count > RESIDENT_RANGES_MAX)
        free(resident->ranges[--resident->range_count].name);
}

static void resident_add_range(struct resident *resident, const struct resident_range *range)
{
    if (resident->range_count >= 4 * (size_t)RESIDENT_RANGES_MAX)
        resident_bound_ranges(resident);
    vector_push(resident->ranges, resident->range_count, *range);
    struct resident_range *added = &resident->ranges[resident->range_count - 1];
    added->name = xstrdup(range->name);
    added->bytes = (int64_t)(range->end - range->begin);
}

// Runs of pages that are there. False: they could not be read.
static bool resident_read_pages(
        struct resident *resident, int pagemap, struct resident_range *range)
{
    static const uint64_t absent;
    uint64_t entries[RESIDENT_PAGES_READ], page = (uint64_t)sysconf(_SC_PAGESIZE), end = range->end,
                                           run = 0;
    uint64_t pages = (end - range->begin) / page, first = range->begin / page;
    if (pagemap < 0 || resident->pages_read + pages > RESIDENT_PAGES_MAX)
        return false;
    resident->pages_read += pages;
    for (uint64_t at = 0; at <= pages; at++) { // one more, which ends the last run
        size_t in = at % RESIDENT_PAGES_READ,
               wanted = pages - at < RESIDENT_PAGES_READ ? pages - at : RESIDENT_PAGES_READ;
        if (in == 0 && wanted &&
                pread(pagemap, entries, wanted * sizeof *entries,
                        (off_t)((first + at) * sizeof *entries)) !=
                        (ssize_t)(wanted * sizeof *entries))
            return false;
        if ((at < pages ? entries[in] : absent) & RESIDENT_PRESENT) {
            run++;
            continue;
        }
        range->end = range->begin + run * page;
        if (run)
            resident_add_range(resident, range);
        range->begin = (first + at + 1) * page;
        run = 0;
    }
    return true;
}

static void resident_ranges(
        struct resident *resident, int pagemap, const struct resident_range *mapping)
{
    struct resident_range range = *mapping;
    size_t before = resident->range_count;
    int64_t sum = 0;
    if (!resident_read_pages(resident, pagemap, &range)) {
        while (resident->range_count > before)
            free(resident->ranges[--resident->range_count].name);
        range = *mapping;
        resident_add_range(resident, &range);
    }
    // Bounded meanwhile, the mapping's ranges are where they are: those that have no other's
    // address.
    for (size_t i = resident->range_count; i-- && resident->ranges[i].pid == mapping->pid &&
            resident->ranges[i].begin >= mapping->begin;)
        sum += resident->ranges[i].bytes;
    // The page of zeros that is read before it is written to is none of the process's.
    for (size_t i = resident->range_count; sum > mapping->bytes && i-- &&
            resident->ranges[i].pid == mapping->pid && resident->ranges[i].begin >= mapping->begin;)
        resident->ranges[i].bytes =
                (int64_t)((double)resident->ranges[i].bytes * (double)mapping->bytes / (double)sum);
}

static void resident_add_mapping(
        struct resident *resident, int pagemap, int pid, const struct proc_usage *usage)
{
    enum resident_kind kind = resident_kind(&usage->mapping);
    char *name = kind == RESIDENT_FILE ? resident_name(usage->mapping.path) : xstrdup("");
    resident_ranges(resident, pagemap,
            &(struct resident_range){.begin = usage->mapping.begin,
                    .end = usage->mapping.end,
                    .bytes = usage->resident_bytes,
                    .pid = pid,
                    .kind = kind,
                    .name = name});
    resident_count(resident, kind, name, usage);
}

int resident_add(struct resident *resident, const char *dir)
{
    struct proc_smaps smaps;
    struct proc_usage usage;
    int rc = proc_smaps_open(dir, &smaps);
    if (rc)
        return rc;
    char *path = xasprintf("%s/pagemap", dir);
    // 0 in a directory that is no process's
    int pagemap = open(path, O_RDONLY | O_CLOEXEC), pid = atoi(strrchr(dir, '/') + 1);
    free(path);
    if (!resident->at_ns)
        resident->at_ns = clock_monotonic_ns();
    while (proc_smaps_next(&smaps, &usage)) {
        if (usage.resident_bytes)
            resident_add_mapping(resident, pagemap, pid, &usage);
    }
    if (pagemap >= 0)
        close(pagemap);
    return proc_smaps_close(&smaps);
}

static int resident_compare(const void *left, const void *right)
{
    const struct resident_row *a = left, *b = right;
    if (a->resident_bytes != b->resident_bytes)
        return a->resident_bytes > b->resident_bytes ? -1 : 1;
    return a->kind != b->kind ? (int)a->kind - (int)b->kind : strcmp(a->name, b->name);
}

void resident_sort(struct resident *resident, size_t files_max)
{
    struct resident_row rest = {.kind = RESIDENT_FILE};
    size_t kept = 0, files = 0;
    resident_bound_ranges(resident);
    if (resident->count)
        qsort(resident->rows, resident->count, sizeof *resident->rows, resident_compare);
    for (size_t i = 0; i < resident->count; i++) {
        struct resident_row *row = &resident->rows[i];
        if (row->kind != RESIDENT_FILE || files++ < files_max) {
            resident->rows[kept++] = *row;
            continue;
        }
        rest.resident_bytes += row->resident_bytes;
        rest.anonymous_bytes += row->anonymous_bytes;
        free(row->name);
    }
    resident->count = kept;
    if (!rest.resident_bytes)
        return;
    rest.name = xstrdup("");
    vector_push(resident->rows, resident->count, rest);
}

int resident_store(
        const struct resident *resident, int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < resident->count && rc == 0; i++) {
        const struct resident_row *row = &resident->rows[i];
        rc = store_exec(store, err,
                "INSERT INTO launch_memory (launch_id, kind, name, resident_bytes, anonymous_bytes) VALUES (?, ?, ?, ?, ?)",
                "issii", launch_id, resident_words[row->kind], row->name, row->resident_bytes,
                row->anonymous_bytes);
    }
    for (size_t i = 0; i < resident->range_count && rc == 0; i++) {
        const struct resident_range *range = &resident->ranges[i];
        rc = store_exec(store, err,
                "INSERT OR IGNORE INTO launch_range (launch_id, tgid, begin_address, end_address, resident_bytes, kind, name, at_ns) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                "iiiiissi", launch_id, (int64_t)range->pid, (int64_t)range->begin,
                (int64_t)range->end, range->bytes, resident_words[range->kind], range->name,
                resident->at_ns);
    }
    return rc;
}

void resident_clear(struct resident *resident)
{
    for (size_t i = 0; i < resident->count; i++)
        free(resident->rows[i].name);
    for (size_t i = 0; i < resident->range_count; i++)
        free(resident->ranges[i].name);
    free(resident->rows);
    free(resident->ranges);
    *resident = (struct resident){0};
}
