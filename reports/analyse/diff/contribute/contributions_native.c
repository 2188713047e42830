// SPDX-License-Identifier: Apache-2.0
// Native code that only one side has names for is compared by place, not by function. A library
// without symbols is one function that got faster, beside ten that are new: the same operators,
// once without names and once with them. At a place (a Python function, mostly) where much of one
// side's native time has no name, and on the other side it has one, all native functions are one
// thing. Code that both sides have no names for (generated at run time, say) stays as it is. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/thresholds.h"

struct native_place { // by node of tree b
    double ns[2], unnamed[2];
};

static bool native_is(const struct diff_compared *compared, const struct diff_group *group)
{
    const struct cost_node *leaf = diff_leaf(compared->trees, group);
    return group->kind >= DIFF_CPU_FUNCTION_SLOWER && group->kind <= DIFF_CPU_FUNCTION_REPLACED &&
            leaf->kind == COST_FUNCTION && (!leaf->module || strcmp(leaf->module, "[kernel]") != 0);
}

// The innermost place around a leaf that both sides have, as a node of tree b. a_of: of each node
// of tree b, its partner's.
static uint32_t native_common(
        const struct diff_compared *compared, const uint32_t *a_of, int side, uint32_t node)
{
    const struct cost_tree *tree = compared->trees[side];
    const uint32_t *b_of = compared->alignment->place_b;
    while (node != 0 &&
            (tree->nodes[node].kind >= COST_KERNEL ||
                    (side ? a_of[node] : b_of[node]) == COST_NONE))
        node = tree->nodes[node].parent;
    return node == 0 ? 0 : side ? node : b_of[node];
}

static void native_sum(const struct diff_compared *compared, const struct align_group *group,
        int side, struct native_place *place)
{
    const struct cost_tree *tree = compared->trees[side];
    for (size_t i = 0; i < (side ? group->count_b : group->count_a); i++) {
        const struct cost_node *leaf = &tree->nodes[(side ? group->b : group->a)[i]];
        place->ns[side] += (double)leaf->ns;
        place->unnamed[side] += leaf->name[0] == '[' ? (double)leaf->ns : 0;
    }
}

static bool native_unlike_at(const struct native_place *place)
{
    double share[2];
    for (int side = 0; side < 2; side++)
        share[side] = place->ns[side] > 0 ? place->unnamed[side] / place->ns[side] : 0;
    return place->ns[0] > 0 && place->ns[1] > 0 && fabs(share[0] - share[1]) >= native_unlike;
}

void contributions_native(struct contributions *all)
{
    const struct diff_compared *compared = all->compared;
    const uint32_t *b_of = compared->alignment->place_b;
    size_t count[2] = {compared->trees[0]->node_count, compared->trees[1]->node_count};
    if (!b_of)
        return;
    struct native_place *places = xcalloc(count[1] + 1, sizeof *places);
    uint32_t *a_of = xcalloc(count[1] + 1, sizeof *a_of),
             *at = xcalloc(all->group_count + 1, sizeof *at);
    memset(a_of, 0xff, (count[1] + 1) * sizeof *a_of);
    for (uint32_t i = 0; i < count[0]; i++)
        if (b_of[i] != COST_NONE)
            a_of[b_of[i]] = i;
    for (size_t g = 0; g < all->group_count; g++) {
        const struct diff_group *group = &all->groups[g];
        at[g] = native_common(compared, a_of, group->side, group->leaf);
        for (int side = 0; native_is(compared, group) && side < 2; side++)
            native_sum(compared, group->group, side, &places[at[g]]);
    }
    for (size_t g = 0; g < all->group_count; g++) {
        all->groups[g].native_place = at[g];
        if (at[g] && native_is(compared, &all->groups[g]) && native_unlike_at(&places[at[g]]))
            all->groups[g].kind = DIFF_NATIVE_CODE;
    }
    free(places);
    free(a_of);
    free(at);
}
