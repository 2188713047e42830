// SPDX-License-Identifier: Apache-2.0
// The processes whose addresses were asked for: who they are, their executable mappings, their perf
// map. A process is (tgid, start); it stays known after its end, until the least recently used
// goes.
#ifndef UPGATE_TRACER_SYMBOLS_PROCESSES_H
#define UPGATE_TRACER_SYMBOLS_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/budget.h"
#include "common/containers/map.h"
#include "tracer/symbols/held_events.h"
#include "tracer/symbols/mapping_table.h"
#include "tracer/symbols/perf_map.h"
#include "tracer/symbols/symbols.h"

struct symbol_process {
    pid_t tgid;   // 0: the slot is free
    pid_t parent; // 0: not told
    uint64_t start, image;
    bool ended;    // nothing more is read of /proc
    bool snapshot; // keep the files of new mappings open
    bool has_maps; // they were read once
    bool missed;   // an address lay nowhere, and the maps could not be read again then; or they did
                   // not come in time
    struct mapping_table table;
    struct perf_map *perf_map;
    uint64_t checked_ns, maps_ns, perf_ns; // when last read, CLOCK_MONOTONIC; 0: never
    uint64_t lost_ns;                      // when an event of it was not taken
    struct budget budget;                  // of reading again, and of opening files
    struct budget events;                  // of the table
    uint64_t used;
};

struct processes {
    struct symbol_process *slots;
    uint32_t processes_max;
    struct map by_tgid; // slots
    uint32_t last;      // the slot of the last answer
    const char *proc;
    uint64_t recheck_ns, used;
    bool follows;     // events tell what is mapped
    uint64_t lost_ns; // when events were lost last; 0: never
    // of the mappings and the perf maps of all: at most half of the budget each
    uint64_t maps_bytes, perf_bytes;
    struct budget budget; // of reading maps again, for all
    struct held_events held;
    struct elf_files *files;
    struct symbols_stats *stats;
};

void processes_init(struct processes *processes, uint32_t processes_max);
// Known or found in /proc now; start = 0: whoever has the pid, or had it last. 0 or -errno.
int processes_get(
        struct processes *processes, pid_t tgid, uint64_t start, struct symbol_process **ret);
// One that may have ended, for its first stack: what it had mapped is known from its parent (0: not
// known) at its birth and from what events told since. 0 or -errno.
int processes_know(struct processes *processes, pid_t tgid, uint64_t start, pid_t parent,
        uint64_t born_ns, struct symbol_process **ret);
// Read the maps again if they are older than recheck_ns and may be afforded (or at once). False:
// nothing changed.
bool processes_read_maps(struct processes *processes, struct symbol_process *process, bool at_once);
// Keep open what it has mapped, and from now on what it will map.
void processes_snapshot(struct processes *processes, struct symbol_process *process);
void processes_mapping(struct processes *processes, const struct mapping_event *event);
// mapping_table_epoch, after a look whether the maps must be read again.
uint32_t processes_epoch(
        struct processes *processes, struct symbol_process *process, uint64_t at_ns);
// Open the perf map, or read what was added to it; as rarely (or at once).
void processes_read_perf_map(
        struct processes *processes, struct symbol_process *process, bool at_once);
// The ELF file of a mapping, opened if need be; NULL if it cannot be opened or is none.
struct symbol_file *processes_file(
        struct processes *processes, struct symbol_process *process, struct mapping *mapping);
void processes_free(struct processes *processes);

// Inside of the processes_*.c.

// start 0: the newest
struct symbol_process *processes_known(struct processes *processes, pid_t tgid, uint64_t start);
// events from before it was known
void processes_replay(struct processes *processes, struct symbol_process *process);
void processes_inherit(struct processes *processes, struct symbol_process *process,
        const struct symbol_process *parent, uint64_t at_ns);
void processes_forget_perf_map(struct processes *processes, struct symbol_process *process);
void processes_shrink_maps(struct processes *processes, const struct symbol_process *keep);
bool processes_due(uint64_t last_ns, uint64_t period_ns, uint64_t now_ns);

#endif
