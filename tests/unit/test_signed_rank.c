// SPDX-License-Identifier: Apache-2.0
// Exact signed-rank interval against enumeration and scipy (tests/unit/reference_values.py).
#include "reports/analyse/signed_rank.h"

#include "reports/analyse/mean_interval.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

static const double sample[10] = {
        0.011, -0.004, 0.023, 0.017, 0.002, 0.031, 0.008, -0.012, 0.019, 0.26};

TEST(critical_values)
{
    CHECK_INT(signed_rank_critical(10, 0.0025), 1);
    CHECK_INT(signed_rank_critical(14, 0.0025), 9);
    CHECK_INT(signed_rank_critical(20, 0.0025), 32);
    CHECK_INT(signed_rank_critical(28, 0.0025), 82);
    CHECK_INT(signed_rank_critical(7, 0.01), 0);
    CHECK_INT(signed_rank_critical(10, 0.01), 5);
    CHECK_INT(signed_rank_critical(60, 0.0025), 537);
    CHECK_INT(signed_rank_critical(6, 0.01), -1);
    CHECK_INT(signed_rank_critical(0, 0.5), -1);
    CHECK_DBL(signed_rank_cdf(10, 8), 0.0244140625, 1e-15);
    CHECK_DBL(signed_rank_cdf(28, 100), 0.008943457156419754, 1e-14);
    CHECK_DBL(signed_rank_cdf(60, 600), 0.009916129740945072, 1e-13);
    CHECK_DBL(signed_rank_cdf(5, 15), 1, 1e-15);
}

TEST(critical_value_of_equal_level)
{
    // 2^-5 = .03125 exactly: alpha equal to it must count.
    CHECK_INT(signed_rank_critical(5, 0.03125), 0);
    CHECK_INT(signed_rank_critical(5, 0.0312), -1);
}

TEST(normal_approximation_joins_the_exact_one)
{
    // n = 61 by the approximation lies between what n = 60 gives and n = 60 plus a rank sum's
    // growth.
    int exact = signed_rank_critical(60, 0.0025), next = signed_rank_critical(61, 0.0025);
    CHECK(next > exact && next < exact + 61);
}

TEST(least_number_of_pairs)
{
    CHECK_INT(signed_rank_observations_min(0.05), 5);
    CHECK_INT(signed_rank_observations_min(0.01), 7);
    CHECK_INT(signed_rank_observations_min(0.002), 9);
    CHECK_INT(signed_rank_observations_min(0.001), 10);
    for (int n = 1; n < 20; n++)
        CHECK((signed_rank_critical(n, 0.01) >= 0) == (n >= signed_rank_observations_min(0.01)));
}

TEST(interval_of_a_sample_with_an_outlier)
{
    struct interval got = signed_rank_interval(sample, 10, 0.0025);
    CHECK(got.has_bounds);
    CHECK_DBL(got.estimate, 0.0135, 1e-15);
    CHECK_DBL(got.lower, -0.008, 1e-15);
    CHECK_DBL(got.upper, 0.1455, 1e-15);
    got = signed_rank_interval(sample, 10, 0.01);
    CHECK_DBL(got.lower, -0.001, 1e-15);
    CHECK_DBL(got.upper, 0.1355, 1e-15);
    got = signed_rank_interval(sample, 10, 0.05);
    CHECK_DBL(got.lower, 0.0035, 1e-15);
    CHECK_DBL(got.upper, 0.031, 1e-15);
}

TEST(too_few_observations_give_no_interval)
{
    struct interval got = signed_rank_interval(sample, 8, 0.0025);
    CHECK(!got.has_bounds);
    CHECK(isnan(got.lower) && isnan(got.upper));
    CHECK(isfinite(got.estimate));
    got = signed_rank_interval(sample, 0, 0.05);
    CHECK(isnan(got.estimate) && !got.has_bounds);
}

TEST(mean_interval_cross_check)
{
    struct interval got = mean_interval(sample, 10, 0.0025);
    CHECK_DBL(got.estimate, 0.0355, 1e-15);
    CHECK_DBL(got.lower, -0.05774988585113098, 1e-12);
    CHECK_DBL(got.upper, 0.12874988585113134, 1e-12);
    CHECK(!mean_interval(sample, 1, 0.01).has_bounds);
}

TEST(coverage_is_what_alpha_says)
{
    // Laplace noise about theta: each bound may miss with at most alpha = .05 (discreteness makes
    // it less).
    struct random_state random = {5};
    enum { ROUNDS = 4000, COUNT = 12 };
    int below = 0, above = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double values[COUNT];
        for (int i = 0; i < COUNT; i++) {
            double u = random_uniform(&random) - 0.5;
            values[i] = 1 - copysign(log1p(-2 * fabs(u)), u);
        }
        struct interval got = signed_rank_interval(values, COUNT, 0.05);
        below += got.upper < 1;
        above += got.lower > 1;
    }
    // Exact one-sided level at n = 12, alpha .05: P(T+ <= 17) = .0461; 4 sigma of 4,000 draws =
    // .0133.
    CHECK_DBL((double)below / ROUNDS, signed_rank_cdf(12, 17), 0.0133);
    CHECK_DBL((double)above / ROUNDS, signed_rank_cdf(12, 17), 0.0133);
}
