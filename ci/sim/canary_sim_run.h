// SPDX-License-Identifier: Apache-2.0
// Simulated rollouts, many at a time: each its own seed, so that the number of processes changes
// nothing.
#ifndef UPGATE_CI_SIM_CANARY_SIM_RUN_H
#define UPGATE_CI_SIM_CANARY_SIM_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ci/sim/canary_sim_stream.h"
#include "reports/analyse/canary/evidence.h"

enum { RUN_STAGES = 6 };

struct run_stage {
    double share, seconds, opens; // opens 0: all
    bool aa;
};
struct run_plan {
    struct run_stage stages[RUN_STAGES];
    int count;
    struct canary_rules rules;
    struct stream_world world;
    struct stream_fault fault;
    struct stream_odd odd;
    double late_s; // of the last stage: so long the candidate is good; what judges find before is
                   // not counted
    bool good_before; // and in the stages before
    bool judges;      // the others, too, on the last stage
    double cells_s; // look at the cells so often: when they pass, whether an interval ever misses;
                    // 0: not
};
struct run_result {
    int failed_stage, failed_metric; // -1: not rolled back
    double failed_s;                 // since that stage began
    double failed_requests;          // of both arms in that stage
    double pass_s[RUN_STAGES]; // when all gated cells passed together for the first time; 0: never
    // an interval that did not hold the truth, at any look
    bool missed_low[CANARY_METRICS], missed_high[CANARY_METRICS];
    double kayenta_s, kayenta_often_s, fixed_s, fixed_patient_s, fixed_always_s; // 0: not
};

// results[count], in shared memory; count rollouts with seeds seed, seed + 1 …
struct run_result *run_many(const struct run_plan *plan, int count, uint64_t seed, int jobs);
void run_free(struct run_result *results, int count);

// Calls fn(context, i) for each i in forked processes.
void run_forked(int count, int jobs, void (*fn)(void *context, int i), void *context);
void *run_shared(size_t size);

#endif
