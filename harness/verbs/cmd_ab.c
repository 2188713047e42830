// SPDX-License-Identifier: Apache-2.0
// upgate ab: run the same workloads on both sides, store, analyse, judge, print. Reads the plan (or
// composes one from options), hands it to the session, prints what the store then says.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/plan/plan.h"
#include "harness/run/session.h"
#include "harness/verbs/command_line.h"
#include "harness/verbs/program.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/render.h"

struct ab_values {
    const char *baseline, *candidate, *resume, *mount;
    bool aa, bisect;
    uint64_t steps;
    const char *steps_from, *step;
    bool steps_from_given;
    struct options_common common;
};

static const struct option_spec ab_options[] = {
        {"Sides", 'a', "baseline", OPTION_TEXT, "PYTHON", NULL, "the plan's",
                "interpreter of the old stack, an environment, or image:NAME, a container image",
                offsetof(struct ab_values, baseline), 0, 0, 0},
        {NULL, 'b', "candidate", OPTION_TEXT, "PYTHON", NULL, "the plan's",
                "interpreter of the new stack, an environment, or image:NAME, a container image",
                offsetof(struct ab_values, candidate), 0, 0, 0},
        {NULL, 0, "aa", OPTION_FLAG, NULL, NULL, NULL,
                "run the baseline against itself, plain and held longer; keep what that shows as this host's certificate",
                offsetof(struct ab_values, aa), 0, 0, 0},
        {NULL, 0, "mount", OPTION_TEXT, "PATH[:TARGET[:ro]],…", NULL, "the plan's",
                "files and directories that go into the container images",
                offsetof(struct ab_values, mount), 0, 0, 0},
        {"Run", 0, "resume", OPTION_TEXT, "RUN.db", NULL, NULL,
                "go on with an interrupted run: its plan, its pairs, its coin flips",
                offsetof(struct ab_values, resume), 0, 0, 0},
        {NULL, 0, "steps", OPTION_UINT, "N", NULL, "the plan's, else 200, of inference 1000",
                "steps or requests of a launch", offsetof(struct ab_values, steps), 1, 100000000,
                0},
        {NULL, 0, "steps-from", OPTION_CHOICE, NULL, "calls,auto,off", "the plan's, else auto",
                "steps of commands: their own step calls; auto: else those found in a Python program; off: none, total time",
                offsetof(struct ab_values, steps_from), 0, 0,
                offsetof(struct ab_values, steps_from_given)},
        {NULL, 0, "step", OPTION_TEXT, "WHAT", NULL, "the plan's",
                "a step of the command: a call of FILE.py:NAME or symbol:NAME, a range nvtx:NAME, or a replay: graph",
                offsetof(struct ab_values, step), 0, 0, 0},
        {NULL, 0, "bisect", OPTION_FLAG, NULL, NULL, NULL,
                "exit with 125 (cannot test) instead of 3 and 4, as `git bisect run` wants",
                offsetof(struct ab_values, bisect), 0, 0, 0},
        OPTIONS_COMMON_SEED(struct ab_values, common, "RUN.db",
                "store of the run; must not exist yet", "run.db"),
        {.name = NULL}};

static const char *const ab_usage[] = {"ab PLAN.yaml [-o RUN.db]",
        "ab --baseline PYTHON --candidate PYTHON [-- COMMAND…]", "ab --aa PLAN.yaml",
        "ab --resume RUN.db", NULL};

static const char *const ab_examples[] = {
        "upgate ab plan.yaml -o run.db",
        "judge the upgrade a plan describes",
        "upgate ab -a envs/old/bin/python -b envs/new/bin/python",
        "the reference workloads under two environments",
        "upgate ab -a envs/old/bin/python -b envs/new/bin/python -- {python} train.py --steps {steps}",
        "a program of your own; {python} becomes each side's interpreter",
        "upgate ab -a image:train:torch2.1 -b image:train:torch2.6 --mount . -- python train.py",
        "the same program in two container images",
        "upgate ab --aa plan.yaml -o aa.db",
        "calibrate this host with the same workloads",
        "upgate ab --resume run.db",
        "go on after an interruption, a crash or a reboot",
        NULL,
};

static const char ab_exit_codes[] =
        "  0  pass: every gating cell is shown to be within its margin\n"
        "  1  fail: a regression beyond its margin, a numerical difference, a candidate that crashes\n"
        "  2  usage or invalid plan\n"
        "  3  inconclusive: interrupted, not enough evidence, or evidence that cannot be trusted\n"
        "  4  operational failure: a side could not be started, disk full, no permission\n";

// The rules of a plan hold for what an option has changed in it, too.
static int ab_check_again(struct plan **plan, struct error *err)
{
    json_t *json = plan_to_json(*plan);
    struct plan *checked = NULL;
    int rc = plan_from_json(json, &checked, err);
    json_decref(json);
    if (rc)
        return rc;
    checked->path = (*plan)->path ? xstrdup((*plan)->path) : NULL;
    plan_free(*plan);
    *plan = checked;
    return plan_check_again(checked, err);
}

// The step of --step is the commands'; a model makes its own calls.
static int ab_set_step(struct plan *plan, const char *step, struct error *err)
{
    bool any = false;
    for (int i = 0; i < plan->workload_count; i++) {
        struct plan_workload *workload = &plan->workloads[i];
        if (!workload->command)
            continue;
        free(workload->step);
        workload->step = xstrdup(step);
        any = true;
    }
    return any ? 0
               : error_set(err, -EINVAL,
                         "--step is of commands, and no workload is one: models make step calls");
}

// What --mount names, on top of the plan's, into each side that is an image.
static int ab_add_mounts(struct plan *plan, const char *list, struct error *err)
{
    bool any = false;
    for (int i = 0; i < PLAN_SIDES; i++) {
        struct plan_side *side = &plan->sides[i];
        size_t count = 0;
        any |= side->image != NULL;
        while (side->mounts && side->mounts[count])
            count++;
        for (const char *at = list; side->image && *at; at += strcspn(at, ","), at += *at == ',') {
            side->mounts = xrealloc(side->mounts, (count + 2) * sizeof *side->mounts);
            side->mounts[count++] = xasprintf("%.*s", (int)strcspn(at, ","), at);
            side->mounts[count] = NULL;
        }
    }
    return any ? 0
               : error_set(err, -EINVAL,
                         "--mount puts files into container images, and no side is one");
}

// The plan that the options ask for; NULL plan with --resume.
static int ab_plan(const struct ab_values *values, const struct options_rest *rest,
        struct plan **ret_plan, struct error *err)
{
    const char *path = rest->positional_count ? rest->positional[0] : NULL;
    if (path && (values->baseline || values->candidate || rest->command))
        return error_set(err, -EINVAL,
                "a plan names its own sides and commands: leave out --baseline, "
                "--candidate and the command, or the plan");
    if (values->aa && values->candidate)
        log_warn("--aa runs the baseline against itself: --candidate is left out");
    if (values->step && plan_check_step(values->step, err))
        return -EINVAL;
    if (values->step && values->steps_from_given && strcmp(values->steps_from, "auto") != 0)
        return error_set(err, -EINVAL,
                "--step names steps that are found: not with --steps-from calls or off");
    const char *candidate = values->aa ? values->baseline : values->candidate;
    if (!path && (!values->baseline || !candidate))
        return error_set(
                err, -EINVAL, "nothing to run: name a plan, or both --baseline and --candidate");
    int rc = path ? plan_load(path, ret_plan, err)
                  : plan_from_command(values->baseline, candidate, rest->command,
                            (int)rest->command_count, ret_plan, err);
    if (rc)
        return rc;
    struct plan *plan = *ret_plan;
    if (values->common.seed_given)
        plan->schedule.seed = values->common.seed;
    for (int i = 0; values->steps && i < plan->workload_count; i++)
        plan->workloads[i].steps = values->steps;
    for (int i = 0; values->steps_from_given && i < plan->workload_count; i++)
        plan->workloads[i].steps_from = strcmp(values->steps_from, "calls") == 0
                ? PLAN_STEPS_FROM_CALLS
                : strcmp(values->steps_from, "off") == 0 ? PLAN_STEPS_FROM_OFF
                                                         : PLAN_STEPS_FROM_AUTO;
    if (values->step && ab_set_step(plan, values->step, err))
        return -EINVAL;
    if (values->mount && ab_add_mounts(plan, values->mount, err))
        return -EINVAL;
    return values->steps || values->steps_from_given || values->step || values->mount
            ? ab_check_again(ret_plan, err)
            : 0;
}

// With --resume: everything stands in the store, and is asked for nowhere else.
static int ab_check_resume(
        const struct ab_values *values, const struct options_rest *rest, struct error *err)
{
    if (rest->positional_count || rest->command || values->aa || values->baseline ||
            values->candidate || values->steps || values->steps_from_given || values->step ||
            values->mount || values->common.seed_given || values->common.output)
        return error_set(err, -EINVAL,
                "--resume takes everything from the store: leave out the plan, the "
                "command, --baseline, --candidate, --aa, --steps, --steps-from, --step, --mount, --seed and -o");
    return 0;
}

// The plan of a run, to be shown.
static int ab_stored_plan(const char *path, struct plan **ret_plan, struct error *err)
{
    struct store *store = NULL;
    int rc = store_open(path, STORE_READ, &store, err);
    if (rc)
        return rc;
    char *text = store_get_text(store, "SELECT plan FROM run", "");
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    rc = store_failed(store, err);
    if (rc == 0)
        rc = json ? plan_from_json(json, ret_plan, err)
                  : error_set(err, -EINVAL, "'%s' holds no run of `upgate ab`", path);
    json_decref(json);
    free(text);
    store_close(store);
    return rc;
}

// The baseline against itself: the candidate becomes a copy of it.
static int ab_make_aa(struct plan **plan, struct error *err)
{
    json_t *json = plan_to_json(*plan);
    json_t *again = json_deep_copy(json_object_get(json, "baseline"));
    char *name = xasprintf("%s (again)", (*plan)->sides[0].name);
    json_object_set_new(again, "name", json_string(name));
    json_object_set_new(json, "candidate", again);
    struct plan *aa = NULL;
    int rc = plan_from_json(json, &aa, err);
    if (rc == 0) {
        aa->path = (*plan)->path ? xstrdup((*plan)->path) : NULL;
        plan_free(*plan);
        *plan = aa;
    }
    json_decref(json);
    free(name);
    return rc;
}

static int ab_print_plan(const struct plan *plan, struct error *err)
{
    json_t *json = plan_to_json(plan);
    int rc = json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
    return rc || fflush(stdout)
            ? error_set(err, -EIO, "failed to print the plan: %s", strerror(errno))
            : 0;
}

// What got slower or faster, where launches were traced: the three largest parts of the difference.
// The verdict has been printed and stands, whatever becomes of this.
static void ab_explain(struct store *store, const struct options_common *common)
{
    struct diff *diff = NULL;
    struct error err = {0};
    int64_t differs = 0;
    store_get_int(store, &differs, NULL,
            "SELECT EXISTS (SELECT 1 FROM cell WHERE verdict = 'fail' OR improved) AND "
            "EXISTS (SELECT 1 FROM pair WHERE phase = 'traced' AND state = 'valid')",
            "");
    if (!differs || strcmp(common->format, "json") == 0)
        return;
    struct render_opts opts = {0};
    render_opts_detect(&opts, STDOUT_FILENO, common->no_color);
    int rc = diff_analyse(store, &(struct diff_opts){0}, &diff, &err);
    const struct diff_view view = {.diff = diff, .brief = true};
    if (rc == 0 && diff_view_explained(diff)) {
        fputs("\n", stdout);
        rc = diff_view_table(&view, &opts, stdout, &err);
    }
    if (rc)
        log_warn("where the difference comes from is not told: %s", err.text);
    diff_free(diff);
}

static int ab_session(const struct ab_values *values, const struct plan *plan, json_t *command_line,
        enum exit_code *ret_exit, struct error *err)
{
    struct store *store = NULL;
    const char *path = values->resume ? values->resume
            : values->common.output   ? values->common.output
                                      : "run.db";
    struct session_opts opts = {.plan = plan,
            .store_path = path,
            .resume = values->resume != NULL,
            .aa = values->aa,
            .progress = !values->common.quiet,
            .command_line = command_line};
    int rc = session_run(&opts, &store, ret_exit, err);
    if (rc == 0)
        rc = render_stdout(store, &values->common, err);
    if (rc == 0)
        ab_explain(store, &values->common);
    store_close(store);
    return rc;
}

static int ab_exit(int rc, enum exit_code exit_code, bool bisect)
{
    int code = rc ? error_exit_code(rc) : (int)exit_code;
    bool unknown = code == EXIT_CODE_INCONCLUSIVE || code == EXIT_CODE_OPERATIONAL;
    return bisect && unknown ? EXIT_CODE_BISECT_SKIP : code;
}

static int cmd_ab(int argc, char **argv);

extern const struct verb verb_ab;
const struct verb verb_ab = {.name = "ab",
        .summary = "Run both sides side by side, store, analyse, judge.",
        .usage = ab_usage,
        .options = ab_options,
        .examples = ab_examples,
        .exit_codes = ab_exit_codes,
        .positional_max = 1,
        .takes_command = true,
        .run = cmd_ab};

static int cmd_ab(int argc, char **argv)
{
    struct ab_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest;
    struct error err = {0};
    struct plan *plan = NULL;
    json_t *command_line = command_line_json(argc, argv);
    enum exit_code exit_code = EXIT_CODE_INCONCLUSIVE;
    int rc = program_parse(&verb_ab, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0) {
        json_decref(command_line);
        return EXIT_CODE_PASS;
    }
    if (rc == 0 && values.resume)
        rc = ab_check_resume(&values, &rest, &err);
    if (rc == 0 && values.resume && values.common.dry_run)
        rc = ab_stored_plan(values.resume, &plan, &err);
    if (rc == 0 && !values.resume)
        rc = ab_plan(&values, &rest, &plan, &err);
    if (rc == 0 && values.aa && plan)
        rc = ab_make_aa(&plan, &err);
    if (rc == 0 && values.common.dry_run && plan) {
        rc = ab_print_plan(plan, &err);
        exit_code = EXIT_CODE_PASS;
    } else if (rc == 0) {
        rc = ab_session(&values, plan, command_line, &exit_code, &err);
    }
    if (rc)
        log_error("%s", err.text);
    plan_free(plan);
    json_decref(command_line);
    return ab_exit(rc, exit_code, values.bisect);
}
