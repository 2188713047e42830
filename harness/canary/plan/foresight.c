// SPDX-License-Identifier: Apache-2.0
// What each stage of a rollout can and cannot detect, and how long that takes, at the traffic that
// the plan expects. Asks the mathematics, prints; looks at no traffic.
#include "harness/canary/plan/foresight.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/units.h"
#include "reports/analyse/canary/alone.h"

static double foresight_share(const struct rollout_stage *stage)
{
    return stage->mirror > 0 ? stage->mirror : stage->percent / 100;
}

static struct canary_foresight foresight_of(
        const struct rollout *rollout, int metric, const struct rollout_stage *stage)
{
    struct canary_traffic traffic = rollout->expected;
    traffic.opens = rollout_opens(rollout, (int)(stage - rollout->stages));
    traffic.stage_requests = stage->requests;
    return canary_foresee(&rollout->rules, (enum canary_metric)metric, foresight_share(stage),
            (double)stage->soak_ns / 1e9, &traffic);
}

static const char *foresight_kind(const struct rollout_stage *stage)
{
    return stage->mirror > 0 ? "shadow" : stage->aa ? "A/A" : stage->percent >= 100 ? "all" : "";
}

// Time until the stage can be over: the soak, or what its slowest gated metric and its requests
// need. INFINITY: never.
static double foresight_least_s(const struct rollout *rollout, const struct rollout_stage *stage)
{
    double rate = rollout->expected.requests_per_s * foresight_share(stage),
           least = (double)stage->soak_ns / 1e9;
    least = fmax(least, stage->requests ? (double)stage->requests / rate : 0);
    bool compares = !stage->aa && stage->mirror == 0 && stage->percent < 100;
    for (int metric = 0; metric < CANARY_METRICS && compares; metric++)
        if (rollout->rules.metrics[metric].gated)
            least = fmax(least, foresight_of(rollout, metric, stage).pass_s);
    return least + (double)stage->warm_up_ns / 1e9;
}

static void foresight_span(char *buf, size_t size, double seconds)
{
    if (isfinite(seconds))
        unit_format_ns(buf, size, seconds * 1e9);
    else
        snprintf(buf, size, "never");
}

static void foresight_metric(
        const struct rollout *rollout, const struct rollout_stage *stage, int metric, FILE *file)
{
    const struct canary_rule *rule = &rollout->rules.metrics[metric];
    struct canary_foresight seen = foresight_of(rollout, metric, stage);
    char span[32], ratio[48], bound[64] = "";
    foresight_span(span, sizeof span, seen.pass_s);
    if (isfinite(seen.seen_ratio))
        snprintf(ratio, sizeof ratio, "%.3g times is found in 8 of 10", seen.seen_ratio);
    else
        snprintf(ratio, sizeof ratio, "no change is found");
    if (metric == CANARY_ERROR_RATE && seen.zero_error_bound < 1)
        snprintf(bound, sizeof bound, "; without any error its rate is below %.3g %%",
                100 * seen.zero_error_bound);
    if (!isnan(rule->limit))
        snprintf(ratio, sizeof ratio, "more than %g ends it", rule->limit);
    fprintf(file, "      %-14s %-31s an equal candidate passes after %s%s\n",
            canary_metric_name((enum canary_metric)metric), ratio, span, bound);
}

void foresight_print(const struct rollout *rollout, void *stream)
{
    FILE *file = stream;
    double total = 0;
    char span[32], soak[32];
    bool known = rollout->expected.requests_per_s > 0;
    fprintf(file,
            "%s: an equal candidate is rolled back with a probability of %.3g %% at most, over all stages\n",
            rollout->name, 100 * rollout->rules.alpha);
    if (!known)
        fprintf(file,
                "How much traffic there is, the plan does not say (expected: {rate: 200/s}): what can be seen is not known.\n");
    else
        fprintf(file, "At %g requests/s, %.3g %% errors, dispersion %g:\n",
                rollout->expected.requests_per_s, 100 * rollout->expected.error_rate,
                rollout->expected.dispersion);
    for (int i = 0; i < rollout->stage_count; i++) {
        const struct rollout_stage *stage = &rollout->stages[i];
        double least = known ? foresight_least_s(rollout, stage) : NAN;
        total += least;
        foresight_span(span, sizeof span, least);
        fprintf(file, "  %2d  %-12s %5.3g %%  %-6s soak %s", i, stage->name,
                100 * foresight_share(stage), foresight_kind(stage),
                unit_format_ns(soak, sizeof soak, (double)stage->soak_ns));
        if (known)
            fprintf(file, ", %.0f requests of the candidate meanwhile; takes %s at least%s",
                    rollout->expected.requests_per_s * foresight_share(stage) *
                            (double)stage->soak_ns / 1e9,
                    span,
                    least * 1e9 > (double)stage->patience_ns
                            ? ", longer than its patience: it will pause"
                            : "");
        fputc('\n', file);
        if (stage->percent >= 100)
            fprintf(file,
                    "      no baseline is left: a latency is found at %g times what it was in 10 s, a rate at %g times, after 30 s\n",
                    canary_alone_times(&rollout->rules, CANARY_LATENCY_P99),
                    canary_alone_times(&rollout->rules, CANARY_ERROR_RATE));
        if (known && stage->percent < 100 && !stage->aa)
            for (int metric = 0; metric < CANARY_METRICS; metric++)
                if (rollout->rules.metrics[metric].gated &&
                        (stage->mirror == 0 || metric == CANARY_WRONG_ANSWERS))
                    foresight_metric(rollout, stage, metric, file);
    }
    if (known) {
        foresight_span(span, sizeof span, total);
        fprintf(file, "  in all: %s at least\n", span);
    }
    char *advice = rollout_advice(rollout);
    if (advice)
        fprintf(file, "  not seen: %s\n", advice);
    free(advice);
}

static json_t *foresight_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *foresight_to_json(const struct rollout *rollout)
{
    bool known = rollout->expected.requests_per_s > 0;
    json_t *json = json_object(), *stages = json_array();
    json_object_set_new(json, "schema", json_string("upgate.foresight/1"));
    json_object_set_new(json, "name", json_string(rollout->name));
    json_object_set_new(json, "alpha", json_real(rollout->rules.alpha));
    json_object_set_new(json, "requests_per_s",
            known ? json_real(rollout->expected.requests_per_s) : json_null());
    for (int i = 0; i < rollout->stage_count; i++) {
        const struct rollout_stage *stage = &rollout->stages[i];
        json_t *one = json_object(), *metrics = json_array();
        json_object_set_new(one, "stage", json_integer(i));
        json_object_set_new(one, "name", json_string(stage->name));
        json_object_set_new(one, "percent", json_real(stage->percent));
        json_object_set_new(one, "soak_s", json_real((double)stage->soak_ns / 1e9));
        json_object_set_new(one, "least_s",
                known ? foresight_number(foresight_least_s(rollout, stage)) : json_null());
        for (int metric = 0; known && metric < CANARY_METRICS && stage->percent < 100 && !stage->aa;
                metric++) {
            if (!rollout->rules.metrics[metric].gated)
                continue;
            struct canary_foresight seen = foresight_of(rollout, metric, stage);
            json_array_append_new(metrics,
                    json_pack("{s:s,s:I,s:o,s:o,s:f}", "metric",
                            canary_metric_name((enum canary_metric)metric), "requests",
                            (json_int_t)seen.requests, "seen_ratio",
                            foresight_number(seen.seen_ratio), "pass_s",
                            foresight_number(seen.pass_s), "zero_error_bound",
                            seen.zero_error_bound));
        }
        json_object_set_new(one, "metrics", metrics);
        json_array_append_new(stages, one);
    }
    json_object_set_new(json, "stages", stages);
    char *advice = rollout_advice(rollout);
    json_object_set_new(json, "advice", advice ? json_string(advice) : json_null());
    free(advice);
    return json;
}
