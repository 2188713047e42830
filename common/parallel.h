// SPDX-License-Identifier: Apache-2.0
// The same done to each of many things, by as many threads as this process has CPUs, at most
// PARALLEL_MAX. For short work of which no part waits for another; what they share the caller
// locks.
#ifndef UPGATE_COMMON_PARALLEL_H
#define UPGATE_COMMON_PARALLEL_H

#include <stddef.h>

enum { PARALLEL_MAX = 16 };

// each(arg, index) for every index below count, in any order; returns when all have returned. Where
// no thread can be started the caller's does it all.
void parallel_each(size_t count, void (*each)(void *arg, size_t index), void *arg);

#endif
