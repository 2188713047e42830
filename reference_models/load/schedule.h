// SPDX-License-Identifier: Apache-2.0
// When requests are due, whatever becomes of those before (open loop): a Poisson process or even
// gaps, at a rate that may change over time. A function of the seed.
#ifndef UPGATE_LOAD_SCHEDULE_H
#define UPGATE_LOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define SCHEDULE_POINTS_MAX ((size_t)100000)

struct schedule_point {
    double at_s, rate; // requests per second; in between it is a straight line
};

struct schedule {
    struct schedule_point *points; // two or more, in order of time
    size_t count, idx;             // idx: the line that begins at points[idx]
    double at_s;                   // of the last request
    bool even;
    uint64_t random;
};

// Constant. duration_s may be INFINITY.
void schedule_constant(struct schedule *schedule, double rate, double duration_s);
// From a file of lines "SECONDS RATE" (also with a comma; # begins a comment), the rates times
// `scale`. -EINVAL by line.
int schedule_read(struct schedule *schedule, const char *path, double scale, struct error *err);
void schedule_begin(struct schedule *schedule, uint64_t seed, bool even);
// Seconds after the begin at which the next request is due; INFINITY: there is none.
double schedule_next(struct schedule *schedule);
void schedule_free(struct schedule *schedule);

#endif
