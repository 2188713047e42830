// SPDX-License-Identifier: Apache-2.0
// What other programs, or the machine's owner, took from the target's threads, taken out of a
// finished tree before anything is compared. Pure.
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/names/wordlists.h"

static bool foreign_is(const struct cost_node *leaf)
{
    static const char *const causes[] = {
            "cpu_contention", "rt_hog", "softirq_storm", "steal", NULL};
    return leaf->kind == COST_STALL && words_equal(leaf->name, causes);
}

// Both sides lose it alike when they take turns, the untraced medians pass over such steps, and a
// busy machine would drown every other difference in it: it is taken out of the windows.
double diff_take_foreign(struct cost_tree *tree)
{
    double taken = 0, wall = 0;
    for (size_t w = 0; w < tree->window_count; w++)
        wall += (double)tree->windows[w].wall_ns;
    for (size_t r = 0; r < tree->row_count; r++) {
        struct cost_row *row = &tree->rows[r];
        if (!foreign_is(&tree->nodes[row->node]))
            continue;
        taken += (double)row->ns;
        tree->windows[row->window].wall_ns -= row->ns;
        row->ns = row->busy_ns = row->count = 0;
    }
    return wall > 0 ? taken / wall : 0;
}
