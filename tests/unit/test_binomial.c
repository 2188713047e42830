// SPDX-License-Identifier: Apache-2.0
// Clopper-Pearson bounds, tails and request counts against scipy and the tables of the design.
#include "reports/analyse/binomial.h"

#include "tests/unit/runner.h"

TEST(clopper_pearson)
{
    CHECK_DBL(binomial_upper_bound(0, 59, 0.95), 0.04950760988846834, 1e-12);
    CHECK_DBL(binomial_upper_bound(0, 299, 0.95), 0.009969146792958022, 1e-12);
    CHECK_DBL(binomial_upper_bound(1, 100, 0.95), 0.04655981145304511, 1e-12);
    CHECK_DBL(binomial_upper_bound(3, 200, 0.95), 0.03830970849818953, 1e-12);
    CHECK_DBL(binomial_upper_bound(7, 10, 0.95), 0.9127355660858497, 1e-12);
    CHECK_DBL(binomial_upper_bound(10, 10, 0.95), 1, 0);
    CHECK_DBL(binomial_upper_bound(0, 0, 0.95), 1, 0); // no evidence bounds nothing
}

TEST(tails)
{
    CHECK_DBL(binomial_tail(7, 7, 0.5), 0.0078125, 1e-14);
    CHECK_DBL(binomial_tail(30, 100, 0.2), 0.011248978720991648, 1e-12);
    CHECK_DBL(binomial_tail(0, 5, 0.5), 1, 0);
    CHECK_DBL(binomial_tail(6, 5, 0.5), 0, 0);
}

TEST(requests_for_a_percentile)
{
    CHECK_INT(binomial_requests_min(0.90, 1, 0.01), 64);
    CHECK_INT(binomial_requests_min(0.90, 10, 0.01), 197);
    CHECK_INT(binomial_requests_min(0.95, 1, 0.01), 130);
    CHECK_INT(binomial_requests_min(0.97, 1, 0.01), 219);
    CHECK_INT(binomial_requests_min(0.99, 1, 0.01), 662);
    CHECK_INT(binomial_requests_min(0.99, 10, 0.01), 2010);
    CHECK_INT(binomial_requests_min(0.99, 50, 0.01), 6898);
    CHECK_INT(binomial_requests_min(0.999, 1, 0.01), 6636);
}
