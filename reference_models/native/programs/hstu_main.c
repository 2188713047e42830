// SPDX-License-Identifier: Apache-2.0
// The program `hstu`: the model of hstu.c in the step loop of workload.c, as float32 or float64.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "hstu",
            .summary = "generative recommender on planted histories of clicks",
            .ranks_default = 1,
            .ranks_min = 1,
            .ranks_max = 1};
    return workload_main(&program, WORKLOAD_MODELS(hstu), argc, argv);
}
