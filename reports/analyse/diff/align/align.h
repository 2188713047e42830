// SPDX-License-Identifier: Apache-2.0
// Which leaves of one side's cost tree are which of the other's, though versions rename, fuse,
// split and reorder them. Top down: places by name and content, then the leaves of matched places:
// kernels in their order by edit distance, ties by shape, names last; functions by name and time.
// What is left over below a pair of places becomes one group at their lowest common place. Pure.
#ifndef UPGATE_DIFF_ALIGN_H
#define UPGATE_DIFF_ALIGN_H

#include "reports/analyse/diff/path/cost_tree.h"

enum align_match {    // best first
    ALIGN_EXACT,      // same name
    ALIGN_NORMALISED, // same normalised name
    ALIGN_RESOURCES,  // same place in the order, same shape, another name
    ALIGN_SIMILAR,    // similar names, or the only ones left at their place
    ALIGN_GROUP,      // several against several: fused, split, replaced
    ALIGN_ONLY_A,
    ALIGN_ONLY_B,
    ALIGN_MATCH_COUNT
};

struct align_group {
    const uint32_t *a, *b; // leaves
    size_t count_a, count_b;
    uint32_t place_a, place_b; // lowest common place; COST_NONE where the side has none
    enum align_match match;
};

struct alignment {
    struct align_group *groups;
    size_t count;
    double coverage; // share of both sides' time on the path in groups that have leaves of both
    double coverage_match[ALIGN_MATCH_COUNT]; // the same by match
    uint32_t *place_b;                        // of each place of tree a: its partner, COST_NONE
    void *memory;
};

struct align_opts {
    // Find pairs without the names of kernels and functions, as if one side's were scrambled.
    // `match` still says what the names of those that were paired have in common.
    bool ignore_names;
};

struct alignment *align_trees(
        const struct cost_tree *a, const struct cost_tree *b, const struct align_opts *opts);
void alignment_free(struct alignment *alignment); // NULL ok

#endif
