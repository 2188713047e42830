// SPDX-License-Identifier: Apache-2.0
// The floor of tracing with CUPTI, an arm of ci/bench/gpu/overhead.py: the kinds of records our library asks for, with buffers
// that are zeroed before CUPTI gets them, and a callback at completion that does nothing but zero and give them
// out again. Loaded through CUDA_INJECTION64_PATH; RECYCLE_CUPTI names libcupti, RECYCLE_CALLS the calls: driver,
// runtime, both or none; RECYCLE_GRAPH=1: whole graph launches; RECYCLE_KERNELS=0: no kernels, copies and sets.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cupti.h>

enum { BUFFERS = 32, BUFFER_BYTES = 4 << 20 };

static uint8_t *buffers[BUFFERS];
static atomic_int taken[BUFFERS];
static uint8_t spare[1 << 16] __attribute__((aligned(8)));
static void *library;

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        CUptiResult (*function)() = (CUptiResult(*)())dlsym(library, #name);                       \
        CUptiResult result = function ? function(__VA_ARGS__) : CUPTI_ERROR_UNKNOWN;               \
        if (result != CUPTI_SUCCESS)                                                               \
            fprintf(stderr, "recycle: %s: %d\n", #name, (int)result);                              \
    } while (0)

static void request(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *records = 0;
    for (int i = 0; i < BUFFERS; i++) {
        int free = 0;
        if (atomic_load_explicit(&taken[i], memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&taken[i], &free, 1)) {
            *buffer = buffers[i];
            *bytes = BUFFER_BYTES;
            return;
        }
    }
    *buffer = spare;
    *bytes = sizeof spare;
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context;
    (void)stream;
    (void)bytes;
    memset(buffer, 0, valid);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i] == buffer)
            atomic_store(&taken[i], 0);
}

static void enable_calls(void)
{
    const char *calls = getenv("RECYCLE_CALLS");
    int driver = !calls || strcmp(calls, "driver") == 0 || strcmp(calls, "both") == 0;
    int runtime = calls && (strcmp(calls, "runtime") == 0 || strcmp(calls, "both") == 0);

    if (driver) {
        CALL(cuptiActivityEnableDriverApi, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1);
        CALL(cuptiActivityEnableDriverApi, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, 1);
        CALL(cuptiActivityEnableDriverApi, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 1);
        CALL(cuptiActivityEnableDriverApi, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, 1);
        CALL(cuptiActivityEnableDriverApi, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, 1);
    }
    if (runtime) {
        CALL(cuptiActivityEnableRuntimeApi, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, 1);
        CALL(cuptiActivityEnableRuntimeApi, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000, 1);
        CALL(cuptiActivityEnableRuntimeApi, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, 1);
        CALL(cuptiActivityEnableRuntimeApi, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, 1);
    }
}

__attribute__((visibility("default"))) int InitializeInjection(void)
{
    const char *path = getenv("RECYCLE_CUPTI");
    uint8_t one = 1;
    size_t one_bytes = sizeof one;

    library = dlopen(path && *path ? path : "libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "recycle: %s\n", dlerror());
        return 1;
    }
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = aligned_alloc(4096, BUFFER_BYTES);
        memset(buffers[i], 0, BUFFER_BYTES);
    }
    CALL(cuptiActivitySetAttribute, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &one_bytes, &one);
    CALL(cuptiActivityRegisterCallbacks, request, complete);
    if (!getenv("RECYCLE_KERNELS")) {
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_MEMCPY);
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_MEMSET);
    }
    if (getenv("RECYCLE_GRAPH"))
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    enable_calls();
    CALL(cuptiActivityFlushPeriod, 1000);
    return 1;
}
