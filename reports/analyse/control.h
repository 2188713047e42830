// SPDX-License-Identifier: Apache-2.0
// What an A/A run and a positive control prove about a metric: that equal sides are seen as equal,
// and that a difference of a known size, planted into one of them, is found and measured right.
// Both can fail. Log ratios are oriented: positive = side b is worse.
#ifndef UPGATE_ANALYSE_CONTROL_H
#define UPGATE_ANALYSE_CONTROL_H

#include <stdbool.h>

#include "reports/analyse/signed_rank.h"

struct control_rule {
    double alpha;  // one-sided, of every interval
    double margin; // fraction
    int pairs_min; // of either kind
    // The A/A ratios are those of the control pairs with the plant taken out, not pairs of their
    // own: then the estimate, not the whole interval, must lie within half the margin.
    bool own_pairs;
};

// One metric over pairs; a NAN is a pair without it.
struct control_values {
    const double *aa; // the baseline against itself
    int aa_count;
    const double *held;    // against itself held longer; NULL: no such pair
    const double *without; // of the same pairs, what was planted taken out of their raw rows
    int held_count;
};

enum control_state {
    CONTROL_CERTIFIED,
    CONTROL_TOO_FEW,     // A/A pairs
    CONTROL_BIASED,      // A/A is not seen as equal
    CONTROL_INSENSITIVE, // the smallest effect that can be seen is not below the margin
    CONTROL_TOO_FEW_HELD,
    CONTROL_NOT_FOUND, // the interval of the control holds 0
    // Nor what was planted, and is off by more than a quarter of the margin: on a quiet machine the
    // interval is so narrow that a thousandth of the margin would show.
    CONTROL_WRONG_SIZE,
    CONTROL_STATE_COUNT
};

struct control_result {
    enum control_state state;
    int aa_pairs, held_pairs; // that have the metric
    struct interval aa, held;
    double mde, pair_sd; // of the A/A pairs; NAN: too few
    double planted;      // median over the pairs; NAN: no control pair
    bool felt; // the plant moves this metric by half its margin at least, so it was asked for
};

struct control_result control_judge(
        const struct control_rule *rule, const struct control_values *values);

// Is the spread of these pairs one that the certificate's pairs showed too? Yes when it is at most
// a quarter of the margin: then 10 pairs see an effect of 0.4 margins, whatever the certificate saw
// ((t_{.9975,9} + t_{.9,9}) / 4 / sqrt(10) = 0.40). Else by the F test of equal variances: no when
// the ratio of variances is larger than chance makes it in a share alpha of comparisons of equal
// spreads, F > F_{1 - alpha}(pairs - 1, control_pairs - 1) (Snedecor & Cochran, Statistical
// Methods, 10.9). A tail heavier than normal makes it say no more often, never less.
bool control_spread_covered(double pair_sd, int pairs, double control_sd, int control_pairs,
        double margin, double alpha);

#endif
