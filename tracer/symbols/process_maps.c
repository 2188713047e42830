// SPDX-License-Identifier: Apache-2.0
// What a process has mapped: read from /proc when it becomes known, and followed by events from
// then on. /proc is read again where events are not to be had, where some were lost, and where an
// address lies in nothing that is known.
#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/proc.h"
#include "tracer/symbols/proc.h"
#include "tracer/symbols/processes.h"

enum {
    MAPS_RECHECK_NS = 1000000000, // with events: code that was moved (mremap) is told by none
    EVENT_COST_NS = 1000,         // of one event, and what moving a mapping costs
    EVENT_COST_MAPPING_NS = 6,
};

static void processes_count_bytes(
        struct processes *processes, const struct symbol_process *process, uint64_t before)
{
    uint64_t now = mapping_table_bytes(&process->table);
    processes->stats->bytes_tables += now - before;
    processes->maps_bytes += now - before;
    processes_shrink_maps(processes, process);
}

static bool processes_opens(const struct mapping *mapping)
{
    return mapping->kind == MAPPING_FILE || mapping->kind == MAPPING_VDSO;
}

// So that addresses can still be named when it has ended.
static void processes_open_files(struct processes *processes, struct symbol_process *process)
{
    for (uint32_t i = 0; i < process->table.count; i++)
        if (processes_opens(&process->table.all[i]))
            processes_file(processes, process, &process->table.all[i]);
    // those once: there may be 512, most of other programs
    for (uint32_t i = 0; i < process->table.past_count; i++)
        if (processes_opens(&process->table.past[i]) && !process->table.past[i].file.generation)
            processes_file(processes, process, &process->table.past[i]);
}

static bool processes_stale(const struct processes *processes, const struct symbol_process *process)
{
    return process->maps_ns <= processes->lost_ns || process->maps_ns <= process->lost_ns;
}

static bool processes_may_read(
        struct processes *processes, struct symbol_process *process, uint64_t now_ns)
{
    bool seldom = processes->follows && !processes_stale(processes, process);
    uint64_t period_ns = seldom && MAPS_RECHECK_NS > processes->recheck_ns ? MAPS_RECHECK_NS
                                                                           : processes->recheck_ns;
    return processes_due(process->maps_ns, period_ns, now_ns) && budget_affords(&process->budget) &&
            budget_affords(&processes->budget);
}

bool processes_read_maps(struct processes *processes, struct symbol_process *process, bool at_once)
{
    char dir[4096];
    struct mappings maps = {0};
    uint64_t now_ns = (uint64_t)clock_monotonic_ns();
    bool missed = process->missed;
    if (process->ended)
        return false;
    if (!at_once && !processes_may_read(processes, process, now_ns)) {
        processes->stats->maps_held_back++;
        process->missed = true;
        return false;
    }
    process->maps_ns = now_ns;
    snprintf(dir, sizeof(dir), "%s/%d", processes->proc, (int)process->tgid);
    uint64_t before = mapping_table_bytes(&process->table);
    budget_begin(&process->budget);
    budget_begin(&processes->budget);
    // By another process: somebody may hold the mmap lock of this one, and is what the recording is
    // about.
    int code = mappings_ask(dir, processes->files->names, &maps);
    // what is known is kept, and it is asked again
    process->missed = code == -EAGAIN || code == -EIO;
    processes->stats->maps_silent += process->missed;
    processes->stats->maps_reads += !process->missed;
    bool good = !code && maps.count; // while a process ends its maps are empty: keep the old ones
    if (good) {
        mapping_table_update(&process->table, &maps, now_ns, !process->has_maps);
        if (missed && !process->has_maps)
            // what was asked for before is named by now
            mapping_table_change(&process->table, now_ns);
        process->has_maps = true;
        processes_count_bytes(processes, process, before);
        if (process->snapshot)
            processes_open_files(processes, process);
    }
    mappings_free(&maps);
    budget_end(&process->budget);
    if (!at_once)
        budget_end(&processes->budget);
    return good;
}

static void processes_apply(struct processes *processes, struct symbol_process *process,
        const struct mapping_event *event)
{
    struct mapping mapping;
    uint64_t before = mapping_table_bytes(&process->table);
    if (event->what == MAPPING_EVENT_EXEC) {
        mapping_table_end(&process->table, event->at_ns);
        processes_forget_perf_map(processes, process);
    } else if (!budget_affords(&process->events)) {
        process->lost_ns = (uint64_t)clock_monotonic_ns();
        processes->stats->mappings_skipped++;
    } else {
        mapping_of_event(event, processes->files->names, &mapping);
        budget_owe(&process->events, EVENT_COST_NS);
        if (mapping_table_has(&process->table, &mapping))
            return;
        if (process->snapshot && processes_opens(&mapping) && budget_affords(&process->budget)) {
            // Now, because it may end soon; where much comes at once, when it is asked for.
            budget_begin(&process->budget);
            processes_file(processes, process, &mapping);
            budget_end(&process->budget);
        }
        mapping_table_add(&process->table, &mapping);
        budget_owe(&process->events, EVENT_COST_MAPPING_NS * (int64_t)process->table.count);
    }
    processes_count_bytes(processes, process, before);
}

void processes_mapping(struct processes *processes, const struct mapping_event *event)
{
    if (event->what == MAPPING_EVENT_LOST) {
        processes->lost_ns = event->at_ns;
        return;
    }
    held_events_add(&processes->held, event);
    struct symbol_process *process = processes_known(processes, event->tgid, 0);
    if (process && !process->ended)
        processes_apply(processes, process, event);
}

struct processes_replay {
    struct processes *processes;
    struct symbol_process *process;
};

static void processes_replay_event(void *context, const struct mapping_event *event)
{
    struct processes_replay *replay = context;
    processes_apply(replay->processes, replay->process, event);
}

void processes_replay(struct processes *processes, struct symbol_process *process)
{
    int64_t boot_ahead_ns = clock_boottime_ns() - clock_monotonic_ns();
    int64_t since_ns = (int64_t)(process->start * PROC_TICK_NS) - boot_ahead_ns;
    struct processes_replay replay = {processes, process};
    held_events_each(&processes->held, process->tgid, since_ns > 0 ? (uint64_t)since_ns : 0,
            processes_replay_event, &replay);
}

void processes_inherit(struct processes *processes, struct symbol_process *process,
        const struct symbol_process *parent, uint64_t at_ns)
{
    uint64_t before = mapping_table_bytes(&process->table);
    process->parent = parent->tgid;
    mapping_table_copy(&process->table, &parent->table, at_ns);
    processes_count_bytes(processes, process, before);
}

// Events have told all that it has mapped: it had nothing when it became this program.
static bool processes_all_told(
        const struct processes *processes, const struct symbol_process *process)
{
    uint64_t since_ns = process->table.ended_ns;
    return processes->follows && since_ns > processes->lost_ns && since_ns > process->lost_ns;
}

static bool processes_has_jit(const struct symbol_process *process)
{
    for (uint32_t i = 0; i < process->table.count; i++)
        if (process->table.all[i].kind == MAPPING_JIT)
            return true;
    return false;
}

void processes_snapshot(struct processes *processes, struct symbol_process *process)
{
    process->snapshot = true;
    bool told = processes_all_told(processes, process);
    if (told) { // reading them would be most of what a program costs that calls exec all the time
        process->has_maps = true;
        process->maps_ns = (uint64_t)clock_monotonic_ns();
    }
    if (told || !processes_read_maps(processes, process, true))
        processes_open_files(processes, process);
    if (processes_has_jit(process)) // else there is nothing that a perf map could name
        processes_read_perf_map(processes, process, true);
}

uint32_t processes_epoch(
        struct processes *processes, struct symbol_process *process, uint64_t at_ns)
{
    if (process->missed ||
            (processes->follows && process->has_maps && processes_stale(processes, process)))
        processes_read_maps(processes, process, false);
    return mapping_table_epoch(&process->table, at_ns);
}
