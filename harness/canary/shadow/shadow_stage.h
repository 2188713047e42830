// SPDX-License-Identifier: Apache-2.0
// The shadow stage as the controller calls it: its functions fit struct controller_shadow.
//     struct shadow_stage stage = {.requests = "requests.jsonl", .methods = methods};
//     const struct controller_shadow hook = {.arg = &stage, .begin = shadow_stage_begin,
//             .traffic = shadow_stage_traffic, .take = shadow_stage_take, .end = shadow_stage_end};
#ifndef UPGATE_HARNESS_CANARY_SHADOW_STAGE_H
#define UPGATE_HARNESS_CANARY_SHADOW_STAGE_H

#include "harness/canary/plan/rollout.h"
#include "harness/canary/shadow/shadow.h"
#include "tracer/store/store.h"

struct shadow_stage {
    const char *requests; // as in struct shadow_opts: these are the plan's
    const char *const *methods;
    const char *const *ignore;
    double tolerance;
    // Of its functions
    struct shadow *shadow;
    struct store *store;
};

// URLs and the mirrored fraction are the rollout's; examples go to table rollout_shadow of the
// store. -EINVAL, -ENOSYS as shadow_open().
int shadow_stage_begin(void *stage, const struct rollout *rollout, int number, struct store *store,
        struct error *err);
// of users, since the last call: the share of them is mirrored
void shadow_stage_traffic(void *stage, uint64_t requests);
// Does what is due, waits 20 ms at most; then as shadow_take().
bool shadow_stage_take(void *stage, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS]);
void shadow_stage_end(void *stage); // also where it was not begun; a note in the store says what
                                    // was compared, and what was not

#endif
