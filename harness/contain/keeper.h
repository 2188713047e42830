// SPDX-License-Identifier: Apache-2.0
// The keeper of a launch: a small process between upgate and the root of the launch, and the
// subreaper of it. So every process that descends from the launch is a descendant of its keeper,
// whatever it did to hide, and nobody else is: what upgate ends is known by descent. It waits for
// the root in upgate's place, and ends what is left when upgate lets go of it or dies. It costs
// nothing while the launch runs: it sleeps in poll(2). One owner thread.
#ifndef UPGATE_HARNESS_CONTAIN_KEEPER_H
#define UPGATE_HARNESS_CONTAIN_KEEPER_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/error.h"

struct keeper;

// What upgate's death gives a container to end by itself, before it is ended: podman needs 0.3 s to
// remove it.
enum { KEEPER_GENTLE_S = 3 };

// Forks the keeper, which forks the root: child(arg) runs there and must not return. *ret_root is
// its pid. group: the directory of the launch's cgroup, which goes with it, or NULL. gentle: its
// processes end by themselves when upgate dies, and are given the time.
int keeper_start(void (*child)(void *arg), void *arg, const char *group, bool gentle,
        struct keeper **ret_keeper, pid_t *ret_root, struct error *err);
pid_t keeper_pid(const struct keeper *keeper);
// Waits for the root to end. -ESRCH: the keeper was killed, and the root with it.
int keeper_wait(const struct keeper *keeper, int *ret_status, struct rusage *ret_usage);
// readable once the root has ended: keeper_wait() does not wait then
int keeper_fd(const struct keeper *keeper);
// SIGKILL to every descendant that still lives; returns when none is left, or after 5 s. NULL ok.
void keeper_free(struct keeper *keeper);

#endif
