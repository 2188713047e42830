// SPDX-License-Identifier: Apache-2.0
// The three-way rule of the gate at a few planned looks. Differences are oriented: positive = the
// candidate is worse. Each look spends alpha / look_count (Bonferroni, exact), so looking often
// costs no false alarms; a fail at a look stands, whatever later pairs say. A pass does, unless
// pairs that came later, for the sake of something else that was open, contradict it: then it is
// withdrawn. Taking back passes lets nothing through and fails nobody.
//
// Two claims are judged at once, for neither implies the other: the *typical* pair (Hodges-Lehmann,
// exact signed-rank interval) and the *mean* pair. One launch in five that is 50 % slower moves the
// mean by 10 % and the typical pair hardly at all.
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
    LOOKS_UNDECIDED, // needs `next` pairs in all
    LOOKS_PASS,      // the typical pair and the mean are within the margin
    LOOKS_FAIL,      // one of them is beyond it (or likely, see the rule)
    LOOKS_EXHAUSTED, // the last look has been and settled nothing
    LOOKS_MIXED,     // the last look: the typical pair is within the margin, the mean need not be
    LOOKS_WITHDRAWN, // a look has passed, and all pairs contradict it; never a fail
    LOOKS_STATE_COUNT
};

// Pairs that stand apart from the typical one, by more than the margin and than the noise of the
// others explains: launches of another kind.
struct looks_odd {
    int worse, better;  // on the candidate's side, on the baseline's
    double worse_by;    // mean distance of the worse ones from the typical pair, log; NAN: none
    double share_bound; // 95 % upper bound of the share of worse ones
};

struct looks_result {
    enum looks_state state;
    int look;                 // index of the look that decided; -1
    int pairs;                // observations behind `interval`
    int next;                 // pairs in all at the next look; 0: none
    int passed;               // WITHDRAWN: pairs that had passed; `pairs` and the rest are of all
    double alpha;             // one-sided, of `interval`
    struct interval interval; // of the typical pair; log scale, oriented
    struct interval mean;     // Student t
    struct looks_odd odd;
    bool improved; // upper bound below -log(1 + margin)
    bool likely;   // failed by fail_on_likely only
    bool by_mean;  // failed by the mean: the typical pair alone would not have
};

// Replays the looks in order over the first pairs of `values`, and holds a pass against all of
// them. Undecided between looks: the interval is that of the last look, or of all values when no
// look has been reached.
struct looks_result looks_judge(const struct looks_rule *rule, const double *values, int count);
// The rule by which fresh pairs confirm a fail that `pairs` have shown, with looks of its own:
// first as many as the screen had, for with fewer the two together would find less than the screen
// alone (10 after 28: 58 % of what the screen finds 97 % of), then, while they leave it open, the
// later looks of `rule`. The same alpha, so that a false fail has alpha squared.
struct looks_rule looks_confirm(const struct looks_rule *rule, int pairs);
// The least share of slow launches of which at least one is seen among `pairs` with 95 %.
double looks_share_seen(int pairs);

#endif
