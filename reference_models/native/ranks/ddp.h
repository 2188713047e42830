// SPDX-License-Identifier: Apache-2.0
// The programs `ddp` and `fsdp`: the language model of torch/transformer.py, trained by several
// ranks of one machine; and `dlrm-sharded`.
#ifndef UPGATE_NATIVE_DDP_H
#define UPGATE_NATIVE_DDP_H

#include "reference_models/native/args.h"

#define DDP_SMALL_BUCKET_BYTES ((size_t)10486) // 0.01 MiB, what torch/ddp.py plants

// main() of both; sharded: fsdp.
int ddp_main(const struct args_program *program, bool sharded, int argc, char **argv);
// Of reference_models/cuda: a GPU for each rank; --device cpu and --dtype float64 are ddp_main()'s.
int ddp_cuda_main(const struct args_program *program, bool sharded, int argc, char **argv);
#ifdef NATIVE_CUDA
#define DDP_MAIN ddp_cuda_main
#else
#define DDP_MAIN ddp_main
#endif

int dlrm_sharded_main(const struct args_program *program, int argc, char **argv);

#endif
