// SPDX-License-Identifier: Apache-2.0
// What is spread: an operator that got slower shows in ten kernels and functions, none of which is
// told from noise, while their sum at the place that they have in common is. Every place of the
// step (phase, module, Python function; both sides' in one tree) is a hypothesis: the sum of all
// below it that no named contribution holds. The deepest places that are told become contributions:
// they hold four fifths of what is told above them together, or half where the rest is not told
// from noise. Half of the 1 % of error is spent on contributions of one thing, the other half on
// places. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/thresholds.h"

struct places_node {
    uint32_t group; // the first one here; COST_NONE
    double a, b;    // of all groups here and below
    bool counted;   // a hypothesis
    bool told, picked;
    bool deeper; // picked, but those picked below it are named
    double held; // by what is picked here and below
    bool mixed;  // some of which got slower, some faster
    struct diff_estimate estimate;
    double half;
};

struct places {
    struct contributions *all;
    struct cost_tree *tree; // of places, by name
    struct places_node *nodes;
    uint32_t *node, *next; // of each group: its place; the next group there
    bool *named;           // of each group: a named item holds it
    size_t counted;
};

// The place of a group; both sides' places are told by the names of b's.
static size_t places_names(struct contributions *all, const struct diff_group *group,
        const char *names[DIFF_DEPTH_MAX])
{
    const struct diff_compared *compared = all->compared;
    const struct align_group *aligned = group->group;
    int side = aligned->count_b > 0;
    const uint32_t *leaves = side ? aligned->b : aligned->a;
    uint32_t place = side ? aligned->place_b : aligned->place_a;
    if (place == COST_NONE || (side ? aligned->count_b : aligned->count_a) == 1)
        place = compared->trees[side]->nodes[leaves[0]].parent;
    const uint32_t *partner = compared->alignment->place_b;
    if (!side && partner && place != COST_NONE && partner[place] != COST_NONE) {
        place = partner[place];
        side = 1;
    }
    return diff_place_names(compared->places, side, place, names);
}

static void places_build(struct places *places)
{
    struct contributions *all = places->all;
    for (size_t i = 0; i < all->group_count; i++) {
        const char *names[DIFF_DEPTH_MAX];
        uint32_t at = 0;
        size_t depth = all->groups[i].a > 0 || all->groups[i].b > 0
                ? places_names(all, &all->groups[i], names)
                : 0;
        for (size_t k = 0; k < depth; k++)
            at = cost_tree_child(
                    places->tree, at, &(struct cost_key){.kind = COST_MODULE, .name = names[k]});
        places->node[i] = at;
    }
    places->nodes = xcalloc(places->tree->node_count, sizeof *places->nodes);
    for (size_t i = 0; i < places->tree->node_count; i++)
        places->nodes[i].group = COST_NONE;
    for (size_t i = all->group_count; i-- > 0;) {
        struct places_node *node = &places->nodes[places->node[i]];
        places->next[i] = node->group;
        node->group = (uint32_t)i;
        node->a += all->groups[i].a;
        node->b += all->groups[i].b;
    }
}

// A place with one place below and nothing of its own is no other hypothesis than that one.
static void places_count(struct places *places)
{
    double floor = places_floor * places->all->compared->untraced->step[0];
    for (size_t i = places->tree->node_count; i-- > 1;) { // what is below comes later
        const struct cost_node *place = &places->tree->nodes[i];
        struct places_node *node = &places->nodes[i], *above = &places->nodes[place->parent];
        bool same = node->group == COST_NONE && place->first_child == place->last_child;
        node->counted = fmax(node->a, node->b) >= floor && !same;
        places->counted += node->counted;
        above->a += node->a;
        above->b += node->b;
    }
}

struct places_sums { // of units, by side; NULL: nobody asks
    double *all[2];  // what no named contribution holds
    double *held[2]; // of it, what is picked
};

static struct places_sums sums_new(size_t count)
{
    struct places_sums sums;
    for (int side = 0; side < 2; side++) {
        sums.all[side] = xcalloc(count + 1, sizeof **sums.all);
        sums.held[side] = xcalloc(count + 1, sizeof **sums.held);
    }
    return sums;
}

// Adds to the place above, and frees.
static void sums_hand_up(struct places_sums *sums, const struct places_sums *above, size_t count)
{
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; above->all[side] && i < count; i++) {
            above->all[side][i] += sums->all[side][i];
            above->held[side][i] += sums->held[side][i];
        }
        free(sums->all[side]);
        free(sums->held[side]);
    }
}

// Is what the picked places below do not hold told from noise?
static bool places_rest_told(const struct places *places, const struct places_sums *sums)
{
    const struct diff_compared *compared = places->all->compared;
    struct places_sums rest = sums_new(compared->units->count);
    struct diff_estimate estimate;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < compared->units->count; i++)
            rest.all[side][i] = sums->all[side][i] - sums->held[side][i];
    diff_units_estimate(compared->units, rest.all, &estimate);
    sums_hand_up(&rest, &(struct places_sums){0}, 0);
    return contributions_told(compared, &estimate,
            diff_units_half(places->all->prior, compared->units, &estimate, 2 * places->counted),
            0);
}

// Whether the place is named rather than those below it, which hold less than four fifths of its
// change. Where they hold half and the rest is not told from noise, they are in the end; places
// above ask what this one holds all the same. What goes the other way below it is told apart.
static void places_choose(
        struct places *places, struct places_node *node, const struct places_sums *sums)
{
    double delta = node->estimate.delta, held = node->held;
    if (!node->told || node->mixed || held * delta < 0 || fabs(held) >= diff_most * fabs(delta))
        return;
    node->deeper = fabs(held) >= places_half * fabs(delta) && !places_rest_told(places, sums);
    node->picked = true;
    node->held = delta;
    for (int side = 0; side < 2; side++)
        memcpy(sums->held[side], sums->all[side],
                places->all->compared->units->count * sizeof **sums->all);
}

// Adds what no named contribution holds, here and below; returns the change of its busy time.
static double places_visit(struct places *places, uint32_t id, const struct places_sums *above)
{
    const struct diff_compared *compared = places->all->compared;
    struct places_node *node = &places->nodes[id];
    struct places_sums sums = node->counted ? sums_new(compared->units->count) : *above;
    double busy = 0;
    for (uint32_t i = sums.all[0] ? node->group : COST_NONE; i != COST_NONE; i = places->next[i]) {
        const struct diff_group *group = &places->all->groups[i];
        if (places->named[i])
            continue;
        diff_groups_add(compared, places->all->launches, group->group, sums.all);
        busy += group->busy_b - group->busy_a;
    }
    for (uint32_t child = places->tree->nodes[id].first_child; child != COST_NONE;
            child = places->tree->nodes[child].next_sibling) {
        const struct places_node *below = &places->nodes[child];
        busy += places_visit(places, child, &sums);
        node->mixed = node->mixed || below->mixed || node->held * below->held < 0;
        node->held += below->held;
    }
    if (!node->counted)
        return busy;
    diff_units_estimate(compared->units, sums.all, &node->estimate);
    node->half = diff_units_half(
            places->all->prior, compared->units, &node->estimate, 2 * places->counted);
    node->told = fabs(node->estimate.delta) >= places_floor * compared->untraced->step[0] &&
            contributions_told(compared, &node->estimate, node->half, busy);
    places_choose(places, node, &sums);
    sums_hand_up(&sums, above, compared->units->count);
    return busy;
}

// Of each group: the outermost place that is named; COST_NONE.
static uint32_t places_owner(const struct places *places, size_t group)
{
    uint32_t owner = COST_NONE;
    for (uint32_t at = places->node[group]; at != COST_NONE; at = places->tree->nodes[at].parent)
        if (places->nodes[at].picked && !places->nodes[at].deeper)
            owner = at;
    return places->named[group] ? COST_NONE : owner;
}

void contributions_places(struct contributions *all)
{
    struct places places = {.all = all, .tree = cost_tree_new()};
    places.node = xcalloc(all->group_count + 1, sizeof *places.node);
    places.next = xcalloc(all->group_count + 1, sizeof *places.next);
    places.named = xcalloc(all->group_count + 1, sizeof *places.named);
    for (size_t i = 0; i < all->count; i++)
        for (size_t k = 0; k < all->items[i].count; k++)
            places.named[all->members[all->items[i].first + k]] = all->items[i].named;
    places_build(&places);
    places_count(&places);
    places_visit(&places, 0, &(struct places_sums){0});
    uint32_t *owner = xcalloc(all->group_count + 1, sizeof *owner);
    struct contributions_whole *wholes = xcalloc(places.tree->node_count, sizeof *wholes);
    for (size_t i = 1; i < places.tree->node_count; i++)
        if (places.nodes[i].picked)
            wholes[i] = (struct contributions_whole){.estimate = places.nodes[i].estimate,
                    .half = places.nodes[i].half,
                    .place = arena_copy(all->compared->arena, places.tree->nodes[i].name)};
    for (size_t i = 0; i < all->group_count; i++)
        owner[i] = places_owner(&places, i);
    contributions_split(all, owner, wholes, places.tree->node_count);
    free(wholes);
    free(owner);
    free(places.nodes);
    free(places.node);
    free(places.next);
    free(places.named);
    cost_tree_free(places.tree);
}
