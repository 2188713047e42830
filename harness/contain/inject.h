// SPDX-License-Identifier: Apache-2.0
// The library that traces the GPU side (tracer/inject): where it lies, and the environment that has
// the driver, NCCL and NVTX load it into a program that is started. A profiler of the user's is
// left alone.
#ifndef UPGATE_HARNESS_CONTAIN_INJECT_H
#define UPGATE_HARNESS_CONTAIN_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define INJECT_CUDA_VARIABLE "CUDA_INJECTION64_PATH"
#define INJECT_NCCL_VARIABLE "NCCL_PROFILER_PLUGIN"
#define INJECT_NVTX_VARIABLE "NVTX_INJECTION64_PATH"

struct inject {
    char *library;    // absolute
    char *python_dir; // of the extension; may not exist
};

// The library beside the running program (build tree or installed), or what UPGATE_INJECT names.
// -ENOENT.
int inject_find(struct inject *ret_inject, struct error *err);
void inject_free(struct inject *inject);

// Is there a driver? Then it is worth while to record a GPU side alone.
bool inject_has_gpu(void);

// Does a value of CUDA_INJECTION64_PATH name somebody else's library? NULL: unset.
bool inject_is_foreign(const char *value);

struct inject_variable {
    const char *name; // NULL ends a list
    const char *value;
    bool always; // else only where the name is unset
};
enum { INJECT_VARIABLES = 6 };
// What a program needs; without kinds (enum ug_spool_want) it starts prepared and dormant.
// kinds_text is filled and pointed to.
void inject_variables(const struct inject *inject, uint32_t kinds, char kinds_text[16],
        struct inject_variable ret_variables[INJECT_VARIABLES]);
// In a child before exec: sets them, unless CUDA_INJECTION64_PATH is foreign.
void inject_set(const struct inject *inject, uint32_t kinds);

// In a child before exec, after the side's own environment: the library marks what `step`
// ("nvtx:NAME", "graph") names in the file at steps_path. Without it (NULL): the variables of an
// outer upgate are gone.
void inject_set_steps(const struct inject *inject, const char *step, const char *steps_path);
// The variable by which the library would be loaded for such steps, and that names somebody else's;
// get: as getenv(). NULL: none does.
const char *inject_steps_rival(
        const char *step, const char *(*get)(void *arg, const char *name), void *arg);

#endif
