// SPDX-License-Identifier: Apache-2.0
// Between late_why.c and late_causes.c: what a late rank did more than the others, as it is added
// up. One owner thread.
#ifndef UPGATE_STALLS_LATE_WHY_H
#define UPGATE_STALLS_LATE_WHY_H

#include "reports/analyse/stalls/ranks/ranks.h"

struct why_sum {
    double late, others;
    double off, slept; // of the difference of the two: off the CPU; by a sleep
    double depth;      // times late, from the leaf
};

struct why {
    const struct ranks *ranks;
    const struct work *work;
    int64_t begin, end;
    uint32_t *function_of; // of each frame; TRACE_NONE: the kernel's
    uint32_t *frame_of;    // of each function one frame
    uint32_t *seen;        // the visit that a function was last counted in
    struct why_sum *sums;  // of functions
    size_t function_count;
    uint32_t visit;
    // of the late rank: what was added up, and of it with a stack of the kind
    double all, python, user;
    // What it did more than the others, in ns: on its CPU, off it by its own will; and of that,
    // what has one of the causes; all causes.
    double ran, slept, cause_ran, cause_slept, causes;
    double dear; // what a ns on the CPU takes where others wait for it as well
};

// The largest cause of its own, in the straggler's cause and deed_ns, and the sums of all of them.
void why_causes(struct why *why, struct late_rank *straggler);
// When all that the ranks did has been added up: is that cause the reason? If so, whose doing it
// is.
void why_decide(const struct why *why, struct late_rank *straggler);

#endif
