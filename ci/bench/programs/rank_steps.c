// SPDX-License-Identifier: Apache-2.0
// A rank of the job of ci/slurm-ranks, as light as a process can be. All ranks are on one machine,
// and meet in a file that they share: in each step nobody gets on before all have come, as in an
// all-reduce. It waits there in a function that has a name of MPI's, by which a wait for other
// ranks is known. A step ends at its time by the clock, and the late rank takes longer. All sleep:
// a thousand that compute would be late by each other on few CPUs.
//     rank_steps job FILE STEPS STEP_MS LATE LATE_MS     rank LATE takes LATE_MS longer for each
//                                                        step
//     rank_steps turn FILE AT_ONCE COMMAND…              becomes COMMAND when all but AT_ONCE of
//                                                        the ranks before it have begun with their
//                                                        job
// FILE has MEETING_BYTES bytes, zeros at first. Which rank it is Slurm's environment says. Exits
// with 2 for usage, 4 without the file.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contracts/upgate_step.h"

enum { MEETING_BYTES = 4096, TURN_MS = 10, TURN_MS_MAX = 2000 };

struct meeting {              // the file
    atomic_uint begun;        // ranks that have come to their job
    atomic_uint here, over;   // ranks that wait; collectives that are over
    _Atomic int64_t begin_ns; // of the first step; 0: not yet
};
_Static_assert(sizeof(struct meeting) <= MEETING_BYTES, "ci/slurm-ranks makes it so large");

void MPI_Allreduce(struct meeting *meeting, unsigned ranks);
int64_t prepare_features(int64_t ns);

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until_ns(int64_t at)
{
    struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

// The last one lets the others go. The futex is no private one: the ranks are processes.
__attribute__((noinline)) void MPI_Allreduce(struct meeting *meeting, unsigned ranks)
{
    unsigned over = atomic_load(&meeting->over);
    if (atomic_fetch_add(&meeting->here, 1) + 1 == ranks) {
        atomic_store(&meeting->here, 0);
        atomic_fetch_add(&meeting->over, 1);
        syscall(SYS_futex, &meeting->over, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
    while (atomic_load(&meeting->over) == over)
        syscall(SYS_futex, &meeting->over, FUTEX_WAIT, over, NULL, NULL, 0);
}

// What follows the sleep keeps its frame on the stack meanwhile.
__attribute__((noinline)) int64_t prepare_features(int64_t ns)
{
    int64_t until = now_ns() + ns;
    sleep_until_ns(until);
    return now_ns() - until;
}

static long number(const char *text)
{
    return text ? strtol(text, NULL, 10) : -1;
}

static struct meeting *meeting_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED
                          : mmap(NULL, MEETING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static int job(struct meeting *meeting, long rank, long ranks, char **argv)
{
    long steps = number(argv[0]), step_ms = number(argv[1]), late = number(argv[2]),
         late_ms = number(argv[3]);
    int64_t none = 0, over = 0;
    atomic_fetch_add(&meeting->begun, 1);
    MPI_Allreduce(meeting, (unsigned)ranks); // all are there
    atomic_compare_exchange_strong(&meeting->begin_ns, &none, now_ns());
    int64_t begin = atomic_load(&meeting->begin_ns);
    for (long step = 0; step < steps; step++) {
        ug_step_begin();
        sleep_until_ns(begin + (step + 1) * step_ms * 1000000);
        if (rank == late)
            over += prepare_features(late_ms * 1000000);
        MPI_Allreduce(meeting, (unsigned)ranks);
        ug_step_end(1);
    }
    return over < 0;
}

// The longer, the more are before it: a thousand that look a hundred times a second would be all
// that the machine does.
static int turn(struct meeting *meeting, long rank, char **argv)
{
    long at_once = number(argv[0]), behind;
    while ((behind = rank - at_once - (long)atomic_load(&meeting->begun)) >= 0)
        sleep_until_ns(now_ns() +
                (behind < TURN_MS_MAX / TURN_MS ? (behind + 1) * TURN_MS : TURN_MS_MAX) * 1000000);
    execvp(argv[1], argv + 1);
    fprintf(stderr, "rank_steps: failed to start '%s': %s\n", argv[1], strerror(errno));
    return 4;
}

int main(int argc, char **argv)
{
    long rank = number(getenv("SLURM_PROCID")), ranks = number(getenv("SLURM_NTASKS"));
    bool is_job = argc == 7 && strcmp(argv[1], "job") == 0,
         is_turn = argc > 4 && strcmp(argv[1], "turn") == 0;
    if (rank < 0 || ranks < 1 || rank >= ranks || (!is_job && !is_turn)) {
        fputs("usage, under srun: rank_steps (job FILE STEPS STEP_MS LATE LATE_MS | turn FILE AT_ONCE COMMAND…)\n",
                stderr);
        return 2;
    }
    struct meeting *meeting = meeting_open(argv[2]);
    if (!meeting) {
        fprintf(stderr, "rank_steps: failed to open '%s': %s\n", argv[2], strerror(errno));
        return 4;
    }
    return is_job ? job(meeting, rank, ranks, argv + 3) : turn(meeting, rank, argv + 3);
}
