// SPDX-License-Identifier: Apache-2.0
// What no single key shows: names that clash, models that a side does not have, looks that cannot
// decide, metrics that nothing measures. Reads a bound plan, and its file for the positions. Checks
// the text only: whether an interpreter exists is found out when it is started.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "harness/plan/plan_internal.h"

struct check {
    const struct plan *plan;
    struct yaml_file *file; // NULL: no positions
    struct error *err;
};

static const char *const plan_side_keys[PLAN_SIDES] = {"baseline", "candidate"};

// "plan.yaml:3:5: text". at: where, taken; ending in '?' points at the key and not at its value.
static int check_fail(const struct check *check, char *at, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static int check_fail(const struct check *check, char *at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    if (check->file) {
        size_t end = strlen(at);
        bool key = end && at[end - 1] == '?';
        if (key)
            at[end - 1] = 0;
        yaml_file_error(check->file, yaml_file_find(check->file, at, key), check->err, "%s", text);
    } else {
        error_set(check->err, -EINVAL, "%s", text);
    }
    free(text);
    free(at);
    return -EINVAL;
}

static char *check_at(int workload, const char *key)
{
    return xasprintf("workloads.%d.%s", workload, key);
}

// --- sides
// ----------------------------------------------------------------------------------------

// Does a side run models in Python, or native programs?
static bool plan_side_is_torch(const struct plan_side *side)
{
    return side->python && !side->models;
}

// Words for an engine by which a side could not be held, or which would hold for nothing: it runs
// in a cgroup of ours.
static int check_engine_args(const struct check *check, int i)
{
    static const char *const refused[] = {"--memory", "--cpu", "--cgroup", "--pids-limit",
            "--blkio", "--detach", "--entrypoint", "--name", "--rm", "--tty"};
    char **args = check->plan->sides[i].engine_args;
    for (int k = 0; args && args[k]; k++)
        for (size_t r = 0; r < sizeof refused / sizeof *refused; r++)
            if (strncmp(args[k], refused[r], strlen(refused[r])) == 0 ||
                    (args[k][0] == '-' && args[k][1] != '-' && args[k][1] &&
                            strchr("mdtc", args[k][1])))
                return check_fail(check, xasprintf("%s.engine_args.%d", plan_side_keys[i], k),
                        "'%s' cannot be given to the engine: upgate names, watches and ends the container, in a cgroup of its "
                        "own; for a limit of memory or CPUs start upgate under it, such as systemd-run --scope -p MemoryMax=8G",
                        args[k]);
    return 0;
}

// What is of images alone, and what the name of one cannot be.
static int check_side(const struct check *check, int i)
{
    const struct plan_side *side = &check->plan->sides[i];
    const struct {
        const char *key;
        bool given;
    } of_images[] = {{"mounts", side->mounts != NULL}, {"engine_args", side->engine_args != NULL},
            {"engine", side->engine != PLAN_ENGINE_AUTO}};
    for (size_t k = 0; k < sizeof of_images / sizeof *of_images && !side->image; k++)
        if (of_images[k].given)
            return check_fail(check, xasprintf("%s.%s?", plan_side_keys[i], of_images[k].key),
                    "'%s' is of images, and %s has none", of_images[k].key, plan_side_keys[i]);
    if (!side->image)
        return 0;
    struct error local = {0};
    return plan_check_image(side->image, &local)
            ? check_fail(check, xasprintf("%s.image", plan_side_keys[i]), "%s", local.text)
            : check_engine_args(check, i);
}

// --- workloads
// --------------------------------------------------------------------------------------

static int check_unknown(const struct check *check, char *at, const char *what, const char *word,
        const char *const *names, size_t count)
{
    const char *nearest = string_nearest(word, names, count);
    struct strbuf known = {0};
    for (size_t k = 0; k < count; k++)
        strbuf_add(&known, "%s%s", k ? ", " : "", names[k]);
    int rc = check_fail(check, at, "unknown %s '%.80s'%s%s%s known %ss: %s", what, word,
            nearest ? "; did you mean '" : ";", nearest ? nearest : "", nearest ? "'?" : "", what,
            known.text);
    strbuf_free(&known);
    return rc;
}

static int check_variant(const struct check *check, int i)
{
    const struct plan_workload *workload = &check->plan->workloads[i];
    bool known = false;
    for (int k = 0; k < PLAN_VARIANT_COUNT; k++)
        known = known || strcmp(plan_variants[k], workload->variant) == 0;
    if (!known)
        return check_unknown(check, check_at(i, "variant"), "variant", workload->variant,
                plan_variants, PLAN_VARIANT_COUNT);
    if (!plan_side_is_torch(&check->plan->sides[0]))
        return check_fail(check, xasprintf("workloads.%d.variant?", i),
                "'variant' is of models in Python; the sides run native programs");
    return 0;
}

static int check_model(const struct check *check, int i)
{
    const struct plan_workload *workload = &check->plan->workloads[i];
    const struct plan_model *model = plan_model_find(workload->model);
    if (!model) {
        const char *names[PLAN_MODEL_COUNT];
        for (int k = 0; k < PLAN_MODEL_COUNT; k++)
            names[k] = plan_models[k].name;
        return check_unknown(
                check, check_at(i, "model"), "model", workload->model, names, PLAN_MODEL_COUNT);
    }
    for (int side = 0; side < PLAN_SIDES; side++) {
        bool torch = plan_side_is_torch(&check->plan->sides[side]);
        if (torch && !model->torch)
            return check_fail(check, check_at(i, "model"),
                    "model '%s' is native only, and %s has a python", model->name,
                    plan_side_keys[side]);
        if (!torch && !model->native)
            return check_fail(check, check_at(i, "model"), "model '%s' needs a python, and %s %s",
                    model->name, plan_side_keys[side],
                    check->plan->sides[side].models ? "has native models" : "has none");
    }
    if (plan_side_is_torch(&check->plan->sides[0]) != plan_side_is_torch(&check->plan->sides[1]))
        return check_fail(check, check_at(i, "model"),
                "model '%s' would be a Python program on one side and a native one on the "
                "other; give both sides a python, or neither",
                model->name);
    if (workload->mode == PLAN_MODE_COMMAND)
        return check_fail(check, check_at(i, "mode"),
                "mode 'command' is of commands; a model has train and infer");
    if (workload->ranks < model->ranks_min || workload->ranks > model->ranks_max)
        return check_fail(check, check_at(i, "ranks"),
                "model '%s' takes %llu to %llu ranks, not %llu; ddp, fsdp, dlrm-sharded and allreduce take several",
                model->name, (unsigned long long)model->ranks_min,
                (unsigned long long)model->ranks_max, (unsigned long long)workload->ranks);
    if (workload->size && strcmp(workload->size, "small") != 0 &&
            strcmp(workload->size, "demo") != 0 && strcmp(workload->size, "large") != 0)
        return check_fail(check, check_at(i, "size"),
                "'size': '%s' is not one of: small, demo, large", workload->size);
    if (workload->step)
        return check_fail(
                check, check_at(i, "step"), "'step' is of commands; a model makes step calls");
    if (workload->anchor)
        return check_fail(check, check_at(i, "anchor"),
                "'anchor' is of commands; a model always has its float64");
    return workload->variant ? check_variant(check, i) : 0;
}

static const char *const check_placeholders[] = {"python", "steps", "seed", "rank", "ranks", "rate",
        "dtype", "nodes", "node_rank", "master", "port"};
enum { CHECK_PLACEHOLDERS = sizeof check_placeholders / sizeof *check_placeholders };

// Code handed over as one word ("print(f'{x}')") has braces of its own: there only what looks like
// a slip of a known name is refused.
static int check_placeholder(
        const struct check *check, int i, int word_idx, const char *name, bool code)
{
    const char *nearest = string_nearest(name, check_placeholders, CHECK_PLACEHOLDERS);
    char *key = xasprintf("command.%d", word_idx), *at = check_at(i, key);
    free(key);
    if (nearest && strcmp(nearest, name) == 0) {
        for (int side = 0; side < PLAN_SIDES && strcmp(name, "python") == 0; side++)
            if (!check->plan->sides[side].python)
                return check_fail(check, at, "'{python}' is used, and %s has no python",
                        plan_side_keys[side]);
        free(at);
        return 0;
    }
    if (code && !nearest) {
        free(at);
        return 0;
    }
    return check_fail(check, at,
            "unknown placeholder '{%s}'%s%s%s known: {python} {steps} {seed} {rank} "
            "{ranks} {rate} {dtype} {nodes} {node_rank} {master} {port}",
            name, nearest ? "; did you mean '{" : ";", nearest ? nearest : "",
            nearest ? "}'?" : "");
}

static int check_word(const struct check *check, int i, int word_idx, const char *word)
{
    bool code = strpbrk(word, " \t\n'\"();") != NULL;
    int rc = 0;
    for (const char *at = strchr(word, '{'); at && !rc; at = strchr(at + 1, '{')) {
        size_t len = 0;
        while (islower((unsigned char)at[1 + len]) || at[1 + len] == '_')
            len++;
        if (len == 0 || len > 32 || at[1 + len] != '}' || (at > word && at[-1] == '$'))
            continue; // JSON, shell variables
        char *name = strndup(at + 1, len);
        rc = check_placeholder(check, i, word_idx, name, code);
        free(name);
    }
    return rc;
}

static bool check_command_has(const struct plan_workload *workload, const char *placeholder)
{
    for (char **word = workload->command; word && *word; word++)
        if (strstr(*word, placeholder))
            return true;
    return false;
}

static int check_command(const struct check *check, int i)
{
    const struct plan_workload *workload = &check->plan->workloads[i];
    int rc = 0;
    if (!*workload->command[0])
        return check_fail(check, check_at(i, "command"), "the program of a command is empty");
    for (int k = 0; workload->command[k] && !rc; k++)
        rc = check_word(check, i, k, workload->command[k]);
    if (rc)
        return rc;
    const struct {
        const char *key;
        bool given;
    } of_models[] = {{"size", workload->size != NULL}, {"variant", workload->variant != NULL},
            {"threads", workload->threads > 0}, {"args", workload->args != NULL}};
    for (size_t k = 0; k < sizeof of_models / sizeof *of_models; k++)
        if (of_models[k].given)
            return check_fail(check, xasprintf("workloads.%d.%s?", i, of_models[k].key),
                    "'%s' is of models; put it into the command", of_models[k].key);
    struct error step_err = {0};
    if (workload->step && plan_check_step(workload->step, &step_err))
        return check_fail(check, check_at(i, "step"), "'step': %s", step_err.text);
    if (workload->step && workload->steps_from != PLAN_STEPS_FROM_AUTO)
        return check_fail(check, check_at(i, "step"),
                "'step' names steps that are found, and 'steps_from' says that none are");
    if (workload->anchor && !check_command_has(workload, "{dtype}"))
        return check_fail(check, check_at(i, "anchor"),
                "'anchor' needs '{dtype}' in the command, which becomes float64");
    return 0;
}

static int check_workload(const struct check *check, int i)
{
    const struct plan_workload *workload = &check->plan->workloads[i];
    for (int k = 0; k < i; k++)
        if (strcmp(check->plan->workloads[k].name, workload->name) == 0)
            return check_fail(
                    check, check_at(i, "name"), "two workloads are named '%s'", workload->name);
    if (strlen(workload->name) > PLAN_NAME_BYTES_MAX)
        return check_fail(check, check_at(i, "name"),
                "the name of a workload has more than %d bytes", PLAN_NAME_BYTES_MAX);
    if (workload->model && workload->command)
        return check_fail(check, check_at(i, "command?"),
                "workload '%s' has both 'model' and 'command'; one of them", workload->name);
    if (!workload->model && !workload->command)
        return check_fail(check, xasprintf("workloads.%d", i),
                "workload '%s' has neither 'model' nor 'command'", workload->name);
    int rc = workload->model ? check_model(check, i) : check_command(check, i);
    if (!rc && workload->rate_per_s > 0 && workload->mode != PLAN_MODE_INFER)
        rc = check_fail(check, check_at(i, "rate?"),
                "'rate' is of requests: it needs mode: infer, not %s",
                plan_mode_name(workload->mode));
    return rc;
}

// --- schedule
// ---------------------------------------------------------------------------------------

static int check_looks(const struct check *check)
{
    const struct plan_schedule *schedule = &check->plan->schedule;
    double alpha = check->plan->gate.alpha / schedule->look_count;
    // The signed-rank interval at one-sided alpha needs 2^-n <= alpha (STATISTICS 3.3).
    uint64_t pairs_min = (uint64_t)ceil(log2(1 / alpha) - 1e-9);
    for (int i = 0; i < schedule->look_count; i++) {
        char *at = xasprintf("schedule.looks.%d", i);
        if (i && schedule->looks[i] <= schedule->looks[i - 1])
            return check_fail(check, at, "looks must rise: %llu after %llu",
                    (unsigned long long)schedule->looks[i],
                    (unsigned long long)schedule->looks[i - 1]);
        if (schedule->looks[i] < pairs_min)
            return check_fail(check, at,
                    "a look at %llu pairs can never decide: alpha %g over %d looks needs at "
                    "least %llu",
                    (unsigned long long)schedule->looks[i], check->plan->gate.alpha,
                    schedule->look_count, (unsigned long long)pairs_min);
        free(at);
    }
    return 0;
}

// "0-3,8": rising, no CPU twice.
static int check_cpus(const struct check *check)
{
    enum { CPUS_MAX = 4096 };
    const char *at = check->plan->schedule.cpus;
    long last = -1;
    while (at && *at) {
        char *end;
        long first = strtol(at, &end, 10), to = first;
        bool ok = end != at && isdigit((unsigned char)*at);
        if (ok && *end == '-') {
            at = end + 1;
            to = strtol(at, &end, 10);
            ok = end != at && isdigit((unsigned char)*at);
        }
        if (!ok || first <= last || to < first || to >= CPUS_MAX || (*end && *end != ',') ||
                (*end == ',' && !end[1]))
            return check_fail(check, xstrdup("schedule.cpus"),
                    "'cpus': '%s' is no rising list of CPUs such as 0-3,8",
                    check->plan->schedule.cpus);
        last = to;
        at = *end ? end + 1 : end;
    }
    return 0;
}

// --- metrics
// ----------------------------------------------------------------------------------------

// A metric that holds two workloads against each other: are both in the plan? ranks 0: of any
// number.
static bool check_has_against(const struct plan *plan, enum metric_id metric, uint64_t ranks)
{
    for (int i = 0; i < plan->workload_count; i++)
        if ((!ranks || plan->workloads[i].ranks == ranks) &&
                plan_workload_against(plan, &plan->workloads[i], metric))
            return true;
    return false;
}

static int check_floors(const struct check *check)
{
    const struct plan_metric *metric = &check->plan->gate.metrics[METRIC_SCALING_EFFICIENCY];
    for (int i = 0; i < metric->floor_count && metric->floors_given; i++) {
        unsigned long long ranks = metric->floors[i].ranks;
        if (!check_has_against(check->plan, METRIC_SCALING_EFFICIENCY, ranks))
            return check_fail(check,
                    xasprintf("gate.metrics.scaling_efficiency.floors.%llu?", ranks),
                    "there is a floor of %llu ranks, and no workload of this plan has so many and a second one that differs "
                    "only in name and ranks: 1",
                    ranks);
    }
    return 0;
}

static bool check_has_requests(const struct plan *plan)
{
    for (int i = 0; i < plan->workload_count; i++) // a command may make requests in any mode
        if (plan->workloads[i].mode == PLAN_MODE_INFER || plan->workloads[i].command)
            return true;
    return false;
}

static int check_metrics(const struct check *check)
{
    const struct plan *plan = check->plan;
    const struct plan_gate *gate = &plan->gate;
    for (int id = 0; id < METRIC_COUNT && !gate->metrics_default; id++) {
        const char *name = metric_infos[id].name, *needs = NULL;
        if (!gate->metrics[id].present)
            continue;
        if ((id == METRIC_LATENCY_P50 || id == METRIC_LATENCY_P99) && !check_has_requests(plan))
            needs = "mode: infer";
        if (id == METRIC_SCALING_EFFICIENCY &&
                !check_has_against(plan, METRIC_SCALING_EFFICIENCY, 0))
            needs = "ranks above 1, and a second one that differs only in name and ranks: 1";
        if (id == METRIC_MEMORY_SAVED && !check_has_against(plan, METRIC_MEMORY_SAVED, 0))
            needs = "variant: compile, and a second one that differs only in name and variant: eager";
        if (needs)
            return check_fail(check, xasprintf("gate.metrics.%s?", name),
                    "no workload of this plan can measure '%s': it needs one with %s", name, needs);
    }
    for (int i = 0; i < plan->workload_count; i++) {
        const struct plan_workload *workload = &plan->workloads[i];
        bool told = workload->model || check_command_has(workload, "{steps}");
        // Without positions it is an option that made too few of them: the plan itself was held to
        // this when it was read.
        const char *remedy = check->file ? "raise 'steps', or name other metrics in gate.metrics"
                : plan->path
                ? "raise --steps, or name other metrics in gate.metrics"
                : "raise --steps, or write a plan that names other metrics in gate.metrics";
        if (told && workload->steps < PLAN_P99_REQUESTS_MIN && workload->mode == PLAN_MODE_INFER &&
                plan_metric_gated(gate, PLAN_MODE_INFER, true, METRIC_LATENCY_P99))
            return check_fail(check, check_at(i, "steps"),
                    "'%s' makes %llu requests a launch, and latency_p99, which is gated, "
                    "needs %d: %s",
                    workload->name, (unsigned long long)workload->steps, PLAN_P99_REQUESTS_MIN,
                    remedy);
    }
    return check_floors(check);
}

int plan_check_gate(
        const struct plan_gate *gate, struct yaml_file *file, const char *prefix, struct error *err)
{
    struct check check = {.file = file, .err = err};
    bool judges = gate->metrics_default || gate->parity != PLAN_PARITY_OFF;
    for (int id = 0; id < METRIC_COUNT; id++)
        judges |= gate->metrics[id].present && !gate->metrics[id].observe;
    if (!judges)
        return check_fail(&check, xasprintf("%smetrics?", prefix),
                "nothing would be judged: every metric is only observed, and parity is off");
    return 0;
}

int plan_check(const struct plan *plan, struct yaml_file *file, struct error *err)
{
    struct check check = {.plan = plan, .file = file, .err = err};
    int rc = 0;
    for (int i = 0; i < PLAN_SIDES && !rc; i++)
        rc = check_side(&check, i);
    for (int i = 0; i < plan->workload_count && !rc; i++)
        rc = check_workload(&check, i);
    if (!rc)
        rc = check_looks(&check);
    if (!rc)
        rc = check_cpus(&check);
    if (!rc)
        rc = check_metrics(&check);
    return rc ? rc : plan_check_gate(&plan->gate, file, "gate.", err);
}
