// SPDX-License-Identifier: Apache-2.0
// Two recordings of `upgate record`, of two programs that did the same work at the same time: what
// one of them spent more on, by function, by kernel, by cause of stalls. No pairs, no turns as in
// an A/B run: it says how the two differed while they were recorded, and its intervals hold for
// that window only. Reads both stores; the same stores give the same answer.
#ifndef UPGATE_DIFF_RECORDINGS_H
#define UPGATE_DIFF_RECORDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/stalls/reasons.h"
#include "tracer/store/store.h"

enum recordings_kind {
    RECORDINGS_CPU,    // samples by their leaf function, native or of the kernel
    RECORDINGS_PYTHON, // the same samples by their leaf Python function
    RECORDINGS_GPU,    // kernels and copies by name
    RECORDINGS_STALL,  // causes of `upgate stalls`
    RECORDINGS_KINDS
};

struct recordings_row {
    enum recordings_kind kind;
    const char *cause; // of a stall, of the table of causes; NULL: of any other
    // where: library without its version, source file from its package on; NULL
    const char *name, *where;
    double a_ns, b_ns, delta_ns; // of a unit
    double lo_ns, hi_ns; // of delta, at 99 % for all rows together; NAN: not tested (stalls, too
                         // few slices)
    bool told;           // the interval leaves out 0
};

// What weakens the answer. Behind each kind its arguments in struct recordings_note.
enum recordings_note_kind {
    RECORDINGS_NOTE_DELETED,      // side, seconds: of its begin, by --max-size
    RECORDINGS_NOTE_CUT_OFF,      // side: it is compared up to its last second
    RECORDINGS_NOTE_LONGER,       // side, seconds: the first ones, which are compared
    RECORDINGS_NOTE_NO_SAMPLES,   // side: its functions are not compared
    RECORDINGS_NOTE_LOST,         // side, count, name, what: of a producer's
    RECORDINGS_NOTE_NOT_RECORDED, // side, name: of a total that is not compared
    RECORDINGS_NOTE_NO_REQUESTS,  // nothing: how many were answered is not known
    RECORDINGS_NOTE_SHORT,        // seconds: fewer measure no noise
    RECORDINGS_NOTE_KINDS
};

struct recordings_note { // what a kind has not is 0
    enum recordings_note_kind kind;
    int side;
    double seconds;
    int64_t count;
    const char *name, *what;
};

struct recordings_rank {
    int32_t rank;
    double step_ns; // the median of its steps
};

// Of a job: the rank whose step is the middle one of all, and the one whose step is the longest.
struct recordings_ranks {
    size_t count; // that made enough steps; below 2 nothing is said of them
    struct recordings_rank typical, slowest;
    double more_ns, lo_ns, hi_ns; // by which the slowest takes longer in the same steps, at 99 %
                                  // for all ranks together; NAN: not tested
    bool told;                    // the interval lies above 0
    bool late;                    // one of them comes late (`upgate stalls`); the worst:
    int32_t late_rank;            // -1: not known
    double late_share;            // of the time
    struct stall_deed late_deed;  // what it did meanwhile
};

struct recordings_diff {
    const char *unit;     // "request", or "second" where the requests of a window are not known
    double units[2];      // in the window of a, of b
    int64_t window_ns[2]; // what is compared: without what --max-size deleted
    uint64_t samples[2];
    int32_t slices[2]; // seconds of each window: what noise is measured by
    // of each kind; name NULL: nothing of it was recorded
    struct recordings_row totals[RECORDINGS_KINDS];
    struct recordings_ranks ranks[2];
    struct recordings_row *rows; // what is told first, then by size; what is below a thousandth of
                                 // its kind is left out
    size_t row_count;
    struct recordings_note *notes; // what weakens the answer
    size_t note_count;
    struct arena *arena;
};

// requests: what each program answered in its window; NAN: not known, then all is told a second.
// -ENODATA: a store without a recording (the error names it).
int recordings_diff(struct store *const stores[2], const double requests[2],
        struct recordings_diff **ret_diff, struct error *err);
void recordings_diff_free(struct recordings_diff *diff); // NULL ok

#endif
