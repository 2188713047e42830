// SPDX-License-Identifier: Apache-2.0
// The stage that explains: what a contribution rests on, what could have done it; and what no
// contribution tells: ranks that come last, the first step, CPU time, slow steps, collectives.
// Internal to this room and its unit tests.
#ifndef UPGATE_DIFF_EXPLAIN_H
#define UPGATE_DIFF_EXPLAIN_H

#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/diff/diff_input.h"
#include "reports/analyse/trace/launch/launch_trace.h"

enum { DIFF_EVIDENCE_MAX = 12 }; // facts of a contribution

// foreign.c: takes what other programs took out of rows and windows; its share of them.
double diff_take_foreign(struct cost_tree *tree);
// collectives.c: collectives and NCCL's versions, of ret->launches.
void diff_collectives(const struct diff_input *input, const struct diff_compared *compared,
        struct diff_workload *ret);
// stragglers_judge.c: who came last in a launch; and when all are in, who is told from noise.
struct diff_stragglers { // of both sides; in the arena
    struct diff_straggler *all;
    size_t count;
};
// Names go into the tree, which is being loaded.
void diff_stragglers_add(struct arena *arena, const struct launch_trace *trace,
        struct cost_tree *tree, struct diff_stragglers *to);
void diff_stragglers_judge(struct diff_workload *workload); // workload->stragglers
struct diff_straggler *diff_straggler_of(
        struct diff_straggler *all, size_t count, int side, int32_t rank);
// late.c: whether the difference is one rank that comes late: workload->late, and evidence.
void diff_late(struct arena *arena, struct diff_workload *workload);
// typical.c: what a timeline shows, of the traced pairs: ret->launches and so on.
void diff_typical(const struct diff_compared *compared, const struct diff_pair *pairs,
        size_t pair_count, struct diff_workload *ret);
// once.c: the first step. Wanted where its untraced difference is told from 0; then launches
// are added to a tree a side.
bool diff_first_wanted(const struct diff_untraced *untraced);
void diff_first_add(const struct launch_trace *trace, struct cost_tree *tree);
// ret->trees are given; without them there is nothing to do. Fills the rest.
void diff_first(const struct diff_input *input, const struct diff_untraced *untraced, bool has_gpu,
        struct diff_once *ret);
// Of what is to be explained: of two launches a side one part in three lies apart by chance, and
// what is smaller explains nothing.
#define DIFF_PART_MIN 0.05
// Values of launches by side: has every launch of the side that has more (delta > 0: b) more than
// every one of the other; wide: by more than launches of either side lie apart? One launch a side
// says nothing of that: false.
bool diff_launches_apart(double *const values[2], size_t count, double delta, bool wide);
// Largest first, ten at the most: with ranks, and suspects where they have none yet. How many.
size_t diff_launch_parts(const json_t *differences, const struct diff_compared *compared,
        const struct diff_group *groups, struct diff_launch_part *parts, size_t count);
// The CPU time of a launch, where its untraced difference is told from 0 and from the step's; then
// ticks of all threads are added to a tree a side.
bool diff_cpu_wanted(const struct diff_untraced *untraced);
void diff_cpu_add(const struct launch_trace *trace, struct cost_tree *tree);
void diff_cpu(const struct diff_input *input, const struct diff_untraced *untraced, bool has_gpu,
        struct diff_once *ret);
// slow.c: what slow steps (or the slowest requests) have that typical ones have not: fills
// ret, where a cell asks. compared: all steps, of which it is a part.
int diff_slow(const struct diff_input *input, const struct diff_compared *compared,
        struct diff_slow *ret, struct error *err);
struct diff_row *diff_rows_make(const struct diff_compared *compared,
        const struct diff_group *groups, size_t *ret_count); // in the arena

// evidence.c: contributions of aligned trees, each with its evidence, those that are named with
// their suspects among the differences of the fingerprints. The caller clears ret.
void diff_contributions(const json_t *differences, const struct diff_compared *compared,
        struct diff_contributed *ret);
void diff_evidence(const struct diff_compared *compared, struct diff_contribution *contribution,
        const struct diff_group *groups);
// beside.c: what ran on the device beside the kernels of a contribution.
void diff_beside(const struct diff_compared *compared, struct diff_contribution *contribution,
        const struct diff_group *groups);
// Whether that made them slower: evidence, and contribution->beside_cause. False: nothing ran
// beside them, or no execution is known.
bool diff_beside_overlap(const struct diff_compared *compared,
        struct diff_contribution *contribution, const struct diff_group *groups,
        struct diff_evidence *ret);
void diff_suspects(const json_t *differences, const struct diff_compared *compared,
        struct diff_contribution *contribution, const struct diff_group *groups);

#endif
