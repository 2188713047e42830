// SPDX-License-Identifier: Apache-2.0
// The recording of a job of several ranks, for unit tests: its processes, what they compute, and
// their waits in collectives.
#ifndef UPGATE_TESTS_STALL_JOB_H
#define UPGATE_TESTS_STALL_JOB_H

#include <stdlib.h>

#include "tests/unit/stall_story.h"

enum { RANKS_MOST = 8, STEP_MS = 20, STEPS = STORY_WINDOW_MS / STEP_MS };

struct job {
    struct story story;
    int64_t main[RANKS_MOST], process[RANKS_MOST];
    int count;
    unsigned seed;
};

#define JOB_WAIT \
    "__futex_abstimed_wait_common;pthread_cond_wait;c10d::Work::wait;c10d::Reducer::finalize_backward"

// Ranks 0 to count - 1 of `ranks`, pids 2000 and so on, whose main threads work all the time.
static inline void job_open(struct job *job, int count, int ranks)
{
    *job = (struct job){.count = count, .seed = 7};
    story_open_quiet(&job->story);
    for (int i = 0; i < count; i++) {
        job->process[i] =
                story_process(&job->story, "target", 2000 + i, 1000, "python3", "python3 ddp.py");
        job->main[i] = story_leader(&job->story, job->process[i]);
        story_total(&job->story, job->main[i], STORY_WINDOW_MS * 0.8);
        if (ranks)
            story_rank(&job->story, 2000 + i, i, ranks);
    }
}

static inline void job_wait(struct job *job, int rank, double begin, double end)
{
    story_gap(&job->story,
            (struct story_gap){.thread = job->main[rank],
                    .out = begin,
                    .waking = end,
                    .in = end + 0.02,
                    .state = 1,
                    .kernel = STORY_FUTEX_WAIT,
                    .user = JOB_WAIT,
                    .python = "backward@/x/tensor.py:5;main@/x/ddp.py:30"});
}

static inline void job_runs(struct job *job, int rank, double from, double to, const char *python)
{
    story_samples(&job->story,
            (struct story_samples){.thread = job->main[rank],
                    .from = from,
                    .to = to,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                    .python = python});
}

static inline double job_random(struct job *job) // 0 to 1
{
    job->seed = job->seed * 1103515245 + 12345;
    return (double)(job->seed >> 16 & 0x7fff) / 0x8000;
}

// One step of all: the ranks compute for some ms each and wait for the last one in the collective
// at its end.
static inline void job_step(struct job *job, int count, double at, const double *compute)
{
    double last = 0;
    for (int i = 0; i < count; i++)
        last = compute[i] > last ? compute[i] : last;
    for (int i = 0; i < count; i++)
        // with half a ms of communication more: shorter waits are not recorded
        if (last - compute[i] >= 0.5)
            job_wait(job, i, at + compute[i], at + last + 0.5);
}

#endif
