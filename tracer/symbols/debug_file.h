// SPDX-License-Identifier: Apache-2.0
// Where the symbols of a stripped file live: a separate debug file (by build-id, then by
// .gnu_debuglink; in the target's root, then here; then what debuginfod's client has fetched for
// the user before, nothing is asked of a server) or .gnu_debugdata, the compressed symbol table
// that Fedora and RHEL ship.
#ifndef UPGATE_TRACER_SYMBOLS_DEBUG_FILE_H
#define UPGATE_TRACER_SYMBOLS_DEBUG_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "tracer/symbols/elf_table.h"

enum { DEBUG_SILENT_MAX = 4 }; // each may cost the reader of files a process that waits for good

struct debug_search {
    const char *path; // what the file is called, for .gnu_debuglink; NULL: it is not followed
    const char *proc; // "/proc", with
    pid_t tgid;       // a process that has the file by that path; 0: its root is not searched
    uint32_t *silent; // how often a root has not answered; after DEBUG_SILENT_MAX times none is
                      // searched
    const char *debug_path; // the root of the debug files here, such as "/usr/lib/debug"
    const char *cache_path; // of debuginfod's client: DIR/BUILDID/debuginfo; NULL: none
};

// Fill an empty table with the symbols of the file open at fd, and sort it. The table reads
// names from fd later: keep it open. Returns the number of symbols.
size_t debug_table_load(struct elf_table *table, const struct elf_image *image, int fd,
        const struct debug_search *search, uint32_t count_max);
// The directory in which debuginfod's client keeps what it has fetched for the user, by its
// environment: DEBUGINFOD_CACHE_PATH, else below XDG_CACHE_HOME, else below HOME. The caller's;
// NULL: none is told.
char *debug_cache_path(void);

#endif
