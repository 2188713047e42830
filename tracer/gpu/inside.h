// SPDX-License-Identifier: Apache-2.0
// Inside of the GPU recorder, shared by gpu.c (life), records.c (records into rows), names.c (ids
// of the workload), work.c (launches that repeat), ops.c (order and join) and ledger.c.
#ifndef UPGATE_TRACER_GPU_INSIDE_H
#define UPGATE_TRACER_GPU_INSIDE_H

#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "contracts/spool.h"
#include "tracer/gpu/batch.h"
#include "tracer/gpu/calls.h"
#include "tracer/gpu/clock_fit.h"
#include "tracer/gpu/gpu.h"
#include "tracer/gpu/spool_reader.h"

enum {
    GPU_PROCESSES_MAX = 4096,  // at one time and over a recording
    GPU_STRINGS_MAX = 1 << 20, // ids of a process: 8 MiB
    GPU_THREADS_MAX = 65536,
    GPU_STREAMS_MAX = 65536,
    GPU_CONTEXTS_MAX = 64,
    GPU_TARGET_BITS = 16, // different things launched, of one generation; then the next one begins
    GPU_TARGETS_MAX = 1 << GPU_TARGET_BITS,
    GPU_GENERATIONS = 4, // whose targets launches that are held back may name
    GPU_WORKS_MAX = 1 << 16,
    GPU_KERNELS_MAX = 1 << 15,
    // Held back for their order and their calls: 12 MiB, and 20 to sort them. CUPTI hands over when
    // a buffer is full or after a second: calls and kernels lie as much as a buffer of calls apart,
    // 80,000.
    GPU_OPS_MAX = 1 << (18 - GPU_SHRINK),
    GPU_RAW_MAX = 1 << (17 - GPU_SHRINK),     // of a process, held back for a clock sample
    GPU_RAW_ALL_MAX = 1 << (18 - GPU_SHRINK), // of all processes: 12 MiB
    GPU_HELD_MAX = 1 << (15 - GPU_SHRINK),    // other records held back: 3 MiB
    GPU_RANGES_MAX = 1 << (12 - GPU_SHRINK),  // open NVTX ranges
    GPU_PEEKS_MAX = 32,                       // of a poll and process
    GPU_TARGET_WORDS = 12,
};
#define GPU_DELAY_NS \
    2500000000ll // until the rows of an event are written: CUPTI hands over once a second
#define GPU_EMIT_NS 500000000ll // sorted and written in turns of this length
#define GPU_FILE_BYTES_MAX (1ull << 28)
#define GPU_PEEK_BYTES \
    (128ull << 20) // of a poll and process: all that the library's spool holds, twice
#define GPU_BATCH_BYTES (8ull << 20) // of a spool in one go; then the others have their turn

// What is counted for the ledger, of a process.
struct gpu_counters {
    uint64_t read[UG_PRODUCER_COUNT]; // records by the producer they belong to
    // no_room: streams, threads, strings beyond what is remembered
    uint64_t zero_times, unknown_strings, no_room;
    uint64_t ops, ops_without_call;
    uint64_t order_violations;
    uint64_t order_worst_ns;
    uint64_t without_clock;               // converted before a sample after them came
    uint64_t ranges_open, ranges_unknown; // started and never ended; ended and never started
    uint64_t launches_alone;              // launching calls of which nothing was seen
    uint64_t launches_cut; // of them those that CUPTI took with it when the process was killed
    uint64_t lapses;       // times that the process had taken us for gone, and was asked again
    uint64_t vanished;     // counted by the library, and not in the spool; known at the end
};

struct gpu_string {
    uint32_t row;   // of table string; 0: not known
    uint32_t flags; // enum call_flags: of a call with that name
};

struct gpu_device {
    bool known;
    uint32_t context, device;
    struct ug_rec_device record;
};

struct gpu_stream {
    uint32_t context, stream, row; // row 0: only named so far
    uint32_t name;                 // row of table string
    int32_t priority;
    bool described;
};

#define OP_NO_CALL INT64_MIN
struct op {
    int64_t start_ns, dur_ns; // CUPTI's until converted
    int64_t call_ns;          // start minus the begin of the call; OP_NO_CALL: not known
    uint32_t call_dur_ns;     // UINT32_MAX: longer
    uint32_t correlation, call_name, call_tid;
    uint32_t target;  // slot of its generation above GPU_TARGET_BITS
    uint32_t process; // index
};

struct gpu_process {
    struct gpu_recorder *gpu;
    uint32_t index, row;
    pid_t pid;
    bool gone, closed, taken;    // taken: by another recorder, of whom it is now
    struct spool_reader *reader; // NULL once closed
    uint64_t inode;
    int64_t ahead_ns;                                 // its clock of ours, in a time namespace
    struct ug_spool_header header;                    // the last one seen
    struct ug_spool_counts before[UG_PRODUCER_COUNT]; // of an earlier recorder
    uint64_t before_cupti_dropped, before_discarded, before_unknown;
    struct spool_damage damage;
    bool ever_active;
    uint32_t kinds; // that were on, all together
    struct clock_fit fit;
    struct calls *calls;
    struct gpu_string *strings;
    size_t string_capacity;
    struct map thread_ids, stream_ids; // to numbers
    uint32_t *threads;                 // rows
    struct gpu_stream *streams;
    uint32_t thread_count, stream_count;
    struct gpu_device devices[GPU_CONTEXTS_MAX];
    uint32_t device_count;
    struct op *raw; // waiting for a clock sample
    uint32_t raw_count, raw_capacity;
    int64_t raw_since_ns;
    uint32_t peeks;
    uint64_t peek_bytes_left;
    bool peeking;
    struct gpu_counters counters;
};

struct gpu_target {
    uint32_t kind, stream, kernel, graph; // rows
    int64_t bytes, memory;                // BATCH_NULL: none
    uint64_t graph_node;
    uint32_t last_name, last_tid, last_work; // most are launched by one call of one thread
    uint32_t next;                           // what came after it the last time
};

struct held {
    int64_t arrived_ns;
    uint32_t process;
    union {
        struct ug_rec_head head;
        struct ug_rec_sync sync;
        struct ug_rec_memory memory;
        struct ug_rec_range range;
        struct ug_rec_overhead overhead;
    } record;
};

struct open_range {
    int64_t start_ns;
    uint64_t id;
    uint32_t process, tid, name, domain;
};

struct gpu_recorder {
    struct store *store;
    struct gpu_callbacks callbacks;
    int64_t recording_id, launch_id;
    bool has_launch, stopped;
    uint32_t kinds;
    struct batch *batch;
    struct gpu_process *processes[GPU_PROCESSES_MAX];
    uint32_t process_count;
    int64_t now_ns, heartbeat_next_ns, commit_next_ns;
    int64_t call_slots_left, raw_left;
    struct intern *target_ids, *work_ids, *kernel_ids;
    // of a generation each, by the low bits of a target's number
    struct gpu_target *targets[GPU_GENERATIONS];
    size_t target_capacity[GPU_GENERATIONS];
    uint32_t generation, target_last; // slot of the present one; the last number in it
    uint32_t *works, *kernels;        // rows
    size_t work_capacity, kernel_capacity;
    bool failed;
    int64_t work_last, kernel_last, stream_last, unknown_string;
    struct op *ops, *ops_sorted;
    struct op_key *keys; // 2 x GPU_OPS_MAX
    uint32_t op_count;
    int64_t op_min_ns;
    bool ops_unsorted;
    struct held *held; // a ring
    uint32_t held_first, held_count;
    struct open_range ranges[GPU_RANGES_MAX];
    uint32_t range_count;
    uint64_t rows_kernels, rows_copies, rows_graphs, rows_nccl, rows_stacks, rows_others;
};

// names.c
int gpu_names_new(struct gpu_recorder *gpu, struct error *err);
void gpu_names_free(struct gpu_recorder *gpu);
// strings, devices, streams, threads
void gpu_define(void *process, const struct ug_rec_head *record);
int64_t gpu_text_row(struct gpu_recorder *gpu, const char *text); // 0: cannot be written
// Another thread may have published what we want in a segment that this drain has passed.
void gpu_names_peek(struct gpu_process *process);
const struct gpu_string *gpu_string(struct gpu_process *process, uint32_t id); // row 0: not known
// 0: none; "[unknown]" where it is lost
uint32_t gpu_string_row(struct gpu_process *process, uint32_t id);
uint32_t gpu_thread_row(struct gpu_process *process, uint32_t tid); // 0: not known
uint32_t gpu_stream_row(
        struct gpu_process *process, uint32_t device, uint32_t context, uint32_t stream);
// UINT32_MAX: not known
uint32_t gpu_context_device(const struct gpu_process *process, uint32_t context);

// names.c
// The number of a key of words, made when it is new. INTERN_NONE: `max` are known, and it is none
// of them.
uint32_t gpu_number(
        struct intern *intern, const uint64_t *key, size_t words, uint32_t max, bool *ret_new);

// work.c
// What was launched; the same thing has the same number while it is remembered.
uint32_t gpu_target_kernel(struct gpu_process *process, const struct ug_rec_kernel *kernel);
uint32_t gpu_target_copy(struct gpu_process *process, const struct ug_rec_copy *copy);
uint32_t gpu_target_graph(struct gpu_process *process, const struct ug_rec_graph *graph);
int64_t gpu_work_row(struct gpu_recorder *gpu, const struct op *op);

// ops.c
int gpu_ops_new(struct gpu_recorder *gpu);
void gpu_ops_free(struct gpu_recorder *gpu);
void gpu_op_add(struct gpu_process *process, struct op *op, uint64_t start_gpu, uint64_t end_gpu);
void gpu_ops_clocked(struct gpu_process *process, bool all); // a sample came
void gpu_ops_write(struct gpu_recorder *gpu, int64_t before_ns);
// writes all that name a target of it
void gpu_ops_forget(struct gpu_recorder *gpu, uint32_t generation);

// records.c
void gpu_record(void *process, const struct ug_rec_head *record);
void gpu_held_write(struct gpu_recorder *gpu, bool all);
void gpu_call_given_up(void *process, const struct call *call);
void gpu_ranges_end(struct gpu_recorder *gpu);
void gpu_write_all(struct gpu_recorder *gpu); // nothing is held back any more

// ledger.c
void gpu_process_row(struct gpu_process *process);
void gpu_ledger(struct gpu_recorder *gpu);
uint64_t gpu_process_dropped(const struct gpu_process *process);

#endif
