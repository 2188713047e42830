// SPDX-License-Identifier: Apache-2.0
// The stage that contributes: aligned groups, what each took on both sides, and the contributions
// made of them. Internal to this room and its unit tests; contributions.h is between its own files.
#ifndef UPGATE_DIFF_CONTRIBUTE_H
#define UPGATE_DIFF_CONTRIBUTE_H

#include "reports/analyse/diff/diff.h"
#include "reports/analyse/diff/estimate/estimate.h"

enum { DIFF_DEPTH_MAX = 64 };

// What is explained. But of the steps intervals tell nothing, and nothing is summed by place.
enum diff_subject {
    DIFF_SUBJECT_STEPS,
    DIFF_SUBJECT_FIRST, // first steps: one window of each launch
    DIFF_SUBJECT_CPU,   // CPU time: each launch is one window
    DIFF_SUBJECT_SLOW   // slow steps: a few windows of each launch
};

struct diff_parallel { // of the target's threads, means over launches
    double running;    // how many were on a CPU at a time
    double threads;    // did at least a twentieth of what the busiest one did
    int launches;      // 0: not known
};

struct diff_places;   // where.c
struct diff_launches; // launches.c: what diff_groups_add moves

// Two aligned trees in units: what contributions are made of. Nobody changes it.
struct diff_compared {
    struct arena *arena; // of what is reported
    enum diff_subject subject;
    const struct cost_tree *trees[2]; // finished
    const uint32_t *first[2];         // cost_tree_finish
    const struct alignment *alignment;
    const struct diff_untraced *untraced;
    const struct diff_units *units;
    struct diff_parallel parallel[2];
    bool has_gpu;
    struct diff_places *places; // of these trees
};

// One aligned group: what it is, and its place in the list of contributions.
struct diff_group {
    const struct align_group *group;
    enum diff_kind kind;
    uint32_t leaf;                           // that tells it best: the one that took most
    int side;                                // of leaf
    double a, b;                             // ns a step, scaled
    double busy_a, busy_b, count_a, count_b; // a step
    // of a and b: waiting for launches that it owns; negative: given to those
    double launch_a, launch_b;
    const char *name_a, *name_b; // NULL: not on that side
    uint32_t native_place;       // of DIFF_NATIVE_CODE: the place that both sides have, of tree b
};
// launches.c: an operation that only one side has owns the waiting for its launches, where the
// device had nothing else. Moves it from the group of the waiting to the operation's.
// In the arena, for these units and no others.
const struct diff_launches *diff_launches_make(const struct diff_compared *compared);
// Adds what moves to (or from) a group, per unit.
void diff_launches_add(
        const struct diff_launches *launches, const struct align_group *group, double *const ns[2]);
// Stands on one side only, which has more executions of its name altogether: not the same work
// under another shape.
bool diff_launches_more(const struct diff_launches *launches, size_t group);
double diff_launches_sum(
        const struct diff_launches *launches, const struct align_group *group, int side);
// Does the host launch it or wait in it? Each execution is recorded then, not sampled.
bool diff_is_counted(const struct cost_node *leaf);
struct diff_sums { // of a leaf in the windows that are compared; ns as they were traced
    double ns, busy, count;
};
struct diff_sums diff_leaf_sums(const struct diff_compared *compared, int side, uint32_t node);
// Fills groups[alignment->count].
void diff_groups_make(const struct diff_compared *compared, const struct diff_launches *launches,
        struct diff_group *groups);
// Members with the largest change first: they say what it is called, and where.
void diff_groups_sort(struct diff_group *groups, uint32_t *members, size_t count);
// Sums the windows of a group per unit into ns[2][units.count].
void diff_groups_add(const struct diff_compared *compared, const struct diff_launches *launches,
        const struct align_group *group, double *const ns[2]);
// of each node its group; COST_NONE. The caller frees
uint32_t *diff_groups_of(const struct diff_compared *compared, int side);
struct diff_key { // what groups are one by
    char *text;
    uint32_t group;
};
void diff_keys_sort(struct diff_key *keys, size_t count);
// contributions.c. What it makes lives in the arena, but for the groups: diff_contributed_clear.
struct diff_contributed {
    struct diff_group *groups; // of the alignment
    const struct diff_launches *launches;
    struct diff_contribution *contributions; // by rank, without evidence and suspects
    size_t count;
    double slower_ns, faster_ns; // what is named of them, by sign
    double residual_ns;          // of the step's difference, in no contribution
    struct diff_part parts[COST_CLASS_COUNT];
    double unaccounted[2];
};
void diff_contribute(const struct diff_compared *compared, struct diff_contributed *ret);
void diff_contributed_clear(struct diff_contributed *made);
// alike.c: what many groups show together (all kernels slower alike, threads lost) becomes
// their kind.
void diff_alike(const struct diff_compared *compared, struct diff_group *groups, size_t count);

// where.c: names of places, made when they are asked for, in the arena.
struct diff_places *diff_places_new(
        struct arena *arena, const struct cost_tree *a, const struct cost_tree *b);
// The place that holds at least four fifths of the weights: "backward > layers.*.attn"; ""
// for the whole step. ret_last: its innermost link where it has several, else NULL; NULL: not asked
// for.
const char *diff_where(struct diff_places *places, const struct diff_group *groups,
        const uint32_t *members, size_t count, const char **ret_last);
// Path of a place, indexes as *; at most six links.
const char *diff_place(struct diff_places *places, int side, uint32_t node);
// Its links, outermost first; how many.
size_t diff_place_names(
        struct diff_places *places, int side, uint32_t node, const char *names[DIFF_DEPTH_MAX]);
size_t diff_places_count(const struct cost_tree *const trees[2], const struct diff_group *groups,
        const uint32_t *members, size_t count);

static inline const struct cost_node *diff_leaf(
        const struct cost_tree *const trees[2], const struct diff_group *group)
{
    return &trees[group->side]->nodes[group->leaf];
}

#endif
