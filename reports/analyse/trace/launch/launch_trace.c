// SPDX-License-Identifier: Apache-2.0
// Loading one traced launch from end to end: its recording, ranks, steps, the host's trace,
// windows, the GPU's side, and what makes all of it doubtful. Reads the store only; what is needed
// while loading alone is in struct load.
#include "reports/analyse/trace/launch/launch_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/names/wordlists.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"

// the GPU's clock may be this far from the host's: a launch takes 5 us
enum { CLOCK_RESIDUAL_MAX_NS = 10000 };
enum { DOUBT_BYTES_MAX = 1000 }; // of a text

static const char *load_doubt_text(struct launch_trace *trace, const char *text)
{
    return text ? arena_print(trace->arena, "%.*s", DOUBT_BYTES_MAX, text) : NULL;
}

void load_doubt(struct load *load, struct launch_doubt doubt)
{
    struct launch_trace *trace = load->trace;
    doubt.producer = load_doubt_text(trace, doubt.producer);
    doubt.what = load_doubt_text(trace, doubt.what);
    doubt.detail = load_doubt_text(trace, doubt.detail);
    vector_push(trace->doubts, trace->doubt_count, doubt);
}

const char *load_text(struct load *load, int64_t id)
{
    enum { TEXTS_MAX = 1 << 22 }; // ids are given in order; 32 MB of pointers, more is a damaged id
    if (id <= 0 || id >= TEXTS_MAX)
        return NULL;
    load->texts = vector_reserve_zero(
            load->texts, &load->text_capacity, (size_t)id + 1, sizeof *load->texts);
    static const char missing[] = ""; // asked for, not there
    if (!load->texts[id]) {
        trace_read_text(load->store, id, load->trace->arena, &load->texts[id], NULL);
        if (!load->texts[id])
            load->texts[id] = missing;
    }
    return load->texts[id] == missing ? NULL : load->texts[id];
}

uint32_t load_thread(const struct load *load, int64_t id)
{
    return id > 0 ? trace_ids_find(&load->thread_ids, id) : LAUNCH_TRACE_NONE;
}

uint32_t load_process_at(const struct load *load, int64_t id)
{
    uint32_t at = trace_ids_find(&load->process_ids, id);
    return at != TRACE_NONE && load->processes[at].recording_id == load->trace->recording_id
            ? at
            : LAUNCH_TRACE_NONE;
}

int64_t load_owner(const struct load *load, int64_t process_id)
{
    uint32_t at = trace_ids_find(&load->process_ids, process_id);
    return at == TRACE_NONE ? 0 : load->processes[at].recording_id;
}

bool load_place(
        struct load *load, int64_t process_id, int64_t begin, int64_t length, uint32_t *ret_rank)
{
    uint32_t process = load_process_at(load, process_id);
    if (process == LAUNCH_TRACE_NONE || begin < 0 || length < 0)
        return false;
    *ret_rank = load->processes[process].rank;
    return load_spans_touch(load_spans_of(load, *ret_rank), begin, begin + length);
}

static int load_launch(struct load *load)
{
    struct launch_trace *trace = load->trace;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT r.id, r.begin_ns, coalesce(r.end_ns, 0) AS end_ns, l.pair_id, l.side, "
            "l.started_ns, l.ended_ns, (SELECT count(*) FROM "
            "pair q WHERE q.workload_id = p.workload_id AND q.phase = p.phase AND "
            "q.idx < p.idx), (SELECT count(*) FROM recording x "
            "WHERE x.launch_id = l.id) FROM recording r JOIN launch l ON l.id = "
            "r.launch_id JOIN pair p ON p.id = l.pair_id WHERE "
            "l.id = ? ORDER BY r.id LIMIT 1",
            "i", trace->launch_id);
    if (!stmt)
        return load->err->code;
    int rc = store_step(load->store, stmt, load->err);
    if (rc < 0)
        return rc;
    if (!rc)
        return error_set(load->err, -ENOENT, "'%s' has no recording of launch %lld",
                store_path(load->store), (long long)trace->launch_id);
    trace->recording_id = sqlite3_column_int64(stmt, 0);
    load->recording_begin = sqlite3_column_int64(stmt, 1);
    int64_t end = sqlite3_column_int64(stmt, 2);
    load->recording_end = end > load->recording_begin ? end : INT64_MAX;
    load->pair_id = sqlite3_column_int64(stmt, 3);
    trace->side = sqlite3_column_int(stmt, 4);
    load->started = sqlite3_column_int64(stmt, 5);
    load->ended = sqlite3_column_int64(stmt, 6);
    trace->pair = (uint32_t)sqlite3_column_int64(stmt, 7);
    int64_t recordings = sqlite3_column_int64(stmt, 8);
    while (store_step(load->store, stmt, NULL) == 1) // until it is reset
        ;
    if (end <= load->recording_begin)
        load_doubt(load, (struct launch_doubt){.kind = LAUNCH_DOUBT_NOT_ENDED});
    if (recordings > 1)
        load_doubt(
                load, (struct launch_doubt){.kind = LAUNCH_DOUBT_RECORDINGS, .count = recordings});
    return 0;
}

// Without any sample or gap nothing of the host was recorded, though the GPU's side named threads.
static int load_host(struct load *load)
{
    struct launch_trace *trace = load->trace;
    int rc = trace_load(load->store, trace->recording_id, trace->arena, &trace->host, load->err);
    if (!rc)
        rc = trace_keep_starts(trace->host, load->store, load->err);
    if (rc)
        return rc;
    if (!trace->host->sample_count && !trace->host->gap_count) {
        trace_free(trace->host);
        trace->host = NULL;
        load_doubt(load, (struct launch_doubt){.kind = LAUNCH_DOUBT_NO_HOST});
        return 0;
    }
    trace_ids_build(&load->thread_ids, trace->host->threads, trace->host->thread_count,
            sizeof *trace->host->threads);
    return 0;
}

// ---- doubts ----

static bool load_concerns(const char *producer, bool breach)
{
    static const char *const names[] = {"bpf", "recorder", "gpu", "symbols", "pystack", NULL};
    return breach || words_begin(producer, names);
}

// What the trust ledger says was lost of this launch.
static int load_ledger(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT producer, kind, coalesce(seen, -1) AS seen, dropped, breach, detail FROM ledger WHERE "
            "launch_id = ? AND (breach OR dropped > 0) ORDER BY id",
            "i", load->trace->launch_id);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        const char *producer = (const char *)sqlite3_column_text(stmt, 0),
                   *kind = (const char *)sqlite3_column_text(stmt, 1),
                   *detail = (const char *)sqlite3_column_text(stmt, 5);
        int64_t seen = sqlite3_column_int64(stmt, 2), dropped = sqlite3_column_int64(stmt, 3);
        if (!producer || !kind || !load_concerns(producer, sqlite3_column_int(stmt, 4)))
            continue;
        load_doubt(load,
                (struct launch_doubt){.kind = LAUNCH_DOUBT_LOST,
                        .count = dropped,
                        .of = seen > 0 ? seen : 0,
                        .producer = producer,
                        .what = kind,
                        .detail = detail});
    }
    return rc;
}

static int load_clocks(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT p.tgid, g.state = 'refused', g.reason, coalesce(g.clock_residual_max_ns, 0) AS residual_ns FROM "
            "gpu_process g JOIN "
            "process p ON p.id = g.process_id WHERE p.recording_id = ? ORDER BY p.id",
            "i", load->trace->recording_id);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        int64_t pid = sqlite3_column_int64(stmt, 0), residual = sqlite3_column_int64(stmt, 3);
        const char *reason = (const char *)sqlite3_column_text(stmt, 2);
        if (sqlite3_column_int(stmt, 1))
            load_doubt(load,
                    (struct launch_doubt){
                            .kind = LAUNCH_DOUBT_REFUSED, .pid = pid, .detail = reason});
        if (residual > CLOCK_RESIDUAL_MAX_NS)
            load_doubt(load,
                    (struct launch_doubt){
                            .kind = LAUNCH_DOUBT_CLOCK, .pid = pid, .count = residual / 1000});
    }
    return rc;
}

static int load_all(struct load *load, const struct launch_trace_opts *opts)
{
    int rc = load_launch(load);
    if (!rc)
        rc = load_processes(load);
    if (!rc)
        rc = load_ranks(load);
    if (!rc)
        rc = load_steps(load);
    if (!rc)
        rc = load_phases(load);
    if (!rc)
        rc = load_host(load);
    if (rc)
        return rc;
    load_match_ranks(load);
    load_windows(load);
    if (!opts->host_only)
        rc = load_gpu(load);
    if (!rc && !opts->host_only)
        rc = load_calls(load);
    if (!rc && !opts->host_only)
        rc = load_marks(load);
    if (!rc)
        rc = load_ledger(load);
    if (!rc)
        rc = load_clocks(load);
    if (!rc && load->steps_outside)
        load_doubt(load,
                (struct launch_doubt){
                        .kind = LAUNCH_DOUBT_OUTSIDE, .count = (int64_t)load->steps_outside});
    return rc;
}

int launch_trace_load(struct store *store, int64_t launch_id, const struct launch_trace_opts *opts,
        struct launch_trace **ret_trace, struct error *err)
{
    static const struct launch_trace_opts defaults = {0};
    struct error local = {0};
    struct launch_trace *trace = xcalloc(1, sizeof *trace);
    struct load load = {.store = store, .trace = trace, .err = err ? err : &local};
    trace->arena = arena_new();
    trace->launch_id = launch_id;
    int rc = load_all(&load, opts ? opts : &defaults);
    for (size_t i = 0; load.spans && i <= trace->rank_count; i++)
        free(load.spans[i].spans);
    free(load.spans);
    free(load.processes);
    free(load.blocks);
    free(load.rank_pids);
    free(load.process_ids.index);
    free(load.thread_ids.index);
    free(load.texts);
    if (rc) {
        launch_trace_free(trace);
        return rc;
    }
    *ret_trace = trace;
    return 0;
}

void launch_trace_free(struct launch_trace *trace)
{
    if (!trace)
        return;
    trace_free(trace->host);
    void *rows[] = {trace->ranks, trace->windows, trace->cold, trace->steps, trace->phases,
            trace->kernels, trace->works, trace->ops, trace->calls, trace->nccl, trace->marks,
            trace->nodes, trace->ranges, trace->doubts};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        free(rows[i]);
    arena_free(trace->arena);
    free(trace);
}
