// SPDX-License-Identifier: Apache-2.0
// The likelihood of ratios against scipy (canary_reference.py), and its validity by adding up all
// outcomes.
#include "reports/analyse/canary/counts.h"

#include "ci/sim/canary_sim_stream.h"
#include "reports/analyse/canary/rate.h"
#include "tests/unit/runner.h"

static struct canary_counts counts_of(double candidate, double all, double share)
{
    struct canary_counts counts = {0};
    canary_counts_add(&counts, all - candidate, candidate, 1000 * (1 - share), 1000 * share, 1);
    return counts;
}

static double worse(const struct canary_counts *counts, int stages)
{
    return canary_counts_evidence((struct canary_trail){counts, stages}, CANARY_WORSE);
}

TEST(as_scipy_says)
{
    struct canary_counts stages[2] = {counts_of(6, 50, 0.05), counts_of(40, 100, 0.25)},
                         *one = stages + 1;
    double low, high;
    CHECK_DBL(worse(one, 1), 4.022887941265952, 1e-9);
    CHECK_DBL(canary_counts_evidence((struct canary_trail){one, 1}, CANARY_BETTER),
            -2.4313344030076087, 1e-9);
    CHECK_DBL(worse(stages, 2), 5.579757262539373, 1e-9); // the share changed between stages
    CHECK_DBL(canary_counts_ratio((struct canary_trail){one, 1}), 2, 1e-9);
    canary_counts_bounds(one, 0.01, &low, &high);
    CHECK_DBL(low, 0.9575641288040659, 1e-8);
    CHECK_DBL(high, 4.023629697375139, 1e-8);
    CHECK_DBL(canary_rate_bound(0, 1000, 0.01), 0.004810146599131544, 1e-12);
    CHECK_DBL(canary_rate_bound(3, 2000, 0.01), 0.007324035096828494, 1e-12);
}

// E[e] over all outcomes of a second, n requests without replacement: exactly what makes an
// e-value.
static double expected(double baseline, double candidate, int events, double ratio)
{
    double sum = 0, all = 0, first = NAN, share = candidate / (baseline + candidate);
    for (int k = 0; k <= events && k <= candidate; k++) {
        if (events - k > baseline)
            continue;
        double log_p = lgamma(candidate + 1) - lgamma(k + 1) - lgamma(candidate - k + 1) +
                lgamma(baseline + 1) - lgamma(events - k + 1.0) -
                lgamma(baseline - events + k + 1) + k * log(ratio);
        struct canary_counts counts = counts_of(k, events, share);
        first = isnan(first) ? log_p : first;
        log_p -= first; // the factors that all outcomes share
        sum += exp(log_p + worse(&counts, 1));
        all += exp(log_p);
    }
    return sum / all;
}

TEST(expectation_is_at_most_one)
{
    // many requests: binomial, and nothing is given away
    CHECK_DBL(expected(1e7, 1e7 / 3, 60, 1), 1, 1e-3);
    CHECK(expected(75, 25, 60, 1) < 1); // few: the e-value becomes smaller only
    CHECK(expected(75, 25, 60, 1) > 0);
    CHECK(expected(1e7, 1e7 / 3, 60, 0.8) < 1); // better than the baseline
    CHECK(expected(1e7, 1e5, 300, 1) <= 1 + 1e-3);
    CHECK(expected(1e7, 1e7 / 3, 60, 1.5) > 1); // and it does grow where it is worse
}

// One mean share in the place of many loses a little, and never gains: against the product of each
// second's.
TEST(shares_that_vary_stay_valid)
{
    struct random_state random = {4};
    double worst = 0;
    for (int round = 0; round < 200; round++) {
        struct canary_counts sum = {0}, each[20] = {{0}};
        for (int i = 0; i < 20; i++) {
            double share = 0.01 + 0.9 * random_uniform(&random);
            double k = floor(5 * random_uniform(&random)), b = floor(9 * random_uniform(&random));
            canary_counts_add(&sum, b, k, 1 - share, share, 1);
            canary_counts_add(&each[i], b, k, 1 - share, share, 1);
        }
        worst = fmax(worst, worse(&sum, 1) - worse(each, 20));
    }
    CHECK(worst <= 1e-9);
}

TEST(the_cheap_bound_is_one)
{
    struct random_state random = {8};
    for (int i = 0; i < 2000; i++) {
        double all = 1 + floor(300 * random_uniform(&random)),
               k = floor((all + 1) * random_uniform(&random));
        struct canary_counts counts = counts_of(k, all, 0.02 + 0.9 * random_uniform(&random));
        if (worse(&counts, 1) >
                canary_counts_evidence_max((struct canary_trail){&counts, 1}) + 1e-12) {
            CHECK(!"the evidence exceeds its bound");
            return;
        }
    }
    CHECK(true);
}

TEST(nothing_and_one_arm_only)
{
    struct canary_counts none = {0}, counts = {0};
    struct canary_trail trail = {&none, 1};
    double low = -1, high = -1;
    CHECK_DBL(worse(&none, 1), 0, 1e-12);
    CHECK_DBL(canary_counts_evidence_max(trail), 0, 0);
    CHECK(isnan(canary_counts_ratio(trail)));
    CHECK_DBL(canary_counts_beyond(trail, 1.5), 0, 0);
    canary_counts_bounds(&none, 0.01, &low, &high);
    CHECK_DBL(low, 0, 0);
    CHECK(isinf(high));
    // without requests of the candidate nothing is compared
    canary_counts_add(&counts, 5, 0, 100, 0, 1);
    canary_counts_add(&counts, 0, 5, 0, 100, 1);
    canary_counts_add(&counts, 0, 0, 100, 100, 1);
    CHECK_DBL(counts.all, 0, 0);
    counts = counts_of(12, 12, 0.25);
    CHECK(isinf(canary_counts_ratio((struct canary_trail){&counts, 1})));
    CHECK(canary_counts_beyond((struct canary_trail){&counts, 1}, 1.5) > 3);
    canary_counts_bounds(&counts, 0.01, &low, &high);
    CHECK(low > 1.5);
    CHECK(isinf(high));
    counts = counts_of(0, 40, 0.25);
    CHECK_DBL(canary_counts_ratio((struct canary_trail){&counts, 1}), 0, 0);
    canary_counts_bounds(&counts, 0.01, &low, &high);
    CHECK_DBL(low, 0, 0);
    CHECK(high < 1 && high > 0.1);
}

// 400 streams, 300 looks each: how often an end is wrong at any look, and how often equal arms are
// rejected.
TEST(coverage_at_every_look)
{
    enum { STREAMS = 400, LOOKS = 300 };
    int low_missed = 0, high_missed = 0, rejected = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        struct random_state random = stream_random(50 + (uint64_t)stream);
        struct canary_counts counts = {0}, equal = {0};
        bool missed[2] = {false, false}, reject = false;
        for (int look = 0; look < LOOKS; look++) {
            double baseline = 400 + 500 * random_uniform(&random),
                   candidate = 100 + 200 * random_uniform(&random), low, high;
            double rate = look % 100 < 50 ? 2e-3 : 8e-3; // of both arms
            canary_counts_add(&counts, stream_poisson(&random, baseline * rate),
                    stream_poisson(&random, candidate * rate * 1.4), baseline, candidate, 1);
            canary_counts_add(&equal, stream_poisson(&random, baseline * rate),
                    stream_poisson(&random, candidate * rate), baseline, candidate, 1);
            reject |= worse(&equal, 1) >= log(100);
            if (look % 10)
                continue;
            canary_counts_bounds(&counts, 0.01, &low, &high);
            missed[0] |= low > 1.4;
            missed[1] |= high < 1.4;
        }
        low_missed += missed[0];
        high_missed += missed[1];
        rejected += reject;
    }
    CHECK(low_missed <= 9); // 4 expected at most; beyond 9 with probability 0.8 %
    CHECK(high_missed <= 9);
    CHECK(rejected <= 9);
}

TEST(rates)
{
    CHECK_DBL(canary_rate_bound(0, 0, 0.01), 1, 0);
    CHECK_DBL(canary_rate_bound(5, 5, 0.01), 1, 0);
    CHECK(canary_rate_bound(1, 5000, 0.01) > canary_rate_bound(0, 5000, 0.01));
    double requests = canary_rate_requests(0, 1e-3, 0.01);
    CHECK_DBL(canary_rate_bound(0, requests, 0.01), 1e-3, 1e-9);
    CHECK_INT(ceil(requests), 4820); // 4,603 at one look
    CHECK(isinf(canary_rate_requests(1e-3, 1e-3, 0.01)));
    CHECK(canary_rate_requests(2e-4, 1e-3, 0.01) > requests);
    int missed = 0;
    for (int stream = 0; stream < 400; stream++) {
        struct random_state random = stream_random(900 + (uint64_t)stream);
        double events = 0, requests_here = 0;
        bool miss = false;
        for (int look = 0; look < 200; look++) {
            requests_here += 50;
            events += stream_poisson(&random, 50 * 0.01);
            miss |= canary_rate_bound(events, requests_here, 0.01) < 0.01;
        }
        missed += miss;
    }
    CHECK(missed <= 9);
}
