// SPDX-License-Identifier: Apache-2.0
// Arrivals by the integral of the rate: the next request is due where the area under the curve has
// grown by one (even) or by an exponential draw (Poisson). Exact for rates that are lines between
// points.
#include "reference_models/load/schedule.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

void schedule_constant(struct schedule *schedule, double rate, double duration_s)
{
    *schedule = (struct schedule){.points = xcalloc(2, sizeof *schedule->points), .count = 2};
    schedule->points[0] = (struct schedule_point){0, rate};
    schedule->points[1] = (struct schedule_point){duration_s, rate};
}

static int schedule_line(struct schedule *schedule, char *line, double scale, struct error *err)
{
    line[strcspn(line, "#\r\n")] = '\0';
    for (char *c = line; *c; c++) {
        if (*c == ',' || *c == '\t')
            *c = ' ';
    }
    if (line[strspn(line, " ")] == '\0')
        return 0;
    struct schedule_point point;
    char *rest, *end;
    point.at_s = strtod(line, &rest);
    point.rate = strtod(rest, &end) * scale;
    if (rest == line || end == rest || end[strspn(end, " ")])
        return error_set(err, -EINVAL, "a line is SECONDS RATE");
    if (!(point.at_s >= 0 && point.at_s < 1e9) || !(point.rate >= 0 && point.rate <= 1e7))
        return error_set(err, -EINVAL, "seconds are 0 or more, a rate is 0 to 1e7 per second");
    double last_s = schedule->count ? schedule->points[schedule->count - 1].at_s : -1;
    if (point.at_s <= last_s)
        return error_set(err, -EINVAL, "%g s does not follow %g s", point.at_s, last_s);
    if (schedule->count == SCHEDULE_POINTS_MAX)
        return error_set(err, -EINVAL, "more than %zu points", SCHEDULE_POINTS_MAX);
    schedule->points = xrealloc(schedule->points, (schedule->count + 1) * sizeof *schedule->points);
    schedule->points[schedule->count++] = point;
    return 0;
}

int schedule_read(struct schedule *schedule, const char *path, double scale, struct error *err)
{
    *schedule = (struct schedule){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, errno == ENOENT ? -EINVAL : -errno, "failed to open '%s': %s", path,
                strerror(errno));
    char line[256];
    int rc = 0;
    for (int number = 1; !rc && fgets(line, sizeof line, file); number++) {
        struct error why = {0};
        rc = schedule_line(schedule, line, scale, &why);
        if (rc)
            error_set(err, rc, "%s:%d: %s", path, number, why.text);
    }
    fclose(file);
    if (!rc && schedule->count < 2)
        rc = error_set(err, -EINVAL, "'%s' has %zu points; a curve has two at least", path,
                schedule->count);
    if (rc)
        schedule_free(schedule);
    return rc;
}

void schedule_begin(struct schedule *schedule, uint64_t seed, bool even)
{
    schedule->random = seed * 0x9e3779b97f4a7c15u + 1;
    schedule->even = even;
    schedule->idx = 0;
    schedule->at_s = schedule->points[0].at_s;
}

// Uniform in (0, 1]: splitmix64.
static double schedule_uniform(struct schedule *schedule)
{
    uint64_t z = schedule->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ((double)(z >> 11) + 1) * 0x1p-53;
}

double schedule_next(struct schedule *schedule)
{
    double area = schedule->even ? 1 : -log(schedule_uniform(schedule));
    for (; schedule->idx + 1 < schedule->count; schedule->idx++) {
        const struct schedule_point *from = &schedule->points[schedule->idx], *to = from + 1;
        double slope = isinf(to->at_s) ? 0 : (to->rate - from->rate) / (to->at_s - from->at_s);
        double rate = from->rate + slope * (schedule->at_s - from->at_s);
        double span = to->at_s - schedule->at_s;
        double rest = isinf(span) ? (rate > 0 ? INFINITY : 0) : (rate + to->rate) / 2 * span;
        if (area < rest) {
            // Of rate * t + slope * t^2 / 2 = area, in the form that stays exact for small slopes.
            schedule->at_s += 2 * area / (rate + sqrt(fmax(0, rate * rate + 2 * slope * area)));
            return schedule->at_s;
        }
        area -= rest;
        schedule->at_s = to->at_s;
    }
    return INFINITY;
}

void schedule_free(struct schedule *schedule)
{
    free(schedule->points);
    schedule->points = NULL;
    schedule->count = 0;
}
