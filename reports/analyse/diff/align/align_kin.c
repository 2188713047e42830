// SPDX-License-Identifier: Apache-2.0
// What makes two kernels of a sequence the same one: names, normalised names, shapes, time; and
// where a side has lost its places, what generated code says of itself.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/align/align_order.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum {
    ORDER_TABLE_MAX = 40000, // similarities of names kept for one table
    ORDER_JOIN_MAX = 1024,   // pairs of a group whose operators are compared
};

float order_cost(
        const struct order_kin *kin, const struct order_item *a, const struct order_item *b)
{
    if (a->kind != b->kind)
        return order_never;
    bool shape = a->shape == b->shape && a->shape != COST_NONE;
    float longer = a->ns > b->ns ? a->ns : b->ns,
          time = longer > 0 ? order_time * fabsf(a->ns - b->ns) / longer : 0;
    if (a->exact == b->exact && a->exact != COST_NONE)
        return (a->shape == b->shape ? 0 : 0.3f) + time;
    if (a->normal == b->normal && a->normal != COST_NONE)
        return (a->shape == b->shape ? 0.2f : 0.5f) + time;
    if (a->learned != COST_NONE && b->learned != COST_NONE)
        return a->learned != b->learned ? order_never : (shape ? 0.3f : 0.7f) + time;
    size_t at = (size_t)a->dense * kin->dense_b + b->dense;
    float similar = kin->similar ? kin->similar[at] : 0;
    if (shape)
        return (similar >= order_similar || (kin->operators && kin->operators[at]) ? 0.5f : 0.9f) +
                time;
    return similar >= order_similar ? 1.6f - 0.6f * similar + time : order_never;
}

enum align_match order_match(
        const struct align_job *job, const struct order_item *a, const struct order_item *b)
{
    return align_pair_match(&job->sides[0].leaves[a->leaf], &job->sides[1].leaves[b->leaf]);
}

bool order_is_weak(const struct order_kin *kin, const struct align_job *job,
        const struct order_item *a, const struct order_item *b)
{
    bool shape = a->shape == b->shape && a->shape != COST_NONE,
         named = order_match(job, a, b) <= ALIGN_NORMALISED;
    if (!kin->gathered || (named && a->shape == b->shape))
        return !named;
    if (named)
        return fabsf(a->usual - b->usual) > order_other_time * fmaxf(a->usual, b->usual);
    return !(shape && kin->operators && kin->operators[(size_t)a->dense * kin->dense_b + b->dense]);
}

// Small numbers for the normalised names of a stretch; how many.
static size_t order_dense(struct order_item *items, size_t count, uint32_t *numbers)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        numbers[i] = items[i].normal;
    sort_in_place(numbers, count, x, y, *x < *y);
    for (size_t i = 0; i < count; i++)
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    for (size_t i = 0; i < count; i++)
        items[i].dense = (uint32_t)search_first(k, kept, numbers[k] >= items[i].normal);
    return kept;
}

// One name of each normalised name, as it is: what a template is of is lost in the normalised one.
static const char **order_texts(
        const struct align_job *job, int s, const struct order_item *items, size_t n, size_t count)
{
    const char **texts = xcalloc(count + 1, sizeof *texts);
    for (size_t i = n; i-- > 0;) // the first one stays
        texts[items[i].dense] =
                job->sides[s].tree->nodes[job->sides[s].leaves[items[i].leaf].node].name;
    return texts;
}

void order_kin_fill(struct order_kin *kin, struct align_job *job, struct order_item *a, size_t n,
        struct order_item *b, size_t m)
{
    uint32_t *numbers_a = xcalloc(n + 1, sizeof *numbers_a),
             *numbers_b = xcalloc(m + 1, sizeof *numbers_b);
    size_t count_a = order_dense(a, n, numbers_a), count_b = order_dense(b, m, numbers_b);
    order_kin_free(kin);
    kin->dense_b = (uint32_t)count_b;
    if (!job->opts.ignore_names && count_a * count_b <= ORDER_TABLE_MAX) {
        kin->similar = xcalloc(count_a * count_b + 1, sizeof *kin->similar);
        for (size_t i = 0; i < count_a; i++)
            for (size_t k = 0; k < count_b; k++)
                kin->similar[i * count_b + k] =
                        (float)align_similarity(job, numbers_a[i], numbers_b[k]);
        if (kin->gathered) {
            const char **texts_a = order_texts(job, 0, a, n, count_a),
                       **texts_b = order_texts(job, 1, b, m, count_b);
            kin->operators = xcalloc(count_a * count_b + 1, sizeof *kin->operators);
            for (size_t i = 0; i < count_a; i++)
                for (size_t k = 0; k < count_b; k++)
                    kin->operators[i * count_b + k] = names_operator_shared(texts_a[i], texts_b[k]);
            free(texts_a);
            free(texts_b);
        }
    }
    free(numbers_a);
    free(numbers_b);
}

void order_kin_free(struct order_kin *kin)
{
    free(kin->similar);
    free(kin->operators);
    kin->similar = NULL;
    kin->operators = NULL;
}

static bool order_share(const struct align_job *job, uint32_t a, uint32_t b)
{
    return names_operator_shared(job->sides[0].tree->nodes[job->sides[0].leaves[a].node].name,
            job->sides[1].tree->nodes[job->sides[1].leaves[b].node].name);
}

// Do a[i] and b[k] begin something: an operator's work on both sides, of which nothing stands
// before either?
static bool order_begins(
        const struct align_job *job, const uint32_t *a, size_t i, const uint32_t *b, size_t k)
{
    if (!order_share(job, a[i], b[k]))
        return false;
    for (size_t before = 0; before < i; before++)
        if (order_share(job, a[before], b[k]))
            return false;
    for (size_t before = 0; before < k; before++)
        if (order_share(job, a[i], b[before]))
            return false;
    return true;
}

void order_join(struct align_job *job, const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
    for (size_t k = 1; k < m && n * m <= ORDER_JOIN_MAX; k++)
        for (size_t i = 1; i < n; i++) {
            if (!order_begins(job, a, i, b, k))
                continue;
            align_join_several(job, a, i, b, k);
            a += i, n -= i;
            b += k, m -= k;
            k = 0; // the next one of what is left
            break;
        }
    align_join_several(job, a, n, b, m);
}

// The shortest one, because the first steps, or another process on the GPU, make some of them many
// times as long.
void order_usual(const struct align_job *job, int s, struct order_item *items, size_t count)
{
    struct order_keyed *keys = xcalloc(count + 1, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] =
                (struct order_keyed){(uint64_t)items[i].exact << 32 | items[i].shape, (uint32_t)i};
    order_sort(keys, count);
    for (size_t from = 0, to = 0; from < count; from = to) {
        float least = INFINITY;
        for (to = from; to < count && keys[to].key == keys[from].key; to++) {
            double executions = job->sides[s].leaves[items[keys[to].at].leaf].count;
            least = fminf(least, items[keys[to].at].ns / (float)(executions > 0 ? executions : 1));
        }
        for (size_t i = from; i < to; i++)
            items[keys[i].at].usual = least;
    }
    free(keys);
}
