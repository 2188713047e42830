// SPDX-License-Identifier: Apache-2.0
// Events as bytes at offsets, not as structs: the offsets were taken with offsetof from NCCL's
// public headers (profiler_v1.h to profiler_v6.h), so this file and tracer/inject/nccl/nccl_abi.h
// can only agree when both are right. The order of the calls follows the documentation of the
// plugin interface (ext-profiler/README.md).
#include "tests/mock/fake_nccl.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DESCR_BYTES = 128 };
enum {
    GROUP = 1,
    COLL = 2,
    P2P = 4,
    PROXY_OP = 8,
    KERNEL_CH = 64,
    GROUP_API = 256,
    COLL_API = 512,
    P2P_API = 1024,
    CE_COLL = 4096
};
enum { KERNEL_CH_STOP = 22 };

static const struct {
    int sequence, function, count, datatype, channels, warps, algorithm, protocol;
    int name, hash; // of both; -1: told by init
    int p2p_function, p2p_datatype, p2p_count, p2p_peer, p2p_channels;
} at[FAKE_VERSIONS + 1] = {
        [1] = {40, 48, 72, 84, 104, 105, 106, 107, 24, 32, 40, 56, 64, 72, -1},
        [2] = {40, 48, 72, 88, 104, 105, 112, 120, 24, 32, 40, 56, 64, 72, -1},
        [3] = {40, 48, 72, 88, 96, 97, 104, 112, 24, 32, 40, 56, 64, 72, -1},
        [4] = {24, 32, 56, 72, 80, 81, 88, 96, -1, -1, 24, 40, 48, 56, 60},
        [5] = {24, 32, 56, 72, 80, 81, 88, 96, -1, -1, 24, 40, 48, 56, 60},
        [6] = {24, 32, 56, 72, 80, 81, 88, 96, -1, -1, 24, 40, 48, 56, 60},
};

static struct {
    const char *name;
    void *init;
    int (*start)(void *context, void **handle, void *descr);
    int (*stop)(void *handle);
    int (*record)(void *handle, int state, void *args);
    int (*finalize)(void *context);
} plugin;

int fake_version;

const char *fake_log;

int *fake_mask_place(void)
{
    static int mask;
    return &mask;
}

__attribute__((visibility("default"))) int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = 22809;
    return 0;
}

void fake_load(int version, const void *symbol)
{
    memcpy(&plugin, symbol, sizeof(plugin));
    fake_version = version;
    fake_log = plugin.name;
    fake_mask = 0;
}

void fake_comm_init(struct fake_comm *comm, uint64_t hash, const char *name, int ranks, int rank)
{
    *comm = (struct fake_comm){.hash = hash, .name = name, .ranks = ranks, .rank = rank};
    if (fake_version >= 5)
        ((int (*)(void **, uint64_t, int *, const char *, int, int, int, void *))plugin.init)(
                &comm->context, hash, &fake_mask, name, 1, ranks, rank, NULL);
    else if (fake_version == 4)
        ((int (*)(void **, int *, const char *, uint64_t, int, int, int, void *))plugin.init)(
                &comm->context, &fake_mask, name, hash, 1, ranks, rank, NULL);
    else
        ((int (*)(void **, int *))plugin.init)(&comm->context, &fake_mask);
}

void fake_comm_finalize(struct fake_comm *comm)
{
    if (comm->context)
        plugin.finalize(comm->context);
}

static void put(uint8_t *descr, int offset, const void *value, size_t bytes)
{
    if (offset >= 0)
        memcpy(descr + offset, value, bytes);
}

static void put_u8(uint8_t *descr, int offset, int value)
{
    uint8_t byte = (uint8_t)value;
    put(descr, offset, &byte, 1);
}

static void put_type(uint8_t *descr, uint64_t type)
{
    put(descr, 0, &type, fake_version >= 5 ? 8 : 1);
}

static int index_of(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (text && !strcmp(text, names[i]))
            return i;
    return 255;
}

// Up to v1 names are the numbers of NCCL's enums.
static void put_name(uint8_t *descr, int offset, const char *text)
{
    static const char *const names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
            "AllReduce", "SendRecv", "Send", "Recv", // functions
            "ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
            "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "TREE", "RING",
            "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT", // algorithms
            "LL", "LL128", "SIMPLE"};
    static const int firsts[] = {25, 18, 8, 0};
    if (fake_version > 1) {
        put(descr, offset, &text, sizeof(text));
        return;
    }
    int index = index_of(text, names, sizeof(names) / sizeof(names[0])), first = 0;
    for (int i = 3; i >= 0; i--)
        first = index >= firsts[i] ? firsts[i] : first;
    put_u8(descr, offset, index == 255 ? 255 : index - first);
}

static bool is_p2p(const struct fake_call *call)
{
    return !strcmp(call->function, "Send") || !strcmp(call->function, "Recv");
}

static void *start(struct fake_comm *comm, uint8_t *descr)
{
    void *handle = (void *)1; // the plugin must write it
    plugin.start(comm->context, &handle, descr);
    return handle;
}

static void *start_api(struct fake_comm *comm, const struct fake_call *call, void *group)
{
    uint8_t descr[DESCR_BYTES] = {0};
    put_type(descr, is_p2p(call) ? P2P_API : COLL_API);
    put(descr, 8, &group, 8);
    put(descr, 24, &call->function, 8);
    put(descr, 32, &call->count, 8);
    put(descr, 40, &call->datatype, 8);
    put_u8(descr, is_p2p(call) ? 56 : 64, call->is_captured);
    return start(comm, descr);
}

static void *start_task(
        struct fake_comm *comm, const struct fake_call *call, void *api, void *group)
{
    uint8_t descr[DESCR_BYTES] = {0};
    int v = fake_version, announced = call->announced;
    put_type(descr, is_p2p(call) ? P2P : COLL);
    put(descr, 8, v >= 5 ? &api : &group, 8);
    put(descr, 16, &comm->rank, 4);
    put(descr, at[v].name, &comm->name, 8);
    put(descr, at[v].hash, &comm->hash, 8);
    if (is_p2p(call)) {
        put_name(descr, at[v].p2p_function, call->function);
        put_name(descr, at[v].p2p_datatype, call->datatype);
        put(descr, at[v].p2p_count, &call->count, 8);
        put(descr, at[v].p2p_peer, &call->peer, 4);
        put_u8(descr, at[v].p2p_channels, announced);
        return start(comm, descr);
    }
    uint64_t *sequence =
            &comm->sequence[strlen(call->function)]; // one a function: their lengths differ
    put(descr, at[v].sequence, sequence, 8);
    ++*sequence;
    put_name(descr, at[v].function, call->function);
    put_name(descr, at[v].datatype, call->datatype);
    put(descr, at[v].count, &call->count, 8);
    put_u8(descr, at[v].channels, v <= 3 ? 64 : announced); // up to v3 the most that could be
    put_u8(descr, at[v].warps, call->warps);
    put_name(descr, at[v].algorithm, call->algorithm);
    put_name(descr, at[v].protocol, call->protocol);
    return start(comm, descr);
}

static void enqueue(struct fake_comm *comm, const struct fake_call *call, struct fake_task *task,
        bool is_broken)
{
    uint8_t descr[DESCR_BYTES] = {0};
    void *api = NULL, *group_api = NULL, *group = NULL;
    *task = (struct fake_task){.comm = comm, .mask = __atomic_load_n(&fake_mask, __ATOMIC_RELAXED)};
    if (!task->mask)
        return;
    if (fake_version >= 5) {
        put_type(descr, GROUP_API);
        group_api = start(comm, descr);
        api = start_api(comm, call, group_api);
        if (api)
            plugin.stop(api);
        if (group_api)
            plugin.stop(group_api);
    }
    memset(descr, 0, sizeof(descr));
    put_type(descr, GROUP);
    group = start(comm, descr);
    if (fake_version < 5 && !group)
        return; // up to v4 no group, no tasks
    task->event = start_task(comm, call, api, group);
    if (is_broken)
        return;
    if (task->event || fake_version < 3)
        plugin.stop(task->event); // v1 and v2 stop what never started, too
    if (group)
        plugin.stop(group);
}

void fake_enqueue(struct fake_comm *comm, const struct fake_call *call, struct fake_task *task)
{
    enqueue(comm, call, task, false);
}

void fake_enqueue_broken(
        struct fake_comm *comm, const struct fake_call *call, struct fake_task *task)
{
    enqueue(comm, call, task, true);
}

static uint64_t gpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + FAKE_GPU_EPOCH;
}

void fake_channel_start(struct fake_task *task, int channel, uint64_t ptimer)
{
    uint8_t descr[DESCR_BYTES] = {0};
    int type = fake_version >= 3 ? KERNEL_CH : PROXY_OP, pid = getpid();
    if (!(task->mask & type))
        return;
    put_type(descr, (uint64_t)type);
    put(descr, 8, &task->event, 8);
    put(descr, 16, &task->comm->rank, 4);
    if (type == PROXY_OP)
        put(descr, 24, &pid, 4);
    put_u8(descr, type == PROXY_OP ? 28 : 24, channel);
    if (!ptimer)
        ptimer = gpu_now();
    if (fake_version >= 4)
        put(descr, 32, &ptimer, 8);
    task->children[channel] = start(task->comm, descr);
}

void fake_channel_stop(struct fake_task *task, int channel, uint64_t ptimer)
{
    uint64_t args[2] = {ptimer ? ptimer : gpu_now(), 0};
    void *child = task->children[channel];
    if (!child)
        return;
    task->children[channel] = NULL;
    if (fake_version >= 4)
        plugin.record(child, KERNEL_CH_STOP, args);
    plugin.stop(child);
}

void fake_foreign_proxy(struct fake_comm *comm, void *parent)
{
    uint8_t descr[DESCR_BYTES] = {0};
    int pid = getppid();
    put_type(descr, PROXY_OP);
    put(descr, 8, &parent, 8);
    put(descr, 24, &pid, 4);
    void *handle = start(comm, descr);
    if (handle)
        plugin.stop(handle);
}

void fake_run(struct fake_task *task, int channels)
{
    for (int i = 0; i < channels; i++)
        fake_channel_start(task, i, 0);
    for (int i = 0; i < channels; i++)
        fake_channel_stop(task, i, 0);
}

void fake_copy_engine(struct fake_comm *comm, const char *function, size_t count)
{
    uint8_t descr[DESCR_BYTES] = {0};
    static const char *const datatype = "ncclInt8", *const strategy = "MC";
    if (!(__atomic_load_n(&fake_mask, __ATOMIC_RELAXED) & CE_COLL))
        return;
    put_type(descr, CE_COLL);
    put(descr, 16, &comm->rank, 4);
    put(descr, 32, &function, 8);
    put(descr, 56, &count, 8);
    put(descr, 72, &datatype, 8);
    put(descr, 80, &strategy, 8);
    void *handle = start(comm, descr);
    if (handle)
        plugin.stop(handle);
}

void fake_stop_raw(void *handle)
{
    plugin.stop(handle);
}
