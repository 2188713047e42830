// SPDX-License-Identifier: Apache-2.0
// See html_tree.h. Nodes are found by a hash of parent, name and kind; they are written parents
// first.
#include "reports/render/html/flame/html_tree.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"

struct tree_node {
    uint32_t parent, name, first, next; // 0: none; the root is nobody's child
    uint32_t last;
    uint8_t kind;
    double self[2], below[2]; // below: with all under it, made when it is written
};

struct html_tree {
    struct tree_node *nodes;
    uint32_t count;
    struct map children; // by hash of parent, name and kind
};

struct html_tree *html_tree_new(void)
{
    struct html_tree *tree = xcalloc(1, sizeof *tree);
    vector_push(tree->nodes, tree->count, (struct tree_node){0});
    return tree;
}

void html_tree_free(struct html_tree *tree)
{
    if (!tree)
        return;
    free(tree->nodes);
    map_free(&tree->children);
    free(tree);
}

uint32_t html_tree_child(
        struct html_tree *tree, uint32_t parent, uint32_t name, enum html_frame_kind kind)
{
    uint64_t hash = hash_mix(hash_mix(kind, name), parent);
    size_t at;
    for (uint32_t i = map_first(&tree->children, hash, &at); i != MAP_NONE;
            i = map_next(&tree->children, hash, &at))
        if (tree->nodes[i].parent == parent && tree->nodes[i].name == name &&
                tree->nodes[i].kind == kind)
            return i;
    uint32_t id = tree->count;
    vector_push(tree->nodes, tree->count,
            (struct tree_node){.parent = parent, .name = name, .kind = (uint8_t)kind});
    map_add(&tree->children, hash, id);
    struct tree_node *above = &tree->nodes[parent];
    if (above->last)
        tree->nodes[above->last].next = id;
    else
        above->first = id;
    above->last = id;
    return id;
}

void html_tree_add(struct html_tree *tree, uint32_t node, int side, double ns)
{
    tree->nodes[node].self[side] += ns;
}

double html_tree_total(const struct html_tree *tree, int side)
{
    double total = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        total += tree->nodes[i].self[side];
    return total;
}

// One flame on its way out.
struct tree_writer {
    const struct html_tree *tree;
    const double *per;
    json_t *parent, *name, *kind, *values[2];
    uint32_t *place;           // of each node: where it was written
    json_t *names_all, *names; // only names that are used are written
    uint32_t *name_place;      // of each name, + 1; 0: not written yet
    double total[2], left_out, narrow;
    uint32_t other;
};

static void tree_put(
        struct tree_writer *writer, int64_t parent, uint32_t name, int kind, const double self[2])
{
    if (!writer->name_place[name]) {
        json_array_append(writer->names, json_array_get(writer->names_all, name));
        writer->name_place[name] = (uint32_t)json_array_size(writer->names);
    }
    json_array_append_new(writer->parent, json_integer(parent));
    json_array_append_new(writer->name, json_integer(writer->name_place[name] - 1));
    json_array_append_new(writer->kind, json_integer(kind));
    for (int side = 0; side < 2; side++) {
        double value = writer->per[side] > 0 ? self[side] / writer->per[side] : 0;
        json_array_append_new(writer->values[side], json_integer(llround(value)));
    }
}

static bool tree_is_narrow(const struct tree_writer *writer, const struct tree_node *node)
{
    for (int side = 0; side < 2; side++)
        if (writer->total[side] > 0 && node->below[side] >= writer->narrow * writer->total[side])
            return false;
    return true;
}

// The children of a written node: the wide ones, then one for all that are narrow.
static void tree_put_children(struct tree_writer *writer, uint32_t above)
{
    double rest[2] = {0, 0};
    for (uint32_t id = writer->tree->nodes[above].first; id; id = writer->tree->nodes[id].next) {
        const struct tree_node *node = &writer->tree->nodes[id];
        if (!tree_is_narrow(writer, node)) {
            writer->place[id] = (uint32_t)json_array_size(writer->parent);
            tree_put(writer, writer->place[above], node->name, node->kind, node->self);
            continue;
        }
        rest[0] += node->below[0];
        rest[1] += node->below[1];
    }
    if (rest[0] <= 0 && rest[1] <= 0)
        return;
    writer->left_out += rest[0] + rest[1];
    tree_put(writer, writer->place[above], writer->other, HTML_FRAME_PLACE, rest);
}

static void tree_sum(const struct html_tree *tree)
{
    for (uint32_t i = tree->count; i-- > 0;) { // a child has a higher number than its parent
        struct tree_node *node = &tree->nodes[i];
        for (int side = 0; side < 2; side++) {
            node->below[side] = node->self[side];
            for (uint32_t id = node->first; id; id = tree->nodes[id].next)
                node->below[side] += tree->nodes[id].below[side];
        }
    }
}

void html_tree_write(const struct html_tree *tree, struct html_names *names, const double per[2],
        const bool sides[2], double narrow, json_t *flame)
{
    struct tree_writer writer = {.tree = tree, .per = per, .narrow = narrow};
    writer.parent = json_array(), writer.name = json_array(), writer.kind = json_array();
    writer.values[0] = json_array(), writer.values[1] = json_array(), writer.names = json_array();
    writer.place = xcalloc(tree->count, sizeof *writer.place);
    uint32_t all = html_names_add(names, "all");
    writer.other = html_names_add(names, "(other)");
    writer.name_place = xcalloc(html_names_count(names), sizeof *writer.name_place);
    writer.names_all = html_names_json(names);
    tree_sum(tree);
    writer.total[0] = tree->nodes[0].below[0];
    writer.total[1] = tree->nodes[0].below[1];
    tree_put(&writer, -1, all, HTML_FRAME_PLACE, tree->nodes[0].self);
    for (uint32_t i = 0; i < tree->count; i++)
        if (i == 0 || writer.place[i])
            tree_put_children(&writer, i);
    double total = writer.total[0] + writer.total[1];
    render_json_set(flame, "names", writer.names, "parent", writer.parent, "name", writer.name,
            "kind", writer.kind, NULL);
    for (int side = 0; side < 2; side++) {
        json_object_set(flame, side ? "b" : "a", sides[side] ? writer.values[side] : json_null());
        json_decref(writer.values[side]);
    }
    json_object_set_new(
            flame, "left_out", render_json_real(total > 0 ? writer.left_out / total : 0));
    json_decref(writer.names_all);
    free(writer.name_place);
    free(writer.place);
}
