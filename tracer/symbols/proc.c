// SPDX-License-Identifier: Apache-2.0
// Reads /proc and opens files on behalf of the symbols.
#include "tracer/symbols/proc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/hash.h"
#include "common/proc.h"
#include "common/target/file.h"

enum { PROC_PATH_MAX = 4096 + 64 };

int proc_identity(const char *proc, pid_t tgid, struct proc_identity *ret)
{
    char dir[PROC_PATH_MAX];
    struct proc_stat stat;
    snprintf(dir, sizeof(dir), "%s/%d", proc, (int)tgid);
    int code = proc_stat_read(dir, &stat);
    if (code)
        return code;
    *ret = (struct proc_identity){.start = stat.start_ticks, .ended = proc_stat_ended(&stat)};
    // Without permission the kernel shows 0 or 1 there.
    if ((stat.code_begin | stat.code_end | stat.stack_begin) > 1)
        ret->image = hash_mix(hash_mix(stat.code_begin, stat.code_end), stat.stack_begin) | 1;
    return 0;
}

// fd, or -1 if it is another file than the one that was mapped. sure: known to be the same unless a
// build-id tells otherwise.
static int proc_checked(int fd, const struct mapping *mapping, bool sure)
{
    struct elf_image image;
    struct stat status;
    bool same = fd >= 0 && sure;
    if (fd >= 0)
        errno = ENOENT; // but for what does not answer
    if (fd >= 0 && mapping->build_id)
        same = elf_image_read(fd, &image) == 0 && !strcmp(image.build_id, mapping->build_id);
    else if (fd >= 0 && !sure)
        same = target_file_status(fd, &status) == 0 && status.st_ino == mapping->inode &&
                status.st_dev == mapping->device;
    if (fd >= 0 && !same) {
        int code = errno;
        close(fd);
        errno = code;
    }
    return same ? fd : -1;
}

// Another way to the same file leads to the same file system.
static bool proc_goes_on(int fd)
{
    return fd < 0 && errno != EAGAIN;
}

int proc_open_mapping(
        const char *proc, pid_t tgid, bool ended, pid_t parent, const struct mapping *mapping)
{
    int fd = -1;
    errno = ENOENT;
    // First by its path, where that leads to the same file: to ask for the mapping takes the lock
    // of the memory map, and on a busy machine we were seen to keep it for 13 ms. Not where a file
    // system would be asked for the way: it need not be that of the file, and may not answer. Nor
    // does it help where stat shows another device than maps (btrfs, overlayfs) and no build-id is
    // known.
    if (!ended && mapping->path[0] == '/')
        fd = proc_checked(target_file_open_cached(proc, tgid, mapping->path, mapping->device),
                mapping, false);
    // No check of the inode while it is mapped: overlayfs shows another one in maps.
    if (proc_goes_on(fd) && !ended && !mapping->until_ns)
        fd = proc_checked(target_file_open_mapped(proc, tgid, mapping->start, mapping->end,
                                  mapping->path, mapping->device),
                mapping, true);
    if (mapping->path[0] != '/')
        return fd;
    if (proc_goes_on(fd) && !ended)
        fd = proc_checked(
                target_file_open(proc, tgid, mapping->path, mapping->device), mapping, false);
    if (proc_goes_on(fd) && parent)
        fd = proc_checked(
                target_file_open(proc, parent, mapping->path, mapping->device), mapping, false);
    // It may be ending just now. A path of the target's choice is opened under our root only if it
    // is that very file.
    if (proc_goes_on(fd) && mapping->inode)
        fd = proc_checked(target_file_open_known(mapping->path, mapping->device, mapping->inode),
                mapping, true);
    return fd;
}

int proc_open_perf_map(const char *proc, pid_t tgid)
{
    char dir[PROC_PATH_MAX], inside[64];
    struct stat owner, status;
    snprintf(dir, sizeof(dir), "%s/%d", proc, (int)tgid);
    if (stat(dir, &owner))
        return -1;
    pid_t pid = proc_inner_pid(dir); // what the process itself knows as its pid
    snprintf(inside, sizeof(inside), "/tmp/perf-%d.map", pid ? (int)pid : (int)tgid);
    int fd = target_file_open(proc, tgid, inside, 0);
    // /tmp is everybody's: another user must not choose the names.
    if (fd >= 0 &&
            (target_file_status(fd, &status) || (status.st_uid != owner.st_uid && status.st_uid))) {
        close(fd);
        return -1;
    }
    return fd;
}
