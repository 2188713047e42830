// SPDX-License-Identifier: Apache-2.0
// Metrics of launches and ratios of pairs, by the definitions of docs/METRICS.md. Which couples of
// blocks count follows from where the steps of each side get steady.
#include "harness/gate/measure.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/rank_rows.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/turns.h"

enum {
    MEASURE_WARM_UP_MIN = 5, // steps; as steady.c's default
    MEASURE_COUPLES_MIN = 8, // what a side's own steady part must leave
    MEASURE_GROUP = 5        // steps behind one value of the ratio's course in launches mode
};
static const double measure_p99_alpha = 0.01;

static void measure_put(struct measure_launch *launch, enum metric_id metric, double value,
                        enum measure_reason otherwise)
{
    launch->value[metric] = value;
    launch->reason[metric] = isnan(value) ? otherwise : MEASURE_OK;
}

// What needs no steps.
static void measure_whole(const struct launch_rows *rows, struct measure_launch *launch)
{
    bool ended = rows->fate == LAUNCH_FATE_OK;
    enum measure_reason otherwise = ended ? MEASURE_NOT_RECORDED : MEASURE_NOT_ENDED;
    measure_put(launch, METRIC_TOTAL_TIME, ended ? rows->active_ns : NAN, otherwise);
    measure_put(launch, METRIC_CPU_TIME, ended ? rows->cpu_ns : NAN, otherwise);
    measure_put(launch, METRIC_PEAK_MEMORY, ended ? rows->peak_memory_bytes : NAN, otherwise);
    measure_put(launch, METRIC_PEAK_GPU_MEMORY, ended ? rows->peak_gpu_memory_bytes : NAN,
                otherwise);
    measure_put(launch, METRIC_COMPILE_TIME, rows->compile_ns, MEASURE_NO_COMPILE);
    measure_put(launch, METRIC_SCALING_EFFICIENCY, NAN, MEASURE_NO_SINGLE);
    double first = NAN;
    for (int i = 0; i < rows->rank_count; i++) {
        int at = rank_rows_find(&rows->ranks[i], 0);
        if (at >= 0)
            first = fmax(first, (double)rows->ranks[i].dur_ns[at]);
    }
    measure_put(launch, METRIC_FIRST_STEP_TIME, first, MEASURE_NO_STEPS);
}

// Samples a second of active time from step `start` on: of the blocks where there are turns, else
// from the begin of that step to the end of the last one.
static double measure_throughput(const struct pair_rows *pair, int side,
                                 const struct rank_rows *slowest, int64_t start)
{
    const struct launch_rows *rows = &pair->sides[side];
    double samples = 0, active_ns = 0;
    for (int i = 0; i < pair->block_count; i++) {
        const struct block_rows *block = &pair->blocks[i];
        if (block->first_step[side] < start || block->steps[side] <= 0)
            continue;
        samples += rank_rows_samples(rows, block->first_step[side],
                                     block->first_step[side] + block->steps[side]);
        active_ns += (double)block->active_ns[side];
    }
    if (active_ns == 0) {
        int last = slowest->count - 1, first = rank_rows_find(slowest, start);
        if (first < 0)
            return NAN;
        samples = rank_rows_samples(rows, start, slowest->idx[last] + 1);
        active_ns =
            (double)(slowest->begin_ns[last] + slowest->dur_ns[last] - slowest->begin_ns[first]);
    }
    return active_ns > 0 ? samples / (active_ns * 1e-9) : NAN;
}

// Latencies from the scheduled arrival, of all ranks, from step `start` on; caller frees.
static double *measure_latencies(const struct launch_rows *rows, int64_t start, int *ret_count)
{
    int total = 0, count = 0;
    for (int i = 0; i < rows->rank_count; i++)
        total += rows->ranks[i].count;
    double *latencies = xcalloc((size_t)total, sizeof *latencies);
    for (int i = 0; i < rows->rank_count; i++) {
        const struct rank_rows *rank = &rows->ranks[i];
        for (int k = 0; k < rank->count; k++)
            if (!isnan(rank->late_ns[k]) && rank->idx[k] >= start)
                latencies[count++] = rank->late_ns[k] + (double)rank->dur_ns[k];
    }
    quantile_sort(latencies, (size_t)count);
    *ret_count = count;
    return latencies;
}

// A percentile needs its requests more than a late start: bursts of a neighbour move where the
// steps get steady. Without enough from there on, all but the first few count, and those too where
// every one is needed.
static void measure_latency(const struct launch_rows *rows, int64_t steady_start,
                            struct measure_launch *launch)
{
    const int64_t starts[] = {steady_start, MEASURE_WARM_UP_MIN, 0};
    long p99_min = binomial_requests_min(0.99, 1, measure_p99_alpha);
    double *latencies = NULL;
    int count = 0;
    for (size_t i = 0; i < sizeof starts / sizeof *starts && count < p99_min; i++) {
        free(latencies);
        latencies = measure_latencies(rows, starts[i], &count);
    }
    launch->has_arrivals = count > 0;
    if (count > 0 && count < p99_min) { // no p99 in any case: the steady part for p50
        free(latencies);
        latencies = measure_latencies(rows, steady_start, &count);
    }
    enum measure_reason otherwise =
        launch->has_arrivals ? MEASURE_FEW_REQUESTS : MEASURE_CLOSED_LOOP;
    double p50 = count >= MEASURE_P50_REQUESTS_MIN
                     ? quantile_nearest_rank(latencies, (size_t)count, 0.50)
                     : NAN;
    double p99 = count >= p99_min ? quantile_nearest_rank(latencies, (size_t)count, 0.99) : NAN;
    measure_put(launch, METRIC_LATENCY_P50, p50, otherwise);
    measure_put(launch, METRIC_LATENCY_P99, p99, otherwise);
    free(latencies);
}

// --- ratio of a pair -------------------------------------------------------------------------

// A pair while it is measured.
struct measure_state {
    const struct pair_rows *rows;
    struct measure_pair *pair;
    const struct rank_rows *slowest[PLAN_SIDES];
    double *durations[PLAN_SIDES];
    int64_t start[PLAN_SIDES]; // step from which on couples and medians count
};

// Times of a block by its steps; by the block's own clock where a step is missing.
static struct turns_block measure_block(const struct measure_state *state, int side,
                                        const struct block_rows *block)
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

static bool measure_counts(const struct measure_state *state, const struct block_rows *block)
{
    for (int side = 0; side < PLAN_SIDES; side++)
        if (block->steps[side] <= 0 || block->first_step[side] < state->start[side] ||
            block->active_ns[side] <= 0)
            return false;
    return true;
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

// ln(samples per active time of b over a) of a couple; without the first step of each block where
// that one is colder. NAN without samples.
static double measure_couple_rate(const struct measure_state *state, const struct block_rows *block)
{
    double rate[PLAN_SIDES];
    for (int side = 0; side < PLAN_SIDES; side++) {
        int64_t from = block->first_step[side], to = from + block->steps[side];
        double active_ns = (double)block->active_ns[side];
        if (state->pair->first_cold) {
            const struct rank_rows *rank = state->slowest[side];
            int first = rank_rows_find(rank, from), second = rank_rows_find(rank, from + 1);
            if (first < 0 || second < 0)
                return NAN;
            active_ns -= (double)(rank->begin_ns[second] - rank->begin_ns[first]);
            from++;
        }
        rate[side] = rank_rows_samples(&state->rows->sides[side], from, to) / active_ns;
    }
    return log(rate[1] / rate[0]);
}

static void measure_put_turns(struct measure_pair *pair, enum metric_id metric,
                              const struct turns_result *turns)
{
    pair->log_ratio[metric] = turns->log_ratio;
    pair->within_sd[metric] = turns->within_sd;
    pair->couples[metric] = turns->couples;
}

// Course of the ratio in order: of couples, or of groups of steps in launches mode. Caller frees.
static double *measure_course(const struct measure_state *state, int *ret_count)
{
    if (state->rows->block_count) {
        struct turns_couple *couples = xcalloc((size_t)state->rows->block_count, sizeof *couples);
        int count = measure_couples(state, couples), used = 0;
        double *course = xcalloc((size_t)count, sizeof *course);
        for (int i = 0; i < count; i++) {
            const struct turns_block *a = &couples[i].sides[0], *b = &couples[i].sides[1];
            bool medians = a->median_ns > 0 && b->median_ns > 0; // less moved by neighbours
            enum turns_estimator estimator = medians ? TURNS_MEDIAN : TURNS_MEAN;
            course[used++] = log(turns_block_time(b, estimator) / turns_block_time(a, estimator));
        }
        free(couples);
        *ret_count = used;
        return course;
    }
    int steps = state->slowest[0]->count < state->slowest[1]->count ? state->slowest[0]->count
                                                                    : state->slowest[1]->count;
    int from = MEASURE_WARM_UP_MIN, count = steps > from ? (steps - from) / MEASURE_GROUP : 0;
    double *course = xcalloc((size_t)count, sizeof *course);
    for (int i = 0; i < count; i++) {
        double median[PLAN_SIDES];
        for (int side = 0; side < PLAN_SIDES; side++)
            median[side] =
                quantile_median(state->durations[side] + from + i * MEASURE_GROUP, MEASURE_GROUP);
        course[i] = log(median[1] / median[0]);
    }
    *ret_count = count;
    return course;
}

static void measure_detect(struct measure_state *state, int side)
{
    struct steady_result steady =
        steady_detect(state->durations[side], state->slowest[side]->count, NULL);
    int at = steady_reached(steady.state) ? steady.start : MEASURE_WARM_UP_MIN;
    int last = state->slowest[side]->count - 1;
    state->pair->sides[side].steady = steady.state;
    state->start[side] = state->slowest[side]->idx[at < last ? at : last];
}

static int measure_count_couples(const struct measure_state *state)
{
    int count = 0;
    for (int i = 0; i < state->rows->block_count; i++)
        count += measure_counts(state, &state->rows->blocks[i]);
    return count;
}

// Where to measure from, and whether the pair is steady there. A side's own start counts when it
// leaves most couples; else, and where a side never gets steady, a ratio without a trend shows that
// both sides drift alike, and all after the fixed warm-up counts.
static void measure_find_start(struct measure_state *state)
{
    const struct measure_launch *sides = state->pair->sides;
    struct measure_state common = *state;
    for (int side = 0; side < PLAN_SIDES; side++) {
        measure_detect(state, side);
        common.start[side] = MEASURE_WARM_UP_MIN;
    }
    bool reached = steady_reached(sides[0].steady) && steady_reached(sides[1].steady);
    int kept = measure_count_couples(state), all = measure_count_couples(&common);
    bool thin = state->rows->block_count && (kept < MEASURE_COUPLES_MIN || kept < all / 2);
    state->pair->steady = reached;
    if ((reached && !thin) || sides[0].steady == STEADY_TOO_SHORT ||
        sides[1].steady == STEADY_TOO_SHORT)
        return;
    int count;
    double drift, *course = measure_course(&common, &count);
    if (steady_ratio(course, count, 0, &drift)) {
        state->pair->steady = true;
        state->pair->drifts_alike = !reached;
        for (int side = 0; side < PLAN_SIDES; side++)
            state->start[side] = common.start[side];
    }
    free(course);
}

// Step time of a launch in the unit in which its ratio was taken: where steps only enqueue work,
// the median of single steps would be the time to enqueue.
static double measure_step_time(const struct measure_state *state, int side)
{
    const struct rank_rows *slowest = state->slowest[side];
    int from = rank_rows_find(slowest, state->start[side]), used = 0;
    if (from < 0)
        return NAN;
    if (!state->pair->couples[METRIC_STEP_TIME] || state->pair->estimator == TURNS_MEDIAN)
        return quantile_median(state->durations[side] + from, (size_t)(slowest->count - from));
    double *times = xcalloc((size_t)state->rows->block_count, sizeof *times);
    for (int i = 0; i < state->rows->block_count; i++) {
        const struct block_rows *block = &state->rows->blocks[i];
        if (!measure_counts(state, block))
            continue;
        struct turns_block one = measure_block(state, side, block);
        times[used++] = turns_block_time(&one, state->pair->estimator);
    }
    double median = quantile_median(times, (size_t)used);
    free(times);
    return median;
}

static void measure_side_steps(struct measure_state *state, int side)
{
    const struct launch_rows *rows = &state->rows->sides[side];
    const struct rank_rows *slowest = state->slowest[side];
    struct measure_launch *launch = &state->pair->sides[side];
    bool steady = state->pair->steady || steady_reached(launch->steady);
    launch->steady_start = (int)state->start[side];
    double median = steady ? measure_step_time(state, side) : NAN;
    measure_put(launch, METRIC_STEP_TIME, median, MEASURE_NOT_STEADY);
    double rate = steady ? measure_throughput(state->rows, side, slowest, state->start[side]) : NAN;
    measure_put(launch, METRIC_THROUGHPUT, rate, steady ? MEASURE_NO_SAMPLES : MEASURE_NOT_STEADY);
    measure_latency(rows, state->start[side], launch);
}

static void measure_turns(struct measure_state *state)
{
    struct measure_pair *pair = state->pair;
    size_t count = (size_t)state->rows->block_count;
    struct turns_couple *couples = xcalloc(count, sizeof *couples);
    int used = measure_couples(state, couples);
    if (used && pair->steady) {
        struct turns_result turns = turns_ratio(couples, used);
        pair->first_cold = turns.first_cold;
        pair->estimator = turns.estimator;
        measure_put_turns(pair, METRIC_STEP_TIME, &turns);
        double *rates = xcalloc(count, sizeof *rates);
        int rate_count = 0;
        for (size_t i = 0; i < count; i++) {
            const struct block_rows *block = &state->rows->blocks[i];
            double rate = measure_counts(state, block) ? measure_couple_rate(state, block) : NAN;
            if (isfinite(rate))
                rates[rate_count++] = rate;
        }
        if (rate_count) {
            turns = turns_center(rates, rate_count);
            measure_put_turns(pair, METRIC_THROUGHPUT, &turns);
        }
        free(rates);
    }
    free(couples);
    for (size_t i = 0; i < count; i++)
        if (state->rows->blocks[i].steps[0] > pair->block_steps)
            pair->block_steps = (int)state->rows->blocks[i].steps[0];
}

static void measure_steps(const struct pair_rows *rows, struct measure_pair *pair)
{
    struct measure_state state = {.rows = rows, .pair = pair};
    for (int side = 0; side < PLAN_SIDES; side++) {
        state.slowest[side] = rank_rows_slowest(&rows->sides[side]);
        if (state.slowest[side])
            state.durations[side] = rank_rows_durations(state.slowest[side]);
    }
    if (state.slowest[0] && state.slowest[1]) {
        measure_find_start(&state);
        measure_turns(&state);
    }
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (!state.slowest[side])
            continue;
        if (!state
                 .slowest[!side]) // alone: its partner made no steps, which is a finding of its own
            measure_detect(&state, side);
        measure_side_steps(&state, side);
        free(state.durations[side]);
    }
}

void measure_pair(const struct pair_rows *rows, struct measure_pair *ret_pair)
{
    struct measure_pair pair = {.head = rows->head};
    bool sliced = rows->head.interleave == PLAN_INTERLEAVE_SLICES;
    for (int m = 0; m < METRIC_COUNT; m++)
        pair.log_ratio[m] = pair.within_sd[m] = NAN;
    for (int side = 0; side < PLAN_SIDES; side++) {
        struct measure_launch *launch = &pair.sides[side];
        const struct launch_rows *source = &rows->sides[side];
        *launch = (struct measure_launch){.id = source->id,
                                          .fate = source->fate,
                                          .steps = source->steps,
                                          .steady = STEADY_TOO_SHORT};
        enum measure_reason otherwise = source->rank_count == 0 ? MEASURE_NO_STEPS
                                        : sliced                ? MEASURE_SLICED
                                                                : MEASURE_NOT_STEADY;
        for (int m = 0; m < METRIC_COUNT; m++)
            measure_put(launch, (enum metric_id)m, NAN, otherwise);
        measure_whole(source, launch);
        if (sliced && source->rank_count)
            measure_put(launch, METRIC_FIRST_STEP_TIME, NAN, MEASURE_SLICED);
    }
    if (!sliced)
        measure_steps(rows, &pair);
    for (int m = 0; m < METRIC_COUNT; m++) {
        double a = pair.sides[0].value[m], b = pair.sides[1].value[m];
        pair.zero_baseline[m] = a == 0 && b > 0;
        if (!pair.couples[m] && a > 0 && b > 0)
            pair.log_ratio[m] = log(b / a);
    }
    *ret_pair = pair;
}

const char *measure_reason_text(enum measure_reason reason)
{
    static const char *const texts[MEASURE_REASON_COUNT] = {
        [MEASURE_NOT_ENDED] = "the launch did not end well",
        [MEASURE_NOT_RECORDED] = "not recorded on this machine",
        [MEASURE_NO_STEPS] = "the workload made no step call",
        [MEASURE_NO_SAMPLES] = "the steps say no number of samples",
        [MEASURE_NOT_STEADY] = "its steps never get steady",
        [MEASURE_SLICED] = "the side was frozen in the middle of steps (interleave: slices)",
        [MEASURE_CLOSED_LOOP] =
            "no scheduled arrivals: a closed loop has no latency from the schedule",
        [MEASURE_FEW_REQUESTS] = "too few requests (30 for p50, 662 for p99)",
        [MEASURE_NO_COMPILE] = "no phase named 'compile'",
        [MEASURE_NO_SINGLE] = "no workload with 1 rank of the same model in the plan",
    };
    return reason < MEASURE_REASON_COUNT ? texts[reason] : NULL;
}
