// SPDX-License-Identifier: Apache-2.0
// The alignment as a whole: places top down, leaves place by place, what moved, what is left; then
// groups in an order that does not depend on ids, and how much of the time they cover.
#include "reports/analyse/diff/align/align.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"

static const int64_t align_cells_max = 40000000; // of all edit distances: 0.3 s
// of leftovers on their way up, and of nodes that say what a place is: 1 s
static const int64_t align_visits_max = 2000000;

static uint32_t align_variant(const struct align_side *side, uint32_t node)
{
    return side->variant ? side->variant[node] : COST_NONE;
}

void align_join(struct align_job *job, enum align_match match, const uint32_t *a, size_t count_a,
        const uint32_t *b, size_t count_b)
{
    job->groups = vector_room(job->groups, job->group_count, sizeof *job->groups);
    const uint32_t *leaves[ALIGN_SIDES] = {a, b}, *nodes[ALIGN_SIDES];
    size_t counts[ALIGN_SIDES] = {count_a, count_b};
    uint32_t place[ALIGN_SIDES] = {COST_NONE, COST_NONE};
    for (int s = 0; s < ALIGN_SIDES; s++) {
        const struct cost_node *node = job->sides[s].tree->nodes;
        size_t kept = 0;
        for (size_t i = 0; i < counts[s]; i++)
            for (uint32_t at = job->sides[s].leaves[leaves[s][i]].node; at != COST_NONE;
                    at = align_variant(&job->sides[s], at))
                kept++;
        uint32_t *copy = arena_alloc(job->arena, kept + 1, sizeof *copy);
        kept = 0;
        for (size_t i = 0; i < counts[s]; i++) {
            struct align_leaf *leaf = &job->sides[s].leaves[leaves[s][i]];
            leaf->group = (uint32_t)job->group_count;
            for (uint32_t at = leaf->node; at != COST_NONE; at = align_variant(&job->sides[s], at))
                copy[kept++] = at;
            uint32_t at = leaf->node;
            while (!align_is_place(&node[at]))
                at = node[at].parent;
            if (!i)
                place[s] = at;
            for (uint32_t other = at; place[s] != other;) // a parent's id is less than its child's
                if (place[s] > other)
                    place[s] = node[place[s]].parent;
                else
                    other = node[other].parent;
        }
        counts[s] = kept;
        nodes[s] = copy;
    }
    job->groups[job->group_count++] = (struct align_group){.a = nodes[0],
            .b = nodes[1],
            .count_a = counts[0],
            .count_b = counts[1],
            .place_a = place[0],
            .place_b = place[1],
            .match = match};
}

void align_join_several(
        struct align_job *job, const uint32_t *a, size_t count_a, const uint32_t *b, size_t count_b)
{
    // neither is empty
    const struct align_leaf *left = &job->sides[0].leaves[a[0]],
                            *right = &job->sides[1].leaves[b[0]];
    bool pair = count_a == 1 && count_b == 1 && left->kind == right->kind;
    enum align_match match = pair ? align_pair_match(left, right) : ALIGN_GROUP;
    align_join(job, match, a, count_a, b, count_b);
}

struct align_rank { // of a group in the result
    double ns;
    const struct cost_node *a, *b;
    size_t index;
};

static int align_by_node(const struct cost_node *a, const struct cost_node *b)
{
    if (!a || !b)
        return !a - !b;
    int order = strcmp(a->name, b->name);
    if (!order)
        order = strcmp(a->module ? a->module : "", b->module ? b->module : "");
    if (!order)
        order = (a->order > b->order) - (a->order < b->order);
    return order ? order : (a->occurrence > b->occurrence) - (a->occurrence < b->occurrence);
}

static int align_by_rank(const void *left, const void *right)
{
    const struct align_rank *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? 1 : -1;
    int order = align_by_node(a->a, b->a);
    if (!order)
        order = align_by_node(a->b, b->b);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static double align_sum(const struct cost_tree *tree, const uint32_t *nodes, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += tree->nodes[nodes[i]].ns > 0 ? (double)tree->nodes[nodes[i]].ns : 0;
    return sum;
}

// A pair that was found without names is told by them all the same: a slower kernel is no replaced
// one.
static void align_tell_names(struct align_job *job)
{
    for (size_t i = 0; job->opts.ignore_names && i < job->group_count; i++) {
        struct align_group *group = &job->groups[i];
        if (group->count_a != 1 || group->count_b != 1)
            continue;
        const struct cost_node *a = &job->sides[0].tree->nodes[*group->a],
                               *b = &job->sides[1].tree->nodes[*group->b];
        uint32_t name_a = align_number(job, ALIGN_TABLE_NAME, a->kind, a->name, NULL);
        uint32_t name_b = align_number(job, ALIGN_TABLE_NAME, b->kind, b->name, NULL);
        if (name_a == name_b)
            group->match = ALIGN_EXACT;
        else if (a->kind == b->kind &&
                align_normal(job, name_a, a->name) == align_normal(job, name_b, b->name))
            group->match = ALIGN_NORMALISED;
    }
}

// The largest first, and what share of the time has a partner.
static void align_result(struct align_job *job, struct alignment *ret)
{
    struct align_rank *ranks = xcalloc(job->group_count + 1, sizeof *ranks);
    double total = 0, paired[ALIGN_MATCH_COUNT] = {0}, both = 0;
    for (size_t i = 0; i < job->group_count; i++) {
        const struct align_group *group = &job->groups[i];
        double a = align_sum(job->sides[0].tree, group->a, group->count_a);
        double b = align_sum(job->sides[1].tree, group->b, group->count_b);
        ranks[i] = (struct align_rank){.ns = a > b ? a : b,
                .index = i,
                .a = group->count_a ? &job->sides[0].tree->nodes[group->a[0]] : NULL,
                .b = group->count_b ? &job->sides[1].tree->nodes[group->b[0]] : NULL};
        total += a + b;
        paired[group->match] += a + b;
        both += group->count_a && group->count_b ? a + b : 0;
    }
    qsort(ranks, job->group_count, sizeof *ranks, align_by_rank);
    ret->groups = arena_alloc(job->arena, job->group_count + 1, sizeof *ret->groups);
    ret->count = job->group_count;
    for (size_t i = 0; i < job->group_count; i++)
        ret->groups[i] = job->groups[ranks[i].index];
    ret->coverage = total > 0 ? both / total : NAN;
    for (int i = 0; i < ALIGN_MATCH_COUNT; i++)
        ret->coverage_match[i] = total > 0 ? paired[i] / total : NAN;
    free(ranks);
}

struct alignment *align_trees(
        const struct cost_tree *a, const struct cost_tree *b, const struct align_opts *opts)
{
    struct align_job job = {.arena = arena_new(),
            .texts = cost_tree_new(),
            .cells = align_cells_max,
            .visits = align_visits_max,
            .signs = align_visits_max};
    if (opts)
        job.opts = *opts;
    job.sides[0].tree = a;
    job.sides[1].tree = b;
    align_leaves(&job);
    align_variants(&job);
    align_places(&job);
    align_fill_pools(&job);
    align_learn(&job);
    align_new(&job);
    for (size_t i = 0; i < job.pool_count; i++) {
        align_order(&job, &job.pools[i]);
        align_functions(&job, &job.pools[i]);
    }
    align_rest_functions(&job);
    align_rest_neighbours(&job);
    align_tell_names(&job);
    struct alignment *ret = arena_alloc(job.arena, 1, sizeof *ret);
    align_result(&job, ret);
    ret->place_b = job.sides[0].partner;
    ret->memory = job.arena;
    cost_tree_free(job.texts);
    free(job.groups);
    free(job.pools);
    free(job.normal);
    free(job.words);
    return ret;
}

void alignment_free(struct alignment *alignment)
{
    if (alignment)
        arena_free(alignment->memory);
}
