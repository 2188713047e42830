// SPDX-License-Identifier: Apache-2.0
// Cells: which metrics of a workload are gated, the replay of the looks, confirmation on fresh
// pairs, and the reason in words. Pure on facts in memory; writes no table.
#include "harness/gate/cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/phrase.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/power.h"
#include "reports/analyse/quantile.h"

const char *cell_verdict_name(enum cell_verdict verdict)
{
    static const char *const names[CELL_VERDICT_COUNT] = {
            "pass", "fail", "inconclusive", "unchecked"};
    return names[verdict];
}

void cells_free(struct cell *cells, int count)
{
    for (int i = 0; i < count; i++) {
        free(cells[i].reason);
        free(cells[i].news);
    }
    free(cells);
}

void cell_words_around(struct cell *cell, const char *before, const char *after)
{
    char **const texts[] = {&cell->reason, &cell->news};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *text = *texts[i];
        *texts[i] = text ? xasprintf("%s%s%s", before, text, after) : NULL;
        free(text);
    }
}

static double cell_median(
        const struct measure_pair *pairs, int count, enum metric_id metric, int side)
{
    double *values = xcalloc((size_t)count, sizeof *values), median;
    int used = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(pairs[i].sides[side].value[metric]))
            values[used++] = pairs[i].sides[side].value[metric];
    median = quantile_median(values, (size_t)used);
    free(values);
    return median;
}

// Oriented ratios of the pairs that have one, in order; caller frees.
static double *cell_ratios(
        const struct measure_pair *pairs, int count, enum metric_id metric, int *ret_count)
{
    double *ratios = xcalloc((size_t)count, sizeof *ratios);
    int used = 0;
    workload_facts_ratios(pairs, count, metric, ratios);
    for (int i = 0; i < count; i++)
        if (!isnan(ratios[i]))
            ratios[used++] = ratios[i];
    *ret_count = used;
    return ratios;
}

static void cell_set_interval(struct cell *cell, const struct interval *interval)
{
    bool lower_is_better = metric_infos[cell->metric].direction[0] == 'l';
    cell->ratio = exp(lower_is_better ? interval->estimate : -interval->estimate);
    if (!interval->has_bounds)
        return;
    cell->ci_lower = exp(lower_is_better ? interval->lower : -interval->upper);
    cell->ci_upper = exp(lower_is_better ? interval->upper : -interval->lower);
}

static void cell_set_spread(
        struct cell *cell, const struct interval *interval, const double *ratios)
{
    cell->pair_sd = quantile_sd(ratios, (size_t)cell->pairs);
    double sd = power_sd_of_interval(interval, cell->pairs, cell->alpha);
    if (isnan(sd)) // too few pairs for an interval: nothing to plan with
        return;
    cell->mde = power_mde(sd, cell->pairs, cell->alpha, POWER_DEFAULT);
    if (cell->verdict == CELL_INCONCLUSIVE) {
        cell->pairs_needed = power_pairs_needed(
                sd, interval->estimate, cell->margin, cell->alpha, POWER_DEFAULT);
        if (cell->pairs_needed >= 0 && cell->pairs_needed <= cell->pairs)
            cell->pairs_needed = cell->pairs + 1; // these did not settle it
    }
}

static struct cell cell_new(const struct cell_context *context, enum metric_id metric, bool gating)
{
    const struct workload_facts *facts = context->facts;
    return (struct cell){
            .workload = facts->name,
            .metric = metric,
            .gating = gating,
            .median_a = cell_median(facts->main, facts->main_count, metric, 0),
            .median_b = cell_median(facts->main, facts->main_count, metric, 1),
            .ratio = NAN,
            .ci_lower = NAN,
            .ci_upper = NAN,
            .alpha = context->gate->alpha,
            .look = -1,
            .margin = gating ? context->gate->metrics[metric].margin : NAN,
            .mde = NAN,
            .pair_sd = NAN,
            .pairs_needed = -1,
            .confirmed = -1,
            .confirm_pairs = -1,
            .verdict = CELL_INCONCLUSIVE,
            .excess = NAN,
    };
}

struct looks_rule cell_looks(const struct cell_context *context, double margin)
{
    struct looks_rule rule = {.alpha = context->gate->alpha,
            .look_count = context->schedule->look_count,
            .margin = margin,
            .fail_on_likely = context->gate->fail_on_likely};
    for (int i = 0; i < rule.look_count && i < LOOKS_MAX; i++)
        rule.looks[i] = context->schedule->looks[i];
    return rule;
}

int cell_pairs_had(const struct workload_facts *facts, enum metric_id metric, bool confirm)
{
    const struct workload_facts *other = facts->against[metric] ? facts->against[metric] : facts;
    int own = confirm ? facts->confirm_count : facts->main_count,
        others = confirm ? other->confirm_count : other->main_count;
    return others < own ? others : own;
}

int cell_pairs_wanted(
        const struct cell_context *context, enum metric_id metric, int next, int usable)
{
    int last = (int)context->schedule->looks[context->schedule->look_count - 1];
    int had = cell_pairs_had(context->facts, metric, false), want = had + next - usable;
    if (had >= last)
        return 0;
    want = want < last ? want : last;
    return want > had ? want : had + 1;
}

// Adds to a cell that fails by the screen what fresh pairs say of it.
static void cell_confirm(const struct cell_context *context, struct cell *cell)
{
    const struct workload_facts *facts = context->facts;
    struct looks_rule plan = cell_looks(context, cell->margin),
                      rule = looks_confirm(&plan, cell->pairs);
    char text[PHRASE_SIZE], *fresh_pairs;
    int count, had = cell_pairs_had(facts, cell->metric, true);
    double *ratios = cell_ratios(facts->confirm, facts->confirm_count, cell->metric, &count);
    struct looks_result fresh = looks_judge(&rule, ratios, count);
    free(ratios);
    cell->verdict = CELL_INCONCLUSIVE;
    cell->told |= METRIC_TOLD_FRESH;
    if (fresh.state == LOOKS_UNDECIDED) {
        // Pairs without this metric are made up for, but not for ever.
        cell->want_confirm = had < 2 * fresh.next ? had + fresh.next - count : 0;
        fresh_pairs = xasprintf(
                "; to be confirmed on %d fresh pairs, %d of them done", fresh.next, count);
        cell_words_around(cell, "", fresh_pairs);
        free(fresh_pairs);
        return;
    }
    struct cell shown = *cell; // for the orientation of the fresh interval only
    cell_set_interval(&shown, &fresh.interval);
    phrase_interval(text, sizeof text, shown.ratio, shown.ci_lower, shown.ci_upper);
    cell->confirm_pairs = fresh.pairs;
    cell->confirmed = fresh.state == LOOKS_FAIL;
    if (cell->confirmed)
        cell->verdict = CELL_FAIL;
    fresh_pairs = xasprintf(cell->confirmed ? "; %d fresh pairs agree: %s"
                                            : ", but %d fresh pairs do not agree: %s",
            fresh.pairs, text);
    cell_words_around(cell, "", fresh_pairs);
    free(fresh_pairs);
}

// Words before the verdict: "5.1 % slower: ratio 1.0512 (1.0461 to 1.0563) at 10 pairs".
static char *cell_numbers(const struct cell *cell)
{
    char ratio[PHRASE_SIZE], interval[PHRASE_SIZE];
    return xasprintf("%s: ratio %s at %d pairs",
            phrase_ratio_beside(ratio, sizeof ratio, cell->metric, cell->ratio, cell->margin),
            phrase_interval(interval, sizeof interval, cell->ratio, cell->ci_lower, cell->ci_upper),
            cell->pairs);
}

// "2 %"; of a metric of which more is better also what that allows, where it reads as another
// number: "10 % (that is 9.1 % less)".
static const char *cell_margin(const struct cell *cell, char *buf, size_t size)
{
    static const double alike = 0.03; // of 3 % it is 2.9 % less
    char margin[32], less[32];
    bool inverse =
            metric_infos[cell->metric].direction[0] == 'h' && cell->metric != METRIC_MEMORY_SAVED;
    phrase_floor(margin, sizeof margin, cell->margin);
    if (inverse && cell->margin > alike && !(cell->ratio > 1))
        snprintf(buf, size, "%s (that is %s less)", margin,
                phrase_fraction(less, sizeof less, cell->margin / (1 + cell->margin)));
    else
        snprintf(buf, size, "%s", margin);
    return buf;
}

// The launches that stand apart: "3 of 28 launches 48 % slower than the others".
static char *cell_odd(const struct cell *cell, const struct looks_odd *odd)
{
    char by[32], better[32] = "";
    if (odd->better)
        snprintf(better, sizeof better, " (of the baseline: %d)", odd->better);
    return xasprintf("%d of %d launches of the candidate%s are worse than the others by %s",
            odd->worse, cell->pairs, better, phrase_fraction(by, sizeof by, expm1(odd->worse_by)));
}

static char *cell_mean(const struct cell *cell, const struct looks_result *result)
{
    bool lower_is_better = metric_infos[cell->metric].direction[0] == 'l';
    char mean[PHRASE_SIZE];
    phrase_ratio_beside(mean, sizeof mean, cell->metric,
            exp(lower_is_better ? result->mean.estimate : -result->mean.estimate), cell->margin);
    if (!result->odd.worse)
        return xasprintf("the mean of the launches: %s", mean);
    char *odd = cell_odd(cell, &result->odd), *text;
    text = xasprintf("%s; the mean of all: %s", odd, mean);
    free(odd);
    return text;
}

// Fresh pairs bring the error rate of a fail to alpha squared. Where Student's t is that sure of
// these pairs already, they are spared.
bool cell_beyond_doubt(
        const struct cell_context *context, double margin, const double *ratios, int count)
{
    if (context->gate->confirm == PLAN_CONFIRM_ALWAYS)
        return false;
    double alpha = context->gate->alpha * context->gate->alpha;
    struct interval mean = mean_interval(ratios, count, alpha);
    return mean.has_bounds && mean.lower > log1p(margin);
}

static void cell_decided(const struct cell_context *context, struct cell *cell,
        const struct looks_result *result, const double *ratios)
{
    char margin[PHRASE_SIZE], seen[32], *numbers = cell_numbers(cell),
                                        *mean = cell_mean(cell, result);
    cell_margin(cell, margin, sizeof margin);
    phrase_fraction(seen, sizeof seen, looks_share_seen(cell->pairs));
    if (result->state == LOOKS_PASS) {
        cell->verdict = CELL_PASS;
        cell->news = xasprintf("%s %s%s; slow launches would be seen from a share of %s on",
                cell->improved || cell->doubted ? "better by more than the margin of"
                                                : "within the margin of",
                margin, cell->doubted ? ", if it is the same work" : "", seen);
        cell->reason = xasprintf("%s, %s", numbers, cell->news);
    } else if (result->state == LOOKS_MIXED) {
        cell->news = xasprintf(
                "the typical launch is within the margin of %s, but the mean need not be: %s",
                margin, mean);
        cell->reason = xasprintf("%s (%s)", cell->news, numbers);
    } else if (result->state == LOOKS_WITHDRAWN) {
        cell->news = xasprintf(
                "the first %d had passed, within the margin of %s: the later ones contradict them, and the pass is withdrawn; %s",
                result->passed, margin, mean);
        cell->reason = xasprintf("%s, but %s", numbers, cell->news);
    } else {
        if (result->by_mean) {
            cell->news = xasprintf(
                    "%s; beyond the margin of %s, though the typical launch is not", mean, margin);
            cell->reason = xasprintf("%s (%s)", cell->news, numbers);
        } else {
            cell->news = xasprintf("beyond the margin of %s%s", margin,
                    result->likely ? " by the estimate (fail_on: likely)" : "");
            cell->reason = xasprintf("%s, %s", numbers, cell->news);
        }
        if (context->confirm && !cell_beyond_doubt(context, cell->margin, ratios, cell->pairs))
            cell_confirm(context, cell);
        else
            cell->verdict = CELL_FAIL;
    }
    free(numbers);
    free(mean);
}

// What would settle it: more pairs, or, where most of their spread arises within the launches (the
// blocks of a launch tell), longer launches.
static char *cell_more(const struct workload_facts *facts, const struct cell *cell,
        const struct interval *interval)
{
    enum { TIMES = 4 }; // halves what arises within
    double sd = power_sd_of_interval(interval, cell->pairs, cell->alpha), within = 0;
    int counted = 0;
    if (cell->pairs_needed <= 0)
        return xstrdup("no number of pairs is likely to settle it");
    for (int i = 0; i < facts->main_count; i++) {
        double error = facts->main[i].within_sd[cell->metric];
        if (!isnan(error)) {
            within += error * error;
            counted++;
        }
    }
    within = counted ? fmin(within / counted, sd * sd) : 0;
    long pairs = power_pairs_needed(sqrt(sd * sd - within * (1 - 1.0 / TIMES)), interval->estimate,
            cell->margin, cell->alpha, POWER_DEFAULT);
    if (!facts->plan || within < sd * sd / 2 || pairs < 0)
        return xasprintf("some %ld pairs would settle it", cell->pairs_needed);
    return xasprintf("some %ld pairs would settle it, or some %ld with `steps: %llu`",
            cell->pairs_needed, pairs, TIMES * (unsigned long long)facts->plan->steps);
}

static void cell_open(const struct cell_context *context, struct cell *cell,
        const struct looks_result *result, int usable)
{
    const struct workload_facts *facts = context->facts;
    char margin[PHRASE_SIZE],
            *numbers = cell->pairs ? cell_numbers(cell) : xstrdup("no pair has both sides yet");
    cell_margin(cell, margin, sizeof margin);
    int want = result->state == LOOKS_UNDECIDED
            ? cell_pairs_wanted(context, cell->metric, result->next, usable)
            : 0;
    if (context->health->state != HEALTH_OK) {
        cell->missing = context->health->state == HEALTH_CANDIDATE_BROKEN;
        cell->verdict = cell->missing ? CELL_FAIL : CELL_INCONCLUSIVE;
        cell->reason = xasprintf("%s%s", cell->missing ? "missing: " : "", context->health->why);
    } else if (want) {
        cell->want_main = want;
        cell->news = xasprintf(context->ended ? "the run ended before the next look at %d pairs"
                                              : "the next look is at %d pairs",
                result->next);
        cell->reason = xasprintf("%s; %s", numbers, cell->news);
    } else if (result->state == LOOKS_EXHAUSTED) {
        char *more = cell_more(facts, cell, &result->interval);
        cell->told |= cell->pairs_needed > 0 ? METRIC_TOLD_NEED : 0;
        cell->news = xasprintf("the margin of %s lies inside: %s", margin, more);
        cell->reason = xasprintf("%s, and %s", numbers, cell->news);
        free(more);
    } else {
        cell->news = xasprintf(
                "only %d of %d pairs have this metric on both sides", usable, facts->main_count);
        cell->reason = xasprintf("%s: %s", numbers, cell->news);
    }
    if (!cell->pairs) { // that no pair has both sides is no number that is shown elsewhere
        free(cell->news);
        cell->news = NULL;
    }
    free(numbers);
}

// What no look can settle. True: the cell is done.
static bool cell_settle_missing(const struct cell_context *context, struct cell *cell, int usable,
        struct findings *findings)
{
    const struct workload_facts *facts = context->facts;
    int first = (int)context->schedule->looks[0];
    int seen[PLAN_SIDES] = {
            cell_measured(facts, cell->metric, 0), cell_measured(facts, cell->metric, 1)};
    const char *name = metric_infos[cell->metric].name;
    if (usable || facts->main_count < (context->ended ? 1 : first))
        return false;
    const struct measure_launch *last_a = &facts->main[facts->main_count - 1].sides[0];
    const struct measure_launch *last_b = &facts->main[facts->main_count - 1].sides[1];
    if (seen[0] && !seen[1]) {
        // Who moved to another framework, or its model to another process, tells of no GPU either:
        // nobody asked for that metric by name.
        bool guessed = cell->metric == METRIC_PEAK_GPU_MEMORY && context->gate->metrics_default;
        cell->missing = true;
        cell->verdict = guessed ? CELL_INCONCLUSIVE : CELL_FAIL;
        cell->reason = xasprintf("missing: measured on the baseline only (candidate: %s)",
                measure_reason_text(last_b->reason[cell->metric]));
        findings_add(findings, facts->name, "missing", 1,
                guessed ? FINDING_INCONCLUSIVE : FINDING_FAIL, "%s is %s%s", name, cell->reason,
                guessed ? "; did it fall back to the CPU?" : "");
    } else if (!seen[0] && seen[1]) {
        cell->reason = xasprintf("measured on the candidate only (baseline: %s)",
                measure_reason_text(last_a->reason[cell->metric]));
    } else if (!seen[0]) {
        cell->reason = xasprintf(
                "measured on neither side: %s", measure_reason_text(last_a->reason[cell->metric]));
    } else if (facts->main[0].zero_baseline[cell->metric]) {
        cell->reason = xstrdup("the baseline is 0: there is no ratio");
    } else if (last_b->value[cell->metric] == 0) {
        cell->reason = xstrdup("the candidate is 0: there is no ratio");
    } else {
        cell->reason = xstrdup("no pair has it on both sides");
    }
    return true;
}

// A warm-up is much or little by what follows it.
static void cell_explain_warm_up(const struct workload_facts *facts, struct cell *cell)
{
    if (cell->metric != METRIC_WARM_UP_TIME || !cell->pairs || !facts->plan)
        return;
    uint64_t steps = facts->plan->run_steps ? facts->plan->run_steps : facts->plan->steps;
    char *of = xasprintf(" (of a run of %llu steps: run_steps)", (unsigned long long)steps);
    cell_words_around(cell, "", of);
    free(of);
}

// The steps themselves come first; the numbers of the cell follow, in every form: what they are of
// stands on either side of them.
static void cell_explain_slow(const struct workload_facts *facts, struct cell *cell)
{
    if (cell->metric != METRIC_SLOW_STEPS || !cell->pairs)
        return;
    char *steps = cell_slow_steps(facts), *reason = cell->reason;
    cell->reason = xasprintf("%s: %s", steps, reason);
    free(cell->news);
    cell->news = NULL;
    free(steps);
    free(reason);
}

// Which workload, by its name, and in what.
static void cell_explain_against(const struct workload_facts *facts, struct cell *cell)
{
    const struct workload_facts *other = facts->against[cell->metric];
    if (!other || !cell->pairs)
        return;
    char *against = xasprintf(" (%s against that of '%s')",
            metric_infos[workload_facts_quantity(facts, cell->metric)].name, other->name);
    cell_words_around(cell, "", against);
    free(against);
}

// A launch without the metric makes no pair of it. Where such launches are the candidate's alone
// they may be just those that would not have passed: as rare as launches that leave out steps
// (health_work.c). A metric that holds two workloads against each other a launch of either may
// lack.
static void cell_hold_lacking(const struct workload_facts *facts, struct cell *cell)
{
    enum { LACKING_MIN = 2 };
    enum metric_id of = workload_facts_quantity(facts, cell->metric);
    int lacking[PLAN_SIDES] = {0};
    if (cell->verdict != CELL_PASS)
        return;
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_pair *pair = &facts->main[i];
        for (int side = 0; side < PLAN_SIDES && isnan(pair->log_ratio[cell->metric]); side++) {
            const struct measure_launch *own = &pair->sides[side], *other = &pair->sides[!side];
            lacking[side] += !isnan(other->value[cell->metric]) &&
                    (isnan(own->value[cell->metric]) ||
                            (own->value[of] == 0 && other->value[of] > 0));
        }
    }
    int a = lacking[0], b = lacking[1];
    if (!(b >= LACKING_MIN && !a) && !(b > a && binomial_tail(b, a + b, 0.5) < HEALTH_ALPHA))
        return;
    char *lacking_words = xasprintf(
            "in %d of %d pairs the candidate alone does not tell of it, the baseline alone in %d: what it took there is not known "
            "(the others: ",
            b, facts->main_count, a);
    cell->verdict = CELL_INCONCLUSIVE;
    cell_words_around(cell, lacking_words, ")");
    free(lacking_words);
}

static struct cell cell_judge_gated(
        const struct cell_context *context, enum metric_id metric, struct findings *findings)
{
    const struct workload_facts *facts = context->facts;
    struct cell cell = cell_new(context, metric, true);
    int usable;
    double *ratios = cell_ratios(facts->main, facts->main_count, metric, &usable);
    struct looks_rule rule = cell_looks(context, cell.margin);
    struct looks_result result = looks_judge(&rule, ratios, usable);
    cell.pairs = result.pairs;
    cell.look = result.look;
    cell.alpha = result.alpha;
    cell.improved = result.improved && cells_count_work(facts);
    cell.doubted = result.improved && !cell.improved;
    cell_set_interval(&cell, &result.interval);
    // What a sentence about the worst cell begins with: by the claim that is furthest beyond.
    cell.excess = fmax(result.interval.estimate, result.mean.estimate) - log1p(cell.margin);
    bool decided = result.look >= 0;
    if (decided)
        cell_decided(context, &cell, &result, ratios);
    if (cell.pairs)
        cell_set_spread(&cell, &result.interval, ratios);
    if (!decided &&
            !(context->health->state == HEALTH_OK &&
                    cell_settle_missing(context, &cell, usable, findings)))
        cell_open(context, &cell, &result, usable);
    cell_explain_against(facts, &cell);
    cell_hold_lacking(facts, &cell);
    cell_hold_floor(context, &cell);
    if (cell.verdict != CELL_INCONCLUSIVE || result.state == LOOKS_WITHDRAWN)
        cell.pairs_needed = -1; // no number of pairs settles a contradiction
    cell_explain_slow(facts, &cell);
    cell_explain_warm_up(facts, &cell);
    free(ratios);
    return cell;
}

// Observed only: all pairs at once, at alpha, no verdict.
static struct cell cell_observe(const struct cell_context *context, enum metric_id metric)
{
    const struct workload_facts *facts = context->facts;
    struct cell cell = cell_new(context, metric, false);
    double *ratios = cell_ratios(facts->main, facts->main_count, metric, &cell.pairs);
    struct interval interval = signed_rank_interval(ratios, cell.pairs, cell.alpha);
    double margin = context->gate->metrics[metric].margin;
    cell.verdict = CELL_UNCHECKED;
    cell_set_interval(&cell, &interval);
    if (cell.pairs)
        cell_set_spread(&cell, &interval, ratios);
    cell.improved =
            interval.has_bounds && interval.upper < -log1p(margin) && cells_count_work(facts);
    char *numbers = cell.pairs ? cell_numbers(&cell) : xstrdup("no pair has it on both sides");
    cell.reason = xasprintf("%s; observed only", numbers);
    cell_explain_slow(facts, &cell);
    cell_explain_against(facts, &cell);
    free(numbers);
    free(ratios);
    return cell;
}

static void cell_find_zero(
        const struct workload_facts *facts, enum metric_id metric, struct findings *findings)
{
    int zero = 0;
    for (int i = 0; i < facts->main_count; i++)
        zero += facts->main[i].zero_baseline[metric];
    if (zero)
        findings_add(findings, facts->name, "zero_baseline", 1, FINDING_NOTE,
                "%s is 0 on the baseline and more on the candidate in %d of %d pairs: added, no ratio",
                metric_infos[metric].name, zero, facts->main_count);
}

// A GPU that the candidate uses and the baseline does not: an honest change, which nobody should
// have to guess.
static void cells_find_added(const struct workload_facts *facts, struct findings *findings)
{
    const enum metric_id metric = METRIC_PEAK_GPU_MEMORY;
    int added = 0;
    for (int i = 0; i < facts->main_count; i++)
        added += isnan(facts->main[i].sides[0].value[metric]) &&
                facts->main[i].sides[1].value[metric] > 0;
    if (added)
        findings_add(findings, facts->name, "added", 1, FINDING_NOTE,
                "%s is measured on the candidate alone in %d of %d pairs: it uses a GPU, and the baseline tells of none; there is no ratio",
                metric_infos[metric].name, added, facts->main_count);
}

// Gated by default, and told by no launch: the tail of too few requests, memory that cannot be read
// here. Nobody asked for it by name, and nobody may take a pass for one of it. Samples that a
// program does not tell say no more than its mean step, and most use no GPU.
static void cells_find_unjudged(
        const struct cell_context *context, enum metric_id metric, struct findings *findings)
{
    const struct workload_facts *facts = context->facts;
    bool told_otherwise = metric == METRIC_THROUGHPUT || metric == METRIC_PEAK_GPU_MEMORY;
    if (told_otherwise || !facts->main_count || !context->gate->metrics_default ||
            cell_gated(facts, context->gate, metric) || !cell_applies(facts, metric) ||
            !plan_metric_gated(context->gate, workload_facts_mode(facts), facts->has_steps, metric))
        return;
    const char *why =
            measure_reason_text(facts->main[facts->main_count - 1].sides[0].reason[metric]);
    findings_add(findings, facts->name, "unjudged", -1, FINDING_NOTE, "%s was not judged: %s",
            metric_infos[metric].name, why ? why : "not measured");
}

int cells_judge(
        const struct cell_context *context, struct cell **ret_cells, struct findings *findings)
{
    const struct workload_facts *facts = context->facts;
    struct cell *cells = xcalloc(METRIC_COUNT, sizeof *cells);
    int count = 0, gated = 0;
    for (int m = 0; m < METRIC_COUNT; m++) {
        enum metric_id metric = (enum metric_id)m;
        if (cell_gated(facts, context->gate, metric)) {
            cells[count++] = cell_judge_gated(context, metric, findings);
            gated++;
        } else if (cell_measured(facts, metric, 0) || cell_measured(facts, metric, 1) ||
                (context->gate->metrics[m].present && !context->gate->metrics_default &&
                        cell_applies(facts, metric))) {
            cells[count++] = cell_observe(context, metric);
        }
        cell_find_zero(facts, metric, findings);
        cells_find_unjudged(context, metric, findings);
    }
    cells_find_added(facts, findings);
    cells_find_less_work(context, cells, count, findings);
    if (!gated && !facts->serves)
        findings_add(findings, facts->name, "missing", -1, FINDING_INCONCLUSIVE,
                "none of the gated metrics can be measured in this workload: nothing is judged");
    *ret_cells = cells;
    return count;
}
