// SPDX-License-Identifier: Apache-2.0
// Between ranks.c, ranks_host.c, ranks_nccl.c and ranks_work.c: who waited for whom, on its way
// into struct ranks. One owner thread.
#ifndef UPGATE_STALLS_RANKS_FIND_H
#define UPGATE_STALLS_RANKS_FIND_H

#include "reports/analyse/stalls/ranks/ranks.h"

enum {
    RANKS_SEND_SHARE = 100,    // of the window in sends and receives, one in so many: as much as a
                               // late rank must cost. Less makes no pipeline
    RANKS_LATE_MIN_NS = 100000 // a shorter wait for another rank is not kept
};

// A rank in a communication.
struct ranks_wait {
    int64_t begin, end;
    int64_t came; // of the last one that it needs, at most end; begin: it waits for nobody, or for
                  // whom is not known
    uint32_t row, last;
};

// ranks.c
// Some `waiter` waited in [begin, end) for `last`. What is too short, or outside of the windows, is
// not kept.
void ranks_put_late(struct ranks *ranks, int64_t begin, int64_t end, size_t waiter, size_t last);
// Did `last` come later than another rank, at these times? On two nodes that is so beyond twice
// what their clocks are known within.
bool ranks_surely_later(
        const struct ranks *ranks, size_t last, int64_t last_ns, size_t other, int64_t other_ns);

// ranks_work.c: ranks_put_late() of those pieces of [begin, end) in which it is not busy, a GPU or
// a rank.
void ranks_put_idle(struct ranks *ranks, const struct trace_busy *busy, int64_t begin, int64_t end,
        size_t waiter, size_t last);

// ranks_host.c: by the waits on the host. Several who did not wait at all are late alike, unless
// most are: then nobody is. Of several nodes whose clocks do not tell who was last, those of the
// waiter's own node are compared. There were no lates; then they are by begin, waiter and last.
void ranks_host(struct ranks *ranks);

// ranks_nccl.c
void ranks_of_nccl(struct ranks *ranks);

// ranks_work.c, where ranks are compared by their work: what held each of them up, and whom the
// others waited for. gpus: what a GPU works on meanwhile is work. Sorts the waits.
void ranks_work_of(struct ranks *ranks, struct ranks_wait *waits, size_t count, bool gpus);
// The same by the waits of main threads, which do not say for whom.
void ranks_work_of_waits(struct ranks *ranks);

#endif
