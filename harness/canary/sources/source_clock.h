// SPDX-License-Identifier: Apache-2.0
// The clock that stamps the requests of one source, against ours. It may be another machine's, and
// may jump: what counts is when a request ended on CLOCK_MONOTONIC. A line comes after the end of
// its request, never before, so the largest difference (stamp minus arrival) of the last minute or
// two is the difference of the clocks.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_SOURCE_CLOCK_H
#define UPGATE_HARNESS_CANARY_SOURCES_SOURCE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct source_clock {
    int64_t ahead_ns;   // of ours: stamp - CLOCK_MONOTONIC
    int64_t best_ns[2]; // of this minute and of the one before; INT64_MIN: no line
    int64_t minute_began_ns;
    int64_t leap_ns;     // a difference that is not believed yet
    unsigned leap_count; // lines in a row that have it
    // all lines have been far behind since; 0: they are not
    int64_t behind_since_ns, behind_best_ns;
};

// wall_ahead_ns: CLOCK_REALTIME - CLOCK_MONOTONIC; so long as no line tells otherwise, the clocks
// are one.
void source_clock_begin(struct source_clock *clock, int64_t wall_ahead_ns, int64_t now_ns);

// When a request ended, on CLOCK_MONOTONIC. False: its stamp lies in the future. One such line is a
// damaged one; several in a row that agree are a clock that was set, and then count.
bool source_clock_place(
        struct source_clock *clock, int64_t stamp_ns, int64_t now_ns, int64_t *ret_end_ns);

#endif
