// SPDX-License-Identifier: Apache-2.0
// The cells of a workload: one judgement a metric. Reads facts and health, replays the looks in
// order. The same code answers what the run loop still has to do and what the verdict says.
#ifndef UPGATE_GATE_CELL_H
#define UPGATE_GATE_CELL_H

#include <stdbool.h>

#include "harness/gate/health.h"
#include "harness/gate/workload_facts.h"
#include "reports/analyse/looks.h"

enum cell_verdict { CELL_PASS, CELL_FAIL, CELL_INCONCLUSIVE, CELL_UNCHECKED, CELL_VERDICT_COUNT };

enum { CELL_CONFIRM_AUTO_MIN = 10 };

struct cell {
    const char *workload; // belongs to the facts
    enum metric_id metric;
    bool gating;
    double median_a, median_b;        // NAN: not measured
    double ratio, ci_lower, ci_upper; // candidate over baseline; NAN
    double alpha;                     // one-sided, of the interval
    int pairs, look;                  // look -1: none decided
    double margin;                    // NAN: not checked
    double mde, pair_sd;              // NAN
    long pairs_needed;                // -1: settled or unknown
    int confirmed, confirm_pairs;     // -1: not asked, or not run yet
    enum cell_verdict verdict;
    bool improved; // better by more than the margin, of work that was counted
    bool doubted;  // gated, and better by more than the margin: it may be less work
    bool missing;  // the candidate has none, and the baseline has
    char *reason;
    char *news;    // the reason without the numbers of this cell, which every form shows; NULL: it
                   // holds none, or they explain it
    unsigned told; // enum metric_told: what the reason says already
    // What the run loop and the summary want to know.
    double excess;    // log distance of the estimate beyond the margin, positive = worse; NAN
    int want_main;    // valid main pairs to have before this cell is asked again; 0: no more
    int want_confirm; // the same of confirm pairs
};

struct cell_context {
    const struct workload_facts *facts;
    const struct health *health;
    const struct plan_gate *gate;
    const struct plan_schedule *schedule;
    bool aa;      // the baseline against itself
    bool confirm; // a screened fail needs fresh pairs
    bool ended;   // the run will make no more pairs
};

// All cells of the workload: gated ones first asked, then observed ones that were measured. The
// caller frees with cells_free. Findings (zero baselines, metrics that nobody measures) are added.
int cells_judge(
        const struct cell_context *context, struct cell **ret_cells, struct findings *findings);
void cells_free(struct cell *cells, int count);

// Launches of this side, in valid main pairs, in which the metric was measured.
int cell_measured(const struct workload_facts *facts, enum metric_id metric, int side);
// Can a workload of this kind have this metric at all?
bool cell_applies(const struct workload_facts *facts, enum metric_id metric);
bool cell_gated(
        const struct workload_facts *facts, const struct plan_gate *gate, enum metric_id metric);
// Number of metrics gated in this workload, as far as is known now: for confirm: auto.
int cells_count_gated(const struct workload_facts *facts, const struct plan_gate *gate);
const char *cell_verdict_name(enum cell_verdict verdict);
// Were steps, or requests, counted on both sides in most pairs (cell_work.c)? True before the first
// pair.
bool cells_count_work(const struct workload_facts *facts);
// A finding where cells pass by what may be less work.
void cells_find_less_work(const struct cell_context *context, const struct cell *cells, int count,
        struct findings *findings);
// The rule by which a cell is judged, with a margin of its own.
struct looks_rule cell_looks(const struct cell_context *context, double margin);
// Is Student's t sure enough of a fail at this margin to need no fresh pairs? Of `count` oriented
// log ratios.
bool cell_beyond_doubt(
        const struct cell_context *context, double margin, const double *ratios, int count);
// Pairs that can have a metric: of one that holds two workloads against each other, those that both
// have. confirm: of the fresh ones.
int cell_pairs_had(const struct workload_facts *facts, enum metric_id metric, bool confirm);
// Main pairs that both must have for the look at `next` pairs, of which `usable` have the metric
// now; 0: no look is left.
int cell_pairs_wanted(
        const struct cell_context *context, enum metric_id metric, int next, int usable);
// Holds the candidate's scaling_efficiency against the plan's floor, where there is one: it may
// fail a cell, and keep one from passing.
void cell_hold_floor(const struct cell_context *context, struct cell *cell);
// Puts words before and after the reason and the news. Takes the place of both.
void cell_words_around(struct cell *cell, const char *before, const char *after);
// What the slow steps of both sides are, in words: how many, how slow, how regular. Caller frees.
char *cell_slow_steps(const struct workload_facts *facts);

#endif
