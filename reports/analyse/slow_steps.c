// SPDX-License-Identifier: Apache-2.0
// Finds slow steps and their period. Reads arrays.
#include "reports/analyse/slow_steps.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"

enum { SLOW_STEPS_DISTANCES_MIN = 3 };
static const double slow_steps_factor = 2; // what is lost is at least one step
static const double slow_steps_period_share = 0.75, slow_steps_period_slack = 0.1;

int slow_steps_period(const int64_t *idx, int count)
{
    int distances = count - 1, fit = 0;
    if (distances < SLOW_STEPS_DISTANCES_MIN)
        return 0;
    double *sorted = xcalloc((size_t)distances, sizeof *sorted);
    for (int i = 0; i < distances; i++)
        sorted[i] = (double)(idx[i + 1] - idx[i]);
    double period = quantile_median(sorted, (size_t)distances);
    for (int i = 0; i < distances; i++)
        fit += fabs(sorted[i] - period) <= fmax(1, slow_steps_period_slack * period);
    free(sorted);
    // Neighbours are a burst, not a period.
    return period >= 2 && fit >= slow_steps_period_share * distances ? (int)period : 0;
}

struct slow_steps slow_steps_find(const int64_t *idx, const double *durations,
                                  const double *excused, int count)
{
    struct slow_steps result = {
        .of = count,
        .typical_ns = quantile_median(durations, (size_t)count),
        .slow_ns = NAN,
        .first = -1,
    };
    size_t room = (size_t)(count > 0 ? count : 1);
    double *slow = xcalloc(room, sizeof *slow);
    int64_t *at = xcalloc(room, sizeof *at);
    for (int i = 0; i < count; i++) {
        double left = durations[i] - (excused ? excused[i] : 0);
        if (!(left >= slow_steps_factor * result.typical_ns))
            continue;
        if (result.count == 0)
            result.first = idx[i];
        result.lost_ns += left - result.typical_ns;
        at[result.count] = idx[i];
        slow[result.count++] = left;
    }
    result.slow_ns = quantile_median(slow, (size_t)result.count);
    result.period = slow_steps_period(at, result.count);
    free(slow);
    free(at);
    return result;
}
