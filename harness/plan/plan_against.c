// SPDX-License-Identifier: Apache-2.0
// Metrics that hold a workload against another one of the same side: which one that is, and the
// floors of what several ranks make of one. Reads a bound plan.
#include <math.h>
#include <string.h>

#include "harness/plan/plan.h"

static bool against_same_text(const char *left, const char *right)
{
    return left == right || (left && right && strcmp(left, right) == 0);
}

static bool against_same_words(char *const *left, char *const *right)
{
    size_t i = 0;
    if (!left || !right)
        return !left && !right;
    while (left[i] && right[i] && strcmp(left[i], right[i]) == 0)
        i++;
    return !left[i] && !right[i];
}

static const char *against_variant(const struct plan_workload *workload)
{
    return workload->variant ? workload->variant : "eager";
}

bool plan_workload_relates(const struct plan_workload *workload, enum metric_id metric)
{
    static const char compile[] = "compile"; // and compile-reduce-overhead, compile-max-autotune
    if (metric == METRIC_SCALING_EFFICIENCY)
        return workload->ranks > 1;
    return metric == METRIC_MEMORY_SAVED &&
            strncmp(against_variant(workload), compile, sizeof compile - 1) == 0;
}

const struct plan_workload *plan_workload_against(
        const struct plan *plan, const struct plan_workload *workload, enum metric_id metric)
{
    uint64_t ranks = metric == METRIC_SCALING_EFFICIENCY ? 1 : workload->ranks;
    const char *variant = metric == METRIC_MEMORY_SAVED ? "eager" : against_variant(workload);
    for (int i = 0; i < plan->workload_count && plan_workload_relates(workload, metric); i++) {
        const struct plan_workload *other = &plan->workloads[i];
        bool same = other->mode == workload->mode && other->threads == workload->threads &&
                other->rate_per_s == workload->rate_per_s &&
                other->steps_from == workload->steps_from &&
                against_same_text(other->step, workload->step) &&
                against_same_text(other->model, workload->model) &&
                against_same_text(other->size, workload->size) &&
                against_same_words(other->command, workload->command) &&
                against_same_words(other->args, workload->args);
        if (same && other->ranks == ranks && strcmp(against_variant(other), variant) == 0)
            return other;
    }
    return NULL;
}

double plan_floor_of(const struct plan_gate *gate, uint64_t ranks)
{
    const struct plan_metric *metric = &gate->metrics[METRIC_SCALING_EFFICIENCY];
    for (int i = 0; i < metric->floor_count; i++)
        if (metric->floors[i].ranks == ranks)
            return metric->floors[i].least;
    return NAN;
}
