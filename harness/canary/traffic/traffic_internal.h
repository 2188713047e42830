// SPDX-License-Identifier: Apache-2.0
// What a way to shift traffic is to the room.
#ifndef UPGATE_HARNESS_CANARY_TRAFFIC_TRAFFIC_INTERNAL_H
#define UPGATE_HARNESS_CANARY_TRAFFIC_TRAFFIC_INTERNAL_H

#include "harness/canary/traffic/traffic.h"

struct traffic {
    const struct traffic_ops *ops;
    const struct rollout *rollout;
    const struct rollout_traffic *plan;
    void *own;
};

struct traffic_ops { // as the functions of traffic.h
    int (*open)(struct traffic *traffic, bool back, struct error *err);
    void (*close)(struct traffic *traffic); // also half-open
    int (*set)(struct traffic *traffic, double percent, double *ret_percent, struct error *err);
    int (*set_aa)(struct traffic *traffic, double percent, double *ret_percent, struct error *err);
    int (*get)(struct traffic *traffic, double *ret_percent, struct error *err);
    const char *(*began_anew)(const struct traffic *traffic); // NULL: never
    int64_t (*age_ns)(const struct traffic *traffic);         // NULL: not told
    int (*look)(
            struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err);
    int (*drain)(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
            uint64_t *ret_left, struct error *err);
};

extern const struct traffic_ops traffic_haproxy_ops, traffic_hooks_ops;

#endif
