// SPDX-License-Identifier: Apache-2.0
// The table of UPGATE_* variables. Reads the environment of the process, writes nothing.
#include "common/environment.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

static const struct {
    const char *name, *help;
} environment_table[ENVIRONMENT_COUNT] = {
        [ENVIRONMENT_LOG] = {"UPGATE_LOG",
                "what is said on stderr: error, warn, info or debug (default: "
                "info); -q and -v override it"},
        [ENVIRONMENT_STATE_DIR] = {"UPGATE_STATE_DIR",
                "where this host's certificates are kept, and what the variant "
                "aotinductor-native makes (default: "
                "$XDG_STATE_HOME/upgate, else ~/.local/state/upgate)"},
        [ENVIRONMENT_STEPS] = {"UPGATE_STEPS",
                "set by upgate for workloads: the shared memory of the "
                "step protocol; without it every step call is a no-op"},
        [ENVIRONMENT_STEPS_FROM] = {"UPGATE_STEPS_FROM",
                "set by upgate for workloads: auto: the steps of a Python program that "
                "makes no step calls are found"},
        [ENVIRONMENT_STEP] = {"UPGATE_STEP",
                "set by upgate for workloads: FILE.py:FUNCTION, a call of which is a step, nvtx:NAME, a range, or graph"},
        [ENVIRONMENT_STEPS_INJECT] = {"UPGATE_STEPS_INJECT",
                "set by upgate for workloads: the shared memory of the step protocol, for the library that marks "
                "ranges of NVTX or replays of CUDA graphs as their steps"},
        [ENVIRONMENT_DDP_LOGS] = {"UPGATE_DDP_LOGS",
                "set by the reference workload ddp for its ranks"},
        [ENVIRONMENT_INJECT] = {"UPGATE_INJECT",
                "the library that traces the GPU side (default: libupgate_inject.so "
                "beside the program)"},
        [ENVIRONMENT_TRACE] = {"UPGATE_TRACE",
                "set by upgate for programs whose GPU side is recorded from their start: "
                "what to record, as a number; unset: prepared and dormant"},
        [ENVIRONMENT_PYTHON_PATH] = {"UPGATE_PYTHON_PATH",
                "set by upgate for such programs: where their Python finds the "
                "extension of upgate"},
        [ENVIRONMENT_NCCL_CHANNELS] = {"UPGATE_NCCL_CHANNELS",
                "when NCCL tells the begin and end of kernels: 0 never, 1 always "
                "(default: where recording was on since the communicator was made)"},
        [ENVIRONMENT_CUPTI] = {"UPGATE_CUPTI",
                "the libcupti that programs whose GPU side is recorded shall use (default: "
                "their own, else one of the machine)"},
        [ENVIRONMENT_INJECT_DEBUG] = {"UPGATE_INJECT_DEBUG",
                "1: such programs tell on stderr what CUPTI answers"},
        [ENVIRONMENT_INJECT_FLUSH_MS] = {"UPGATE_INJECT_FLUSH_MS",
                "for measuring: milliseconds between two flushes of CUPTI "
                "(default: 1000)"},
        [ENVIRONMENT_INJECT_PER_THREAD] = {"UPGATE_INJECT_PER_THREAD",
                "for measuring: 0: CUPTI's buffers are not per thread"},
        [ENVIRONMENT_INJECT_DEVICE_BUFFERS] = {"UPGATE_INJECT_DEVICE_BUFFERS",
                "for measuring: 0: as many buffers on the device as CUPTI "
                "takes by itself"},
        [ENVIRONMENT_KERNELS] = {"UPGATE_KERNELS",
                "a directory of cubins by another compiler, whose kernels the native workloads on the GPU launch "
                "in place of their own: a side of `ci/gpu/compilers`"},
        [ENVIRONMENT_KERNELS_SECONDS] = {"UPGATE_KERNELS_SECONDS",
                "for measuring: no suite of `upgate_kernels sides` begins later"},
        [ENVIRONMENT_CUBLASLT] = {"UPGATE_CUBLASLT",
                "the libcublasLt that multiplies for them (default: that of the side's `cuda`, else the loader's)"},
        [ENVIRONMENT_CUDNN] = {"UPGATE_CUDNN",
                "the libcudnn that `vision` among them uses (default: likewise)"},
        [ENVIRONMENT_NCCL] = {"UPGATE_NCCL",
                "the libnccl that their ranks use (default: the loader's)"},
        [ENVIRONMENT_BUILD] = {"UPGATE_BUILD", "set for the tests: the build directory"},
        [ENVIRONMENT_SOURCE] = {"UPGATE_SOURCE", "set for the tests: the source directory"},
};

const char *environment_name(enum environment_id id)
{
    return environment_table[id].name;
}

const char *environment_help(enum environment_id id)
{
    return environment_table[id].help;
}

const char *environment_get(enum environment_id id)
{
    const char *value = getenv(environment_table[id].name);
    return value && *value ? value : NULL;
}

void environment_put_first(const char *list, const char *dir)
{
    const char *old = getenv(list);
    char *value = old && *old ? xasprintf("%s:%s", dir, old) : xstrdup(dir);
    setenv(list, value, 1);
    free(value);
}

void environment_check(
        char *const *variables, void (*unknown)(const char *name, const char *nearest))
{
    // Compared without the prefix, which would make all of them look alike.
    const size_t prefix = strlen("UPGATE_");
    const char *known[ENVIRONMENT_COUNT];
    for (int i = 0; i < ENVIRONMENT_COUNT; i++)
        known[i] = environment_table[i].name + prefix;
    for (; *variables; variables++) {
        if (strncmp(*variables, "UPGATE_", prefix) != 0)
            continue;
        char *name = xstrdup(*variables);
        name[strcspn(name, "=")] = 0;
        const char *nearest = string_nearest(name + prefix, known, ENVIRONMENT_COUNT);
        if (!nearest || strcmp(nearest, name + prefix) != 0)
            unknown(name, nearest ? nearest - prefix : NULL);
        free(name);
    }
}
