// SPDX-License-Identifier: Apache-2.0
// Spreads: quantiles against exact ones, the same bytes by any tree, no more bytes than allowed,
// and bytes that are none.
#include "reports/analyse/reduce/spread.h"

#include <stdlib.h>

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { MANY = 4000, PARTS = 40 };

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

// Lengths about `middle`, wide by so many natural logarithms.
static uint64_t length(struct random_state *random, double middle, double wide)
{
    return (uint64_t)(middle * exp(wide * random_normal(random)));
}

static size_t encoded(const struct spread *spread, uint8_t ret[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX])
{
    memset(ret, 0, SPREAD_HEAD_MAX + SPREAD_BYTES_MAX);
    return spread_encode(spread, ret);
}

static void check_same(const struct spread *a, const struct spread *b)
{
    uint8_t bytes_a[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX],
            bytes_b[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX];
    CHECK_INT(encoded(a, bytes_a), encoded(b, bytes_b));
    CHECK(memcmp(bytes_a, bytes_b, sizeof bytes_a) == 0);
}

TEST(a_single_length_is_known_within_a_128th)
{
    for (unsigned bits = 0; bits < 64; bits++)
        for (int near = -1; near <= 1; near++) {
            uint64_t ns = ((uint64_t)1 << bits) + (uint64_t)(int64_t)near;
            struct spread spread = {0};
            spread_put(&spread, ns, SPREAD_BYTES_MAX);
            CHECK_INT(spread_count(&spread), 1);
            CHECK(spread.sum_ns == ns);
            CHECK_DBL(spread_error(&spread), 1.0 / 128, 0);
            CHECK_DBL(spread_quantile(&spread, 0.5), (double)ns, (double)ns / 128);
        }
    struct spread top = {0};
    spread_put(&top, UINT64_MAX, SPREAD_BYTES_MAX);
    CHECK_DBL(spread_quantile(&top, 1), 0x1p64, 0x1p57);
    CHECK(isnan(spread_quantile(&(struct spread){0}, 0.5)));
}

TEST(quantiles_are_within_the_error_that_is_told)
{
    static const double quantiles[] = {0.001, 0.1, 0.5, 0.9, 0.99, 1};
    struct random_state random = {7};
    uint64_t values[MANY];
    for (double wide = 0.001; wide < 4; wide *= 3)
        for (size_t bytes_max = SPREAD_BYTES_MIN; bytes_max <= SPREAD_BYTES_MAX; bytes_max += 17) {
            struct spread spread = {0};
            for (size_t i = 0; i < MANY; i++) {
                values[i] = length(&random, 3e6, wide);
                spread_put(&spread, values[i], bytes_max);
            }
            qsort(values, MANY, sizeof *values, by_value);
            CHECK_INT(spread_count(&spread), MANY);
            for (size_t i = 0;
                    i < sizeof quantiles / sizeof *quantiles && isfinite(spread_error(&spread));
                    i++) {
                double exact = (double)values[(size_t)ceil(quantiles[i] * MANY - 1e-9) - 1];
                CHECK_DBL(spread_quantile(&spread, quantiles[i]), exact,
                        exact * spread_error(&spread) + (double)(1u << spread.level));
            }
            // steps of one length stay sharp
            CHECK(bytes_max < SPREAD_BYTES_MAX || wide > 0.01 || spread_error(&spread) <= 1.0 / 64);
        }
}

TEST(any_tree_of_additions_gives_the_same_bytes)
{
    struct random_state random = {11};
    for (int round = 0; round < 200; round++) {
        static struct spread parts[PARTS];
        struct spread all = {0};
        size_t bytes_max = SPREAD_BYTES_MIN +
                random_next(&random) % (SPREAD_BYTES_MAX - SPREAD_BYTES_MIN + 1),
               left = PARTS;
        double wide = 3 * random_uniform(&random);
        memset(parts, 0, sizeof parts);
        for (size_t i = 0; i < 400; i++) {
            uint64_t ns = length(&random, 1e5, wide);
            spread_put(&parts[random_next(&random) % PARTS], ns, bytes_max);
            spread_put(&all, ns, bytes_max);
        }
        while (left > 1) {
            size_t to = random_next(&random) % left, from = random_next(&random) % (left - 1);
            from += from >= to;
            spread_add(&parts[to], &parts[from], bytes_max);
            parts[from] = parts[--left];
        }
        check_same(&parts[0], &all);
    }
}

TEST(a_spread_has_no_more_bytes_than_it_may_have)
{
    struct random_state random = {13};
    struct spread sum = {0};
    uint8_t bytes[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX];
    for (size_t i = 0; i < 20000; i++) {
        spread_put(&sum, random_next(&random) >> (random_next(&random) % 64), 46);
        CHECK(spread_encode(&sum, bytes) <= SPREAD_HEAD_MAX + 46);
    }
    for (size_t i = 0; i < 80; i++) { // until counts and sum are full
        struct spread same = sum;
        spread_add(&sum, &same, 46);
        CHECK(spread_encode(&sum, bytes) <= SPREAD_HEAD_MAX + 46);
    }
    CHECK(spread_count(&sum) == UINT64_MAX);
    CHECK(sum.sum_ns == UINT64_MAX);
}

TEST(bytes_that_are_no_spread_are_refused)
{
    struct random_state random = {17};
    struct spread spread = {0}, back;
    uint8_t bytes[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX], again[SPREAD_HEAD_MAX + SPREAD_BYTES_MAX];
    for (size_t i = 0; i < 1000; i++)
        spread_put(&spread, length(&random, 1e6, 0.3), 72);
    size_t size = spread_encode(&spread, bytes);
    struct varints in = {.at = bytes, .end = bytes + size};
    spread_decode(&in, 72, &back);
    CHECK(!in.bad && in.at == in.end);
    check_same(&spread, &back);
    in = (struct varints){.at = bytes, .end = bytes + size};
    spread_decode(&in, 20, &back);
    CHECK(in.bad); // more than it may have
    for (size_t cut = 0; cut < size; cut++) {
        in = (struct varints){.at = bytes, .end = bytes + cut};
        spread_decode(&in, 72, &back);
        CHECK(in.bad);
    }
    for (size_t at = 0; at < size; at++)
        for (unsigned bit = 0; bit < 8; bit++) { // refused, or another spread with just these bytes
            bytes[at] ^= (uint8_t)(1u << bit);
            in = (struct varints){.at = bytes, .end = bytes + size};
            spread_decode(&in, 72, &back);
            if (!in.bad) {
                size_t used = (size_t)(in.at - bytes);
                CHECK_INT(spread_encode(&back, again), used);
                CHECK(memcmp(again, bytes, used) == 0);
            }
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    static const uint8_t wrong[][6] = {{13, 1, 0, 1, 1}, {0, 0, 0}, {0, 49, 0, 1, 1},
            {0, 1, 0, 0, 1}, {12, 1, 1, 1, 1}, {0, 1, 0x80, 0, 1, 1}};
    // level, no bins, too many, count 0, index, a needless zero
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        in = (struct varints){.at = wrong[i], .end = wrong[i] + sizeof *wrong};
        spread_decode(&in, 72, &back);
        CHECK(in.bad);
    }
}

TEST(numbers_have_one_form)
{
    static const uint64_t values[] = {
            0, 1, 127, 128, 16383, 16384, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    uint8_t bytes[VARINT_SIZE_MAX + 1];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        size_t size = varint_put(bytes, values[i]);
        struct varints in = {.at = bytes, .end = bytes + size},
                       cut = {.at = bytes, .end = bytes + size - 1};
        CHECK_INT(size, varint_size(values[i]));
        CHECK(varint_get(&in) == values[i] && !in.bad && in.at == in.end);
        CHECK(varint_get(&cut) == 0 && cut.bad);
        CHECK(varint_zigzag(varint_unzigzag(values[i])) == values[i]);
    }
    CHECK_INT(varint_unzigzag(varint_zigzag(INT64_MIN)), INT64_MIN);
    memset(bytes, 0xff, sizeof bytes); // 70 bits and more
    struct varints in = {.at = bytes, .end = bytes + sizeof bytes};
    CHECK(varint_get(&in) == 0 && in.bad);
}
