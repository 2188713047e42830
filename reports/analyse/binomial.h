// SPDX-License-Identifier: Apache-2.0
// Counts out of n: exact (Clopper-Pearson) bound, tails, and how many requests a percentile needs.
#ifndef UPGATE_ANALYSE_BINOMIAL_H
#define UPGATE_ANALYSE_BINOMIAL_H

// One-sided Clopper-Pearson bound of the rate at this confidence (0.95).
double binomial_upper_bound(long events, long trials, double confidence);
// P(X >= events) with X ~ Binomial(trials, p).
double binomial_tail(long events, long trials, double p);
// The least number of requests at which `over` of them above a threshold still prove, with
// confidence 1 - alpha, that the threshold lies above the percentile (MLPerf's early stopping): 662
// for p99, 1 over.
long binomial_requests_min(double percentile, long over, double alpha);

#endif
