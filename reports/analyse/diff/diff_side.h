// SPDX-License-Identifier: Apache-2.0
// What the recordings of a workload hold, loaded once: both sides' cost trees. Between
// diff_side.c and diff.c. One owner thread.
#ifndef UPGATE_DIFF_SIDE_H
#define UPGATE_DIFF_SIDE_H

#include "reports/analyse/diff/explain/explain.h"

struct diff_sides {
    struct cost_tree *trees[2];                      // finished; NULL: nothing was traced
    struct cost_tree *first_trees[2], *cpu_trees[2]; // NULL: not asked for
    const uint32_t *first[2];                        // of trees: cost_tree_finish
    struct diff_parallel parallel[2];
    double foreign[2]; // share of the traced time that other programs took, and that is left out
    bool has_gpu;
    struct diff_pair *pairs;
    size_t pair_count;
    size_t one_sided;    // of them that are left out: one launch has no samples
    int64_t launches[2]; // of the first pair that is in the trees; 0: none
    struct diff_stragglers stragglers;
};

// The trees are the caller's, also where it fails; all else is in the arena.
int diff_load_sides(const struct diff_input *input, const struct diff_untraced *untraced,
        struct diff_notes *notes, struct diff_sides *ret, struct error *err);

#endif
