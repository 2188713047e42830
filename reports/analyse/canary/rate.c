// SPDX-License-Identifier: Apache-2.0
// The bound of a rate: an e-process that bets on lower rates, most of it on none at all.
#include "reports/analyse/canary/rate.h"

#include <math.h>

#include "common/containers/search.h"
#include "reports/analyse/distribution.h"

enum { RATE_BETS = 7, RATE_BISECTIONS = 60 };
// On no event at all, and on so many times the rate. Three quarters are on none: with the rest of
// one look planned ahead the zero-failure bound takes 4,603 requests for 0.1 % at alpha 1 %, with
// these 4,820 at any look.
static const double rate_bet[RATE_BETS] = {0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85};
static const double rate_weight[RATE_BETS] = {
        0.75, 0.25 / 6, 0.25 / 6, 0.25 / 6, 0.25 / 6, 0.25 / 6, 0.25 / 6};

// ln e against "the rate is p or more".
static double rate_refutes(double events, double requests, double p)
{
    double logs[RATE_BETS];
    for (int i = 0; i < RATE_BETS; i++)
        logs[i] = (events > 0 ? events * log(rate_bet[i]) : 0) +
                (requests - events) * (log1p(-rate_bet[i] * p) - log1p(-p));
    return distribution_log_sum(logs, rate_weight, RATE_BETS);
}

double canary_rate_bound(double events, double requests, double alpha)
{
    if (!(requests > 0) || !(events < requests))
        return 1;
    double lo = events / requests, hi = 1, needed = log(1 / alpha);
    search_narrow(mid, lo, hi, RATE_BISECTIONS, rate_refutes(events, requests, mid) >= needed);
    return hi;
}

double canary_rate_requests(double rate, double bound, double alpha)
{
    if (!(rate < bound) || !(bound < 1))
        return rate < bound ? 1 : INFINITY;
    double lo = 0, hi = 1, needed = log(1 / alpha);
    while (rate_refutes(rate * hi, hi, bound) < needed && hi < 1e15) // grows with the requests
        hi *= 2;
    search_narrow(mid, lo, hi, RATE_BISECTIONS, rate_refutes(rate * mid, mid, bound) >= needed);
    return hi;
}
