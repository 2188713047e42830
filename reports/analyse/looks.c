// SPDX-License-Identifier: Apache-2.0
// Three-way rule with looks: reads an array of oriented log ratios, says pass, fail or go on.
#include "reports/analyse/looks.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/quantile.h"

static const double looks_confidence = 0.95;
// Of normal noise 6 pairs in 100,000 lie further out.
static const double looks_odd_sd = 4;

double looks_share_seen(int pairs)
{
    return 1 - pow(1 - looks_confidence, 1.0 / pairs);
}

static struct looks_odd looks_find_odd(const double *values, int count, double margin)
{
    struct looks_odd odd = {.worse_by = NAN};
    double typical = quantile_median(values, (size_t)count), sum = 0;
    double reach = fmax(log1p(margin), looks_odd_sd * quantile_mad_sd(values, (size_t)count));
    for (int i = 0; i < count; i++) {
        odd.worse += values[i] > typical + reach;
        odd.better += values[i] < typical - reach;
        sum += values[i] > typical + reach ? values[i] - typical : 0;
    }
    if (odd.worse)
        odd.worse_by = sum / odd.worse;
    odd.share_bound = binomial_upper_bound(odd.worse, count, looks_confidence);
    return odd;
}

// What keeps a typical pair within the margin from being a pass: the mean is beyond it, or slow
// launches are on the candidate's side only and there may be so many that it is.
static bool looks_withheld(const struct looks_result *result, double margin)
{
    const struct looks_odd *odd = &result->odd;
    if (result->mean.estimate > log1p(margin))
        return true;
    return odd->worse && !odd->better && odd->share_bound * expm1(odd->worse_by) > margin;
}

// The mean is beyond the margin: by its t bound, which a skew to the slow side makes only more
// careful, and with signs that a coin does not give (exact, whatever the distribution).
// Half of alpha: the typical pair spends most of it (together 0.6 to 1.0 %, ci/sim/gate_sim).
static bool looks_mean_fails(const double *values, int count, double alpha, double margin)
{
    struct interval mean = mean_interval(values, count, alpha);
    return mean.has_bounds && mean.lower > log1p(margin) && mean_sign_p(values, count) <= alpha;
}

static struct looks_result looks_once(const double *values, int count, double alpha, double margin)
{
    struct looks_result result = {.look = -1,
            .pairs = count,
            .alpha = alpha,
            .interval = signed_rank_interval(values, count, alpha),
            .mean = mean_interval(values, count, alpha),
            .odd = {.worse_by = NAN, .share_bound = 1}};
    if (count > 0)
        result.odd = looks_find_odd(values, count, margin);
    if (!result.interval.has_bounds)
        return result;
    result.improved = result.interval.upper < -log1p(margin);
    if (result.interval.lower > log1p(margin))
        result.state = LOOKS_FAIL;
    else if (looks_mean_fails(values, count, alpha / 2, margin))
        result.state = LOOKS_FAIL, result.by_mean = true;
    else if (result.interval.upper < log1p(margin))
        result.state = looks_withheld(&result, margin) ? LOOKS_MIXED : LOOKS_PASS;
    return result;
}

// Do all pairs speak against a pass? Where the test fails on them, where it would be withheld, or
// where the typical one is beyond the margin by its estimate. A wider interval alone is no reason:
// the pass was proved without these pairs.
static bool looks_contradict(const struct looks_result *all, double margin)
{
    return all->state == LOOKS_FAIL || all->interval.estimate > log1p(margin) ||
            looks_withheld(all, margin);
}

// A decision at look k, held against what came since.
static struct looks_result looks_hold(const struct looks_rule *rule, const double *values,
        int count, const struct looks_result *decided)
{
    if (decided->state != LOOKS_PASS || count <= decided->pairs)
        return *decided;
    struct looks_result all = looks_once(values, count, decided->alpha, rule->margin);
    if (!looks_contradict(&all, rule->margin))
        return *decided;
    all.state = LOOKS_WITHDRAWN;
    all.look = decided->look;
    all.passed = decided->pairs;
    all.by_mean = false;
    return all;
}

struct looks_result looks_judge(const struct looks_rule *rule, const double *values, int count)
{
    double alpha = rule->alpha / (rule->look_count > 0 ? rule->look_count : 1);
    struct looks_result result = looks_once(values, 0, alpha, rule->margin);
    for (int k = 0; k < rule->look_count; k++) {
        if ((uint64_t)count < rule->looks[k]) {
            result.next = (int)rule->looks[k];
            break;
        }
        result = looks_once(values, (int)rule->looks[k], alpha, rule->margin);
        bool last = k == rule->look_count - 1;
        if (result.state == LOOKS_UNDECIDED && last && rule->fail_on_likely &&
                result.interval.has_bounds && result.interval.lower > 0 &&
                result.interval.estimate >= log1p(rule->margin)) {
            result.state = LOOKS_FAIL;
            result.likely = true;
        }
        if (result.state == LOOKS_PASS || result.state == LOOKS_FAIL ||
                (last && result.state == LOOKS_MIXED)) {
            result.look = k;
            return looks_hold(rule, values, count, &result);
        }
        result.state = last ? LOOKS_EXHAUSTED : LOOKS_UNDECIDED;
    }
    if (result.pairs == 0) {
        int next = result.next;
        result = looks_once(values, count, alpha, rule->margin);
        result.state = LOOKS_UNDECIDED;
        result.next = next;
    }
    return result;
}

struct looks_rule looks_confirm(const struct looks_rule *rule, int pairs)
{
    struct looks_rule fresh = {.alpha = rule->alpha, .margin = rule->margin};
    int least = signed_rank_observations_min(rule->alpha);
    fresh.looks[fresh.look_count++] = (uint64_t)(least > pairs ? least : pairs);
    for (int i = 0; i < rule->look_count && fresh.look_count < LOOKS_MAX; i++)
        if (rule->looks[i] > fresh.looks[0])
            fresh.looks[fresh.look_count++] = rule->looks[i];
    return fresh;
}
