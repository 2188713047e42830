// SPDX-License-Identifier: Apache-2.0
// Where the symbols of a stripped file live: a separate debug file (by build-id, then by
// .gnu_debuglink) or .gnu_debugdata, the compressed symbol table that Fedora and RHEL ship.
#ifndef UPGATE_TRACER_SYMBOLS_DEBUG_FILE_H
#define UPGATE_TRACER_SYMBOLS_DEBUG_FILE_H

#include "tracer/symbols/elf_table.h"

// Fill an empty table with the symbols of the file open at fd, whose name was `path` (for the
// .gnu_debuglink search), and sort it. debug_path is the root of the debug files. The table reads
// names from fd later: keep it open. Returns the number of symbols.
size_t debug_table_load(struct elf_table *table, const struct elf_image *image, int fd,
                        const char *path, const char *debug_path, uint32_t count_max);

#endif
