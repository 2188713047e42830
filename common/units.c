// SPDX-License-Identifier: Apache-2.0
// Numbers with units. The C library does the number; a table the unit. No state, locale "C"
// assumed.
#include "common/units.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

// clang-format off
static const struct unit unit_durations[] = {
    {"ns", 1},    {"us", 1e3},   {"ms", 1e6},      {"s", 1e9},     {"sec", 1e9},
    {"min", 6e10}, {"m", 6e10},  {"h", 3.6e12},    {"d", 8.64e13}, {NULL, 0},
};
// clang-format on
// clang-format off
static const struct unit unit_bytes[] = {
    {"", 1},           {"B", 1},          {"K", 1024.0},        {"KiB", 1024.0},
    {"M", 1048576.0},  {"MiB", 1048576.0}, {"G", 1073741824.0}, {"GiB", 1073741824.0},
    {"T", 1099511627776.0}, {"TiB", 1099511627776.0}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {NULL, 0},
};
// clang-format on
static const struct unit unit_fractions[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};
static const struct unit unit_rates[] = {
        {"", 1}, {"/s", 1}, {"/min", 1.0 / 60}, {"/h", 1.0 / 3600}, {"Hz", 1}, {NULL, 0}};

static int unit_parse(const char *text, const struct unit *units, const char *accepted, double *ret,
        struct error *err)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number) || errno == ERANGE)
        return error_set(
                err, -EINVAL, "'%s' is not a number with a unit; accepted: %s", text, accepted);
    while (*end == ' ')
        end++;
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(unit->name, end) == 0) {
            *ret = number * unit->factor;
            return 0;
        }
    }
    if (*end == 0)
        return error_set(err, -EINVAL, "'%s' has no unit; accepted: %s", text, accepted);
    return error_set(
            err, -EINVAL, "'%s' has the unknown unit '%s'; accepted: %s", text, end, accepted);
}

int unit_parse_duration(const char *text, int64_t *ret_ns, struct error *err)
{
    double ns;
    int rc = unit_parse(text, unit_durations, "ns, us, ms, s, min, h, d", &ns, err);
    if (rc)
        return rc;
    if (ns < 0 || ns > 9.2e18)
        return error_set(
                err, -EINVAL, "duration '%s' is out of range; accepted: 0 to 292 years", text);
    *ret_ns = llround(ns);
    return 0;
}

int unit_parse_bytes(const char *text, uint64_t *ret_bytes, struct error *err)
{
    double bytes;
    int rc = unit_parse(
            text, unit_bytes, "B, K, M, G, T (of 1024), kB, MB, GB (of 1000)", &bytes, err);
    if (rc)
        return rc;
    if (bytes < 0 || bytes > 9.2e18)
        return error_set(err, -EINVAL, "size '%s' is out of range", text);
    *ret_bytes = (uint64_t)llround(bytes);
    return 0;
}

int unit_parse_fraction(const char *text, double *ret, struct error *err)
{
    return unit_parse(
            text, unit_fractions, "a percentage such as 2%, or a fraction such as 0.02", ret, err);
}

int unit_parse_rate(const char *text, double *ret_per_s, struct error *err)
{
    double rate;
    int rc = unit_parse(text, unit_rates, "a rate such as 200/s or 30/min", &rate, err);
    if (rc)
        return rc;
    if (rate < 0)
        return error_set(err, -EINVAL, "rate '%s' is negative", text);
    *ret_per_s = rate;
    return 0;
}

int unit_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct error *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || text[0] == '-' || text[0] == '+' || text[0] == ' ')
        return error_set(err, -EINVAL, "'%s' is not a whole number", text);
    if (errno == ERANGE || value < min || value > max)
        return error_set(err, -EINVAL, "%s is out of range; accepted: %llu to %llu", text,
                (unsigned long long)min, (unsigned long long)max);
    *ret = value;
    return 0;
}

int unit_parse_double(const char *text, double min, double max, double *ret, struct error *err)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return error_set(err, -EINVAL, "'%s' is not a number", text);
    if (value < min || value > max)
        return error_set(err, -EINVAL, "%s is out of range; accepted: %g to %g", text, min, max);
    *ret = value;
    return 0;
}

char *unit_format_ns(char *buf, size_t size, double ns)
{
    double magnitude = fabs(ns);
    if (isnan(ns))
        snprintf(buf, size, "-");
    else if (magnitude < 999.5)
        snprintf(buf, size, "%.0f ns", ns);
    else if (magnitude < 999.5e3) // what rounds to 1000 is told in the next unit, not as "1e+03 us"
        snprintf(buf, size, "%.3g us", ns / 1e3);
    else if (magnitude < 999.5e6)
        snprintf(buf, size, magnitude < 1e8 ? "%.3g ms" : "%.0f ms", ns / 1e6);
    else if (magnitude < 6e10)
        snprintf(buf, size, "%.3g s", ns / 1e9);
    else if (magnitude < 3.6e12)
        snprintf(buf, size, "%.1f min", ns / 6e10);
    else
        snprintf(buf, size, "%.1f h", ns / 3.6e12);
    return buf;
}

char *unit_format_bytes(char *buf, size_t size, double bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    if (isnan(bytes)) {
        snprintf(buf, size, "-");
        return buf;
    }
    while (fabs(bytes) >= 1024 && i + 1 < sizeof names / sizeof *names) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, size,
            bytes < 10 && i            ? "%.2f %s"
                    : bytes < 100 && i ? "%.1f %s"
                                       : "%.0f %s",
            bytes, names[i]);
    return buf;
}

char *unit_format_change(char *buf, size_t size, double fraction)
{
    bool none = fabs(fraction) < 0.0005; // "-0.0 %" would ask on which side of 0
    if (!isfinite(fraction))
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, none ? "%.1f %%" : "%+.1f %%", none ? 0 : 100 * fraction);
    return buf;
}

char *unit_format_traced(char *text, size_t size, const char *what, const double ratio[2])
{
    char times[2][32];
    for (int side = 0; side < 2; side++) {
        if (isfinite(ratio[side]))
            snprintf(times[side], sizeof times[side], "%.3f", ratio[side]);
        else
            snprintf(times[side], sizeof times[side], "unknown");
    }
    snprintf(text, size, "a traced %s took %s (a) and %s (b) times as long as an untraced one",
            what, times[0], times[1]);
    return text;
}
