// SPDX-License-Identifier: Apache-2.0
// The program `ddp`: the language model trained by several ranks, gradients averaged by all-reduce
// (share.h). Reads its command line (args.h), writes the step protocol from every rank and one line
// of JSON.
#include "reference_models/native/ranks/ddp.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "ddp",
            .summary =
                    "language model trained by several ranks: mean gradients by all-reduce, in buckets",
            .ranks_default = 2,
            .ranks_min = 1,
            .ranks_max = ARGS_RANKS_MAX,
            .root = true,
            .buckets = true};
    return DDP_MAIN(&program, false, argc, argv);
}
