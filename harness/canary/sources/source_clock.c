// SPDX-License-Identifier: Apache-2.0
// The difference between the clock of a source and CLOCK_MONOTONIC.
#include "harness/canary/sources/source_clock.h"

enum { SOURCE_CLOCK_LEAP_LINES = 8 };
#define SOURCE_CLOCK_SAME_NS \
    2000000000LL // the time after which a second is finished: less makes no line late
#define SOURCE_CLOCK_BEHIND_NS \
    3000000000LL // all lines behind for so long: the clock was set back, and nothing is held up
#define SOURCE_CLOCK_MINUTE_NS \
    60000000000LL // clocks that are steered drift by 0.5 ms in a second at most: 60 ms

static void source_clock_set(struct source_clock *clock, int64_t ahead_ns, int64_t now_ns)
{
    *clock = (struct source_clock){
            .ahead_ns = ahead_ns, .best_ns = {ahead_ns, INT64_MIN}, .minute_began_ns = now_ns};
}

void source_clock_begin(struct source_clock *clock, int64_t wall_ahead_ns, int64_t now_ns)
{
    source_clock_set(clock, wall_ahead_ns, now_ns);
}

static bool source_clock_leaps(struct source_clock *clock, int64_t ahead_ns, int64_t now_ns)
{
    int64_t apart = ahead_ns - clock->leap_ns;
    bool same = clock->leap_count && apart < SOURCE_CLOCK_SAME_NS && apart > -SOURCE_CLOCK_SAME_NS;
    clock->leap_count = same ? clock->leap_count + 1 : 1;
    clock->leap_ns = ahead_ns;
    if (clock->leap_count < SOURCE_CLOCK_LEAP_LINES)
        return false;
    source_clock_set(clock, ahead_ns, now_ns);
    return true;
}

static void source_clock_behind(struct source_clock *clock, int64_t ahead_ns, int64_t now_ns)
{
    if (!clock->behind_since_ns || ahead_ns > clock->behind_best_ns)
        clock->behind_best_ns = ahead_ns;
    if (!clock->behind_since_ns)
        clock->behind_since_ns = now_ns;
    else if (now_ns - clock->behind_since_ns >= SOURCE_CLOCK_BEHIND_NS)
        source_clock_set(clock, clock->behind_best_ns, now_ns);
}

bool source_clock_place(
        struct source_clock *clock, int64_t stamp_ns, int64_t now_ns, int64_t *ret_end_ns)
{
    int64_t ahead_ns = stamp_ns - now_ns;
    if (ahead_ns - clock->ahead_ns > SOURCE_CLOCK_SAME_NS) {
        if (!source_clock_leaps(clock, ahead_ns, now_ns))
            return false;
    } else {
        clock->leap_count = 0;
    }
    if (now_ns - clock->minute_began_ns >= SOURCE_CLOCK_MINUTE_NS) {
        clock->best_ns[1] = clock->best_ns[0];
        clock->best_ns[0] = INT64_MIN;
        clock->minute_began_ns = now_ns;
    }
    if (ahead_ns > clock->best_ns[0])
        clock->best_ns[0] = ahead_ns;
    clock->ahead_ns = clock->best_ns[0] > clock->best_ns[1] ? clock->best_ns[0] : clock->best_ns[1];
    if (clock->ahead_ns - ahead_ns > SOURCE_CLOCK_SAME_NS)
        source_clock_behind(clock, ahead_ns, now_ns);
    else
        clock->behind_since_ns = 0;
    *ret_end_ns = stamp_ns - clock->ahead_ns;
    return true;
}
