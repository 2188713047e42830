// SPDX-License-Identifier: Apache-2.0
// The processes whose addresses were asked for: who they are, their executable mappings, their perf
// map. A process is (tgid, start); it stays known after its end, until the least recently used
// goes.
#ifndef UPGATE_TRACER_SYMBOLS_PROCESSES_H
#define UPGATE_TRACER_SYMBOLS_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tracer/symbols/maps.h"
#include "tracer/symbols/perf_map.h"
#include "tracer/symbols/symbols.h"

struct symbol_process {
    pid_t tgid; // 0: the slot is free
    uint64_t start, image;
    bool ended;    // nothing more is read of /proc
    bool snapshot; // keep the files of new mappings open
    struct mappings mappings;
    struct perf_map *perf_map;
    uint64_t checked_ns, maps_ns, perf_ns; // when last read, CLOCK_MONOTONIC; 0: never
    uint64_t debt_ns, paid_ns;             // CPU time of reading again, and when it was last written off
    uint64_t used;
};

struct processes {
    struct symbol_process *slots;
    uint32_t processes_max, last; // last: the slot of the last answer
    const char *proc;
    uint64_t recheck_ns, used;
    struct elf_files *files;
    struct symbols_stats *stats;
};

void processes_init(struct processes *processes, uint32_t processes_max);
// Known or found in /proc now; start = 0: whoever has the pid, or had it last. 0 or -errno.
int processes_get(struct processes *processes, pid_t tgid, uint64_t start,
                  struct symbol_process **ret);
// Read the maps again if they are older than recheck_ns and may be afforded (or at once). False: nothing changed.
bool processes_read_maps(struct processes *processes, struct symbol_process *process, bool at_once);
// Open the perf map, or read what was added to it; as rarely (or at once).
void processes_read_perf_map(struct processes *processes, struct symbol_process *process,
                             bool at_once);
// The ELF file of a mapping, opened if need be; NULL if it cannot be opened or is none.
struct symbol_file *processes_file(struct processes *processes, struct symbol_process *process,
                                   struct mapping *mapping);
// Drop perf maps, least recently used first, while the budget is exceeded.
void processes_shrink(struct processes *processes, const struct symbol_process *keep);
void processes_free(struct processes *processes);

#endif
