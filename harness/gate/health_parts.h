// SPDX-License-Identifier: Apache-2.0
// What the files that look at a workload's health share.
#ifndef UPGATE_GATE_HEALTH_PARTS_H
#define UPGATE_GATE_HEALTH_PARTS_H

#include "harness/gate/health.h"

#define HEALTH_ALPHA 0.01 // one-sided: how often chance makes so much of a difference between the sides

// Do both sides do the same work (health_work.c)? gate: what its metrics judge needs no finding.
void health_work(const struct workload_facts *facts, const struct plan_gate *gate, struct findings *findings);

#endif
