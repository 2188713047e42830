// SPDX-License-Identifier: Apache-2.0
// Reads arrays of log ratios, says what they certify. Pure.
#include "reports/analyse/control.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/distribution.h"
#include "reports/analyse/power.h"
#include "reports/analyse/quantile.h"

static int control_pick(const double *values, const double *beside, int count, double *ret_picked)
{
    int used = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(values[i]) && !(beside && isnan(beside[i])))
            ret_picked[used++] = values[i];
    return used;
}

static void control_judge_aa(const struct control_rule *rule, const struct control_values *values,
        struct control_result *result)
{
    double *aa = xcalloc((size_t)values->aa_count, sizeof *aa), half = 0.5 * log1p(rule->margin);
    result->aa_pairs = control_pick(values->aa, NULL, values->aa_count, aa);
    result->aa = signed_rank_interval(aa, result->aa_pairs, rule->alpha);
    double sd = power_sd_of_interval(&result->aa, result->aa_pairs, rule->alpha);
    result->mde = power_mde(sd, result->aa_pairs, rule->alpha, POWER_DEFAULT);
    result->pair_sd = quantile_sd(aa, (size_t)result->aa_pairs);
    bool within = rule->own_pairs ? fabs(result->aa.estimate) < half
                                  : result->aa.lower > -half && result->aa.upper < half;
    if (result->aa_pairs < rule->pairs_min || !result->aa.has_bounds)
        result->state = CONTROL_TOO_FEW;
    else if (!within)
        result->state = CONTROL_BIASED;
    else if (!(result->mde < rule->margin))
        result->state = CONTROL_INSENSITIVE;
    free(aa);
}

// What was planted moves a metric by a known amount in each pair, which `without` shows. A metric
// that hardly feels it (memory; the length of a warm-up) cannot be asked to find it.
static void control_judge_held(const struct control_rule *rule, const struct control_values *values,
        struct control_result *result)
{
    size_t size = (size_t)values->held_count;
    double *held = xcalloc(size, sizeof *held), *without = xcalloc(size, sizeof *without);
    double *planted = xcalloc(size, sizeof *planted);
    int count = control_pick(values->held, values->without, values->held_count, held);
    control_pick(values->without, values->held, values->held_count, without);
    for (int i = 0; i < count; i++)
        planted[i] = held[i] - without[i];
    struct interval rest = signed_rank_interval(without, count, rule->alpha);
    result->held_pairs = count;
    result->held = signed_rank_interval(held, count, rule->alpha);
    result->planted = quantile_median(planted, (size_t)count);
    result->felt = result->planted >= 0.5 * log1p(rule->margin);
    enum control_state state = CONTROL_CERTIFIED;
    if (count < rule->pairs_min || !result->held.has_bounds)
        state = CONTROL_TOO_FEW_HELD;
    else if (result->felt && !(result->held.lower > 0))
        state = CONTROL_NOT_FOUND;
    else if (result->felt && !(rest.lower <= 0 && rest.upper >= 0) &&
            fabs(rest.estimate) > 0.25 * log1p(rule->margin))
        state = CONTROL_WRONG_SIZE;
    if (result->state == CONTROL_CERTIFIED)
        result->state = state;
    free(held);
    free(without);
    free(planted);
}

struct control_result control_judge(
        const struct control_rule *rule, const struct control_values *values)
{
    struct control_result result = {.planted = NAN};
    control_judge_aa(rule, values, &result);
    control_judge_held(rule, values, &result);
    return result;
}

bool control_spread_covered(double pair_sd, int pairs, double control_sd, int control_pairs,
        double margin, double alpha)
{
    if (pair_sd <= 0.25 * log1p(margin) || pair_sd <= control_sd)
        return true;
    if (pairs < 2 || control_pairs < 2 || !(control_sd > 0) || isnan(pair_sd))
        return false;
    double f = pair_sd * pair_sd / (control_sd * control_sd);
    double above = pairs - 1, below = control_pairs - 1;
    // P(F <= f) is the regularised incomplete beta at above f / (above f + below).
    return distribution_beta_cdf(above / 2, below / 2, above * f / (above * f + below)) <=
            1 - alpha;
}
