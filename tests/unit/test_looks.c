// SPDX-License-Identifier: Apache-2.0
// The three-way rule: each outcome, the replay of looks, contradiction, likely.
#include "reports/analyse/looks.h"

#include "reports/analyse/mean_interval.h"
#include "reports/analyse/random.h"
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
        values[i] = i % 2 ? 0.012 : -0.012; // more noise, no other place
    struct looks_result first = looks_judge(&rule, values, 10),
                        later = looks_judge(&rule, values, 28);
    CHECK_INT(first.state, LOOKS_PASS);
    CHECK_INT(later.state, LOOKS_PASS);
    CHECK_INT(later.pairs, 10);
    CHECK_DBL(later.interval.upper, first.interval.upper, 0);
    values_make(values, 10, 0.05, 0.004, 5);
    for (int i = 10; i < 28; i++)
        values[i] = -0.5; // a fail is never taken back
    later = looks_judge(&rule, values, 28);
    CHECK_INT(later.state, LOOKS_FAIL);
    CHECK_INT(later.pairs, 10);
}

// Pairs behind a pass, made because another cell was open: a catastrophe among them is no fail, and
// no pass either.
TEST(a_pass_that_later_pairs_contradict_is_withdrawn)
{
    double values[28];
    values_make(values, 10, 0, 0.004, 5);
    for (int i = 10; i < 28; i++)
        values[i] = 0.5;
    struct looks_result got = looks_judge(&rule, values, 28);
    CHECK_INT(got.state, LOOKS_WITHDRAWN);
    CHECK_INT(got.look, 0);
    CHECK_INT(got.passed, 10);
    CHECK_INT(got.pairs, 28);
    CHECK_INT(got.next, 0);
    CHECK(got.interval.estimate > log1p(0.02) && got.mean.estimate > 0.3);
    // one of them: the mean is beyond
    CHECK_INT(looks_judge(&rule, values, 11).state, LOOKS_WITHDRAWN);
    values_make(values, 28, 0, 0.004, 5);
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_PASS);
    values[20] = log(1.3); // there may be many like it, as at a look
    CHECK_INT(looks_judge(&rule, values, 20).state, LOOKS_PASS);
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_WITHDRAWN);
    values[20] = log(1.025);
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_PASS);
    values[20] = -log(1.3);
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_PASS);
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

// One launch in ten is 50 % slower: the typical pair is equal, the mean is not.
TEST(a_mixture_does_not_pass)
{
    double values[28];
    values_make(values, 28, 0, 0.003, 11);
    for (int i = 2; i < 28; i += 10)
        values[i] += log(1.5);
    struct looks_result got = looks_judge(&rule, values, 28);
    CHECK(got.interval.upper < log1p(0.02));
    CHECK_INT(got.state, LOOKS_MIXED);
    CHECK_INT(got.odd.worse, 3);
    CHECK_INT(got.odd.better, 0);
    CHECK_DBL(got.odd.worse_by, log(1.5), 0.01);
    CHECK_INT(looks_judge(&rule, values, 14).state, LOOKS_UNDECIDED); // goes on at earlier looks
    for (int i = 3; i < 28; i += 10)
        values[i] -= log(1.5); // the baseline has as many: noise of the machine
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_PASS);
}

// A single launch that is far off is not let pass as long as there may be many like it.
TEST(one_odd_launch)
{
    double values[28];
    values_make(values, 28, 0, 0.003, 12);
    values[4] = log(1.3);
    CHECK_INT(looks_judge(&rule, values, 10).state, LOOKS_UNDECIDED);
    CHECK_INT(looks_judge(&rule, values, 28).state, LOOKS_MIXED);
    values[4] = log(1.025);
    CHECK_INT(looks_judge(&rule, values, 10).state, LOOKS_PASS);
    values[4] = -log(1.3);
    CHECK_INT(looks_judge(&rule, values, 10).state, LOOKS_PASS);
}

// 11 of 28 launches are 40 % slower: the typical one need not be beyond the margin, the mean is.
TEST(the_mean_alone_can_fail)
{
    struct looks_rule once = {.alpha = 0.0025, .looks = {28}, .look_count = 1, .margin = 0.02};
    double values[28];
    values_make(values, 28, 0, 0.003, 13);
    for (int i = 0; i < 11; i++)
        values[(i * 5) % 28] += log(1.4);
    struct looks_result got = looks_judge(&once, values, 28);
    CHECK(got.interval.lower < log1p(0.02));
    CHECK(got.mean.lower > log1p(0.02));
    CHECK_INT(got.state, LOOKS_FAIL);
    CHECK(got.by_mean);
    // One outlier, however large, is no proof: its sign is a coin's.
    values_make(values, 28, 0, 0.003, 13);
    values[3] = 5;
    CHECK(looks_judge(&once, values, 28).state != LOOKS_FAIL);
}

TEST(the_share_that_is_seen)
{
    CHECK_DBL(looks_share_seen(10), 1 - pow(0.05, 0.1), 1e-12);
    CHECK_DBL(looks_share_seen(59), 0.0495, 1e-3);
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

TEST(signs_of_a_coin)
{
    double equal[10], few[30] = {0};
    for (int i = 0; i < 10; i++)
        equal[i] = 0.3;
    CHECK_DBL(mean_sign_p(equal, 10), 1.0 / 1024, 1e-12);
    equal[0] = -0.3; // the sum of 8: eleven of 1,024 signs give as much
    CHECK_DBL(mean_sign_p(equal, 10), 11.0 / 1024, 1e-12);
    few[3] = few[20] = 1;
    CHECK_DBL(mean_sign_p(few, 30), 0.25, 1e-12); // zeros say nothing
    CHECK_DBL(mean_sign_p(few, 3), 1, 0);
    // 11 large ones of one sign among small noise: 2^-11, whatever the noise.
    struct random_state random = {5};
    double mixed[28];
    for (int i = 0; i < 28; i++)
        mixed[i] = (i < 11 ? 0.3 : 0) + 0.0003 * random_normal(&random);
    CHECK_DBL(mean_sign_p(mixed, 28), 1.0 / 2048, 2e-4);
    // Uniform under the null: a twentieth of p values below 0.05, more values than are exact.
    int below = 0;
    for (int k = 0; k < 1000; k++) {
        for (int i = 0; i < 28; i++)
            mixed[i] = random_normal(&random);
        below += mean_sign_p(mixed, 28) <= 0.05;
    }
    CHECK(below > 25 && below < 80);
}
