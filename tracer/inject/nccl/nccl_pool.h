// SPDX-License-Identifier: Apache-2.0
// Communicators and the operations in flight, behind every version of NCCL's plugin interface. An
// operation lives in a slot of its communicator's pool. NCCL gets no address of a slot but a
// number: kind, communicator, slot and generation of the slot. So a handle that comes too late
// (abort, finalize, a proxy thread that lags) hits nothing, whatever NCCL does. Any thread; nothing
// waits; memory is taken when a communicator is made, and kept for the next one.
#ifndef UPGATE_TRACER_INJECT_NCCL_NCCL_POOL_H
#define UPGATE_TRACER_INJECT_NCCL_NCCL_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    NCCL_COMMS = 128,  // alive at a time in a process; those beyond are counted as dropped
    NCCL_SLOTS = 1024, // operations in flight of a communicator
    NCCL_NAME_BYTES = 64,
};

// What NCCL tells of an operation after it was enqueued.
enum nccl_reports {
    NCCL_REPORTS_CHANNELS, // a start and a stop for each channel
    NCCL_REPORTS_NETWORK,  // the same, but only of channels that go through the network
    NCCL_REPORTS_NOTHING
};

// What a collective or a send is; texts belong to NCCL and last as long as its communicator.
struct nccl_op {
    const char *function, *datatype, *algorithm, *protocol; // NULL: none
    uint64_t communicator, sequence, count;
    uint64_t called_ns; // of the API call, 0: not known
    uint32_t rank, peer;
    uint32_t channels, warps;
    uint32_t children; // how many channels will report; 0: not known
    enum nccl_reports reports;
};

struct nccl_slot {
    _Atomic uint64_t state; // generation and the bits of nccl_pool.c
    struct nccl_op op;
    uint64_t enqueued_ns;
    uint32_t tid;
    // Read also by who has not claimed the slot.
    _Atomic uint32_t children;
    _Atomic bool is_optional, is_childless; // its children may stay away; will
    _Atomic uint64_t started_ns;
    _Atomic uint64_t last_stop_ns;       // when a channel was last seen to end
    _Atomic uint64_t gpu_start, gpu_end; // first and last ptimer; UINT64_MAX, 0: none
};

struct nccl_comm {
    _Atomic uint32_t is_live;
    uint32_t version, ranks, rank;
    uint64_t hash;
    int *mask;        // NCCL's, of the whole libnccl
    bool was_without; // was alive while channels did not report: see nccl_plugin.c
    _Atomic bool has_channels;
    _Atomic uint32_t name_state;
    char name[NCCL_NAME_BYTES];
    struct nccl_slot *slots;
    _Atomic uint32_t next, swept;
    _Atomic int64_t offset;     // CLOCK_MONOTONIC - ptimer, as small as seen; INT64_MAX: not yet
    _Atomic uint64_t offset_ns; // when it was seen
};

enum nccl_handle_kind {
    NCCL_HANDLE_NONE,
    NCCL_HANDLE_GROUP,
    NCCL_HANDLE_OP,
    NCCL_HANDLE_CHILD,
    NCCL_HANDLE_CALL
};

void *nccl_handle(enum nccl_handle_kind kind, uint64_t value);
enum nccl_handle_kind nccl_handle_kind(const void *handle);
uint64_t nccl_handle_value(const void *handle);

extern struct nccl_comm nccl_comms[NCCL_COMMS + 1];
uint64_t nccl_now(void);
struct nccl_slot *nccl_slots_map(void); // memory of a pool, zeroed, kept for good; NULL: none

// A slot for the operation, and its handle. NULL: none is free; counted as dropped.
void *nccl_op_start(struct nccl_comm *comm, const struct nccl_op *op);
void nccl_op_enqueued(void *handle);
// A channel's part begins: the handle of the child, NULL: the operation is not there any more.
// ptimer 0: none.
void *nccl_child_start(void *operation, uint64_t ptimer);
void nccl_child_ptimer(void *child, uint64_t ptimer);
void nccl_child_stop(void *child);
// Writes the operations that are as good as over, or all of them whatever they wait for.
void nccl_comm_settle(struct nccl_comm *comm, bool is_last);

// nccl_comm.c. A context is a communicator, or one that drops everything when there is no room;
// never NULL.
int nccl_comm_open(uint32_t version, void **context, int *mask, const char *name, uint64_t hash,
        int ranks, int rank);
int nccl_comm_close(void *context);
struct nccl_comm *nccl_comm_of(void *context); // NULL: it has none, or it is closed
void nccl_comm_name(struct nccl_comm *comm, const char *name);
bool nccl_is_own(int pid); // of the process that made the communicators

// nccl_record.c: the record of a slot that nobody else may touch.
void nccl_record_write(const struct nccl_comm *comm, const struct nccl_slot *slot, bool is_over,
        uint32_t channels, bool is_last);
void nccl_record_drop(void);
void nccl_record_clock(struct nccl_comm *comm, uint64_t now_ns, uint64_t ptimer);

#endif
