// SPDX-License-Identifier: Apache-2.0
// The analysis from end to end: load, find the parts, follow the chains, merge, describe; then what
// the trust ledger has to say about the recording, which lowers every confidence.
#include "reports/analyse/stalls/stalls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/vector.h"
#include "reports/analyse/stalls/group.h"
#include "reports/analyse/stalls/quiet.h"

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

static int stalls_read_ledger(struct store *store, struct stalls *stalls, struct arena *arena,
                              double *ret_trust, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT producer, kind, detail, dropped, coalesce(seen, -1) AS seen, breach FROM ledger WHERE "
        "(launch_id IS NULL OR launch_id = ?) AND (dropped > 0 OR breach) ORDER BY id",
        "i", stalls->launch_id);
    if (!stmt)
        return err ? err->code : -EIO;
    struct stall_breach *list = NULL;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const char *producer = (const char *)sqlite3_column_text(stmt, 0),
                   *kind = (const char *)sqlite3_column_text(stmt, 1);
        if (!stalls_concerns(producer))
            continue;
        vector_push(list, stalls->breach_count,
                    (struct stall_breach){arena_copy(arena, producer), arena_copy(arena, kind),
                                          arena_copy(arena, (const char *)sqlite3_column_text(stmt, 2)),
                                          sqlite3_column_int64(stmt, 3)});
        if (sqlite3_column_int64(stmt, 3) > 0 && stalls_loses_events(producer))
            *ret_trust = stalls_trust(*ret_trust, sqlite3_column_int64(stmt, 4),
                                      sqlite3_column_int64(stmt, 3));
    }
    stalls->breaches = arena_alloc(arena, stalls->breach_count + 1, sizeof *list);
    if (stalls->breach_count)
        memcpy(stalls->breaches, list, stalls->breach_count * sizeof *list);
    free(list);
    return rc;
}

static void stalls_add_breach(struct stalls *stalls, struct arena *arena,
                              struct stall_breach breach)
{
    struct stall_breach *list = arena_alloc(arena, stalls->breach_count + 2, sizeof *list);
    memcpy(list, stalls->breaches, stalls->breach_count * sizeof *list);
    list[stalls->breach_count++] = breach;
    stalls->breaches = list;
}

// The ledger is written at the end: of a recorder that was killed, what it dropped until its last
// second stands in the counters only.
static int stalls_read_unended(struct store *store, struct stalls *stalls,
                               const struct trace *trace, double *ret_trust, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT c.name, coalesce(max(c.value), 0) AS dropped FROM recording r LEFT JOIN counter c ON "
        "c.recording_id = r.id AND c.source = 'drops' WHERE r.id = ? AND coalesce(r.end_ns, 0) = 0 "
        "GROUP BY c.name ORDER BY c.name",
        "i", stalls->recording_id);
    if (!stmt)
        return err ? err->code : -EIO;
    struct arena *arena = trace->arena;
    bool first = true;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        if (first)
            stalls_add_breach(stalls, arena,
                              (struct stall_breach){"recorder", "end",
                                                    "the recording was not ended in order", 0});
        first = false;
        int64_t dropped = sqlite3_column_int64(stmt, 1);
        if (dropped <= 0)
            continue;
        const char *producer =
            arena_print(arena, "bpf.%s", (const char *)sqlite3_column_text(stmt, 0));
        stalls_add_breach(stalls, arena, (struct stall_breach){producer, "records", NULL, dropped});
        int64_t kept = (int64_t)(trace->gap_count + trace->sample_count);
        *ret_trust = stalls_trust(*ret_trust, kept + dropped, dropped);
    }
    return rc;
}

// recording.missing, a JSON array of sentences.
static int stalls_read_missing(struct store *store, struct stalls *stalls, struct arena *arena,
                               struct error *err)
{
    sqlite3_stmt *stmt = store_query(
        store, err,
        "SELECT j.value FROM recording r, json_each(CASE WHEN json_valid(r.missing) THEN "
        "r.missing ELSE '[]' END) j WHERE r.id = ? ORDER BY j.key",
        "i", stalls->recording_id);
    if (!stmt)
        return err ? err->code : -EIO;
    const char **list = NULL;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        vector_push(list, stalls->missing_count, arena_copy(arena, text ? text : ""));
    }
    stalls->missing = arena_alloc(arena, stalls->missing_count + 1, sizeof *list);
    if (stalls->missing_count)
        memcpy(stalls->missing, list, stalls->missing_count * sizeof *list);
    free(list);
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

static void stalls_fill(struct stalls *stalls, struct work *work, const struct groups *groups,
                        double trust)
{
    const struct trace *trace = work->trace;
    stalls->window_ns = trace->window_ns;
    stalls->threshold_ns = trace->threshold_ns;
    stalls->idle_ns = work->idle_ns;
    for (uint32_t i = 0; i < trace->thread_count; i++)
        stalls->target_threads += trace_is_target(trace, i);
    stalls->count = groups->count;
    stalls->stalls = arena_alloc(trace->arena, groups->count + 1, sizeof *stalls->stalls);
    for (size_t i = 0; i < groups->count; i++) {
        struct stall *stall = &stalls->stalls[i];
        describe_group(work, &groups->groups[i], stall);
        stall->confidence *= trust;
        if (trust < 1)
            stall->confidence_note =
                arena_print(trace->arena, "%s%sevents were lost while recording",
                            stall->confidence_note ? stall->confidence_note : "",
                            stall->confidence_note ? "; " : "");
    }
}

int stalls_analyse(struct store *store, const struct stalls_opts *opts, struct stalls **ret_stalls,
                   struct error *err)
{
    static const struct stalls_opts defaults = {0};
    opts = opts ? opts : &defaults;
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    int rc = trace_load(store, opts->recording_id, arena, &trace, err);
    if (rc) {
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
        rc = stalls_read_unended(store, stalls, trace, &trust, err);
    if (!rc)
        rc = stalls_read_missing(store, stalls, arena, err);
    if (!rc)
        rc = store_failed(store, err);
    struct work work = {0};
    struct groups groups = {0};
    if (!rc) {
        work_init(&work, trace);
        stalls_find(&work, stalls);
        groups_make(&work, opts->share_min, &groups);
        stalls_fill(stalls, &work, &groups, trust);
    }
    groups_free(&groups);
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

int stalls_save(struct store *store, const struct stalls *stalls,
                char *(*detail_json)(const struct stall *stall), struct error *err)
{
    int rc = store_exec(store, err, "DELETE FROM stall WHERE recording_id = ?", "i",
                        stalls->recording_id);
    for (size_t i = 0; i < stalls->count && !rc; i++) {
        const struct stall *stall = &stalls->stalls[i];
        char *detail = detail_json ? detail_json(stall) : xstrdup("{}");
        rc = store_exec(
            store, err,
            "INSERT INTO stall (recording_id, rank, cause, total_ns, count, max_ns, period_ns, "
            "confidence, victim_thread, "
            "culprit_thread, advice, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "iisiiiIdIIss", stalls->recording_id, (int64_t)i + 1, stall->cause, stall->total_ns,
            (int64_t)stall->count, stall->max_ns, stall->has_period ? &stall->period_ns : NULL,
            stall->confidence, stall->victim.known ? &stall->victim.thread_id : NULL,
            stall->culprit.known ? &stall->culprit.thread_id : NULL, stall->advice, detail);
        free(detail);
    }
    return rc;
}
