// SPDX-License-Identifier: Apache-2.0
// Finds slow steps and their period, sums up launches. Reads arrays.
#include "reports/analyse/slow_steps.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"

enum {
    SLOW_STEPS_TRIED = 64,      // distances between so many are taken for periods
    SLOW_STEPS_SPARSE = 8,      // of so many steps one is there, at least
    SLOW_STEPS_LAUNCHES_MIN = 3 // before that nothing is regular
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

// Slow by what is left of them: so long, or longer.
static struct slow_steps slow_steps_from(const int64_t *idx, const double *durations,
        const double *excused, int count, double limit_ns)
{
    struct slow_steps result = {
            .of = count,
            .typical_ns = quantile_median(durations, (size_t)count),
            .slow_ns = NAN,
            .limit_ns = limit_ns,
    };
    size_t room = (size_t)(count > 0 ? count : 1);
    double *slow = xcalloc(room, sizeof *slow);
    int64_t *at = xcalloc(room, sizeof *at);
    for (int i = 0; i < count; i++) {
        double left = durations[i] - (excused ? excused[i] : 0);
        if (!(left >= limit_ns))
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

struct slow_steps slow_steps_find(
        const int64_t *idx, const double *durations, const double *excused, int count)
{
    double typical_ns = quantile_median(durations, (size_t)count);
    return slow_steps_from(idx, durations, excused, count, slow_steps_factor * typical_ns);
}

struct slow_steps slow_steps_tail(const int64_t *idx, const double *durations, int count, double p)
{
    double *sorted = xcalloc((size_t)count + 1, sizeof *sorted);
    memcpy(sorted, durations, (size_t)count * sizeof *sorted);
    quantile_sort(sorted, (size_t)count);
    double limit_ns = quantile_nearest_rank(sorted, (size_t)count, p);
    free(sorted);
    return slow_steps_from(idx, durations, NULL, count, limit_ns);
}

// --- several launches ----------------------------------------------------------------------------

// The value that three quarters of `launches` share; 0: none.
static int slow_steps_shared(const double *values, int count, int launches)
{
    double middle = quantile_median(values, (size_t)count);
    int same = 0;
    for (int i = 0; i < count; i++)
        same += values[i] == middle;
    return launches >= SLOW_STEPS_LAUNCHES_MIN && 4 * same >= 3 * launches ? (int)middle : 0;
}

// Steps that are slow again and again: `steps` of all launches, sorted.
static void slow_steps_recurrent(
        const double *steps, int count, int launches, struct slow_steps_sum *sum)
{
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && steps[end] == steps[i];)
            end++;
        if (launches >= SLOW_STEPS_LAUNCHES_MIN && 4 * (end - i) >= 3 * launches &&
                sum->at_count < SLOW_STEPS_TOLD)
            sum->at[sum->at_count++] = (int64_t)steps[i];
    }
}

struct slow_steps_sum slow_steps_sum(const struct slow_steps *const *launches, int count)
{
    struct slow_steps_sum sum = {0};
    size_t room = (size_t)(count > 0 ? count : 1);
    double *slow = xcalloc(3 * room, sizeof *slow), *typical = slow + room,
           *period = typical + room;
    double *steps = xcalloc(room * SLOW_STEPS_KEPT, sizeof *steps);
    int measured = 0, with_slow = 0, periods = 0, step_count = 0;
    for (int i = 0; i < count; i++) {
        const struct slow_steps *one = launches[i];
        sum.of += one->of;
        sum.count += one->count;
        if (one->of)
            typical[measured++] = one->typical_ns;
        if (one->count)
            slow[with_slow++] = one->slow_ns;
        if (one->period)
            period[periods++] = one->period;
        for (int k = 0; k < one->count && k < SLOW_STEPS_KEPT; k++)
            steps[step_count++] = (double)one->at[k];
    }
    sum.slow_ns = quantile_median(slow, (size_t)with_slow);
    sum.typical_ns = quantile_median(typical, (size_t)measured);
    sum.period = slow_steps_shared(period, periods, measured);
    quantile_sort(steps, (size_t)step_count);
    slow_steps_recurrent(steps, step_count, measured, &sum);
    free(slow);
    free(steps);
    return sum;
}
