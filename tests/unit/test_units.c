// SPDX-License-Identifier: Apache-2.0
// Numbers with units, both directions, and what is refused.
#include <errno.h>
#include <math.h>

#include "common/units.h"
#include "tests/unit/runner.h"

TEST(durations)
{
    int64_t ns = 1;
    struct error err = {0};
    CHECK_INT(unit_parse_duration("20ms", &ns, &err), 0);
    CHECK_INT(ns, 20000000);
    CHECK_INT(unit_parse_duration("1.5 s", &ns, &err), 0);
    CHECK_INT(ns, 1500000000);
    CHECK_INT(unit_parse_duration("10min", &ns, &err), 0);
    CHECK_INT(ns, 600000000000);
    CHECK_INT(unit_parse_duration("10", &ns, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "has no unit");
    CHECK_INT(unit_parse_duration("10parsec", &ns, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "'parsec'");
    CHECK_INT(unit_parse_duration("-1s", &ns, &err), -EINVAL);
    CHECK_INT(unit_parse_duration("inf s", &ns, &err), -EINVAL);
    CHECK_INT(unit_parse_duration("", &ns, &err), -EINVAL);
    CHECK_INT(ns, 600000000000);
}

TEST(bytes_fractions_rates)
{
    uint64_t bytes = 0;
    double value = 0;
    CHECK_INT(unit_parse_bytes("64M", &bytes, NULL), 0);
    CHECK_INT(bytes, 64 << 20);
    CHECK_INT(unit_parse_bytes("64 parsec", &bytes, NULL), -EINVAL);
    CHECK_INT(unit_parse_fraction("2%", &value, NULL), 0);
    CHECK_DBL(value, 0.02, 1e-15);
    CHECK_INT(unit_parse_fraction("0.5", &value, NULL), 0);
    CHECK_DBL(value, 0.5, 0);
    CHECK_INT(unit_parse_rate("30/min", &value, NULL), 0);
    CHECK_DBL(value, 0.5, 1e-15);
    CHECK_INT(unit_parse_rate("-3/s", &value, NULL), -EINVAL);
}

TEST(whole_numbers)
{
    uint64_t value = 7;
    struct error err = {0};
    CHECK_INT(unit_parse_uint("10", 1, 20, &value, &err), 0);
    CHECK_INT(value, 10);
    CHECK_INT(unit_parse_uint("21", 1, 20, &value, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "1 to 20");
    CHECK_INT(unit_parse_uint("-1", 0, 20, &value, &err), -EINVAL);
    CHECK_INT(unit_parse_uint("1x", 0, 20, &value, &err), -EINVAL);
    CHECK_INT(unit_parse_uint("99999999999999999999999", 0, UINT64_MAX, &value, &err), -EINVAL);
    CHECK_INT(value, 10);
}

TEST(formatting)
{
    char buf[32];
    CHECK_STR(unit_format_ns(buf, sizeof buf, 12345678), "12.3 ms");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 250e6), "250 ms");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 90e9), "1.5 min");
    CHECK_STR(unit_format_ns(buf, sizeof buf, NAN), "-");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 999), "999 ns");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 999499), "999 us");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 999700), "1 ms");
    CHECK_STR(unit_format_ns(buf, sizeof buf, -999700), "-1 ms");
    CHECK_STR(unit_format_ns(buf, sizeof buf, 999700000), "1 s");
    CHECK_STR(unit_format_bytes(buf, sizeof buf, 1536.0 * 1024 * 1024), "1.50 GiB");
    CHECK_STR(unit_format_bytes(buf, sizeof buf, 512), "512 B");
}

TEST(a_change_of_nothing_has_no_sign)
{
    char buf[32];
    CHECK_STR(unit_format_change(buf, sizeof buf, 0.0514), "+5.1 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, -0.013), "-1.3 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, 9.625), "+962.5 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, -0.0004), "0.0 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, 0.0004), "0.0 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, -0.0006), "-0.1 %");
    CHECK_STR(unit_format_change(buf, sizeof buf, INFINITY), "-");
    CHECK_STR(unit_format_change(buf, sizeof buf, NAN), "-");
}

TEST(traced_steps_are_told_in_one_way)
{
    char text[160];
    CHECK_STR(unit_format_traced(text, sizeof text, "step", (const double[]){1.04, 1.0504}),
            "a traced step took 1.040 (a) and 1.050 (b) times as long as an untraced one");
    CHECK_STR(unit_format_traced(text, sizeof text, "launch", (const double[]){NAN, 2}),
            "a traced launch took unknown (a) and 2.000 (b) times as long as an untraced one");
}
