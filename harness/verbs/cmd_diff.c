// SPDX-License-Identifier: Apache-2.0
// `upgate diff`: where the difference between the sides of an A/B run comes from. Reads RUN.db and
// changes nothing in it; prints a table or the document upgate.diff/1. It is no gate: a regression
// that was explained ends in 0 as well. Given two stores of `upgate record`, it compares those.
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"
#include "harness/verbs/program.h"
#include "reports/analyse/diff/diff.h"
#include "reports/analyse/diff/recordings/recordings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/diff/recordings_view.h"
#include "tracer/store/store.h"

struct diff_values {
    const char *workload, *requests;
    bool all, ignore_names;
    struct options_common common;
};

extern const struct verb verb_diff;

static const char *const diff_usage[] = {
        "diff RUN.db [--workload NAME] [--all] [--format table|json] [-o FILE]",
        "diff BASELINE.db CANDIDATE.db [--requests A,B] [--all] [--format table|json] [-o FILE]",
        NULL,
};

static const char *const diff_examples[] = {
        "upgate ab plan.yaml -o run.db && upgate diff run.db",
        "run both sides, then say where the difference comes from",
        "upgate diff run.db --workload dlrm-train",
        "one workload of several",
        "upgate diff run.db --all | less -R",
        "what is not told from noise as well, down to the last microsecond",
        "upgate diff run.db --format json | jq '.workloads[0].contributions[0] | {kind, where}'",
        "the largest contribution, for a script",
        "upgate diff run.db -o diff.json",
        "the document upgate.diff/1 as a file",
        "upgate diff old.db new.db --requests 81000,27000",
        "two recordings of `upgate record`: what a request of the second costs more",
        NULL,
};

static const struct option_spec diff_options[] = {
        {.group = "What is shown",
                .name = "workload",
                .kind = OPTION_TEXT,
                .value = "NAME",
                .default_text = "all",
                .help = "this workload only",
                .offset = offsetof(struct diff_values, workload)},
        {.name = "requests",
                .kind = OPTION_TEXT,
                .value = "A,B",
                .help = "of two recordings: how many requests each program answered meanwhile; else times are of a second",
                .offset = offsetof(struct diff_values, requests)},
        {.name = "all",
                .kind = OPTION_FLAG,
                .help = "every contribution, those too that are not told from noise",
                .offset = offsetof(struct diff_values, all)},
        {.group = "How the sides are aligned",
                .name = "ignore-names",
                .kind = OPTION_FLAG,
                .help = "by structure and resources only, as if every kernel and function had been renamed",
                .offset = offsetof(struct diff_values, ignore_names)},
        OPTIONS_COMMON(struct diff_values, common, "FILE",
                "write a file instead; its ending picks the form: .txt, .md or .json", NULL),
        {.name = NULL},
};

static const char *const diff_endings[] = {".txt", ".md", ".json", NULL};

static char *diff_dump(const struct diff *diff, struct error *err)
{
    return render_json_dump(diff_view_json(diff), 9, err);
}

static char *diff_table_text(const struct diff_view *view, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    int rc = stream ? diff_view_table(view, &(struct render_opts){0}, stream, err)
                    : error_set(err, -ENOMEM, "out of memory");
    if (stream && fclose(stream) != 0 && rc == 0)
        rc = error_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}

static int diff_write(const struct diff_view *view, const char *path, struct error *err)
{
    const char *ending = render_ending(path, diff_endings);
    char *text = strcmp(ending, ".json") == 0 ? diff_dump(view->diff, err)
            : strcmp(ending, ".md") == 0      ? diff_view_markdown(view->diff)
                                              : diff_table_text(view, err);
    int rc = text ? render_write(path, text, err) : err->code;
    free(text);
    return rc;
}

static int diff_print(
        const struct diff_view *view, const struct options_common *common, struct error *err)
{
    if (strcmp(common->format, "json") != 0) {
        struct render_opts opts = {0};
        render_opts_detect(&opts, STDOUT_FILENO, common->no_color);
        return diff_view_table(view, &opts, stdout, err);
    }
    char *text = diff_dump(view->diff, err);
    if (!text)
        return err->code;
    int rc = render_print(text, "the difference", err);
    free(text);
    return rc;
}

// What is wrong with the store or the name of a workload is the caller's to mend: exit 2.
static int diff_input_error(int rc)
{
    return rc == -ENODATA || rc == -ENOENT ? -EINVAL : rc;
}

static int diff_store(const struct diff_values *values, const char *path, enum exit_code *ret_exit,
        struct error *err)
{
    struct store *store = NULL;
    struct diff *diff = NULL;
    int rc = store_open(path, STORE_READ, &store, err);
    if (rc == 0 && values->common.dry_run) {
        log_info("would compare the sides of '%s'", path);
        store_close(store);
        return 0;
    }
    const struct diff_opts opts = {
            .workload = values->workload, .ignore_names = values->ignore_names};
    if (rc == 0)
        rc = diff_input_error(diff_analyse(store, &opts, &diff, err));
    const struct diff_view view = {.diff = diff, .path = path, .all = values->all};
    if (rc == 0 && values->common.output)
        rc = diff_write(&view, values->common.output, err);
    else if (rc == 0)
        rc = diff_print(&view, &values->common, err);
    if (rc == 0 && !diff_view_explained(diff)) {
        char *why = diff_text_unexplained(&diff->workloads[0]);
        log_error("nothing is explained: %s", why);
        free(why);
        *ret_exit = EXIT_CODE_OPERATIONAL;
    }
    diff_free(diff);
    store_close(store);
    return rc;
}

// "81000,27000"; NULL leaves both NAN.
static int diff_requests(const char *text, double ret[2], struct error *err)
{
    ret[0] = ret[1] = NAN;
    if (!text)
        return 0;
    char *copy = xstrdup(text), *comma = strchr(copy, ',');
    uint64_t counts[2] = {0, 0};
    if (comma)
        *comma = 0;
    int rc = !comma || unit_parse_uint(copy, 1, UINT32_MAX, &counts[0], NULL) ||
                    unit_parse_uint(comma + 1, 1, UINT32_MAX, &counts[1], NULL)
            ? error_set(err, -EINVAL,
                      "option '--requests': '%s' is not two counts, of the baseline and of the candidate: 81000,27000",
                      text)
            : 0;
    free(copy);
    ret[0] = (double)counts[0];
    ret[1] = (double)counts[1];
    return rc;
}

static char *diff_recordings_text(
        const struct diff_values *values, const struct recordings_diff *diff, struct error *err)
{
    const char *ending = values->common.output ? render_ending(values->common.output, diff_endings)
            : strcmp(values->common.format, "json") == 0 ? ".json"
                                                         : ".txt";
    if (strcmp(ending, ".json") == 0)
        return render_json_dump(recordings_view_json(diff), 9, err);
    if (strcmp(ending, ".md") == 0)
        return recordings_view_markdown(diff, "### What differs between the recordings");
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    if (stream)
        recordings_view_table(diff, values->all, stream);
    if (!stream || fclose(stream) != 0) {
        free(text);
        error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    return text;
}

static int diff_recordings(const struct diff_values *values, char *const *paths, struct error *err)
{
    struct store *stores[2] = {0};
    struct recordings_diff *diff = NULL;
    double requests[2];
    char *text = NULL;
    int rc = values->workload || values->ignore_names
            ? error_set(err, -EINVAL,
                      "--workload and --ignore-names are of one store of `upgate ab`, not of two recordings")
            : diff_requests(values->requests, requests, err);
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = store_open(paths[side], STORE_READ, &stores[side], err);
    if (rc == 0 && values->common.dry_run)
        log_info("would compare the recordings in '%s' and '%s'", paths[0], paths[1]);
    else if (rc == 0)
        rc = diff_input_error(recordings_diff(stores, requests, &diff, err));
    if (rc == 0 && diff) {
        text = diff_recordings_text(values, diff, err);
        rc = !text                      ? err->code
                : values->common.output ? render_write(values->common.output, text, err)
                                        : render_print(text, "the difference", err);
    }
    free(text);
    recordings_diff_free(diff);
    for (int side = 0; side < 2; side++)
        store_close(stores[side]);
    return rc;
}

// Launches are read one after the other, 300 MB each: what one gave back serves the next. Through
// the kernel it would come back by 140,000 page faults, a tenth of the time over two launches of 10
// million operations.
static void diff_keep_memory(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

static int diff_check(const struct diff_values *values, struct error *err)
{
    if (values->common.output && !render_ending(values->common.output, diff_endings))
        return error_set(err, -EINVAL,
                "failed to write '%s': the ending picks the form: .txt (table), .md "
                "(Markdown) or .json (upgate.diff/1)",
                values->common.output);
    return 0;
}

static int diff_run(int argc, char **argv)
{
    struct diff_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    enum exit_code code = EXIT_CODE_PASS;
    int rc = program_parse(&verb_diff, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (rc == 0 && values.common.seed_given)
        log_warn("--seed changes nothing here: nothing is drawn");
    if (rc == 0)
        rc = diff_check(&values, &err);
    diff_keep_memory();
    if (rc == 0 && rest.positional_count == 2)
        rc = diff_recordings(&values, rest.positional, &err);
    else if (rc == 0 && values.requests)
        rc = error_set(&err, -EINVAL,
                "--requests is of two recordings: upgate diff BASELINE.db CANDIDATE.db --requests A,B");
    else if (rc == 0)
        rc = diff_store(&values, rest.positional[0], &code, &err);
    return program_judge(rc, (int)code, &err);
}

const struct verb verb_diff = {
        .name = "diff",
        .summary = "Say where the difference between the two sides of a run comes from.",
        .usage = diff_usage,
        .options = diff_options,
        .examples = diff_examples,
        .exit_codes =
                "0  done, whatever was found (it is no gate)\n"
                "2  usage, a file that is not a store, a store of one side only, no such workload, no recording\n"
                "4  nothing could be explained (no launches were traced), or an operational failure",
        .positional_min = 1,
        .positional_max = 2,
        .run = diff_run,
};
