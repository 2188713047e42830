// SPDX-License-Identifier: Apache-2.0
// The three-way rule of the gate at a few planned looks. Differences are oriented: positive = the
// candidate is worse. Each look spends alpha / look_count (Bonferroni, exact), so looking often
// costs no false alarms; a decision at a look stands, whatever later pairs say.
#ifndef UPGATE_ANALYSE_LOOKS_H
#define UPGATE_ANALYSE_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "reports/analyse/signed_rank.h"

enum { LOOKS_MAX = 16 };

struct looks_rule {
    double alpha;              // one-sided, over all looks
    uint64_t looks[LOOKS_MAX]; // rising numbers of pairs
    int look_count;
    double margin;       // fraction, > -1
    bool fail_on_likely; // at the last look, a loss beyond the margin that is above 0 fails
};

enum looks_state {
    LOOKS_UNDECIDED,  // needs `next` pairs in all
    LOOKS_PASS,       // upper bound below the margin
    LOOKS_FAIL,       // lower bound above the margin (or likely, see the rule)
    LOOKS_EXHAUSTED,  // the last look has been and settled nothing
    LOOKS_HEAVY_TAIL, // signed-rank and mean contradict each other
    LOOKS_STATE_COUNT
};

struct looks_result {
    enum looks_state state;
    int look;                 // index of the look that decided; -1
    int pairs;                // observations behind `interval`
    int next;                 // pairs in all at the next look; 0: none
    double alpha;             // one-sided, of `interval`
    struct interval interval; // log scale, oriented
    struct interval mean;     // Student t, the cross-check
    bool improved;            // upper bound below -log(1 + margin)
    bool likely;              // failed by fail_on_likely only
};

// Replays the looks in order over the first pairs of `values`. Undecided between looks: the
// interval is that of the last look, or of all values when no look has been reached.
struct looks_result looks_judge(const struct looks_rule *rule, const double *values, int count);
// The same decision on one fixed set at one-sided alpha: the confirmation, the A/A re-splits.
enum looks_state looks_decide(const struct interval *interval, double margin);

#endif
