// SPDX-License-Identifier: Apache-2.0
// Parses /proc/PID/maps. Paths keep the kernel's spelling ("\012" for a newline, " (deleted)"
// behind a file that is gone): they are opened through map_files, which does not need them.
#include "tracer/symbols/maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "common/strings.h"

enum { MAPPINGS_MAX = 8192 }; // executable ones; PyTorch with CUDA has 300, a JIT some thousands

bool mapping_is_memory_file(const struct mapping *mapping)
{
    return !strncmp(mapping->path, "/memfd:", 7) || !strncmp(mapping->path, "/dev/zero", 9) ||
           !strncmp(mapping->path, "/SYSV", 5) || !strncmp(mapping->path, "/anon_hugepage", 14) ||
           !strncmp(mapping->path, "/dev/shm/", 9);
}

static enum mapping_kind mapping_kind_of(const struct mapping *mapping)
{
    const char *path = mapping->path;
    if (!strcmp(path, "[vdso]"))
        return MAPPING_VDSO;
    if (!*path || !strncmp(path, "[anon", 5) || !strncmp(path, "//anon", 6) ||
        !strcmp(path, "[heap]") || mapping_is_memory_file(mapping))
        return MAPPING_JIT;
    return *path == '[' ? MAPPING_SPECIAL : MAPPING_FILE;
}

// False: not executable, or no line of maps.
static bool mapping_parse(char *line, struct names *names, struct mapping *ret)
{
    struct mapping one = {0};
    char permissions[5] = "";
    unsigned major_id, minor_id;
    int path_at = 0;
    int fields = sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
                        &one.start, &one.end, permissions, &one.offset, &major_id, &minor_id,
                        &one.inode, &path_at);
    if (fields < 7 || !path_at || !strchr(permissions, 'x') || one.end <= one.start)
        return false;
    char *path = line + path_at;
    path[strcspn(path, "\n")] = '\0';
    one.device = makedev(major_id, minor_id);
    one.path = names_intern(names, path, strlen(path));
    if (!one.path)
        one.path = *path == '[' ? "[names full]" : *path ? "/[names full]" : "";
    one.kind = mapping_kind_of(&one);
    *ret = one;
    return true;
}

int mappings_read(const char *path, struct names *names, struct mappings *ret)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    struct mappings read = {0};
    struct mapping one;
    char *line = NULL;
    size_t room = 0;
    uint32_t capacity = 0;
    while (getline(&line, &room, file) > 0) {
        if (!mapping_parse(line, names, &one))
            continue;
        if (read.count == MAPPINGS_MAX ||
            (read.count && one.start < read.all[read.count - 1].end)) {
            read.dropped++;
            continue;
        }
        if (read.count == capacity) {
            capacity = capacity ? capacity * 2 : 32;
            read.all = xrealloc(read.all, capacity * sizeof(*read.all));
        }
        read.all[read.count++] = one;
    }
    int code = ferror(file) ? -EIO : 0;
    free(line);
    fclose(file);
    if (code) {
        mappings_free(&read);
        return code;
    }
    *ret = read;
    return 0;
}

struct mapping *mappings_find(const struct mappings *mappings, uint64_t address)
{
    uint32_t low = 0, high = mappings->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mappings->all[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    bool covered = low < mappings->count && mappings->all[low].start <= address;
    return covered ? &mappings->all[low] : NULL;
}

void mappings_free(struct mappings *mappings)
{
    free(mappings->all);
    *mappings = (struct mappings){0};
}
