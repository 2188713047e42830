// SPDX-License-Identifier: Apache-2.0
// `upgate diff`: where the difference between the sides of an A/B run comes from. Reads RUN.db and
// changes nothing in it; prints a table or the document upgate.diff/1. It is no gate: a regression
// that was explained ends in 0 as well.
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/diff_view.h"
#include "tracer/store/store.h"

struct diff_values {
    const char *workload;
    bool all, ignore_names;
    struct options_common common;
};

extern const struct verb verb_diff;

static const char *const diff_usage[] = {
    "diff RUN.db [--workload NAME] [--all] [--format table|json] [-o FILE]",
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
                 : strcmp(ending, ".md") == 0 ? diff_view_markdown(view->diff)
                                              : diff_table_text(view, err);
    int rc = text ? render_write(path, text, err) : err->code;
    free(text);
    return rc;
}

static int diff_print(const struct diff_view *view, const struct options_common *common,
                      struct error *err)
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
    const struct diff_opts opts = {.workload = values->workload,
                                   .ignore_names = values->ignore_names};
    if (rc == 0)
        rc = diff_input_error(diff_analyse(store, &opts, &diff, err));
    const struct diff_view view = {.diff = diff, .path = path, .all = values->all};
    if (rc == 0 && values->common.output)
        rc = diff_write(&view, values->common.output, err);
    else if (rc == 0)
        rc = diff_print(&view, &values->common, err);
    if (rc == 0 && !diff_view_explained(diff)) {
        log_error("nothing is explained: %s", diff->workloads[0].unexplained);
        *ret_exit = EXIT_CODE_OPERATIONAL;
    }
    diff_free(diff);
    store_close(store);
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
    int rc = options_parse(&verb_diff, argc, argv, &values, &rest, &err);
    if (rc == 0 && rest.help) {
        options_print_help(&verb_diff, stdout);
        return EXIT_CODE_PASS;
    }
    options_apply_common(&values.common);
    if (rc == 0 && values.common.seed_given)
        log_warn("--seed changes nothing here: nothing is drawn");
    if (rc == 0)
        rc = diff_check(&values, &err);
    diff_keep_memory();
    if (rc == 0)
        rc = diff_store(&values, rest.positional[0], &code, &err);
    if (rc)
        log_error("%s", err.text);
    return rc ? error_exit_code(rc) : (int)code;
}

const struct verb verb_diff = {
    .name = "diff",
    .summary = "Say where the difference between the two sides of a run comes from.",
    .usage = diff_usage,
    .options = diff_options,
    .examples = diff_examples,
    .exit_codes =
        "0  done, whatever was found (it is no gate)\n"
        "2  usage, a file that is not a store, a store of one side only, no such workload\n"
        "4  nothing could be explained (no launches were traced), or an operational failure",
    .positional_min = 1,
    .positional_max = 1,
    .run = diff_run,
};
