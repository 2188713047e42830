// SPDX-License-Identifier: Apache-2.0
// Three-way rule with looks: reads an array of oriented log ratios, says pass, fail or go on.
#include "reports/analyse/looks.h"

#include <math.h>

#include "reports/analyse/mean_interval.h"

enum looks_state looks_decide(const struct interval *interval, double margin)
{
    if (!interval->has_bounds)
        return LOOKS_UNDECIDED;
    if (interval->upper < log1p(margin))
        return LOOKS_PASS;
    if (interval->lower > log1p(margin))
        return LOOKS_FAIL;
    return LOOKS_UNDECIDED;
}

static void looks_at(struct looks_result *result, const double *values, int pairs, double alpha,
                     double margin)
{
    result->pairs = pairs;
    result->alpha = alpha;
    result->interval = signed_rank_interval(values, pairs, alpha);
    result->mean = mean_interval(values, pairs, alpha);
    result->improved = result->interval.has_bounds && result->interval.upper < -log1p(margin);
}

// Pass against fail is the contradiction; a mean that cannot decide is only wider, as outliers make
// it.
static bool looks_contradicted(const struct looks_result *result, enum looks_state state,
                               double margin)
{
    enum looks_state mean = looks_decide(&result->mean, margin);
    return (state == LOOKS_PASS && mean == LOOKS_FAIL) ||
           (state == LOOKS_FAIL && mean == LOOKS_PASS);
}

struct looks_result looks_judge(const struct looks_rule *rule, const double *values, int count)
{
    struct looks_result result = {.look = -1};
    double alpha = rule->alpha / (rule->look_count > 0 ? rule->look_count : 1);
    looks_at(&result, values, 0, alpha, rule->margin);
    for (int k = 0; k < rule->look_count; k++) {
        if ((uint64_t)count < rule->looks[k]) {
            result.next = (int)rule->looks[k];
            break;
        }
        looks_at(&result, values, (int)rule->looks[k], alpha, rule->margin);
        enum looks_state state = looks_decide(&result.interval, rule->margin);
        bool last = k == rule->look_count - 1;
        if (state == LOOKS_UNDECIDED && last && rule->fail_on_likely &&
            result.interval.has_bounds && result.interval.lower > 0 &&
            result.interval.estimate >= log1p(rule->margin)) {
            state = LOOKS_FAIL;
            result.likely = true;
        }
        if (state != LOOKS_UNDECIDED) {
            result.state =
                looks_contradicted(&result, state, rule->margin) ? LOOKS_HEAVY_TAIL : state;
            result.look = k;
            return result;
        }
        if (last)
            result.state = LOOKS_EXHAUSTED;
    }
    if (result.pairs == 0)
        looks_at(&result, values, count, alpha, rule->margin);
    return result;
}
