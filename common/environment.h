// SPDX-License-Identifier: Apache-2.0
// Every environment variable of the house, UPGATE_*, in one table: the code reads through it, docs
// are made from it, and a name that is not in it is a slip worth a warning.
#ifndef UPGATE_COMMON_ENVIRONMENT_H
#define UPGATE_COMMON_ENVIRONMENT_H

enum environment_id {
    ENVIRONMENT_LOG,
    ENVIRONMENT_STATE_DIR,
    ENVIRONMENT_STEPS,
    ENVIRONMENT_STEPS_FROM,
    ENVIRONMENT_STEP,
    ENVIRONMENT_STEPS_INJECT,
    ENVIRONMENT_DDP_LOGS,
    ENVIRONMENT_INJECT,
    ENVIRONMENT_TRACE,
    ENVIRONMENT_PYTHON_PATH,
    ENVIRONMENT_NCCL_CHANNELS,
    ENVIRONMENT_CUPTI,
    ENVIRONMENT_INJECT_DEBUG,
    ENVIRONMENT_INJECT_FLUSH_MS,
    ENVIRONMENT_INJECT_PER_THREAD,
    ENVIRONMENT_INJECT_DEVICE_BUFFERS,
    ENVIRONMENT_KERNELS,
    ENVIRONMENT_KERNELS_SECONDS,
    ENVIRONMENT_CUBLASLT,
    ENVIRONMENT_CUDNN,
    ENVIRONMENT_NCCL,
    ENVIRONMENT_BUILD,
    ENVIRONMENT_SOURCE,
    ENVIRONMENT_COUNT
};

const char *environment_name(enum environment_id id);
const char *environment_help(enum environment_id id);

// The value; NULL when unset or empty. Not copied.
const char *environment_get(enum environment_id id);

// In a child before exec: `dir` in front of a list of directories, such as PATH.
void environment_put_first(const char *list, const char *dir);

// Call `unknown` for every UPGATE_* of `variables` ("NAME=value", NULL-terminated) that is not in
// the table; nearest may be NULL.
void environment_check(
        char *const *variables, void (*unknown)(const char *name, const char *nearest));

#endif
