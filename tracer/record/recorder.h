// SPDX-License-Identifier: Apache-2.0
// Inside of the recorder, shared by recorder.c (life, clock), events.c (records into rows) and
// ledger.c.
#ifndef UPGATE_TRACER_RECORD_RECORDER_H
#define UPGATE_TRACER_RECORD_RECORDER_H

#include <jansson.h>

#include "bpf/capture.h"
#include "tracer/record/counters.h"
#include "tracer/record/files.h"
#include "tracer/record/gpu_side.h"
#include "tracer/record/python.h"
#include "tracer/record/record.h"
#include "tracer/record/sockets.h"
#include "tracer/record/stacks.h"
#include "tracer/record/tasks.h"
#include "tracer/record/unwinder.h"
#include "tracer/gpu/retention.h"
#include "tracer/record/writer.h"

enum { RECORDER_MISSED_MAX = 16 };

struct recorder {
    struct store *store;
    struct writer *writer;
    struct symbols *symbols;
    struct tasks *tasks;
    struct stacks *stacks;
    struct python_reader *python; // NULL: not wanted
    struct files *files;
    struct counters *counters;
    struct sockets *sockets;   // NULL: not attached yet
    struct unwinder *unwinder; // NULL: the kernel side unwinds by frame pointers
    struct capture *capture;   // NULL: the host side is not permitted; host_missing says why
    char *host_missing;
    struct gpu_side *gpu;        // NULL: not wanted
    struct retention *retention; // NULL: no limit
    int64_t children_next_ns;
    int64_t recording_id;
    int64_t launch_id;      // 0: none
    uint32_t processes_max; // named and walked at one time
    uint32_t alive_max;     // processes of the target that lived at one time, as was seen
    int64_t threshold_ns;
    char *cgroup;
    int waits_rc, look_rc, totals_rc; // of what is read at the end: waits that go on, who holds
                                      // what they wait for, short waits
    bool ask_alive, alive, stopped;
    int64_t begin_ns, end_ns, commit_next_ns, counters_next_ns, alive_next_ns, asked_next_ns,
            search_next_ns, look_next_ns;
    bool no_children, live;
    int64_t waiting_row, waiting_next_ns; // live: behind it stand the waits that went on a second
                                          // ago; when they are asked for again
    size_t ranks_written;                 // of tasks_ranks, in recording.target
    int64_t ranks_next_ns;
    json_t *joined; // for recording.target; NULL: nobody has
    // children of the target that are no targets
    uint32_t missed[RECORDER_MISSED_MAX], missed_count;
};

void recorder_on_event(void *recorder, const struct ug_head *event);
void recorder_on_mapping(void *recorder, const struct mapping_event *event);
// in a transaction, at the end
ERROR_CHECKED int recorder_ledger(struct recorder *recorder, struct error *err);

#endif
