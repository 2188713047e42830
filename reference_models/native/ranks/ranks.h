// SPDX-License-Identifier: Apache-2.0
// Several processes on one machine that work as one: started by fork, joined by shared memory and a
// futex barrier, watched by their parent, which takes no part itself. When one rank fails the
// others are killed, and none outlives the parent.
#ifndef UPGATE_NATIVE_RANKS_H
#define UPGATE_NATIVE_RANKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

// Lives in shared memory; zeroed is ready.
struct ranks_barrier {
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint round;
};

// Returns when `ranks` processes have called it.
void ranks_barrier_wait(struct ranks_barrier *barrier, uint32_t ranks);

// Memory that forked processes share, zeroed and faulted in. -ENOMEM. Unmapped by ranks_unshare.
int ranks_share(size_t bytes, void **ret_memory, struct error *err);
void ranks_unshare(void *memory, size_t bytes);
// The pages exist, but each process maps them at its own first touch: this is it, before the first
// step.
void ranks_touch(const void *memory, size_t bytes);

// Runs fn(rank, arg) in `ranks` children, each with RANK, LOCAL_RANK and WORLD_SIZE in its
// environment; what fn returns is the child's exit code. Returns the wait status of the first child
// that did not exit with 0, else 0; -errno when they could not be started.
int ranks_run(uint32_t ranks, int (*fn)(uint32_t rank, void *arg), void *arg, int *ret_status,
        struct error *err);

#endif
