// SPDX-License-Identifier: Apache-2.0
// JUnit XML of a judged run. There is no official schema: the shape is the one that Jenkins, GitLab
// and GitHub's reporters agree on. Reads struct report. Characters that XML 1.0 cannot hold become
// U+FFFD.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/forms.h"

enum junit_outcome { JUNIT_PASS, JUNIT_FAILURE, JUNIT_ERROR, JUNIT_SKIPPED };

struct junit_case {
    char *name, *type, *message;    // type and message NULL for a pass
    const struct report_cell *cell; // for its properties, or NULL
    const struct report_parity *parity;
    const char *stderr_tail;
    enum junit_outcome outcome;
};

struct junit_suite {
    const char *name;
    const struct report_workload *workload; // NULL: the run itself, or a workload without a row
    struct junit_case *cases;
    int case_count;
};

struct junit {
    const struct report *report;
    bool skip;
    struct junit_suite *suites;
    int suite_count;
};

static void junit_escape(struct strbuf *out, const char *text, bool attribute)
{
    while (*text) {
        const char *begin = text;
        unsigned point = screen_next(&text);
        if (point == '&')
            strbuf_add(out, "&amp;");
        else if (point == '<')
            strbuf_add(out, "&lt;");
        else if (point == '>')
            strbuf_add(out, "&gt;");
        else if (point == '"')
            strbuf_add(out, "&quot;");
        else if (point == '\r' || (attribute && (point == '\n' || point == '\t')))
            strbuf_add(out, "&#%u;", point); // a parser would turn it into a newline, or a blank
        else if (point == '\n' || point == '\t')
            strbuf_add_bytes(out, begin, 1);
        else if (point < 0x20 || point == 0xfffd || point == 0xfffe || point == 0xffff)
            strbuf_add(out, "\xef\xbf\xbd");
        else
            strbuf_add_bytes(out, begin, (size_t)(text - begin));
    }
}

static void junit_attribute(struct strbuf *out, const char *name, const char *value)
{
    strbuf_add(out, " %s=\"", name);
    junit_escape(out, value, true);
    strbuf_add(out, "\"");
}

// Lines that a program wrote, without its colours.
static void junit_lines(struct strbuf *out, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        char *line = xasprintf("%.*s", (int)len, text), *clean = screen_clean(line, true);
        junit_escape(out, clean, false);
        free(clean);
        free(line);
        text += len;
        if (*text)
            strbuf_add_bytes(out, text++, 1);
    }
}

static struct junit_suite *junit_suite_find(struct junit *junit, const char *name)
{
    for (int i = 0; i < junit->suite_count; i++)
        if (strcmp(junit->suites[i].name, name) == 0)
            return &junit->suites[i];
    struct junit_suite *suite = vector_add(junit->suites, junit->suite_count);
    suite->name = name;
    return suite;
}

static bool junit_case_exists(const struct junit_suite *suite, const char *name)
{
    for (int i = 0; i < suite->case_count; i++)
        if (strcmp(suite->cases[i].name, name) == 0)
            return true;
    return false;
}

// Takes the name. Systems tell cases apart by their names only, so that the second of a name gets a
// number.
static struct junit_case *junit_case_add(struct junit_suite *suite, char *name)
{
    char *given = xstrdup(name);
    for (int i = 2; junit_case_exists(suite, name); i++) {
        free(name);
        name = xasprintf("%s #%d", given, i);
    }
    free(given);
    struct junit_case *test = vector_add(suite->cases, suite->case_count);
    test->name = name;
    return test;
}

static void junit_set(
        struct junit_case *test, enum junit_outcome outcome, const char *type, const char *message)
{
    test->outcome = outcome;
    test->type = type ? xstrdup(type) : NULL;
    test->message = xstrdup(message);
}

static void junit_inconclusive(
        const struct junit *junit, struct junit_case *test, const char *message)
{
    if (junit->skip)
        junit_set(test, JUNIT_SKIPPED, NULL, message);
    else
        junit_set(test, JUNIT_FAILURE, "inconclusive", message);
}

static void junit_cell(struct junit *junit, const struct report_cell *cell)
{
    struct junit_case *test = junit_case_add(junit_suite_find(junit, cell->workload),
            xasprintf("%s.%s", cell->workload, cell->metric));
    test->cell = cell;
    char *ratio = cell_ratio(cell), *remark = cell_remark(cell);
    char *message = xasprintf("%s%s%s", ratio, *ratio && *remark ? "; " : "", remark);
    if (!cell->gating)
        junit_set(test, JUNIT_SKIPPED, NULL, "observed, never gating");
    else if (cell->verdict == REPORT_VERDICT_FAIL)
        junit_set(test, JUNIT_FAILURE, isfinite(cell->ratio) ? "regression" : "missing", message);
    else if (cell->verdict == REPORT_VERDICT_UNCHECKED)
        junit_set(test, JUNIT_SKIPPED, NULL, *message ? message : "not checked");
    else if (cell->verdict == REPORT_VERDICT_INCONCLUSIVE && !isfinite(cell->ratio))
        junit_set(test, JUNIT_ERROR, "infra",
                message); // nothing was measured: no matter of statistics
    else if (cell->verdict == REPORT_VERDICT_INCONCLUSIVE)
        junit_inconclusive(junit, test, message);
    free(ratio);
    free(remark);
    free(message);
}

static void junit_parity(struct junit *junit, const struct report_parity *parity)
{
    struct junit_case *test = junit_case_add(junit_suite_find(junit, parity->workload),
            xasprintf("%s.parity.%s", parity->workload, parity->tensor));
    test->parity = parity;
    if (parity->verdict == REPORT_VERDICT_FAIL)
        junit_set(test, JUNIT_FAILURE, "parity", parity->reason);
    else if (parity->verdict == REPORT_VERDICT_INCONCLUSIVE)
        junit_inconclusive(junit, test, parity->reason);
    else if (parity->verdict == REPORT_VERDICT_UNCHECKED)
        junit_set(test, JUNIT_SKIPPED, NULL, parity->reason);
}

// Trouble with the machine or the programs, which no more pairs would settle.
static bool junit_is_infra(const char *kind)
{
    static const char *const kinds[] = {"crash", "missing", "void", "trust", "environment"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], kind) == 0)
            return true;
    return false;
}

static void junit_finding(struct junit *junit, const struct report_finding *finding)
{
    if (finding->effect == REPORT_EFFECT_NOTE)
        return;
    const char *of = finding->workload ? finding->workload : "upgate";
    struct junit_case *test = junit_case_add(junit_suite_find(junit, of),
            xasprintf("%s.%s%s%s", of, finding->kind, finding->side < 0 ? "" : ".",
                    finding->side < 0 ? "" : report_side_word(finding->side)));
    if (finding->workload)
        test->stderr_tail = report_stderr(junit->report, finding->workload, finding->side);
    if (finding->effect == REPORT_EFFECT_FAIL)
        junit_set(test, JUNIT_FAILURE, finding->kind, finding->text);
    else if (junit_is_infra(finding->kind))
        junit_set(test, JUNIT_ERROR, "infra", finding->text);
    else
        junit_inconclusive(junit, test, finding->text);
}

static void junit_collect(struct junit *junit)
{
    const struct report *report = junit->report;
    struct junit_case *verdict =
            junit_case_add(junit_suite_find(junit, "upgate"), xstrdup("upgate.verdict"));
    if (report->verdict == REPORT_VERDICT_FAIL)
        junit_set(verdict, JUNIT_FAILURE, "regression", report->reason);
    else if (report->verdict != REPORT_VERDICT_PASS)
        junit_inconclusive(junit, verdict, report->reason);
    for (int i = 0; i < report->workload_count; i++)
        junit_suite_find(junit, report->workloads[i].name)->workload = &report->workloads[i];
    for (int i = 0; i < report->cell_count; i++)
        junit_cell(junit, &report->cells[i]);
    for (int i = 0; i < report->parity_count; i++)
        junit_parity(junit, &report->parity[i]);
    for (int i = 0; i < report->finding_count; i++)
        junit_finding(junit, &report->findings[i]);
}

// Eight columns in a case, six in a suite: files of a CI system are read by people, too.
static void junit_property(struct strbuf *out, int indent, const char *name, const char *value)
{
    strbuf_add(out, "%*s<property", indent, "");
    junit_attribute(out, "name", name);
    junit_attribute(out, "value", value);
    strbuf_add(out, "/>\n");
}

static void junit_property_real(struct strbuf *out, int indent, const char *name, double value)
{
    char number[NUMBERS_SIZE];
    if (!isfinite(value))
        return;
    snprintf(number, sizeof number, "%.10g", value);
    junit_property(out, indent, name, number);
}

static void junit_properties(
        struct strbuf *out, const struct report *report, const struct junit_case *test)
{
    strbuf_add(out, "      <properties>\n");
    if (test->cell) {
        const struct report_cell *cell = test->cell;
        char text[NUMBERS_SIZE];
        junit_property_real(out, 8, "ratio", cell->ratio);
        if (isfinite(cell->ci_lower) && isfinite(cell->ci_upper)) {
            snprintf(text, sizeof text, "[%.10g, %.10g]", cell->ci_lower, cell->ci_upper);
            junit_property(out, 8, "ci", text);
        }
        snprintf(text, sizeof text, "%lld", (long long)cell->pairs);
        junit_property(out, 8, "n_pairs", text);
        junit_property_real(out, 8, "margin", cell->margin);
        junit_property_real(out, 8, "median_a", cell->median_a);
        junit_property_real(out, 8, "median_b", cell->median_b);
        junit_property(out, 8, "unit", cell->unit);
    }
    if (test->parity) {
        junit_property(out, 8, "rule", test->parity->rule);
        junit_property_real(out, 8, "error_a", test->parity->error_a);
        junit_property_real(out, 8, "error_b", test->parity->error_b);
    }
    junit_property(out, 8, "run_id", report->uuid);
    strbuf_add(out, "      </properties>\n");
}

static void junit_case_print(struct strbuf *out, const struct junit *junit,
        const struct junit_suite *suite, const struct junit_case *test)
{
    static const char *const elements[] = {[JUNIT_PASS] = NULL,
            [JUNIT_FAILURE] = "failure",
            [JUNIT_ERROR] = "error",
            [JUNIT_SKIPPED] = "skipped"};
    // All cases of a workload rest on the same launches: each gets an equal share of their time.
    double seconds =
            suite->workload ? (double)suite->workload->wall_ns / 1e9 / suite->case_count : 0;
    strbuf_add(out, "    <testcase");
    junit_attribute(out, "name", test->name);
    junit_attribute(out, "classname", suite->name);
    strbuf_add(out, " time=\"%.3f\"", seconds);
    if (junit->report->plan_path)
        junit_attribute(out, "file", junit->report->plan_path);
    strbuf_add(out, ">\n");
    junit_properties(out, junit->report, test);
    const char *element = elements[test->outcome];
    if (element) {
        strbuf_add(out, "      <%s", element);
        if (test->type)
            junit_attribute(out, "type", test->type);
        junit_attribute(out, "message", test->message);
        strbuf_add(out, ">");
        junit_escape(out, test->cell ? test->cell->reason : test->message, false);
        strbuf_add(out, "</%s>\n", element);
    }
    if (test->stderr_tail) {
        strbuf_add(out, "      <system-err>");
        junit_lines(out, test->stderr_tail);
        strbuf_add(out, "</system-err>\n");
    }
    strbuf_add(out, "    </testcase>\n");
}

static int junit_count(const struct junit_suite *suite, enum junit_outcome outcome)
{
    int count = 0;
    for (int i = 0; i < suite->case_count; i++)
        count += suite->cases[i].outcome == outcome;
    return count;
}

static void junit_head(struct strbuf *out, const struct report *report, const char *name,
        const struct junit_suite *suites, int count, double seconds)
{
    int tests = 0, failures = 0, errors = 0, skipped = 0;
    for (int i = 0; i < count; i++) {
        tests += suites[i].case_count;
        failures += junit_count(&suites[i], JUNIT_FAILURE);
        errors += junit_count(&suites[i], JUNIT_ERROR);
        skipped += junit_count(&suites[i], JUNIT_SKIPPED);
    }
    char stamp[NUMBERS_SIZE] = "";
    time_t began = (time_t)(report->started_wall_ns / 1000000000);
    struct tm parts;
    if (gmtime_r(&began, &parts))
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &parts);
    junit_attribute(out, "name", name);
    strbuf_add(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\"",
            tests, failures, errors, skipped, seconds);
    junit_attribute(out, "timestamp", stamp);
    strbuf_add(out, ">\n");
}

static void junit_suite_print(
        struct strbuf *out, const struct junit *junit, const struct junit_suite *suite)
{
    double seconds = suite->workload ? (double)suite->workload->wall_ns / 1e9 : 0;
    strbuf_add(out, "  <testsuite");
    junit_head(out, junit->report, suite->name, suite, 1, seconds);
    strbuf_add(out, "    <properties>\n");
    junit_property(out, 6, "run_id", junit->report->uuid);
    junit_property(out, 6, "baseline", junit->report->side_names[0]);
    junit_property(out, 6, "candidate", junit->report->side_names[1]);
    if (suite->workload && suite->workload->interleave)
        junit_property(out, 6, "interleave", suite->workload->interleave);
    strbuf_add(out, "    </properties>\n");
    for (int i = 0; i < suite->case_count; i++)
        junit_case_print(out, junit, suite, &suite->cases[i]);
    strbuf_add(out, "  </testsuite>\n");
}

static void junit_clear(struct junit *junit)
{
    for (int i = 0; i < junit->suite_count; i++) {
        struct junit_suite *suite = &junit->suites[i];
        for (int j = 0; j < suite->case_count; j++) {
            free(suite->cases[j].name);
            free(suite->cases[j].type);
            free(suite->cases[j].message);
        }
        free(suite->cases);
    }
    free(junit->suites);
}

char *junit_make(const struct report *report, bool inconclusive_skip)
{
    struct junit junit = {.report = report, .skip = inconclusive_skip};
    junit_collect(&junit);
    double seconds = 0;
    for (int i = 0; i < report->workload_count; i++)
        seconds += (double)report->workloads[i].wall_ns / 1e9;
    struct strbuf out = {0};
    strbuf_add(&out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites");
    junit_head(&out, report, "upgate", junit.suites, junit.suite_count, seconds);
    for (int i = 0; i < junit.suite_count; i++)
        junit_suite_print(&out, &junit, &junit.suites[i]);
    strbuf_add(&out, "</testsuites>\n");
    junit_clear(&junit);
    return strbuf_take(&out);
}
