// SPDX-License-Identifier: Apache-2.0
// When moves up are allowed. Reads the time zone database through the C library; no clock of its
// own.
#include "harness/canary/plan/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"

enum { WINDOW_DAY_MIN = 24 * 60, WINDOW_SEARCH_DAYS = 400, WINDOW_DST_MIN = 180 };

static const char *const window_days[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

// --- words of a plan

static int window_parse_day(const char *text, size_t len)
{
    for (int i = 0; i < 7; i++)
        if (len == 3 && strncasecmp(text, window_days[i], 3) == 0)
            return i;
    return -1;
}

int window_parse_days(const char *text, uint8_t *ret_days, struct error *err)
{
    uint8_t days = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ","), dash = strcspn(at, ",-");
        int from = window_parse_day(at, dash),
            to = dash < len ? window_parse_day(at + dash + 1, len - dash - 1) : from;
        if (from < 0 || to < 0)
            return error_set(err, -EINVAL, "'%s' are no days such as mon-thu or mon,wed,fri", text);
        for (int day = from;; day = (day + 1) % 7) { // sat-mon goes over the week's end
            days |= (uint8_t)(1 << day);
            if (day == to)
                break;
        }
        at += len;
        if (!*at)
            break;
    }
    *ret_days = days;
    return 0;
}

char *window_format_days(uint8_t days)
{
    struct strbuf list = {0};
    for (int i = 0; i < 7; i++)
        if (days >> i & 1)
            strbuf_add(&list, "%s%s", list.len ? "," : "", window_days[i]);
    return strbuf_take(&list);
}

// Two digits, no sign, no space.
static int window_digits(const char *text)
{
    bool ok = text[0] >= '0' && text[0] <= '9' && text[1] >= '0' && text[1] <= '9';
    return ok ? (text[0] - '0') * 10 + text[1] - '0' : -1;
}

int window_parse_minute(const char *text, int *ret_minute, struct error *err)
{
    int hour = -1, minute = -1;
    if (strlen(text) == 5 && text[2] == ':') {
        hour = window_digits(text);
        minute = window_digits(text + 3);
    }
    if (hour < 0 || minute < 0 || minute > 59 || hour * 60 + minute > WINDOW_DAY_MIN)
        return error_set(err, -EINVAL, "'%s' is no time of day such as \"09:00\"", text);
    *ret_minute = hour * 60 + minute;
    return 0;
}

static bool window_is_day(const char *text, size_t len)
{
    if (len != 10 || text[4] != '-' || text[7] != '-')
        return false;
    int high = window_digits(text), low = window_digits(text + 2);
    int month = window_digits(text + 5), day = window_digits(text + 8);
    if (high < 0 || low < 0 || month < 1 || month > 12 || day < 1)
        return false;
    struct tm tm = {
            .tm_year = high * 100 + low - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = 12};
    timegm(&tm); // 30 February becomes a day of March
    return tm.tm_mon == month - 1 && tm.tm_mday == day;
}

int window_parse_freeze(const char *text, struct rollout_freeze *ret, struct error *err)
{
    size_t len = strcspn(text, "/");
    const char *to = text[len] ? text + len + 1 : text;
    if (!window_is_day(text, len) || !window_is_day(to, strlen(to)))
        return error_set(
                err, -EINVAL, "'%s' are no days such as 2026-12-20/2027-01-02, or one day", text);
    if (strncmp(to, text, 10) < 0)
        return error_set(err, -EINVAL, "'%s' ends before it begins", text);
    *ret = (struct rollout_freeze){.from = strndup(text, 10), .to = strndup(to, 10)};
    return 0;
}

int window_check_zone(const char *zone, struct error *err)
{
    char magic[4] = "";
    const char *folder = getenv("TZDIR");
    char *path = xasprintf("%s/%s", folder ? folder : "/usr/share/zoneinfo", zone);
    // The C library takes an unknown zone for UTC, silently.
    bool inside = zone[0] != '/' && !strstr(zone, "..");
    int fd = inside ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && read(fd, magic, sizeof magic) == sizeof magic &&
            memcmp(magic, "TZif", 4) == 0;
    if (fd >= 0)
        close(fd);
    int rc = ok
            ? 0
            : error_set(err, -EINVAL,
                      "time zone '%.80s' is not in this machine's database (%s); e.g. Europe/Berlin, UTC",
                      zone, folder ? folder : "/usr/share/zoneinfo");
    free(path);
    return rc;
}

// --- moments

// NULL: UTC.
static struct tm window_local(const char *zone, int64_t at_s)
{
    struct tm tm = {0};
    time_t at = (time_t)at_s;
    if (!zone) {
        gmtime_r(&at, &tm);
        return tm;
    }
    const char *was = getenv("TZ");
    char *kept = was ? xstrdup(was) : NULL, *name = xasprintf(":%s", zone);
    setenv("TZ", name, 1);
    tzset();
    localtime_r(&at, &tm);
    if (kept)
        setenv("TZ", kept, 1);
    else
        unsetenv("TZ");
    tzset();
    free(kept);
    free(name);
    return tm;
}

static bool window_frozen(const struct rollout *rollout, int64_t at_s)
{
    if (!rollout->freeze_count)
        return false;
    char day[32];
    struct tm tm = window_local(rollout->window_count ? rollout->windows[0].zone : NULL, at_s);
    snprintf(day, sizeof day, "%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    for (int i = 0; i < rollout->freeze_count; i++)
        if (strcmp(day, rollout->freezes[i].from) >= 0 && strcmp(day, rollout->freezes[i].to) <= 0)
            return true;
    return false;
}

// A window over midnight belongs to the day on which it opens.
static bool window_within(const struct rollout_window *window, const struct tm *tm)
{
    int minute = tm->tm_hour * 60 + tm->tm_min, day = (tm->tm_wday + 6) % 7;
    bool today = window->days >> day & 1, yesterday = window->days >> (day + 6) % 7 & 1;
    if (window->from_min < window->to_min)
        return today && minute >= window->from_min && minute < window->to_min;
    return (today && minute >= window->from_min) || (yesterday && minute < window->to_min);
}

enum window_answer window_at(const struct rollout *rollout, int64_t at_s)
{
    if (window_frozen(rollout, at_s))
        return WINDOW_FROZEN;
    for (int i = 0; i < rollout->window_count; i++) {
        struct tm tm = window_local(rollout->windows[i].zone, at_s);
        if (window_within(&rollout->windows[i], &tm))
            return WINDOW_OPEN;
    }
    return rollout->window_count ? WINDOW_CLOSED : WINDOW_OPEN;
}

int64_t window_next(const struct rollout *rollout, int64_t at_s)
{
    if (window_at(rollout, at_s) == WINDOW_OPEN)
        return at_s;
    const char *zone = rollout->window_count ? rollout->windows[0].zone : NULL;
    int64_t end = at_s + (int64_t)WINDOW_SEARCH_DAYS * 86400;
    for (int64_t at = at_s - at_s % 60 + 60; at < end; at += 60) {
        enum window_answer answer = window_at(rollout, at);
        if (answer == WINDOW_OPEN)
            return at;
        struct tm tm = window_local(zone, at);
        int left = WINDOW_DAY_MIN - tm.tm_hour * 60 - tm.tm_min - WINDOW_DST_MIN;
        // a frozen day: to its last hours at once, for a day may be shorter
        if (answer == WINDOW_FROZEN && left > 0)
            at += (int64_t)left * 60;
    }
    return -1;
}
