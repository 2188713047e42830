// SPDX-License-Identifier: Apache-2.0
// Binders of what a table cannot say: free keys and lists.
#ifndef UPGATE_PLAN_PLAN_LISTS_H
#define UPGATE_PLAN_PLAN_LISTS_H

#include "harness/plan/schema.h"

extern const struct field_custom plan_env_custom;       // target: struct plan_side
extern const struct field_custom plan_workloads_custom; // target: struct plan
extern const struct field_custom plan_looks_custom;     // target: struct plan_schedule
extern const struct field_custom plan_metrics_custom;   // target: struct plan_gate
extern const struct field plan_metric_fields[];         // struct plan_metric, of any metric

#endif
