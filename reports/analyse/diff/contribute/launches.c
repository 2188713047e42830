// SPDX-License-Identifier: Apache-2.0
// Launches that are late belong to what they launch. A program that is bound by its launches pays
// for a kernel more with the time that the host takes to launch it, ten times what the kernel
// itself takes: told as "launches of forward", it would say what waited and not for what. So an
// operation that only one side has (or has once more) takes over what of the waiting at its place
// was before it, as far as the side has more executions of its name: shapes that follow the data
// (the number of rows a batch touches) make leaves of one side out of kernels that both run. And a
// wait for the device that only one side has drains the queue: launches behind it come late until
// the host is as far ahead as it was, which is its cost too, as far as the other side waits less
// there. What both sides launch keeps its waiting where it is: there it is the host that got
// slower. Only sums of contributions move; classes and the decomposition do not. Pure.
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

struct launches_move {
    uint32_t group, unit;
    int side;
    double ns;
};

struct diff_launches {
    const struct alignment *alignment;
    struct launches_move *moves; // by group
    size_t count;
    bool *more; // by group: diff_launches_more
};

struct launches_name { // of both sides' operations, normalised; a step
    double count[2], only[2];
};

struct launches_names {
    struct intern *raw, *normal;
    uint32_t *normal_of;      // by number of raw
    struct launches_name *of; // by number of normal
    size_t normal_capacity, of_capacity;
};

static struct launches_name *launches_name(struct launches_names *names, const char *name)
{
    uint32_t known = intern_count(names->raw), raw = intern_text(names->raw, name ? name : "");
    if (raw == known) {
        char buf[NAMES_LENGTH_MAX] = "";
        names_normalise(name, buf, sizeof buf);
        names->normal_of = vector_reserve(names->normal_of, &names->normal_capacity,
                (size_t)raw + 1, sizeof *names->normal_of);
        names->normal_of[raw] = intern_text(names->normal, buf);
    }
    uint32_t normal = names->normal_of[raw];
    names->of = vector_reserve_zero(
            names->of, &names->of_capacity, (size_t)normal + 1, sizeof *names->of);
    return &names->of[normal];
}

bool diff_is_counted(const struct cost_node *leaf)
{
    return leaf->kind == COST_KERNEL || leaf->kind == COST_GRAPH || leaf->kind == COST_TRANSFER ||
            leaf->kind == COST_SYNC;
}

static bool launches_own(const struct align_group *group, const struct cost_node *leaf)
{
    bool only = group->match == ALIGN_ONLY_A || group->match == ALIGN_ONLY_B;
    return only && diff_is_counted(leaf);
}

static struct launches_names launches_count(const struct diff_compared *compared)
{
    struct launches_names names = {.raw = intern_new(), .normal = intern_new()};
    const struct alignment *alignment = compared->alignment;
    for (size_t i = 0; i < alignment->count; i++)
        for (int side = 0; side < 2; side++) {
            const struct align_group *group = &alignment->groups[i];
            const struct cost_tree *tree = compared->trees[side];
            for (size_t k = 0; k < (side ? group->count_b : group->count_a); k++) {
                const struct cost_node *leaf = &tree->nodes[(side ? group->b : group->a)[k]];
                if (!diff_is_counted(leaf))
                    continue;
                struct launches_name *name = launches_name(&names, leaf->name);
                double count = (double)leaf->count / compared->units->total_steps[side];
                name->count[side] += count;
                name->only[side] += launches_own(group, leaf) ? count : 0;
            }
        }
    return names;
}

// By how much of it the time of a group is more on one side, without what moves already.
static double launches_growth(
        const struct diff_compared *compared, uint32_t group, int side, double moved_ns)
{
    const struct diff_units *units = compared->units;
    const struct align_group *aligned = &compared->alignment->groups[group];
    double ns[2] = {0};
    for (int s = 0; s < 2; s++) {
        for (size_t k = 0; k < (s ? aligned->count_b : aligned->count_a); k++)
            ns[s] += diff_leaf_sums(compared, s, (s ? aligned->b : aligned->a)[k]).ns;
        ns[s] *= units->scale[s] / units->total_steps[s];
    }
    return ns[side] - ns[!side] + moved_ns * units->scale[side] / units->total_steps[side];
}

// Of the waiting behind a wait that drained the queue only as much is by it as the other side,
// which did not wait, has less there.
static size_t launches_after_waits(const struct diff_compared *compared,
        struct launches_move *moves, size_t count, struct launches_move *waits, size_t wait_count)
{
    size_t groups = compared->alignment->count;
    for (int side = 0; side < 2 && wait_count; side++) {
        double *of = xcalloc(groups + 1, sizeof *of), *moved = xcalloc(groups + 1, sizeof *moved);
        for (size_t i = 0; i < count; i++)
            moved[moves[i].group] += moves[i].side == side ? moves[i].ns : 0;
        // to the wait, and from the waiting behind it
        for (size_t i = 0; i + 1 < wait_count; i += 2)
            of[waits[i + 1].group] -= waits[i].side == side ? waits[i + 1].ns : 0;
        for (size_t g = 0; g < groups; g++) {
            double ns = of[g] * compared->units->scale[side] / compared->units->total_steps[side];
            double growth = ns > 0 ? launches_growth(compared, (uint32_t)g, side, moved[g]) : 0;
            of[g] = growth <= 0 ? 0 : growth < ns ? growth / ns : 1;
        }
        for (size_t i = 0; i + 1 < wait_count; i += 2) {
            double share = waits[i].side == side ? of[waits[i + 1].group] : 1;
            waits[i].ns *= share;
            waits[i + 1].ns *= share;
        }
        free(of);
        free(moved);
    }
    memcpy(moves + count, waits, wait_count * sizeof *waits);
    return count + wait_count;
}

static bool launches_are_more(const struct diff_compared *compared, struct launches_names *names,
        const struct align_group *group)
{
    int side = group->count_b > 0;
    const struct cost_node *leaf = &compared->trees[side]->nodes[side ? group->b[0] : group->a[0]];
    if (!launches_own(group, leaf))
        return false;
    const struct launches_name *name = launches_name(names, leaf->name);
    return name->count[side] - name->count[!side] >= launches_more * name->only[side];
}

bool diff_launches_more(const struct diff_launches *launches, size_t group)
{
    return launches->more[group];
}

const struct diff_launches *diff_launches_make(const struct diff_compared *compared)
{
    const struct alignment *alignment = compared->alignment;
    struct diff_launches *launches = arena_alloc(compared->arena, 1, sizeof *launches);
    const struct cost_tree *const *trees = compared->trees;
    size_t most = 2 * (trees[0]->late_count + trees[1]->late_count);
    struct launches_move *moves = xcalloc(most + 1, sizeof *moves);
    struct launches_move *waits = xcalloc(most + 1, sizeof *waits);
    size_t count = 0, wait_count = 0;
    struct launches_names names = launches_count(compared);
    launches->more = arena_alloc(compared->arena, alignment->count + 1, sizeof *launches->more);
    for (size_t i = 0; i < alignment->count; i++)
        launches->more[i] = launches_are_more(compared, &names, &alignment->groups[i]);
    for (int side = 0; side < 2 && most; side++) {
        const struct cost_tree *tree = trees[side];
        uint32_t *groups = diff_groups_of(compared, side);
        for (size_t i = 0; i < tree->late_count; i++) {
            const struct cost_late *late = &tree->lates[i];
            uint32_t owner = groups[late->node], from = groups[late->gap],
                     unit = compared->units->of_window[side][late->window];
            if (owner == COST_NONE || from == COST_NONE || unit == UINT32_MAX)
                continue;
            if (!launches->more[owner])
                continue;
            bool wait = tree->nodes[late->node].kind == COST_SYNC;
            struct launches_move *to = wait ? &waits[wait_count] : &moves[count];
            to[0] = (struct launches_move){owner, unit, side, (double)late->ns};
            to[1] = (struct launches_move){from, unit, side, -(double)late->ns};
            *(wait ? &wait_count : &count) += 2;
        }
        free(groups);
    }
    count = launches_after_waits(compared, moves, count, waits, wait_count);
    free(waits);
    intern_free(names.raw);
    intern_free(names.normal);
    free(names.normal_of);
    free(names.of);
    sort_in_place(moves, count, x, y,
            x->group != y->group         ? x->group < y->group
                    : x->side != y->side ? x->side < y->side
                    : x->unit != y->unit
                    ? x->unit < y->unit
                    // sums come out the same whatever the order they were found in
                    : x->ns < y->ns);
    launches->alignment = alignment;
    launches->count = count;
    launches->moves = arena_alloc(compared->arena, count + 1, sizeof *moves);
    memcpy(launches->moves, moves, count * sizeof *moves);
    free(moves);
    return launches;
}

// Those of a group; how many.
static size_t launches_find(const struct diff_launches *launches, const struct align_group *group,
        const struct launches_move **ret)
{
    uint32_t index = (uint32_t)(group - launches->alignment->groups);
    size_t low = search_first(middle, launches->count, launches->moves[middle].group >= index);
    size_t end = low;
    while (end < launches->count && launches->moves[end].group == index)
        end++;
    *ret = &launches->moves[low];
    return end - low;
}

void diff_launches_add(
        const struct diff_launches *launches, const struct align_group *group, double *const ns[2])
{
    const struct launches_move *moves = NULL;
    size_t count = launches_find(launches, group, &moves);
    for (size_t i = 0; i < count; i++)
        ns[moves[i].side][moves[i].unit] += moves[i].ns;
}

double diff_launches_sum(
        const struct diff_launches *launches, const struct align_group *group, int side)
{
    const struct launches_move *moves = NULL;
    size_t count = launches_find(launches, group, &moves);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += moves[i].side == side ? moves[i].ns : 0;
    return sum;
}
