// SPDX-License-Identifier: Apache-2.0
// The program `dlrm-sharded`: a recommender whose tables are spread over several ranks
// (models/dlrm_sharded.c). Reads its command line (args.h), writes the step protocol from every
// rank and one line of JSON.
#include "reference_models/native/ranks/ddp.h"

int main(int argc, char **argv)
{
    static const struct args_program program = {.name = "dlrm-sharded",
            .summary =
                    "deep learning recommender of several ranks: tables whole, by rows or by columns",
            .ranks_default = 2,
            .ranks_min = 1,
            .ranks_max = ARGS_RANKS_MAX,
            .budgeted = true,
            .cpu_only = "its ranks share memory"};
    return dlrm_sharded_main(&program, argc, argv);
}
