// SPDX-License-Identifier: Apache-2.0
// Mappings of processes into kinds and files.
#include "harness/contain/resident.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"

static const char *const resident_words[RESIDENT_KIND_COUNT] = {
    [RESIDENT_FILE] = "file",   [RESIDENT_HEAP] = "heap",     [RESIDENT_ANONYMOUS] = "anonymous",
    [RESIDENT_STACK] = "stack", [RESIDENT_SHARED] = "shared", [RESIDENT_OTHER] = "other",
};

static bool resident_begins(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

static enum resident_kind resident_kind(const struct proc_mapping *mapping)
{
    static const char *const shared[] = {"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem:"};
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

static void resident_count(struct resident *resident, enum resident_kind kind, char *name, const struct proc_usage *usage)
{
    struct resident_row *row = resident->rows, *end = row ? row + resident->count : NULL;
    while (row < end && (row->kind != kind || strcmp(row->name, name) != 0))
        row++;
    if (row < end) {
        free(name);
    } else {
        vector_push(resident->rows, resident->count, (struct resident_row){.kind = kind, .name = name});
        row = &resident->rows[resident->count - 1];
    }
    row->resident_bytes += usage->resident_bytes;
    row->anonymous_bytes += usage->anonymous_bytes;
}

int resident_add(struct resident *resident, const char *dir)
{
    struct proc_smaps smaps;
    struct proc_usage usage;
    int rc = proc_smaps_open(dir, &smaps);
    if (rc)
        return rc;
    while (proc_smaps_next(&smaps, &usage)) {
        enum resident_kind kind = resident_kind(&usage.mapping);
        if (usage.resident_bytes)
            resident_count(resident, kind, kind == RESIDENT_FILE ? resident_name(usage.mapping.path) : xstrdup(""), &usage);
    }
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

int resident_store(const struct resident *resident, int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < resident->count && rc == 0; i++) {
        const struct resident_row *row = &resident->rows[i];
        rc = store_exec(store, err,
                        "INSERT INTO launch_memory (launch_id, kind, name, resident_bytes, anonymous_bytes) VALUES (?, ?, ?, ?, ?)",
                        "issii", launch_id, resident_words[row->kind], row->name, row->resident_bytes, row->anonymous_bytes);
    }
    return rc;
}

void resident_clear(struct resident *resident)
{
    for (size_t i = 0; i < resident->count; i++)
        free(resident->rows[i].name);
    free(resident->rows);
    *resident = (struct resident){0};
}
