// SPDX-License-Identifier: Apache-2.0
// Kayenta's Mann-Whitney rule and Argo's fixed thresholds, written from their documentation.
#include "ci/sim/canary_sim_judges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "reports/analyse/distribution.h"

enum { JUDGE_BISECTIONS = 45 };
static const double judge_confidence = 0.98, judge_tolerance = 0.25;
static const double judge_marginal = 75;

bool judge_add(struct judge_minutes *minutes, const struct canary_second arms[CANARY_ARMS])
{
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        canary_second_add(&minutes->now[arm], &arms[arm]);
    if (++minutes->seconds < 60 || minutes->minutes == JUDGE_MINUTES)
        return false;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        const struct canary_second *now = &minutes->now[arm];
        minutes->error_rate[arm][minutes->minutes] =
                now->requests ? (double)now->errors / (double)now->requests : 0;
        minutes->p99_s[arm][minutes->minutes] = canary_quantile(now, 0.99);
    }
    memset(minutes->now, 0, sizeof minutes->now);
    minutes->seconds = 0;
    minutes->minutes++;
    return true;
}

struct judge_rank {
    double value;
    bool first;
};

static int judge_compare(const void *a, const void *b)
{
    double x = ((const struct judge_rank *)a)->value, y = ((const struct judge_rank *)b)->value;
    return (x > y) - (x < y);
}

// z of the rank sum of x - shift among y.
static double judge_z(const double *x, const double *y, int count, double shift)
{
    struct judge_rank ranks[2 * JUDGE_MINUTES];
    double n = count, sum = 0, ties = 0;
    int all = 2 * count;
    for (int i = 0; i < count; i++) {
        ranks[i] = (struct judge_rank){x[i] - shift, true};
        ranks[count + i] = (struct judge_rank){y[i], false};
    }
    qsort(ranks, (size_t)all, sizeof *ranks, judge_compare);
    for (int i = 0, end; i < all; i = end) {
        for (end = i; end < all && ranks[end].value == ranks[i].value; end++)
            continue;
        double tied = end - i;
        ties += tied * tied * tied - tied;
        for (int k = i; k < end; k++)
            sum += ranks[k].first ? 0.5 * (i + 1 + end) : 0;
    }
    double above = sum - n * (n + 1) / 2 - n * n / 2;
    double sigma = sqrt(n * n / 12 * (2 * n + 1 - ties / (2 * n * (2 * n - 1))));
    double correction = above > 0 ? 0.5 : above < 0 ? -0.5 : 0;
    return sigma > 0 ? (above - correction) / sigma : 0;
}

// The shift at which z falls through `z`.
static double judge_shift(const double *x, const double *y, int count, double z)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            lo = fmin(lo, x[i] - y[k]);
            hi = fmax(hi, x[i] - y[k]);
        }
    if (judge_z(x, y, count, lo) <= z)
        return lo;
    if (judge_z(x, y, count, hi) >= z)
        return hi;
    search_narrow(mid, lo, hi, JUDGE_BISECTIONS, judge_z(x, y, count, mid) <= z);
    return 0.5 * (lo + hi);
}

static bool judge_high(const double *candidates, const double *baselines, int minutes)
{
    double candidate[JUDGE_MINUTES], baseline[JUDGE_MINUTES], sums[CANARY_ARMS] = {0};
    bool same = true; // no two different values: passes
    int count = 0;
    for (int i = 0; i < minutes; i++) {
        if (isnan(candidates[i]) || isnan(baselines[i])) // no request was answered: removed
            continue;
        candidate[count] = candidates[i];
        baseline[count] = baselines[i];
        same &= candidate[count] == candidate[0] && baseline[count] == candidate[0];
        sums[CANARY_CANDIDATE] += candidate[count];
        sums[CANARY_BASELINE] += baseline[count++];
    }
    if (same || !count)
        return false;
    if (sums[CANARY_BASELINE] > 0 && sums[CANARY_CANDIDATE] > 0 &&
            sums[CANARY_CANDIDATE] < sums[CANARY_BASELINE])
        return false; // effect size: the ratio of the means must be 1 at least
    double z = distribution_normal_quantile(1 - (1 - judge_confidence) / 2);
    double low = judge_shift(candidate, baseline, count, z);
    double estimate = judge_shift(candidate, baseline, count, 0);
    return low > judge_tolerance * fabs(estimate);
}

bool judge_kayenta_fails(const struct judge_minutes *minutes)
{
    int count = minutes->minutes;
    int high = judge_high(minutes->error_rate[CANARY_CANDIDATE],
                       minutes->error_rate[CANARY_BASELINE], count) +
            judge_high(minutes->p99_s[CANARY_CANDIDATE], minutes->p99_s[CANARY_BASELINE], count);
    double score = 100.0 * (2 - high) / 2;
    return score < judge_marginal;
}

bool judge_fixed_fails(const struct judge_minutes *minutes)
{
    int last = minutes->minutes - 1;
    return minutes->error_rate[CANARY_CANDIDATE][last] > 0.01 ||
            !(minutes->p99_s[CANARY_CANDIDATE][last] <=
                    1.1 * minutes->p99_s[CANARY_BASELINE][last]);
}
