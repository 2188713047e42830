// SPDX-License-Identifier: Apache-2.0
// Validity rules of a pair. Reads covariates and counters of its two launches.
#include "harness/run/validity.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"

enum {
    VALIDITY_SUSPENDED_NS_MAX = 10000000, // a suspend lasts longer; clock slewing stays far below
    VALIDITY_OVERLAP_SHARE = 100, // a hundredth of its CPU time, half of what the gate looks for
    // Foreign CPU use that one launch met and the other did not, in launches mode: a tenth of a CPU
    // moves the 2 % that a gate looks for. In turns both sides share what comes, so it does not void.
    VALIDITY_FOREIGN_PCT_MAX = 10,
    // /proc/stat counts in ticks of 10 ms: what begins and what ends may each be off by one.
    VALIDITY_TICKS_NS = 20000000
};

static int64_t validity_value(const json_t *covariates, const char *name)
{
    const json_t *value = json_object_get(covariates, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

// How much of a CPU the count may be off, in the shorter of the two windows.
static double validity_resolution_pct(const json_t *a, const json_t *b)
{
    int64_t window_a = validity_value(a, "window_ns"), window_b = validity_value(b, "window_ns");
    int64_t window = window_a < window_b ? window_a : window_b;
    return window > 0 ? 100.0 * VALIDITY_TICKS_NS / (double)window : 0;
}

static double validity_foreign_pct(const json_t *covariates)
{
    int64_t foreign = validity_value(covariates, "foreign_cpu_ns");
    int64_t window = validity_value(covariates, "window_ns");
    return foreign < 0 || window <= 0 ? -1 : 100.0 * (double)foreign / (double)window;
}

struct validity validity_check(const struct pair *pair, enum plan_interleave interleave)
{
    const json_t *a = pair->covariates[0], *b = pair->covariates[1];
    for (int side = 0; side < 2; side++) {
        if (!pair->launches[side])
            continue;
        uint64_t dropped = samples_dropped(pair->launches[side]);
        if (dropped)
            return (struct validity){xasprintf("%llu step records were lost: the ring was full",
                                               (unsigned long long)dropped), side};
        if (validity_value(pair->covariates[side], "suspended_ns") > VALIDITY_SUSPENDED_NS_MAX)
            return (struct validity){xstrdup("the machine was suspended"), -1};
        const struct launch *launch = pair->launches[side];
        if (launch->cpu_ns > 0 && launch->overlap_ns * VALIDITY_OVERLAP_SHARE > launch->cpu_ns)
            return (struct validity){xstrdup("a side went on working in the turns of the other"), side};
    }
    int64_t throttle_a = validity_value(a, "throttle_events"), throttle_b = validity_value(b, "throttle_events");
    if (throttle_a >= 0 && throttle_b >= 0 && (throttle_a > 0) != (throttle_b > 0))
        return (struct validity){xstrdup("the processor throttled while one side ran, not the other"),
                                 throttle_b > 0};
    double foreign_a = validity_foreign_pct(a), foreign_b = validity_foreign_pct(b);
    double most = VALIDITY_FOREIGN_PCT_MAX + validity_resolution_pct(a, b);
    if (interleave == PLAN_INTERLEAVE_LAUNCHES && foreign_a >= 0 && foreign_b >= 0 &&
        fabs(foreign_a - foreign_b) > most)
        return (struct validity){xasprintf("other processes used %.0f %% of a CPU beside one side and "
                                           "%.0f %% beside the other", foreign_a, foreign_b),
                                 foreign_b > foreign_a};
    return (struct validity){NULL, -1};
}
