// SPDX-License-Identifier: Apache-2.0
// The program `fsdp`: the language model trained by several ranks, everything that is trained
// sharded (share.h). Reads its command line (args.h), writes the step protocol from every rank and
// one line of JSON.
#include "reference_models/native/ranks/ddp.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "fsdp",
            .summary =
                    "language model trained by several ranks: parameters, gradients and optimizer sharded",
            .ranks_default = 2,
            .ranks_min = 1,
            .ranks_max = ARGS_RANKS_MAX};
    return DDP_MAIN(&program, true, argc, argv);
}
