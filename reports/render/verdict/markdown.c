// SPDX-License-Identifier: Apache-2.0
// Markdown of a judged run for a pull request or a step summary. Reads struct report. Names and
// texts of the store are escaped: none can open a tag, end a table cell, mention a person or link
// an issue.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/numbers.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/forms.h"

enum {
    MARKDOWN_RESERVE = 16384, // for what ends the document: closing tags, counts, footer
    MARKDOWN_LIST_MAX = 50,   // findings, crashes, notes
    MARKDOWN_OPEN_MAX = 30    // passed rows that a passing run shows unfolded
};

struct markdown {
    struct strbuf out;
    const struct report *report;
    size_t bytes_max;
    int omitted; // rows of the table being written that did not fit
};

static const char *const markdown_marks[REPORT_VERDICT_COUNT] = {
        [REPORT_VERDICT_FAIL] = "\xe2\x9d\x8c FAIL",                             // ❌
        [REPORT_VERDICT_INCONCLUSIVE] = "\xe2\x9a\xa0\xef\xb8\x8f inconclusive", // ⚠️
        [REPORT_VERDICT_PASS] = "\xe2\x9c\x85 pass",                             // ✅
        [REPORT_VERDICT_UNCHECKED] = "not checked",
};

// Append the piece if the document stays within its limit. The piece is emptied either way.
static bool markdown_add(struct markdown *md, struct strbuf *piece)
{
    bool fits = md->out.len + piece->len + MARKDOWN_RESERVE <= md->bytes_max;
    if (fits && piece->len)
        strbuf_add_bytes(&md->out, piece->text, piece->len);
    strbuf_free(piece);
    return fits;
}

static void markdown_head(struct markdown *md)
{
    const struct report *report = md->report;
    struct strbuf *out = &md->out;
    static const char *const titles[REPORT_VERDICT_COUNT] = {
            [REPORT_VERDICT_FAIL] = "\xe2\x9d\x8c upgate: FAIL",
            [REPORT_VERDICT_INCONCLUSIVE] = "\xe2\x9a\xa0\xef\xb8\x8f upgate: INCONCLUSIVE",
            [REPORT_VERDICT_PASS] = "\xe2\x9c\x85 upgate: PASS",
            [REPORT_VERDICT_UNCHECKED] = "\xe2\x9a\xa0\xef\xb8\x8f upgate: INCONCLUSIVE",
    };
    strbuf_add(out, "## %s\n\n**", titles[report->verdict]);
    markdown_put(out, "", report->reason, "**\n\nCandidate ");
    markdown_name(out, report->side_names[1]);
    strbuf_add(out, " against baseline ");
    markdown_name(out, report->side_names[0]);
    char *run = xasprintf("%.8s", report->uuid);
    strbuf_add(out, ", %d workload%s, run ", report->workload_count,
            report->workload_count == 1 ? "" : "s");
    markdown_name(out, run);
    free(run);
    strbuf_add(out, " of %s", numbers_time(report->started_wall_ns, NUMBERS_BUFFER));
    if (report->ended_wall_ns >= 0)
        strbuf_add(out, ", %s",
                numbers_duration(report->ended_wall_ns - report->started_wall_ns, NUMBERS_BUFFER));
    if (strcmp(report->kind, "aa") == 0)
        strbuf_add(out, ". A/A: both sides are the same");
    if (strcmp(report->state, "done") != 0)
        markdown_put(out, ". **The run is ", report->state, "**");
    strbuf_add(out, ".\n");
    if (report->margin_note)
        markdown_put(out, "\nMargins: ", report->margin_note, "\n");
    strbuf_add(out, "\n");
}

static void markdown_table_head(struct markdown *md)
{
    strbuf_add(&md->out,
            "| verdict | workload | metric | baseline | candidate | change | %s | margin | pairs | "
            "|\n|---|---|---|--:|--:|--:|:-:|--:|--:|---|\n",
            cell_confidence(md->report->cells, md->report->cell_count, NUMBERS_BUFFER));
    md->omitted = 0;
}

static void markdown_row(struct markdown *md, const struct report_cell *cell)
{
    char a[NUMBERS_SIZE], b[NUMBERS_SIZE];
    struct strbuf row = {0};
    cell_medians(cell, a, b);
    bool bold = cell->gating && cell->verdict == REPORT_VERDICT_FAIL;
    strbuf_add(&row, "| %s%s | ", cell->gating ? markdown_marks[cell->verdict] : "observed",
            cell_improved(cell) ? ", improved" : "");
    markdown_name(&row, cell->workload);
    strbuf_add(&row, " | ");
    markdown_name(&row, cell->metric);
    strbuf_add(&row, "%s | %s | %s | %s%s%s | %s | %s | %lld | ",
            cell->higher_is_better ? " \xe2\x86\x91" : "", a, b, bold ? "**" : "", // ↑
            cell_change(cell, NUMBERS_BUFFER), bold ? "**" : "",
            cell_interval(cell, NUMBERS_BUFFER), cell_margin(cell, NUMBERS_BUFFER),
            (long long)cell->pairs);
    char *remark = cell_remark(cell);
    markdown_text(&row, remark);
    free(remark);
    strbuf_add(&row, " |\n");
    md->omitted += !markdown_add(md, &row);
}

static void markdown_table_end(struct markdown *md)
{
    if (md->omitted)
        strbuf_add(&md->out,
                "\n%d more row%s did not fit here: `sqlite3 RUN.db 'select * from v_cell'` has all.\n",
                md->omitted, md->omitted == 1 ? "" : "s");
    strbuf_add(&md->out, "\n");
}

static bool markdown_matters(const struct report_cell *cell)
{
    return cell->gating &&
            (cell->verdict == REPORT_VERDICT_FAIL || cell->verdict == REPORT_VERDICT_INCONCLUSIVE);
}

static void markdown_legend(struct markdown *md)
{
    const struct report *report = md->report;
    bool higher = false;
    for (int i = 0; i < report->cell_count; i++)
        higher = higher || report->cells[i].higher_is_better;
    char *steps = cell_steps_legend(report->cells, report->cell_count);
    strbuf_add(&md->out,
            "Medians over launches; the change and its interval are of candidate over baseline, "
            "from pairs of launches. %s",
            higher ? "\xe2\x86\x91 higher is better; lower is better for the rest." // ↑
                   : "Lower is better.");
    markdown_put(&md->out, "", steps, "\n\n");
    free(steps);
}

static void markdown_cells(struct markdown *md)
{
    const struct report *report = md->report;
    int matter = 0;
    for (int i = 0; i < report->cell_count; i++)
        matter += markdown_matters(&report->cells[i]);
    if (report->cell_count == 0) {
        strbuf_add(&md->out, "No cells: nothing was measured on both sides.\n\n");
        return;
    }
    if (matter) {
        markdown_table_head(md);
        for (int i = 0; i < report->cell_count; i++)
            if (markdown_matters(&report->cells[i]))
                markdown_row(md, &report->cells[i]);
        markdown_table_end(md);
    }
    int rest = report->cell_count - matter;
    int passed = report_count(report, REPORT_VERDICT_PASS), observed = 0;
    for (int i = 0; i < report->cell_count; i++)
        observed += !report->cells[i].gating;
    if (rest) {
        bool open = matter == 0 && rest <= MARKDOWN_OPEN_MAX;
        strbuf_add(&md->out, "<details%s><summary>%d passed", open ? " open" : "", passed);
        if (observed)
            strbuf_add(&md->out, ", %d observed (never gating)", observed);
        if (rest - passed - observed)
            strbuf_add(&md->out, ", %d not checked", rest - passed - observed);
        strbuf_add(&md->out, "</summary>\n\n");
        markdown_table_head(md);
        for (int i = 0; i < report->cell_count; i++)
            if (!markdown_matters(&report->cells[i]))
                markdown_row(md, &report->cells[i]);
        markdown_table_end(md);
        strbuf_add(&md->out, "</details>\n\n");
    }
    markdown_legend(md);
}

static void markdown_findings(struct markdown *md)
{
    static const char *const words[] = {[REPORT_EFFECT_FAIL] = "\xe2\x9d\x8c FAIL",
            [REPORT_EFFECT_INCONCLUSIVE] = "\xe2\x9a\xa0\xef\xb8\x8f inconclusive",
            [REPORT_EFFECT_NOTE] = "note"};
    const struct report *report = md->report;
    for (int i = 0; i < report->finding_count && i < MARKDOWN_LIST_MAX; i++) {
        const struct report_finding *finding = &report->findings[i];
        struct strbuf line = {0};
        strbuf_add(&line, "- %s: ", words[finding->effect]);
        if (finding->workload) {
            markdown_name(&line, finding->workload);
            strbuf_add(&line, ": ");
        }
        markdown_put(&line, "", finding->text, "\n");
        markdown_add(md, &line);
    }
    if (report->finding_count > MARKDOWN_LIST_MAX)
        strbuf_add(
                &md->out, "- %d more in `v_finding`\n", report->finding_count - MARKDOWN_LIST_MAX);
    if (report->finding_count)
        strbuf_add(&md->out, "\n");
}

static void markdown_parity(struct markdown *md)
{
    const struct report *report = md->report;
    int bad = 0;
    for (int i = 0; i < report->parity_count; i++)
        bad += report->parity[i].verdict == REPORT_VERDICT_FAIL ||
                report->parity[i].verdict == REPORT_VERDICT_INCONCLUSIVE;
    if (report->parity_count == 0) {
        strbuf_add(&md->out, "**Parity**: not checked, no outputs were compared.\n\n");
        return;
    }
    strbuf_add(&md->out,
            "<details%s><summary>Numerical parity: %d of %d checks without objection</summary>\n\n"
            "| verdict | workload | tensor | rule | error of baseline | of candidate | |\n"
            "|---|---|---|---|--:|--:|---|\n",
            bad ? " open" : "", report->parity_count - bad, report->parity_count);
    md->omitted = 0;
    for (int i = 0; i < report->parity_count; i++) {
        const struct report_parity *parity = &report->parity[i];
        struct strbuf row = {0};
        strbuf_add(&row, "| %s | ", markdown_marks[parity->verdict]);
        markdown_name(&row, parity->workload);
        strbuf_add(&row, " | ");
        markdown_name(&row, parity->tensor);
        markdown_put(&row, " | ", parity->rule, "");
        strbuf_add(&row, " | %s | %s | ", numbers_error(parity->error_a, NUMBERS_BUFFER),
                numbers_error(parity->error_b, NUMBERS_BUFFER));
        if (parity->verdict != REPORT_VERDICT_PASS)
            markdown_text(&row, parity->reason);
        strbuf_add(&row, " |\n");
        md->omitted += !markdown_add(md, &row);
    }
    markdown_table_end(md);
    strbuf_add(&md->out, "</details>\n\n");
}

static void markdown_trust(struct markdown *md)
{
    const struct report *report = md->report;
    strbuf_add(&md->out, "**Trust**: %s",
            report->trust_ok ? "ok" : "breached, what was lost makes the verdict inconclusive");
    for (int i = 0; i < report->ledger_count && i < MARKDOWN_LIST_MAX; i++) {
        const struct report_ledger *ledger = &report->ledger[i];
        if (!ledger->breach && ledger->dropped == 0)
            continue;
        struct strbuf text = {0};
        markdown_put(&text, "; ", ledger->producer, " ");
        markdown_text(&text, ledger->kind);
        strbuf_add(&text, ": %s dropped", numbers_count(ledger->dropped, NUMBERS_BUFFER));
        if (ledger->detail)
            markdown_put(&text, " (", ledger->detail, ")");
        markdown_add(md, &text);
    }
    strbuf_add(&md->out, ".\n\n**Calibration**: %s", report->calibrated ? "" : "not calibrated: ");
    markdown_put(&md->out, "", report->calibration_note, "\n\n");
}

static void markdown_crashes(struct markdown *md)
{
    const struct report *report = md->report;
    for (int i = 0; i < report->crash_count && i < MARKDOWN_LIST_MAX; i++) {
        const struct report_crash *crash = &report->crashes[i];
        struct strbuf text = {0};
        strbuf_add(&text, "<details%s><summary>", i == 0 ? " open" : "");
        markdown_html(&text, crash->workload);
        strbuf_add(&text, ", %s: %s in %lld launch%s</summary>\n\n", report_side_word(crash->side),
                crash_ending(crash, NUMBERS_BUFFER), (long long)crash->launches,
                crash->launches == 1 ? "" : "es");
        if (crash->stderr_tail && *crash->stderr_tail)
            markdown_stderr(&text, crash->stderr_tail);
        else
            strbuf_add(&text, "Nothing on its stderr.\n");
        strbuf_add(&text, "\n</details>\n\n");
        markdown_add(md, &text);
    }
}

static void markdown_notes(struct markdown *md)
{
    const struct report *report = md->report;
    int count = report->note_count;
    for (int i = 0; i < report->workload_count; i++)
        count += report->workloads[i].note != NULL;
    if (count == 0)
        return;
    strbuf_add(&md->out, "<details><summary>%d note%s</summary>\n\n", count, count == 1 ? "" : "s");
    for (int i = 0; i < report->workload_count && i < MARKDOWN_LIST_MAX; i++) {
        const struct report_workload *workload = &report->workloads[i];
        struct strbuf line = {0};
        if (!workload->note)
            continue;
        strbuf_add(&line, "- ");
        markdown_name(&line, workload->name);
        markdown_put(&line, ": ", workload->note, "\n");
        markdown_add(md, &line);
    }
    for (int i = 0; i < report->note_count && i < MARKDOWN_LIST_MAX; i++) {
        struct strbuf line = {0};
        markdown_put(&line, "- ",
                strcmp(report->notes[i].level, "info") == 0 ? "note" : report->notes[i].level,
                ": ");
        markdown_put(&line, "", report->notes[i].text, "\n");
        markdown_add(md, &line);
    }
    strbuf_add(&md->out, "\n</details>\n\n");
}

char *markdown_make(const struct report *report, size_t bytes_max)
{
    struct markdown md = {.report = report, .bytes_max = bytes_max};
    markdown_head(&md);
    markdown_findings(&md);
    markdown_cells(&md);
    markdown_crashes(&md);
    markdown_parity(&md);
    markdown_trust(&md);
    markdown_notes(&md);
    markdown_put(&md.out, "upgate ", report->upgate_version,
            ". `upgate gate RUN.db --policy POLICY.yaml` judges again; "
            "`sqlite3 RUN.db 'select * from v_cell'` shows what the verdict was made of.\n");
    return strbuf_take(&md.out);
}
