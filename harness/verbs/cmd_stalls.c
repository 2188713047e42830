// SPDX-License-Identifier: Apache-2.0
// `upgate stalls`: who of a recorded program was blocked, on what, by whom, how often. Reads
// RUN.db, analyses it, keeps the rows of table stall where the store can be written, prints. It is
// no gate: a stall that was found ends in 0 as well. With --live: harness/live.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#ifdef UPGATE_HAVE_LIVE
#include "harness/live/live.h"
#include "harness/record/target.h"
#include "harness/verbs/command_line.h"
#endif
#include "harness/verbs/program.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/stalls/stalls_view.h"
#include "tracer/gpu/retention.h"
#include "tracer/store/store.h"

enum {
    STALLS_TOP_DEFAULT = 10,
    STALLS_DETAILS = 3,         // told in full, of one recording
    STALLS_DETAILS_SEVERAL = 1, // of each of several
};
static const int64_t STALLS_SECOND_NS = 1000000000;

struct stalls_values {
    uint64_t recording, pair, top, max_bytes;
    bool recording_given, pair_given;
    const char *workload, *side, *folded;
    bool all, live, window_given, every_given, duration_given, max_given;
    const char *pids, *cgroup, *container;
    int64_t window_ns, every_ns, duration_ns;
    struct options_common common;
};

// A store on the way through this verb.
struct stalls_job {
    const struct stalls_values *values;
    struct store *store;
    bool writable;
    struct stalls_recordings recordings;
    struct stalls_shown *shown; // the chosen ones
    size_t count;
};

extern const struct verb verb_stalls;

static const char *const stalls_usage[] = {
        "stalls RUN.db [--recording N] [--top N | --all] [-o FILE] [--folded FILE]",
        "stalls RUN.db [--workload NAME] [--side a|b] [--pair N]",
        "stalls --live (--pid PID[,PID…] | --cgroup PATH | --container ID) [-o RUN.db]",
        NULL,
};

static const char *const stalls_examples[] = {
        "upgate record --pid 4121 --duration 30s -o run.db && upgate stalls run.db",
        "record a live program for 30 s, then say what held it up",
        "upgate stalls --live --pid 4121",
        "the same while it happens: a screen of the last 10 s, q ends it, s saves what led to it",
        "upgate stalls run.db --format json | jq '.stalls[0] | {cause, culprit}'",
        "the document upgate.stalls/1 for a script",
        "upgate stalls run.db -o incident.md",
        "Markdown for the page of an incident",
        "upgate stalls run.db --folded off-cpu.folded && flamegraph.pl off-cpu.folded > off-cpu.svg",
        "a flame graph of all time off the CPU",
        "upgate stalls ab.db --workload dlrm-train --side b",
        "the traced launches of one side of an `upgate ab`",
        NULL,
};

static const struct option_spec stalls_options[] = {
        {.group = "What is shown",
                .name = "top",
                .kind = OPTION_UINT,
                .value = "N",
                .default_text = "10",
                .help = "causes that are listed; the first three are told in full",
                .offset = offsetof(struct stalls_values, top),
                .min = 1,
                .max = 1000},
        {.name = "all",
                .kind = OPTION_FLAG,
                .help = "every cause, those below 0.1 % of the window too, each in full; of a job of several ranks who was late when",
                .offset = offsetof(struct stalls_values, all)},
        {.name = "folded",
                .kind = OPTION_TEXT,
                .value = "FILE",
                .help = "write the time off the CPU as folded stacks (us), for flame graph tools",
                .offset = offsetof(struct stalls_values, folded)},
        {.group = "Which recording, when the store has several",
                .name = "recording",
                .kind = OPTION_UINT,
                .value = "N",
                .default_text = "all",
                .help = "by its number",
                .offset = offsetof(struct stalls_values, recording),
                .min = 1,
                .max = INT64_MAX,
                .given_offset = offsetof(struct stalls_values, recording_given)},
        {.name = "workload",
                .kind = OPTION_TEXT,
                .value = "NAME",
                .help = "traced launches of this workload of `upgate ab`",
                .offset = offsetof(struct stalls_values, workload)},
        {.name = "side",
                .kind = OPTION_CHOICE,
                .choices = "a,b",
                .help = "traced launches of this side: a is the baseline, b the candidate",
                .offset = offsetof(struct stalls_values, side)},
        {.name = "pair",
                .kind = OPTION_UINT,
                .value = "N",
                .help = "traced launches of this pair",
                .offset = offsetof(struct stalls_values, pair),
                .max = INT64_MAX,
                .given_offset = offsetof(struct stalls_values, pair_given)},
        {.group = "While it happens",
                .name = "live",
                .kind = OPTION_FLAG,
                .help = "record a program that runs, and show what held it up in the last seconds; needs what `upgate record` needs",
                .offset = offsetof(struct stalls_values, live)},
        {.letter = 'p',
                .name = "pid",
                .kind = OPTION_TEXT,
                .value = "PID[,PID…]",
                .help = "processes that run already, with all their threads and children",
                .offset = offsetof(struct stalls_values, pids)},
        {.name = "cgroup",
                .kind = OPTION_TEXT,
                .value = "PATH",
                .help = "every process of a cgroup and of those below it",
                .offset = offsetof(struct stalls_values, cgroup)},
        {.name = "container",
                .kind = OPTION_TEXT,
                .value = "ID",
                .help = "every process of a container, by 6 or more characters of its id",
                .offset = offsetof(struct stalls_values, container)},
        {.name = "window",
                .kind = OPTION_DURATION,
                .value = "TIME",
                .default_text = "10s",
                .help = "so much of the time before now is looked at",
                .offset = offsetof(struct stalls_values, window_ns),
                .given_offset = offsetof(struct stalls_values, window_given)},
        {.name = "every",
                .kind = OPTION_DURATION,
                .value = "TIME",
                .default_text = "2s",
                .help = "between two looks",
                .offset = offsetof(struct stalls_values, every_ns),
                .given_offset = offsetof(struct stalls_values, every_given)},
        {.letter = 'd',
                .name = "duration",
                .kind = OPTION_DURATION,
                .value = "TIME",
                .default_text = "until q, Ctrl-C or the end of the target",
                .help = "how long",
                .offset = offsetof(struct stalls_values, duration_ns),
                .given_offset = offsetof(struct stalls_values, duration_given)},
        {.name = "max-size",
                .kind = OPTION_BYTES,
                .value = "SIZE",
                .default_text = "64M",
                .help = "of what is kept for the keys + and s: the oldest events go",
                .offset = offsetof(struct stalls_values, max_bytes),
                .given_offset = offsetof(struct stalls_values, max_given)},
        OPTIONS_COMMON(struct stalls_values, common, "FILE",
                "write a file instead; its ending picks the form: .txt, .md, .json, .folded; with --live the store RUN.db, which stays",
                NULL),
        {.name = NULL},
};

static bool stalls_chosen(
        const struct stalls_values *values, const struct stalls_recording *recording)
{
    if (values->recording_given && recording->id != (int64_t)values->recording)
        return false;
    if (values->workload && (!recording->workload || strcmp(recording->workload, values->workload)))
        return false;
    if (values->side && recording->side != (values->side[0] == 'b'))
        return false;
    return !values->pair_given || recording->pair == (int64_t)values->pair;
}

// "1 (dlrm-train a, pair 0), 2 (dlrm-train b, pair 0)": what there is to choose from.
static char *stalls_choices(const struct stalls_recordings *recordings)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < recordings->count && i < 12; i++) {
        const struct stalls_recording *item = &recordings->items[i];
        strbuf_add(&text, "%s%lld", i ? ", " : "", (long long)item->id);
        if (item->workload)
            strbuf_add(&text, " (%s %s, pair %lld)", item->workload, item->side == 1 ? "b" : "a",
                    (long long)item->pair);
    }
    if (recordings->count > 12)
        strbuf_add(&text, ", %zu more", recordings->count - 12);
    return strbuf_take(&text);
}

static int stalls_choose(struct stalls_job *job, struct error *err)
{
    const struct stalls_recordings *recordings = &job->recordings;
    if (recordings->count == 0)
        return error_set(err, -EINVAL,
                "'%s' has no recording: `upgate record -o RUN.db --pid PID --duration 30s` "
                "makes one, and so does `upgate ab` with traced_launches",
                store_path(job->store));
    job->shown = xcalloc(recordings->count, sizeof *job->shown);
    for (size_t i = 0; i < recordings->count; i++)
        if (stalls_chosen(job->values, &recordings->items[i]))
            job->shown[job->count++].recording = &recordings->items[i];
    if (job->count)
        return 0;
    char *choices = stalls_choices(recordings);
    int rc = error_set(
            err, -EINVAL, "'%s' has no such recording; it has %s", store_path(job->store), choices);
    free(choices);
    return rc;
}

// The rows of table stall are derived: a store that cannot be written loses nothing but them.
static void stalls_keep(struct stalls_job *job)
{
    struct error err = {0};
    int rc = store_begin(job->store, &err);
    for (size_t i = 0; i < job->count && rc == 0; i++)
        rc = stalls_save(job->store, job->shown[i].stalls, &stalls_view_words, &err);
    if (rc == 0)
        rc = store_commit(job->store, &err);
    if (rc) {
        store_rollback(job->store);
        log_warn("the stalls are shown but not kept in the store: %s", err.text);
    }
}

static int stalls_analyse_all(struct stalls_job *job, struct error *err)
{
    for (size_t i = 0; i < job->count; i++) {
        struct stalls *stalls = NULL;
        const struct stalls_opts opts = {.recording_id = job->shown[i].recording->id,
                .share_min = job->values->all ? 1e-9 : 0};
        int rc = stalls_analyse(job->store, &opts, &stalls, err);
        if (rc)
            return rc;
        job->shown[i].stalls = stalls;
    }
    return 0;
}

static char *stalls_fold(struct stalls_job *job, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    int rc = stream ? 0 : error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < job->count && rc == 0; i++)
        rc = stalls_folded(job->store, job->shown[i].recording->id, stream, err);
    if (stream && fclose(stream) != 0 && rc == 0)
        rc = error_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}

static int stalls_write_folded(struct stalls_job *job, const char *path, struct error *err)
{
    char *text = stalls_fold(job, err);
    int rc = text ? render_write(path, text, err) : err->code;
    free(text);
    return rc;
}

static const char *const stalls_endings[] = {".txt", ".md", ".json", ".folded", NULL};

static void stalls_view_fill(const struct stalls_job *job, struct stalls_view *view)
{
    size_t details = job->count == 1 ? STALLS_DETAILS : STALLS_DETAILS_SEVERAL;
    if (details > job->values->top)
        details = job->values->top;
    *view = (struct stalls_view){.shown = job->shown,
            .count = job->count,
            .recordings = &job->recordings,
            .path = store_path(job->store),
            .rows_max = job->values->all ? SIZE_MAX : job->values->top,
            .details_max = job->values->all ? SIZE_MAX : details,
            .heat = job->values->all};
}

static char *stalls_json_dump(
        const struct stalls_job *job, const struct stalls_view *view, struct error *err)
{
    if (job->count > 1)
        log_warn(
                "%zu recordings; the document is of recording %lld: choose another with --recording, "
                "--workload, --side or --pair",
                job->count, (long long)job->shown[0].recording->id);
    return render_json_dump(stalls_view_json(view), 6, err);
}

static int stalls_write_file(struct stalls_job *job, const char *path, struct error *err)
{
    const char *ending = render_ending(path, stalls_endings);
    struct stalls_view view;
    stalls_view_fill(job, &view);
    if (strcmp(ending, ".folded") == 0)
        return stalls_write_folded(job, path, err);
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    if (strcmp(ending, ".json") == 0) {
        text = stalls_json_dump(job, &view, err);
        rc = text ? 0 : err->code;
    } else if (strcmp(ending, ".md") == 0) {
        text = stalls_view_markdown(&view);
    } else {
        FILE *stream = open_memstream(&text, &len);
        rc = stream ? stalls_view_table(&view, &(struct render_opts){0}, stream, err)
                    : error_set(err, -ENOMEM, "out of memory");
        if (stream)
            fclose(stream);
    }
    if (rc == 0)
        rc = render_write(path, text, err);
    free(text);
    return rc;
}

static int stalls_print(struct stalls_job *job, struct error *err)
{
    struct stalls_view view;
    stalls_view_fill(job, &view);
    if (strcmp(job->values->common.format, "json") != 0) {
        struct render_opts opts = {0};
        render_opts_detect(&opts, STDOUT_FILENO, job->values->common.no_color);
        return stalls_view_table(&view, &opts, stdout, err);
    }
    char *text = stalls_json_dump(job, &view, err);
    int rc = text ? render_print(text, "the stalls", err) : err->code;
    free(text);
    return rc;
}

static int stalls_show(struct stalls_job *job, struct error *err)
{
    const struct stalls_values *values = job->values;
    int rc = values->common.output ? stalls_write_file(job, values->common.output, err)
                                   : stalls_print(job, err);
    if (rc == 0 && values->folded)
        rc = stalls_write_folded(job, values->folded, err);
    return rc;
}

// 3 when of none of the chosen recordings anything can be said.
static enum exit_code stalls_exit(const struct stalls_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        char *why_not = stalls_view_nothing(&job->shown[i]);
        free(why_not);
        if (!why_not)
            return EXIT_CODE_PASS;
    }
    return EXIT_CODE_INCONCLUSIVE;
}

static int stalls_open(struct stalls_job *job, const char *path, struct error *err)
{
    struct error refused = {0};
    int rc = job->values->common.dry_run ? -EROFS
                                         : store_open(path, STORE_WRITE, &job->store, &refused);
    job->writable = rc == 0;
    // What is no store is none for a reader either; what is read-only or being written can be read.
    return rc == 0 ? 0 : store_open(path, STORE_READ, &job->store, err);
}

static int stalls_store(
        struct stalls_job *job, const char *path, enum exit_code *ret_exit, struct error *err)
{
    int rc = stalls_open(job, path, err);
    if (rc == 0)
        rc = stalls_recordings_load(job->store, &job->recordings, err);
    if (rc == 0)
        rc = stalls_choose(job, err);
    if (rc == 0 && job->values->common.dry_run) {
        log_info("would analyse %zu recording%s of '%s'", job->count, job->count == 1 ? "" : "s",
                path);
        return 0;
    }
    if (rc == 0)
        rc = stalls_analyse_all(job, err);
    if (rc == 0 && job->writable)
        stalls_keep(job);
    if (rc == 0)
        rc = stalls_show(job, err);
    if (rc == 0)
        *ret_exit = stalls_exit(job);
    return rc;
}

// What only one of the two forms takes.
static int stalls_check_form(const struct stalls_values *values, size_t stores, struct error *err)
{
    bool of_live = values->pids || values->cgroup || values->container || values->window_given ||
            values->every_given || values->duration_given || values->max_given;
    bool of_store = values->recording_given || values->pair_given || values->workload ||
            values->side || values->folded || values->all;
    if (!values->live && of_live)
        return error_set(err, -EINVAL,
                "a program that runs is looked at with --live; `upgate stalls RUN.db` reads what was recorded");
    if (!values->live)
        return stores
                ? 0
                : error_set(err, -EINVAL,
                          "nothing to look at: name RUN.db, or --live and a program that runs (--pid PID)");
    if (stores || of_store)
        return error_set(err, -EINVAL, "--live looks at a program that runs: not with %s",
                stores ? "RUN.db" : "what chooses from a store");
    if ((values->pids != NULL) + (values->cgroup != NULL) + (values->container != NULL) != 1)
        return error_set(err, -EINVAL, "--live wants one of --pid, --cgroup and --container");
    if (values->window_ns < STALLS_SECOND_NS || values->every_ns < STALLS_SECOND_NS / 10 ||
            values->duration_ns < 0)
        return error_set(err, -EINVAL, "--window is 1 s at least, --every 100 ms");
    if (values->duration_given && !values->duration_ns)
        return error_set(err, -EINVAL,
                "option '--duration': nothing is seen in no time; without it q, Ctrl-C or the end of the target ends it");
    if (values->max_bytes < RETENTION_MIN_BYTES || values->max_bytes > INT64_MAX)
        return error_set(
                err, -EINVAL, "option '--max-size': at least %d MiB", RETENTION_MIN_BYTES >> 20);
    return 0;
}

#ifdef UPGATE_HAVE_LIVE
static int stalls_live(const struct stalls_values *values, int argc, char **argv, struct error *err)
{
    struct target target;
    char *command_line = command_line_text(argc, argv);
    int rc = target_find(values->pids, values->cgroup, values->container, &target, err);
    const struct live_opts opts = {.recording = {.path = values->common.output,
                                           .pids = target.pids,
                                           .pid_count = target.pid_count,
                                           .cgroup = target.cgroup,
                                           .max_bytes = (int64_t)values->max_bytes,
                                           .command_line = command_line},
            .window_ns = values->window_ns,
            .every_ns = values->every_ns,
            .duration_ns = values->duration_ns,
            .rows_max = values->top,
            .json = strcmp(values->common.format, "json") == 0,
            .no_color = values->common.no_color};
    bool dry = values->common.dry_run;
    if (rc == 0)
        rc = dry ? recording_check(&opts.recording, err) : live_run(&opts, err);
    if (rc == 0 && dry)
        log_info("would look at %s", values->pids ? values->pids : target.cgroup);
    free(command_line);
    target_free(&target);
    return rc;
}
#else
static int stalls_live(const struct stalls_values *values, int argc, char **argv, struct error *err)
{
    (void)values, (void)argc, (void)argv;
    return error_set(
            err, -ENOTSUP, "this upgate was built without what records: --live is not in it");
}
#endif

static int stalls_check(const struct stalls_values *values, struct error *err)
{
    if (!values->live && values->common.output &&
            !render_ending(values->common.output, stalls_endings))
        return error_set(err, -EINVAL,
                "failed to write '%s': the ending picks the form: .txt (table), .md "
                "(Markdown), .json (upgate.stalls/1) or .folded (flame graph)",
                values->common.output);
    return 0;
}

static int stalls_run(int argc, char **argv)
{
    struct stalls_values values = {.top = STALLS_TOP_DEFAULT,
            .window_ns = 10 * STALLS_SECOND_NS,
            .every_ns = 2 * STALLS_SECOND_NS,
            .max_bytes = 64 << 20,
            .common = OPTIONS_COMMON_DEFAULT};
    struct stalls_job job = {.values = &values};
    struct options_rest rest = {0};
    struct error err = {0};
    enum exit_code code = EXIT_CODE_PASS;
    int rc = program_parse(&verb_stalls, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (rc == 0 && values.common.seed_given)
        log_warn("--seed changes nothing here: nothing is drawn");
    if (rc == 0)
        rc = stalls_check_form(&values, rest.positional_count, &err);
    if (rc == 0)
        rc = stalls_check(&values, &err);
    if (rc == 0)
        rc = values.live ? stalls_live(&values, argc, argv, &err)
                         : stalls_store(&job, rest.positional[0], &code, &err);
    if (rc)
        log_error("%s", err.text);
    for (size_t i = 0; i < job.count; i++)
        stalls_free((struct stalls *)job.shown[i].stalls);
    free(job.shown);
    stalls_recordings_clear(&job.recordings);
    store_close(job.store);
    return rc ? error_exit_code(rc) : (int)code;
}

const struct verb verb_stalls = {
        .name = "stalls",
        .summary =
                "Say what held a recorded program up: who was blocked, on what, by whom, how often.",
        .usage = stalls_usage,
        .options = stalls_options,
        .examples = stalls_examples,
        .exit_codes =
                "0  done, whatever was found (it is no gate)\n"
                "2  usage, a file that is not a store, a store without such a recording, no such process\n"
                "3  nothing can be said: no event was recorded, or all were dropped\n"
                "4  operational failure: disk full, no permission, a damaged store",
        .positional_max = 1,
        .run = stalls_run,
};
