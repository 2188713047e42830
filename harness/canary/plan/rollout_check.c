// SPDX-License-Identifier: Apache-2.0
// What spans several keys of a rollout plan. Reads the plan, writes nothing; every refusal names
// the place and what would be right.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/canary/plan/rollout_internal.h"

enum { ROLLOUT_NAME_MAX = 100, ROLLOUT_STAGES_MAX = 64, ROLLOUT_SOURCES_MAX = 16 };

struct rollout_checker {
    const struct rollout *rollout;
    struct yaml_file *file; // NULL: from JSON, no positions
    struct error *err;
};

// at: "stages.1.percent"; freed here.
static int rollout_fail(const struct rollout_checker *check, char *at, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static int rollout_fail(const struct rollout_checker *check, char *at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    if (check->file)
        yaml_file_error(
                check->file, yaml_file_find(check->file, at, false), check->err, "%s", text);
    else
        error_set(check->err, -EINVAL, "%s", text);
    free(text);
    free(at);
    return -EINVAL;
}

// The name becomes a file's.
static int rollout_check_name(const struct rollout_checker *check)
{
    const char *name = check->rollout->name;
    if (strlen(name) > ROLLOUT_NAME_MAX)
        return rollout_fail(
                check, xstrdup("name"), "the name has more than %d bytes", ROLLOUT_NAME_MAX);
    if (strchr(name, '/') || name[0] == '.' || name[0] == '-')
        return rollout_fail(check, xstrdup("name"),
                "'%s' cannot be the name of a file; no '/', no '.' or '-' at its begin", name);
    return 0;
}

static int rollout_check_traffic(const struct rollout_checker *check)
{
    const struct rollout_traffic *traffic = &check->rollout->traffic;
    if (traffic->kind == ROLLOUT_HOOKS) {
        bool commands = traffic->set || traffic->get || traffic->drain;
        if (traffic->url && commands)
            return rollout_fail(
                    check, xstrdup("traffic.hooks"), "hooks are commands or a url, not both");
        if (!traffic->url && (!traffic->set || !traffic->get))
            return rollout_fail(check, xstrdup("traffic.hooks"),
                    "hooks need 'set' and 'get' (what was set is read back), or a url");
        bool told = !traffic->set;
        for (char **word = traffic->set; word && *word; word++)
            told |= strstr(*word, "{percent}") != NULL;
        return told
                ? 0
                : rollout_fail(check, xstrdup("traffic.hooks.set"), "'set' has no {percent} in it");
    }
    const char *baseline = traffic->servers[CANARY_BASELINE],
               *candidate = traffic->servers[CANARY_CANDIDATE];
    const char *second = traffic->baseline2;
    if (strcmp(baseline, candidate) == 0)
        return rollout_fail(check, xstrdup("traffic.haproxy.candidate"),
                "baseline and candidate are one server, '%s'", candidate);
    if (second && (strcmp(second, baseline) == 0 || strcmp(second, candidate) == 0))
        return rollout_fail(check, xstrdup("traffic.haproxy.baseline2"),
                "'%s' is one of the other two servers", second);
    return 0;
}

// It counts requests and errors of both arms, or stands beside a source that does and counts wrong
// answers only.
static int rollout_check_prometheus(const struct rollout_checker *check, int number)
{
    static const char *const arms[CANARY_ARMS] = {"baseline", "candidate"};
    const struct rollout_queries *queries = check->rollout->sources[number].queries;
    bool counts = queries[0].requests || queries[1].requests;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        const struct rollout_queries *of = &queries[arm];
        char *at = xasprintf("sources.%d.prometheus.%s", number, arms[arm]);
        if (counts && !(of->requests && of->errors))
            return rollout_fail(check, at, "%s lacks the key '%s'", arms[arm],
                    of->requests ? "errors" : "requests");
        if (!counts && (of->errors || of->rejected || of->latency_buckets))
            return rollout_fail(check, at,
                    "'%s' without 'requests': beside a source that counts them only 'wrong' can be asked",
                    of->errors             ? "errors"
                            : of->rejected ? "rejected"
                                           : "latency_buckets");
        if (counts && !of->rejected && check->rollout->rules.metrics[CANARY_REJECTED_RATE].gated)
            return rollout_fail(check, at,
                    "%s lacks the key 'rejected', and the metric rejected_rate is judged by it",
                    arms[arm]);
        free(at);
    }
    if (!counts && !queries[0].wrong && !queries[1].wrong)
        return rollout_fail(check, xasprintf("sources.%d.prometheus", number),
                "prometheus is asked nothing; 'requests' and 'errors' of both arms, or 'wrong' beside another source");
    return 0;
}

static int rollout_check_sources(const struct rollout_checker *check)
{
    if (check->rollout->source_count > ROLLOUT_SOURCES_MAX)
        return rollout_fail(check, xstrdup("sources"), "more than %d sources", ROLLOUT_SOURCES_MAX);
    for (int i = 0; i < check->rollout->source_count; i++) {
        const struct rollout_source *source = &check->rollout->sources[i];
        if (source->kind == ROLLOUT_HAPROXY_LOG && !source->listen == !source->file)
            return rollout_fail(check, xasprintf("sources.%d.haproxy_log", i),
                    "haproxy_log has either 'listen' or 'file'");
        if (source->kind == ROLLOUT_PROMETHEUS && rollout_check_prometheus(check, i))
            return -EINVAL;
        const char *key = source->kind == ROLLOUT_JSONL ? "jsonl"
                : source->kind == ROLLOUT_STEPS         ? "steps"
                                                        : NULL;
        if (key && strcmp(source->paths[0], source->paths[1]) == 0)
            return rollout_fail(check, xasprintf("sources.%d.%s.candidate", i, key),
                    "both arms would be read from one file");
        for (int arm = 0; source->kind == ROLLOUT_STEPS && arm < CANARY_ARMS; arm++)
            if (strncmp(source->paths[arm], "/dev/shm/upgate-", 16) == 0)
                return rollout_fail(check,
                        xasprintf("sources.%d.steps.%s", i,
                                arm == CANARY_BASELINE ? "baseline" : "candidate"),
                        "names that begin with 'upgate-' are removed from there: other commands of upgate leave such files");
    }
    return 0;
}

static bool rollout_shifts(const struct rollout_stage *stage)
{
    return !stage->aa && stage->mirror == 0;
}

static int rollout_check_stage(const struct rollout_checker *check, int i, double before)
{
    const struct rollout *rollout = check->rollout;
    const struct rollout_stage *stage = &rollout->stages[i];
    for (int k = 0; k < i; k++)
        if (strcmp(rollout->stages[k].name, stage->name) == 0)
            return rollout_fail(
                    check, xasprintf("stages.%d", i), "two stages are named '%s'", stage->name);
    if (stage->aa && stage->mirror > 0)
        return rollout_fail(
                check, xasprintf("stages.%d", i), "a stage is either an A/A or a shadow stage");
    if (stage->mirror > 0 && stage->percent > 0)
        return rollout_fail(check, xasprintf("stages.%d.percent", i),
                "a shadow stage sends the candidate no traffic: percent: 0");
    if (stage->aa && (stage->percent <= 0 || stage->percent >= 100))
        return rollout_fail(check, xasprintf("stages.%d.percent", i),
                "an A/A stage splits the baseline: percent between 0 and 100");
    if (!rollout_shifts(stage) && before > 0)
        return rollout_fail(check, xasprintf("stages.%d", i),
                "a stage without the candidate's traffic comes before those with it");
    if (rollout_shifts(stage) && stage->percent <= 0)
        return rollout_fail(check, xasprintf("stages.%d.percent", i),
                "0 %% is a stage of nothing; a shadow stage has 'mirror', an A/A stage is named aa");
    if (rollout_shifts(stage) && stage->percent <= before)
        return rollout_fail(check, xasprintf("stages.%d.percent", i),
                "the percents must rise: %g after %g", stage->percent, before);
    if (stage->patience_ns < stage->soak_ns + stage->warm_up_ns)
        return rollout_fail(check, xasprintf("stages.%d.patience", i),
                "the patience is shorter than warm-up and soak together");
    return 0;
}

static int rollout_check_stages(const struct rollout_checker *check)
{
    const struct rollout *rollout = check->rollout;
    double before = 0;
    if (rollout->stage_count > ROLLOUT_STAGES_MAX)
        return rollout_fail(check, xstrdup("stages"), "more than %d stages", ROLLOUT_STAGES_MAX);
    for (int i = 0; i < rollout->stage_count; i++) {
        int rc = rollout_check_stage(check, i, before);
        if (rc)
            return rc;
        if (rollout_shifts(&rollout->stages[i]))
            before = rollout->stages[i].percent;
    }
    if (before != 100)
        return rollout_fail(check, xstrdup("stages"),
                "the last stage must be 100 %%, the whole traffic; it is %g", before);
    return 0;
}

static int rollout_check_gate(const struct rollout_checker *check)
{
    if (check->file && check->rollout->rules.metrics[CANARY_WRONG_ANSWERS].gated &&
            !rollout_tells_wrong(check->rollout))
        return rollout_fail(check, xstrdup("gate.metrics"),
                "wrong_answers is judged, and nothing tells of any: give the source prometheus a query "
                "'wrong' of the candidate, or the plan a shadow stage, or leave the metric out");
    for (int i = 0; i < CANARY_METRICS; i++)
        if (check->rollout->rules.metrics[i].gated)
            return 0;
    return rollout_fail(check, xstrdup("gate.metrics"),
            "nothing would be judged: every metric is only observed");
}

static int rollout_check_why(const struct rollout_checker *check)
{
    const struct rollout_hold *why = &check->rollout->why;
    for (int arm = 0; arm < CANARY_ARMS && why->record; arm++)
        if ((why->pids[arm] && why->cgroups[arm]) ||
                (!why->pids[arm] && !why->cgroups[arm] && !check->rollout->shadow_urls[arm]))
            return rollout_fail(check, xstrdup("why"),
                    "to record both arms, say for each either its pid or its cgroup, or where it listens "
                    "(shadow: {baseline: URL, candidate: URL})");
    return 0;
}

static bool rollout_time_fits(int64_t ns)
{
    return ns >= 0 && ns <= 366 * 86400 * INT64_C(1000000000);
}

// What the table of keys has refused in a YAML file, and a damaged store may hold.
static int rollout_check_ranges(const struct rollout_checker *check)
{
    const struct rollout *rollout = check->rollout;
    const struct canary_rules *rules = &rollout->rules;
    bool fit = rules->alpha > 0 && rules->alpha <= 0.5 &&
            !(rules->tripwire_error_rate <= 0 || rules->tripwire_error_rate > 1) &&
            !(rules->alone_times <= 1) && rollout_time_fits(rollout->stale_ns) &&
            rollout->stale_ns > 0 && rollout_time_fits(rollout->drain_ns) &&
            rollout_time_fits(rollout->traffic.timeout_ns) &&
            rollout_time_fits(rollout->why.duration_ns);
    for (int i = 0; i < rollout->source_count; i++)
        fit &= rollout_time_fits(rollout->sources[i].step_ns);
    for (int i = 0; i < rollout->stage_count; i++) {
        const struct rollout_stage *stage = &rollout->stages[i];
        fit &= stage->percent >= 0 && stage->percent <= 100 && stage->mirror >= 0 &&
                stage->mirror <= 1 && stage->soak_ns > 0 && rollout_time_fits(stage->soak_ns) &&
                rollout_time_fits(stage->warm_up_ns) && rollout_time_fits(stage->patience_ns);
    }
    return fit ? 0
               : rollout_fail(check, xstrdup("name"),
                         "a number is out of range: an alpha, a share or a time");
}

int rollout_check(const struct rollout *rollout, struct yaml_file *file, struct error *err)
{
    struct rollout_checker check = {.rollout = rollout, .file = file, .err = err};
    int rc = rollout_check_name(&check);
    if (!rc)
        rc = rollout_check_ranges(&check);
    if (!rc)
        rc = rollout_check_traffic(&check);
    if (!rc)
        rc = rollout_check_sources(&check);
    if (!rc)
        rc = rollout_check_stages(&check);
    if (!rc)
        rc = rollout_check_gate(&check);
    return rc ? rc : rollout_check_why(&check);
}
