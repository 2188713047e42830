// SPDX-License-Identifier: Apache-2.0
// Two recursions a bet: the sum over beginnings, and the best of them.
#include "reports/analyse/canary/onset.h"

#include <math.h>

// beginnings within it weigh about the same: no onset is told more exactly
static const double onset_scale_s = 10;
// of a metric that is observed only, and never ends the rollout
static const double onset_wealth_max = 1e300;

static double onset_left(double n)
{
    return 1 / (1 + log1p(n / onset_scale_s));
}

double canary_onset_weight(uint64_t n)
{
    return onset_left((double)n) - onset_left((double)n + 1);
}

void canary_onset_add(struct canary_onset *onset, const double logs[CANARY_BETS],
        const struct canary_since *second)
{
    double weight = canary_onset_weight(onset->seconds), fresh = log(weight);
    for (int i = 0; i < CANARY_BETS; i++) {
        struct canary_onset_bet *bet = &onset->bets[i];
        if (!onset->seconds || fresh > bet->best) {
            bet->best = fresh;
            bet->begin = onset->seconds;
            bet->before = onset->sum;
        }
        bet->wealth += weight;
        if (!logs)
            continue;
        bet->wealth = fmin(bet->wealth * exp(logs[i]), onset_wealth_max);
        bet->best += logs[i];
    }
    canary_counts_sum(&onset->sum.counts, &second->counts);
    canary_counts_sum(&onset->sum.beyond, &second->beyond);
    canary_means_sum(&onset->sum.means, &second->means);
    onset->seconds++;
}

double canary_onset_evidence(const struct canary_onset *onset)
{
    double sum = 0;
    for (int i = 0; i < CANARY_BETS; i++)
        sum += canary_bet_weight[i] * onset->bets[i].wealth;
    return log(sum);
}

uint64_t canary_onset_likely(const struct canary_onset *onset, struct canary_since *ret_since)
{
    const struct canary_onset_bet *likely = onset->bets;
    double most = -INFINITY;
    *ret_since = onset->sum;
    if (!onset->seconds)
        return 0;
    for (int i = 0; i < CANARY_BETS; i++) {
        double here = onset->bets[i].best + log(canary_bet_weight[i]);
        if (here > most) {
            most = here;
            likely = &onset->bets[i];
        }
    }
    canary_counts_less(&ret_since->counts, &likely->before.counts);
    canary_counts_less(&ret_since->beyond, &likely->before.beyond);
    canary_means_less(&ret_since->means, &likely->before.means);
    return onset->seconds - likely->begin;
}
