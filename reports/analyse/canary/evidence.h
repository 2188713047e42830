// SPDX-License-Identifier: Apache-2.0
// The sequential tests of a canary, valid at every look: seconds of both arms in, one cell a metric
// out. Pure: no clock, no store. Every count is compared within its second, given how many requests
// each arm had in it, so that what the traffic does (time of day, mix, bursts) hits both arms alike
// and decides nothing.
//
// A cell fails when the e-process of "the candidate is not worse" passes 1/alpha (alpha: of a false
// rollback over the whole rollout, divided among the gated metrics; dispersed counts are divided by
// the dispersion first) and the estimate lies beyond the margin by one and a half standard errors:
// equal arms are rolled back with probability alpha at most however often one looks, and a
// candidate that is worse by less than the margin is not rolled back for being known well. Without
// the standard errors an unlucky moment would do: what is left, by how much worse it is, is in
// docs/CANARY-SIM.md (at half the margin 1 to 2 %). Both are taken over the whole rollout, so that
// a young stage's first seconds do not decide, and, with a tenth of alpha, from each second of it
// on (onset.h): what turns bad late does not have to outweigh how long it was good. The cell then
// says since when, and the margin is looked at from there on. A fail stays.
//
// A cell passes when the upper bound of this stage lies below the margin, and half of the evidence
// that a fail needs does not say that it has been worse beyond the margin since some moment. Two
// things are added, because the rule alone would hold a healthy candidate for ever:
// * Few or no errors: nothing is then known of a ratio. A cell of counts passes also when the upper
//   bound of the candidate's own rate (`rate_bound`, stated in the cell) lies below 0.1 %: 4,820
//   requests without an error at alpha 1 %.
// * Small stages: at 1 % of the traffic the margin of a ratio is out of reach, and not needed,
//   since the next stage exposes little more. Told by canary_evidence_opens() what share comes
//   next, a pass asks that the service as a whole, with so much traffic on the candidate, is not
//   worse by more than the margin. The stage that opens 100 % asks for all of it.
// Where a stage has no baseline any more (100 %), nothing can be compared: cells repeat what the
// last stage said, and tell that they do; wrong answers and the tripwires are watched on, and
// alone.h holds the candidate against what the baseline was.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_H
#define UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "reports/analyse/canary/second.h"

enum canary_metric {
    CANARY_ERROR_RATE,    // errors / requests; margin: relative to the baseline's
    CANARY_WRONG_ANSWERS, // wrong / requests; limit: so many at most, 0 by default
    CANARY_LATENCY_P50,   // requests above the baseline's frozen median; margin: of the latency,
                          // relative
    CANARY_LATENCY_P99,   // requests above the baseline's frozen p99
    CANARY_LATENCY_MEAN,  // means of both arms; margin: relative
    CANARY_REJECTED_RATE, // rejected / requests; margin: relative to the baseline's
    CANARY_METRICS
};
// "error_rate" …: as in plans, JSON and the store
const char *canary_metric_name(enum canary_metric metric);
int canary_metric_by_name(const char *name); // -1: none

struct canary_rule {      // of one metric
    bool gated, observed; // neither: not computed
    double margin;        // fraction; NaN where `limit` holds
    double limit;         // of wrong answers: a count over the stage; NaN where `margin` holds
};

struct canary_rules {
    double alpha; // of a false rollback over the whole rollout
    struct canary_rule metrics[CANARY_METRICS];
    double tripwire_error_rate; // of the candidate: recent.h; NaN: none
    double alone_times; // where no baseline is left, of what it had: alone.h; 0: that is not looked
                        // at
};

enum canary_verdict { CANARY_UNDECIDED, CANARY_PASS, CANARY_FAIL };

struct canary_cell {
    enum canary_metric metric;
    int stage;
    // candidate / baseline (ratio of rates, of quantiles or means); wrong answers: the count. NaN:
    // not known
    double value;
    // of `value`, a confidence sequence, each end at alpha; NaN: not known, or no end
    double low, high;
    double threshold;          // 1 + margin, or the limit
    double evidence;           // log of the e-value
    double needed;             // log(1/alpha) of this metric
    double dispersion;         // by which counts were divided; 1 or more
    uint64_t requests;         // of the candidate in this stage
    uint64_t requests_missing; // of the candidate, about, until a pass if it equals the baseline;
                               // 0: none, or not known
    enum canary_verdict verdict;
    double pass_below;  // what `high` must lie below: the threshold, or wider where the stage opens
                        // less than 100 %
    uint64_t since_s;   // of seconds with requests of both arms, where the evidence is of an onset
                        // within the rollout; 0: it is not
    double since_ratio; // candidate / baseline since then, of error rates, of requests above the
                        // baseline's quantile, or of means; NaN
    double rate_bound;  // upper bound at alpha of the candidate's own rate in this stage (of
                        // counts); else NaN
    bool repeated;   // no baseline is left: value, bounds and verdict are those of the last stage
                     // that had one
    bool alone_open; // no baseline is left, and the newest ten seconds of the candidate do not say
                     // that all is well, or are not over
    uint64_t alone_windows; // of ten seconds in a row, beyond alone_times of what the baseline had;
                            // then the next two, and of `value`:
    double alone_value, alone_usual; // the candidate's newest; the baseline's (alone.h). Seconds,
                                     // or a fraction. value: their ratio
    uint64_t withheld; // it would pass, but for so many lost lines: see canary_evidence_lost(). 0:
                       // it is not held back by them
};

struct canary_evidence;

// never NULL; copies the rules
struct canary_evidence *canary_evidence_new(const struct canary_rules *rules);
void canary_evidence_free(struct canary_evidence *evidence); // NULL ok

// A stage begins: e-processes go on (alpha is the whole rollout's), estimates and bounds begin
// anew. `learns`: the seconds of this stage are an A/A (two baselines, or the baseline alone before
// the first request of the candidate): they teach the dispersion of counts and freeze the
// thresholds of latency, and judge only that the arms are equal.
void canary_evidence_stage(struct canary_evidence *evidence, int stage, bool learns);

// Of the stage just begun, before its first second: the share of the traffic (0..1) that its pass
// opens, and how many requests of the candidate the plan asks for, which, without an error, suffice
// for the errors where the share is below 1. Not called: 1 and 0, the strictest.
void canary_evidence_opens(struct canary_evidence *evidence, double share, uint64_t requests);

// So many requests of the stage at hand, of either arm, are known to have happened and are in no
// second (lost log lines). A cell passes only where it would with all of them in it as requests of
// the candidate that failed, were wrong and took the longest, each in the second in which that says
// most, and where it would have failed at none of the seconds since; no fail ever rests on them.
// The dispersion is the one that was learnt, or what one burst of them would make of it. A new
// stage: 0.
void canary_evidence_lost(struct canary_evidence *evidence, uint64_t requests);

// The next second of both arms, in order of time; absent seconds are seconds without requests.
// Gives true when a cell may have changed.
bool canary_evidence_add(
        struct canary_evidence *evidence, const struct canary_second arms[CANARY_ARMS]);

// All metrics with a rule; *ret_count <= CANARY_METRICS.
void canary_evidence_cells(const struct canary_evidence *evidence,
        struct canary_cell ret_cells[CANARY_METRICS], int *ret_count);

// The first gated metric that has failed; -1: none. Costs nothing: for each second.
int canary_evidence_failed(const struct canary_evidence *evidence);

// Before it starts: what a stage can and cannot see. All at the rules' alpha and with the given
// dispersion (1 where unknown).
struct canary_traffic {
    double requests_per_s; // of both arms together
    double error_rate;     // of the baseline
    double latency_sigma;  // of the logarithm of latency; 0.5 where unknown
    double dispersion;
    double opens;            // share that a pass opens, as canary_evidence_opens(); 0: 1
    uint64_t stage_requests; // the same; 0
};
struct canary_foresight {
    uint64_t requests; // of the candidate in the stage's soak time
    double seen_ratio; // smallest ratio that is rolled back with probability 0.8 within the soak;
                       // INFINITY: none
    double pass_s;     // time until an equal candidate's cell passes, typically; INFINITY: never at
                       // this traffic
    double zero_error_bound; // error rate that is excluded at alpha when no error is seen; 1: none
};
struct canary_foresight canary_foresee(const struct canary_rules *rules, enum canary_metric metric,
        double share, double soak_s, const struct canary_traffic *traffic);

#endif
