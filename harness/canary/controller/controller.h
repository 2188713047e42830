// SPDX-License-Identifier: Apache-2.0
// The controller of a rollout: one process, one thread. Polls the evidence, looks at the traffic
// ten times a second, stores seconds and decisions, moves the traffic as the state machine says,
// until the rollout has ended or a signal comes.
#ifndef UPGATE_HARNESS_CANARY_CONTROLLER_H
#define UPGATE_HARNESS_CANARY_CONTROLLER_H

#include "contracts/exit_code.h"
#include "harness/canary/decide/machine.h"
#include "tracer/store/store.h"

// The shadow stage: asks both arms the mirrored requests and compares the answers. `arg` is the
// first argument of each call.
struct controller_shadow {
    void *arg;
    int (*begin)(void *arg, const struct rollout *rollout, int stage, struct store *store,
            struct error *err);
    void (*traffic)(void *arg, uint64_t requests); // of users, since the last call
    // The oldest finished second that was not taken, as sources_take(). Does what is due; never
    // waits longer than 20 ms.
    bool (*take)(void *arg, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS]);
    void (*end)(void *arg); // also where it was not begun
};

// Why a stage failed: recordings of both arms, begun when the traffic is at the baseline (or the
// breach is seen), in processes of their own. Called where the plan's `why.record` is set.
struct controller_why {
    void *arg;
    void (*begin)(void *arg, const struct rollout *rollout, struct store *store);
    bool (*done)(void *arg, struct store *store); // asked until true; writes rollout_recording
};

struct controller_options {
    const struct rollout *rollout;
    const char *who;            // who started it: "USER@HOST"
    const json_t *command_line; // array
    bool anew;       // the rollout of this store has ended, or its plan changed: keep the old store
                     // beside a new one
    bool aborts;     // the plan is the stored one: to carry out an abort, without sources and a
                     // comparison
    int64_t wait_ns; // a pause that nobody asked for waits so long for a person; then the traffic
                     // goes to the baseline. -1: patience
    const struct controller_shadow *shadow; // NULL: a plan with a shadow stage is refused
    const struct controller_why *why;       // NULL: nothing is recorded
};

// Blocks. *ret_exit: 0 promoted, 1 rolled back, 3 paused, aborted or without enough evidence, 4
// failed (traffic at the baseline whenever that could be done). Errors: -EINVAL (a changed plan, an
// ended rollout: nothing was touched), -EBUSY (another controller), others where it could not be
// begun. Installs handlers of SIGTERM and SIGINT and takes them back.
int controller_run(
        const struct controller_options *options, enum exit_code *ret_exit, struct error *err);

#endif
