// SPDX-License-Identifier: Apache-2.0
// What is compared with what. The windows of both sides become units: couples of blocks that took
// turns, or runs of windows where launches took none. estimate.c estimates differences from
// them. Pure.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/estimate/estimate.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/quantile.h"

enum {
    UNITS_BATCHES = 20 // of windows that stand in no couple: neighbours are alike, 20 means are not
};

struct units_key { // of a window
    uint32_t pair;
    int32_t couple;
    int side; // -1: of a couple
    int own;  // side of the window
    uint32_t window;
};

// Windows without a couple: consecutive ones of a rank are put into at most 20 batches.
static size_t units_keys_side(const struct cost_tree *tree, int side, struct units_key *keys)
{
    size_t count = 0;
    for (size_t begin = 0; begin < tree->window_count;) {
        const struct cost_window *window = &tree->windows[begin];
        size_t end = begin;
        while (end < tree->window_count && tree->windows[end].pair == window->pair &&
                tree->windows[end].rank == window->rank)
            end++;
        size_t of = end - begin, batches = of < UNITS_BATCHES ? of : UNITS_BATCHES;
        for (size_t i = begin; i < end; i++) {
            int32_t couple = tree->windows[i].couple;
            keys[count++] = (struct units_key){.pair = window->pair,
                    .couple = couple >= 0 ? couple : (int32_t)((i - begin) * batches / of),
                    .side = couple >= 0 ? -1 : side,
                    .own = side,
                    .window = (uint32_t)i};
        }
        begin = end;
    }
    return count;
}

static double units_window_steps(
        const struct diff_untraced *untraced, const struct cost_window *window)
{
    // Without steps a launch is one: its windows are parts of it, by their length.
    if (untraced->launches)
        return (double)window->wall_ns;
    return window->steps > 0 ? window->steps : 1;
}

static void units_group(const struct cost_tree *const trees[2],
        const struct diff_untraced *untraced, const struct units_key *keys, size_t count,
        struct diff_units *units)
{
    for (size_t i = 0; i < count; i++) {
        const struct units_key *key = &keys[i], *last = i ? &keys[i - 1] : NULL;
        if (!last || last->pair != key->pair || last->side != key->side ||
                last->couple != key->couple)
            units->units[units->count++] =
                    (struct diff_unit){.pair = key->pair, .couple = key->couple, .side = key->side};
        struct diff_unit *unit = &units->units[units->count - 1];
        const struct cost_window *window = &trees[key->own]->windows[key->window];
        double steps = units_window_steps(untraced, window);
        units->of_window[key->own][key->window] = (uint32_t)(units->count - 1);
        units->steps[key->own][key->window] = steps;
        unit->steps[key->own] += steps;
        unit->wall[key->own] += (double)window->wall_ns;
    }
}

// A pair of which only one side was recorded says nothing.
static void units_drop_lone_pairs(struct diff_units *units, bool *drop)
{
    for (size_t i = 0; i < units->count;) {
        size_t end = i;
        double steps[2] = {0};
        for (; end < units->count && units->units[end].pair == units->units[i].pair; end++)
            for (int side = 0; side < 2; side++)
                steps[side] += units->units[end].steps[side];
        bool lone = steps[0] <= 0 || steps[1] <= 0;
        for (; i < end; i++)
            drop[i] = lone;
    }
}

// Where the middle of the steps is explained, windows far off it are not part of it.
static double units_limit(const struct diff_units *units, const bool *drop, int side)
{
    double *rates = xcalloc(units->count + 1, sizeof *rates);
    size_t count = 0;
    for (size_t i = 0; i < units->count; i++)
        if (!drop[i] && units->units[i].steps[side] > 0)
            rates[count++] = units->units[i].wall[side] / units->units[i].steps[side];
    double limit = count >= 10 ? units_far * quantile_median(rates, count) +
                    units_far_errors * quantile_mad_sd(rates, count)
                               : DBL_MAX;
    free(rates);
    return limit;
}

static bool units_is_far(const struct diff_unit *unit, const double limit[2])
{
    bool far = false;
    for (int side = 0; side < 2; side++)
        far = far || (unit->steps[side] > 0 && unit->wall[side] > limit[side] * unit->steps[side]);
    return far;
}

static void units_drop_far(
        struct diff_units *units, const struct diff_untraced *untraced, bool *drop)
{
    if (untraced->mean || untraced->launches)
        return;
    const double limit[2] = {units_limit(units, drop, 0), units_limit(units, drop, 1)};
    size_t far = 0, count = 0;
    for (size_t i = 0; i < units->count; i++) {
        count += !drop[i];
        far += !drop[i] && units_is_far(&units->units[i], limit);
    }
    if ((double)far > units_left_out_max * (double)count)
        return; // they are no exception
    for (size_t i = 0; i < units->count; i++)
        drop[i] = drop[i] || units_is_far(&units->units[i], limit);
    units->left_out = far;
}

static void units_sum(
        struct diff_units *units, const struct cost_tree *const trees[2], const bool *drop)
{
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = trees[side];
        for (size_t w = 0; w < tree->window_count; w++) {
            uint32_t *unit = &units->of_window[side][w];
            if (*unit == UINT32_MAX || drop[*unit]) {
                *unit = UINT32_MAX;
                continue;
            }
            units->total_steps[side] += units->steps[side][w];
            units->total_wall[side] += (double)tree->windows[w].wall_ns;
            units->used[side]++;
        }
    }
    uint32_t last = UINT32_MAX;
    for (size_t i = 0; i < units->count; i++) {
        if (drop[i])
            units->units[i].steps[0] = units->units[i].steps[1] = 0;
        else if (units->units[i].pair != last) {
            last = units->units[i].pair;
            units->pairs++;
        }
    }
}

bool diff_units_make(const struct cost_tree *const trees[2], const struct diff_untraced *untraced,
        struct diff_units *units)
{
    *units = (struct diff_units){0};
    size_t total = trees[0]->window_count + trees[1]->window_count;
    struct units_key *keys = xcalloc(total + 1, sizeof *keys);
    units->units = xcalloc(total + 1, sizeof *units->units);
    for (int side = 0; side < 2; side++) {
        size_t count = trees[side]->window_count;
        units->of_window[side] = xcalloc(count + 1, sizeof **units->of_window);
        memset(units->of_window[side], 0xff, (count + 1) * sizeof **units->of_window);
        units->steps[side] = xcalloc(count + 1, sizeof **units->steps);
    }
    size_t count = units_keys_side(trees[0], 0, keys);
    count += units_keys_side(trees[1], 1, keys + count);
    sort_in_place(keys, count, x, y,
            x->pair != y->pair               ? x->pair < y->pair
                    : x->side != y->side     ? x->side < y->side
                    : x->couple != y->couple ? x->couple < y->couple
                    : x->own != y->own       ? x->own < y->own
                                             : x->window < y->window);
    units_group(trees, untraced, keys, count, units);
    bool *drop = xcalloc(units->count + 1, sizeof *drop);
    units_drop_lone_pairs(units, drop);
    units_drop_far(units, untraced, drop);
    units_sum(units, trees, drop);
    free(drop);
    free(keys);
    for (int side = 0; side < 2; side++) {
        if (units->total_steps[side] <= 0 || units->total_wall[side] <= 0)
            return false;
        units->scale[side] =
                untraced->step[side] * units->total_steps[side] / units->total_wall[side];
    }
    diff_units_step(units, untraced);
    return true;
}

void diff_units_clear(struct diff_units *units)
{
    free(units->units);
    for (int side = 0; side < 2; side++) {
        free(units->of_window[side]);
        free(units->steps[side]);
    }
    *units = (struct diff_units){0};
}
