// SPDX-License-Identifier: Apache-2.0
// The program `allreduce`: 2 or more forked ranks sum their buffers through shared memory, as a
// data parallel training does after every backward pass. Every rank marks its own steps; the parent
// prints the one line of JSON. Exit 1 when a sum is not exactly right.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "contracts/exit_code.h"
#include "contracts/upgate_step.h"
#include "reference_models/native/arena.h"
#include "reference_models/native/ops/reduce.h"
#include "reference_models/native/ranks/job.h"
#include "reference_models/native/regress.h"

static const size_t allreduce_counts[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = (size_t)1 << 19,
        [MODEL_SIZE_DEMO] = (size_t)1 << 22,
        [MODEL_SIZE_LARGE] = (size_t)1 << 26,
};

struct allreduce {
    struct job job; // its memory: input and output of rank 0, of rank 1, ...
    const struct reduce_ops *ops;
    size_t count, stride_bytes;
};

static bool allreduce_step(const struct allreduce *run, const struct reduce *reduce,
        struct regress *regress, uint64_t step, bool poisoned, double *ret_loss)
{
    const struct reduce_ops *ops = run->ops;
    ug_step_phase_begin("data");
    ops->fill(reduce, step);
    if (poisoned)
        ops->poison(reduce);
    regress_data(regress);
    ug_step_phase_end();
    ug_step_phase_begin("reduce_scatter");
    ranks_barrier_wait(&run->job.head->barrier, reduce->ranks);
    ops->scatter(reduce);
    ug_step_phase_end();
    ug_step_phase_begin("all_gather");
    ranks_barrier_wait(&run->job.head->barrier, reduce->ranks);
    ops->gather(reduce);
    ug_step_phase_end();
    ug_step_phase_begin("check");
    uint64_t wrong = ops->check(reduce, step, ret_loss);
    regress_forward(regress);
    ug_step_phase_end();
    if (wrong > 0 && !poisoned) {
        fprintf(stderr, "allreduce: rank %u, step %" PRIu64 ": %" PRIu64 " sums are wrong\n",
                reduce->rank, step, wrong);
        return false;
    }
    return true;
}

static bool allreduce_steps(const struct allreduce *run, const struct reduce *reduce,
        struct regress *regress, struct workload_result *result)
{
    const struct args *args = run->job.args;
    struct plant plant = job_plant(&run->job, reduce->rank);
    bool poisoned = false;
    if (!args->train)
        ug_request_schedule(args->rate_per_s, args->seed);
    for (uint64_t step = 0; step < result->steps; step++) {
        double loss;
        plant_before_step(&plant, step, result->steps);
        if (args->train)
            ug_step_begin();
        else
            ug_request_begin();
        regress_begin(regress);
        poisoned |= plant_enter_step(&plant, step);
        bool ok = allreduce_step(run, reduce, regress, step, poisoned, &loss);
        if (args->train)
            ug_step_loss(loss);
        if (step < WORKLOAD_OUTPUT_STEPS)
            ug_step_tensor("output",
                    run->ops->real_bytes == 4 ? UG_DTYPE_FLOAT32 : UG_DTYPE_FLOAT64,
                    reduce->output[reduce->rank], WORKLOAD_OUTPUT_VALUES);
        regress_end(regress);
        ug_step_end((double)run->count);
        if (!ok)
            return false;
        if (args->train && step == 0)
            result->loss_first = loss;
        if (args->train)
            result->loss_last = loss;
    }
    result->checksum = workload_checksum(
            result->checksum, reduce->output[reduce->rank], run->count * run->ops->real_bytes);
    return true;
}

static int allreduce_rank(uint32_t rank, void *arg)
{
    const struct allreduce *run = arg;
    const struct args *args = run->job.args;
    struct reduce reduce = {.rank = rank,
            .ranks = (uint32_t)args->ranks,
            .count = run->count,
            .seed = args->seed,
            .through_root = args->plant.root};
    struct workload_result result = {
            .model = "allreduce", .steps = args->steps, .loss_first = NAN, .loss_last = NAN};
    struct error err = {0};
    struct regress *regress = NULL;
    int rc = pool_new(args->plant.pool1 ? 1 : args->threads, &reduce.pool, &err);
    if (rc == 0)
        rc = regress_new(&args->plant, reduce.pool, rank + 1 == args->ranks, &regress, &err);
    if (rc) {
        fprintf(stderr, "allreduce: rank %u: %s\n", rank, err.text);
        return error_exit_code(rc);
    }
    char *buffers = run->job.memory;
    for (uint32_t i = 0; i < reduce.ranks; i++) {
        reduce.input[i] = buffers + (2 * i) * run->stride_bytes;
        reduce.output[i] = buffers + (2 * i + 1) * run->stride_bytes;
    }
    struct arena arena = {0};
    reduce.spare = arena_alloc(&arena, run->count, run->ops->real_bytes);
    reduce.block_square = xcalloc(run->count / REDUCE_BLOCK, sizeof *reduce.block_square);
    reduce.block_wrong = xcalloc(run->count / REDUCE_BLOCK, sizeof *reduce.block_wrong);
    pool_set_extra(reduce.pool, args->plant.slow);
    ranks_touch(buffers, 2 * reduce.ranks * run->stride_bytes);
    // lest the first step wait for one that starts late
    ranks_barrier_wait(&run->job.head->barrier, reduce.ranks);
    if (args->plant.nostep)
        result.steps = 0;
    bool ok = allreduce_steps(run, &reduce, regress, &result);
    result.samples = (double)result.steps * (double)run->count;
    run->job.head->result[rank] = result;
    regress_free(regress);
    arena_free(&arena);
    free(reduce.block_square);
    free(reduce.block_wrong);
    pool_free(reduce.pool);
    return ok ? EXIT_CODE_PASS : EXIT_CODE_FAIL;
}

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "allreduce",
            .summary = "sums the buffers of several processes through shared memory",
            .ranks_default = 2,
            .ranks_min = 2,
            .ranks_max = ARGS_RANKS_MAX,
            .root = true,
            .cpu_only = "its ranks share memory"};
    struct args args;
    int code = EXIT_CODE_PASS;
    if (!args_begin(&program, argc, argv, &args, &code))
        return code;
    struct allreduce run = {.job = {.name = program.name, .args = &args},
            .ops = args.real_bits == 64 ? &reduce_ops_f64 : &reduce_ops_f32,
            .count = allreduce_counts[args.size]};
    run.stride_bytes = run.count * run.ops->real_bytes;
    return job_run(&run.job, 2 * args.ranks * run.stride_bytes, "sums", allreduce_rank, &run);
}
