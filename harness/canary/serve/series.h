// SPDX-License-Identifier: Apache-2.0
// The time series of a snapshot: what /metrics prints and /api/v1/query selects from.
#ifndef UPGATE_HARNESS_CANARY_SERVE_SERIES_H
#define UPGATE_HARNESS_CANARY_SERVE_SERIES_H

#include "common/containers/arena.h"
#include "common/strings.h"
#include "harness/canary/serve/snapshot.h"
#include "harness/canary/serve/verdict.h"

enum series_family {
    SERIES_VERDICT,
    SERIES_RATIO,
    SERIES_RATIO_LOWER,
    SERIES_RATIO_UPPER,
    SERIES_EVIDENCE,
    SERIES_EVIDENCE_NEEDED,
    SERIES_PAIRS,
    SERIES_REQUESTS,
    SERIES_WRONG,
    SERIES_WEIGHT,
    SERIES_UP,
    SERIES_STATE,
    SERIES_STAGE,
    SERIES_HEARTBEAT,
    SERIES_ROLLBACKS,
    SERIES_SOURCE_SEEN,
    SERIES_SOURCE_KEPT,
    SERIES_SOURCE_DROPPED,
    SERIES_SOURCE_LOST,
    SERIES_SOURCE_LATE,
    SERIES_FAMILIES
};
const char *series_family_name(enum series_family family);
int series_family_by_name(const char *name); // -1: none

enum { SERIES_LABELS_MAX = 4 };

struct series {
    enum series_family family;
    // keys are static, values of the arena
    const char *keys[SERIES_LABELS_MAX], *values[SERIES_LABELS_MAX];
    int labels;
    double value; // never NaN
};

struct series_list { // sorted by family
    struct series *items;
    size_t count;
};

// Everything is copied into the arena. whole: the verdict of the whole rollout, stages: one a stage
// of the snapshot. Of gate_verdict the whole rollout's is the last: Flagger takes the last of
// several results.
struct series_list series_of(const struct snapshot *snapshot, const struct verdict *whole,
        const struct verdict *stages, struct arena *arena);
// When nothing is known: gate_verdict of the rollout, inconclusive.
struct series_list series_blind(const char *name, struct arena *arena);

// Prometheus text format 0.0.4
void series_print(const struct series_list *list, struct strbuf *text);
// "1", "0.25", "+Inf", "NaN"
void series_print_value(char buf[32], double value);

#endif
