// SPDX-License-Identifier: Apache-2.0
// What is read of /proc/PID: who the process is, and files as the process sees them. Files are
// opened only if they are regular: opening a device or a pipe of the traced process would change
// it.
#ifndef UPGATE_TRACER_SYMBOLS_PROC_H
#define UPGATE_TRACER_SYMBOLS_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tracer/symbols/maps.h"

struct proc_identity {
    uint64_t start; // field 22 of stat, clock ticks since boot
    uint64_t image; // changes with exec; 0: not told (ended, or no permission)
    bool ended;     // a zombie: its maps are gone
};

// 0, -ESRCH, -EACCES or another -errno.
int proc_identity(const char *proc, pid_t tgid, struct proc_identity *ret);
// fd of the file that is mapped there, or -1: by its path in the process' root where that leads to
// it without asking a file system; through map_files, which reaches deleted files and other mount
// namespaces and takes the lock of the memory map; by its path. If it has ended, the pid may be
// another's by now: then the path is tried in the root of its parent (0: none) and here, and must
// lead to the same build-id or inode. A build-id that was told must always be that of the file.
int proc_open_mapping(
        const char *proc, pid_t tgid, bool ended, pid_t parent, const struct mapping *mapping);
// fd of /tmp/perf-PID.map in the mount and pid namespace of the process, or -1.
int proc_open_perf_map(const char *proc, pid_t tgid);

#endif
