// SPDX-License-Identifier: Apache-2.0
// What is executed more often on one side than on the other. Executions on the device and calls
// that wait for it are counted, not sampled: a kernel or a synchronisation that every window of
// every launch of one side has more of than any window of the other is there because of the side,
// whatever the times of a shared machine say of how much it takes (three launches that differ by 10
// % leave no interval without 0). The sign of what those executions take is known then, and of no
// more: of a product that runs 101 times and not 100, the hundredth part. By how much is the
// interval's to say. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/thresholds.h"

// counts[unit] += executions of a group on one side. False: it holds what is not counted.
static bool executions_add(const struct diff_compared *compared, const struct align_group *group,
        int side, double *counts)
{
    const struct cost_tree *tree = compared->trees[side];
    const uint32_t *leaves = side ? group->b : group->a;
    size_t count = side ? group->count_b : group->count_a;
    for (size_t i = 0; i < count; i++) {
        if (!diff_is_counted(&tree->nodes[leaves[i]]))
            return false;
        for (uint32_t r = compared->first[side][leaves[i]];
                r < compared->first[side][leaves[i] + 1]; r++) {
            uint32_t unit = compared->units->of_window[side][tree->rows[r].window];
            if (unit != UINT32_MAX)
                counts[unit] += (double)tree->rows[r].count;
        }
    }
    return true;
}

// Least and most executions a step over the units. Returns how many units there are.
static size_t executions_range(
        const struct diff_units *units, const double *counts, int side, double range[2])
{
    size_t count = 0;
    range[0] = INFINITY;
    range[1] = 0;
    for (size_t i = 0; i < units->count; i++) {
        if (!(units->units[i].steps[side] > 0))
            continue;
        double rate = counts[i] / units->units[i].steps[side];
        range[0] = fmin(range[0], rate);
        range[1] = fmax(range[1], rate);
        count++;
    }
    return count;
}

double contributions_executes_more(const struct contributions *all, const uint32_t *groups,
        size_t count, const struct diff_estimate *estimate)
{
    const struct diff_compared *compared = all->compared;
    const struct diff_units *units = compared->units;
    double range[2][2];
    bool known = units->pairs >= EXECUTIONS_PAIRS_MIN && estimate->nearest != 0;
    double *counts = known ? xcalloc(units->count + 1, sizeof *counts) : NULL;
    for (int side = 0; side < 2 && known; side++) {
        memset(counts, 0, units->count * sizeof *counts);
        for (size_t k = 0; k < count && known; k++)
            known = executions_add(compared, all->groups[groups[k]].group, side, counts);
        known = known && executions_range(units, counts, side, range[side]) >= EXECUTIONS_UNITS_MIN;
    }
    free(counts);
    if (!known)
        return 0;
    int more = estimate->nearest > 0;
    double extra = range[more][0] - range[!more][1];
    double ns = more ? estimate->b : estimate->a;
    return extra > 0 ? fmin(fabs(estimate->nearest), ns * extra / range[more][1]) : 0;
}
