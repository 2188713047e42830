// SPDX-License-Identifier: Apache-2.0
// The cache of processes. /proc/PID/stat is read before an answer at most every recheck_ns: it
// tells a reused pid (start) and an exec (code and stack addresses).
#include "tracer/symbols/processes.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tracer/symbols/proc.h"

enum {
    // Addresses that are no code are asked for again and again: reading what may explain them takes
    // at most a fiftieth of
    // a CPU for each process, however many mappings it has or makes, and half a percent for the
    // maps of all together.
    PROCESS_SHARE_DIVISOR = 50,
    MAPS_SHARE_DIVISOR = 200,
    PROCESSES_BURST_NS = 20000000, // for a start, where much comes at once
};

void processes_init(struct processes *processes, uint32_t processes_max)
{
    processes->processes_max = processes_max;
    processes->budget =
            (struct budget){.divisor = MAPS_SHARE_DIVISOR, .burst_ns = PROCESSES_BURST_NS};
    processes->slots = xcalloc(processes_max, sizeof(*processes->slots));
}

bool processes_due(uint64_t last_ns, uint64_t period_ns, uint64_t now_ns)
{
    return !last_ns || now_ns - last_ns >= period_ns;
}

void processes_forget_perf_map(struct processes *processes, struct symbol_process *process)
{
    uint64_t bytes = perf_map_bytes(process->perf_map);
    processes->stats->bytes_tables -= bytes;
    processes->perf_bytes -= bytes;
    perf_map_free(process->perf_map);
    process->perf_map = NULL;
    process->perf_ns = 0;
}

// Forget what the process has mapped: it ended, or it is another program now.
static void processes_forget(struct processes *processes, struct symbol_process *process)
{
    uint64_t bytes = mapping_table_bytes(&process->table);
    processes->stats->bytes_tables -= bytes;
    processes->maps_bytes -= bytes;
    mapping_table_free(&process->table);
    process->has_maps = false;
    process->maps_ns = 0;
    processes_forget_perf_map(processes, process);
}

// And who it was: the slot is free.
static void processes_drop(struct processes *processes, struct symbol_process *process)
{
    processes_forget(processes, process);
    map_remove(
            &processes->by_tgid, (uint64_t)process->tgid, (uint32_t)(process - processes->slots));
    process->tgid = 0;
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
    processes_drop(processes, oldest);
    processes->stats->processes_evicted++;
    return oldest;
}

// The newest of that pid, or the one with that start.
struct symbol_process *processes_known(struct processes *processes, pid_t tgid, uint64_t start)
{
    struct symbol_process *found = &processes->slots[processes->last];
    // Stacks come in runs of one process. While it lives there is no newer one with its pid.
    if (found->tgid == tgid && (start ? found->start == start : !found->ended))
        return found;
    found = NULL;
    size_t at;
    uint32_t i = map_first(&processes->by_tgid, (uint64_t)tgid, &at);
    for (; i != MAP_NONE; i = map_next(&processes->by_tgid, (uint64_t)tgid, &at)) {
        struct symbol_process *one = &processes->slots[i];
        if ((!start || one->start == start) && (!found || one->start > found->start))
            found = one;
    }
    return found;
}

static struct symbol_process *processes_add(struct processes *processes, pid_t tgid,
        const struct proc_identity *identity, uint64_t now_ns)
{
    const struct budget budget = {.divisor = PROCESS_SHARE_DIVISOR, .burst_ns = PROCESSES_BURST_NS};
    struct symbol_process *process = processes_free_slot(processes);
    *process = (struct symbol_process){.tgid = tgid,
            .start = identity->start,
            .image = identity->image,
            .ended = identity->ended,
            .checked_ns = now_ns,
            .budget = budget,
            .events = budget,
            .used = ++processes->used};
    map_add(&processes->by_tgid, (uint64_t)tgid, (uint32_t)(process - processes->slots));
    processes_replay(processes, process);
    return process;
}

static void processes_update(struct processes *processes, struct symbol_process *process,
        const struct proc_identity *identity)
{
    if (identity->ended) {
        process->ended = true;
    } else if (identity->image && identity->image != process->image) {
        if (process->image && processes->follows)
            processes_forget_perf_map(processes, process); // an event has told, or will tell
        else if (process->image)
            processes_forget(processes, process);
        process->image = identity->image;
    }
}

int processes_get(
        struct processes *processes, pid_t tgid, uint64_t start, struct symbol_process **ret)
{
    struct symbol_process *process = processes_known(processes, tgid, start);
    struct proc_identity identity;
    uint64_t now_ns = (uint64_t)clock_monotonic_ns();
    // One that has ended and is asked for by its start needs no question: nothing can change.
    bool ask = !process ||
            (processes_due(process->checked_ns, processes->recheck_ns, now_ns) &&
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

int processes_know(struct processes *processes, pid_t tgid, uint64_t start, pid_t parent,
        uint64_t born_ns, struct symbol_process **ret)
{
    struct symbol_process *from = NULL, *process;
    struct proc_identity gone = {.start = start, .ended = true};
    if (parent && processes_get(processes, parent, 0, &from) == 0 && !from->snapshot)
        processes_snapshot(processes, from); // its files may be out of reach from the child
    int code = processes_get(processes, tgid, start, &process);
    if (code == -ESRCH && start) {
        process = processes_add(processes, tgid, &gone, (uint64_t)clock_monotonic_ns());
        code = 0;
    }
    if (code)
        return code;
    if (from && from != process && from->tgid == parent && !process->parent)
        processes_inherit(processes, process, from, born_ns);
    // nothing is known of it
    if (process->ended && !process->table.count && !process->table.past_count) {
        processes_drop(processes, process);
        return -ESRCH;
    }
    *ret = process;
    return 0;
}

static void processes_count_perf_map(
        struct processes *processes, const struct perf_map *map, uint64_t before)
{
    uint64_t more = perf_map_bytes(map) - before;
    processes->stats->bytes_tables += more;
    processes->perf_bytes += more;
}

// Before it grows, so that the budget holds at any moment. Returns how large the perf map of the
// process may be then.
static uint64_t processes_make_room(
        struct processes *processes, const struct symbol_process *process, uint64_t growth)
{
    uint64_t all_max = processes->files->bytes_max, bytes = perf_map_bytes(process->perf_map);
    while (processes->perf_bytes + growth > all_max / 2) {
        struct symbol_process *oldest = NULL;
        for (uint32_t i = 0; i < processes->processes_max; i++) {
            struct symbol_process *one = &processes->slots[i];
            if (one->tgid && one->perf_map && one != process &&
                    (!oldest || one->used < oldest->used))
                oldest = one;
        }
        if (!oldest)
            break;
        uint64_t perf_ns = oldest->perf_ns;
        processes_forget_perf_map(processes, oldest);
        oldest->perf_ns = perf_ns;
        processes->stats->files_evicted++;
    }
    elf_files_make_room(processes->files, growth, NULL);
    uint64_t others = processes->perf_bytes - bytes;
    return others < all_max / 2 ? all_max / 2 - others : 0;
}

void processes_read_perf_map(
        struct processes *processes, struct symbol_process *process, bool at_once)
{
    uint64_t now_ns = (uint64_t)clock_monotonic_ns();
    if (!at_once &&
            !(processes_due(process->perf_ns, processes->recheck_ns, now_ns) &&
                    budget_affords(&process->budget)))
        return;
    process->perf_ns = now_ns;
    if (!process->perf_map) {
        int fd = process->ended ? -1 : proc_open_perf_map(processes->proc, process->tgid);
        if (fd < 0)
            return;
        process->perf_map = perf_map_new(fd);
        processes_count_perf_map(processes, process->perf_map, 0);
    }
    uint64_t before = perf_map_bytes(process->perf_map), dropped = process->perf_map->dropped;
    uint64_t bytes_max =
            processes_make_room(processes, process, perf_map_growth(process->perf_map));
    budget_begin(&process->budget);
    perf_map_refresh(process->perf_map, bytes_max);
    budget_end(&process->budget);
    processes->stats->symbols_dropped += process->perf_map->dropped - dropped;
    processes_count_perf_map(processes, process->perf_map, before);
}

// Of mappings at most half of the budget.
void processes_shrink_maps(struct processes *processes, const struct symbol_process *keep)
{
    while (processes->maps_bytes > processes->files->bytes_max / 2) {
        struct symbol_process *oldest = NULL;
        for (uint32_t i = 0; i < processes->processes_max; i++) {
            struct symbol_process *one = &processes->slots[i];
            if (one->tgid && one != keep && mapping_table_bytes(&one->table) &&
                    (!oldest || one->used < oldest->used))
                oldest = one;
        }
        if (!oldest)
            return;
        processes_drop(processes, oldest);
        processes->stats->processes_evicted++;
    }
}

void processes_free(struct processes *processes)
{
    for (uint32_t i = 0; processes->slots && i < processes->processes_max; i++)
        if (processes->slots[i].tgid)
            processes_forget(processes, &processes->slots[i]);
    free(processes->slots);
    processes->slots = NULL;
    map_free(&processes->by_tgid);
    held_events_free(&processes->held);
}
