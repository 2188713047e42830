// SPDX-License-Identifier: Apache-2.0
// Wholes taken out of the items: groups that are told together, of whatever kinds and names they
// are, become an item with parts, and the items that they were of are told without them. Pure.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"

// The members of an item that a whole owns, behind taken->first; false: none.
static bool split_take(const struct contributions *all, const struct contributions_item *item,
        const uint32_t *owner, uint32_t whole, uint32_t *members, struct contributions_item *taken)
{
    size_t first = taken->first;
    *taken = (struct contributions_item){.first = first, .kind = item->kind};
    for (size_t k = 0; k < item->count; k++) {
        uint32_t member = all->members[item->first + k];
        if (owner[member] != whole)
            continue;
        members[first + taken->count++] = member;
        taken->estimate.a += all->groups[member].a;
        taken->estimate.b += all->groups[member].b;
    }
    taken->estimate.delta = taken->estimate.b - taken->estimate.a;
    return taken->count > 0;
}

static void split_whole(const struct contributions *all, const uint32_t *owner, uint32_t id,
        const struct contributions_whole *whole, uint32_t *members, struct contributions_item *made)
{
    struct contributions_item part = {.first = made->first};
    made->estimate = whole->estimate;
    made->half = whole->half;
    made->nearest = whole->nearest;
    made->named = true;
    made->whole = whole->label ? whole->kind : DIFF_KIND_COUNT;
    made->place = whole->place;
    made->label = whole->label;
    made->parts = xcalloc(all->count, sizeof *made->parts);
    for (size_t i = 0; i < all->count; i++) {
        if (!split_take(all, &all->items[i], owner, id, members, &part))
            continue;
        made->parts[made->part_count++] = part;
        made->count += part.count;
        part.first += part.count;
    }
    made->kind = made->parts[0].kind;
    if (made->part_count > 1 || made->label)
        return;
    free(made->parts); // one thing, told here and not where it is elsewhere
    made->parts = NULL;
    made->part_count = 0;
    made->place = NULL;
}

void contributions_split(struct contributions *all, const uint32_t *owner,
        const struct contributions_whole *wholes, size_t count)
{
    uint32_t *members = xcalloc(all->group_count + 1, sizeof *members);
    struct contributions_item *items = xcalloc(all->count + count + 2, sizeof *items);
    bool *less = xcalloc(all->count + 1, sizeof *less); // of items that are kept: another sum now
    bool *owns = xcalloc(count + 1, sizeof *owns);
    size_t kept_count = 0, first = 0;
    for (size_t i = 0; i < all->group_count; i++)
        if (owner[i] != COST_NONE)
            owns[owner[i]] = true;
    for (size_t i = 0; i < all->count; i++) {
        struct contributions_item kept = {.first = first}, item = all->items[i];
        if (!split_take(all, &item, owner, COST_NONE, members, &kept)) {
            free(item.parts);
            continue;
        }
        less[kept_count] = kept.count < item.count;
        for (size_t k = 0; k < item.part_count; k++) // of a whole nothing is taken
            item.parts[k].first = item.parts[k].first - item.first + first;
        item.first = first;
        item.count = kept.count;
        first += kept.count;
        items[kept_count++] = item;
    }
    size_t rest = kept_count;
    for (size_t i = 0; i < count; i++) {
        struct contributions_item made = {.first = first};
        if (!owns[i])
            continue;
        split_whole(all, owner, (uint32_t)i, &wholes[i], members, &made);
        first += made.count;
        items[kept_count++] = made;
    }
    free(owns);
    free(all->items);
    memcpy(all->members, members, all->group_count * sizeof *members);
    free(members);
    all->items = items;
    all->count = kept_count;
    for (size_t i = 0; i < rest; i++) {
        if (!less[i])
            continue;
        contributions_estimate(all, i, i + 1);
        items[i].half = diff_units_half(
                all->prior, all->compared->units, &items[i].estimate, 2 * all->candidates);
    }
    free(less);
}
