// SPDX-License-Identifier: Apache-2.0
// `upgate report`: renders a judged run. Reads RUN.db, writes stdout, the file of -o, and what
// GitHub names in the environment. Judges nothing: 0 means that the report was written, whatever
// the verdict.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/options.h"
#include "contracts/exit_code.h"
#include "harness/verbs/program.h"
#include "reports/render/render.h"
#include "tracer/store/store.h"

struct report_values {
    bool github;
    const char *inconclusive;
    uint64_t launch;
    struct options_common common;
};

extern const struct verb verb_report;

static const char *const report_usage[] = {
        "report RUN.db [-o FILE.html|.md|.json|.xml] [--inconclusive fail|skip] [--github]",
        "report RUN.db -o FILE.pftrace [--launch N]",
        NULL,
};

static const char *const report_examples[] = {
        "upgate report run.db",
        "the table that `upgate ab` printed at its end",
        "upgate report run.db -o report.html",
        "one file for people: verdict, pairs, where the time went, timeline, flame graphs; no network needed",
        "upgate report run.db -o junit.xml --inconclusive=skip",
        "JUnit for a CI system; a cell that could not be decided is skipped, not failed",
        "upgate report run.db -o candidate.pftrace",
        "the candidate's first traced launch for ui.perfetto.dev: every kernel, wait, sample, step",
        "upgate report run.db --format json | jq -r .verdict",
        "the document upgate.verdict/1 on stdout",
        "upgate report run.db --github",
        "in a step of GitHub Actions: annotations, step summary and outputs",
        NULL,
};

static const struct option_spec report_options[] = {
        {"Options", 0, "github", OPTION_FLAG, NULL, NULL, NULL,
                "print GitHub annotations; add to $GITHUB_STEP_SUMMARY and $GITHUB_OUTPUT",
                offsetof(struct report_values, github), 0, 0, 0},
        {NULL, 0, "inconclusive", OPTION_CHOICE, NULL, "fail,skip", "fail",
                "what an inconclusive case is in JUnit",
                offsetof(struct report_values, inconclusive), 0, 0, 0},
        {NULL, 0, "launch", OPTION_UINT, "N", NULL, "the candidate's first",
                "which traced launch .pftrace is made of; an unknown one names those there are",
                offsetof(struct report_values, launch), 1, INT64_MAX, 0},
        OPTIONS_COMMON(struct report_values, common, "FILE",
                "write a file; its ending picks the form: .html, .md, .json, .xml (JUnit), .pftrace (Perfetto)",
                NULL),
        {.name = NULL},
};

static int report_write(const char *path, const struct report_values *values, struct error *err)
{
    const struct render_opts opts = {.inconclusive_skip = strcmp(values->inconclusive, "skip") == 0,
            .launch = (int64_t)values->launch};
    const char *output = values->common.output;
    int rc = output ? render_file_check(output, err) : 0;
    if (rc)
        return rc;
    struct store *store = NULL;
    rc = store_open(path, STORE_READ, &store, err);
    if (rc)
        return rc;
    rc = store_check_run(store, err);
    if (rc) {
        store_close(store);
        return rc;
    }
    if (values->common.dry_run) {
        rc = render_check(store, output, opts.launch, err); // is there a verdict to report?
        if (rc == 0)
            log_info("would report '%s' to %s%s", path,
                    output                   ? output
                            : values->github ? ""
                                             : "stdout",
                    values->github ? output ? " and GitHub" : "GitHub" : "");
    } else {
        if (output)
            rc = render_file(store, output, &opts, err);
        if (rc == 0 && values->github)
            rc = render_github(store, stdout, err);
        if (rc == 0 && !output && !values->github)
            rc = render_stdout(store, &values->common, err);
    }
    store_close(store);
    return rc;
}

static int report_run(int argc, char **argv)
{
    struct report_values values = {.inconclusive = "fail", .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    int rc = program_parse(&verb_report, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (rc == 0) {
        if (values.common.seed_given)
            log_warn("--seed changes nothing here: nothing is drawn");
        rc = report_write(rest.positional[0], &values, &err);
    }
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

const struct verb verb_report = {
        .name = "report",
        .summary =
                "Show a judged run as a table, or write it as HTML, Markdown, JSON, JUnit XML or a Perfetto trace.",
        .usage = report_usage,
        .options = report_options,
        .examples = report_examples,
        .exit_codes =
                "0  the report was written, whatever the verdict (`upgate gate` exits by the verdict)\n"
                "2  usage, or a file that is not a store\n"
                "4  no verdict in the store, disk full, no permission",
        .positional_min = 1,
        .positional_max = 1,
        .run = report_run,
};
