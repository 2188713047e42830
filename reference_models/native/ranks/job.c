// SPDX-License-Identifier: Apache-2.0
// Start and end of the programs of several ranks. The parent takes no part: it waits, and prints
// the one line of JSON.
#include "reference_models/native/ranks/job.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "contracts/exit_code.h"

#define JOB_PAGE ((size_t)4096)

struct plant job_plant(const struct job *job, uint32_t rank)
{
    struct plant plant = job->args->plant;
    if (rank + 1 != job->args->ranks) {
        plant.crash_step = UINT64_MAX;
        plant.hang_step = UINT64_MAX;
    }
    return plant;
}

static int job_report(const struct job *job, const char *same)
{
    const struct workload_result *result = job->head->result;
    for (uint64_t rank = 1; same && rank < job->args->ranks; rank++) {
        if (result[rank].checksum != result[0].checksum) {
            fprintf(stderr, "%s: rank %" PRIu64 " and rank 0 hold different %s\n", job->name, rank,
                    same);
            return EXIT_CODE_FAIL;
        }
    }
    workload_print(job->args, &result[0]);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "%s: failed to write the result to stdout\n", job->name);
        return EXIT_CODE_OPERATIONAL;
    }
    return EXIT_CODE_PASS;
}

// Ends as the rank ended, so that who started us sees a crash as a crash.
static int job_exit(int status)
{
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_OPERATIONAL;
}

int job_run(struct job *job, size_t bytes, const char *same, int (*fn)(uint32_t rank, void *arg),
        void *arg)
{
    size_t head_bytes = (sizeof *job->head + JOB_PAGE - 1) / JOB_PAGE * JOB_PAGE;
    struct error err = {0};
    void *memory = NULL;
    int status = 0;
    int rc = ranks_share(head_bytes + bytes, &memory, &err);
    if (rc == 0) {
        job->head = memory;
        job->memory = (char *)memory + head_bytes;
        rc = ranks_run((uint32_t)job->args->ranks, fn, arg, &status, &err);
    }
    if (rc) {
        fprintf(stderr, "%s: %s\n", job->name, err.text);
        return error_exit_code(rc);
    }
    if (status)
        return job_exit(status);
    int code = job->args->plant.exit_code >= 0 ? EXIT_CODE_PASS : job_report(job, same);
    ranks_unshare(memory, head_bytes + bytes);
    return code;
}
