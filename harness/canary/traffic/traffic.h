// SPDX-License-Identifier: Apache-2.0
// Who gets the requests: HAProxy by its runtime socket, or hooks of the user. Every set is read
// back: -EPROTO when what is read is not what was set. Blocking up to the plan's timeout a call;
// -ETIMEDOUT, -ECONNREFUSED in words.
#ifndef UPGATE_HARNESS_CANARY_TRAFFIC_H
#define UPGATE_HARNESS_CANARY_TRAFFIC_H

#include "harness/canary/plan/rollout.h"

struct traffic;

// Finds the arms and reads the present split; changes nothing. The rollout must outlive it. Names
// what is missing (socket, level admin, backend, server, a static balance algorithm that takes only
// 0 and 100 %), users who are kept on a server by a cookie, and another server of the backend that
// has weight. An algorithm by hash tells only at the first traffic_set(), with -ENOTSUP, whether
// its weights can be changed. back: to bring everything to the baseline and no more, so nothing is
// refused that a way back does without.
int traffic_open(
        const struct rollout *rollout, bool back, struct traffic **ret_traffic, struct error *err);
void traffic_close(struct traffic *traffic); // NULL ok

// The nearest split that the proxy can make: 1 % is 3 of 256. *ret_percent: what it is now, as read
// back. What grows is set before what shrinks, so the backend is never without weights. An arm that
// was drained is made ready; one in maintenance is an error. A way back to 0 is never refused
// because of other servers.
int traffic_set(struct traffic *traffic, double percent, double *ret_percent, struct error *err);
// A/A stage: `percent` to the second baseline, the rest to the first, none to the candidate.
// -ENOTSUP without one.
int traffic_set_aa(struct traffic *traffic, double percent, double *ret_percent, struct error *err);
int traffic_get(struct traffic *traffic, double *ret_percent, struct error *err);

// The proxy is another process than the one that was set last, and has the weights of its file:
// what happened, in words. NULL: it is the same. Seen by any of these calls; until a traffic_set()
// or traffic_set_aa() works.
const char *traffic_began_anew(const struct traffic *traffic);

// How long the process that answered last runs, in whole seconds, up to one too few. -1: not told,
// and with hooks.
int64_t traffic_age_ns(const struct traffic *traffic);

struct traffic_arm {
    bool up;            // by the proxy's health check; hooks: always
    uint64_t in_flight; // now; hooks: 0
    uint64_t requests;  // ever, by the proxy's count, to check for lost log lines; 0: not known
};
// -EPROTO where the weights are no longer those that were set last (a proxy that began anew,
// somebody else, maintenance): the arms are filled all the same, and traffic_set() sets them again.
int traffic_look(
        struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err);

// No new requests to this arm (the weight is 0 already), waits until none is in flight, until
// `deadline_ns` (CLOCK_MONOTONIC) at most. *ret_left: still in flight. Returns 0 also then.
int traffic_drain(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
        uint64_t *ret_left, struct error *err);

#endif
