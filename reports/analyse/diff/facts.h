// SPDX-License-Identifier: Apache-2.0
// What weakens an answer, why there is none, and what a late rank did: facts, each a kind with its
// arguments. Their sentences are reports/render/diff's. Arrays of two are by side: a, b. Texts live
// as long as struct diff.
#ifndef UPGATE_DIFF_FACTS_H
#define UPGATE_DIFF_FACTS_H

#include <stddef.h>

#include "reports/analyse/trace/launch/launch_doubt.h"

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
