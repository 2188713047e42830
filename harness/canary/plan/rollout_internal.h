// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the rollout plan: tables of keys, binders of what a table cannot say,
// checks.
#ifndef UPGATE_HARNESS_CANARY_PLAN_ROLLOUT_INTERNAL_H
#define UPGATE_HARNESS_CANARY_PLAN_ROLLOUT_INTERNAL_H

#include "harness/canary/plan/rollout.h"
#include "harness/plan/schema.h"

#define ROLLOUT_SCHEMA "upgate.rollout-plan/1"

extern const struct field rollout_fields[]; // struct rollout
// struct rollout_traffic: a map each kind, in the order of the enum
extern const struct field rollout_traffic_fields[];
extern const struct field rollout_source_fields[]; // struct rollout_source: likewise
extern const struct field rollout_stage_fields[];  // struct rollout_stage

extern const struct field_custom rollout_traffic_custom; // target of all: struct rollout
extern const struct field_custom rollout_sources_custom;
extern const struct field_custom rollout_stages_custom;
extern const struct field_custom rollout_windows_custom;
extern const struct field_custom rollout_freeze_custom;
extern const struct field_custom rollout_metrics_custom;
extern const struct field_custom rollout_bytes_custom; // target: a double
// of entries, for docs and misplaced keys
extern const struct field rollout_window_fields[], rollout_metric_fields[];

// what is gated where a plan names no metrics
void rollout_metrics_default(struct canary_rules *rules);
// a source, or a stage of the plan, can tell a wrong answer
bool rollout_tells_wrong(const struct rollout *rollout);
void rollout_free_lists(struct rollout *rollout); // of rollout_lists.c and rollout_windows.c
void rollout_free_windows(struct rollout *rollout);

// What spans several keys. -EINVAL at its line and column.
int rollout_check(const struct rollout *rollout, struct yaml_file *file, struct error *err);

#endif
