// SPDX-License-Identifier: Apache-2.0
// Distributions against scipy (tests/unit/reference_values.py), and order statistics.
#include "reports/analyse/distribution.h"

#include "reports/analyse/quantile.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

TEST(normal_quantiles)
{
    CHECK_DBL(distribution_normal_quantile(1e-12), -7.034483825301131, 1e-9);
    CHECK_DBL(distribution_normal_quantile(0.0025), -2.8070337683438042, 1e-12);
    CHECK_DBL(distribution_normal_quantile(0.3), -0.5244005127080409, 1e-12);
    CHECK_DBL(distribution_normal_quantile(0.975), 1.959963984540054, 1e-12);
    CHECK(isnan(distribution_normal_quantile(0)));
    CHECK(isnan(distribution_normal_quantile(1)));
}

TEST(t_quantiles)
{
    CHECK_DBL(distribution_t_quantile(0.0025, 9), -3.689662392304231, 1e-10);
    CHECK_DBL(distribution_t_quantile(0.01, 5), -3.364929998907218, 1e-10);
    CHECK_DBL(distribution_t_quantile(0.9, 27), 1.3137029128292737, 1e-10);
    CHECK_DBL(distribution_t_quantile(0.975, 1), 12.706204736174694, 1e-8);
    CHECK_DBL(distribution_t_quantile(0.999, 200), 3.131479814221121, 1e-10);
    CHECK(isnan(distribution_t_quantile(0.5, 0)));
}

// Far into the tail too, where Newton's steps do not arrive and bisection ends it.
TEST(a_t_quantile_has_its_probability)
{
    int count = 0;
    for (double degrees = 2; degrees < 1000; degrees *= 2.3)
        for (double p = 1e-150; p < 0.4; p *= p < 1e-9 ? 1e13 : 3, count++) {
            double back = distribution_t_cdf(distribution_t_quantile(p, degrees), degrees);
            CHECK_DBL(back / p, 1, 1e-9);
        }
    CHECK(count > 100);
}

TEST(beta_cdf)
{
    CHECK_DBL(distribution_beta_cdf(2, 3, 0.4), 0.5248, 1e-13);
    CHECK_DBL(distribution_beta_cdf(0.5, 0.5, 0.01), 0.06376856085851985, 1e-13);
    CHECK_DBL(distribution_beta_cdf(661, 2, 0.99), 0.00991398564545932, 1e-13);
    CHECK_DBL(distribution_beta_cdf(30, 1, 0.97), 0.4010070685431575, 1e-12);
    CHECK_DBL(distribution_beta_cdf(1000, 1000, 0.5), 0.5, 1e-11);
    CHECK_DBL(distribution_beta_cdf(2, 3, 0), 0, 0);
    CHECK_DBL(distribution_beta_cdf(2, 3, 1), 1, 0);
    CHECK_DBL(distribution_beta_cdf(2, 3, distribution_beta_quantile(2, 3, 0.2)), 0.2, 1e-12);
}

TEST(order_statistics)
{
    double values[] = {5, 1, 4, 1, 3, 9};
    CHECK_DBL(quantile_median(values, 6), 3.5, 0);
    CHECK_DBL(quantile_median(values, 5), 3, 0);
    CHECK(isnan(quantile_median(values, 0)));
    CHECK_DBL(values[0], 5, 0); // left as it was
    CHECK_DBL(quantile_sd(values, 6), 2.994439290863427, 1e-12);
    CHECK(isnan(quantile_sd(values, 1)));
    double hundred[100];
    for (int i = 0; i < 100; i++)
        hundred[i] = i + 1;
    CHECK_DBL(quantile_nearest_rank(hundred, 100, 0.99), 99, 0);
    CHECK_DBL(quantile_nearest_rank(hundred, 100, 0.5), 50, 0);
    CHECK_DBL(quantile_nearest_rank(hundred, 100, 1), 100, 0);
    CHECK_DBL(quantile_nearest_rank(hundred, 1, 0.99), 1, 0);
}

TEST(selection_agrees_with_sorting)
{
    struct random_state random = {11};
    double values[101], sorted[101];
    for (int round = 0; round < 200; round++) {
        size_t count = 1 + random_next(&random) % 101;
        for (size_t i = 0; i < count; i++)
            values[i] = sorted[i] = (double)(random_next(&random) % 17); // many ties
        quantile_sort(sorted, count);
        size_t k = random_next(&random) % count;
        CHECK_DBL(quantile_select(values, count, k), sorted[k], 0);
    }
}

TEST(random_numbers_have_their_moments)
{
    struct random_state random = {3};
    double sum = 0, square = 0;
    enum { DRAWS = 20000 };
    for (int i = 0; i < DRAWS; i++) {
        double z = random_normal(&random);
        sum += z;
        square += z * z;
    }
    CHECK_DBL(sum / DRAWS, 0, 0.03);
    CHECK_DBL(square / DRAWS, 1, 0.04);
    struct random_state again = {3};
    CHECK_DBL(random_normal(&again), random_normal(&(struct random_state){3}), 0);
}
