// SPDX-License-Identifier: Apache-2.0
// Which launch becomes a Perfetto trace, its processes and threads, steps and phases.
#include "reports/render/perfetto/pftrace.h"

#include <errno.h>
#include <stdlib.h>

#include "common/containers/arena.h"
#include "common/containers/search.h"
#include "common/strings.h"
#include "reports/render/perfetto/pftrace_parts.h"

static const char *const pftrace_launches =
        "SELECT l.id, s.name, w.name FROM recording r JOIN launch l ON l.id = r.launch_id JOIN pair p ON p.id = l.pair_id "
        "JOIN side s ON s.id = l.side JOIN workload w ON w.id = p.workload_id GROUP BY l.id ORDER BY l.id";

static int pftrace_unknown(struct store *store, int64_t launch, struct error *err)
{
    enum { SHOWN = 10 };
    struct strbuf text = {0};
    sqlite3_stmt *stmt = store_query(store, err, pftrace_launches, "");
    int rc = stmt ? 0 : -EIO, count = 0;
    while (!rc && (rc = store_step(store, stmt, err)) == 1) {
        rc = 0;
        if (count++ < SHOWN)
            strbuf_add(&text, "%s%lld (%s, %s)", count > 1 ? ", " : "",
                    (long long)sqlite3_column_int64(stmt, 0),
                    (const char *)sqlite3_column_text(stmt, 1),
                    (const char *)sqlite3_column_text(stmt, 2));
    }
    if (!rc)
        rc = error_set(err, -EINVAL, "launch %lld was not traced; %s%s%s", (long long)launch,
                count ? "those that were: " : "no launch of this store was", count ? text.text : "",
                count > SHOWN ? ", ..." : "");
    strbuf_free(&text);
    return rc;
}

// The recording of the launch that is asked for; of none, the candidate's first, of `upgate record`
// the first.
static int pftrace_choose(struct store *store, int64_t launch, int64_t *ret_recording,
        int64_t *ret_launch, struct error *err)
{
    struct error local = {0};
    int rc = 0;
    *ret_launch = launch;
    if (launch) {
        rc = store_get_int(store, ret_recording, &local,
                "SELECT min(id) FROM recording WHERE launch_id = ?", "i", launch);
        return rc == -ENOENT ? pftrace_unknown(store, launch, err)
                : rc         ? error_set(err, rc, "%s", local.text)
                             : 0;
    }
    rc = store_get_int(store, ret_recording, &local,
            "SELECT r.id FROM recording r LEFT JOIN launch l ON l.id = r.launch_id "
            "ORDER BY l.side IS NULL, l.side DESC, l.id, r.id LIMIT 1",
            "");
    if (rc == -ENOENT)
        return error_set(err, -ENODATA,
                "'%s' holds no trace: no launch was traced; `upgate ab` does where the plan says "
                "schedule: {traced_launches: 4}, `upgate record` always",
                store_path(store));
    if (rc)
        return error_set(err, rc, "%s", local.text);
    store_get_int(store, ret_launch, NULL, "SELECT launch_id FROM recording WHERE id = ?", "i",
            *ret_recording);
    return 0;
}

struct pftrace_process *pftrace_process(struct pftrace *trace, int64_t id)
{
    size_t low = search_first(middle, trace->process_count, trace->processes[middle].id >= id);
    return low < trace->process_count && trace->processes[low].id == id ? &trace->processes[low]
                                                                        : NULL;
}

struct pftrace_thread *pftrace_thread(struct pftrace *trace, int64_t id)
{
    size_t low = search_first(middle, trace->thread_count, trace->threads[middle].id >= id);
    return low < trace->thread_count && trace->threads[low].id == id ? &trace->threads[low] : NULL;
}

uint64_t pftrace_process_track(struct pftrace *trace, struct pftrace_process *process)
{
    if (!process->track)
        process->track = pf_process(trace->pf, process->pid, process->name);
    return process->track;
}

struct pf_lane *pftrace_row(
        struct pftrace *trace, struct pftrace_thread *thread, enum pftrace_row row)
{
    static const char *const names[PFTRACE_ROWS] = {
            "waits", "samples", "CUDA calls", "NVTX", "Python GC"};
    struct pf_lane *lane = &thread->rows[row];
    if (!thread->track) {
        pftrace_process_track(trace, &trace->processes[thread->process]);
        thread->track = pf_thread(
                trace->pf, trace->processes[thread->process].pid, thread->tid, thread->name);
    }
    if (!lane->name) // waits are on the thread itself
        pf_lane_init(lane, thread->track, row == PFTRACE_WAITS ? thread->track : 0, names[row]);
    return lane;
}

const char *pftrace_text(sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text ? text : "";
}

static void pftrace_tasks(struct pftrace *trace)
{
    const struct trace *events = trace->events;
    trace->processes = xcalloc(events->process_count + 1, sizeof *trace->processes);
    trace->threads = xcalloc(events->thread_count + 1, sizeof *trace->threads);
    for (size_t i = 0; i < events->process_count; i++) {
        const struct trace_process *of = &events->processes[i];
        trace->processes[trace->process_count++] = (struct pftrace_process){.id = of->id,
                .pid = of->tgid,
                .name = xstrdup(of->cmdline && *of->cmdline ? of->cmdline : of->comm)};
    }
    for (size_t i = 0; i < events->thread_count; i++) {
        const struct trace_thread *of = &events->threads[i];
        trace->threads[trace->thread_count++] = (struct pftrace_thread){
                .id = of->id, .process = of->process, .tid = of->tid, .name = xstrdup(of->comm)};
    }
}

struct pftrace_rank { // tracks of one rank
    int64_t rank;
    int64_t depth; // -1: its steps
    struct pf_lane lane;
};

// Rows of (rank, depth, begin, duration, name), by rank and depth: a track for each.
static int pftrace_spans(
        struct pftrace *trace, sqlite3_stmt *stmt, int64_t offset, struct error *err)
{
    struct pftrace_rank at = {.rank = -1};
    int rc = stmt ? 1 : -EIO;
    while (rc == 1 && (rc = store_step(trace->store, stmt, err)) == 1) {
        int64_t rank = sqlite3_column_int64(stmt, 0), depth = sqlite3_column_int64(stmt, 1);
        if (!at.lane.name || at.rank != rank || at.depth != depth) {
            char *name = depth < 0
                    ? xasprintf("rank %lld: steps", (long long)rank)
                    : xasprintf("rank %lld: phases%s", (long long)rank, depth ? " inside" : "");
            pf_lane_free(&at.lane);
            at.rank = rank;
            at.depth = depth;
            pf_lane_init(&at.lane, 0, 0, name);
            free(name);
        }
        int64_t begin = sqlite3_column_int64(stmt, 2) + offset, dur = sqlite3_column_int64(stmt, 3);
        if (dur < 0) // of a damaged store
            continue;
        struct pf_slice slice = {.begin = begin,
                .end = begin + dur,
                .name = pf_text(trace->pf, PF_TEXT_NAME, pftrace_text(stmt, 4))};
        pf_lane_add(trace->pf, &at.lane, &slice);
    }
    pf_lane_free(&at.lane);
    return rc;
}

static int pftrace_steps(struct pftrace *trace, struct error *err)
{
    if (!trace->launch)
        return pftrace_spans(trace,
                store_query(trace->store, err,
                        "SELECT rank, -1, begin_ns, dur_ns, 'step ' || idx FROM recorded_step "
                        "WHERE recording_id = ? ORDER BY rank, begin_ns",
                        "i", trace->recording),
                0, err);
    int rc = pftrace_spans(trace,
            store_query(trace->store, err,
                    "SELECT rank, -1, begin_ns, dur_ns, 'step ' || idx FROM step "
                    "WHERE launch_id = ? ORDER BY rank, begin_ns",
                    "i", trace->launch),
            trace->started_ns, err);
    if (rc)
        return rc;
    return pftrace_spans(trace,
            store_query(trace->store, err,
                    "SELECT rank, depth, begin_ns, dur_ns, name FROM phase_span "
                    "WHERE launch_id = ? ORDER BY rank, depth, begin_ns",
                    "i", trace->launch),
            trace->started_ns, err);
}

static void pftrace_free(struct pftrace *trace)
{
    for (size_t i = 0; i < trace->process_count; i++) {
        free(trace->processes[i].name);
        pf_lane_free(&trace->processes[i].nccl);
    }
    for (size_t i = 0; i < trace->thread_count; i++) {
        free(trace->threads[i].name);
        for (int row = 0; row < PFTRACE_ROWS; row++)
            pf_lane_free(&trace->threads[i].rows[row]);
    }
    free(trace->processes);
    free(trace->threads);
}

int pftrace_check(struct store *store, int64_t launch, struct error *err)
{
    int64_t recording;
    return pftrace_choose(store, launch, &recording, &launch, err);
}

// Every table as it was at one instant: the recorder may be writing while we read.
static int pftrace_read(struct pftrace *trace, const char *path, struct error *err)
{
    int rc = pftrace_choose(trace->store, trace->launch, &trace->recording, &trace->launch, err);
    if (rc)
        return rc;
    struct arena *arena = arena_new();
    rc = pf_open(path, &trace->pf, err);
    if (!rc)
        rc = trace_load(trace->store, trace->recording, arena, &trace->events, err);
    if (!rc)
        pftrace_tasks(trace);
    if (trace->launch)
        store_get_int(trace->store, &trace->started_ns, NULL,
                "SELECT started_ns FROM launch WHERE id = ?", "i", trace->launch);
    if (!rc)
        rc = pftrace_steps(trace, err);
    if (!rc)
        rc = pftrace_host(trace, err);
    trace_free(trace->events);
    trace->events = NULL;
    arena_free(arena);
    if (!rc)
        rc = pftrace_gpu(trace, err);
    return rc;
}

int pftrace_write(struct store *store, int64_t launch, const char *path, struct error *err)
{
    struct pftrace trace = {.store = store, .launch = launch};
    bool snapshot = sqlite3_get_autocommit(store_db(store)); // else the caller's transaction is one
    int rc = snapshot ? store_exec(store, err, "BEGIN DEFERRED", "") : 0;
    if (rc)
        return rc;
    rc = pftrace_read(&trace, path, err);
    rc = rc ? rc : store_failed(store, err);
    if (snapshot)
        store_rollback(store);
    if (!trace.pf) {
        pftrace_free(&trace);
        return rc;
    }
    bool empty = !rc && !pf_events(trace.pf) && !pf_failed(trace.pf);
    int closed = pf_close(trace.pf, !rc && !empty, err);
    pftrace_free(&trace);
    if (empty)
        return error_set(err, -ENODATA, "recording %lld of '%s' is empty: nothing to write",
                (long long)trace.recording, store_path(store));
    return rc ? rc : closed;
}
