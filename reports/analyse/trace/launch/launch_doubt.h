// SPDX-License-Identifier: Apache-2.0
// What makes the trace of a launch doubtful. Behind each kind its arguments in struct launch_doubt.
#ifndef UPGATE_TRACE_LAUNCH_DOUBT_H
#define UPGATE_TRACE_LAUNCH_DOUBT_H

#include <stdint.h>

enum launch_doubt_kind {
    LAUNCH_DOUBT_NOT_ENDED,     // nothing: the recording was not, in order
    LAUNCH_DOUBT_RECORDINGS,    // count: of the launch; the first one is looked at
    LAUNCH_DOUBT_NO_HOST,       // nothing: none of it was recorded in the launch's turns
    LAUNCH_DOUBT_LOST,          // producer, what, count, of: of so many, 0 not known; detail
    LAUNCH_DOUBT_REFUSED,       // pid, detail: what it ran on the GPU is not recorded
    LAUNCH_DOUBT_CLOCK,         // pid, count: us by which the GPU's clock may be off
    LAUNCH_DOUBT_OUTSIDE,       // count: steps outside of the recording
    LAUNCH_DOUBT_RANKS_BY_PID,  // nothing: processes are taken for ranks in this order
    LAUNCH_DOUBT_RANKS_UNKNOWN, // count, of: ranks of which the process is not known
    LAUNCH_DOUBT_EARLY,         // count, of: operations before the calls that launched them
    LAUNCH_DOUBT_KINDS
};

struct launch_doubt { // what a kind has not is 0
    enum launch_doubt_kind kind;
    int64_t pid, count, of;
    const char *producer, *what, *detail; // detail NULL: not told
};

#endif
