// SPDX-License-Identifier: Apache-2.0
// The control pairs of a workload (pair.phase 'control'), measured twice: as they ran, side b held
// longer, and with that taken out of their raw rows again. What is planted into each metric is the
// difference: no assumption about how a metric is made of steps. Reads pairs, launches, steps,
// blocks.
#ifndef UPGATE_GATE_CONTROL_H
#define UPGATE_GATE_CONTROL_H

#include "harness/gate/cell.h"
#include "harness/gate/run_facts.h"
#include "reports/analyse/control.h"

struct control_pairs {
    struct measure_pair *held, *without;
    int count;
    double share; // by which side b was held longer; 0: no pair
};

int control_pairs_load(struct store *store, const struct workload_facts *facts,
        struct control_pairs *ret_pairs, struct error *err);
void control_pairs_clear(struct control_pairs *pairs);
// Valid ones, without loading them.
int control_pairs_count(const struct workload_facts *facts);

// What the A/A pairs (of an A/A run; else the control pairs themselves) and the control pairs prove
// about a gated cell's metric at its margin.
struct control_result control_of_cell(const struct run_facts *run,
        const struct run_workload *workload, const struct control_pairs *pairs,
        const struct cell *cell);
// Why there is no certificate: a clause; caller frees.
char *control_objection(
        const struct control_result *result, const struct run_facts *run, double margin);
// The largest margin of the gated metrics of time: by so much side b is held longer. 0: none is
// gated.
double control_share(const struct run_workload *workload);

#endif
