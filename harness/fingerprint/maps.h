// SPDX-License-Identifier: Apache-2.0
// The files mapped by a process, from /proc/PID/maps: one entry a file, however many mappings it
// has.
#ifndef UPGATE_FINGERPRINT_MAPS_H
#define UPGATE_FINGERPRINT_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct mapped_file {
    char *path; // as the kernel prints it, without " (deleted)"
    uint64_t inode;
    uint64_t start, end; // of the first mapping: names /proc/PID/map_files/START-END
    bool deleted;        // unlinked or replaced on disk since it was mapped
    bool executable;     // some mapping of it can be executed
};

struct maps {
    struct mapped_file *files; // sorted by path
    size_t file_count;
    size_t anonymous_exec_count; // executable memory without a file: code made at run time
    size_t malformed_count;      // lines that were not understood
};

// Parse the text of a maps file (NUL-terminated; changed by the parser). Cannot fail: lines it does
// not understand are counted. Free with maps_free.
void maps_parse(char *text, struct maps *ret_maps);

// Read and parse PROC_DIR/maps, PROC_DIR being "/proc/PID". -ESRCH when the process is gone (a
// zombie has an empty file), -EACCES when it is not ours to read.
int maps_read(const char *proc_dir, struct maps *ret_maps, struct error *err);

void maps_free(struct maps *maps); // NULL ok

#endif
