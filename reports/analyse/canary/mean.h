// SPDX-License-Identifier: Apache-2.0
// Ratio of the arms' mean latencies, valid at every look: each second gives one difference of
// means, weighted by the requests behind it; their sum is judged against the sum of their squares
// (a mixture over a self-normalised supermartingale: exact for symmetric differences, asymptotic
// otherwise; ci/sim/canary_sim and the unit test measure its coverage).
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_MEAN_H
#define UPGATE_REPORTS_ANALYSE_CANARY_MEAN_H

#include "reports/analyse/canary/counts.h"

struct canary_means {           // sums over seconds, of weights a = n_b n_c / (n_b + n_c)
    double baseline, candidate; // a m
    double square_baseline, square_both, square_candidate; // a^2 m_b^2, a^2 m_b m_c, a^2 m_c^2
    double weight;                                         // a
};
// Means in any unit that stays the same; nothing where an arm had no request.
void canary_means_add(struct canary_means *means, double mean_baseline, double mean_candidate,
        double requests_baseline, double requests_candidate);
void canary_means_sum(struct canary_means *sum, const struct canary_means *more);
void canary_means_less(struct canary_means *sum, const struct canary_means *part); // its inverse
// ln of the factor of each bet against "the mean is at most the baseline's" in one second: of an
// effect of so many standard deviations of a request's latency as the bets of counts are
// logarithms. `scale`, `inflation`: as below.
void canary_means_bets(const struct canary_means *second, double scale, double inflation,
        double ret_logs[CANARY_BETS]);

// `scale`: variance of a second's difference per weight, roughly (sets where the test is sharpest);
// `inflation`: 1 or more. ln e of "the mean is at most (CANARY_WORSE; at least: CANARY_BETTER)
// `ratio` times the baseline's", over stages past + now.
double canary_means_evidence(const struct canary_means *past, const struct canary_means *now,
        double ratio, enum canary_side side, double scale, double inflation);
double canary_means_ratio(const struct canary_means *means); // NaN: unknown
// Standard errors by which the ratio lies above `ratio`; 0: it does not.
double canary_means_beyond(const struct canary_means *past, const struct canary_means *now,
        double ratio, double inflation);
void canary_means_bounds(const struct canary_means *means, double alpha, double scale,
        double inflation, double *ret_low,
        double *ret_high); // NaN: no end

// By how much the sum of seconds varies more than seconds on their own say, because a slow spell of
// an arm lasts: variance of means of 10 s over that of 1 s, of the baseline in neighbouring blocks.
struct canary_spells {
    double sum, requests; // of the block of 10 s being filled
    int seconds;
    double before_1, before_1_requests, before_10, before_10_requests;
    double square_1, count_1, square_10, count_10;
};
void canary_spells_add(struct canary_spells *spells, double mean, double requests);
double canary_spells_value(const struct canary_spells *spells); // 1 or more

#endif
