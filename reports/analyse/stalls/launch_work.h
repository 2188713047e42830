// SPDX-License-Identifier: Apache-2.0
// A traced launch (reports/analyse/trace/launch) with the stall analysis' parts of its host side in
// host_work. One owner thread.
#ifndef UPGATE_STALLS_LAUNCH_WORK_H
#define UPGATE_STALLS_LAUNCH_WORK_H

#include "reports/analyse/stalls/parts.h"
#include "reports/analyse/trace/launch/launch_trace.h"

// As launch_trace_load().
int launch_work_load(struct store *store, int64_t launch_id, const struct launch_trace_opts *opts,
        struct launch_trace **ret_trace, struct error *err);
void launch_work_free(struct launch_trace *trace); // the parts and the launch; NULL ok

#endif
