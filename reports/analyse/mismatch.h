// SPDX-License-Identifier: Apache-2.0
// Parity of integers and booleans (classes, indices, masks): how many differ. Rounding flips the
// nearest of them in any two runs, so a rate is compared with a rate: what the candidate differs
// from the baseline in, over all pairs, with what the baseline differs from float64, or from
// itself, in.
#ifndef UPGATE_ANALYSE_MISMATCH_H
#define UPGATE_ANALYSE_MISMATCH_H

#include <stdbool.h>

#include "reports/analyse/parity.h"

// Values compared and those of them that differ, summed over tensors.
struct mismatch_counts {
    long differ, compared;
    long tensors;
    double squares; // of `differ` of each tensor: mismatches come in clusters
    double most;    // the largest share of a tensor that differs
    double least_p; // the least chance that a tensor has so many at the rate that is gross
    long unrelated_differ, unrelated_compared; // values of the one side beside some of the other
                                               // that belong elsewhere; compared 0: not known
};

struct mismatch_input {
    struct mismatch_counts sides; // candidate against baseline
    struct mismatch_counts
            own;   // baseline against float64, or against itself; compared 0: not known
    double factor; // the rate may be this much larger
    double alpha;  // one-sided
};

enum mismatch_state {
    MISMATCH_NONE,    // no value differs
    MISMATCH_WITHIN,  // no more often than the baseline's own
    MISMATCH_BEYOND,  // more often
    MISMATCH_GROSS,   // a tensor agrees in less than 99 %, and the baseline's own do not
    MISMATCH_OPEN,    // more pairs would tell
    MISMATCH_UNKNOWN, // nothing tells how many are rounding
    MISMATCH_VAGUE, // values that have nothing to do with the baseline's would do, by what its own
                    // allow
    MISMATCH_STATE_COUNT
};

struct mismatch_result {
    enum mismatch_state state;
    double rate, rate_own; // NAN: not known
    double upper, limit;   // bound of the rate, and what it must not exceed; NAN
};

void mismatch_add(struct mismatch_counts *counts, long differ, long compared);
// Of values drawn from both sides of a tensor that belong to different places: so many differ where
// there is nothing but chance.
void mismatch_add_unrelated(struct mismatch_counts *counts, long differ, long compared);
struct mismatch_result mismatch_compare(const struct mismatch_input *input);

#endif
