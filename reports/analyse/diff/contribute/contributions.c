// SPDX-License-Identifier: Apache-2.0
// From aligned groups to contributions: groups of one kind and one name are one, wherever they are;
// each gets its difference, its interval (simultaneous for all) and its share; together they sum to
// the difference of the untraced step, and what does not is the residual. A contribution is named
// when its interval leaves out 0 and it is worth a line. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

static void key_normalised(struct strbuf *text, const char *name)
{
    char buf[NAMES_LENGTH_MAX] = "";
    if (name)
        names_normalise(name, buf, sizeof buf);
    strbuf_add(text, "|%s", buf);
}

static char *key_make(const struct diff_compared *compared, const struct diff_group *group)
{
    const struct cost_tree *tree = compared->trees[group->side];
    const struct cost_node *leaf = &tree->nodes[group->leaf];
    struct strbuf text = {0};
    strbuf_add(&text, "%02d", group->kind);
    switch (group->kind) {
    case DIFF_DATA_WAIT:
    case DIFF_COMPILE:
    case DIFF_COLD_START:
    case DIFF_MEMORY_ALLOC:
    case DIFF_CLOCK_THROTTLE:
    case DIFF_PARALLELISM:
        break;
    case DIFF_NATIVE_CODE:
        strbuf_add(&text, "|%u", group->native_place);
        break;
    case DIFF_HOST_STALL:
        strbuf_add(&text, "|%s|%s", leaf->name, leaf->module ? leaf->module : "");
        break;
    case DIFF_SYNC_ADDED:
    case DIFF_MEMCPY:
        strbuf_add(&text, "|%s", leaf->name);
        break;
    case DIFF_COMM_EXPOSED:
        strbuf_add(&text, "|%s",
                leaf->collective.waits              ? ""
                        : leaf->collective.function ? leaf->collective.function
                                                    : leaf->name);
        break;
    case DIFF_LAUNCH_GAP:
        strbuf_add(&text, "|%s", contributions_place(tree, group->leaf, true)->name);
        break;
    case DIFF_PYTHON_OVERHEAD:
        key_normalised(&text, contributions_place(tree, group->leaf, false)->name);
        break;
    default:
        key_normalised(&text, group->name_a);
        key_normalised(&text, group->name_b);
        if (leaf->name[0] == '[' && leaf->module) // "[unknown]" of two libraries is two
            strbuf_add(&text, "|%s", leaf->module);
    }
    return strbuf_take(&text);
}

static int key_compare(const void *left, const void *right)
{
    const struct diff_key *a = left, *b = right;
    int order = strcmp(a->text, b->text);
    return order ? order : a->group < b->group ? -1 : a->group > b->group;
}

void diff_keys_sort(struct diff_key *keys, size_t count)
{
    qsort(keys, count, sizeof *keys, key_compare);
}

static void contributions_merge(struct contributions *all)
{
    diff_keys_sort(all->keys, all->group_count);
    for (size_t i = 0; i < all->group_count; i++) {
        bool fresh = i == 0 || strcmp(all->keys[i].text, all->keys[i - 1].text) != 0;
        all->members[i] = all->keys[i].group;
        if (fresh)
            all->items[all->count++] = (struct contributions_item){
                    .first = i, .kind = all->groups[all->keys[i].group].kind};
        all->items[all->count - 1].count++;
    }
}

void contributions_estimate_groups(const struct contributions *all, const uint32_t *groups,
        size_t count, struct diff_estimate *ret)
{
    size_t units = all->compared->units->count;
    double *ns[2] = {xcalloc(units + 1, sizeof **ns), xcalloc(units + 1, sizeof **ns)};
    for (size_t i = 0; i < count; i++)
        diff_groups_add(all->compared, all->launches, all->groups[groups[i]].group, ns);
    diff_units_estimate(all->compared->units, ns, ret);
    free(ns[0]);
    free(ns[1]);
}

void contributions_estimate(struct contributions *all, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        contributions_estimate_groups(all, all->members + all->items[i].first, all->items[i].count,
                &all->items[i].estimate);
}

double contributions_floor_ns(const struct diff_untraced *untraced)
{
    return contributions_floor * untraced->step[0];
}

static bool contributions_shows(const struct diff_compared *compared,
        const struct diff_estimate *estimate, double half, double busy)
{
    size_t hit_min = compared->units->count < 2 * CONTRIBUTIONS_HIT_MIN ? 1 : CONTRIBUTIONS_HIT_MIN;
    double delta = fabs(estimate->delta);
    // Behind other work, but for what is in its gaps.
    bool hidden = delta < contributions_hidden * fabs(busy);
    return isfinite(half) && delta > half && delta >= contributions_floor_ns(compared->untraced) &&
            estimate->agrees && estimate->units_hit >= hit_min && !hidden;
}

bool contributions_told(const struct diff_compared *compared, const struct diff_estimate *estimate,
        double half, double busy)
{
    return contributions_shows(compared, estimate, half, busy) &&
            !diff_units_modes(compared->untraced, compared->units->pairs, estimate->delta);
}

static bool contributions_is_candidate(
        const struct contributions *all, const struct contributions_item *item)
{
    return fmax(item->estimate.a, item->estimate.b) >=
            contributions_floor_ns(all->compared->untraced);
}

static void contributions_learn(struct contributions *all)
{
    const struct diff_estimate **things = xcalloc(all->count + 1, sizeof *things);
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (contributions_is_candidate(all, &all->items[i]))
            things[count++] = &all->items[i].estimate;
    diff_prior_learn(all->prior, things, count);
    free(things);
}

// Which are named: half of the error is for all that could be, which is those that are long enough
// on either side, the other half for what is spread over a place: half as many in a count of twice
// as many are the same.
static void contributions_judge(struct contributions *all)
{
    const struct diff_compared *compared = all->compared;
    double floor = contributions_floor_ns(compared->untraced);
    all->candidates = 0;
    for (size_t i = 0; i < all->count; i++)
        all->candidates += contributions_is_candidate(all, &all->items[i]);
    for (size_t i = 0; i < all->count; i++) {
        struct contributions_item *item = &all->items[i];
        double busy = 0;
        if (item->parts)
            continue; // told where it was made
        for (size_t k = 0; k < item->count; k++) {
            const struct diff_group *group = &all->groups[all->members[item->first + k]];
            busy += group->busy_b - group->busy_a;
        }
        item->half =
                diff_units_half(all->prior, compared->units, &item->estimate, 2 * all->candidates);
        item->nearest = 0;
        item->named = contributions_told(compared, &item->estimate, item->half, busy);
        double certain = item->named ? 0
                                     : contributions_executes_more(all, all->members + item->first,
                                               item->count, &item->estimate);
        if (certain >= floor)
            item->named = contributions_told(
                    compared, &item->estimate, fabs(item->estimate.delta) - certain, busy);
        item->nearest = item->named ? copysign(certain, item->estimate.nearest) : 0;
        double many = diff_units_half_of_many(
                all->prior, compared->units, &item->estimate, 2 * all->candidates);
        item->few = !item->named && fabs(item->estimate.delta) > 5 * floor &&
                contributions_shows(compared, &item->estimate, many, busy);
    }
}

static bool contributions_is_small(
        const struct contributions *all, const struct contributions_item *item)
{
    return item->kind == DIFF_PYTHON_OVERHEAD && !item->named &&
            fabs(item->estimate.delta) < contributions_small * all->compared->untraced->step[0];
}

// Python functions of which none alone is named may together be: the interpreter itself got slower.
static bool contributions_gather(struct contributions *all)
{
    struct contributions_item gathered = {.kind = DIFF_PYTHON_OVERHEAD, .count = 0};
    size_t parts = 0, kept = 0, member_count = 0;
    for (size_t i = 0; i < all->count; i++)
        parts += contributions_is_small(all, &all->items[i]);
    if (parts < 2)
        return false;
    uint32_t *members = xcalloc(all->group_count + 1, sizeof *members),
             *rest = xcalloc(all->group_count + 1, sizeof *rest);
    for (size_t i = 0; i < all->count; i++) {
        struct contributions_item item = all->items[i];
        if (contributions_is_small(all, &item)) {
            memcpy(rest + gathered.count, all->members + item.first, item.count * sizeof *rest);
            gathered.count += item.count;
            continue;
        }
        memcpy(members + member_count, all->members + item.first, item.count * sizeof *members);
        item.first = member_count;
        member_count += item.count;
        all->items[kept++] = item;
    }
    gathered.first = member_count;
    memcpy(members + member_count, rest, gathered.count * sizeof *rest);
    all->items[kept++] = gathered;
    memcpy(all->members, members, all->group_count * sizeof *members);
    all->count = kept;
    free(rest);
    free(members);
    return true;
}

// sign: of the list that comes first.
static int item_compare(const void *left, const void *right, void *sign)
{
    const struct contributions_item *a = left, *b = right;
    if (a->named != b->named)
        return a->named ? -1 : 1;
    bool own_a = a->estimate.delta * *(double *)sign > 0,
         own_b = b->estimate.delta * *(double *)sign > 0;
    if (a->named && own_a != own_b)
        return own_a ? -1 : 1;
    double x = fabs(a->estimate.delta), y = fabs(b->estimate.delta);
    return x > y ? -1 : x < y ? 1 : a->first < b->first ? -1 : a->first > b->first;
}

// What other programs took is in the trees with 0: it is no contribution.
static void contributions_drop_empty(struct contributions *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].estimate.a != 0 || all->items[i].estimate.b != 0)
            all->items[kept++] = all->items[i];
    all->count = kept;
}

// What is named makes two lists, of losses and of gains. First comes the one that goes as the step
// does; where that is not told from 0, the larger one.
static void contributions_order(struct contributions *all, struct diff_contributed *ret)
{
    const struct diff_untraced *untraced = all->compared->untraced;
    double sums[2] = {0};
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].named)
            sums[all->items[i].estimate.delta > 0] += all->items[i].estimate.delta;
    bool told = untraced->lo * untraced->hi > 0;
    double sign = told ? untraced->delta : sums[0] + sums[1];
    qsort_r(all->items, all->count, sizeof *all->items, item_compare, &sign);
    ret->faster_ns = sums[0];
    ret->slower_ns = sums[1];
}

static void contributions_fill(struct contributions *all, const struct contributions_item *item,
        int rank, struct diff_contribution *made)
{
    const struct diff_compared *compared = all->compared;
    uint32_t *members = all->members + item->first;
    const struct diff_estimate *estimate = &item->estimate;
    *made = (struct diff_contribution){.rank = rank,
            .kind = item->kind,
            .a_ns = estimate->a,
            .b_ns = estimate->b,
            .delta_ns = estimate->delta,
            .ci_lo_ns = estimate->delta - item->half,
            .ci_hi_ns = estimate->delta + item->half,
            .share = estimate->delta / compared->untraced->step[0],
            .named = item->named,
            .few = item->few && !item->named,
            .group_count = item->count};
    if (item->parts)
        contributions_parts(all, item, made);
    diff_groups_sort(all->groups, members, item->count);
    if (contributions_moved(all, item))
        made->kind = DIFF_CODE_MOVED;
    const struct diff_group *top = &all->groups[members[0]];
    made->groups = memcpy(arena_alloc(compared->arena, item->count, sizeof *members), members,
            item->count * sizeof *members);
    enum cost_kind kind = diff_leaf(compared->trees, top)->kind;
    bool counted = !item->parts && kind != COST_FUNCTION && kind != COST_GAP;
    made->count_a = made->count_b = counted ? 0 : NAN;
    for (size_t i = 0; i < item->count; i++) {
        const struct diff_group *group = &all->groups[members[i]];
        made->busy_a_ns += group->busy_a;
        made->busy_b_ns += group->busy_b;
        made->count_a += group->count_a;
        made->count_b += group->count_b;
        if (item->parts)
            continue;
        made->name_a = made->name_a ? made->name_a : group->name_a;
        made->name_b = made->name_b ? made->name_b : group->name_b;
    }
    if (item->nearest > 0)
        made->ci_lo_ns = fmax(made->ci_lo_ns, item->nearest);
    else if (item->nearest < 0)
        made->ci_hi_ns = fmin(made->ci_hi_ns, item->nearest);
    const char *last;
    made->where = diff_where(compared->places, all->groups, members, item->count, &last);
    if (item->kind == DIFF_NATIVE_CODE && !item->parts)
        made->label = contributions_label(all, item); // it says the place
    else if (!item->parts)
        made->label = contributions_label_called(compared->arena, diff_leaf(compared->trees, top),
                contributions_label(all, item), last);
}

static void contributions_classes(
        const struct diff_compared *compared, struct diff_contributed *ret)
{
    double idle[2] = {0}, known[2] = {0};
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = compared->trees[side];
        double factor = compared->units->scale[side] / compared->units->total_steps[side];
        for (size_t r = 0; r < tree->row_count; r++) {
            const struct cost_row *row = &tree->rows[r];
            unsigned class = tree->nodes[row->node].class;
            if (compared->units->of_window[side][row->window] == UINT32_MAX ||
                    class >= COST_CLASS_COUNT)
                continue;
            struct diff_part *part = &ret->parts[class];
            *(side ? &part->b_ns : &part->a_ns) += factor * (double)row->ns;
            known[side] += (double)row->ns;
            idle[side] += class == COST_IDLE ? (double)row->ns : 0;
        }
        ret->unaccounted[side] = (compared->units->total_wall[side] - known[side] + idle[side]) /
                compared->units->total_wall[side];
    }
}

static void contributions_close(const struct diff_compared *compared, struct diff_contributed *ret)
{
    double sum = 0;
    for (size_t i = 0; i < ret->count; i++)
        sum += ret->contributions[i].delta_ns;
    ret->residual_ns = compared->untraced->delta - sum;
}

void diff_contribute(const struct diff_compared *compared, struct diff_contributed *ret)
{
    size_t count = compared->alignment->count;
    struct diff_prior prior = {0};
    struct contributions all = {.compared = compared,
            .launches = diff_launches_make(compared),
            .prior = &prior,
            .group_count = count};
    all.groups = xcalloc(count + 1, sizeof *all.groups);
    all.keys = xcalloc(count + 1, sizeof *all.keys);
    all.members = xcalloc(count + 1, sizeof *all.members);
    all.items = xcalloc(count + 2, sizeof *all.items);
    diff_groups_make(compared, all.launches, all.groups);
    diff_alike(compared, all.groups, count);
    contributions_native(&all);
    for (size_t i = 0; i < count; i++)
        all.keys[i] = (struct diff_key){key_make(compared, &all.groups[i]), (uint32_t)i};
    contributions_merge(&all);
    contributions_estimate(&all, 0, all.count);
    contributions_learn(&all);
    contributions_judge(&all);
    if (contributions_gather(&all)) {
        contributions_estimate(&all, all.count - 1, all.count);
        contributions_judge(&all);
    }
    contributions_code(&all);
    if (compared->subject == DIFF_SUBJECT_STEPS) {
        contributions_judge(&all);
        contributions_places(&all);
    }
    contributions_drop_empty(&all);
    *ret = (struct diff_contributed){
            .groups = all.groups, .launches = all.launches, .count = all.count};
    contributions_order(&all, ret);
    ret->contributions = arena_alloc(compared->arena, all.count + 1, sizeof *ret->contributions);
    for (size_t i = 0; i < all.count; i++)
        contributions_fill(&all, &all.items[i], (int)i + 1, &ret->contributions[i]);
    contributions_classes(compared, ret);
    contributions_close(compared, ret);
    for (size_t i = 0; i < count; i++)
        free(all.keys[i].text);
    for (size_t i = 0; i < all.count; i++)
        free(all.items[i].parts);
    free(all.keys);
    free(all.members);
    free(all.items);
}

void diff_contributed_clear(struct diff_contributed *made)
{
    free(made->groups);
    *made = (struct diff_contributed){0};
}
