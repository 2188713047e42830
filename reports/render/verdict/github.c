// SPDX-License-Identifier: Apache-2.0
// GitHub Actions: workflow commands on stdout, the step summary, the step's outputs. Reads struct
// report; appends to the files GitHub names in the environment. Keeps their limits: 10 annotations
// of a kind a step (more are dropped in silence, in print order), 1,024 KiB of summary (above it,
// all of it is dropped).
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/render/render.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/forms.h"

enum { GITHUB_ANNOTATIONS_MAX = 10, GITHUB_MESSAGE_MAX = 2000, GITHUB_OUTPUTS_MAX = 500 };

struct github_annotation {
    char *title, *message;
};

struct github_list {
    const char *command; // "error" or "warning"
    struct github_annotation items[GITHUB_ANNOTATIONS_MAX];
    int kept, total;
};

// Data: % and line ends. A property also ends at ':' and ','.
static void github_escape(struct strbuf *out, const char *raw, bool property)
{
    int used = 0;
    while (*raw && used++ < GITHUB_MESSAGE_MAX) {
        const char *begin = raw;
        unsigned point = screen_next(&raw);
        if (point == '%' || point == '\r' || point == '\n' ||
                (property && (point == ':' || point == ',')))
            strbuf_add(out, "%%%02X", point);
        else if (point < 0x20 || point == 0x7f || point == 0xfffd)
            strbuf_add(out, "?");
        else
            strbuf_add_bytes(out, begin, (size_t)(raw - begin));
    }
    if (*raw)
        strbuf_add(out, " ...");
}

// Takes both strings. What is beyond the limit is counted only.
static void github_add(struct github_list *list, char *title, char *message)
{
    list->total++;
    // One place is kept for the summary.
    if (list->kept < GITHUB_ANNOTATIONS_MAX - 1) {
        list->items[list->kept++] = (struct github_annotation){title, message};
        return;
    }
    free(title);
    free(message);
}

static void github_print(struct strbuf *out, const char *command, const char *file,
        const char *title, const char *message)
{
    strbuf_add(out, "::%s ", command);
    if (file) {
        strbuf_add(out, "file=");
        github_escape(out, file, true);
        strbuf_add(out, ",");
    }
    strbuf_add(out, "title=");
    github_escape(out, title, true);
    strbuf_add(out, "::");
    github_escape(out, message, false);
    strbuf_add(out, "\n");
}

static void github_cells(
        const struct report *report, enum report_verdict verdict, struct github_list *errors)
{
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        if (!cell->gating || cell->verdict != verdict)
            continue;
        char *ratio = cell_ratio(cell), *remark = cell_remark(cell);
        github_add(errors,
                xasprintf("upgate %s: %s %s",
                        verdict == REPORT_VERDICT_FAIL ? "FAIL" : "inconclusive", cell->workload,
                        cell->metric),
                xasprintf("%s%s%s", ratio, *ratio && *remark ? "; " : "", remark));
        free(ratio);
        free(remark);
    }
}

static void github_checks(
        const struct report *report, enum report_verdict verdict, struct github_list *errors)
{
    const char *word = verdict == REPORT_VERDICT_FAIL ? "FAIL" : "inconclusive";
    enum report_effect effect =
            verdict == REPORT_VERDICT_FAIL ? REPORT_EFFECT_FAIL : REPORT_EFFECT_INCONCLUSIVE;
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        if (finding->effect == effect)
            github_add(errors,
                    xasprintf("upgate %s: %s%s%s", word,
                            finding->workload ? finding->workload : "the run",
                            *finding->kind ? " " : "", finding->kind),
                    xstrdup(finding->text));
    }
    for (int i = 0; i < report->parity_count; i++) {
        const struct report_parity *parity = &report->parity[i];
        if (parity->verdict == verdict)
            github_add(errors,
                    xasprintf("upgate %s: %s parity of %s", word, parity->workload, parity->tensor),
                    xstrdup(parity->reason));
    }
}

static void github_warnings(const struct report *report, struct github_list *warnings)
{
    bool told = false; // a finding says already that the host is not calibrated
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        told = told || strcmp(finding->kind, "calibration") == 0;
        if (finding->effect == REPORT_EFFECT_NOTE)
            github_add(warnings,
                    xasprintf("upgate: %s %s", finding->workload ? finding->workload : "the run",
                            finding->kind),
                    xstrdup(finding->text));
    }
    if (!report->calibrated && !told)
        github_add(warnings, xstrdup("upgate: not calibrated"), xstrdup(report->calibration_note));
    for (int i = 0; i < report->ledger_count; i++)
        if (report->ledger[i].dropped > 0)
            github_add(warnings, xstrdup("upgate: records were dropped"),
                    xasprintf("%s %s: %lld dropped", report->ledger[i].producer,
                            report->ledger[i].kind, (long long)report->ledger[i].dropped));
    for (int i = 0; i < report->note_count; i++)
        if (strcmp(report->notes[i].level, "info") != 0)
            github_add(warnings, xstrdup("upgate: note"), xstrdup(report->notes[i].text));
}

// The plan, where an annotation of the run may stand: only a path inside the repository has a
// place.
static const char *github_file(const struct report *report)
{
    const char *path = report->plan_path;
    return path && *path && *path != '/' && !strstr(path, "..") ? path : NULL;
}

static void github_list_print(
        struct strbuf *out, const struct report *report, struct github_list *list)
{
    for (int i = 0; i < list->kept; i++) {
        github_print(out, list->command, github_file(report), list->items[i].title,
                list->items[i].message);
        free(list->items[i].title);
        free(list->items[i].message);
    }
}

static char *github_annotations(const struct report *report)
{
    struct github_list errors = {.command = "error"}, warnings = {.command = "warning"};
    struct strbuf out = {0};
    github_cells(report, REPORT_VERDICT_FAIL, &errors);
    github_checks(report, REPORT_VERDICT_FAIL, &errors);
    github_checks(report, REPORT_VERDICT_INCONCLUSIVE, &errors);
    github_cells(report, REPORT_VERDICT_INCONCLUSIVE, &errors);
    github_warnings(report, &warnings);
    // The summary comes first and is an error unless the run passed: an inconclusive run is no
    // success.
    struct strbuf message = {0};
    strbuf_add(&message, "%s", report->reason);
    if (errors.total > errors.kept)
        strbuf_add(&message, " (%d of %d findings are annotated; the step summary has all)",
                errors.kept, errors.total);
    char *title = xasprintf("upgate: %s",
            report->verdict == REPORT_VERDICT_PASS           ? "PASS"
                    : report->verdict == REPORT_VERDICT_FAIL ? "FAIL"
                                                             : "INCONCLUSIVE");
    github_print(&out, report->verdict == REPORT_VERDICT_PASS ? "notice" : "error",
            github_file(report), title, message.text);
    github_list_print(&out, report, &errors);
    if (warnings.total > warnings.kept) {
        char *text = xasprintf("%d of %d warnings are annotated; the step summary has all",
                warnings.kept, warnings.total);
        github_print(&out, "warning", NULL, "upgate: more warnings", text);
        free(text);
    }
    github_list_print(&out, report, &warnings);
    free(title);
    strbuf_free(&message);
    return strbuf_take(&out);
}

// A name that an expression can use: letters, digits, '-' and '_'.
static void github_output_name(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        char c = *text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                c == '-' || c == '_';
        strbuf_add(out, "%c", plain ? c : '_');
    }
}

static char *github_outputs(const struct report *report)
{
    struct strbuf out = {0};
    // One line each: a second one would be an output of its own.
    char *reason = screen_clean(report->reason, true), *run = screen_clean(report->uuid, true);
    const char *verdict = report_verdict_word(report->verdict);
    strbuf_add(&out, "verdict=%s\nreason=%s\nrun=%s\n", verdict, reason, run);
    strbuf_add(&out, "cells_failed=%d\ncells_inconclusive=%d\ncells_passed=%d\n",
            report_count(report, REPORT_VERDICT_FAIL),
            report_count(report, REPORT_VERDICT_INCONCLUSIVE),
            report_count(report, REPORT_VERDICT_PASS));
    free(reason);
    free(run);
    int written = 0;
    for (int i = 0; i < report->cell_count && written < GITHUB_OUTPUTS_MAX; i++) {
        const struct report_cell *cell = &report->cells[i];
        if (!isfinite(cell->ratio))
            continue;
        strbuf_add(&out, "ratio_");
        github_output_name(&out, cell->workload);
        strbuf_add(&out, "_");
        github_output_name(&out, cell->metric);
        strbuf_add(&out, "=%.6g\n", cell->ratio);
        written++;
    }
    return strbuf_take(&out);
}

// Append all of it or say why not. GitHub reads the files when the step has ended.
static int github_append(const char *path, const char *text, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, -errno, "failed to open '%s': %s", path, strerror(errno));
    int rc = 0;
    for (size_t len = strlen(text); len && rc == 0;) {
        ssize_t written = write(fd, text, len);
        if (written < 0 && errno != EINTR)
            rc = error_set(err, -errno, "failed to write '%s': %s", path, strerror(errno));
        if (written > 0) {
            text += written;
            len -= (size_t)written;
        }
    }
    if (close(fd) < 0 && rc == 0)
        rc = error_set(err, -errno, "failed to write '%s': %s", path, strerror(errno));
    return rc;
}

static int github_summary(const struct report *report, const char *path, struct error *err)
{
    struct stat info;
    size_t used = stat(path, &info) == 0 ? (size_t)info.st_size : 0;
    if (used + FORMS_MARKDOWN_BYTES_MIN > FORMS_MARKDOWN_BYTES_MAX)
        return error_set(err, -EFBIG,
                "failed to add to the step summary '%s': it has %zu bytes already, and GitHub drops "
                "one above 1,048,576 whole; report in a step of its own",
                path, used);
    char *markdown = markdown_make(report, FORMS_MARKDOWN_BYTES_MAX - used);
    int rc = github_append(path, markdown, err);
    free(markdown);
    return rc;
}

int render_github(struct store *store, FILE *stream, struct error *err)
{
    struct report *report = NULL;
    int rc = report_load(store, &report, err);
    if (rc)
        return rc;
    char *annotations = github_annotations(report), *outputs = github_outputs(report);
    const char *summary = getenv("GITHUB_STEP_SUMMARY"), *output = getenv("GITHUB_OUTPUT");
    errno = 0;
    if (fputs(annotations, stream) == EOF || fflush(stream) != 0)
        rc = error_set(err, errno ? -errno : -EIO, "failed to print annotations: %s",
                strerror(errno ? errno : EIO));
    if (rc == 0 && output && *output)
        rc = github_append(output, outputs, err);
    if (rc == 0 && summary && *summary)
        rc = github_summary(report, summary, err);
    free(annotations);
    free(outputs);
    report_free(report);
    return rc;
}
