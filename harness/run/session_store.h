// SPDX-License-Identifier: Apache-2.0
// What the run loop writes into the store and reads back on --resume: the run, its sides and
// workloads, each pair in one transaction with everything its launches recorded. Raw facts only;
// the gate derives the rest.
#ifndef UPGATE_HARNESS_RUN_SESSION_STORE_H
#define UPGATE_HARNESS_RUN_SESSION_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/plan/plan.h"
#include "harness/run/pair.h"
#include "tracer/store/store.h"

struct session_pair_row {
    int64_t workload_id;
    const char *phase; // main, confirm, pilot, anchor, traced, control
    int64_t idx;
    const char *state;  // valid, void, failed
    const char *reason; // NULL when valid
    int64_t void_side;  // of a void pair: the side its reason points at; -1 = none
    // Inside the transaction, once the pair stands there: what other nodes have recorded. NULL ok.
    int (*more)(void *arg, int64_t pair_id, struct error *err);
    void *arg;
};

// What the plan asks for: the workload's own way, else the schedule's.
enum plan_interleave session_interleave(
        const struct plan *plan, const struct plan_workload *workload);

ERROR_CHECKED int session_store_create(struct store *store, const struct plan *plan, bool aa,
        const json_t *command_line, const json_t *host, struct error *err);
// state: running, done, interrupted. When it ended: nobody writes any more; NULL: this process
// does, and it has not ended.
ERROR_CHECKED int session_store_state(
        struct store *store, const char *state, const int64_t *ended_wall_ns, struct error *err);
// Likewise of a run whose state is to stay; NULL: this process writes, and when it ended is left as
// it is.
ERROR_CHECKED int session_store_writer(
        struct store *store, const int64_t *ended_wall_ns, struct error *err);
ERROR_CHECKED int session_store_pair(struct store *store, const struct session_pair_row *row,
        const struct pair_spec *spec, const struct pair *pair, struct error *err);
ERROR_CHECKED int session_store_workload(struct store *store, int64_t id,
        enum plan_interleave interleave, const char *note, double rate_per_s, struct error *err);
ERROR_CHECKED int session_store_fingerprint(
        struct store *store, int side, const json_t *fingerprint, struct error *err);

#endif
