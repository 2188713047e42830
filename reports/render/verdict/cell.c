// SPDX-License-Identifier: Apache-2.0
// Numbers of a cell as text. Pure functions of struct report's members; no locale, no state.
#include "reports/render/verdict/cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "contracts/metrics.h"
#include "reports/render/text/numbers.h"

enum { CELL_DECIMALS_MAX = 3 };

struct cell_scale {
    const char *unit; // of the store
    double factor;
    const char *name;
};

// Falling factors within a unit; the last of a unit takes everything smaller.
static const struct cell_scale cell_scales[] = {
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

static struct cell_scale cell_find_scale(const char *unit, double value)
{
    const struct cell_scale *last = NULL;
    for (size_t i = 0; i < sizeof cell_scales / sizeof *cell_scales; i++) {
        if (strcmp(cell_scales[i].unit, unit) != 0)
            continue;
        last = &cell_scales[i];
        if (value >= last->factor)
            break;
    }
    return last ? *last : (struct cell_scale){unit, 1, ""};
}

static void cell_scaled(char *buf, double value, const struct cell_scale *scale, int decimals)
{
    numbers_print(
            buf, isfinite(value) ? "%.*f%s" : "-", decimals, value / scale->factor, scale->name);
}

// One median: four significant digits of `largest` in the unit that suits `smallest`.
static void cell_median(const char *unit, char *buf, double value, double smallest, double largest)
{
    struct cell_scale scale = cell_find_scale(unit, fabs(smallest));
    double digits =
            largest != 0 && isfinite(largest) ? floor(log10(fabs(largest) / scale.factor)) : 0;
    bool whole = scale.factor == 1 && (strcmp(unit, "ns") == 0 || strcmp(unit, "bytes") == 0);
    int decimals = whole || digits > 3 ? 0 : digits < -3 ? 6 : 3 - (int)digits;
    cell_scaled(buf, value, &scale, decimals);
}

static bool cell_is(const struct report_cell *cell, enum metric_id metric)
{
    return cell->metric && strcmp(cell->metric, metric_infos[metric].name) == 0;
}

bool cell_improved(const struct report_cell *cell)
{
    return cell->gating && cell->improved && cell->verdict == REPORT_VERDICT_PASS;
}

// A share of the time: "0.42 %", with the decimals that give `least` two digits.
static void cell_share(char *buf, double share, double least)
{
    double percent = fabs(100 * least);
    int decimals = percent > 0 ? 1 - (int)floor(log10(percent)) : 0;
    decimals = decimals < 1 ? 1 : decimals > CELL_DECIMALS_MAX ? CELL_DECIMALS_MAX : decimals;
    numbers_print(buf, isfinite(share) ? "%.*f %%" : "-", share == 0 ? 0 : decimals, 100 * share);
}

void cell_medians(const struct report_cell *cell, char *ret_a, char *ret_b)
{
    double a = cell->median_a, b = cell->median_b;
    double smallest = fmin(fabs(a), fabs(b)), largest = fmax(fabs(a), fabs(b)); // pass over a NAN
    if (cell_is(cell, METRIC_SLOW_STEPS)) { // medians are shares of the time
        bool near = largest < 100 * smallest;
        cell_share(ret_a, a, near ? smallest : a);
        cell_share(ret_b, b, near ? smallest : b);
    } else if (largest < 100 * smallest) {
        cell_median(cell->unit, ret_a, a, smallest, largest);
        cell_median(cell->unit, ret_b, b, smallest, largest);
    } else { // too far apart for one unit
        cell_median(cell->unit, ret_a, a, a, a);
        cell_median(cell->unit, ret_b, b, b, b);
    }
}

// The ratio at which a cell stops to pass; NAN without a margin.
static double cell_limit(const struct report_cell *cell)
{
    return cell->higher_is_better ? 1 / (1 + cell->margin) : 1 + cell->margin;
}

static double cell_rounded(double percent, int decimals)
{
    double power = pow(10, decimals);
    return round(percent * power) / power;
}

// A number that rounds onto or over the margin would look wrong: more decimals then.
static bool cell_misleads(const struct report_cell *cell, double bound, int decimals)
{
    double limit = (cell_limit(cell) - 1) * 100, percent = (bound - 1) * 100;
    if (!isfinite(limit) || !isfinite(percent) || percent == limit)
        return false;
    double shown = cell_rounded(percent, decimals), shown_limit = cell_rounded(limit, decimals);
    return (percent > limit) != (shown > shown_limit) || shown == shown_limit;
}

// Decimals of one number of a cell: none when the cell is far away, more for one that would
// otherwise seem to lie on the margin or beyond it.
static int cell_decimals(const struct report_cell *cell, double value)
{
    double farthest =
            fmax(fabs(cell->ratio - 1), fmax(fabs(cell->ci_lower - 1), fabs(cell->ci_upper - 1)));
    int decimals = cell->margin < 0.005 ? 2 : farthest >= 0.2 ? 0 : 1;
    while (decimals < CELL_DECIMALS_MAX && cell_misleads(cell, value, decimals))
        decimals++;
    return decimals;
}

// "+5.1"; what rounds to zero is "0.0": a sign would ask on which side of it.
static void cell_percent(char *buf, double ratio, int decimals)
{
    double percent = cell_rounded((ratio - 1) * 100, decimals);
    snprintf(buf, NUMBERS_SIZE, percent == 0 ? "%.*f" : "%+.*f", decimals,
            percent == 0 ? 0 : percent);
}

char *cell_change(const struct report_cell *cell, char *buf)
{
    if (!isfinite(cell->ratio))
        return numbers_print(buf, "-");
    cell_percent(buf, cell->ratio, cell_decimals(cell, cell->ratio));
    strcat(buf, " %");
    return buf;
}

char *cell_interval(const struct report_cell *cell, char *buf)
{
    char lower[NUMBERS_SIZE], upper[NUMBERS_SIZE];
    if (!isfinite(cell->ci_lower) || !isfinite(cell->ci_upper))
        return numbers_print(buf, "-");
    cell_percent(lower, cell->ci_lower, cell_decimals(cell, cell->ci_lower));
    cell_percent(upper, cell->ci_upper, cell_decimals(cell, cell->ci_upper));
    return numbers_print(buf, "%.28s to %.28s", lower, upper);
}

char *cell_margin(const struct report_cell *cell, char *buf)
{
    return numbers_setting(cell->gating ? cell->margin : NAN, buf);
}

char *cell_ratio(const struct report_cell *cell)
{
    if (!isfinite(cell->ratio))
        return xstrdup("");
    if (!isfinite(cell->ci_lower) || !isfinite(cell->ci_upper))
        return xasprintf("ratio %.4f", cell->ratio);
    return xasprintf("ratio %.4f [%.4f, %.4f]", cell->ratio, cell->ci_lower, cell->ci_upper);
}

char *cell_confidence(const struct report_cell *cells, int count, char *buf)
{
    double low = NAN, high = NAN;
    for (int i = 0; i < count; i++) {
        if (!isfinite(cells[i].ci_lower) || !isfinite(cells[i].alpha))
            continue;
        low = fmin(low, 100 * (1 - 2 * cells[i].alpha));
        high = fmax(high, 100 * (1 - 2 * cells[i].alpha));
    }
    if (!isfinite(low))
        return numbers_print(buf, "interval");
    if (high - low < 1e-6)
        return numbers_print(buf, "%.4g %% interval", low);
    return numbers_print(buf, "%.4g to %.4g %% interval", low, high);
}

char *cell_steps_legend(const struct report_cell *cells, int count)
{
    bool slow = false, warm = false;
    for (int i = 0; i < count; i++) {
        slow |= cell_is(&cells[i], METRIC_SLOW_STEPS);
        warm |= cell_is(&cells[i], METRIC_WARM_UP_TIME);
    }
    if (!slow && !warm)
        return xstrdup("");
    return xasprintf(" %s%s%s; %s is that of the time of a run.",
            slow ? "slow_steps is the share of the time that slow steps lose" : "",
            slow && warm ? ", " : "",
            warm ? "warm_up_time is what the warm-up takes beyond steady steps" : "",
            slow && warm ? "their change" : "its change");
}

char *cell_remark(const struct report_cell *cell)
{
    struct strbuf remark = {0};
    if (cell->verdict != REPORT_VERDICT_FAIL && cell->verdict != REPORT_VERDICT_INCONCLUSIVE)
        return strbuf_take(&remark);
    strbuf_add(&remark, "%s", cell->news ? cell->news : cell->reason);
    if (cell->verdict == REPORT_VERDICT_INCONCLUSIVE) {
        if (cell->pairs_needed > 0 && !(cell->told & METRIC_TOLD_NEED))
            strbuf_add(&remark, "; needs ~%lld pairs", (long long)cell->pairs_needed);
        if (isfinite(cell->mde))
            strbuf_add(&remark, "; %lld pairs can see >= %s", (long long)cell->pairs,
                    numbers_fraction(cell->mde, NUMBERS_BUFFER));
    }
    if (cell->confirmed >= 0 && !(cell->told & METRIC_TOLD_FRESH))
        strbuf_add(&remark, "; %sconfirmed on %lld fresh pairs", cell->confirmed ? "" : "not ",
                (long long)cell->confirm_pairs);
    return strbuf_take(&remark);
}

char *crash_ending(const struct report_crash *crash, char *buf)
{
    const char *name = crash->exit_signal > 0 ? sigabbrev_np((int)crash->exit_signal) : NULL;
    if (strcmp(crash->state, "timeout") == 0)
        return numbers_print(buf, "timed out");
    if (strcmp(crash->state, "oom") == 0)
        return numbers_print(buf, "killed: out of memory");
    if (strcmp(crash->state, "not_started") == 0)
        return numbers_print(buf, "could not be started");
    if (crash->exit_signal > 0)
        return numbers_print(buf, "killed by signal %d%s%s%s", (int)crash->exit_signal,
                name ? " (SIG" : "", name ? name : "", name ? ")" : "");
    return crash->exit_code >= 0 ? numbers_print(buf, "exit code %lld", (long long)crash->exit_code)
                                 : numbers_print(buf, "%.40s", crash->state);
}
