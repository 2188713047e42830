// SPDX-License-Identifier: Apache-2.0
// The fit of CUPTI's clock: drift, samples that were interrupted, steps of the wall clock, and
// nonsense.
#include <stdlib.h>

#include "tests/unit/runner.h"
#include "tracer/gpu/clock_fit.h"

#define GPU_BEGIN 1763764000123456789ull // ns since 1970: far beyond 2^53
#define HOST_BEGIN 9000000000000ull

static uint64_t noise_state = 42;

static uint64_t noise(uint64_t below)
{
    noise_state = noise_state * 6364136223846793005ull + 1442695040888963407ull;
    return (noise_state >> 33) % below;
}

// The clock of the story: ppm faster than ours, stepped by step_ns.
static uint64_t gpu_of(uint64_t host_ns, double ppm, int64_t step_ns)
{
    return GPU_BEGIN + (host_ns - HOST_BEGIN) +
            (uint64_t)(int64_t)((double)(host_ns - HOST_BEGIN) * ppm * 1e-6) + (uint64_t)step_ns;
}

// A bracket of 150 to 350 ns with the reading somewhere in it.
static void sample(struct clock_fit *fit, uint64_t host_ns, double ppm, int64_t step_ns)
{
    uint64_t width = 150 + noise(200);
    clock_fit_add(
            fit, host_ns - noise(width), gpu_of(host_ns, ppm, step_ns), host_ns + noise(width));
}

static struct clock_fit *fit_new(void)
{
    return calloc(1, sizeof(struct clock_fit));
}

TEST(drift_is_followed)
{
    struct clock_fit *fit = fit_new();
    int64_t worst = 0;
    for (uint64_t i = 0; i < 600; i++) { // a minute
        uint64_t at = HOST_BEGIN + i * 100000000;
        sample(fit, at, 17.5, 0);
        if (i < 20)
            continue;
        uint64_t event = at - 30000000;
        int64_t off = clock_fit_convert(fit, gpu_of(event, 17.5, 0)) - (int64_t)event;
        worst = llabs(off) > worst ? llabs(off) : worst;
    }
    CHECK(worst < 300);
    CHECK_DBL((clock_fit_slope(fit) - 1) * 1e6, -17.5, 0.2);
    CHECK(clock_fit_residual_ns(fit) < 200);
    CHECK_INT(fit->jumps, 0);
    CHECK_INT(clock_fit_until_ns(fit), (long long)gpu_of(HOST_BEGIN + 599ull * 100000000, 17.5, 0));
    free(fit);
}

TEST(interrupted_samples_do_not_move_it)
{
    struct clock_fit *fit = fit_new();
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t at = HOST_BEGIN + i * 100000000;
        if (i % 5 == 4) // off the CPU for 0.4 ms after the reading
            clock_fit_add(fit, at - 100, gpu_of(at, 3, 0), at + 400000);
        else if (i % 17 == 16) // and a reading that is plainly wrong, with a narrow bracket
            clock_fit_add(fit, at - 100, gpu_of(at, 3, 0) + 5000000, at + 100);
        else
            sample(fit, at, 3, 0);
    }
    uint64_t event = HOST_BEGIN + 150 * 100000000ull;
    CHECK(llabs(clock_fit_convert(fit, gpu_of(event, 3, 0)) - (int64_t)event) < 2000);
    CHECK(fit->ignored > 40);
    CHECK_INT(fit->jumps, 0);
    CHECK(fit->residual_max_ns < 2000);
    free(fit);
}

TEST(a_step_of_the_wall_clock_starts_a_new_piece)
{
    const int64_t steps[2] = {3000000000ll, -250000000ll}; // forwards and back
    for (int way = 0; way < 2; way++) {
        struct clock_fit *fit = fit_new();
        for (uint64_t i = 0; i < 100; i++)
            sample(fit, HOST_BEGIN + i * 100000000, 5, i < 50 ? 0 : steps[way]);
        CHECK_INT(fit->jumps, 1);
        CHECK_INT(fit->piece_count, 2);
        uint64_t before = HOST_BEGIN + 40 * 100000000ull,
                 after = HOST_BEGIN + 70 * 100000000ull + 12345;
        CHECK(llabs(clock_fit_convert(fit, gpu_of(before, 5, 0)) - (int64_t)before) < 2000);
        CHECK(llabs(clock_fit_convert(fit, gpu_of(after, 5, steps[way])) - (int64_t)after) < 2000);
        free(fit);
    }
}

// The kernel has given up the CPU's counter for a slower clock: reading it takes longer from then
// on, and the clocks go on drifting.
TEST(brackets_that_stay_wide_are_used_after_all)
{
    const int64_t step = -2000000000;
    struct clock_fit *fit = fit_new();
    uint64_t at = HOST_BEGIN;
    for (int i = 0; i < 50; i++, at += 100000000)
        sample(fit, at, 20, 0);
    for (int i = 0; i < 600; i++, at += 100000000)
        clock_fit_add(fit, at - 2000, gpu_of(at, 20, 0), at + 2000);
    at -= 100000000;
    CHECK_INT(clock_fit_until_ns(fit), (long long)gpu_of(at, 20, 0));
    CHECK(llabs(clock_fit_convert(fit, gpu_of(at, 20, 0)) - (int64_t)at) < 1000);
    CHECK_INT(fit->jumps, 0);
    CHECK(fit->ignored > 100 && fit->ignored < 300); // until it was clear that they stay
    for (int i = 0; i < 10; i++, at += 100000000)
        clock_fit_add(fit, at + 100000000 - 2000, gpu_of(at + 100000000, 20, step),
                at + 100000000 + 2000);
    CHECK_INT(fit->jumps, 1);
    CHECK(llabs(clock_fit_convert(fit, gpu_of(at, 20, step)) - (int64_t)at) < 1000);
    free(fit);
}

TEST(few_samples)
{
    struct clock_fit *fit = fit_new();
    CHECK(!clock_fit_ready(fit));
    CHECK_INT(clock_fit_convert(fit, 77), 77);
    CHECK_INT(clock_fit_residual_ns(fit), -1);
    CHECK_DBL(clock_fit_slope(fit), 1, 0);
    clock_fit_add(fit, HOST_BEGIN, GPU_BEGIN, HOST_BEGIN + 200);
    CHECK_INT(clock_fit_convert(fit, GPU_BEGIN + 5000), HOST_BEGIN + 5100);
    CHECK_INT(clock_fit_convert(fit, GPU_BEGIN - 5000), HOST_BEGIN - 4900);
    // 1 ms apart: no slope from that
    clock_fit_add(fit, HOST_BEGIN + 1000000, GPU_BEGIN + 1000400, HOST_BEGIN + 1000200);
    CHECK_DBL(clock_fit_slope(fit), 1, 0);
    free(fit);
}

TEST(nonsense_is_survived)
{
    struct clock_fit *fit = fit_new();
    for (int i = 0; i < 20000; i++) {
        uint64_t a = noise(3) ? noise(UINT64_MAX >> 1) << noise(40) : noise(1000),
                 b = noise(3) ? a + noise(1000000) : noise(UINT64_MAX >> 3);
        clock_fit_add(fit, a, noise(2) ? noise(UINT64_MAX >> 1) << noise(40) : a ^ b, b);
        clock_fit_convert(fit, noise(UINT64_MAX >> 1) << noise(40));
        clock_fit_span(fit, (int64_t)(noise(UINT64_MAX >> 1)));
    }
    CHECK_INT(fit->samples, 20000);
    CHECK(fit->piece_count <= CLOCK_FIT_PIECES);
    free(fit);
}
