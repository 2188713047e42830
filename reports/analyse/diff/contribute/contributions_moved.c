// SPDX-License-Identifier: Apache-2.0
// Is what one side alone has in its first steps new, or did it move there? The samples of all other
// instants of the launches tell: the other side has it among them, and this side has not. Of Python
// functions code_parts.c asks; of native ones that no such function explains (the first call of a
// library, say, that was made before) it is asked here. Pure.
#include <string.h>

#include "reports/analyse/diff/contribute/code_parts.h"
#include "reports/analyse/diff/thresholds.h"

bool contributions_moves(const double here[2], const double elsewhere[2], int side)
{
    double own = elsewhere[side], other = elsewhere[!side];
    return here[side] > 0 && here[!side] <= code_elsewhere * here[side] &&
            own <= moved_stays * other && other - own >= moved_least * here[side] &&
            other - own <= moved_most * here[side];
}

static double moved_elsewhere(const struct cost_tree *tree, const struct cost_node *leaf)
{
    for (size_t i = 0; i < tree->elsewhere_count; i++) {
        const struct cost_elsewhere *of = &tree->elsewhere[i];
        bool module = of->module && leaf->module ? !strcmp(of->module, leaf->module)
                                                 : of->module == leaf->module;
        if (of->kind == COST_FUNCTION && module && !strcmp(of->name, leaf->name))
            return (double)of->ticks;
    }
    return 0;
}

bool contributions_moved(const struct contributions *all, const struct contributions_item *item)
{
    const struct diff_compared *compared = all->compared;
    int side = item->kind == DIFF_CPU_FUNCTION_ADDED;
    if (compared->subject != DIFF_SUBJECT_FIRST || item->parts ||
            (!side && item->kind != DIFF_CPU_FUNCTION_REMOVED))
        return false;
    const struct cost_node *leaf =
            diff_leaf(compared->trees, &all->groups[all->members[item->first]]);
    double here[2] = {0}, elsewhere[2];
    for (size_t i = 0; i < item->count; i++) {
        const struct align_group *of = all->groups[all->members[item->first + i]].group;
        for (size_t k = 0; k < of->count_a; k++)
            here[0] += (double)compared->trees[0]->nodes[of->a[k]].count;
        for (size_t k = 0; k < of->count_b; k++)
            here[1] += (double)compared->trees[1]->nodes[of->b[k]].count;
    }
    if (here[side] < DIFF_TICKS_MIN)
        return false;
    for (int i = 0; i < 2; i++)
        elsewhere[i] = moved_elsewhere(compared->trees[i], leaf);
    return contributions_moves(here, elsewhere, side);
}
