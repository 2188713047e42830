// SPDX-License-Identifier: Apache-2.0
// Small stores with synthetic launches for the tests of the gate: written row by row as the run
// loop writes them, from numbers whose answer is known. The files go when the test ends.
#ifndef UPGATE_TESTS_GATE_WORLD_H
#define UPGATE_TESTS_GATE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "contracts/exit_code.h"
#include "reports/analyse/random.h"
#include "tracer/store/store.h"

// `workloads` and `gate` are YAML; looks 10/14/20/28 unless `gate` says more. UPGATE_STATE_DIR is
// set to a fresh directory.
struct world {
    struct store *store;
    char dir[64], path[96];
    struct random_state random;
    int64_t pair_id, launch_id;
};

void world_open(struct world *world, const char *workloads, const char *gate);
// With a certificate of this host for turns of steps.
void world_open_calibrated(struct world *world, const char *workloads, const char *gate);
void world_open_aa(struct world *world, const char *workloads, const char *gate);
void world_close(struct world *world);
void world_sql(struct world *world, const char *sql);         // dies on an error
double world_number(struct world *world, const char *sql);    // NAN for NULL and for no row
const char *world_text(struct world *world, const char *sql); // static buffer; "" for none
#define VERDICT_REASON "SELECT reason FROM verdict"
void world_state(struct world *world, const char *state); // of the run
// Rows of table control that cover every kind of workload, metric, margin and spread.
void world_certificate(
        struct world *world, const char *scope, const char *interleave, double bound);

// A pair. {0} is a valid pair of two equal, quiet, steady launches in turns of steps.
struct world_pair {
    int workload;                           // from 1; 0 = 1
    const char *phase, *state, *interleave; // NULL: main, valid, steps
    double ratio;                           // candidate over baseline, of times; 0 = 1
    double pair_sd;                         // sd of the log ratio between pairs; 0 = 0.003
    double step_noise;                      // of each step; 0 = 0.01
    double memory_ratio;                    // 0 = 1
    int steps;                              // 0 = 120
    int no_steps_b, no_steps_a;
    const char *fate_a, *fate_b;                       // launch.state; "" = no row; NULL: ok
    double (*shape_a)(int step), (*shape_b)(int step); // multiplies; NULL: 1
    double rate;                                       // > 0: open loop, requests with latency
    int void_side;                                     // 1: a, 2: b; 0: none
    int64_t seed;                                      // 0 = index of the pair
    double zero_gpu_a;                                 // 1: peak GPU memory 0 on a, 1 MiB on b
    int ranks;                                         // 0 = 1
    bool no_samples;
    int block_steps; // 0 = 4
    double held;     // of a control pair: the share by which side b was held longer
};
// Returns the pair's id; its launches are 2 * id - 1 (a) and 2 * id (b).
int64_t world_pair(struct world *world, struct world_pair pair);
void world_pairs(struct world *world, int count, struct world_pair pair);
// Losses of every step of both launches of a pair: value(step, side, seed).
void world_losses(
        struct world *world, int64_t pair_id, int steps, double (*value)(int, int, int64_t));
// A float tensor of one launch.
void world_tensor(struct world *world, int64_t launch_id, int step, const char *name,
        const float *values, int count);
void world_tensor_f64(struct world *world, int64_t launch_id, int step, const char *name,
        const double *values, int count);

int world_judge(struct world *world); // enum exit_code; -1 and the error printed on a failure

#endif
