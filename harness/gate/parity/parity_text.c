// SPDX-License-Identifier: Apache-2.0
// The verdict on one tensor name, and the sentence that says what it rests on: what was compared,
// how, how much of it, and what was not.
#include <math.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/parity/parity_internal.h"

static enum cell_verdict text_verdict(enum parity_state state)
{
    return state == PARITY_PASS ? CELL_PASS : state == PARITY_FAIL ? CELL_FAIL : CELL_INCONCLUSIVE;
}

static double text_share(double error, double limit)
{
    return error == 0 ? 0 : error / limit;
}

// The part that takes most of its limit: the whole tensor, a chunk or one value.
static void text_errors(const struct parity_work *work, struct strbuf *text)
{
    const struct parity_result *worst = &work->worst;
    const struct parity_error *b = &worst->error_b, *limit = &worst->limit, *a = &worst->error_a;
    bool sums = work->where.first != work->where.last, anchored = !isnan(a->all);
    double all = text_share(b->all, limit->all), chunk = text_share(b->chunk, limit->chunk);
    double element = text_share(b->element, limit->element);
    bool known = !isnan(limit->all);
    bool whole = !known || (all >= chunk && all >= element), part = !whole && chunk >= element;
    strbuf_add(text, "%.3g rms from %s",
            whole          ? b->all
                    : part ? b->chunk
                           : b->element,
            anchored ? "float64" : "the baseline");
    if (part)
        strbuf_add(text, " in %d neighbouring %s", PARITY_CHUNK, sums ? "sums" : "values");
    else if (!whole)
        strbuf_add(text, " in one %s", sums ? "sum" : "value");
    if (anchored)
        strbuf_add(text, ", the baseline %.3g", whole ? a->all : part ? a->chunk : a->element);
    if (known)
        strbuf_add(text, ", at most %.3g",
                whole          ? limit->all
                        : part ? limit->chunk
                               : limit->element);
    if (known && !anchored)
        strbuf_add(text, "%s",
                worst->rule == PARITY_RULE_BASELINE_SPREAD
                        ? " (by what the baseline differs from itself)"
                        : " (by what the baseline is off float64 with another seed)");
}

static void text_where(const struct parity_work *work, struct strbuf *text)
{
    strbuf_add(text, " (seed %lld, step %lld", (long long)work->where.seed,
            (long long)work->where.step);
    if (work->where.rank)
        strbuf_add(text, ", rank %lld", (long long)work->where.rank);
    if (work->worst.unequal && work->where.first == work->where.last)
        strbuf_add(text, ", value %zu", work->where.first);
    else if (work->worst.unequal)
        strbuf_add(text, ", values %zu to %zu", work->where.first, work->where.last);
    strbuf_add(text, ")");
}

static void text_floats(const struct parity_work *work, struct strbuf *text)
{
    const struct parity_result *worst = &work->worst;
    if (worst->rule == PARITY_RULE_BITWISE) {
        strbuf_add(text, "equal to the last bit");
        return;
    }
    if (worst->rule == PARITY_RULE_FINITE) {
        strbuf_add(text, "%s",
                worst->has_nan_a ? "the baseline itself yields NaN: nothing to compare with"
                        : worst->has_nan_b ? "the candidate yields NaN where the baseline does not"
                                           : "Inf on one side where the other is finite");
        text_where(work, text);
        return;
    }
    text_errors(work, text);
    text_where(work, text);
    if (worst->rule == PARITY_RULE_TORCH_TESTING && worst->state != PARITY_PASS)
        strbuf_add(text, ", outside torch.testing's tolerance for %s", dtype_name(work->dtype_a));
    if (work->tally.anchor_broken)
        strbuf_add(text,
                ": the float64 launch yields NaN or Inf where both sides do not, in %ld tensor%s, and is no anchor there",
                work->tally.anchor_broken, work->tally.anchor_broken == 1 ? "" : "s");
    else if (worst->rule == PARITY_RULE_TORCH_TESTING && worst->state == PARITY_INCONCLUSIVE)
        strbuf_add(text,
                ": rounding or a defect? A float64 anchor would tell (anchor: true and "
                "{dtype} in the command)");
    if (worst->vague && worst->state == PARITY_INCONCLUSIVE)
        strbuf_add(text,
                ": a limit that zeros would keep judges nothing; the baseline's own values "
                "are that uncertain");
    if (!isnan(worst->cosine))
        strbuf_add(text, "; cosine %.6f", worst->cosine);
    if (worst->cosine < 0.99 && worst->state != PARITY_PASS)
        strbuf_add(text,
                "; outputs that are drawn at random are compared as distributions when "
                "their name starts with `sampled`");
}

static void text_integers(const struct parity_work *work, struct strbuf *text)
{
    const struct mismatch_result *result = &work->mismatch;
    strbuf_add(text, "%ld of %ld integers differ", work->sides.differ, work->sides.compared);
    switch (result->state) {
    case MISMATCH_WITHIN:
    case MISMATCH_OPEN:
        strbuf_add(text, " (a rate of at most %.2g), %s: the baseline's own allow %.2g (%.2g seen)",
                result->upper,
                result->state == MISMATCH_OPEN ? "and more pairs would tell" : "as they may",
                result->limit, result->rate_own);
        break;
    case MISMATCH_VAGUE:
        strbuf_add(text,
                " (a rate of at most %.2g): the baseline's own are that uncertain (%.2g of them differ), and a limit that values by "
                "chance would keep judges nothing",
                result->upper, result->rate_own);
        break;
    case MISMATCH_BEYOND:
        strbuf_add(text, ", more than the baseline's own explain (%.2g of them, against %.2g)",
                result->rate, result->rate_own);
        break;
    case MISMATCH_GROSS:
        strbuf_add(text,
                "; in one tensor %.3g %% do (seed %lld, step %lld), and rounding flips no "
                "more than 1 %%; tokens that are drawn at random are compared as a "
                "distribution when their name starts with `sampled`",
                100 * work->sides.most, (long long)work->where.seed, (long long)work->where.step);
        break;
    default:
        strbuf_add(text,
                ": rounding or a defect? A float64 anchor would tell (anchor: true and "
                "{dtype} in the command)");
    }
}

static void text_count(struct strbuf *text, long count, const char *what)
{
    strbuf_add(text, "%ld %s%s", count, what, count == 1 ? "" : "s");
}

// How much stands behind the sentence, and what it does not say.
static void text_tally(const struct parity_work *work, struct strbuf *text)
{
    const struct parity_tally *tally = &work->tally;
    strbuf_add(text, "; ");
    text_count(text, tally->pairs, "pair");
    strbuf_add(text, ", ");
    text_count(text, tally->tensors, "tensor");
    strbuf_add(text, ", %ld values", tally->values);
    if (tally->equal && tally->equal < tally->tensors)
        strbuf_add(text, "; %ld of them equal to the last bit", tally->equal);
    if (tally->equal < tally->tensors && !work->has_mismatch && !work->sampled) {
        strbuf_add(text, ", ");
        if (tally->anchored)
            strbuf_add(text, "%ld compared with float64 values of their own", tally->anchored);
        else
            strbuf_add(text, "no float64 anchor");
    }
    if (tally->digest_equal)
        strbuf_add(text, "; %ld equal by digest only", tally->digest_equal);
    if (tally->digest_unequal)
        strbuf_add(text, "; %ld differ and were not compared: their values are not kept",
                tally->digest_unequal);
    if (tally->beyond)
        strbuf_add(text, "; %ld behind the first 16 MiB of a launch by digest only", tally->beyond);
    if (tally->beyond_unequal)
        strbuf_add(text, ", %ld of them differ", tally->beyond_unequal);
    if (work->type_differs)
        strbuf_add(text, "; the type changed from %s to %s", dtype_name(work->dtype_a),
                dtype_name(work->dtype_b));
    if (tally->sketched)
        strbuf_add(text,
                "; of %ld long tensors that differ the first %d values are compared one by "
                "one, and all of them by %d sums",
                tally->sketched, TENSOR_VALUES_MAX, SKETCH_SUMS);
    if (tally->truncated)
        strbuf_add(text,
                "; of %ld long tensors that differ the first %d values are compared, the "
                "rest is not",
                tally->truncated, TENSOR_VALUES_MAX);
    if (tally->unseen)
        strbuf_add(text, "; %ld differ where nothing was kept but a digest", tally->unseen);
    if (tally->unmatched)
        strbuf_add(text, "; %ld recorded by the baseline only%s", tally->unmatched,
                tally->lost ? tally->left_out ? " (some of the candidate's were lost)"
                                              : " (the candidate's were lost)"
                            : "");
}

static void text_missing(const struct parity_work *work, struct parity_row *row)
{
    row->rule = "missing";
    if (work->rows_a == 0) {
        row->reason = xstrdup("recorded by the candidate only: nothing to compare with");
    } else {
        row->verdict = CELL_FAIL;
        row->reason = work->rows_b
                ? xasprintf("missing: recorded by the baseline only in %d pair%s",
                          work->tally.missing, work->tally.missing == 1 ? "" : "s")
                : xstrdup("missing: recorded by the baseline only");
    }
}

// Compared by digest alone, or not at all.
static void text_undecoded(const struct parity_work *work, struct parity_row *row)
{
    const struct parity_tally *tally = &work->tally;
    long unequal = tally->digest_unequal + tally->beyond_unequal;
    bool equal = tally->digest_equal + tally->beyond > unequal && unequal == 0;
    row->verdict = equal ? CELL_PASS : CELL_INCONCLUSIVE;
    row->reason = unequal
            ? xstrdup("differs, and its values cannot be compared: their type is not decoded "
                      "here, or they were not kept")
            : equal
            ? xasprintf("equal to the last bit (by digest: no values are %s); %d pairs, "
                        "%ld tensors",
                      tally->beyond ? "kept behind the first 16 MiB of a launch" : "decoded",
                      tally->pairs, tally->digest_equal + tally->beyond)
            : xstrdup("no tensor was recorded by both sides at the same step");
}

static void text_judge_integers(const struct parity_work *work, struct parity_row *row)
{
    static const enum cell_verdict verdicts[MISMATCH_STATE_COUNT] = {
            [MISMATCH_NONE] = CELL_PASS,
            [MISMATCH_WITHIN] = CELL_PASS,
            [MISMATCH_BEYOND] = CELL_FAIL,
            [MISMATCH_GROSS] = CELL_FAIL,
            [MISMATCH_OPEN] = CELL_INCONCLUSIVE,
            [MISMATCH_UNKNOWN] = CELL_INCONCLUSIVE,
            [MISMATCH_VAGUE] = CELL_INCONCLUSIVE,
    };
    row->rule = work->mismatch.state == MISMATCH_NONE ? "bitwise" : "mismatch-rate";
    row->verdict = verdicts[work->mismatch.state];
    row->error_a = work->mismatch.rate_own;
    row->error_b = work->mismatch.rate;
    // more pairs narrow both rates
    if (work->mismatch.state == MISMATCH_OPEN || work->mismatch.state == MISMATCH_VAGUE)
        row->want_main = parity_next_look(work->context);
}

void parity_tell(const struct parity_work *work, struct parity_row *row)
{
    *row = (struct parity_row){.workload = work->context->facts->name,
            .tensor = xstrdup(work->name),
            .rule = "bitwise",
            .error_a = NAN,
            .error_b = NAN,
            .verdict = CELL_INCONCLUSIVE};
    struct strbuf text = {0};
    if (!work->rows_a || !work->rows_b || work->tally.missing) {
        text_missing(work, row);
    } else if (work->shape_differs) {
        row->rule = "shape";
        row->verdict = CELL_FAIL;
        row->reason = xstrdup("the number of elements differs between the sides");
    } else if (work->has_result && (!work->has_mismatch || work->worst.state != PARITY_PASS)) {
        row->rule = parity_rule_name(work->worst.rule);
        row->error_a = work->worst.error_a.all;
        row->error_b = work->worst.error_b.all;
        row->verdict = text_verdict(work->worst.state);
        text_floats(work, &text);
        text_tally(work, &text);
        row->reason = strbuf_take(&text);
    } else if (work->has_mismatch) {
        text_judge_integers(work, row);
        if (work->mismatch.state == MISMATCH_NONE)
            strbuf_add(&text, "equal to the last bit");
        else
            text_integers(work, &text);
        text_tally(work, &text);
        row->reason = strbuf_take(&text);
    } else if (work->sampled && work->pool_count) {
        parity_sampled_row(work, row);
    } else {
        text_undecoded(work, row);
    }
    // What is left out does not pass. Where rounding shows in the outputs that were compared,
    // digests behind them say nothing; where those are equal to the last bit, one that differs
    // does.
    const struct parity_tally *tally = &work->tally;
    bool strikes_late = tally->beyond_unequal && !work->sampled && tally->equal == tally->tensors;
    bool left_out = tally->left_out || tally->digest_unequal || tally->unseen || strikes_late;
    if (left_out && row->verdict == CELL_PASS)
        row->verdict = CELL_INCONCLUSIVE;
    row->uncompared = work->sampled ? tally->beyond : tally->beyond_unequal;
}
