// SPDX-License-Identifier: Apache-2.0
// See numbers.h. Pure functions; no locale, no state.
#include "reports/render/text/numbers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "common/units.h"

char *numbers_print(char *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf, NUMBERS_SIZE, fmt, args);
    va_end(args);
    return buf;
}

char *numbers_fraction(double fraction, char *buf)
{
    // "1e+03 %" is none
    const char *form = fraction < 0.1 ? "%.2g %%" : fraction < 9.995 ? "%.3g %%" : "%.0f %%";
    return isfinite(fraction) ? numbers_print(buf, form, fraction * 100) : numbers_print(buf, "-");
}

char *numbers_setting(double fraction, char *buf)
{
    return isfinite(fraction) ? numbers_print(buf, "%.6g %%", fraction * 100)
                              : numbers_print(buf, "-");
}

char *numbers_change(double fraction, char *buf)
{
    return unit_format_change(buf, NUMBERS_SIZE, fraction);
}

char *numbers_error(double error, char *buf)
{
    return isfinite(error) ? numbers_print(buf, "%.2g", error) : numbers_print(buf, "-");
}

char *numbers_count(int64_t count, char *buf)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)count);
    char *to = buf;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0 && digits[i - 1] != '-')
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return buf;
}

char *numbers_ns(double ns, char *buf)
{
    return unit_format_ns(buf, NUMBERS_SIZE, isfinite(ns) ? ns : NAN);
}

char *numbers_delta(double ns, char *buf)
{
    if (!isfinite(ns))
        return numbers_print(buf, "-");
    if (fabs(ns) < 0.5)
        return numbers_print(buf, "0");
    *buf = ns > 0 ? '+' : '-';
    unit_format_ns(buf + 1, NUMBERS_SIZE - 1, fabs(ns));
    return buf;
}

char *numbers_duration(int64_t ns, char *buf)
{
    int64_t seconds = (ns + 500000000) / 1000000000;
    if (ns < 0)
        return numbers_print(buf, "-");
    if (seconds < 60)
        return numbers_print(buf, "%lld s", (long long)seconds);
    if (seconds < 3600)
        return numbers_print(
                buf, "%lld min %02lld s", (long long)(seconds / 60), (long long)(seconds % 60));
    return numbers_print(
            buf, "%lld h %02lld min", (long long)(seconds / 3600), (long long)(seconds / 60 % 60));
}

char *numbers_time(int64_t wall_ns, char *buf)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    if (wall_ns < 0 || !gmtime_r(&seconds, &parts) ||
            !strftime(buf, NUMBERS_SIZE, "%Y-%m-%d %H:%M UTC", &parts))
        snprintf(buf, NUMBERS_SIZE, "-");
    return buf;
}
