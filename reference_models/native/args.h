// SPDX-License-Identifier: Apache-2.0
// The command line that every reference workload shares; the harness builds it.
#ifndef UPGATE_NATIVE_ARGS_H
#define UPGATE_NATIVE_ARGS_H

#include "common/error.h"
#include "reference_models/native/model.h"
#include "reference_models/native/plant.h"

#define ARGS_STEPS_MAX 1000000000ull
#define ARGS_RANKS_MAX 64

struct args {
    bool train; // else inference
    uint64_t steps, seed, ranks;
    double rate_per_s;     // of requests; 0 = closed loop
    uint64_t decode;       // of --mode infer
    uint64_t cache_rows;   // of dlrm-cached; 0: the size's own
    uint64_t budget_bytes; // of a rank of dlrm-sharded, for tables; 0: as model.h says
    int real_bits;         // 32 or 64
    bool cuda;             // on the GPU; float64, the anchor, is the CPU's
    uint64_t threads;
    enum model_size size;
    const char *text_path; // NULL = the default
    struct plant plant;
    bool help;
};

// What differs between the programs.
struct args_program {
    const char *name;    // "dlrm"
    const char *summary; // one sentence for --help
    uint64_t ranks_default, ranks_min, ranks_max;
    bool cuda;            // it was built with CUDA, and runs there unless told otherwise
    bool cached;          // it has --cache
    bool budgeted;        // it has --budget
    bool decodes;         // it has --decode
    bool root, buckets;   // these plants change what it does
    const char *cpu_only; // why no program of this name is for the GPU; NULL: there is one
};

// -EINVAL with the sentence to print; exit 2. Strings point into argv.
int args_parse(const struct args_program *program, int argc, char **argv, struct args *ret_args,
        struct error *err);
void args_print_help(const struct args_program *program);
const char *args_size_name(enum model_size size);

// What main() does first: parse; on --help or a wrong argument print and return false with the exit
// code in *ret_exit.
bool args_begin(const struct args_program *program, int argc, char **argv, struct args *ret_args,
        int *ret_exit);

#endif
