// SPDX-License-Identifier: Apache-2.0
// Options of a recording: checked, and handed to harness/record.
#include "harness/verbs/recording_options.h"

#include <errno.h>
#include <string.h>

#include "contracts/spool.h"
#include "harness/plan/plan.h"
#include "tracer/gpu/retention.h"

int recording_values_check(const struct recording_values *values, bool starts, struct error *err)
{
    if (values->step && plan_check_step(values->step, err))
        return -EINVAL;
    if (values->step && strcmp(values->steps_from, "auto") != 0)
        return error_set(err, -EINVAL,
                "--step is of steps that are found: not with --steps-from %s", values->steps_from);
    if (values->step && !starts && !plan_step_is_symbol(values->step))
        return error_set(err, -EINVAL,
                "--step %s is of a command, not of a program that runs already; --step symbol:NAME is",
                plan_step_is_injected(values->step) ? values->step : "FILE.py:FUNCTION");
    if (values->threshold_ns < 0)
        return error_set(err, -EINVAL, "a time cannot be negative");
    if (values->max_bytes &&
            (values->max_bytes < RETENTION_MIN_BYTES || values->max_bytes > INT64_MAX))
        return error_set(
                err, -EINVAL, "option '--max-size': at least %d MiB", RETENTION_MIN_BYTES >> 20);
    return 0;
}

static uint32_t recording_values_kinds(const struct recording_values *values)
{
    uint32_t kinds = UG_WANT_DEFAULT;
    if (strcmp(values->gpu, "off") == 0)
        return 0;
    if (strcmp(values->gpu, "nodes") == 0)
        kinds |= UG_WANT_GRAPH_NODES;
    return values->no_modules ? kinds & ~(uint32_t)UG_WANT_PYTHON : kinds;
}

void recording_values_apply(const struct recording_values *values, struct recording_opts *opts)
{
    // no wait is shorter: all are stored
    opts->threshold_ns = values->threshold_ns ? values->threshold_ns : 1;
    opts->sample_hz = values->sample_hz ? (uint32_t)values->sample_hz : UINT32_MAX;
    opts->no_python = values->no_python;
    opts->no_steps = strcmp(values->steps_from, "off") == 0;
    opts->finds_steps = strcmp(values->steps_from, "auto") == 0;
    opts->step = plan_step_is_symbol(values->step) || plan_step_is_injected(values->step)
            ? NULL
            : values->step;
    opts->symbol = plan_step_is_symbol(values->step) ? values->step : NULL;
    opts->injected = plan_step_is_injected(values->step) ? values->step : NULL;
    opts->gpu_kinds = recording_values_kinds(values);
    opts->gpu_named = values->gpu_given && opts->gpu_kinds;
    opts->max_bytes = (int64_t)values->max_bytes;
}
