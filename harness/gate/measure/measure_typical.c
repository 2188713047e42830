// SPDX-License-Identifier: Apache-2.0
// From where on the steps of a pair count, and its typical step: the Hodges-Lehmann estimate over
// couples of blocks.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/measure/measure_parts.h"
#include "harness/gate/measure/rank_rows.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/turns.h"

enum { MEASURE_COUPLES_MIN = 8 }; // what the steady part must leave

bool measure_counts(const struct measure_state *state, const struct block_rows *block)
{
    for (int side = 0; side < PLAN_SIDES; side++)
        if (block->steps[side] <= 0 || block->first_step[side] < state->start ||
                block->active_ns[side] <= 0)
            return false;
    return true;
}

static int measure_count_couples(const struct measure_state *state, int64_t start)
{
    struct measure_state at = *state;
    int count = 0;
    at.start = start;
    for (int i = 0; i < state->rows->block_count; i++)
        count += measure_counts(&at, &state->rows->blocks[i]);
    return count;
}

// The later of the two sides' steady parts, so that both are asked about the same steps; where one
// has none, or it leaves few couples, all behind the fixed warm-up. What comes before is judged as
// the warm-up, so nothing that was measured is left out.
void measure_find_start(struct measure_state *state)
{
    bool reached = true;
    int64_t fixed = 0, start = 0;
    for (int side = 0; side < PLAN_SIDES; side++) {
        const struct rank_rows *rank = state->slowest[side];
        if (!rank)
            continue;
        struct steady_result steady = steady_detect(state->durations[side], rank->count, NULL);
        int last = rank->count - 1;
        int at = steady_reached(steady.state) ? steady.start : MEASURE_WARM_UP_MIN;
        int warm = MEASURE_WARM_UP_MIN < last ? MEASURE_WARM_UP_MIN : last;
        state->pair->sides[side].steady = steady.state;
        reached = reached && steady_reached(steady.state);
        start = rank->idx[at < last ? at : last] > start ? rank->idx[at < last ? at : last] : start;
        fixed = rank->idx[warm] > fixed ? rank->idx[warm] : fixed;
    }
    int kept = measure_count_couples(state, start), all = measure_count_couples(state, fixed);
    bool thin = state->rows->block_count && (kept < MEASURE_COUPLES_MIN || kept < all / 2);
    state->start = reached && !thin ? start : fixed;
}

// Times of a block by its steps; by the block's own clock where a step is missing.
static struct turns_block measure_block(
        const struct measure_state *state, int side, const struct block_rows *block)
{
    const struct rank_rows *rank = state->slowest[side];
    int64_t steps = block->steps[side];
    struct turns_block result = {
            (double)block->active_ns[side] / (double)steps, NAN, NAN, NAN, NAN, NAN};
    int at = rank_rows_find(rank, block->first_step[side]);
    if (at < 0 || at + steps > rank->count ||
            rank->idx[at + steps - 1] != block->first_step[side] + steps - 1)
        return result;
    const double *durations = state->durations[side] + at;
    result.mean_ns = quantile_mean(durations, (size_t)steps);
    result.first_ns = durations[0];
    result.middle_ns = durations[steps / 2];
    result.last_ns = durations[steps - 1];
    if (steps > 1)
        result.rest_ns = quantile_mean(durations + 1, (size_t)(steps - 1));
    if (steps >= TURNS_MEDIAN_STEPS_MIN)
        result.median_ns = quantile_median(durations, (size_t)steps);
    return result;
}

static int measure_couples(const struct measure_state *state, struct turns_couple *couples)
{
    int count = 0;
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        if (!measure_counts(state, block))
            continue;
        for (int side = 0; side < PLAN_SIDES; side++)
            couples[count].sides[side] = measure_block(state, side, block);
        count++;
    }
    return count;
}

// Step time of a launch in the unit in which its ratio was taken: where steps only enqueue work,
// the median of single steps would be the time to enqueue.
static double measure_step_time(
        const struct measure_state *state, int side, const struct turns_couple *couples, int count)
{
    const struct rank_rows *slowest = state->slowest[side];
    int from = rank_rows_find(slowest, state->start);
    if (from < 0)
        return NAN;
    if (!count || state->pair->estimator == TURNS_MEDIAN)
        return quantile_median(state->durations[side] + from, (size_t)(slowest->count - from));
    double *times = xcalloc((size_t)count, sizeof *times);
    for (int i = 0; i < count; i++)
        times[i] = turns_block_time(&couples[i].sides[side], state->pair->estimator);
    double median = quantile_median(times, (size_t)count);
    free(times);
    return median;
}

void measure_typical(struct measure_state *state)
{
    struct measure_pair *pair = state->pair;
    size_t blocks = (size_t)state->rows->block_count;
    struct turns_couple *couples = xcalloc(blocks, sizeof *couples);
    int count = state->slowest[0] && state->slowest[1] ? measure_couples(state, couples) : 0;
    // One couple is no sample of anything: the launches are compared as they are.
    if (count < 2)
        count = 0;
    if (count) {
        struct turns_result turns = turns_ratio(couples, count);
        pair->last_waits = turns.last_waits;
        pair->estimator = turns.estimator;
        pair->log_ratio[METRIC_STEP_TIME] = turns.log_ratio;
        pair->within_sd[METRIC_STEP_TIME] = turns.within_sd;
        pair->couples[METRIC_STEP_TIME] = turns.couples;
    }
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (!state->slowest[side])
            continue;
        bool behind = state->slowest[side]->count > MEASURE_WARM_UP_MIN;
        measure_put(&pair->sides[side], METRIC_STEP_TIME,
                behind ? measure_step_time(state, side, couples, count) : NAN, MEASURE_FEW_STEPS);
    }
    free(couples);
}
