// SPDX-License-Identifier: Apache-2.0
// The HTML report of a rollout: the data document (page/DATA.md) and the page around it.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/recordings_view.h"
#include "reports/render/page/page.h"
#include "reports/render/rollout/rollout_words.h"
#include "reports/render/text/json_text.h"

static json_t *page_arm(const struct rollout_arm *arm)
{
    const struct canary_second *sum = &arm->sum;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "requests", (json_int_t)sum->requests,
            "errors", (json_int_t)sum->errors, "truncated", (json_int_t)sum->truncated, "wrong",
            (json_int_t)sum->wrong, "rejected", (json_int_t)sum->rejected, "p50_ms",
            render_json_real(arm->p50_s * 1e3), "p99_ms", render_json_real(arm->p99_s * 1e3));
}

static json_t *page_arms(const struct rollout_arm arms[CANARY_ARMS])
{
    return json_pack("[o, o]", page_arm(&arms[CANARY_BASELINE]), page_arm(&arms[CANARY_CANDIDATE]));
}

// Is there a second server of the old stack, for the A/A stage?
static bool page_second(const struct rollout_view *view)
{
    return json_is_string(json_object_get(
            json_object_get(json_object_get(view->plan, "traffic"), "haproxy"), "baseline2"));
}

static json_t *page_stages(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->stage_count; i++) {
        const struct rollout_view_stage *stage = &view->stages[i];
        json_array_append_new(list,
                json_pack("{s:I, s:o, s:f, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:o, s:o}",
                        "number", (json_int_t)stage->number, "name", render_json_text(stage->name),
                        "percent", stage->percent, "begin_s", render_json_count(stage->begin_s),
                        "judged_from_s", render_json_count(stage->judged_from_s), "end_s",
                        render_json_count(stage->end_s), "result", render_json_text(stage->result),
                        "aa", stage->aa, "alone", stage->aa && !page_second(view), "shadow",
                        stage->shadow, "soak_ns", render_json_count(stage->soak_ns), "needed",
                        render_json_count(stage->requests), "arms", page_arms(stage->arms)));
    }
    return list;
}

// What each decision did to the share; where none says so, what holds now.
static json_t *page_share(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->decision_count; i++) {
        const struct rollout_decision *decision = &view->decisions[i];
        if (i == 0 && isfinite(decision->percent_from) && view->bucket_count &&
                view->from_s * 1000000000 < decision->at_ns)
            json_array_append_new(list,
                    json_pack("[I, f, o]", (json_int_t)(view->from_s * 1000000000),
                            decision->percent_from, render_json_text(decision->state_from)));
        if (isfinite(decision->percent_to))
            json_array_append_new(list,
                    json_pack("[I, f, o]",
                            (json_int_t)(decision->effect_ns > decision->at_ns ? decision->effect_ns
                                                                               : decision->at_ns),
                            decision->percent_to, render_json_text(decision->state_to)));
    }
    if (json_array_size(list) == 0 && isfinite(view->percent))
        json_array_append_new(list,
                json_pack("[I, f, s]", (json_int_t)view->since_ns, view->percent,
                        rollout_state_word(view->state)));
    return list;
}

// Fewer requests than this tell no p99, and an error rate only by jumps: neighbouring buckets of a
// stage go together.
enum { PAGE_POINT_REQUESTS = 100, PAGE_POINT_SHARE = 24 };

static int64_t page_stage_at(const struct rollout_view *view, int64_t at_s)
{
    int64_t number = -1;
    for (size_t i = 0; i < view->stage_count; i++)
        if (view->stages[i].begin_s >= 0 && view->stages[i].begin_s <= at_s)
            number = view->stages[i].end_s < 0 || at_s < view->stages[i].end_s
                    ? view->stages[i].number
                    : -1;
    return number;
}

// [[from_s, to_s, requests, errors, p50_ms, p99_ms]], null where the arm had no requests for a
// while.
static json_t *page_points(const struct rollout_view *view, int arm)
{
    json_t *list = json_array();
    struct rollout_arm *point = xcalloc(1, sizeof *point);
    size_t from = 0, empty = 0, most = 1 + view->bucket_count / PAGE_POINT_SHARE;
    for (size_t i = 0; i < view->bucket_count; i++) {
        const struct canary_second *sum = &view->buckets[i].arms[arm].sum;
        int64_t at_s = view->from_s + (int64_t)i * view->width_s, next_s = at_s + view->width_s;
        if (sum->requests == 0 && point->sum.requests == 0) {
            from = i + 1;
            if (++empty == most && json_array_size(list))
                json_array_append_new(list, json_null());
            continue;
        }
        empty = 0;
        canary_second_add(&point->sum, sum);
        bool last = i + 1 == view->bucket_count ||
                page_stage_at(view, at_s) != page_stage_at(view, next_s);
        if (!last && point->sum.requests < PAGE_POINT_REQUESTS && i + 1 - from < most)
            continue;
        json_array_append_new(list,
                json_pack("[I, I, I, I, o, o]",
                        (json_int_t)(view->from_s + (int64_t)from * view->width_s),
                        (json_int_t)next_s, (json_int_t)point->sum.requests,
                        (json_int_t)point->sum.errors,
                        render_json_real(canary_quantile(&point->sum, 0.5) * 1e3),
                        render_json_real(canary_quantile(&point->sum, 0.99) * 1e3)));
        *point = (struct rollout_arm){0};
        from = i + 1;
    }
    free(point);
    return list;
}

static json_t *page_series(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->series_count; i++) {
        const struct rollout_series *series = &view->series[i];
        json_t *points = json_array();
        for (size_t j = 0; j < series->count; j++) {
            const struct rollout_point *point = &series->points[j];
            json_array_append_new(points,
                    json_pack("[I, o, o, o, o, o, o]", (json_int_t)point->at_s,
                            render_json_real(point->value), render_json_real(point->low),
                            render_json_real(point->high), render_json_real(point->threshold),
                            render_json_real(point->evidence), render_json_real(point->needed)));
        }
        const struct rollout_point *last = &series->points[series->count - 1];
        char *missing = rollout_missing(view, series->metric, last);
        json_array_append_new(list,
                json_pack("{s:o, s:o, s:I, s:s, s:s, s:b, s:o}", "metric",
                        render_json_text(series->metric), "title",
                        render_json_text(rollout_metric_title(series->metric)), "stage",
                        (json_int_t)series->stage, "verdict", rollout_verdict_word(last->verdict),
                        "missing", missing, "count", strcmp(series->metric, "wrong_answers") == 0,
                        "points", points));
        free(missing);
    }
    return list;
}

static json_t *page_decisions(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->decision_count; i++) {
        const struct rollout_decision *decision = &view->decisions[i];
        json_array_append_new(list,
                json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "at",
                        (json_int_t)decision->at_ns, "effect",
                        render_json_count(decision->effect_ns), "from",
                        render_json_text(decision->state_from), "to",
                        render_json_text(decision->state_to), "stage_from",
                        render_json_count(decision->stage_from), "stage_to",
                        render_json_count(decision->stage_to), "percent_from",
                        render_json_real(decision->percent_from), "percent_to",
                        render_json_real(decision->percent_to), "rule",
                        render_json_text(decision->rule), "title",
                        render_json_text(rollout_rule_title(decision->rule)), "reason",
                        render_json_text(decision->reason), "who", render_json_text(decision->who),
                        "evidence", render_json_text(decision->evidence)));
    }
    return list;
}

static json_t *page_sources(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->source_count; i++) {
        const struct rollout_view_source *source = &view->sources[i];
        json_array_append_new(list,
                json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
                        render_json_text(source->kind), "seen", render_json_count(source->seen),
                        "kept", render_json_count(source->kept), "dropped",
                        render_json_count(source->dropped), "lost", render_json_count(source->lost),
                        "late", render_json_count(source->late), "last",
                        render_json_count(source->last_ns), "problem",
                        render_json_text(source->problem)));
    }
    return list;
}

static json_t *page_examples(const struct rollout_view *view)
{
    json_t *list = json_array();
    for (size_t i = 0; i < view->example_count; i++) {
        const struct rollout_example *example = &view->examples[i];
        json_array_append_new(list,
                json_pack("{s:I, s:o, s:o, s:o, s:o}", "at", (json_int_t)example->at_ns, "request",
                        render_json_text(example->request), "distance",
                        render_json_real(example->distance), "baseline",
                        render_json_text(example->baseline), "candidate",
                        render_json_text(example->candidate)));
    }
    return list;
}

static json_t *page_why(const struct rollout_view *view)
{
    struct rollout_why why;
    rollout_why_make(view, &why);
    json_t *diff = why.diff ? recordings_view_json(why.diff) : NULL;
    json_t *workload =
            diff ? json_incref(json_array_get(json_object_get(diff, "workloads"), 0)) : json_null();
    json_t *document =
            json_pack("{s:o, s:o}", "text", render_json_text(why.text), "diff", workload);
    json_decref(diff);
    rollout_why_clear(&why);
    return document;
}

// Takes the text over.
static json_t *page_lines(char *text)
{
    json_t *list = json_array();
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line)
            json_array_append_new(list, render_json_text(line));
    free(text);
    return list;
}

static json_t *page_document(const struct rollout_view *view, const char *sentence)
{
    json_t *points = json_pack(
            "[o, o]", page_points(view, CANARY_BASELINE), page_points(view, CANARY_CANDIDATE));
    return json_pack(
            "{s:s, s:o, s:s, s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I}",
            "schema", "upgate.rollout_page/1", "rollout", rollout_view_json(view), "title",
            rollout_state_title(view->state), "sentence", sentence, "warnings",
            page_lines(rollout_warnings(view)), "basis", page_lines(rollout_basis(view)), "read",
            (json_int_t)view->read_ns, "stages", page_stages(view), "arms", page_arms(view->arms),
            "share", page_share(view), "points", points, "series", page_series(view), "decisions",
            page_decisions(view), "decisions_left", (json_int_t)view->decisions_left, "sources",
            page_sources(view), "why", page_why(view), "examples", page_examples(view),
            "examples_left", (json_int_t)view->examples_left);
}

// Checked UTF-8 of any text. The caller frees.
static char *page_utf8(const char *text)
{
    json_t *json = render_json_text(text);
    char *copy = xstrdup(json_string_value(json));
    json_decref(json);
    return copy;
}

char *rollout_page(const struct rollout_view *view, struct error *err)
{
    if (page_missing(PAGE_ROLLOUT)) {
        error_set(err, -ENOSYS, "failed to report as HTML: %s", page_missing(PAGE_ROLLOUT));
        return NULL;
    }
    char *raw = rollout_sentence(view), *sentence = page_utf8(raw), *name = page_utf8(view->name),
         *reason = page_utf8(view->reason), *text = NULL;
    json_t *document = page_document(view, sentence);
    char *json = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (json) {
        char *title = xasprintf("upgate: rollout %s, %s", name, rollout_state_title(view->state)),
             *whole = xasprintf("%s %s", sentence, reason);
        text = page_make(PAGE_ROLLOUT, title, whole, json);
        free(title);
        free(whole);
    } else {
        error_set(err, -EIO, "failed to make the report: no memory, or a text that is not UTF-8");
    }
    json_decref(document);
    free(json);
    free(raw);
    free(sentence);
    free(name);
    free(reason);
    return text;
}
