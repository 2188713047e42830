// SPDX-License-Identifier: Apache-2.0
// The three-way rule: each outcome, the replay of looks, contradiction, likely, re-splits.
#include "reports/analyse/looks.h"

#include "reports/analyse/random.h"
#include "reports/analyse/resplit.h"
#include "tests/unit/runner.h"

static const struct looks_rule rule = {
    .alpha = 0.01, .looks = {10, 14, 20, 28}, .look_count = 4, .margin = 0.02};

static void values_make(double *values, int count, double theta, double sd, uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < count; i++)
        values[i] = theta + sd * random_normal(&random);
}

TEST(pass_fail_improved)
{
    double values[28];
    values_make(values, 28, 0, 0.005, 1);
    struct looks_result got = looks_judge(&rule, values, 10);
    CHECK_INT(got.state, LOOKS_PASS);
    CHECK_INT(got.look, 0);
    CHECK_DBL(got.alpha, 0.0025, 1e-15);
    CHECK(!got.improved);
    values_make(values, 28, 0.05, 0.005, 2);
    got = looks_judge(&rule, values, 10);
    CHECK_INT(got.state, LOOKS_FAIL);
    CHECK(got.interval.lower < 0.05 && got.interval.upper > 0.05);
    values_make(values, 28, -0.05, 0.005, 3);
    got = looks_judge(&rule, values, 10);
    CHECK_INT(got.state, LOOKS_PASS);
    CHECK(got.improved);
}

TEST(undecided_goes_on_and_ends)
{
    double values[28];
    values_make(values, 28, 0.0198, 0.02, 4);
    struct looks_result got = looks_judge(&rule, values, 9);
    CHECK_INT(got.state, LOOKS_UNDECIDED);
    CHECK_INT(got.next, 10);
    CHECK_INT(got.pairs, 9);
    got = looks_judge(&rule, values, 17);
    CHECK_INT(got.state, LOOKS_UNDECIDED);
    CHECK_INT(got.next, 20);
    CHECK_INT(got.pairs, 14); // the interval of the look, not of what came since
    got = looks_judge(&rule, values, 28);
    CHECK_INT(got.state, LOOKS_EXHAUSTED);
    CHECK_INT(got.next, 0);
    CHECK_INT(got.look, -1);
}

TEST(a_decision_sticks)
{
    double values[28];
    values_make(values, 10, 0, 0.004, 5);
    for (int i = 10; i < 28; i++)
        values[i] = 0.5; // a catastrophe after the decision does not reopen it
    struct looks_result first = looks_judge(&rule, values, 10),
                        later = looks_judge(&rule, values, 28);
    CHECK_INT(first.state, LOOKS_PASS);
    CHECK_INT(later.state, LOOKS_PASS);
    CHECK_INT(later.pairs, 10);
    CHECK_DBL(later.interval.upper, first.interval.upper, 0);
}

TEST(too_few_pairs_for_alpha_never_decide)
{
    struct looks_rule early = {.alpha = 0.01, .looks = {5, 8}, .look_count = 2, .margin = 0.02};
    double values[8] = {0};
    struct looks_result got = looks_judge(&early, values, 5); // alpha .005 needs 8
    CHECK_INT(got.state, LOOKS_UNDECIDED);
    CHECK(!got.interval.has_bounds);
    CHECK_INT(looks_judge(&early, values, 8).state, LOOKS_PASS);
    early.looks[1] = 7;
    CHECK_INT(looks_judge(&early, values, 8).state, LOOKS_EXHAUSTED);
}

TEST(no_values)
{
    struct looks_result got = looks_judge(&rule, NULL, 0);
    CHECK_INT(got.state, LOOKS_UNDECIDED);
    CHECK(isnan(got.interval.estimate));
    CHECK_INT(got.next, 10);
}

TEST(heavy_tail_contradiction)
{
    // 60 pairs, 52 just above the margin, 8 far below: the signed ranks say fail, the mean says
    // pass.
    struct looks_rule one = {.alpha = 0.01, .looks = {60}, .look_count = 1, .margin = 0.02};
    double values[60];
    for (int i = 0; i < 60; i++)
        values[i] = i < 8 ? -0.06 : 0.0202 + 1e-5 * i;
    struct looks_result got = looks_judge(&one, values, 60);
    CHECK_INT(looks_decide(&got.interval, 0.02), LOOKS_FAIL);
    CHECK_INT(looks_decide(&got.mean, 0.02), LOOKS_PASS);
    CHECK_INT(got.state, LOOKS_HEAVY_TAIL);
}

TEST(likely_fails_only_when_asked)
{
    double values[28];
    for (int i = 0; i < 28; i++)
        values[i] = 0.024 + 0.02 * ((i * 11) % 28 - 13.5) / 8; // evenly spread, in no order
    struct looks_rule likely = rule;
    struct looks_result strict = looks_judge(&rule, values, 28);
    CHECK_INT(strict.state, LOOKS_EXHAUSTED);
    likely.fail_on_likely = true;
    struct looks_result got = looks_judge(&likely, values, 28);
    CHECK_INT(got.state, LOOKS_FAIL);
    CHECK(got.likely);
    CHECK_INT(looks_judge(&likely, values, 20).state, LOOKS_UNDECIDED); // only at the last look
    values_make(values, 28, 0.002, 0.04, 9);
    CHECK(looks_judge(&likely, values, 28).state != LOOKS_FAIL);
}

TEST(equal_values_have_an_interval_of_no_width)
{
    double values[10] = {0};
    struct looks_result got = looks_judge(&rule, values, 10);
    CHECK_INT(got.state, LOOKS_PASS);
    CHECK_DBL(got.interval.upper - got.interval.lower, 0, 0);
    for (int i = 0; i < 10; i++)
        values[i] = 0.03;
    CHECK_INT(looks_judge(&rule, values, 10).state, LOOKS_FAIL);
}

TEST(resplits_count_false_fails)
{
    double quiet[10], loud[10], gap[10];
    values_make(quiet, 10, 0, 0.005, 1);
    values_make(gap, 10, 0, 0.005, 2);
    gap[3] = NAN;
    for (int i = 0; i < 10; i++)
        loud[i] = 0.05; // an "A/A" run that is none: all signs alike in 1 of 1,024 re-splits
    struct looks_rule one = {.alpha = 0.01, .looks = {10}, .look_count = 1, .margin = 0.02};
    struct resplit_cell cells[2] = {{one, quiet, 10}, {one, gap, 10}};
    CHECK_INT(resplit_false_fails(cells, 2, 299, 7), 0);
    struct resplit_cell bad = {one, loud, 10};
    int fails = resplit_false_fails(&bad, 1, 20000, 7);
    CHECK(fails > 0);
    CHECK(fails < 400);                                       // alpha = .01 of 20,000 is 200
    CHECK_INT(resplit_false_fails(&bad, 1, 20000, 7), fails); // the seed decides
}
