// SPDX-License-Identifier: Apache-2.0
// Makes the answers of a snapshot, and finds the one a request asks for: paths, methods,
// parameters. The event loop of the server runs answers_give(); the thread that refreshes runs
// answers_new().
#include "harness/canary/serve/answers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/canary/serve/answers_parts.h"

static void entry_make(struct answers *answers, const struct snapshot *snapshot,
        const struct snapshot_stage *stage, const struct verdict *verdict)
{
    struct answers_entry *entry = &answers->entries[answers->entry_count++];
    entry->verdict = *verdict;
    entry->stage = stage ? arena_copy(answers->arena, stage->name) : NULL;
    if (stage)
        snprintf(entry->number, sizeof entry->number, "%lld", (long long)stage->number);
    entry->text =
            arena_print(answers->arena, "%s: %s\n", verdict_name(verdict->kind), verdict->reason);
    entry->text_len = strlen(entry->text);
    answers_make_json(snapshot, stage, entry, answers->arena);
}

static const char *metrics_make(const struct series_list *series, struct arena *arena)
{
    struct strbuf text = {0};
    series_print(series, &text);
    const char *copy = arena_copy(arena, text.text);
    strbuf_free(&text);
    return copy;
}

struct answers *answers_new(const struct snapshot *snapshot, const struct verdict_clock *now)
{
    struct answers *answers = xcalloc(1, sizeof *answers);
    struct verdict *stages = xcalloc((size_t)snapshot->stage_count + 1, sizeof *stages), whole;
    struct snapshot nothing = {
            .name = snapshot->name, .problem = "the store has not been looked at for too long"};
    answers->arena = arena_new();
    answers->name = arena_copy(answers->arena, snapshot->name);
    answers->kind = snapshot->kind;
    answers->made_ns = now->monotonic_ns;
    answers->wants_more = verdict_wants_more(snapshot, now);
    answers->entries = arena_alloc(answers->arena, (size_t)snapshot->stage_count + ANSWERS_STAGES,
            sizeof *answers->entries);
    verdict_of(&nothing, NULL, now, &whole);
    entry_make(answers, &nothing, NULL, &whole);
    verdict_of(snapshot, NULL, now, &whole);
    entry_make(answers, snapshot, NULL, &whole);
    for (int i = 0; i < snapshot->stage_count; i++) {
        verdict_of(snapshot, &snapshot->stages[i], now, &stages[i]);
        entry_make(answers, snapshot, &snapshot->stages[i], &stages[i]);
    }
    answers->series = series_of(snapshot, &whole, stages, answers->arena);
    answers->series_blind = series_blind(snapshot->name, answers->arena);
    answers->metrics = metrics_make(&answers->series, answers->arena);
    answers->metrics_blind = metrics_make(&answers->series_blind, answers->arena);
    free(stages);
    return answers;
}

void answers_free(struct answers *answers)
{
    if (!answers)
        return;
    arena_free(answers->arena);
    free(answers);
}

int answers_prepared(const struct answers *answers)
{
    return 2 * answers->entry_count;
}

bool answers_old(const struct answers *answers, const struct call *call)
{
    return call->now.monotonic_ns - answers->made_ns > SNAPSHOT_OLD_S * INT64_C(1000000000);
}

void answer_prepared(
        struct answer *ret, int status, const struct answers *answers, int entry, bool json)
{
    const struct answers_entry *at = &answers->entries[entry];
    *ret = (struct answer){.status = status,
            .type = json ? ANSWER_JSON : ANSWER_TEXT,
            .body = json ? at->json : at->text,
            .body_len = json ? at->json_len : at->text_len,
            .prepared = 2 * entry + (json ? 0 : 1)};
}

void answer_owned(struct answer *ret, int status, const char *type, char *body, size_t len)
{
    *ret = (struct answer){
            .status = status, .type = type, .body = body, .body_len = len, .prepared = -1};
}

void answer_text(struct answer *ret, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    answer_owned(ret, status, ANSWER_TEXT, text, strlen(text));
}

int answers_entry_of(const struct answers *answers, const struct call *call, const char *stage,
        struct answer *ret)
{
    if (answers_old(answers, call))
        return ANSWERS_BLIND;
    if (!stage || answers->kind == SNAPSHOT_NOTHING)
        return ANSWERS_WHOLE;
    for (int i = ANSWERS_STAGES; i < answers->entry_count; i++)
        if (strcmp(answers->entries[i].number, stage) == 0)
            return i;
    for (int i = ANSWERS_STAGES; i < answers->entry_count; i++)
        if (strcmp(answers->entries[i].stage, stage) == 0)
            return i;
    if (answers->kind == SNAPSHOT_ROLLOUT && answers->entry_count == ANSWERS_STAGES)
        return ANSWERS_WHOLE; // its stages are not written yet
    answer_text(ret, 404,
            answers->kind == SNAPSHOT_RUN
                    ? "a run of `upgate ab` has no stages; leave out 'stage'\n"
                    : "no such stage in this rollout\n");
    return -1;
}

// A parameter that is not understood would be ignored by a server of less care, and the answer be
// another than was asked for.
static bool parameters_known(const struct target *target, struct answer *ret)
{
    // hashes of the revisions: for the reader of a log
    static const char *const known[] = {"stage", "stable", "canary"};
    int twice = 0;
    target_get(target, "stage", &twice);
    if (twice) {
        answer_text(ret, 400, "parameter 'stage' is given twice\n");
        return false;
    }
    for (int i = 0; i < target->pair_count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= strcmp(target->pairs[i].key, known[k]) == 0;
        if (!found) {
            answer_text(ret, 400, "unknown parameter; known are stage, stable and canary\n");
            return false;
        }
    }
    return true;
}

bool answer_method_is(const struct call *call, bool get, bool post, struct answer *ret)
{
    bool reads = call->method == CALL_GET || call->method == CALL_HEAD;
    if ((get && reads) || (post && call->method == CALL_POST))
        return true;
    answer_text(ret, 405, "wrong method\n");
    ret->allow = !post ? "GET, HEAD" : !get ? "POST" : "GET, HEAD, POST";
    return false;
}

static void give_gate(const struct answers *answers, const struct call *call,
        const struct target *target, struct answer *ret)
{
    int entry = answers_entry_of(answers, call, target_get(target, "stage", NULL), ret);
    if (entry >= 0)
        answer_prepared(ret, 200, answers, entry, true);
}

static void give_metrics(const struct answers *answers, const struct call *call, struct answer *ret)
{
    struct strbuf text = {0};
    const char *prepared = answers_old(answers, call) ? answers->metrics_blind : answers->metrics;
    strbuf_add_bytes(&text, prepared, strlen(prepared));
    strbuf_add(&text,
            "# HELP upgate_serve_snapshot_age_seconds Since the store was last looked at.\n"
            "# TYPE upgate_serve_snapshot_age_seconds gauge\nupgate_serve_snapshot_age_seconds %.3f\n",
            (double)(call->now.monotonic_ns - answers->made_ns) / 1e9);
    const struct call_counts *counts = call->counts;
    if (counts)
        strbuf_add(&text,
                "# HELP upgate_serve_answers_total Answers by class of status.\n# TYPE upgate_serve_answers_total counter\n"
                "upgate_serve_answers_total{code=\"2xx\"} %llu\nupgate_serve_answers_total{code=\"4xx\"} %llu\n"
                "upgate_serve_answers_total{code=\"5xx\"} %llu\n"
                "# HELP upgate_serve_tokens_refused_total Requests without the token, or with a wrong one.\n"
                "# TYPE upgate_serve_tokens_refused_total counter\nupgate_serve_tokens_refused_total %llu\n"
                "# HELP upgate_serve_cut_off_total Connections that were too slow.\n"
                "# TYPE upgate_serve_cut_off_total counter\nupgate_serve_cut_off_total %llu\n"
                "# HELP upgate_serve_connections Open connections.\n# TYPE upgate_serve_connections gauge\n"
                "upgate_serve_connections %llu\n"
                "# HELP upgate_serve_connections_limit So many are let in.\n# TYPE upgate_serve_connections_limit gauge\n"
                "upgate_serve_connections_limit %llu\n",
                (unsigned long long)counts->answers_2xx, (unsigned long long)counts->answers_4xx,
                (unsigned long long)counts->answers_5xx, (unsigned long long)counts->refused_tokens,
                (unsigned long long)counts->cut_off, (unsigned long long)counts->connections,
                (unsigned long long)counts->connections_max);
    size_t len = text.len;
    answer_owned(ret, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_take(&text), len);
}

static bool path_is(const struct target *target, const char *one, const char *two, int count)
{
    return target->part_count == count && strcmp(target->parts[0], one) == 0 &&
            (!two || strcmp(target->parts[1], two) == 0);
}

// The name in the path must be this rollout's: a default "200 OK" for whatever was asked would be a
// rollback to Flagger.
static bool name_is(const struct answers *answers, const struct target *target, struct answer *ret)
{
    if (strcmp(target->parts[2], answers->name) == 0)
        return true;
    answer_text(ret, 404, "no such rollout here\n");
    return false;
}

void answers_give(const struct answers *answers, const struct call *call, struct answer *ret)
{
    struct target target;
    int rc = target_parse(call->target, call->target_len, &target);
    if (rc)
        answer_text(ret, rc == -E2BIG ? 414 : 400,
                rc == -E2BIG ? "the address is too long\n" : "the address is malformed\n");
    else if (path_is(&target, "v1", "gate", 3)) {
        if (name_is(answers, &target, ret) && answer_method_is(call, true, false, ret) &&
                parameters_known(&target, ret))
            give_gate(answers, call, &target, ret);
    } else if (path_is(&target, "v1", "flagger", 4)) {
        if (name_is(answers, &target, ret) && parameters_known(&target, ret))
            answers_flagger(answers, call, &target, ret);
    } else if (path_is(&target, "api", "v1", 3) && strcmp(target.parts[2], "query") == 0) {
        if (answer_method_is(call, true, true, ret))
            answers_query(answers, call, &target, ret);
    } else if (path_is(&target, "metrics", NULL, 1)) {
        if (answer_method_is(call, true, false, ret))
            give_metrics(answers, call, ret);
    } else if (path_is(&target, "healthz", NULL, 1)) {
        // Alive is not the same as knowing: an unreadable store is no reason to restart the server.
        if (answer_method_is(call, true, false, ret))
            answer_text(ret, answers_old(answers, call) ? 503 : 200,
                    answers_old(answers, call) ? "the store's reader hangs\n" : "ok\n");
    } else {
        answer_text(ret, 404, "nothing here; see docs/SERVE.md\n");
    }
}

bool answers_open(const char *target, size_t len, bool open_metrics)
{
    const char *query = memchr(target, '?', len);
    size_t path_len = query ? (size_t)(query - target) : len;
    return (path_len == strlen("/healthz") && memcmp(target, "/healthz", path_len) == 0) ||
            (open_metrics && path_len == strlen("/metrics") &&
                    memcmp(target, "/metrics", path_len) == 0);
}
