// SPDX-License-Identifier: Apache-2.0
// Code that only one side runs has no partner on the other: what is below a Python function that is
// new there is new, and no leaf of it is the partner of another place's leftover, which a sampler
// saw on one side by chance. A function that was renamed is not new: then the other side has one,
// too, that only it knows, at the same place, or does itself there what the function does now.
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/thresholds.h"

struct new_side {
    double *ticks;      // of each node, with all below it
    uint32_t *function; // of each place of Python; COST_NONE
};

struct new_job {
    struct align_job *job;
    struct intern *names;
    double *total[ALIGN_SIDES]; // ticks, by function
    struct new_side sides[ALIGN_SIDES];
};

static bool new_around(const struct new_job *new, int s, uint32_t node, uint32_t function)
{
    const struct cost_tree *tree = new->job->sides[s].tree;
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent)
        if (new->sides[s].function[node] == function)
            return true;
    return false;
}

static void new_count(struct new_job *new, int s)
{
    const struct cost_tree *tree = new->job->sides[s].tree;
    struct new_side *side = &new->sides[s];
    side->ticks = cost_tree_ticks(tree);
    side->function = xcalloc(tree->node_count + 1, sizeof *side->function);
    side->function[0] = COST_NONE;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const struct cost_node *node = &tree->nodes[i];
        side->function[i] = COST_NONE;
        if (node->kind != COST_PYTHON)
            continue;
        char *key = xasprintf("%s\n%s", node->module ? node->module : "", node->name);
        side->function[i] = intern_text(new->names, key);
        free(key);
    }
}

static void new_total(struct new_job *new, int s)
{
    const struct cost_tree *tree = new->job->sides[s].tree;
    new->total[s] = xcalloc(intern_count(new->names) + (size_t)1, sizeof *new->total[s]);
    for (uint32_t i = 1; i < tree->node_count; i++) {
        uint32_t function = new->sides[s].function[i];
        if (function != COST_NONE && !new_around(new, s, tree->nodes[i].parent, function))
            new->total[s][function] += new->sides[s].ticks[i];
    }
}

static bool new_only(const struct new_job *new, int s, uint32_t node)
{
    uint32_t function = new->sides[s].function[node];
    return function != COST_NONE &&
            new->total[s][function] >= DIFF_TICKS_MIN &&new->total[!s][function] <=
            new_elsewhere *new->total[s][function];
}

// Time below functions that only this side knows, the outermost ones, by the node of their nearest
// place with a partner.
static double *new_outermost(const struct new_job *new, int s)
{
    const struct align_side *side = &new->job->sides[s];
    double *sums = xcalloc(side->tree->node_count + 1, sizeof *sums);
    for (uint32_t i = 1; i < side->tree->node_count; i++) {
        uint32_t above = side->tree->nodes[i].parent;
        bool outer = new_only(new, s, i);
        for (; outer && above != 0 && side->partner[above] == COST_NONE;
                above = side->tree->nodes[above].parent)
            outer = !new_only(new, s, above);
        if (outer)
            sums[above] += side->below_ns[i];
    }
    return sums;
}

// What a place does itself.
static double new_own(const struct new_job *new, int s, uint32_t place)
{
    const struct cost_tree *tree = new->job->sides[s].tree;
    double sum = 0;
    for (uint32_t at = tree->nodes[place].first_child; at != COST_NONE;
            at = tree->nodes[at].next_sibling)
        sum += tree->nodes[at].kind >= COST_KERNEL ? (double)tree->nodes[at].ns : 0;
    return sum;
}

static void new_join(const struct new_job *new, int s, const double *others)
{
    const struct align_side *side = &new->job->sides[s];
    bool *in = xcalloc(side->tree->node_count + 1, sizeof *in);
    for (uint32_t i = 1; i < side->tree->node_count; i++) {
        uint32_t above = side->tree->nodes[i].parent;
        // what it calls may have been there before
        in[i] = in[above] && side->partner[i] == COST_NONE;
        if (in[i] || side->partner[i] != COST_NONE || !new_only(new, s, i))
            continue;
        while (above != 0 && side->partner[above] == COST_NONE)
            above = side->tree->nodes[above].parent;
        uint32_t partner = above == 0 ? 0 : side->partner[above];
        // A wrapper put around what the place did itself before is not new either.
        double moved = new_own(new, !s, partner) - new_own(new, s, above);
        in[i] = others[partner] + (moved > 0 ? moved : 0) < new_renamed * side->below_ns[i];
    }
    for (uint32_t i = 0; i < side->leaf_count; i++) {
        const struct align_leaf *leaf = &side->leaves[i];
        if (!leaf->ordered && leaf->group == COST_NONE && in[leaf->node])
            align_join(new->job, s ? ALIGN_ONLY_B : ALIGN_ONLY_A, &i, !s, &i, s);
    }
    free(in);
}

void align_new(struct align_job *job)
{
    struct new_job new = {.job = job, .names = intern_new()};
    if (!job->opts.ignore_names) {
        double *others[ALIGN_SIDES];
        for (int s = 0; s < ALIGN_SIDES; s++)
            new_count(&new, s);
        for (int s = 0; s < ALIGN_SIDES; s++)
            new_total(&new, s);
        for (int s = 0; s < ALIGN_SIDES; s++)
            others[s] = new_outermost(&new, s);
        for (int s = 0; s < ALIGN_SIDES; s++)
            new_join(&new, s, others[!s]);
        for (int s = 0; s < ALIGN_SIDES; s++) {
            free(others[s]);
            free(new.total[s]);
            free(new.sides[s].ticks);
            free(new.sides[s].function);
        }
    }
    intern_free(new.names);
}
