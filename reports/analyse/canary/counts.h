// SPDX-License-Identifier: Apache-2.0
// Events of two arms, compared given how many requests each had in each second: of all events of a
// second, the candidate's are binomial with its share of the requests where the rates are equal.
// The requests being finite makes them hypergeometric, which only lowers an e-value: it is convex
// in the count, and the binomial dominates in the convex order (Hoeffding 1963).
//
// What is kept is one sum a stage. The e-value of a second for the ratio r is r^k / (1 + w (r -
// 1))^E; the logarithm of its denominator is concave in w, so that one mean share in place of each
// second's makes the product smaller only: it stays valid.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_COUNTS_H
#define UPGATE_REPORTS_ANALYSE_CANARY_COUNTS_H

#include <stdbool.h>

struct canary_counts {
    double candidate, all; // events, each divided by the dispersion of its second
    double share, share2;  // sums over them of the candidate's share of the requests in their
                           // second, of its square
};

// The bets: logarithms of ratios, and how much of the wealth is on each.
enum { CANARY_BETS = 16 };
extern const double canary_bet[CANARY_BETS], canary_bet_weight[CANARY_BETS];

// One second; nothing where either arm had no request.
void canary_counts_add(struct canary_counts *counts, double events_baseline,
        double events_candidate, double requests_baseline, double requests_candidate,
        double dispersion);

void canary_counts_sum(struct canary_counts *sum, const struct canary_counts *more);
void canary_counts_less(struct canary_counts *sum, const struct canary_counts *part); // its inverse
// ln of the factor by which each bet against "the candidate's rate is at most the baseline's" grows
// in one second: its expectation is 1 at most where the rates are equal. False: no events, nothing
// grows.
bool canary_counts_bets(const struct canary_counts *second, double ret_logs[CANARY_BETS]);

// Of stages that follow each other with different shares: `stages[count]`.
struct canary_trail {
    const struct canary_counts *stages;
    int count;
};

// Logarithm of the e-value that speaks against "the candidate's rate is at most the baseline's"
// (CANARY_WORSE), or against "at least" (CANARY_BETTER): a mixture of bets on ratios of 1.02 to 37,
// or their reciprocals. 0 without events.
enum canary_side { CANARY_WORSE, CANARY_BETTER };
double canary_counts_evidence(struct canary_trail trail, enum canary_side side);
// A bound of the former that costs a few logarithms: no mixture of ratios can give more.
double canary_counts_evidence_max(struct canary_trail trail);
// The most likely ratio; NaN without events, INFINITY without events of the baseline.
double canary_counts_ratio(struct canary_trail trail);
// Standard errors (signed root of the likelihood ratio) by which the ratio lies above `ratio`; 0
// where it lies below.
double canary_counts_beyond(struct canary_trail trail, double ratio);
// Confidence sequence of the ratio, each end at alpha. *ret_low 0, *ret_high INFINITY: no end.
void canary_counts_bounds(
        const struct canary_counts *stage, double alpha, double *ret_low, double *ret_high);

// What ln e against "the ratio is `ratio`" grows by with one request of either arm, on average,
// where events come at these rates.
double canary_counts_growth(
        double rate_baseline, double rate_candidate, double share, double ratio);

#endif
