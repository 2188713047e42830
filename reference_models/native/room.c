// SPDX-License-Identifier: Apache-2.0
// How much memory is left, as room.h says it. What ranks are about to write is a sum that all of
// them share.
#include "reference_models/native/room.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/strings.h"

#define ROOM_TEXT_MAX ((size_t)1 << 16)
#define ROOM_WAIT_US 1000

static _Atomic uint64_t room_own;
static _Atomic uint64_t *room_promised = &room_own; // bytes taken and not yet written

// The number behind `key` at the begin of a line; key "": a file that is one number.
static bool room_number(const char *directory, const char *name, const char *key, uint64_t *ret)
{
    char *path = xasprintf("%s/%s", directory, name),
         *text = string_read_file(path, ROOM_TEXT_MAX, NULL);
    size_t length = strlen(key);
    bool found = false;
    for (char *line = text; line && !found; line = strchr(line, '\n')) {
        line += *line == '\n';
        found = strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, ret) == 1;
    }
    free(text);
    free(path);
    return found;
}

// "max" is no number: no limit.
static bool room_of_group(const char *group, uint64_t *ret)
{
    uint64_t limit, used, active, inactive, slab = 0;
    if (!room_number(group, "memory.max", "", &limit) ||
            !room_number(group, "memory.current", "", &used) ||
            !room_number(group, "memory.stat", "active_file ", &active) ||
            !room_number(group, "memory.stat", "inactive_file ", &inactive))
        return false;
    room_number(group, "memory.stat", "slab_reclaimable ", &slab);
    limit += active + inactive + slab;
    *ret = limit > used ? limit - used : 0;
    return true;
}

// The directory of this process's group; NULL: there is none of v2, or it lies outside of what is
// seen here.
static char *room_group(const char *root, const char *top)
{
    char *path = xasprintf("%s/proc/self/cgroup", root),
         *text = string_read_file(path, ROOM_TEXT_MAX, NULL), *group = NULL;
    char *name = text ? strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/") : NULL;
    if (name) {
        name = strchr(name, '/');
        name[strcspn(name, "\n")] = '\0';
        if (!strstr(name, "/.."))
            group = xasprintf("%s%s", top, strcmp(name, "/") == 0 ? "" : name);
    }
    free(text);
    free(path);
    return group;
}

bool room_left(const char *root, uint64_t *ret_bytes)
{
    char *top = xasprintf("%s/sys/fs/cgroup", root), *proc = xasprintf("%s/proc", root),
         *group = room_group(root, top);
    uint64_t left = UINT64_MAX, bytes;
    if (room_number(proc, "meminfo", "MemAvailable:", &bytes))
        left = bytes << 10;
    while (group) {
        if (room_of_group(group, &bytes) && bytes < left)
            left = bytes;
        if (strlen(group) <= strlen(top))
            break;
        *strrchr(group, '/') = '\0';
    }
    free(group);
    free(proc);
    free(top);
    if (left != UINT64_MAX)
        *ret_bytes = left;
    return left != UINT64_MAX;
}

int room_take(size_t bytes, const char *what, struct error *err)
{
    for (;;) { // the other ranks write what they took, whatever this one does
        uint64_t others = atomic_fetch_add(room_promised, bytes), left = 0;
        if (!room_left("", &left) || (bytes <= left && others <= left - bytes))
            return 0;
        atomic_fetch_sub(room_promised, bytes);
        if (bytes > left || others == 0)
            return error_set(err, -ENOMEM,
                    "no room for %s: they take %.0f MiB of memory, and the machine and the limits of its control groups "
                    "leave %.0f; a smaller --size, --cache or --ranks?",
                    what, (double)bytes / 0x1p20, (double)left / 0x1p20);
        usleep(ROOM_WAIT_US);
    }
}

void room_taken(size_t bytes)
{
    atomic_fetch_sub(room_promised, bytes);
}

int room_share(struct error *err)
{
    if (room_promised != &room_own)
        return 0;
    void *memory = mmap(
            NULL, sizeof *room_promised, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(err, -errno, "failed to share a page of memory: %s", strerror(errno));
    room_promised = memory;
    return 0;
}
