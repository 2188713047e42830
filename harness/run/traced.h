// SPDX-License-Identifier: Apache-2.0
// The traced launches of a run: pairs like the others, with a recorder on each side, once the
// verdict stands (it rests on untraced launches alone). They explain; nothing that goes wrong here
// is a failure of the run. On the thread of `upgate ab`, with one thread more a recorder.
#ifndef UPGATE_HARNESS_RUN_TRACED_H
#define UPGATE_HARNESS_RUN_TRACED_H

#include "harness/run/session_internal.h"

// schedule.traced_launches pairs of each workload, less those the store has already. What cannot be
// done is a note in the store and a line on the terminal. Ends at once when session_stop is set.
void traced_run(struct session *session);

#endif
