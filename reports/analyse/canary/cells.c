// SPDX-License-Identifier: Apache-2.0
// What the sums of evidence.c say: which metric has failed, and the cells of all.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/canary/evidence_state.h"
#include "reports/analyse/canary/rate.h"
#include "reports/analyse/distribution.h"

static bool cells_counted(enum canary_metric metric)
{
    return metric == CANARY_ERROR_RATE || metric == CANARY_WRONG_ANSWERS ||
            metric == CANARY_REJECTED_RATE;
}

static int cells_tail(enum canary_metric metric)
{
    return metric == CANARY_LATENCY_P50 ? EVIDENCE_P50 : EVIDENCE_P99;
}

static const struct evidence_channel *cells_channel(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    switch (metric) {
    case CANARY_ERROR_RATE:
        return &evidence->errors;
    case CANARY_WRONG_ANSWERS:
        return &evidence->wrong;
    case CANARY_REJECTED_RATE:
        return &evidence->rejected;
    default:
        return &evidence->over[cells_tail(metric)];
    }
}

// An A/A stage judges its own seconds, a stage of the rollout all that came since.
static struct canary_trail cells_trail(
        const struct canary_evidence *evidence, const struct evidence_channel *channel)
{
    if (evidence->learns)
        return (struct canary_trail){&channel->stages[channel->count - 1], 1};
    return (struct canary_trail){channel->stages, channel->count};
}

static const struct canary_means *cells_past(const struct canary_evidence *evidence)
{
    static const struct canary_means none;
    return evidence->learns ? &none : &evidence->means_past;
}

bool canary_evidence_alone(const struct canary_evidence *evidence)
{
    return evidence->alone.windows > 0;
}

static const struct canary_onset *cells_onset(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    return metric == CANARY_LATENCY_MEAN ? &evidence->means_onset
                                         : &cells_channel(evidence, metric)->onset;
}

// ln e of the whole rollout and of onsets within it, in their parts of the wealth.
static double cells_joined(double whole, double late, bool *ret_late)
{
    static const double parts[] = {1 - EVIDENCE_LATE_PART, EVIDENCE_LATE_PART};
    const double logs[] = {whole, late};
    if (ret_late)
        *ret_late = late + log(parts[1]) > whole + log(parts[0]);
    return distribution_log_sum(logs, parts, 2);
}

double canary_evidence_of(
        const struct canary_evidence *evidence, enum canary_metric metric, bool *ret_late)
{
    double whole = metric == CANARY_LATENCY_MEAN
            ? canary_means_evidence(cells_past(evidence), &evidence->means, 1, CANARY_WORSE,
                      evidence->mean_scale, canary_spells_value(&evidence->spells))
            : canary_counts_evidence(
                      cells_trail(evidence, cells_channel(evidence, metric)), CANARY_WORSE);
    *ret_late = false;
    if (evidence->learns)
        return whole;
    return cells_joined(whole, canary_onset_evidence(cells_onset(evidence, metric)), ret_late);
}

// --- fails ---------------------------------------------------------------------------------------

// Standard errors by which counts, or means past and now, lie beyond the margin.
static double cells_beyond(const struct canary_evidence *evidence, enum canary_metric metric,
        struct canary_trail counts, const struct canary_means *past, const struct canary_means *now)
{
    double margin = 1 + evidence->rules.metrics[metric].margin;
    if (metric == CANARY_LATENCY_MEAN)
        return canary_means_beyond(past, now, margin, canary_spells_value(&evidence->spells));
    // As many above border times margin as of the baseline above the border: a ratio of 1 is the
    // margin.
    return canary_counts_beyond(counts, cells_counted(metric) ? margin : 1);
}

static double cells_trail_beyond(const struct canary_evidence *evidence, enum canary_metric metric)
{
    const struct evidence_channel *channel = cells_counted(metric)
            ? cells_channel(evidence, metric)
            : &evidence->beyond[cells_tail(metric)];
    return cells_beyond(evidence, metric, cells_trail(evidence, channel), cells_past(evidence),
            &evidence->means);
}

// Since the likely onset.
static double cells_since_beyond(const struct canary_evidence *evidence, enum canary_metric metric)
{
    static const struct canary_means none;
    struct canary_since since;
    if (!canary_onset_likely(cells_onset(evidence, metric), &since))
        return 0;
    return cells_beyond(
            evidence, metric, (struct canary_trail){&since.beyond, 1}, &none, &since.means);
}

// Of an A/A stage either arm may be the worse.
static bool cells_aa_better(const struct canary_evidence *evidence, enum canary_metric metric)
{
    double low = 1 / (1 + evidence->rules.metrics[metric].margin);
    if (metric == CANARY_LATENCY_MEAN)
        return canary_means_evidence(cells_past(evidence), &evidence->means, 1, CANARY_BETTER,
                       evidence->mean_scale,
                       canary_spells_value(&evidence->spells)) >= evidence->needed_aa &&
                canary_means_ratio(&evidence->means) < low;
    struct canary_trail trail = cells_trail(evidence, cells_channel(evidence, metric));
    return canary_counts_evidence(trail, CANARY_BETTER) >= evidence->needed_aa &&
            canary_counts_ratio(trail) < low;
}

// A bound of the evidence that costs a few logarithms: for each second.
static bool cells_may_fail(const struct canary_evidence *evidence, enum canary_metric metric)
{
    if (evidence->learns || metric == CANARY_LATENCY_MEAN)
        return true;
    const struct evidence_channel *channel = cells_channel(evidence, metric);
    return cells_joined(canary_counts_evidence_max(cells_trail(evidence, channel)),
                   canary_onset_evidence(&channel->onset), NULL) >= evidence->needed;
}

bool canary_evidence_fails(const struct canary_evidence *evidence, enum canary_metric metric)
{
    const struct canary_rule *rule = &evidence->rules.metrics[metric];
    bool late;
    if (!isnan(rule->limit)) // of an A/A stage the wrong answers are the baseline's own
        return !evidence->learns && (double)evidence->wrong_count > rule->limit;
    if (canary_alone_fails(&evidence->alone, metric))
        return true;
    if (evidence->learns && cells_aa_better(evidence, metric))
        return true;
    if (!cells_may_fail(evidence, metric))
        return false;
    double needed = evidence->learns ? evidence->needed_aa : evidence->needed;
    if (canary_evidence_of(evidence, metric, &late) < needed)
        return false;
    return cells_trail_beyond(evidence, metric) >= EVIDENCE_BEYOND_SE ||
            (late && cells_since_beyond(evidence, metric) >= EVIDENCE_BEYOND_SE);
}

// --- cells ---------------------------------------------------------------------------------------

static double cells_known(double value)
{
    return isfinite(value) ? value : NAN;
}

// Requests of the candidate that are still missing at `growth` of ln e per request of either arm.
static double cells_missing(
        const struct canary_evidence *evidence, double growth, double share, double dispersion)
{
    double needed = (log(1 / evidence->rules.alpha) + EVIDENCE_MIXTURE_COST) * dispersion;
    return growth > 0 ? needed / growth * share : INFINITY;
}

static void cells_set_missing(struct canary_cell *cell, double requests)
{
    double missing = requests - (double)cell->requests;
    if (cell->verdict == CANARY_UNDECIDED && isfinite(missing) && missing < 1e15)
        cell->requests_missing = missing > 1 ? (uint64_t)missing : 1;
}

static double cells_share(const struct canary_evidence *evidence)
{
    double baseline = (double)evidence->requests[CANARY_BASELINE];
    double candidate = (double)evidence->requests[CANARY_CANDIDATE];
    return candidate > 0 ? candidate / (baseline + candidate) : 0;
}

// Of an arm in this stage; of wrong answers those of the baseline do not count.
static double cells_events(
        const struct canary_evidence *evidence, enum canary_metric metric, enum canary_arm arm)
{
    switch (metric) {
    case CANARY_ERROR_RATE:
        return (double)evidence->error_count[arm];
    case CANARY_REJECTED_RATE:
        return (double)evidence->rejected_count[arm];
    default:
        return arm == CANARY_CANDIDATE ? (double)evidence->wrong_count : 0;
    }
}

// Errors, rejected requests, or wrong answers with a margin.
static void cells_fill_counts(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    const struct evidence_channel *channel = cells_channel(evidence, cell->metric);
    const struct canary_counts *now = &channel->stages[channel->count - 1];
    double alpha = evidence->rules.alpha, requests = (double)cell->requests;
    double events = cells_events(evidence, cell->metric, CANARY_CANDIDATE);
    cell->value = cells_known(canary_counts_ratio((struct canary_trail){now, 1}));
    canary_counts_bounds(now, alpha, &cell->low, &cell->high);
    cell->high = cells_known(cell->high);
    cell->pass_below = 1 + (cell->threshold - 1) / evidence->opens;
    cell->rate_bound = canary_rate_bound(events, requests, alpha);
    double rate_below = fmin(EVIDENCE_ERROR_FLOOR / evidence->opens, 1);
    if (evidence->opens < 1 && evidence->stage_requests && !(events > 0))
        rate_below =
                fmax(rate_below, canary_rate_bound(0, (double)evidence->stage_requests, alpha));
    if (cell->high < cell->pass_below || cell->rate_bound <= rate_below)
        cell->verdict = CANARY_PASS;
    double share = cells_share(evidence), baseline = (double)evidence->requests[CANARY_BASELINE];
    if (!(baseline > 0))
        return;
    double rate = cells_events(evidence, cell->metric, CANARY_BASELINE) / baseline;
    double growth = canary_counts_growth(rate, rate, share, cell->pass_below);
    cells_set_missing(cell,
            fmin(cells_missing(evidence, growth, share, cell->dispersion),
                    canary_rate_requests(rate, rate_below, alpha)));
}

static void cells_fill_limit(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    cell->value = (double)evidence->wrong_count;
    cell->threshold = cell->pass_below = evidence->rules.metrics[cell->metric].limit;
    cell->rate_bound =
            canary_rate_bound(cell->value, (double)cell->requests, evidence->rules.alpha);
    cell->evidence = cell->needed = NAN;
    cell->dispersion = 1;
    if (cell->requests)
        cell->verdict = CANARY_PASS;
}

static void cells_fill_tail(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    const struct evidence_threshold *threshold = &evidence->thresholds[cells_tail(cell->metric)];
    struct canary_tails tails;
    double alpha = evidence->rules.alpha, high;
    cell->pass_below = threshold->border < 0 ? cell->threshold : threshold->pass_below;
    if (threshold->border < 0)
        return;
    canary_tails_of(&evidence->latency, &tails);
    cell->value = canary_tails_ratio(&tails, threshold->border);
    canary_tails_bounds(&tails, threshold->border, cell->dispersion, alpha, &cell->low, &high);
    if (threshold->bound_border != threshold->border) {
        double low;
        canary_tails_bounds(&tails, threshold->bound_border, cell->dispersion, alpha, &low, &high);
    }
    cell->high = high;
    if (cell->high < cell->pass_below)
        cell->verdict = CANARY_PASS;
    const double *above = tails.count[CANARY_BASELINE];
    double position = threshold->bound_border + canary_position(cell->pass_below);
    // NaN, too: observed without a margin
    int further = position < CANARY_BINS ? (int)ceil(position) : CANARY_BINS;
    if (!(above[0] > 0) || further >= CANARY_BINS)
        return;
    double share = cells_share(evidence);
    double growth = canary_counts_growth(
            above[threshold->bound_border] / above[0], above[further] / above[0], share, 1);
    cells_set_missing(cell, cells_missing(evidence, growth, share, cell->dispersion));
}

static void cells_fill_mean(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    const struct canary_means *now = &evidence->means;
    double alpha = evidence->rules.alpha, scale = evidence->mean_scale;
    cell->value = canary_means_ratio(now);
    canary_means_bounds(now, alpha, scale, cell->dispersion, &cell->low, &cell->high);
    cell->pass_below = 1 + (cell->threshold - 1) / evidence->opens;
    if (cell->high < cell->pass_below)
        cell->verdict = CANARY_PASS;
    double share = cells_share(evidence);
    if (!(now->weight > 0) || !(share < 1) || !(scale > 0))
        return;
    double mean = now->baseline / now->weight, effect = (cell->pass_below - 1) * mean;
    double growth = share * (1 - share) * effect * effect / (2 * scale);
    cells_set_missing(cell, cells_missing(evidence, growth, share, cell->dispersion));
}

static double cells_dispersion(const struct canary_evidence *evidence, enum canary_metric metric)
{
    return metric == CANARY_LATENCY_MEAN
            ? canary_spells_value(&evidence->spells)
            : canary_dispersion_value(&cells_channel(evidence, metric)->dispersion);
}

// In an A/A stage there is nothing to pass but that it was long enough to freeze the thresholds.
static enum canary_verdict cells_learnt(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    bool learnt = cells_counted(metric) ? evidence->requests[CANARY_BASELINE] > 0
                                        : evidence->thresholds[EVIDENCE_P99].border >= 0;
    return learnt ? CANARY_PASS : CANARY_UNDECIDED;
}

// Since when, and what speaks against a pass: half of the evidence of a fail, beyond the margin
// since then.
static bool cells_since(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    struct canary_since since;
    uint64_t seconds = canary_onset_likely(cells_onset(evidence, cell->metric), &since);
    if (!seconds)
        return false;
    bool mean = cell->metric == CANARY_LATENCY_MEAN;
    cell->since_s = seconds;
    cell->since_ratio =
            cells_known(mean ? canary_means_ratio(&since.means)
                             : canary_counts_ratio((struct canary_trail){&since.counts, 1}));
    return cell->evidence >= 0.5 * cell->needed && cells_since_beyond(evidence, cell->metric) > 0;
}

// Without a baseline: what the newest windows say, where they are beyond.
static void cells_alone(const struct canary_evidence *evidence, struct canary_cell *cell)
{
    const struct canary_alone_metric *of = &evidence->alone.metrics[cell->metric];
    cell->alone_open = canary_alone_open(&evidence->alone, cell->metric);
    if (!of->run)
        return;
    cell->alone_windows = (uint64_t)of->run;
    cell->alone_value = of->value;
    cell->alone_usual = of->usual;
    cell->value = cells_known(of->value / of->usual);
    cell->threshold = cell->pass_below = canary_alone_times(&evidence->rules, cell->metric);
    cell->low = cell->high = cell->evidence = cell->needed = cell->since_ratio = cell->rate_bound =
            NAN;
    cell->since_s = 0;
    cell->verdict = evidence->failed[cell->metric] ? CANARY_FAIL : CANARY_UNDECIDED;
}

static struct canary_cell cells_compared(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    const struct canary_rule *rule = &evidence->rules.metrics[metric];
    uint64_t requests = evidence->requests[CANARY_CANDIDATE];
    bool limited = !isnan(rule->limit), late = false;
    if (canary_evidence_alone(evidence) && evidence->has_last && !limited) {
        struct canary_cell cell = evidence->last[metric];
        cell.stage = evidence->stage;
        cell.requests = requests;
        cell.requests_missing = 0;
        cell.verdict = evidence->failed[metric] ? CANARY_FAIL : cell.verdict;
        cell.repeated = true;
        return cell;
    }
    struct canary_cell cell = {.metric = metric,
            .stage = evidence->stage,
            .value = NAN,
            .low = NAN,
            .high = NAN,
            .threshold = 1 + rule->margin,
            .evidence = limited ? NAN : canary_evidence_of(evidence, metric, &late),
            .needed = evidence->learns ? evidence->needed_aa : evidence->needed,
            .dispersion = cells_dispersion(evidence, metric),
            .requests = requests,
            .since_ratio = NAN,
            .rate_bound = NAN};
    if (limited)
        cells_fill_limit(evidence, &cell);
    else if (metric == CANARY_LATENCY_MEAN)
        cells_fill_mean(evidence, &cell);
    else if (cells_counted(metric))
        cells_fill_counts(evidence, &cell);
    else
        cells_fill_tail(evidence, &cell);
    if (evidence->learns) {
        cell.verdict = cells_learnt(evidence, metric);
        cell.requests_missing = 0;
    } else if (!limited &&
            (!evidence->requests[CANARY_BASELINE] || canary_evidence_alone(evidence))) {
        cell.verdict = CANARY_UNDECIDED; // a rate of its own is no comparison
    }
    if (late && cells_since(evidence, &cell)) {
        cell.verdict = CANARY_UNDECIDED;
        cell.requests_missing = 0;
    }
    if (evidence->failed[metric])
        cell.verdict = CANARY_FAIL;
    return cell;
}

static struct canary_cell cells_one(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    struct canary_cell cell = cells_compared(evidence, metric);
    if (!evidence->learns && isnan(evidence->rules.metrics[metric].limit))
        cells_alone(evidence, &cell);
    return cell;
}

// --- what was lost -------------------------------------------------------------------------------

static void cells_channel_worse(
        struct evidence_channel *channel, double events, double share, bool learns)
{
    struct canary_since second = {
            .counts = {events, events, events * share, events * share * share}};
    double logs[CANARY_BETS];
    canary_counts_sum(&channel->stages[channel->count - 1], &second.counts);
    // And they may have come within one second, unlike the one before and the one after.
    for (int i = 0; i < CANARY_MEMORIES; i++) {
        channel->dispersion.together[i].deviations += 2 * events * events;
        channel->dispersion.together[i].events += 2 * events;
    }
    // The last second is the one in which they say most, of whatever onset.
    second.beyond = second.counts;
    if (!learns && canary_counts_bets(&second.counts, logs))
        canary_onset_add(&channel->onset, logs, &second);
}

// The same evidence with the lost requests in it, each the worst that it can have been. Undivided
// by the dispersion: a burst of them is as many. The caller frees.
static struct canary_evidence *cells_worst(const struct canary_evidence *evidence)
{
    struct canary_evidence *worst = xcalloc(1, sizeof *worst);
    double lost = (double)evidence->lost, share = evidence->share_min;
    *worst = *evidence;
    cells_channel_worse(&worst->errors, lost, share, evidence->learns);
    cells_channel_worse(&worst->wrong, lost, share, evidence->learns);
    cells_channel_worse(&worst->rejected, lost, share, evidence->learns);
    for (int tail = 0; tail < EVIDENCE_TAILS; tail++) {
        cells_channel_worse(&worst->over[tail], lost, share, evidence->learns);
        cells_channel_worse(&worst->beyond[tail], lost, share, evidence->learns);
    }
    worst->requests[CANARY_CANDIDATE] += evidence->lost;
    worst->error_count[CANARY_CANDIDATE] += evidence->lost;
    worst->rejected_count[CANARY_CANDIDATE] += evidence->lost;
    worst->wrong_count += evidence->lost;
    worst->latency.count[CANARY_CANDIDATE][CANARY_BINS - 1] += lost;
    worst->latency.share[CANARY_CANDIDATE][CANARY_BINS - 1] += lost * share;
    return worst;
}

// Is there anything that they could change? Not for an arm alone, of an A/A stage or at the whole
// traffic, but for a limit.
static bool cells_matter(const struct canary_evidence *evidence, enum canary_metric metric)
{
    bool limited = !isnan(evidence->rules.metrics[metric].limit);
    if (evidence->learns)
        return !limited && evidence->requests[CANARY_CANDIDATE] > 0;
    return limited || !canary_evidence_alone(evidence);
}

void canary_evidence_doubt(struct canary_evidence *evidence)
{
    struct canary_evidence *worst = cells_worst(evidence);
    for (int i = 0; i < CANARY_METRICS; i++)
        if (canary_evidence_asked(evidence, i) && cells_matter(evidence, i))
            evidence->doubted[i] |= canary_evidence_fails(worst, i);
    free(worst);
}

// A mean has no bound where a request may have taken any time.
static bool cells_pass_worst(
        const struct canary_evidence *worst, enum canary_metric metric, struct canary_cell *cell)
{
    if (worst->doubted[metric] || metric == CANARY_LATENCY_MEAN ||
            canary_evidence_fails(worst, metric))
        return false;
    struct canary_cell other = cells_one(worst, metric);
    cell->requests_missing = other.requests_missing;
    return other.verdict == CANARY_PASS;
}

void canary_evidence_cells(const struct canary_evidence *evidence,
        struct canary_cell ret_cells[CANARY_METRICS], int *ret_count)
{
    int count = 0;
    for (int i = 0; i < CANARY_METRICS; i++)
        if (canary_evidence_asked(evidence, i))
            ret_cells[count++] = cells_one(evidence, i);
    *ret_count = count;
    struct canary_evidence *worst = evidence->lost ? cells_worst(evidence) : NULL;
    for (int i = 0; worst && i < count; i++) {
        struct canary_cell *cell = &ret_cells[i];
        if (cell->verdict != CANARY_PASS || !cells_matter(evidence, cell->metric) ||
                cells_pass_worst(worst, cell->metric, cell))
            continue;
        cell->verdict = CANARY_UNDECIDED;
        cell->withheld = evidence->lost;
    }
    free(worst);
}
