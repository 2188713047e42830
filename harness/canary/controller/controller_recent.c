// SPDX-License-Identifier: Apache-2.0
// The candidate's last ten seconds, as the sources have read them, whole seconds or not: what the tripwires act on at once. A ring of
// the sources' totals, one a look. Main thread.
#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "harness/canary/controller/controller_internal.h"

#define RECENT_NS 10000000000 // as the tripwire of errors is worded
enum { RECENT_REQUESTS_MIN = 10 };

void controller_recent_clear(struct controller *ctl)
{
    ctl->recent_count = 0;
    ctl->facts.refused = 0;
    ctl->recent_errors = NAN;
}

void controller_recent_look(struct controller *ctl, bool aa)
{
    struct sources_total totals[CANARY_ARMS] = {0};
    struct controller_recent *ring = ctl->recent;
    int64_t now = clock_monotonic_ns();
    if (!ctl->sources)
        return;
    sources_totals(ctl->sources, aa, totals);
    const struct sources_total *now_total = &totals[CANARY_CANDIDATE];
    if (ctl->recent_count && now_total->requests < ring[ctl->recent_count - 1].total.requests)
        controller_recent_clear(ctl); // sources that were opened again count from 0
    // The oldest goes when the next one is ten seconds old, too: the first is the count before the window.
    while (ctl->recent_count > 1 && (now - ring[1].at_ns >= RECENT_NS || ctl->recent_count == CONTROLLER_RECENT)) {
        memmove(ring, ring + 1, ((size_t)ctl->recent_count - 1) * sizeof *ring);
        ctl->recent_count--;
    }
    ring[ctl->recent_count++] = (struct controller_recent){.at_ns = now, .total = *now_total, .lost = ctl->lost_seen};
    uint64_t requests = now_total->requests - ring[0].total.requests, errors = now_total->errors - ring[0].total.errors;
    ctl->facts.refused = now_total->refused - ring[0].total.refused;
    ctl->recent_errors = requests >= RECENT_REQUESTS_MIN ? (double)errors / (double)requests : NAN;
    uint64_t lost = ctl->lost_seen > ring[0].lost ? ctl->lost_seen - ring[0].lost : 0;
    double limit = ctl->rollout->rules.tripwire_error_rate;
    if (lost && requests + lost >= RECENT_REQUESTS_MIN && (double)(errors + lost) > limit * (double)(requests + lost)) // false for NaN
        ctl->facts.maybe_tripped = true;
}
