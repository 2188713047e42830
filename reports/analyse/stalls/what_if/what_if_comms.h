// SPDX-License-Identifier: Apache-2.0
// Between the files of this folder: communications of all ranks, aligned. One owner thread.
#ifndef UPGATE_STALLS_WHAT_IF_COMMS_H
#define UPGATE_STALLS_WHAT_IF_COMMS_H

#include "reports/analyse/replay/replay.h"
#include "reports/analyse/stalls/ranks/ranks.h"

// The steps of the rank that told most of them, but for the first one, in which programs warm up.
struct what_if_steps {
    int64_t *begins; // [count], ascending
    size_t count;
    int64_t end;
    int32_t rank;
};

struct what_if_comm {
    int64_t ready; // what it depends on was done; at most begin
    int64_t begin, end;
    int64_t exposed; // since then it was all that held the rank up; end: the rank had other work
    uint32_t row, group;
    uint32_t stream; // communications of a stream come one after the other
};

struct what_if_comms {
    const struct ranks *ranks;
    struct what_if_steps *steps;
    struct what_if_comm *list; // by row, within it by begin, once they are final
    size_t count, group_count, stream_count;
    double odd, whole; // so much of all does not fit together: of groups, or of what was waited for
                       // in them
    size_t guessed;    // groups that somebody came to without having been seen to wait
    int64_t until_ns;  // no further than this were they aligned; 0: to the end
    int64_t guess_ns;  // what such an arrival may be off by
    uint32_t *stage_of; // [row_count]; NULL: there are no stages
    size_t stage_count;
};

// Each fills list, in any order, and the counts.
void what_if_align_waits(struct what_if_comms *comms);
void what_if_align_nccl(struct what_if_comms *comms);

// what_if_ready.c: of what stood in the queue of its stream, when it was ready. The list is by row
// and begin; steps: of each group.
void what_if_ready(struct what_if_comms *comms, const uint32_t *steps);

// what_if_graph.c
struct what_if_graph {
    struct replay_job job;
    struct replay_op *ops;
    size_t *dep_first;
    uint32_t *deps;
    int64_t *begins;
    size_t op_count, dep_count;
};
// Sorts comms' list and cuts it to the steps. Every rank lasts from their begin to their end.
void what_if_graph_make(struct what_if_comms *comms, struct what_if_graph *ret_graph);
void what_if_graph_free(struct what_if_graph *graph);

#endif
