// SPDX-License-Identifier: Apache-2.0
// The executable mappings of a process, from /proc/PID/maps, in ascending order. Others are not
// kept: nothing is called in them, and PyTorch has 2,000 of them.
#ifndef UPGATE_TRACER_SYMBOLS_MAPS_H
#define UPGATE_TRACER_SYMBOLS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tracer/symbols/elf_files.h"
#include "tracer/symbols/names.h"

enum mapping_kind {
    MAPPING_FILE,
    MAPPING_JIT,    // anonymous, or a file in memory only
    MAPPING_VDSO,
    MAPPING_SPECIAL // [vsyscall], [uprobes], [stack]
};

struct mapping {
    uint64_t start, end, offset;
    uint64_t device, inode;
    const char *path; // interned, as the process sees it; "" for anonymous memory
    struct file_ref file;
    uint8_t kind;
    bool unopenable; // tried once
};

struct mappings { // = {0} is empty
    struct mapping *all;
    uint32_t count;
    uint64_t dropped; // beyond the maximum
};

// 0 or -errno (the process is gone, no permission). On failure *ret is untouched; else the old
// content is the caller's to free.
int mappings_read(const char *path, struct names *names, struct mappings *ret);
struct mapping *mappings_find(const struct mappings *mappings, uint64_t address);
bool mapping_is_memory_file(const struct mapping *mapping);
void mappings_free(struct mappings *mappings);

#endif
