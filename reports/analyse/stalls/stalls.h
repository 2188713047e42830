// SPDX-License-Identifier: Apache-2.0
// The stall analysis: who of the target was blocked, on what, by whom, how often. Reads a recording
// from the store (gaps, samples, lock waits, facts, counters), follows waits from thread to thread
// and from process to process, merges them into causes and ranks them by the time they cost. Pure:
// the same store gives the same answer. stalls_save writes the derived table `stall`.
#ifndef UPGATE_REPORTS_ANALYSE_STALLS_H
#define UPGATE_REPORTS_ANALYSE_STALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/stalls/reasons.h"
#include "tracer/store/store.h"

enum stall_limit {
    STALL_CHAIN_MAX = 8, // links followed from a victim to the end of the evidence
};

// Strings here and below belong to the struct stalls.
struct stall_task {
    bool known;
    int64_t thread_id; // in the store
    int32_t pid, tid;
    const char *comm;
    const char *process_comm; // of its process, whose name comm need not be
    const char *cmdline;      // NULL: a kernel thread, or gone before it could be read
    const char *kind;         // of table process: target, other, kernel, idle
};

// Leaf first. Python frames read "function (file.py:12)", functions without a name
// "libfoo.so+0x1234".
struct stall_stack {
    const char **frames;
    const char **inside; // what each function without a name is inside of: "at::_ops::index_add";
                         // NULL: not known. NULL: of none
    size_t count;
};

// The GPU that a rank uses most.
struct stall_gpu {
    bool known;              // else it has none that was recorded
    int32_t device;          // as its process numbers them
    const char *uuid, *name; // "GPU-1a2b3c4d-…", "NVIDIA H100"; "": not known
};

// "from waited for to via": one step of the way from the victim to the one to blame.
struct stall_link {
    struct stall_task from, to;
    enum stall_via via;
    const char *name; // of a pipe, socket or file; of a cause its identifier; NULL: none is known
    int cpu;          // as its node numbers it; -1: it is none, or not known
};

struct stall {
    const char *cause; // identifier of the table of causes, e.g. "smaps_read"
    const char *title; // "A monitor reads the smaps of the process"
    int64_t total_ns;  // wall time in which at least one thread lost time to it: never above the
                       // window
    int64_t max_ns;    // one thread at one go
    uint64_t count;    // episodes
    int64_t first_ns, last_ns; // begin of the first, end of the last
    bool has_period;
    int64_t period_ns;                                         // of the culprit's activity
    int64_t blocked_ns, run_queue_ns, preempted_ns, on_cpu_ns; // what total_ns was made of
    double confidence;                                         // 0 to 1
    unsigned doubts; // why it is below 1: of enum stall_doubt
    enum stall_meanwhile meanwhile;
    struct stall_task victim; // the thread that lost most
    size_t victim_threads;
    struct stall_stack victim_kernel, victim_user, victim_python;
    struct stall_task culprit;    // known == false: nobody to blame, or nobody seen
    bool culprit_own;             // it is of the victim's own process
    const char *culprit_function; // kernel function it was in, e.g. "show_smaps_rollup"; NULL
    struct stall_stack culprit_kernel;
    struct stall_resource resource;
    struct stall_link chain[STALL_CHAIN_MAX];
    size_t chain_count;
    bool has_steps;
    uint64_t steps_hit, steps_total;
    // Of a straggler, whose victims are all the others: victim.known is false.
    bool is_straggler;
    int32_t rank, ranks;  // the culprit's, of so many; -1: not known
    const char *host;     // where it runs; NULL: not known
    struct stall_gpu gpu; // of the rank
    struct stall_deed deed;
    struct stall_task late_by; // whose doing that is; known == false: nobody's, or nobody was seen
    bool stages;               // ranks send to each other, like the stages of a pipeline
    int64_t late_ns;           // the mean of one time
    int64_t more_ns;  // what it did more than the others, of that, in the mean; 0: not seen
    int64_t ranks_ns; // what all that waited lost together
    struct stall_stack culprit_user, culprit_python; // doing that
    double weight;                                   // what it is ranked by
};

struct stall_breach {
    const char *producer, *kind, *detail; // detail NULL: none
    int64_t count;
    bool events;  // what was lost are events, which may change the answer
    bool unended; // the recorder was killed: no detail
};

// How long a step of a job of several ranks would take if: its operations replayed
// (reports/analyse/replay). ns a step, in the mean; NAN: does not apply.
struct stall_what_if {
    bool known;
    enum stall_why_not why_not; // where it could be asked and not be answered
    const char *contradiction;  // in the words of reports/analyse/replay; NULL: of any other reason
    bool by_steps; // false: there are none; all between the first collective and the last is one
    int64_t steps; // that were replayed
    double measured_ns;
    double replayed_ns; // as it was
    size_t stragglers;  // that were named, and are taken out
    int32_t straggler;  // the worst one's rank; -1: not known
    double without_stragglers_ns;
    double even_ns;     // each rank takes what all of its stage take in the mean
    double instant_ns;  // communication takes no time
    double balanced_ns; // each stage of a pipeline has as much work
    double unsure_ns;   // what is not known of when ranks came, as they wait for less than the
                        // threshold
};

// Ranks of a job by time: for how long the others waited for each of them, part by part of the time
// of work.
struct stall_heat_row {
    int32_t rank, pid; // rank -1: not known
    const char *host;  // NULL: not known
    struct stall_gpu gpu;
    size_t of;            // ranks of the group that it was taken from; 1: it stands for itself
    bool worst;           // of those, by all its shares; else the one in the middle
    const double *shares; // [blocks]: of each part, 0 to 1
    double mean;          // of shares
};

struct stall_heat {
    size_t blocks; // equal parts of [begin_ns, end_ns); 0: nobody costs enough to be looked at, or
                   // it is not known who
    int64_t begin_ns, end_ns;
    bool by_work;                // instead: for how long each worked beyond the one in the middle
    size_t ranks, unknown;       // that were compared; besides, of whom it is not known
    struct stall_heat_row *rows; // by rank; of more than 64 two of each group, by node: the one in
                                 // the middle and the worst
    size_t row_count;
    struct stall_heat_row worst; // of all, the one with the largest share; in that part
    size_t worst_block;
};

struct stalls {
    int64_t recording_id;
    int64_t launch_id; // 0: none
    int64_t window_ns; // what the causes below are parts of: without startup_ns and exit_ns
    int64_t threshold_ns;
    size_t target_threads;
    struct stall *stalls; // worst first, by what the leading threads lost (working main threads)
    size_t count;
    // Of a program that was recorded from its start, what lies before the first step; of one that
    // ended, what lies behind the last. Where there are no steps collectives say when the work
    // began and ended. 0: nothing. Causes of their own, as shares of both.
    int64_t startup_ns, exit_ns;
    bool by_steps;
    struct stall *outside;
    size_t outside_count;
    const char *host; // where it was recorded; NULL: not known
    int64_t idle_ns;  // waits of threads with nothing to do, left out: event loops, pools
    struct stall_breach *breaches; // of the trust ledger: drops, missing sources
    size_t breach_count;
    struct stall_task quiet; // a main thread that hardly ran and waited for half of the window at
                             // one go: idle, or hung. known == false: there is none
    int64_t quiet_ns;        // that wait
    const char *quiet_function, *quiet_target; // where, and for which file; NULL: not known
    struct stall_what_if what_if;
    struct stall_heat heat;
    struct stall_missing *missing;
    size_t missing_count;
    void *memory; // the arena behind every string
};

struct trace_cache; // reports/analyse/trace

struct stalls_opts {
    int64_t recording_id; // 0: the only one, or the first
    double share_min; // causes below this share of the window are left out; 0 = 0.001, and a single
                      // stall of 100 ms counts in any window
    int64_t last_ns;  // of a recording that may be going on: its last so many nanoseconds; 0: all
    struct trace_cache
            *cache; // of the looks before at the same recording; NULL: each is the first one
};

// -ENOENT: the store has no such recording. A window without events gives count == 0, no error; a
// recording without an end (killed) is analysed up to its last event.
int stalls_analyse(struct store *store, const struct stalls_opts *opts, struct stalls **ret_stalls,
        struct error *err);
void stalls_free(struct stalls *stalls);

// What a row of table `stall` has in words, made by a renderer. Texts are freed by who asks.
struct stalls_words {
    char *(*advice)(const struct stall *stall); // names the knob; NULL: there is none
    char *(*detail)(const struct stall *stall); // the element of upgate.stalls/1
};

// Replace the rows of the recording in table `stall`; inside the caller's transaction.
ERROR_CHECKED int stalls_save(struct store *store, const struct stalls *stalls,
        const struct stalls_words *words, struct error *err);

// The table of causes, for docs/stall-causes.md and for the plants' answers.
struct stall_cause {
    const char *id, *title, *looks_like;
};
const struct stall_cause *stall_causes(size_t *ret_count);
const struct stall_cause *stall_cause_of(const char *id); // NULL: there is none

// Off-CPU time as folded stacks ("comm;outermost;...;leaf TIME_US" a line), for flame graph tools.
int stalls_folded(struct store *store, int64_t recording_id, void *stream,
        struct error *err); // FILE *

#endif
