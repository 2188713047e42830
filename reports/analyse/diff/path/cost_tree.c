// SPDX-License-Identifier: Apache-2.0
// The cost tree: nodes by id in the order they were made (a parent always before its children),
// children found by a hash over the whole key, texts kept once. A GPU launch asks for a child ten
// million times, so a look-up hashes the names as they come and compares pointers before bytes.
// Rows are appended, and the newest row of a node grows while it is of the same window.
#include "reports/analyse/diff/path/cost_tree.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"

struct cost_places { // of a node: mean of where it stood
    double sum;
    int64_t count;
    uint32_t rows; // that it has in the tree
};

struct cost_tree_memory {
    struct intern *texts;
    struct map children, elsewhere;
    struct cost_places *places;
    size_t row_capacity, overlap_capacity;
    uint32_t *first; // after cost_tree_finish
    int64_t *below;
};

static int64_t cost_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static uint64_t cost_hash_text(const char *text)
{
    return text ? hash_bytes(1, text, strlen(text)) : 0;
}

static bool cost_same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

struct cost_tree *cost_tree_new(void)
{
    struct cost_tree *tree = xcalloc(1, sizeof *tree);
    tree->memory = xcalloc(1, sizeof *tree->memory);
    tree->memory->texts = intern_new();
    cost_tree_child(tree, COST_NONE, &(struct cost_key){.kind = COST_ROOT, .name = ""});
    return tree;
}

void cost_tree_free(struct cost_tree *tree)
{
    if (!tree)
        return;
    struct cost_tree_memory *memory = tree->memory;
    intern_free(memory->texts);
    map_free(&memory->children);
    map_free(&memory->elsewhere);
    free(memory->places);
    free(memory->first);
    free(memory->below);
    free(memory);
    free(tree->nodes);
    free(tree->windows);
    free(tree->rows);
    free(tree->lates);
    free(tree->callers);
    free(tree->elsewhere);
    free(tree->beside);
    free(tree->overlaps);
    free(tree);
}

const char *cost_tree_text(struct cost_tree *tree, const char *text)
{
    struct intern *texts = tree->memory->texts;
    return text ? intern_get(texts, intern_text(texts, text)) : NULL;
}

bool cost_shape_same(const struct cost_shape *a, const struct cost_shape *b)
{
    return a->bytes == b->bytes && a->graph_node == b->graph_node && a->registers == b->registers &&
            a->shared_bytes == b->shared_bytes && a->local_bytes == b->local_bytes &&
            !memcmp(a->grid, b->grid, sizeof a->grid) &&
            !memcmp(a->block, b->block, sizeof a->block);
}

uint64_t cost_shape_hash(uint64_t hash, const struct cost_shape *shape)
{
    hash = hash_mix(hash, (uint64_t)shape->bytes ^ shape->graph_node << 1);
    for (int i = 0; i < 3; i++)
        hash = hash_mix(hash, (uint64_t)shape->grid[i] << 32 | shape->block[i]);
    return hash_mix(hash,
            (uint64_t)shape->registers << 40 ^ (uint64_t)shape->shared_bytes << 20 ^
                    shape->local_bytes);
}

static uint32_t cost_append(
        struct cost_tree *tree, uint32_t parent, const struct cost_key *key, uint8_t class)
{
    struct cost_tree_memory *memory = tree->memory;
    size_t index = tree->node_count;
    if (index >= COST_NONE - 1)
        abort(); // ids are 32 bits; memory ends long before
    tree->nodes = vector_room(tree->nodes, index, sizeof *tree->nodes);
    memory->places = vector_room(memory->places, index, sizeof *memory->places);
    memory->places[index] = (struct cost_places){0};
    struct cost_node *node = &tree->nodes[index];
    *node = (struct cost_node){.parent = parent,
            .first_child = COST_NONE,
            .last_child = COST_NONE,
            .next_sibling = COST_NONE,
            .kind = (uint8_t)key->kind,
            .class = class,
            .occurrence = key->occurrence,
            .row_last = COST_NONE};
    node->name = cost_tree_text(tree, key->name ? key->name : "");
    node->module = cost_tree_text(tree, key->module);
    if (key->shape)
        node->shape = *key->shape;
    if (key->collective)
        node->collective = (struct cost_collective){
                .function = cost_tree_text(tree, key->collective->function),
                .what = cost_tree_text(tree, key->collective->what),
                .how = cost_tree_text(tree, key->collective->how),
                .waits = key->collective->waits,
                .rank = key->collective->rank};
    tree->node_count++;
    if (parent == COST_NONE)
        return (uint32_t)index;
    struct cost_node *above = &tree->nodes[parent];
    node->depth = above->depth == UINT16_MAX ? UINT16_MAX : (uint16_t)(above->depth + 1);
    if (above->last_child == COST_NONE)
        above->first_child = (uint32_t)index;
    else
        tree->nodes[above->last_child].next_sibling = (uint32_t)index;
    above->last_child = (uint32_t)index;
    return (uint32_t)index;
}

uint32_t cost_tree_child(struct cost_tree *tree, uint32_t parent, const struct cost_key *key)
{
    static const struct cost_shape none = {0};
    const struct cost_shape *shape = key->shape ? key->shape : &none;
    const char *name = key->name ? key->name : "";
    uint8_t class = key->kind >= COST_KERNEL ? (uint8_t)key->class : 0;
    uint64_t mixed =
            hash_mix(parent, (uint64_t)key->kind << 40 | (uint64_t) class << 32 | key->occurrence);
    mixed = hash_mix(hash_mix(mixed, cost_hash_text(name)), cost_hash_text(key->module));
    if (key->shape && !cost_shape_same(shape, &none)) // all zero is none
        mixed = cost_shape_hash(mixed, shape);
    struct map *children = &tree->memory->children;
    size_t at;
    for (uint32_t i = map_first(children, mixed, &at); i != MAP_NONE;
            i = map_next(children, mixed, &at)) {
        const struct cost_node *node = &tree->nodes[i];
        if (node->parent == parent && node->kind == key->kind && node->class == class &&
                node->occurrence == key->occurrence && cost_same_text(node->name, name) &&
                cost_same_text(node->module, key->module) && cost_shape_same(&node->shape, shape))
            return i;
    }
    uint32_t index = cost_append(tree, parent, key, class);
    map_add(children, mixed, index);
    return index;
}

uint32_t cost_tree_window(struct cost_tree *tree, const struct cost_window *window)
{
    vector_push(tree->windows, tree->window_count, *window);
    return (uint32_t)tree->window_count - 1;
}

static void cost_row_add(struct cost_row *row, int64_t ns, int64_t busy_ns, int64_t count)
{
    row->ns = cost_sum(row->ns, ns);
    row->busy_ns = cost_sum(row->busy_ns, busy_ns);
    row->count = cost_sum(row->count, count);
}

void cost_tree_add(struct cost_tree *tree, uint32_t node, uint32_t window, int64_t ns,
        int64_t busy_ns, int64_t count)
{
    struct cost_node *at = &tree->nodes[node];
    at->ns = cost_sum(at->ns, ns);
    at->busy_ns = cost_sum(at->busy_ns, busy_ns);
    at->count = cost_sum(at->count, count);
    if (at->row_last == COST_NONE || tree->rows[at->row_last].window != window) {
        tree->rows = vector_reserve(
                tree->rows, &tree->memory->row_capacity, tree->row_count + 1, sizeof *tree->rows);
        at->row_last = (uint32_t)tree->row_count++;
        tree->rows[at->row_last] = (struct cost_row){.node = node, .window = window};
        tree->memory->places[node].rows++;
    }
    cost_row_add(&tree->rows[at->row_last], ns, busy_ns, count);
}

void cost_tree_place(struct cost_tree *tree, uint32_t node, double position)
{
    struct cost_places *places = &tree->memory->places[node];
    places->sum += position;
    places->count++;
    tree->nodes[node].order = places->sum / (double)places->count;
}

// Rows of one node that are not in order, as somebody filled windows by turns. Equal windows become
// one; returns how many are left.
static size_t cost_merge(struct cost_row *rows, size_t count)
{
    sort_in_place(rows, count, x, y, x->window < y->window);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept && rows[kept - 1].window == rows[i].window)
            cost_row_add(&rows[kept - 1], rows[i].ns, rows[i].busy_ns, rows[i].count);
        else
            rows[kept++] = rows[i];
    return kept;
}

static void cost_sum_below(struct cost_tree *tree)
{
    int64_t *below = xcalloc(tree->node_count, sizeof *below);
    for (size_t i = tree->node_count; i-- > 0;) { // children come after their parents
        below[i] = cost_sum(below[i], tree->nodes[i].ns);
        if (tree->nodes[i].parent != COST_NONE)
            below[tree->nodes[i].parent] = cost_sum(below[tree->nodes[i].parent], below[i]);
    }
    tree->memory->below = below;
}

void cost_tree_late(struct cost_tree *tree, const struct cost_late *late)
{
    enum { RECENT = 4 }; // of a place: late launches and launch latency by turns
    for (size_t i = tree->late_count; i-- > 0 && i + RECENT >= tree->late_count;) {
        struct cost_late *last = &tree->lates[i];
        if (last->node == late->node && last->gap == late->gap && last->window == late->window) {
            last->ns = cost_sum(last->ns, late->ns);
            return;
        }
    }
    vector_push(tree->lates, tree->late_count, *late);
}

void cost_tree_caller(struct cost_tree *tree, const struct cost_caller *caller)
{
    vector_push(tree->callers, tree->caller_count, *caller);
}

void cost_tree_elsewhere(struct cost_tree *tree, enum cost_kind kind, const char *name,
        const char *module, int64_t ticks)
{
    struct map *known = &tree->memory->elsewhere;
    // equal texts are one
    const struct cost_elsewhere of = {
            kind, cost_tree_text(tree, name), cost_tree_text(tree, module), 0};
    uint64_t mixed =
            hash_mix((uint64_t)(uintptr_t)of.name ^ (uint64_t)kind, (uint64_t)(uintptr_t)of.module);
    size_t at = 0;
    uint32_t i = map_first(known, mixed, &at);
    while (i != MAP_NONE &&
            (tree->elsewhere[i].name != of.name || tree->elsewhere[i].module != of.module ||
                    tree->elsewhere[i].kind != kind))
        i = map_next(known, mixed, &at);
    if (i == MAP_NONE) {
        i = (uint32_t)tree->elsewhere_count;
        vector_push(tree->elsewhere, tree->elsewhere_count, of);
        map_add(known, mixed, i);
    }
    tree->elsewhere[i].ticks = cost_sum(tree->elsewhere[i].ticks, ticks);
}

void cost_tree_beside(struct cost_tree *tree, const struct cost_beside *beside)
{
    vector_push(tree->beside, tree->beside_count, *beside);
}

void cost_tree_overlap(struct cost_tree *tree, uint32_t node, const struct cost_overlap *overlap)
{
    size_t count = (size_t)node + 1;
    tree->overlaps = vector_reserve_zero(
            tree->overlaps, &tree->memory->overlap_capacity, count, sizeof *tree->overlaps);
    tree->overlap_count = count > tree->overlap_count ? count : tree->overlap_count;
    for (int i = 0; i < 2; i++) {
        struct cost_overlap *sum = &tree->overlaps[node];
        sum->count[i] = cost_sum(sum->count[i], overlap->count[i]);
        sum->ns[i] = cost_sum(sum->ns[i], overlap->ns[i]);
    }
}

const uint32_t *cost_tree_finish(struct cost_tree *tree)
{
    struct cost_tree_memory *memory = tree->memory;
    if (memory->first)
        return memory->first;
    size_t nodes = tree->node_count;
    uint32_t *first = xcalloc(nodes + 2, sizeof *first);
    // first[n + 1] is where n's rows begin, and after filling where they end
    for (size_t i = 2; i <= nodes; i++)
        first[i] = first[i - 1] + memory->places[i - 2].rows;
    bool *turned = xcalloc(nodes + 1, sizeof *turned);       // nodes whose rows are not in order
    uint32_t *windows = xcalloc(nodes + 1, sizeof *windows); // behind their newest ones
    struct cost_row *sorted = xcalloc(tree->row_count + 1, sizeof *sorted);
    for (size_t i = 0; i < tree->row_count; i++) {
        const struct cost_row *row = &tree->rows[i];
        turned[row->node] |= row->window < windows[row->node];
        windows[row->node] = row->window + 1;
        sorted[first[row->node + 1]++] = *row;
    }
    free(windows);
    free(tree->rows);
    size_t kept = 0;
    for (size_t i = 0; i < nodes; i++) {
        size_t begin = first[i], count = first[i + 1] - begin;
        if (turned[i])
            count = cost_merge(&sorted[begin], count);
        if (kept != begin)
            memmove(&sorted[kept], &sorted[begin], count * sizeof *sorted);
        first[i] = (uint32_t)kept;
        kept += count;
    }
    free(turned);
    first[nodes] = (uint32_t)kept;
    tree->rows = sorted;
    tree->row_count = memory->row_capacity = kept;
    memory->first = first;
    sort_in_place(tree->beside, tree->beside_count, x, y,
            x->node != y->node ? x->node < y->node : x->other < y->other);
    cost_sum_below(tree);
    return first;
}

int64_t cost_tree_below_ns(const struct cost_tree *tree, uint32_t node)
{
    return tree->memory->below[node];
}

double *cost_tree_ticks(const struct cost_tree *tree)
{
    double *ticks = xcalloc(tree->node_count + 1, sizeof *ticks);
    for (size_t i = tree->node_count; i-- > 1;) { // children come after their parents
        ticks[i] += tree->nodes[i].kind == COST_FUNCTION ? (double)tree->nodes[i].count : 0;
        ticks[tree->nodes[i].parent] += ticks[i];
    }
    return ticks;
}

const char *cost_class_word(enum cost_class class)
{
    static const char *const words[COST_CLASS_COUNT] = {"gpu_compute", "comm_exposed", "copy",
            "launch_bound", "host_run", "host_stalled", "data_wait", "idle"};
    return (unsigned)class < COST_CLASS_COUNT ? words[class] : "unknown";
}
