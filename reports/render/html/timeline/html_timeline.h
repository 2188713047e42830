// SPDX-License-Identifier: Apache-2.0
// One side of a timeline while it is made: between html_timeline.c (window, steps, phases, GPU) and
// html_timeline_host.c.
#ifndef UPGATE_REPORTS_HTML_TIMELINE_H
#define UPGATE_REPORTS_HTML_TIMELINE_H

#include "reports/analyse/stalls/launch_work.h"
#include "reports/render/html/timeline/html_lanes.h"

struct timeline_host {
    struct html_lanes *lanes;
    const struct launch_trace *launch; // NULL: a recording of `upgate record`
    const struct trace *trace;         // NULL: the host was not recorded
    const struct work *work;           // NULL: causes are not known
    int side;
    int64_t begin, end;
    uint32_t *ops; // of launch->ops: those that ran or were called in the window
    size_t op_count;
    size_t threads_left_out;
};

void timeline_host(struct timeline_host *host);
void timeline_find_ops(
        struct timeline_host *host); // before the others; host->ops is the caller's to free
void timeline_streams(struct timeline_host *host); // of the GPU; host->launch is not NULL here
void timeline_nccl(struct timeline_host *host);
// Calls of CUDA that the thread made, below what it ran; LAUNCH_TRACE_NONE: calls of threads that
// are not known.
void timeline_calls(struct timeline_host *host, uint32_t thread);

#endif
