// SPDX-License-Identifier: Apache-2.0
// The one clock of the house: CLOCK_MONOTONIC in nanoseconds; wall time only for people.
#ifndef UPGATE_COMMON_CLOCK_H
#define UPGATE_COMMON_CLOCK_H

#include <stdint.h>

int64_t clock_monotonic_ns(void);
int64_t clock_wall_ns(void); // since 1970; may jump
// as monotonic, but counts suspend: boottime - monotonic grows by it
int64_t clock_boottime_ns(void);
void clock_sleep_until_ns(int64_t monotonic_ns); // returns early on a signal

#endif
