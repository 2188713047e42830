// SPDX-License-Identifier: Apache-2.0
// Ranks are forked processes, as on the CPU, and their parent, which has no GPU, ends all when one
// ends in any other way than well: by SIGKILL, so that one that waits in NCCL ends too. The twins
// of torch/ddp.py and torch/fsdp.py.
#include "reference_models/native/ranks/ddp.h"

#include <stdio.h>

#include "contracts/exit_code.h"
#include "reference_models/cuda/exchange.h"
#include "reference_models/native/ranks/job.h"

struct ddp {
    struct job job;
    struct exchange_plan plan;
};

// All meet here, lest the first step wait for one that starts late.
static void ddp_begin(void *arg, struct pool *pool)
{
    const struct ddp *run = arg;
    (void)pool;
    ranks_barrier_wait(&run->job.head->barrier, (uint32_t)run->job.args->ranks);
}

static void ddp_end(void *arg)
{
    (void)arg;
}

static int ddp_rank(uint32_t rank, void *arg)
{
    struct ddp *run = arg;
    struct args args = *run->job.args;
    struct error err = {0};
    args.plant = job_plant(&run->job, rank);
    run->plan.meeting = (struct exchange_meeting *)(void *)run->job.memory;
    struct model_ranks model = {.rank = rank, .arg = &run->plan};
    struct workload_rank place = {.rank = rank,
            .ranks = (uint32_t)args.ranks,
            .model = &model,
            .arg = run,
            .begin = ddp_begin,
            .end = ddp_end};
    struct workload_result *result = &run->job.head->result[rank];
    int rc = workload_run(&transformer_ops_cuda, &args, &place, result, &err);
    result->model = run->job.name;
    if (rc) {
        fprintf(stderr, "%s: rank %u: %s\n", run->job.name, rank, err.text);
        return error_exit_code(rc);
    }
    return EXIT_CODE_PASS;
}

int ddp_cuda_main(const struct args_program *program, bool sharded, int argc, char **argv)
{
    struct args_program built = *program;
    struct args args;
    int code = EXIT_CODE_PASS;
    built.cuda = true;
    if (!args_begin(&built, argc, argv, &args, &code))
        return code;
    if (!args.cuda || args.real_bits == 64)
        return ddp_main(&built, sharded, argc, argv);
    if (args.plant.root || (args.plant.buckets && !args.train)) {
        fprintf(stderr, "%s: %s\n", program->name,
                args.plant.root
                        ? "'root' is planted on the CPU: on GPUs it is NCCL that adds; --device cpu"
                        : "'buckets' is planted in training: in inference no rank waits for another");
        return EXIT_CODE_USAGE;
    }
    struct ddp run = {.job = {.name = program->name, .args = &args},
            .plan = {.ranks = (uint32_t)args.ranks,
                    .sharded = sharded,
                    .bucket_bytes = args.plant.buckets ? DDP_SMALL_BUCKET_BYTES : 0}};
    return job_run(&run.job, sizeof(struct exchange_meeting), args.train ? "parameters" : NULL,
            ddp_rank, &run);
}
