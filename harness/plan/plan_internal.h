// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the plan: the tables, the models that a plan may name, the checks.
#ifndef UPGATE_PLAN_PLAN_INTERNAL_H
#define UPGATE_PLAN_PLAN_INTERNAL_H

#include "harness/plan/plan.h"
#include "harness/plan/schema.h"

enum {
    PLAN_STEPS_TRAIN = 200,
    PLAN_STEPS_INFER = 1000,
    PLAN_P99_REQUESTS_MIN = 662, // one over-latency allowed at 99 % confidence (STATISTICS 3.5)
    PLAN_MODEL_COUNT = 10,
    PLAN_VARIANT_COUNT = 13
};

struct plan_model {
    const char *name;
    bool torch, native; // exists for sides with a python, without one
    uint64_t ranks_default, ranks_min, ranks_max;
};
extern const struct plan_model plan_models[PLAN_MODEL_COUNT];
const struct plan_model *plan_model_find(const char *name); // NULL if unknown
// as reference_models/torch/cli.py has them
extern const char *const plan_variants[PLAN_VARIANT_COUNT];

extern const struct field plan_fields[];          // struct plan
extern const struct field plan_gate_fields[];     // struct plan_gate
extern const struct field plan_side_fields[];     // struct plan_side
extern const struct field plan_workload_fields[]; // struct plan_workload

void plan_complete_metrics(struct plan_gate *gate); // metrics that follow from those named

// What spans several keys. file NULL: the plan was composed from a command line, no positions.
int plan_check(const struct plan *plan, struct yaml_file *file, struct error *err);
// The part that needs no workloads. prefix: where the gate stands in the file, "gate." or "".
int plan_check_gate(const struct plan_gate *gate, struct yaml_file *file, const char *prefix,
        struct error *err);

#endif
