// SPDX-License-Identifier: Apache-2.0
// Finds slow steps and their period. Reads arrays.
#include "reports/analyse/slow_steps.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"

enum {
    SLOW_STEPS_TRIED = 64, // distances between so many are taken for periods
    SLOW_STEPS_SPARSE = 8, // of so many steps one is there, at least
};
static const double slow_steps_factor = 2; // what is lost is at least one step
static const double slow_steps_chance = 0.01;

// How many of the steps start, start + period, … are slow; -1: fewer than nine in ten.
static int slow_steps_hits(const bool *slow, int64_t steps, int64_t start, int64_t period)
{
    int64_t positions = 0, hits = 0;
    for (int64_t at = start % period; at < steps; at += period, positions++)
        hits += slow[at];
    return 10 * hits >= 9 * positions ? (int)hits : -1;
}

int slow_steps_period(const int64_t *idx, int count, int64_t from, int64_t to)
{
    int64_t steps = to - from, best = 0;
    int most = 0;
    if (count < 2 || steps < 2)
        return 0;
    bool *slow = xcalloc((size_t)steps, sizeof *slow);
    for (int i = 0; i < count; i++)
        slow[idx[i] - from] = true;
    double share = (double)count / (double)steps, tried = 0.5 * (double)steps * (double)steps;
    int first = count < SLOW_STEPS_TRIED ? count : SLOW_STEPS_TRIED;
    for (int i = 0; i < first; i++) {
        for (int k = i + 1; k < first; k++) {
            int64_t period = idx[k] - idx[i];
            int hits = period < 2 ? -1 : slow_steps_hits(slow, steps, idx[i] - from, period);
            if (hits > most && tried * pow(share, hits) < slow_steps_chance) {
                most = hits;
                best = period;
            }
        }
    }
    free(slow);
    return (int)best;
}

struct slow_steps slow_steps_find(const int64_t *idx, const double *durations,
                                  const double *excused, int count)
{
    struct slow_steps result = {
        .of = count,
        .typical_ns = quantile_median(durations, (size_t)count),
        .slow_ns = NAN,
    };
    size_t room = (size_t)(count > 0 ? count : 1);
    double *slow = xcalloc(room, sizeof *slow);
    int64_t *at = xcalloc(room, sizeof *at);
    for (int i = 0; i < count; i++) {
        double left = durations[i] - (excused ? excused[i] : 0);
        if (!(left >= slow_steps_factor * result.typical_ns))
            continue;
        if (result.count < SLOW_STEPS_KEPT)
            result.at[result.count] = idx[i];
        result.lost_ns += left - result.typical_ns;
        at[result.count] = idx[i];
        slow[result.count++] = left;
    }
    result.slow_ns = quantile_median(slow, (size_t)result.count);
    // Dense but for lost records: a damaged store may name any numbers.
    if (count > 0 && idx[count - 1] - idx[0] < SLOW_STEPS_SPARSE * (int64_t)count)
        result.period = slow_steps_period(at, result.count, idx[0], idx[count - 1] + 1);
    free(slow);
    free(at);
    return result;
}
