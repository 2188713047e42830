// SPDX-License-Identifier: Apache-2.0
// Live progress on stderr: a panel on a terminal, one plain line a look elsewhere. Called by the
// main thread, at most some ten times a second; log messages clear the panel first (log_set_hook).
#ifndef UPGATE_REPORTS_PROGRESS_H
#define UPGATE_REPORTS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress_cell {
    const char *metric;
    const char *verdict;              // "pass", "fail", "inconclusive"; NULL = undecided yet
    double ratio, ci_lower, ci_upper; // candidate over baseline; NAN = not known yet
};

struct progress_state {
    const char *workload;
    int workload_idx, workload_count; // from 0
    const char *phase;                // what is done now: "pilot", "pairs", "confirm", …
    int pair;                         // pairs done; the next one is running
    int pairs_target;                 // pairs at this look; 0 = none to come
    int look_idx, look_count;         // from 0; count 0 = not told
    int64_t elapsed_ns;               // since the run began
    int64_t remaining_ns;             // estimate; < 0 = unknown
    const struct progress_cell *cells;
    int cell_count;
};

// enabled = false (--quiet): nothing is ever printed. Strings of a state are not kept.
void progress_start(int workload_count, bool enabled);
void progress_update(const struct progress_state *state);
void progress_stop(void); // clears the panel; harmless when never started

#endif
