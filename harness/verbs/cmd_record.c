// SPDX-License-Identifier: Apache-2.0
// `upgate record`: what a program waits for, who lets it wait, and what its GPU does, into a store.
// Reads options, hands them to harness/record/, says how it ended and what to do next. `upgate
// stalls` reads the store.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "contracts/spool.h"
#ifdef UPGATE_HAVE_LIVE
#include "harness/live/watch.h"
#endif
#include "harness/record/recording.h"
#include "harness/record/report.h"
#include "harness/record/target.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/program.h"
#include "harness/verbs/recording_options.h"

struct record_values {
    const char *pids, *cgroup, *container;
    int64_t duration_ns;
    bool duration_given, no_children, launch_stacks, print_env;
    struct recording_values recording;
    uint64_t keep;
    const char *trigger;
    int64_t after_ns;
    bool after_given, keep_given;
    struct options_common common;
};

extern const struct verb verb_record;

static const struct option_spec record_options[] = {
        {"Target", 'p', "pid", OPTION_TEXT, "PID[,PID…]", NULL, NULL,
                "processes that run already, with all their threads and children",
                offsetof(struct record_values, pids), 0, 0, 0},
        {NULL, 0, "cgroup", OPTION_TEXT, "PATH", NULL, NULL,
                "every process of a cgroup and of those below it",
                offsetof(struct record_values, cgroup), 0, 0, 0},
        {NULL, 0, "container", OPTION_TEXT, "ID", NULL, NULL,
                "every process of a container, by 6 or more characters of its id",
                offsetof(struct record_values, container), 0, 0, 0},
        {NULL, 0, "no-children", OPTION_FLAG, NULL, NULL, NULL, "leave out processes born later",
                offsetof(struct record_values, no_children), 0, 0, 0},
        {"Recording", 'd', "duration", OPTION_DURATION, "TIME", NULL,
                "until the target ends or Ctrl-C", "how long",
                offsetof(struct record_values, duration_ns), 0, 0,
                offsetof(struct record_values, duration_given)},
        OPTIONS_RECORDING(NULL, struct record_values, recording),
        {"What is kept", 0, "trigger", OPTION_TEXT, "WHAT", NULL, NULL,
                "keep only what is around moments such as 'stall > 500ms' or 'step_time > 2x median': RUN-DATE-TIME.db for each, with what --max-size (64M) has of the time before",
                offsetof(struct record_values, trigger), 0, 0, 0},
        {NULL, 0, "after", OPTION_DURATION, "TIME", NULL, "30s",
                "with --trigger: so much of the time behind it",
                offsetof(struct record_values, after_ns), 0, 0,
                offsetof(struct record_values, after_given)},
        {NULL, 0, "keep", OPTION_UINT, "N", NULL, "10",
                "with --trigger: so many stores of this name, earlier ones too; of more the oldest one goes",
                offsetof(struct record_values, keep), 1, 10000,
                offsetof(struct record_values, keep_given)},
        OPTIONS_RECORDING_GPU(struct record_values, recording),
        {NULL, 0, "launch-stacks", OPTION_FLAG, NULL, NULL, NULL,
                "the Python stack of every launch: dear",
                offsetof(struct record_values, launch_stacks), 0, 0, 0},
        {NULL, 0, "print-env", OPTION_FLAG, NULL, NULL, NULL,
                "print the environment that prepares a service for --pid, and stop",
                offsetof(struct record_values, print_env), 0, 0, 0},
        OPTIONS_COMMON(struct record_values, common, "RUN.db",
                "store of the recording; must not exist yet", "run.db"),
        {.name = NULL}};

static const char *const record_usage[] = {"record [-o RUN.db] [--duration 30s] --pid PID[,PID…]",
        "record [-o RUN.db] [--duration 30s] --cgroup PATH | --container ID",
        "record [-o RUN.db] [--duration 30s] -- COMMAND…",
        "record --trigger WHAT [--after 30s] [--keep 10] (--pid PID | --cgroup PATH | -- COMMAND…)",
        "record --print-env", NULL};

static const char *const record_examples[] = {
        "upgate record --pid 4711 --duration 30s && upgate stalls run.db",
        "why does this job stand still now and then?",
        "upgate record -o run.db -- python train.py",
        "a program from its first instruction to its end",
        "upgate record --container 3f2a9c81d0 --duration 1min",
        "everything in a container; Ctrl-C ends the recording, not the target",
        "upgate record --gpu nodes -- python train.py",
        "every kernel of every CUDA graph, with its module and step",
        "upgate record --trigger 'stall > 500ms' --pid 4711 -o night.db",
        "leave it running for weeks: night-20261126-031207.db holds what led to a stall",
        "upgate record --print-env >> service.env",
        "a service that can be recorded with its GPU side later on",
        NULL,
};

static const char record_exit_codes[] =
        "  0  recorded; Ctrl-C and the end of the target are no failures, whatever a command's own exit code\n"
        "  2  usage, no such process, or a store that exists already\n"
        "  4  operational failure: no permission, no BTF, disk full, a command that cannot be started\n";

static int record_check(
        const struct record_values *values, const struct options_rest *rest, struct error *err)
{
    int targets = (values->pids != NULL) + (values->cgroup != NULL) + (values->container != NULL) +
            (rest->command_count > 0);
    if (targets == 0)
        return error_set(
                err, -EINVAL, "nothing to record: name --pid, --cgroup, --container or -- COMMAND");
    if (targets > 1)
        return error_set(err, -EINVAL,
                "--pid, --cgroup, --container and a command exclude each other: name one");
    if (values->launch_stacks && strcmp(values->recording.gpu, "off") == 0)
        return error_set(err, -EINVAL, "--launch-stacks is of the GPU side: not with --gpu off");
    if (values->recording.step && (values->cgroup || values->container))
        return error_set(err, -EINVAL, "--step is of a command or of --pid, not of a cgroup");
    if (!values->trigger && (values->after_given || values->keep_given))
        return error_set(err, -EINVAL, "--after and --keep are of --trigger");
    if (values->after_ns < 0 || values->duration_ns < 0)
        return error_set(err, -EINVAL, "a time cannot be negative");
    if (values->duration_given && !values->duration_ns)
        return error_set(err, -EINVAL,
                "option '--duration': nothing is recorded in no time; without it the end of the target or Ctrl-C ends it");
    return recording_values_check(&values->recording, rest->command_count > 0, err);
}

// What was asked for, ready for recording_run(); *ret_target is the caller's to free.
static int record_opts(const struct record_values *values, const struct options_rest *rest,
        struct recording_opts *opts, struct target *ret_target, struct error *err)
{
    int rc = record_check(values, rest, err);
    if (rc == 0)
        rc = target_find(values->pids, values->cgroup, values->container, ret_target, err);
    opts->pids = ret_target->pids;
    opts->pid_count = ret_target->pid_count;
    opts->cgroup = ret_target->cgroup;
    opts->path = values->common.output ? values->common.output : "run.db";
    opts->command = rest->command_count ? rest->command : NULL;
    opts->command_count = rest->command_count;
    opts->duration_ns = values->duration_ns;
    opts->no_children = values->no_children;
    recording_values_apply(&values->recording, opts);
    if (values->launch_stacks)
        opts->gpu_kinds |= UG_WANT_LAUNCH_STACKS;
    opts->progress = !values->common.quiet;
    return rc;
}

static void record_tell_command(
        const struct recording_opts *opts, const struct recording_result *result)
{
    if (!opts->command)
        return;
    if (!result->command_ended)
        log_info("'%s' runs on", opts->command[0]);
    else if (WIFSIGNALED(result->command_status))
        log_info("'%s' was ended by signal %d (%s)", opts->command[0],
                WTERMSIG(result->command_status), strsignal(WTERMSIG(result->command_status)));
    else
        log_info("'%s' ended with exit code %d", opts->command[0],
                WEXITSTATUS(result->command_status));
}

static void record_tell_missing(const char *missing)
{
    for (const char *line = missing; line && *line;) {
        const char *end = strchr(line, '\n');
        int len = end ? (int)(end - line) : (int)strlen(line);
        log_warn("continuing without %.*s", len, line);
        line = end ? end + 1 : NULL;
    }
}

static const char *record_target(
        const struct record_values *values, const struct recording_opts *opts)
{
    return opts->command ? opts->command[0] : opts->cgroup ? opts->cgroup : values->pids;
}

#ifdef UPGATE_HAVE_LIVE
static int record_watch(
        const struct record_values *values, const struct recording_opts *opts, struct error *err)
{
    enum { WATCH_BYTES = 64 << 20 };
    struct watch_opts watch = {.recording = *opts,
            .trigger_text = values->trigger,
            .after_ns = values->after_ns,
            .keep = values->keep,
            .json = strcmp(values->common.format, "json") == 0};
    watch.recording.max_bytes = opts->max_bytes ? opts->max_bytes : WATCH_BYTES;
    int rc = trigger_parse(values->trigger, &watch.trigger, err);
    if (rc == 0 && watch.trigger.kind == TRIGGER_STEP && !opts->command && !opts->symbol)
        rc = error_set(err, -EINVAL,
                "option '--trigger': steps of a program that runs already are seen by --step symbol:NAME only");
    if (rc || !values->common.dry_run)
        return rc ? rc : watch_run(&watch, err);
    watch.recording.path = NULL; // a name for those that come
    rc = recording_check(&watch.recording, err);
    if (rc == 0)
        log_info("would record %s, and keep what is around '%s'", record_target(values, opts),
                values->trigger);
    return rc;
}
#else
static int record_watch(
        const struct record_values *values, const struct recording_opts *opts, struct error *err)
{
    (void)values, (void)opts;
    return error_set(err, -ENOTSUP,
            "this upgate was built without the analysis of stalls: --trigger is not in it");
}
#endif

static int record_go(
        const struct record_values *values, const struct recording_opts *opts, struct error *err)
{
    struct recording_result result = {0};
    if (values->trigger)
        return record_watch(values, opts, err);
    if (values->common.dry_run) {
        int checked = recording_check(opts, err);
        if (checked == 0)
            log_info("would record %s into '%s'", record_target(values, opts), opts->path);
        return checked;
    }
    int rc = recording_run(opts, &result, err);
    record_tell_missing(result.missing);
    free(result.missing);
    if (result.recording_id)
        record_tell_command(opts, &result);
    if (rc == 0 && strcmp(values->common.format, "json") == 0)
        report_print_json(opts, &result);
    else if (rc == 0)
        report_print(opts, &result);
    json_decref(result.gpu);
    return rc;
}

static int cmd_record(int argc, char **argv)
{
    struct record_values values = {.recording = RECORDING_VALUES_DEFAULT,
            .after_ns = 30000000000,
            .keep = 10,
            .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct recording_opts opts = {0};
    struct error err = {0};
    struct target target = {0};
    char *command_line = command_line_text(argc, argv);
    int rc = program_parse(&verb_record, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0) {
        free(command_line);
        return EXIT_CODE_PASS;
    }
    bool prints = rc == 0 && values.print_env;
    if (prints)
        rc = report_print_environment(strcmp(values.common.format, "json") == 0, &err);
    if (rc == 0 && !prints)
        rc = record_opts(&values, &rest, &opts, &target, &err);
    opts.command_line = command_line;
    if (rc == 0 && !prints)
        rc = record_go(&values, &opts, &err);
    target_free(&target);
    free(command_line);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

const struct verb verb_record = {
        .name = "record",
        .summary =
                "Record what a program waits for and what its GPU does, started or live: stalls, culprits, kernels.",
        .usage = record_usage,
        .options = record_options,
        .examples = record_examples,
        .exit_codes = record_exit_codes,
        .takes_command = true,
        .run = cmd_record,
};
