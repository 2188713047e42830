// SPDX-License-Identifier: Apache-2.0
// Both sides' leaves as numbers: names, normalised names, shapes. Each name is normalised once. A
// scratch cost tree is the table that gives equal texts equal numbers.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

bool align_is_place(const struct cost_node *node)
{
    return node->kind < COST_KERNEL;
}

enum align_match align_pair_match(const struct align_leaf *a, const struct align_leaf *b)
{
    if (a->name == b->name && a->name != COST_NONE) // the number holds the kind
        return ALIGN_EXACT;
    if (a->normal == b->normal && a->normal != COST_NONE && a->kind == b->kind)
        return ALIGN_NORMALISED;
    return a->shape == b->shape && a->shape != COST_NONE ? ALIGN_RESOURCES : ALIGN_SIMILAR;
}

uint32_t align_number(struct align_job *job, enum align_table table, int kind, const char *name,
        const char *module)
{
    // The table stands in the occurrence, which no number here needs.
    struct cost_key key = {
            .kind = (enum cost_kind)kind, .name = name, .module = module, .occurrence = table};
    return cost_tree_child(job->texts, 0, &key);
}

uint32_t align_normal(struct align_job *job, uint32_t name, const char *text)
{
    job->normal = vector_reserve_zero(
            job->normal, &job->normal_capacity, (size_t)name + 1, sizeof *job->normal);
    if (!job->normal[name]) {
        char buf[NAMES_LENGTH_MAX];
        names_normalise(text, buf, sizeof buf);
        uint32_t normal = align_number(job, ALIGN_TABLE_NORMAL, 0, buf, NULL);
        job->normal[name] = normal;
    }
    return job->normal[name];
}

static const struct align_words *align_words_of(struct align_job *job, uint32_t normal)
{
    enum { WORDS = 64 };
    job->words = vector_reserve_zero(
            job->words, &job->words_capacity, (size_t)normal + 1, sizeof *job->words);
    struct align_words *words = &job->words[normal];
    if (!words->words) {
        uint32_t buf[WORDS];
        words->count = names_words(job->texts->nodes[normal].name, buf, WORDS);
        words->words = arena_alloc(job->arena, words->count + 1, sizeof *words->words);
        memcpy(words->words, buf, words->count * sizeof *buf);
    }
    return words;
}

double align_similarity(struct align_job *job, uint32_t normal_a, uint32_t normal_b)
{
    if (normal_a == COST_NONE || normal_b == COST_NONE)
        return 0;
    align_words_of(job, normal_a);
    align_words_of(job, normal_b);
    const struct align_words *a = &job->words[normal_a], *b = &job->words[normal_b];
    return a->count && b->count ? names_words_similarity(a->words, a->count, b->words, b->count)
                                : 0;
}

// "libtorch_cpu.so.1.13.0" and "libtorch_cpu.so" are one; paths lose where they are installed.
static uint32_t align_module(struct align_job *job, const char *module)
{
    char buf[NAMES_LENGTH_MAX];
    names_place(module ? module : "", buf, sizeof buf);
    char *version = strstr(buf, ".so.");
    if (version)
        version[3] = '\0';
    return align_number(job, ALIGN_TABLE_MODULE, 0, buf, NULL);
}

static uint32_t align_shape(struct align_job *job, const struct cost_node *node)
{
    struct cost_shape shape = {.bytes = node->shape.bytes};
    memcpy(shape.grid, node->shape.grid, sizeof shape.grid);
    memcpy(shape.block, node->shape.block, sizeof shape.block);
    if (!shape.bytes && !shape.grid[0] && !shape.block[0])
        return COST_NONE;
    struct cost_key key = {.kind = (enum cost_kind)node->kind,
            .name = "",
            .shape = &shape,
            .occurrence = ALIGN_TABLE_SHAPE};
    return cost_tree_child(job->texts, 0, &key);
}

static bool align_ordered(int kind)
{
    return kind == COST_KERNEL || kind == COST_GRAPH || kind == COST_TRANSFER ||
            kind == COST_COLLECTIVE;
}

static void align_leaf_fill(struct align_job *job, const struct cost_tree *tree, uint32_t index,
        struct align_leaf *leaf)
{
    const struct cost_node *node = &tree->nodes[index];
    *leaf = (struct align_leaf){.node = index,
            .pool = COST_NONE,
            .group = COST_NONE,
            .exact = COST_NONE,
            .name = COST_NONE,
            .normal = COST_NONE,
            .learned = COST_NONE,
            .kind = node->kind,
            .class = node->class,
            .order = node->order,
            .ns = node->ns > 0 ? (double)node->ns : 0,
            .ordered = align_ordered(node->kind)};
    leaf->module = align_module(job, node->module);
    leaf->shape = align_shape(job, node);
    uint32_t name = align_number(job, ALIGN_TABLE_NAME, node->kind, node->name, NULL);
    leaf->label = align_normal(job, name, node->name);
    bool cause = node->kind == COST_STALL || node->kind == COST_GAP; // no names of versions
    if (job->opts.ignore_names && !cause)
        return;
    leaf->name = name;
    leaf->normal = leaf->label;
    leaf->exact = align_number(
            job, ALIGN_TABLE_EXACT, node->kind, node->name, job->texts->nodes[leaf->module].name);
}

static int align_by_leaf(const void *left_leaf, const void *right_leaf, void *of)
{
    const struct cost_tree *tree = of;
    const struct align_leaf *a = left_leaf, *b = right_leaf;
    const struct cost_node *left = &tree->nodes[a->node], *right = &tree->nodes[b->node];
    if (a->ordered != b->ordered)
        return a->ordered ? -1 : 1;
    if (a->ordered && a->order != b->order)
        return a->order < b->order ? -1 : 1;
    if (!a->ordered && a->ns != b->ns)
        return a->ns > b->ns ? -1 : 1;
    int order = strverscmp(left->name, right->name);
    if (!order)
        order = strcmp(left->module ? left->module : "", right->module ? right->module : "");
    if (!order)
        order = (left->occurrence > right->occurrence) - (left->occurrence < right->occurrence);
    if (!order)
        order = (a->ns < b->ns) - (a->ns > b->ns);
    return order ? order : (a->node > b->node) - (a->node < b->node);
}

static void align_sum_below(struct align_job *job, struct align_side *side)
{
    const struct cost_tree *tree = side->tree;
    side->below_ns = arena_alloc(job->arena, tree->node_count + 1, sizeof *side->below_ns);
    for (size_t i = tree->node_count; i-- > 0;) {
        side->below_ns[i] += tree->nodes[i].ns > 0 ? (double)tree->nodes[i].ns : 0;
        if (tree->nodes[i].parent != COST_NONE)
            side->below_ns[tree->nodes[i].parent] += side->below_ns[i];
    }
}

// Do both sides know each other's names? When one side's were scrambled, order, shape and time must
// do. The side on which common names have the larger share, of time or of kernels, says so:
// products by new kernels that take ten times as long (without TF32) are 85 % of their side's time,
// and half of its kernels.
static bool align_names_shared(const struct align_job *job)
{
    size_t count = job->texts->node_count;
    uint8_t *seen = xcalloc(count + 1, 1);
    for (int s = 0; s < ALIGN_SIDES; s++)
        for (size_t i = 0; i < job->sides[s].leaf_count; i++)
            if (job->sides[s].leaves[i].normal != COST_NONE)
                seen[job->sides[s].leaves[i].normal] |= (uint8_t)(1 << s);
    double most = 0;
    bool any = false;
    for (int s = 0; s < ALIGN_SIDES; s++) {
        double shared = 0, total = 0, same = 0, kernels = 0;
        for (size_t i = 0; i < job->sides[s].leaf_count; i++) {
            const struct align_leaf *leaf = &job->sides[s].leaves[i];
            if (leaf->kind != COST_KERNEL && leaf->kind != COST_FUNCTION)
                continue;
            bool both = leaf->normal != COST_NONE && seen[leaf->normal] == 3;
            total += leaf->ns;
            shared += both ? leaf->ns : 0;
            kernels += leaf->kind == COST_KERNEL;
            same += both && leaf->kind == COST_KERNEL;
        }
        any |= total > 0;
        most = fmax(most, fmax(total > 0 ? shared / total : 0, kernels > 0 ? same / kernels : 0));
    }
    free(seen);
    return !any || most >= align_names_share;
}

// Also a place with time of its own. What ran in no window (what an optimizer fills before its
// first step) stands where no other step has anything: between the kernels of all steps, of which
// it would take the partners away.
static bool align_is_leaf(const struct cost_node *node)
{
    return align_is_place(node) ? node->row_last != COST_NONE
                                : node->ns || node->busy_ns || node->count;
}

void align_leaves(struct align_job *job)
{
    for (int s = 0; s < ALIGN_SIDES; s++) {
        struct align_side *side = &job->sides[s];
        const struct cost_tree *tree = side->tree;
        align_sum_below(job, side);
        side->leaves = arena_alloc(job->arena, tree->node_count + 1, sizeof *side->leaves);
        for (size_t i = 0; i < tree->node_count; i++)
            if (align_is_leaf(&tree->nodes[i]))
                align_leaf_fill(job, tree, (uint32_t)i, &side->leaves[side->leaf_count++]);
        qsort_r(side->leaves, side->leaf_count, sizeof *side->leaves, align_by_leaf,
                (void *)(uintptr_t)tree);
        side->partner = arena_alloc(job->arena, tree->node_count + 1, sizeof *side->partner);
        side->pool = arena_alloc(job->arena, tree->node_count + 1, sizeof *side->pool);
        memset(side->partner, 0xff, (tree->node_count + 1) * sizeof *side->partner);
        memset(side->pool, 0xff, (tree->node_count + 1) * sizeof *side->pool);
    }
    job->names_work = align_names_shared(job);
}

// Every leaf goes to the pool of the nearest place above it that has a partner, or above that where
// the places of a side were lost.
void align_fill_pools(struct align_job *job)
{
    for (int s = 0; s < ALIGN_SIDES; s++) {
        struct align_side *side = &job->sides[s];
        for (size_t i = 0; i < side->tree->node_count; i++)
            if (side->pool[i] == COST_NONE)
                // parents come first; the root has one
                side->pool[i] = side->pool[side->tree->nodes[i].parent];
        for (size_t i = 0; i < side->leaf_count; i++)
            side->leaves[i].pool = side->pool[side->leaves[i].node];
    }
    align_gather(job);
    for (int s = 0; s < ALIGN_SIDES; s++) {
        struct align_side *side = &job->sides[s];
        for (size_t i = 0; i < side->leaf_count; i++)
            job->pools[side->leaves[i].pool].count[s]++;
        uint32_t *all = arena_alloc(job->arena, side->leaf_count + 1, sizeof *all);
        for (size_t i = 0, at = 0; i < job->pool_count; i++) {
            job->pools[i].leaves[s] = all + at;
            at += job->pools[i].count[s];
            job->pools[i].count[s] = 0;
        }
        for (size_t i = 0; i < side->leaf_count; i++) {
            struct align_pool *pool = &job->pools[side->leaves[i].pool];
            pool->leaves[s][pool->count[s]++] = (uint32_t)i;
        }
    }
}
