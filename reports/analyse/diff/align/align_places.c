// SPDX-License-Identifier: Apache-2.0
// Which place of one side is which of the other's, top down among siblings: by name and module,
// normalised, by name alone, then by what the time below was spent on. A place that only one side
// has (a wrapper that came with a version) is taken out, so that its children compete one level up;
// what has no partner in the end leaves its leaves to the place above.
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/align/align_order.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum {
    PLACES_ROUNDS_MAX = 64,      // wrappers inside wrappers
    PLACES_DEPTH_MAX = 4,        // a wrapper is that far above what it wraps
    PLACES_SEEN_MAX = 256,       // descendants looked at
    PLACES_SIMILAR_MAX = 48,     // siblings of a side compared by content
    PLACES_SIGNATURE_MAX = 2000, // nodes below a place that say what it is
};

struct places_list {
    uint32_t *nodes;
    size_t count;
};

struct places_share { // of a place's time, by name of leaf
    uint32_t key;
    double ns;
};

struct places_signature {
    struct places_share *shares;
    size_t count;
};

struct places {
    struct align_job *job;
    uint32_t *key[ALIGN_SIDES][3]; // of each place: exact, normalised, name alone
    uint32_t *leaf[ALIGN_SIDES];   // of each node; COST_NONE
    struct places_list open[ALIGN_SIDES];
    uint8_t *mark; // by key
};

static void places_pair(struct places *places, uint32_t a, uint32_t b, uint32_t parent)
{
    struct align_job *job = places->job;
    job->sides[0].partner[a] = b;
    job->sides[1].partner[b] = a;
    job->sides[0].pool[a] = job->sides[1].pool[b] = (uint32_t)job->pool_count;
    vector_push(
            job->pools, job->pool_count, (struct align_pool){.place = {a, b}, .parent = parent});
}

static void places_keys(struct places *places)
{
    struct align_job *job = places->job;
    char name[NAMES_LENGTH_MAX], module[NAMES_LENGTH_MAX];
    for (int s = 0; s < ALIGN_SIDES; s++) {
        const struct cost_tree *tree = job->sides[s].tree;
        for (int k = 0; k < 3; k++)
            places->key[s][k] = xcalloc(tree->node_count + 1, sizeof(uint32_t));
        for (size_t i = 0; i < tree->node_count; i++) {
            const struct cost_node *node = &tree->nodes[i];
            if (!align_is_place(node))
                continue;
            names_place(node->name, name, sizeof name);
            names_place(node->module ? node->module : "", module, sizeof module);
            places->key[s][0][i] =
                    align_number(job, ALIGN_TABLE_PLACE, node->kind, node->name, node->module);
            places->key[s][1][i] =
                    align_number(job, ALIGN_TABLE_PLACE_NORMAL, node->kind, name, module);
            places->key[s][2][i] =
                    align_number(job, ALIGN_TABLE_PLACE_NAME, node->kind, name, NULL);
        }
        places->leaf[s] = xcalloc(tree->node_count + 1, sizeof(uint32_t));
        memset(places->leaf[s], 0xff, (tree->node_count + 1) * sizeof(uint32_t));
        for (size_t i = 0; i < job->sides[s].leaf_count; i++)
            places->leaf[s][job->sides[s].leaves[i].node] = (uint32_t)i;
    }
    places->mark = xcalloc(job->texts->node_count + 1, 1);
}

static int places_by_name(const void *left, const void *right, void *context)
{
    const struct cost_tree *tree = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct cost_node *x = &tree->nodes[a], *y = &tree->nodes[b];
    int order = strverscmp(x->name, y->name); // layers.3 before layers.17
    if (!order)
        order = strcmp(x->module ? x->module : "", y->module ? y->module : "");
    if (!order)
        order = x->kind - y->kind;
    return order ? order : (a > b) - (a < b);
}

// The places below a node join the list, in an order that does not depend on ids.
static void places_open(struct places *places, int s, uint32_t node)
{
    const struct cost_tree *tree = places->job->sides[s].tree;
    struct places_list *list = &places->open[s];
    size_t from = list->count;
    for (uint32_t child = tree->nodes[node].first_child; child != COST_NONE;
            child = tree->nodes[child].next_sibling)
        if (align_is_place(&tree->nodes[child]))
            vector_push(list->nodes, list->count, child);
    if (list->count > from)
        qsort_r(list->nodes + from, list->count - from, sizeof *list->nodes, places_by_name,
                (void *)(uintptr_t)tree);
}

static void places_drop(struct places_list *list) // those that were paired
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] != COST_NONE)
            list->nodes[kept++] = list->nodes[i];
    list->count = kept;
}

static void places_by_equal(struct places *places, int k, uint32_t pool)
{
    struct order_keyed *keyed[ALIGN_SIDES];
    for (int s = 0; s < ALIGN_SIDES; s++) {
        struct places_list *list = &places->open[s];
        keyed[s] = xcalloc(list->count + 1, sizeof *keyed[s]);
        for (size_t i = 0; i < list->count; i++)
            keyed[s][i] = (struct order_keyed){places->key[s][k][list->nodes[i]], (uint32_t)i};
        order_sort(keyed[s], list->count);
    }
    for (size_t i = 0, n = 0; i < places->open[0].count && n < places->open[1].count;) {
        const struct order_keyed *a = &keyed[0][i], *b = &keyed[1][n];
        if (a->key == b->key) {
            places_pair(places, places->open[0].nodes[a->at], places->open[1].nodes[b->at], pool);
            places->open[0].nodes[a->at] = places->open[1].nodes[b->at] = COST_NONE;
            i++, n++;
        } else if (a->key < b->key) {
            i++;
        } else {
            n++;
        }
    }
    for (int s = 0; s < ALIGN_SIDES; s++) {
        places_drop(&places->open[s]);
        free(keyed[s]);
    }
}

// Is there below this place, not far, one that the other side has here?
static bool places_wraps(const struct places *places, int s, uint32_t node)
{
    const struct cost_tree *tree = places->job->sides[s].tree;
    uint32_t queue[PLACES_SEEN_MAX];
    uint16_t depth = tree->nodes[node].depth;
    size_t count = 1;
    queue[0] = node;
    for (size_t i = 0; i < count; i++) {
        if (tree->nodes[queue[i]].depth - depth >= PLACES_DEPTH_MAX)
            continue;
        for (uint32_t child = tree->nodes[queue[i]].first_child; child != COST_NONE;
                child = tree->nodes[child].next_sibling) {
            if (!align_is_place(&tree->nodes[child]))
                continue;
            if (places->mark[places->key[s][1][child]] || places->mark[places->key[s][2][child]])
                return true;
            if (count < PLACES_SEEN_MAX)
                queue[count++] = child;
        }
    }
    return false;
}

static void places_mark(struct places *places, int s, uint8_t value)
{
    for (size_t i = 0; i < places->open[s].count; i++)
        places->mark[places->key[s][1][places->open[s].nodes[i]]] =
                places->mark[places->key[s][2][places->open[s].nodes[i]]] = value;
}

// Takes wrappers of one side out. all: everything that is left.
static bool places_unwrap(struct places *places, int s, bool all)
{
    struct places_list old = places->open[s];
    bool any = false;
    places_mark(places, !s, 1);
    places->open[s] = (struct places_list){0};
    for (size_t i = 0; i < old.count; i++)
        if (all || places_wraps(places, s, old.nodes[i])) {
            places_open(places, s, old.nodes[i]);
            any = true;
        } else {
            vector_push(places->open[s].nodes, places->open[s].count, old.nodes[i]);
        }
    places_mark(places, !s, 0);
    free(old.nodes);
    return any;
}

static int places_by_share(const void *left, const void *right)
{
    const struct places_share *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

// What the time below a place was spent on: by names, without names by shapes and files.
static struct places_signature places_sign(struct places *places, int s, uint32_t node)
{
    struct align_job *job = places->job;
    const struct cost_tree *tree = job->sides[s].tree;
    struct places_share *shares = xcalloc(PLACES_SIGNATURE_MAX, sizeof *shares);
    size_t count = 0, seen = 0;
    double total = 0;
    for (uint32_t at = node; seen < PLACES_SIGNATURE_MAX; seen++) {
        uint32_t index = places->leaf[s][at];
        if (index != COST_NONE && job->sides[s].leaves[index].ns > 0) {
            const struct align_leaf *leaf = &job->sides[s].leaves[index];
            uint32_t key = job->names_work && leaf->normal != COST_NONE ? leaf->normal
                    : leaf->shape != COST_NONE                          ? leaf->shape
                                                                        : leaf->module;
            shares[count++] = (struct places_share){key, leaf->ns};
            total += leaf->ns;
        }
        uint32_t next = tree->nodes[at].first_child;
        while (next == COST_NONE && at != node) {
            next = tree->nodes[at].next_sibling;
            at = tree->nodes[at].parent;
        }
        if (next == COST_NONE)
            break;
        at = next;
    }
    job->signs -= (int64_t)seen;
    qsort(shares, count, sizeof *shares, places_by_share);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept && shares[kept - 1].key == shares[i].key)
            shares[kept - 1].ns += shares[i].ns / total;
        else
            shares[kept++] = (struct places_share){shares[i].key, shares[i].ns / total};
    return (struct places_signature){shares, kept};
}

static double places_overlap(const struct places_signature *a, const struct places_signature *b)
{
    double sum = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        if (a->shares[i].key == b->shares[k].key) {
            sum += a->shares[i].ns < b->shares[k].ns ? a->shares[i].ns : b->shares[k].ns;
            i++, k++;
        } else if (a->shares[i].key < b->shares[k].key) {
            i++;
        } else {
            k++;
        }
    }
    return sum;
}

struct places_couple {
    double score;
    uint32_t a, b; // in the lists
};

static bool places_by_content(struct places *places, uint32_t pool)
{
    struct places_signature signs[ALIGN_SIDES][PLACES_SIMILAR_MAX];
    size_t counts[ALIGN_SIDES], couples = 0;
    if (places->job->signs <= 0)
        return false;
    for (int s = 0; s < ALIGN_SIDES; s++) {
        counts[s] = places->open[s].count < PLACES_SIMILAR_MAX ? places->open[s].count
                                                               : PLACES_SIMILAR_MAX;
        for (size_t i = 0; i < counts[s]; i++)
            signs[s][i] = places_sign(places, s, places->open[s].nodes[i]);
    }
    struct places_couple *list = xcalloc(counts[0] * counts[1] + 1, sizeof *list);
    for (uint32_t i = 0; i < counts[0]; i++)
        for (uint32_t k = 0; k < counts[1]; k++) {
            const struct cost_node *a =
                    &places->job->sides[0].tree->nodes[places->open[0].nodes[i]];
            const struct cost_node *b =
                    &places->job->sides[1].tree->nodes[places->open[1].nodes[k]];
            double score = 0.8 * places_overlap(&signs[0][i], &signs[1][k]) +
                    0.2 * names_similarity(a->name, b->name);
            if (a->kind == b->kind && score >= places_similar)
                list[couples++] = (struct places_couple){score, i, k};
        }
    sort_in_place(list, couples, x, y,
            x->score != y->score   ? x->score > y->score
                    : x->a != y->a ? x->a < y->a
                                   : x->b < y->b);
    bool any = false;
    for (size_t i = 0; i < couples; i++) {
        uint32_t *a = &places->open[0].nodes[list[i].a], *b = &places->open[1].nodes[list[i].b];
        if (*a == COST_NONE || *b == COST_NONE)
            continue;
        places_pair(places, *a, *b, pool);
        *a = *b = COST_NONE;
        any = true;
    }
    for (int s = 0; s < ALIGN_SIDES; s++) {
        places_drop(&places->open[s]);
        for (size_t i = 0; i < counts[s]; i++)
            free(signs[s][i].shares);
    }
    free(list);
    return any;
}

static void places_below(struct places *places, uint32_t pool)
{
    for (int s = 0; s < ALIGN_SIDES; s++) {
        places->open[s].count = 0;
        places_open(places, s, places->job->pools[pool].place[s]);
    }
    for (int round = 0; round < PLACES_ROUNDS_MAX; round++) {
        for (int k = 0; k < 3; k++)
            places_by_equal(places, k, pool);
        if (!places->open[0].count || !places->open[1].count)
            return; // what one side has left belongs to the place above
        if (places_unwrap(places, 0, false) || places_unwrap(places, 1, false) ||
                places_by_content(places, pool))
            continue;
        bool first = places_unwrap(places, 0, true), second = places_unwrap(places, 1, true);
        if (!first && !second)
            return;
    }
}

void align_places(struct align_job *job)
{
    struct places places = {.job = job};
    places_keys(&places);
    places_pair(&places, 0, 0, COST_NONE);
    for (size_t i = 0; i < job->pool_count; i++) // grows as pairs are found
        places_below(&places, (uint32_t)i);
    for (int s = 0; s < ALIGN_SIDES; s++) {
        for (int k = 0; k < 3; k++)
            free(places.key[s][k]);
        free(places.leaf[s]);
        free(places.open[s].nodes);
    }
    free(places.mark);
}
