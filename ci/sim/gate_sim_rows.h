// SPDX-License-Identifier: Apache-2.0
// The scenarios of steps that gate_sim goes through, and what each must keep.
#ifndef UPGATE_CI_SIM_GATE_SIM_ROWS_H
#define UPGATE_CI_SIM_GATE_SIM_ROWS_H

#include "ci/sim/gate_sim_steps.h"

// What a row must keep; rates are compared with their limit and four sigma of the simulation.
enum sim_must {
    SIM_SHOWN,  // no limit: the table says what happens
    SIM_EQUAL,  // fails in at most alpha, a cell
    SIM_MARGIN, // worse by the margin: fails and passes in at most alpha, a cell
    SIM_WORSE,  // passes in at most alpha
    SIM_FOUND,  // the same, and fails in at least 95 %
};
#define SIM_QUIET .launch_sd = 0.0015, .step_sd = 0.008, .hit_rate = 0.001, .hit = 0.5
#define SIM_BUSY .launch_sd = 0.004, .step_sd = 0.02, .hit_rate = 0.01, .hit = 0.5, .drift_sd = 0.01

struct sim_steps_row {
    const char *name;
    struct steps_scenario scenario;
    enum sim_must must;
};

// Equal sides: what either does, the other does as often.
static const struct sim_steps_row sim_equal_rows[] = {
        {"equal, idle", {.machine = {SIM_QUIET}}, SIM_EQUAL},
        {"equal, beside a neighbour", {.machine = {SIM_BUSY}}, SIM_EQUAL},
        {"equal, heavy tails of launches", {.machine = {SIM_QUIET, .launch_t3 = 0.004}}, SIM_EQUAL},
        {"equal, skewed launches", {.machine = {SIM_QUIET, .launch_skew = 0.01}}, SIM_EQUAL},
        {"equal, launches resemble the last one",
                {.machine = {.launch_sd = 0.01, .launch_rho = 0.6, .step_sd = 0.008}}, SIM_EQUAL},
        {"equal, hits without a variance (Pareto)",
                {.machine = {.launch_sd = 0.0015,
                         .step_sd = 0.008,
                         .hit_rate = 0.01,
                         .hit = 0.5,
                         .pareto = 1.5}},
                SIM_EQUAL},
        {"equal, drift of 5 %", {.machine = {SIM_QUIET, .drift_sd = 0.05}}, SIM_EQUAL},
        {"equal, ties (steps in units of 1 %)", {.machine = {SIM_QUIET, .tick_ns = 20000}},
                SIM_EQUAL},
        {"equal, 1 step in 200 20 times slower",
                {.machine = {SIM_QUIET}, .both = {.rare_share = 0.005, .rare_scale = 19}},
                SIM_EQUAL},
        {"equal, each 80th step 30 times slower",
                {.machine = {SIM_QUIET}, .both = {.period = 80, .period_scale = 29}}, SIM_EQUAL},
        {"equal, first 30 % of steps 3 times slower",
                {.machine = {SIM_QUIET}, .both = {.head_share = 0.3, .head_scale = 2}}, SIM_EQUAL},
        {"equal, 20 % of launches 50 % slower",
                {.machine = {SIM_QUIET}, .both = {.launch_share = 0.2, .launch_scale = 0.5}},
                SIM_EQUAL},
        {"all steps, idle", {.machine = {SIM_QUIET}, .candidate = {.scale = 0.02}}, SIM_MARGIN},
        {"all steps, beside a neighbour", {.machine = {SIM_BUSY}, .candidate = {.scale = 0.02}},
                SIM_MARGIN},
};

static const struct sim_steps_row sim_worse_rows[] = {
        {"all steps, idle", {.machine = {SIM_QUIET}, .candidate = {.scale = 0.03}}, SIM_FOUND},
        {"all steps, beside a neighbour", {.machine = {SIM_BUSY}, .candidate = {.scale = 0.03}},
                SIM_FOUND},
        // Two in a launch of 200 steps, 55 in 28: their number alone leaves what they cost open by
        // 13 %, so that a tenth of the gates cannot tell 5 % from the margin of 2 %.
        {"1 step in 100, at random, 6 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.rare_share = 0.01, .rare_scale = 5}},
                SIM_WORSE},
        {"the same beside a neighbour",
                {.machine = {SIM_BUSY}, .candidate = {.rare_share = 0.01, .rare_scale = 5}},
                SIM_WORSE},
        {"1 step in 250, at random, 15 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.rare_share = 0.004, .rare_scale = 14}},
                SIM_WORSE},
        {"each 80th step 6 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.period = 80, .period_scale = 5}},
                SIM_FOUND},
        {"first steps of blocks 1.6 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.block_first = 0.6}}, SIM_FOUND},
        {"first 70 % of steps 3 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.head_share = 0.7, .head_scale = 2}},
                SIM_FOUND},
        {"first 10 % of steps 1.6 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.head_share = 0.1, .head_scale = 0.6}},
                SIM_FOUND},
        {"last fifth 1.4 times slower",
                {.machine = {SIM_QUIET}, .candidate = {.tail_share = 0.2, .tail_scale = 0.4}},
                SIM_FOUND},
        {"last fifth 3 times slower in 40 % of launches",
                {.machine = {SIM_QUIET},
                        .candidate = {.tail_share = 0.2, .tail_scale = 2, .tail_launches = 0.4}},
                SIM_WORSE},
        {"steps grow by 12 %", {.machine = {SIM_QUIET}, .candidate = {.grow = 0.12}}, SIM_FOUND},
        {"half of the launches 10 % slower",
                {.machine = {SIM_QUIET}, .candidate = {.launch_share = 0.5, .launch_scale = 0.1}},
                SIM_WORSE},
        {"30 % of the launches 50 % slower",
                {.machine = {SIM_QUIET}, .candidate = {.launch_share = 0.3, .launch_scale = 0.5}},
                SIM_SHOWN},
};

#endif
