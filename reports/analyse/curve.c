// SPDX-License-Identifier: Apache-2.0
// Paired shifts of loss curves, window by window. Reads arrays.
#include "reports/analyse/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"

double curve_shift(const struct curve_pair *pair, int from, int to)
{
    size_t count = (size_t)(to - from);
    double a = quantile_mean(pair->a + from, count), b = quantile_mean(pair->b + from, count);
    double scale = fmax(fabs(a), 0.1 * fabs(pair->a[0]));
    double shift = a == b ? 0 : (b - a) / scale;
    return isfinite(shift) ? shift : copysign(1, b - a); // a loss of 0, or near the largest double
}

static int curve_windows(int steps, enum curve_part part, struct curve_window *windows)
{
    int count = 0;
    if (part == CURVE_FINAL) {
        windows[0] =
                (struct curve_window){.from = steps - (steps >= 10 ? steps / 10 : 1), .to = steps};
        return steps > 0;
    }
    windows[count++] = (struct curve_window){.from = 0, .to = steps};
    for (int i = 0; i < 4 && steps >= 8; i++)
        windows[count++] = (struct curve_window){.from = i * steps / 4, .to = (i + 1) * steps / 4};
    return steps > 0 ? count : 0;
}

static void curve_measure(
        const struct curve_input *input, double alpha, struct curve_window *window)
{
    double *shifts =
            xcalloc((size_t)(input->pair_count > 0 ? input->pair_count : 1), sizeof *shifts);
    double squares = 0;
    int repeats = 0;
    window->furthest_pair = -1;
    for (int i = 0; i < input->pair_count; i++) {
        const struct curve_pair *pair = &input->pairs[i];
        if (pair->steps < window->to)
            continue;
        double shift = curve_shift(pair, window->from, window->to);
        shifts[window->pairs++] = shift;
        if (window->furthest_pair < 0 || fabs(shift) > fabs(window->furthest)) {
            window->next = window->furthest;
            window->furthest = shift;
            window->furthest_pair = i;
        } else if (fabs(shift) > fabs(window->next)) {
            window->next = shift;
        }
    }
    for (int i = 0; i < input->repeat_count; i++) {
        const struct curve_pair *pair = &input->repeats[i];
        if (pair->steps < window->to)
            continue;
        squares += pow(curve_shift(pair, window->from, window->to), 2);
        repeats++;
    }
    window->noise = repeats ? sqrt(squares / repeats) : 0;
    window->margin = fmax(input->margin, window->noise);
    window->mean = quantile_mean(shifts, (size_t)window->pairs);
    window->interval = signed_rank_interval(shifts, window->pairs, alpha);
    free(shifts);
}

static bool curve_equal(const struct curve_input *input)
{
    for (int i = 0; i < input->pair_count; i++)
        if (memcmp(input->pairs[i].a, input->pairs[i].b,
                    (size_t)input->pairs[i].steps * sizeof(double)) != 0)
            return false;
    return input->pair_count > 0;
}

static double curve_reach(const struct curve_window *window)
{
    const struct interval *interval = &window->interval;
    double reach =
            interval->has_bounds ? fmax(fabs(interval->lower), fabs(interval->upper)) : INFINITY;
    return fmax(reach, fabs(window->mean)) / window->margin;
}

static bool curve_beyond(const struct curve_window *window)
{
    const struct interval *interval = &window->interval;
    return interval->has_bounds &&
            (interval->lower > window->margin || interval->upper < -window->margin);
}

// Further than the margin by the factor, and than what else there is to hold it against: what the
// baseline does to itself, or all other pairs.
static bool curve_astray(const struct curve_input *input, const struct curve_window *window)
{
    double furthest = fabs(window->furthest);
    return furthest > input->factor * window->margin &&
            (window->noise > 0 || furthest > input->factor * fabs(window->next));
}

// Launches that went on for longer than most: what lies behind the common steps.
static struct curve_window curve_tail(const struct curve_input *input)
{
    struct curve_window tail = {.from = input->steps, .margin = input->margin, .furthest_pair = -1};
    for (int i = 0; i < input->pair_count && input->steps > 0; i++) {
        const struct curve_pair *pair = &input->pairs[i];
        if (pair->steps <= input->steps)
            continue;
        double shift = curve_shift(pair, input->steps, pair->steps);
        tail.pairs++;
        if (tail.furthest_pair >= 0 && fabs(shift) <= fabs(tail.furthest)) {
            tail.next = fabs(shift) > fabs(tail.next) ? shift : tail.next;
            continue;
        }
        tail.next = tail.furthest;
        tail.furthest = shift;
        tail.furthest_pair = i;
        tail.to = pair->steps;
    }
    return tail;
}

struct curve_result curve_compare(const struct curve_input *input, enum curve_part part)
{
    struct curve_window windows[CURVE_WINDOWS_MAX + 1];
    struct curve_result result = {.state = CURVE_OPEN};
    int count = curve_windows(input->steps, part, windows);
    bool within = count > 0;
    for (int i = 0; i < count; i++) {
        struct curve_window strict = windows[i];
        curve_measure(input, input->alpha, &windows[i]);
        // A pass needs every window, so none is corrected for the others. A fail needs one: half of
        // alpha is for the whole curve, half is shared among its quarters.
        curve_measure(input, count == 1 ? input->alpha : input->alpha / (i ? 8 : 2), &strict);
        const struct curve_window *shown = &result.window;
        if (i == 0 || curve_reach(&windows[i]) > curve_reach(shown))
            result.window = windows[i];
        within = within && curve_reach(&windows[i]) < 1;
        if (curve_beyond(&strict))
            return (struct curve_result){CURVE_SHIFTED, strict};
    }
    if (curve_equal(input)) {
        result.state = CURVE_EQUAL;
        return result;
    }
    windows[count++] = curve_tail(input);
    for (int i = 0; i < count; i++) {
        if (curve_astray(input, &windows[i]))
            return (struct curve_result){CURVE_ASTRAY, windows[i]};
        within = within && fabs(windows[i].furthest) <= input->factor * windows[i].margin;
    }
    result.state = within ? CURVE_WITHIN : CURVE_OPEN;
    return result;
}
