// SPDX-License-Identifier: Apache-2.0
// Reads /proc and opens files on behalf of the symbols.
#include "tracer/symbols/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/target_file.h"

enum { PROC_PATH_MAX = 4096 + 64, PROC_TEXT_MAX = 8192 };

// The beginning of a file of /proc as text; its length, or -errno.
static ssize_t proc_text(const char *path, char text[PROC_TEXT_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, text, PROC_TEXT_MAX - 1);
    int code = errno;
    close(fd);
    if (got < 0)
        return -code;
    text[got] = '\0';
    return got;
}

int proc_identity(const char *proc, pid_t tgid, struct proc_identity *ret)
{
    char path[PROC_PATH_MAX], text[PROC_TEXT_MAX];
    snprintf(path, sizeof(path), "%s/%d/stat", proc, (int)tgid);
    ssize_t got = proc_text(path, text);
    if (got < 0)
        return got == -ENOENT ? -ESRCH : (int)got;
    char *at = strrchr(text, ')'); // the name before it may hold anything
    if (!at || at[1] != ' ')
        return -EBADMSG;
    struct proc_identity identity = {.ended = at[2] == 'Z' || at[2] == 'X'};
    uint64_t hash = 0, seen = 0;
    int field = 2;
    for (at++; *at == ' ' && field < 28;) {
        field++;
        uint64_t value = strtoull(at + 1, NULL, 10);
        at = at + 1 + strcspn(at + 1, " \n");
        if (field == 22)
            identity.start = value;
        if (field >= 26 && field <= 28) { // code start, code end, stack start
            hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
            seen |= value;
        }
    }
    if (field < 22)
        return -EBADMSG;
    // Without permission the kernel shows 0 or 1 there.
    identity.image = seen > 1 ? hash | 1 : 0;
    *ret = identity;
    return 0;
}

static int proc_open_here(const struct mapping *mapping)
{
    struct stat status;
    int fd = mapping->path[0] == '/' ? target_file_open_here(mapping->path) : -1;
    if (fd >= 0 && (fstat(fd, &status) || status.st_ino != mapping->inode ||
                    status.st_dev != mapping->device)) {
        close(fd);
        return -1;
    }
    return fd;
}

int proc_open_mapping(const char *proc, pid_t tgid, bool ended, const struct mapping *mapping)
{
    int fd = ended ? -1 : target_file_open_mapped(proc, tgid, mapping->start, mapping->end, mapping->path);
    return fd >= 0 ? fd : proc_open_here(mapping); // it may be ending just now
}

// The pid in the innermost pid namespace: what the process itself knows as its pid.
static pid_t proc_inner_pid(const char *proc, pid_t tgid)
{
    char path[PROC_PATH_MAX], text[PROC_TEXT_MAX];
    snprintf(path, sizeof(path), "%s/%d/status", proc, (int)tgid);
    if (proc_text(path, text) < 0)
        return tgid;
    char *line = strstr(text, "\nNSpid:"), *end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return tgid;
    *end = '\0';
    char *last = strrchr(line, '\t');
    long pid = last ? strtol(last + 1, NULL, 10) : 0;
    return pid > 0 ? (pid_t)pid : tgid;
}

int proc_open_perf_map(const char *proc, pid_t tgid)
{
    char path[PROC_PATH_MAX], inside[64];
    struct stat owner, status;
    snprintf(path, sizeof(path), "%s/%d", proc, (int)tgid);
    if (stat(path, &owner))
        return -1;
    snprintf(inside, sizeof(inside), "/tmp/perf-%d.map", (int)proc_inner_pid(proc, tgid));
    int fd = target_file_open(proc, tgid, inside);
    // /tmp is everybody's: another user must not choose the names.
    if (fd >= 0 && (fstat(fd, &status) || (status.st_uid != owner.st_uid && status.st_uid))) {
        close(fd);
        return -1;
    }
    return fd;
}
