// SPDX-License-Identifier: Apache-2.0
// The cache of processes. /proc/PID/stat is read before an answer at most every recheck_ns: it
// tells a reused pid (start) and an exec (code and stack addresses). 256 slots are searched one by
// one.
#include "tracer/symbols/processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"
#include "tracer/symbols/proc.h"

enum { PROCESSES_VDSO_BYTES_MAX = 1 << 20, PROCESSES_COST_SHARE = 50, PROCESSES_DEBT_NS = 20000000 };

void processes_init(struct processes *processes, uint32_t processes_max)
{
    processes->processes_max = processes_max;
    processes->slots = xcalloc(processes_max, sizeof(*processes->slots));
}

static uint64_t processes_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t processes_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool processes_due(const struct processes *processes, uint64_t last_ns, uint64_t now_ns)
{
    return !last_ns || now_ns - last_ns >= processes->recheck_ns;
}

// Addresses that are no code are asked for again and again: reading what may explain them takes at most a fiftieth of
// a CPU for each process, however many mappings it has, and a moment more where many come at its start.
static bool processes_affords(struct symbol_process *process, uint64_t now_ns)
{
    uint64_t earned_ns = (now_ns - process->paid_ns) / PROCESSES_COST_SHARE;
    process->debt_ns = process->debt_ns > earned_ns ? process->debt_ns - earned_ns : 0;
    process->paid_ns = now_ns;
    return process->debt_ns < PROCESSES_DEBT_NS;
}

static uint64_t processes_bytes(const struct symbol_process *process)
{
    return process->mappings.count * sizeof(*process->mappings.all) +
           perf_map_bytes(process->perf_map);
}

// Forget what the process has mapped: it ended, or it is another program now.
static void processes_forget(struct processes *processes, struct symbol_process *process)
{
    processes->stats->bytes_tables -= processes_bytes(process);
    mappings_free(&process->mappings);
    perf_map_free(process->perf_map);
    process->perf_map = NULL;
    process->maps_ns = process->perf_ns = 0;
}

static struct symbol_process *processes_free_slot(struct processes *processes)
{
    struct symbol_process *oldest = &processes->slots[0];
    for (uint32_t i = 0; i < processes->processes_max; i++) {
        struct symbol_process *one = &processes->slots[i];
        if (!one->tgid)
            return one;
        if (one->used < oldest->used)
            oldest = one;
    }
    processes_forget(processes, oldest);
    processes->stats->processes_evicted++;
    return oldest;
}

// The newest of that pid, or the one with that start.
static struct symbol_process *processes_known(struct processes *processes, pid_t tgid,
                                              uint64_t start)
{
    struct symbol_process *found = &processes->slots[processes->last];
    // Stacks come in runs of one process. While it lives there is no newer one with its pid.
    if (found->tgid == tgid && (start ? found->start == start : !found->ended))
        return found;
    found = NULL;
    for (uint32_t i = 0; i < processes->processes_max; i++) {
        struct symbol_process *one = &processes->slots[i];
        if (one->tgid == tgid && (!start || one->start == start) &&
            (!found || one->start > found->start))
            found = one;
    }
    return found;
}

static struct symbol_process *processes_add(struct processes *processes, pid_t tgid,
                                            const struct proc_identity *identity, uint64_t now_ns)
{
    struct symbol_process *process = processes_free_slot(processes);
    *process = (struct symbol_process){.tgid = tgid,
                                       .start = identity->start,
                                       .image = identity->image,
                                       .ended = identity->ended,
                                       .checked_ns = now_ns};
    return process;
}

static void processes_update(struct processes *processes, struct symbol_process *process,
                             const struct proc_identity *identity)
{
    if (identity->ended) {
        process->ended = true;
    } else if (identity->image && identity->image != process->image) {
        if (process->image)
            processes_forget(processes, process);
        process->image = identity->image;
    }
}

int processes_get(struct processes *processes, pid_t tgid, uint64_t start,
                  struct symbol_process **ret)
{
    struct symbol_process *process = processes_known(processes, tgid, start);
    struct proc_identity identity;
    uint64_t now_ns = processes_now_ns();
    // One that has ended and is asked for by its start needs no question: nothing can change.
    bool ask = !process || (processes_due(processes, process->checked_ns, now_ns) &&
                            !(process->ended && start));
    if (ask) {
        int code = proc_identity(processes->proc, tgid, &identity);
        if (process)
            process->checked_ns = now_ns;
        if (process && (code == -ESRCH || (!code && identity.start != process->start)))
            process->ended = true;
        if (!code && process && identity.start == process->start)
            processes_update(processes, process, &identity);
        else if (!code && (!start || start == identity.start))
            process = processes_add(processes, tgid, &identity, now_ns);
        if (!process)
            return code ? code : -ESRCH;
    }
    process->used = ++processes->used;
    processes->last = (uint32_t)(process - processes->slots);
    *ret = process;
    return 0;
}

bool processes_read_maps(struct processes *processes, struct symbol_process *process, bool at_once)
{
    char path[4096];
    struct mappings fresh = {0};
    uint64_t now_ns = processes_now_ns();
    if (process->ended)
        return false;
    if (!at_once && !(processes_due(processes, process->maps_ns, now_ns) && processes_affords(process, now_ns))) {
        processes->stats->maps_held_back++;
        return false;
    }
    process->maps_ns = now_ns;
    snprintf(path, sizeof(path), "%s/%d/maps", processes->proc, (int)process->tgid);
    uint64_t cpu_ns = processes_cpu_ns();
    int code = mappings_read(path, processes->files->names, &fresh);
    processes->stats->maps_reads++;
    process->debt_ns += processes_cpu_ns() - cpu_ns;
    cpu_ns = processes_cpu_ns();
    if (code || !fresh.count) { // while a process ends its maps are empty: keep the old ones
        mappings_free(&fresh);
        return false;
    }
    processes->stats->bytes_tables -= processes_bytes(process);
    mappings_free(&process->mappings);
    process->mappings = fresh;
    processes->stats->bytes_tables += processes_bytes(process);
    for (uint32_t i = 0; process->snapshot && i < fresh.count; i++)
        if (fresh.all[i].kind != MAPPING_JIT && fresh.all[i].kind != MAPPING_SPECIAL)
            processes_file(processes, process, &process->mappings.all[i]);
    process->debt_ns += processes_cpu_ns() - cpu_ns;
    return true;
}

void processes_read_perf_map(struct processes *processes, struct symbol_process *process,
                             bool at_once)
{
    uint64_t now_ns = processes_now_ns();
    if (!at_once && !(processes_due(processes, process->perf_ns, now_ns) && processes_affords(process, now_ns)))
        return;
    process->perf_ns = now_ns;
    if (!process->perf_map) {
        int fd = process->ended ? -1 : proc_open_perf_map(processes->proc, process->tgid);
        if (fd < 0)
            return;
        process->perf_map = perf_map_new(fd);
        processes->stats->bytes_tables += perf_map_bytes(process->perf_map);
    }
    uint64_t before = perf_map_bytes(process->perf_map), dropped = process->perf_map->dropped;
    uint64_t cpu_ns = processes_cpu_ns();
    bool grown = perf_map_refresh(process->perf_map);
    process->debt_ns += processes_cpu_ns() - cpu_ns;
    if (!grown)
        return;
    processes->stats->perf_map_reads++;
    processes->stats->symbols_dropped += process->perf_map->dropped - dropped;
    processes->stats->bytes_tables += perf_map_bytes(process->perf_map) - before;
    elf_files_shrink(processes->files, NULL);
    processes_shrink(processes, process);
}

// The vdso is in no file, but this process has the same one: a copy in a memory file reads like
// any.
static bool processes_adopt_vdso(struct processes *processes, struct mapping *mapping)
{
    const void *vdso = (const void *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
    uint64_t bytes = mapping->end - mapping->start;
    int fd = vdso && bytes <= PROCESSES_VDSO_BYTES_MAX
                 ? memfd_create("upgate-vdso", MFD_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    // write() instead of a copy: it stops at memory that is not there.
    if (write(fd, vdso, bytes) <= 0) {
        close(fd);
        return false;
    }
    mapping->offset = 0;
    return elf_files_adopt(processes->files, fd, "[vdso]", &mapping->file);
}

// Another mapping of any process may hold the vdso already: each copy would be a new file.
static bool processes_share_vdso(struct processes *processes, struct mapping *mapping)
{
    for (uint32_t i = 0; i < processes->files->files_max; i++) {
        const struct symbol_file *one = &processes->files->slots[i];
        if (one->generation && one->path && one->path[0] == '[') {
            mapping->file = (struct file_ref){i, one->generation};
            mapping->offset = 0;
            return true;
        }
    }
    return processes_adopt_vdso(processes, mapping);
}

struct symbol_file *processes_file(struct processes *processes, struct symbol_process *process,
                                   struct mapping *mapping)
{
    struct symbol_file *file = elf_files_get(processes->files, mapping->file);
    if (!file && !mapping->unopenable) {
        bool good = false;
        if (mapping->kind == MAPPING_VDSO) {
            good = processes_share_vdso(processes, mapping);
        } else {
            int fd = proc_open_mapping(processes->proc, process->tgid, process->ended, mapping);
            good = fd >= 0 && elf_files_adopt(processes->files, fd, mapping->path, &mapping->file);
        }
        mapping->unopenable = !good;
        processes->stats->files_refused += !good;
        file = good ? elf_files_get(processes->files, mapping->file) : NULL;
    }
    return file && !file->refused ? file : NULL;
}

void processes_shrink(struct processes *processes, const struct symbol_process *keep)
{
    while (processes->stats->bytes_tables > processes->files->bytes_max) {
        struct symbol_process *oldest = NULL;
        for (uint32_t i = 0; i < processes->processes_max; i++) {
            struct symbol_process *one = &processes->slots[i];
            if (one->tgid && one->perf_map && one != keep && (!oldest || one->used < oldest->used))
                oldest = one;
        }
        if (!oldest)
            return;
        processes->stats->bytes_tables -= perf_map_bytes(oldest->perf_map);
        perf_map_free(oldest->perf_map);
        oldest->perf_map = NULL;
        processes->stats->files_evicted++;
    }
}

void processes_free(struct processes *processes)
{
    for (uint32_t i = 0; processes->slots && i < processes->processes_max; i++)
        if (processes->slots[i].tgid)
            processes_forget(processes, &processes->slots[i]);
    free(processes->slots);
    processes->slots = NULL;
}
