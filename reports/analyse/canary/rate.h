// SPDX-License-Identifier: Apache-2.0
// Upper bound of one arm's own rate of events, valid at every look. Events are taken as
// independent: without any, nothing is known of their bursts.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_RATE_H
#define UPGATE_REPORTS_ANALYSE_CANARY_RATE_H

// Of `events` in `requests`; 1 without requests. Without an event just below 1 - (0.75 alpha)^(1 /
// requests): the zero-failure bound n = ln(alpha) / ln(1 - p), valid at every look for 5 % more
// requests than one planned look takes.
double canary_rate_bound(double events, double requests, double alpha);
// Requests until the bound lies below `bound` for events that come at `rate`, typically; INFINITY
// where rate >= bound.
double canary_rate_requests(double rate, double bound, double alpha);

#endif
