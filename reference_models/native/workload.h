// SPDX-License-Identifier: Apache-2.0
// The step loop of a model: marks steps and phases, records losses and the first outputs, and ends
// with the one line of JSON on stdout.
#ifndef UPGATE_NATIVE_WORKLOAD_H
#define UPGATE_NATIVE_WORKLOAD_H

#include <stdint.h>

#include "reference_models/native/args.h"
#include "reference_models/native/model.h"

#define WORKLOAD_OUTPUT_STEPS 4       // the first so many steps record their output
#define WORKLOAD_OUTPUT_VALUES 4096ul // and at most so many values of it

// What a run reports. Losses are NaN where there is none.
struct workload_result {
    const char *model;
    uint64_t steps;
    double samples, loss_first, loss_last;
    uint64_t checksum;
    struct model_note note[MODEL_NOTES_MAX];
    size_t notes;
};

// Chains the bits of an array into a checksum.
uint64_t workload_checksum(uint64_t checksum, const void *data, size_t bytes);

// One line of JSON; a value that is not a finite number is null.
void workload_print(const struct args *args, const struct workload_result *result);

// This process as one of several ranks.
struct workload_rank {
    uint32_t rank, ranks;
    const struct model_ranks *model;
    void *arg;
    void (*begin)(void *arg, struct pool *pool); // the model is there; called before the first step
    void (*end)(void *arg); // and behind the last one, before its parameters are looked at
};

// Runs a model as args say; rank: NULL when it is alone. 0, or -errno.
int workload_run(const struct model_ops *ops, const struct args *args,
        const struct workload_rank *rank, struct workload_result *ret_result, struct error *err);

// A model in every arithmetic that there is.
struct workload_models {
    const struct model_ops *float32, *float64, *cuda; // cuda: NULL in a program without
};
#ifdef NATIVE_CUDA
#define WORKLOAD_CUDA(name) &name##_ops_cuda
#else
#define WORKLOAD_CUDA(name) NULL
#endif
#define WORKLOAD_MODELS(name) \
    (&(const struct workload_models){&name##_ops_f32, &name##_ops_f64, WORKLOAD_CUDA(name)})

// main() of a model's program.
int workload_main(const struct args_program *program, const struct workload_models *models,
        int argc, char **argv);

#endif
