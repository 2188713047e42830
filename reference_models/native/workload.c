// SPDX-License-Identifier: Apache-2.0
// The step loop of the models, of one process or of each of several ranks. Reads the command line,
// writes the step protocol and one line on stdout. Everything that is not part of a step
// (checksums, output) stays outside its marks.
#include "reference_models/native/workload.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contracts/exit_code.h"
#include "contracts/upgate_step.h"
#include "reference_models/native/regress.h"
#include "reference_models/native/rng.h"

uint64_t workload_checksum(uint64_t checksum, const void *data, size_t bytes)
{
    const char *from = data;
    uint64_t word = 0;
    for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word) {
        memcpy(&word, from, sizeof word);
        checksum = (checksum ^ word) * 0x9e3779b97f4a7c15u;
        checksum ^= checksum >> 32;
    }
    word = 0;
    memcpy(&word, from, bytes);
    return rng_mix(checksum ^ word);
}

static void workload_print_number(const char *name, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.17g", name, value);
    else
        printf(", \"%s\": null", name);
}

void workload_print(const struct args *args, const struct workload_result *result)
{
    printf("{\"model\": \"%s\", \"mode\": \"%s\", \"dtype\": \"float%d\", \"device\": \"%s\", \"size\": \"%s\", "
           "\"ranks\": %" PRIu64 ", \"threads\": %" PRIu64 ", \"steps\": %" PRIu64,
            result->model, args->train ? "train" : "infer", args->real_bits,
            args->cuda ? "cuda" : "cpu", args_size_name(args->size), args->ranks, args->threads,
            result->steps);
    workload_print_number("samples", result->samples);
    workload_print_number("loss_first", result->loss_first);
    workload_print_number("loss_last", result->loss_last);
    for (size_t i = 0; i < result->notes; i++)
        printf(", \"%s\": %" PRIu64, result->note[i].name, result->note[i].value);
    printf(", \"checksum\": \"%016" PRIx64 "\"}\n", result->checksum);
}

static void workload_record_output(
        const struct model_ops *ops, const struct model *model, uint64_t step)
{
    if (step >= WORKLOAD_OUTPUT_STEPS)
        return;
    size_t count;
    const void *logits = ops->logits(model, &count);
    ug_step_tensor("output", ops->real_bytes == 4 ? UG_DTYPE_FLOAT32 : UG_DTYPE_FLOAT64, logits,
            count < WORKLOAD_OUTPUT_VALUES ? count : WORKLOAD_OUTPUT_VALUES);
}

static void workload_poison(const struct model_ops *ops, struct model *model)
{
    size_t count;
    if (ops->poison) {
        ops->poison(model);
        return;
    }
    const struct model_param *params = ops->params(model, &count);
    for (size_t i = 0; i < count; i++) {
        if (ops->real_bytes == 4)
            ((float *)params[i].value)[0] = NAN;
        else
            ((double *)params[i].value)[0] = NAN;
    }
}

static void workload_train_step(const struct model_ops *ops, struct model *model,
        const struct args *args, struct regress *regress, uint64_t step,
        struct workload_result *result)
{
    ug_step_begin();
    regress_begin(regress);
    if (plant_enter_step(&args->plant, step))
        workload_poison(ops, model);
    ug_step_phase_begin("data");
    ops->load(model, step);
    regress_data(regress);
    ug_step_phase_end();
    ug_step_phase_begin("forward");
    ops->forward(model);
    double loss = ops->loss(model);
    regress_forward(regress);
    ug_step_phase_end();
    ug_step_phase_begin("backward");
    ops->backward(model);
    ug_step_phase_end();
    ug_step_phase_begin("optimizer");
    ops->update(model);
    if (ops->settle)
        loss = ops->settle(model);
    ug_step_phase_end();
    ug_step_loss(loss);
    workload_record_output(ops, model, step);
    regress_end(regress);
    ug_step_end((double)ops->samples(model));
    if (step == 0)
        result->loss_first = loss;
    result->loss_last = loss;
}

static void workload_infer_step(const struct model_ops *ops, struct model *model,
        const struct args *args, struct regress *regress, uint64_t step,
        struct workload_result *result)
{
    ug_request_begin();
    regress_begin(regress);
    if (plant_enter_step(&args->plant, step))
        workload_poison(ops, model);
    ug_step_phase_begin("data");
    ops->load(model, step);
    regress_data(regress);
    ug_step_phase_end();
    ug_step_phase_begin(args->decode ? "prefill" : "forward");
    ops->forward(model);
    regress_forward(regress);
    ug_step_phase_end();
    if (args->decode) {
        ug_step_phase_begin("decode");
        ops->decode(model);
        ug_step_phase_end();
    }
    workload_record_output(ops, model, step);
    regress_end(regress);
    ug_step_end((double)ops->samples(model));
    size_t count;
    const void *logits = ops->logits(model, &count);
    result->checksum = workload_checksum(result->checksum, logits, count * ops->real_bytes);
}

static void workload_checksum_params(
        const struct model_ops *ops, const struct model *model, struct workload_result *result)
{
    size_t count;
    const struct model_param *params = ops->params(model, &count);
    for (size_t i = 0; i < count; i++)
        result->checksum = workload_checksum(
                result->checksum, params[i].value, params[i].count * ops->real_bytes);
}

int workload_run(const struct model_ops *ops, const struct args *args,
        const struct workload_rank *rank, struct workload_result *ret_result, struct error *err)
{
    struct workload_result result = {
            .model = ops->name, .steps = args->steps, .loss_first = NAN, .loss_last = NAN};
    struct model_opts opts = {.seed = args->seed,
            .size = args->size,
            .train = args->train,
            .text_path = args->text_path,
            .decode = args->decode,
            .cache_rows = args->cache_rows,
            .budget_bytes = args->budget_bytes,
            .ranks = rank ? rank->model : NULL};
    struct model *model = NULL;
    struct regress *regress = NULL;
    int rc = pool_new(args->plant.pool1 ? 1 : args->threads, &opts.pool, err);
    if (rc)
        goto out;
    rc = regress_new(
            &args->plant, opts.pool, !rank || rank->rank + 1 == rank->ranks, &regress, err);
    if (rc)
        goto out;
    rc = ops->create(&opts, &model, err);
    if (rc)
        goto out;
    pool_set_extra(opts.pool, args->plant.slow);
    if (rank)
        rank->begin(rank->arg, opts.pool);
    if (args->plant.nostep)
        result.steps = 0;
    else if (!args->train)
        ug_request_schedule(args->rate_per_s, args->seed);
    for (uint64_t step = 0; step < result.steps; step++) {
        plant_before_step(&args->plant, step, result.steps);
        if (args->train)
            workload_train_step(ops, model, args, regress, step, &result);
        else
            workload_infer_step(ops, model, args, regress, step, &result);
    }
    if (rank)
        rank->end(rank->arg);
    if (args->train)
        workload_checksum_params(ops, model, &result);
    result.samples = (double)result.steps * (double)ops->samples(model);
    if (ops->notes && result.steps)
        result.notes = ops->notes(model, result.note);
    for (size_t i = 0; i < result.notes; i++)
        ug_step_note(result.note[i].name, (double)result.note[i].value);
    *ret_result = result;
out:
    regress_free(regress);
    ops->destroy(model);
    pool_free(opts.pool);
    return rc;
}

int workload_main(const struct args_program *program, const struct workload_models *models,
        int argc, char **argv)
{
    struct args args;
    struct args_program built = *program;
    int code = EXIT_CODE_PASS;
    built.cuda = models->cuda != NULL;
    if (!args_begin(&built, argc, argv, &args, &code))
        return code;
    struct workload_result result;
    struct error err = {0};
    int rc = workload_run(args.real_bits == 64 ? models->float64
                    : args.cuda                ? models->cuda
                                               : models->float32,
            &args, NULL, &result, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", program->name, err.text);
        return error_exit_code(rc);
    }
    workload_print(&args, &result);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "%s: failed to write the result to stdout\n", program->name);
        return EXIT_CODE_OPERATIONAL;
    }
    return code;
}
