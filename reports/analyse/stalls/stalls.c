// SPDX-License-Identifier: Apache-2.0
// The analysis from end to end: load, find the parts, follow the chains, merge, describe; then what
// the trust ledger has to say about the recording, which lowers every confidence.
#include "reports/analyse/stalls/stalls.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/stalls/ranks/ranks.h"
#include "reports/analyse/stalls/what_if/what_if.h"

// Producers whose losses touch stalls: the BPF programs ("bpf.gap"), the recorder and what names
// things for it. Others (steps, tensors) do not.
static bool stalls_concerns(const char *producer)
{
    static const char *const names[] = {"bpf", "recorder", "symbols", "pystack"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strncmp(producer, names[i], strlen(names[i])))
            return true;
    return false;
}

// A stack without names or a walk that came too late changes no verdict; a lost event may.
static bool stalls_loses_events(const char *producer)
{
    return !strncmp(producer, "bpf", 3) || !strcmp(producer, "recorder");
}

// What is believed of every cause when events were lost: half the share that was lost, at least 2
// %.
static double stalls_trust(double trust, int64_t seen, int64_t dropped)
{
    double share = seen > 0 ? (double)dropped / (double)seen : 0.2;
    share = share > 1 ? 1 : share;
    double one = 1 - (share > 0.04 ? share / 2 + share * share * 0.3 : 0.02);
    return one < trust ? one : trust;
}

// Room for one more behind `count`, at 0, 1, 2, 4, … by twice as much.
static void *stalls_room(struct arena *arena, void *list, size_t count, size_t size)
{
    if (count & (count - 1))
        return list;
    void *ret = arena_alloc(arena, 2 * count + 1, size);
    if (count)
        memcpy(ret, list, count * size);
    return ret;
}

static void stalls_add_breach(
        struct stalls *stalls, struct arena *arena, struct stall_breach breach)
{
    stalls->breaches = stalls_room(arena, stalls->breaches, stalls->breach_count, sizeof breach);
    stalls->breaches[stalls->breach_count++] = breach;
}

static void stalls_add_missing(
        struct stalls *stalls, struct arena *arena, struct stall_missing missing)
{
    stalls->missing = stalls_room(arena, stalls->missing, stalls->missing_count, sizeof missing);
    stalls->missing[stalls->missing_count++] = missing;
}

static int stalls_read_ledger(struct store *store, struct stalls *stalls, struct arena *arena,
        double *ret_trust, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT producer, kind, detail, dropped, coalesce(seen, -1) AS seen, breach FROM ledger WHERE "
            "(launch_id IS NULL OR launch_id = ?) AND (dropped > 0 OR breach) ORDER BY id",
            "i", stalls->launch_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const char *producer = (const char *)sqlite3_column_text(stmt, 0),
                   *kind = (const char *)sqlite3_column_text(stmt, 1);
        if (!stalls_concerns(producer))
            continue;
        stalls_add_breach(stalls, arena,
                (struct stall_breach){.producer = arena_copy(arena, producer),
                        .kind = arena_copy(arena, kind),
                        .detail = arena_copy(arena, (const char *)sqlite3_column_text(stmt, 2)),
                        .count = sqlite3_column_int64(stmt, 3),
                        .events = stalls_loses_events(producer)});
        if (sqlite3_column_int64(stmt, 3) > 0 && stalls_loses_events(producer))
            *ret_trust = stalls_trust(
                    *ret_trust, sqlite3_column_int64(stmt, 4), sqlite3_column_int64(stmt, 3));
    }
    return rc;
}

// The ledger is written at the end: of a recorder that was killed, what it dropped until its last
// second stands in the counters only.
static int stalls_read_unended(struct store *store, struct stalls *stalls,
        const struct trace *trace, bool live, double *ret_trust, struct error *err)
{
    // totals: the last ones are the largest
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT c.name, coalesce(max(c.value), 0) AS dropped FROM recording r LEFT JOIN counter c ON "
            "c.recording_id = r.id AND c.source = 'drops' AND c.rowid > ? WHERE r.id = ? AND coalesce(r.end_ns, 0) = 0 "
            "GROUP BY c.name ORDER BY c.name",
            "ii", trace->counters_before, stalls->recording_id);
    struct arena *arena = trace->arena;
    bool first = true;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        if (first && !live)
            stalls_add_breach(stalls, arena,
                    (struct stall_breach){.producer = "recorder", .kind = "end", .unended = true});
        first = false;
        int64_t dropped = sqlite3_column_int64(stmt, 1);
        if (dropped <= 0)
            continue;
        const char *producer =
                arena_print(arena, "bpf.%s", (const char *)sqlite3_column_text(stmt, 0));
        stalls_add_breach(stalls, arena,
                (struct stall_breach){
                        .producer = producer, .kind = "records", .count = dropped, .events = true});
        int64_t kept = (int64_t)(trace->gap_count + trace->short_count + trace->sample_count);
        *ret_trust = stalls_trust(*ret_trust, kept + dropped, dropped);
    }
    return rc;
}

// recording.missing, a JSON array of sentences.
static int stalls_read_missing(
        struct store *store, struct stalls *stalls, struct arena *arena, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT j.value FROM recording r, json_each(CASE WHEN json_valid(r.missing) THEN "
            "r.missing ELSE '[]' END) j WHERE r.id = ? ORDER BY j.key",
            "i", stalls->recording_id);
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        stalls_add_missing(stalls, arena,
                (struct stall_missing){
                        .kind = STALL_MISSING_SOURCE, .text = arena_copy(arena, text ? text : "")});
    }
    return rc;
}

static void stalls_find(struct work *work, struct stalls *stalls)
{
    gil_stitch(work);
    classify_gaps(work);
    holder_spins(work);
    oncpu_find(work);
    facts_find(work);
    parts_sort(work);
    if (stalls)
        quiet_find(work, stalls); // before the idle waits are thrown away
    chain_follow(work);
}

void work_find(struct work *work)
{
    stalls_find(work, NULL);
    parts_sort(work);
}

static void stalls_distrust(struct stall *stall, double trust)
{
    stall->confidence *= trust;
    stall->doubts |= trust < 1 ? STALL_DOUBT_LOST : 0;
}

// What of a part lies in [begin, end).
static void stalls_cut(struct work *work, struct part part, int64_t begin, int64_t end)
{
    part.begin = part.begin < begin ? begin : part.begin;
    part.end = part.end > end ? end : part.end;
    if (part.begin < part.end)
        work->parts[work->part_count++] = part;
}

// The causes among the parts of the steps, or, outside, before and behind them. Shares are of
// window_ns. Room for `more` is left.
static struct stall *stalls_of(const struct work *work, bool outside, int64_t window_ns,
        double share_min, double trust, size_t more, size_t *ret_count)
{
    struct trace *trace = work->trace;
    int64_t whole_ns = trace->window_ns;
    struct work some = *work;
    struct groups groups = {0};
    int64_t begin = trace->startup_end ? trace->startup_end : INT64_MIN,
            end = trace->exit_begin ? trace->exit_begin : INT64_MAX;
    some.parts = xcalloc(2 * work->part_count + 1, sizeof *some.parts);
    some.part_count = 0;
    for (size_t i = 0; i < work->part_count; i++) {
        if (!outside) {
            stalls_cut(&some, work->parts[i], begin, end);
            continue;
        }
        stalls_cut(&some, work->parts[i], INT64_MIN, begin);
        stalls_cut(&some, work->parts[i], end, INT64_MAX);
    }
    trace->window_ns = window_ns; // what shares are of
    groups_make(&some, share_min, &groups);
    struct stall *list = arena_alloc(trace->arena, groups.count + more + 1, sizeof *list);
    for (size_t i = 0; i < groups.count; i++) {
        describe_group(&some, &groups.groups[i], &list[i]);
        stalls_distrust(&list[i], trust);
    }
    *ret_count = groups.count;
    trace->window_ns = whole_ns;
    groups_free(&groups);
    free(some.parts);
    return list;
}

// Start-up, and what comes behind the last step of a program that ended. Without steps collectives
// say when work began.
static void stalls_find_startup(struct trace *trace, const struct ranks *ranks)
{
    enum { LEAST_NS = 100000000, LEAST_SHARE = 100 };
    if (trace->launch_id || !trace->window_count)
        return;
    struct trace_window *window = &trace->windows[0];
    int64_t begin = ranks->first_end, end = ranks->last_end, least = trace->window_ns / LEAST_SHARE;
    bool started = trace->from_start, ended = false;
    least = least > LEAST_NS ? least : LEAST_NS;
    if (!ranks->nccl && ranks->wait_count < LATE_BLOCKS)
        begin = end = 0; // a job of NCCL whose GPU side was not recorded: its few waits on the host
                         // are set-up, not its collectives
    if (trace->step_count) {
        begin = trace->steps[0].begin;
        end = begin;
        for (size_t i = 0; i < trace->step_count; i++)
            end = trace->steps[i].end > end ? trace->steps[i].end : end;
    }
    for (size_t i = 0; i < trace->process_count; i++) {
        const struct trace_process *process = &trace->processes[i];
        bool leads = process->kind == TRACE_TARGET && process->leader != TRACE_NONE &&
                trace->threads[process->leader].leads;
        started |= leads && process->started_ns >= window->begin && process->started_ns < begin;
        ended |= leads && process->ended_ns > end;
    }
    if (begin && started && begin - window->begin >= least && begin < window->end)
        trace->startup_end = begin;
    if (begin && ended && window->end - end >= least && end > begin)
        trace->exit_begin = end;
}

static void stalls_add_stragglers(struct stalls *stalls, const struct work *work,
        const struct ranks *ranks, const struct late_ranks *stragglers, double trust)
{
    for (size_t i = 0; i < stragglers->count; i++) {
        struct stall one;
        late_describe(ranks, work, &stragglers->list[i], &one);
        const char *host = trace_host_of(work->trace, ranks->rows[stragglers->list[i].row].process);
        one.host = host ? host : stalls->host;
        stalls_distrust(&one, trust);
        size_t at = stalls->count++;
        for (; at > 0 && stalls->stalls[at - 1].weight < one.weight; at--)
            stalls->stalls[at] = stalls->stalls[at - 1];
        stalls->stalls[at] = one;
    }
}

// What the host of a late rank does behind its waits is told as its lateness.
static void stalls_take_gpu_waits(struct work *work, const struct ranks *ranks,
        const struct late_ranks *stragglers, bool live)
{
    bool *late = xcalloc(work->trace->process_count + 1, sizeof *late);
    for (size_t i = 0; i < stragglers->count; i++)
        late[ranks->rows[stragglers->list[i].row].process] = true;
    gpu_waits_take(work, late, live);
    free(late);
}

static void stalls_fill(struct stalls *stalls, struct work *work, const struct ranks *ranks,
        double share_min, double trust, bool live)
{
    struct trace *trace = work->trace;
    stalls_find_startup(trace, ranks);
    const struct trace_window *first = &trace->windows[0],
                              *last = &trace->windows[trace->window_count - 1];
    int64_t begin = trace->startup_end ? trace->startup_end : first->begin,
            end = trace->exit_begin ? trace->exit_begin : last->end;
    struct late_ranks stragglers = {0};
    groups_explain(work, begin, end);
    parts_sort(work);
    late_ranks_find(ranks, work, begin, end, &stragglers);
    if (!live) { // they are about a job, not about its last seconds
        what_if_find(ranks, &stragglers, trust < 1, &stalls->what_if);
        late_heat(ranks, &stragglers, begin, end, stalls->host, &stalls->heat);
    }
    stalls_take_gpu_waits(work, ranks, &stragglers, live);
    ranks_take_waits(ranks, work);
    stalls->threshold_ns = trace->threshold_ns;
    stalls->idle_ns = work->idle_ns;
    for (uint32_t i = 0; i < trace->thread_count; i++)
        stalls->target_threads += trace_is_target(trace, i);
    stalls->startup_ns = trace->startup_end ? begin - first->begin : 0;
    stalls->exit_ns = trace->exit_begin ? last->end - end : 0;
    int64_t outside_ns = stalls->startup_ns + stalls->exit_ns;
    stalls->by_steps = trace->step_count > 0;
    stalls->window_ns = trace->window_ns - outside_ns;
    stalls->stalls = stalls_of(
            work, false, stalls->window_ns, share_min, trust, stragglers.count, &stalls->count);
    stalls_add_stragglers(stalls, work, ranks, &stragglers, trust);
    if (outside_ns)
        stalls->outside =
                stalls_of(work, true, outside_ns, share_min, trust, 0, &stalls->outside_count);
    late_ranks_free(&stragglers);
}

static void stalls_find_missing(
        struct stalls *stalls, const struct work *work, const struct ranks *ranks)
{
    const struct trace *trace = work->trace;
    const struct stall_missing all[] = {ranks_missing(ranks),
            {.kind = STALL_MISSING_CLOCKS,
                    .count = trace_clocks_unknown(trace),
                    .of = trace->node_count},
            {.kind = STALL_MISSING_GPUS, .count = trace->gpus_lost && gpu_waits_any(work)}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].count)
            stalls_add_missing(stalls, trace->arena, all[i]);
}

int stalls_analyse(struct store *store, const struct stalls_opts *opts, struct stalls **ret_stalls,
        struct error *err)
{
    static const struct stalls_opts defaults = {0};
    opts = opts ? opts : &defaults;
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    int rc = trace_load_last(
            store, opts->recording_id, opts->last_ns, opts->cache, arena, &trace, err);
    if (!rc)
        rc = trace_load_ranks(trace, store, err);
    if (rc) {
        trace_free(trace);
        arena_free(arena);
        return rc;
    }
    struct stalls *stalls = xcalloc(1, sizeof *stalls);
    stalls->memory = arena;
    stalls->recording_id = trace->recording_id;
    stalls->launch_id = trace->launch_id;
    double trust = 1;
    rc = stalls_read_ledger(store, stalls, arena, &trust, err);
    if (!rc)
        rc = stalls_read_unended(store, stalls, trace, opts->last_ns > 0, &trust, err);
    if (!rc)
        rc = stalls_read_missing(store, stalls, arena, err);
    if (!rc)
        rc = store_failed(store, err);
    struct work work = {0};
    struct ranks ranks = {0};
    if (!rc) {
        char *host = store_get_text(store,
                "SELECT CASE WHEN json_valid(host) THEN json_extract(host, '$.hostname') END FROM run",
                "");
        stalls->host = arena_copy(arena, host);
        free(host);
        work_init(&work, trace);
        stalls_find(&work, stalls);
        rc = gpu_waits_any(&work) ? trace_load_gpus(trace, store, err) : 0;
    }
    if (!rc) {
        ranks_find(trace, &ranks);
        stalls_fill(stalls, &work, &ranks, opts->share_min, trust, opts->last_ns > 0);
        stalls_find_missing(stalls, &work, &ranks);
    }
    ranks_free(&ranks);
    work_free(&work);
    trace_free(trace);
    if (rc) {
        stalls_free(stalls);
        return rc;
    }
    *ret_stalls = stalls;
    return 0;
}

void stalls_free(struct stalls *stalls)
{
    if (!stalls)
        return;
    arena_free(stalls->memory);
    free(stalls);
}

int stalls_save(struct store *store, const struct stalls *stalls, const struct stalls_words *words,
        struct error *err)
{
    int rc = store_exec(
            store, err, "DELETE FROM stall WHERE recording_id = ?", "i", stalls->recording_id);
    for (size_t i = 0; i < stalls->count && !rc; i++) {
        const struct stall *stall = &stalls->stalls[i];
        char *advice = words->advice(stall), *detail = words->detail(stall);
        rc = store_exec(store, err,
                "INSERT INTO stall (recording_id, rank, cause, total_ns, count, max_ns, period_ns, "
                "confidence, victim_thread, "
                "culprit_thread, advice, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "iisiiiIdIIss", stalls->recording_id, (int64_t)i + 1, stall->cause, stall->total_ns,
                (int64_t)stall->count, stall->max_ns, stall->has_period ? &stall->period_ns : NULL,
                stall->confidence, stall->victim.known ? &stall->victim.thread_id : NULL,
                stall->culprit.known ? &stall->culprit.thread_id : NULL, advice ? advice : "",
                detail);
        free(advice);
        free(detail);
    }
    return rc;
}
