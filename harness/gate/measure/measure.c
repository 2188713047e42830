// SPDX-License-Identifier: Apache-2.0
// Metrics of launches and ratios of pairs, by the definitions of docs/METRICS.md: what needs no
// steps here, what is made of steps in measure_typical.c, measure_sums.c and measure_latency.c.
#include "harness/gate/measure/measure.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/measure/measure_parts.h"
#include "harness/gate/measure/rank_rows.h"

void measure_put(struct measure_launch *launch, enum metric_id metric, double value,
        enum measure_reason otherwise)
{
    launch->value[metric] = value;
    launch->reason[metric] = isnan(value) ? otherwise : MEASURE_OK;
}

// What needs no steps.
static void measure_whole(const struct launch_rows *rows, struct measure_launch *launch)
{
    bool ended = rows->fate == LAUNCH_FATE_OK;
    enum measure_reason otherwise = ended ? MEASURE_NOT_RECORDED : MEASURE_NOT_ENDED;
    measure_put(launch, METRIC_TOTAL_TIME, ended ? rows->active_ns : NAN, otherwise);
    measure_put(launch, METRIC_CPU_TIME, ended ? rows->cpu_ns : NAN, otherwise);
    measure_put(launch, METRIC_PEAK_MEMORY, ended ? rows->peak_memory_bytes : NAN, otherwise);
    measure_put(launch, METRIC_PEAK_GPU_MEMORY, ended ? rows->peak_gpu_memory_bytes : NAN,
            ended ? MEASURE_NO_GPU : otherwise);
    measure_put(launch, METRIC_COMPILE_TIME, rows->compile_ns, MEASURE_NO_COMPILE);
    measure_put(launch, METRIC_RECOMPILES, rows->recompiles, MEASURE_NO_GRAPHS);
    measure_put(launch, METRIC_SCALING_EFFICIENCY, NAN, MEASURE_NO_SINGLE);
    measure_put(launch, METRIC_MEMORY_SAVED, NAN, MEASURE_NO_EAGER);
    double first = NAN;
    for (int i = 0; i < rows->rank_count; i++) {
        int at = rank_rows_find(&rows->ranks[i], 0);
        if (at >= 0)
            first = fmax(first, (double)rows->ranks[i].dur_ns[at]);
    }
    measure_put(launch, METRIC_FIRST_STEP_TIME, first, MEASURE_NO_STEPS);
    measure_put(launch, METRIC_STARTUP_TIME, rows->startup_ns, MEASURE_NO_STEPS);
}

static double measure_rank_steps(const struct launch_rows *rows)
{
    double steps = 0;
    for (int i = 0; i < rows->rank_count; i++)
        steps += rows->ranks[i].count;
    return steps;
}

static void measure_steps(const struct pair_rows *rows, struct measure_pair *pair)
{
    struct measure_state state = {.rows = rows, .pair = pair};
    for (int side = 0; side < PLAN_SIDES; side++) {
        state.slowest[side] = rank_rows_slowest(&rows->sides[side]);
        if (state.slowest[side])
            state.durations[side] = rank_rows_durations(state.slowest[side]);
    }
    measure_find_start(&state);
    measure_typical(&state);
    measure_sums(&state);
    measure_latency(&state);
    for (int side = 0; side < PLAN_SIDES; side++)
        free(state.durations[side]);
}

// Made of sums: 0 is a value like others, and their ratio is set where they are made.
static bool measure_has_own_ratio(enum metric_id metric)
{
    return metric == METRIC_SLOW_STEPS || metric == METRIC_WARM_UP_TIME;
}

void measure_pair(const struct pair_rows *rows, struct measure_pair *ret_pair)
{
    struct measure_pair pair = {.head = rows->head};
    bool sliced = rows->head.interleave == PLAN_INTERLEAVE_SLICES;
    for (int m = 0; m < METRIC_COUNT; m++)
        pair.log_ratio[m] = pair.raw_ratio[m] = pair.within_sd[m] = NAN;
    for (int side = 0; side < PLAN_SIDES; side++) {
        struct measure_launch *launch = &pair.sides[side];
        const struct launch_rows *source = &rows->sides[side];
        *launch = (struct measure_launch){.id = source->id,
                .fate = source->fate,
                .steps = source->steps,
                .rank_steps = measure_rank_steps(source),
                .samples = rank_rows_samples(source, 0, INT64_MAX),
                .requests = source->requests,
                .requests_failed = source->requests_failed,
                .requests_wrong = source->requests_wrong,
                .end_ns = NAN,
                .steady = STEADY_TOO_SHORT,
                .machine_share = NAN,
                .steady_mean_ns = NAN};
        enum measure_reason otherwise = source->rank_count == 0 ? MEASURE_NO_STEPS
                : sliced                                        ? MEASURE_SLICED
                                                                : MEASURE_FEW_STEPS;
        for (int m = 0; m < METRIC_COUNT; m++)
            measure_put(launch, (enum metric_id)m, NAN, otherwise);
        measure_whole(source, launch);
        if (sliced && source->rank_count) {
            measure_put(launch, METRIC_FIRST_STEP_TIME, NAN, MEASURE_SLICED);
            measure_put(launch, METRIC_STARTUP_TIME, NAN, MEASURE_SLICED);
        }
    }
    if (!sliced)
        measure_steps(rows, &pair);
    for (int m = 0; m < METRIC_COUNT; m++) {
        double a = pair.sides[0].value[m], b = pair.sides[1].value[m];
        if (measure_has_own_ratio((enum metric_id)m))
            continue;
        pair.zero_baseline[m] = a == 0 && b > 0;
        if (!pair.couples[m] && a > 0 && b > 0)
            pair.log_ratio[m] = log(b / a);
    }
    *ret_pair = pair;
}

const char *measure_reason_text(enum measure_reason reason)
{
    static const char *const texts[MEASURE_REASON_COUNT] = {
            [MEASURE_NOT_ENDED] = "the launch did not end well",
            [MEASURE_NOT_RECORDED] = "not recorded on this machine",
            [MEASURE_NO_STEPS] = "the workload made no step call",
            [MEASURE_NO_SAMPLES] = "the steps say no number of samples",
            [MEASURE_FEW_STEPS] = "too few steps (the first 5 are the warm-up)",
            [MEASURE_SLICED] = "the side was frozen in the middle of steps (interleave: slices)",
            [MEASURE_NO_REQUESTS] = "no requests: no scheduled arrivals, and the mode is not infer",
            [MEASURE_FEW_REQUESTS] = "too few requests (30 for p50, 662 for p99)",
            [MEASURE_NO_COMPILE] = "no phase named 'compile'",
            [MEASURE_NO_GRAPHS] = "no graph was compiled",
            [MEASURE_NO_SINGLE] = "no pair of the same workload with 1 rank to hold it against",
            [MEASURE_NO_EAGER] =
                    "no pair of the same workload with variant eager to hold it against",
            [MEASURE_NO_GPU] = "none was told of: PyTorch that uses a GPU tells, in turns of steps",
    };
    return reason < MEASURE_REASON_COUNT ? texts[reason] : NULL;
}
