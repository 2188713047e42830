// SPDX-License-Identifier: Apache-2.0
// How each program of ours begins and ends: descriptors, signals, the log, variables of the
// environment, what stdout did not take.
#ifndef UPGATE_VERBS_PROGRAM_H
#define UPGATE_VERBS_PROGRAM_H

void program_begin(void); // once, before any thread
// Closes stdout. Returns the exit code: rc, or EXIT_CODE_OPERATIONAL, with a message, where data
// was lost.
int program_end(int rc);

#endif
