// SPDX-License-Identifier: Apache-2.0
// A floor of scaling_efficiency: a claim about the candidate alone, whatever the baseline does.
// What its ranks lose against perfect scaling, -ln(efficiency), is held against what the floor
// allows at the same looks and with the same alpha as a difference between the sides against the
// margin. Both sides are told, the candidate gates: a floor is a gate, and one that the baseline
// breaches too is breached all the same. Pure on facts.
#include "harness/gate/cell.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/phrase.h"
#include "reports/analyse/looks.h"
#include "reports/analyse/power.h"

static double *floor_losses(const struct measure_pair *pairs, int count, int side, int *ret_count)
{
    double *losses = xcalloc((size_t)count + 1, sizeof *losses);
    int used = 0;
    for (int i = 0; i < count; i++) {
        double efficiency = pairs[i].sides[side].value[METRIC_SCALING_EFFICIENCY];
        if (efficiency > 0)
            losses[used++] = -log(efficiency);
    }
    *ret_count = used;
    return losses;
}

static void floor_add_share(struct strbuf *text, const struct looks_result *result)
{
    const struct interval *loss = &result->interval;
    if (!result->pairs)
        strbuf_add(text, "an unknown share");
    else if (!loss->has_bounds)
        strbuf_add(text, "%.1f %%", 100 * exp(-loss->estimate));
    else
        strbuf_add(text, "%.1f %% (%.1f to %.1f %%)", 100 * exp(-loss->estimate),
                100 * exp(-loss->upper), 100 * exp(-loss->lower));
}

// What fresh pairs say of a candidate that is below.
static enum cell_verdict floor_confirm(const struct cell_context *context, struct cell *cell,
        const struct looks_rule *rule, int pairs, struct strbuf *text)
{
    const struct workload_facts *facts = context->facts;
    struct looks_rule again = looks_confirm(rule, pairs);
    int count, had = cell_pairs_had(facts, cell->metric, true);
    cell->told |= METRIC_TOLD_FRESH;
    double *losses = floor_losses(facts->confirm, facts->confirm_count, 1, &count);
    struct looks_result fresh = looks_judge(&again, losses, count);
    free(losses);
    if (fresh.state == LOOKS_FAIL) {
        strbuf_add(text, "; %d fresh pairs agree", fresh.pairs);
        return CELL_FAIL;
    }
    if (fresh.state != LOOKS_UNDECIDED) {
        strbuf_add(text, ", but %d fresh pairs do not agree", fresh.pairs);
        return CELL_INCONCLUSIVE;
    }
    int want = had < 2 * fresh.next ? had + fresh.next - count : 0;
    cell->want_confirm = want > cell->want_confirm ? want : cell->want_confirm;
    strbuf_add(text, "; to be confirmed on %d fresh pairs, %d of them done", fresh.next, count);
    return CELL_INCONCLUSIVE;
}

static void floor_go_on(const struct cell_context *context, struct cell *cell,
        const struct looks_result *result, int usable, struct strbuf *text)
{
    int want = context->health->state == HEALTH_OK
            ? cell_pairs_wanted(context, cell->metric, result->next, usable)
            : 0;
    if (want && (!cell->want_main || want < cell->want_main))
        cell->want_main = want;
    if (want && !context->ended)
        strbuf_add(text, " is looked at again at %d pairs", result->next);
    else
        strbuf_add(text, " needs %d pairs, and %d have it", result->next, usable);
}

static void floor_exhausted(struct cell *cell, const struct looks_rule *rule,
        const struct looks_result *result, struct strbuf *text)
{
    double sd = power_sd_of_interval(&result->interval, result->pairs, result->alpha);
    long pairs = power_pairs_needed(
            sd, result->interval.estimate, rule->margin, result->alpha, POWER_DEFAULT);
    pairs = pairs >= 0 && pairs <= result->pairs ? result->pairs + 1 : pairs;
    // Of a margin that is open too, what settles both.
    if (cell->verdict == CELL_PASS ||
            (cell->pairs_needed >= 0 && (pairs < 0 || pairs > cell->pairs_needed)))
        cell->pairs_needed = pairs;
    strbuf_add(text, " lies inside: ");
    if (pairs < 0) {
        strbuf_add(text, "no number of pairs is likely to settle it");
    } else {
        strbuf_add(text, "some %ld pairs would settle it", pairs);
        cell->told |= METRIC_TOLD_NEED;
    }
}

// The candidate against its floor, in words, and what it makes of the cell.
static enum cell_verdict floor_decide(const struct cell_context *context, struct cell *cell,
        const struct looks_rule *rule, const struct looks_result sides[PLAN_SIDES], int usable,
        struct strbuf *text)
{
    const struct looks_result *candidate = &sides[1];
    char least[32];
    phrase_floor(least, sizeof least, 1 / (1 + rule->margin));
    if (candidate->state == LOOKS_FAIL) {
        strbuf_add(text, "below the floor of %s%s%s", least,
                candidate->likely ? " by the estimate (fail_on: likely)" : "",
                sides[0].state == LOOKS_FAIL ? ", and so is the baseline: it was so before" : "");
        int count;
        double *losses = floor_losses(context->facts->main, context->facts->main_count, 1, &count);
        bool sure = !context->confirm ||
                cell_beyond_doubt(context, rule->margin, losses, candidate->pairs);
        free(losses);
        return sure ? CELL_FAIL : floor_confirm(context, cell, rule, candidate->pairs, text);
    }
    if (candidate->state == LOOKS_PASS) {
        strbuf_add(text, "above the floor of %s", least);
        return CELL_PASS;
    }
    if (candidate->state == LOOKS_WITHDRAWN) {
        cell->pairs_needed = -1; // no number of pairs settles a contradiction
        strbuf_add(text,
                "the first %d pairs were above the floor of %s, and the later ones contradict them",
                candidate->passed, least);
    } else if (candidate->state == LOOKS_MIXED) {
        strbuf_add(text, "the typical launch is above the floor of %s, but the mean need not be",
                least);
    } else {
        strbuf_add(text, "the floor of %s", least);
        if (candidate->state == LOOKS_UNDECIDED)
            floor_go_on(context, cell, candidate, usable, text);
        else
            floor_exhausted(cell, rule, candidate, text);
    }
    return CELL_INCONCLUSIVE;
}

void cell_hold_floor(const struct cell_context *context, struct cell *cell)
{
    const struct workload_facts *facts = context->facts;
    bool scales = cell->metric == METRIC_SCALING_EFFICIENCY && facts->plan;
    double least = scales ? plan_floor_of(context->gate, facts->plan->ranks) : NAN;
    struct looks_result sides[PLAN_SIDES];
    int usable[PLAN_SIDES];
    if (isnan(least) || context->aa) // equal sides are held against each other only
        return;
    struct looks_rule rule = cell_looks(context, 1 / least - 1);
    for (int side = 0; side < PLAN_SIDES; side++) {
        double *losses = floor_losses(facts->main, facts->main_count, side, &usable[side]);
        sides[side] = looks_judge(&rule, losses, usable[side]);
        free(losses);
    }
    if (!sides[1].pairs) // why it is missing has been said
        return;
    struct strbuf text = {0};
    strbuf_add(
            &text, "; with %llu ranks the candidate has ", (unsigned long long)facts->plan->ranks);
    floor_add_share(&text, &sides[1]);
    strbuf_add(&text, " of perfect scaling, the baseline ");
    floor_add_share(&text, &sides[0]);
    strbuf_add(&text, ": ");
    enum cell_verdict verdict = floor_decide(context, cell, &rule, sides, usable[1], &text);
    cell_words_around(cell, "", text.text);
    strbuf_free(&text);
    if (!isnan(cell->excess)) // a cell that is missing says more than any number
        cell->excess = fmax(cell->excess,
                fmax(sides[1].interval.estimate, sides[1].mean.estimate) - log1p(rule.margin));
    if (verdict == CELL_FAIL || (verdict == CELL_INCONCLUSIVE && cell->verdict == CELL_PASS))
        cell->verdict = verdict;
    if (verdict == CELL_FAIL && cell->look < 0)
        cell->look = sides[1].look;
    if (cell->verdict == CELL_FAIL)
        cell->want_main = cell->want_confirm = 0;
}
