// SPDX-License-Identifier: Apache-2.0
// Parity of loss curves: every loss of every launch is finite, the candidate leaves none out, and
// the curves of pairs with one seed are not shifted against each other, as a whole or at their end.
// Reads table loss through parity_rows; writes nothing.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/parity/parity_internal.h"
#include "harness/gate/phrase.h"
#include "reports/analyse/curve.h"

// Curves of two launches with one seed: the steps that both have, in one array behind each other.
struct loss_couple {
    int64_t seed;
    bool counted;
    struct curve_pair curves;
    double *values;
    int only_a; // steps that the candidate lacks
};

struct loss_work {
    const struct parity_context *context;
    struct loss_launches sides[2], repeats;
    struct loss_couple *pairs, *again;
    int pair_count, again_count;
    int only_a; // launches with a loss whose other side has none
    int cut;    // pairs in which the candidate lacks some steps that were not lost
    int steps;  // that most pairs have
};

static struct loss_couple loss_join(const struct loss_launch *a, const struct loss_launch *b)
{
    struct loss_couple couple = {.seed = a->seed};
    couple.values = xcalloc(2 * (size_t)a->steps, sizeof *couple.values);
    double *of_a = couple.values, *of_b = couple.values + a->steps;
    int common = 0;
    for (int i = 0, k = 0; i < a->steps; i++) {
        while (k < b->steps && b->idx[k] < a->idx[i])
            k++;
        if (k == b->steps || b->idx[k] != a->idx[i]) {
            couple.only_a++;
            continue;
        }
        of_a[common] = a->values[i];
        of_b[common++] = b->values[k];
    }
    couple.curves = (struct curve_pair){of_a, of_b, common};
    return couple;
}

static void loss_push(struct loss_couple **couples, int *count, struct loss_couple couple)
{
    vector_push(*couples, *count, couple);
}

static void loss_pair_up(struct loss_work *work)
{
    const struct workload_facts *facts = work->context->facts;
    for (int i = 0; i < facts->head_count; i++) {
        const struct pair_head *head = &facts->heads[i];
        if (!parity_is_judged(head))
            continue;
        const struct loss_launch *a = loss_launches_find(&work->sides[0], head->id);
        const struct loss_launch *b = loss_launches_find(&work->sides[1], head->id);
        work->only_a += a && !b;
        if (a && b) {
            struct loss_couple couple = loss_join(a, b);
            couple.counted = parity_is_counted(head);
            work->cut += couple.only_a > 0 && !b->dropped;
            loss_push(&work->pairs, &work->pair_count, couple);
        }
        for (int k = 0; a && k < work->repeats.count; k++)
            if (work->repeats.items[k].seed == a->seed && work->repeats.items[k].broken_step < 0 &&
                    a->broken_step < 0)
                loss_push(&work->again, &work->again_count, loss_join(a, &work->repeats.items[k]));
    }
}

// The most steps that at least half of the pairs have, and as many pairs as the first look wants.
static int loss_steps(const struct loss_work *work)
{
    int count = work->pair_count, first = (int)work->context->schedule->looks[0];
    int *steps = xcalloc((size_t)count + 1, sizeof *steps);
    for (int i = 0; i < count; i++)
        steps[i] = work->pairs[i].curves.steps;
    sort_in_place(steps, (size_t)count, x, y, *x < *y);
    int enough = (count + 1) / 2 > first ? (count + 1) / 2 : first;
    int result = count ? steps[count > enough ? count - enough : 0] : 0;
    free(steps);
    return result;
}

static const struct loss_launch *loss_broken(const struct loss_launches *launches)
{
    for (int i = 0; i < launches->count; i++)
        if (launches->items[i].broken_step >= 0)
            return &launches->items[i];
    return NULL;
}

static int loss_load(struct loss_work *work, struct error *err)
{
    struct store *store = work->context->store;
    int64_t id = work->context->facts->id;
    int rc = loss_launches_load(store, id, false, 0, &work->sides[0], err);
    if (rc == 0)
        rc = loss_launches_load(store, id, false, 1, &work->sides[1], err);
    if (rc == 0)
        rc = loss_launches_load(store, id, true, 0, &work->repeats, err);
    if (rc)
        return rc;
    loss_pair_up(work);
    work->steps = loss_steps(work);
    return 0;
}

static void loss_clear(struct loss_work *work)
{
    for (int i = 0; i < work->pair_count; i++)
        free(work->pairs[i].values);
    for (int i = 0; i < work->again_count; i++)
        free(work->again[i].values);
    free(work->pairs);
    free(work->again);
    loss_launches_clear(&work->sides[0]);
    loss_launches_clear(&work->sides[1]);
    loss_launches_clear(&work->repeats);
}

// --- the judgement -------------------------------------------------------------------------------

// The pairs of the first `counted` valid main ones; all of them: -1.
static struct curve_result loss_compare(
        const struct loss_work *work, enum curve_part part, int counted)
{
    struct curve_pair *pairs = xcalloc((size_t)work->pair_count + 1, sizeof *pairs);
    struct curve_pair *again = xcalloc((size_t)work->again_count + 1, sizeof *again);
    struct curve_input input = {.pairs = pairs,
            .repeats = again,
            .repeat_count = work->again_count,
            .steps = work->steps,
            .margin = work->context->gate->parity_loss_margin,
            .alpha = parity_alpha(work->context),
            .factor = parity_factor(work->context->gate->parity_factor, DTYPE_F64, 1)};
    int used = 0;
    for (int i = 0; i < work->pair_count; i++) {
        if (counted >= 0 && (!work->pairs[i].counted || used == counted))
            continue;
        pairs[input.pair_count++] = work->pairs[i].curves;
        used++;
    }
    for (int i = 0; i < work->again_count; i++)
        again[i] = work->again[i].curves;
    struct curve_result result = curve_compare(&input, part);
    free(pairs);
    free(again);
    return result;
}

// What all pairs show at once decides first; then the looks, in order. A shift at a later look
// counts, as alpha is spent there.
static struct curve_result loss_judge(const struct loss_work *work, enum curve_part part)
{
    struct curve_result all = loss_compare(work, part, -1), decided = all;
    int reached = parity_looks_reached(work->context);
    bool within = false;
    if (all.state == CURVE_EQUAL || all.state == CURVE_ASTRAY || !reached)
        return all;
    for (int look = 0; look < reached; look++) {
        struct curve_result one =
                loss_compare(work, part, (int)work->context->schedule->looks[look]);
        if (one.state == CURVE_SHIFTED)
            return one;
        if (!within)
            decided = one;
        within = within || one.state == CURVE_WITHIN || one.state == CURVE_EQUAL;
    }
    return decided;
}

static void loss_tell_noise(
        const struct loss_work *work, const struct curve_window *window, struct strbuf *text)
{
    char margin[32];
    strbuf_add(text, "%s", phrase_fraction(margin, sizeof margin, window->margin));
    if (window->noise >= window->margin)
        strbuf_add(text, ", which the baseline moves by itself with one seed");
    strbuf_add(text, "; ");
    if (!work->again_count)
        strbuf_add(text, "the baseline was not run twice with one seed: its noise is not known");
    else if (window->noise > 0)
        strbuf_add(text, "the baseline repeats itself within %.2g %% (%d repetition%s)",
                100 * window->noise, work->again_count, work->again_count == 1 ? "" : "s");
    else
        strbuf_add(text, "the baseline repeats itself to the last bit");
}

static void loss_tell(const struct loss_work *work, enum curve_part part,
        const struct curve_result *result, struct parity_row *row)
{
    const struct curve_window *window = &result->window;
    struct strbuf text = {0};
    row->error_a = window->margin;
    row->error_b = fabs(window->interval.estimate);
    if (result->state == CURVE_EQUAL) {
        row->rule = "bitwise";
        row->error_a = row->error_b = 0;
        row->verdict = CELL_PASS;
        strbuf_add(&text, "equal to the last bit in every step of %d pair%s", work->pair_count,
                work->pair_count == 1 ? "" : "s");
    } else if (result->state == CURVE_ASTRAY) {
        row->verdict = CELL_FAIL;
        row->error_b = fabs(window->furthest);
        strbuf_add(&text,
                "%+.3g %% in one pair (seed %lld, steps %d to %d), where no other is further "
                "off than %.2g %%; at most %d times ",
                100 * window->furthest, (long long)work->pairs[window->furthest_pair].seed,
                window->from, window->to - 1, 100 * fabs(window->next),
                (int)parity_factor(work->context->gate->parity_factor, DTYPE_F64, 1));
        loss_tell_noise(work, window, &text);
    } else {
        bool few = !window->interval.has_bounds;
        row->verdict = result->state == CURVE_WITHIN ? CELL_PASS
                : result->state == CURVE_SHIFTED     ? CELL_FAIL
                                                     : CELL_INCONCLUSIVE;
        if (few)
            strbuf_add(&text, "%+.3g %% over steps %d to %d of %d pairs, too few for an interval; ",
                    100 * window->interval.estimate, window->from, window->to - 1, window->pairs);
        else
            strbuf_add(&text, "%+.3g %% (%+.3g to %+.3g %%) over steps %d to %d of %d pairs, %s ",
                    100 * window->interval.estimate, 100 * window->interval.lower,
                    100 * window->interval.upper, window->from, window->to - 1, window->pairs,
                    result->state == CURVE_WITHIN            ? "within"
                            : result->state == CURVE_SHIFTED ? "beyond"
                                                             : "not told apart from");
        loss_tell_noise(work, window, &text);
        if (part == CURVE_WHOLE && result->state == CURVE_WITHIN)
            strbuf_add(&text, "; so is each quarter of the curve");
    }
    if (result->state == CURVE_OPEN)
        row->want_main = parity_next_look(work->context);
    row->reason = strbuf_take(&text);
}

// NaN and Inf anywhere in any launch, and losses that the candidate leaves out, decide before any
// number does. True: they did.
static bool loss_check(const struct loss_work *work, struct parity_row *row)
{
    const struct loss_launch *a = loss_broken(&work->sides[0]);
    const struct loss_launch *b = loss_broken(&work->sides[1]);
    if (a || b) {
        const struct loss_launch *one = a ? a : b;
        row->rule = "finite";
        row->verdict = a ? CELL_INCONCLUSIVE : CELL_FAIL;
        row->reason = xasprintf("%s (seed %lld, step %lld)",
                a ? "the baseline's own loss becomes NaN or Inf: nothing to "
                    "compare with"
                  : "the candidate's loss becomes NaN or Inf, the baseline's does "
                    "not",
                (long long)one->seed, (long long)one->broken_step);
        return true;
    }
    if (!work->only_a && !work->cut && work->pair_count)
        return false;
    row->rule = "missing";
    row->verdict = work->only_a || work->cut ? CELL_FAIL : CELL_INCONCLUSIVE;
    row->reason = work->only_a ? xasprintf("missing: recorded by the baseline only in %d pair%s",
                                         work->only_a, work->only_a == 1 ? "" : "s")
            : work->cut ? xasprintf("missing: in %d pair%s the candidate recorded none at steps "
                                    "where the baseline did",
                                  work->cut, work->cut == 1 ? "" : "s")
                        : xstrdup("recorded by the candidate only: nothing to compare with");
    return true;
}

int parity_losses(
        const struct parity_context *context, struct parity_row *ret_rows, struct error *err)
{
    static const char *const names[CURVE_PART_COUNT] = {"loss", "loss (final)"};
    static const char *const rules[CURVE_PART_COUNT] = {"paired-loss", "final-loss"};
    struct loss_work work = {.context = context};
    int rc = loss_load(&work, err), count = 0;
    if (rc == 0 && (work.sides[0].count || work.sides[1].count)) {
        for (int part = 0; part < CURVE_PART_COUNT; part++) {
            struct parity_row *row = &ret_rows[count++];
            *row = (struct parity_row){.workload = context->facts->name,
                    .tensor = xstrdup(names[part]),
                    .rule = rules[part],
                    .error_a = NAN,
                    .error_b = NAN,
                    .verdict = CELL_INCONCLUSIVE};
            if (loss_check(&work, row))
                break;
            struct curve_result result = loss_judge(&work, (enum curve_part)part);
            loss_tell(&work, (enum curve_part)part, &result, row);
        }
    }
    loss_clear(&work);
    return rc ? rc : count;
}
