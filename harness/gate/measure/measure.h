// SPDX-License-Identifier: Apache-2.0
// From the raw rows of a pair to one number a launch and metric, and one log ratio a metric. Pure:
// reads rows in memory, no store. What cannot be measured is NAN with a reason, never 0.
#ifndef UPGATE_GATE_MEASURE_H
#define UPGATE_GATE_MEASURE_H

#include <stdbool.h>

#include "contracts/metrics.h"
#include "harness/gate/measure/pair_rows.h"
#include "reports/analyse/slow_steps.h"
#include "reports/analyse/steady.h"
#include "reports/analyse/turns.h"

enum measure_reason {
    MEASURE_OK,
    MEASURE_NOT_ENDED,    // the launch crashed, was stopped or never started
    MEASURE_NOT_RECORDED, // the machine or the workload does not tell
    MEASURE_NO_STEPS,     // no step call
    MEASURE_NO_SAMPLES,   // steps without samples
    MEASURE_FEW_STEPS,    // all of them within the fixed warm-up
    MEASURE_SLICED,       // frozen in the middle of steps
    MEASURE_NO_REQUESTS,  // steps without scheduled arrivals, and the mode is not infer
    MEASURE_FEW_REQUESTS,
    MEASURE_NO_COMPILE, // no phase named compile
    MEASURE_NO_GRAPHS,  // no graph was compiled
    MEASURE_NO_SINGLE,  // no pair of a workload with one rank to compare with
    MEASURE_NO_EAGER,   // no pair of an eager workload to compare with
    MEASURE_NO_GPU,     // nobody told of GPU memory
    MEASURE_REASON_COUNT
};

struct measure_launch {
    int64_t id;
    enum launch_fate fate;
    int64_t steps;     // -1: made no step call
    double rank_steps; // that were recorded, of all ranks together
    double samples;    // that its steps told, of all ranks; NAN: not told
    double requests, requests_failed, requests_wrong; // of servers; NAN, 0: not told
    double end_ns;            // from its last step to its end; NAN: not known
    bool has_arrivals;        // open loop
    enum steady_state steady; // of its own steps; STEADY_TOO_SHORT without steps
    struct slow_steps slow;   // from the step on at which it is steady, the same on both sides
    double machine_share;     // of its active time from there on the machine took; NAN: not known
    double steady_mean_ns;    // of a step from there on; NAN
    double value[METRIC_COUNT];
    enum measure_reason reason[METRIC_COUNT];
};

// Plain data without pointers: the run loop keeps it as bytes between two questions.
struct measure_pair {
    struct pair_head head;
    struct measure_launch sides[PLAN_SIDES];
    double log_ratio[METRIC_COUNT];   // ln(b / a); NAN: no ratio
    double within_sd[METRIC_COUNT];   // standard error from the couples of blocks; NAN
    int couples[METRIC_COUNT];        // 0: not from couples
    bool zero_baseline[METRIC_COUNT]; // b was measured, a is 0: no ratio
    double raw_ratio[METRIC_COUNT];   // what the machine took left in; NAN: as log_ratio
    bool last_waits; // single steps only enqueue work: whole blocks are the steps of `slow`
    enum turns_estimator estimator; // of the blocks behind step_time
};

enum { MEASURE_P50_REQUESTS_MIN = 30 };

void measure_pair(const struct pair_rows *rows, struct measure_pair *ret_pair);
// The ratio of warm_up_time: of a run of so many mean steps and the warm-up before them.
// measure_pair takes the steps of the pair.
void measure_warm_up(struct measure_pair *pair, double run_steps);
const char *measure_reason_text(enum measure_reason reason); // NULL for MEASURE_OK

#endif
