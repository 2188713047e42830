// SPDX-License-Identifier: Apache-2.0
// Forked ranks, their shared memory and their barrier. The parent only waits for them.
#include "reference_models/native/ranks/ranks.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "reference_models/native/room.h"

#define RANKS_SPINS 100 // ranks may share a core: give it up soon
#define RANKS_PAGE 4096

void ranks_barrier_wait(struct ranks_barrier *barrier, uint32_t ranks)
{
    unsigned int round = atomic_load_explicit(&barrier->round, memory_order_acquire);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 == ranks) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&barrier->round, 1, memory_order_release);
        syscall(SYS_futex, &barrier->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (int spin = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round;
            spin++) {
        if (spin >= RANKS_SPINS)
            syscall(SYS_futex, &barrier->round, FUTEX_WAIT, round, NULL, NULL, 0);
    }
}

int ranks_share(size_t bytes, void **ret_memory, struct error *err)
{
    int rc = room_take(bytes, "what the ranks share", err);
    if (rc)
        return rc;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        rc = error_set(err, -errno, "failed to share %zu bytes: %s; try --size small", bytes,
                strerror(errno));
    for (size_t i = 0; rc == 0 && i < bytes; i += RANKS_PAGE)
        ((volatile char *)memory)[i] = 0;
    room_taken(bytes);
    if (rc == 0)
        *ret_memory = memory;
    return rc;
}

void ranks_unshare(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

void ranks_touch(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += RANKS_PAGE)
        (void)((const volatile char *)memory)[i];
}

static void ranks_child(
        uint32_t rank, uint32_t ranks, pid_t parent, int (*fn)(uint32_t rank, void *arg), void *arg)
{
    char text[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) // it died before the line above
        exit(4);
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    setenv("LOCAL_RANK", text, 1);
    snprintf(text, sizeof text, "%u", ranks);
    setenv("WORLD_SIZE", text, 1);
    exit(fn(rank, arg));
}

static void ranks_kill(const pid_t *pids, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        if (pids[i] > 0)
            kill(pids[i], SIGKILL);
    }
}

// Waits for all; at the first failure the others are killed, as they would wait for it for ever.
static int ranks_wait(pid_t *pids, uint32_t ranks)
{
    int first = 0;
    for (uint32_t left = ranks; left > 0;) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        for (uint32_t i = 0; i < ranks; i++) {
            if (pids[i] != pid)
                continue;
            pids[i] = 0; // reaped: its number may be another's by now
            left--;
            if (status != 0 && first == 0) {
                first = status;
                ranks_kill(pids, ranks);
            }
        }
    }
    return first;
}

int ranks_run(uint32_t ranks, int (*fn)(uint32_t rank, void *arg), void *arg, int *ret_status,
        struct error *err)
{
    pid_t *pids = xcalloc(ranks, sizeof *pids);
    pid_t parent = getpid();
    int rc = room_share(err);
    fflush(NULL);
    for (uint32_t i = 0; i < ranks && rc == 0; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            free(pids);
            ranks_child(i, ranks, parent, fn, arg);
        }
        if (pids[i] < 0) {
            rc = error_set(
                    err, -errno, "failed to start rank %u of %u: %s", i, ranks, strerror(errno));
            pids[i] = 0;
            ranks_kill(pids, ranks);
            while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                continue;
        }
    }
    if (rc == 0)
        *ret_status = ranks_wait(pids, ranks);
    free(pids);
    return rc;
}
