// SPDX-License-Identifier: Apache-2.0
// An NCCL without a GPU: calls a profiler plugin of interface v1 to v6 as NCCL 2.23 to 2.30 do. One
// call after the other on the threads that the test chooses: fake_enqueue is what the launching
// thread does, fake_channel_* what the proxy does.
#ifndef UPGATE_TESTS_MOCK_FAKE_NCCL_H
#define UPGATE_TESTS_MOCK_FAKE_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_CHANNELS = 64, FAKE_VERSIONS = 6 };
#define FAKE_GPU_EPOCH 1700000000000000000ull // ptimer - CLOCK_MONOTONIC of the fake GPU

struct fake_comm {
    void *context;
    uint64_t hash, sequence[16];
    const char *name;
    int rank, ranks;
};

struct fake_call {
    const char *function, *datatype, *algorithm, *protocol;
    size_t count;
    int peer;      // of Send and Recv
    int channels;  // that really run
    int announced; // what NCCL writes into the event
    int warps;
    bool is_captured; // the API call was made in a capture: this is a replay
};

struct fake_task {
    struct fake_comm *comm;
    int mask;
    void *event;
    void *children[FAKE_CHANNELS];
};

// NCCL's one mask of all communicators; it lives in the library, as NCCL's does.
#define fake_mask (*fake_mask_place())
int *fake_mask_place(void);
extern int fake_version;     // of the interface that is spoken
extern const char *fake_log; // the plugin's name

// plugin: the symbol ncclProfiler_vN.
void fake_load(int version, const void *plugin);
void fake_comm_init(struct fake_comm *comm, uint64_t hash, const char *name, int ranks, int rank);
void fake_comm_finalize(struct fake_comm *comm);
void fake_enqueue(struct fake_comm *comm, const struct fake_call *call, struct fake_task *task);
// The same without the stop of the event: an abort in between.
void fake_enqueue_broken(
        struct fake_comm *comm, const struct fake_call *call, struct fake_task *task);
// ptimer 0: now. Up to v2 there are proxy operations of the network only.
void fake_channel_start(struct fake_task *task, int channel, uint64_t ptimer);
void fake_channel_stop(struct fake_task *task, int channel, uint64_t ptimer);
// A proxy operation that belongs to another process (PXN): its parent is an address over there.
void fake_foreign_proxy(struct fake_comm *comm, void *parent);
// All channels one after another.
void fake_run(struct fake_task *task, int channels);
// A collective of the copy engines, v6.
void fake_copy_engine(struct fake_comm *comm, const char *function, size_t count);
void fake_stop_raw(void *handle);

#endif
