// SPDX-License-Identifier: Apache-2.0
// The one clock of the house: CLOCK_MONOTONIC in nanoseconds; wall time only for people.
//
// Whose CLOCK_MONOTONIC: by itself, this process's, which in a time namespace is its own. A program
// of ours that joins its times with those of the kernel or of other processes has the machine's
// (clock_follow_machine()), and clock_compare() says how far another process's clock is from it. A
// workload has its own, as it says its times as its own.
#ifndef UPGATE_COMMON_CLOCK_H
#define UPGATE_COMMON_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/time_namespace.h"

int64_t clock_monotonic_ns(void);
int64_t clock_wall_ns(void); // since 1970; may jump
// as monotonic, but counts suspend: boottime - monotonic grows by it
int64_t clock_boottime_ns(void);
void clock_sleep_until_ns(int64_t monotonic_ns); // returns early on a signal

// From here on, and in forks, the clocks above are the machine's. Once, before there are threads.
void clock_follow_machine(void);
// Why they are this process's own after all, as it cannot be told how far it is from the machine's:
// -errno of time_offsets_of(). 0: they are the machine's, or nobody has called the above.
int clock_machine_code(void);

// By how much the clocks of a process are ahead of those above. dir and errors as of
// time_offsets_of(); of our own namespace it is always known.
int clock_compare(const char *dir, uint64_t *ret_inode, struct time_offsets *ret_ahead);
// The same of a namespace that needs no look: ours and the first one. False: it is another.
bool clock_knows(uint64_t inode, struct time_offsets *ret_ahead);
// Inode of the time namespace whose clock clock_monotonic_ns() is; 0: the kernel has none, or it
// cannot be seen and is taken for the first one.
uint64_t clock_namespace(void);
// By how much this process's own CLOCK_BOOTTIME, by which /proc tells it when others began, is
// ahead of clock_boottime_ns().
int64_t clock_boottime_ahead_ns(void);

#endif
