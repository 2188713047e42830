// SPDX-License-Identifier: Apache-2.0
// Files of another process, which is not trusted: what it maps, and what stands in its directories. The one place
// where such are opened: never outside the root of that process, regular files only, and without ever waiting (a FIFO)
// or starting anything (a device). What is refused is not opened even for a moment. All functions return a descriptor for
// reading, or -1 with errno.
#ifndef UPGATE_COMMON_TARGET_FILE_H
#define UPGATE_COMMON_TARGET_FILE_H

#include <stdint.h>
#include <sys/types.h>

// A path as the process sees it; symbolic links are resolved inside its root. proc: "/proc", but for tests. Where the process has
// FUSE mounts, a name that the kernel would have to ask for is not looked up: -1, EAGAIN.
int target_file_open(const char *proc, pid_t pid, const char *path);
// The file mapped at begin to end; by its path where the kernel does not let us ask for the mapping.
int target_file_open_mapped(const char *proc, pid_t pid, uint64_t begin, uint64_t end, const char *path);
// A path of ours, or a link of /proc such as PID/exe.
int target_file_open_here(const char *path);
// A path of ours that may be the file with this identity, and may be any other.
int target_file_open_known(const char *path, dev_t device, ino_t inode);
// A link of /proc/PID/fd, if it is a memory file (memfd_create), for reading and writing: a target can give any file that
// it can bind somewhere the name of one.
int target_file_open_memory(int directory, const char *name);

#endif
