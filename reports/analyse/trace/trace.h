// SPDX-License-Identifier: Apache-2.0
// A recording in memory: compact arrays in place of rows, ids replaced by indexes, each thread's
// gaps and samples side by side in the order of time. Times are cut to the windows that count. Read
// only after trace_load; one owner thread.
#ifndef UPGATE_TRACE_H
#define UPGATE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/events.h"
#include "common/containers/arena.h"
#include "common/error.h"
#include "reports/analyse/trace/marks.h"
#include "tracer/store/store.h"

#define TRACE_NONE UINT32_MAX // no thread, no gap, no sample
// Nanoseconds: 9 years. What the windows, the gaps and the waits for locks of a recording sum up to
// is below; beyond, the store is damaged. A tenth of what overflows, as shares are taken of sums
// times 10.
#define TRACE_SUM_END ((int64_t)1 << 58)

enum trace_kind { TRACE_TARGET, TRACE_OTHER, TRACE_KERNEL, TRACE_IDLE };

struct trace_process {
    int64_t id;
    int64_t started_ns, ended_ns; // 0: not seen
    int64_t exit_code;            // wait status; -1: not known
    const char *comm, *cmdline;   // cmdline NULL: none
    int32_t tgid, ppid;
    uint32_t parent; // process; TRACE_NONE
    uint32_t leader; // its main thread; TRACE_NONE
    enum trace_kind kind;
    bool python, compiler;
    int64_t python_read_ns; // since then the recorder could read its interpreter; INT64_MAX: never
    bool own;               // upgate itself: never to blame
    bool has_library;       // ours is in it
    bool told_rank;         // by its launcher
    int64_t start_ns;       // as the store has it: tells a pid that was given out again
    int32_t rank, ranks;    // of a job; -1: none
    uint32_t node;          // of trace.nodes; 0 where there are none
};

struct trace_node { // of several whose shards were merged
    const char *host;
    int64_t process_first, process_last; // ids
    int cpu_first;                       // what was added to the numbers of its CPUs
    int64_t error_ns;                    // of its clock; -1: not known
};

struct trace_thread {
    int64_t id;
    const char *comm;
    uint32_t process;
    int32_t tid;
    uint32_t gap_first, gap_count;
    uint32_t sample_first, sample_count;
    uint32_t lock_first, lock_count;
    int64_t run_ns; // on the CPU, as well as it is known
    bool real_time; // was seen with a real-time priority
    bool main;      // its process's first thread
    bool leads;     // a working main thread; without any, a working thread
    bool working;   // does a real share of the work: its waits can be stalls
    bool paces;     // where GPUs were loaded: they have to do what it launches
    bool own;       // of our library in the target: neither victim nor culprit
};

struct trace_frame {
    const char *name, *module;
    int32_t line;
    char kind;   // of the stacks it was seen in: 'k', 'u', 'p'
    bool starts; // it has no name, and the address that it is told by is where it begins
};

struct trace_stack {
    uint32_t first, count; // in stack_frames, leaf first
    struct marks marks;
    uint32_t id; // of table stack
    char kind;   // as of its frames
};

struct trace_gap {
    int64_t out, waking, in; // waking 0: runnable all the time
    int64_t lock_address, arg0;
    uint32_t thread, flags, state;
    uint32_t kernel, user, python, waker_stack; // stacks; 0: none
    uint32_t waker, next, before, owner;        // threads
    uint32_t target;                            // of the system call, in texts; 0: none
    int32_t syscall;                            // -1: none
    int16_t cpu_in, next_prio, before_prio;     // -1: not known
    uint8_t lock_kind;
};

struct trace_sample {
    int64_t at;
    uint32_t thread, kernel, user, python;
    int16_t cpu;
    uint16_t why;
};

struct trace_lock {
    int64_t begin, end, address;
    uint32_t thread, owner, kernel, owner_stack;
    uint32_t owner_flags; // UG_GAP_OWNER_* as in a gap
    uint8_t kind;
};

struct trace_fact {
    int64_t begin, end, value[4];
    uint32_t target, actor, kernel;
    int32_t cpu, what;
    uint32_t flags;
};

struct trace_counter {
    int64_t at, value;
    const char *source, *name;
};

struct trace_window {
    int64_t begin, end;
};

struct trace_throttle { // cpu.stat counted a throttling in it
    int64_t begin, end;
    int32_t rank; // of whose cgroup; -1: of the target's
};

struct trace_nccl { // a collective on one rank
    // kernel_begin, kernel_end 0: not told
    int64_t enqueued, kernel_begin, kernel_end, communicator, sequence;
    uint32_t process;
    int32_t ranks; // of the communicator
};

struct trace_send {                                 // or what is received
    int64_t kernel_begin, kernel_end, communicator; // 0: not told
    uint32_t process;
    int32_t from, to; // ranks of the communicator
    bool sends;       // this side does; else it receives
};

struct trace_connection { // what went over one between two processes of the target, one way, for
                          // some time
    int64_t begin, end, bytes, retransmits;
    double underway; // the share of that time in which something had not come that had been sent,
                     // and was waited for
    uint32_t sender, receiver; // processes
};

struct trace_kernel { // of one process, over the recording
    const char *name;
    int64_t ns;
    uint32_t process;
};

struct trace_busy {              // of the GPUs of a process
    struct trace_window *spans;  // with something else to do than to communicate, or, as
                                 // trace_busy.c says, with no more to do, by begin
    struct trace_window *blocks; // its host waited for them, in a call; by begin, without overlaps
    size_t count, block_count;
};

enum { TRACE_WORK_KERNEL = 0, TRACE_WORK_GRAPH = 1, TRACE_WORK_COPY = 16, TRACE_WORK_SET = 80 };

struct trace_work {   // table gpu_work: what was launched, on which stream, by which call
    int64_t id, kind; // kind: TRACE_WORK_*
    int64_t stream_id, process_id, thread_id, kernel_id; // 0: not known; no kernel
    const char *kernel, *call;                           // NULL: none, not known
    int64_t bytes;                                       // of copies and sets; -1: none
    int64_t shared_bytes;                                // from here on of kernels
    int32_t grid[3], block[3], registers;
};

struct trace_call {                             // table gpu_call
    int64_t process_id, thread_id, correlation; // thread_id 0: not known
    int64_t begin, ns;
    const char *name; // NULL: not known
};

struct trace_device { // a GPU of a process
    uint32_t process;
    int32_t device;          // as the process numbers them
    const char *uuid, *name; // "": not known
    int64_t streams;         // that it used there; 0: none was seen
};

// What a look at a recording that goes on has read of it, so that the next one reads only what came
// since.
struct trace_cache;

struct trace {
    struct arena *arena;
    int64_t recording_id, launch_id; // launch_id 0: none
    int64_t threshold_ns, tick_ns;   // tick 0: no samples
    int64_t short_ns;                // 0: no shorts
    int64_t from_ns;                 // what ended before was not loaded; INT64_MIN: all was
    bool is_whole;                   // it begins where the recording does
    struct trace_cache *cache;       // rows of the look before; NULL: each row is read
    int64_t counters_before;         // rows of table counter up to this one are too old
    enum marks_machine machine;      // that was recorded
    struct trace_window *windows;
    size_t window_count;
    int64_t window_ns;               // together
    int64_t startup_end, exit_begin; // of the work, within the windows; 0: they are all work there
    struct trace_node *nodes;
    struct trace_process *processes;
    struct trace_thread *threads;
    struct trace_frame *frames;
    uint32_t *stack_frames;
    struct trace_stack *stacks; // [0] is empty
    struct trace_gap *gaps;
    struct trace_gap *shorts; // UG_GAP_SHORT: each stands for short_ns of the thread's gaps below
                              // the threshold; in the order of the store
    struct trace_sample *samples;
    struct trace_sample *outside; // of a launch that took turns: those outside of the windows, its
                                  // start-up among them; as they were read
    uint32_t *cpu_samples;        // indexes of samples, by CPU and time
    uint32_t *cpu_first;          // [cpu_count + 1]
    struct trace_lock *locks;
    struct trace_fact *facts; // by begin
    struct trace_counter *counters;
    struct trace_throttle *throttles; // by rank and begin
    struct trace_window *steps;       // begin, end
    int32_t *step_ranks;              // [step_count]: whose
    struct trace_nccl *nccl;
    struct trace_send *sends;             // each process's as they were enqueued
    struct trace_connection *connections; // of a store from before version 11, or where the kernel
                                          // did not tell: none
    struct trace_busy *busy;              // of each process
    struct trace_kernel *kernels;         // where ranks communicate by NCCL: all but collectives
    // Of each process spans in which one of its GPUs had anything to do, communication as well, but
    // for what lies between two operations of a queue; without overlaps. None: it was not recorded,
    // or much of it was lost. NULL: not loaded.
    struct trace_busy *gpus;
    struct trace_device *devices; // each process's side by side, the one with most streams first
    bool gpus_lost;               // records of what they did
    bool from_start;              // the target was started to be recorded
    const char **texts;
    size_t device_count, node_count, nccl_count, send_count, connection_count, kernel_count,
            process_count, thread_count, frame_count, stack_count, stack_frame_count, gap_count,
            short_count, sample_count, outside_count, cpu_count, lock_count, fact_count,
            counter_count, throttle_count, step_count, text_count;
};

struct trace_cache *trace_cache_new(void);
void trace_cache_free(struct trace_cache *cache); // NULL ok

// A recording of a store; 0: the first one. -ENOENT: there is none. Strings are the arena's.
int trace_load(struct store *store, int64_t recording_id, struct arena *arena,
        struct trace **ret_trace, struct error *err);
// Its last so many nanoseconds only, of a recording that may be going on; 0: all. What is older is
// not read, nor what was read for the look before, which is in `cache`; NULL: there was none.
int trace_load_last(struct store *store, int64_t recording_id, int64_t last_ns,
        struct trace_cache *cache, struct arena *arena, struct trace **ret_trace,
        struct error *err);
// Has --max-size deleted the oldest seconds? No ledger says so where the recorder was killed, nor
// in a copy that was made while it went on: rows that are numbered from 1 are gone from the front.
// To be asked of a store of `upgate record`.
int trace_was_trimmed(struct store *store, int64_t *ret_trimmed, struct error *err);
// Ranks of a job, collectives of NCCL, when GPUs were busy: after trace_load, by who asks about
// them.
int trace_load_ranks(struct trace *trace, struct store *store, struct error *err);
// The GPU that a process uses most; NULL: none was seen. After trace_load_ranks.
const struct trace_device *trace_device_of(const struct trace *trace, uint32_t process);
// What GPUs did, where trace_load_ranks has not loaded it, as there are no ranks that communicate
// by NCCL.
int trace_load_gpus(struct trace *trace, struct store *store, struct error *err);
// Did NCCL tell when the kernels of its collectives began? Of few that was lost.
bool trace_nccl_kernels(const struct trace *trace);
bool trace_nccl_few(size_t lost, size_t all); // are these few?
// Pieces of [*begin, end) in which it is not busy, one a call; false: none is left. *at:
// trace_idle_from(busy, *begin) at first.
size_t trace_idle_from(const struct trace_busy *busy, int64_t begin);
bool trace_idle(const struct trace_busy *busy, size_t *at, int64_t *begin, int64_t end,
        struct trace_window *ret_piece);
// Within what the clocks under two processes are known against each other: 0 on one node; -1: not
// known.
int64_t trace_residual_ns(const struct trace *trace, uint32_t process, uint32_t other);
// NULL: the machine that was recorded
const char *trace_host_of(const struct trace *trace, uint32_t process);
// cpu_in, as its node numbers it
int trace_cpu_of(const struct trace *trace, const struct trace_gap *gap);
// Of how many nodes the clocks are not known against those of the others; 0 on one node.
size_t trace_clocks_unknown(const struct trace *trace);
// Of which libraries the stores that were read have one build: there the address of a function
// without a name means the same in all of them.
struct trace_builds *trace_builds_new(void);
void trace_builds_free(struct trace_builds *builds); // NULL ok
int trace_builds_read(struct trace_builds *builds, struct store *store, struct error *err);
bool trace_builds_one(const struct trace_builds *builds, const char *module); // module: NULL ok
// Leaves `starts` only of such libraries of the store.
int trace_keep_starts(struct trace *trace, struct store *store, struct error *err);
// Works of a recording, 0: all of the store, by their ids; strings live until take returns.
int trace_works_read(struct store *store, int64_t recording_id,
        void (*take)(void *arg, const struct trace_work *work), void *arg, struct error *err);
// The same of calls, in the order of the table.
int trace_calls_read(struct store *store, int64_t recording_id,
        void (*take)(void *arg, const struct trace_call *call), void *arg, struct error *err);
// A text of table string, in the arena; *ret_text NULL: there is none. err NULL: store_failed()
// tells.
int trace_read_text(struct store *store, int64_t id, struct arena *arena, const char **ret_text,
        struct error *err);
// One stack of the store, of whatever recording, in the arena; count 0: there is none. err NULL:
// likewise.
enum { TRACE_NAMES_MAX = 128 }; // recorders keep 127
struct trace_name {
    const char *name, *module; // module NULL: not known
};
struct trace_names {
    struct trace_name functions[TRACE_NAMES_MAX]; // leaf first
    size_t count;
    char kind; // as trace_frame
};
int trace_read_stack(struct store *store, int64_t id, struct arena *arena, struct trace_names *ret,
        struct error *err);
// What the function at that depth of a stack is inside of (names.h), in the trace's arena; NULL: it
// has a name, or that is not known either.
const char *trace_inside(const struct trace *trace, uint32_t stack, uint32_t depth);
// The same of the leaf of a row of table stack, of whatever recording. The caller's.
char *trace_leaf_inside(struct store *store, int64_t stack_id);
void trace_free(struct trace *trace); // NULL ok; the arena stays

// For qsort(), of whole numbers: -1, 0, 1. By several: trace_order(a->rank, b->rank) ?:
// trace_order(a->begin, b->begin).
static inline int trace_order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}
static inline bool trace_is_target(const struct trace *trace, uint32_t thread)
{
    return thread != TRACE_NONE && !trace->threads[thread].own &&
            trace->processes[trace->threads[thread].process].kind == TRACE_TARGET;
}
static inline struct marks trace_marks(const struct trace *trace, uint32_t stack)
{
    return trace->stacks[stack].marks;
}
// Of the kernel's stack of a gap, or, where there is none, of its system call.
static inline struct marks trace_kernel_marks(
        const struct trace *trace, const struct trace_gap *gap)
{
    return gap->kernel && trace->stacks[gap->kernel].count
            ? trace_marks(trace, gap->kernel)
            : marks_of_syscall(trace->machine, gap->syscall);
}
// A stack of the store that rows of the recording have; 0: none of them. Not after trace_load_last.
uint32_t trace_stack_of(const struct trace *trace, int64_t id);
// First sample of the thread at or after a time: an index below sample_first + sample_count, or
// that sum.
uint32_t trace_sample_from(const struct trace *trace, uint32_t thread, int64_t at);
// First gap of the thread that ends after a time.
uint32_t trace_gap_from(const struct trace *trace, uint32_t thread, int64_t at);
// First fact that begins at or after a time.
size_t trace_fact_from(const struct trace *trace, int64_t at);
// The same among cpu_samples.
uint32_t trace_cpu_sample_from(const struct trace *trace, int cpu, int64_t at);
// Samples of the thread from begin to end, times the length of a tick: its time on the CPU there.
int64_t trace_ran_ns(const struct trace *trace, uint32_t thread, int64_t begin, int64_t end);

// Also of what others load beside it.
struct trace_ids { // id of the store -> index
    int64_t min;
    size_t span;
    uint32_t *index; // of id - min, plus 1; 0: none. Untouched where there is none
};
uint32_t trace_ids_find(const struct trace_ids *ids, int64_t id); // TRACE_NONE: not there
void trace_ids_build(struct trace_ids *ids, const void *rows, size_t count,
        size_t size); // rows begin with the id
// Rows of `size` bytes side by side by the number below `groups` at `offset`, a thread or a CPU,
// and in order within it: starts[group] and starts[group + 1] bound a group's. Frees rows, returns
// the new ones. *ret_sorted: they were in order already; NULL ok.
void *trace_group(void *rows, size_t count, size_t size, size_t offset, size_t groups,
        uint32_t *starts, int (*compare)(const void *, const void *), bool *ret_sorted);
// qsort, when they are not in order already (then true).
bool trace_sort(void *rows, size_t count, size_t size, int (*compare)(const void *, const void *));
bool trace_clip(const struct trace *trace, int64_t *begin,
        int64_t *end); // the longest piece inside; false: none

#endif
