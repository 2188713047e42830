// SPDX-License-Identifier: Apache-2.0
// Between the parts of diff_analyse: one workload on its way from the store to contributions.
// Internal to this room (and its unit tests). One owner thread; what lives longer than the job is
// in the arena of struct diff.
#ifndef UPGATE_DIFF_JOB_H
#define UPGATE_DIFF_JOB_H

#include "reports/analyse/diff/diff_input.h"
#include "reports/analyse/diff/estimate/estimate.h"

enum { DIFF_DEPTH_MAX = 64 };

struct diff_pair {
    int64_t launch[2];
};

struct diff_parallel { // of the target's threads, means over launches
    double running;    // how many were on a CPU at a time
    double threads;    // did at least a twentieth of what the busiest one did
    int launches;
};

struct diff_launches; // contribute/launches.c

// What a job explains. But of the steps intervals tell nothing, and nothing is summed by place.
enum diff_subject {
    DIFF_SUBJECT_STEPS,
    DIFF_SUBJECT_FIRST, // first steps: one window of each launch
    DIFF_SUBJECT_CPU,   // CPU time: each launch is one window
    DIFF_SUBJECT_SLOW   // slow steps: a few windows of each launch
};

struct diff_job {
    const struct diff_input *input;
    struct diff_notes *notes;
    struct arena *arena; // of input
    struct diff_workload *workload;
    struct diff_untraced untraced;
    struct diff_pair *pairs;
    size_t pair_count;
    size_t one_sided;         // of them that are left out: one launch has no samples
    const uint32_t *first[2]; // cost_tree_finish
    struct diff_parallel parallel[2];
    double foreign[2]; // share of the traced time that other programs took, and that is left out
    bool has_gpu;
    enum diff_subject subject;
    const char **place_names[2]; // of nodes, made when they are asked for
    const bool *trunk[2];        // the same: explain/where.c
    struct diff_units units;
    struct diff_prior *prior;
    const struct diff_launches *launches; // what diff_groups_add moves
    size_t doubts_left; // about traced launches, that are no notes: there are too many
};

int diff_load_sides(struct diff_job *job,
        struct error *err); // diff_side.c: fills the workload's trees
// Takes what other programs took out of rows and windows; its share of them.
double diff_take_foreign(struct cost_tree *tree);

#endif
