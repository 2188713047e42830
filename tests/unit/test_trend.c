// SPDX-License-Identifier: Apache-2.0
// Theil-Sen slope against scipy.stats.theilslopes (tests/unit/reference_values.py).
#include "reports/analyse/trend.h"

#include <stdlib.h>

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

TEST(slope_with_an_outlier)
{
    static const double series[12] = {1.0, 1.2, 0.9, 1.4, 1.3, 1.7, 1.5, 1.8, 5.0, 2.0, 1.9, 2.2};
    struct interval slope = trend_slope(series, 12, 0.05);
    CHECK_DBL(slope.estimate, 0.1, 1e-12);
    // scipy rounds the ranks to the nearest, we outwards: at most one slope of 66 wider.
    CHECK(slope.lower <= 0.08333333333333333 && slope.lower > 0.07);
    CHECK(slope.upper >= 0.15714285714285717 && slope.upper < 0.18);
}

TEST(no_trend_is_rarely_seen_as_one)
{
    struct random_state random = {21};
    int alarms = 0;
    for (int round = 0; round < 500; round++) {
        double series[40];
        for (int i = 0; i < 40; i++)
            series[i] = random_normal(&random);
        struct interval slope = trend_slope(series, 40, 0.05);
        alarms += slope.lower > 0 || slope.upper < 0;
    }
    CHECK(alarms <= 45); // 5 % of 500 = 25, sd 4.9
    CHECK(alarms >= 5);
}

TEST(short_and_long_series)
{
    double two[2] = {1, 3};
    CHECK_DBL(trend_slope(two, 2, 0.05).estimate, 2, 1e-15);
    CHECK(!trend_slope(two, 2, 0.05).has_bounds);
    CHECK(isnan(trend_slope(two, 1, 0.05).estimate));
    enum { LONG = 3 * TREND_VALUES_MAX + 7 };
    double *series = malloc(LONG * sizeof *series);
    for (int i = 0; i < LONG; i++)
        series[i] = 0.25 * i;
    CHECK_DBL(trend_slope(series, LONG, 0.05).estimate, 0.25, 1e-12);
    free(series);
}
