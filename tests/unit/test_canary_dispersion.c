// SPDX-License-Identifier: Apache-2.0
// Dispersion of counts: independent, in bursts, in spells, drifting, and bursts that begin later.
#include "reports/analyse/canary/dispersion.h"

#include "ci/sim/canary_sim_stream.h"
#include "tests/unit/runner.h"

struct made {
    // spell: the arm's rate is doubled or halved for 10 s at a time
    double mean, burst, drift, spell;
};

static double made_events(
        struct random_state *random, const struct made *made, int at, double extra)
{
    double mean = made->mean * (1 + made->drift * sin(at / 90.0)) * extra;
    return made->burst * stream_poisson(random, mean / made->burst);
}

static double learnt(const struct made *made, int seconds, bool both, uint64_t seed)
{
    struct canary_dispersion dispersion = {0};
    struct random_state random = stream_random(seed);
    double spell = 1;
    for (int i = 0; i < seconds; i++) {
        if (made->spell > 0 && i % 10 == 0)
            spell = random_next(&random) >> 63 ? 2 : 0.5;
        double first = made_events(&random, made, i, spell),
               second = made_events(&random, made, i, 1);
        canary_dispersion_see(&dispersion, both ? first + second : first, both ? 2000 : 1000);
        canary_dispersion_add(&dispersion, first, 1000, both ? second : 0, both ? 1000 : 0);
    }
    return canary_dispersion_value(&dispersion);
}

static double typical(struct made made, int seconds, bool both)
{
    double sum = 0;
    for (uint64_t seed = 0; seed < 30; seed++)
        sum += learnt(&made, seconds, both, seed + 1) / 30;
    return sum;
}

TEST(independent_events)
{
    CHECK_DBL(typical((struct made){1, 1, 0, 0}, 300, false), 1.1, 0.12);
    CHECK_DBL(typical((struct made){50, 1, 0, 0}, 300, true), 1.1, 0.12);
    // traffic that drifts is no burst
    CHECK_DBL(typical((struct made){20, 1, 0.5, 0}, 600, false), 1.1, 0.12);
}

TEST(bursts_of_four)
{
    // 4, and a fifth of what is above 1
    CHECK_DBL(typical((struct made){1, 4, 0, 0}, 300, false), 4.6, 0.6);
    CHECK_DBL(typical((struct made){20, 4, 0, 0}, 300, true), 4.6, 0.7);
    CHECK_DBL(typical((struct made){0.1, 4, 0, 0}, 300, false), 4.6, 0.7); // once in 40 s
}

TEST(spells_of_ten_seconds)
{
    CHECK(typical((struct made){20, 1, 0, 1}, 600, false) > 8); // a plain index of seconds says 2
}

TEST(before_anything_is_known)
{
    struct canary_dispersion dispersion = {0};
    CHECK_DBL(canary_dispersion_value(&dispersion), 4.6, 1e-12);
    for (int i = 0; i < 1000; i++) // seconds without events teach nothing
        canary_dispersion_add(&dispersion, 0, 1000, 0, 0);
    CHECK_DBL(canary_dispersion_value(&dispersion), 4.6, 1e-12);
    double last = 4.6;
    for (int i = 0; i < 100; i++) {
        canary_dispersion_add(&dispersion, i % 4 == 0, 1000, 0, 0);
        CHECK(canary_dispersion_value(&dispersion) <= last + 1e-12);
        last = canary_dispersion_value(&dispersion);
    }
    CHECK(last < 2);
}

TEST(bursts_that_begin_later)
{
    struct canary_dispersion dispersion = {0};
    struct random_state random = stream_random(5);
    for (int i = 0; i < 600; i++) {
        double events = stream_poisson(&random, 1);
        canary_dispersion_see(&dispersion, events, 1000);
        canary_dispersion_add(&dispersion, events, 1000, 0, 0);
    }
    double before = canary_dispersion_value(&dispersion), after = 0;
    for (int i = 0; i < 60; i++) {
        double events = 4 * stream_poisson(&random, 0.25);
        canary_dispersion_see(&dispersion, events, 1000);
        after = canary_dispersion_value(&dispersion);
        canary_dispersion_add(&dispersion, events, 1000, 0, 0);
    }
    CHECK(before < 1.4);
    CHECK(after > 1.8); // a minute, 15 bursts
}

TEST(never_below_one)
{
    struct canary_dispersion dispersion = {0};
    for (int i = 0; i < 500; i++) { // more even than independent
        canary_dispersion_see(&dispersion, 10, 1000);
        canary_dispersion_add(&dispersion, 10, 1000, 0, 0);
    }
    CHECK_DBL(canary_dispersion_value(&dispersion), 1, 0);
}
