// SPDX-License-Identifier: Apache-2.0
// Ids are of cupti_driver_cbid.h, where an id once given never changes; _ptsz and _ptds are the
// same calls of programs that were compiled for a default stream per thread. An id that a CUPTI
// does not know has no name and is left out.
#include "tracer/inject/cupti/calls.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/spool/strings.h"

#define CBID_MAX 1024u
#define CALL_NS_MAX 3600000000000ull

struct call_range {
    uint16_t first, last;
    uint32_t kinds; // enum ug_spool_want that ask for them
    bool is_launch;
};

// clang-format off
static const struct call_range call_ranges[] = {
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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// Texts of CUPTI, which is never closed; NULL: not wanted. The ids of strings with the run they are
// of.
static _Atomic(const char *) names[CBID_MAX];
static _Atomic uint64_t name_ids[CBID_MAX];
static _Atomic bool is_on, is_kept;

// enum ug_spool_want that ask for a call, 0: none.
static uint32_t wanted_by(uint32_t cbid)
{
    uint32_t kinds = 0;
    for (size_t i = 0; i < COUNT(call_ranges); i++) {
        if (cbid >= call_ranges[i].first && cbid <= call_ranges[i].last)
            kinds |= call_ranges[i].kinds;
    }
    return kinds;
}

int calls_enable(const struct cupti *cupti, void *subscriber, uint32_t kinds)
{
    int first_error = CUPTI_OK;
#ifdef UPGATE_INJECT_NOP
    kinds |= UG_WANT_NOTHING_KEPT;
#endif
    atomic_store(&is_kept, (kinds & UG_WANT_NOTHING_KEPT) == 0);
    atomic_store(&is_on, true);
    for (uint32_t cbid = 1; cbid < CBID_MAX; cbid++) {
        const char *name = NULL;
        if ((wanted_by(cbid) & kinds) == 0 ||
                cupti->callback_name(CUPTI_DOMAIN_DRIVER, cbid, &name) != CUPTI_OK)
            name = NULL;
        atomic_store_explicit(&names[cbid], name, memory_order_relaxed);
        if (name == NULL)
            continue;
        int result = cupti->enable_callback(1, subscriber, CUPTI_DOMAIN_DRIVER, cbid);
        if (first_error == CUPTI_OK)
            first_error = result;
    }
    return first_error;
}

void calls_disable(const struct cupti *cupti, void *subscriber)
{
    for (uint32_t cbid = 1; cbid < CBID_MAX; cbid++) {
        if (names[cbid] != NULL)
            cupti->enable_callback(0, subscriber, CUPTI_DOMAIN_DRIVER, cbid);
    }
    atomic_store(&is_on, false);
}

bool calls_is_launch(uint32_t cbid)
{
    for (size_t i = 0; i < COUNT(call_ranges) && call_ranges[i].is_launch; i++) {
        if (cbid >= call_ranges[i].first && cbid <= call_ranges[i].last)
            return true;
    }
    return false;
}

bool calls_is_wait(uint32_t domain, uint32_t cbid)
{
    static const uint16_t runtime[] = {126, 131, 137, 165, 239};
    static const uint16_t driver[] = {17, 121, 126, 440, 800};
    const uint16_t *waits = domain == CUPTI_DOMAIN_DRIVER ? driver : runtime;
    for (size_t i = 0; i < COUNT(runtime); i++) {
        if (waits[i] == cbid)
            return true;
    }
    return false;
}

static uint32_t name_id(uint32_t cbid)
{
    uint64_t run = strings_run();
    uint64_t known = atomic_load_explicit(&name_ids[cbid], memory_order_relaxed);
    const char *name = NULL;
    if (known >> 32 == run)
        return (uint32_t)known;
    name = atomic_load_explicit(&names[cbid], memory_order_relaxed);
    uint32_t id = name == NULL ? 0 : spool_static_string(name);
    if (id != 0)
        atomic_store_explicit(&name_ids[cbid], run << 32 | id, memory_order_relaxed);
    return id;
}

// A whole call, at its end.
static void call_put(uint32_t cbid, const struct cupti_callback_data *data, uint64_t end)
{
    uint64_t start = *data->correlation_data;
    if (!atomic_load_explicit(&is_kept, memory_order_relaxed)) {
        spool_count(UG_PRODUCER_CALL);
        return;
    }
    if (start == 0 || end < start || end - start > CALL_NS_MAX)
        return;                  // entered before we were on
    uint32_t id = name_id(cbid); // may write a string, and so comes first
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

void calls_callback(
        const struct cupti *cupti, uint32_t cbid, const struct cupti_callback_data *data)
{
    uint64_t now = 0;
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || cbid >= CBID_MAX ||
            atomic_load_explicit(&names[cbid], memory_order_relaxed) == NULL ||
            data->correlation_data == NULL)
        return;
    if (cupti->get_timestamp(&now) != CUPTI_OK)
        now = 0;
    if (data->site == CUPTI_SITE_EXIT)
        call_put(cbid, data, now);
    else
        *data->correlation_data = now;
}
