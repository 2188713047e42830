// SPDX-License-Identifier: Apache-2.0
// An NCCL that calls the profiler plugin in any order with anything: events that were never started
// or have long ended, of communicators that are gone, types that nobody knows. The input is a list
// of calls; texts are those of `texts`, contexts those that the plugin gave.
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/mock/nccl_rig.h"
#include "tracer/inject/nccl/nccl.h"
#include "tracer/inject/nccl/nccl_abi.h"

enum { COMMS = 8, HANDLES = 32, CALLS_MAX = 256 };

extern const struct nccl_profiler ncclProfiler_v1, ncclProfiler_v2, ncclProfiler_v3,
        ncclProfiler_v4, ncclProfiler_v5, ncclProfiler_v6;
static const struct nccl_profiler *const plugins[] = {&ncclProfiler_v1, &ncclProfiler_v2,
        &ncclProfiler_v3, &ncclProfiler_v4, &ncclProfiler_v5, &ncclProfiler_v6};
static const char *const texts[] = {NULL, "", "AllReduce", "ncclFloat32", "RING", "SIMPLE", "Send",
        "a name that is longer than the sixty-three bytes that are kept of a communicator's"};
enum { TEXTS = sizeof texts / sizeof *texts };

struct comm {
    void *context;
    int version; // 1 to 6
};

struct nccl_world {
    struct comm comms[COMMS];
    void *handles[HANDLES];
    int mask;
};

static const char *text(struct fuzz_input *input)
{
    return texts[fuzz_take(input, 1) % TEXTS];
}

static void *handle(struct nccl_world *world, struct fuzz_input *input)
{
    uint8_t pick = (uint8_t)fuzz_take(input, 1);
    return pick >= 0xf0 ? (void *)(uintptr_t)fuzz_take(input, 8) : world->handles[pick % HANDLES];
}

static void open_comm(struct nccl_world *world, struct comm *comm, struct fuzz_input *input)
{
    if (comm->context)
        return;
    int version = 1 + (int)(fuzz_take(input, 1) % 6), ranks = (int)fuzz_take(input, 4),
        rank = (int)fuzz_take(input, 4);
    uint64_t hash = fuzz_take(input, 8);
    const struct nccl_profiler *plugin = plugins[version - 1];
    comm->version = version;
    int rc = version < 4 ? plugin->init_v1(&comm->context, &world->mask)
            : version == 4
            ? plugin->init_v4(&comm->context, &world->mask, text(input), hash, 1, ranks, rank, NULL)
            : plugin->init_v5(
                      &comm->context, hash, &world->mask, text(input), 1, ranks, rank, NULL);
    fuzz_require(rc == 0, "recording fails no communicator");
    // who uses a context that has ended uses this one now, and speaks its version
    for (int i = 0; i < COMMS; i++)
        if (world->comms[i].context == comm->context)
            world->comms[i].version = version;
}

// Numbers of the input, texts of ours at the places where this version has them.
static void fill_texts(
        int version, uint64_t type, struct nccl_descr *descr, struct fuzz_input *input)
{
    const char *function = text(input), *datatype = text(input), *algorithm = text(input),
               *name = text(input);
    if (type == NCCL_EVENT_COLL && version == 1) {
        descr->coll_v1.name = name;
    } else if (type == NCCL_EVENT_COLL && version < 4) {
        descr->coll_v2.name = name;
        descr->coll_v2.function = function;
        descr->coll_v2.datatype = datatype;
        if (version == 2)
            descr->coll_v2.algorithm = algorithm, descr->coll_v2.protocol = name;
        else
            descr->coll_v3.algorithm = algorithm, descr->coll_v3.protocol = name;
    } else if (type == NCCL_EVENT_COLL) {
        descr->coll_v4.function = function;
        descr->coll_v4.datatype = datatype;
        descr->coll_v4.algorithm = algorithm;
        descr->coll_v4.protocol = name;
    } else if (type == NCCL_EVENT_P2P && version == 1) {
        descr->p2p_v1.name = name;
    } else if (type == NCCL_EVENT_P2P && version < 4) {
        descr->p2p_v2.name = name;
        descr->p2p_v2.function = function;
        descr->p2p_v2.datatype = datatype;
    } else if (type == NCCL_EVENT_P2P) {
        descr->p2p_v4.function = function;
        descr->p2p_v4.datatype = datatype;
    } else if (type == NCCL_EVENT_CE_COLL && version >= 6) {
        descr->ce_coll.function = function;
        descr->ce_coll.datatype = datatype;
        descr->ce_coll.strategy = algorithm;
    } else if (type == NCCL_EVENT_COLL_API || type == NCCL_EVENT_P2P_API) { // a bool that is one
        descr->coll_api.is_captured = descr->p2p_api.is_captured = type == NCCL_EVENT_P2P_API;
    }
}

static void start(struct nccl_world *world, const struct comm *comm, struct fuzz_input *input)
{
    struct nccl_descr descr;
    uint8_t bits = (uint8_t)fuzz_take(input, 1), slot = (uint8_t)fuzz_take(input, 1);
    uint64_t type = bits < 16 ? (uint64_t)1 << bits : fuzz_take(input, 8);
    memset(&descr, 0, sizeof descr);
    fuzz_take_bytes(input, &descr, fuzz_take(input, 1) % (sizeof descr + 1));
    if (comm->version >= 5)
        descr.type_v5 = type;
    else
        descr.type_v1 = (uint8_t)type;
    fill_texts(comm->version, comm->version >= 5 ? type : (uint8_t)type, &descr, input);
    descr.parent = handle(world, input);
    fuzz_require(plugins[comm->version - 1]->start_event(
                         comm->context, &world->handles[slot % HANDLES], &descr) == 0,
            "recording fails no operation");
}

static void call(struct nccl_world *world, struct fuzz_input *input)
{
    uint8_t what = (uint8_t)fuzz_take(input, 1);
    struct comm *comm = &world->comms[fuzz_take(input, 1) % COMMS];
    const struct nccl_profiler *plugin = plugins[comm->version ? comm->version - 1 : 5];
    union nccl_state_args args = {0};
    switch (what % 8) {
    case 0:
        open_comm(world, comm, input);
        break;
    case 1:
    case 2:
        if (comm->context)
            start(world, comm, input);
        break;
    case 3:
        plugin->stop_event(handle(world, input));
        break;
    case 4:
        args.ptimer = fuzz_take(input, 8);
        plugin->record_event_state(handle(world, input),
                what & 8 ? NCCL_STATE_KERNEL_CH_STOP : (int)fuzz_take(input, 4),
                what & 16 ? NULL : &args);
        break;
    case 5:
        if (comm->context)
            plugin->finalize(comm->context);
        comm->context = what & 8 ? comm->context : NULL; // or it is used once more
        break;
    case 6:
        rig_kinds(what & 8 ? UG_WANT_NCCL : 0);
        break;
    default:
        nccl_poll();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nccl_world world; // NCCL's mask outlives its communicators
    struct fuzz_input input = {data, size};
    rig_kinds(UG_WANT_NCCL);
    for (int i = 0; i < CALLS_MAX && input.size; i++)
        call(&world, &input);
    for (int i = 0; i < COMMS; i++)
        if (world.comms[i].context)
            plugins[world.comms[i].version - 1]->finalize(world.comms[i].context);
    memset(&world.comms, 0, sizeof world.comms);
    memset(&world.handles, 0, sizeof world.handles);
    rig_kinds(0);
    rig_clear();
    return 0;
}
