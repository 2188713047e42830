// SPDX-License-Identifier: Apache-2.0
// Leaves without an order (functions, stalls, gaps) and leaves that are at another place now: by
// their names, the k-th longest of a name with the k-th longest. Leftovers climb from place to
// place, so that a pair meets at its lowest common one.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/thresholds.h"

enum { FUNCTIONS_LEVELS = 6, FUNCTIONS_SIMILAR_MAX = 64 };

struct functions_keyed {
    uint64_t key, more;
    uint32_t leaf;
};

static struct functions_keyed functions_key(
        const struct align_leaf *leaf, uint32_t index, int level)
{
    uint32_t name = level < 2 ? leaf->exact
            : level == 2      ? leaf->name
            : level < 5       ? leaf->normal
                              : leaf->learned;
    struct functions_keyed keyed = {.leaf = index, .key = (uint64_t)leaf->kind << 32 | name};
    if (level == 0 || level == 3 || level == 5)
        keyed.more = (uint64_t)(leaf->class + 1) << 32 | leaf->shape;
    return keyed;
}

static size_t functions_keys(const struct align_side *side, const uint32_t *leaves, size_t count,
        int level, struct functions_keyed *ret)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct align_leaf *leaf = &side->leaves[leaves[i]];
        if (leaf->group == COST_NONE && (level < 5 ? leaf->name : leaf->learned) != COST_NONE)
            ret[kept++] = functions_key(leaf, leaves[i], level);
    }
    sort_in_place(ret, kept, x, y,
            x->key != y->key             ? x->key < y->key
                    : x->more != y->more ? x->more < y->more
                                         : x->leaf < y->leaf);
    return kept;
}

// Pairs leaves without a group that are the same by name, best first: with module, class and shape,
// with fewer of them, normalised.
static void align_pair_named(
        struct align_job *job, const uint32_t *a, size_t count_a, const uint32_t *b, size_t count_b)
{
    struct functions_keyed *left = xcalloc(count_a + 1, sizeof *left),
                           *right = xcalloc(count_b + 1, sizeof *right);
    for (int level = 0; level < FUNCTIONS_LEVELS; level++) {
        size_t n = functions_keys(&job->sides[0], a, count_a, level, left);
        size_t m = functions_keys(&job->sides[1], b, count_b, level, right);
        for (size_t i = 0, k = 0; i < n && k < m;) {
            if (left[i].key != right[k].key ? left[i].key < right[k].key
                                            : left[i].more < right[k].more) {
                i++;
            } else if (left[i].key != right[k].key || left[i].more != right[k].more) {
                k++;
            } else {
                // The last level, by what was learned of names, has the shape in its key.
                enum align_match match = align_pair_match(
                        &job->sides[0].leaves[left[i].leaf], &job->sides[1].leaves[right[k].leaf]);
                align_join(job, match, &left[i].leaf, 1, &right[k].leaf, 1);
                i++, k++;
            }
        }
    }
    free(left);
    free(right);
}

void align_functions(struct align_job *job, const struct align_pool *pool)
{
    const uint32_t *leaves[ALIGN_SIDES];
    size_t counts[ALIGN_SIDES];
    for (int s = 0; s < ALIGN_SIDES; s++) {
        size_t ordered = 0;
        while (ordered < pool->count[s] && job->sides[s].leaves[pool->leaves[s][ordered]].ordered)
            ordered++;
        leaves[s] = pool->leaves[s] + ordered;
        counts[s] = pool->count[s] - ordered;
    }
    if (counts[0] && counts[1])
        align_pair_named(job, leaves[0], counts[0], leaves[1], counts[1]);
}

struct functions_list { // leftovers of a pool, as lists that are joined in no time
    uint32_t head, tail;
    size_t count;
};

struct functions_rest {
    struct functions_list *climbs[ALIGN_SIDES]; // by pool
    uint32_t *next[ALIGN_SIDES];                // by leaf
};

static void functions_append(struct functions_rest *rest, int s, struct functions_list *to,
        const struct functions_list *from)
{
    if (!from->count)
        return;
    if (to->count)
        rest->next[s][to->tail] = from->head;
    else
        to->head = from->head;
    to->tail = from->tail;
    to->count += from->count;
}

static uint32_t *functions_leaves(
        const struct functions_rest *rest, int s, const struct functions_list *climb)
{
    uint32_t *leaves = xcalloc(climb->count + 1, sizeof *leaves), at = climb->head;
    for (size_t i = 0; i < climb->count; i++, at = rest->next[s][at])
        leaves[i] = at;
    return leaves;
}

// After a round of pairing: the list without those that found a partner.
static void functions_keep(const struct align_job *job, struct functions_rest *rest, int s,
        struct functions_list *climb, const uint32_t *leaves)
{
    struct functions_list kept = {0};
    for (size_t i = 0; i < climb->count; i++) {
        if (job->sides[s].leaves[leaves[i]].group != COST_NONE)
            continue;
        struct functions_list one = {leaves[i], leaves[i], 1};
        functions_append(rest, s, &kept, &one);
    }
    *climb = kept;
}

typedef void (*functions_pair)(struct align_job *job, const uint32_t *a, size_t count_a,
        const uint32_t *b, size_t count_b);

static void functions_meet(
        struct align_job *job, struct functions_rest *rest, uint32_t pool, functions_pair pair)
{
    struct functions_list *a = &rest->climbs[0][pool], *b = &rest->climbs[1][pool];
    if (!a->count || !b->count || (job->visits <= 0 && pool))
        return;
    job->visits -= (int64_t)(a->count + b->count);
    uint32_t *left = functions_leaves(rest, 0, a), *right = functions_leaves(rest, 1, b);
    pair(job, left, a->count, right, b->count);
    functions_keep(job, rest, 0, a, left);
    functions_keep(job, rest, 1, b, right);
    free(left);
    free(right);
}

static void functions_climb(struct align_job *job, functions_pair pair)
{
    struct functions_rest rest;
    for (int s = 0; s < ALIGN_SIDES; s++) {
        rest.climbs[s] = xcalloc(job->pool_count + 1, sizeof *rest.climbs[s]);
        rest.next[s] = xcalloc(job->sides[s].leaf_count + 1, sizeof *rest.next[s]);
        for (size_t i = 0; i < job->sides[s].leaf_count; i++) {
            const struct align_leaf *leaf = &job->sides[s].leaves[i];
            struct functions_list one = {(uint32_t)i, (uint32_t)i, 1};
            if (leaf->group == COST_NONE)
                functions_append(&rest, s, &rest.climbs[s][leaf->pool], &one);
        }
    }
    for (size_t i = job->pool_count; i-- > 0;) { // a pool's parent comes before it
        functions_meet(job, &rest, (uint32_t)i, pair);
        for (int s = 0; s < ALIGN_SIDES && job->pools[i].parent != COST_NONE; s++)
            functions_append(&rest, s, &rest.climbs[s][job->pools[i].parent], &rest.climbs[s][i]);
    }
    for (int s = 0; s < ALIGN_SIDES; s++) {
        free(rest.climbs[s]);
        free(rest.next[s]);
    }
}

struct functions_couple {
    double score, ns;
    uint32_t a, b; // leaves
};

// Leftover functions of a class, the longest first; how many.
static size_t functions_left(const struct align_job *job, int s, const uint32_t *leaves,
        size_t leaf_count, int class, uint32_t *ret)
{
    size_t count = 0;
    for (size_t i = 0; i < leaf_count && count < FUNCTIONS_SIMILAR_MAX; i++) {
        const struct align_leaf *leaf = &job->sides[s].leaves[leaves[i]];
        if (leaf->kind == COST_FUNCTION && leaf->class == class && leaf->group == COST_NONE)
            ret[count++] = leaves[i];
    }
    return count;
}

// Without names the file and the time are all there is: the functions of a file by falling time,
// paired so that the least is left to explain. Roots of times, because one large difference is
// likelier than many small ones, which sampling makes.
static double functions_unlike(double a, double b)
{
    double longer = fmax(a, b), shorter = fmin(a, b);
    return sqrt(longer) * (shorter > 0 ? fmin(1, log(longer / shorter)) : 1);
}

static void functions_blind(
        struct align_job *job, const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
    enum { SIZE = FUNCTIONS_SIMILAR_MAX + 1 };
    double cost[SIZE][SIZE];
    const struct align_leaf *left = job->sides[0].leaves, *right = job->sides[1].leaves;
    for (size_t i = 0; i <= n; i++)
        for (size_t k = 0; k <= m; k++) {
            double out = i ? cost[i - 1][k] + sqrt(left[a[i - 1]].ns) : INFINITY,
                   in = k ? cost[i][k - 1] + sqrt(right[b[k - 1]].ns) : INFINITY;
            double both = i && k
                    ? cost[i - 1][k - 1] + functions_unlike(left[a[i - 1]].ns, right[b[k - 1]].ns)
                    : INFINITY;
            cost[i][k] = !i && !k ? 0 : fmin(both, fmin(out, in));
        }
    for (size_t i = n, k = m; i && k;) {
        double both = cost[i - 1][k - 1] + functions_unlike(left[a[i - 1]].ns, right[b[k - 1]].ns);
        if (both <= cost[i][k]) {
            align_join(job, ALIGN_SIMILAR, &a[--i], 1, &b[--k], 1);
        } else if (cost[i - 1][k] + sqrt(left[a[i - 1]].ns) <= cost[i][k]) {
            i--;
        } else {
            k--;
        }
    }
}

// The same file by file.
static void functions_by_file(
        struct align_job *job, const uint32_t *a, size_t n, const uint32_t *b, size_t m)
{
    for (size_t first = 0; first < n; first++) {
        uint32_t left[FUNCTIONS_SIMILAR_MAX], right[FUNCTIONS_SIMILAR_MAX],
                module = job->sides[0].leaves[a[first]].module;
        size_t count_a = 0, count_b = 0;
        bool seen = false;
        for (size_t i = 0; i < n; i++)
            if (job->sides[0].leaves[a[i]].module == module) {
                seen |= i < first;
                left[count_a++] = a[i];
            }
        for (size_t i = 0; i < m; i++)
            if (job->sides[1].leaves[b[i]].module == module)
                right[count_b++] = b[i];
        if (!seen)
            functions_blind(job, left, count_a, right, count_b);
    }
}

static void functions_alike(struct align_job *job, const uint32_t *leaves_a, size_t count_a,
        const uint32_t *leaves_b, size_t count_b, int class, double least)
{
    uint32_t a[FUNCTIONS_SIMILAR_MAX], b[FUNCTIONS_SIMILAR_MAX];
    size_t n = functions_left(job, 0, leaves_a, count_a, class, a);
    size_t m = n ? functions_left(job, 1, leaves_b, count_b, class, b) : 0, count = 0;
    if (job->opts.ignore_names) {
        functions_by_file(job, a, n, b, m);
        return;
    }
    struct functions_couple *list = xcalloc(n * m + 1, sizeof *list);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            const struct align_leaf *x = &job->sides[0].leaves[a[i]],
                                    *y = &job->sides[1].leaves[b[k]];
            double score = align_similarity(job, x->normal, y->normal);
            if (score >= least &&
                    fmin(x->ns, y->ns) >= functions_next_to_nothing * fmax(x->ns, y->ns))
                list[count++] = (struct functions_couple){score, x->ns + y->ns, a[i], b[k]};
        }
    sort_in_place(list, count, x, y,
            x->score != y->score     ? x->score > y->score
                    : x->ns != y->ns ? x->ns > y->ns
                    : x->a != y->a   ? x->a < y->a
                                     : x->b < y->b);
    for (size_t i = 0; i < count; i++)
        if (job->sides[0].leaves[list[i].a].group == COST_NONE &&
                job->sides[1].leaves[list[i].b].group == COST_NONE)
            align_join(job, ALIGN_SIMILAR, &list[i].a, 1, &list[i].b, 1);
    free(list);
}

// What a place spent its time on before, and what it does now: one group of those that matter.
static void functions_replaced(struct align_job *job, const struct align_pool *pool, int class)
{
    uint32_t leaves[ALIGN_SIDES][FUNCTIONS_SIMILAR_MAX];
    size_t counts[ALIGN_SIDES];
    double total = 0;
    for (int s = 0; s < ALIGN_SIDES; s++) {
        double sum = 0;
        for (size_t i = 0; i < pool->count[s]; i++)
            sum += job->sides[s].leaves[pool->leaves[s][i]].ns;
        total = sum > total ? sum : total;
    }
    for (int s = 0; s < ALIGN_SIDES; s++) {
        size_t kept = 0;
        bool seed = false;
        counts[s] = functions_left(job, s, pool->leaves[s], pool->count[s], class, leaves[s]);
        for (size_t i = 0; i < counts[s]; i++)
            if (job->sides[s].leaves[leaves[s][i]].ns >= functions_share * total)
                leaves[s][kept++] = leaves[s][i];
        for (size_t i = 0; i < kept; i++)
            seed |= job->sides[s].leaves[leaves[s][i]].ns >= functions_seed * total;
        counts[s] = seed ? kept : 0;
    }
    if (counts[0] && counts[1])
        align_join_several(job, leaves[0], counts[0], leaves[1], counts[1]);
}

static void functions_far(
        struct align_job *job, const uint32_t *a, size_t count_a, const uint32_t *b, size_t count_b)
{
    // the longest first, as leaves are
    uint32_t *sorted = xcalloc(count_a + count_b + 1, sizeof *sorted);
    if (job->opts.ignore_names || !count_a || !count_b) {
        free(sorted);
        return;
    }
    memcpy(sorted, a, count_a * sizeof *a);
    memcpy(sorted + count_a, b, count_b * sizeof *b);
    sort_in_place(sorted, count_a, x, y, *x < *y);
    sort_in_place(sorted + count_a, count_b, x, y, *x < *y);
    for (int class = 0; class < COST_CLASS_COUNT; class ++)
        functions_alike(
                job, sorted, count_a, sorted + count_a, count_b, class, functions_similar_far);
    free(sorted);
}

void align_rest_functions(struct align_job *job)
{
    functions_climb(job, align_pair_named); // leaves that are at another place now
    for (size_t i = 0; i < job->pool_count; i++) {
        const struct align_pool *pool = &job->pools[i];
        for (int class = 0; class < COST_CLASS_COUNT; class ++) {
            functions_alike(job, pool->leaves[0], pool->count[0], pool->leaves[1], pool->count[1],
                    class, functions_similar);
            functions_replaced(job, pool, class);
        }
    }
    functions_climb(job, functions_far);
}
