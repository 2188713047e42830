// SPDX-License-Identifier: Apache-2.0
// Quantile ratios by exceedance, and ratios of means: known answers, coverage, what must not be
// known.
#include "reports/analyse/canary/latency.h"

#include "ci/sim/canary_sim_stream.h"
#include "reports/analyse/canary/mean.h"
#include "tests/unit/runner.h"

static int threshold_of(const uint64_t bins[CANARY_BINS], double fraction)
{
    double tail[CANARY_BINS + 1] = {0};
    for (int i = CANARY_BINS - 1; i >= 0; i--)
        tail[i] = tail[i + 1] + (double)bins[i];
    return canary_threshold(tail, fraction);
}

TEST(thresholds)
{
    uint64_t bins[CANARY_BINS] = {0};
    CHECK_INT(threshold_of(bins, 0.01), -1);
    bins[500] = 980;
    bins[510] = 12;
    bins[520] = 8;
    CHECK_INT(threshold_of(bins, 0.01), 520); // 0.8 % above its lower border, 2 % above that of 510
    CHECK_INT(threshold_of(bins, 0.02), 510);
    // one value has most of it: all above its border, the nearest there is
    CHECK_INT(threshold_of(bins, 0.5), 500);
    bins[510] = bins[520] = 0;
    CHECK_INT(threshold_of(bins, 0.01), 500); // never one with nothing above it
}

TEST(above_a_position)
{
    uint32_t bins[CANARY_BINS] = {0};
    bins[100] = 10;
    bins[101] = 20;
    CHECK_DBL(canary_above(bins, 100), 30, 0);
    CHECK_DBL(canary_above(bins, 100.5), 25, 1e-12);
    CHECK_DBL(canary_above(bins, 101.25), 15, 1e-12);
    CHECK_DBL(canary_above(bins, 102), 0, 0);
    CHECK_DBL(canary_above(bins, -5), 30, 0);
    CHECK_DBL(canary_above(bins, CANARY_BINS), 0, 0);
    CHECK_DBL(canary_position(canary_moved(7.25)), 7.25, 1e-12);
}

static void fold(struct canary_latency *latency, uint64_t *baseline, double slower, int seconds,
        double share, uint64_t seed)
{
    struct stream_world world = {400, 0, 1, 0, 0, 0};
    struct stream_fault fault = {1, slower, 0};
    static struct stream stream;
    struct canary_second arms[CANARY_ARMS];
    double answered[CANARY_ARMS];
    stream_start(&stream, &world, &fault, seed);
    for (int i = 0; i < seconds; i++) {
        stream_second(&stream, i, 0, share, arms);
        canary_latency_add(latency, arms, answered);
        for (int k = 0; baseline && k < CANARY_BINS; k++)
            baseline[k] += arms[CANARY_BASELINE].bins[k];
    }
}

TEST(a_known_ratio)
{
    static struct canary_latency latency;
    static struct canary_tails tails;
    uint64_t baseline[CANARY_BINS] = {0};
    double low, high;
    fold(&latency, baseline, 1.25, 600, 0.3, 1);
    canary_tails_of(&latency, &tails);
    int p50 = threshold_of(baseline, 0.5), p99 = threshold_of(baseline, 0.01);
    CHECK_DBL(canary_bin_low_s(p50), 0.02, 0.0003); // the median
    CHECK_DBL(canary_bin_low_s(p99), 0.02 * exp(0.5 * 2.3263), 0.002);
    CHECK_DBL(canary_tails_ratio(&tails, p50), 1.25, 0.01);
    CHECK_DBL(canary_tails_ratio(&tails, p99), 1.25, 0.03);
    canary_tails_bounds(&tails, p99, 1, 0.01, &low, &high);
    CHECK(low > 1.15 && low < 1.25);
    CHECK(high > 1.25 && high < 1.35);
    double low_wide, high_wide;
    canary_tails_bounds(&tails, p99, 4, 0.01, &low_wide, &high_wide);
    CHECK(low_wide < low && high_wide > high);
}

TEST(nothing_is_known_of_nothing)
{
    static struct canary_latency latency;
    static struct canary_tails tails;
    struct canary_second arms[CANARY_ARMS] = {{0}};
    double low, high, answered[CANARY_ARMS];
    canary_tails_of(&latency, &tails);
    CHECK(isnan(canary_tails_ratio(&tails, 600)));
    canary_tails_bounds(&tails, 600, 1, 0.01, &low, &high);
    CHECK(isnan(low) && isnan(high));
    arms[CANARY_BASELINE].bins[500] = 10; // one arm alone is not compared
    canary_latency_add(&latency, arms, answered);
    CHECK_DBL(answered[CANARY_BASELINE], 10, 0);
    CHECK_DBL(latency.count[CANARY_BASELINE][500], 0, 0);
    arms[CANARY_CANDIDATE].bins[500] = 1;
    canary_latency_add(&latency, arms, answered);
    canary_tails_of(&latency, &tails);
    canary_tails_bounds(&tails, 500, 1, 0.01, &low, &high);
    CHECK(isnan(high)); // one request is no bound
    CHECK(isnan(canary_tails_ratio(&tails, -1)));
}

TEST(intervals_hold_at_every_look)
{
    enum { STREAMS = 150, LOOKS = 12 };
    int missed_low = 0, missed_high = 0, mean_low = 0, mean_high = 0;
    for (int stream = 0; stream < STREAMS; stream++) {
        static struct canary_latency latency;
        static struct canary_tails tails;
        static struct stream drawn;
        struct stream_world world = {400, 0, 1, 0, 0, stream % 2};
        struct stream_fault fault = {1, 1.1, 0};
        uint64_t baseline[CANARY_BINS] = {0};
        struct canary_second arms[CANARY_ARMS];
        struct canary_means means = {0};
        bool miss[4] = {false};
        double answered[CANARY_ARMS], low, high;
        memset(&latency, 0, sizeof latency);
        stream_start(&drawn, &world, &fault, 1000 + (uint64_t)stream);
        for (int i = 0; i < 10; i++) { // the threshold is frozen before
            stream_second(&drawn, i, 0, 0.25, arms);
            for (int k = 0; k < CANARY_BINS; k++)
                baseline[k] += arms[CANARY_BASELINE].bins[k];
        }
        int p99 = threshold_of(baseline, 0.01);
        for (int i = 1; i <= 10 * LOOKS; i++) {
            double mean[CANARY_ARMS] = {0};
            stream_second(&drawn, 10 + i, 0, 0.25, arms);
            canary_latency_add(&latency, arms, answered);
            for (int arm = 0; arm < CANARY_ARMS; arm++)
                for (int k = 400; k < 700; k++)
                    mean[arm] += arms[arm].bins[k] * canary_bin_low_s(k) / answered[arm];
            canary_means_add(&means, mean[CANARY_BASELINE], mean[CANARY_CANDIDATE],
                    answered[CANARY_BASELINE], answered[CANARY_CANDIDATE]);
            if (i % 10)
                continue;
            canary_tails_of(&latency, &tails);
            canary_tails_bounds(&tails, p99, 1, 0.01, &low, &high);
            miss[0] |= low > 1.1;
            miss[1] |= high < 1.1;
            canary_means_bounds(&means, 0.01, 1.5e-4, 1, &low, &high);
            miss[2] |= low > 1.1;
            miss[3] |= high < 1.1;
        }
        missed_low += miss[0];
        missed_high += miss[1];
        mean_low += miss[2];
        mean_high += miss[3];
    }
    CHECK(missed_low <= 5); // 1.5 expected at most; beyond 5 with probability 0.4 %
    CHECK(missed_high <= 5);
    CHECK(mean_low <= 5);
    CHECK(mean_high <= 5);
}

TEST(means_as_integrated)
{
    struct canary_means none = {0}, means = {0};
    double low, high;
    for (int i = 0; i < 10; i++) // canary_reference.py
        canary_means_add(&means, 0.0200 + 0.0001 * (i % 3), 0.0204 + 0.00013 * (i % 4), 100, 100);
    CHECK_DBL(canary_means_evidence(&none, &means, 1, CANARY_WORSE, 1e-6, 1), 3.489443432557763,
            1e-9);
    CHECK_DBL(canary_means_ratio(&means), 0.204 * 1.0286 / 0.2061, 0.01);
    CHECK(canary_means_evidence(&none, &means, 1, CANARY_BETTER, 1e-6, 1) < 0);
    CHECK_DBL(canary_means_beyond(&none, &means, 2, 1), 0, 0);
    CHECK(canary_means_beyond(&none, &means, 1, 1) > 2);
    canary_means_bounds(&means, 0.01, 1e-6, 1, &low, &high);
    CHECK(isnan(low) || low < canary_means_ratio(&means));
    CHECK(isnan(canary_means_ratio(&none)));
    canary_means_bounds(&none, 0.01, 1e-6, 1, &low, &high);
    CHECK(isnan(low) && isnan(high));
    canary_means_add(&means, 1, 1, 100, 0);
    CHECK_DBL(means.weight, 500, 1e-9); // the second without a candidate is in nothing
}

TEST(slow_spells_of_an_arm)
{
    struct canary_spells even = {0}, spells = {0};
    struct random_state random = {6};
    double level = 0;
    CHECK_DBL(canary_spells_value(&even), 1, 0);
    for (int i = 0; i < 2000; i++) {
        if (i % 10 == 0)
            level = random_normal(&random) * 1e-3;
        canary_spells_add(&even, 0.02 + 1e-3 * random_normal(&random), 100);
        canary_spells_add(&spells, 0.02 + level + 1e-3 * random_normal(&random), 100);
    }
    CHECK(canary_spells_value(&even) < 1.3);
    CHECK(canary_spells_value(&spells) > 2.5);
}
