// SPDX-License-Identifier: Apache-2.0
// Between the parts of diff_analyse: one workload on its way from the store to contributions.
// Internal to this room (and its unit tests). One owner thread; what lives longer than the job is
// in the arena of struct diff.
#ifndef UPGATE_DIFF_JOB_H
#define UPGATE_DIFF_JOB_H

#include <jansson.h>
#include <math.h>

#include "common/containers/arena.h"
#include "reports/analyse/diff/diff.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/trace/launch_trace.h"

enum { DIFF_LAUNCHES = 4 }; // traced ones of a side: the plan's default
enum { DIFF_NOTES_MAX = 40, DIFF_SUSPECTS_MAX = 5, DIFF_EVIDENCE_MAX = 12, DIFF_DEPTH_MAX = 64 };

// What launches that were not traced say (diff_measure.c). NAN: not measured.
struct diff_untraced {
    const char *unit; // "step", "request", "launch"
    double step[2], delta, lo, hi;
    bool mean;     // the mean step is compared: its change is another one than the median's
    double *ratios; // ln(b / a) of each pair
    size_t ratio_count;
    struct diff_untraced_once {
        double of[2], lo, hi; // bounds: of b - a
    } cold, cpu; // first step; CPU time of a launch, all threads
};

struct diff_pair {
    int64_t launch[2];
};

struct diff_parallel { // of the target's threads, means over launches
    double running;    // how many were on a CPU at a time
    double threads;    // did at least a twentieth of what the busiest one did
    int launches;
};

// What is compared with what: blocks of one couple, or runs of windows where launches took no
// turns.
struct diff_unit {
    uint32_t pair;
    int32_t couple; // or the number of the batch
    int side;       // -1: a couple, has both
    double steps[2], wall[2];
};

struct diff_units {
    struct diff_unit *units;
    size_t count;
    uint32_t *of_window[2]; // UINT32_MAX: left out
    double *steps[2];       // of each window, in units of what is compared
    double total_steps[2], total_wall[2];
    double scale[2]; // untraced over traced
    double step_half;  // of the step that all is scaled to: half of its interval, a share of it
    double distortion; // by how much tracing can have moved what it did not slow: a share
    size_t used[2], left_out;
    uint32_t pairs; // with units of both sides
};

struct diff_estimate {
    double a, b, delta;       // ns a step, scaled
    double variance, degrees; // of delta, by what launches of a side differ by; degrees 0: one launch a side
    double within;            // the same, by what windows within a launch differ by
    double squares;           // (a^2 + b^2) / launches of a side: variance, were it all of the size
    double step_half;   // what the untraced step's interval and unlike tracing of the sides add to half of the interval
    uint32_t units_hit; // in which it has any time
    double nearest;     // of the pairs' differences the one nearest to 0, 0 where signs differ
    bool agrees;        // every pair of launches says the same sign, and none next to nothing
};

enum { DIFF_PRIOR_KNOWN = 8 };

struct diff_prior { // what all contributions of a store say about the spread of one (diff_prior.c)
    double relative, scale; // variance: scale x (within + relative^2 x squares)
    double degrees;         // what it counts for; 0: nothing
    struct {
        double p, degrees, t;
    } known[DIFF_PRIOR_KNOWN]; // quantiles of t: slow, and few
    size_t next;
};

struct diff_launches; // diff_launches.c

// What a job explains. Of the last two intervals tell nothing, and nothing is summed by place.
enum diff_subject {
    DIFF_SUBJECT_STEPS,
    DIFF_SUBJECT_ONCE, // what a launch has once: one window of each
    DIFF_SUBJECT_SLOW  // slow steps: a few windows of each
};

struct diff_job {
    struct store *store;
    struct diff *diff;
    struct arena *arena; // of diff
    const struct diff_opts *opts;
    struct diff_workload *workload;
    int64_t workload_id;
    const char *mode;
    struct diff_untraced untraced;
    struct diff_pair *pairs;
    size_t pair_count;
    const uint32_t *first[2]; // cost_tree_finish
    struct diff_parallel parallel[2];
    double foreign[2]; // share of the traced time that other programs took, and that is left out
    bool has_gpu;
    enum diff_subject subject;
    const char **place_names[2]; // of nodes, made when they are asked for
    const bool *trunk[2];        // the same: see diff_trunk
    struct diff_units units;
    struct diff_prior *prior;
    const struct diff_launches *launches; // what diff_groups_add moves
    json_t *differences; // of the sides' fingerprints; NULL: not known
    const char *notes[DIFF_NOTES_MAX];
    size_t note_count;
};

// A sentence that weakens the answer; each is noted once.
void diff_note(struct diff_job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *diff_time(struct diff_job *job, double ns); // "4.2 ms"

int diff_measure(struct diff_job *job, struct error *err);
int diff_load_sides(struct diff_job *job,
                    struct error *err); // diff_side.c: fills the workload's trees
// False: there is nothing to compare. Needs trees, untraced numbers and has_gpu.
bool diff_units_make(struct diff_job *job);
void diff_units_clear(struct diff_units *units);
// step_half and distortion: the spread of the step from pair to pair, untraced and traced. diff_estimate.c
void diff_units_step(struct diff_job *job);
// ns[side][unit]: what one thing took, unscaled.
void diff_units_estimate(const struct diff_job *job, double *const ns[2],
                         struct diff_estimate *ret);
void diff_prior_learn(struct diff_prior *prior, const struct diff_estimate *const *things, size_t count);
// Half the width of the interval for one of `count` things told at once; NAN: none. 99 % for all: halves of 0.8 %
// for contributions and for places, 0.2 % for the step.
double diff_units_half(const struct diff_job *job, const struct diff_estimate *estimate, size_t count);
// The same, had many launches differed as these few do.
double diff_units_half_of_many(const struct diff_job *job, const struct diff_estimate *estimate,
                               size_t count);
// Could launches of two kinds that differ by as much have fallen so that each side has those of one kind, in one
// run of 200? An autotuner's choice stays for a launch. Not asked where the untraced step says the same sign.
bool diff_units_modes(const struct diff_job *job, double delta);

// One aligned group: what it is, and its place in the list of contributions.
struct diff_group {
    const struct align_group *group;
    enum diff_kind kind;
    uint32_t leaf;                           // that tells it best: the one that took most
    int side;                                // of leaf
    double a, b;                             // ns a step, scaled
    double busy_a, busy_b, count_a, count_b; // a step
    double launch_a, launch_b; // of a and b: waiting for launches that it owns; negative: given to those
    const char *name_a, *name_b;             // NULL: not on that side
    uint32_t native_place;                   // of DIFF_NATIVE_CODE: the place that both sides have, of tree b
};
// diff_launches.c: an operation that only one side has owns the waiting for its launches, where the
// device had nothing else. Moves it from the group of the waiting to the operation's.
void diff_launches_make(struct diff_job *job);
// Adds what moves to (or from) a group, per unit; NULL: no moves.
void diff_launches_add(const struct diff_job *job, const struct align_group *group,
                       double *const ns[2]);
// Stands on one side only, which has more executions of its name altogether: not the same work under another shape.
bool diff_launches_more(const struct diff_job *job, size_t group);
double diff_launches_sum(const struct diff_job *job, const struct align_group *group, int side);
// Does the host launch it or wait in it? Each execution is recorded then, not sampled.
bool diff_is_counted(const struct cost_node *leaf);
// Fills groups[alignment->count].
void diff_groups_make(struct diff_job *job, struct diff_group *groups);
// Sums the windows of a group per unit into ns[2][units.count].
void diff_groups_add(const struct diff_job *job, const struct align_group *group,
                     double *const ns[2]);
uint32_t *diff_groups_of(const struct diff_job *job, int side); // of each node its group; COST_NONE. The caller frees
void diff_contribute(struct diff_job *job); // contributions.c: contributions, rows, parts, residual
// diff_alike.c: what many groups show together (all kernels slower alike, threads lost) becomes
// their kind.
void diff_alike(const struct diff_job *job, struct diff_group *groups, size_t count);
void diff_collectives(struct diff_job *job); // diff_collectives.c: collectives and NCCL's versions
// diff_stragglers.c: who came last in a launch; and when all are in, who is told from noise.
void diff_stragglers_add(struct diff_job *job, const struct launch_trace *trace,
                         struct host_path *host, struct cost_tree *tree);
void diff_stragglers_judge(struct diff_job *job);
struct diff_straggler *diff_straggler_of(const struct diff_workload *workload, int side, int32_t rank);
// diff_late.c: whether the difference is one rank that comes late: workload->late, and evidence.
void diff_late(struct diff_job *job);
void diff_typical(struct diff_job *job); // what a timeline shows
// diff_first.c: the first step. Wanted where its untraced difference is told from 0; then launches
// are added to first.trees.
bool diff_first_wanted(const struct diff_job *job);
void diff_first_add(const struct launch_trace *trace, struct cost_tree *tree);
void diff_first(struct diff_job *job);
// diff_once.c: what each launch has once, from trees of a window of couple 0 a launch; of: of both sides, b - a within lo and hi; unit:
// "first step".
void diff_once(const struct diff_job *job, const char *unit, const struct diff_untraced_once *of, struct diff_once *ret);
// Values of launches by side: has every launch of the side that has more (delta > 0: b) more than every one of the other; wide: by more
// than launches of either side lie apart? One launch a side says nothing of that: false.
bool diff_launches_apart(double *const values[2], size_t count, double delta, bool wide);
int diff_launch_part_compare(const void *left, const void *right); // for qsort: largest first
// diff_cpu.c: the CPU time of a launch, where its untraced difference is told from 0 and from the step's; then ticks of all threads are
// added to cpu.trees.
bool diff_cpu_wanted(const struct diff_job *job);
void diff_cpu_add(const struct launch_trace *trace, struct cost_tree *tree);
void diff_cpu(struct diff_job *job);
// diff_slow.c: what slow steps (or the slowest requests) have that typical ones have not: fills workload->slow, where a cell asks.
int diff_slow(struct diff_job *job, struct error *err);
// Where the memory is (diff_memory.c): fills workload->memory, where peak_memory differs beyond its margin, and workload->gpu_memory.
int diff_memory(struct diff_job *job, struct error *err);
// diff_gpu_memory.c: the traced launches that told of their GPU memory, by id; the caller frees. Fills memory->touches with who
// allocated what was held at the peak, from so many bytes on, where every launch has recorded allocations.
struct diff_gpu_launch {
    int64_t id, step_ns;              // step_ns: when its first step began; INT64_MAX: it has none
    int side;
    double reserved, tensors, held;   // tensors, held: NAN: not told. held: most that a process had allocated at once
};
int diff_gpu_memory(struct diff_job *job, struct diff_memory *memory, double least, struct diff_gpu_launch **ret_launches, size_t *ret_count,
                    struct error *err);
// And who touched it (diff_touched.c): touches of the memory that is told, from so many bytes on.
int diff_touched(struct diff_job *job, struct diff_memory *memory, double least, struct error *err);
// The same of bytes whose code is known: the side of each launch, and what each one's code has. Groups, judges, fills touches.
struct diff_touch_given {
    size_t launch; // its number
    struct diff_touch touch; // its names; a caller decides which code is the same
    double bytes;
    bool start; // before the first step
};
void diff_touched_given(struct diff_job *job, struct diff_memory *memory, const int *sides, size_t launch_count,
                        const struct diff_touch_given *given, size_t count, double least);
// Who allocates on a GPU, of the two stacks of a thread (0: none): "Adam.step", "torch/optim/adam.py", else "fill", "libplant.so".
// NULL: they do not say.
int diff_touched_code(struct diff_job *job, int64_t user_stack, int64_t python_stack, const char **ret_function, const char **ret_module,
                      struct error *err);
// Of two things that hold memory, for qsort: those told first, losses then gains, each by size. 0: as much.
int diff_memory_order(bool told_a, double delta_a, bool told_b, double delta_b);
// "libtorch_cpu.so.1.13.0" -> "libtorch_cpu.so": a file as both sides have it.
const char *diff_memory_key(struct arena *arena, const char *name);
// Takes what other programs took out of rows and windows; its share of them.
double diff_take_foreign(struct cost_tree *tree);
void diff_rows_make(struct diff_job *job, const struct diff_group *groups);

// The place that holds at least four fifths of the weights: "backward > layers.*.attn"; "" for the
// whole step.
const char *diff_where(struct diff_job *job, const struct diff_group *groups,
                       const uint32_t *members, size_t count);
// Path of a place, indexes as *; at most six links.
const char *diff_place(struct diff_job *job, const struct cost_tree *tree, uint32_t node);
// Its links, outermost first; how many.
size_t diff_place_names(struct diff_job *job, const struct cost_tree *tree, uint32_t node,
                        const char *names[DIFF_DEPTH_MAX]);

// Of every node of a side's tree: is it a Python function around all phases? diff_trunk.c
const bool *diff_trunk(struct diff_job *job, int side);
size_t diff_places_count(struct diff_job *job, const struct diff_group *groups,
                         const uint32_t *members, size_t count);

void diff_evidence(struct diff_job *job, struct diff_contribution *contribution,
                   const struct diff_group *groups);
// diff_beside.c: what ran on the device beside the kernels of a contribution, with its sentences.
void diff_beside(struct diff_job *job, struct diff_contribution *contribution,
                 const struct diff_group *groups);
// NULL: nothing ran beside it, or as much as matters.
const char *diff_beside_text(struct diff_job *job, const struct diff_contribution *contribution);
const char *diff_beside_split(struct diff_job *job, struct diff_contribution *contribution,
                              const struct diff_group *groups);
void diff_suspects(struct diff_job *job, struct diff_contribution *contribution,
                   const struct diff_group *groups);

static inline double diff_column(sqlite3_stmt *stmt, int column) // NAN: NULL
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN : sqlite3_column_double(stmt, column);
}

static inline const struct cost_node *diff_leaf(const struct diff_job *job,
                                                const struct diff_group *group)
{
    return &job->workload->trees[group->side]->nodes[group->leaf];
}

#endif
