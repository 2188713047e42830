// SPDX-License-Identifier: Apache-2.0
// Which metrics of a workload are gated: the policy names them for all workloads of a plan, a
// workload of one kind cannot have them all. Pure on facts.
#include <math.h>

#include "harness/gate/cell.h"

int cell_measured(const struct workload_facts *facts, enum metric_id metric, int side)
{
    int count = 0;
    for (int i = 0; i < facts->main_count; i++)
        count += !isnan(facts->main[i].sides[side].value[metric]);
    return count;
}

// Does a launch of this side use any at all?
static bool cell_used(const struct workload_facts *facts, enum metric_id metric, int side)
{
    for (int i = 0; i < facts->main_count; i++)
        if (facts->main[i].sides[side].value[metric] > 0)
            return true;
    return false;
}

// Before the first pair a workload is taken at its mode's word.
static bool cell_has_steps(const struct workload_facts *facts)
{
    return facts->main_count ? facts->has_steps : facts->mode != PLAN_MODE_COMMAND;
}

// Can a workload of this kind have this metric at all? A plan names metrics for all its workloads.
bool cell_applies(const struct workload_facts *facts, enum metric_id metric)
{
    switch (metric) {
    case METRIC_LATENCY_P50:
    case METRIC_LATENCY_P99:
        return facts->mode == PLAN_MODE_INFER || facts->has_arrivals;
    case METRIC_STEP_TIME:
    case METRIC_THROUGHPUT:
    case METRIC_FIRST_STEP_TIME:
    case METRIC_STARTUP_TIME:
    case METRIC_MEAN_STEP_TIME:
    case METRIC_SLOW_STEPS:
    case METRIC_WARM_UP_TIME:
        return facts->mode != PLAN_MODE_COMMAND || cell_has_steps(facts) || facts->calls_steps;
    case METRIC_SCALING_EFFICIENCY:
    case METRIC_MEMORY_SAVED:
        return facts->plan && plan_workload_relates(facts->plan, metric);
    default:
        return true;
    }
}

// The metric whose spread decides how long a pair should be: step_time, latency_p50 or total_time.
static enum metric_id cells_main_metric(const struct workload_facts *facts)
{
    if (!cell_has_steps(facts))
        return METRIC_TOTAL_TIME;
    return workload_facts_mode(facts) == PLAN_MODE_INFER ? METRIC_LATENCY_P50 : METRIC_STEP_TIME;
}

bool cell_gated(
        const struct workload_facts *facts, const struct plan_gate *gate, enum metric_id metric)
{
    if (!cell_applies(facts, metric) ||
            !plan_metric_gated(gate, workload_facts_mode(facts), cell_has_steps(facts), metric))
        return false;
    if (!gate->metrics_default)
        return true;
    // A GPU that the baseline uses must not be lost in silence; one that only the candidate uses is
    // a change that was made on purpose, with nothing to compare it with (cell.c says it). Most
    // programs have none: not gated before a launch has told.
    if (metric == METRIC_PEAK_GPU_MEMORY)
        return cell_used(facts, metric, 0);
    // Gated by default only, and nobody can tell it here: observed. The main metric is never let
    // off.
    bool measured = !facts->main_count || cell_measured(facts, metric, 0) ||
            cell_measured(facts, metric, 1);
    return measured || metric == cells_main_metric(facts);
}

int cells_count_gated(const struct workload_facts *facts, const struct plan_gate *gate)
{
    int count = 0;
    for (int m = 0; m < METRIC_COUNT; m++)
        count += cell_gated(facts, gate, (enum metric_id)m);
    return count;
}
