// SPDX-License-Identifier: Apache-2.0
// The program `dlrm`: the model of dlrm.c in the step loop of workload.c, as float32 or float64.
// Reads its command line (args.h), writes the step protocol and one line of JSON.
#include "reference_models/native/workload.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "dlrm",
            .summary = "deep learning recommender on planted clicks",
            .ranks_default = 1,
            .ranks_min = 1,
            .ranks_max = 1};
    return workload_main(&program, WORKLOAD_MODELS(dlrm), argc, argv);
}
