// SPDX-License-Identifier: Apache-2.0
// Ids are of cupti_driver_cbid.h and cupti_runtime_cbid.h, where an id once given never changes;
// _ptsz and _ptds are the same calls of programs that were compiled for a default stream per
// thread. An id that a CUPTI does not know has no name and is left out. 505 and 506 of the runtime
// are what nvcc 13 compiles <<<>>> to.
#include "tracer/inject/calls.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/spool_writer.h"
#include "tracer/inject/tuning.h"

#define CBID_MAX 1024u

struct call_range {
    uint16_t first, last;
    uint32_t kinds; // enum ug_spool_want that ask for them
    bool is_launch;
};

// clang-format off
static const struct call_range driver_ranges[] = {
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
// clang-format on

// clang-format off
static const struct call_range runtime_ranges[] = {
    {211, 211, UG_WANT_KERNELS, true},  // cudaLaunchKernel
    {214, 214, UG_WANT_KERNELS, true},  // ... _ptsz
    {269, 270, UG_WANT_KERNELS, true},  // cudaLaunchCooperativeKernel
    {272, 272, UG_WANT_KERNELS, true},  // ... MultiDevice
    {311, 312, UG_WANT_KERNELS, true},  // cudaGraphLaunch
    {430, 431, UG_WANT_KERNELS, true},  // cudaLaunchKernelExC
    {505, 506, UG_WANT_KERNELS, true},  // __cudaLaunchKernel, of programs compiled by CUDA 13
    {31, 52, UG_WANT_KERNELS, false},   // cudaMemcpy ... cudaMemset2DAsync
    {142, 145, UG_WANT_KERNELS, false}, // cudaMemset3D ... cudaMemcpy3DAsync
    {160, 163, UG_WANT_KERNELS, false}, // cudaMemcpyPeer ...
    {215, 236, UG_WANT_KERNELS, false}, // copies and sets, _ptds and _ptsz
    {243, 246, UG_WANT_KERNELS, false},
    {249, 250, UG_WANT_KERNELS, false},
    {482, 485, UG_WANT_KERNELS, false}, // cudaMemcpyBatchAsync ...
    {509, 512, UG_WANT_KERNELS, false},
    {284, 285, UG_WANT_KERNELS, false}, // cudaLaunchHostFunc
    {310, 310, UG_WANT_KERNELS, false}, // cudaGraphInstantiate
    {313, 313, UG_WANT_KERNELS, false}, // cudaGraphExecDestroy
    {335, 335, UG_WANT_KERNELS, false}, // cudaGraphExecUpdate
    {418, 418, UG_WANT_KERNELS, false}, // cudaGraphInstantiateWithFlags
    {436, 437, UG_WANT_KERNELS, false}, // cudaGraphInstantiateWithParams
    {443, 443, UG_WANT_KERNELS, false}, // cudaGraphInstantiate, of 12.0
    {126, 126, UG_WANT_SYNC, false},    // cudaThreadSynchronize
    {131, 131, UG_WANT_SYNC, false},    // cudaStreamSynchronize
    {137, 137, UG_WANT_SYNC, false},    // cudaEventSynchronize
    {165, 165, UG_WANT_SYNC, false},    // cudaDeviceSynchronize
    {239, 239, UG_WANT_SYNC, false},    // cudaStreamSynchronize_ptsz
    {470, 472, UG_WANT_SYNC, false},    // cudaLibraryLoadData, FromFile, Unload
    {20, 27, UG_WANT_MEMORY, false},    // cudaMalloc ... cudaHostAlloc
    {140, 141, UG_WANT_MEMORY, false},  // cudaMalloc3D, Array
    {152, 153, UG_WANT_MEMORY, false},  // cudaHostRegister, Unregister
    {206, 206, UG_WANT_MEMORY, false},  // cudaMallocManaged
    {373, 376, UG_WANT_MEMORY, false},  // cudaMallocAsync, cudaFreeAsync
    {391, 392, UG_WANT_MEMORY, false},  // cudaMallocFromPoolAsync
};
// clang-format on

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct call_table {
    enum cupti_domain domain;
    uint32_t kind; // enum cupti_kind
    const struct call_range *ranges;
    size_t count;
} tables[] = {
    {CUPTI_DOMAIN_RUNTIME, CUPTI_KIND_RUNTIME, runtime_ranges, COUNT(runtime_ranges)},
    {CUPTI_DOMAIN_DRIVER, CUPTI_KIND_DRIVER, driver_ranges, COUNT(driver_ranges)},
};

// Texts of CUPTI, which is never closed.
static _Atomic(const char *) names[COUNT(tables)][CBID_MAX];

// enum ug_spool_want that ask for a call, 0: none.
static uint32_t wanted_by(const struct call_table *table, uint32_t cbid)
{
    uint32_t kinds = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (cbid >= table->ranges[i].first && cbid <= table->ranges[i].last)
            kinds |= table->ranges[i].kinds;
    }
    return kinds;
}

// In place: buffers may be read meanwhile, and a call without a name is not written.
void calls_names(const struct cupti *cupti, uint32_t kinds)
{
    enum tuning_calls which = tuning()->calls;
    bool has_runtime = which == TUNING_CALLS_RUNTIME || which == TUNING_CALLS_BOTH;
    bool has_driver = which != TUNING_CALLS_RUNTIME;
    for (size_t t = 0; t < COUNT(tables); t++) {
        bool is_used = tables[t].domain == CUPTI_DOMAIN_RUNTIME ? has_runtime : has_driver;
        for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++) {
            const char *name = NULL;
            if (!is_used || (wanted_by(&tables[t], cbid) & kinds) == 0 ||
                cupti->callback_name(tables[t].domain, cbid, &name) != CUPTI_OK)
                name = NULL;
            atomic_store_explicit(&names[t][cbid], name, memory_order_relaxed);
        }
    }
}

// How the calls of this session are switched on, for switching them off.
static _Atomic enum calls_how present; // read in callbacks

static bool is_any_wanted(size_t t)
{
    for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++) {
        if (names[t][cbid] != NULL)
            return true;
    }
    return false;
}

static int choose(const struct cupti *cupti, size_t t, uint32_t cbid, uint8_t on)
{
    if (tables[t].domain == CUPTI_DOMAIN_RUNTIME)
        return cupti->enable_runtime_api == NULL ? CUPTI_OK : cupti->enable_runtime_api(cbid, on);
    return cupti->enable_driver_api == NULL ? CUPTI_OK : cupti->enable_driver_api(cbid, on);
}

// All wanted ones of a table; the first error of CUPTI.
static int wanted_each(const struct cupti *cupti, void *subscriber, size_t t, uint8_t on)
{
    int first_error = CUPTI_OK;
    for (uint32_t cbid = 1; cbid < CBID_MAX; cbid++) {
        if (names[t][cbid] == NULL)
            continue;
        int result = present == CALLS_CALLBACK
                         ? cupti->enable_callback(on, subscriber, tables[t].domain, cbid)
                         : choose(cupti, t, cbid, on);
        if (first_error == CUPTI_OK)
            first_error = result;
    }
    return first_error;
}

static void unwanted_off(const struct cupti *cupti, size_t t)
{
    for (uint32_t cbid = 1; cbid < CBID_MAX; cbid++) {
        const char *name = NULL;
        if (names[t][cbid] == NULL &&
            cupti->callback_name(tables[t].domain, cbid, &name) == CUPTI_OK && name != NULL)
            choose(cupti, t, cbid, 0);
    }
}

static int table_enable(const struct cupti *cupti, void *subscriber, size_t t)
{
    int result;
    if (present == CALLS_WANTED_ON || present == CALLS_CALLBACK)
        return wanted_each(cupti, subscriber, t, 1);
    result = cupti->enable(tables[t].kind);
    if (result == CUPTI_OK && present == CALLS_UNWANTED_OFF)
        unwanted_off(cupti, t);
    return result;
}

int calls_enable(const struct cupti *cupti, void *subscriber, enum calls_how how)
{
    int first_error = CUPTI_OK;
    present = how;
    for (size_t t = 0; t < COUNT(tables); t++) {
        int result = is_any_wanted(t) ? table_enable(cupti, subscriber, t) : CUPTI_OK;
        if (first_error == CUPTI_OK)
            first_error = result;
    }
    return first_error;
}

void calls_disable(const struct cupti *cupti, void *subscriber)
{
    for (size_t t = 0; t < COUNT(tables); t++) {
        if (!is_any_wanted(t))
            continue;
        if (present == CALLS_WANTED_ON || present == CALLS_CALLBACK)
            wanted_each(cupti, subscriber, t, 0);
        else
            cupti->disable(tables[t].kind);
    }
}

const char *calls_name(int is_driver, uint32_t cbid)
{
    if (cbid >= CBID_MAX)
        return NULL;
    return atomic_load_explicit(&names[is_driver ? 1 : 0][cbid], memory_order_relaxed);
}

bool calls_is_launch(uint32_t domain, uint32_t cbid)
{
    const struct call_table *table = &tables[domain == CUPTI_DOMAIN_DRIVER ? 1 : 0];
    for (size_t i = 0; i < table->count && table->ranges[i].is_launch; i++) {
        if (cbid >= table->ranges[i].first && cbid <= table->ranges[i].last)
            return true;
    }
    return false;
}

int calls_subscribe_launches(const struct cupti *cupti, void *subscriber, bool on)
{
    int first_error = CUPTI_OK;
    for (size_t t = 0; t < COUNT(tables); t++) {
        for (uint32_t cbid = 0; cbid < CBID_MAX; cbid++) {
            if (names[t][cbid] == NULL || !calls_is_launch(tables[t].domain, cbid))
                continue;
            int result = cupti->enable_callback(on, subscriber, tables[t].domain, cbid);
            if (first_error == CUPTI_OK)
                first_error = result;
        }
    }
    return first_error;
}

bool calls_is_wait(uint32_t domain, uint32_t cbid)
{
    static const uint16_t runtime[] = {126, 131, 137, 165, 239},
                          driver[] = {17, 121, 126, 440, 800};
    const uint16_t *waits = domain == CUPTI_DOMAIN_DRIVER ? driver : runtime;
    for (size_t i = 0; i < COUNT(runtime); i++) {
        if (waits[i] == cbid)
            return true;
    }
    return false;
}

// A whole call, at its end.
static void call_put(const struct cupti *cupti, uint32_t cbid,
                     const struct cupti_callback_data *data)
{
    uint64_t end = 0, start = *data->correlation_data;
    const char *name = calls_name(1, cbid);
    if ((inject_kinds() & UG_WANT_NOTHING_KEPT) != 0) {
        spool_count(UG_PRODUCER_CALL);
        return;
    }
    if (start == 0 || name == NULL || cupti->get_timestamp(&end) != CUPTI_OK || end < start)
        return; // entered before we were on
    uint32_t id = spool_static_string(name);
    struct ug_rec_call *record = spool_reserve(UG_PRODUCER_CALL, sizeof(*record));
    if (record == NULL)
        return;
    record->head = (struct ug_rec_head){UG_REC_CALL, sizeof(*record), spool_tid()};
    record->start_gpu = start;
    record->end_gpu = end;
    record->correlation = data->correlation_id;
    record->call = cbid | 1u << 31;
    record->name = id;
    record->result = data->function_return == NULL ? 0 : *(const int *)data->function_return;
    spool_publish(sizeof(*record));
}

void calls_callback(const struct cupti *cupti, uint32_t domain, uint32_t cbid,
                    const struct cupti_callback_data *data)
{
    if (present != CALLS_CALLBACK || domain != CUPTI_DOMAIN_DRIVER || inject_kinds() == 0 ||
        data->correlation_data == NULL)
        return;
    if (data->site == CUPTI_SITE_EXIT)
        call_put(cupti, cbid, data);
    else if (cupti->get_timestamp(data->correlation_data) != CUPTI_OK)
        *data->correlation_data = 0;
}
