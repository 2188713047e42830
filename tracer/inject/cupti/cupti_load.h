// SPDX-License-Identifier: Apache-2.0
// Finds the libcupti that suits the process, and what of it is known to be wrong.
#ifndef UPGATE_TRACER_INJECT_CUPTI_CUPTI_LOAD_H
#define UPGATE_TRACER_INJECT_CUPTI_CUPTI_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include "tracer/inject/cupti/cupti_abi.h"

// Keeps UPGATE_CUPTI and CUDA_HOME as they are now: later the workload may change its environment
// while we read it.
void cupti_load_environment(void);
// Looks in this order: UPGATE_CUPTI; mapped in the process; beside NVIDIA's wheels that are mapped;
// by soname; of a toolkit. Newest suitable major first. Fills ret_cupti and path; 0 or -errno with
// the reason in words. Opens files.
int cupti_load(
        struct cupti *ret_cupti, char *path, size_t path_bytes, char *reason, size_t reason_bytes);
// libcuda of the process, without loading one. 0 or -ENOENT.
int cuda_load(struct cuda *ret_cuda);

enum cupti_quirk {
    QUIRK_NO_PER_THREAD = 1u << 1, // does not know the attribute
    QUIRK_NO_DISABLE = 1u << 2,    // disabling kernels may deadlock: only cuptiFinalize ends it
    QUIRK_NO_NVTX = 1u << 3,       // crashes on NVTX
    QUIRK_ONE_SESSION =
            1u << 4, // graph launches lose their correlation in every session after the first
    QUIRK_SYNC_MISSING = 1u << 5 // no record of cudaDeviceSynchronize
};

// enum cupti_quirk of a CUPTI_API_VERSION.
uint32_t cupti_quirks(uint32_t api_version);
// What of these the reader of a recording has to know, in words, or "".
const char *cupti_quirk_words(uint32_t quirk);

#endif
