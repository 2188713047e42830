// SPDX-License-Identifier: Apache-2.0
// A session: the whole of `upgate ab`. Runs pairs look by look until every gating cell is decided,
// stores each, asks the gate. Knows how to go on after an interruption. One session a process.
#ifndef UPGATE_HARNESS_RUN_SESSION_H
#define UPGATE_HARNESS_RUN_SESSION_H

#include <jansson.h>
#include <stdbool.h>

#include "common/error.h"
#include "contracts/exit_code.h"
#include "harness/plan/plan.h"
#include "tracer/store/store.h"

struct nodes;
struct nodes_opts;

struct session_opts {
    const struct plan *plan; // NULL with resume: the store's plan
    const char *store_path;
    bool resume;
    bool aa;
    // one node of several; stop is set by the session. NULL: the only one. With it:
    const struct nodes_opts *nodes;
    struct nodes **ret_nodes;   // of a run that was judged: the caller calls nodes_end once the
                                // verdict is printed, and nodes_close
    bool progress;              // live display on stderr
    const json_t *command_line; // array, for the store
};

// 0: the run was judged; *ret_exit is pass, fail or inconclusive, and *ret_store is open for
// reports. -errno: operational failure (no store, a side that cannot be started, full disk); what
// was recorded stays readable, and *ret_store is untouched.
int session_run(const struct session_opts *opts, struct store **ret_store, enum exit_code *ret_exit,
        struct error *err);

#endif
