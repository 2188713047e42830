// SPDX-License-Identifier: Apache-2.0
// May the rollout go on? A snapshot in, a verdict out; pure. What is not known, not yet measured,
// paused or out of date is inconclusive, never a pass.
#ifndef UPGATE_HARNESS_CANARY_SERVE_VERDICT_H
#define UPGATE_HARNESS_CANARY_SERVE_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/canary/serve/snapshot.h"

// Values of gate_verdict: worse is larger, so that a limit of 0 asks for a pass and one of 1 only
// for no fail.
enum verdict_kind { VERDICT_PASS = 0, VERDICT_INCONCLUSIVE = 1, VERDICT_FAIL = 2 };

enum verdict_why {    // of an inconclusive one
    VERDICT_COLLECTS, // evidence is being collected; ask again
    VERDICT_HELD,     // paused: a person decides
    VERDICT_BLIND     // no store, no controller, evidence that cannot be trusted
};

struct verdict {
    enum verdict_kind kind;
    enum verdict_why why;
    bool final;        // will not change any more
    int retry_after_s; // -1: asking again is of no use
    char reason[600];
};

struct verdict_clock { // now
    int64_t wall_ns, monotonic_ns;
};

// stage NULL: of the whole rollout. A stage that is begun and not ended is inconclusive until the
// controller has passed it, and whatever a stage has shown before, a rollout that went back fails
// and one that stands still is inconclusive.
void verdict_of(const struct snapshot *snapshot, const struct snapshot_stage *stage,
        const struct verdict_clock *now, struct verdict *ret_verdict);

// Does the controller want more traffic on the candidate than there is now, all being well?
bool verdict_wants_more(const struct snapshot *snapshot, const struct verdict_clock *now);

const char *verdict_name(enum verdict_kind kind); // "pass", "inconclusive", "fail"
// of a cell: whatever is neither pass nor fail is inconclusive
enum verdict_kind verdict_by_cell(const char *text);

// without a sign of life for so long, the controller is taken for dead; it gives one a second
enum { VERDICT_CONTROLLER_S = 30 };

#endif
