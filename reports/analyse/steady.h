// SPDX-License-Identifier: Apache-2.0
// Where a launch's steps become steady, if they do. A launch that never does is a finding, not a
// launch to drop: the series of medians of small groups is cut into levels, the steady part starts
// at the first segment from which on all segments agree, and must be long enough and free of a
// trend.
#ifndef UPGATE_ANALYSE_STEADY_H
#define UPGATE_ANALYSE_STEADY_H

#include <stdbool.h>

struct steady_opts { // {0}: the defaults
    int warm_up_min; // steps always dropped; default 5
    int group;       // steps a median is taken of; default 5
    int keep_min;    // the least number of steady steps; default 30
    double eps;      // largest difference between steady segments, and largest drift; default 0.005
};

enum steady_state {
    STEADY_OK,
    STEADY_TOO_SHORT,  // fewer steps than warm-up and the least steady part
    STEADY_LATE,       // no steady part, or one shorter than keep_min or a quarter of the series
    STEADY_DRIFTS,     // the last part has a trend
    STEADY_FLUCTUATES, // levels go up and down without a way: noise of the machine, as good as
                       // steady
    STEADY_STATE_COUNT
};

struct steady_result {
    enum steady_state state;
    int start;    // index of the first steady step; without one: the end of the fixed warm-up
    int segments; // levels found
    double drift; // log change over the steady part by its slope; NAN when not looked at
};

// Durations of steps in order, all > 0.
struct steady_result steady_detect(
        const double *durations, int count, const struct steady_opts *opts);
bool steady_reached(enum steady_state state);           // steady, or fluctuating about one level
const char *steady_state_text(enum steady_state state); // "drifts to the end", for reports

#endif
