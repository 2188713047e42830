// SPDX-License-Identifier: Apache-2.0
// Steady state on synthetic series whose answer is known.
#include "reports/analyse/steady.h"

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { STEPS = 400 };

// 5 ms steps with relative noise; shape(i) multiplies.
static void series_make(double *durations, double noise, double (*shape)(int), uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < STEPS; i++)
        durations[i] = 5e6 * shape(i) * exp(noise * random_normal(&random));
}

static double shape_flat(int i)
{
    return i < 1 ? 20 : 1;
}

static double shape_warm_up(int i)
{
    return i < 60 ? 1.3 : 1;
}

static double shape_decay(int i)
{
    return 1 + 0.5 * exp(-i / 15.0);
}

static double shape_drift(int i)
{
    return 1 + 0.10 * i / STEPS;
}

static double shape_late(int i)
{
    return i < STEPS - 50 ? 1 : 1.2;
}

static double shape_two_levels(int i)
{
    return i < 150 ? 1.02 : 1;
}

TEST(a_flat_series_is_steady_after_the_fixed_warm_up)
{
    double durations[STEPS];
    int early = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        series_make(durations, 0.02, shape_flat, seed);
        struct steady_result got = steady_detect(durations, STEPS, NULL);
        CHECK_INT(got.state, STEADY_OK);
        early += got.start == 5;
    }
    CHECK(early >= 45); // a false segment now and then only makes the start later
}

TEST(a_warm_up_is_cut_where_it_ends)
{
    double durations[STEPS];
    series_make(durations, 0.02, shape_warm_up, 1);
    struct steady_result got = steady_detect(durations, STEPS, NULL);
    CHECK_INT(got.state, STEADY_OK);
    CHECK(got.start >= 60 && got.start <= 70);
    CHECK_INT(got.segments, 2);
    series_make(durations, 0.01, shape_decay, 2);
    got = steady_detect(durations, STEPS, NULL);
    CHECK_INT(got.state, STEADY_OK);
    CHECK(got.start >= 35 && got.start <= 120); // at 35 it is still 5 % slow, at 70 half a percent
    series_make(durations, 0.005, shape_two_levels, 3);
    got = steady_detect(durations, STEPS, NULL);
    CHECK_INT(got.state, STEADY_OK);
    CHECK(got.start >= 150 && got.start <= 160);
}

TEST(a_series_that_never_gets_steady)
{
    double durations[STEPS];
    series_make(durations, 0.005, shape_drift, 1);
    struct steady_result got = steady_detect(durations, STEPS, NULL);
    CHECK(got.state == STEADY_LATE || got.state == STEADY_DRIFTS);
    CHECK_INT(got.start, 5); // nothing is dropped but the fixed warm-up
    series_make(durations, 0.01, shape_late, 1);
    CHECK_INT(steady_detect(durations, STEPS, NULL).state, STEADY_LATE);
}

static double shape_bursts(int i)
{
    return i % 130 < 45 ? 1.5 : 1;
}

TEST(bursts_of_a_neighbour_are_not_the_workloads_fault)
{
    double durations[STEPS];
    series_make(durations, 0.01, shape_bursts, 1);
    struct steady_result got = steady_detect(durations, STEPS, NULL);
    CHECK_INT(got.state, STEADY_FLUCTUATES);
    CHECK(steady_reached(got.state));
    CHECK(!steady_reached(STEADY_LATE) && !steady_reached(STEADY_DRIFTS) &&
            !steady_reached(STEADY_TOO_SHORT));
}

TEST(noise_alone_is_rarely_called_unsteady)
{
    double durations[STEPS];
    int alarms = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        series_make(durations, 0.02, shape_flat, seed);
        for (int count = 60; count <= STEPS; count += 170)
            alarms += !steady_reached(steady_detect(durations, count, NULL).state);
    }
    CHECK(alarms <= 12); // 1 % of 1,200
}

TEST(too_short)
{
    double durations[STEPS];
    series_make(durations, 0.01, shape_flat, 1);
    CHECK_INT(steady_detect(durations, 34, NULL).state, STEADY_TOO_SHORT);
    CHECK_INT(steady_detect(durations, 0, NULL).state, STEADY_TOO_SHORT);
    CHECK_INT(steady_detect(durations, 35, NULL).state, STEADY_OK);
    struct steady_opts opts = {.warm_up_min = 2, .keep_min = 10};
    CHECK_INT(steady_detect(durations, 12, &opts).state, STEADY_OK);
}

TEST(constant_durations)
{
    double durations[STEPS];
    for (int i = 0; i < STEPS; i++)
        durations[i] = 1e6;
    struct steady_result got = steady_detect(durations, STEPS, NULL);
    CHECK_INT(got.state, STEADY_OK);
    CHECK_INT(got.segments, 1);
    CHECK_DBL(got.drift, 0, 1e-12);
}
