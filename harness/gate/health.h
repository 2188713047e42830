// SPDX-License-Identifier: Apache-2.0
// What became of a workload's launches: crashes, voids, steadiness. Findings are what a person must
// know and no cell says; each says what it does to the verdict.
#ifndef UPGATE_GATE_HEALTH_H
#define UPGATE_GATE_HEALTH_H

#include <stdbool.h>

#include "harness/gate/workload_facts.h"

enum finding_effect { FINDING_NOTE, FINDING_INCONCLUSIVE, FINDING_FAIL };

struct finding {
    const char *workload; // NULL: of the run; belongs to the facts
    const char *kind;     // static
    int side;             // -1: neither
    enum finding_effect effect;
    char *text;
};
struct findings {
    struct finding *items;
    int count;
};
void findings_add(struct findings *findings, const char *workload, const char *kind, int side,
        enum finding_effect effect, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
void findings_clear(struct findings *findings);

enum health_state {
    HEALTH_OK,
    HEALTH_CANDIDATE_BROKEN, // fail: the baseline works, the candidate does not
    HEALTH_BROKEN,           // inconclusive: the baseline, both, or the machine
};

struct health {
    enum health_state state;
    char *why; // of what is not HEALTH_OK
};

// ended: the run will make no more pairs. Adds to findings.
void health_check(struct store *store, const struct workload_facts *facts,
        const struct plan_gate *gate, const struct plan_schedule *schedule, bool ended,
        struct health *ret_health, struct findings *findings);
void health_clear(struct health *health);

#define HEALTH_ALPHA \
    0.01 // one-sided: how often chance makes so much of a difference between the sides
// The part of it in health_work.c: do both sides do the same work? gate: what its metrics judge
// needs no finding.
void health_work(const struct workload_facts *facts, const struct plan_gate *gate,
        struct findings *findings);

#endif
