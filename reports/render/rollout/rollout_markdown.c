// SPDX-License-Identifier: Apache-2.0
// The report in Markdown, for a ticket or a pull request: outcome and why, arms, evidence,
// decisions, sources, the explanation. Texts of the store act as no markup. Also picks the form of
// a file by its ending.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/recordings_view.h"
#include "reports/render/render.h"
#include "reports/render/rollout/rollout_words.h"
#include "reports/render/text/markdown_text.h"

enum { MARKDOWN_DECISIONS = 100 };

static void markdown_head(struct strbuf *out, const struct rollout_view *view)
{
    char *sentence = rollout_sentence(view);
    const struct rollout_decision *last = rollout_last_decision(view);
    strbuf_add(out, "## Rollout ");
    markdown_name(out, view->name);
    strbuf_add(out, ": %s\n\n**", rollout_state_title(view->state));
    markdown_put(out, "", sentence, "** "); // it names the stage
    markdown_put(out, "", view->reason, "\n\n");
    char *basis = rollout_basis(view), *more = basis, *point;
    while ((point = strsep(&more, "\n")))
        if (*point)
            markdown_put(out, "- ", point, "\n");
    free(basis);
    strbuf_add(out, "\nSince %s", rollout_clock(view->since_ns, NUMBERS_BUFFER));
    if (last) {
        markdown_put(out, ", decided by ", last->who, "");
        markdown_put(out, " (", rollout_rule_title(last->rule), ")");
        if (last->effect_ns >= last->at_ns && last->percent_from != last->percent_to)
            strbuf_add(out, "; the traffic was read back as decided after %s",
                    rollout_effect(last, NUMBERS_BUFFER));
    }
    strbuf_add(out, ".\n\n");
    char *warnings = rollout_warnings(view), *rest = warnings, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line)
            markdown_put(out, "> ", line, "\n\n");
    free(warnings);
    free(sentence);
}

static void markdown_arm(struct strbuf *out, const char *name, const struct rollout_arm *arm)
{
    strbuf_add(out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", name,
            numbers_count((int64_t)arm->sum.requests, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.errors, NUMBERS_BUFFER),
            rollout_rate(arm->sum.errors, arm->sum.requests, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.rejected, NUMBERS_BUFFER),
            numbers_count((int64_t)arm->sum.wrong, NUMBERS_BUFFER),
            rollout_ms(arm->p50_s, NUMBERS_BUFFER), rollout_ms(arm->p99_s, NUMBERS_BUFFER));
}

static void markdown_stage(struct strbuf *out, const struct rollout_view_stage *stage)
{
    const struct canary_second *candidate = &stage->arms[CANARY_CANDIDATE].sum;
    int64_t length_ns = stage->begin_s >= 0 && stage->end_s >= stage->begin_s
            ? (stage->end_s - stage->begin_s) * 1000000000
            : -1;
    strbuf_add(out, "| %" PRId64 " | ", stage->number + 1);
    markdown_text(out, stage->name);
    strbuf_add(out, " | %s | %s | %s | %s | %s | %s | ",
            rollout_percent(stage->percent, NUMBERS_BUFFER),
            stage->begin_s >= 0 ? rollout_clock(stage->begin_s * 1000000000, NUMBERS_BUFFER) : "-",
            numbers_duration(length_ns, NUMBERS_BUFFER),
            numbers_count((int64_t)candidate->requests, NUMBERS_BUFFER),
            rollout_rate(candidate->errors, candidate->requests, NUMBERS_BUFFER),
            rollout_ms(stage->arms[CANARY_CANDIDATE].p99_s, NUMBERS_BUFFER));
    markdown_put(out, "",
            stage->result                 ? stage->result
                    : stage->begin_s >= 0 ? "not over"
                                          : "not begun",
            " |\n");
}

static void markdown_evidence(struct strbuf *out, const struct rollout_view *view)
{
    if (!view->series_count)
        return;
    strbuf_add(out,
            "\n### Evidence\n\n| stage | metric | candidate over baseline | at most | allowed | evidence against it | verdict | |\n"
            "|---|---|--:|--:|--:|--:|---|---|\n");
    for (size_t i = 0; i < view->series_count; i++) {
        const struct rollout_series *series = &view->series[i];
        const struct rollout_point *point = &series->points[series->count - 1];
        const struct rollout_view_stage *stage = rollout_view_stage(view, series->stage);
        char *missing = rollout_missing(view, series->metric, point);
        markdown_put(out, "| ", stage ? stage->name : "-", " | ");
        markdown_text(out, rollout_metric_title(series->metric));
        strbuf_add(out, " | %s | %s | %s | ",
                rollout_cell_value(series->metric, point->value, NUMBERS_BUFFER),
                rollout_cell_value(series->metric, point->high, NUMBERS_BUFFER),
                rollout_cell_value(series->metric, point->threshold, NUMBERS_BUFFER));
        if (isfinite(point->evidence) && isfinite(point->needed))
            strbuf_add(out, "%.1f of %.1f", point->evidence, point->needed);
        strbuf_add(out, " | %s | %s |\n", rollout_verdict_word(point->verdict),
                point->verdict == ROLLOUT_UNDECIDED ? missing : "");
        free(missing);
    }
    strbuf_add(out,
            "\nEvidence is the natural logarithm of the e-value: a candidate that is not worse reaches what is needed with the probability alpha at "
            "most, however often one looks. `at most` is the upper bound of the confidence sequence.\n");
}

static void markdown_decisions(struct strbuf *out, const struct rollout_view *view)
{
    size_t from = view->decision_count > MARKDOWN_DECISIONS
            ? view->decision_count - MARKDOWN_DECISIONS
            : 0;
    strbuf_add(out, "\n### Decisions\n\n");
    if (!view->decision_count)
        strbuf_add(out, "None yet.\n");
    else
        strbuf_add(out,
                "| time | rule | state | traffic | carried out after | who | reason |\n|---|---|---|---|--:|---|---|\n");
    for (size_t i = from; i < view->decision_count; i++) {
        const struct rollout_decision *decision = &view->decisions[i];
        strbuf_add(out, "| %s | ", rollout_clock(decision->at_ns, NUMBERS_BUFFER));
        markdown_put(out, "", rollout_rule_title(decision->rule), " | ");
        markdown_text(out, decision->state_to);
        strbuf_add(out, " | %s -> %s | %s | ",
                rollout_percent(decision->percent_from, NUMBERS_BUFFER),
                rollout_percent(decision->percent_to, NUMBERS_BUFFER),
                rollout_effect(decision, NUMBERS_BUFFER));
        markdown_put(out, "", decision->who, " | ");
        markdown_put(out, "", decision->reason, " |\n");
    }
    if (from || view->decisions_left)
        strbuf_add(out, "\n%" PRId64 " older ones are in the store.\n",
                (int64_t)from + view->decisions_left);
}

static void markdown_sources(struct strbuf *out, const struct rollout_view *view)
{
    if (view->source_count)
        strbuf_add(out,
                "\n### Sources\n\n| source | seen | kept | not understood | lost | late | |\n|---|--:|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < view->source_count; i++) {
        const struct rollout_view_source *source = &view->sources[i];
        const int64_t numbers[] = {
                source->seen, source->kept, source->dropped, source->lost, source->late};
        markdown_put(out, "| ", source->kind, "");
        for (int j = 0; j < 5; j++) {
            strbuf_add(
                    out, " | %s", numbers[j] < 0 ? "-" : numbers_count(numbers[j], NUMBERS_BUFFER));
        }
        markdown_put(out, " | ", source->problem ? source->problem : "", " |\n");
    }
}

static void markdown_why(struct strbuf *out, const struct rollout_view *view)
{
    struct rollout_why why;
    rollout_why_make(view, &why);
    if (why.diff) {
        char *section = recordings_view_markdown(why.diff,
                view->state == ROLLOUT_ROLLED_BACK
                        ? "\n### Why: both arms recorded at the breach"
                        : "\n### Both arms recorded, when the evidence pointed at the candidate");
        strbuf_add_bytes(out, section, strlen(section));
        free(section);
    } else if (*why.text) {
        markdown_put(out, "\n### Why\n\n", why.text, "\n");
    }
    rollout_why_clear(&why);
}

static void markdown_examples(struct strbuf *out, const struct rollout_view *view)
{
    if (view->example_count)
        strbuf_add(out,
                "\n### Answers that differ\n\n| request | distance | baseline | candidate |\n|---|--:|---|---|\n");
    for (size_t i = 0; i < view->example_count; i++) {
        const struct rollout_example *example = &view->examples[i];
        markdown_put(out, "| ", example->request ? example->request : "", "");
        strbuf_add(out, isfinite(example->distance) ? " | %.2g | " : " | - | ", example->distance);
        markdown_put(out, "", example->baseline ? example->baseline : "", " | ");
        markdown_put(out, "", example->candidate ? example->candidate : "", " |\n");
    }
}

char *rollout_markdown(const struct rollout_view *view)
{
    struct strbuf out = {0};
    markdown_head(&out, view);
    strbuf_add(&out,
            "| arm | requests | errors | error rate | rejected | wrong | p50 | p99 |\n|---|--:|--:|--:|--:|--:|--:|--:|\n");
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        markdown_arm(&out, rollout_arm_word(arm), &view->arms[arm]);
    markdown_why(&out, view);
    markdown_evidence(&out, view);
    markdown_decisions(&out, view);
    if (view->stage_count)
        strbuf_add(&out,
                "\n### Stages\n\n| # | stage | traffic | begun | length | requests of the candidate | error rate | p99 | result |\n"
                "|--:|---|--:|---|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < view->stage_count; i++)
        markdown_stage(&out, &view->stages[i]);
    markdown_sources(&out, view);
    markdown_examples(&out, view);
    return strbuf_take(&out);
}

int rollout_view_write(const struct rollout_view *view, const char *path, struct error *err)
{
    static const char *const endings[] = {".html", ".md", ".json", NULL};
    const char *ending = render_ending(path, endings);
    struct error local = {0};
    if (!ending)
        return error_set(err, -EINVAL,
                "failed to report to '%s': the ending picks the form: .html (the whole report), .md (Markdown) or .json (upgate.rollout/1)",
                path);
    char *text = strcmp(ending, ".html") == 0 ? rollout_page(view, &local)
            : strcmp(ending, ".md") == 0      ? rollout_markdown(view)
                                         : render_json_dump(rollout_view_json(view), 15, &local);
    if (!text)
        return error_set(err, local.code, "%s", local.text);
    int rc = render_write(path, text, err);
    free(text);
    return rc;
}
