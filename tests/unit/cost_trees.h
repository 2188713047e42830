// SPDX-License-Identifier: Apache-2.0
// Small trees of costs, made by hand, for the tests of the alignment.
#ifndef UPGATE_TESTS_UNIT_COST_TREES_H
#define UPGATE_TESTS_UNIT_COST_TREES_H

#include "reports/analyse/diff/path/cost_tree.h"

__attribute__((unused)) static uint32_t place(struct cost_tree *tree, uint32_t parent,
        enum cost_kind kind, const char *name, const char *module)
{
    return cost_tree_child(
            tree, parent, &(struct cost_key){.kind = kind, .name = name, .module = module});
}

__attribute__((unused)) static uint32_t leaf(
        struct cost_tree *tree, uint32_t parent, enum cost_kind kind, const char *name, int64_t ns)
{
    uint32_t node = cost_tree_child(tree, parent,
            &(struct cost_key){
                    .kind = kind, .class = COST_HOST_RUN, .name = name, .module = "lib.so"});
    cost_tree_add(tree, node, 0, ns, ns, 1);
    return node;
}

#endif
