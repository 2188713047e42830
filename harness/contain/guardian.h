// SPDX-License-Identifier: Apache-2.0
// The guardian: a small process of its own session that outlives upgate. When upgate dies without a
// word (kill -9, a crash), it thaws and kills every launch and removes cgroups and shared memory,
// so that nothing stays frozen or alive. It costs nothing while upgate lives: it sleeps in read(2).
#ifndef UPGATE_HARNESS_CONTAIN_GUARDIAN_H
#define UPGATE_HARNESS_CONTAIN_GUARDIAN_H

#include "common/error.h"

struct guardian;

// base: directory of the run's cgroups ("" = none), which may not exist yet.
int guardian_start(const char *base, struct guardian **ret_guardian, struct error *err);
void guardian_set_base(struct guardian *guardian, const char *base); // another one, from now on
// Tell it of a launch: mark = its UPGATE_STEPS file, removed with the processes that carry it.
// Starts a new guardian if the old one was killed. The socket of a container is watched likewise:
// then what is in the cgroups is given time to end by itself. guardian_forget once the launch is
// over.
int guardian_watch(struct guardian *guardian, const char *mark, struct error *err);
void guardian_forget(struct guardian *guardian, const char *mark);
void guardian_stop(struct guardian *guardian); // ends it without it doing anything; NULL ok

#endif
