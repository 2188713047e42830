// SPDX-License-Identifier: Apache-2.0
// A CUDA without a GPU: what the player asks of the fake driver (fake_cuda.c, libcuda.so.1), and
// how the fake CUPTI (fake_cupti.c, libcupti.so.*) hangs itself into it once the library under test
// has loaded it. Nothing here is known to that library: it sees cu* and cupti* alone.
//
// Behaviour of the fake CUPTI comes from the environment, read when it is loaded:
//   FAKE_CUPTI_DELIVER=app|worker   whose thread completes buffers (app)
//   FAKE_CUPTI_SHUFFLE=1            records of a buffer backwards
//   FAKE_CUPTI_PPM=N, _OFFSET_NS=N  the clock of the GPU against CLOCK_MONOTONIC
//   FAKE_CUPTI_ZERO=N               every Nth kernel without times
//   FAKE_CUPTI_UNKNOWN=N            after every Nth record one of a kind unknown
//   FAKE_CUPTI_DROP=N               every Nth record lost, and reported
//   FAKE_CUPTI_FAIL=10,49           kinds that cannot be enabled
//   FAKE_CUPTI_HELD=1               another subscriber was first
//   FAKE_CUPTI_HOARD=1              nothing is given back while any kind is on (DELIVER=worker)
//   FAKE_CUPTI_PER_THREAD=0|1       default of that attribute (1 from 13.0)
#ifndef UPGATE_TESTS_MOCK_FAKE_H
#define UPGATE_TESTS_MOCK_FAKE_H

#include <stdint.h>
#include <stdio.h>

enum fake_what {
    FAKE_LAUNCH,        // cudaLaunchKernel
    FAKE_LAUNCH_DRIVER, // cuLaunchKernel, without a runtime call around it
    FAKE_COPY,          // cudaMemcpyAsync
    FAKE_PEER,          // cudaMemcpyPeerAsync
    FAKE_SET,           // cudaMemsetAsync
    FAKE_GRAPH,         // cudaGraphLaunch of `nodes` kernels
    FAKE_SYNC,          // kind 1 event, 2 stream waits, 3 stream, 4 context
    FAKE_MALLOC,
    FAKE_FREE,    // cudaMalloc, cudaFree
    FAKE_POOL,    // cudaMallocAsync from a pool; kind 1 creates it, 2 destroys it, 3 trims it, 0
                  // allocates
    FAKE_MARK,    // NVTX: kind 1 instantaneous, 2 start, 4 end
    FAKE_QUERY,   // cudaGetDevice: a call nobody should want to see
    FAKE_CONTEXT, // a context of a device is made
    FAKE_STREAM,
    FAKE_UNLOAD,     // a module goes; its kernels' names may change under their addresses
    FAKE_GRAPH_MAKE, // `nodes` nodes of `graph` are captured, and cloned by its instantiation
    FAKE_CAPTURE     // of a stream: kind 1 begins, 2 ends
};

// Ids of a graph's nodes, as CUPTI gives them: of the captured one and of its clone, which its
// kernels name.
#define FAKE_NODE(graph, i) (((uint64_t)(graph) << 32) + 1000 + (i))
#define FAKE_CLONE(graph, i) (((uint64_t)(graph) << 32) + 1 + (i))

struct fake_op {
    enum fake_what what;
    uint32_t kind, device, context, stream, graph, nodes;
    uint32_t grid[3], block[3];
    uint64_t bytes, address, id;
    const char *name, *domain;
};

// Where the library under test is being called from: for those who count its manners.
enum fake_where { FAKE_OUTSIDE, FAKE_IN_CALL, FAKE_IN_REQUEST, FAKE_IN_COMPLETE };

struct fake_hooks {
    uint32_t (*op)(const struct fake_op *op); // correlation id of the call
    void (*report)(FILE *out); // one line of JSON: what was handed out, and what was wrong
};

// Of libcuda.so.1.
uint32_t fake_op(const struct fake_op *op); // 0: nobody listens
void fake_report(FILE *out);
void fake_cuda_hook(const struct fake_hooks *hooks);
void fake_cuda_watch(void (*watch)(enum fake_where where));
void fake_cuda_at(enum fake_where where);
unsigned fake_cuda_contexts(void); // made so far
unsigned fake_cuda_waits(void);    // cuCtxSynchronize, with a context that was made current
int fake_cuda_injected(void);      // what InitializeInjection said; -1: not called
int cuInit(unsigned flags);

#endif
