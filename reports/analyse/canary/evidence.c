// SPDX-License-Identifier: Apache-2.0
// The fold: seconds into sums, thresholds frozen from the past, and which metrics have failed.
// Nothing is allocated after canary_evidence_new() unless lines were lost (cells.c then looks at a
// copy), nothing depends on a clock: the same seconds give the same state.
#include "reports/analyse/canary/evidence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/canary/evidence_state.h"

static const char *const evidence_names[CANARY_METRICS] = {[CANARY_ERROR_RATE] = "error_rate",
        [CANARY_WRONG_ANSWERS] = "wrong_answers",
        [CANARY_LATENCY_P50] = "latency_p50",
        [CANARY_LATENCY_P99] = "latency_p99",
        [CANARY_LATENCY_MEAN] = "latency_mean",
        [CANARY_REJECTED_RATE] = "rejected_rate"};
static const double evidence_above[EVIDENCE_TAILS] = {0.5, 0.01};
static const enum canary_metric evidence_tail_metric[EVIDENCE_TAILS] = {
        CANARY_LATENCY_P50, CANARY_LATENCY_P99};

const char *canary_metric_name(enum canary_metric metric)
{
    return evidence_names[metric];
}

int canary_metric_by_name(const char *name)
{
    for (int i = 0; i < CANARY_METRICS; i++)
        if (!strcmp(evidence_names[i], name))
            return i;
    return -1;
}

bool canary_evidence_asked(const struct canary_evidence *evidence, enum canary_metric metric)
{
    return evidence->rules.metrics[metric].gated || evidence->rules.metrics[metric].observed;
}

// alpha of one metric. A limit is no test: it takes nothing of it.
static double evidence_alpha(const struct canary_rules *rules)
{
    int gated = 0;
    for (int i = 0; i < CANARY_METRICS; i++)
        gated += rules->metrics[i].gated && isnan(rules->metrics[i].limit);
    return rules->alpha / (gated ? gated : 1);
}

double canary_evidence_needed(const struct canary_rules *rules)
{
    return -log(evidence_alpha(rules) * (1 - EVIDENCE_AA_PART));
}

struct canary_evidence *canary_evidence_new(const struct canary_rules *rules)
{
    struct canary_evidence *evidence = xcalloc(1, sizeof *evidence);
    evidence->rules = *rules;
    evidence->opens = evidence->share_min = 1;
    evidence->needed = canary_evidence_needed(rules);
    // either arm may be the worse
    evidence->needed_aa = log(2 / (evidence_alpha(rules) * EVIDENCE_AA_PART));
    struct evidence_channel *channels[] = {&evidence->errors, &evidence->wrong, &evidence->rejected,
            evidence->over, evidence->over + 1, evidence->beyond, evidence->beyond + 1};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        channels[i]->count = 1;
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++)
        evidence->thresholds[tail].border = -1;
    for (int i = 0; i < CANARY_BINS; i++)
        evidence->bin_mid_s[i] = canary_bin_low_s(i) * canary_moved(0.5);
    return evidence;
}

void canary_evidence_free(struct canary_evidence *evidence)
{
    free(evidence);
}

// --- thresholds ----------------------------------------------------------------------------------

// Where the service as a whole, with `opens` of its traffic on the candidate, has its quantile
// still within the margin: of the candidate's requests so many times the fraction may lie above
// border times margin. The baseline's quantile of that fraction is the place at which the arms are
// compared for the pass.
static void evidence_set_bound(const struct canary_evidence *evidence, enum evidence_tail tail,
        struct evidence_threshold *threshold)
{
    const double *frozen = evidence->frozen, above = frozen[threshold->border];
    double left = canary_tail_above(frozen, threshold->margin_at) / above;
    double times = (1 - (1 - evidence->opens) * left) / evidence->opens;
    threshold->bound_border = threshold->border;
    if (times > 1)
        threshold->bound_border = canary_threshold(frozen, fmin(times * above / frozen[0], 0.99));
    double margin = evidence->rules.metrics[evidence_tail_metric[tail]].margin;
    threshold->pass_below =
            (1 + margin) * canary_moved(threshold->border - threshold->bound_border);
}

static void evidence_set_bounds(struct canary_evidence *evidence)
{
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++)
        if (evidence->thresholds[tail].border >= 0)
            evidence_set_bound(evidence, tail, &evidence->thresholds[tail]);
}

static void evidence_freeze(struct canary_evidence *evidence)
{
    double sum = 0, squares = 0, count = (double)evidence->learnt_count;
    for (int i = CANARY_BINS - 1; i >= 0; i--)
        evidence->frozen[i] = evidence->frozen[i + 1] + (double)evidence->learnt[i];
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++) {
        struct evidence_threshold *threshold = &evidence->thresholds[tail];
        double margin = evidence->rules.metrics[evidence_tail_metric[tail]].margin;
        threshold->border = canary_threshold(evidence->frozen, evidence_above[tail]);
        threshold->margin_at = threshold->border + canary_position(1 + margin);
    }
    evidence_set_bounds(evidence);
    if (evidence->means_past.weight > 0)
        return; // an e-process keeps the scale with which it began
    for (int i = 0; i < CANARY_BINS; i++) {
        double here = (double)evidence->learnt[i], mid = evidence->bin_mid_s[i];
        sum += here * mid;
        squares += here * mid * mid;
    }
    double mean = sum / count;
    // A latency that never varies (one bin) leaves the width of the bin.
    evidence->mean_scale = fmax(squares / count - mean * mean, 1e-4 * mean * mean);
}

// --- stages --------------------------------------------------------------------------------------

static void evidence_channel_next(struct evidence_channel *channel, bool forget)
{
    struct canary_counts *now = &channel->stages[channel->count - 1];
    if (forget || !(now->all > 0)) {
        *now = (struct canary_counts){0};
        return;
    }
    if (channel->count == EVIDENCE_STAGES_MAX) {
        struct canary_counts *first = &channel->stages[0], *second = &channel->stages[1];
        canary_counts_sum(second, first);
        memmove(first, second, (EVIDENCE_STAGES_MAX - 1) * sizeof *first);
        channel->count--;
    }
    channel->stages[channel->count++] = (struct canary_counts){0};
}

static void evidence_means_next(struct canary_evidence *evidence, bool forget)
{
    if (!forget)
        canary_means_sum(&evidence->means_past, &evidence->means);
    evidence->means = (struct canary_means){0};
}

void canary_evidence_stage(struct canary_evidence *evidence, int stage, bool learns)
{
    bool compared = evidence->requests[CANARY_BASELINE] && evidence->requests[CANARY_CANDIDATE];
    if (compared && !evidence->learns && !canary_evidence_alone(evidence)) {
        struct canary_cell cells[CANARY_METRICS];
        int count;
        canary_evidence_cells(evidence, cells, &count);
        for (int i = 0; i < count; i++)
            evidence->last[cells[i].metric] = cells[i];
        evidence->has_last = true;
    }
    evidence_channel_next(&evidence->errors, evidence->learns);
    evidence_channel_next(&evidence->wrong, evidence->learns);
    evidence_channel_next(&evidence->rejected, evidence->learns);
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++) {
        evidence_channel_next(&evidence->over[tail], evidence->learns);
        evidence_channel_next(&evidence->beyond[tail], evidence->learns);
    }
    evidence_means_next(evidence, evidence->learns);
    evidence->stage = stage;
    evidence->learns = learns;
    evidence->opens = 1;
    evidence->stage_requests = 0;
    evidence->lost = 0;
    evidence->share_min = 1;
    memset(evidence->doubted, 0, sizeof evidence->doubted);
    // The newest quantiles of the baseline, of the stage that ends: all of it lies before what is
    // compared with them.
    if (evidence->learnt_count >= EVIDENCE_LEARN)
        evidence_freeze(evidence);
    evidence_set_bounds(evidence);
    memset(&evidence->latency, 0, sizeof evidence->latency);
    memset(evidence->learnt, 0, sizeof evidence->learnt);
    evidence->learnt_count = 0;
    memset(evidence->requests, 0, sizeof evidence->requests);
    memset(evidence->error_count, 0, sizeof evidence->error_count);
    memset(evidence->rejected_count, 0, sizeof evidence->rejected_count);
    evidence->wrong_count = 0;
}

void canary_evidence_opens(struct canary_evidence *evidence, double share, uint64_t requests)
{
    evidence->opens = share > 0 && share < 1 ? share : 1;
    evidence->stage_requests = requests;
    evidence_set_bounds(evidence);
}

void canary_evidence_lost(struct canary_evidence *evidence, uint64_t requests)
{
    evidence->lost = requests;
}

// --- seconds -------------------------------------------------------------------------------------

// `beyond`: what the margin is looked at by, where it is not the counts themselves; NULL: it is.
static void evidence_channel_add(struct canary_evidence *evidence, struct evidence_channel *channel,
        const double events[CANARY_ARMS], const double requests[CANARY_ARMS],
        const struct canary_counts *beyond)
{
    canary_dispersion_see(&channel->dispersion, events[CANARY_BASELINE] + events[CANARY_CANDIDATE],
            requests[CANARY_BASELINE] + requests[CANARY_CANDIDATE]);
    struct canary_since second = {0};
    canary_counts_add(&second.counts, events[CANARY_BASELINE], events[CANARY_CANDIDATE],
            requests[CANARY_BASELINE], requests[CANARY_CANDIDATE],
            // before this second is learnt
            canary_dispersion_value(&channel->dispersion));
    canary_counts_sum(&channel->stages[channel->count - 1], &second.counts);
    if (!(requests[CANARY_BASELINE] > 0))
        return; // a baseline that is gone must not end blocks
    if (!evidence->learns && requests[CANARY_CANDIDATE] > 0) {
        double logs[CANARY_BETS];
        bool grows = canary_counts_bets(&second.counts, logs);
        second.beyond = beyond ? *beyond : second.counts;
        canary_onset_add(&channel->onset, grows ? logs : NULL, &second);
    }
    bool both = evidence->learns;
    canary_dispersion_add(&channel->dispersion, events[CANARY_BASELINE], requests[CANARY_BASELINE],
            both ? events[CANARY_CANDIDATE] : 0, both ? requests[CANARY_CANDIDATE] : 0);
}

// A lost line belongs to a second of which less than this cannot have been the candidate's.
static void evidence_share_least(
        struct canary_evidence *evidence, const double requests[CANARY_ARMS])
{
    double candidate = requests[CANARY_CANDIDATE] + 1, baseline = requests[CANARY_BASELINE];
    if (baseline > 0)
        evidence->share_min = fmin(evidence->share_min, candidate / (baseline + candidate));
}

static void evidence_tails_add(struct canary_evidence *evidence,
        const struct canary_second arms[CANARY_ARMS], const double answered[CANARY_ARMS])
{
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++) {
        const struct evidence_threshold *threshold = &evidence->thresholds[tail];
        struct evidence_channel *over = &evidence->over[tail], *beyond = &evidence->beyond[tail];
        if (!canary_evidence_asked(evidence, evidence_tail_metric[tail]) || threshold->border < 0)
            continue;
        double events[CANARY_ARMS];
        for (int arm = 0; arm < CANARY_ARMS; arm++)
            events[arm] = canary_above(arms[arm].bins, threshold->border);
        struct canary_counts further = {0};
        canary_counts_add(&further, events[CANARY_BASELINE],
                canary_above(arms[CANARY_CANDIDATE].bins, threshold->margin_at),
                answered[CANARY_BASELINE], answered[CANARY_CANDIDATE],
                canary_dispersion_value(&over->dispersion));
        canary_counts_sum(&beyond->stages[beyond->count - 1], &further);
        evidence_channel_add(evidence, over, events, answered, &further);
    }
}

static void evidence_means_add(struct canary_evidence *evidence,
        const struct canary_second arms[CANARY_ARMS], const double answered[CANARY_ARMS])
{
    double mean[CANARY_ARMS];
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        double sum = 0;
        for (int i = 0; i < CANARY_BINS; i++)
            sum += arms[arm].bins[i] * evidence->bin_mid_s[i];
        mean[arm] = answered[arm] > 0 ? sum / answered[arm] : 0;
    }
    if (evidence->mean_scale > 0) {
        struct canary_since second = {0};
        canary_means_add(&second.means, mean[CANARY_BASELINE], mean[CANARY_CANDIDATE],
                answered[CANARY_BASELINE], answered[CANARY_CANDIDATE]);
        canary_means_sum(&evidence->means, &second.means);
        if (!evidence->learns && second.means.weight > 0) {
            double logs[CANARY_BETS];
            canary_means_bets(&second.means, evidence->mean_scale,
                    canary_spells_value(&evidence->spells), logs);
            canary_onset_add(&evidence->means_onset, logs, &second);
        }
    }
    canary_spells_add(&evidence->spells, mean[CANARY_BASELINE], answered[CANARY_BASELINE]);
}

static void evidence_latency_add(
        struct canary_evidence *evidence, const struct canary_second arms[CANARY_ARMS])
{
    double answered[CANARY_ARMS];
    canary_latency_add(&evidence->latency, arms, answered);
    evidence_share_least(evidence, answered);
    evidence_tails_add(evidence, arms, answered);
    if (canary_evidence_asked(evidence, CANARY_LATENCY_MEAN))
        evidence_means_add(evidence, arms, answered);
    for (int i = 0; i < CANARY_BINS; i++)
        evidence->learnt[i] += arms[CANARY_BASELINE].bins[i];
    evidence->learnt_count += (uint64_t)answered[CANARY_BASELINE];
    if (evidence->thresholds[EVIDENCE_P99].border < 0 && evidence->learnt_count >= EVIDENCE_LEARN) {
        // without an A/A stage: what comes from now on is compared with it
        evidence_freeze(evidence);
        memset(&evidence->latency, 0, sizeof evidence->latency);
    }
}

bool canary_evidence_add(
        struct canary_evidence *evidence, const struct canary_second arms[CANARY_ARMS])
{
    const struct canary_second *baseline = &arms[CANARY_BASELINE],
                               *candidate = &arms[CANARY_CANDIDATE];
    double requests[CANARY_ARMS], errors[CANARY_ARMS], wrong[CANARY_ARMS], rejected[CANARY_ARMS];
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        requests[arm] = (double)arms[arm].requests;
        errors[arm] = (double)arms[arm].errors;
        wrong[arm] = (double)arms[arm].wrong;
        rejected[arm] = (double)arms[arm].rejected;
        evidence->requests[arm] += arms[arm].requests;
        evidence->error_count[arm] += arms[arm].errors;
        evidence->rejected_count[arm] += arms[arm].rejected;
    }
    evidence->wrong_count += candidate->wrong;
    evidence_share_least(evidence, requests);
    evidence_channel_add(evidence, &evidence->errors, errors, requests, NULL);
    evidence_channel_add(evidence, &evidence->wrong, wrong, requests, NULL);
    if (canary_evidence_asked(evidence, CANARY_REJECTED_RATE))
        evidence_channel_add(evidence, &evidence->rejected, rejected, requests, NULL);
    if (canary_evidence_asked(evidence, CANARY_LATENCY_P50) ||
            canary_evidence_asked(evidence, CANARY_LATENCY_P99) ||
            canary_evidence_asked(evidence, CANARY_LATENCY_MEAN))
        evidence_latency_add(evidence, arms);
    canary_alone_add(&evidence->alone, arms, &evidence->rules, !evidence->learns);
    if (!candidate->requests && !baseline->requests)
        return false;
    for (int i = 0; i < CANARY_METRICS; i++)
        if (canary_evidence_asked(evidence, i) && !evidence->failed[i])
            evidence->failed[i] = canary_evidence_fails(evidence, i);
    if (evidence->lost)
        canary_evidence_doubt(evidence);
    return true;
}

int canary_evidence_failed(const struct canary_evidence *evidence)
{
    for (int i = 0; i < CANARY_METRICS; i++)
        if (evidence->failed[i] && evidence->rules.metrics[i].gated)
            return i;
    return -1;
}
