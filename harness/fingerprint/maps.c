// SPDX-License-Identifier: Apache-2.0
// Reads /proc/PID/maps. A line is "START-END PERMS OFFSET DEV INODE   PATH"; the path may hold
// spaces, is empty for anonymous memory, "[name]" for the kernel's own, and ends in " (deleted)"
// for a file that is no longer there. The kernel writes a newline inside a path as \012.
#include "harness/fingerprint/maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"

// 64 MiB: 400,000 mappings of 160 characters, six times the kernel's default limit of a process.
enum { MAPS_BYTES_MAX = 64 << 20 };

static void unescape_newlines(char *path)
{
    for (char *at = path; (at = strstr(at, "\\012")); at++) {
        *at = '\n';
        memmove(at + 1, at + 4, strlen(at + 4) + 1);
    }
}

static bool strip_deleted(char *path)
{
    static const char suffix[] = " (deleted)";
    size_t length = strlen(path), suffix_length = sizeof(suffix) - 1;
    if (length <= suffix_length || strcmp(path + length - suffix_length, suffix))
        return false;
    path[length - suffix_length] = '\0';
    return true;
}

static void add_mapping(struct maps *maps, const struct mapped_file *mapping)
{
    // The mappings of one object stand next to each other, so looking back a little finds most of
    // them; the rest is joined after sorting.
    size_t look_back = maps->file_count < 4 ? maps->file_count : 4;
    for (size_t i = 1; i <= look_back; i++) {
        struct mapped_file *file = &maps->files[maps->file_count - i];
        if (file->inode == mapping->inode && !strcmp(file->path, mapping->path)) {
            file->executable |= mapping->executable;
            return;
        }
    }
    struct mapped_file *file = vector_add(maps->files, maps->file_count);
    *file = *mapping;
    file->path = xstrdup(mapping->path);
}

static void parse_line(struct maps *maps, char *line)
{
    struct proc_mapping mapping;
    if (!proc_mapping_parse(line, &mapping)) {
        maps->malformed_count++;
        return;
    }
    struct mapped_file file = {.start = mapping.begin,
            .end = mapping.end,
            .inode = mapping.inode,
            .executable = strchr(mapping.permissions, 'x') != NULL,
            .path = mapping.path};
    if (file.path[0] == '\0') {
        maps->anonymous_exec_count += file.executable;
        return;
    }
    if (file.path[0] != '/') // [heap], [vdso], [anon:...], anon_inode:...
        return;
    unescape_newlines(file.path);
    file.deleted = strip_deleted(file.path);
    add_mapping(maps, &file);
}

static int compare_files(const void *left, const void *right)
{
    const struct mapped_file *a = left, *b = right;
    int order = strcmp(a->path, b->path);
    return order ? order : (a->inode > b->inode) - (a->inode < b->inode);
}

static void join_files(struct maps *maps)
{
    size_t kept = 0;
    if (maps->file_count)
        qsort(maps->files, maps->file_count, sizeof(*maps->files), compare_files);
    for (size_t i = 0; i < maps->file_count; i++) {
        if (kept && !compare_files(&maps->files[kept - 1], &maps->files[i])) {
            maps->files[kept - 1].executable |= maps->files[i].executable;
            free(maps->files[i].path);
        } else {
            maps->files[kept++] = maps->files[i];
        }
    }
    maps->file_count = kept;
}

void maps_parse(char *text, struct maps *ret_maps)
{
    struct maps maps = {0};
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        parse_line(&maps, line);
    }
    join_files(&maps);
    *ret_maps = maps;
}

int maps_read(const char *proc_dir, struct maps *ret_maps, struct error *err)
{
    char *path = xasprintf("%s/maps", proc_dir);
    size_t length = 0;
    errno = 0;
    char *text = string_read_file(path, MAPS_BYTES_MAX, &length);
    int code = text ? 0 : errno ? -errno : -EIO;
    free(path);
    if (code == -ENOENT || code == -ESRCH || (code == 0 && length == 0)) {
        free(text);
        return error_set(err, -ESRCH,
                "failed to read the memory map of '%s': the process has ended", proc_dir);
    }
    if (code == -EACCES || code == -EPERM)
        return error_set(err, -EACCES,
                "failed to read the memory map of '%s': permission denied; run as the user "
                "who owns the process, or with CAP_SYS_PTRACE",
                proc_dir);
    if (code < 0)
        return error_set(
                err, code, "failed to read the memory map of '%s': %s", proc_dir, strerror(-code));
    maps_parse(text, ret_maps);
    free(text);
    return 0;
}

void maps_free(struct maps *maps)
{
    if (!maps)
        return;
    for (size_t i = 0; i < maps->file_count; i++)
        free(maps->files[i].path);
    free(maps->files);
    *maps = (struct maps){0};
}
