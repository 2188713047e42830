// SPDX-License-Identifier: Apache-2.0
// Two judges that rollout controllers use, on the simulated streams: their rules as documented and
// as their public code has them.
#ifndef UPGATE_CI_SIM_CANARY_SIM_JUDGES_H
#define UPGATE_CI_SIM_CANARY_SIM_JUDGES_H

#include <stdbool.h>

#include "reports/analyse/canary/second.h"

enum { JUDGE_MINUTES = 60 };

// One value a minute of each arm, which is what a query with a step of 60 s gives.
struct judge_minutes {
    struct canary_second now[CANARY_ARMS];
    int seconds, minutes;
    double error_rate[CANARY_ARMS][JUDGE_MINUTES], p99_s[CANARY_ARMS][JUDGE_MINUTES];
};
// True when a minute is full.
bool judge_add(struct judge_minutes *minutes, const struct canary_second arms[CANARY_ARMS]);

// Kayenta's NetflixACAJudge, defaults, direction "increase": a metric is High where the 98 %
// confidence interval of the Hodges-Lehmann shift by Mann-Whitney (normal, corrected for continuity
// and ties) lies above 0.25 times its estimate. Two metrics of equal weight, error rate and p99;
// score thresholds pass 95, marginal 75 as in its examples: one High fails.
bool judge_kayenta_fails(const struct judge_minutes *minutes);

// Fixed thresholds as in Argo Rollouts' analysis templates: the last minute's success rate of the
// candidate >= 99 %, its p99 at most 1.1 times the baseline's.
bool judge_fixed_fails(const struct judge_minutes *minutes);

#endif
