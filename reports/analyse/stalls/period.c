// SPDX-License-Identifier: Apache-2.0
// The period of what the culprit does. A victim sees only some of it, late and several times over:
// the begins of waits are merged into episodes first, distances of two or three periods (one was
// missed) are folded, and a period is only told when the distances agree.
#include <math.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/stalls/group.h"

enum { PERIOD_TIMES_MIN = 4, PERIOD_FOLD_MAX = 4, PERIOD_TIMES_MAX = 100000 };
static const double period_spread_max = 0.25;  // MAD of the folded distances over the period
static const double period_share_min = 0.75;   // of distances that must fit
static const double period_single_min = 0.45;  // of them one period long
static const double period_residual_max = 0.2; // from a multiple, in periods

// Do the distances agree on a period, beyond what chance does? Those of a series without one fall
// within a fifth of some multiple with probability 0.4: three standard deviations more are asked
// for. Few distances must all be single ones and nearly equal.
static bool period_proven(size_t count, size_t fit, size_t single, double residual_max)
{
    double expected = 0.4 * (double)count, sd = sqrt(0.24 * (double)count);
    if (fit == count && single == count && residual_max <= 0.1 && fit >= PERIOD_TIMES_MIN - 1)
        return true;
    return (double)fit >= period_share_min * (double)count && (double)fit >= expected + 3 * sd &&
            (double)single >= period_single_min * (double)count;
}

// How well `period` explains the distances: relative MAD of those folded; INFINITY: too few fit.
static double period_fit(const double *distances, size_t count, double period, double *ret_period)
{
    double *folded = xcalloc(count + 1, sizeof *folded), residual_max = 0, spread = INFINITY;
    size_t fit = 0, single = 0;
    for (size_t i = 0; i < count; i++) {
        double times = round(distances[i] / period), residual = fabs(distances[i] / period - times);
        if (times < 1 || times > PERIOD_FOLD_MAX || residual > period_residual_max)
            continue;
        residual_max = residual > residual_max ? residual : residual_max;
        single += times < 1.5;
        folded[fit++] = distances[i] / times;
    }
    if (period_proven(count, fit, single, residual_max)) {
        *ret_period = quantile_median(folded, fit);
        for (size_t i = 0; i < fit; i++)
            folded[i] = fabs(folded[i] - *ret_period);
        spread = quantile_median(folded, fit) / *ret_period;
    }
    free(folded);
    return spread;
}

// The largest of the distances that explains the others.
static double period_try(double *distances, size_t count, double *ret_spread)
{
    static const double shares[] = {0.75, 0.5, 0.4, 0.25};
    quantile_sort(distances, count);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double one = quantile_nearest_rank(distances, count, shares[i]), period = 0;
        double spread = one > 0 ? period_fit(distances, count, one, &period) : INFINITY;
        if (spread > period_spread_max)
            continue;
        *ret_spread = spread;
        return period;
    }
    *ret_spread = INFINITY;
    return 0;
}

int64_t period_of(const struct trace_window *spans, size_t count)
{
    static const int64_t joins[] = {
            2000000, 10000000, 25000000, 50000000, 100000000, 200000000, 500000000, 1000000000};
    double best = 0, best_spread = period_spread_max;
    double *distances = xcalloc(count + 1, sizeof *distances);
    for (size_t j = 0; j < sizeof joins / sizeof joins[0] && count >= PERIOD_TIMES_MIN; j++) {
        size_t found = 0;
        int64_t begin = spans[0].begin, last = spans[0].end;
        for (size_t i = 1; i < count; i++) {
            if (spans[i].begin - last > joins[j]) {
                distances[found++] = (double)(spans[i].begin - begin);
                begin = spans[i].begin;
            }
            last = spans[i].end > last ? spans[i].end : last;
        }
        if (found < PERIOD_TIMES_MIN - 1)
            break;
        double spread, period = period_try(distances, found, &spread);
        // A larger join throws spans away: it must be clearly better to be believed.
        if (period > 0 && period > 2 * (double)joins[j] &&
                spread < best_spread * (best > 0 ? 0.5 : 1)) {
            best = period;
            best_spread = spread;
        }
    }
    free(distances);
    return (int64_t)best;
}

void period_find(const struct trace *trace, struct group *group)
{
    // The moments at which the kernel itself noted the culprit's deed. Not UG_FACT_MIGRATE: a
    // tally's begins are the recorder's own period of 100 ms.
    struct trace_window *spans = NULL;
    size_t count = 0;
    for (size_t i = 0;
            group->cause == CAUSE_KHUGEPAGED && i < trace->fact_count && count < PERIOD_TIMES_MAX;
            i++) {
        const struct trace_fact *fact = &trace->facts[i];
        if (fact->what == UG_FACT_COLLAPSE && fact->actor != TRACE_NONE &&
                trace->threads[fact->actor].process == group->culprit)
            vector_push(spans, count, (struct trace_window){fact->begin, fact->begin});
    }
    int64_t period = period_of(spans, count);
    free(spans);
    if (!period)
        period = period_of(group->spans, group->span_count);
    group->has_period = period > 0;
    group->period_ns = period;
}
