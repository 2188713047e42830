// SPDX-License-Identifier: Apache-2.0
// What if, for a recording of a job of several ranks: its collectives are aligned (what_if_waits.c:
// waits on the host; what_if_nccl.c: what NCCL told), what each rank did between them is made
// operations (what_if_graph.c), and reports/analyse/replay runs them again with other durations.
// Reads the trace and the ranks found in it; one owner thread.
#ifndef UPGATE_STALLS_WHAT_IF_H
#define UPGATE_STALLS_WHAT_IF_H

#include "reports/analyse/stalls/ranks/ranks.h"

// lost: events were dropped while recording. In ret nothing is known where nothing can be asked:
// one rank, ranks that were not recorded, no steps, no collectives. Strings are the trace's.
void what_if_find(const struct ranks *ranks, const struct late_ranks *stragglers, bool lost,
        struct stall_what_if *ret);

#endif
