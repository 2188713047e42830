// SPDX-License-Identifier: Apache-2.0
// Outputs that are drawn at random: the distribution of all values of a pair, side against side, in
// units of what another seed of the baseline does.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/parity/parity_internal.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/sampled.h"
#include "reports/analyse/signed_rank.h"

enum { POOL_VALUES_MAX = 65536 }; // of a pair: 64 tokens of a thousand requests

static void pool_fill(const struct tensor_rows *rows, double **ret_values, size_t *ret_count)
{
    size_t count = 0, room = 0;
    for (int i = 0; i < rows->count; i++)
        room += rows->items[i].stored;
    double *values = xcalloc(room + 1, sizeof *values);
    for (int i = 0; i < rows->count; i++) {
        const struct tensor_row *row = &rows->items[i];
        if (row->bytes)
            dtype_decode(row->dtype, row->bytes, row->stored, values + count);
        count += row->bytes ? row->stored : 0;
    }
    size_t stride = count / POOL_VALUES_MAX + 1, kept = 0;
    for (size_t i = 0; i < count; i += stride)
        if (isfinite(values[i]))
            values[kept++] = values[i];
    quantile_sort(values, kept);
    *ret_values = values;
    *ret_count = kept;
}

static long pool_broken(const struct tensor_rows *rows)
{
    long broken = 0;
    for (int i = 0; i < rows->count; i++) {
        const struct tensor_row *row = &rows->items[i];
        double *values = xcalloc(row->stored + 1, sizeof *values);
        if (row->bytes)
            dtype_decode(row->dtype, row->bytes, row->stored, values);
        for (size_t k = 0; k < row->stored; k++)
            broken += !isfinite(values[k]);
        free(values);
    }
    return broken;
}

void parity_pool_pair(struct parity_work *work, const struct pair_head *head,
        const struct tensor_rows *rows_a, const struct tensor_rows *rows_b)
{
    if (!rows_a->count || !rows_b->count)
        return;
    if (pool_broken(rows_b) && !pool_broken(rows_a)) {
        work->has_result = true;
        work->worst = (struct parity_result){.state = PARITY_FAIL,
                .rule = PARITY_RULE_FINITE,
                .has_nan_b = true,
                .error_a = {NAN, NAN, NAN},
                .error_b = {NAN, NAN, NAN}};
        work->where = (struct parity_where){.seed = head->seed};
    }
    struct parity_pool *pool = vector_add(work->pools, work->pool_count);
    *pool = (struct parity_pool){.counted = parity_is_counted(head)};
    pool_fill(rows_a, &pool->sides[0], &pool->counts[0]);
    pool_fill(rows_b, &pool->sides[1], &pool->counts[1]);
    // beyond the room of a launch: digests are all that there is
    if (!pool->counts[0] && !pool->counts[1]) {
        free(pool->sides[0]);
        free(pool->sides[1]);
        work->pool_count--;
    }
}

// Of each pair: how much further its sides are apart than its baseline is from the next pair's.
static int pool_ratios(const struct parity_work *work, int pairs_max, double *ret_ratios,
        double *ret_own, double *ret_sides)
{
    int used = 0;
    double own_sum = 0, sides_sum = 0;
    for (int i = 0; i < work->pool_count && used < pairs_max; i++) {
        const struct parity_pool *pool = &work->pools[i];
        const struct parity_pool *next = &work->pools[(i + 1) % work->pool_count];
        double sides =
                sampled_distance(pool->sides[0], pool->counts[0], pool->sides[1], pool->counts[1]);
        double own =
                sampled_distance(pool->sides[0], pool->counts[0], next->sides[0], next->counts[0]);
        if (!pool->counted || next == pool || isnan(sides) || isnan(own))
            continue;
        ret_ratios[used++] = sampled_log_ratio(sides, own, pool->counts[0]);
        own_sum += own;
        sides_sum += sides;
    }
    *ret_own = used ? own_sum / used : NAN;
    *ret_sides = used ? sides_sum / used : NAN;
    return used;
}

void parity_sampled_row(const struct parity_work *work, struct parity_row *row)
{
    const struct parity_context *context = work->context;
    double *ratios = xcalloc((size_t)work->pool_count + 1, sizeof *ratios);
    double limit = log(context->gate->parity_factor), alpha = parity_alpha(context);
    int reached = parity_looks_reached(context), used = 0;
    struct interval interval = {NAN, NAN, NAN, false};
    row->rule = "distribution";
    row->verdict = CELL_INCONCLUSIVE;
    for (int look = 0; look < reached || look == 0; look++) {
        int pairs = reached ? (int)context->schedule->looks[look] : work->pool_count;
        used = pool_ratios(work, pairs, ratios, &row->error_a, &row->error_b);
        interval = signed_rank_interval(ratios, used, alpha);
        if (interval.has_bounds && interval.lower > limit)
            row->verdict = CELL_FAIL;
        else if (interval.has_bounds && interval.upper < limit)
            row->verdict = CELL_PASS;
        if (row->verdict != CELL_INCONCLUSIVE)
            break;
    }
    if (row->verdict == CELL_INCONCLUSIVE)
        row->want_main = parity_next_look(context);
    struct strbuf text = {0};
    strbuf_add(&text,
            "drawn at random (its name starts with `sampled`): the distributions of the two sides "
            "are %.3g apart, those of two seeds of the baseline %.3g",
            row->error_b, row->error_a);
    if (interval.has_bounds)
        strbuf_add(&text, ": %.2f times (%.2f to %.2f), at most %.3g; %d pairs",
                exp(interval.estimate), exp(interval.lower), exp(interval.upper),
                context->gate->parity_factor, used);
    else
        strbuf_add(&text, "; %d pairs are too few for an interval", used);
    row->reason = strbuf_take(&text);
    free(ratios);
}
