// SPDX-License-Identifier: Apache-2.0
// What the processes of a launch hold in memory, by what is mapped: /proc/PID/smaps, summed; and
// which pages those are, by /proc/PID/pagemap. The kernel holds the mmap lock of a process that is
// asked: only of trees that stand still.
#ifndef UPGATE_HARNESS_CONTAIN_RESIDENT_H
#define UPGATE_HARNESS_CONTAIN_RESIDENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum resident_kind {    // words in the store
    RESIDENT_FILE,      // a library, a program, data
    RESIDENT_HEAP,      // [heap]: what brk gave to malloc
    RESIDENT_ANONYMOUS, // mmap without a file: allocators' arenas and large blocks, stacks of
                        // threads
    RESIDENT_STACK,     // of the main thread
    RESIDENT_SHARED,    // no file on a disk: /dev/shm, memfd, System V
    RESIDENT_OTHER,     // devices, vdso
    RESIDENT_KIND_COUNT
};

struct resident_row {
    enum resident_kind kind;
    char *name; // of a file, without its directories; "": not a file, or the smallest files
                // together
    int64_t resident_bytes, anonymous_bytes;
};

struct resident_range { // in which a process has all pages, or as many as bytes says
    uint64_t begin, end;
    int64_t bytes;
    int pid;
    enum resident_kind kind;
    char *name; // as in resident_row; the smallest files keep theirs
};

struct resident {
    struct resident_row *rows;
    size_t count;
    struct resident_range *ranges; // by process and address
    size_t range_count;
    uint64_t pages_read; // of pagemap
    int64_t at_ns;       // CLOCK_MONOTONIC, of the first process
};

// Adds the process in dir ("/proc/17"). -errno, -EIO: it could not be read whole. Where its pages
// cannot be read, or are more than 32 GiB of addresses, a mapping is one range.
int resident_add(struct resident *resident, const char *dir);
// Largest first, and the smallest files as one row: so many rows of files at most.
void resident_sort(struct resident *resident, size_t files_max);
ERROR_CHECKED int resident_store(
        const struct resident *resident, int64_t launch_id, struct store *store, struct error *err);
void resident_clear(struct resident *resident);

#endif
