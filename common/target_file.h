// SPDX-License-Identifier: Apache-2.0
// Files of another process, which is not trusted: what it maps, and what stands in its directories. The one place
// where such are opened: never outside the root of that process, regular files only, and without ever waiting (a FIFO)
// or starting anything (a device). All functions return a descriptor for reading, or -1 with errno.
#ifndef UPGATE_COMMON_TARGET_FILE_H
#define UPGATE_COMMON_TARGET_FILE_H

#include <stdint.h>
#include <sys/types.h>

// A path as the process sees it; symbolic links are resolved inside its root. proc: "/proc", but for tests.
int target_file_open(const char *proc, pid_t pid, const char *path);
// The file mapped at begin to end; by its path where the kernel does not let us ask for the mapping.
int target_file_open_mapped(const char *proc, pid_t pid, uint64_t begin, uint64_t end, const char *path);
// A path of ours, or a link of /proc such as PID/exe.
int target_file_open_here(const char *path);

#endif
