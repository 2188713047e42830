// SPDX-License-Identifier: Apache-2.0
// Minimum detectable effect against scipy and the table of the design; pairs that would settle a
// cell.
#include "reports/analyse/power.h"

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

TEST(minimum_detectable_effect)
{
    CHECK_DBL(log1p(power_mde(0.003, 6, 0.01, 0.8)), 0.005247387287623307, 1e-12);
    CHECK_DBL(log1p(power_mde(0.005, 12, 0.01, 0.9)), 0.00589115152396027, 1e-12);
    CHECK_DBL(log1p(power_mde(0.02, 24, 0.01, 0.8)), 0.013706512971015496, 1e-12);
    CHECK_DBL(log1p(power_mde(0.03, 40, 0.01, 0.9)), 0.017690476924273262, 1e-12);
    CHECK(isnan(power_mde(0.01, 1, 0.01, 0.9)));
    CHECK_DBL(power_mde(0, 10, 0.01, 0.9), 0, 0);
}

TEST(pairs_that_would_settle)
{
    // ((2.3263 + 1.2816) * .01 / (ln 1.02 - 0))^2 = 3.3: below the least number for an interval.
    CHECK_INT(power_pairs_needed(0.01, 0, 0.02, 0.01, 0.9), 7);
    // sd 5 %: ((2.80703 + 1.28155) * .05 / .0198026)^2 = 106.6
    CHECK_INT(power_pairs_needed(0.05, 0, 0.02, 0.0025, 0.9), 107);
    CHECK_INT(power_pairs_needed(0.05, 2 * log1p(0.02), 0.02, 0.0025, 0.9),
            107); // as far on the other side
    CHECK_INT(power_pairs_needed(0.05, log1p(0.02), 0.02, 0.0025, 0.9), -1);
    CHECK_INT(power_pairs_needed(NAN, 0, 0.02, 0.0025, 0.9), -1);
}

TEST(spread_of_an_interval)
{
    // Normal data: the spread seen through the interval is the sd, within the noise of 400 samples.
    struct random_state random = {9};
    double sum = 0;
    enum { ROUNDS = 400, PAIRS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        double values[PAIRS];
        for (int i = 0; i < PAIRS; i++)
            values[i] = 0.01 * random_normal(&random);
        struct interval interval = signed_rank_interval(values, PAIRS, 0.0025);
        sum += power_sd_of_interval(&interval, PAIRS, 0.0025);
    }
    CHECK_DBL(sum / ROUNDS, 0.01, 0.001);
    struct interval none = {.has_bounds = false};
    CHECK(isnan(power_sd_of_interval(&none, 20, 0.01)));
}
