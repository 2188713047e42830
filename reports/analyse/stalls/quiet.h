// SPDX-License-Identifier: Apache-2.0
// Main threads that waited all the time. One owner thread.
#ifndef UPGATE_STALLS_QUIET_H
#define UPGATE_STALLS_QUIET_H

#include "reports/analyse/stalls/parts.h"

// Fills stalls->quiet and what belongs to it: the longest wait of a main thread of the target that
// ran for less than 2 % of the window and waited for half of it at one go.
void quiet_find(const struct work *work, struct stalls *stalls);

#endif
