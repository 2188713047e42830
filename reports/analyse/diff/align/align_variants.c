// SPDX-License-Identifier: Apache-2.0
// A kernel whose grid follows from the data (unique rows of a sparse gradient) has another shape in
// every step: a hundred leaves at one place, of which no two sides have the same ones. Leaves of
// one name and place that stand at one position of a step, and of which a step executes one, are
// one kernel: one leaf.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/align/align_order.h"
#include "reports/analyse/diff/thresholds.h"

static double variants_steps(const struct cost_tree *tree)
{
    double steps = 0;
    for (size_t i = 0; i < tree->window_count; i++)
        steps += tree->windows[i].steps;
    return steps;
}

// Is leaf `index` another shape of the kernel `first`?
static bool variants_fit(const struct align_side *side, const struct align_leaf *first,
        const struct align_leaf *leaf, double steps)
{
    const struct cost_node *a = &side->tree->nodes[first->node],
                           *b = &side->tree->nodes[leaf->node];
    return a->parent == b->parent && a->kind == b->kind && strcmp(a->name, b->name) == 0 &&
            first->shape != leaf->shape && first->count + leaf->count <= steps &&
            fabs(leaf->order - first->order) < variants_apart;
}

static void variants_join(struct align_job *job, struct align_side *side, struct align_leaf *first,
        struct align_leaf *leaf)
{
    if (!side->variant) {
        side->variant = arena_alloc(job->arena, side->tree->node_count + 1, sizeof *side->variant);
        memset(side->variant, 0xff, (side->tree->node_count + 1) * sizeof *side->variant);
    }
    side->variant[leaf->node] = side->variant[first->node];
    side->variant[first->node] = leaf->node;
    first->ns += leaf->ns;
    first->count += leaf->count;
    leaf->node = COST_NONE; // dropped below
}

static void variants_side(struct align_job *job, struct align_side *side)
{
    double steps = variants_steps(side->tree);
    size_t count = 0, kept = 0;
    struct order_keyed *keys = xcalloc(side->leaf_count + 1, sizeof *keys);
    for (size_t i = 0; i < side->leaf_count; i++) {
        struct align_leaf *leaf = &side->leaves[i];
        leaf->count = (double)side->tree->nodes[leaf->node].count;
        // what is in every step has one shape
        if (leaf->ordered && leaf->shape != COST_NONE && leaf->count < steps)
            keys[count++] = (struct order_keyed){
                    (uint64_t)side->tree->nodes[leaf->node].parent << 32 | leaf->label,
                    (uint32_t)i};
    }
    order_sort(keys, count); // equal ones stay in the order of a step
    bool *several = xcalloc(side->leaf_count + 1, sizeof *several);
    for (size_t i = 0, first = 0; i < count; i++) {
        struct align_leaf *head = &side->leaves[keys[first].at], *leaf = &side->leaves[keys[i].at];
        if (i > first && keys[i].key == keys[first].key && variants_fit(side, head, leaf, steps)) {
            variants_join(job, side, head, leaf);
            several[keys[first].at] = true;
        } else {
            first = i;
        }
    }
    for (size_t i = 0; i < side->leaf_count; i++) {
        if (side->leaves[i].node == COST_NONE)
            continue;
        side->leaves[kept] = side->leaves[i];
        if (several[i])
            side->leaves[kept].shape = COST_NONE;
        kept++;
    }
    side->leaf_count = kept;
    free(several);
    free(keys);
}

void align_variants(struct align_job *job)
{
    for (int s = 0; s < ALIGN_SIDES; s++)
        variants_side(job, &job->sides[s]);
}
