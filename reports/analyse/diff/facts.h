// SPDX-License-Identifier: Apache-2.0
// What is told of a difference beside its numbers: facts, each a kind with its arguments. Their
// sentences are reports/render/diff's. Arrays of two are by side: a, b. Texts and arrays live as
// long as struct diff.
#ifndef UPGATE_DIFF_FACTS_H
#define UPGATE_DIFF_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reports/analyse/diff/align/align.h"
#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/trace/launch/launch_doubt.h"

struct diff_beside;
struct diff_straggler;

// What happened to a contribution, beside its kind.
enum diff_change {
    DIFF_CHANGE_MORE,    // slower, longer, more: by its kind
    DIFF_CHANGE_LESS,    // the same the other way
    DIFF_CHANGE_ADDED,   // copies, that one side alone has
    DIFF_CHANGE_REMOVED, // the same of the baseline
    DIFF_CHANGE_FUSED,   // kernels: fewer do the same work
    DIFF_CHANGE_SPLIT,   // more of them do
    DIFF_CHANGE_LONGER,  // waits for the device, that both sides have
    DIFF_CHANGE_SHORTER,
    DIFF_CHANGES
};

// What a contribution rests on. Behind each kind its arguments in struct diff_evidence.
enum diff_evidence_kind {
    DIFF_EVIDENCE_TIMES,       // sides: what it takes
    DIFF_EVIDENCE_LAUNCH_WAIT, // sides: of that until the host had launched it
    DIFF_EVIDENCE_LATE_BEHIND, // sides: of that launches that came late behind a wait
    DIFF_EVIDENCE_BUSY,        // sides: also behind other work
    DIFF_EVIDENCE_EXECUTION,   // sides: one execution; no unit, no count
    DIFF_EVIDENCE_CLOCK,       // clock: kernels that changed alike
    DIFF_EVIDENCE_FEW,         // number: traced launches of each side, too few to tell
    DIFF_EVIDENCE_CAUSES,      // list: the parts of what a piece of code causes
    DIFF_EVIDENCE_SPREAD,      // list: parts, none of which is told from noise alone
    DIFF_EVIDENCE_FUNCTIONS,   // list: what most of the change is of
    DIFF_EVIDENCE_PLACES,      // list: where most of the change is
    DIFF_EVIDENCE_NAMES,       // names: what is compared with what
    DIFF_EVIDENCE_SHAPE,       // shape: what changed of it
    DIFF_EVIDENCE_BESIDE,      // beside: what ran beside it on the same device
    DIFF_EVIDENCE_OVERLAP,     // overlap: is it slower by itself, or by its company?
    DIFF_EVIDENCE_THREADS,     // threads: how many worked
    DIFF_EVIDENCE_NO_NAMES,    // nothing: one side has none, it is compared by place
    DIFF_EVIDENCE_ALSO_LATER,  // number: of the side that runs it too, outside of its first step
    DIFF_EVIDENCE_STALL,       // stall: what to do about it
    DIFF_EVIDENCE_LATE_RANK,   // late: the rank that others wait for
    DIFF_EVIDENCE_KINDS
};

struct diff_evidence_part {
    const char *name; // of a place "": the whole step
    double delta_ns;
    double share; // of the contribution; of functions and places NAN
};

struct diff_evidence {
    enum diff_evidence_kind kind;
    union {
        size_t number;
        struct {
            const char *unit; // what the times are of: "step"
            double ns[2];
            double count[2]; // executions; NAN, 0: not counted
        } sides;
        struct {
            size_t kernels;
            double busy_ns[2]; // of all
        } clock;
        struct { // largest first; `count` of `of`
            const struct diff_evidence_part *parts;
            size_t count, of;
        } list;
        struct {
            const char *name[2]; // short
            size_t count[2];     // leaves; one each: it has another name
            enum align_match match;
        } names;
        struct {
            const struct cost_shape *of; // [2]
            const char *name[2];         // of a collective that has another name; NULL
        } shape;
        struct { // by told; the contribution's
            const struct diff_beside *of;
            size_t count;
        } beside;
        struct {
            double share[2];            // of the executions that had others beside them
            double with[2], without[2]; // mean of one, ns; NAN: too few to tell
            bool cause;                 // it is the company's
        } overlap;
        struct {
            double working[2], running[2]; // running: on a CPU at a time
            size_t functions;              // that take longer together
        } threads;
        struct {
            const char *cause, *culprit; // stall_causes()[].id; culprit NULL: not known
        } stall;
        const struct diff_straggler *late;
    };
};

// What ties a difference of the sides' fingerprints to a contribution. With `of` where it says so.
enum diff_suspect_why {
    DIFF_SUSPECT_KIND,        // the kind of the contribution says it
    DIFF_SUSPECT_HOLDS,       // of: the library that holds it
    DIFF_SUSPECT_BELONGS,     // libc10, to torch
    DIFF_SUSPECT_FUNCTION_OF, // it is one of `of`
    DIFF_SUSPECT_KERNEL_OF,
    DIFF_SUSPECT_SETTING_OF,
    DIFF_SUSPECT_PRODUCT, // of matrices
    DIFF_SUSPECT_TRITON,
    DIFF_SUSPECT_INTERPRETER,
    DIFF_SUSPECT_ALLOCATOR,
    DIFF_SUSPECT_PRODUCT_PRECISION,
    DIFF_SUSPECT_CONVOLUTION_PRECISION,
    DIFF_SUSPECT_PRODUCTS_OF,     // of: the library that they come from
    DIFF_SUSPECT_CONVOLUTIONS_OF, // the same
    DIFF_SUSPECT_ATTENTION,       // its backend
    DIFF_SUSPECT_ATTENTION_SOFTMAX,
    DIFF_SUSPECT_ATTENTION_PRODUCTS,
    DIFF_SUSPECT_COMPILED, // code has other kernels
    DIFF_SUSPECT_GPU_CLOCK,
    DIFF_SUSPECT_VECTOR_UNITS,
    DIFF_SUSPECT_PRODUCT_THREADS,
    DIFF_SUSPECT_THREADS,
    DIFF_SUSPECT_CPUS,
    DIFF_SUSPECT_ALLOCATOR_SETTINGS,
    DIFF_SUSPECT_HUGE_PAGES,
    DIFF_SUSPECT_NUMA,
    DIFF_SUSPECT_COMPILE_SETTINGS,
    DIFF_SUSPECT_LAUNCHES,  // the interpreter does them
    DIFF_SUSPECT_OPERATORS, // go through torch
    DIFF_SUSPECT_BLOCKING,  // launches wait for the device
    DIFF_SUSPECT_COLLECTOR,
    DIFF_SUSPECT_CGROUP,
    DIFF_SUSPECT_LOADER, // is torch's
    DIFF_SUSPECT_LAZY_LOADING,
    DIFF_SUSPECT_BESIDE, // it is about the collective beside it
    DIFF_SUSPECT_WHYS
};

struct diff_suspect {
    const char *what;     // "torch"
    const char *value[2]; // "1.13.1", "2.13.0"; NULL: none
    enum diff_suspect_why why;
    const char *of;
};

// Why the difference of first steps, or of CPU times, has no parts.
enum diff_once_why {
    DIFF_ONCE_EXPLAINED,  // it has, or is not asked for
    DIFF_ONCE_NOT_TRACED, // they are not in the traces
    DIFF_ONCE_NO_PAIR,    // has them on both sides
    DIFF_ONCE_ONE_LAUNCH, // a side does not tell which part differs
    DIFF_ONCE_NOT_ALIKE,  // no part differs in all launches alike
    DIFF_ONCE_WHYS
};

// Why that of slow steps has none.
enum diff_slow_why {
    DIFF_SLOW_EXPLAINED,
    DIFF_SLOW_NO_PAIR,    // has steps on both sides
    DIFF_SLOW_NONE,       // were in the traced launches
    DIFF_SLOW_ONE_LAUNCH, // a side does not tell what is chance
    DIFF_SLOW_NOT_EVERY,  // launch of the worse side lies beyond those of the other
    DIFF_SLOW_BLIND,      // in most of the time nothing was seen to run
    DIFF_SLOW_NOT_ALIKE,  // no part is larger in all launches alike
    DIFF_SLOW_WHYS
};

// What a rank did while the others waited for it.
enum diff_deed {
    DIFF_DEED_UNKNOWN,
    DIFF_DEED_FUNCTION,
    DIFF_DEED_STALL,
    DIFF_DEED_HOST,   // anything else of its host
    DIFF_DEED_CALL,   // of the GPU's library
    DIFF_DEED_KERNEL, // on its device
    DIFF_DEEDS
};

enum { DIFF_LAUNCHES = 4 }; // traced ones of a side that tell more: the plan's default

// What weakens the answer. Behind each kind its arguments in struct diff_note.
enum diff_note_kind {
    DIFF_NOTE_TRACED_ONLY,    // nothing: traced launches stand in for untraced ones
    DIFF_NOTE_NOT_JUDGED,     // nothing: the run was not, steps are what its launches say so far
    DIFF_NOTE_MEAN,           // share: by which the mean step and the median changed
    DIFF_NOTE_DOUBT,          // side, pair, doubt: what makes a traced launch doubtful
    DIFF_NOTE_DOUBTS_LEFT,    // count: of those that are not listed
    DIFF_NOTE_NO_SAMPLES,     // side, pair: which is left out
    DIFF_NOTE_LEFT_OUT,       // pair, text: why
    DIFF_NOTE_FOREIGN,        // share: of the traced time of a, of b that other programs took
    DIFF_NOTE_RESIDUAL,       // ns, share of a step: in no contribution
    DIFF_NOTE_TRACED_SLOW,    // unit, share: traced over untraced
    DIFF_NOTE_TRACED_APART,   // share: by which tracing tells another difference
    DIFF_NOTE_ONE_PAIR,       // nothing: launches of a side are not compared with each other
    DIFF_NOTE_FEW,            // count: parts, ns: at most, of: traced launches of each side
    DIFF_NOTE_COUPLES,        // count of `of`: left out
    DIFF_NOTE_MATCHED,        // share: of the time
    DIFF_NOTE_UNKNOWN,        // side, share: of a step in which it is not known what ran
    DIFF_NOTE_FIRST_STEP,     // ns: of a, of b, why: it is not explained
    DIFF_NOTE_NO_FINGERPRINT, // nothing: so there are no suspects
    DIFF_NOTE_KINDS
};

struct diff_note { // what a kind has not is 0; of one number the first of two
    enum diff_note_kind kind;
    int side;
    size_t pair; // traced, from 0
    size_t count, of;
    double share[2], ns[2];
    const char *text, *unit;
    enum diff_once_why why;
    struct launch_doubt doubt;
};

// Why a workload has no contributions.
enum diff_unexplained {
    DIFF_EXPLAINED,              // it has
    DIFF_UNEXPLAINED_NOT_TRACED, // no launches were
    DIFF_UNEXPLAINED_ONE_SIDED,  // one side has no samples of what ran
    DIFF_UNEXPLAINED_NO_STEPS,   // that could be compared
    DIFF_UNEXPLAINED_NO_TIME,    // of the step, of both sides
    DIFF_UNEXPLAINED_NO_PAIR,    // has steps of both sides
    DIFF_UNEXPLAINED_BLIND,      // the traces show next to nothing of what ran
    DIFF_UNEXPLAINED_KINDS
};

#endif
