// SPDX-License-Identifier: Apache-2.0
// The program `dlrm-cached`: the model of dlrm_cached.c in the step loop of workload.c, as float32,
// float64 or, where it is built so, on the GPU.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "dlrm-cached",
            .summary =
                    "deep learning recommender whose ids come and go, with a look-ahead cache of rows",
            .ranks_default = 1,
            .ranks_min = 1,
            .ranks_max = 1,
            .cached = true};
    return workload_main(&program, WORKLOAD_MODELS(dlrm_cached), argc, argv);
}
