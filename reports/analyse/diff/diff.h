// SPDX-License-Identifier: Apache-2.0
// Where the difference of a workload's step time comes from: decomposition of both sides,
// contributions with intervals that sum to the difference measured on the untraced launches,
// evidence and suspects. Reads the store only; the same store gives the same answer. Times are ns
// of one step (of one request, of one launch: unit), positive differences = the candidate is
// slower.
#ifndef UPGATE_DIFF_DIFF_H
#define UPGATE_DIFF_DIFF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/diff/align/align.h"
#include "reports/analyse/diff/evidence.h"
#include "reports/analyse/diff/facts.h"
#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/diff/suspect.h"
#include "reports/analyse/slow_steps.h"
#include "tracer/store/store.h"

enum diff_kind { // words: INTERFACES, upgate.diff/1
    DIFF_KERNEL_SLOWER,
    DIFF_KERNEL_ADDED,
    DIFF_KERNEL_REMOVED,
    DIFF_KERNEL_REPLACED,
    DIFF_CPU_FUNCTION_SLOWER,
    DIFF_CPU_FUNCTION_ADDED,
    DIFF_CPU_FUNCTION_REMOVED,
    DIFF_CPU_FUNCTION_REPLACED,
    DIFF_HOST_STALL,
    DIFF_LAUNCH_GAP,
    DIFF_SYNC_ADDED,
    DIFF_MEMCPY,
    DIFF_COMM_EXPOSED,
    DIFF_DATA_WAIT,
    DIFF_PYTHON_OVERHEAD,
    DIFF_COMPILE,
    DIFF_COLD_START,
    DIFF_MEMORY_ALLOC,
    DIFF_CLOCK_THROTTLE,
    DIFF_PARALLELISM,
    // the next six: with all that they cause
    DIFF_CODE_UNCOMPILED, // what torch.compile had compiled runs operator by operator
    DIFF_CODE_COMPILED,   // the other way round
    DIFF_CODE_ADDED,
    DIFF_CODE_REMOVED,
    DIFF_CODE_REPEATED,
    DIFF_CODE_MOVED,
    DIFF_NATIVE_CODE, // of a place; one side has no names for its functions
    DIFF_KIND_COUNT
};
const char *diff_kind_word(enum diff_kind kind); // "kernel_slower"
// uncompiled to moved: told with all that it causes
bool diff_kind_is_code(enum diff_kind kind);

struct diff_contribution_part {
    enum diff_kind kind;
    const char *label;
    double a_ns, b_ns;
};

struct diff_beside {
    const char *name, *label; // "AllReduce f32 / RING LL"; label: short
    bool collective;
    double share[2]; // of its time in which that ran too, on the same device; of a, of b
    bool told[2];    // that is worth a word
};

struct diff_contribution {
    int rank; // 1 = first: those named that go as the step does, the other way, not named; each by
              // size
    enum diff_kind kind;
    const char *name_a, *name_b; // NULL: not on that side. Whole names
    const char *label;           // short, for people
    const char *where;           // "backward > layers.*.attn"
    double a_ns, b_ns;           // on the path, a step
    // at 99 % for all contributions together; NAN: one traced pair gives none
    double delta_ns, ci_lo_ns, ci_hi_ns;
    double share; // of the baseline's step
    bool named;   // its interval leaves out 0 and it is worth a line: what is not named is noise
    bool few; // not named for want of traced launches: more of them, that differ as little, would
              // tell it
    double count_a, count_b;     // executions a step; of sampled functions NAN
    double busy_a_ns, busy_b_ns; // NAN: as a_ns
    const struct diff_evidence *evidence;
    size_t evidence_count;
    const struct diff_suspect *suspects; // best first
    size_t suspect_count;
    // of the alignment
    const uint32_t *groups;
    size_t group_count;
    // Of one that is spread over a place, no part of which is told from noise alone: what it is
    // spread over, what adds most to it first. kind is that of most of it.
    struct diff_contribution_part *parts;
    size_t part_count;
    // Of kernels: what ran beside them, most first, and whether the collectives among it changed
    // with the sides.
    struct diff_beside *beside;
    size_t beside_count;
    bool beside_changed;
    const char *beside_cause; // the collective beside them that made them slower: those alone are
                              // as before. NULL
};

enum diff_change diff_change_of(const struct diff_contribution *contribution);

struct diff_part { // of the decomposition
    double a_ns, b_ns;
};

struct diff_straggler { // of the side's first traced launch; judged by all of them
    int32_t rank;
    int side;
    int64_t last_count, collectives;
    double late_ns, wait_ns;
    double exposed_ns; // of wait_ns, what nothing on the others' devices hid
    bool told; // last more often than its share, or than on the other side, and it costs something:
               // else it is noise
    double excess, variance; // of last_count beyond its share, over all launches
    double cost_ns;          // mean exposed_ns of all launches
    size_t launches, ahead;  // in which it came last at all; more often than its share
    enum diff_deed deed;     // what it did meanwhile:
    const char *why;         // "gemm"; NULL: not known
    const char *why_name;    // of it, as in the trace: not made short
    double why_ns;           // by how much longer it did that than the other ranks, a step; NAN
};

// Collectives of one function, type and class of sizes: NULL, NAN: not on that side.
struct diff_collective {
    const char *name; // "AllReduce f32"
    const char *size; // "1 to 16 MiB"; "": not told
    // algorithm and protocol: "RING LL", with several the ones that took most first; "": not told
    const char *how[2];
    // a step. busy: of its kernels, with what they wait for each other
    double count[2], busy_ns[2], exposed_ns[2];
};

// A part of the first steps, or of the slow ones, that every traced launch of one side has more of
// than every one of the other.
struct diff_launch_part {
    struct diff_contribution contribution; // no interval; groups say nothing
    double *launch_ns[2];                  // of each traced launch, by side
    size_t launch_count;
};

struct diff_once_place {
    const char *name; // NULL: the others together
    double a_ns, b_ns;
    size_t others; // how many; of a name 0
};

// What each launch has once, and what is in no contribution of the others: its first step; its CPU
// time, of all threads and processes. What of it every traced launch of the candidate spends more
// on, or less, than every one of the baseline. Scaled to the untraced launches. Places of CPU time:
// the phases of the threads that make steps, "thread NAME" of all others.
struct diff_once { // all 0: its difference is not told from 0, or from that of all steps
    // largest first
    struct diff_launch_part *parts;
    size_t part_count;
    // outermost ones, as they come; of many those that differ most, and the others in one
    struct diff_once_place *phases;
    size_t phase_count;
    enum diff_once_why why_not; // there are no parts
    size_t pairs;
    struct cost_tree *trees[2]; // hold names
};

// What rare slow steps, or the slowest requests, have that the typical ones of the same launch have
// not: of the candidate's less of the baseline's. Of a workload of which slow_steps, mean_step_time
// or latency_p99 fails, is open or told from 0, and the typical step is not why. All 0: none of
// them.
struct diff_slow {
    const char *metric;  // that asks; NULL: none
    bool failed, open;   // its cell; open: is inconclusive. Neither: it passes, and is told from 0
    bool typical_failed; // so did the cell of the typical step
    bool tail; // the slowest requests: times are beyond a typical one, of one of them. Else what
               // the mean step loses
    double a_ns, b_ns; // of all launches; scaled as all else
    // the same of each traced launch
    double *launch_ns[2];
    size_t launch_count;
    struct slow_steps_sum found[2]; // how many, how slow, how regular
    // largest first, also what goes the other way; shares are of b_ns - a_ns, or of all parts that
    // go the same way, where they are more
    struct diff_launch_part *parts;
    size_t part_count;
    double told_ns;    // of b_ns - a_ns: in parts
    double unseen_ns;  // and while nothing was seen to run
    const char *where; // the place of four fifths of it; "": none, or the launches overlap; NULL:
                       // no parts
    bool overlaps; // in sum the launches of the sides do: told are the parts that stand apart by
                   // more than their own spread
    enum diff_slow_why why_not; // there are no parts
};

enum diff_memory_kind { // as launch_memory.kind
    DIFF_MEMORY_FILE,
    DIFF_MEMORY_HEAP,
    DIFF_MEMORY_ANONYMOUS,
    DIFF_MEMORY_STACK,
    DIFF_MEMORY_SHARED,
    DIFF_MEMORY_OTHER,
    // and of a GPU's: what tensors held at most, what the framework's allocator reserved beyond
    // that (or all of it, where tensors are
    // not told), what was allocated past it
    DIFF_MEMORY_TENSORS,
    DIFF_MEMORY_RESERVE,
    DIFF_MEMORY_ALLOCATOR,
    DIFF_MEMORY_DIRECT,
    DIFF_MEMORY_KIND_COUNT
};
const char *diff_memory_word(enum diff_memory_kind kind); // "file"

struct diff_memory_part { // means of the traced launches; 0: not there
    enum diff_memory_kind kind;
    const char *name; // of a file, without its version: what both sides' have in common; "": the
                      // smallest ones together, or no file
    const char *name_a, *name_b; // of the largest such file; NULL: not on that side
    double a_bytes, b_bytes;
    double anonymous_bytes[2]; // of them, in no file (any more)
    bool told; // every launch of one side has more than every one of the other, and by what is
               // worth a line
};

// Memory by the code that touched it first, of what was resident where the launches stood still
// last: means of them. Of the pages between two sampled faults each half belongs to the nearer one.
// Of a GPU's memory: by the code that allocated what was held at its peak.
struct diff_touch {
    // the innermost Python function that says something: "Adam.step", "torch/optim/adam.py"; NULL
    // of a GPU's memory the module of the model, "backward of layers.*.attn", or the call,
    // "cuMemAlloc"; no file
    const char *caller, *caller_file;
    const char *outside, *outside_file; // who called into that package: "train", "train.py"; NULL:
                                        // the same package, or nobody
    const char *function, *module; // the native function that touched more than half of it, short;
                                   // NULL: none did, or the caller itself
    bool loads;                    // function is no function, but the library that was being loaded
    double a_bytes, b_bytes;
    double start_bytes[2]; // of them, before the first step
    size_t samples[2];     // page faults (or allocations) that say so, of all launches
    bool told; // a tenth of the peaks' difference, and more than launches of a side differ by
};

// Where the memory is, of a workload whose peak_memory differs beyond its margin; or whose
// peak_gpu_memory fails, is open, or is told from 0. All 0: it does not, or no launch was traced.
struct diff_memory {
    bool gpu;                          // it is peak_gpu_memory
    bool failed;                       // the cell
    bool time_failed;                  // so did a gated cell that is not of memory
    double peak_a_bytes, peak_b_bytes; // of the untraced launches, as judged
    double held[2]; // mean of the traced launches where they stood still last: what the parts sum
                    // to. Of a GPU's: the most that a process allocated, or that its allocator
                    // reserved, whichever is more
    double peak[2]; // and their peaks
    size_t launches[2];
    // those told first, losses then gains, each by size
    struct diff_memory_part *parts;
    size_t part_count;
    size_t told_count;
    double more_bytes, less_bytes; // what is told of them, by sign
    // as parts; none: nobody watched
    struct diff_touch *touches;
    size_t touch_count;
    size_t touch_told_count;
    double touch_more_bytes, touch_less_bytes;
    double seen[2]; // of held, whose first touch is known
};

struct diff_row { // every function, kernel, stall, aligned: the table of the report
    const char *label, *name_a, *name_b, *where;
    enum cost_kind kind;
    enum cost_class class;
    enum align_match match;
    double a_ns, b_ns, busy_a_ns, busy_b_ns, count_a, count_b; // a step; NAN: not on that side
};

struct diff_workload {
    const char *name, *unit; // "step", "request", "launch"
    enum diff_unexplained unexplained;
    double step_a_ns, step_b_ns, delta_ns, delta_lo_ns, delta_hi_ns; // untraced; NAN = not measured
    double traced_ratio[2];                                          // traced over untraced
    double match_coverage;
    double residual_ns;    // of the step's difference, in no contribution
    double unaccounted[2]; // of a step: in no class (samples missing); a share of the step
    size_t traced_pairs, windows[2];
    struct diff_part parts[COST_CLASS_COUNT];
    // all, by rank
    struct diff_contribution *contributions;
    size_t contribution_count;
    double slower_ns, faster_ns; // what is named of them, by sign; NAN: nothing is explained
    struct diff_row *rows;
    size_t row_count;
    struct diff_straggler *stragglers;
    size_t straggler_count;
    // largest first
    struct diff_collective *collectives;
    size_t collective_count;
    const char *nccl_version[2]; // that ran: "2.28.3"; NULL: not known
    // of the stragglers: the difference is that others wait for it; NULL: it is not
    const struct diff_straggler *late;
    const struct diff_note *notes; // what weakens the answer
    size_t note_count;
    double cold_a_ns, cold_b_ns; // first step; NAN
    double cpu_a_ns, cpu_b_ns;   // CPU time of a launch; NAN
    struct diff_once first, cpu;
    struct diff_slow slow;
    struct diff_memory memory, gpu_memory; // also of what is unexplained otherwise
    struct cost_tree *trees[2];            // NULL when unexplained
    struct alignment *alignment;
    // What the timeline shows (typical.c): launches of one traced pair, and in them
    int64_t launches[2];                        // 0: none
    int32_t couple;                             // a couple of blocks; -1: the windows
    size_t typical_window[2];                   // of each launch
    double typical_ns[2], typical_median_ns[2]; // its traced steps, and the median of all; NAN
};

struct diff {
    const char *side_names[2];
    struct diff_workload *workloads;
    size_t workload_count;
    struct arena *arena;
};

struct diff_opts {
    const char *workload; // NULL: all
    bool ignore_names;
};

// -ENOENT: no such workload (the error names those there are). -ENODATA: the store has one side
// only, or is no A/B run. A workload without traced launches is no error: unexplained says so.
int diff_analyse(struct store *store, const struct diff_opts *opts, struct diff **ret_diff,
        struct error *err);
void diff_free(struct diff *diff); // NULL ok

#endif
