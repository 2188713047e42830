// SPDX-License-Identifier: Apache-2.0
// The candidate's last ten seconds, as they have been read, whole seconds or not: what the
// tripwires act on at once. In a shadow stage the mirrored requests. Main thread.
#include <math.h>
#include <string.h>

#include "common/clock.h"
#include "harness/canary/controller/controller_internal.h"

enum { RECENT_USUAL_MIN = 100 }; // requests of the baseline, before a share of them is known

void controller_recent_clear(struct controller *ctl)
{
    ctl->recent.count = 0;
    ctl->facts.refused = 0;
    ctl->facts.recent_errors = NAN;
    memset(&ctl->shadow_total, 0, sizeof ctl->shadow_total);
}

void controller_recent_look(struct controller *ctl)
{
    struct sources_total totals[CANARY_ARMS] = {0};
    bool aa = ctl->machine.stage >= 0 && ctl->plan.stages[ctl->machine.stage].aa;
    if (ctl->shadowing)
        totals[CANARY_CANDIDATE] = ctl->shadow_total;
    else if (ctl->sources)
        sources_totals(ctl->sources, aa, totals);
    else
        return;
    const struct sources_total *total = &totals[CANARY_CANDIDATE],
                               *baseline = &totals[CANARY_BASELINE];
    canary_recent_add(&ctl->recent,
            &(struct canary_recent_look){.at_ns = clock_monotonic_ns(),
                    .requests = total->requests,
                    .errors = total->errors,
                    .refused = total->refused,
                    .given_up = total->given_up,
                    .lost = ctl->shadowing ? 0 : ctl->lost_seen,
                    .baseline = {baseline->requests, baseline->errors, baseline->refused,
                            baseline->given_up}});
    // Of all that the baseline ever had: at 100 % it has nothing new.
    double usual = baseline->requests >= RECENT_USUAL_MIN
            ? (double)baseline->given_up / (double)baseline->requests
            : NAN;
    double limit = ctl->rollout->rules.tripwire_error_rate; // comparisons are false for NaN
    bool spares = ctl->shared_ns < CONTROLLER_SHARED_NS;
    double errors = canary_recent_errors_alone(&ctl->recent, usual);
    uint64_t refused = canary_recent_refused_alone(&ctl->recent);
    ctl->facts.refused = spares ? canary_recent_refused(&ctl->recent) : refused;
    ctl->facts.recent_errors = spares ? canary_recent_errors(&ctl->recent, usual) : errors;
    ctl->shared |= (refused >= ctl->rollout->unreachable &&
                           ctl->facts.refused < ctl->rollout->unreachable) ||
            (errors > limit && !(ctl->facts.recent_errors > limit));
    if (canary_recent_errors_lost(&ctl->recent, usual) > limit)
        ctl->facts.maybe_tripped = true;
}
