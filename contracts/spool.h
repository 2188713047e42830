// SPDX-License-Identifier: Apache-2.0
// The spool: how the library that is loaded into a workload (tracer/inject) hands records to the
// recorder (tracer/gpu/spool_reader), and how the recorder switches it on and off. One memfd a
// process, named UG_SPOOL_NAME, created by the library when CUDA starts, found by the recorder in
// /proc/PID/fd: no file is left behind, container and mount namespaces do not matter, who may
// ptrace the process may read it, and a recorder that has mapped it reads on after the process was
// killed.
//
//     +--------------------+  0
//     | ug_spool_header    |  one page: control, counters. Dormant: nothing else has memory
//     +--------------------+  UG_SPOOL_HEADER_BYTES
//     | ug_spool_segment[] |  segment_count states, 64 bytes each
//     +--------------------+  data_offset
//     | segments           |  segment_count x segment_bytes, memory taken when a segment is first
//     |                    |  used
//     +--------------------+
//
// A segment has one writer, a thread, which took it from FREE to WRITING by compare-and-swap. It
// copies a whole record and then publishes it by storing `committed` (release). The reader takes
// what lies below `committed` (acquire), also of a segment that is being written. A writer that
// needs room stores FULL and takes another; a thread that ends stores FULL; while none is FREE so
// does everybody after each record, for there may be more threads than segments. The reader turns
// FULL into FREE once it has read all of it. No FREE segment: the record is dropped and counted.
// Nothing here waits for anybody.
//
// Memory. Off again, the library gives it back by punching holes, seconds later: FREE segments,
// each of which it takes as a writer would, to HELD, and stores FREE behind it; and of a segment
// that is still being written what is not yet written, and what the reader has let go of at its end
// (`read`). Only the library punches, and nothing of another take than the one `read` names: a
// reader may be stopped anywhere, for any time. What nobody has read for 10 s more, of a recorder
// that was killed, goes likewise, its records are lost. It stays while no recorder has asked for
// anything yet (generation 0): the first one reads all.
//
// The end. A thread that counts a record (`seen`) and has not published it yet says so in `busy` of
// its segment. A process that exits turns away who would begin, waits for those that have begun,
// and then stores ENDED: from there on nothing is counted and nothing is written, whatever its
// threads do, and seen = kept + dropped. Of one that was killed a record of each thread may be
// counted and missing.
//
// Integers are little endian, as on every machine with CUDA. Times of records whose name ends in
// _gpu are CUPTI nanoseconds (fitted to CLOCK_MONOTONIC by UG_REC_CLOCK); all others are
// CLOCK_MONOTONIC.
#ifndef UPGATE_CONTRACTS_SPOOL_H
#define UPGATE_CONTRACTS_SPOOL_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define UG_SPOOL_NAME "upgate-spool"         // shown as "/memfd:upgate-spool (deleted)"
#define UG_SPOOL_MAGIC 0x4c4f4f5053544755ull // "UGTSPOOL"
#define UG_SPOOL_VERSION 1u
#define UG_SPOOL_HEADER_BYTES 4096u
#define UG_SPOOL_SEGMENT_BYTES (256u << 10)
#define UG_SPOOL_SEGMENT_COUNT 256u // 64 MiB: 0.7 M launches
#define UG_SPOOL_READ_BITS 24       // of ug_spool_segment.read: bytes of a segment
#define UG_SPOOL_REASON_BYTES 160u
#define UG_SPOOL_STALE_NS 10000000000ll // a recorder that stopped its heartbeat so long ago is gone

// What the recorder asks for (header.want_state) and what the library does (header.state).
enum ug_spool_state {
    UG_SPOOL_DORMANT = 0, // no CUPTI subscriber, no callbacks
    UG_SPOOL_ACTIVE = 1,
    UG_SPOOL_REFUSED = 2, // only state: header.reason says why (another profiler, no libcupti, ...)
    UG_SPOOL_ENDED = 3    // only state: the process is exiting; everything was flushed
};

// header.want_kinds: what to record. Launches with correlation belong to UG_WANT_KERNELS.
enum ug_spool_want {
    // kernels, copies, sets, whole graph launches; and the calls that launched them
    UG_WANT_KERNELS = 1u << 0,
    // kernels of a CUDA graph one by one instead of the launch as a whole
    UG_WANT_GRAPH_NODES = 1u << 1,
    UG_WANT_SYNC = 1u << 2,   // synchronisation records and the calls that wait
    UG_WANT_MEMORY = 1u << 3, // allocations and pools
    UG_WANT_NVTX = 1u << 4,
    UG_WANT_OVERHEAD = 1u << 5, // CUPTI's own account
    UG_WANT_NCCL = 1u << 6,
    UG_WANT_PYTHON = 1u << 7,        // module paths, garbage collections
    UG_WANT_LAUNCH_STACKS = 1u << 8, // Python stack of every launch: dear
    // for measuring: hooks and buffers as asked, records are only counted
    UG_WANT_NOTHING_KEPT = 1u << 31
};
#define UG_WANT_DEFAULT \
    (UG_WANT_KERNELS | UG_WANT_SYNC | UG_WANT_MEMORY | UG_WANT_NVTX | UG_WANT_OVERHEAD | \
            UG_WANT_NCCL | UG_WANT_PYTHON)

// Producers of records, each with its counters in the header.
enum ug_spool_producer {
    UG_PRODUCER_KERNEL, // kernels and graph launches
    UG_PRODUCER_COPY,   // copies and sets
    UG_PRODUCER_CALL,   // API calls
    UG_PRODUCER_SYNC,
    UG_PRODUCER_MEMORY,
    UG_PRODUCER_NVTX,
    UG_PRODUCER_OVERHEAD,
    UG_PRODUCER_NCCL,
    UG_PRODUCER_PYTHON,
    UG_PRODUCER_OTHER, // strings, clock, devices, streams
    UG_PRODUCER_COUNT
};

struct ug_spool_counts {
    uint64_t seen;    // handed to us
    uint64_t dropped; // of them not in the spool: no FREE segment
};

struct ug_spool_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; // sizeof, for checks
    uint32_t segment_bytes;
    uint32_t segment_count;
    uint64_t data_offset; // of segment 0
    uint64_t file_bytes;
    uint32_t pid; // as the process sees itself
    uint32_t reserved0;

    // Written by the recorder; then generation + 1 (release) and FUTEX_WAKE (shared) on it.
    uint32_t generation;
    uint32_t want_state; // enum ug_spool_state: DORMANT or ACTIVE
    uint32_t want_kinds; // enum ug_spool_want
    uint32_t reserved1;
    uint64_t heartbeat_ns; // CLOCK_MONOTONIC, at least once a second while ACTIVE is wanted
    uint64_t reserved2[3];

    // Written by the library.
    uint32_t state;              // enum ug_spool_state
    uint32_t done_generation;    // the last generation it acted on; FUTEX_WAKE on it
    uint32_t have_kinds;         // what is really on: a kind that CUPTI refused is missing
    uint32_t cupti_version;      // CUPTI_API_VERSION of the library in use, e.g. 130000; 0: none
    uint32_t driver_version;     // cuDriverGetVersion, e.g. 13000
    uint32_t nccl_version;       // 0: no plugin call so far
    uint32_t per_thread_buffers; // 0, 1; UINT32_MAX: this CUPTI does not know
    uint32_t threads;            // that have written so far
    uint64_t cupti_dropped;      // cuptiActivityGetNumDroppedRecords, summed
    // discarded: the static one
    uint64_t cupti_buffers_requested, cupti_buffers_completed, cupti_buffers_discarded;
    uint64_t unknown_records;           // of a kind or size we do not know
    char reason[UG_SPOOL_REASON_BYTES]; // of REFUSED, or what of want_kinds is missing, in words
    char cupti_path[256];
    struct ug_spool_counts counts[UG_PRODUCER_COUNT]; // added to with relaxed atomics
};

enum ug_segment_state {
    UG_SEGMENT_FREE,
    UG_SEGMENT_WRITING,
    UG_SEGMENT_FULL,
    UG_SEGMENT_HELD // by the library, for a moment: its memory goes back to the system
};

struct ug_spool_segment {
    uint32_t state;     // enum ug_segment_state
    uint32_t committed; // bytes of whole records
    uint32_t tid;       // of the writer
    uint32_t busy;      // 1: a record is counted and not yet published
    uint64_t sequence; // grows with every take, over all segments: the order of a thread's segments
    uint64_t read; // by a reader at its end: sequence << UG_SPOOL_READ_BITS | bytes of that take
                   // that nobody reads any more
    uint64_t reserved1[4];
};

// --- records -------------------------------------------------------------------------------------

enum ug_record_type {
    UG_REC_STRING = 1, // before the first record that names its id
    UG_REC_CLOCK,
    UG_REC_DEVICE,
    UG_REC_STREAM,
    UG_REC_THREAD,
    UG_REC_KERNEL,
    UG_REC_COPY,
    UG_REC_GRAPH, // a graph launch as a whole
    UG_REC_CALL,
    UG_REC_SYNC,
    UG_REC_MEMORY,
    UG_REC_RANGE, // NVTX
    UG_REC_OVERHEAD,
    UG_REC_NCCL,
    UG_REC_MARK, // Python: module, step, phase
    UG_REC_GC,
    UG_REC_LAUNCH_STACK,
    UG_REC_GRAPH_NODE, // a node of a CUDA graph was made
    UG_REC_TYPE_COUNT
};

// Every record starts so; bytes is a multiple of 8 and counts the head.
struct ug_rec_head {
    uint16_t type; // enum ug_record_type
    uint16_t bytes;
    uint32_t tid; // of the thread it is about: the caller; 0: none
};

// Ids are the library's, from 1, never reused within the process; 0 = no string. Texts longer than
// 4,000 bytes are cut.
struct ug_rec_string {
    struct ug_rec_head head;
    uint32_t id;
    uint32_t text_bytes; // without the end; then the text, zero-padded to 8
};

struct ug_rec_clock { // bracketed: before <= the moment of gpu <= after
    struct ug_rec_head head;
    uint64_t before_ns, gpu_ns, after_ns;
};

struct ug_rec_device { // with the first context of a device
    struct ug_rec_head head;
    uint32_t device, context;
    uint32_t name; // string id
    uint32_t cc_major, cc_minor, sm_count;
    uint32_t max_threads_sm, registers_sm, shared_sm_bytes, reserved;
    uint64_t memory_bytes;
    uint8_t uuid[16];
};

struct ug_rec_stream {
    struct ug_rec_head head;
    uint32_t context, stream;
    uint32_t name; // string id, NVTX
    int32_t priority;
    uint32_t flags; // 1: default, 2: null, 4: per thread, 8: this record tells only the name
    uint32_t reserved;
};

struct ug_rec_thread {
    struct ug_rec_head head;
    uint32_t name, reserved;
};

struct ug_rec_kernel {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu; // both 0: CUPTI could not take them
    uint32_t correlation;
    uint32_t name; // string id, mangled
    uint32_t device, context, stream;
    uint32_t grid[3], block[3];
    uint16_t cluster[3];
    uint16_t registers;                                              // of a thread
    uint32_t static_shared_bytes, dynamic_shared_bytes, local_bytes; // local: of a thread
    uint32_t graph;      // of the executable graph, 0: none
    uint64_t graph_node; // 0: none
    uint32_t channel;    // hardware channel, type in the upper 8 bits; UINT32_MAX: unknown
    uint32_t flags;      // 1: launched by a kernel (CDP), 2: node of a device graph
};

enum ug_copy_kind { // as CUpti_ActivityMemcpyKind, which is stable
    UG_COPY_UNKNOWN,
    UG_COPY_HTOD,
    UG_COPY_DTOH,
    UG_COPY_HTOA,
    UG_COPY_ATOH,
    UG_COPY_ATOA,
    UG_COPY_ATOD,
    UG_COPY_DTOA,
    UG_COPY_DTOD,
    UG_COPY_HTOH,
    UG_COPY_PTOP,
    UG_COPY_SET = 64
};

struct ug_rec_copy {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu, size_bytes, graph_node;
    uint32_t correlation, graph;
    uint32_t device, context, stream;
    uint8_t kind;           // enum ug_copy_kind
    uint8_t source, target; // CUpti_ActivityMemoryKind: 1 pageable, 2 pinned, 3 device, ...
    uint8_t flags;          // 1: asynchronous
    uint32_t peer_device;   // UINT32_MAX: none
    uint32_t value;         // of a set
};

struct ug_rec_graph {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu;
    uint32_t correlation, graph;
    uint32_t device, context, stream, reserved;
};

struct ug_rec_call {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu; // API stamps are on the same clock as the GPU's
    uint32_t correlation;
    uint32_t call; // CUPTI callback id; driver calls have bit 31 set
    uint32_t name; // string id, "cudaLaunchKernel"
    int32_t result;
};

struct ug_rec_sync {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu;
    uint32_t correlation, context, stream;
    uint32_t kind; // CUpti_ActivitySynchronizationType: 1 event, 2 stream wait, 3 stream, 4 context
    uint32_t event; // 0: none
    uint32_t reserved;
    uint64_t event_sync; // cudaEventSyncId where there is one, 0: unknown
};

struct ug_rec_memory {
    struct ug_rec_head head;
    uint64_t at_gpu, address, size_bytes;
    uint32_t correlation, device, context, stream;
    uint8_t operation; // 1 allocate, 2 release, 3 pool create, 4 pool destroy, 5 pool trim
    uint8_t kind;      // CUpti_ActivityMemoryKind
    uint8_t flags;     // 1: asynchronous
    uint8_t reserved[5];
    uint64_t pool, pool_used_bytes, pool_bytes; // 0: no pool
};

struct ug_rec_range { // a push/pop or start/end pair, joined by the library's reader by id
    struct ug_rec_head head;
    uint64_t at_gpu;
    uint64_t id;           // of a start/end pair; push/pop nest by thread
    uint32_t name, domain; // string ids
    uint32_t what;         // 1 start, 2 end, 3 instantaneous
    uint32_t reserved;
};

struct ug_rec_overhead {
    struct ug_rec_head head;
    uint64_t start_gpu, end_gpu;
    uint32_t kind; // CUpti_ActivityOverheadKind
    uint32_t reserved;
};

struct ug_rec_nccl { // an operation of a communicator, once it is over
    struct ug_rec_head head;
    uint64_t enqueued_ns, ended_ns; // CLOCK_MONOTONIC; ended 0: never seen to end
    // of its channels' kernels, from the plugin; 0: unknown
    uint64_t kernel_start_ns, kernel_end_ns;
    uint64_t communicator; // hash, the same on all ranks
    uint64_t sequence, count;
    uint32_t rank, ranks, peer;                       // peer: of send and receive, else UINT32_MAX
    uint32_t function, datatype, algorithm, protocol; // string ids
    uint32_t channels, warps, element_bytes;
    uint32_t plugin_version;    // of the interface NCCL chose: 1 ...
    uint32_t communicator_name; // string id
};

enum ug_mark_kind {
    UG_MARK_MODULE = 1, // from here on this thread runs the forward of module `name`; 0: none
    UG_MARK_BACKWARD,   // ... the backward of it
    // value: index of the step
    UG_MARK_STEP_BEGIN,
    UG_MARK_STEP_END,
    // name: of the phase
    UG_MARK_PHASE_BEGIN,
    UG_MARK_PHASE_END
};

struct ug_rec_mark {
    struct ug_rec_head head;
    uint64_t at_ns;
    uint64_t value;
    uint32_t name; // string id, "layers.3.attn"
    uint32_t kind; // enum ug_mark_kind
};

struct ug_rec_gc { // a garbage collection of CPython
    struct ug_rec_head head;
    uint64_t start_ns, end_ns;
    uint32_t generation, collected;
};

struct ug_rec_launch_stack {
    struct ug_rec_head head;
    uint32_t correlation, depth;
    uint32_t frames[]; // string ids "function (file:line)", leaf first; padded to 8 bytes
};

// A node was captured or cloned (instantiation clones; kernels of a graph name the clone): ties
// them to the Python module that ran at capture.
struct ug_rec_graph_node {
    struct ug_rec_head head; // tid: of the thread that made it
    uint64_t at_ns;
    uint64_t node, original; // ids of CUPTI; original 0: not cloned
};

// --- both sides agree on this --------------------------------------------------------------------

#if defined(__cplusplus)
#define UG_SPOOL_ASSERT static_assert
#else
#define UG_SPOOL_ASSERT _Static_assert
#endif
UG_SPOOL_ASSERT(sizeof(struct ug_spool_header) <= UG_SPOOL_HEADER_BYTES, "one page");
UG_SPOOL_ASSERT(offsetof(struct ug_spool_header, generation) == 48, "layout");
UG_SPOOL_ASSERT(offsetof(struct ug_spool_header, state) == 96, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_spool_segment) == 64, "a cache line each");
UG_SPOOL_ASSERT(offsetof(struct ug_spool_segment, read) == 24, "layout");
UG_SPOOL_ASSERT(UG_SPOOL_SEGMENT_BYTES < 1u << UG_SPOOL_READ_BITS, "fits");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_head) == 8, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_kernel) == 112, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_copy) == 72, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_call) == 40, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_nccl) == 112, "layout");
UG_SPOOL_ASSERT(sizeof(struct ug_rec_mark) == 32, "layout");

#endif
