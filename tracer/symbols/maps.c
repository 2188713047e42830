// SPDX-License-Identifier: Apache-2.0
// What of /proc/PID/maps is code. Paths keep the kernel's spelling ("\012" for a newline, "
// (deleted)" behind a file that is gone): such a path leads to nothing, or to another file, which
// proc.c sees; map_files does not need it.
#include "tracer/symbols/maps.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/proc.h"

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

static void mapping_name(struct mapping *mapping, struct names *names, const char *path)
{
    mapping->path = names_intern(names, path, strlen(path));
    if (!mapping->path)
        mapping->path = *path == '[' ? "[names full]" : *path ? "/[names full]" : "";
    mapping->kind = mapping_kind_of(mapping);
}

void mapping_of_event(const struct mapping_event *event, struct names *names, struct mapping *ret)
{
    *ret = (struct mapping){.start = event->start,
            .end = event->end,
            .offset = event->offset,
            .device = event->device,
            .inode = event->inode,
            .since_ns = event->at_ns};
    mapping_name(ret, names, event->path);
    if (event->build_id[0])
        ret->build_id = names_intern(names, event->build_id, strlen(event->build_id));
}

// Closes it.
static int mappings_take(struct proc_maps *maps, struct names *names, struct mappings *ret)
{
    struct proc_mapping line;
    struct mappings read = {0};
    while (proc_maps_next(maps, &line)) {
        if (!strchr(line.permissions, 'x') || line.end <= line.begin)
            continue;
        if (read.count == MAPPINGS_MAX ||
                (read.count && line.begin < read.all[read.count - 1].end)) {
            read.dropped++;
            continue;
        }
        struct mapping one = {.start = line.begin,
                .end = line.end,
                .offset = line.offset,
                .device = line.device,
                .inode = line.inode};
        mapping_name(&one, names, line.path);
        vector_push(read.all, read.count, one);
    }
    int code = proc_maps_close(maps);
    if (code) {
        mappings_free(&read);
        return code;
    }
    *ret = read;
    return 0;
}

int mappings_read(const char *dir, struct names *names, struct mappings *ret)
{
    struct proc_maps maps;
    int code = proc_maps_open(dir, &maps);
    return code ? code : mappings_take(&maps, names, ret);
}

int mappings_ask(const char *dir, struct names *names, struct mappings *ret)
{
    struct proc_maps maps;
    int code = proc_maps_ask(dir, &maps);
    return code ? code : mappings_take(&maps, names, ret);
}

void mappings_free(struct mappings *mappings)
{
    free(mappings->all);
    *mappings = (struct mappings){0};
}
