// SPDX-License-Identifier: Apache-2.0
// The ratio of a pair from its couples of blocks: bursts, cold first steps, how many couples.
#include "reports/analyse/turns.h"

#include <stdlib.h>

#include "reports/analyse/quantile.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { COUPLES = 60 };

// A true ratio, 1 % noise a block, a neighbour that makes everything 1.7 times slower for a third
// of the time (and, at its edges, one block of a couple only).
static void couples_make(struct turns_couple *couples, double ratio, double cold, uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < COUPLES; i++) {
        for (int side = 0; side < TURNS_SIDES; side++) {
            bool burst = (2 * i + side) % 40 < 13;
            double rest = 5e6 * (side ? ratio : 1) * (burst ? 1.7 : 1) *
                    exp(0.01 * random_normal(&random));
            double first = rest * (1 + cold) * exp(0.01 * random_normal(&random));
            couples[i].sides[side] = (struct turns_block){.first_ns = first,
                    .rest_ns = rest,
                    .middle_ns = rest,
                    .last_ns = rest,
                    .median_ns = NAN,
                    .mean_ns = (first + 3 * rest) / 4};
        }
    }
}

TEST(bursts_of_a_neighbour_cancel)
{
    struct turns_couple couples[COUPLES];
    couples_make(couples, 1.03, 0, 1);
    struct turns_result got = turns_ratio(couples, COUPLES);
    CHECK_DBL(got.log_ratio, log(1.03), 0.006);
    CHECK(got.within_sd > 0 && got.within_sd < 0.006);
    CHECK_INT(got.couples, COUPLES);
    CHECK_INT(got.estimator, TURNS_MEAN);
    CHECK(!got.first_cold);
}

TEST(cold_first_steps_are_dropped_on_both_sides)
{
    struct turns_couple couples[COUPLES];
    couples_make(couples, 1.03, 0, 2);
    for (int i = 0; i < COUPLES;
            i++) { // the candidate's first step is 40 % slower: caches, not its speed
        struct turns_block *block = &couples[i].sides[1];
        block->first_ns *= 1.4;
        block->mean_ns = (block->first_ns + 3 * block->rest_ns) / 4;
    }
    struct turns_result got = turns_ratio(couples, COUPLES);
    CHECK_INT(got.estimator, TURNS_REST);
    CHECK(got.first_cold);
    CHECK_DBL(got.log_ratio, log(1.03), 0.006);
    for (int i = 0; i < COUPLES; i++)
        couples[i].sides[i % 2].rest_ns = NAN; // blocks of one step: nothing can be dropped
    got = turns_ratio(couples, COUPLES);
    CHECK_INT(got.estimator, TURNS_MEAN);
    CHECK(got.log_ratio > log(1.03) + 0.05);
}

TEST(no_couples_and_broken_ones)
{
    struct turns_result got = turns_ratio(NULL, 0);
    CHECK(isnan(got.log_ratio) && isnan(got.within_sd));
    struct turns_couple one[2] = {
            {{{.mean_ns = 1e6}, {.mean_ns = 2e6}}}, {{{.mean_ns = 0}, {.mean_ns = 2e6}}}};
    got = turns_ratio(one, 2);
    CHECK_INT(got.couples, 1);
    CHECK_DBL(got.log_ratio, log(2), 1e-12);
    CHECK(isnan(got.within_sd));
}

// Blocks of 20 steps of which one in five meets another task for 3 ms.
static void couples_crowded(struct turns_couple *couples, double ratio, uint64_t seed)
{
    struct random_state random = {seed};
    for (int i = 0; i < COUPLES; i++) {
        for (int side = 0; side < TURNS_SIDES; side++) {
            double steps[20];
            for (int k = 0; k < 20; k++)
                steps[k] = 5e5 * (side ? ratio : 1) * exp(0.02 * random_normal(&random)) +
                        (random_uniform(&random) < 0.2 ? 3e6 : 0);
            couples[i].sides[side] = (struct turns_block){.mean_ns = quantile_mean(steps, 20),
                    .median_ns = quantile_median(steps, 20),
                    .rest_ns = quantile_mean(steps + 1, 19),
                    .first_ns = steps[0],
                    .middle_ns = steps[10],
                    .last_ns = steps[19]};
        }
    }
}

TEST(medians_of_blocks_leave_out_stolen_time)
{
    struct turns_couple couples[COUPLES];
    int medians = 0;
    double worst_median = 0, worst_mean = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        couples_crowded(couples, 1.03, seed);
        struct turns_result got = turns_ratio(couples, COUPLES);
        medians += got.estimator == TURNS_MEDIAN;
        worst_median = fmax(worst_median, fabs(got.log_ratio - log(1.03)));
        for (int i = 0; i < COUPLES; i++)
            couples[i].sides[0].median_ns = NAN;
        worst_mean = fmax(worst_mean, fabs(turns_ratio(couples, COUPLES).log_ratio - log(1.03)));
    }
    CHECK_INT(medians, 40);
    CHECK(worst_median < 0.005);
    CHECK(worst_mean > 10 * worst_median);
}

TEST(steps_that_only_enqueue_are_compared_by_their_means)
{
    struct turns_couple couples[COUPLES];
    couples_crowded(couples, 1, 1);
    for (int i = 0; i < COUPLES;
            i++) { // the device is 5 % slower, and only the last step waits for it
        for (int side = 0; side < TURNS_SIDES; side++) {
            struct turns_block *block = &couples[i].sides[side];
            block->median_ns = block->middle_ns = block->first_ns = 1e5;
            block->mean_ns = side ? 1.05e6 : 1e6;
            block->last_ns = 19e6;
        }
    }
    struct turns_result got = turns_ratio(couples, COUPLES);
    CHECK_INT(got.estimator, TURNS_MEAN);
    CHECK_DBL(got.log_ratio, log(1.05), 1e-12);
}

TEST(many_couples_are_thinned)
{
    enum { MANY = 3 * TURNS_COUPLES_MAX };
    double *ratios = calloc(MANY, sizeof *ratios);
    struct random_state random = {6};
    for (int i = 0; i < MANY; i++)
        ratios[i] = 0.02 + 0.05 * random_normal(&random);
    struct turns_result got = turns_center(ratios, MANY);
    CHECK_DBL(got.log_ratio, 0.02, 4 * 0.05 / sqrt(MANY));
    CHECK_DBL(got.within_sd, 0.05 / sqrt(MANY), 0.0001);
    free(ratios);
}

TEST(standard_error_is_that_of_many_pairs)
{
    double estimates[300], sum = 0, square = 0, claimed = 0;
    for (int i = 0; i < 300; i++) {
        struct turns_couple couples[COUPLES];
        couples_make(couples, 1, 0, 100 + (uint64_t)i);
        struct turns_result got = turns_ratio(couples, COUPLES);
        estimates[i] = got.log_ratio;
        sum += estimates[i];
        square += estimates[i] * estimates[i];
        claimed += got.within_sd / 300;
    }
    double real = sqrt((square - sum * sum / 300) / 299);
    CHECK(claimed > 0.7 * real &&
            claimed < 2 * real); // edges of bursts widen the claim, not the estimate
}
