// SPDX-License-Identifier: Apache-2.0
// The stage that explains: what a contribution rests on, what could have done it; and what no
// contribution tells: ranks that come last, the first step, CPU time, slow steps, collectives.
// Internal to this room and its unit tests.
#ifndef UPGATE_DIFF_EXPLAIN_H
#define UPGATE_DIFF_EXPLAIN_H

#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/trace/launch/launch_trace.h"

enum { DIFF_EVIDENCE_MAX = 12 }; // facts of a contribution

void diff_collectives(struct diff_job *job); // collectives.c: collectives and NCCL's versions
// stragglers_judge.c: who came last in a launch; and when all are in, who is told from noise.
void diff_stragglers_add(struct diff_job *job, const struct launch_trace *trace);
void diff_stragglers_judge(struct diff_job *job);
struct diff_straggler *diff_straggler_of(
        const struct diff_workload *workload, int side, int32_t rank);
// late.c: whether the difference is one rank that comes late: workload->late, and evidence.
void diff_late(struct diff_job *job);
void diff_typical(struct diff_job *job); // what a timeline shows
// once.c: the first step. Wanted where its untraced difference is told from 0; then launches
// are added to first.trees.
bool diff_first_wanted(const struct diff_job *job);
void diff_first_add(const struct launch_trace *trace, struct cost_tree *tree);
void diff_first(struct diff_job *job);
// Of what is to be explained: of two launches a side one part in three lies apart by chance, and
// what is smaller explains nothing.
#define DIFF_PART_MIN 0.05
// Values of launches by side: has every launch of the side that has more (delta > 0: b) more than
// every one of the other; wide: by more than launches of either side lie apart? One launch a side
// says nothing of that: false.
bool diff_launches_apart(double *const values[2], size_t count, double delta, bool wide);
// Largest first, ten at the most: with ranks, and suspects where they have none yet. How many.
size_t diff_launch_parts(struct diff_job *job, const struct diff_group *groups,
        struct diff_launch_part *parts, size_t count);
// The CPU time of a launch, where its untraced difference is told from 0 and from the step's; then
// ticks of all threads are added to cpu.trees.
bool diff_cpu_wanted(const struct diff_job *job);
void diff_cpu_add(const struct launch_trace *trace, struct cost_tree *tree);
void diff_cpu(struct diff_job *job);
// slow.c: what slow steps (or the slowest requests) have that typical ones have not: fills
// workload->slow, where a cell asks.
int diff_slow(struct diff_job *job, struct error *err);
void diff_rows_make(struct diff_job *job, const struct diff_group *groups);

// evidence.c: contributions of aligned trees, each with its evidence, those that are named with
// their suspects; and the table of everything.
void diff_contributions(struct diff_job *job);
void diff_evidence(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups);
// beside.c: what ran on the device beside the kernels of a contribution.
void diff_beside(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups);
// Whether that made them slower: evidence, and contribution->beside_cause. False: nothing ran
// beside them, or no execution is known.
bool diff_beside_overlap(const struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups, struct diff_evidence *ret);
void diff_suspects(struct diff_job *job, struct diff_contribution *contribution,
        const struct diff_group *groups);

#endif
