// SPDX-License-Identifier: Apache-2.0
// A judged run, read from the store once and in one transaction, so that every form of a report
// shows the same state. Plain data: what is not known is NAN, -1 or NULL, as said at the member.
// All memory belongs to the report. Ordered for reading: what failed first.
#ifndef UPGATE_REPORTS_REPORT_H
#define UPGATE_REPORTS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum report_verdict { // the order is that of reading
    REPORT_VERDICT_FAIL,
    REPORT_VERDICT_INCONCLUSIVE,
    REPORT_VERDICT_PASS,
    REPORT_VERDICT_UNCHECKED,
    REPORT_VERDICT_COUNT
};

struct report_cell {
    char *workload, *metric, *unit, *reason;
    char *news; // the reason without the numbers of this cell; NULL: it holds none, or its store is
                // of before version 12
    int64_t told; // enum metric_told: what the reason says
    bool higher_is_better, gating, improved;
    double median_a, median_b, ratio, ci_lower, ci_upper, margin, mde,
            pair_sd; // NAN = not measured
    double alpha;
    int64_t pairs, look, pairs_needed, confirm_pairs; // -1 = NULL
    int confirmed;                                    // -1 = NULL
    enum report_verdict verdict;
};

struct report_parity {
    char *workload, *tensor, *rule, *reason;
    double error_a, error_b; // NAN = not measured
    enum report_verdict verdict;
};

enum report_effect { REPORT_EFFECT_FAIL, REPORT_EFFECT_INCONCLUSIVE, REPORT_EFFECT_NOTE };

struct report_finding {
    char *workload, *kind, *text; // workload NULL = of the run
    int side;                     // 0, 1; -1 = none
    enum report_effect effect;
};

struct report_ledger {              // summed over launches
    char *producer, *kind, *detail; // detail of the first that has one; NULL
    int64_t seen;                   // -1 = nobody told
    int64_t dropped, rows;
    bool breach;
};

struct report_certificate { // a row of table control; a certificate where it has no objection
    char *scope, *kind, *interleave, *metric, *objection;
    int64_t aa_pairs, held_pairs, gates, false_fails;
    double margin, upper_bound, mde, pair_sd;
    double held, held_lower, held_upper; // held NAN = the metric does not feel it
};

struct report_crash { // launches of one workload and side that ended alike; the last one's stderr
    char *workload, *state, *stderr_tail; // stderr_tail NULL = nothing said
    int side;
    int64_t exit_code, exit_signal; // -1 = NULL
    int64_t launches, pair;         // pair: index of the last one
};

struct report_note {
    char *level, *text;
};

struct report_workload {
    char *name, *mode, *interleave, *note; // interleave, note: NULL
    int64_t wall_ns; // of its pairs, but those that were traced, on which no verdict rests
};

struct report {
    struct store *store;                                    // while it is being read
    char *path;                                             // of the store
    char *uuid, *kind, *state, *upgate_version, *plan_path; // plan_path NULL
    int64_t started_wall_ns, ended_wall_ns;                 // ended -1 = not ended
    char *side_names[2];
    enum report_verdict verdict;
    char *reason, *margin_note, *calibration_note; // margin_note NULL
    bool trust_ok, calibrated;
    struct report_cell *cells;
    struct report_parity *parity;
    struct report_finding *findings;
    struct report_ledger *ledger; // breaches first, then by what was dropped
    struct report_certificate *certificates;
    struct report_crash *crashes;
    struct report_note *notes;
    struct report_workload *workloads;
    int cell_count, parity_count, finding_count, ledger_count, certificate_count, crash_count,
            note_count, workload_count;
    char **texts; // every string above
    int text_count;
};

// -ENODATA: the store has no verdict yet. -EBADMSG: its verdict says more than its rows do.
int report_load(struct store *store, struct report **ret_report, struct error *err);
void report_free(struct report *report);

const char *report_verdict_word(enum report_verdict verdict); // "pass", …
const char *report_effect_word(enum report_effect effect);    // "fail", …
const char *report_side_word(int side);                       // "baseline", "candidate"
int report_count(const struct report *report, enum report_verdict verdict); // of gating cells

// What was said on stderr by the launches of this workload and side that ended badly; NULL if
// nothing. side < 0: either, the candidate's first.
const char *report_stderr(const struct report *report, const char *workload, int side);

#endif
