// SPDX-License-Identifier: Apache-2.0
// The program `dlrm-cached`: the model of dlrm_cached.c in the step loop of workload.c, as float32 or float64.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "dlrm-cached",
                                                .summary = "deep learning recommender whose ids come and go, with a look-ahead cache of rows",
                                                .ranks_default = 1,
                                                .ranks_min = 1,
                                                .ranks_max = 1,
                                                .cached = true,
                                                .cpu_only = "kernels/ has no Adagrad of each element"};
    static const struct workload_models models = {&dlrm_cached_ops_f32, &dlrm_cached_ops_f64, NULL};
    return workload_main(&program, &models, argc, argv);
}
