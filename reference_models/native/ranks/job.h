// SPDX-License-Identifier: Apache-2.0
// A program whose ranks are forked processes: the memory that they share, what each is planted
// with, and how all of it ends.
#ifndef UPGATE_NATIVE_JOB_H
#define UPGATE_NATIVE_JOB_H

#include "reference_models/native/ranks/ranks.h"
#include "reference_models/native/workload.h"

struct job_head {
    struct ranks_barrier barrier;
    struct workload_result result[ARGS_RANKS_MAX]; // of each rank, which it leaves here
};

struct job {
    const char *name; // of the program
    const struct args *args;
    struct job_head *head; // shared, zeroed; job_run() sets it,
    char *memory;          // and what lies behind it, on a page of its own
};

// It is the last rank that crashes or hangs, so that the others wait for it as they would in real
// life.
struct plant job_plant(const struct job *job, uint32_t rank);

// Runs fn(rank, arg) in all ranks, with `bytes` of job->memory, and prints the result of rank 0.
// same: what all ranks must have alike, by their checksums, as in "sums"; NULL: nothing. Returns
// the exit code; ends as a rank ended that a signal has ended.
int job_run(struct job *job, size_t bytes, const char *same, int (*fn)(uint32_t rank, void *arg),
        void *arg);

#endif
