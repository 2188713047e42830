// SPDX-License-Identifier: Apache-2.0
// Clocks in nanoseconds. No state.
#include "common/clock.h"

#include <time.h>

static int64_t clock_read_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

int64_t clock_boottime_ns(void)
{
    return clock_read_ns(CLOCK_BOOTTIME);
}

void clock_sleep_until_ns(int64_t monotonic_ns)
{
    struct timespec ts = {
            .tv_sec = monotonic_ns / 1000000000, .tv_nsec = monotonic_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0);
}
