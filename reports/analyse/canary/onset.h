// SPDX-License-Identifier: Apache-2.0
// Since when: an e-process begins anew with every second, so that a candidate that turns bad late
// need not outweigh how long it was good. Their mean, weighted by when each begins, is an e-process
// itself (the weights of all sum to 1 at most, and what has not begun is cash), so that all of them
// together take of alpha what one would: P(ever 1/alpha or more) <= alpha while the candidate is
// not worse. A second whose factors have an expectation of 1 at most is all that is asked; no
// distribution, no number of seconds.
//
// For each bet the sum over all beginnings is one number (Shiryaev and Roberts' recursion), and the
// one beginning that gained most is followed with its own sums (Page's recursion): it says since
// when, and from what came since then by how much.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_ONSET_H
#define UPGATE_REPORTS_ANALYSE_CANARY_ONSET_H

#include <stdint.h>

#include "reports/analyse/canary/counts.h"
#include "reports/analyse/canary/mean.h"

struct canary_since { // of one channel, from a beginning on; a channel has counts or means
    struct canary_counts counts, beyond;
    struct canary_means means;
};

struct canary_onset { // {0}: nothing has begun
    struct canary_onset_bet {
        double wealth;              // sum over beginnings of weight times e-value
        double best;                // the largest term, in logarithms
        uint64_t begin;             // of that term, in seconds added before it
        struct canary_since before; // sums before it
    } bets[CANARY_BETS];
    struct canary_since sum;
    uint64_t seconds;
};

// One second: ln of each bet's factor (NULL: all are 1), and what it adds to the sums.
void canary_onset_add(struct canary_onset *onset, const double logs[CANARY_BETS],
        const struct canary_since *second);
// ln of the weighted mean; -INFINITY before the first second.
double canary_onset_evidence(const struct canary_onset *onset);
// Of the bet and beginning with the largest term: what came since it, and how many seconds; 0
// before the first second.
uint64_t canary_onset_likely(const struct canary_onset *onset, struct canary_since *ret_since);
// Weight of the e-process that begins with second n, from 0: what is left falls by the logarithm of
// time, so that the price of an onset after an hour is 3 in ln e above that of one after five
// minutes, and none is shut out however long it lasts.
double canary_onset_weight(uint64_t n);

#endif
