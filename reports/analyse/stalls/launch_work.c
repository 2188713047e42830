// SPDX-License-Identifier: Apache-2.0
// A traced launch, and what the stall analysis makes of it.
#include "reports/analyse/stalls/launch_work.h"

#include <stdlib.h>

#include "common/strings.h"

int launch_work_load(struct store *store, int64_t launch_id, const struct launch_trace_opts *opts,
        struct launch_trace **ret_trace, struct error *err)
{
    struct launch_trace *trace = NULL;
    int rc = launch_trace_load(store, launch_id, opts, &trace, err);
    if (rc)
        return rc;
    if (trace->host) {
        trace->host_work = xcalloc(1, sizeof *trace->host_work);
        work_init(trace->host_work, trace->host);
        work_find(trace->host_work);
    }
    *ret_trace = trace;
    return 0;
}

void launch_work_free(struct launch_trace *trace)
{
    if (!trace)
        return;
    if (trace->host_work)
        work_free(trace->host_work);
    free(trace->host_work);
    launch_trace_free(trace);
}
