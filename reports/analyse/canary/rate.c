// SPDX-License-Identifier: Apache-2.0
// The bound of a rate: an e-process that bets on lower rates, most of it on none at all.
#include "reports/analyse/canary/rate.h"

#include <math.h>

enum { RATE_BETS = 6, RATE_BISECTIONS = 60 };
static const double rate_none = 0.75; // of the wealth is on no event at all
static const double rate_bet[RATE_BETS] = {0.1, 0.2, 0.35, 0.5, 0.7, 0.85};

// ln e against "the rate is p or more".
static double rate_refutes(double events, double requests, double p)
{
    double logs[RATE_BETS + 1], highest = -INFINITY, sum = 0;
    int count = 0;
    for (int i = 0; i < RATE_BETS; i++)
        logs[count++] = log((1 - rate_none) / RATE_BETS) + events * log(rate_bet[i]) +
                        (requests - events) * (log1p(-rate_bet[i] * p) - log1p(-p));
    if (!(events > 0))
        logs[count++] = log(rate_none) - requests * log1p(-p);
    for (int i = 0; i < count; i++)
        highest = fmax(highest, logs[i]);
    for (int i = 0; i < count; i++)
        sum += exp(logs[i] - highest);
    return highest + log(sum);
}

double canary_rate_bound(double events, double requests, double alpha)
{
    if (!(requests > 0) || !(events < requests))
        return 1;
    double lo = events / requests, hi = 1, needed = log(1 / alpha);
    for (int i = 0; i < RATE_BISECTIONS; i++) {
        double mid = 0.5 * (lo + hi);
        if (mid < 1 && rate_refutes(events, requests, mid) < needed)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

double canary_rate_requests(double rate, double bound, double alpha)
{
    if (!(rate < bound) || !(bound < 1))
        return rate < bound ? 1 : INFINITY;
    double lo = 0, hi = 1, needed = log(1 / alpha);
    while (rate_refutes(rate * hi, hi, bound) < needed && hi < 1e15) // grows with the requests
        hi *= 2;
    for (int i = 0; i < RATE_BISECTIONS; i++) {
        double mid = 0.5 * (lo + hi);
        if (rate_refutes(rate * mid, mid, bound) < needed)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}
