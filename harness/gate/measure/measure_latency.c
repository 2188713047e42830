// SPDX-License-Identifier: Apache-2.0
// Latency of requests: of an open loop from their scheduled arrival, of a closed one (mode infer
// without arrivals) how long each took. Both sides are asked about the same requests.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/measure/measure_parts.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/quantile.h"

static const double measure_p99_alpha = 0.01;

static bool measure_is_open(const struct launch_rows *rows)
{
    for (int i = 0; i < rows->rank_count; i++)
        if (measure_has_arrivals(&rows->ranks[i]))
            return true;
    return false;
}

// Requests, and none of either side arrives by a schedule: nobody is late.
static bool measure_is_closed(const struct pair_rows *pair)
{
    return pair->head.requests && !measure_is_open(&pair->sides[0]) &&
            !measure_is_open(&pair->sides[1]);
}

// Latencies of all ranks, from step `start` on, sorted; caller frees. Where requests arrive by a
// schedule, of those that have one.
static double *measure_latencies(
        const struct pair_rows *pair, int side, int64_t start, int *ret_count)
{
    const struct launch_rows *rows = &pair->sides[side];
    bool closed = measure_is_closed(pair);
    int total = 0, count = 0;
    for (int i = 0; i < rows->rank_count; i++)
        total += rows->ranks[i].count;
    double *latencies = xcalloc((size_t)total, sizeof *latencies);
    for (int i = 0; i < rows->rank_count; i++) {
        const struct rank_rows *rank = &rows->ranks[i];
        for (int k = 0; k < rank->count; k++)
            if ((closed || !isnan(rank->late_ns[k])) && rank->idx[k] >= start)
                latencies[count++] = (closed ? 0 : rank->late_ns[k]) + (double)rank->dur_ns[k];
    }
    quantile_sort(latencies, (size_t)count);
    *ret_count = count;
    return latencies;
}

static bool measure_enough(const struct measure_state *state, int64_t start, long least)
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        int count = 0;
        if (state->slowest[side])
            free(measure_latencies(state->rows, side, start, &count));
        if (state->slowest[side] && count < least)
            return false;
    }
    return true;
}

// A percentile needs its requests more than a late start. Without enough from there on, all but the
// first few count, and those too where every one is needed; where that does not do either there is
// no p99, and the steady part serves for p50.
void measure_latency(const struct measure_state *state)
{
    const int64_t starts[] = {state->start, MEASURE_WARM_UP_MIN, 0};
    long p99_min = binomial_requests_min(0.99, 1, measure_p99_alpha);
    int64_t start = state->start;
    // The warm-up of a closed loop has a metric of its own.
    for (size_t i = measure_is_closed(state->rows) ? 0 : sizeof starts / sizeof *starts; i-- > 0;)
        if (measure_enough(state, starts[i], p99_min))
            start = starts[i];
    for (int side = 0; side < PLAN_SIDES; side++) {
        struct measure_launch *launch = &state->pair->sides[side];
        if (!state->slowest[side])
            continue;
        int count;
        double *latencies = measure_latencies(state->rows, side, start, &count);
        launch->has_arrivals = measure_is_open(&state->rows->sides[side]);
        enum measure_reason otherwise = count > 0 ? MEASURE_FEW_REQUESTS : MEASURE_NO_REQUESTS;
        double p50 = count >= MEASURE_P50_REQUESTS_MIN
                ? quantile_nearest_rank(latencies, (size_t)count, 0.50)
                : NAN;
        double p99 = count >= p99_min ? quantile_nearest_rank(latencies, (size_t)count, 0.99) : NAN;
        measure_put(launch, METRIC_LATENCY_P50, p50, otherwise);
        measure_put(launch, METRIC_LATENCY_P99, p99, otherwise);
        free(latencies);
    }
}
