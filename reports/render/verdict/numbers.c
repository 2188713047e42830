// SPDX-License-Identifier: Apache-2.0
// Numbers of a cell as text. Pure functions of struct report's members; no locale, no state.
#include "reports/render/verdict/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/strings.h"
#include "contracts/metrics.h"

enum { NUMBERS_DECIMALS_MAX = 3 };

struct numbers_scale {
    const char *unit; // of the store
    double factor;
    const char *name;
};

// Falling factors within a unit; the last of a unit takes everything smaller.
static const struct numbers_scale numbers_scales[] = {
    {"ns", 3.6e12, " h"},
    {"ns", 6e10, " min"},
    {"ns", 1e9, " s"},
    {"ns", 1e6, " ms"},
    {"ns", 1e3, " us"},
    {"ns", 1, " ns"},
    {"bytes", 1073741824.0, " GiB"},
    {"bytes", 1048576.0, " MiB"},
    {"bytes", 1024.0, " KiB"},
    {"bytes", 1, " B"},
    {"1/s", 1e9, " G/s"},
    {"1/s", 1e6, " M/s"},
    {"1/s", 1e3, " k/s"},
    {"1/s", 1, " /s"},
};

static struct numbers_scale numbers_find_scale(const char *unit, double value)
{
    const struct numbers_scale *last = NULL;
    for (size_t i = 0; i < sizeof numbers_scales / sizeof *numbers_scales; i++) {
        if (strcmp(numbers_scales[i].unit, unit) != 0)
            continue;
        last = &numbers_scales[i];
        if (value >= last->factor)
            break;
    }
    return last ? *last : (struct numbers_scale){unit, 1, ""};
}

static void numbers_scaled(char *buf, double value, const struct numbers_scale *scale, int decimals)
{
    if (isfinite(value))
        snprintf(buf, NUMBERS_SIZE, "%.*f%s", decimals, value / scale->factor, scale->name);
    else
        snprintf(buf, NUMBERS_SIZE, "-");
}

// One median: four significant digits of `largest` in the unit that suits `smallest`.
static void numbers_median(const char *unit, char *buf, double value, double smallest,
                           double largest)
{
    struct numbers_scale scale = numbers_find_scale(unit, fabs(smallest));
    double digits = largest != 0 && isfinite(largest) ? floor(log10(fabs(largest) / scale.factor)) : 0;
    bool whole = scale.factor == 1 && (strcmp(unit, "ns") == 0 || strcmp(unit, "bytes") == 0);
    int decimals = whole || digits > 3 ? 0 : digits < -3 ? 6 : 3 - (int)digits;
    numbers_scaled(buf, value, &scale, decimals);
}

static bool numbers_is(const struct report_cell *cell, enum metric_id metric)
{
    return cell->metric && strcmp(cell->metric, metric_infos[metric].name) == 0;
}

bool numbers_is_share(const struct report_cell *cell)
{
    return numbers_is(cell, METRIC_SLOW_STEPS);
}

// A share of the time: "0.42 %", with the decimals that give `least` two digits.
static void numbers_share(char *buf, double share, double least)
{
    double percent = fabs(100 * least);
    int decimals = percent > 0 ? 1 - (int)floor(log10(percent)) : 0;
    decimals = decimals < 1 ? 1 : decimals > NUMBERS_DECIMALS_MAX ? NUMBERS_DECIMALS_MAX : decimals;
    if (isfinite(share))
        snprintf(buf, NUMBERS_SIZE, "%.*f %%", share == 0 ? 0 : decimals, 100 * share);
    else
        snprintf(buf, NUMBERS_SIZE, "-");
}

void numbers_medians(const struct report_cell *cell, char *ret_a, char *ret_b)
{
    double a = cell->median_a, b = cell->median_b;
    double smallest = fmin(fabs(a), fabs(b)), largest = fmax(fabs(a), fabs(b)); // pass over a NAN
    if (numbers_is_share(cell)) {
        bool near = largest < 100 * smallest;
        numbers_share(ret_a, a, near ? smallest : a);
        numbers_share(ret_b, b, near ? smallest : b);
    } else if (largest < 100 * smallest) {
        numbers_median(cell->unit, ret_a, a, smallest, largest);
        numbers_median(cell->unit, ret_b, b, smallest, largest);
    } else { // too far apart for one unit
        numbers_median(cell->unit, ret_a, a, a, a);
        numbers_median(cell->unit, ret_b, b, b, b);
    }
}

// The ratio at which a cell stops to pass; NAN without a margin.
static double numbers_limit(const struct report_cell *cell)
{
    return cell->higher_is_better ? 1 / (1 + cell->margin) : 1 + cell->margin;
}

static double numbers_rounded(double percent, int decimals)
{
    double power = pow(10, decimals);
    return round(percent * power) / power;
}

// A bound that rounds onto or over the margin would look wrong: more decimals then.
static bool numbers_misleads(const struct report_cell *cell, double bound, int decimals)
{
    double limit = (numbers_limit(cell) - 1) * 100, percent = (bound - 1) * 100;
    if (!isfinite(limit) || !isfinite(percent) || percent == limit)
        return false;
    double shown = numbers_rounded(percent, decimals),
           shown_limit = numbers_rounded(limit, decimals);
    return (percent > limit) != (shown > shown_limit) || shown == shown_limit;
}

// Decimals of one number of a cell: none when the cell is far away, more for a bound that would
// otherwise seem to lie on the margin or beyond it.
static int numbers_decimals(const struct report_cell *cell, double value, bool bound)
{
    double farthest =
        fmax(fabs(cell->ratio - 1), fmax(fabs(cell->ci_lower - 1), fabs(cell->ci_upper - 1)));
    int decimals = cell->margin < 0.005 ? 2 : farthest >= 0.2 ? 0 : 1;
    while (bound && decimals < NUMBERS_DECIMALS_MAX && numbers_misleads(cell, value, decimals))
        decimals++;
    return decimals;
}

// "+5.1"; what rounds to zero is "0.0": a sign would ask on which side of it.
static void numbers_percent(char *buf, double ratio, int decimals)
{
    double percent = numbers_rounded((ratio - 1) * 100, decimals);
    snprintf(buf, NUMBERS_SIZE, percent == 0 ? "%.*f" : "%+.*f", decimals,
             percent == 0 ? 0 : percent);
}

char *numbers_change(const struct report_cell *cell, char *buf)
{
    if (!isfinite(cell->ratio)) {
        snprintf(buf, NUMBERS_SIZE, "-");
        return buf;
    }
    numbers_percent(buf, cell->ratio, numbers_decimals(cell, cell->ratio, false));
    strcat(buf, " %");
    return buf;
}

char *numbers_interval(const struct report_cell *cell, char *buf)
{
    char lower[NUMBERS_SIZE], upper[NUMBERS_SIZE];
    if (!isfinite(cell->ci_lower) || !isfinite(cell->ci_upper)) {
        snprintf(buf, NUMBERS_SIZE, "-");
        return buf;
    }
    numbers_percent(lower, cell->ci_lower, numbers_decimals(cell, cell->ci_lower, true));
    numbers_percent(upper, cell->ci_upper, numbers_decimals(cell, cell->ci_upper, true));
    snprintf(buf, NUMBERS_SIZE, "%.28s to %.28s", lower, upper);
    return buf;
}

char *numbers_fraction(double fraction, char *buf)
{
    if (isfinite(fraction))
        snprintf(buf, NUMBERS_SIZE, fraction < 0.1 ? "%.2g %%" : "%.3g %%", fraction * 100);
    else
        snprintf(buf, NUMBERS_SIZE, "-");
    return buf;
}

char *numbers_margin(const struct report_cell *cell, char *buf)
{
    return numbers_fraction(cell->gating ? cell->margin : NAN, buf);
}

char *numbers_error(double error, char *buf)
{
    snprintf(buf, NUMBERS_SIZE, isfinite(error) ? "%.2g" : "-", error);
    return buf;
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

char *numbers_duration(int64_t ns, char *buf)
{
    int64_t seconds = (ns + 500000000) / 1000000000;
    if (ns < 0)
        snprintf(buf, NUMBERS_SIZE, "-");
    else if (seconds < 60)
        snprintf(buf, NUMBERS_SIZE, "%lld s", (long long)seconds);
    else if (seconds < 3600)
        snprintf(buf, NUMBERS_SIZE, "%lld min %02lld s", (long long)(seconds / 60),
                 (long long)(seconds % 60));
    else
        snprintf(buf, NUMBERS_SIZE, "%lld h %02lld min", (long long)(seconds / 3600),
                 (long long)(seconds / 60 % 60));
    return buf;
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

char *numbers_confidence(const struct report_cell *cells, int count, char *buf)
{
    double low = NAN, high = NAN;
    for (int i = 0; i < count; i++) {
        if (!isfinite(cells[i].ci_lower) || !isfinite(cells[i].alpha))
            continue;
        low = fmin(low, 100 * (1 - 2 * cells[i].alpha));
        high = fmax(high, 100 * (1 - 2 * cells[i].alpha));
    }
    if (!isfinite(low))
        snprintf(buf, NUMBERS_SIZE, "interval");
    else if (high - low < 1e-6)
        snprintf(buf, NUMBERS_SIZE, "%.4g %% interval", low);
    else
        snprintf(buf, NUMBERS_SIZE, "%.4g to %.4g %% interval", low, high);
    return buf;
}

char *numbers_steps_legend(const struct report_cell *cells, int count)
{
    bool slow = false, warm = false;
    for (int i = 0; i < count; i++) {
        slow |= numbers_is(&cells[i], METRIC_SLOW_STEPS);
        warm |= numbers_is(&cells[i], METRIC_WARM_UP_TIME);
    }
    if (!slow && !warm)
        return xstrdup("");
    return xasprintf(" %s%s%s; %s is that of the time of a run.",
                     slow ? "slow_steps is the share of the time that slow steps lose" : "",
                     slow && warm ? ", " : "",
                     warm ? "warm_up_time is what the warm-up takes beyond steady steps" : "",
                     slow && warm ? "their change" : "its change");
}

// The gate opens a reason with the numbers that every form shows anyway: "5.1 % slower:
// ratio 1.0512 (1.0461 to 1.0563) at 10 pairs, beyond ...". What follows them is the news.
static const char *numbers_news(const struct report_cell *cell)
{
    char *numbers = xasprintf(" at %lld pairs", (long long)cell->pairs);
    // How many slow steps, how slow and how regular may stand on either side of the numbers.
    bool cut = !numbers_is_share(cell) && strstr(cell->reason, "ratio ");
    const char *news = cut ? strstr(cell->reason, numbers) : NULL;
    if (news)
        news += strlen(numbers);
    free(numbers);
    if (!news)
        return cell->reason;
    news += strspn(news, ",;: ");
    if (strncmp(news, "and ", 4) == 0 || strncmp(news, "but ", 4) == 0)
        news += 4;
    return *news ? news : cell->reason;
}

char *numbers_remark(const struct report_cell *cell)
{
    struct strbuf remark = {0};
    char number[NUMBERS_SIZE];
    if (cell->verdict != REPORT_VERDICT_FAIL && cell->verdict != REPORT_VERDICT_INCONCLUSIVE)
        return strbuf_take(&remark);
    const char *news = numbers_news(cell);
    strbuf_add(&remark, "%s", news);
    if (cell->verdict == REPORT_VERDICT_INCONCLUSIVE) {
        if (cell->pairs_needed > 0 && !strstr(news, "would settle it"))
            strbuf_add(&remark, "; needs ~%lld pairs", (long long)cell->pairs_needed);
        if (isfinite(cell->mde))
            strbuf_add(&remark, "; %lld pairs can see >= %s", (long long)cell->pairs,
                       numbers_fraction(cell->mde, number));
    }
    if (cell->confirmed >= 0 && !strstr(news, "fresh pairs"))
        strbuf_add(&remark, "; %sconfirmed on %lld fresh pairs", cell->confirmed ? "" : "not ",
                   (long long)cell->confirm_pairs);
    return strbuf_take(&remark);
}

char *numbers_ending(const struct report_crash *crash, char *buf)
{
    const char *name = crash->exit_signal > 0 ? sigabbrev_np((int)crash->exit_signal) : NULL;
    if (strcmp(crash->state, "timeout") == 0)
        snprintf(buf, NUMBERS_SIZE, "timed out");
    else if (strcmp(crash->state, "oom") == 0)
        snprintf(buf, NUMBERS_SIZE, "killed: out of memory");
    else if (strcmp(crash->state, "not_started") == 0)
        snprintf(buf, NUMBERS_SIZE, "could not be started");
    else if (crash->exit_signal > 0)
        snprintf(buf, NUMBERS_SIZE, "killed by signal %d%s%s%s", (int)crash->exit_signal,
                 name ? " (SIG" : "", name ? name : "", name ? ")" : "");
    else if (crash->exit_code >= 0)
        snprintf(buf, NUMBERS_SIZE, "exit code %lld", (long long)crash->exit_code);
    else
        snprintf(buf, NUMBERS_SIZE, "%.40s", crash->state);
    return buf;
}
