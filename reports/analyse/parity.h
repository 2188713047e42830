// SPDX-License-Identifier: Apache-2.0
// Numerical parity of two results of the same computation. Bitwise equality across releases is not
// promised by any framework, and hand tolerances are guesses: the rule is that the candidate is no
// further from a float64 run than the baseline is, by more than a factor. Without such an anchor:
// within what the baseline does to itself, else torch.testing's tolerances.
#ifndef UPGATE_ANALYSE_PARITY_H
#define UPGATE_ANALYSE_PARITY_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/analyse/dtype.h"

enum parity_rule { // the name of the rule that decided is stored
    PARITY_RULE_BITWISE,
    PARITY_RULE_FP64_ANCHORED,
    PARITY_RULE_BASELINE_SPREAD,
    PARITY_RULE_TORCH_TESTING,
    PARITY_RULE_EXACT,  // integers, booleans
    PARITY_RULE_FINITE, // NaN and Inf decided
    PARITY_RULE_COUNT
};
enum parity_state { PARITY_PASS, PARITY_FAIL, PARITY_INCONCLUSIVE, PARITY_STATE_COUNT };

struct parity_input {
    const double *a, *b;  // count values of each side
    const double *anchor; // of a float64 run with the same seed; NULL: none
    size_t count;
    enum dtype dtype; // of the baseline's tensor
    double factor;    // b may be this much further from the anchor than a; 2
    double spread;    // rmse between launches of the baseline with this seed; NAN: not known
};

struct parity_result {
    enum parity_state state;
    enum parity_rule rule;
    double error_a; // rmse to the anchor (share of mismatches for integers); NAN without one
    double error_b; // rmse to the anchor, else to the baseline
    double limit;   // error_b must not exceed it; NAN where the rule has none
    double cosine;  // of a and b; NAN when one of them is 0
    bool has_nan_a, has_nan_b;
    size_t unequal; // elements where a and b differ
};

struct parity_result parity_compare(const struct parity_input *input);
const char *parity_rule_name(enum parity_rule rule);
// The factor for this type and size: half precision and small tensors are given more, because the
// ratio of two errors over few elements is itself noisy.
double parity_factor(double factor, enum dtype dtype, size_t count);
double parity_rmse(const double *left, const double *right,
                   size_t count); // over elements finite in both

#endif
