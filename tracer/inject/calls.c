// SPDX-License-Identifier: Apache-2.0
// Ids are of cupti_driver_cbid.h, where an id once given never changes; _ptsz and _ptds are the same calls of
// programs that were compiled for a default stream per thread. An id that a CUPTI does not know has no name and is left out.
#include "tracer/inject/calls.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "contracts/spool.h"

#define CBID_MAX 1024u

struct call_range {
    uint16_t first, last;
    uint32_t kinds; // enum ug_spool_want that ask for them
    bool is_launch;
};

static const struct call_range ranges[] = {
    {115, 117, UG_WANT_KERNELS, true},  // cuLaunch, cuLaunchGrid, cuLaunchGridAsync
    {307, 307, UG_WANT_KERNELS, true},  // cuLaunchKernel
    {442, 442, UG_WANT_KERNELS, true},  // ... _ptsz
    {477, 478, UG_WANT_KERNELS, true},  // cuLaunchCooperativeKernel
    {480, 480, UG_WANT_KERNELS, true},  // ... MultiDevice
    {514, 515, UG_WANT_KERNELS, true},  // cuGraphLaunch
    {652, 653, UG_WANT_KERNELS, true},  // cuLaunchKernelEx
    {216, 216, UG_WANT_KERNELS, false}, // cuMemsetD8Async ...
    {218, 218, UG_WANT_KERNELS, false},
    {220, 220, UG_WANT_KERNELS, false},
    {222, 222, UG_WANT_KERNELS, false},
    {224, 224, UG_WANT_KERNELS, false},
    {226, 226, UG_WANT_KERNELS, false},
    {249, 254, UG_WANT_KERNELS, false}, // cuMemsetD8_v2 ...
    {276, 292, UG_WANT_KERNELS, false}, // cuMemcpyHtoD_v2 ... cuMemcpyHtoAAsync_v2
    {305, 306, UG_WANT_KERNELS, false}, // cuMemcpy, cuMemcpyAsync
    {318, 321, UG_WANT_KERNELS, false}, // cuMemcpyPeer ...
    {397, 416, UG_WANT_KERNELS, false}, // copies and sets, _ptds
    {418, 433, UG_WANT_KERNELS, false}, // ... _ptsz
    {776, 779, UG_WANT_KERNELS, false}, // cuMemcpyBatchAsync ...
    {796, 799, UG_WANT_KERNELS, false},
    {527, 528, UG_WANT_KERNELS, false}, // cuLaunchHostFunc
    {513, 513, UG_WANT_KERNELS, false}, // cuGraphInstantiate
    {516, 516, UG_WANT_KERNELS, false}, // cuGraphExecDestroy
    {561, 561, UG_WANT_KERNELS, false}, // cuGraphExecUpdate
    {578, 578, UG_WANT_KERNELS, false}, // cuGraphInstantiate_v2
    {643, 643, UG_WANT_KERNELS, false}, // cuGraphInstantiateWithFlags
    {656, 657, UG_WANT_KERNELS, false}, // cuGraphInstantiateWithParams
    {696, 696, UG_WANT_KERNELS, false}, // cuGraphExecUpdate_v2
    {17, 17, UG_WANT_SYNC, false},      // cuCtxSynchronize
    {121, 121, UG_WANT_SYNC, false},    // cuEventSynchronize
    {126, 126, UG_WANT_SYNC, false},    // cuStreamSynchronize
    {440, 440, UG_WANT_SYNC, false},    // ... _ptsz
    {800, 800, UG_WANT_SYNC, false},    // cuCtxSynchronize_v2
    {18, 22, UG_WANT_SYNC, false},      // cuModuleLoad* and Unload: they wait for the device
    {678, 680, UG_WANT_SYNC, false},    // cuLibraryLoadData, FromFile, Unload
    {37, 39, UG_WANT_MEMORY, false},    // cuMemAllocHost, cuMemFreeHost, cuMemHostAlloc
    {243, 245, UG_WANT_MEMORY, false},  // cuMemAlloc_v2, Pitch_v2, cuMemFree_v2
    {271, 271, UG_WANT_MEMORY, false},  // cuMemHostAlloc_v2
    {294, 294, UG_WANT_MEMORY, false},  // cuMemAllocHost_v2
    {301, 302, UG_WANT_MEMORY, false},  // cuMemHostRegister, Unregister
    {371, 371, UG_WANT_MEMORY, false},  // cuMemAllocManaged
    {379, 379, UG_WANT_MEMORY, false},  // cuMemHostRegister_v2
    {598, 601, UG_WANT_MEMORY, false},  // cuMemAllocAsync, cuMemFreeAsync
    {611, 612, UG_WANT_MEMORY, false},  // cuMemAllocFromPoolAsync
};

#define RANGE_COUNT (sizeof(ranges) / sizeof(ranges[0]))

static _Atomic(const char *) names[CBID_MAX]; // texts of CUPTI, which is never closed

void calls_names(const struct cupti *cupti, uint32_t kinds)
{
    for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++)
        atomic_store_explicit(&names[cbid], NULL, memory_order_relaxed);
    for (size_t i = 0; i < RANGE_COUNT; i++) {
        for (uint32_t cbid = ranges[i].first; cbid <= ranges[i].last; cbid++) {
            const char *name = NULL;
            if ((ranges[i].kinds & kinds) != 0 &&
                cupti->callback_name(CUPTI_DOMAIN_DRIVER, cbid, &name) == CUPTI_OK && name != NULL)
                atomic_store_explicit(&names[cbid], name, memory_order_relaxed);
        }
    }
}

int calls_enable(const struct cupti *cupti, bool selective)
{
    int first_error = CUPTI_OK;
    if (!selective)
        return cupti->enable(CUPTI_KIND_DRIVER);
    for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++) {
        if (names[cbid] == NULL)
            continue;
        int result = cupti->enable_driver_api(cbid, 1);
        if (first_error == CUPTI_OK)
            first_error = result;
    }
    return first_error;
}

void calls_disable(const struct cupti *cupti, bool selective)
{
    if (!selective) {
        cupti->disable(CUPTI_KIND_DRIVER);
        return;
    }
    for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++) {
        if (names[cbid] != NULL)
            cupti->enable_driver_api(cbid, 0);
    }
}

const char *calls_name(int is_driver, uint32_t cbid)
{
    if (!is_driver || cbid >= CBID_MAX)
        return NULL;
    return atomic_load_explicit(&names[cbid], memory_order_relaxed);
}

bool calls_is_launch(uint32_t cbid)
{
    for (size_t i = 0; i < RANGE_COUNT && ranges[i].is_launch; i++) {
        if (cbid >= ranges[i].first && cbid <= ranges[i].last)
            return true;
    }
    return false;
}

int calls_subscribe_launches(const struct cupti *cupti, void *subscriber, bool on)
{
    int first_error = CUPTI_OK;
    for (size_t i = 0; i < RANGE_COUNT && ranges[i].is_launch; i++) {
        for (uint32_t cbid = ranges[i].first; cbid <= ranges[i].last; cbid++) {
            if (names[cbid] == NULL)
                continue;
            int result = cupti->enable_callback(on, subscriber, CUPTI_DOMAIN_DRIVER, cbid);
            if (first_error == CUPTI_OK)
                first_error = result;
        }
    }
    return first_error;
}
