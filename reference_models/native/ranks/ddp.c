// SPDX-License-Identifier: Apache-2.0
// Ranks are forked processes; each reads inputs of its own and takes the steps of workload.c, and
// its gradients become the mean of all (share.h). The twins of torch/ddp.py, torch/fsdp.py and
// torch/dlrm-sharded.py: the same inputs, start values and losses. In inference every rank answers
// requests of its own; those of dlrm-sharded need the others for their tables (alltoall.h), the
// others wait for nobody.
#include "reference_models/native/ranks/ddp.h"

#include <stdio.h>

#include "contracts/exit_code.h"
#include "reference_models/native/ops/alltoall.h"
#include "reference_models/native/ranks/job.h"
#include "reference_models/native/ranks/share.h"

_Static_assert(ARGS_RANKS_MAX <= REDUCE_RANKS_MAX, "as many as can be asked for");

struct ddp {
    struct job job;
    const struct model_ops *ops;
    struct share_plan plan;
    size_t share_bytes;       // of the job's memory; boxes lie behind
    struct alltoall alltoall; // of models that have boxes: how large they are
};

struct ddp_rank {
    struct ddp *run;
    struct share *share; // NULL: inference
    struct alltoall alltoall;
};

static void ddp_meet(void *arg)
{
    const struct ddp *run = arg;
    ranks_barrier_wait(&run->job.head->barrier, (uint32_t)run->job.args->ranks);
}

static void ddp_begin(void *arg, struct pool *pool)
{
    const struct ddp_rank *own = arg;
    if (own->run->ops->boxes)
        ranks_touch(own->alltoall.memory, alltoall_bytes(&own->alltoall));
    if (own->share)
        share_begin(own->share, pool);
    else
        ddp_meet(own->run);
}

static void ddp_end(void *arg)
{
    const struct ddp_rank *own = arg;
    if (own->share)
        share_end(own->share);
}

static int ddp_rank(uint32_t rank, void *arg)
{
    struct ddp *run = arg;
    struct args args = *run->job.args;
    struct model_ranks model = {.rank = rank};
    struct ddp_rank own = {.run = run, .alltoall = run->alltoall};
    struct error err = {0};
    args.plant = job_plant(&run->job, rank);
    if (args.train)
        own.share = share_new(&run->plan, rank, run->job.memory, &run->job.head->barrier);
    if (own.share)
        model = *share_model(own.share);
    if (run->ops->boxes) {
        own.alltoall.rank = rank;
        own.alltoall.memory = run->job.memory + run->share_bytes;
        own.alltoall.meet = ddp_meet;
        own.alltoall.arg = run;
        model.alltoall = &own.alltoall;
    }
    struct workload_rank place = {.rank = rank,
            .ranks = (uint32_t)args.ranks,
            .model = &model,
            .arg = &own,
            .begin = ddp_begin,
            .end = ddp_end};
    struct workload_result *result = &run->job.head->result[rank];
    int rc = workload_run(run->ops, &args, &place, result, &err);
    result->model = run->job.name;
    share_free(own.share);
    if (rc) {
        fprintf(stderr, "%s: rank %u: %s\n", run->job.name, rank, err.text);
        return error_exit_code(rc);
    }
    return EXIT_CODE_PASS;
}

static int ddp_start(struct ddp *run)
{
    bool train = run->job.args->train;
    run->share_bytes = train ? share_bytes(&run->plan) : 0;
    size_t boxes = run->ops->boxes ? alltoall_bytes(&run->alltoall) : 0;
    return job_run(&run->job, run->share_bytes + boxes, train ? "parameters" : NULL, ddp_rank, run);
}

int ddp_main(const struct args_program *program, bool sharded, int argc, char **argv)
{
    struct args args;
    int code = EXIT_CODE_PASS;
    if (!args_begin(program, argc, argv, &args, &code))
        return code;
    if (!args.train && (args.plant.root || args.plant.buckets)) {
        fprintf(stderr,
                "%s: 'root' and 'buckets' are planted in training: in inference no rank waits for another\n",
                program->name);
        return EXIT_CODE_USAGE;
    }
    struct ddp run = {.job = {.name = program->name, .args = &args},
            .ops = args.real_bits == 64 ? &transformer_ops_f64 : &transformer_ops_f32,
            .plan = {.ops = args.real_bits == 64 ? &reduce_ops_f64 : &reduce_ops_f32,
                    .ranks = (uint32_t)args.ranks,
                    .sharded = sharded,
                    .through_root = args.plant.root,
                    .bucket_bytes = args.plant.buckets ? DDP_SMALL_BUCKET_BYTES : 0}};
    run.plan.units = run.ops->units(&(struct model_opts){.size = args.size}, run.plan.first);
    return ddp_start(&run);
}

// Where the tables go is decided before there are ranks, and by each again.
int dlrm_sharded_main(const struct args_program *program, int argc, char **argv)
{
    struct args args;
    int code = EXIT_CODE_PASS;
    if (!args_begin(program, argc, argv, &args, &code))
        return code;
    struct error err = {0};
    struct model_opts opts = {
            .size = args.size, .train = args.train, .budget_bytes = args.budget_bytes};
    struct ddp run = {.job = {.name = program->name, .args = &args},
            .ops = args.real_bits == 64 ? &dlrm_sharded_ops_f64 : &dlrm_sharded_ops_f32,
            .plan = {.ops = args.real_bits == 64 ? &reduce_ops_f64 : &reduce_ops_f32,
                    .ranks = (uint32_t)args.ranks},
            .alltoall = {.ranks = (uint32_t)args.ranks}};
    int rc = run.ops->boxes(&opts, &run.alltoall, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", program->name, err.text);
        return error_exit_code(rc);
    }
    run.plan.units = run.ops->units(&opts, run.plan.first);
    return ddp_start(&run);
}
