// SPDX-License-Identifier: Apache-2.0
// Reading a recording: one pass over each table in the order of the file, integers only, so that
// five million rows take seconds. A row whose thread is not of this recording is skipped; a
// reference that leads nowhere becomes "not known".
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace_inside.h"

uint32_t trace_ids_find(const struct trace_ids *ids, int64_t id)
{
    uint64_t at = (uint64_t)id - (uint64_t)ids->min; // also of ids at the ends of the range
    // 0 - 1 is TRACE_NONE
    return id >= ids->min && at < ids->span ? ids->index[at] - 1 : TRACE_NONE;
}

void trace_ids_build(struct trace_ids *ids, const void *rows, size_t count, size_t size)
{
    // ids are given in order: a wider table is damaged, its tail is not known
    enum { SPAN_MAX = 1 << 26 };
    *ids = (struct trace_ids){0};
    if (!count)
        return;
    int64_t first, last; // rows are in the order of ids
    memcpy(&first, rows, sizeof first);
    memcpy(&last, (const char *)rows + (count - 1) * size, sizeof last);
    ids->min = first;
    uint64_t span = (uint64_t)last - (uint64_t)first;
    ids->span = span < SPAN_MAX ? (size_t)span + 1 : SPAN_MAX;
    ids->index = xcalloc(ids->span, sizeof *ids->index);
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        memcpy(&id, (const char *)rows + i * size, sizeof id);
        if ((uint64_t)id - (uint64_t)first < ids->span)
            ids->index[(uint64_t)id - (uint64_t)first] = (uint32_t)i + 1;
    }
}

static const char *trace_text(struct trace *trace, sqlite3_stmt *stmt, int column)
{
    return arena_copy(trace->arena, (const char *)sqlite3_column_text(stmt, column));
}

// Of a column that is never NULL, but in a damaged file.
static const char *trace_word(struct trace *trace, sqlite3_stmt *stmt, int column)
{
    const char *text = trace_text(trace, stmt, column);
    return text ? text : "";
}

// By name, also of a cross compiler ("x86_64-linux-gnu-gcc") and of one with a version
// ("clang-14").
static bool trace_is_compiler(const char *comm)
{
    static const char *const names[] = {"ptxas", "nvcc", "cicc", "cc1", "cc1plus", "gcc", "g++",
            "clang", "clang++", "as", "ld", "ld.lld", "ld.bfd", "collect2", "fatbinary", "nvlink",
            "cudafe++", "ninja", "c++", "cc", "triton", "hipcc", "llc", "lto1", "lld"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t len = strlen(names[i]), comm_len = strlen(comm);
        bool ends = comm_len > len && comm[comm_len - len - 1] == '-' &&
                !strcmp(comm + comm_len - len, names[i]);
        if (!strcmp(comm, names[i]) || ends ||
                (!strncmp(comm, names[i], len) && comm[len] == '-' && comm[len + 1] >= '0' &&
                        comm[len + 1] <= '9'))
            return true;
    }
    return !strncmp(comm, "x86_64-linux-gn", 15) ||
            !strncmp(comm, "aarch64-linux-g", 15); // cut at 15 characters
}

static uint64_t trace_pid_key(const struct trace_process *process, int32_t pid)
{
    return (uint64_t)process->node << 32 | (uint32_t)pid;
}

// By pid on their node; of a pid that was given out again, the last one that had it.
static void trace_find_parents(struct trace *trace)
{
    struct map by_pid = {0};
    for (size_t i = 0; i < trace->process_count; i++)
        *map_put(&by_pid, trace_pid_key(&trace->processes[i], trace->processes[i].tgid)) =
                (uint32_t)i;
    for (size_t i = 0; i < trace->process_count; i++)
        if (trace->processes[i].ppid > 0)
            trace->processes[i].parent =
                    map_get(&by_pid, trace_pid_key(&trace->processes[i], trace->processes[i].ppid));
    map_free(&by_pid);
}

static int trace_load_processes(
        struct trace *trace, struct store *store, struct trace_ids *ids, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, tgid, coalesce(ppid, 0), comm, cmdline, kind, coalesce(started_ns, 0) AS started_ns, "
            "coalesce(ended_ns, 0) AS ended_ns, coalesce(exit_code, -1), id IN (SELECT process_id FROM gpu_process), start_ns "
            "FROM process WHERE recording_id = ? ORDER BY id",
            "i", trace->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct trace_process *row = vector_add(trace->processes, trace->process_count);
        row->id = sqlite3_column_int64(stmt, 0);
        row->tgid = sqlite3_column_int(stmt, 1);
        row->ppid = sqlite3_column_int(stmt, 2);
        row->comm = trace_word(trace, stmt, 3);
        row->cmdline = trace_text(trace, stmt, 4);
        const char *kind = trace_word(trace, stmt, 5);
        row->kind = !strcmp(kind, "target") ? TRACE_TARGET
                : !strcmp(kind, "kernel")   ? TRACE_KERNEL
                : !strcmp(kind, "idle")     ? TRACE_IDLE
                                            : TRACE_OTHER;
        row->started_ns = sqlite3_column_int64(stmt, 6);
        row->ended_ns = sqlite3_column_int64(stmt, 7);
        row->exit_code = sqlite3_column_int64(stmt, 8);
        row->has_library = sqlite3_column_int(stmt, 9) != 0;
        row->start_ns = sqlite3_column_int64(stmt, 10);
        row->rank = row->ranks = -1;
        row->node = trace_node_at(trace, row->id);
        row->leader = row->parent = TRACE_NONE;
        row->own = !strcmp(row->comm, "upgate");
        row->python =
                strstr(row->comm, "python") || (row->cmdline && strstr(row->cmdline, "python"));
        row->compiler = trace_is_compiler(row->comm);
        row->python_read_ns = INT64_MAX;
    }
    trace_ids_build(ids, trace->processes, trace->process_count, sizeof *trace->processes);
    trace_find_parents(trace);
    return rc;
}

static int trace_load_threads(struct trace *trace, struct store *store,
        const struct trace_ids *processes, struct trace_ids *ids, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT t.id, t.process_id, t.tid, t.comm, coalesce(n.run_ns, -1) AS run_ns FROM thread t "
            "JOIN process p ON p.id = t.process_id LEFT JOIN thread_total n ON n.thread_id = t.id AND (t.ended_ns IS NULL OR ?2) "
            "WHERE p.recording_id = ?1 ORDER BY t.id",
            // of a part of it those that ended may have done nothing
            "ii", trace->recording_id, (int64_t)trace->is_whole);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t process = trace_ids_find(processes, sqlite3_column_int64(stmt, 1));
        if (process == TRACE_NONE) // an index of a damaged file says otherwise than its table
            continue;
        struct trace_thread *row = vector_add(trace->threads, trace->thread_count);
        row->id = sqlite3_column_int64(stmt, 0);
        row->process = process;
        row->tid = sqlite3_column_int(stmt, 2);
        row->comm = trace_word(trace, stmt, 3);
        row->run_ns = sqlite3_column_int64(stmt, 4);
        row->main = row->tid == trace->processes[process].tgid;
        if (row->main || trace->processes[process].leader == TRACE_NONE)
            trace->processes[process].leader = (uint32_t)trace->thread_count - 1;
    }
    trace_ids_build(ids, trace->threads, trace->thread_count, sizeof *trace->threads);
    return rc;
}

static int trace_load_locks(struct trace *trace, struct store *store,
        const struct trace_ids *threads, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT thread_id, begin_ns, end_ns, address, kind, flags, owner_thread, kernel_stack, "
            "owner_stack FROM lock_wait WHERE rowid > ? AND end_ns >= ?",
            "ii", trace_row_before(store, "lock_wait", "end_ns", trace->from_ns), trace->from_ns);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        uint32_t thread = trace_thread_at(threads, stmt, 0);
        if (thread == TRACE_NONE)
            continue;
        struct trace_lock *row = vector_add(trace->locks, trace->lock_count);
        row->thread = thread;
        row->begin = sqlite3_column_int64(stmt, 1);
        row->end = sqlite3_column_int64(stmt, 2);
        row->address = sqlite3_column_int64(stmt, 3);
        row->kind = (uint8_t)sqlite3_column_int(stmt, 4);
        row->owner_flags = (uint32_t)((uint64_t)sqlite3_column_int64(stmt, 5) >> 32) << 12;
        row->owner = trace_thread_at(threads, stmt, 6);
        row->kernel = trace_stack_at(stmt, 7);
        row->owner_stack = trace_stack_at(stmt, 8);
    }
    return rc;
}

static int trace_load_facts(struct trace *trace, struct store *store,
        const struct trace_ids *threads, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT what, begin_ns, end_ns, cpu, target_thread, actor_thread, flags, "
            "value0, value1, value2, "
            "value3, kernel_stack FROM host_fact WHERE recording_id = ? AND end_ns >= ? ORDER BY begin_ns",
            "ii", trace->recording_id, trace->from_ns);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct trace_fact *row = vector_add(trace->facts, trace->fact_count);
        row->what = sqlite3_column_int(stmt, 0);
        row->begin = sqlite3_column_int64(stmt, 1);
        row->end = sqlite3_column_int64(stmt, 2);
        row->cpu = (int32_t)store_int64(stmt, 3, -1);
        row->target = trace_thread_at(threads, stmt, 4);
        row->actor = trace_thread_at(threads, stmt, 5);
        row->flags = (uint32_t)sqlite3_column_int64(stmt, 6);
        for (int i = 0; i < 4; i++)
            row->value[i] = sqlite3_column_int64(stmt, 7 + i);
        row->kernel = trace_stack_at(stmt, 11);
    }
    return rc;
}

static int trace_by_rank_and_begin(const void *left, const void *right)
{
    const struct trace_throttle *a = left, *b = right;
    return trace_order(a->rank, b->rank) ?: trace_order(a->begin, b->begin);
}

// Is it of throttlings, by the quota of the cgroup or of one above it? Of which rank's cgroup; -1:
// of the target's.
static bool trace_counts_throttlings(const struct trace_counter *counter, int *ret_rank)
{
    static const char throttled[] = "nr_throttled", above[] = ".above";
    *ret_rank = -1;
    if (strcmp(counter->source, "cpu.stat") ||
            strncmp(counter->name, throttled, sizeof throttled - 1))
        return false;
    const char *rest = counter->name + sizeof throttled - 1;
    rest += strncmp(rest, above, sizeof above - 1) ? 0 : sizeof above - 1;
    return !*rest || sscanf(rest, " rank %9d", ret_rank) == 1;
}

// Asked for every wait for a CPU: found once. The counters are in the order of name and time; of
// several ranks each has its own.
static void trace_find_throttles(struct trace *trace)
{
    for (size_t i = 1; i < trace->counter_count; i++) {
        const struct trace_counter *now = &trace->counters[i], *last = now - 1;
        int rank;
        if (!trace_counts_throttlings(now, &rank) || strcmp(last->name, now->name) ||
                now->value <= last->value)
            continue;
        vector_push(trace->throttles, trace->throttle_count,
                ((struct trace_throttle){last->at, now->at, rank}));
    }
    if (trace->throttle_count)
        qsort(trace->throttles, trace->throttle_count, sizeof *trace->throttles,
                trace_by_rank_and_begin);
}

static int trace_load_counters(struct trace *trace, struct store *store, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT at_ns, value AS value_count, source, name FROM counter WHERE recording_id = ? AND source IN "
            "('cpu.stat', 'stat', 'cgroups') AND rowid > ? AND at_ns >= ? ORDER BY source, name, at_ns",
            "iii", trace->recording_id, trace->counters_before, trace->from_ns);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct trace_counter *row = vector_add(trace->counters, trace->counter_count);
        row->at = sqlite3_column_int64(stmt, 0);
        row->value = sqlite3_column_int64(stmt, 1);
        row->source = trace_word(trace, stmt, 2);
        row->name = trace_word(trace, stmt, 3);
    }
    trace_find_throttles(trace);
    return rc;
}

static int trace_load_steps(struct trace *trace, struct store *store, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT begin_ns, begin_ns + dur_ns AS end_ns, rank FROM recorded_step WHERE recording_id = ?1 AND begin_ns + dur_ns >= ?3 UNION ALL "
            "SELECT l.started_ns + s.begin_ns, l.started_ns + s.begin_ns + s.dur_ns, s.rank FROM step s "
            "JOIN launch l ON l.id = s.launch_id WHERE s.launch_id = ?2 AND NOT EXISTS "
            "(SELECT 1 FROM recorded_step r WHERE r.recording_id = ?1) ORDER BY 1",
            "iii", trace->recording_id, trace->launch_id, trace->from_ns);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct trace_window one = {sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)};
        if (one.begin < 0 || one.end < one.begin) // of a damaged store some are
            continue;
        trace->step_ranks =
                vector_room(trace->step_ranks, trace->step_count, sizeof *trace->step_ranks);
        trace->step_ranks[trace->step_count] = (int32_t)sqlite3_column_int64(stmt, 2);
        vector_push(trace->steps, trace->step_count, one);
    }
    return rc;
}

// Lengths are summed up and multiplied in many places: what a sound recording has leaves all of
// these far from overflowing.
static bool trace_sum(int64_t *sum, int64_t begin, int64_t end)
{
    *sum += end - begin;
    return *sum < TRACE_SUM_END;
}

static int trace_check_sums(const struct trace *trace, struct store *store, struct error *err)
{
    bool holds = true;
    int64_t gaps = 0, locks = 0;
    for (size_t i = 0; i < trace->gap_count && holds; i++)
        holds = trace_sum(&gaps, trace->gaps[i].out, trace->gaps[i].in);
    for (size_t i = 0; i < trace->lock_count && holds; i++)
        holds = trace_sum(&locks, trace->locks[i].begin, trace->locks[i].end);
    return holds
            ? 0
            : store_damaged(store, err, "the waits of a recording sum up to more than nine years");
}

// The window: from attaching to the end; of a launch that took turns with the other side, only its
// turns.
static int trace_load_windows(
        struct trace *trace, struct store *store, int64_t begin, int64_t end, struct error *err)
{
    int rc = 0;
    if (trace->launch_id) {
        sqlite3_stmt *stmt = store_query(store, err,
                "SELECT b.begin_ns, b.begin_ns + b.active_ns AS end_ns FROM block b JOIN launch l ON "
                "l.pair_id = b.pair_id AND l.side = b.side WHERE l.id = ? ORDER BY 1",
                "i", trace->launch_id);
        while ((rc = store_step(store, stmt, err)) == 1) {
            struct trace_window one = {
                    sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)};
            one.begin = one.begin < begin ? begin : one.begin;
            one.end = one.end > end ? end : one.end;
            if (one.begin < one.end)
                vector_push(trace->windows, trace->window_count, one);
        }
    }
    if (!rc && !trace->window_count)
        vector_push(trace->windows, trace->window_count,
                ((struct trace_window){begin, end < begin ? begin : end}));
    for (size_t i = 0; i < trace->window_count && !rc; i++)
        if (!trace_sum(&trace->window_ns, trace->windows[i].begin, trace->windows[i].end))
            rc = store_damaged(store, err, "a recording is longer than nine years");
    return rc;
}

static int64_t trace_last_event(const struct trace *trace, int64_t end)
{
    for (size_t i = 0; i < trace->gap_count; i++)
        end = trace->gaps[i].in > end ? trace->gaps[i].in : end;
    for (size_t i = 0; i < trace->sample_count; i++)
        end = trace->samples[i].at > end ? trace->samples[i].at : end;
    for (size_t i = 0; i < trace->counter_count; i++)
        end = trace->counters[i].at > end ? trace->counters[i].at : end;
    return end;
}

static int trace_load_rows(struct trace *trace, struct store *store, struct trace_ids *processes,
        struct trace_ids *threads, struct error *err)
{
    int rc = trace_load_nodes(trace, store, err);
    if (!rc)
        rc = trace_load_processes(trace, store, processes, err);
    if (!rc)
        rc = trace_load_threads(trace, store, processes, threads, err);
    if (!rc)
        rc = trace_load_big(trace, store, threads, err);
    if (!rc)
        rc = trace_load_locks(trace, store, threads, err);
    if (!rc)
        rc = trace_load_facts(trace, store, threads, err);
    if (!rc)
        rc = trace_load_stacks(trace, store, err);
    if (!rc)
        rc = trace_load_counters(trace, store, err);
    return rc ? rc : trace_load_steps(trace, store, err);
}

// Which machine was recorded. Where the store does not say, x86-64.
static enum marks_machine trace_machine(struct store *store)
{
    char *name = store_get_text(store,
            "SELECT CASE WHEN json_valid(host) THEN json_extract(host, '$.architecture') END FROM run",
            "");
    enum marks_machine machine = marks_machine_of(name);
    free(name);
    return machine;
}

int trace_was_trimmed(struct store *store, int64_t *ret_trimmed, struct error *err)
{
    return store_get_int(store, ret_trimmed, err,
            "SELECT EXISTS (SELECT 1 FROM ledger WHERE producer = 'retention') OR coalesce((SELECT min(rowid) FROM counter), 1) > 1",
            "");
}

// Where what is looked at begins. The recorder counts once a second, also of one that goes on, and
// what --max-size deletes goes with the counts of its seconds: what lies before the first of them
// is no time in which nothing happened.
static int trace_find_from(struct trace *trace, struct store *store, int64_t last_ns,
        int64_t *begin, int64_t end, struct error *err)
{
    enum { SECOND_NS = 1000000000 };
    static const char least
            [] = "SELECT coalesce(min(at_ns), 0) FROM counter WHERE recording_id = ?",
       most[] = "SELECT coalesce(max(at_ns), 0) FROM counter WHERE recording_id = ?",
       // Of one that goes on they stand in the order of time, and are more with each second.
            first[] =
                    "SELECT coalesce((SELECT at_ns FROM counter WHERE recording_id = ? ORDER BY rowid LIMIT 1), 0)",
       last[] =
               "SELECT coalesce((SELECT at_ns FROM counter WHERE recording_id = ? ORDER BY rowid DESC LIMIT 1), 0)";
    int64_t oldest = 0, newest = 0, trimmed = last_ns > 0;
    int rc = 0;
    trace->from_ns = INT64_MIN;
    if (!trimmed)
        rc = trace_was_trimmed(store, &trimmed, err);
    if (rc || !trimmed)
        return rc;
    rc = store_get_int(store, &oldest, err, last_ns > 0 ? first : least, "i", trace->recording_id);
    if (rc == 0)
        rc = store_get_int(
                store, &newest, err, last_ns > 0 ? last : most, "i", trace->recording_id);
    if (rc == 0 && oldest > *begin && oldest - SECOND_NS > *begin)
        *begin = oldest - SECOND_NS;
    end = end > *begin ? end : newest;
    if (rc == 0 && last_ns > 0 && end - last_ns > *begin)
        *begin = trace->from_ns = end - last_ns;
    trace->counters_before =
            rc == 0 ? trace_row_before(store, "counter", "at_ns", trace->from_ns) : 0;
    return rc;
}

int trace_load_last(struct store *store, int64_t recording_id, int64_t last_ns,
        struct trace_cache *cache, struct arena *arena, struct trace **ret_trace, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, coalesce(launch_id, 0), begin_ns, coalesce(end_ns, 0) AS end_ns, threshold_ns, "
            "sample_hz, CASE WHEN json_valid(target) THEN coalesce(json_array_length(target, '$.command'), 0) END FROM recording WHERE id = ?1 OR ?1 = 0 ORDER BY id LIMIT 1",
            "i", recording_id);
    int rc = store_step(store, stmt, err);
    if (rc == 0)
        return error_set(err, -ENOENT, "'%s' has no recording%s; make one with `upgate record`",
                store_path(store), recording_id ? " with this number" : "");
    if (rc < 0)
        return rc;
    struct trace *trace = xcalloc(1, sizeof *trace);
    trace->arena = arena;
    trace->cache = cache;
    trace->recording_id = sqlite3_column_int64(stmt, 0);
    trace->launch_id = sqlite3_column_int64(stmt, 1);
    int64_t begin = sqlite3_column_int64(stmt, 2), end = sqlite3_column_int64(stmt, 3);
    trace->threshold_ns = sqlite3_column_int64(stmt, 4);
    int64_t hz = sqlite3_column_int64(stmt, 5);
    trace->from_start = sqlite3_column_int(stmt, 6) > 0;
    trace->tick_ns = hz > 0 ? 1000000000 / hz : 0;
    trace->short_ns = UG_SHORT_TICKS * trace->tick_ns;
    if (trace->short_ns && trace->short_ns < trace->threshold_ns)
        trace->short_ns = trace->threshold_ns;
    while (store_step(store, stmt, NULL) == 1) // until it is reset
        ;
    trace->machine = trace_machine(store);
    struct trace_ids processes = {0}, threads = {0};
    const int64_t recorded = begin;
    rc = trace_find_from(trace, store, last_ns, &begin, end, err);
    trace->is_whole = begin == recorded;
    if (!rc)
        rc = trace_load_rows(trace, store, &processes, &threads, err);
    if (!rc)
        rc = trace_load_windows(
                trace, store, begin, end > begin ? end : trace_last_event(trace, begin), err);
    free(processes.index);
    free(threads.index);
    if (!rc) {
        trace_index(trace);
        rc = trace_check_sums(trace, store, err);
    }
    if (rc)
        trace_free(trace);
    else
        *ret_trace = trace;
    return rc;
}

int trace_load(struct store *store, int64_t recording_id, struct arena *arena,
        struct trace **ret_trace, struct error *err)
{
    return trace_load_last(store, recording_id, 0, NULL, arena, ret_trace, err);
}

void trace_free(struct trace *trace)
{
    if (!trace)
        return;
    void *rows[] = {trace->windows, trace->nodes, trace->processes, trace->threads, trace->frames,
            trace->stack_frames, trace->stacks, trace->gaps, trace->samples, trace->outside,
            trace->shorts, trace->cpu_samples, trace->cpu_first, trace->locks, trace->facts,
            trace->counters, trace->throttles, trace->steps, trace->texts, trace->nccl, trace->busy,
            trace->kernels, trace->gpus, trace->sends, trace->step_ranks, trace->connections,
            trace->devices};
    for (size_t i = 0; trace->busy && i < trace->process_count; i++) {
        free(trace->busy[i].spans);
        free(trace->busy[i].blocks);
    }
    for (size_t i = 0; trace->gpus && i < trace->process_count; i++)
        free(trace->gpus[i].spans);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        free(rows[i]);
    free(trace);
}
