// SPDX-License-Identifier: Apache-2.0
// What a contribution rests on: facts, each a kind with its arguments. Their sentences are
// reports/render/diff's. Arrays of two are by side: a, b. Texts and arrays live as long as struct
// diff.
#ifndef UPGATE_DIFF_EVIDENCE_H
#define UPGATE_DIFF_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/analyse/diff/align/align.h"
#include "reports/analyse/diff/path/cost_tree.h"

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

#endif
