// SPDX-License-Identifier: Apache-2.0
// What `upgate record` and `upgate rank` let a user say of a recording: the rows of their tables,
// their checks, and what becomes of them.
#ifndef UPGATE_VERBS_RECORDING_OPTIONS_H
#define UPGATE_VERBS_RECORDING_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"
#include "harness/record/recording.h"

struct recording_values {
    int64_t threshold_ns;
    uint64_t sample_hz, max_bytes;
    bool no_python, no_modules, gpu_given;
    const char *gpu, *steps_from, *step;
};

#define RECORDING_VALUES_DEFAULT \
    { \
        .threshold_ns = 1000000, .sample_hz = 199, .gpu = "kernels", .steps_from = "auto" \
    }

// clang-format off
// Rows of a table; group: of the first one, or NULL where others of it stand above.
#define OPTIONS_RECORDING(group, type, member) \
    {group, 0, "threshold", OPTION_DURATION, "TIME", NULL, "1ms", "waits shorter than this are counted, not stored", \
     offsetof(type, member.threshold_ns), 0, 0, 0}, \
    {NULL, 0, "sample-hz", OPTION_UINT, "N", NULL, "199", "samples of running threads a second and CPU; 0: none", \
     offsetof(type, member.sample_hz), 0, 10000, 0}, \
    {NULL, 0, "no-python", OPTION_FLAG, NULL, NULL, NULL, "do not read Python stacks of the target", \
     offsetof(type, member.no_python), 0, 0, 0}, \
    {NULL, 0, "max-size", OPTION_BYTES, "SIZE", NULL, "no limit", "of the store: the oldest events go, and what went is told", \
     offsetof(type, member.max_bytes), 0, 0, 0}, \
    {NULL, 0, "steps-from", OPTION_CHOICE, NULL, "calls,auto,off", "auto", \
     "steps of a command: its own step calls; auto: else those found in a Python program; off: none", \
     offsetof(type, member.steps_from), 0, 0, 0}, \
    {NULL, 0, "step", OPTION_TEXT, "WHAT", NULL, NULL, \
     "a step: of a command a call of FILE.py:NAME, a range nvtx:NAME, a replay: graph; a call of symbol:NAME, of a running one, too", \
     offsetof(type, member.step), 0, 0, 0}
#define OPTIONS_RECORDING_GPU(type, member) \
    {"GPU side", 0, "gpu", OPTION_CHOICE, NULL, "kernels,nodes,off", "kernels", \
     "kernels, copies, calls, collectives; nodes: those of a CUDA graph one by one, too", \
     offsetof(type, member.gpu), 0, 0, offsetof(type, member.gpu_given)}, \
    {NULL, 0, "no-modules", OPTION_FLAG, NULL, NULL, NULL, "no Python module paths, steps and garbage collections", \
     offsetof(type, member.no_modules), 0, 0, 0}
// clang-format on

// -EINVAL in words. starts: the target is a command that we start.
int recording_values_check(const struct recording_values *values, bool starts, struct error *err);
// Into what they are about; texts stay the values'.
void recording_values_apply(const struct recording_values *values, struct recording_opts *opts);

#endif
