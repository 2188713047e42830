// SPDX-License-Identifier: Apache-2.0
// The status on a terminal: state and reason first, then arms, evidence, sources, last decisions.
// Reads the view, writes the stream it is given; the verb redraws it.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/rollout/rollout_words.h"
#include "reports/render/text/screen.h"

enum { STATUS_WIDTH = 100, STATUS_LABEL = 12, STATUS_DECISIONS = 5 };

#define STATUS_DAY_NS INT64_C(86400000000000)

struct status {
    struct strbuf out;
    const struct rollout_view *view;
    bool colour;
};

// Is it of the day on which the store was read? In UTC, as all times here are.
static bool status_today(const struct rollout_view *view, int64_t wall_ns)
{
    return wall_ns / STATUS_DAY_NS == view->read_ns / STATUS_DAY_NS;
}

static enum screen_style status_style(enum rollout_state state)
{
    switch (state) {
    case ROLLOUT_PROMOTED:
        return SCREEN_STYLE_PASS;
    case ROLLOUT_ROLLED_BACK:
    case ROLLOUT_FAILED:
        return SCREEN_STYLE_FAIL;
    case ROLLOUT_PAUSED:
    case ROLLOUT_ABORTED:
        return SCREEN_STYLE_INCONCLUSIVE;
    default:
        return SCREEN_STYLE_BOLD;
    }
}

static enum screen_style status_verdict_style(enum rollout_verdict verdict)
{
    return verdict == ROLLOUT_PASS    ? SCREEN_STYLE_PASS
            : verdict == ROLLOUT_FAIL ? SCREEN_STYLE_FAIL
                                      : SCREEN_STYLE_PLAIN;
}

// A name of the store that has its column: nothing in it moves the cursor.
static char *status_fit(const char *raw, int columns)
{
    char *clean = screen_clean(raw, false), *fit = screen_fit(clean, columns, false);
    free(clean);
    return fit;
}

static void status_line(
        struct status *status, const char *label, enum screen_style style, const char *raw)
{
    char *text = screen_clean(raw, false);
    struct strbuf wrapped = {0};
    screen_pad(&status->out, label, STATUS_LABEL, false);
    screen_wrap(&wrapped, text, STATUS_WIDTH, STATUS_LABEL, STATUS_LABEL);
    screen_style(&status->out, style, status->colour, wrapped.text ? wrapped.text : "\n");
    strbuf_free(&wrapped);
    free(text);
}

// Columns after the label, each `width` wide and right-aligned.
static void status_row(struct status *status, const char *label, const char *const *cells,
        const int *widths, int count)
{
    screen_pad(&status->out, label, STATUS_LABEL, false);
    for (int i = 0; i < count; i++) {
        char *text = screen_fit(cells[i], widths[i] - 1, false);
        screen_pad(&status->out, text, widths[i], true);
        free(text);
    }
    strbuf_add(&status->out, "\n");
}

static void status_head(struct status *status)
{
    const struct rollout_view *view = status->view;
    char since[NUMBERS_SIZE];
    const struct rollout_view_stage *stage = rollout_view_stage(view, view->stage);
    char *name = screen_clean(view->name, false),
         *stage_name = stage ? status_fit(stage->name, 20) : NULL;
    char *state = xasprintf("%s", rollout_state_title(view->state)),
         *where = stage ? xasprintf("stage %s (%" PRId64 " of %zu), ", stage_name, view->stage + 1,
                                  view->stage_count)
                        : xstrdup("");
    for (char *letter = state; *letter; letter++)
        *letter = (char)(*letter >= 'a' && *letter <= 'z' ? *letter - 32 : *letter);
    screen_style(&status->out, status_style(view->state), status->colour, state);
    rollout_clock(view->since_ns, since);
    strbuf_add(&status->out, "  %s%s to the candidate, since %s (%s)  %s\n", where,
            rollout_percent(view->percent, NUMBERS_BUFFER),
            status_today(view, view->since_ns) && strlen(since) > 11 ? since + 11 : since,
            rollout_ago(view->read_ns - view->since_ns, NUMBERS_BUFFER), name);
    if (view->reason[0])
        status_line(status, "why", SCREEN_STYLE_PLAIN, view->reason);
    char *warnings = rollout_warnings(view), *rest = warnings, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line)
            status_line(status, "warning", SCREEN_STYLE_INCONCLUSIVE, line);
    free(warnings);
    free(where);
    free(state);
    free(stage_name);
    free(name);
}

enum { ARM_CELLS = 7 };
static const int arm_widths[ARM_CELLS] = {13, 10, 12, 10, 8, 10, 10};

static void status_arm(struct status *status, const char *label, const struct rollout_arm *arm)
{
    const char *cells[] = {numbers_count((int64_t)arm->sum.requests, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.errors, NUMBERS_BUFFER),
            rollout_rate(arm->sum.errors, arm->sum.requests, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.rejected, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.wrong, NUMBERS_BUFFER),
            rollout_ms(arm->p50_s, NUMBERS_BUFFER), rollout_ms(arm->p99_s, NUMBERS_BUFFER)};
    status_row(status, label, cells, arm_widths, ARM_CELLS);
}

static void status_arms(struct status *status)
{
    static const char *const heads[] = {
            "requests", "errors", "error rate", "rejected", "wrong", "p50", "p99"};
    const struct rollout_view_stage *stage = rollout_view_stage(status->view, status->view->stage);
    const struct rollout_arm *arms = stage ? stage->arms : status->view->arms;
    strbuf_add(&status->out, "\n");
    status_row(status, stage ? "this stage" : "all stages", heads, arm_widths, ARM_CELLS);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        status_arm(status,
                stage && stage->aa && arm == CANARY_CANDIDATE ? "baseline 2"
                                                              : rollout_arm_word(arm),
                &arms[arm]);
}

static void status_cell(struct status *status, const struct rollout_series *series)
{
    static const int widths[] = {12, 12, 12, 14};
    const struct rollout_point *point = &series->points[series->count - 1];
    char *missing = rollout_missing(status->view, series->metric, point),
         *title = status_fit(rollout_metric_title(series->metric), 14);
    char against[NUMBERS_SIZE] = "-";
    if (isfinite(point->evidence) && isfinite(point->needed))
        snprintf(against, sizeof against, "%.1f of %.1f", point->evidence, point->needed);
    const char *cells[] = {rollout_cell_value(series->metric, point->value, NUMBERS_BUFFER),
            rollout_cell_value(series->metric, point->high, NUMBERS_BUFFER),
            rollout_cell_value(series->metric, point->threshold, NUMBERS_BUFFER), against};
    screen_pad(&status->out, title, 15, false);
    for (int i = 0; i < 4; i++)
        screen_pad(&status->out, cells[i], widths[i], true);
    strbuf_add(&status->out, "  ");
    screen_style(&status->out, status_verdict_style(point->verdict), status->colour,
            rollout_verdict_word(point->verdict));
    if (point->verdict == ROLLOUT_UNDECIDED)
        strbuf_add(&status->out, ": %s", missing);
    const struct rollout_view_stage *stage = rollout_view_stage(status->view, series->stage);
    if (stage && series->stage != status->view->stage) {
        char *name = status_fit(stage->name, 20);
        strbuf_add(&status->out, " in stage %s", name);
        free(name);
    }
    strbuf_add(&status->out, "\n");
    free(title);
    free(missing);
}

static void status_evidence(struct status *status)
{
    size_t shown = 0;
    for (size_t i = 0; i < status->view->series_count; i++) {
        const struct rollout_series *series = &status->view->series[i];
        bool here = series->stage == status->view->stage;
        if (rollout_ended(status->view) ? !rollout_holds(status->view, series) : !here)
            continue;
        if (shown++ == 0)
            strbuf_add(&status->out, "\n%-15s%12s%12s%12s%14s  verdict\n", "evidence", "change",
                    "at most", "allowed", "against it");
        status_cell(status, series);
    }
    const struct rollout_view_stage *stage = rollout_view_stage(status->view, status->view->stage);
    if (!stage || rollout_ended(status->view) || stage->begin_s < 0)
        return;
    int64_t from_s = stage->judged_from_s >= 0 ? stage->judged_from_s : stage->begin_s,
            gone = status->view->read_ns - from_s * 1000000000;
    if (stage->soak_ns > 0)
        strbuf_add(&status->out, "%-15s%s of %s%s\n", "soak",
                rollout_ago(gone < stage->soak_ns ? gone : stage->soak_ns, NUMBERS_BUFFER),
                numbers_duration(stage->soak_ns, NUMBERS_BUFFER), gone < 0 ? " (warming up)" : "");
    if (stage->requests > 0)
        strbuf_add(&status->out, "%-15s%s of %s\n", "requests",
                numbers_count((int64_t)stage->arms[CANARY_CANDIDATE].sum.requests, NUMBERS_BUFFER),
                numbers_count(stage->requests, NUMBERS_BUFFER));
}

static void status_sources(struct status *status)
{
    static const int widths[] = {13, 12, 12, 12, 12, 18};
    static const char *const heads[] = {"seen", "kept", "dropped", "lost", "late", "last"};
    if (status->view->source_count)
        strbuf_add(&status->out, "\n");
    for (size_t i = 0; i < status->view->source_count; i++) {
        const struct rollout_view_source *source = &status->view->sources[i];
        const int64_t numbers[] = {
                source->seen, source->kept, source->dropped, source->lost, source->late};
        char buf[5][NUMBERS_SIZE], last[NUMBERS_SIZE],
                *kind = status_fit(source->kind, STATUS_LABEL - 1);
        const char *cells[6];
        if (i == 0)
            status_row(status, "sources", heads, widths, 6);
        for (int j = 0; j < 5; j++)
            cells[j] = numbers[j] < 0 ? "-" : numbers_count(numbers[j], buf[j]);
        cells[5] = source->last_ns > 0 ? rollout_ago(status->view->read_ns - source->last_ns, last)
                                       : "never";
        status_row(status, kind, cells, widths, 6);
        free(kind);
    }
}

static void status_decisions(struct status *status)
{
    const struct rollout_view *view = status->view;
    size_t from =
            view->decision_count > STATUS_DECISIONS ? view->decision_count - STATUS_DECISIONS : 0;
    if (view->decision_count)
        strbuf_add(&status->out, "\n%s (UTC)\n",
                from || view->decisions_left ? "last decisions" : "decisions");
    for (size_t i = view->decision_count; i-- > from;) {
        const struct rollout_decision *decision = &view->decisions[i];
        char at[NUMBERS_SIZE];
        char *text = xasprintf("%s: %s, %s to the candidate, by %s: %s",
                rollout_rule_title(decision->rule), decision->state_to,
                rollout_percent(decision->percent_to, NUMBERS_BUFFER), decision->who,
                decision->reason);
        const char *when = rollout_clock(decision->at_ns, at);
        if (strlen(at) > 19) { // "2026-11-21 12:00:00 UTC": the time of the day, or "11-21 12:00"
                               // of another one
            bool today = status_today(view, decision->at_ns);
            when = at + (today ? 11 : 5);
            at[today ? 19 : 16] = 0;
        }
        status_line(status, when, SCREEN_STYLE_PLAIN, text);
        free(text);
    }
}

void rollout_view_status(const struct rollout_view *view, FILE *stream, bool colour)
{
    struct status status = {.view = view, .colour = colour};
    status_head(&status);
    status_arms(&status);
    status_evidence(&status);
    status_sources(&status);
    status_decisions(&status);
    fputs(status.out.text, stream);
    strbuf_free(&status.out);
}
