// SPDX-License-Identifier: Apache-2.0
// One pair's tensors of one name, step by step: by digest where the sides are equal, by value where
// they are not, against the yardsticks that the baseline gave. Every tensor is compared once.
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/parity/parity_internal.h"
#include "reports/analyse/random.h"

enum { TENSOR_UNRELATED = 256 }; // values of a tensor that are drawn for how many match by chance

// A difference that grows by itself was there a step ago, a tenth as large: ten a step is more than
// training does, and less than a defect that strikes.
static const double tensor_growth_max = 10;

static struct parity_step *tensor_step(
        struct parity_work *work, int64_t step, enum parity_view view)
{
    // Without feedback from step to step, rounding is the same at every one.
    step = work->context->facts->mode == PLAN_MODE_INFER ? 0 : step;
    struct parity_steps *steps = &work->steps;
    for (int i = 0; i < steps->count; i++)
        if (steps->items[i].step == step && steps->items[i].view == view)
            return &steps->items[i];
    vector_push(steps->items, steps->count, (struct parity_step){.step = step, .view = view});
    return &steps->items[steps->count - 1];
}

static double *tensor_values(const struct tensor_row *row, size_t count, enum parity_view view)
{
    double *values = xcalloc(count + 1, sizeof *values);
    if (view == PARITY_VIEW_SKETCH)
        memcpy(values, row->sketch, count * sizeof *values);
    else
        dtype_decode(row->dtype, row->bytes, count, values);
    return values;
}

static double tensor_value(const struct tensor_row *row, size_t at)
{
    double value = 0;
    dtype_decode(row->dtype, (const char *)row->bytes + at * dtype_bytes(row->dtype), 1, &value);
    return value;
}

// Numbers that both have in a view; 0: it does not exist.
static size_t tensor_common(
        const struct tensor_row *left, const struct tensor_row *right, enum parity_view view)
{
    if (view == PARITY_VIEW_SKETCH)
        return left->sketch && right->sketch && left->count == right->count ? SKETCH_SUMS : 0;
    if (!left->bytes || !right->bytes)
        return 0;
    return left->stored < right->stored ? left->stored : right->stored;
}

static bool tensor_fits(
        const struct tensor_row *row, const struct tensor_row *other, enum parity_view view)
{
    return other && other->count == row->count && tensor_common(row, other, view) > 0;
}

// Of the first values as bytes where that is possible: a double has 53 bits of a 64-bit integer.
// Behind them by sums.
static long tensor_mismatches(
        const struct tensor_row *left, const struct tensor_row *right, long *ret_compared)
{
    size_t count = tensor_common(left, right, PARITY_VIEW_VALUES);
    long differ = 0;
    *ret_compared = (long)count;
    if (left->dtype == right->dtype) {
        size_t width = dtype_bytes(left->dtype);
        const char *at_left = left->bytes, *at_right = right->bytes;
        for (size_t i = 0; i < count; i++)
            differ += memcmp(at_left + i * width, at_right + i * width, width) != 0;
    } else {
        double *of_left = tensor_values(left, count, PARITY_VIEW_VALUES);
        double *of_right = tensor_values(right, count, PARITY_VIEW_VALUES);
        for (size_t i = 0; i < count; i++)
            differ += of_left[i] != of_right[i];
        free(of_left);
        free(of_right);
    }
    size_t sums = tensor_common(left, right, PARITY_VIEW_SKETCH);
    for (size_t i = 0; i < sums; i++) {
        if (sketch_first(i, left->count) < count)
            continue;
        differ += left->sketch[i] != right->sketch[i];
        ++*ret_compared;
    }
    return differ;
}

static void tensor_learn_view(struct parity_yardstick *yardstick, const struct tensor_row *row,
        const struct tensor_row *other, enum parity_view view, bool anchor)
{
    size_t count = tensor_common(row, other, view);
    double *values = tensor_values(row, count, view), *others = tensor_values(other, count, view);
    const double *reference = anchor ? others : values;
    double unit = parity_rms(reference, count);
    unit = unit > 0 ? unit : parity_rms(anchor ? values : others, count);
    struct parity_error error = parity_distance(reference, anchor ? values : others, count, unit);
    parity_yardstick_add(yardstick, &error);
    free(values);
    free(others);
}

static void tensor_learn(struct parity_work *work, const struct tensor_row *row,
        const struct tensor_row *other, bool anchor)
{
    if (!row->bytes || !tensor_fits(row, other, PARITY_VIEW_VALUES))
        return;
    if (!dtype_is_float(row->dtype)) {
        long compared, differ = tensor_mismatches(row, other, &compared);
        mismatch_add(anchor ? &work->own_anchor : &work->own_repeat, differ, compared);
        return;
    }
    for (int view = 0; view < PARITY_VIEW_COUNT; view++) {
        if (!tensor_fits(row, other, (enum parity_view)view))
            continue;
        struct parity_step *step = tensor_step(work, row->step, (enum parity_view)view);
        tensor_learn_view(anchor ? &step->rounding : &step->repeat, row, other,
                (enum parity_view)view, anchor);
    }
}

void parity_learn(struct parity_work *work, const struct tensor_rows *rows_a)
{
    for (int i = 0; i < rows_a->count; i++) {
        const struct tensor_row *row = &rows_a->items[i];
        tensor_learn(work, row,
                tensor_rows_find(&work->anchor, row->seed, row->rank, row->step, NULL), true);
        tensor_learn(work, row,
                tensor_rows_find(&work->repeat, row->seed, row->rank, row->step, NULL), false);
    }
}

// --- one tensor of both sides --------------------------------------------------------------------

static double tensor_severity(const struct parity_result *result)
{
    static const double of_state[PARITY_STATE_COUNT] = {
            [PARITY_PASS] = 0, [PARITY_INCONCLUSIVE] = 1e6, [PARITY_FAIL] = 2e6};
    // A rule that allows more says more about the data than one that found nothing to allow.
    return of_state[result->state] + (result->rule == PARITY_RULE_BITWISE ? 0 : 1) +
            (isnan(result->used) ? 0 : fmin(result->used, 1e5));
}

static void tensor_keep_worst(struct parity_work *work, const struct tensor_row *row,
        enum parity_view view, const struct parity_result *result)
{
    if (!work->has_result || tensor_severity(result) > tensor_severity(&work->worst)) {
        work->worst = *result;
        work->where = (struct parity_where){
                row->seed, row->step, row->rank, result->worst, result->worst};
        if (view == PARITY_VIEW_SKETCH) {
            work->where.first = sketch_first(result->worst, row->count);
            work->where.last = sketch_first(result->worst + 1, row->count) - 1;
        }
    }
    work->has_result = true;
}

// Of the same rank, one recorded step ago.
struct tensor_before {
    bool known;
    int64_t rank, step;
    double error;
};

static double tensor_drift_max(const struct parity_work *work, const struct tensor_row *row,
        const struct tensor_before *before)
{
    bool feedback = work->context->facts->mode != PLAN_MODE_INFER;
    if (!feedback || !before->known || before->rank != row->rank || !(before->error > 0))
        return 0;
    return row->step - before->step > 1 ? INFINITY : tensor_growth_max * before->error;
}

static bool tensor_equal(const struct tensor_row *a, const struct tensor_row *b)
{
    return a->dtype == b->dtype && strcmp(a->digest, b->digest) == 0;
}

// True: no number of this view differs.
static bool tensor_compare_view(struct parity_work *work, const struct tensor_row *a,
        const struct tensor_row *b, enum parity_view view, struct tensor_before *before)
{
    const struct tensor_row *anchor =
            tensor_rows_find(&work->anchor, a->seed, a->rank, a->step, NULL);
    bool equal = tensor_equal(a, b);
    size_t count = tensor_common(a, b, view);
    anchor =
            tensor_fits(a, anchor, view) && tensor_common(a, anchor, view) >= count ? anchor : NULL;
    double *of_a = tensor_values(a, count, view);
    double *of_b = equal ? of_a : tensor_values(b, count, view);
    double *truth = anchor && !equal ? tensor_values(anchor, count, view) : NULL;
    const struct parity_step *step = tensor_step(work, a->step, view);
    struct parity_input input = {.a = of_a,
            .b = of_b,
            .anchor = truth,
            .count = count,
            .dtype = a->dtype,
            .factor = work->context->gate->parity_factor,
            .rounding = step->rounding,
            .repeat = step->repeat,
            .drift_max = tensor_drift_max(work, a, before)};
    struct parity_result result = parity_compare(&input);
    work->tally.anchored += truth && !result.anchor_broken && view == PARITY_VIEW_VALUES;
    work->tally.anchor_broken += result.anchor_broken && view == PARITY_VIEW_VALUES;
    *before = (struct tensor_before){true, a->rank, a->step, result.error_b.all};
    tensor_keep_worst(work, a, view, &result);
    free(of_a);
    if (!equal)
        free(of_b);
    free(truth);
    return result.unequal == 0;
}

static void tensor_compare_floats(struct parity_work *work, const struct tensor_row *a,
        const struct tensor_row *b, struct tensor_before *before)
{
    bool same = true;
    work->tally.equal += tensor_equal(a, b);
    for (int view = 0; view < PARITY_VIEW_COUNT; view++)
        if (tensor_common(a, b, (enum parity_view)view))
            same = tensor_compare_view(work, a, b, (enum parity_view)view, &before[view]) && same;
    // The digests differ, and what differs was not kept.
    work->tally.unseen +=
            same && a->stored < a->count && a->dtype == b->dtype && !tensor_equal(a, b);
}

// How many values match by chance: of few classes many do. The same draws each time.
static void tensor_learn_unrelated(
        struct parity_work *work, const struct tensor_row *a, const struct tensor_row *b)
{
    size_t count = tensor_common(a, b, PARITY_VIEW_VALUES);
    long differ = 0;
    if (count < 2)
        return;
    struct random_state random = {(uint64_t)work->sides.tensors + 1};
    for (int i = 0; i < TENSOR_UNRELATED; i++) {
        size_t at = random_next(&random) % count,
               elsewhere = (at + 1 + random_next(&random) % (count - 1)) % count;
        differ += tensor_value(a, at) != tensor_value(b, elsewhere);
    }
    mismatch_add_unrelated(&work->sides, differ, TENSOR_UNRELATED);
}

static void tensor_compare_integers(
        struct parity_work *work, const struct tensor_row *a, const struct tensor_row *b)
{
    long compared, differ = tensor_mismatches(a, b, &compared);
    work->tally.equal += tensor_equal(a, b);
    work->tally.unseen += differ == 0 && a->dtype == b->dtype && !tensor_equal(a, b);
    if (differ > 0 && (double)differ / (double)compared > work->sides.most)
        work->where = (struct parity_where){.seed = a->seed, .step = a->step, .rank = a->rank};
    tensor_learn_unrelated(work, a, b);
    mismatch_add(&work->sides, differ, compared);
    work->has_mismatch = true;
}

static void tensor_match(struct parity_work *work, const struct tensor_row *a,
        const struct tensor_row *b, struct tensor_before *before)
{
    work->dtype_a = a->dtype;
    work->dtype_b = b->dtype;
    work->type_differs = work->type_differs || a->dtype != b->dtype;
    work->shape_differs = work->shape_differs || a->count != b->count;
    if (tensor_common(a, b, PARITY_VIEW_VALUES) == 0) {
        // else nobody could have read them
        bool beyond = a->dtype != DTYPE_COUNT && b->dtype != DTYPE_COUNT;
        work->tally.beyond += beyond;
        work->tally.beyond_unequal += beyond && !tensor_equal(a, b);
        work->tally.digest_equal += !beyond && tensor_equal(a, b);
        work->tally.digest_unequal += !beyond && !tensor_equal(a, b);
        return;
    }
    bool cut = a->stored < a->count && !tensor_equal(a, b);
    bool sketched = tensor_common(a, b, PARITY_VIEW_SKETCH) > 0;
    work->tally.tensors++;
    long values = (long)(tensor_equal(a, b) ? a->count : tensor_common(a, b, PARITY_VIEW_VALUES));
    if (__builtin_add_overflow(work->tally.values, values, &work->tally.values))
        work->tally.values = LONG_MAX; // counts of a damaged store
    work->tally.sketched += cut && sketched;
    work->tally.truncated += cut && !sketched;
    if (work->sampled)
        return;
    if (dtype_is_float(a->dtype) || dtype_is_float(b->dtype))
        tensor_compare_floats(work, a, b, before);
    else
        tensor_compare_integers(work, a, b);
}

void parity_pair(struct parity_work *work, const struct pair_head *head,
        const struct tensor_rows *rows_a, const struct tensor_rows *rows_b)
{
    struct tensor_before before[PARITY_VIEW_COUNT] = {0};
    int at = 0; // both are in the same order: the partner is behind the last one found
    bool met = false;
    work->rows_a += rows_a->count;
    work->rows_b += rows_b->count;
    for (int i = 0; i < rows_a->count; i++) {
        const struct tensor_row *a = &rows_a->items[i];
        const struct tensor_row *b = tensor_rows_find(rows_b, a->seed, a->rank, a->step, &at);
        if (b)
            tensor_match(work, a, b, before);
        work->tally.unmatched += b == NULL;
        met = met || b;
    }
    work->tally.pairs += met;
    if (work->sampled)
        parity_pool_pair(work, head, rows_a, rows_b);
}

void parity_settle_mismatch(struct parity_work *work)
{
    const struct parity_context *context = work->context;
    double factor = context->gate->parity_factor;
    // A baseline that repeats itself to the last bit says nothing about rounding.
    bool repeats = work->own_repeat.differ > 0;
    bool anchored = work->own_anchor.compared > 0;
    struct mismatch_input input = {
            .sides = work->sides, .factor = factor, .alpha = parity_alpha(context)};
    if (anchored) { // both sides may be off float64, the candidate by the factor more
        input.own = work->own_anchor;
        input.factor = 1 + factor;
    }
    double rate_anchor = anchored
            ? (1 + factor) * (double)work->own_anchor.differ / (double)work->own_anchor.compared
            : 0;
    if (repeats &&
            (!anchored ||
                    factor * (double)work->own_repeat.differ / (double)work->own_repeat.compared >
                            rate_anchor)) {
        input.own = work->own_repeat;
        input.factor = factor;
    }
    if (work->mismatch_settled)
        return;
    work->mismatch = mismatch_compare(&input);
}
