// SPDX-License-Identifier: Apache-2.0
// A whole run as the gate sees it: plan, policy, facts of all workloads, their health and their
// cells.
#ifndef UPGATE_GATE_RUN_FACTS_H
#define UPGATE_GATE_RUN_FACTS_H

#include "harness/gate/cell.h"
#include "harness/gate/health.h"
#include "harness/gate/workload_facts.h"

enum run_state { RUN_STATE_RUNNING, RUN_STATE_DONE, RUN_STATE_INTERRUPTED };

struct run_workload {
    struct workload_facts facts;
    struct health health;
    struct cell *cells;
    int cell_count;
};

struct run_facts {
    struct plan *plan;
    struct plan_gate gate; // the policy that is applied
    bool aa;
    enum run_state state;
    int64_t started_wall_ns;
    char *host_key, *uuid;
    struct run_workload *workloads;
    int workload_count;
    struct findings findings; // of the run and of its workloads
    bool confirm;             // screened fails need fresh pairs
};

// policy NULL: the gate section of the run's plan. Loads every workload.
int run_facts_load(struct store *store, const struct plan_gate *policy, enum facts_source source,
        struct run_facts *ret_run, struct error *err);
// Health and cells of all workloads, with findings.
void run_facts_judge(struct store *store, struct run_facts *run);
// Has a workload so many ranks, and is there one like it with 1 rank to hold it against?
bool run_facts_scales(const struct run_facts *run, uint64_t ranks);
// A finding where the policy that is applied asks for less than the run's plan (policy.c).
void run_facts_find_looser(struct run_facts *run);
// A finding where both sides are one and the same (sides.c).
void run_facts_find_same(struct store *store, struct run_facts *run);
void run_facts_clear(struct run_facts *run);

#endif
