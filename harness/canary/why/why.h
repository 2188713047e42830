// SPDX-License-Identifier: Apache-2.0
// Why a candidate was rolled back: at the breach both arms are recorded (`upgate record`), each by
// a child of its own, while the rollback goes on; the report compares the recordings. Never in the
// rollback's way: begin takes a fork (below a millisecond), done never waits, a child has a
// deadline, and a failure is a sentence in table rollout_recording. One thread.
//
// Its functions fit struct controller_why:
//     struct why *why = why_new(NULL);
//     const struct controller_why hook = {.arg = why, .begin = why_begin, .done = why_done};
//
// After a rollback the candidate answers no user any more: what its recording shows is what was in
// flight, and what it does by itself. Where the controller begins earlier (evidence beyond half of
// what is needed) it shows the regression under load.
#ifndef UPGATE_HARNESS_CANARY_WHY_H
#define UPGATE_HARNESS_CANARY_WHY_H

#include <stdbool.h>

#include "harness/canary/plan/rollout.h"
#include "tracer/store/store.h"

struct why;

struct why *why_new(const char *program); // NULL: this program itself, for `upgate record`
// Behind its duration a recording is asked to end after `grace_ns`, and killed `kill_ns` later. 20
// s and 10 s where this is not called.
void why_patience(struct why *why, int64_t grace_ns, int64_t kill_ns);
void why_free(struct why *why); // NULL ok; children that still record are ended and reaped

// Of each arm its pid, its cgroup, or who listens on the port of its shadow URL. Recordings lie
// beside the store: STORE.baseline.MILLISECONDS.db, STORE.candidate.MILLISECONDS.db. A second begin
// while one is under way does nothing.
void why_begin(void *why, const struct rollout *rollout, struct store *store);
// True: both are over, or nothing was begun; the rows are written then, once.
bool why_done(void *why, struct store *store);

#endif
