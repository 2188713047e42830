// SPDX-License-Identifier: Apache-2.0
// Slow steps: counted, what they lose, their period, what the machine is excused for.
#include "reports/analyse/slow_steps.h"
#include "reports/render/text/slow_text.h"

#include <math.h>
#include <stdbool.h>

#include "common/strings.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { STEPS = 1000 };

static void steps_make(int64_t *idx, double *durations, uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < STEPS; i++) {
        idx[i] = i + 5;
        durations[i] = 1e6 * exp(0.02 * random_normal(&random));
    }
}

TEST(none_in_steady_steps)
{
    int64_t idx[STEPS];
    double durations[STEPS];
    steps_make(idx, durations, 1);
    struct slow_steps got = slow_steps_find(idx, durations, NULL, STEPS);
    CHECK_INT(got.count, 0);
    CHECK_INT(got.of, STEPS);
    CHECK_DBL(got.typical_ns, 1e6, 1e4);
    CHECK_DBL(got.lost_ns, 0, 0);
    CHECK(isnan(got.slow_ns));
    CHECK_INT(slow_steps_find(idx, durations, NULL, 0).count, 0);
    CHECK(isnan(slow_steps_find(idx, durations, NULL, 0).typical_ns));
}

TEST(every_250th)
{
    int64_t idx[STEPS];
    double durations[STEPS];
    steps_make(idx, durations, 2);
    for (int i = 99; i < STEPS; i += 250)
        durations[i] = 250e6;
    struct slow_steps got = slow_steps_find(idx, durations, NULL, STEPS);
    CHECK_INT(got.count, 4);
    CHECK_INT(got.at[0], 104);
    CHECK_INT(got.period, 250);
    CHECK_DBL(got.slow_ns, 250e6, 1);
    CHECK_DBL(got.lost_ns, 4 * 249e6, 1e6);
}

TEST(the_machine_is_excused)
{
    int64_t idx[STEPS];
    double durations[STEPS], excused[STEPS] = {0};
    steps_make(idx, durations, 3);
    durations[10] = 12e6;
    durations[20] = 12e6;
    excused[10] = 11e6; // all of it was the machine's
    excused[20] = 6e6;  // half of it
    struct slow_steps got = slow_steps_find(idx, durations, excused, STEPS);
    CHECK_INT(got.count, 1);
    CHECK_INT(got.at[0], 25);
    CHECK_DBL(got.lost_ns, 5e6, 1e5);
}

TEST(periods)
{
    const int64_t regular[] = {7, 107, 207, 307}, three[] = {7, 107, 207}, burst[] = {7, 8, 9, 10},
                  random[] = {7, 30, 200, 210, 500, 502, 733},
                  one_missed[] = {3, 23, 43, 63, 103, 123, 143, 163, 183, 203, 223, 243};
    CHECK_INT(slow_steps_period(regular, 4, 0, 400), 100);
    CHECK_INT(slow_steps_period(regular, 4, 0, 1000), 0); // and then no more
    CHECK_INT(slow_steps_period(three, 3, 0, 300), 0);    // three prove nothing
    CHECK_INT(slow_steps_period(burst, 4, 0, 400), 0);
    CHECK_INT(slow_steps_period(random, 7, 0, 800), 0);
    CHECK_INT(slow_steps_period(one_missed, 12, 0, 250), 20);
    CHECK_INT(slow_steps_period(one_missed, 0, 0, 250), 0);
}

TEST(noise_does_not_hide_a_period_and_makes_none)
{
    int found = 0, invented = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct random_state random = {seed};
        int64_t idx[400];
        int count = 0, alone = 0;
        int64_t noise[400];
        for (int i = 0; i < 400; i++) {
            bool chance = random_uniform(&random) < 0.03;
            if (chance || i % 50 == 49)
                idx[count++] = i;
            if (chance)
                noise[alone++] = i;
        }
        found += slow_steps_period(idx, count, 0, 400) == 50;
        invented += slow_steps_period(noise, alone, 0, 400) != 0;
    }
    CHECK(found >= 190);
    CHECK(invented <= 6); // 1 % of 200, and three sigma
}

TEST(the_slowest_by_their_quantile)
{
    int64_t idx[STEPS];
    double durations[STEPS];
    steps_make(idx, durations, 4);
    durations[500] = 1.5e6; // too short to be a slow step
    struct slow_steps got = slow_steps_tail(idx, durations, STEPS, 0.99);
    CHECK_INT(got.count, 11); // the 990th of 1000, and those behind it
    CHECK_INT(got.of, STEPS);
    CHECK(got.limit_ns > got.typical_ns && got.limit_ns < 1.5e6);
    for (int i = 0; i < STEPS; i++)
        got.count -= durations[i] >= got.limit_ns;
    CHECK_INT(got.count, 0);
    CHECK_INT(slow_steps_tail(idx, durations, 0, 0.99).count, 0);
    CHECK_DBL(slow_steps_find(idx, durations, NULL, STEPS).limit_ns, 2 * got.typical_ns, 0);
}

TEST(launches_together)
{
    int64_t idx[STEPS];
    double durations[STEPS];
    struct slow_steps regular, lone, none;
    struct strbuf text = {0};
    for (int i = 0; i < STEPS; i++) {
        idx[i] = i + 5;
        durations[i] = 2e6;
    }
    none = slow_steps_find(idx, durations, NULL, STEPS);
    for (int i = 99; i < STEPS; i += 250)
        durations[i] = 250e6;
    regular = slow_steps_find(idx, durations, NULL, STEPS);
    durations[500] = 250e6;
    for (int i = 99; i < STEPS; i += 250)
        durations[i] = 2e6;
    lone = slow_steps_find(idx, durations, NULL, STEPS);
    const struct slow_steps *launches[] = {&regular, &regular, &regular, &lone};
    struct slow_steps_sum sum = slow_steps_sum(launches, 4);
    CHECK_INT(sum.count, 13);
    CHECK_INT(sum.of, 4 * STEPS);
    CHECK_INT(sum.period, 250);
    slow_text(&text, &sum, "slow", "step");
    CHECK_STR(text.text, "13 slow steps of 4000, 250 ms beside 2 ms, every 250 steps");
    strbuf_free(&text);
    sum = slow_steps_sum(launches + 2, 2); // of two launches nothing is regular
    CHECK_INT(sum.period, 0);
    slow_text(&text, &sum, "slowest", "request");
    CHECK_STR(text.text, "5 slowest requests of 2000, 250 ms beside 2 ms, at no regular distance");
    strbuf_free(&text);
    launches[0] = launches[1] = launches[2] = &lone;
    sum = slow_steps_sum(launches, 4);
    slow_text(&text, &sum, "slow", "step");
    CHECK_STR(text.text, "4 slow steps of 4000, 250 ms beside 2 ms, step 505 of every launch");
    strbuf_free(&text);
    launches[0] = &none;
    sum = slow_steps_sum(launches, 1);
    slow_text(&text, &sum, "slow", "step");
    CHECK_STR(text.text, "0 slow steps of 1000");
    strbuf_free(&text);
}
