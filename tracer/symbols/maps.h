// SPDX-License-Identifier: Apache-2.0
// The executable mappings of a process, from /proc/PID/maps (in ascending order) or as an event
// tells of one. Others are not kept: nothing is called in them, and PyTorch has 2,000 of them.
#ifndef UPGATE_TRACER_SYMBOLS_MAPS_H
#define UPGATE_TRACER_SYMBOLS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/mapping_event.h"
#include "tracer/symbols/elf_files.h"
#include "tracer/symbols/names.h"

enum { MAPPINGS_MAX = 8192 }; // of a process; PyTorch with CUDA has 300, a JIT some thousands

enum mapping_kind {
    MAPPING_FILE,
    MAPPING_JIT, // anonymous, or a file in memory only
    MAPPING_VDSO,
    MAPPING_SPECIAL // [vsyscall], [uprobes], [stack]
};

struct mapping {
    uint64_t start, end, offset;
    uint64_t device, inode;
    const char *path;            // interned, as the process sees it; "" for anonymous memory
    const char *build_id;        // interned; NULL: not told
    uint64_t since_ns, until_ns; // CLOCK_MONOTONIC; until 0: still there
    struct file_ref file;
    uint8_t kind;
    bool unopenable; // tried once
};

struct mappings { // = {0} is empty
    struct mapping *all;
    uint32_t count;
    uint64_t dropped; // beyond the maximum
};

// dir: that of the process in /proc. 0 or -errno (it is gone, no permission). On failure *ret is
// untouched; else the old content is the caller's to free.
int mappings_read(const char *dir, struct names *names, struct mappings *ret);
// The same for who must not wait for the mmap lock of the process: -EAGAIN, or -EIO in the middle,
// where it is not to be had in time.
int mappings_ask(const char *dir, struct names *names, struct mappings *ret);
void mapping_of_event(const struct mapping_event *event, struct names *names, struct mapping *ret);
bool mapping_is_memory_file(const struct mapping *mapping);
void mappings_free(struct mappings *mappings);

#endif
