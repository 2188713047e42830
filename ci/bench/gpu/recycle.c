// SPDX-License-Identifier: Apache-2.0
// The floor of tracing with CUPTI, an arm of ci/bench/gpu/overhead.py: the kinds of records our
// library asks for, with buffers that are zeroed before CUPTI gets them, and a callback at
// completion that does nothing but zero and give them out again. Loaded through
// CUDA_INJECTION64_PATH; RECYCLE_CUPTI names libcupti, RECYCLE_CALLS the calls, see enable_calls();
// RECYCLE_GRAPH=1: whole graph launches; RECYCLE_KERNELS=0: no kernels, copies and sets.
// RECYCLE_COUNT=1: a line on stderr at the end with what came, by kind and call: not for timing.
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

#define CALL(name, ...) \
    do { \
        CUptiResult (*function)() = (CUptiResult(*)())dlsym(library, #name); \
        CUptiResult result = function ? function(__VA_ARGS__) : CUPTI_ERROR_UNKNOWN; \
        if (result != CUPTI_SUCCESS) \
            fprintf(stderr, "recycle: %s: %d\n", #name, (int)result); \
    } while (0)

static uint64_t kinds[CUPTI_ACTIVITY_KIND_COUNT], calls[2][1024]; // runtime, driver
static int is_counted;

static void count(uint8_t *buffer, size_t valid)
{
    CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **) = (CUptiResult(*)(
            uint8_t *, size_t, CUpti_Activity **))dlsym(library, "cuptiActivityGetNextRecord");
    CUpti_Activity *record = NULL;

    while (next && next(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind < CUPTI_ACTIVITY_KIND_COUNT)
            __atomic_fetch_add(&kinds[record->kind], 1, __ATOMIC_RELAXED);
        if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME ||
                record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
            uint32_t id = ((CUpti_ActivityAPI *)record)->cbid;
            __atomic_fetch_add(
                    &calls[record->kind == CUPTI_ACTIVITY_KIND_DRIVER][id < 1024 ? id : 0], 1,
                    __ATOMIC_RELAXED);
        }
    }
}

static void tell(void)
{
    CUptiResult (*flush)(uint32_t) =
            (CUptiResult(*)(uint32_t))dlsym(library, "cuptiActivityFlushAll");
    CUptiResult (*name_of)(CUpti_CallbackDomain, uint32_t, const char **) = (CUptiResult(*)(
            CUpti_CallbackDomain, uint32_t, const char **))dlsym(library, "cuptiGetCallbackName");
    const char *name = NULL;

    if (flush)
        flush(1);
    fprintf(stderr, "recycle:");
    for (int i = 0; i < CUPTI_ACTIVITY_KIND_COUNT; i++)
        if (kinds[i])
            fprintf(stderr, " kind %d %lu", i, kinds[i]);
    for (int d = 0; d < 2; d++)
        for (uint32_t i = 0; i < 1024; i++)
            if (calls[d][i] && name_of &&
                    name_of(d ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, i,
                            &name) == CUPTI_SUCCESS)
                fprintf(stderr, ", %s %lu", name, calls[d][i]);
    fprintf(stderr, "\n");
}

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

static void complete(
        CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context;
    (void)stream;
    (void)bytes;
    if (is_counted)
        count(buffer, valid);
    memset(buffer, 0, valid);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i] == buffer)
            atomic_store(&taken[i], 0);
}

// Launches and the few calls that explain a wait, as our library has them; ids of the runtime and
// of the driver.
static const uint16_t runtime_wanted[] = {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060, 505,
        506, // __cudaLaunchKernel and its _ptsz, from 13.0 on what <<<>>> becomes
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000,
        CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020};
static const uint16_t driver_wanted[] = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
        CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async, CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
        CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,
        CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2};

static int is_wanted(const uint16_t *ids, size_t count, uint32_t id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return 1;
    return 0;
}

// select: everything on and the unwanted off, which works at any time; driver, runtime, both: these
// alone, before the first context; all; none.
static void enable_calls(void)
{
    const char *which = getenv("RECYCLE_CALLS") ? getenv("RECYCLE_CALLS") : "select";
    int is_select = strcmp(which, "select") == 0, is_both = strcmp(which, "both") == 0;
    const size_t runtimes = sizeof runtime_wanted / sizeof *runtime_wanted,
                 drivers = sizeof driver_wanted / sizeof *driver_wanted;

    if (is_select || strcmp(which, "all") == 0) {
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_DRIVER);
        CALL(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_RUNTIME);
    }
    for (uint32_t id = 1; is_select && id < CUPTI_RUNTIME_TRACE_CBID_SIZE; id++)
        if (!is_wanted(runtime_wanted, runtimes, id))
            CALL(cuptiActivityEnableRuntimeApi, id, 0);
    for (uint32_t id = 1; is_select && id < CUPTI_DRIVER_TRACE_CBID_SIZE; id++)
        if (!is_wanted(driver_wanted, drivers, id))
            CALL(cuptiActivityEnableDriverApi, id, 0);
    for (size_t i = 0; i < runtimes && (is_both || strcmp(which, "runtime") == 0); i++)
        CALL(cuptiActivityEnableRuntimeApi, runtime_wanted[i], 1);
    for (size_t i = 0; i < drivers && (is_both || strcmp(which, "driver") == 0); i++)
        CALL(cuptiActivityEnableDriverApi, driver_wanted[i], 1);
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
    is_counted = getenv("RECYCLE_COUNT") != NULL;
    if (is_counted)
        atexit(tell);
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = aligned_alloc(4096, BUFFER_BYTES);
        memset(buffers[i], 0, BUFFER_BYTES);
    }
    CALL(cuptiActivitySetAttribute, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &one_bytes,
            &one);
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
