// SPDX-License-Identifier: Apache-2.0
// One launch of the strip of all steps: see html_strip.h.
#include "reports/render/html/html_strip.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/steady.h"
#include "reports/render/text/json_text.h"

enum {
    STRIP_DIGITS = 1000,     // the least time keeps four digits: 0.1 % is less than a pixel
    STRIP_COLUMN = 4,        // numbers of a column: least, median, largest, which one that was
    STRIP_SEGMENTS_MAX = 200 // gaps in the numbers of steps that are told
};

bool html_strip_marks(const struct html_strip *strip, int at)
{
    return at >= strip->start && strip->ns[at] >= HTML_STRIP_MARK * strip->median;
}

// Median of the steady steps that are first of their block, or of those that are not.
static double strip_median_of(const struct html_strip *strip, bool first)
{
    double *values = xcalloc((size_t)strip->count + 1, sizeof *values);
    size_t count = 0;
    for (int i = strip->start; i < strip->count; i++)
        if (strip->first[i] == first)
            values[count++] = strip->ns[i];
    double median = quantile_median(values, count);
    free(values);
    return median;
}

void html_strip_look(struct html_strip *strip)
{
    struct steady_result steady = steady_detect(strip->ns, strip->count, NULL);
    strip->steady = steady_reached(steady.state);
    strip->start = steady.start < strip->count ? steady.start : strip->count;
    strip->median = strip->count
            ? quantile_median(strip->ns + strip->start, (size_t)(strip->count - strip->start))
            : NAN;
    strip->marked = 0;
    for (int i = strip->start; i < strip->count; i++)
        strip->marked += html_strip_marks(strip, i);
    strip->first_ns = strip->blocks ? strip_median_of(strip, true) : NAN;
    strip->other_ns = strip->blocks ? strip_median_of(strip, false) : NAN;
}

void html_strip_clear(struct html_strip *strip)
{
    free(strip->ns);
    free(strip->idx);
    free(strip->first);
    *strip = (struct html_strip){0};
}

// What the numbers of this launch are multiples of: fewer bytes than nanoseconds.
static double strip_unit(const struct html_strip *strip)
{
    double least = INFINITY, unit = 1;
    for (int i = 0; i < strip->count; i++)
        least = fmin(least, strip->ns[i]);
    while (least / (unit * 10) >= STRIP_DIGITS && isfinite(least))
        unit *= 10;
    return unit;
}

static void strip_append(json_t *list, double ns, double unit)
{
    json_array_append_new(list, json_integer(llround(ns / unit)));
}

static void strip_columns(const struct html_strip *strip, int width, double unit, json_t *item)
{
    json_t *least = json_array(), *middle = json_array(), *most = json_array(), *at = json_array();
    for (int begin = 0; begin < strip->count; begin += width) {
        int count = strip->count - begin < width ? strip->count - begin : width, slowest = 0;
        const double *ns = strip->ns + begin;
        double lowest = ns[0];
        for (int i = 1; i < count; i++) {
            lowest = fmin(lowest, ns[i]);
            slowest = ns[i] > ns[slowest] ? i : slowest;
        }
        strip_append(least, lowest, unit);
        strip_append(middle, quantile_median(ns, (size_t)count), unit);
        strip_append(most, ns[slowest], unit);
        json_array_append_new(at, json_integer(slowest));
    }
    render_json_set(item, "least", least, "middle", middle, "most", most, "at", at, NULL);
}

// [[place, number]…]: from that place on steps are numbered from that number.
static json_t *strip_numbers(const struct html_strip *strip)
{
    json_t *list = json_array();
    for (int i = 0; i < strip->count && json_array_size(list) < STRIP_SEGMENTS_MAX; i++) {
        if (i && strip->idx[i] == strip->idx[i - 1] + 1)
            continue;
        json_array_append_new(list, render_json_pair(json_integer(i), json_integer(strip->idx[i])));
    }
    return list;
}

// [[place, steps, times]…]: from that place on so many blocks of so many steps each.
static json_t *strip_blocks(const struct html_strip *strip)
{
    json_t *list = json_array();
    int begin = -1, length = 0, times = 0, last = -1;
    for (int i = 0; i <= strip->count; i++) {
        if (i < strip->count && !strip->first[i])
            continue;
        if (last >= 0 && i - last == length && times) {
            times++;
        } else if (last >= 0) {
            if (times)
                json_array_append_new(list, json_pack("[i,i,i]", begin, length, times));
            begin = last, length = i - last, times = 1;
        }
        last = i;
        if (json_array_size(list) >= STRIP_SEGMENTS_MAX)
            return list;
    }
    if (times)
        json_array_append_new(list, json_pack("[i,i,i]", begin, length, times));
    return list;
}

void html_strip_write(const struct html_strip *strip, size_t numbers_max, json_t *item)
{
    double unit = strip_unit(strip);
    size_t count = (size_t)strip->count, columns = numbers_max / STRIP_COLUMN;
    int width = count <= numbers_max ? 1 : (int)((count + columns - 1) / (columns ? columns : 1));
    render_json_set(item, "steps", json_integer(strip->count), "numbers", strip_numbers(strip),
            "steady", strip->steady ? json_integer(strip->start) : json_null(), "from",
            json_integer(strip->start), "median_ns", render_json_whole(strip->median), "marked",
            json_integer(strip->marked), NULL);
    if (strip->blocks)
        json_object_set_new(item, "blocks", strip_blocks(strip));
    render_json_set(
            item, "unit_ns", json_integer(llround(unit)), "width", json_integer(width), NULL);
    if (width > 1) {
        strip_columns(strip, width, unit, item);
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < strip->count; i++)
        strip_append(list, strip->ns[i], unit);
    json_object_set_new(item, "most", list);
}
