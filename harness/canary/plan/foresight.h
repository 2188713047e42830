// SPDX-License-Identifier: Apache-2.0
// What a rollout can see before it starts: a line a stage and gated metric, for people and as JSON.
// Pure but for the stream.
#ifndef UPGATE_HARNESS_CANARY_PLAN_FORESIGHT_H
#define UPGATE_HARNESS_CANARY_PLAN_FORESIGHT_H

#include "harness/canary/plan/rollout.h"

void foresight_print(const struct rollout *rollout, void *stream); // FILE *
// upgate.foresight/1, new reference
json_t *foresight_to_json(const struct rollout *rollout);

#endif
