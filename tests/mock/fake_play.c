// SPDX-License-Identifier: Apache-2.0
#include "tests/mock/fake_play.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/mock/fake_buffers.h"

#define KERNEL_NS 3000 // of every kernel and copy

static const struct call_name {
    uint32_t domain, cbid;
    const char *name;
} call_names[] = {
        // of a runtime call with the release that brought it, as CUPTI says them
        {2, 17, "cudaGetDevice_v3020"},
        {2, 20, "cudaMalloc_v3020"},
        {2, 22, "cudaFree_v3020"},
        {2, 31, "cudaMemcpy_v3020"},
        {2, 41, "cudaMemcpyAsync_v3020"},
        {2, 49, "cudaMemset_v3020"},
        {2, 51, "cudaMemsetAsync_v3020"},
        {2, 131, "cudaStreamSynchronize_v3020"},
        {2, 135, "cudaEventRecord_v3020"},
        {2, 137, "cudaEventSynchronize_v3020"},
        {2, 147, "cudaStreamWaitEvent_v3020"},
        {2, 161, "cudaMemcpyPeerAsync_v4000"},
        {2, 165, "cudaDeviceSynchronize_v3020"},
        {2, 211, "cudaLaunchKernel_v7000"},
        {2, 311, "cudaGraphLaunch_v10000"},
        {2, 373, "cudaMallocAsync_v11020"},
        {2, 375, "cudaFreeAsync_v11020"},
        {2, 383, "cudaMemPoolCreate_v11020"},
        {2, 430, "cudaLaunchKernelExC_v11060"},
        {1, 17, "cuCtxSynchronize"},
        {1, 126, "cuStreamSynchronize"},
        {1, 277, "cuMemcpyHtoDAsync_v2"},
        {1, 307, "cuLaunchKernel"},
        {1, 514, "cuGraphLaunch"},
        {1, 652, "cuLaunchKernelEx"},
        {1, 121, "cuEventSynchronize"},
        {1, 216, "cuMemsetD8Async"},
        {1, 243, "cuMemAlloc_v2"},
        {1, 245, "cuMemFree_v2"},
        {1, 295, "cuStreamWaitEvent"},
        {1, 319, "cuMemcpyPeerAsync"},
        {1, 598, "cuMemAllocAsync"},
};

static atomic_uchar callback_on[CUPTI_DOMAIN_COUNT][CUPTI_CBID_COUNT];
static atomic_uchar call_on[CUPTI_DOMAIN_COUNT][CUPTI_CBID_COUNT];
// Single calls that are switched on are accepted at any time, and recorded only where something of
// API calls was on when the first context was made, or a whole kind of them was switched on later
// and not off again.
static atomic_bool are_calls_live, is_kind_off_again[CUPTI_DOMAIN_COUNT];
static atomic_uchar kind_on[CUPTI_KIND_COUNT];
static _Atomic(cupti_callback_fn) subscriber;
static _Atomic(void *) subscriber_user;
static atomic_uint last_correlation;
static atomic_ulong kernels, callbacks, finalizes, nvtx_modules;
static atomic_uint streams; // made so far: a bit each
static _Thread_local int at_exit, in_runtime;

struct record {
    const struct cupti_record_layout *layout;
    _Alignas(8) uint8_t bytes[256];
};

uint64_t play_now_gpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double ns = (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
    return (uint64_t)(int64_t)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec +
            fake_behaviour.offset_ns + (int64_t)(ns * fake_behaviour.ppm / 1e6));
}

const char *play_call_name(uint32_t domain, uint32_t cbid)
{
    for (size_t i = 0; i < sizeof(call_names) / sizeof(call_names[0]); i++)
        if (call_names[i].domain == domain && call_names[i].cbid == cbid)
            return call_names[i].name;
    return NULL;
}

void play_subscribe(cupti_callback_fn callback, void *user)
{
    atomic_store(&subscriber_user, user);
    atomic_store(&subscriber, callback);
}

void play_unsubscribe(void)
{
    play_subscribe(NULL, NULL);
    for (uint32_t domain = 0; domain < CUPTI_DOMAIN_COUNT; domain++)
        for (uint32_t cbid = 0; cbid < CUPTI_CBID_COUNT; cbid++)
            play_callback(domain, cbid, 0);
}

void play_reset(void)
{
    play_unsubscribe();
    for (uint32_t kind = 0; kind < CUPTI_KIND_COUNT; kind++)
        play_kind(kind, 0);
    for (uint32_t domain = 0; domain < CUPTI_DOMAIN_COUNT; domain++)
        atomic_store(&is_kind_off_again[domain], false);
    atomic_store(&are_calls_live, false);
    atomic_fetch_add(&finalizes, 1);
}

void play_nvtx(void)
{
    atomic_fetch_add(&nvtx_modules, 1);
}

int play_is_at_exit(void)
{
    return at_exit;
}

void play_callback(uint32_t domain, uint32_t cbid, int on)
{
    if (domain < CUPTI_DOMAIN_COUNT && cbid < CUPTI_CBID_COUNT)
        atomic_store(&callback_on[domain][cbid], (unsigned char)on);
}

void play_kind(uint32_t kind, int on)
{
    if (kind < CUPTI_KIND_COUNT)
        atomic_store(&kind_on[kind], (unsigned char)on);
    int count = 0;
    for (int i = 0; i < CUPTI_KIND_COUNT; i++)
        count += atomic_load(&kind_on[i]);
    fake_buffers_kinds(count);
    uint32_t domain = kind == 5 ? CUPTI_DOMAIN_RUNTIME : kind == 4 ? CUPTI_DOMAIN_DRIVER : 0;
    if (!domain)
        return;
    for (uint32_t cbid = 0; cbid < CUPTI_CBID_COUNT; cbid++)
        atomic_store(&call_on[domain][cbid], (unsigned char)on);
    atomic_store(&is_kind_off_again[domain], !on);
    if (on)
        atomic_store(&are_calls_live, true);
}

void play_call(uint32_t domain, uint32_t cbid, int on)
{
    if (domain < CUPTI_DOMAIN_COUNT && cbid < CUPTI_CBID_COUNT)
        atomic_store(&call_on[domain][cbid], (unsigned char)on);
    if (on && !fake_cuda_contexts())
        atomic_store(&are_calls_live, true);
}

// --- records
// ----------------------------------------------------------------------------------------

static void set(struct record *record, enum cupti_field field, uint64_t value)
{
    size_t size = record->layout->fields[field].size;
    memcpy(record->bytes + record->layout->fields[field].at, &value, size < 8 ? size : 8);
}

static struct record record_new(
        enum cupti_record what, const struct fake_op *op, uint32_t correlation)
{
    struct record record = {.layout = fake_layout(what)};
    set(&record, FIELD_kind, record.layout->kind);
    set(&record, FIELD_correlationId, correlation);
    set(&record, FIELD_deviceId, op->device);
    set(&record, FIELD_contextId, op->context);
    set(&record, FIELD_streamId, op->stream);
    set(&record, FIELD_graphId, op->graph);
    set(&record, FIELD_bytes, op->bytes);
    set(&record, FIELD_processId, (uint64_t)getpid());
    return record;
}

static void give(const struct record *record, int is_host)
{
    if (atomic_load(&kind_on[record->layout->kind]))
        fake_buffers_append(record->bytes, record->layout->bytes, is_host);
}

static void times(struct record *record, uint64_t start)
{
    set(record, FIELD_start, start);
    set(record, FIELD_end, start + KERNEL_NS);
    set(record, FIELD_timestamp, start);
}

static void give_kernel(
        const struct fake_op *op, uint32_t correlation, uint64_t node, uint64_t start)
{
    struct record kernel = record_new(CUPTI_RECORD_KERNEL, op, correlation);
    unsigned long n = atomic_fetch_add(&kernels, 1) + 1;
    if (!fake_behaviour.zero || n % (unsigned long)fake_behaviour.zero)
        times(&kernel, start);
    set(&kernel, FIELD_name, (uint64_t)(uintptr_t)op->name);
    set(&kernel, FIELD_graphNodeId, node);
    set(&kernel, FIELD_registersPerThread, 42);
    set(&kernel, FIELD_gridX, op->grid[0]);
    set(&kernel, FIELD_gridY, op->grid[1]);
    set(&kernel, FIELD_gridZ, op->grid[2]);
    set(&kernel, FIELD_blockX, op->block[0]);
    set(&kernel, FIELD_blockY, op->block[1]);
    set(&kernel, FIELD_blockZ, op->block[2]);
    set(&kernel, FIELD_clusterX, 2);
    set(&kernel, FIELD_clusterY, 1);
    set(&kernel, FIELD_clusterZ, 1);
    set(&kernel, FIELD_staticSharedMemory, 1024);
    set(&kernel, FIELD_dynamicSharedMemory, 2048);
    set(&kernel, FIELD_localMemoryPerThread, 16);
    set(&kernel, FIELD_channelID, 7);
    set(&kernel, FIELD_channelType, 1);
    give(&kernel, 0);
}

static void give_graph(const struct fake_op *op, uint32_t correlation, uint64_t start)
{
    if (atomic_load(&kind_on[fake_layout(CUPTI_RECORD_GRAPH)->kind])) {
        struct record graph = record_new(CUPTI_RECORD_GRAPH, op, correlation);
        times(&graph, start);
        set(&graph, FIELD_end, start + (uint64_t)KERNEL_NS * op->nodes);
        give(&graph, 0);
        return; // CUPTI gives the nodes' kernels only where this kind is off
    }
    for (uint32_t i = 0; i < op->nodes; i++)
        give_kernel(op, correlation, FAKE_CLONE(op->graph, i), start + (uint64_t)i * KERNEL_NS);
}

static void give_copy(const struct fake_op *op, uint32_t correlation, uint64_t start)
{
    enum cupti_record what = op->what == FAKE_COPY ? CUPTI_RECORD_COPY
            : op->what == FAKE_PEER                ? CUPTI_RECORD_PEER
                                                   : CUPTI_RECORD_SET;
    struct record copy = record_new(what, op, correlation);
    times(&copy, start);
    set(&copy, FIELD_copyKind, op->what == FAKE_PEER ? 10 : op->kind);
    set(&copy, FIELD_srcKind, op->kind == 1 ? 2 : 3);
    set(&copy, FIELD_dstKind, 3);
    set(&copy, FIELD_memoryKind, 3);
    set(&copy, FIELD_flags, 1);
    set(&copy, FIELD_value, 0x5a);
    set(&copy, FIELD_srcDeviceId, op->device);
    set(&copy, FIELD_dstDeviceId, op->device ^ 1);
    give(&copy, 0);
}

static void give_memory(const struct fake_op *op, uint32_t correlation, uint64_t start)
{
    int is_pool = op->what == FAKE_POOL;
    struct record memory = record_new(
            is_pool && op->kind ? CUPTI_RECORD_POOL : CUPTI_RECORD_MEMORY, op, correlation);
    set(&memory, FIELD_timestamp, start);
    set(&memory, FIELD_address, op->address);
    set(&memory, FIELD_memoryKind, 3);
    set(&memory, FIELD_memoryOperationType, op->what == FAKE_FREE ? 2 : 1);
    set(&memory, FIELD_isAsync, (uint64_t)is_pool);
    set(&memory, FIELD_memoryPoolOperationType, op->kind);
    set(&memory, FIELD_memoryPoolType, 1);
    set(&memory, FIELD_size, 1 << 20);
    set(&memory, FIELD_utilizedSize, 4096);
    if (is_pool) {
        set(&memory, FIELD_pool_type, 1);
        set(&memory, FIELD_pool_address, op->id);
        set(&memory, FIELD_pool_size, 1 << 20);
        set(&memory, FIELD_pool_used, 4096);
    }
    give(&memory, 1);
}

static void give_sync(const struct fake_op *op, uint32_t correlation, uint64_t start)
{
    struct record sync = record_new(CUPTI_RECORD_SYNC, op, correlation);
    times(&sync, start);
    set(&sync, FIELD_type, op->kind);
    set(&sync, FIELD_cudaEventId, op->id);
    set(&sync, FIELD_cudaEventSyncId, op->id);
    give(&sync, 1);
}

static void give_mark(const struct fake_op *op, uint64_t now)
{
    struct record mark = record_new(CUPTI_RECORD_MARKER, op, 0);
    uint32_t who[3] = {(uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), 0};
    set(&mark, FIELD_flags, op->kind);
    set(&mark, FIELD_timestamp, now);
    set(&mark, FIELD_id, op->id);
    set(&mark, FIELD_objectKind, 2); // a thread
    memcpy(mark.bytes + mark.layout->fields[FIELD_objectId].at, who, sizeof(who));
    // As CUPTI: the end of a range has neither name nor domain of its own.
    set(&mark, FIELD_name, op->kind == 4 ? 0 : (uint64_t)(uintptr_t)op->name);
    set(&mark, FIELD_domain, (uint64_t)(uintptr_t)op->domain);
    give(&mark, 1);
}

static void give_thing(const struct fake_op *op, enum cupti_record what)
{
    struct record thing = record_new(what, op, 0);
    set(&thing, FIELD_priority, op->kind);
    set(&thing, FIELD_flag, 1);
    set(&thing, FIELD_nullStreamId, 7);
    give(&thing, 1);
}

void play_dump(uint32_t kind)
{
    if (kind != fake_layout(CUPTI_RECORD_STREAM)->kind)
        return;
    for (uint32_t i = 0; i < 32; i++)
        if (atomic_load(&streams) & 1u << i)
            give_thing(&(struct fake_op){.context = 1, .stream = i}, CUPTI_RECORD_STREAM);
}

// --- calls
// ------------------------------------------------------------------------------------------

static void tell(uint32_t domain, uint32_t cbid, const void *data)
{
    cupti_callback_fn callback = atomic_load(&subscriber);
    if (!callback || !atomic_load(&callback_on[domain][cbid]))
        return;
    atomic_fetch_add(&callbacks, 1);
    fake_cuda_at(FAKE_IN_CALL);
    callback(atomic_load(&subscriber_user), domain, cbid, data);
    fake_cuda_at(FAKE_OUTSIDE);
}

static bool is_call_on(uint32_t domain, uint32_t cbid)
{
    return atomic_load(&call_on[domain][cbid]) && atomic_load(&are_calls_live) &&
            !atomic_load(&is_kind_off_again[domain]);
}

static void give_call(uint32_t domain, uint32_t cbid, const struct fake_op *op,
        uint32_t correlation, uint64_t start)
{
    // As on an H200: of a runtime call and the driver's inside of it one is recorded, the runtime's
    // where both are on.
    if (!is_call_on(domain, cbid) || (domain == CUPTI_DOMAIN_DRIVER && in_runtime))
        return;
    struct record call =
            record_new(domain == CUPTI_DOMAIN_RUNTIME ? CUPTI_RECORD_RUNTIME : CUPTI_RECORD_DRIVER,
                    op, correlation);
    set(&call, FIELD_cbid, cbid);
    set(&call, FIELD_start, start);
    set(&call, FIELD_end, play_now_gpu());
    set(&call, FIELD_threadId, (uint64_t)syscall(SYS_gettid));
    fake_buffers_append(call.bytes, call.layout->bytes, 1);
}

static void work(const struct fake_op *op, uint32_t correlation)
{
    uint64_t start = play_now_gpu() + 1000;
    switch (op->what) {
    case FAKE_LAUNCH:
    case FAKE_LAUNCH_DRIVER:
        give_kernel(op, correlation, 0, start);
        break;
    case FAKE_COPY:
    case FAKE_PEER:
    case FAKE_SET:
        give_copy(op, correlation, start);
        break;
    case FAKE_GRAPH:
        give_graph(op, correlation, start);
        break;
    case FAKE_SYNC:
        give_sync(op, correlation, start - 1000);
        break;
    case FAKE_MALLOC:
    case FAKE_FREE:
    case FAKE_POOL:
        give_memory(op, correlation, start - 1000);
        break;
    default:
        break;
    }
}

// One call of the API with what is inside of it; the driver's inside of the runtime's has the same
// correlation.
static void call(uint32_t domain, uint32_t cbid, uint32_t inner, const struct fake_op *op,
        uint32_t correlation)
{
    const uint64_t params[16] = {op->what == FAKE_GRAPH ? 0x9000u + op->graph : 0}; // hGraphExec
    uint64_t start = play_now_gpu(), kept = 0;
    int result = 0;
    struct cupti_callback_data data = {
            .site = 0,
            .function_name = play_call_name(domain, cbid),
            .function_params = params,
            .return_value = &result,
            .symbol_name = op->name,
            .context = (void *)(uintptr_t)(0x1000u * op->context),
            .context_uid = op->context,
            .correlation_data = &kept,
            .correlation_id = correlation,
    };
    tell(domain, cbid, &data);
    bool is_recorded = domain == CUPTI_DOMAIN_RUNTIME && is_call_on(domain, cbid);
    in_runtime += is_recorded;
    if (inner)
        call(CUPTI_DOMAIN_DRIVER, inner, 0, op, correlation);
    else
        work(op, correlation);
    in_runtime -= is_recorded;
    give_call(domain, cbid, op, correlation, start);
    data.site = 1;
    at_exit++;
    tell(domain, cbid, &data);
    at_exit--;
}

static void resource(uint32_t cbid, const struct fake_op *op)
{
    struct cupti_resource_data data = {(void *)(uintptr_t)(0x1000u * op->context),
            (void *)(uintptr_t)(0x10u * op->stream), NULL};
    tell(CUPTI_DOMAIN_RESOURCE, cbid, &data);
}

static void make_graph(const struct fake_op *op)
{
    for (uint32_t i = 0; i < 2 * op->nodes; i++) { // all are captured, then all are cloned
        bool is_clone = i >= op->nodes;
        uint32_t node = i % op->nodes;
        struct cupti_graph_data graph = {
                .node = (void *)(uintptr_t)(is_clone ? FAKE_CLONE(op->graph, node)
                                                     : FAKE_NODE(op->graph, node)),
                .original_node = is_clone ? (void *)(uintptr_t)FAKE_NODE(op->graph, node) : NULL,
        };
        struct cupti_resource_data data = {
                (void *)(uintptr_t)(0x1000u * op->context), NULL, &graph};
        tell(CUPTI_DOMAIN_RESOURCE, is_clone ? 20 : 13, &data);
    }
}

static const struct {
    uint8_t domain;
    uint16_t cbid, inner;
} calls[] = {
        [FAKE_LAUNCH] = {2, 211, 307},
        [FAKE_LAUNCH_DRIVER] = {1, 307, 0},
        [FAKE_COPY] = {2, 41, 277},
        [FAKE_PEER] = {2, 161, 319},
        [FAKE_SET] = {2, 51, 216},
        [FAKE_GRAPH] = {2, 311, 514},
        [FAKE_MALLOC] = {2, 20, 243},
        [FAKE_FREE] = {2, 22, 245},
        [FAKE_POOL] = {2, 373, 598},
        [FAKE_QUERY] = {2, 17, 0},
};

uint32_t play_op(const struct fake_op *op)
{
    static const uint16_t syncs[] = {0, 137, 147, 131, 165}, sync_calls[] = {0, 121, 295, 126, 17};
    switch (op->what) {
    case FAKE_MARK:
        give_mark(op, play_now_gpu());
        return 0;
    case FAKE_CONTEXT:
        give_thing(op, CUPTI_RECORD_CONTEXT);
        resource(1, op);
        return 0;
    case FAKE_STREAM:
        atomic_fetch_or(&streams, 1u << (op->stream & 31));
        give_thing(op, CUPTI_RECORD_STREAM);
        resource(3, op);
        return 0;
    case FAKE_UNLOAD: // what was launched from it is done, and given out, before it goes
        if (fake_buffers_registered())
            fake_buffers_flush();
        resource(7, op);
        return 0;
    case FAKE_GRAPH_MAKE:
        make_graph(op);
        return 0;
    default:
        break;
    }
    uint32_t correlation = atomic_fetch_add(&last_correlation, 1) + 1;
    if (op->what == FAKE_SYNC)
        call(CUPTI_DOMAIN_RUNTIME, syncs[op->kind], sync_calls[op->kind], op, correlation);
    else if (op->what == FAKE_CAPTURE) // cudaStreamBeginCapture, cudaStreamEndCapture
        call(CUPTI_DOMAIN_RUNTIME, op->kind == 1 ? 315 : 319, op->kind == 1 ? 539 : 497, op,
                correlation);
    else if (op->what == FAKE_POOL && op->kind)
        call(CUPTI_DOMAIN_RUNTIME, 383, 0, op, correlation);
    else
        call(calls[op->what].domain, calls[op->what].cbid, calls[op->what].inner, op, correlation);
    return correlation;
}

void play_report(FILE *out)
{
    int on = 0;
    for (int i = 0; i < CUPTI_KIND_COUNT; i++)
        on += atomic_load(&kind_on[i]);
    fprintf(out,
            "{\"type\":\"fake\",\"loaded\":1,\"subscribed\":%d,\"kinds_on\":%d,\"callbacks\":%lu,"
            "\"finalizes\":%lu,\"nvtx\":%lu,\"calls\":%u,",
            atomic_load(&subscriber) != NULL, on, atomic_load(&callbacks), atomic_load(&finalizes),
            atomic_load(&nvtx_modules), atomic_load(&last_correlation));
    fake_buffers_report(out);
    fprintf(out, "}\n");
}
