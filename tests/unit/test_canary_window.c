// SPDX-License-Identifier: Apache-2.0
// Windows and freezes: time zones with their changes of the clock, nights, the next moment.
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "harness/canary/plan/window.h"
#include "tests/unit/runner.h"

static int64_t utc(int year, int month, int day, int hour, int minute)
{
    struct tm tm = {.tm_year = year - 1900,
            .tm_mon = month - 1,
            .tm_mday = day,
            .tm_hour = hour,
            .tm_min = minute};
    return timegm(&tm);
}

static struct rollout_window berlin = {
        .days = 0x0f, .from_min = 9 * 60, .to_min = 16 * 60, .zone = "Europe/Berlin"};

TEST(always_without_any)
{
    struct rollout rollout = {0};
    CHECK_INT(window_at(&rollout, utc(2026, 11, 23, 3, 0)), WINDOW_OPEN);
    CHECK_INT(window_next(&rollout, 12345), 12345);
}

TEST(a_zone_in_summer_and_winter)
{
    struct rollout rollout = {.windows = &berlin, .window_count = 1};
    struct error err = {0};
    if (window_check_zone("Europe/Berlin", &err))
        runner_skip("no time zone database here");
    CHECK_INT(window_at(&rollout, utc(2026, 11, 23, 7, 59)), WINDOW_CLOSED); // Monday, UTC+1
    CHECK_INT(window_at(&rollout, utc(2026, 11, 23, 8, 0)), WINDOW_OPEN);
    CHECK_INT(window_at(&rollout, utc(2026, 11, 23, 14, 59)), WINDOW_OPEN);
    CHECK_INT(window_at(&rollout, utc(2026, 11, 23, 15, 0)), WINDOW_CLOSED);
    CHECK_INT(window_at(&rollout, utc(2026, 7, 6, 7, 0)), WINDOW_OPEN); // Monday, UTC+2
    CHECK_INT(window_at(&rollout, utc(2026, 7, 6, 6, 59)), WINDOW_CLOSED);
    // a Friday
    CHECK_INT(window_at(&rollout, utc(2026, 11, 27, 10, 0)), WINDOW_CLOSED);
    // Thursday night to Monday
    CHECK_INT(window_next(&rollout, utc(2026, 11, 26, 20, 30)), utc(2026, 11, 30, 8, 0));
    // the clock changes in between
    CHECK_INT(window_next(&rollout, utc(2026, 3, 26, 20, 0)), utc(2026, 3, 30, 7, 0));
    CHECK(!getenv("TZ"));
}

TEST(over_midnight)
{
    // opens on Fridays
    struct rollout_window night = {.days = 1 << 4, .from_min = 22 * 60, .to_min = 2 * 60};
    struct rollout rollout = {.windows = &night, .window_count = 1};
    CHECK_INT(window_at(&rollout, utc(2026, 11, 27, 21, 59)), WINDOW_CLOSED);
    CHECK_INT(window_at(&rollout, utc(2026, 11, 27, 22, 0)), WINDOW_OPEN);
    CHECK_INT(window_at(&rollout, utc(2026, 11, 28, 1, 59)), WINDOW_OPEN); // Saturday
    CHECK_INT(window_at(&rollout, utc(2026, 11, 28, 2, 0)), WINDOW_CLOSED);
    CHECK_INT(window_at(&rollout, utc(2026, 11, 27, 1, 0)), WINDOW_CLOSED); // the night of Thursday
}

TEST(freezes)
{
    struct rollout_freeze christmas = {.from = "2026-12-20", .to = "2027-01-02"};
    struct rollout rollout = {.freezes = &christmas, .freeze_count = 1};
    CHECK_INT(window_at(&rollout, utc(2026, 12, 19, 23, 59)), WINDOW_OPEN);
    CHECK_INT(window_at(&rollout, utc(2026, 12, 20, 0, 0)), WINDOW_FROZEN);
    CHECK_INT(window_at(&rollout, utc(2027, 1, 2, 23, 59)), WINDOW_FROZEN);
    CHECK_INT(window_at(&rollout, utc(2027, 1, 3, 0, 0)), WINDOW_OPEN);
    CHECK_INT(window_next(&rollout, utc(2026, 12, 24, 18, 0)), utc(2027, 1, 3, 0, 0));
    struct rollout_window one = {.days = 0x7f, .from_min = 60, .to_min = 120};
    rollout.windows = &one;
    rollout.window_count = 1;
    CHECK_INT(window_next(&rollout, utc(2026, 12, 24, 18, 0)), utc(2027, 1, 3, 1, 0));
    struct rollout_freeze ever = {.from = "2026-01-01", .to = "2030-01-01"};
    rollout.freezes = &ever;
    CHECK_INT(window_next(&rollout, utc(2026, 12, 24, 18, 0)), -1);
}

// The next moment is open, and no minute before it is.
TEST(next_is_the_first)
{
    struct rollout_window windows[] = {
            {.days = 0x15, .from_min = 13, .to_min = 61, .zone = "America/New_York"},
            {.days = 0x60, .from_min = 23 * 60 + 30, .to_min = 15, .zone = "Asia/Kolkata"}};
    // the clock changes in New York
    struct rollout_freeze freeze = {.from = "2026-03-07", .to = "2026-03-09"};
    struct rollout rollout = {
            .windows = windows, .window_count = 2, .freezes = &freeze, .freeze_count = 1};
    if (window_check_zone("America/New_York", NULL) || window_check_zone("Asia/Kolkata", NULL))
        runner_skip("no time zone database here");
    int64_t at = utc(2026, 3, 5, 0, 1);
    for (int i = 0; i < 6; i++) {
        int64_t next = window_next(&rollout, at), first = at;
        while (window_at(&rollout, first) != WINDOW_OPEN)
            first = first - first % 60 + 60;
        CHECK_INT(next, first);
        for (at = next; window_at(&rollout, at) == WINDOW_OPEN;)
            at += 60;
    }
}

TEST(words)
{
    uint8_t days = 0;
    int minute = -1;
    struct rollout_freeze freeze = {0};
    CHECK_INT(window_parse_days("sat-mon,Wed", &days, NULL), 0);
    CHECK_INT(days, 0x65);
    char *text = window_format_days(days);
    CHECK_STR(text, "mon,wed,sat,sun");
    free(text);
    CHECK_INT(window_parse_days("", &days, NULL), -EINVAL);
    CHECK_INT(window_parse_days("mon,", &days, NULL), -EINVAL);
    CHECK_INT(window_parse_days("mon-", &days, NULL), -EINVAL);
    CHECK_INT(window_parse_minute("24:00", &minute, NULL), 0);
    CHECK_INT(minute, 1440);
    CHECK_INT(window_parse_minute("24:01", &minute, NULL), -EINVAL);
    CHECK_INT(window_parse_minute("1a:00", &minute, NULL), -EINVAL);
    CHECK_INT(window_parse_freeze("2024-02-29", &freeze, NULL), 0);
    CHECK_STR(freeze.from, freeze.to);
    free(freeze.from);
    free(freeze.to);
    CHECK_INT(window_parse_freeze("2026-02-29", &freeze, NULL), -EINVAL);
    CHECK_INT(window_parse_freeze("2026-01-01/", &freeze, NULL), -EINVAL);
    CHECK_INT(window_parse_freeze("2026-01-01/2026-01-02/x", &freeze, NULL), -EINVAL);
}
