// SPDX-License-Identifier: Apache-2.0
// The ranks of a job, reduced and added, as `upgate merge --reduced` and upgate-mpi-reduce tell of
// them: which are missing and why, the file, what is printed.
#ifndef UPGATE_VERBS_MERGE_REDUCED_JOB_H
#define UPGATE_VERBS_MERGE_REDUCED_JOB_H

#include "common/containers/map.h"
#include "contracts/exit_code.h"
#include "harness/rank/merge.h"
#include "reports/analyse/reduce/reduced.h"

struct reduced_job { // {0}: nothing is known of it
    struct reduced all;
    struct merge_rank *missing; // of the job
    size_t missing_count;
    struct map missing_of; // by rank
};

// Before all the work. -EINVAL: the place of the file is taken.
ERROR_CHECKED int reduced_job_new(const char *path, struct error *err);
// The same, and its directory is there and can take it: else -errno.
ERROR_CHECKED int reduced_job_place(const char *path, struct error *err);
// Its shards are reduced: what is known of those that are missing is taken over, and notes are
// logged.
void reduced_job_take(struct reduced_job *job, const struct merge_result *shards);
// `all` is whole: who is in it is not missing; in a part, others are elsewhere. -EINVAL: nobody is
// in it. where: for the sentence.
ERROR_CHECKED int reduced_job_settle(
        struct reduced_job *job, bool part, const char *where, struct error *err);
// Written, and printed. output: NULL: only printed. A file that appears meanwhile is not replaced:
// -EINVAL. Where it cannot be written the ranks are printed all the same.
ERROR_CHECKED int reduced_job_tell(
        const struct reduced_job *job, const char *output, bool json, struct error *err);
enum exit_code reduced_job_exit(const struct reduced_job *job);
void reduced_job_free(struct reduced_job *job);

#endif
