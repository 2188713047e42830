// SPDX-License-Identifier: Apache-2.0
// Files of another process, which is not trusted: what it maps, and what stands in its directories.
// The one place where such are opened and read: never outside the root of that process, regular
// files only, and without ever waiting: for a FIFO, or for a file system that does not answer
// (common/target/reader.h). What is refused is not opened even for a moment, and nothing is started
// (a device). The functions that open return a descriptor for target_file_read and
// target_file_status, or -1 with errno; EAGAIN: a file system does not answer. device: where the
// file lies, as maps has it; 0: not known.
#ifndef UPGATE_COMMON_TARGET_FILE_H
#define UPGATE_COMMON_TARGET_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

// A path as the process sees it; symbolic links are resolved inside its root. proc: "/proc", but
// for tests.
int target_file_open(const char *proc, pid_t pid, const char *path, dev_t device);
// The same, if the kernel knows the way without asking a file system, as it does to a file on a
// local one that is mapped; else ENOENT.
int target_file_open_cached(const char *proc, pid_t pid, const char *path, dev_t device);
// The file mapped at begin to end; by its path where the kernel does not let us ask for the
// mapping.
int target_file_open_mapped(
        const char *proc, pid_t pid, uint64_t begin, uint64_t end, const char *path, dev_t device);
// A path of ours, or a link of /proc such as PID/exe.
int target_file_open_here(const char *path, dev_t device);
// A path of ours that may be the file with this identity, and may be any other.
int target_file_open_known(const char *path, dev_t device, ino_t inode);
// /proc/PID/fd/N, if it is a memory file (memfd_create), for reading and writing: a target can give
// any file that it can bind somewhere the name of one. Read as any descriptor is.
int target_file_open_memory(const char *path);

// As pread(2), of any descriptor; as much as there is.
ssize_t target_file_read(int fd, void *buf, size_t len, uint64_t offset);
// As fstat(2), of any descriptor.
int target_file_status(int fd, struct stat *ret);
// The text of a file of /proc, such as PID/environ or PID/maps, which wait for the process's mmap
// lock; at most max bytes, and a NUL behind them. NULL, errno. The caller's.
char *target_file_text(const char *path, size_t max, size_t *ret_len);
// The same as a stream, however long it is. Each piece is to be had within a tenth of a second:
// rings fill meanwhile. NULL, errno. What fails later is an error of the stream, and not its end.
// The caller's.
FILE *target_file_stream(const char *path);
// May the memory of a process be read now, or does somebody hold its mmap lock? To read it waits
// for that, and SIGKILL does not end the wait. The answer takes some 20 us; false at the latest
// after 50 ms, and for the next second.
bool target_memory_is_free(pid_t pid);
// Questions (at most 4 KiB; NULL, 0: none, for the rest of the answers) to the kernel over a
// netlink socket of ours that is connected to it. They may wait for a process that they are about.
// Answers as far as there is room, side by side, each at a multiple of four bytes; max: 64 KiB or
// less, and more than 32. Their length, or -1, errno; 0: there are no more.
ssize_t target_file_converse(
        int fd, const void *question, size_t len, void *ret_answers, size_t max);
// The last file that could not be read in time since target_file_start, or NULL. The caller's.
char *target_file_silent(void);
// The process that waits for file systems is forked now, not at the first use, and whoever takes
// its place later holds nothing of what we have taken since. prepare: called in it (NULL: nothing),
// to give up what it need not have; system calls only.
void target_file_start(void (*prepare)(void));

#endif
