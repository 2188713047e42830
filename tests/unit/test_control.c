// SPDX-License-Identifier: Apache-2.0
// What certifies and, above all, what does not: biased, noisy, short, deaf and wrong measurements.
#include "reports/analyse/control.h"

#include <math.h>

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { PAIRS = 10 };

static const struct control_rule rule = {.alpha = 0.0025, .margin = 0.02, .pairs_min = PAIRS};

static struct data {
    double aa[PAIRS], held[PAIRS], without[PAIRS];
} data;

// Control pairs in which `seen` of the planted slow-down reaches the measurement.
static struct control_values values_make(
        double bias, double sd, double planted, double seen, uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < PAIRS; i++) {
        data.aa[i] = bias + sd * random_normal(&random);
        data.held[i] = bias + sd * random_normal(&random) + seen * planted;
        data.without[i] = data.held[i] - planted;
    }
    return (struct control_values){data.aa, PAIRS, data.held, data.without, PAIRS};
}

static enum control_state state_of(double bias, double sd, double planted, double seen)
{
    struct control_values values = values_make(bias, sd, planted, seen, 5);
    return control_judge(&rule, &values).state;
}

TEST(a_good_control_certifies)
{
    struct control_values values = values_make(0, 0.003, log1p(0.02), 1, 5);
    struct control_result result = control_judge(&rule, &values);
    CHECK_INT(result.state, CONTROL_CERTIFIED);
    CHECK(result.felt);
    CHECK_DBL(result.planted, log1p(0.02), 1e-12);
    CHECK(result.held.lower > 0 && result.held.lower <= log1p(0.02));
    CHECK(result.mde < 0.02 && result.mde > 0);
    CHECK_INT(result.aa_pairs, PAIRS);
}

TEST(what_cannot_be_trusted_does_not)
{
    CHECK_INT(state_of(log(1.5), 0.003, log1p(0.02), 1), CONTROL_BIASED);
    CHECK_INT(state_of(-log(1.5), 0.003, log1p(0.02), 1), CONTROL_BIASED);
    CHECK_INT(state_of(0.012, 0.003, log1p(0.02), 1), CONTROL_BIASED); // beyond half the margin
    CHECK_INT(state_of(0, 0.05, log1p(0.02), 1), CONTROL_BIASED);      // or not known to be within
    CHECK_INT(state_of(0, 0.003, log1p(0.02), 0), CONTROL_NOT_FOUND);  // deaf
    CHECK_INT(state_of(0, 0.003, log1p(0.02), -1), CONTROL_NOT_FOUND); // the wrong way round
    CHECK_INT(state_of(0, 0.001, log1p(0.02), 0.5), CONTROL_WRONG_SIZE);
    CHECK_INT(state_of(0, 0.001, log1p(0.02), 2), CONTROL_WRONG_SIZE);
    // significant, and nothing
    CHECK_INT(state_of(0, 0.00001, log1p(0.02), 0.99), CONTROL_CERTIFIED);
}

TEST(too_few_pairs_do_not)
{
    struct control_values values = values_make(0, 0.003, log1p(0.02), 1, 5);
    values.aa_count = 3;
    CHECK_INT(control_judge(&rule, &values).state, CONTROL_TOO_FEW);
    values.aa_count = PAIRS;
    values.held_count = 3;
    CHECK_INT(control_judge(&rule, &values).state, CONTROL_TOO_FEW_HELD);
    values.held_count = 0;
    CHECK_INT(control_judge(&rule, &values).state, CONTROL_TOO_FEW_HELD);
    values.held_count = PAIRS;
    for (int i = 0; i < PAIRS; i++)
        data.aa[i] = NAN; // launches without this metric
    CHECK_INT(control_judge(&rule, &values).state, CONTROL_TOO_FEW);
    struct control_rule short_rule = rule;
    short_rule.pairs_min = 3;
    values = values_make(0, 0.003, log1p(0.02), 1, 5);
    values.aa_count = values.held_count = 3; // no interval at this alpha
    CHECK_INT(control_judge(&short_rule, &values).state, CONTROL_TOO_FEW);
}

TEST(own_pairs_are_asked_for_their_estimate)
{
    struct control_rule own = rule;
    own.own_pairs = true;
    struct control_values values = values_make(0.004, 0.005, log1p(0.02), 1, 5);
    values.aa = data.without;
    struct control_result result = control_judge(&own, &values);
    CHECK_INT(result.state, CONTROL_CERTIFIED);
    CHECK_INT(control_judge(&rule, &values).state, CONTROL_BIASED); // its interval is too wide
    values = values_make(0, 0.02, log1p(0.02), 1, 5);
    values.aa = data.without;
    CHECK_INT(control_judge(&own, &values).state, CONTROL_INSENSITIVE);
    values = values_make(log(1.5), 0.003, log1p(0.02), 1, 5);
    values.aa = data.without;
    CHECK_INT(control_judge(&own, &values).state, CONTROL_BIASED);
}

TEST(a_metric_that_does_not_feel_it_rests_on_equal_sides)
{
    struct control_values values = values_make(0, 0.003, 0, 1, 5);
    struct control_result result = control_judge(&rule, &values);
    CHECK_INT(result.state, CONTROL_CERTIFIED);
    CHECK(!result.felt);
    for (int i = 0; i < PAIRS; i++) // memory, to the byte
        data.aa[i] = data.held[i] = data.without[i] = 0;
    result = control_judge(&rule, &values);
    CHECK_INT(result.state, CONTROL_CERTIFIED);
    CHECK_DBL(result.mde, 0, 0);
}

// How often a spread that is the same is called larger; F quantiles from scipy.stats.f.ppf(.95).
TEST(spreads)
{
    CHECK(control_spread_covered(0.004, 10, 0.0001, 10, 0.02, 0.05)); // a quarter of the margin
    CHECK(control_spread_covered(0.01, 10, 0.02, 10, 0.02, 0.05));
    double limit = sqrt(3.178893104); // 9, 9
    CHECK(control_spread_covered(0.01 * limit * 0.999, 10, 0.01, 10, 0.02, 0.05));
    CHECK(!control_spread_covered(0.01 * limit * 1.001, 10, 0.01, 10, 0.02, 0.05));
    limit = sqrt(2.250131477); // 9, 27
    CHECK(control_spread_covered(0.01 * limit * 0.999, 10, 0.01, 28, 0.02, 0.05));
    CHECK(!control_spread_covered(0.01 * limit * 1.001, 10, 0.01, 28, 0.02, 0.05));
    CHECK(!control_spread_covered(0.01, 10, 0, 10, 0.02, 0.05));
    CHECK(!control_spread_covered(NAN, 10, 0.01, 10, 0.02, 0.05));
    CHECK(!control_spread_covered(0.01, 10, NAN, 10, 0.02, 0.05));
}
