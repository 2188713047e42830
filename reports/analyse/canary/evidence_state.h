// SPDX-License-Identifier: Apache-2.0
// What evidence.c folds and cells.c reads: inside of this room only.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_STATE_H
#define UPGATE_REPORTS_ANALYSE_CANARY_EVIDENCE_STATE_H

#include "reports/analyse/canary/alone.h"
#include "reports/analyse/canary/counts.h"
#include "reports/analyse/canary/dispersion.h"
#include "reports/analyse/canary/evidence.h"
#include "reports/analyse/canary/latency.h"
#include "reports/analyse/canary/mean.h"
#include "reports/analyse/canary/onset.h"

enum {
    EVIDENCE_STAGES_MAX = 32, // of a trail; older ones are summed up
    // requests of the baseline before a threshold is frozen: ten above its p99
    EVIDENCE_LEARN = 1000,
};
// Standard errors beyond the margin: evidence.h says why.
#define EVIDENCE_BEYOND_SE 1.5
// A rate of errors below which no ratio is asked for: 4,820 requests without an error, 48 s of 100
// a second, show it at alpha 1 %; a tenth of it would take 48,216, and 8 minutes.
#define EVIDENCE_ERROR_FLOOR 1e-3
// Of alpha, for the A/A stage's own test; the rollout has the rest. At alpha 1 % and one metric
// that raises the ln e which a rollback needs from 4.6 to 4.7, while the A/A stage, in which either
// arm may be the worse, needs 7.6: half as many requests again.
#define EVIDENCE_AA_PART 0.1
// Of the rest of alpha, for onsets within the rollout: it costs those log 10 in ln e (4 s for
// errors x5 at 25 % of 1,000 requests/s), and what is worse from the beginning on 0.1 (1 %). With a
// fifth, bursts that nobody has seen before rolled back 1.45 instead of 1.07 %.
#define EVIDENCE_LATE_PART 0.1
// What a mixture over unknown ratios costs against the one bet that is right, in ln e: 1.5 to 2.1
// for ratios of 1.2 to 10.
#define EVIDENCE_MIXTURE_COST 1.7

struct evidence_channel {
    struct canary_counts stages[EVIDENCE_STAGES_MAX]; // the last is the present stage's
    int count;
    struct canary_dispersion dispersion;
    struct canary_onset onset;
};

enum evidence_tail { EVIDENCE_P50, EVIDENCE_P99, EVIDENCE_TAILS };

struct evidence_threshold {
    int border;        // of the baseline's quantile; -1: not frozen
    double margin_at;  // position of the border times 1 + margin
    int bound_border;  // where the bound for a pass is taken: further in for stages that open less
                       // than 100 %
    double pass_below; // what the ratio there must lie below
};

struct canary_evidence {
    struct canary_rules rules;
    double needed, needed_aa; // log(1/alpha) of one metric
    int stage;
    bool learns;
    double opens;
    uint64_t stage_requests;
    uint64_t lost;    // of this stage
    double share_min; // of its seconds, had one more request of the candidate been in it
    bool doubted[CANARY_METRICS]; // with what was lost it would have failed at some look of this
                                  // stage

    struct evidence_channel errors, wrong, rejected;
    struct evidence_channel over[EVIDENCE_TAILS]; // both arms above the border
    // the candidate above the border times 1 + margin
    struct evidence_channel beyond[EVIDENCE_TAILS];
    struct evidence_threshold thresholds[EVIDENCE_TAILS];
    struct canary_latency latency;
    uint64_t learnt[CANARY_BINS], learnt_count; // of the baseline, this stage
    double frozen[CANARY_BINS + 1];             // a tail, from which the thresholds are
    double mean_scale;                          // variance of a request's latency; 0: not frozen
    struct canary_means means_past, means;
    struct canary_onset means_onset;
    struct canary_spells spells;
    double bin_mid_s[CANARY_BINS];

    // Of this stage; wrong: the candidate's.
    uint64_t requests[CANARY_ARMS], error_count[CANARY_ARMS], rejected_count[CANARY_ARMS],
            wrong_count;
    struct canary_alone alone;
    bool failed[CANARY_METRICS];
    struct canary_cell last[CANARY_METRICS]; // of the last stage that could be compared
    bool has_last;
};

// gated or observed
bool canary_evidence_asked(const struct canary_evidence *evidence, enum canary_metric metric);
// ln e of one metric's fail, outside of an A/A stage
double canary_evidence_needed(const struct canary_rules *rules);
// ln e against "not worse". ret_late: the part of it that speaks of an onset within the rollout is
// the larger one.
double canary_evidence_of(
        const struct canary_evidence *evidence, enum canary_metric metric, bool *ret_late);
bool canary_evidence_fails(const struct canary_evidence *evidence, enum canary_metric metric);
// sets `doubted`; where something was lost
void canary_evidence_doubt(struct canary_evidence *evidence);
bool canary_evidence_alone(const struct canary_evidence *evidence);

#endif
