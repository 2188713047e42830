// SPDX-License-Identifier: Apache-2.0
// A tree of stacks with the time of two sides at its nodes: what a flame graph is drawn from.
// Frames are put below each other one by one; narrow branches are merged when it is written.
// Internal to this room. Pure memory, one owner thread.
#ifndef UPGATE_REPORTS_HTML_TREE_H
#define UPGATE_REPORTS_HTML_TREE_H

#include <jansson.h>
#include <stdint.h>

#include "reports/render/html/html_parts.h"

enum html_frame_kind {
    HTML_FRAME_NATIVE,
    HTML_FRAME_PYTHON,
    HTML_FRAME_KERNEL,
    HTML_FRAME_GPU,
    HTML_FRAME_PLACE
};

struct html_tree;
struct html_tree *html_tree_new(void);
void html_tree_free(struct html_tree *tree); // NULL ok
// The child of `parent` (0: the root) with this name (an index of the caller's names) and kind.
uint32_t html_tree_child(
        struct html_tree *tree, uint32_t parent, uint32_t name, enum html_frame_kind kind);
void html_tree_add(struct html_tree *tree, uint32_t node, int side, double ns);
// Time of a side in all nodes.
double html_tree_total(const struct html_tree *tree, int side);
// Members names, parent, name, kind, a, b, left_out of `flame`. Values are divided by per[side];
// what has less than `narrow` of both sides' time is merged into "(other)" below its parent.
// sides[side] false: null.
void html_tree_write(const struct html_tree *tree, struct html_names *names, const double per[2],
        const bool sides[2], double narrow, json_t *flame);

#endif
