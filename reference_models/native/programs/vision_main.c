// SPDX-License-Identifier: Apache-2.0
// The program `vision`: the model of vision.c in the step loop of workload.c, as float32, float64
// or, where it is built so, on the GPU.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "vision",
            .summary = "small residual network: convolution, batch norm and relu on planted images",
            .ranks_default = 1,
            .ranks_min = 1,
            .ranks_max = 1};
    return workload_main(&program, WORKLOAD_MODELS(vision), argc, argv);
}
