// SPDX-License-Identifier: Apache-2.0
// What replay.c prepares for its runs, and replay_if.c reads. Internal to this room.
#ifndef UPGATE_ANALYSE_REPLAY_GRAPH_H
#define UPGATE_ANALYSE_REPLAY_GRAPH_H

#include "reports/analyse/replay/replay.h"

struct replay {
    struct replay_job job;
    uint32_t *order; // [op_count]: each behind all that it depends on, groups complete before what
                     // depends on them
    uint32_t *by_kind;  // [op_count]: by kind, within it by step
    int64_t *durations; // [op_count]
    int64_t *delays;    // [op_count]
};

#endif
