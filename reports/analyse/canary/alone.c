// SPDX-License-Identifier: Apache-2.0
// Windows of ten seconds: values of the baseline's are kept, the candidate's are held against them.
#include "reports/analyse/canary/alone.h"

#include <math.h>
#include <string.h>

#include "reports/analyse/canary/evidence_state.h"
#include "reports/analyse/canary/latency.h"
#include "reports/analyse/canary/recent.h"
#include "reports/analyse/quantile.h"

// Within 15 minutes the simulated traffic's errors swing by three, its latency by half: of 40 good
// rollouts twice the errors took one back.
enum { ALONE_ONE_IN = 20, ALONE_RATES = 2 };

static double alone_events(const struct canary_second *sum, enum canary_metric metric)
{
    return (double)(metric == CANARY_ERROR_RATE ? sum->errors : sum->rejected);
}

static bool alone_counted(enum canary_metric metric)
{
    return metric == CANARY_ERROR_RATE || metric == CANARY_REJECTED_RATE;
}

static double alone_mean(const struct canary_second *sum)
{
    double seconds = 0, count = 0, middle = canary_bin_low_s(0) * canary_moved(0.5),
           step = canary_moved(1);
    for (int i = 0; i < CANARY_BINS; i++, middle *= step) {
        seconds += sum->bins[i] * middle;
        count += sum->bins[i];
    }
    return seconds / count; // NaN: nothing was answered
}

static double alone_value(const struct canary_second *sum, enum canary_metric metric)
{
    switch (metric) {
    case CANARY_LATENCY_P50:
        return canary_quantile(sum, 0.5);
    case CANARY_LATENCY_P99:
        return canary_quantile(sum, 0.99);
    case CANARY_LATENCY_MEAN:
        return alone_mean(sum);
    case CANARY_ERROR_RATE:
    case CANARY_REJECTED_RATE:
        return alone_events(sum, metric) / (double)sum->requests;
    default: // wrong answers have a limit of their own
        return NAN;
    }
}

// What has to be beyond: of quantiles one further in, above which twice (of the median a fifth)
// more lie. A histogram has its buckets up to 2.5 times apart, so that a quantile beside a border
// jumps so far for a trifle; how many lie above the border does not.
static double alone_certain(
        const struct canary_second *sum, enum canary_metric metric, double value)
{
    if (metric == CANARY_LATENCY_P50)
        return canary_quantile(sum, 0.4);
    return metric == CANARY_LATENCY_P99 ? canary_quantile(sum, 0.98) : value;
}

static bool alone_whole(struct canary_alone_window *window, const struct canary_second *second)
{
    canary_second_add(&window->sum, second);
    window->seconds++;
    return window->seconds >= CANARY_ALONE_SECONDS && window->sum.requests >= CANARY_ALONE_REQUESTS;
}

static bool alone_strays(uint64_t baseline, uint64_t candidate)
{
    return baseline <= 1 || baseline <= candidate / CANARY_ALONE_TIMES;
}

static void alone_keep(struct canary_alone *alone)
{
    if (!alone->stride)
        alone->stride = 1;
    if (alone->seen++ % alone->stride)
        return;
    if (alone->kept_count == CANARY_ALONE_KEPT) {
        alone->kept_count /= 2;
        alone->stride *= 2;
        for (int metric = 0; metric < CANARY_METRICS; metric++)
            for (int i = 0; i < alone->kept_count; i++)
                alone->kept[metric][i] = alone->kept[metric][2 * i];
    }
    for (int metric = 0; metric < CANARY_METRICS; metric++)
        alone->kept[metric][alone->kept_count] =
                alone_value(&alone->baseline.sum, (enum canary_metric)metric);
    alone->kept_count++;
}

// What 19 in 20 of the baseline's windows did not exceed; of fewer than 20 the highest. NaN: none.
static double alone_usual(const struct canary_alone *alone, enum canary_metric metric)
{
    double values[CANARY_ALONE_KEPT];
    size_t count = 0;
    for (int i = 0; i < alone->kept_count; i++)
        if (!isnan(alone->kept[metric][i]))
            values[count++] = alone->kept[metric][i];
    if (!count)
        return NAN;
    quantile_sort(values, count);
    return values[count - 1 - count / ALONE_ONE_IN];
}

double canary_alone_times(const struct canary_rules *rules, enum canary_metric metric)
{
    return alone_counted(metric) ? ALONE_RATES * rules->alone_times : rules->alone_times;
}

static void alone_judge(
        struct canary_alone *alone, const struct canary_rules *rules, enum canary_metric metric)
{
    struct canary_alone_metric *of = &alone->metrics[metric];
    const struct canary_second *sum = &alone->candidate.sum;
    of->value = alone_value(sum, metric);
    of->usual = alone_usual(alone, metric);
    double limit = canary_alone_times(rules, metric) * of->usual;
    if (alone_counted(metric))
        limit = fmax(limit, EVIDENCE_ERROR_FLOOR);
    memmove(of->events + 1, of->events, (CANARY_ALONE_RUN - 1) * sizeof *of->events);
    of->events[0] = alone_counted(metric) ? alone_events(sum, metric) : 0;
    // Nothing answered, while the baseline answered, is no latency: the errors tell of it. What is
    // not known is not beyond.
    of->run = alone_certain(sum, metric, of->value) > limit && !isnan(of->usual) ? of->run + 1 : 0;
}

static void alone_clear(struct canary_alone *alone)
{
    memset(&alone->candidate, 0, sizeof alone->candidate);
    memset(alone->metrics, 0, sizeof alone->metrics);
    alone->windows = 0;
}

void canary_alone_add(struct canary_alone *alone, const struct canary_second arms[CANARY_ARMS],
        const struct canary_rules *rules, bool compares)
{
    const struct canary_second *baseline = &arms[CANARY_BASELINE],
                               *candidate = &arms[CANARY_CANDIDATE];
    struct canary_alone_window *window = &alone->candidate;
    if (rules->alone_times > 0 && baseline->requests && !alone->windows &&
            alone_whole(&alone->baseline, baseline)) {
        alone_keep(alone);
        memset(&alone->baseline, 0, sizeof alone->baseline);
    }
    if (!compares || !alone_strays(baseline->requests, candidate->requests)) {
        if (window->seconds || alone->windows)
            alone_clear(alone);
        return;
    }
    window->strays += baseline->requests;
    if (!candidate->requests || !alone_whole(window, candidate))
        return;
    // thin traffic of both, second by second
    if (!alone_strays(window->strays, window->sum.requests)) {
        alone_clear(alone);
        return;
    }
    for (int metric = 0; metric < CANARY_METRICS && rules->alone_times > 0; metric++)
        if (isnan(rules->metrics[metric].limit) &&
                (rules->metrics[metric].gated || rules->metrics[metric].observed))
            alone_judge(alone, rules, (enum canary_metric)metric);
    alone->windows++;
    memset(window, 0, sizeof *window);
}

bool canary_alone_fails(const struct canary_alone *alone, enum canary_metric metric)
{
    const struct canary_alone_metric *of = &alone->metrics[metric];
    double events = 0;
    for (int i = 0; i < CANARY_ALONE_RUN; i++)
        events += of->events[i];
    return of->run >= CANARY_ALONE_RUN && (!alone_counted(metric) || events > CANARY_BURSTS);
}

bool canary_alone_open(const struct canary_alone *alone, enum canary_metric metric)
{
    return alone->kept_count > 0 && (alone->windows == 0 || alone->metrics[metric].run > 0);
}
