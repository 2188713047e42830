// SPDX-License-Identifier: Apache-2.0
// The sequential tests of a canary, valid at every look: seconds of both arms in, one cell a metric out. Pure: no clock,
// no store. Every count is compared within its second, given how many requests each arm had in it, so that what
// the traffic does (time of day, mix, bursts) hits both arms alike and decides nothing.
//
// A cell fails when the e-process of "the candidate is not worse" passes 1/alpha (alpha: of a false rollback over the whole
// rollout, divided among the gated metrics; dispersed counts are divided by the dispersion first) and the estimate lies beyond
// the margin: equal arms are rolled back with probability alpha at most however often one looks, and a candidate that is worse
// by less than the margin is not rolled back for being known well. It passes when the upper bound lies below the margin.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_H
#define UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "reports/analyse/canary/second.h"

enum canary_metric {
    CANARY_ERROR_RATE,    // errors / requests; margin: relative to the baseline's
    CANARY_WRONG_ANSWERS, // wrong / requests; limit: so many at most, 0 by default
    CANARY_LATENCY_P50,   // requests above the baseline's frozen median; margin: of the latency, relative
    CANARY_LATENCY_P99,   // requests above the baseline's frozen p99
    CANARY_LATENCY_MEAN,  // means of both arms; margin: relative
    CANARY_METRICS
};
const char *canary_metric_name(enum canary_metric metric); // "error_rate" …: as in plans, JSON and the store
int canary_metric_by_name(const char *name);               // -1: none

struct canary_rule { // of one metric
    bool gated, observed; // neither: not computed
    double margin;   // fraction; NaN where `limit` holds
    double limit;    // a count over the stage; NaN where `margin` holds
};

struct canary_rules {
    double alpha; // of a false rollback over the whole rollout
    struct canary_rule metrics[CANARY_METRICS];
    double tripwire_error_rate; // of the candidate over its last 10 s with at least 10 requests; NaN: none
};

enum canary_verdict { CANARY_UNDECIDED, CANARY_PASS, CANARY_FAIL };

struct canary_cell {
    enum canary_metric metric;
    int stage;
    double value;        // candidate / baseline (ratio of rates, of quantiles or means); wrong answers: the count. NaN: not known
    double low, high;    // of `value`, a confidence sequence at alpha; NaN: not known
    double threshold;    // 1 + margin, or the limit
    double evidence;     // log of the e-value
    double needed;       // log(1/alpha) of this metric
    double dispersion;   // by which counts were divided; 1 or more
    uint64_t requests;   // of the candidate in this stage
    uint64_t requests_missing; // about so many more until a pass, if the candidate equals the baseline; 0: none, or not known
    enum canary_verdict verdict;
};

struct canary_evidence;

struct canary_evidence *canary_evidence_new(const struct canary_rules *rules);
void canary_evidence_free(struct canary_evidence *evidence); // NULL ok

// A stage begins: e-processes go on (alpha is the whole rollout's), estimates and bounds begin anew. `learns`: the seconds of
// this stage are an A/A (two baselines, or the baseline alone before the first request of the candidate): they teach the
// dispersion of counts and freeze the thresholds of latency, and judge only that the arms are equal.
void canary_evidence_stage(struct canary_evidence *evidence, int stage, bool learns);

// The next second of both arms, in order of time; absent seconds are seconds without requests. Gives true when a
// cell may have changed.
bool canary_evidence_add(struct canary_evidence *evidence, const struct canary_second arms[CANARY_ARMS]);

// All metrics with a rule; *ret_count <= CANARY_METRICS.
void canary_evidence_cells(const struct canary_evidence *evidence, struct canary_cell ret_cells[CANARY_METRICS], int *ret_count);

// The tripwire: error rate of the candidate over its last seconds. NaN: too few requests.
double canary_evidence_recent_errors(const struct canary_evidence *evidence);

// Before it starts: what a stage can and cannot see. All at the rules' alpha and with the given dispersion (1 where unknown).
struct canary_traffic {
    double requests_per_s; // of both arms together
    double error_rate;     // of the baseline
    double latency_sigma;  // of the logarithm of latency; 0.5 where unknown
    double dispersion;
};
struct canary_foresight {
    uint64_t requests;       // of the candidate in the stage's soak time
    double seen_ratio;       // smallest ratio that is seen with probability 0.8 within the soak; INFINITY: none
    double pass_s;           // time until an equal candidate's cell passes; INFINITY: never at this traffic
    double zero_error_bound; // error rate that is excluded at alpha when no error is seen; 1: none
};
struct canary_foresight canary_foresee(const struct canary_rules *rules, enum canary_metric metric, double share,
                                       double soak_s, const struct canary_traffic *traffic);

#endif
