// SPDX-License-Identifier: Apache-2.0
// Golden reports: a store made by SQL (tests/golden/*.sql), rendered in every form, compared byte
// by byte with the file beside it. UPGATE_GOLDEN_UPDATE=1 rewrites the files instead; read the diff
// before you commit it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/render.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/forms.h"
#include "tests/unit/golden.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

enum { GOLDEN_BYTES_MAX = 4 << 20 };

static void golden_run_sql(struct store *store, const char *name)
{
    char *file = xasprintf("golden/%s.sql", name), *sql = golden_read(file), *message = NULL;
    if (sqlite3_exec(store_db(store), sql, NULL, NULL, &message) != SQLITE_OK)
        runner_fail(__FILE__, __LINE__, "%s: %s", file, message);
    sqlite3_free(message);
    free(sql);
    free(file);
}

// A new store "run.db" in a directory of its own, which becomes the current one.
static struct store *golden_store(const char *const *scripts)
{
    char directory[] = "/tmp/upgate-golden-XXXXXX";
    struct store *store = NULL;
    struct error err = {0};
    CHECK(mkdtemp(directory) != NULL && chdir(directory) == 0);
    CHECK_INT(store_open("run.db", STORE_CREATE, &store, &err), 0);
    for (; *scripts; scripts++)
        golden_run_sql(store, *scripts);
    return store;
}

static void golden_remove(struct store *store)
{
    char *directory = getcwd(NULL, 0);
    store_close(store);
    static const char *const names[] = {
            "run.db", "out.txt", "out.json", "out.xml", "out.md", "out.html"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(names[i]);
    CHECK_INT(rmdir(directory), 0); // nothing else was left there, no temporary file either
    free(directory);
}

// What a form says, made in the current directory; the caller frees.
static char *golden_text(struct store *store, const char *ending, const struct render_opts *opts)
{
    struct error err = {0};
    char *path = xasprintf("out.%s", ending);
    if (strcmp(ending, "txt") == 0) {
        FILE *file = fopen(path, "w");
        CHECK_INT(render_verdict_table(store, opts, file, &err), 0);
        CHECK_INT(fclose(file), 0);
    } else {
        CHECK_INT(render_file(store, path, opts, &err), 0);
    }
    CHECK_STR(err.text, "");
    char *text = string_read_file(path, GOLDEN_BYTES_MAX, NULL);
    CHECK(text != NULL);
    free(path);
    return text ? text : xstrdup("");
}

static void golden_form(
        struct store *store, const char *name, const char *ending, const struct render_opts *opts)
{
    char *got = golden_text(store, ending, opts), *want = xasprintf("%s.%s", name, ending);
    golden_compare(got, want);
    free(got);
    free(want);
}

static void golden_case(const char *name, bool calibrated)
{
    const char *scripts[] = {
            "base", calibrated ? "calibrated" : name, calibrated ? name : NULL, NULL};
    const struct render_opts opts = {.utf8 = true};
    struct store *store = golden_store(scripts);
    golden_form(store, name, "txt", &opts);
    golden_form(store, name, "json", &opts);
    golden_form(store, name, "xml", &opts);
    golden_form(store, name, "md", &opts);
    golden_remove(store);
}

TEST(pass)
{
    golden_case("pass", true);
}

TEST(fail)
{
    golden_case("fail", true);
}

TEST(inconclusive)
{
    golden_case("inconclusive", false);
}

TEST(slow_steps)
{
    golden_case("slow", true);
}

TEST(crash)
{
    golden_case("crash", true);
}

TEST(parity)
{
    golden_case("parity", true);
}

TEST(escape)
{
    golden_case("escape", false);
}

TEST(many_cells)
{
    const char *scripts[] = {"base", "calibrated", "many", NULL};
    const struct render_opts opts = {.utf8 = true};
    struct store *store = golden_store(scripts);
    golden_form(store, "many", "txt", &opts);
    golden_form(store, "many", "md", &opts);
    struct error err = {0};
    json_t *document = render_verdict_json(store, &err);
    CHECK_INT(json_array_size(json_object_get(document, "cells")), 200);
    json_decref(document);
    golden_remove(store);
}

TEST(fail_in_ascii_and_colour_and_narrow)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    const struct render_opts opts = {.color = true, .width = 72};
    struct store *store = golden_store(scripts);
    golden_form(store, "fail_narrow", "txt", &opts);
    golden_remove(store);
}

TEST(junit_skips_what_is_inconclusive_when_asked)
{
    const char *scripts[] = {"base", "inconclusive", NULL};
    const struct render_opts opts = {.inconclusive_skip = true};
    struct store *store = golden_store(scripts);
    golden_form(store, "inconclusive_skip", "xml", &opts);
    golden_remove(store);
}

TEST(null_is_null_and_times_are_integers)
{
    const char *scripts[] = {"base", "inconclusive", NULL};
    struct store *store = golden_store(scripts);
    struct error err = {0};
    json_t *document = render_verdict_json(store, &err),
           *cells = json_object_get(document, "cells");
    const json_t *measured = json_array_get(cells, 0), *missing = json_array_get(cells, 1);
    CHECK_STR(json_string_value(json_object_get(document, "schema")), "upgate.verdict/1");
    CHECK(json_is_integer(json_object_get(measured, "median_a")));
    CHECK(json_is_null(json_object_get(missing, "median_a")));
    CHECK(json_is_null(json_object_get(missing, "ratio")));
    CHECK(json_is_null(json_object_get(missing, "mde")));
    const json_t *calibration = json_object_get(document, "calibration");
    CHECK(json_is_null(json_object_get(calibration, "aa_launches")));
    CHECK(json_is_null(json_object_get(calibration, "false_fail_upper_bound")));
    const json_t *trust = json_object_get(document, "trust");
    CHECK(json_is_false(json_object_get(trust, "ok")));
    const json_t *breach = json_array_get(json_object_get(trust, "breaches"), 0);
    CHECK_INT(json_integer_value(json_object_get(breach, "count")), 17);
    json_decref(document);
    golden_remove(store);
}

static void golden_sql(struct store *store, const char *sql)
{
    CHECK_INT(sqlite3_exec(store_db(store), sql, NULL, NULL, NULL), SQLITE_OK);
}

// 1e300 ns are no integer of JSON, and infinity is no number of it.
TEST(numbers_that_json_cannot_hold_are_null)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    struct store *store = golden_store(scripts);
    struct error err = {0};
    golden_sql(store,
            "UPDATE cell SET median_a = 1e300, median_b = 9e999, ratio = -9e999 WHERE id = 1");
    json_t *document = render_verdict_json(store, &err);
    json_t *cells = json_object_get(document, "cells"), *cell = NULL;
    for (size_t i = 0; i < json_array_size(cells) && !cell; i++)
        if (json_is_null(json_object_get(json_array_get(cells, i), "ratio")))
            cell = json_array_get(cells, i);
    CHECK(cell && json_is_null(json_object_get(cell, "median_a")) &&
            json_is_null(json_object_get(cell, "median_b")));
    json_decref(document);
    golden_remove(store);
}

// The interval may be beyond the margin on the good side where the mean, a floor or launches
// without the metric keep it from passing.
TEST(a_cell_that_does_not_pass_is_not_called_improved)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    struct store *store = golden_store(scripts);
    golden_sql(store, "UPDATE cell SET improved = 1");
    const struct render_opts opts = {.utf8 = true};
    char *table = golden_text(store, "txt", &opts), *markdown = golden_text(store, "md", &opts);
    CHECK_CONTAINS(table, "\nfail: 2 ");
    CHECK_CONTAINS(table, "\ninconclusive: 1 ");
    CHECK_CONTAINS(table, "\npass, improved: 4 ");
    CHECK(strstr(table, "improved: 1") == NULL && strstr(table, "improved: 2") == NULL);
    CHECK_CONTAINS(markdown, "pass, improved |");
    CHECK(strstr(markdown, "FAIL, improved") == NULL &&
            strstr(markdown, "inconclusive, improved") == NULL);
    free(table);
    free(markdown);
    golden_remove(store);
}

// Nobody chose them, and a store that was edited holds them all the same.
TEST(what_upgate_wrote_of_a_run_is_no_markup_either)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    const struct render_opts opts = {.utf8 = true};
    struct store *store = golden_store(scripts);
    golden_sql(store,
            "UPDATE run SET uuid = '`|' || char(10) || 'verdict=pass', upgate_version = '</details><img src=x> @team'");
    char *markdown = golden_text(store, "md", &opts);
    CHECK(strstr(markdown, "<img") == NULL && strstr(markdown, "@team") == NULL &&
            strstr(markdown, "``") == NULL);
    CHECK_CONTAINS(markdown, ", run \\`&#124; verdi of 2026-11-21 12:00 UTC");
    CHECK_CONTAINS(markdown, "\nupgate &lt;/details>&lt;img src=x> @<!-- -->team. `upgate gate");
    free(markdown);
    struct error err = {0};
    FILE *annotations = fopen("/dev/null", "w");
    setenv("GITHUB_OUTPUT", "out.txt", 1);
    unsetenv("GITHUB_STEP_SUMMARY");
    CHECK_INT(render_github(store, annotations, &err), 0);
    fclose(annotations);
    char *outputs = string_read_file("out.txt", GOLDEN_BYTES_MAX, NULL);
    CHECK_CONTAINS(outputs, "\nrun=`| verdict=pass\ncells_failed=2\n");
    CHECK(outputs && strstr(outputs, "\nverdict=") == NULL); // the first line is the only one
    free(outputs);
    golden_remove(store);
}

TEST(what_was_lost_is_not_denied)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    const struct render_opts opts = {.utf8 = true};
    struct store *store = golden_store(scripts);
    golden_sql(store, "UPDATE ledger SET dropped = 1");
    char *table = golden_text(store, "txt", &opts);
    CHECK_CONTAINS(table,
            "\ntrust        ok: nothing was lost that the verdict needs\n             steps records: 80 dropped of 16,000\n");
    free(table);
    golden_sql(store, "UPDATE ledger SET dropped = 0, seen = NULL");
    table = golden_text(store, "txt", &opts);
    CHECK_CONTAINS(table, "\ntrust        ok: nothing was lost\n");
    free(table);
    golden_remove(store);
}

TEST(a_time_of_pairs_that_no_store_holds_is_refused)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    struct store *store = golden_store(scripts);
    struct report *report = NULL;
    struct error err = {0};
    golden_sql(store, "UPDATE pair SET ended_ns = started_ns + 4000000000000000000 WHERE id = 1");
    CHECK_INT(report_load(store, &report, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "the took_ns of a row is out of range");
    golden_remove(store);
}

// Cases rest on the pairs that were judged: those that were traced come behind the verdict, and are
// in no other form's duration.
TEST(junit_counts_no_time_of_traced_pairs)
{
    const char *scripts[] = {"base", "calibrated", "fail", NULL};
    const struct render_opts opts = {.utf8 = true};
    struct store *store = golden_store(scripts);
    golden_sql(store,
            "INSERT INTO pair (workload_id, idx, phase, seed, first_side, interleave, steps, state, started_ns, ended_ns) "
            "VALUES (1, 0, 'traced', 7, 0, 'steps', 200, 'valid', 0, 999000000000)");
    char *junit = golden_text(store, "xml", &opts);
    CHECK_CONTAINS(junit,
            "<testsuites name=\"upgate\" tests=\"11\" failures=\"4\" errors=\"0\" skipped=\"2\" time=\"320.000\"");
    free(junit);
    golden_remove(store);
}

// Its cells pass, and the run fails by it: no green mark beside its name.
TEST(a_workload_of_the_page_is_as_bad_as_what_objects_to_it)
{
    const char *scripts[] = {"base", "calibrated", "parity", NULL};
    const struct render_opts opts = {0};
    struct store *store = golden_store(scripts);
    struct error err = {0};
    golden_sql(store,
            "INSERT INTO finding (workload, kind, side, effect, text) VALUES ('ddp-train', 'void', NULL, 'note', 'one pair'), "
            "(NULL, 'trust', NULL, 'fail', 'of the run')");
    int rc = render_file(store, "out.html", &opts, &err);
    if (rc && strstr(err.text, "built without the page")) {
        golden_remove(store);
        runner_skip("the page was not built");
    }
    CHECK_STR(err.text, "");
    char *page = string_read_file("out.html", GOLDEN_BYTES_MAX, NULL);
    CHECK_CONTAINS(page,
            "\"name\":\"dlrm-infer\",\"mode\":\"infer\",\"unit\":\"request\",\"verdict\":\"fail\"");
    CHECK_CONTAINS(page,
            "\"name\":\"transformer-train\",\"mode\":\"train\",\"unit\":\"step\",\"verdict\":\"fail\"");
    CHECK_CONTAINS(page,
            "\"name\":\"dlrm-train\",\"mode\":\"train\",\"unit\":\"step\",\"verdict\":\"inconclusive\"");
    CHECK_CONTAINS(
            page, "\"name\":\"ddp-train\",\"mode\":\"train\",\"unit\":\"step\",\"verdict\":null");
    free(page);
    golden_sql(store, "UPDATE finding SET effect = 'inconclusive' WHERE workload = 'ddp-train'");
    CHECK_INT(render_file(store, "out.html", &opts, &err), 0);
    page = string_read_file("out.html", GOLDEN_BYTES_MAX, NULL);
    CHECK_CONTAINS(page,
            "\"name\":\"ddp-train\",\"mode\":\"train\",\"unit\":\"step\",\"verdict\":\"inconclusive\"");
    free(page);
    golden_remove(store);
}

static json_int_t golden_side(const json_t *steps, size_t side, const char *key)
{
    const json_t *item = json_array_get(json_object_get(steps, "sides"), side);
    return json_integer_value(json_object_get(item, key));
}

// What does not fit is counted, and the numbers of the sides are of all launches.
TEST(a_strip_leaves_out_launches_that_do_not_fit)
{
    const char *scripts[] = {"base", "calibrated", "slow", NULL};
    struct store *store = golden_store(scripts);
    struct error err = {0};
    static const size_t budgets[] = {1000000, 10000, 2000, 0};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        json_t *steps = NULL;
        CHECK_INT(html_steps(store, "dlrm-train", budgets[i], &steps, &err), 0);
        size_t shown = json_array_size(json_object_get(steps, "launches"));
        char *text = json_dumps(steps, JSON_COMPACT);
        CHECK_INT(shown, i < 2 ? 20 : i == 2 ? 5 : 0);
        CHECK_INT(json_integer_value(json_object_get(steps, "left_out")), 20 - shown);
        CHECK(strlen(text) < budgets[i] + 500);
        CHECK_INT(golden_side(steps, 0, "slow"), 0);
        CHECK_INT(golden_side(steps, 1, "slow"), 8);
        CHECK_INT(golden_side(steps, 1, "slow_ns"), 250000000);
        CHECK_INT(golden_side(steps, 1, "steady_steps"), 1950);
        free(text);
        json_decref(steps);
    }
    json_t *none = NULL;
    CHECK_INT(html_steps(store, "ddp-train", 10000, &none, &err), 0);
    CHECK(json_is_null(none));
    json_decref(none);
    golden_remove(store);
}

// Every form refuses, and no file appears.
static void golden_refused(struct store *store, int want, const char *words)
{
    const struct render_opts opts = {0};
    static const char *const names[] = {"out.json", "out.xml", "out.md"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct error err = {0};
        CHECK_INT(render_file(store, names[i], &opts, &err), want);
        CHECK_CONTAINS(err.text, words);
        CHECK(access(names[i], F_OK) != 0);
    }
    struct error err = {0};
    CHECK_INT(render_verdict_table(store, &opts, stdout, &err), want);
    CHECK_INT(render_github(store, stdout, &err), want);
    CHECK(render_verdict_json(store, &err) == NULL);
    CHECK_INT(error_exit_code(want), 4);
}

TEST(an_empty_store_is_an_error)
{
    const char *scripts[] = {NULL};
    struct store *store = golden_store(scripts);
    golden_refused(store, -ENODATA, "no run was recorded");
    golden_remove(store);
}

TEST(a_run_without_a_verdict_is_an_error)
{
    const char *scripts[] = {"base", NULL};
    struct store *store = golden_store(scripts);
    golden_refused(store, -ENODATA, "has no verdict yet");
    golden_remove(store);
}

// Neither `upgate gate` nor --resume would give it a verdict.
TEST(a_recording_has_no_verdict_to_come)
{
    const char *scripts[] = {"base", NULL};
    struct store *store = golden_store(scripts);
    golden_sql(store, "UPDATE run SET kind = 'record'");
    golden_refused(store, -ENODATA, "run.db': it is a recording: nothing in it is compared");
    struct error err = {0};
    CHECK(render_verdict_json(store, &err) == NULL);
    CHECK(strstr(err.text, "upgate gate") == NULL && strstr(err.text, "--resume") == NULL);
    // `upgate stalls` writes no page
    CHECK(strstr(err.text, "`upgate report ") && strstr(err.text, "-o FILE.html` writes"));
    golden_remove(store);
}

TEST(a_pass_without_cells_is_an_error)
{
    const char *scripts[] = {"base", "pass", NULL};
    struct store *store = golden_store(scripts);
    sqlite3_exec(store_db(store), "DELETE FROM cell", NULL, NULL, NULL);
    golden_refused(store, -EBADMSG, "no gated cell passes");
    golden_remove(store);
}

TEST(a_pass_over_a_cell_that_fails_is_an_error)
{
    const char *scripts[] = {"base", "pass", NULL};
    struct store *store = golden_store(scripts);
    sqlite3_exec(
            store_db(store), "UPDATE cell SET verdict = 'fail' WHERE id = 1", NULL, NULL, NULL);
    golden_refused(store, -EBADMSG, "a gated cell does not");
    golden_remove(store);
}

// 40,000 rows are some 5 MB of Markdown: the document stays under GitHub's limit and counts what it
// left out.
TEST(markdown_stays_within_its_limit)
{
    const char *scripts[] = {"base", "fail", NULL};
    struct store *store = golden_store(scripts);
    CHECK_INT(
            sqlite3_exec(store_db(store),
                    "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39999) "
                    "INSERT INTO cell (workload, metric, unit, direction, gating, alpha, pairs, margin, "
                    "verdict, improved, reason) SELECT 'w' || i, 'step_time', 'ns', 'lower', 1, 0.01, 9, "
                    "0.02, 'inconclusive', 0, 'some reason that takes its place' FROM n",
                    NULL, NULL, NULL),
            SQLITE_OK);
    const struct render_opts opts = {0};
    struct error err = {0};
    struct stat info;
    CHECK_INT(render_file(store, "out.md", &opts, &err), 0);
    CHECK(stat("out.md", &info) == 0 && info.st_size <= FORMS_MARKDOWN_BYTES_MAX &&
            info.st_size > FORMS_MARKDOWN_BYTES_MAX / 2);
    char *text = string_read_file("out.md", GOLDEN_BYTES_MAX, NULL);
    long shown = 0, omitted = 0;
    for (const char *at = text; (at = strstr(at, "| `w")); at++)
        shown++;
    const char *count = strstr(text, " more rows did not fit here");
    CHECK(count != NULL);
    while (count && count > text && count[-1] >= '0' && count[-1] <= '9')
        count--;
    omitted = count ? strtol(count, NULL, 10) : 0;
    CHECK_INT(shown + omitted, 40000);
    CHECK_CONTAINS(text, "dlrm-train"); // what failed is there
    CHECK_CONTAINS(text, "**Calibration**");
    free(text);
    // beside a section on the difference, or what a step summary has already
    struct report *report = NULL;
    CHECK_INT(report_load(store, &report, &err), 0);
    text = markdown_make(report, FORMS_MARKDOWN_BYTES_MIN);
    CHECK(strlen(text) <= FORMS_MARKDOWN_BYTES_MIN);
    CHECK_CONTAINS(text, "dlrm-train");
    CHECK_CONTAINS(text, "**Calibration**");
    free(text);
    report_free(report);
    golden_remove(store);
}

// A cell that was judged before version 12 has its reason alone: what that says is not added to it.
TEST(a_reason_of_an_older_store_is_not_said_twice)
{
    static const char *const scripts[] = {"base", "calibrated", "fail", NULL};
    struct store *store = golden_store(scripts);
    struct report *report = NULL;
    struct error err = {0};
    int told = 0;
    CHECK_INT(store_exec(store, &err, "UPDATE cell SET news = NULL, told = NULL", ""), 0);
    CHECK_INT(report_load(store, &report, &err), 0);
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        char *remark = cell_remark(cell);
        if (*remark)
            CHECK_CONTAINS(remark, cell->reason);
        CHECK(strstr(remark, "; confirmed on") == NULL && strstr(remark, "; needs ~") == NULL);
        told += cell->confirmed > 0 || cell->pairs_needed > 0;
        free(remark);
    }
    CHECK_INT(told, 3);
    report_free(report);
    golden_remove(store);
}

TEST(unknown_endings_are_named)
{
    static const char *const wrong[] = {
            "report.pdf", "report.perfetto", "report", "dir.md/report", ".md.txt"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error err = {0};
        CHECK_INT(render_file_check(wrong[i], &err), -EINVAL);
        CHECK_CONTAINS(
                err.text, ".json (verdict), .xml (JUnit) or .pftrace (a launch for Perfetto)");
    }
    struct error err = {0};
    CHECK_INT(render_file_check("a/b.c/report.md", &err), 0);
}

TEST(a_full_disk_leaves_nothing)
{
    const char *scripts[] = {"base", "fail", NULL};
    struct store *store = golden_store(scripts);
    const struct render_opts opts = {0};
    struct error err = {0};
    CHECK_INT(error_exit_code(render_file(store, "nowhere/out.md", &opts, &err)), 4);
    CHECK(mkdir("out.md", 0755) == 0);
    CHECK(render_file(store, "out.md", &opts, &err) != 0);
    CHECK(rmdir("out.md") == 0);
    FILE *full = fopen("/dev/full", "w");
    CHECK_INT(render_verdict_table(store, &opts, full, &err), -ENOSPC);
    fclose(full);
    golden_remove(store);
}
