// SPDX-License-Identifier: Apache-2.0
// Which stretch of both sides a timeline shows: of all traced pairs the couple of blocks whose two
// step times are nearest to each side's median of the traced steps; where launches took no turns,
// of each launch the window nearest to it. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/quantile.h"

struct typical {
    double median[2]; // ns a step, traced
    double far;       // of what was taken: sum of both sides' distances from it, by logarithms
};

static double typical_far(double rate, double median)
{
    return rate > 0 && median > 0 ? fabs(log(rate / median)) : INFINITY;
}

static bool typical_couples(const struct diff_compared *compared, const struct diff_pair *pairs,
        struct diff_workload *workload, struct typical *typical)
{
    const struct diff_units *units = compared->units;
    double *rates = xcalloc(units->count + 1, sizeof *rates);
    for (int side = 0; side < 2; side++) {
        size_t count = 0;
        for (size_t i = 0; i < units->count; i++)
            if (units->units[i].side < 0 && units->units[i].steps[side] > 0)
                rates[count++] = units->units[i].wall[side] / units->units[i].steps[side];
        typical->median[side] = count ? quantile_median(rates, count) : NAN;
    }
    free(rates);
    for (size_t i = 0; i < units->count; i++) {
        const struct diff_unit *unit = &units->units[i];
        double rate[2], far = 0;
        if (unit->side >= 0 || unit->steps[0] <= 0 || unit->steps[1] <= 0)
            continue;
        for (int side = 0; side < 2; side++) {
            rate[side] = unit->wall[side] / unit->steps[side];
            far += typical_far(rate[side], typical->median[side]);
        }
        if (far >= typical->far)
            continue;
        typical->far = far;
        workload->couple = unit->couple;
        for (int side = 0; side < 2; side++) {
            workload->launches[side] = pairs[unit->pair].launch[side];
            workload->typical_ns[side] = rate[side];
        }
    }
    return isfinite(typical->far);
}

static double typical_rate(const struct diff_compared *compared, int side, size_t window)
{
    const struct cost_window *of = &compared->trees[side]->windows[window];
    bool used = compared->units->of_window[side][window] != UINT32_MAX && of->steps > 0 &&
            of->rank == 0;
    return used ? (double)of->wall_ns / of->steps : 0;
}

struct typical_window {
    size_t index; // among those of its launch, as launch_trace has them
    double rate, far;
};

static struct typical_window typical_nearest(
        const struct diff_compared *compared, int side, uint32_t pair, double median)
{
    const struct cost_tree *tree = compared->trees[side];
    struct typical_window best = {.far = INFINITY};
    size_t index = 0;
    for (size_t w = 0; w < tree->window_count; w++) {
        if (tree->windows[w].pair != pair)
            continue;
        double rate = typical_rate(compared, side, w), far = typical_far(rate, median);
        if (far < best.far)
            best = (struct typical_window){index, rate, far};
        index++;
    }
    return best;
}

static void typical_windows(const struct diff_compared *compared, const struct diff_pair *pairs,
        size_t pair_count, struct diff_workload *workload, struct typical *typical)
{
    for (int side = 0; side < 2; side++) {
        size_t count = 0, total = compared->trees[side]->window_count;
        double *rates = xcalloc(total + 1, sizeof *rates);
        for (size_t w = 0; w < total; w++) {
            double rate = typical_rate(compared, side, w);
            if (rate > 0)
                rates[count++] = rate;
        }
        typical->median[side] = count ? quantile_median(rates, count) : NAN;
        free(rates);
    }
    for (uint32_t pair = 0; pair < pair_count; pair++) {
        struct typical_window nearest[2];
        for (int side = 0; side < 2; side++)
            nearest[side] = typical_nearest(compared, side, pair, typical->median[side]);
        double far = nearest[0].far + nearest[1].far;
        if (!(far < typical->far))
            continue;
        typical->far = far;
        for (int side = 0; side < 2; side++) {
            workload->launches[side] = pairs[pair].launch[side];
            workload->typical_window[side] = nearest[side].index;
            workload->typical_ns[side] = nearest[side].rate;
        }
    }
}

void diff_typical(const struct diff_compared *compared, const struct diff_pair *pairs,
        size_t pair_count, struct diff_workload *ret)
{
    struct typical typical = {.far = INFINITY};
    if (!typical_couples(compared, pairs, ret, &typical))
        typical_windows(compared, pairs, pair_count, ret, &typical);
    for (int side = 0; side < 2 && isfinite(typical.far); side++)
        ret->typical_median_ns[side] = typical.median[side];
}
