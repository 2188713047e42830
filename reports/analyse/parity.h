// SPDX-License-Identifier: Apache-2.0
// Numerical parity of two floating-point results of the same computation. Bitwise equality across
// releases is not promised by any framework, and hand tolerances are guesses: the rule is that the
// candidate is no further from a float64 run than the baseline is, by more than a factor. Where
// that run does not reach: no further from the baseline than its own rounding and its own
// repetitions explain. Every error is in units of the reference's root mean square, so that small
// outputs are judged like large ones.
#ifndef UPGATE_ANALYSE_PARITY_H
#define UPGATE_ANALYSE_PARITY_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/analyse/dtype.h"

enum { PARITY_CHUNK = 64 }; // neighbouring values: one wrong row of a thousand must not drown

enum parity_rule { // the name of the rule that decided is stored
    PARITY_RULE_BITWISE,
    PARITY_RULE_FP64_ANCHORED,
    PARITY_RULE_BASELINE_SPREAD,
    PARITY_RULE_TORCH_TESTING,
    PARITY_RULE_FINITE, // NaN and Inf decided
    PARITY_RULE_COUNT
};
enum parity_state { PARITY_PASS, PARITY_FAIL, PARITY_INCONCLUSIVE, PARITY_STATE_COUNT };

// How far one result is from another. NAN: not known.
struct parity_error {
    double all;     // rms over the tensor
    double chunk;   // the largest rms over PARITY_CHUNK neighbours
    double element; // the largest single one
};

// How far results of this tensor are apart without anybody's fault, and from how many tensors that
// was learnt (0: not known). The maxima over them.
struct parity_yardstick {
    struct parity_error error;
    int tensors;
};

struct parity_input {
    const double *a, *b;  // count values of each side
    const double *anchor; // of a float64 run with the same seed; NULL: none
    size_t count;
    enum dtype dtype;                 // of the baseline's tensor
    double factor;                    // b may be this much further from the anchor than a; 2
    struct parity_yardstick rounding; // baseline to float64, at the same step of other seeds
    struct parity_yardstick repeat;   // launches of the baseline with one seed to each other
    double drift_max; // in training small differences grow by themselves: up to this error
};

struct parity_result {
    enum parity_state state;
    enum parity_rule rule;
    struct parity_error error_a; // to the anchor; NAN without one
    struct parity_error error_b; // to the anchor, else to the baseline
    struct parity_error limit;   // error_b must not exceed it; NAN where the rule has none
    double used;                 // the largest share of a limit that error_b takes; 0 = none
    double cosine;               // of a and b; 0 when one of them is 0, NAN when both are
    bool has_nan_a, has_nan_b;
    bool anchor_broken; // NaN or Inf where both sides are finite and differ: judged without it,
                        // unless the rest of it shows a fail
    bool vague;         // the limits are so wide that zeros would keep them
    size_t unequal;     // elements where a and b differ
    size_t worst;       // the element that is furthest off
};

struct parity_result parity_compare(const struct parity_input *input);
const char *parity_rule_name(enum parity_rule rule);
// The factor for this type and size: half precision and small tensors are given more, because the
// ratio of two errors over few elements is itself noisy. Those of torch._dynamo.utils.same().
double parity_factor(double factor, enum dtype dtype, size_t count);
// Root mean square over the finite values; 0 when there is none.
double parity_rms(const double *values, size_t count);
// Of `values` to `reference` over elements finite in both, in units of unit. A difference where
// unit is 0 is INFINITY.
struct parity_error parity_distance(
        const double *reference, const double *values, size_t count, double unit);
// What `all` and `chunk` may be where nothing is known but how far the reference is from its own
// repetition (NAN: it was not repeated): the rule of baseline-spread above that of torch-testing.
// tolerance 0: of half precision, the coarsest format that still scores.
double parity_spread_limit(double tolerance, double repeat);
void parity_yardstick_add(struct parity_yardstick *yardstick, const struct parity_error *error);

#endif
