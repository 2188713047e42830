// SPDX-License-Identifier: Apache-2.0
// The Python functions around all phases of a step ("main > run > train"): they hold every place,
// so they tell none, and where a contribution is reads better without them. A chain of functions
// that hold most of the time of most phases, of two at least: samples at a border show some
// function of one phase in the next. Pure; reads the tree of a side.
#include <string.h>

#include "reports/analyse/diff/explain/explain.h"

enum { TRUNK_PHASES_MAX = 32, TRUNK_CHILDREN_MAX = 64, TRUNK_DEPTH_MAX = 32 };

// The Python function of this name below a place; COST_NONE. Any where name is NULL.
static uint32_t trunk_child(const struct cost_tree *tree, uint32_t place, const char *name)
{
    uint32_t child = tree->nodes[place].first_child;
    for (int i = 0; child != COST_NONE && i < TRUNK_CHILDREN_MAX; i++) {
        const struct cost_node *node = &tree->nodes[child];
        if (node->kind == COST_PYTHON && (!name || strcmp(node->name, name) == 0))
            return child;
        child = node->next_sibling;
    }
    return COST_NONE;
}

// The Python function that holds more than half of the time of those below a place; COST_NONE.
static uint32_t trunk_main(const struct cost_tree *tree, uint32_t place)
{
    uint32_t child = tree->nodes[place].first_child, best = COST_NONE;
    double all = 0, most = -1; // what a damaged store says may be more than an integer holds
    for (int i = 0; child != COST_NONE && i < TRUNK_CHILDREN_MAX; i++) {
        if (tree->nodes[child].kind == COST_PYTHON) {
            double held = (double)cost_tree_below_ns(tree, child);
            all += held;
            best = held > most ? child : best;
            most = held > most ? held : most;
        }
        child = tree->nodes[child].next_sibling;
    }
    return most > all / 2 ? best : COST_NONE;
}

// The function that more than half of the places go on with, and two at least; NULL.
static const char *trunk_next(const struct cost_tree *tree, const uint32_t *places, size_t count)
{
    const char *names[TRUNK_PHASES_MAX];
    for (size_t i = 0; i < count; i++) {
        uint32_t child = trunk_main(tree, places[i]);
        names[i] = child == COST_NONE ? NULL : tree->nodes[child].name;
    }
    for (size_t i = 0; i < count; i++) {
        size_t found = 0;
        for (size_t k = 0; names[i] && k < count; k++)
            found += names[k] && strcmp(names[k], names[i]) == 0;
        if (found >= 2 && 2 * found > count)
            return names[i];
    }
    return NULL;
}

const bool *diff_trunk(struct diff_job *job, int side)
{
    if (job->trunk[side])
        return job->trunk[side];
    const struct cost_tree *tree = job->workload->trees[side];
    bool *trunk = arena_alloc(job->arena, tree->node_count + 1, sizeof *trunk);
    uint32_t places[TRUNK_PHASES_MAX];
    size_t count = 0;
    for (uint32_t phase = tree->nodes[0].first_child;
         phase != COST_NONE && count < TRUNK_PHASES_MAX; phase = tree->nodes[phase].next_sibling)
        if (trunk_child(tree, phase, NULL) != COST_NONE)
            places[count++] = phase;
    for (int depth = 0; depth < TRUNK_DEPTH_MAX; depth++) {
        const char *name = trunk_next(tree, places, count);
        size_t kept = 0;
        for (size_t i = 0; name && i < count; i++) {
            uint32_t child = trunk_child(tree, places[i], name);
            if (child == COST_NONE)
                continue;
            trunk[child] = true;
            places[kept++] = child;
        }
        count = kept;
    }
    job->trunk[side] = trunk;
    return trunk;
}
