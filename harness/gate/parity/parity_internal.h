// SPDX-License-Identifier: Apache-2.0
// What the files of the parity gate share.
#ifndef UPGATE_GATE_PARITY_INTERNAL_H
#define UPGATE_GATE_PARITY_INTERNAL_H

#include "harness/gate/parity/parity_gate.h"
#include "harness/gate/parity/parity_rows.h"
#include "reports/analyse/mismatch.h"
#include "reports/analyse/parity.h"

// One-sided, of one look: all of them together spend the policy's alpha.
double parity_alpha(const struct parity_context *context);
// Looks that the valid main pairs have reached.
int parity_looks_reached(const struct parity_context *context);
// Pairs at the look behind the ones that were reached; 0: there is none.
int parity_next_look(const struct parity_context *context);

// Main and confirm pairs whose launches ended in good order. Void ones count: what disturbed their
// times changed no number.
bool parity_is_judged(const struct pair_head *head);
bool parity_is_counted(const struct pair_head *head); // of the pairs that looks count

// Of a long tensor two things are kept, and compared by the same rules.
enum parity_view {
    PARITY_VIEW_VALUES, // all, or the first ones
    PARITY_VIEW_SKETCH, // sums over all of it
    PARITY_VIEW_COUNT
};

// What is known about one tensor name while it is judged.
struct parity_tally {
    int pairs;            // in which both sides recorded it
    long tensors, values; // compared
    long equal;           // tensors that are equal to the last bit
    long anchored;        // tensors with float64 values of their own
    long anchor_broken;   // with some that are not finite where both sides are, and no measure for
                          // them
    long digest_equal, digest_unequal; // no values to compare: by digest alone
    long beyond, beyond_unequal; // no values were kept, for those before them took the room: by
                                 // digest, and of them that differ
    long sketched, truncated;    // long tensors that differ: with a sketch, without one
    long unseen;                 // whose digests differ and nothing else that is kept
    long unmatched;              // recorded by the baseline only
    // pairs with such outputs, by whether as many as these are on record as lost
    int lost, left_out;
    int missing; // of those that were left out, pairs in which the candidate recorded none
};
struct parity_where {
    int64_t seed, step, rank;
    size_t first, last; // values that are furthest off
};
struct parity_steps { // yardsticks by step
    struct parity_step {
        int64_t step;
        enum parity_view view;
        struct parity_yardstick rounding, repeat;
    } * items;
    int count;
};
struct parity_work {
    const struct parity_context *context;
    const char *name;
    bool sampled;                      // by its name: compared as a distribution
    struct tensor_rows anchor, repeat; // of the baseline, of all seeds; few
    struct parity_steps steps;
    struct parity_tally tally;
    struct parity_result worst;
    struct parity_where where; // of worst
    bool has_result;
    int rows_a, rows_b;
    bool shape_differs, type_differs;
    enum dtype dtype_a, dtype_b;
    // Integers: counts, and what came of them.
    struct mismatch_counts sides, own_anchor, own_repeat;
    struct mismatch_result mismatch;
    bool has_mismatch, mismatch_settled;
    // Sampled outputs: the values of each pair in order of size.
    struct parity_pool {
        double *sides[2];
        size_t counts[2];
        bool counted;
    } * pools;
    int pool_count;
};

// parity_tensor.c: both sides of one pair into the work.
void parity_pair(struct parity_work *work, const struct pair_head *head,
        const struct tensor_rows *rows_a, const struct tensor_rows *rows_b);
// What float64 and the baseline's repetitions say about one pair's baseline.
void parity_learn(struct parity_work *work, const struct tensor_rows *rows_a);
// The rule of integers, with the counts so far.
void parity_settle_mismatch(struct parity_work *work);
// parity_sampled.c
void parity_pool_pair(struct parity_work *work, const struct pair_head *head,
        const struct tensor_rows *rows_a, const struct tensor_rows *rows_b);
void parity_sampled_row(const struct parity_work *work, struct parity_row *row);
// parity_text.c: verdict, errors and sentence of the row, from all that is known.
void parity_tell(const struct parity_work *work, struct parity_row *row);

#endif
