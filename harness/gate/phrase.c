// SPDX-License-Identifier: Apache-2.0
// Words for ratios and intervals.
#include "harness/gate/phrase.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *phrase_word(enum metric_id metric, int more)
{
    switch (metric) {
    case METRIC_THROUGHPUT:
        return more ? "more throughput" : "less throughput";
    case METRIC_CPU_TIME:
        return more ? "more CPU time" : "less CPU time";
    case METRIC_PEAK_MEMORY:
        return more ? "more memory" : "less memory";
    case METRIC_PEAK_GPU_MEMORY:
        return more ? "more GPU memory" : "less GPU memory";
    case METRIC_MEAN_STEP_TIME:
        return more ? "slower in the mean" : "faster in the mean";
    case METRIC_SLOW_STEPS:
        return more ? "more time lost in slow steps" : "less time lost in slow steps";
    case METRIC_WARM_UP_TIME:
        return more ? "longer a run with its warm-up" : "shorter a run with its warm-up";
    case METRIC_SCALING_EFFICIENCY:
        return more ? "better scaling" : "worse scaling";
    case METRIC_MEMORY_SAVED:
        return more ? "more memory beside eager" : "less memory beside eager";
    case METRIC_RECOMPILES:
        return more ? "more graphs compiled" : "fewer graphs compiled";
    default:
        return more ? "slower" : "faster";
    }
}

char *phrase_fraction(char *buf, size_t size, double fraction)
{
    double pct = 100 * fraction;
    snprintf(buf, size, fabs(pct) < 10 ? "%.2g %%" : "%.0f %%", pct);
    return buf;
}

char *phrase_floor(char *buf, size_t size, double fraction)
{
    snprintf(buf, size, "%.6g %%", 100 * fraction);
    return buf;
}

char *phrase_ratio(char *buf, size_t size, enum metric_id metric, double ratio)
{
    return phrase_ratio_beside(buf, size, metric, ratio, NAN);
}

// "2 % slower, beyond the margin of 2 %" would be no reason. On the other side of 1 a margin is of
// the inverse ratio: more digits would only ask why 1.97 % are beyond 2 %.
static char *phrase_amount(
        char *buf, size_t size, enum metric_id metric, double ratio, double margin)
{
    char limit[32];
    phrase_fraction(buf, size, fabs(ratio - 1));
    phrase_floor(limit, sizeof limit, margin);
    if (metric_infos[metric].direction[0] == 'l' && ratio > 1 && ratio - 1 != margin &&
            strcmp(buf, limit) == 0)
        snprintf(buf, size, "%.4g %%", 100 * (ratio - 1));
    return buf;
}

char *phrase_ratio_beside(
        char *buf, size_t size, enum metric_id metric, double ratio, double margin)
{
    char amount[32];
    if (metric == METRIC_MEMORY_SAVED) // upside down, what compiling leaves of eager's memory: its
                                       // margin is of that
        ratio = 1 / ratio;
    if (isnan(ratio))
        snprintf(buf, size, "not known");
    else if (fabs(ratio - 1) < 5e-5)
        snprintf(buf, size, "equal");
    else
        snprintf(buf, size, "%s %s", phrase_amount(amount, sizeof amount, metric, ratio, margin),
                phrase_word(metric, ratio > 1));
    return buf;
}

char *phrase_interval(char *buf, size_t size, double ratio, double lower, double upper)
{
    if (isnan(lower) || isnan(upper))
        snprintf(buf, size, "%.4f", ratio);
    else
        snprintf(buf, size, "%.4f (%.4f to %.4f)", ratio, lower, upper);
    return buf;
}

char *phrase_change(char *buf, size_t size, const struct interval *interval)
{
    double estimate = 100 * expm1(interval->estimate);
    if (interval->has_bounds)
        snprintf(buf, size, "%+.2f %% (%+.2f to %+.2f %%)", estimate, 100 * expm1(interval->lower),
                100 * expm1(interval->upper));
    else
        snprintf(buf, size, "%+.2f %%", estimate);
    return buf;
}
