// SPDX-License-Identifier: Apache-2.0
// Which processes of the target have a spool, and who their threads are. Reads /proc/PID/fd
// (through tracer/gpu), status, maps and, in pid namespaces, task/*/status; writes nothing but what
// tracer/gpu does.
#include "tracer/record/gpu_side.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/budget.h"
#include "common/clock.h"
#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/record/task_proc.h"

enum {
    GPU_SIDE_SEARCH_NS = 200000000, // a library makes its spool when CUDA starts: 64 MiB hold what
                                    // it records till then
    GPU_SIDE_YOUNG_NS = 2000000000, // who has just come may be gone soon, and its spool with it:
    GPU_SIDE_YOUNG_SEARCH_NS = 10000000, // in every round
    GPU_SIDE_EXEC_NS = 1000000000, // one that is attached may call exec and come with another spool
    GPU_SIDE_SHARE = 200,          // looking takes at most one part of so many, of one CPU,
    GPU_SIDE_BURST_NS = 20000000,  // but at first: the 157 looks at a torch that starts took 16 ms
    GPU_SIDE_PROCESSES_MAX = 1024, // followed at one time
    GPU_SIDE_LOADED_MAX = 4096,    // processes with the library that were not read
    GPU_SIDE_ASKED_MAX = 8,        // rounds in which one is asked for
    GPU_SIDE_TASKS_MAX = 65536,    // threads known of one process
    GPU_SIDE_STOP_MS = 2000,
    GPU_SIDE_ASK_NS = 200000000, // at the end, why processes have no GPU side
    GPU_SIDE_MAPS_MAX = 8 << 20,
};

struct gpu_side_process {
    pid_t pid;
    uint64_t start_ns;
    uint32_t row;
    int64_t since_ns, next_ns; // when it was first seen, or called exec; the next try
    uint32_t generation;
    bool attached, given_up, seen;
    bool own_namespace;
    struct map host_of, own_of; // of its threads, of those that have ended, too: as we see one, by
                                // how the process does, and back
};

// A process that mapped our library and has not been read: it has a spool, or had one. The kernel
// tells of all processes, and maybe before it tells of a birth: whether one is the target's is
// asked in the next rounds.
struct gpu_side_loaded {
    pid_t pid;
    uint32_t asked;
    bool target;
};

struct gpu_side {
    struct gpu_recorder *gpu;
    struct writer *writer;
    struct tasks *tasks;
    char *library;
    struct gpu_side_process *processes;
    size_t count;
    struct gpu_side_loaded *loaded;
    size_t loaded_count;
    int64_t search_next_ns, now_ns;
    struct budget budget;                    // of looking
    bool any, young;                         // young: of the last search
    bool crowded;                            // there were more processes than are followed
    uint32_t unprepared, forbidden, unknown; // processes
    char *unprepared_why;                    // of the first
    pid_t forbidden_pid;
    char unknown_text[160];
};

static struct gpu_side_process *gpu_side_find(struct gpu_side *side, pid_t pid)
{
    for (size_t i = side->count; i-- > 0;) // the youngest of those with this pid
        if (side->processes[i].pid == pid)
            return &side->processes[i];
    return NULL;
}

// --- who is who ----------------------------------------------------------------------------------

// Of those that are there and were not seen before: one that is asked for may have ended, as may
// the next ones of a program that starts a thread for each piece of work, beside hundreds that
// stay.
static void gpu_side_read_tids(struct gpu_side_process *process)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task", (int)process->pid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    if (process->own_of.count >= GPU_SIDE_TASKS_MAX) {
        map_clear(&process->own_of);
        map_clear(&process->host_of);
    }
    while (dir && (entry = readdir(dir)) && process->own_of.count < GPU_SIDE_TASKS_MAX) {
        pid_t host, own;
        if (entry->d_name[0] == '.')
            continue;
        uint32_t *known = map_put(&process->own_of, (uint64_t)strtoul(entry->d_name, NULL, 10));
        snprintf(path, sizeof path, "/proc/%d/task/%s", (int)process->pid, entry->d_name);
        if (*known != MAP_NONE || !proc_pids(path, &host, &own))
            continue;
        *known = (uint32_t)own;
        *map_put(&process->host_of, (uint64_t)own) = (uint32_t)host;
    }
    if (dir)
        closedir(dir);
}

// 0: it has ended already, and nobody knows.
static uint32_t gpu_side_host_tid(struct gpu_side_process *process, uint32_t own)
{
    if (!process->own_namespace)
        return own;
    uint32_t host = map_get(&process->host_of, own);
    if (host == MAP_NONE) {
        gpu_side_read_tids(process);
        host = map_get(&process->host_of, own);
    }
    return host == MAP_NONE ? 0 : host;
}

static void gpu_side_process_free(struct gpu_side_process *process)
{
    map_free(&process->host_of);
    map_free(&process->own_of);
}

static uint32_t gpu_side_on_process(void *context, pid_t pid)
{
    const struct gpu_side_process *process = gpu_side_find(context, pid);
    return process ? process->row : 0;
}

static uint32_t gpu_side_on_thread(void *context, pid_t pid, uint32_t tid)
{
    struct gpu_side *side = context;
    struct gpu_side_process *process = gpu_side_find(side, pid);
    struct ug_task task = {.tgid = (uint32_t)pid};
    task.tid = process ? gpu_side_host_tid(process, tid) : 0;
    if (!task.tid)
        return 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%u/comm", (int)pid, task.tid);
    char *comm = string_read_file(path, UG_COMM_LEN, NULL);
    snprintf(task.comm, sizeof task.comm, "%.*s", comm ? (int)strcspn(comm, "\n") : 0,
            comm ? comm : "");
    free(comm);
    return tasks_thread_id(side->tasks, &task, 0, false); // 0: also of one that has just ended
}

static int gpu_side_on_begin(void *context)
{
    return writer_begin(((struct gpu_side *)context)->writer);
}

static void gpu_side_on_failed(void *context)
{
    writer_fail(((struct gpu_side *)context)->writer);
}

// --- looking for spools --------------------------------------------------------------------------

// CUDA, and not our library: a forked worker of a traced program has both, and uses neither.
static bool gpu_side_is_unprepared(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    size_t len = 0;
    char *text = target_file_text(path, GPU_SIDE_MAPS_MAX, &len);
    bool found = text && strstr(text, "/libcuda.so") && !strstr(text, "/libupgate_inject");
    free(text);
    return found;
}

// Why the GPU side of a process with CUDA is missing.
static char *gpu_side_why(const struct gpu_side *side, pid_t pid)
{
    char *why, *named = task_variable_read((uint32_t)pid, "CUDA_INJECTION64_PATH");
    if (named && strstr(named, "libupgate_inject"))
        why = xasprintf(
                "gpu: CUDA of process %d did not load '%s': can it be read there? UPGATE_INJECT_DEBUG=1 in its "
                "environment tells more",
                (int)pid, named);
    else if (named && *named)
        why = xasprintf(
                "gpu: process %d was started with another profiler, which is left alone: CUDA_INJECTION64_PATH=%s",
                (int)pid, named);
    else
        why = xasprintf(
                "gpu: process %d has CUDA and was not prepared: start it with CUDA_INJECTION64_PATH=%s in its "
                "environment (`upgate record --print-env` prints all lines), or record it from its start with `upgate "
                "record -- COMMAND`",
                (int)pid, side->library ? side->library : "libupgate_inject.so");
    free(named);
    return why;
}

void gpu_side_mapping(struct gpu_side *side, const struct mapping_event *event)
{
    static const char library[] = "libupgate_inject.so";
    const char *name =
            event->what == MAPPING_EVENT_ADDED && event->path ? strrchr(event->path, '/') : NULL;
    if (!name || strcmp(name + 1, library) != 0 || side->loaded_count == GPU_SIDE_LOADED_MAX)
        return;
    const struct gpu_side_process *process = gpu_side_find(side, event->tgid);
    if (process && process->attached)
        return;
    for (size_t i = 0; i < side->loaded_count; i++)
        if (side->loaded[i].pid == event->tgid)
            return; // a library is mapped in pieces
    vector_push(side->loaded, side->loaded_count, (struct gpu_side_loaded){.pid = event->tgid});
}

// What the target has loaded since is looked for at once; others' processes are forgotten.
static void gpu_side_ask_loaded(struct gpu_side *side)
{
    size_t kept = 0;
    for (size_t i = 0; i < side->loaded_count; i++) {
        struct gpu_side_loaded loaded = side->loaded[i];
        if (!loaded.target) {
            loaded.target = tasks_was_target(side->tasks, (uint32_t)loaded.pid);
            if (!loaded.target && ++loaded.asked == GPU_SIDE_ASKED_MAX)
                continue;
            struct gpu_side_process *process =
                    loaded.target ? gpu_side_find(side, loaded.pid) : NULL;
            if (process)
                process->next_ns = 0; // it may be gone soon
            side->search_next_ns = loaded.target ? 0 : side->search_next_ns;
        }
        side->loaded[kept++] = loaded;
    }
    side->loaded_count = kept;
}

static void gpu_side_found(struct gpu_side *side, pid_t pid)
{
    size_t kept = 0;
    for (size_t i = 0; i < side->loaded_count; i++)
        if (side->loaded[i].pid != pid)
            side->loaded[kept++] = side->loaded[i];
    side->loaded_count = kept;
}

// How many have ended and were never read. The first of them in *ret_pid.
static size_t gpu_side_missed(const struct gpu_side *side, pid_t *ret_pid)
{
    size_t missed = 0;
    for (size_t i = side->loaded_count; i-- > 0;) {
        char dir[64];
        snprintf(dir, sizeof dir, "/proc/%d", (int)side->loaded[i].pid);
        if (!side->loaded[i].target || access(dir, F_OK) == 0)
            continue;
        missed++;
        *ret_pid = side->loaded[i].pid;
    }
    return missed;
}

static void gpu_side_try(struct gpu_side *side, struct gpu_side_process *process, uint32_t row)
{
    struct error err = {0};
    char path[64];
    process->row = row;
    process->next_ns = side->now_ns +
            (process->attached ? GPU_SIDE_EXEC_NS
                            : side->now_ns - process->since_ns < GPU_SIDE_YOUNG_NS
                            ? GPU_SIDE_YOUNG_SEARCH_NS
                            : GPU_SIDE_SEARCH_NS);
    int rc = gpu_recorder_attach(side->gpu, process->pid, &err);
    if (rc == 0 && !process->attached) {
        pid_t host, own;
        snprintf(path, sizeof path, "/proc/%d", (int)process->pid);
        process->own_namespace = proc_pids(path, &host, &own) && host != own;
        if (process->own_namespace)
            gpu_side_read_tids(process);
        process->attached = side->any = true;
        gpu_side_found(side, process->pid);
    }
    bool young = side->now_ns - process->since_ns < GPU_SIDE_YOUNG_NS;
    if ((rc == -EACCES || rc == -EPERM) && young) // in the middle of exec nobody may look
        return;
    if (rc == -EACCES || rc == -EPERM) {
        process->given_up = true;
        side->forbidden += side->forbidden_pid != process->pid;
        side->forbidden_pid = process->pid;
    } else if (rc && rc != -ENOENT) {
        process->given_up = true;
        side->unknown++;
        snprintf(side->unknown_text, sizeof side->unknown_text, "%s",
                err.text[0] ? err.text : strerror(-rc));
    }
}

static void gpu_side_each(void *context, struct task_process *task)
{
    struct gpu_side *side = context;
    struct gpu_side_process *process = gpu_side_find(side, (pid_t)task->tgid);
    if (!process ||
            (process->start_ns && task->start_ns && process->start_ns != task->start_ns &&
                    !process->seen)) {
        side->crowded |= side->count == GPU_SIDE_PROCESSES_MAX;
        if (side->count == GPU_SIDE_PROCESSES_MAX)
            return;
        side->processes = vector_room(side->processes, side->count, sizeof *side->processes);
        process = &side->processes[side->count++];
        *process = (struct gpu_side_process){.pid = (pid_t)task->tgid,
                .start_ns = task->start_ns,
                .since_ns = side->now_ns,
                .generation = task->generation};
    }
    if (process->generation != task->generation) { // exec
        process->generation = task->generation;
        process->since_ns = side->now_ns;
        process->next_ns = 0;
    }
    process->seen = true;
    side->young |= !process->attached && side->now_ns - process->since_ns < GPU_SIDE_YOUNG_NS;
    if (!task->id)
        tasks_target(side->tasks, task->tgid); // gives it a row
    if (task->id && !process->given_up && side->now_ns >= process->next_ns)
        gpu_side_try(side, process, task->id);
}

// Those that have ended: what they left is still read. One that was never attached has nothing.
static void gpu_side_sweep(struct gpu_side *side)
{
    size_t kept = 0;
    for (size_t i = 0; i < side->count; i++) {
        struct gpu_side_process *process = &side->processes[i];
        if (!process->seen && process->attached && !process->given_up) {
            // A younger one with the same pid that is attached already has taken its place, and is
            // not gone.
            const struct gpu_side_process *youngest = gpu_side_find(side, process->pid);
            if (youngest == process || !youngest->attached)
                gpu_recorder_gone(side->gpu, process->pid);
            process->given_up = true; // its row stays known: its records are still to be named
        }
        if (process->seen || process->attached) {
            side->processes[kept++] = *process;
            continue;
        }
        gpu_side_process_free(process);
    }
    side->count = kept;
}

bool gpu_side_search(struct gpu_side *side, int64_t now_ns)
{
    side->now_ns = now_ns;
    gpu_side_ask_loaded(side);
    if (now_ns < side->search_next_ns || !budget_affords(&side->budget))
        return side->any;
    budget_begin(&side->budget);
    side->young = false;
    for (size_t i = 0; i < side->count; i++)
        side->processes[i].seen = false;
    tasks_each_target(side->tasks, gpu_side_each, side);
    gpu_side_sweep(side);
    // Somebody may come. Hundreds of workers with hundreds of files each take longer than a round:
    // 0.5 % of a core. Of CPU time: on a busy machine a look that waited 10 ms for its CPU would
    // end the looking for 2 s, and a program of 1 s would have no GPU side.
    budget_end(&side->budget);
    side->search_next_ns =
            now_ns + (side->young ? GPU_SIDE_YOUNG_SEARCH_NS : GPU_SIDE_SEARCH_NS / 4);
    return side->any;
}

int gpu_side_poll(struct gpu_side *side, int64_t now_ns, struct error *err)
{
    return gpu_recorder_poll(side->gpu, now_ns, err);
}

int gpu_side_stop(struct gpu_side *side, struct error *err)
{
    // a process with 20,000 mappings takes 20 ms
    int64_t end_ns = clock_monotonic_ns() + GPU_SIDE_ASK_NS;
    for (size_t i = 0; i < side->count && clock_monotonic_ns() < end_ns; i++) {
        struct gpu_side_process *process = &side->processes[i];
        if (process->attached || process->given_up || !gpu_side_is_unprepared(process->pid))
            continue;
        if (!side->unprepared++)
            side->unprepared_why = gpu_side_why(side, process->pid);
    }
    return gpu_recorder_stop(side->gpu, GPU_SIDE_STOP_MS, err);
}

void gpu_side_totals(const struct gpu_side *side, struct gpu_totals *ret_totals)
{
    gpu_recorder_totals(side->gpu, ret_totals);
}

// --- what is missing -----------------------------------------------------------------------------

size_t gpu_side_missing(const struct gpu_side *side, char **ret_sentences, size_t max)
{
    struct gpu_totals totals;
    size_t count = 0;
    gpu_recorder_totals(side->gpu, &totals);
    if (side->unprepared && count < max)
        ret_sentences[count++] = xasprintf(
                "%s%s", side->unprepared_why, side->unprepared > 1 ? "; others likewise" : "");
    pid_t first = 0;
    size_t missed = gpu_side_missed(side, &first);
    if (missed && count < max)
        ret_sentences[count++] = xasprintf(
                "gpu: %zu process%s with CUDA ended before anybody had looked, or could not be recorded, which its stderr "
                "tells; the first was %d: what ran on the GPU there is not recorded",
                missed, missed > 1 ? "es" : "", (int)first);
    if (side->forbidden && count < max)
        ret_sentences[count++] = xasprintf(
                "gpu: no permission to look into process %d%s: run upgate as its user or as root",
                (int)side->forbidden_pid, side->forbidden > 1 ? " and others" : "");
    if (side->unknown && count < max)
        ret_sentences[count++] = xasprintf("gpu: %s", side->unknown_text);
    if (totals.refused && count < max)
        ret_sentences[count++] = xasprintf("gpu: %s",
                totals.refused_reason[0] ? totals.refused_reason
                                         : "tracing was refused in the process");
    if (side->crowded && count < max)
        ret_sentences[count++] = xasprintf(
                "gpu: more than %d processes at one time, or with CUDA since the start: of the others "
                "the GPU side is not recorded",
                (int)GPU_SIDE_PROCESSES_MAX);
    if (totals.taken && count < max)
        ret_sentences[count++] = xasprintf(
                "gpu: another recorder took process %d over: what it ran from then on is in that "
                "recording",
                (int)totals.taken);
    return count;
}

// --- life ----------------------------------------------------------------------------------------

int gpu_side_new(struct store *store, int64_t recording_id, struct writer *writer,
        struct tasks *tasks, const struct gpu_side_opts *opts, struct gpu_side **ret_side,
        struct error *err)
{
    struct gpu_side *side = xcalloc(1, sizeof *side);
    side->budget = (struct budget){.divisor = GPU_SIDE_SHARE, .burst_ns = GPU_SIDE_BURST_NS};
    struct gpu_callbacks callbacks = {.context = side,
            .process = gpu_side_on_process,
            .thread = gpu_side_on_thread,
            .begin = gpu_side_on_begin,
            .failed = gpu_side_on_failed};
    side->writer = writer;
    side->tasks = tasks;
    side->library = opts->library ? xstrdup(opts->library) : NULL;
    int rc = gpu_recorder_new(store, recording_id, &callbacks,
            &(struct gpu_opts){.kinds = opts->kinds, .launch_id = opts->launch_id}, &side->gpu,
            err);
    if (rc) {
        gpu_side_free(side);
        return rc;
    }
    *ret_side = side;
    return 0;
}

void gpu_side_free(struct gpu_side *side)
{
    if (!side)
        return;
    gpu_recorder_free(side->gpu);
    for (size_t i = 0; i < side->count; i++)
        gpu_side_process_free(&side->processes[i]);
    free(side->processes);
    free(side->loaded);
    free(side->unprepared_why);
    free(side->library);
    free(side);
}
