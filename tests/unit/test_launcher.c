// SPDX-License-Identifier: Apache-2.0
// Which rank of which job: what each launcher leaves in the environment, and launchers within
// launchers. The texts are what those of docs/SCALE.md printed, but for names of machines.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launcher.h"
#include "tests/unit/runner.h"

// Lines "NAME=value" as the kernel keeps them, the last one ended, too.
static bool found(const char *lines, struct launcher_rank *ret)
{
    char *block = strdup(lines);
    size_t len = strlen(lines) + 1;
    CHECK(block != NULL);
    for (size_t i = 0; i < len; i++)
        if (block[i] == '\n')
            block[i] = 0;
    bool is = launcher_find_block(block, len, ret);
    free(block);
    return is;
}

static void check_rank(const char *lines, const char *launcher, int32_t rank, int32_t ranks,
        int32_t node, int32_t restart, const char *job)
{
    struct launcher_rank one = {0};
    CHECK(found(lines, &one));
    CHECK_STR(one.launcher, launcher);
    CHECK_INT(one.rank, rank);
    CHECK_INT(one.ranks, ranks);
    CHECK_INT(one.node, node);
    CHECK_INT(one.restart, restart);
    CHECK_STR(one.job, job);
}

#define TORCHRUN \
    "RANK=5\nLOCAL_RANK=1\nWORLD_SIZE=8\nLOCAL_WORLD_SIZE=4\nGROUP_RANK=1\nGROUP_WORLD_SIZE=2\nMASTER_ADDR=a\n" \
    "MASTER_PORT=29500\nTORCHELASTIC_RESTART_COUNT=2\n"
#define SRUN \
    "SLURM_PROCID=3\nSLURM_LOCALID=1\nSLURM_NTASKS=4\nSLURM_STEP_NUM_TASKS=4\nSLURM_NODEID=1\nSLURM_JOB_ID=77\nSLURM_STEP_ID=0\n"
#define MPIRUN \
    "OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=3\nOMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=1\n" \
    "OMPI_COMM_WORLD_NODE_RANK=0\nPMIX_RANK=2\nPMIX_NAMESPACE=2190016513\n"

TEST(each_launcher)
{
    struct launcher_rank one = {0};
    check_rank(TORCHRUN "TORCHELASTIC_RUN_ID=nightly", "torchrun", 5, 8, 1, 2, "nightly");
    CHECK(found(TORCHRUN "TORCHELASTIC_RUN_ID=nightly", &one));
    CHECK_INT(one.local_rank, 1);
    CHECK_INT(one.local_ranks, 4);
    // nobody named the run
    check_rank(TORCHRUN "TORCHELASTIC_RUN_ID=none", "torchrun", 5, 8, 1, 2, "a-29500");
    check_rank(SRUN, "Slurm", 3, 4, 1, 0, "77.0");
    // put back into the queue
    check_rank(SRUN "SLURM_RESTART_COUNT=1", "Slurm", 3, 4, 1, 1, "77.0");
    check_rank(MPIRUN, "Open MPI", 2, 3, -1, 0, "2190016513");
    check_rank(
            "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2", "PMI", 1, 2, -1, 0, "");
    CHECK(found("PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2", &one));
    CHECK_INT(one.local_rank, 1);
    check_rank("MASTER_ADDR=job-master-0\nMASTER_PORT=23456\nRANK=1\nWORLD_SIZE=2", "RANK", 1, 2,
            -1, 0, "job-master-0-23456");
    check_rank(
            "PET_NNODES=2\nPET_NODE_RANK=1\nPET_NPROC_PER_NODE=4\nPET_MASTER_ADDR=t\nPET_MASTER_PORT=29400",
            "Kubeflow Trainer", 1, 2, 1, 0, "t-29400");
    check_rank(
            "RANK=1\nLOCAL_RANK=1\nNODE_RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=41001",
            "RANK", 1, 2, 0, 0,
            "10.0.0.1-41001"); // Ray Train
}

TEST(the_innermost_launcher_counts)
{
    // SLURM_PROCID is the node
    check_rank(SRUN TORCHRUN "TORCHELASTIC_RUN_ID=none", "torchrun", 5, 8, 1, 2, "77.0");
    check_rank(SRUN TORCHRUN "SLURM_RESTART_COUNT=3\nTORCHELASTIC_RUN_ID=77", "torchrun", 5, 8, 1,
            2, "77-requeue3");
    // of the batch script
    check_rank("SLURM_JOB_ID=9\nSLURM_PROCID=0\nSLURM_NTASKS=1\n" MPIRUN, "Open MPI", 2, 3, -1, 0,
            "2190016513");
    // srun --mpi=pmi2
    check_rank(SRUN "PMI_RANK=3\nPMI_SIZE=4\nPMI_JOBID=77.0", "PMI", 3, 4, -1, 0, "77.0");
    // in a pod
    check_rank("RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=p\nMASTER_PORT=1\n" MPIRUN, "Open MPI", 2, 3, -1,
            0, "2190016513");
    check_rank("PET_NNODES=2\nPET_NODE_RANK=1\n" TORCHRUN "TORCHELASTIC_RUN_ID=r", "torchrun", 5, 8,
            1, 2, "r");
    // mpirun starts one torchrun a node
    check_rank(MPIRUN TORCHRUN "TORCHELASTIC_RUN_ID=r", "torchrun", 5, 8, 1, 2, "r");
}

#define POD "MASTER_ADDR=m\nMASTER_PORT=1\nPET_NODE_RANK=1\nPET_NPROC_PER_NODE=8\n"

// RANK is the pod's number, WORLD_SIZE that of the processes of all pods.
TEST(a_pod_of_several_processes_is_one_of_the_pods)
{
    check_rank(POD "PET_NNODES=2\nRANK=1\nWORLD_SIZE=16", "Kubeflow Trainer", 1, 2, 1, 0, "m-1");
    // one process a pod
    check_rank(POD "PET_NNODES=2\nRANK=1\nWORLD_SIZE=2", "RANK", 1, 2, -1, 0, "m-1");
    // started in the pod
    check_rank(
            POD "PET_NNODES=2\nRANK=11\nLOCAL_RANK=3\nWORLD_SIZE=16", "RANK", 11, 16, -1, 0, "m-1");
    check_rank(
            POD "PET_NNODES=2\nRANK=1\nLOCAL_RANK=1\nWORLD_SIZE=16", "RANK", 1, 16, -1, 0, "m-1");
    check_rank(POD "PET_NNODES=2\nRANK=11\nWORLD_SIZE=16", "RANK", 11, 16, -1, 0, "m-1");
    check_rank(POD "PET_NNODES=1:4\nRANK=1\nWORLD_SIZE=16", "RANK", 1, 16, -1, 0, "m-1"); // elastic
    check_rank(POD "PET_NNODES=2\n" TORCHRUN "TORCHELASTIC_RUN_ID=r", "torchrun", 5, 8, 1, 2, "r");
}

TEST(what_is_no_rank)
{
    struct launcher_rank one = {.rank = 11};
    static const char *const none[] = {"", "RANK=1", "WORLD_SIZE=2", "RANK=2\nWORLD_SIZE=2",
            "RANK=-1\nWORLD_SIZE=2", "RANK=1x\nWORLD_SIZE=2", "RANK=\nWORLD_SIZE=2",
            "RANK=99999999999\nWORLD_SIZE=99999999999", "OLD_RANK=0\nOLD_WORLD_SIZE=2",
            "SLURM_NTASKS=4\nSLURM_JOB_ID=1", "RANK 1\nWORLD_SIZE 2",
            "TORCHELASTIC_RUN_ID=r\nWORLD_SIZE=2"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(!found(none[i], &one));
    CHECK_INT(one.rank, 11); // untouched
    // cut: perhaps it is 24
    CHECK(!launcher_find_block("RANK=0\0WORLD_SIZE=2", sizeof "RANK=0\0WORLD_SIZE=2" - 1, &one));
    CHECK(launcher_find_block("RANK=0\0WORLD_SIZE=2", sizeof "RANK=0\0WORLD_SIZE=2", &one));
    CHECK(!launcher_find_block("", 0, &one));
}

TEST(a_long_name_of_a_job_is_cut)
{
    struct launcher_rank one;
    char lines[1024];
    snprintf(lines, sizeof lines, TORCHRUN "SLURM_RESTART_COUNT=1\nTORCHELASTIC_RUN_ID=%0300d", 7);
    CHECK(found(lines, &one));
    CHECK_INT(strlen(one.job), LAUNCHER_JOB_MAX - 1);
}

TEST(our_own_environment)
{
    struct launcher_rank one;
    clearenv();
    CHECK(!launcher_find_own(&one));
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    CHECK(launcher_find_own(&one));
    CHECK_INT(one.rank, 1);
}
