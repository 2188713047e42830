// SPDX-License-Identifier: Apache-2.0
// The program `vision`: the model of vision.c in the step loop of workload.c, as float32 or float64.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "vision",
                                                .summary = "small residual network: convolution, batch norm and relu on planted images",
                                                .ranks_default = 1,
                                                .ranks_min = 1,
                                                .ranks_max = 1,
                                                .cpu_only = "kernels/ has no convolution; on a GPU there is vision of reference_models/torch"};
    static const struct workload_models models = {&vision_ops_f32, &vision_ops_f64, NULL};
    return workload_main(&program, &models, argc, argv);
}
