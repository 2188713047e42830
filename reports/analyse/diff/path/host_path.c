// SPDX-License-Identifier: Apache-2.0
// The host's critical path, from the instant down: a window is cut at phases, then at the gaps of
// the thread looked at, then at its ticks; host_path_waits.c says what a gap was spent on. Every
// cut gives each nanosecond on to exactly one part, so sums are exact by construction. Reads the
// launch, writes rows of the cost tree. One owner thread.
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/host_path_index.h"

// ---- making it ----

// "python /path/train.py --steps 10": where the program's own modules lie.
static char *host_script_directory(const struct launch_trace *trace)
{
    for (size_t i = 0; i < trace->rank_count; i++) {
        if (trace->ranks[i].process == LAUNCH_TRACE_NONE)
            continue;
        const char *line = trace->host->processes[trace->ranks[i].process].cmdline;
        const char *end = line ? strstr(line, ".py") : NULL;
        if (!end)
            continue;
        const char *begin = end;
        while (begin > line && begin[-1] != ' ')
            begin--;
        const char *slash = end;
        while (slash > begin && *slash != '/')
            slash--;
        if (*begin == '/' && slash > begin)
            return xasprintf("%.*s", (int)(slash + 1 - begin), begin);
    }
    return NULL;
}

// A process works for the rank that is its nearest ancestor.
static void host_find_ranks(struct host_path *path)
{
    const struct trace *host = path->host;
    path->rank_of = xcalloc(host->process_count + 1, sizeof *path->rank_of);
    for (size_t i = 0; i < host->process_count; i++) {
        path->rank_of[i] = HOST_NONE;
        uint32_t process = (uint32_t)i;
        for (int up = 0; up < 16 && process != TRACE_NONE && path->rank_of[i] == HOST_NONE; up++) {
            for (uint32_t k = 0; k < path->trace->rank_count; k++)
                if (path->trace->ranks[k].process == process)
                    path->rank_of[i] = k;
            process = host->processes[process].parent;
        }
    }
}

static bool host_rank_known(const struct host_path *path, uint32_t rank)
{
    if (!path->host || rank >= path->trace->rank_count)
        return false;
    const struct launch_rank *row = &path->trace->ranks[rank];
    return row->process < path->host->process_count && row->thread < path->host->thread_count;
}

struct host_path *host_path_new(const struct launch_trace *trace, struct cost_tree *tree)
{
    struct host_path *path = xcalloc(1, sizeof *path);
    path->trace = trace;
    path->host = trace->host_work ? trace->host : NULL;
    path->tree = tree;
    path->ranks = xcalloc(trace->rank_count + 1, sizeof *path->ranks);
    host_phases_index(path);
    if (!path->host)
        return path;
    path->frames = xcalloc(path->host->frame_count + 1, sizeof *path->frames);
    path->stacks = xcalloc(path->host->stack_count + 1, sizeof *path->stacks);
    path->threads = xcalloc(path->host->thread_count + 1, sizeof(struct host_thread *));
    path->script = host_script_directory(trace);
    host_find_ranks(path);
    for (uint32_t i = 0; i < trace->rank_count; i++) {
        host_syncs_index(path, i);
        if (host_rank_known(path, i))
            host_thread_get(path, trace->ranks[i].thread, i);
    }
    return path;
}

void host_path_free(struct host_path *path)
{
    if (!path)
        return;
    for (size_t i = 0; i < path->trace->rank_count; i++) {
        free(path->ranks[i].stretches);
        free(path->ranks[i].syncs);
        free(path->ranks[i].sync_names);
    }
    for (size_t i = 0; path->threads && i < path->host->thread_count; i++)
        host_thread_free(path->threads[i]);
    map_free(&path->chain_of);
    map_free(&path->leaf_of_stack);
    map_free(&path->leaf_of_name);
    map_free(&path->place_of);
    map_free(&path->node_of);
    free(path->ranks);
    free(path->chains);
    free(path->leaves);
    free(path->frames);
    free(path->stacks);
    free((void *)path->threads);
    free(path->rank_of);
    free(path->script);
    free(path);
}

// ---- the walk ----

void host_walk_give(struct host_walk *walk, uint32_t python, uint32_t leaf, enum cost_class class,
        int64_t ns, int64_t count)
{
    struct host_path *path = walk->path;
    bool collects = path->leaves[leaf].flags & HOST_LEAF_GC;
    uint32_t place = collects ? host_place_collector(path, walk->chain)
                              : host_place(path, walk->chain, python);
    cost_tree_add(path->tree, host_node(path, place, leaf, class), walk->window, ns, ns, count);
}

static uint32_t host_python_of(const struct host_walk *walk, const struct host_tick *tick)
{
    return tick->python ? tick->python : walk->depth ? walk->wait_python : 0;
}

static enum cost_class host_run_class(const struct host_walk *walk)
{
    return walk->data ? COST_DATA_WAIT : walk->run;
}

// Threads of the process that worked while this one spun.
static size_t host_spin_workers(struct host_walk *walk, uint32_t thread, int64_t at,
        const struct host_tick **ret, size_t max)
{
    struct host_path *path = walk->path;
    const struct trace *host = path->host;
    size_t count = 0;
    for (uint32_t i = 0; i < host->thread_count && count < max; i++) {
        if (i == thread || host->threads[i].process != host->threads[thread].process ||
                !host->threads[i].sample_count)
            continue;
        const struct host_thread *worker = host_thread_get(path, i, walk->rank);
        size_t next = host_tick_from(worker, at), best = next;
        if (next == worker->tick_count ||
                (next > 0 && at - worker->ticks[next - 1].at <= worker->ticks[next].at - at))
            best = next - 1;
        if (!worker->tick_count)
            continue;
        const struct host_tick *tick = &worker->ticks[best];
        int64_t distance = tick->at > at ? tick->at - at : at - tick->at;
        if (distance > host->tick_ns || path->leaves[tick->leaf].flags & HOST_LEAF_SPIN)
            continue;
        size_t off = host_off_from(worker, at);
        if (off < worker->off_count && worker->offs[off].begin <= at)
            continue;
        ret[count++] = tick;
    }
    return count;
}

// Of ns that `count` share, what the i-th gets. All together get ns.
static int64_t host_share(int64_t ns, size_t i, size_t count)
{
    return ns / (int64_t)count + ((int64_t)i < ns % (int64_t)count);
}

// Time that one tick stands for.
static void host_walk_tick(struct host_walk *walk, uint32_t thread, const struct host_tick *tick,
        int64_t at, int64_t ns, int64_t count)
{
    enum { WORKERS_MAX = 1024 };
    struct host_path *path = walk->path;
    if (!(path->leaves[tick->leaf].flags & HOST_LEAF_SPIN)) {
        host_walk_give(
                walk, host_python_of(walk, tick), tick->leaf, host_run_class(walk), ns, count);
        return;
    }
    const struct host_tick *workers[WORKERS_MAX];
    size_t found = host_spin_workers(walk, thread, at, workers, WORKERS_MAX);
    uint32_t python = host_python_of(walk, tick);
    for (size_t i = 0; i < found; i++) {
        int64_t share = host_share(ns, i, found);
        host_walk_give(walk, workers[i]->python ? workers[i]->python : python, workers[i]->leaf,
                host_run_class(walk), share, i ? 0 : count);
    }
    if (!found)
        host_walk_give(walk, python, host_leaf_named(path, COST_STALL, "OpenMP barrier", NULL),
                walk->data ? COST_DATA_WAIT : COST_HOST_STALLED, ns, count);
}

// On the CPU, and no tick fell into it: the ticks of this phase that are nearest stand for it.
static void host_walk_unseen(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end)
{
    struct host_path *path = walk->path;
    const struct host_thread *row = path->threads[thread];
    int64_t middle = begin + (end - begin) / 2, ns = end - begin;
    uint32_t near[HOST_NEAREST];
    size_t count = host_ticks_near(row, walk->chain, middle, near);
    if (walk->depth) { // of another thread only what was seen close by: it may not have run at all
        int64_t reach = 2 * path->host->tick_ns + ns;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            int64_t at = row->ticks[near[i]].at;
            if (at >= middle - reach && at <= middle + reach)
                near[kept++] = near[i];
        }
        count = kept;
        if (!count) {
            host_walk_give(walk, walk->wait_python, walk->wait_leaf, walk->wait_class, ns, 0);
            return;
        }
    }
    if (!count) {
        host_walk_give(walk, 0, host_leaf_named(path, COST_GAP, "not sampled", NULL),
                row->tick_count ? host_run_class(walk) : COST_IDLE, ns, 0);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t share = host_share(ns, i, count);
        const struct host_tick *tick = &row->ticks[near[i]];
        if (share)
            host_walk_tick(walk, thread, tick, tick->at, share, 0);
    }
}

// To the ticks in it, each from half-way to half-way.
static void host_walk_seen(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end)
{
    const struct host_thread *row = walk->path->threads[thread];
    size_t tick = host_tick_from(row, begin);
    if (tick == row->tick_count || row->ticks[tick].at >= end) {
        host_walk_unseen(walk, thread, begin, end);
        return;
    }
    int64_t from = begin;
    while (from < end) {
        bool last = tick + 1 == row->tick_count || row->ticks[tick + 1].at >= end;
        int64_t at = row->ticks[tick].at;
        int64_t to = last ? end : at + (row->ticks[tick + 1].at - at) / 2;
        host_walk_tick(walk, thread, &row->ticks[tick], at, to - from, 1);
        from = to;
        if (last)
            break;
        tick++;
    }
}

// A stretch without a recorded gap: what was too short for one, and the ticks.
static void host_walk_ticks(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end)
{
    const struct host_thread *row = walk->path->threads[thread];
    size_t low = search_first(middle, row->short_count, row->shorts[middle].end > begin);
    for (; low < row->short_count && row->shorts[low].begin < end; low++) {
        int64_t from = row->shorts[low].begin > begin ? row->shorts[low].begin : begin;
        int64_t to = row->shorts[low].end < end ? row->shorts[low].end : end;
        if (from > begin)
            host_walk_seen(walk, thread, begin, from);
        host_walk_short(walk, row, from, to);
        begin = to;
    }
    if (begin < end)
        host_walk_seen(walk, thread, begin, end);
}

// What holds a thread up on the CPU: work of the kernel or of a driver that is none of its program.
static bool host_holds_up(enum cause cause)
{
    switch (cause) {
    case CAUSE_SOFTIRQ_STORM:
    case CAUSE_DIRECT_RECLAIM:
    case CAUSE_MEMCG_RECLAIM:
    case CAUSE_MEMORY_HIGH:
    case CAUSE_COMPACTION:
    case CAUSE_NUMA_BALANCING:
    case CAUSE_PAGE_MIGRATION:
    case CAUSE_MMAP_LOCK:
    case CAUSE_KERNEL_MUTEX:
    case CAUSE_RWSEM_INODE:
    case CAUSE_DRIVER_LOCK:
    case CAUSE_RSTAT_LOCK:
    case CAUSE_ALLOC_RETRY:
        return true;
    default:
        return false;
    }
}

bool host_walk_next_part(const struct host_path *path, uint32_t thread, bool on_cpu, int64_t begin,
        int64_t end, const struct part **ret_part)
{
    enum { BACK_MAX = 64 }; // parts of a thread hardly overlap: as in parts_range
    const struct work *work = path->trace->host_work;
    uint32_t first = work->part_first[thread], last = work->part_first[thread + 1];
    uint32_t low =
            (uint32_t)search_between(middle, first, last, work->parts[middle].begin >= begin);
    for (uint32_t i = low - first > BACK_MAX ? low - BACK_MAX : first; i < last; i++) {
        const struct part *part = &work->parts[i];
        if (part->begin >= end)
            return false;
        if (part->end <= begin || (part->split == SPLIT_ON_CPU) != on_cpu ||
                (on_cpu && !host_holds_up(part->cause)))
            continue;
        *ret_part = part;
        return true;
    }
    return false;
}

static void host_walk_on(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end)
{
    const struct part *part;
    while (begin < end && host_walk_next_part(walk->path, thread, true, begin, end, &part)) {
        if (part->begin > begin)
            host_walk_ticks(walk, thread, begin, part->begin);
        int64_t from = part->begin > begin ? part->begin : begin,
                to = part->end < end ? part->end : end;
        host_walk_part(walk, part, host_python_near(walk->path->threads[thread], walk->chain, from),
                from, to);
        begin = to;
    }
    if (begin < end)
        host_walk_ticks(walk, thread, begin, end);
}

static void host_walk_run(
        struct host_walk *walk, uint32_t thread, const char *sync, int64_t begin, int64_t end)
{
    if (!sync) {
        host_walk_on(walk, thread, begin, end);
        return;
    }
    uint32_t python = host_python_near(walk->path->threads[thread], walk->chain, begin);
    host_walk_give(walk, python, host_leaf_named(walk->path, COST_SYNC, sync, NULL),
            COST_HOST_STALLED, end - begin, 0);
}

static void host_walk_piece(
        struct host_walk *walk, uint32_t thread, const char *sync, int64_t begin, int64_t end)
{
    const struct host_thread *row = walk->path->threads[thread];
    for (size_t i = host_off_from(row, begin); i < row->off_count && row->offs[i].begin < end;
            i++) {
        int64_t from = row->offs[i].begin > begin ? row->offs[i].begin : begin;
        int64_t to = row->offs[i].end < end ? row->offs[i].end : end;
        if (from > begin)
            host_walk_run(walk, thread, sync, begin, from);
        if (sync)
            host_walk_run(walk, thread, sync, from, to);
        else
            host_walk_off(walk, thread, &row->offs[i], from, to);
        begin = to;
    }
    if (begin < end)
        host_walk_run(walk, thread, sync, begin, end);
}

void host_walk_thread(struct host_walk *walk, uint32_t thread, int64_t begin, int64_t end)
{
    host_thread_get(walk->path, thread, walk->rank);
    const struct host_rank *rank = &walk->path->ranks[walk->rank];
    size_t sync = walk->depth ? rank->sync_count : host_sync_from(rank, begin);
    for (; sync < rank->sync_count && rank->syncs[sync].begin < end; sync++) {
        int64_t from = rank->syncs[sync].begin > begin ? rank->syncs[sync].begin : begin;
        int64_t to = rank->syncs[sync].end < end ? rank->syncs[sync].end : end;
        if (from > begin)
            host_walk_piece(walk, thread, NULL, begin, from);
        host_walk_piece(walk, thread, rank->sync_names[sync], from, to);
        begin = to;
    }
    if (begin < end)
        host_walk_piece(walk, thread, NULL, begin, end);
}

// ---- public ----

void host_path_add(struct host_path *path, uint32_t rank, int64_t begin, int64_t end,
        enum cost_class run, uint32_t window)
{
    if (end <= begin || rank >= path->trace->rank_count)
        return;
    const struct host_rank *row = &path->ranks[rank];
    bool known = host_rank_known(path, rank);
    struct host_walk walk = {.path = path, .rank = rank, .window = window, .run = run};
    for (size_t i = host_stretch_at(path, rank, begin); begin < end; i++) {
        bool last = i + 1 == row->stretch_count || row->stretches[i + 1].begin >= end;
        int64_t to = last ? end : row->stretches[i + 1].begin;
        walk.chain = row->stretches[i].chain;
        if (known) {
            walk.visited[0] = path->trace->ranks[rank].thread;
            host_walk_thread(&walk, walk.visited[0], begin, to);
        } else {
            host_walk_give(&walk, 0, host_leaf_named(path, COST_GAP, "not recorded", NULL),
                    COST_IDLE, to - begin, 0);
        }
        begin = to;
    }
}
