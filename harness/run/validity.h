// SPDX-License-Identifier: Apache-2.0
// Which pairs do not count, by rules fixed before the data: they look at the machine, never at the
// measured times. A void pair is stored with its reason and run again, at most schedule.voids
// times.
#ifndef UPGATE_HARNESS_RUN_VALIDITY_H
#define UPGATE_HARNESS_RUN_VALIDITY_H

#include "harness/run/pair.h"

struct validity {
    char *reason; // NULL = valid; caller frees
    int side;     // the side it points at; -1 = none
    char *note;   // NULL, or what the machine did that would have voided it without turns; caller
                  // frees
};

struct validity validity_check(const struct pair *pair, enum plan_interleave interleave);

#endif
