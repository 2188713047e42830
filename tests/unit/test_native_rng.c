// SPDX-License-Identifier: Apache-2.0
// The generator of the reference workloads: known answers, unbiased bounds, and that the Zipf table
// holds exactly the distribution it claims and draws from it.
#include <stdlib.h>

#include "reference_models/native/rng.h"
#include "runner.h"

TEST(splitmix_known_answers)
{
    // The first outputs of splitmix64 seeded with 0: Vigna's reference sequence.
    CHECK(rng_mix(0) == 0xe220a8397b1dcdafu);
    CHECK(rng_mix(0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
    CHECK(rng_mix(0x3c6ef372fe94f82au) == 0x06c45d188009454fu);
}

TEST(xoshiro_known_answers)
{
    // xoshiro256++ from the state {1, 2, 3, 4}, worked out by hand for the first two.
    struct rng rng = {{1, 2, 3, 4}};
    CHECK(rng_next(&rng) == 41943041u);
    CHECK(rng_next(&rng) == 58720359u);
}

TEST(streams_differ_and_repeat)
{
    struct rng a = rng_stream(1, 2, 3), same = rng_stream(1, 2, 3);
    struct rng seed = rng_stream(2, 2, 3), use = rng_stream(1, 3, 3), step = rng_stream(1, 2, 4);
    uint64_t first = rng_next(&a);
    CHECK(first == rng_next(&same));
    CHECK(first != rng_next(&seed));
    CHECK(first != rng_next(&use));
    CHECK(first != rng_next(&step));
}

TEST(uniform_moments)
{
    struct rng rng = rng_stream(7, 0, 0);
    double sum = 0, square = 0;
    int n = 200000, outside = 0;
    for (int i = 0; i < n; i++) {
        double x = rng_uniform(&rng);
        outside += !(x >= 0 && x < 1);
        sum += x;
        square += x * x;
    }
    CHECK_INT(outside, 0);
    CHECK_DBL(sum / n, 0.5, 5 * 0.2887 / sqrt(n));
    CHECK_DBL(square / n, 1.0 / 3, 5 * 0.2981 / sqrt(n));
}

TEST(below_is_unbiased)
{
    struct rng rng = rng_stream(3, 0, 0);
    int count[7] = {0}, n = 70000;
    for (int i = 0; i < n; i++)
        count[rng_below(&rng, 7)]++;
    double chi = 0;
    for (int i = 0; i < 7; i++)
        chi += pow(count[i] - n / 7.0, 2) / (n / 7.0);
    CHECK(chi < 22.5); // 6 degrees of freedom, p = 0.001
    CHECK_INT(rng_below(&rng, 1), 0);
}

static void check_zipf_exact(uint64_t count, double exponent)
{
    struct zipf zipf;
    CHECK_INT(zipf_init(&zipf, count, exponent, NULL), 0);
    double *got = malloc(count * sizeof *got), sum = 0, worst = 0;
    zipf_table_probabilities(&zipf, got);
    for (uint64_t i = 0; i < count; i++)
        sum += pow((double)i + 1, -exponent);
    for (uint64_t i = 0; i < count; i++) {
        double want = pow((double)i + 1, -exponent) / sum;
        worst = fmax(worst, fabs(got[i] - want) / want);
    }
    CHECK(worst < 1e-8); // what the alias columns hold, against the law itself
    free(got);
    zipf_free(&zipf);
}

TEST(zipf_table_holds_the_law)
{
    check_zipf_exact(1, 1.05);
    check_zipf_exact(2, 1.05);
    check_zipf_exact(1000, 1.05);
    check_zipf_exact(100000, 1.05);
    check_zipf_exact(777, 0);
    check_zipf_exact(500, 3);
}

TEST(zipf_draws_follow_the_table)
{
    struct zipf zipf;
    enum { COUNT = 50, DRAWS = 400000 };
    CHECK_INT(zipf_init(&zipf, COUNT, 1.05, NULL), 0);
    double want[COUNT], chi = 0;
    zipf_table_probabilities(&zipf, want);
    int seen[COUNT] = {0};
    struct rng rng = rng_stream(11, 0, 0);
    for (int i = 0; i < DRAWS; i++)
        seen[zipf_draw(&zipf, &rng)]++;
    for (uint64_t rank = 0; rank < COUNT; rank++) {
        double expected = DRAWS * want[rank];
        chi += pow(seen[zipf_id_of_rank(&zipf, rank)] - expected, 2) / expected;
    }
    CHECK(chi < 85.4); // 49 degrees of freedom, p = 0.001
    zipf_free(&zipf);
}

TEST(zipf_ids_are_a_permutation)
{
    static const uint64_t counts[] = {1, 2, 3, 10, 64, 1000, 4096, 99991};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct zipf zipf;
        CHECK_INT(zipf_init(&zipf, counts[c], 1.05, NULL), 0);
        char *seen = calloc(counts[c], 1);
        uint64_t different = 0;
        for (uint64_t rank = 0; rank < counts[c]; rank++) {
            uint64_t id = zipf_id_of_rank(&zipf, rank);
            CHECK(id < counts[c]);
            different += !seen[id];
            seen[id] = 1;
        }
        CHECK_INT(different, counts[c]);
        free(seen);
        zipf_free(&zipf);
    }
}

TEST(zipf_refuses_bad_input)
{
    struct zipf zipf;
    struct error err = {0};
    CHECK_INT(zipf_init(&zipf, 0, 1.05, &err), -22);
    CHECK_CONTAINS(err.text, "Zipf");
    CHECK_INT(zipf_init(&zipf, 10, NAN, &err), -22);
    CHECK_INT(zipf_init(&zipf, 10, -1, &err), -22);
}
