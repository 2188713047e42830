// SPDX-License-Identifier: Apache-2.0
// Kernels of a place, in their order: an edit distance in which equal names cost nothing, equal
// shapes little, and time breaks ties; long sequences are cut at what is unique on both sides,
// longer ones get a band. What is then left between matches is fused, split or replaced: with names
// to trust, everything between two named matches is one group; without, a leftover joins the
// neighbour whose time it explains.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/align/align_order.h"
#include "reports/analyse/diff/thresholds.h"

enum {
    ORDER_CELLS_MAX = 1000000, // of one table; larger sequences are cut or banded
    ORDER_BAND = 128, // places that two sequences may drift apart, beside the difference of their
                      // lengths
    ORDER_BAND_MIN = 16,
};

enum order_step_kind { ORDER_BOTH, ORDER_A, ORDER_B };
struct order_step {
    uint32_t a, b; // leaves
    uint8_t kind, match;
    bool weak; // paired, but not the same kernel for sure
};

struct order {
    struct align_job *job;
    struct order_item *items[ALIGN_SIDES];
    struct order_step *steps;
    size_t step_count;
    struct order_kin kin;
};

static void order_emit(struct order *order, enum order_step_kind kind, const struct order_item *a,
        const struct order_item *b)
{
    struct order_step *step = &order->steps[order->step_count++];
    *step = (struct order_step){
            .a = a ? a->leaf : COST_NONE, .b = b ? b->leaf : COST_NONE, .kind = (uint8_t)kind};
    if (kind != ORDER_BOTH)
        return;
    step->match = (uint8_t)order_match(order->job, a, b);
    step->weak = order_is_weak(&order->kin, order->job, a, b);
}

enum { ORDER_CAME_BOTH, ORDER_CAME_A, ORDER_CAME_B };

struct order_band {
    size_t n, m, width;
    int64_t reach;
};

static size_t order_from(const struct order_band *band, size_t row) // first column of a row
{
    int64_t middle = band->n ? (int64_t)((double)row * (double)band->m / (double)band->n) : 0,
            from = middle - band->reach;
    return from > 0 ? (size_t)from : 0;
}

static size_t order_to(const struct order_band *band, size_t row) // last column
{
    int64_t middle =
            band->n ? (int64_t)((double)row * (double)band->m / (double)band->n) : (int64_t)band->m;
    return (size_t)(middle + band->reach) < band->m ? (size_t)(middle + band->reach) : band->m;
}

static void order_trace(struct order *order, const struct order_band *band, const uint8_t *came,
        size_t a0, size_t b0)
{
    size_t i = band->n, k = band->m, first = order->step_count;
    while (i || k) {
        uint8_t from = !i ? ORDER_CAME_B
                : !k      ? ORDER_CAME_A
                          : came[i * band->width + (k - order_from(band, i))];
        const struct order_item *a = i ? &order->items[0][a0 + i - 1] : NULL,
                                *b = k ? &order->items[1][b0 + k - 1] : NULL;
        if (from == ORDER_CAME_BOTH)
            order_emit(order, ORDER_BOTH, a, b), i--, k--;
        else if (from == ORDER_CAME_A)
            order_emit(order, ORDER_A, a, NULL), i--;
        else
            order_emit(order, ORDER_B, NULL, b), k--;
    }
    // it was found backwards
    for (size_t low = first, high = order->step_count; low + 1 < high; low++, high--) {
        struct order_step step = order->steps[low];
        order->steps[low] = order->steps[high - 1];
        order->steps[high - 1] = step;
    }
}

// The edit distance of a stretch, in a band around its diagonal.
static void order_table(
        struct order *order, size_t a0, size_t a1, size_t b0, size_t b1, int64_t reach)
{
    struct order_band band = {.n = a1 - a0, .m = b1 - b0, .reach = reach};
    band.width = (size_t)(2 * reach + 3) < band.m + 1 ? (size_t)(2 * reach + 3) : band.m + 1;
    order->job->cells -= (int64_t)((band.n + 1) * band.width);
    order_kin_fill(
            &order->kin, order->job, order->items[0] + a0, a1 - a0, order->items[1] + b0, b1 - b0);
    uint8_t *came = xcalloc((band.n + 1) * band.width, 1);
    float *above = xcalloc(band.m + 2, sizeof *above), *here = xcalloc(band.m + 2, sizeof *here);
    for (size_t k = 0; k <= band.m; k++) {
        above[k] = k <= order_to(&band, 0) ? (float)k : INFINITY;
        here[k] = INFINITY;
        if (k && k < band.width)
            came[k] = ORDER_CAME_B;
    }
    for (size_t i = 1; i <= band.n; i++) {
        size_t from = order_from(&band, i), to = order_to(&band, i);
        const struct order_item *a = &order->items[0][a0 + i - 1];
        uint8_t *row = came + i * band.width;
        for (size_t k = from; k <= to; k++) {
            float both = k && isfinite(above[k - 1])
                    ? above[k - 1] + order_cost(&order->kin, a, &order->items[1][b0 + k - 1])
                    : INFINITY;
            float out = above[k] + 1, in = k > from ? here[k - 1] + 1 : INFINITY;
            float best = both <= out && both <= in ? both : out <= in ? out : in;
            row[k - from] = best == both ? ORDER_CAME_BOTH
                    : best == out        ? ORDER_CAME_A
                                         : ORDER_CAME_B;
            here[k] = best;
        }
        if (from)
            here[from - 1] = INFINITY;
        if (to < band.m)
            here[to + 1] = INFINITY;
        float *swap = above;
        above = here;
        here = swap;
    }
    order_trace(order, &band, came, a0, b0);
    free(came);
    free(above);
    free(here);
}

static bool order_equal(const struct order_item *a, const struct order_item *b)
{
    return a->exact == b->exact && a->exact != COST_NONE && a->kind == b->kind &&
            a->shape == b->shape;
}

static void order_stretch(
        struct order *order, size_t a0, size_t a1, size_t b0, size_t b1, int level);

// Too long even for a band: the k-th of a name is the k-th.
static void order_names(struct order *order, size_t a0, size_t a1, size_t b0, size_t b1)
{
    size_t n = a1 - a0, m = b1 - b0, least = n < m ? n : m;
    struct order_anchor *anchors = xcalloc(least + 1, sizeof *anchors);
    size_t count = order_unique(order->items[0] + a0, n, order->items[1] + b0, m, 0, true, anchors);
    count = order_rising(anchors, count);
    size_t i = 0, k = 0;
    for (size_t x = 0; x <= count; x++) {
        size_t end_a = x < count ? anchors[x].a : n, end_b = x < count ? anchors[x].b : m;
        for (; i < end_a; i++)
            order_emit(order, ORDER_A, &order->items[0][a0 + i], NULL);
        for (; k < end_b; k++)
            order_emit(order, ORDER_B, NULL, &order->items[1][b0 + k]);
        if (x < count)
            order_emit(order, ORDER_BOTH, &order->items[0][a0 + i++], &order->items[1][b0 + k++]);
    }
    free(anchors);
}

// Cuts a long stretch at its anchors; false: it has none.
static bool order_cut(struct order *order, size_t a0, size_t a1, size_t b0, size_t b1, int level)
{
    size_t n = a1 - a0, m = b1 - b0, least = n < m ? n : m;
    struct order_anchor *anchors = xcalloc(least + 1, sizeof *anchors);
    size_t count =
            order_unique(order->items[0] + a0, n, order->items[1] + b0, m, level, false, anchors);
    count = order_rising(anchors, count);
    size_t i = 0, k = 0;
    for (size_t x = 0; count && x <= count; x++) {
        size_t end_a = x < count ? anchors[x].a : n, end_b = x < count ? anchors[x].b : m;
        order_stretch(order, a0 + i, a0 + end_a, b0 + k, b0 + end_b, level + 1);
        if (x < count)
            order_emit(
                    order, ORDER_BOTH, &order->items[0][a0 + end_a], &order->items[1][b0 + end_b]);
        i = end_a + 1;
        k = end_b + 1;
    }
    free(anchors);
    return count > 0;
}

static void order_middle(struct order *order, size_t a0, size_t a1, size_t b0, size_t b1, int level)
{
    int64_t n = (int64_t)(a1 - a0), m = (int64_t)(b1 - b0), longer = n > m ? n : m,
            apart = llabs(n - m);
    if (n * m <= ORDER_CELLS_MAX && n * m <= order->job->cells) {
        order_table(order, a0, a1, b0, b1, longer);
        return;
    }
    for (; level < ORDER_LEVELS; level++)
        if (order_cut(order, a0, a1, b0, b1, level))
            return;
    for (int64_t reach = ORDER_BAND; reach >= ORDER_BAND_MIN; reach /= 2)
        if (n * 2 * (apart + reach) <= order->job->cells) {
            order_table(order, a0, a1, b0, b1, apart + reach);
            return;
        }
    order_names(order, a0, a1, b0, b1);
}

static void order_stretch(
        struct order *order, size_t a0, size_t a1, size_t b0, size_t b1, int level)
{
    size_t tail = 0;
    while (a0 < a1 && b0 < b1 && order_equal(&order->items[0][a0], &order->items[1][b0]))
        order_emit(order, ORDER_BOTH, &order->items[0][a0++], &order->items[1][b0++]);
    while (a0 < a1 && b0 < b1 && order_equal(&order->items[0][a1 - 1], &order->items[1][b1 - 1]))
        a1--, b1--, tail++;
    if (a0 < a1 && b0 < b1)
        order_middle(order, a0, a1, b0, b1, level);
    else
        for (; a0 < a1 || b0 < b1;)
            if (a0 < a1)
                order_emit(order, ORDER_A, &order->items[0][a0++], NULL);
            else
                order_emit(order, ORDER_B, NULL, &order->items[1][b0++]);
    for (size_t i = 0; i < tail; i++)
        order_emit(order, ORDER_BOTH, &order->items[0][a1 + i], &order->items[1][b1 + i]);
}

// A library sets a few bytes before one product and not before another, and all sets are called
// alike: they say of no kernel where its work begins, nor do they take it over.
static bool order_is_set(const struct order *order, const struct order_step *step)
{
    int s = step->a == COST_NONE;
    const struct align_side *side = &order->job->sides[s];
    const struct cost_node *node = &side->tree->nodes[side->leaves[s ? step->b : step->a].node];
    return node->kind == COST_TRANSFER && strcmp(node->name, "set") == 0;
}

static bool order_is_set_pair(const struct order *order, const struct order_step *step)
{
    return step->kind == ORDER_BOTH && order_is_set(order, step);
}

// Steps [from, to) become one group, communication and the rest apart: they never fuse. Sets stay
// out, but for one that stands where the other side has a kernel.
static void order_group(struct order *order, size_t from, size_t to)
{
    struct align_job *job = order->job;
    bool names = job->names_work, kernels[ALIGN_SIDES] = {false, false};
    for (size_t i = from; i < to; i++) {
        bool set = order_is_set(order, &order->steps[i]);
        kernels[0] |= !set && order->steps[i].a != COST_NONE;
        kernels[1] |= !set && order->steps[i].b != COST_NONE;
    }
    uint32_t *leaves = xcalloc(2 * (to - from) + 1, sizeof *leaves), *other = leaves + (to - from);
    for (int comm = 0; comm < 2; comm++) {
        size_t count_a = 0, count_b = 0;
        for (size_t i = from; i < to; i++) {
            const struct order_step *step = &order->steps[i];
            if (names && order_is_set(order, step) &&
                    (step->kind == ORDER_BOTH || (kernels[0] && kernels[1])))
                continue;
            if (step->a != COST_NONE &&
                    (job->sides[0].leaves[step->a].kind == COST_COLLECTIVE) == comm)
                leaves[count_a++] = step->a;
            if (step->b != COST_NONE &&
                    (job->sides[1].leaves[step->b].kind == COST_COLLECTIVE) == comm)
                other[count_b++] = step->b;
        }
        if (!count_a || !count_b) // of one side only: it may be at another place
            continue;
        if (order->kin.gathered && names)
            order_join(job, leaves, count_a, other, count_b);
        else
            align_join_several(job, leaves, count_a, other, count_b);
    }
    free(leaves);
}

static double order_ns(const struct order *order, int s, uint32_t leaf)
{
    return leaf == COST_NONE ? 0 : order->job->sides[s].leaves[leaf].ns;
}

// Without names: how much better a neighbour's times agree when the leftover [from, to) is added to
// its shorter side. 0: no better.
static double order_gain(const struct order *order, size_t from, size_t to, size_t neighbour)
{
    double sums[ALIGN_SIDES] = {0};
    for (size_t i = from; i < to; i++) {
        sums[0] += order_ns(order, 0, order->steps[i].a);
        sums[1] += order_ns(order, 1, order->steps[i].b);
    }
    double a = order_ns(order, 0, order->steps[neighbour].a),
           b = order_ns(order, 1, order->steps[neighbour].b);
    double before = fabs(a - b), after = fabs(a + sums[0] - b - sums[1]);
    return before > order_unexplained * fmax(a, b) ? before - after : 0;
}

// A leftover run without names to trust.
static void order_blind(struct order *order, size_t from, size_t to, size_t *done)
{
    bool sides[ALIGN_SIDES] = {false, false};
    for (size_t i = from; i < to; i++)
        sides[order->steps[i].kind == ORDER_B] = true;
    if (sides[0] && sides[1]) {
        order_group(order, from, to);
        return;
    }
    double before =
            from > *done && order->steps[from - 1].weak ? order_gain(order, from, to, from - 1) : 0;
    double behind =
            to < order->step_count && order->steps[to].weak ? order_gain(order, from, to, to) : 0;
    if (before > 0 && before >= behind)
        order_group(order, from - 1, to);
    else if (behind > 0)
        order_group(order, from, to + 1);
    *done = behind > 0 && before < behind ? to + 1 : to;
}

static void order_groups(struct order *order)
{
    bool names = order->job->names_work;
    for (size_t i = 0, done = 0; i < order->step_count;) {
        bool gap = order->steps[i].kind != ORDER_BOTH, any = gap;
        if (!gap && (!(names && order->steps[i].weak) || order_is_set(order, &order->steps[i]))) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < order->step_count &&
                (order->steps[end].kind != ORDER_BOTH || (names && order->steps[end].weak) ||
                        (names && order_is_set_pair(order, &order->steps[end])))) {
            any |= order->steps[end].kind != ORDER_BOTH;
            end++;
        }
        while (names && order_is_set_pair(order, &order->steps[end - 1]))
            end--;
        if (names && any)
            order_group(order, i, end);
        else if (!names)
            order_blind(order, i, end, &done);
        i = end;
    }
    for (size_t i = 0; i < order->step_count; i++) {
        const struct order_step *step = &order->steps[i];
        if (step->kind == ORDER_BOTH && order->job->sides[0].leaves[step->a].group == COST_NONE &&
                order->job->sides[1].leaves[step->b].group == COST_NONE)
            align_join(order->job, step->match, &step->a, 1, &step->b, 1);
    }
}

static void order_votes(struct order *order)
{
    for (size_t i = 0; i < order->step_count; i++)
        if (order->steps[i].weak)
            align_vote(order->job, &order->job->sides[0].leaves[order->steps[i].a],
                    &order->job->sides[1].leaves[order->steps[i].b]);
}

void align_order(struct align_job *job, const struct align_pool *pool)
{
    struct order order = {.job = job, .kin.gathered = pool->gathered};
    size_t counts[ALIGN_SIDES];
    for (int s = 0; s < ALIGN_SIDES; s++) {
        const struct align_leaf *leaves = job->sides[s].leaves;
        // those come first
        for (counts[s] = 0;
                counts[s] < pool->count[s] && leaves[pool->leaves[s][counts[s]]].ordered;)
            counts[s]++;
        order.items[s] = xcalloc(counts[s] + 1, sizeof *order.items[s]);
        for (size_t i = 0; i < counts[s]; i++) {
            const struct align_leaf *leaf = &leaves[pool->leaves[s][i]];
            order.items[s][i] = (struct order_item){.leaf = pool->leaves[s][i],
                    .exact = leaf->exact,
                    .normal = leaf->normal,
                    .learned = leaf->learned,
                    .shape = leaf->shape,
                    .ns = (float)leaf->ns,
                    .kind = leaf->kind};
        }
        if (pool->gathered)
            order_usual(job, s, order.items[s], counts[s]);
    }
    order.steps = xcalloc(counts[0] + counts[1] + 1, sizeof *order.steps);
    if (counts[0] && counts[1]) {
        order_stretch(&order, 0, counts[0], 0, counts[1], 0);
        if (job->voting)
            order_votes(&order);
        else
            order_groups(&order);
    }
    free(order.steps);
    order_kin_free(&order.kin);
    free(order.items[0]);
    free(order.items[1]);
}
