// SPDX-License-Identifier: Apache-2.0
// The ranked list of causes in the terminal table of stalls. Internal to this room.
#ifndef UPGATE_REPORTS_STALLS_GRID_H
#define UPGATE_REPORTS_STALLS_GRID_H

#include "reports/analyse/stalls/stalls.h"
#include "reports/render/text/table.h"

// Head line and a line a cause, at most rows_max of them; nothing when there is none. Shares are of window_ns.
void stalls_grid(struct table *table, const struct stall *stalls, size_t count, int64_t window_ns, size_t rows_max);

#endif
