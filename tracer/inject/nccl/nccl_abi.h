// SPDX-License-Identifier: Apache-2.0
// What NCCL's profiler plugin interface looks like in memory, versions 1 to 6: of the descriptors
// only the members that are read, with the gaps between them named `skip`. Learned from NCCL's
// public headers (src/include/plugin/profiler/profiler_v1.h to _v6.h, nccl_profiler.h,
// nccl_common.h) and its page ext-profiler/README.md; offsets are asserted below for LP64. Who asks
// for which first: 2.23 v1; 2.24, 2.25 v2; 2.26 v3; 2.27 v4; 2.28 v5; 2.29 and later v6; each falls
// back to older ones.
#ifndef UPGATE_TRACER_INJECT_NCCL_NCCL_ABI_H
#define UPGATE_TRACER_INJECT_NCCL_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_ABI_NEWEST 6

// Types of events and bits of the activation mask.
enum nccl_event {
    NCCL_EVENT_GROUP = 1 << 0,
    NCCL_EVENT_COLL = 1 << 1,
    NCCL_EVENT_P2P = 1 << 2,
    NCCL_EVENT_PROXY_OP = 1 << 3,
    NCCL_EVENT_KERNEL_CH = 1 << 6, // from v3
    NCCL_EVENT_COLL_API = 1 << 9,  // from v5
    NCCL_EVENT_P2P_API = 1 << 10,
    NCCL_EVENT_CE_COLL = 1 << 12 // from v6
};

// from v4: the end of a channel's kernel, with its time stamp
enum { NCCL_STATE_KERNEL_CH_STOP = 22 };

struct nccl_coll_v1 {
    const char *name;
    uint64_t comm_hash, sequence;
    uint8_t function, skip0[7];
    const void *skip1[2]; // buffers
    size_t count;
    int root;
    uint8_t datatype, skip2[3];
    uint32_t op, skip3;
    size_t traffic_bytes;
    uint8_t channels_max, warps, algorithm, protocol;
    int is_collnet, is_nvls;
};

struct nccl_coll_v2 {
    const char *name;
    uint64_t comm_hash, sequence;
    const char *function;
    const void *skip0[2];
    size_t count;
    int root, skip1;
    const char *datatype;
    size_t traffic_bytes;
    uint8_t channels_max, warps, skip2[6];
    const char *algorithm, *protocol;
};

struct nccl_coll_v3 {
    const char *name;
    uint64_t comm_hash, sequence;
    const char *function;
    const void *skip0[2];
    size_t count;
    int root, skip1;
    const char *datatype;
    uint8_t channels_max, warps, skip2[6];
    const char *algorithm, *protocol;
};

struct nccl_coll_v4 { // v5 and v6 add a pointer at the end
    uint64_t sequence;
    const char *function;
    const void *skip0[2];
    size_t count;
    int root, skip1;
    const char *datatype;
    uint8_t channels, warps, skip2[6];
    const char *algorithm, *protocol;
};

struct nccl_p2p_v1 {
    const char *name;
    uint64_t comm_hash;
    uint8_t function, skip0[7];
    void *skip1;
    uint8_t datatype, skip2[7];
    size_t count;
    int peer;
};

struct nccl_p2p_v2 { // and v3
    const char *name;
    uint64_t comm_hash;
    const char *function;
    void *skip0;
    const char *datatype;
    size_t count;
    int peer;
};

struct nccl_p2p_v4 { // v5 and v6 add a pointer at the end
    const char *function;
    void *skip0;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t channels;
};

struct nccl_proxy_op {
    int pid; // of the process whose operation it is: that of another one with PXN
    uint8_t channel;
};

struct nccl_kernel_ch {
    uint8_t channel, skip[7];
    uint64_t ptimer; // from v4: globaltimer of the GPU
};

struct nccl_coll_api {
    const void *skip0[3];
    int root, skip1;
    void *stream;
    bool is_captured;
};

struct nccl_p2p_api {
    const void *skip0[3];
    void *stream;
    bool is_captured;
};

struct nccl_ce_coll {
    uint64_t sequence;
    const char *function;
    const void *skip0[2];
    size_t count;
    int root, skip1;
    const char *datatype, *strategy;
};

// The descriptor of every version: only the type is 1 byte wide up to v4 and 8 bytes from v5.
struct nccl_descr {
    union {
        uint8_t type_v1;
        uint64_t type_v5;
    };
    void *parent;
    int rank, skip;
    union {
        struct nccl_coll_v1 coll_v1;
        struct nccl_coll_v2 coll_v2;
        struct nccl_coll_v3 coll_v3;
        struct nccl_coll_v4 coll_v4;
        struct nccl_p2p_v1 p2p_v1;
        struct nccl_p2p_v2 p2p_v2;
        struct nccl_p2p_v4 p2p_v4;
        struct nccl_proxy_op proxy_op;
        struct nccl_kernel_ch kernel_ch;
        struct nccl_coll_api coll_api;
        struct nccl_p2p_api p2p_api;
        struct nccl_ce_coll ce_coll;
    };
};

union nccl_state_args { // from v4; only what is read
    uint64_t ptimer;
};

typedef int (*nccl_init_v1_fn)(void **context, int *mask); // v1 to v3
typedef int (*nccl_init_v4_fn)(void **context, int *mask, const char *name, uint64_t hash,
        int nodes, int ranks, int rank, void *log);
typedef int (*nccl_init_v5_fn)(void **context, uint64_t hash, int *mask, const char *name,
        int nodes, int ranks, int rank, void *log); // v5, v6

// The symbol ncclProfiler_vN: the same shape always, only init differs.
struct nccl_profiler {
    const char *name;
    union {
        nccl_init_v1_fn init_v1;
        nccl_init_v4_fn init_v4;
        nccl_init_v5_fn init_v5;
    };
    int (*start_event)(void *context, void **handle, struct nccl_descr *descr);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, union nccl_state_args *args);
    int (*finalize)(void *context);
};

#define NCCL_ABI_AT(type, member, offset) \
    _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
NCCL_ABI_AT(nccl_descr, parent, 8);
NCCL_ABI_AT(nccl_descr, rank, 16);
NCCL_ABI_AT(nccl_descr, coll_v1, 24);
NCCL_ABI_AT(nccl_coll_v1, function, 24);
NCCL_ABI_AT(nccl_coll_v1, count, 48);
NCCL_ABI_AT(nccl_coll_v1, datatype, 60);
NCCL_ABI_AT(nccl_coll_v1, op, 64);
NCCL_ABI_AT(nccl_coll_v1, traffic_bytes, 72);
NCCL_ABI_AT(nccl_coll_v1, protocol, 83);
NCCL_ABI_AT(nccl_coll_v1, is_nvls, 88);
NCCL_ABI_AT(nccl_coll_v2, function, 24);
NCCL_ABI_AT(nccl_coll_v2, count, 48);
NCCL_ABI_AT(nccl_coll_v2, datatype, 64);
NCCL_ABI_AT(nccl_coll_v2, warps, 81);
NCCL_ABI_AT(nccl_coll_v2, protocol, 96);
NCCL_ABI_AT(nccl_coll_v3, datatype, 64);
NCCL_ABI_AT(nccl_coll_v3, warps, 73);
NCCL_ABI_AT(nccl_coll_v3, protocol, 88);
NCCL_ABI_AT(nccl_coll_v4, function, 8);
NCCL_ABI_AT(nccl_coll_v4, count, 32);
NCCL_ABI_AT(nccl_coll_v4, datatype, 48);
NCCL_ABI_AT(nccl_coll_v4, channels, 56);
NCCL_ABI_AT(nccl_coll_v4, protocol, 72);
NCCL_ABI_AT(nccl_p2p_v1, datatype, 32);
NCCL_ABI_AT(nccl_p2p_v1, peer, 48);
NCCL_ABI_AT(nccl_p2p_v2, function, 16);
NCCL_ABI_AT(nccl_p2p_v2, peer, 48);
NCCL_ABI_AT(nccl_p2p_v4, count, 24);
NCCL_ABI_AT(nccl_p2p_v4, channels, 36);
NCCL_ABI_AT(nccl_proxy_op, channel, 4);
NCCL_ABI_AT(nccl_kernel_ch, ptimer, 8);
NCCL_ABI_AT(nccl_coll_api, is_captured, 40);
NCCL_ABI_AT(nccl_p2p_api, is_captured, 32);
NCCL_ABI_AT(nccl_ce_coll, strategy, 56);
_Static_assert(sizeof(struct nccl_profiler) == 48, "six pointers");

#endif
