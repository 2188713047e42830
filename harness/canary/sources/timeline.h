// SPDX-License-Identifier: Apache-2.0
// The seconds that are being filled, of all sources and arms. Seconds are counted on a clock that
// never goes back: CLOCK_REALTIME at first, and ahead of it after that was set back, so that no
// second comes twice.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_TIMELINE_H
#define UPGATE_HARNESS_CANARY_SOURCES_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "reports/analyse/canary/second.h"

enum timeline_arm { TIMELINE_BASELINE, TIMELINE_CANDIDATE, TIMELINE_BASELINE2, TIMELINE_ARMS };
enum { TIMELINE_SECONDS = 128 }; // Prometheus may tell a minute late

struct timeline_total { // since the begin, whether finished or not
    uint64_t requests, errors, refused, given_up;
};

struct timeline {
    int64_t ahead_ns; // of CLOCK_MONOTONIC
    int64_t taken_s;  // up to here, this one included, seconds were taken
    int64_t newest_s; // the last one with something in it
    struct timeline_slot {
        int64_t at_s; // 0: free
        struct canary_second arms[TIMELINE_ARMS];
    } slots[TIMELINE_SECONDS];
    struct timeline_total totals[TIMELINE_ARMS];
    // What another source counted beside the requests, and their second has not: it goes to the
    // arm's next requests.
    uint64_t errors_left[TIMELINE_ARMS], wrong_left[TIMELINE_ARMS];
    uint64_t discarded; // requests of seconds that nobody took in time
};

struct timeline_request {
    int64_t end_ns;   // CLOCK_MONOTONIC
    double latency_s; // NaN: none that counts
    bool error, truncated, wrong, refused;
    // 4xx, or (which is rejected, too) by the client before an answer began
    bool rejected, given_up;
};

void timeline_begin(struct timeline *timeline, int64_t monotonic_ns, int64_t wall_ns);
// CLOCK_REALTIME may have been set
void timeline_tick(struct timeline *timeline, int64_t monotonic_ns, int64_t wall_ns);
int64_t timeline_second_of(const struct timeline *timeline, int64_t monotonic_ns);

// The second to add to. NULL: it was taken, too late.
struct canary_second *timeline_at(struct timeline *timeline, int64_t at_s, enum timeline_arm arm);
// false: too late
bool timeline_add(
        struct timeline *timeline, enum timeline_arm arm, const struct timeline_request *request);

// The oldest second with requests that ended before `until_ns` (CLOCK_MONOTONIC) and was not taken;
// those before it count as taken. No second has more errors or wrong answers than requests. False:
// none.
bool timeline_take(struct timeline *timeline, int64_t until_ns, bool aa, int64_t *ret_at_s,
        struct canary_second ret_arms[CANARY_ARMS]);

#endif
