// SPDX-License-Identifier: Apache-2.0
// The terminal table: verdict first, then why, the cells, what the verdict rests on, and what to do
// next. Reads struct report, writes the stream. Every text of the store is cleaned on its way.
#include "reports/render/verdict/verdict_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/render.h"
#include "reports/render/text/numbers.h"
#include "reports/render/verdict/cell.h"

enum {
    TABLE_PARITY_MAX = 12,  // lines of parity checks that pass
    TABLE_CRASHES_MAX = 6,  // kinds of bad endings
    TABLE_STDERR_LINES = 8, // the end of a traceback
    TABLE_NOTES_MAX = 12,
    TABLE_CERTIFICATES_MAX = 8
};

enum screen_style table_style(enum report_verdict verdict)
{
    static const enum screen_style styles[REPORT_VERDICT_COUNT] = {
            [REPORT_VERDICT_FAIL] = SCREEN_STYLE_FAIL,
            [REPORT_VERDICT_INCONCLUSIVE] = SCREEN_STYLE_INCONCLUSIVE,
            [REPORT_VERDICT_PASS] = SCREEN_STYLE_PASS,
            [REPORT_VERDICT_UNCHECKED] = SCREEN_STYLE_DIM,
    };
    return styles[verdict];
}

static void table_rule(struct table *table)
{
    screen_repeat(&table->out, table->utf8 ? "\xe2\x94\x81" : "=", table->width); // ━
    strbuf_add(&table->out, "\n");
}

static void table_banner(struct table *table, const struct report *report)
{
    static const struct {
        const char *word;
        enum screen_style style;
    } banners[REPORT_VERDICT_COUNT] = {
            [REPORT_VERDICT_FAIL] = {"  FAIL  ", SCREEN_STYLE_BANNER_FAIL},
            [REPORT_VERDICT_INCONCLUSIVE] = {"  INCONCLUSIVE  ", SCREEN_STYLE_BANNER_INCONCLUSIVE},
            [REPORT_VERDICT_PASS] = {"  PASS  ", SCREEN_STYLE_BANNER_PASS},
            [REPORT_VERDICT_UNCHECKED] = {"  INCONCLUSIVE  ", SCREEN_STYLE_BANNER_INCONCLUSIVE},
    };
    const char *word = banners[report->verdict].word;
    table_rule(table);
    screen_style(&table->out, banners[report->verdict].style, table->color, word);
    strbuf_add(&table->out, "  ");
    char *reason = screen_clean(report->reason, table->utf8);
    int indent = (int)strlen(word) + 2;
    screen_wrap(&table->out, reason, table->width, indent, indent);
    free(reason);
    table_rule(table);
}

static void table_run(struct table *table, const struct report *report)
{
    table_line(table, "baseline", SCREEN_STYLE_BOLD, report->side_names[0]);
    table_line(table, "candidate", SCREEN_STYLE_BOLD, report->side_names[1]);
    struct strbuf text = {0};
    strbuf_add(&text, "%.8s of %s, %d workload%s", report->uuid,
            numbers_time(report->started_wall_ns, NUMBERS_BUFFER), report->workload_count,
            report->workload_count == 1 ? "" : "s");
    if (report->ended_wall_ns >= 0)
        strbuf_add(&text, ", %s",
                numbers_duration(report->ended_wall_ns - report->started_wall_ns, NUMBERS_BUFFER));
    if (strcmp(report->kind, "aa") == 0)
        strbuf_add(&text, ", A/A: both sides are the same");
    if (strcmp(report->state, "done") != 0)
        strbuf_add(&text, ", %s", report->state);
    table_take(table, "run", SCREEN_STYLE_BOLD, strbuf_take(&text));
    if (report->margin_note)
        table_line(table, "margins", SCREEN_STYLE_BOLD, report->margin_note);
}

// What is no number of a cell and still decided, or should be known.
static void table_findings(struct table *table, const struct report *report, bool notes)
{
    static const struct {
        const char *word;
        enum report_verdict verdict;
    } effects[] = {
            [REPORT_EFFECT_FAIL] = {"FAIL", REPORT_VERDICT_FAIL},
            [REPORT_EFFECT_INCONCLUSIVE] = {"inconclusive", REPORT_VERDICT_INCONCLUSIVE},
            [REPORT_EFFECT_NOTE] = {"note", REPORT_VERDICT_UNCHECKED},
    };
    bool begun = false;
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        if ((finding->effect == REPORT_EFFECT_NOTE) != notes)
            continue;
        if (!begun && !notes)
            strbuf_add(&table->out, "\n");
        begun = true;
        const char *of = finding->workload;
        table_take(table, effects[finding->effect].word,
                table_style(effects[finding->effect].verdict),
                xasprintf("%s%s%s", of ? of : "", of ? ": " : "", finding->text));
    }
}

static void table_parity(struct table *table, const struct report *report)
{
    int passed = 0;
    for (int i = 0; i < report->parity_count; i++) {
        const struct report_parity *parity = &report->parity[i];
        passed += parity->verdict == REPORT_VERDICT_PASS;
        if (parity->verdict == REPORT_VERDICT_PASS && passed > TABLE_PARITY_MAX)
            continue;
        struct strbuf text = {0};
        strbuf_add(&text, "%s: %s %s",
                parity->verdict == REPORT_VERDICT_FAIL ? "FAIL"
                                                       : report_verdict_word(parity->verdict),
                parity->workload, parity->tensor);
        if (isfinite(parity->error_a) || isfinite(parity->error_b))
            strbuf_add(&text, ", error %s -> %s", numbers_error(parity->error_a, NUMBERS_BUFFER),
                    numbers_error(parity->error_b, NUMBERS_BUFFER));
        strbuf_add(&text, " (%s)", parity->rule);
        if (parity->verdict != REPORT_VERDICT_PASS)
            strbuf_add(&text, ": %s", parity->reason);
        table_take(table, i ? "" : "parity", table_style(report->parity[0].verdict),
                strbuf_take(&text));
    }
    if (passed > TABLE_PARITY_MAX)
        table_take(table, "", SCREEN_STYLE_PLAIN,
                xasprintf("pass: %d more", passed - TABLE_PARITY_MAX));
    if (report->parity_count == 0)
        table_line(table, "parity", SCREEN_STYLE_BOLD, "not checked: no outputs were compared");
}

// "nothing lost of 16,000 records (steps), 480 blocks (turns)"
static void table_trust_kept(struct strbuf *text, const struct report *report)
{
    bool begun = false, lost = false;
    for (int i = 0; i < report->ledger_count; i++) {
        const struct report_ledger *ledger = &report->ledger[i];
        lost = lost || ledger->dropped > 0;
        if (ledger->dropped || ledger->breach || ledger->seen <= 0)
            continue;
        strbuf_add(text, "%s%s %s (%s)", begun ? ", " : "nothing lost of ",
                numbers_count(ledger->seen, NUMBERS_BUFFER), ledger->kind, ledger->producer);
        begun = true;
    }
    if (!begun)
        strbuf_add(text,
                lost                           ? "nothing was lost that the verdict needs"
                        : report->ledger_count ? "nothing was lost"
                                               : "nothing was counted");
}

static void table_trust(struct table *table, const struct report *report)
{
    enum screen_style style = report->trust_ok ? SCREEN_STYLE_PASS : SCREEN_STYLE_INCONCLUSIVE;
    struct strbuf text = {0};
    strbuf_add(&text,
            report->trust_ok ? "ok: " : "BREACHED: what was lost makes the verdict inconclusive");
    if (report->trust_ok)
        table_trust_kept(&text, report);
    table_take(table, "trust", style, strbuf_take(&text));
    for (int i = 0; i < report->ledger_count; i++) {
        const struct report_ledger *ledger = &report->ledger[i];
        if (!ledger->breach && ledger->dropped == 0)
            continue;
        strbuf_add(&text, "%s%s %s: %s dropped", ledger->breach ? "breach: " : "", ledger->producer,
                ledger->kind, numbers_count(ledger->dropped, NUMBERS_BUFFER));
        if (ledger->seen >= 0)
            strbuf_add(&text, " of %s", numbers_count(ledger->seen, NUMBERS_BUFFER));
        if (ledger->detail)
            strbuf_add(&text, ", %s", ledger->detail);
        table_take(table, "", SCREEN_STYLE_PLAIN, strbuf_take(&text));
    }
}

static void table_calibration(struct table *table, const struct report *report)
{
    table_take(table, "calibration",
            report->calibrated ? SCREEN_STYLE_PASS : SCREEN_STYLE_INCONCLUSIVE,
            xasprintf("%s%s",
                    report->calibrated ? "" : "NOT CALIBRATED: ", report->calibration_note));
    // What covers is in the note; what does not is listed, so that it can be seen why.
    for (int i = 0;
            !report->calibrated && i < report->certificate_count && i < TABLE_CERTIFICATES_MAX;
            i++) {
        const struct report_certificate *certificate = &report->certificates[i];
        struct strbuf text = {0};
        strbuf_add(&text, "%s %s (%s, turns of %s): ", certificate->scope, certificate->metric,
                certificate->kind, certificate->interleave);
        if (certificate->objection)
            strbuf_add(&text, "no certificate: %s", certificate->objection);
        else
            strbuf_add(&text, "certified for a margin of %s and a spread of pairs up to %s",
                    numbers_setting(certificate->margin, NUMBERS_BUFFER),
                    numbers_fraction(certificate->pair_sd, NUMBERS_BUFFER));
        table_take(table, "", SCREEN_STYLE_PLAIN, strbuf_take(&text));
    }
}

// The last lines of what a workload said, each behind a bar.
static void table_stderr(struct table *table, const char *tail)
{
    const char *line = tail + strlen(tail);
    int lines = 0;
    while (line > tail && (line[-1] == '\n' || line[-1] == ' '))
        line--;
    const char *end = line;
    for (; line > tail; line--)
        if (line[-1] == '\n' && ++lines == TABLE_STDERR_LINES)
            break;
    while (line < end) {
        size_t len = strcspn(line, "\n");
        if (len > (size_t)(end - line))
            len = (size_t)(end - line);
        struct strbuf text = {0};
        strbuf_add_bytes(&text, line, len);
        char *clean = screen_clean(text.text, table->utf8);
        char *fit = screen_fit(clean, table->width - 4, table->utf8);
        strbuf_add(&table->out, "  | %s\n", fit);
        free(fit);
        free(clean);
        strbuf_free(&text);
        line += len;
        line += line < end;
    }
}

static void table_crashes(struct table *table, const struct report *report)
{
    for (int i = 0; i < report->crash_count && i < TABLE_CRASHES_MAX; i++) {
        const struct report_crash *crash = &report->crashes[i];
        char *text = xasprintf("%s, %s (%s): %s in %lld launch%s%s", crash->workload,
                report_side_word(crash->side), report->side_names[crash->side],
                crash_ending(crash, NUMBERS_BUFFER), (long long)crash->launches,
                crash->launches == 1 ? "" : "es",
                crash->stderr_tail && *crash->stderr_tail ? "; the end of its stderr:"
                                                          : "; nothing on its stderr");
        strbuf_add(&table->out, "\n");
        table_take(table, "ended badly", SCREEN_STYLE_FAIL, text);
        if (crash->stderr_tail)
            table_stderr(table, crash->stderr_tail);
    }
    if (report->crash_count > TABLE_CRASHES_MAX)
        strbuf_add(&table->out, "%*s%d more kinds of bad endings: select * from v_launch\n",
                TABLE_LABEL, "", report->crash_count - TABLE_CRASHES_MAX);
}

static void table_notes(struct table *table, const struct report *report)
{
    for (int i = 0; i < report->workload_count; i++) {
        const struct report_workload *workload = &report->workloads[i];
        if (workload->note)
            table_take(table, "note", SCREEN_STYLE_BOLD,
                    xasprintf("%s: %s", workload->name, workload->note));
    }
    for (int i = 0; i < report->note_count && i < TABLE_NOTES_MAX; i++) {
        const struct report_note *note = &report->notes[i];
        bool info = strcmp(note->level, "info") == 0;
        table_line(table, info ? "note" : note->level,
                info ? SCREEN_STYLE_BOLD : SCREEN_STYLE_INCONCLUSIVE, note->text);
    }
    if (report->note_count > TABLE_NOTES_MAX)
        table_take(table, "", SCREEN_STYLE_PLAIN,
                xasprintf("%d more: select * from note", report->note_count - TABLE_NOTES_MAX));
}

// A path as one word of a shell.
static char *table_quote(const char *path)
{
    static const char plain[] =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+,";
    if (path[strspn(path, plain)] == 0)
        return xstrdup(path);
    struct strbuf quoted = {0};
    strbuf_add(&quoted, "'");
    for (; *path; path++) {
        if (*path == '\'')
            strbuf_add(&quoted, "'\\''");
        else
            strbuf_add_bytes(&quoted, path, 1);
    }
    strbuf_add(&quoted, "'");
    return strbuf_take(&quoted);
}

// Did a cell get worse or better? Then there is a difference to explain.
static bool table_differs(const struct report *report)
{
    for (int i = 0; i < report->cell_count; i++)
        if (report->cells[i].verdict == REPORT_VERDICT_FAIL || report->cells[i].improved)
            return true;
    return false;
}

static void table_next(struct table *table, const struct report *report)
{
    char *path = table_quote(report->path);
    char *clean = screen_clean(path, table->utf8);
    const char *const hints[][2] = {
            {"upgate ab --resume %s", "go on where it was interrupted"},
            {"upgate diff %s", "where the difference comes from"},
            {"upgate report %s -o report.html", "all of it; also .md, .json, .xml"},
            {"upgate gate %s --policy POLICY.yaml", "judge again, with other margins"},
            {"sqlite3 %s 'select * from v_cell'", "what the verdict was made of"},
    };
    strbuf_add(&table->out, "\n");
    size_t first = strcmp(report->state, "interrupted") == 0 ? 0 : 1;
    bool differs = table_differs(report), labelled = false;
    for (size_t i = first; i < sizeof hints / sizeof *hints; i++) {
        if (i == 1 && !differs)
            continue;
        struct strbuf command = {0};
        strbuf_add(&command, hints[i][0], clean);
        struct strbuf line = {0};
        screen_pad(&line, labelled ? "" : "next", TABLE_LABEL, false);
        labelled = true;
        screen_pad(&line, command.text, 48, false);
        int columns = screen_columns(line.text);
        if (columns + 2 + (int)strlen(hints[i][1]) <= table->width)
            strbuf_add(&line, "  %s", hints[i][1]);
        // A command stays on one line, so that it can be copied.
        while (line.len && line.text[line.len - 1] == ' ')
            line.text[--line.len] = 0;
        screen_style(&table->out, SCREEN_STYLE_DIM, table->color, line.text);
        strbuf_add(&table->out, "\n");
        strbuf_free(&command);
        strbuf_free(&line);
    }
    free(clean);
    free(path);
}

int render_verdict_table(
        struct store *store, const struct render_opts *opts, FILE *stream, struct error *err)
{
    struct report *report = NULL;
    int rc = report_load(store, &report, err);
    if (rc)
        return rc;
    struct table table = table_begin(
            opts->width > 0 ? opts->width : RENDER_WIDTH_DEFAULT, opts->color, opts->utf8);
    table_banner(&table, report);
    table_run(&table, report);
    table_findings(&table, report, false);
    table_cells(&table, report);
    strbuf_add(&table.out, "\n");
    table_parity(&table, report);
    table_trust(&table, report);
    table_calibration(&table, report);
    table_findings(&table, report, true);
    table_notes(&table, report);
    table_crashes(&table, report);
    table_next(&table, report);
    rc = table_end(&table, stream, "the verdict", err);
    report_free(report);
    return rc;
}
