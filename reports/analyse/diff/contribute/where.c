// SPDX-License-Identifier: Apache-2.0
// Where a contribution is: paths of places with the indexes of layers as *, and the deepest place
// that still holds four fifths of what changed. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/diff/diff_input.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum {
    WHERE_DEPTH_MAX = DIFF_DEPTH_MAX,
    WHERE_LINKS = 6,
    WHERE_NAME_MAX = 160,
    WHERE_NAMES_MAX = 64
};

struct diff_places {
    struct arena *arena;
    const struct cost_tree *trees[2];
    const char **names[2]; // of nodes; NULL: not made yet
    const bool *trunk[2];  // the same
};

struct diff_places *diff_places_new(
        struct arena *arena, const struct cost_tree *a, const struct cost_tree *b)
{
    struct diff_places *places = arena_alloc(arena, 1, sizeof *places);
    *places = (struct diff_places){.arena = arena, .trees = {a, b}};
    return places;
}

// ---- what is around all phases ----
// The Python functions around all phases of a step ("main > run > train"): they hold every place,
// so they tell none, and where a contribution is reads better without them. A chain of functions
// that hold most of the time of most phases, of two at least: samples at a border show some
// function of one phase in the next.

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

// Of every node of a side's tree: is it one of them?
static const bool *trunk_of(struct diff_places *places, int side)
{
    if (places->trunk[side])
        return places->trunk[side];
    const struct cost_tree *tree = places->trees[side];
    bool *trunk = arena_alloc(places->arena, tree->node_count + 1, sizeof *trunk);
    uint32_t phases[TRUNK_PHASES_MAX];
    size_t count = 0;
    for (uint32_t phase = tree->nodes[0].first_child;
            phase != COST_NONE && count < TRUNK_PHASES_MAX; phase = tree->nodes[phase].next_sibling)
        if (trunk_child(tree, phase, NULL) != COST_NONE)
            phases[count++] = phase;
    for (int depth = 0; depth < TRUNK_DEPTH_MAX; depth++) {
        const char *name = trunk_next(tree, phases, count);
        size_t kept = 0;
        for (size_t i = 0; name && i < count; i++) {
            uint32_t child = trunk_child(tree, phases[i], name);
            if (child == COST_NONE)
                continue;
            trunk[child] = true;
            phases[kept++] = child;
        }
        count = kept;
    }
    places->trunk[side] = trunk;
    return trunk;
}

// ---- paths ----

struct where_path {                                            // outermost first
    const char *names[WHERE_DEPTH_MAX], *raw[WHERE_DEPTH_MAX]; // raw: with its index
    size_t count;
};

static const char *where_name(struct diff_places *places, int side, uint32_t id)
{
    const struct cost_tree *tree = places->trees[side];
    const struct cost_node *node = &tree->nodes[id];
    char name[NAMES_LENGTH_MAX] = "";
    if (!places->names[side])
        places->names[side] =
                arena_alloc(places->arena, tree->node_count + 1, sizeof **places->names);
    const char **known = &places->names[side][id];
    if (*known)
        return *known;
    if (node->kind == COST_PYTHON || node->kind == COST_RANGE)
        names_short(node->name, name, sizeof name, WHERE_NAME_MAX);
    else
        names_place(node->name, name, sizeof name);
    return *known = arena_copy(places->arena, name);
}

static void where_path(struct diff_places *places, int side, uint32_t node, struct where_path *path)
{
    const struct cost_tree *tree = places->trees[side];
    uint32_t nodes[WHERE_DEPTH_MAX];
    size_t depth = 0;
    for (; node != COST_NONE && node != 0 && tree->nodes[node].kind >= COST_KERNEL;
            node = tree->nodes[node].parent)
        ;
    // Of a path that is too deep the outermost links are kept: they are what places have in common.
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent) {
        if (depth == WHERE_DEPTH_MAX) {
            memmove(nodes, nodes + 1, (WHERE_DEPTH_MAX - 1) * sizeof *nodes);
            depth--;
        }
        nodes[depth++] = node;
    }
    path->count = 0;
    const bool *trunk = trunk_of(places, side);
    while (depth > 0) {
        uint32_t id = nodes[--depth];
        if (trunk[id])
            continue;
        const char *name = where_name(places, side, id);
        if (path->count && strcmp(path->names[path->count - 1], name) == 0)
            continue; // phase "optimizer", module "optimizer"
        path->raw[path->count] = tree->nodes[id].kind == COST_MODULE ? tree->nodes[id].name : name;
        path->names[path->count++] = name;
    }
}

// "forward > layers.* > ... > Linear.forward". What is around all phases is left away.
static const char *where_join(struct arena *arena, const struct where_path *path, size_t count)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < count; i++) {
        if (count > WHERE_LINKS && i == 2)
            strbuf_add(&text, " > ...");
        if (count > WHERE_LINKS && i >= 2 && i + WHERE_LINKS - 3 < count)
            continue;
        strbuf_add(&text, "%s%s", text.len ? " > " : "", path->names[i]);
    }
    return diff_text(arena, &text);
}

size_t diff_place_names(
        struct diff_places *places, int side, uint32_t node, const char *names[DIFF_DEPTH_MAX])
{
    struct where_path path;
    where_path(places, side, node, &path);
    memcpy(names, path.names, path.count * sizeof *names);
    return path.count;
}

const char *diff_place(struct diff_places *places, int side, uint32_t node)
{
    struct where_path path;
    where_path(places, side, node, &path);
    return where_join(places->arena, &path, path.count);
}

// The place of a group: the one that its leaves have in common, on the side where it took most.
static void where_group(
        struct diff_places *places, const struct diff_group *group, struct where_path *path)
{
    const struct align_group *aligned = group->group;
    uint32_t place = group->side ? aligned->place_b : aligned->place_a;
    if (place == COST_NONE || (group->side ? aligned->count_b : aligned->count_a) == 1)
        place = group->leaf;
    where_path(places, group->side, place, path);
}

// What a group adds to the change of all: what goes the other way counts against its place.
static void where_weigh(
        const struct diff_group *groups, const uint32_t *members, size_t count, double *weights)
{
    double net = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        net += groups[members[i]].b - groups[members[i]].a;
        all += fabs(groups[members[i]].b - groups[members[i]].a);
    }
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &groups[members[i]];
        double delta = group->b - group->a;
        double weight = fabs(net) < where_net * all ? fabs(delta) : net < 0 ? -delta : delta;
        weights[i] = weight + 1e-3 * (group->a + group->b) + 1e-9;
    }
}

struct where_sum {
    const char *name;
    double held;
};

// The name that holds most at this depth.
static struct where_sum where_candidate(const struct where_path *paths, const double *weights,
        const bool *in, size_t count, size_t depth, bool raw)
{
    struct where_sum sums[WHERE_NAMES_MAX], best = {NULL, 0};
    size_t sum_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!in[i] || paths[i].count <= depth)
            continue;
        const char *own = raw ? paths[i].raw[depth] : paths[i].names[depth];
        size_t k = 0;
        while (k < sum_count && strcmp(sums[k].name, own) != 0)
            k++;
        if (k == WHERE_NAMES_MAX)
            continue; // so many places have nothing in common
        if (k == sum_count)
            sums[sum_count++] = (struct where_sum){own, 0};
        sums[k].held += weights[i];
    }
    for (size_t k = 0; k < sum_count; k++)
        if (sums[k].held > best.held)
            best = sums[k];
    return best;
}

// One layer of many is told by its index: "layers.2.mlp", not "layers.*.mlp".
static const char *where_exact(const struct where_path *paths, const double *weights,
        const bool *in, size_t count, size_t depth, const char *name, double total)
{
    struct where_sum raw = where_candidate(paths, weights, in, count, depth, true);
    return raw.name && raw.held >= diff_most * total ? raw.name : name;
}

const char *diff_where(struct diff_places *places, const struct diff_group *groups,
        const uint32_t *members, size_t count, const char **ret_last)
{
    // What changed most says where; thousands of places more would say the same.
    if (count > 2000)
        count = 2000;
    struct where_path *paths = xcalloc(count + 1, sizeof *paths), found = {.count = 0};
    double *weights = xcalloc(count + 1, sizeof *weights), total = 0;
    bool *in = xcalloc(count + 1, sizeof *in);
    for (size_t i = 0; i < count; i++) {
        where_group(places, &groups[members[i]], &paths[i]);
        in[i] = true;
    }
    where_weigh(groups, members, count, weights);
    for (size_t i = 0; i < count; i++)
        total += weights[i];
    while (found.count < WHERE_DEPTH_MAX) {
        struct where_sum best = where_candidate(paths, weights, in, count, found.count, false);
        if (!best.name || best.held < diff_most * total)
            break;
        for (size_t i = 0; i < count; i++)
            in[i] = in[i] && paths[i].count > found.count &&
                    strcmp(paths[i].names[found.count], best.name) == 0;
        found.names[found.count] =
                where_exact(paths, weights, in, count, found.count, best.name, total);
        found.count++;
    }
    const char *where = where_join(places->arena, &found, found.count);
    if (ret_last)
        *ret_last = found.count > 1 ? found.names[found.count - 1] : NULL;
    free(in);
    free(weights);
    free(paths);
    return where;
}

size_t diff_places_count(const struct cost_tree *const trees[2], const struct diff_group *groups,
        const uint32_t *members, size_t count)
{
    uint64_t *places = xcalloc(count + 1, sizeof *places);
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &groups[members[i]];
        places[i] = (uint64_t)group->side << 32 | diff_leaf(trees, group)->parent;
    }
    sort_in_place(places, count, x, y, *x < *y);
    for (size_t i = 0; i < count; i++)
        distinct += i == 0 || places[i] != places[i - 1];
    free(places);
    return distinct;
}
