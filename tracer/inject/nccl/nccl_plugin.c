// SPDX-License-Identifier: Apache-2.0
// NCCL's profiler plugin, interfaces v1 to v6 in one library: NCCL looks for the newest
// ncclProfiler_vN that it knows. It is loaded by NCCL_PROFILER_PLUGIN and called from ncclCommInit
// (init), the threads that launch (collectives and sends), CUDA's callback thread (captured graphs)
// and the proxy threads (channels). Returns 0 always: recording must not fail a communicator.
#include <stddef.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/nccl/nccl_abi.h"
#include "tracer/inject/nccl/nccl_pool.h"

static const char *const functions_v1[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
        "AllReduce", "SendRecv", "Send", "Recv"};
static const char *const datatypes_v1[] = {"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32",
        "ncclInt64", "ncclUint64", "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16"};
static const char *const algorithms_v1[] = {
        "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocols_v1[] = {"LL", "LL128", "SIMPLE"};
#define NAME_OF(table, index) ((index) < sizeof(table) / sizeof((table)[0]) ? (table)[index] : NULL)

static int init_v1(void **context, int *mask)
{
    return nccl_comm_open(1, context, mask, NULL, 0, 0, 0);
}

static int init_v2(void **context, int *mask)
{
    return nccl_comm_open(2, context, mask, NULL, 0, 0, 0);
}

static int init_v3(void **context, int *mask)
{
    return nccl_comm_open(3, context, mask, NULL, 0, 0, 0);
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
        int rank, void *log)
{
    (void)nodes;
    (void)log;
    return nccl_comm_open(4, context, mask, name, hash, ranks, rank);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
        int rank, void *log)
{
    (void)nodes;
    (void)log;
    return nccl_comm_open(5, context, mask, name, hash, ranks, rank);
}

static int init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
        int rank, void *log)
{
    (void)nodes;
    (void)log;
    return nccl_comm_open(6, context, mask, name, hash, ranks, rank);
}

// --- events --------------------------------------------------------------------------------------

static void start_op(struct nccl_comm *comm, void **handle, struct nccl_op *op)
{
    // What a rank sends to itself is copied: no channel tells of it.
    bool has_channels =
            atomic_load_explicit(&comm->has_channels, memory_order_relaxed) && op->peer != op->rank;
    op->reports = comm->version < 3 ? NCCL_REPORTS_NETWORK
            : has_channels          ? NCCL_REPORTS_CHANNELS
                                    : NCCL_REPORTS_NOTHING;
    *handle = nccl_op_start(comm, op);
}

// The time of the API call is the handle that its event was given; it is the parent of the
// operation.
static uint64_t called_ns(const struct nccl_descr *descr)
{
    return nccl_handle_kind(descr->parent) == NCCL_HANDLE_CALL ? nccl_handle_value(descr->parent)
                                                               : 0;
}

// NCCL_EVENT_GROUP: up to v4 NCCL asks for no operations of a group that got no handle, and counts
// the collectives of a captured graph only with one.
static void start_plain(
        struct nccl_comm *comm, void **handle, uint64_t type, const struct nccl_descr *descr)
{
    if (type == NCCL_EVENT_GROUP)
        *handle = nccl_handle(NCCL_HANDLE_GROUP, 1);
    else if (type == NCCL_EVENT_KERNEL_CH)
        *handle = nccl_child_start(descr->parent, comm->version >= 4 ? descr->kernel_ch.ptimer : 0);
    else if (type == NCCL_EVENT_PROXY_OP && nccl_is_own(descr->proxy_op.pid))
        *handle = nccl_child_start(descr->parent, 0);
}

static int start_v1(void *context, void **handle, struct nccl_descr *descr)
{
    struct nccl_comm *comm = nccl_comm_of(context);
    *handle = NULL;
    if (!comm || !(inject_kinds() & UG_WANT_NCCL))
        return 0;
    struct nccl_op op = {.rank = (uint32_t)descr->rank, .peer = UINT32_MAX};
    if (descr->type_v1 == NCCL_EVENT_COLL) {
        const struct nccl_coll_v1 *coll = &descr->coll_v1;
        nccl_comm_name(comm, coll->name);
        op.communicator = coll->comm_hash;
        op.sequence = coll->sequence;
        op.count = coll->count;
        op.function = NAME_OF(functions_v1, coll->function);
        op.datatype = NAME_OF(datatypes_v1, coll->datatype);
        op.algorithm = NAME_OF(algorithms_v1, coll->algorithm);
        op.protocol = NAME_OF(protocols_v1, coll->protocol);
        op.channels = coll->channels_max;
        op.warps = coll->warps;
        start_op(comm, handle, &op);
    } else if (descr->type_v1 == NCCL_EVENT_P2P) {
        const struct nccl_p2p_v1 *p2p = &descr->p2p_v1;
        nccl_comm_name(comm, p2p->name);
        op.communicator = p2p->comm_hash;
        op.count = p2p->count;
        op.function = NAME_OF(functions_v1, p2p->function);
        op.datatype = NAME_OF(datatypes_v1, p2p->datatype);
        op.peer = (uint32_t)p2p->peer;
        start_op(comm, handle, &op);
    } else {
        start_plain(comm, handle, descr->type_v1, descr);
    }
    return 0;
}

static int start_v2(void *context, void **handle, struct nccl_descr *descr) // and v3
{
    struct nccl_comm *comm = nccl_comm_of(context);
    *handle = NULL;
    if (!comm || !(inject_kinds() & UG_WANT_NCCL))
        return 0;
    struct nccl_op op = {.rank = (uint32_t)descr->rank, .peer = UINT32_MAX};
    if (descr->type_v1 ==
            NCCL_EVENT_COLL) { // v3 has no traffic_bytes: what stands behind moved up by 8 bytes
        const struct nccl_coll_v2 *coll = &descr->coll_v2;
        const struct nccl_coll_v3 *coll3 = comm->version == 3 ? &descr->coll_v3 : NULL;
        nccl_comm_name(comm, coll->name);
        op.communicator = coll->comm_hash;
        op.sequence = coll->sequence;
        op.count = coll->count;
        op.function = coll->function;
        op.datatype = coll->datatype;
        op.algorithm = coll3 ? coll3->algorithm : coll->algorithm;
        op.protocol = coll3 ? coll3->protocol : coll->protocol;
        op.channels = coll3 ? coll3->channels_max : coll->channels_max;
        op.warps = coll3 ? coll3->warps : coll->warps;
        start_op(comm, handle, &op);
    } else if (descr->type_v1 == NCCL_EVENT_P2P) {
        const struct nccl_p2p_v2 *p2p = &descr->p2p_v2;
        nccl_comm_name(comm, p2p->name);
        op.communicator = p2p->comm_hash;
        op.count = p2p->count;
        op.function = p2p->function;
        op.datatype = p2p->datatype;
        op.peer = (uint32_t)p2p->peer;
        start_op(comm, handle, &op);
    } else {
        start_plain(comm, handle, descr->type_v1, descr);
    }
    return 0;
}

// A collective of the copy engines: no kernel, so no channels and no end.
static void start_ce(
        struct nccl_comm *comm, void **handle, const struct nccl_descr *descr, struct nccl_op *op)
{
    const struct nccl_ce_coll *coll = &descr->ce_coll;
    op->sequence = coll->sequence;
    op->count = coll->count;
    op->function = coll->function;
    op->datatype = coll->datatype;
    op->algorithm = "CE";
    op->protocol = coll->strategy;
    op->called_ns = called_ns(descr);
    op->reports = NCCL_REPORTS_NOTHING;
    *handle = nccl_op_start(comm, op);
}

static int start_v4(void *context, void **handle, struct nccl_descr *descr) // to v6
{
    struct nccl_comm *comm = nccl_comm_of(context);
    *handle = NULL;
    if (!comm || !(inject_kinds() & UG_WANT_NCCL))
        return 0;
    uint64_t type = comm->version >= 5 ? descr->type_v5 : descr->type_v1;
    struct nccl_op op = {.rank = comm->rank, .peer = UINT32_MAX, .communicator = comm->hash};
    if (type == NCCL_EVENT_COLL) {
        const struct nccl_coll_v4 *coll = &descr->coll_v4;
        op.sequence = coll->sequence;
        op.count = coll->count;
        op.function = coll->function;
        op.datatype = coll->datatype;
        op.algorithm = coll->algorithm;
        op.protocol = coll->protocol;
        op.channels = op.children = coll->channels;
        op.warps = coll->warps;
        op.called_ns = called_ns(descr);
        start_op(comm, handle, &op);
    } else if (type == NCCL_EVENT_P2P) {
        const struct nccl_p2p_v4 *p2p = &descr->p2p_v4;
        op.count = p2p->count;
        op.function = p2p->function;
        op.datatype = p2p->datatype;
        op.peer = (uint32_t)p2p->peer;
        // NCCL 2.28 leaves the member unset when it speaks v4.
        op.channels = op.children = comm->version >= 5 ? p2p->channels : 0;
        op.called_ns = called_ns(descr);
        start_op(comm, handle, &op);
    } else if (type == NCCL_EVENT_CE_COLL && comm->version >= 6) {
        start_ce(comm, handle, descr, &op);
    } else if (type == NCCL_EVENT_COLL_API && !descr->coll_api.is_captured) {
        *handle = nccl_handle(NCCL_HANDLE_CALL, nccl_now());
    } else if (type == NCCL_EVENT_P2P_API && !descr->p2p_api.is_captured) {
        *handle = nccl_handle(NCCL_HANDLE_CALL, nccl_now());
    } else {
        start_plain(comm, handle, type, descr);
    }
    return 0;
}

static int stop(void *handle)
{
    enum nccl_handle_kind kind = nccl_handle_kind(handle);
    if (kind == NCCL_HANDLE_OP)
        nccl_op_enqueued(handle);
    else if (kind == NCCL_HANDLE_CHILD)
        nccl_child_stop(handle);
    return 0;
}

static int record_none(void *handle, int state, union nccl_state_args *args)
{
    (void)handle;
    (void)state;
    (void)args;
    return 0;
}

static int record_v4(void *handle, int state, union nccl_state_args *args)
{
    if (state == NCCL_STATE_KERNEL_CH_STOP && args && nccl_handle_kind(handle) == NCCL_HANDLE_CHILD)
        nccl_child_ptimer(handle, args->ptimer);
    return 0;
}

#define PLUGIN(number, member, start, record) \
    UG_EXPORT extern const struct nccl_profiler ncclProfiler_v##number; \
    const struct nccl_profiler ncclProfiler_v##number = { \
            "upgate", {.member = init_v##number}, start, stop, record, nccl_comm_close}
PLUGIN(1, init_v1, start_v1, record_none);
PLUGIN(2, init_v1, start_v2, record_none);
PLUGIN(3, init_v1, start_v2, record_none);
PLUGIN(4, init_v4, start_v4, record_v4);
PLUGIN(5, init_v5, start_v4, record_v4);
PLUGIN(6, init_v5, start_v4, record_v4);
