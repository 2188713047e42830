// SPDX-License-Identifier: Apache-2.0
// Steady state of a series of step durations. Reads an array, writes a verdict and a start. Works
// on logs, so eps is a fraction. The constants marked [guess] in the design are kept as it gives
// them.
#include "reports/analyse/steady.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/trend.h"

enum {
    STEADY_GROUPS_MAX = 1000, // segmenting is quadratic; longer series get larger groups
    STEADY_SEGMENT_MIN = 2,   // groups: one odd group is an outlier, not a level
    STEADY_SHARE_MIN = 4 // the steady part is at least a quarter of the series: what takes longer
                         // to warm up than to measure has not been measured
};
static const double steady_trend_alpha =
        0.001;                                 // two-sided; strict, as each of 56 launches is asked
static const double steady_noise_min = 2.5e-4; // below it timer resolution makes segments

// Cumulative sums give the squared error of any segment in constant time.
struct steady_sums {
    double *sum, *square;
};

static double steady_cost(const struct steady_sums *sums, int from, int to)
{
    double n = to - from, sum = sums->sum[to] - sums->sum[from];
    return sums->square[to] - sums->square[from] - sum * sum / n;
}

// The segmentation of least cost (what PELT finds too; at most STEADY_GROUPS_MAX groups need no
// pruning): borders[0] = 0 < … < borders[result] = count. Least squares, so a segment is a level.
static int steady_segment(const double *values, int count, double penalty, int *borders)
{
    struct steady_sums sums = {
            xcalloc((size_t)count + 1, sizeof(double)), xcalloc((size_t)count + 1, sizeof(double))};
    for (int i = 0; i < count; i++) {
        double centred = values[i] - values[count - 1]; // keeps the squares small
        sums.sum[i + 1] = sums.sum[i] + centred;
        sums.square[i + 1] = sums.square[i] + centred * centred;
    }
    double *best = xcalloc((size_t)count + 1, sizeof *best);
    int *from = xcalloc((size_t)count + 1, sizeof *from);
    best[0] = -penalty;
    for (int end = 1; end <= count; end++) {
        best[end] = INFINITY; // as is every end that no whole segments reach
        for (int begin = 0; begin <= end - STEADY_SEGMENT_MIN; begin++) {
            double total = best[begin] + steady_cost(&sums, begin, end) + penalty;
            if (total < best[end]) {
                best[end] = total;
                from[end] = begin;
            }
        }
    }
    int segments = 0;
    for (int end = count; end > 0; end = from[end])
        segments++;
    borders[segments] = count;
    for (int end = count, i = segments; end > 0; end = from[end])
        borders[--i] = from[end];
    free(sums.sum);
    free(sums.square);
    free(best);
    free(from);
    return segments;
}

// The first segment from which on all segment means are within eps of the mean of that whole part.
static int steady_first(const double *values, const int *borders, int segments, double eps)
{
    for (int first = 0; first < segments; first++) {
        int begin = borders[first];
        double tail = quantile_mean(values + begin, (size_t)(borders[segments] - begin));
        bool agree = true;
        for (int i = first; i < segments; i++) {
            double mean = quantile_mean(values + borders[i], (size_t)(borders[i + 1] - borders[i]));
            agree = agree && fabs(mean - tail) <= eps;
        }
        if (agree)
            return first;
    }
    return segments - 1;
}

static double steady_noise(const double *values, int count)
{
    double *differences = xcalloc((size_t)count, sizeof *differences);
    for (int i = 1; i < count; i++)
        differences[i - 1] = values[i] - values[i - 1];
    double noise = quantile_mad_sd(differences, (size_t)count - 1) / M_SQRT2;
    free(differences);
    return noise;
}

// Noise of the median of a group. A few groups tell it badly, their steps better; steps that move
// together make it larger than the steps say: the larger of the two.
static double steady_group_noise(
        const double *durations, int count, const double *levels, int groups, int group)
{
    double *logs = xcalloc((size_t)count, sizeof *logs);
    for (int i = 0; i < count; i++)
        logs[i] = log(durations[i]);
    double from_steps = steady_noise(logs, count) * sqrt(M_PI_2 / group);
    free(logs);
    return fmax(steady_noise_min, fmax(from_steps, steady_noise(levels, groups)));
}

static bool steady_trend(const double *values, int count, double eps, double *ret_drift)
{
    struct interval slope = trend_slope(values, count, steady_trend_alpha);
    *ret_drift = slope.estimate * count;
    return slope.has_bounds && (slope.lower > 0 || slope.upper < 0) && fabs(*ret_drift) >= eps;
}

// Of the steps themselves: a few groups have no power against a drift that they follow only
// roughly.
static bool steady_steps_trend(const double *durations, int count, double eps, double *ret_drift)
{
    double *logs = xcalloc((size_t)count, sizeof *logs);
    for (int i = 0; i < count; i++)
        logs[i] = log(durations[i]);
    bool trend = steady_trend(logs, count, eps, ret_drift);
    free(logs);
    return trend;
}

// Series of log medians of groups; the last, short group is left out.
static double *steady_groups(const double *durations, int count, int group, int *ret_count)
{
    *ret_count = count / group;
    double *levels = xcalloc((size_t)*ret_count, sizeof *levels);
    for (int i = 0; i < *ret_count; i++)
        levels[i] = log(quantile_median(durations + (size_t)i * (size_t)group, (size_t)group));
    return levels;
}

// Bursts of a neighbour and slow noise make levels that come and go. They go up and down, and the
// way from begin to end is small against their range; a warm-up, a drift or a late change is not
// like that. *ret_first: the first segment to keep; the first of all is left out when it is the
// slowest.
static bool steady_fluctuates(
        const double *levels, const int *borders, int segments, double eps, int *ret_first)
{
    double *means = xcalloc((size_t)segments, sizeof *means);
    double lowest = INFINITY, highest_later = -INFINITY;
    for (int i = 0; i < segments; i++) {
        means[i] = quantile_mean(levels + borders[i], (size_t)(borders[i + 1] - borders[i]));
        lowest = fmin(lowest, means[i]);
        highest_later = i ? fmax(highest_later, means[i]) : highest_later;
    }
    int first = means[0] > highest_later && segments > 1, begin = borders[first];
    bool up = false, down = false;
    for (int i = first + 1; i < segments; i++) {
        up = up || means[i] > means[i - 1] + eps;
        down = down || means[i] < means[i - 1] - eps;
    }
    double range = fmax(highest_later, first ? lowest : means[0]) - lowest;
    struct interval slope =
            trend_slope(levels + begin, borders[segments] - begin, steady_trend_alpha);
    double way = fabs(slope.estimate) * (borders[segments] - begin);
    free(means);
    *ret_first = first;
    return up && down && way <= 0.5 * range;
}

struct steady_result steady_detect(
        const double *durations, int count, const struct steady_opts *opts)
{
    int warm_up = opts && opts->warm_up_min ? opts->warm_up_min : 5;
    int group = opts && opts->group ? opts->group : 5;
    int keep_min = opts && opts->keep_min ? opts->keep_min : 30;
    double eps = opts && opts->eps > 0 ? opts->eps : 0.005;
    struct steady_result result = {.state = STEADY_TOO_SHORT, .drift = NAN};
    result.start = warm_up < count ? warm_up : count;
    int rest = count - result.start;
    if (rest < keep_min)
        return result;
    if (rest / group > STEADY_GROUPS_MAX)
        group = (rest + STEADY_GROUPS_MAX - 1) / STEADY_GROUPS_MAX;
    int groups;
    double *levels = steady_groups(durations + result.start, rest, group, &groups);
    double noise = steady_group_noise(durations + result.start, rest, levels, groups, group);
    int *borders = xcalloc((size_t)groups + 1, sizeof *borders);
    // The penalty of the design: 3 sigma^2 ln N, N steps.
    result.segments = steady_segment(levels, groups, 3 * noise * noise * log(rest), borders);
    int begin = borders[steady_first(levels, borders, result.segments, eps)];
    int kept = rest - begin * group, first = 0;
    if (kept < keep_min || kept < rest / STEADY_SHARE_MIN)
        result.state = STEADY_LATE;
    else if (steady_steps_trend(durations + result.start + begin * group, kept, eps, &result.drift))
        result.state = STEADY_DRIFTS;
    else
        result.state = STEADY_OK;
    if (result.state != STEADY_OK &&
            steady_fluctuates(levels, borders, result.segments, eps, &first) &&
            rest - borders[first] * group >= keep_min) {
        result.state = STEADY_FLUCTUATES;
        begin = borders[first];
    }
    if (steady_reached(result.state))
        result.start += begin * group;
    free(borders);
    free(levels);
    return result;
}

bool steady_reached(enum steady_state state)
{
    return state == STEADY_OK || state == STEADY_FLUCTUATES;
}

const char *steady_state_text(enum steady_state state)
{
    static const char *const texts[STEADY_STATE_COUNT] = {
            [STEADY_OK] = "steady",
            [STEADY_TOO_SHORT] = "has too few steps to tell (35 are needed)",
            [STEADY_LATE] = "changes its level to the end",
            [STEADY_DRIFTS] = "drifts to the end",
            [STEADY_FLUCTUATES] = "fluctuates about one level",
    };
    return texts[state];
}
