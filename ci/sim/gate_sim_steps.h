// SPDX-License-Identifier: Apache-2.0
// Gates judged on simulated steps: launches of both sides are drawn step by step, measured by the
// gate's own measure_pair and judged by its cells_judge, look by look, without a store. For
// gate_sim.
#ifndef UPGATE_CI_SIM_GATE_SIM_STEPS_H
#define UPGATE_CI_SIM_GATE_SIM_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "contracts/metrics.h"

// What both sides suffer, each with its own draw. All shares; 0 = none of it.
struct steps_machine {
    double launch_sd;     // of a launch's level, normal
    double launch_t3;     // the same with Student's t of 3 degrees of freedom, scaled by this
    double launch_skew;   // an exponential slow-down of this mean
    double launch_rho;    // how much a launch resembles the last one of its side
    double drift_sd;      // of a course of both sides alike, over the blocks
    double step_sd;       // of a step, normal
    double hit_rate, hit; // share of steps hit, mean (exponential) of a hit
    double pareto;        // exponent of the hits instead: 1.5 has no variance
    double tick_ns;       // steps are multiples of this
};

// What a program does to its steps: each part takes its share more. 0 = none of it.
struct steps_shape {
    double scale;                      // of every step
    double launch_share, launch_scale; // of some launches
    double rare_share, rare_scale;     // of some steps, at random
    int period;                        // of each period-th step
    double period_scale;               //
    double head_share, head_scale;     // of the first part of a launch
    double tail_share, tail_scale;     // of its last part
    double tail_launches;              // in this share of the launches; 0: in all
    double grow;                       // growing to this at the end
    double block_first;                // of the first step of a block
};

struct steps_scenario {
    struct steps_machine machine;
    struct steps_shape both, candidate;
};

struct steps_count {
    long gates, pass, fail, inconclusive, pairs;
    long cell_fail[METRIC_COUNT], cell_pass[METRIC_COUNT], cell_gated[METRIC_COUNT];
};

// Judges `gates` gates and adds them up. Dies on a plan that cannot be made: a defect of ours.
void steps_gates(const struct steps_scenario *scenario, long gates, uint64_t seed,
        struct steps_count *count);
// Mean of the candidate's steps over the baseline's, less 1, all steps of a launch counted.
double steps_effect(const struct steps_shape *shape);

#endif
