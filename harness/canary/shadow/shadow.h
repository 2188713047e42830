// SPDX-License-Identifier: Apache-2.0
// The shadow stage: recorded requests are sent to both arms directly, no user waits for the
// answers, and they are compared (shadow_parity.h). Comes out as seconds of both arms, like every
// source of evidence. One thread; nothing here blocks for longer than the caller allows. How the
// controller uses it:
//
//     shadow_open(&opts, &shadow, &err)                   when the stage begins
//     each round: shadow_traffic(shadow, requests)        what the arms answered to users since; a
//                                                         share of it is mirrored
//                 shadow_poll(shadow, timeout_ms, &err)
//                 while (shadow_take(shadow, &at_s, arms)) insert rollout_second,
//                     canary_evidence_add()
//                 while (shadow_example(shadow, &example)) insert rollout_shadow,
//                     shadow_example_clear()
//     shadow_close(shadow)                                when it ends; requests under way are
//                                                         given up
#ifndef UPGATE_HARNESS_CANARY_SHADOW_H
#define UPGATE_HARNESS_CANARY_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/canary/second.h"

enum {
    SHADOW_CONCURRENT = 8,        // pairs under way
    SHADOW_REQUESTS_MAX = 100000, // of a file
    SHADOW_BODY_MAX = 1 << 20,    // bytes of a request's body, and of an answer that is compared
    SHADOW_EXAMPLES_MAX = 100,    // of a stage: more teach nothing
    SHADOW_LEARN = 20 // requests that the baseline is asked twice: how far it is from itself
};

struct shadow_opts {
    const char *urls[CANARY_ARMS]; // base URLs: "http://127.0.0.1:8001"; the request's path follows
    const char *requests;          // file of JSON lines {"method", "path", "body"}, asked in turn
    // that may be sent twice; NULL-terminated. NULL: GET and HEAD, which change nothing (RFC
    // 9110, 9.2.1)
    const char *const *methods;
    // members of JSON answers that may differ, by name; NULL-terminated or NULL
    const char *const *ignore;
    double mirror;      // fraction of the traffic
    double tolerance;   // of numbers, in units of the baseline's rms; 0: parity_spread_limit()'s
    int concurrent;     // pairs; 0: SHADOW_CONCURRENT
    int64_t timeout_ns; // of one request; 0: 10 s
};

struct shadow_state {
    uint64_t pairs; // asked of both, and over
    uint64_t compared, different;
    uint64_t unanswered; // the baseline failed, or an answer was longer than SHADOW_BODY_MAX:
                         // nothing to compare with
    uint64_t behind;     // not mirrored: all pairs were under way
    double limit; // numbers may be this far apart: the tolerance, or twice what the baseline is
                  // from itself
    char ignored[512]; // members that differ between two answers of the baseline: not compared
};

struct shadow_example {                   // of what differs; strings are the caller's
    int64_t at_ns;                        // CLOCK_REALTIME
    char *request, *baseline, *candidate; // cut to 600 bytes, UTF-8
    double distance;                      // NAN: not by numbers
};

struct shadow;

// -EINVAL: a URL, method or line of the file that cannot be (file and line are named). -ENOSYS:
// built without libcurl.
int shadow_open(const struct shadow_opts *opts, struct shadow **ret_shadow, struct error *err);
void shadow_close(struct shadow *shadow); // NULL ok

// The users' requests since the last call: `mirror` of them may now be mirrored.
void shadow_traffic(struct shadow *shadow, uint64_t requests);
int shadow_poll(struct shadow *shadow, int timeout_ms, struct error *err);
// The oldest second (CLOCK_REALTIME) that is over, of both arms; of the candidate those that the
// baseline answered, compared or failed. False: none.
bool shadow_take(
        struct shadow *shadow, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS]);
bool shadow_example(struct shadow *shadow, struct shadow_example *ret_example);
void shadow_example_clear(struct shadow_example *example);
void shadow_look(const struct shadow *shadow, struct shadow_state *ret_state);

#endif
