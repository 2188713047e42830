// SPDX-License-Identifier: Apache-2.0
// What the steps of a pair take in sum: the mean step, throughput, slow steps, the warm-up, and
// what follows. Every nanosecond of a step belongs to the warm-up or to the mean. What the machine
// took from a block is taken out, where the harness could tell; the ratio with it left in is kept
// beside.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/measure/measure_parts.h"
#include "harness/gate/measure/rank_rows.h"
#include "reports/analyse/quantile.h"

// One side from the start on.
struct measure_sum {
    double active_ns, steps, samples;
    double before_ns;                 // of the steps before it
    double machine_ns;                // NAN: not known for every block
    struct slow_steps slow, slow_raw; // with what the machine took left out, and in
};

bool measure_has_arrivals(const struct rank_rows *rank)
{
    for (int i = 0; i < rank->count; i++)
        if (!isnan(rank->late_ns[i]))
            return true;
    return false;
}

// --- sums ----------------------------------------------------------------------------------------

// Steps from the begin of the first one to the end of the last one. Requests that arrive by a
// schedule: their own durations, for what lies between them is the schedule's.
static void measure_sum_launch(const struct measure_state *state, int side, struct measure_sum *sum)
{
    const struct rank_rows *rank = state->slowest[side];
    int first = rank_rows_find(rank, state->start), last = rank->count - 1;
    *sum = (struct measure_sum){.machine_ns = NAN};
    for (int i = 0; i < first; i++)
        sum->before_ns += state->durations[side][i];
    if (first < 0)
        return;
    sum->steps = rank->count - first;
    sum->samples = rank_rows_samples(&state->rows->sides[side], state->start, rank->idx[last] + 1);
    if (measure_has_arrivals(rank))
        for (int i = first; i <= last; i++)
            sum->active_ns += state->durations[side][i];
    else
        sum->active_ns =
                (double)(rank->begin_ns[last] + rank->dur_ns[last] - rank->begin_ns[first]);
}

// Time of a block that lies before the start, of one that lies behind it, and of the steps that are
// in neither: those of the block across the start, and the last ones, which fill no couple.
static void measure_sum_blocks(const struct measure_state *state, int side, struct measure_sum *sum)
{
    const struct rank_rows *rank = state->slowest[side];
    bool *covered = xcalloc((size_t)rank->count, sizeof *covered);
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        int64_t from = block->first_step[side], to = from + block->steps[side];
        bool counts = measure_counts(state, block);
        int at = rank_rows_find(rank, from);
        if (!counts && (to > state->start || block->active_ns[side] <= 0))
            continue;
        for (int k = at; k >= 0 && k < rank->count && rank->idx[k] < to; k++)
            covered[k] = true;
        if (!counts) {
            sum->before_ns += (double)block->active_ns[side];
            continue;
        }
        sum->active_ns += (double)block->active_ns[side];
        sum->steps += (double)block->steps[side];
        sum->samples += rank_rows_samples(&state->rows->sides[side], from, to);
        sum->machine_ns += block->machine_ns[side];
    }
    for (int k = 0; k < rank->count; k++) {
        bool before = rank->idx[k] < state->start;
        if (!covered[k] && !before && sum->steps > 0) {
            sum->active_ns += state->durations[side][k];
            sum->steps++;
            sum->samples +=
                    rank_rows_samples(&state->rows->sides[side], rank->idx[k], rank->idx[k] + 1);
        } else if (!covered[k] && before) {
            sum->before_ns += state->durations[side][k];
        }
    }
    free(covered);
}

// Standard error of the log ratio of the means, from the couples that it is made of.
static double measure_within(
        const struct measure_state *state, const struct measure_sum *sums, int *ret_couples)
{
    double *differences = xcalloc((size_t)state->rows->block_count, sizeof *differences);
    int count = 0;
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        double of_mean[PLAN_SIDES];
        if (!measure_counts(state, block))
            continue;
        for (int side = 0; side < PLAN_SIDES; side++)
            of_mean[side] = (double)block->active_ns[side] / (double)block->steps[side] *
                    sums[side].steps / sums[side].active_ns;
        differences[count++] = of_mean[1] - of_mean[0];
    }
    double sd = quantile_sd(differences, (size_t)count);
    free(differences);
    *ret_couples = count;
    return sd / sqrt(count);
}

// --- slow steps ----------------------------------------------------------------------------------

// Of what the machine took from a block, the slow steps get what they lack to the typical one, in
// their order, while it lasts. Caller frees.
static double *measure_excuses(const struct measure_state *state, int side, int first)
{
    const struct rank_rows *rank = state->slowest[side];
    const double *durations = state->durations[side];
    double typical = quantile_median(durations + first, (size_t)(rank->count - first));
    double *excused = xcalloc((size_t)rank->count, sizeof *excused);
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        double left = block->machine_ns[side];
        int at = rank_rows_find(rank, block->first_step[side]);
        for (int k = at; at >= 0 && k < at + block->steps[side] && k < rank->count && left > 0;
                k++) {
            excused[k] = fmin(left, fmax(0, durations[k] - typical));
            left -= excused[k];
        }
    }
    return excused;
}

// Where steps only enqueue work, and the last of a block waits for it, a block is what can be slow:
// the mean of its steps stands for one.
static void measure_slow_blocks(
        const struct measure_state *state, int side, struct measure_sum *sum)
{
    size_t room = (size_t)state->rows->block_count;
    double *means = xcalloc(room, sizeof *means), *excused = xcalloc(room, sizeof *excused);
    int64_t *idx = xcalloc(room, sizeof *idx);
    int count = 0;
    for (size_t i = 0; i < room; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        if (!measure_counts(state, block))
            continue;
        double machine_ns = block->machine_ns[side];
        idx[count] = block->first_step[side];
        means[count] = (double)block->active_ns[side] / (double)block->steps[side];
        excused[count++] = machine_ns > 0 ? machine_ns / (double)block->steps[side] : 0;
    }
    sum->slow_raw = slow_steps_find(idx, means, NULL, count);
    sum->slow = slow_steps_find(idx, means, excused, count);
    free(means);
    free(excused);
    free(idx);
}

static void measure_slow(const struct measure_state *state, int side, struct measure_sum *sum)
{
    if (state->pair->last_waits) {
        measure_slow_blocks(state, side, sum);
        return;
    }
    const struct rank_rows *rank = state->slowest[side];
    int first = rank_rows_find(rank, state->start);
    if (first < 0)
        return;
    const double *durations = state->durations[side] + first;
    int count = rank->count - first;
    double *excused = measure_excuses(state, side, first);
    sum->slow_raw = slow_steps_find(rank->idx + first, durations, NULL, count);
    sum->slow = slow_steps_find(rank->idx + first, durations, excused + first, count);
    free(excused);
}

// Time lost in slow steps, as a share of what typical steps take.
static double measure_slow_share(const struct slow_steps *slow)
{
    return slow->of > 0 ? slow->lost_ns / (slow->of * slow->typical_ns) : NAN;
}

// --- warm-up -------------------------------------------------------------------------------------

// What the steps before the start took beyond steady ones.
static double measure_warm_up_excess(
        const struct measure_state *state, int side, const struct measure_sum *sum, double mean_ns)
{
    const struct rank_rows *rank = state->slowest[side];
    int before = 0;
    while (before < rank->count && rank->idx[before] < state->start)
        before++;
    return fmax(sum->before_ns - before * mean_ns, isnan(mean_ns) ? NAN : 0);
}

void measure_warm_up(struct measure_pair *pair, double run_steps)
{
    double run_ns[PLAN_SIDES];
    for (int side = 0; side < PLAN_SIDES; side++)
        run_ns[side] = run_steps * pair->sides[side].steady_mean_ns +
                pair->sides[side].value[METRIC_WARM_UP_TIME];
    pair->log_ratio[METRIC_WARM_UP_TIME] =
            run_ns[0] > 0 && run_ns[1] > 0 ? log(run_ns[1] / run_ns[0]) : NAN;
}

// --- the end -------------------------------------------------------------------------------------

// What a launch was active for, less its start-up and its steps with what lies between them. In
// turns that is its blocks, and what it ran through behind the last one; the first step of a block
// that nodes wait in was not recorded, and would be taken for the end.
static double measure_end(const struct measure_state *state, int side)
{
    const struct launch_rows *launch = &state->rows->sides[side];
    const struct rank_rows *rank = state->slowest[side];
    if (launch->fate != LAUNCH_FATE_OK || rank->count < launch->steps)
        return NAN;
    double rest = launch->active_ns - launch->startup_ns;
    int64_t from = 0;
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        rest -= (double)block->active_ns[side];
        if (block->first_step[side] + block->steps[side] > from)
            from = block->first_step[side] + block->steps[side];
    }
    int first = rank_rows_find(rank, from), last = rank->count - 1;
    if (first >= 0)
        rest -= (double)(rank->begin_ns[last] + rank->dur_ns[last] - rank->begin_ns[first]);
    return rest < 0 ? 0 : rest;
}

// --- the pair ------------------------------------------------------------------------------------

static void measure_put_side(
        struct measure_state *state, int side, const struct measure_sum *sum, double machine_ns)
{
    struct measure_launch *launch = &state->pair->sides[side];
    double active_ns = sum->active_ns - machine_ns;
    bool behind = sum->steps > 0 && state->slowest[side]->count > MEASURE_WARM_UP_MIN;
    double mean = behind && active_ns > 0 ? active_ns / sum->steps : NAN;
    launch->slow = sum->slow;
    launch->steady_mean_ns = mean;
    launch->machine_share = sum->machine_ns / sum->active_ns;
    measure_put(launch, METRIC_MEAN_STEP_TIME, mean, MEASURE_FEW_STEPS);
    measure_put(launch, METRIC_THROUGHPUT, behind ? sum->samples / (active_ns * 1e-9) : NAN,
            behind ? MEASURE_NO_SAMPLES : MEASURE_FEW_STEPS);
    measure_put(launch, METRIC_SLOW_STEPS, behind ? measure_slow_share(&sum->slow) : NAN,
            MEASURE_FEW_STEPS);
    measure_put(launch, METRIC_WARM_UP_TIME, measure_warm_up_excess(state, side, sum, mean),
            MEASURE_FEW_STEPS);
}

static void measure_put_ratios(struct measure_state *state, const struct measure_sum *sums)
{
    static const enum metric_id by_time[] = {METRIC_MEAN_STEP_TIME, METRIC_THROUGHPUT};
    struct measure_pair *pair = state->pair;
    const struct measure_launch *a = &pair->sides[0], *b = &pair->sides[1];
    double taken = log1p(-b->machine_share) - log1p(-a->machine_share); // NAN: nothing was
    for (size_t i = 0; i < sizeof by_time / sizeof *by_time; i++) {
        enum metric_id metric = by_time[i];
        double ratio = log(b->value[metric] / a->value[metric]);
        pair->log_ratio[metric] = ratio;
        pair->raw_ratio[metric] = metric == METRIC_THROUGHPUT ? ratio + taken : ratio - taken;
        if (state->rows->block_count)
            pair->within_sd[metric] = measure_within(state, sums, &pair->couples[metric]);
    }
    pair->log_ratio[METRIC_SLOW_STEPS] =
            log1p(b->value[METRIC_SLOW_STEPS]) - log1p(a->value[METRIC_SLOW_STEPS]);
    pair->raw_ratio[METRIC_SLOW_STEPS] = isnan(taken)
            ? NAN
            : log1p(measure_slow_share(&sums[1].slow_raw)) -
                    log1p(measure_slow_share(&sums[0].slow_raw));
    measure_warm_up(pair, (double)(pair->head.steps > 0 ? pair->head.steps : a->steps));
}

void measure_sums(struct measure_state *state)
{
    struct measure_sum sums[PLAN_SIDES];
    memset(sums, 0, sizeof sums);
    bool both = state->slowest[0] && state->slowest[1];
    bool blocks = both && state->rows->block_count;
    for (int side = 0; side < PLAN_SIDES; side++)
        blocks = blocks && !measure_has_arrivals(state->slowest[side]);
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (blocks)
            measure_sum_blocks(state, side, &sums[side]);
        if (state->slowest[side] && sums[side].steps == 0)
            measure_sum_launch(state, side, &sums[side]);
        if (state->slowest[side])
            measure_slow(state, side, &sums[side]);
        if (state->slowest[side])
            state->pair->sides[side].end_ns = measure_end(state, side);
    }
    bool known = isfinite(sums[0].machine_ns) && isfinite(sums[1].machine_ns);
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (!known) // on one side only it would be no comparison
            sums[side].machine_ns = NAN, sums[side].slow = sums[side].slow_raw;
        if (state->slowest[side])
            measure_put_side(state, side, &sums[side], known ? sums[side].machine_ns : 0);
    }
    if (both)
        measure_put_ratios(state, sums);
}
