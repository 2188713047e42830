// SPDX-License-Identifier: Apache-2.0
// Bins, quantiles and the packed form of a second, hostile bytes included.
#include "reports/analyse/canary/second.h"

#include <errno.h>

#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

TEST(every_border_begins_its_bin)
{
    for (int i = 0; i < CANARY_BINS; i++) {
        CHECK_INT(canary_bin(canary_bin_low_s(i)), i);
        CHECK_INT(canary_bin(canary_bin_low_s(i) * 1.0198), i);
    }
    CHECK_DBL(canary_bin_low_s(0), 1e-6, 0);
    CHECK_DBL(canary_bin_low_s(700), 1e-6 * pow(1.02, 700), 1e-9);
    CHECK(canary_bin_low_s(CANARY_BINS) > 2 * 3600);
}

TEST(what_is_no_latency_has_a_bin)
{
    CHECK_INT(canary_bin(0), 0);
    CHECK_INT(canary_bin(-1), 0);
    CHECK_INT(canary_bin(NAN), 0);
    CHECK_INT(canary_bin(INFINITY), CANARY_BINS - 1);
    CHECK_INT(canary_bin(1e9), CANARY_BINS - 1);
}

TEST(quantiles_lie_within_a_bin)
{
    struct canary_second second = {0};
    CHECK(isnan(canary_quantile(&second, 0.5)));
    for (int i = 1; i <= 1000; i++)
        second.bins[canary_bin(i * 1e-3)]++;
    CHECK_DBL(canary_quantile(&second, 0.5), 0.5, 0.01);
    CHECK_DBL(canary_quantile(&second, 0.99), 0.99, 0.02);
    CHECK_DBL(canary_quantile(&second, 1), 1, 0.02);
    CHECK_DBL(canary_quantile(&second, 0), 1e-3, 2e-5);
    CHECK(isnan(canary_quantile(&second, 1.1)));
    CHECK(isnan(canary_quantile(&second, NAN)));
}

TEST(sums_do_not_wrap)
{
    struct canary_second sum = {.requests = 1, .errors = 1},
                         more = {.requests = 2, .wrong = 3, .truncated = 4};
    sum.bins[7] = UINT32_MAX - 1;
    more.bins[7] = 5;
    more.bins[8] = 6;
    canary_second_add(&sum, &more);
    CHECK_INT(sum.requests, 3);
    CHECK_INT(sum.errors, 1);
    CHECK_INT(sum.wrong, 3);
    CHECK_INT(sum.truncated, 4);
    CHECK(sum.bins[7] == UINT32_MAX);
    CHECK_INT(sum.bins[8], 6);
}

static void check_round_trip(const uint32_t bins[CANARY_BINS])
{
    uint8_t bytes[CANARY_PACKED_MAX];
    uint32_t back[CANARY_BINS];
    size_t size = canary_pack(bins, bytes);
    CHECK(size <= CANARY_PACKED_MAX);
    CHECK_INT(canary_unpack(bytes, size, back), 0);
    CHECK(!memcmp(bins, back, sizeof back));
    // cut off: refused, or fewer bins; never read beyond
    for (size_t cut = 1; cut < size && cut < 40; cut++)
        canary_unpack(bytes, size - cut, back);
}

TEST(packed_and_back)
{
    struct random_state random = {3};
    uint32_t bins[CANARY_BINS] = {0};
    uint8_t bytes[CANARY_PACKED_MAX];
    CHECK_INT(canary_pack(bins, bytes), 0);
    check_round_trip(bins);
    bins[300] = 300; // two bytes each
    CHECK_INT(canary_pack(bins, bytes), 4);
    CHECK_INT(bytes[0], 0xac);
    CHECK_INT(bytes[1], 2);
    bins[300] = 0;
    bins[CANARY_BINS - 1] = UINT32_MAX;
    check_round_trip(bins);
    for (int i = 0; i < CANARY_BINS; i++)
        bins[i] = UINT32_MAX;
    check_round_trip(bins);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < CANARY_BINS; i++)
            bins[i] = random_next(&random) % 8
                    ? 0
                    : (uint32_t)(random_next(&random) >> (32 + random_next(&random) % 32));
        check_round_trip(bins);
    }
}

TEST(hostile_bytes_are_refused)
{
    uint32_t bins[CANARY_BINS];
    static const uint8_t half[] = {5}, open[] = {0x80}, zero[] = {0, 0},
                         long_number[] = {0, 0x80, 0x80, 0x80, 0x80, 0x80, 1},
                         too_large[] = {0, 0xff, 0xff, 0xff, 0xff, 0x1f}, needless[] = {0x80, 0, 1},
                         beyond[] = {0x80, 9, 1}, wraps[] = {1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 1};
    CHECK_INT(canary_unpack(half, sizeof half, bins), -EBADMSG);
    CHECK_INT(canary_unpack(open, sizeof open, bins), -EBADMSG);
    CHECK_INT(canary_unpack(zero, sizeof zero, bins), -EBADMSG);
    CHECK_INT(canary_unpack(long_number, sizeof long_number, bins), -EBADMSG);
    CHECK_INT(canary_unpack(too_large, sizeof too_large, bins), -EBADMSG);
    CHECK_INT(canary_unpack(needless, sizeof needless, bins), -EBADMSG);
    CHECK_INT(canary_unpack(beyond, sizeof beyond, bins), -EBADMSG); // skips 1,152
    CHECK_INT(canary_unpack(wraps, sizeof wraps, bins), -EBADMSG);
    CHECK_INT(canary_unpack(half, 0, bins), 0);
    struct random_state random = {9};
    int refused = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[48];
        size_t size = random_next(&random) % sizeof bytes;
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)random_next(&random);
        refused += canary_unpack(bytes, size, bins) != 0;
    }
    CHECK(refused > 10000);
}
