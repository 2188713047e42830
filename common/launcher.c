// SPDX-License-Identifier: Apache-2.0
// What launchers tell a rank. The order of the table is that of nesting, the innermost first: `srun
// torchrun` leaves SLURM_PROCID with the number of the node, mpirun in a pod of a PyTorchJob leaves
// RANK with the number of the pod, and a batch script of Slurm leaves SLURM_PROCID with 0 to all
// that it starts.
#include "common/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Each a variable, or two of which the first that is set counts, separated by '|'. NULL: this
// launcher tells no such thing.
struct launcher_row {
    const char *name, *needs; // needs: without it the others are somebody else's
    const char *rank, *ranks, *local_rank, *local_ranks, *node, *restart, *job;
};

static const struct launcher_row launcher_table[] = {
        {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"},
        {"Open MPI", NULL, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL,
                "PMIX_NAMESPACE|OMPI_MCA_ess_base_jobid"},
        {"PMI", NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL,
                "PMI_JOBID"},
        // By hand, by Ray Train in the environment of its workers, or by a PyTorchJob, which
        // numbers its pods.
        {"RANK", NULL, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                "NODE_RANK|GROUP_RANK", NULL, NULL},
        {"Slurm", NULL, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS|SLURM_NTASKS", "SLURM_LOCALID", NULL,
                "SLURM_NODEID", "SLURM_RESTART_COUNT", NULL},
        // Before torchrun, which a Kubeflow Trainer or a PyTorchJob has made ready: a rank is a
        // pod.
        {"Kubeflow Trainer", NULL, "PET_NODE_RANK", "PET_NNODES", NULL, NULL, "PET_NODE_RANK", NULL,
                "PET_RDZV_ID"}};

struct launcher_source {
    const char *text; // as launcher_find_block gets it; NULL: our own environment
    size_t len;
};

// The block ends with a 0, or a value that is cut is none.
const char *launcher_block_value(const char *text, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *at = text, *end = text + len; at < end;
            at += strnlen(at, (size_t)(end - at)) + 1) {
        size_t left = (size_t)(end - at);
        if (left > name_len + 1 && strncmp(at, name, name_len) == 0 && at[name_len] == '=')
            return memchr(at, 0, left) ? at + name_len + 1 : NULL;
    }
    return NULL;
}

static const char *launcher_value(const struct launcher_source *source, const char *names)
{
    char name[64];
    while (names && *names) {
        int len = (int)strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", len, names);
        const char *value =
                source->text ? launcher_block_value(source->text, source->len, name) : getenv(name);
        if (value && *value)
            return value;
        names += len + (names[len] == '|');
    }
    return NULL;
}

static int32_t launcher_number(const struct launcher_source *source, const char *names)
{
    const char *value = launcher_value(source, names);
    size_t count = value ? strspn(value, "0123456789") : 0;
    return count > 0 && count < 10 && value[count] == 0 && strtol(value, NULL, 10) <= INT32_MAX
            ? (int32_t)strtol(value, NULL, 10)
            : -1;
}

// A PyTorchJob with several processes a pod (nprocPerNode) has the number of the pod in RANK, and
// in WORLD_SIZE how many processes all pods are to start: RANK is one of PET_NNODES. Whoever starts
// these processes says LOCAL_RANK, or another RANK.
static bool launcher_numbers_pods(const struct launcher_source *source)
{
    int32_t pods = launcher_number(source, "PET_NNODES"),
            ranks = launcher_number(source, "WORLD_SIZE");
    return pods > 0 && ranks > pods && !launcher_value(source, "LOCAL_RANK") &&
            launcher_number(source, "RANK") == launcher_number(source, "PET_NODE_RANK");
}

// What tells this job from others. The launcher's own name of it; "none" is what torchrun is told
// when nobody names one. Else that of the scheduler around it, else where its ranks meet.
static void launcher_job(
        const struct launcher_source *source, const struct launcher_row *row, char *ret_job)
{
    const char *own = launcher_value(source, row->job);
    const char *scheduler = launcher_value(source, "SLURM_JOB_ID"),
               *step = launcher_value(source, "SLURM_STEP_ID");
    const char *address = launcher_value(source, "MASTER_ADDR|PET_MASTER_ADDR"),
               *port = launcher_value(source, "MASTER_PORT|PET_MASTER_PORT");
    const char *again = launcher_value(source, "SLURM_RESTART_COUNT");
    int len = 0;
    if (own && strcmp(own, "none") != 0)
        len = snprintf(ret_job, LAUNCHER_JOB_MAX, "%s", own);
    else if (scheduler)
        len = snprintf(
                ret_job, LAUNCHER_JOB_MAX, "%s%s%s", scheduler, step ? "." : "", step ? step : "");
    else if (address)
        len = snprintf(
                ret_job, LAUNCHER_JOB_MAX, "%s%s%s", address, port ? "-" : "", port ? port : "");
    // A job that Slurm has put back into its queue counts its own restarts from 0 again.
    if (again && strcmp(again, "0") != 0 && !(row->restart && strstr(row->restart, "SLURM")) &&
            len > 0 && len < LAUNCHER_JOB_MAX)
        snprintf(ret_job + len, (size_t)(LAUNCHER_JOB_MAX - len), "-requeue%s", again);
}

static bool launcher_find(const struct launcher_source *source, struct launcher_rank *ret)
{
    for (size_t i = 0; i < sizeof launcher_table / sizeof *launcher_table; i++) {
        const struct launcher_row *row = &launcher_table[i];
        int32_t rank = launcher_number(source, row->rank),
                ranks = launcher_number(source, row->ranks);
        if (rank < 0 || rank >= ranks || (row->needs && !launcher_value(source, row->needs)) ||
                (strcmp(row->name, "RANK") == 0 && launcher_numbers_pods(source)))
            continue;
        int32_t restart = launcher_number(source, row->restart);
        *ret = (struct launcher_rank){.launcher = row->name,
                .rank = rank,
                .ranks = ranks,
                .local_rank = launcher_number(source, row->local_rank),
                .local_ranks = launcher_number(source, row->local_ranks),
                .node = launcher_number(source, row->node),
                .restart = restart > 0 ? restart : 0};
        launcher_job(source, row, ret->job);
        return true;
    }
    return false;
}

bool launcher_find_own(struct launcher_rank *ret)
{
    return launcher_find(&(struct launcher_source){0}, ret);
}

bool launcher_find_block(const char *text, size_t len, struct launcher_rank *ret)
{
    return launcher_find(&(struct launcher_source){text, len}, ret);
}
