// SPDX-License-Identifier: Apache-2.0
// All that the gate knows about one workload: its pairs measured, and what became of those that do
// not count. Read from the store; plain data afterwards.
#ifndef UPGATE_GATE_WORKLOAD_FACTS_H
#define UPGATE_GATE_WORKLOAD_FACTS_H

#include "harness/gate/measure/measure.h"

struct workload_facts {
    int64_t id;
    char *name;
    enum plan_mode mode;
    enum plan_interleave interleave;     // AUTO: not decided yet
    const struct plan_workload *plan;    // NULL: the store's plan does not know it
    struct measure_pair *main, *confirm; // valid pairs, in the order they ran
    int main_count, confirm_count;
    struct pair_head *heads;               // all pairs of all phases, in the order they ran
    enum launch_fate (*fates)[PLAN_SIDES]; // of each head
    int head_count;
    bool has_steps; // a launch of either side made step calls, and its pair was not cut into slices
    bool calls_steps;  // a launch of either side made step calls in a pair that counts, cut or not
    bool has_arrivals; // a launch of either side had scheduled arrivals
    // By metric that holds two workloads of one side against each other: the other one, of the same
    // run. NULL: none.
    const struct workload_facts *against[METRIC_COUNT];
    bool serves; // a gated metric of another workload of the run is held against this one
    // The machine took more from one side than chance allows: then it is the side's own doing, and
    // is left in. -1: no.
    int machine_side;
};

// How pairs are measured again and again while a run goes on: from a temporary table of this
// connection (cached), or afresh from the raw rows, as every judgement does.
enum facts_source { FACTS_FROM_ROWS, FACTS_CACHED };

int workload_facts_load(struct store *store, const struct plan *plan, int64_t workload_id,
        enum facts_source source, struct workload_facts *ret_facts, struct error *err);
void workload_facts_clear(struct workload_facts *facts);

// A metric that holds `facts` against another workload of the same side (plan_workload_against):
// scaling_efficiency, memory_saved. The k-th valid pair of the one against the k-th of the other,
// main and fresh ones. Keeps a pointer to `other`.
void workload_facts_relate(
        struct workload_facts *facts, const struct workload_facts *other, enum metric_id metric);
// What such a metric is the quotient of: throughput; peak_gpu_memory where a launch of either
// workload tells of some, else peak_memory. Of any other metric itself.
enum metric_id workload_facts_quantity(const struct workload_facts *facts, enum metric_id metric);

// The mode by whose defaults the metrics are gated: an inference workload without scheduled
// arrivals (closed loop) is judged like training, on its steps.
enum plan_mode workload_facts_mode(const struct workload_facts *facts);
// Log ratios of a metric over pairs, oriented so that positive = worse; NAN where a pair has none.
void workload_facts_ratios(
        const struct measure_pair *pairs, int count, enum metric_id metric, double *ret_ratios);

#endif
