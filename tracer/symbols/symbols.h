// SPDX-License-Identifier: Apache-2.0
// Names for the addresses of stacks: kernel (kallsyms) and user space (ELF files, perf maps, vdso)
// of processes in any mount and pid namespace. Reads /proc; writes nothing. One owner thread; no
// lock. Nothing fails half-way: what cannot be named stays visible as "libfoo.so+0x1234" with known
// = false, a function each.
//
// What it costs: no ELF file is mapped or loaded whole. A file is one open fd and 12 bytes a
// function symbol (libtorch_cpu.so, 300 k functions: 3.6 MB; loaded at the first lookup that falls
// into it); names are read from the file when asked for, once each. kallsyms costs 12 bytes a
// symbol and its names (120 k symbols: 4.8 MB). All of it stays below bytes_max + strings_bytes_max
// + kallsyms; the least recently used files and processes are thrown out, and counted. With PyTorch
// 2.13 and 200 lookups in each of its 46 executable mappings the process has 15 MB resident.
#ifndef UPGATE_TRACER_SYMBOLS_SYMBOLS_H
#define UPGATE_TRACER_SYMBOLS_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/mapping_event.h"

struct symbols;

struct symbols_opts {           // = {0} is the default
    const char *kallsyms_path;  // NULL: /proc/kallsyms
    const char *proc_path;      // NULL: /proc
    const char *debug_path;     // NULL: /usr/lib/debug; separate debug files
    const char *cache_path;     // NULL: that of debuginfod's client, by the environment; "": none
    uint64_t bytes_max;         // tables of ELF files, perf maps and processes; 0: 20 MiB
    uint64_t strings_bytes_max; // interned names; 0: 8 MiB
    uint32_t files_max;         // held open; 0: 512, at most a quarter of RLIMIT_NOFILE
    uint32_t processes_max;     // processes remembered, dead ones too; 0: 256
    uint64_t recheck_ns;        // /proc/PID is read again this often at most; 0: 20 ms
};

struct symbol {
    const char *name; // demangled, without suffixes; unknown: "[jit]", or "libfoo.so+0x1234": where
                      // in the file the function begins by its unwind information, or, where that
                      // says nothing, the address itself
    const char *module; // "libfoo.so", "kernel", "[nvidia]", "[vdso]", "[jit]", "[anon]"
    uint64_t offset; // from the start of the function; where that is not known, the address in the
                     // file
    const char *build_id; // lower-case hex of the file; NULL: none
    bool known;
}; // strings belong to struct symbols and stay valid until symbols_free

// For the ledger. All but the last five only grow.
struct symbols_stats {
    uint64_t lookups;        // kernel and user
    uint64_t unknown;        // of them answered with known = false
    uint64_t maps_reads;     // /proc/PID/maps read
    uint64_t maps_held_back; // not read again because recheck_ns had not passed
    uint64_t maps_silent; // they did not come in time: the process's mmap lock was held. What was
                          // known was kept, and they are read later
    uint64_t mappings_skipped; // events of a process that maps without end
    uint64_t files_loaded;     // symbol tables built
    uint64_t files_refused;    // damaged, not ELF, cannot be opened: their addresses stay unknown
    uint64_t files_evicted;    // closed to keep files_max and bytes_max
    uint64_t processes_evicted;
    uint64_t symbols_dropped; // beyond the maximum of one table
    uint64_t strings_dropped; // names not kept because strings_bytes_max was reached
    uint64_t files_open;
    uint64_t processes;
    uint64_t bytes_tables; // memory now: ELF files, perf maps, processes
    uint64_t bytes_strings;
    uint64_t bytes_kernel;
};

int symbols_new(const struct symbols_opts *opts, struct symbols **ret, struct error *err);
void symbols_free(struct symbols *symbols); // NULL ok

// The kernel text symbol around ip; for a return address pass ip - 1. Loads kallsyms when first
// asked (0.1 s). Names of GCC and LLVM clones lose .isra.0, .constprop.0, .part.0, .cold, .llvm.*.
void symbols_kernel(struct symbols *symbols, uint64_t ip, struct symbol *ret);
// Can kernel addresses be named? If not, *ret_why (NULL ok) is a sentence: kptr_restrict, no file.
bool symbols_kernel_available(struct symbols *symbols, const char **ret_why);

// A process is (tgid, start): start is proc_stat.start_ticks, clock ticks since boot, which is
// task->group_leader->start_boottime / 10 ms in BPF. start = 0 means whoever has the pid now, or
// had it last. A pid that was given to a new process, or that called exec, gets new maps.

// What is mapped is a matter of time: libraries come and go, and another may lie at the address of
// one that went. Where mappings come as events, an address is named by what lay there at its
// moment, also of a process that has ended since; else by the last look at /proc.

// From now on every mapping is told: the maps are read when a process becomes known, and where
// events were lost.
void symbols_follow(struct symbols *symbols);
// Of any process of the machine, also of one that nobody has asked for yet.
void symbols_mapping(struct symbols *symbols, const struct mapping_event *event);
// As long as it is the same, an address of the process means the same. Of an unknown process: 0.
uint32_t symbols_process_epoch(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns);

struct symbols_birth {
    uint64_t start, at_ns; // CLOCK_MONOTONIC
    pid_t parent; // it had mapped what its parent had; 0: not known, and at_ns does not matter
};
// Know the process from now on: reads the maps and opens the mapped files, so that addresses can
// still be named when it has ended. Costs one open a mapped library (100 libraries: 1 ms). 0,
// -ESRCH (gone and never seen), -EACCES, -EAGAIN (its maps did not come in time, and are read
// later).
int symbols_process_snapshot(
        struct symbols *symbols, pid_t tgid, const struct symbols_birth *birth, struct error *err);
// The user-space symbol around ip; opens the process where needed. For a return address pass ip
// - 1. Of one certain process it never answers from another one that has the pid now. At one
// moment: CLOCK_MONOTONIC; UINT64_MAX: now.
void symbols_process_lookup_at(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns,
        uint64_t ip, struct symbol *ret);

// The code around an address of a process, for those who read its file themselves.
struct symbols_code {
    uint64_t begin, end; // of the mapping
    uint64_t file; // the same number is the same file; 0: code that is in none, and what follows is
                   // not set
    int fd;        // to be read, at once
    uint64_t address; // of the mapping's begin in the file, virtual, as are:
    uint64_t segment_begin, segment_end;
    uint32_t segment; // its number, below 16
};
// False: nothing is known to be mapped there. As symbols_process_lookup_at.
bool symbols_process_code(struct symbols *symbols, pid_t tgid, uint64_t start, uint64_t at_ns,
        uint64_t ip, struct symbols_code *ret);

void symbols_stats(const struct symbols *symbols, struct symbols_stats *ret);

#endif
