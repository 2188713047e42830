// SPDX-License-Identifier: Apache-2.0
// The programs `ddp` and `fsdp`: the language model of torch/transformer.py, trained by several ranks of one machine.
#ifndef UPGATE_NATIVE_DDP_H
#define UPGATE_NATIVE_DDP_H

#include "reference_models/native/args.h"

// main() of both; sharded: fsdp.
int ddp_main(const struct args_program *program, bool sharded, int argc, char **argv);

#endif
