// SPDX-License-Identifier: Apache-2.0
// Which rank of a job a launcher made a process, by the environment it was started with: torchrun,
// Open MPI, MPICH and PMI, Slurm, Kubernetes' trainers. One table of variables; where launchers are
// nested the innermost one counts. Reads what it is given only.
#ifndef UPGATE_COMMON_LAUNCHER_H
#define UPGATE_COMMON_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LAUNCHER_JOB_MAX = 128 };

struct launcher_rank {
    const char *launcher;            // "torchrun"; static
    int32_t rank, ranks;             // 0 <= rank < ranks
    int32_t local_rank, local_ranks; // among those of the node; -1: not told
    int32_t node;                    // -1: not told
    int32_t restart;                 // how often the job was begun anew; 0: not told
    char job[LAUNCHER_JOB_MAX]; // the same on all ranks and in all restarts, of other jobs mostly
                                // another; "": not told
};

// false: no launcher says so. Numbers that are none, or do not fit each other, are as good as not
// there.
bool launcher_find_own(struct launcher_rank *ret); // by our own environment
// By /proc/PID/environ: texts one behind the other, each ended by 0.
bool launcher_find_block(const char *text, size_t len, struct launcher_rank *ret);
// One value of such a block, or NULL.
const char *launcher_block_value(const char *text, size_t len, const char *name);

#endif
