// SPDX-License-Identifier: Apache-2.0
// The smallest part of the program that carries a difference. Code that one side alone has, or runs
// more often, is one line with all that it causes: its kernels, copies and waits, the launches that
// are late for them, its functions and its Python. Two kinds of parts are asked. A Python function
// that only one side's stacks show: what is below it, and the operations that are launched from it.
// A run of operations, one behind the other in the order of launches, that one side alone executes
// (or executes more often): of those that no function explains, the same run at many places is one.
// Which list is the shortest is asked as a minimum description length. A line costs what the least
// that is worth one takes. What a list leaves unsaid costs its time: of a part that is said to be
// new, what the other side has of it; of single things those that are not told from noise. A part
// is told where that makes the list shorter. Outer functions are asked before inner ones. Of rare
// slow steps, of first ones and of CPU time functions are asked alone, and have to be in those of
// each launch. Of first steps the samples of all other instants say what is new in a launch, and
// what only moved. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/contribute/code_parts.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum { CODE_FUNCTIONS_MAX = 200 };

struct code_set { // what is asked
    uint32_t *groups;
    size_t count;
    double own, other; // time of the side that has it, and of the other one
};

static double group_delta(const struct contributions *all, uint32_t group)
{
    return all->groups[group].b - all->groups[group].a;
}

static void set_add(const struct code *code, struct code_set *set, int side, uint32_t group)
{
    const struct diff_group *of = &code->all->groups[group];
    vector_push(set->groups, set->count, group);
    set->own += fmax(side ? of->b : of->a, 0);
    set->other += fmax(side ? of->a : of->b, 0);
}

// ---- which is the shorter list ----

// What single lines cost for these groups: those named that are mostly here, and the time of what
// is not named. ret_kinds: how many single things there are. ret_most: the one that takes most.
static double cost_of_items(const struct code *code, const struct code_set *set, size_t *ret_kinds,
        size_t *ret_most, double *ret_held)
{
    const struct contributions *all = code->all;
    double *held = xcalloc(all->count + 1, sizeof *held),
           line = contributions_floor_ns(all->compared->untraced), cost = 0;
    *ret_kinds = *ret_most = 0;
    for (size_t i = 0; i < set->count; i++)
        held[code->item_of[set->groups[i]]] += group_delta(all, set->groups[i]);
    for (size_t i = 0; i < all->count; i++) {
        const struct contributions_item *item = &all->items[i];
        *ret_kinds += fabs(held[i]) > line / 4;
        *ret_most = fabs(held[i]) > fabs(held[*ret_most]) ? i : *ret_most;
        if (!item->named)
            cost += fabs(held[i]);
        else if (fabs(held[i]) >= fabs(item->estimate.delta) / 2)
            cost += line;
    }
    *ret_held = held[*ret_most];
    free(held);
    return cost;
}

static void set_estimate(const struct contributions *all, const struct code_set *set,
        struct diff_estimate *ret, double *ret_busy)
{
    *ret_busy = 0;
    for (size_t i = 0; i < set->count; i++)
        *ret_busy += all->groups[set->groups[i]].busy_b - all->groups[set->groups[i]].busy_a;
    contributions_estimate_groups(all, set->groups, set->count, ret);
}

// ---- what a run is called ----

// "cudaStreamSynchronize, DeviceSelectSweep and 4 more": what takes most first.
static const char *run_label(const struct code *code, const struct code_set *set, int side)
{
    struct contributions *all = code->all;
    const struct diff_compared *compared = all->compared;
    const char *names[2] = {NULL, NULL};
    double times[2] = {0, 0};
    size_t more = 0;
    for (size_t i = 0; i < all->count; i++) { // as items: by name
        double held = 0;
        uint32_t top = COST_NONE;
        for (size_t k = 0; k < set->count; k++) {
            uint32_t group = set->groups[k];
            if (code->item_of[group] != i)
                continue;
            held += fabs(group_delta(all, group));
            top = top == COST_NONE || fabs(group_delta(all, group)) > fabs(group_delta(all, top))
                    ? group
                    : top;
        }
        if (top == COST_NONE)
            continue;
        const char *name = side ? all->groups[top].name_b : all->groups[top].name_a;
        const struct cost_node *leaf = diff_leaf(compared->trees, &all->groups[top]);
        name = leaf->kind == COST_TRANSFER ? arena_print(compared->arena, "%s copy", leaf->name)
                : name                     ? name
                                           : leaf->name;
        more++;
        for (int at = 0; at < 2; at++) {
            if (held <= times[at])
                continue;
            const char *moved = names[at];
            double ns = times[at];
            names[at] = name;
            times[at] = held;
            name = moved;
            held = ns;
        }
    }
    char first[NAMES_LENGTH_MAX] = "", second[NAMES_LENGTH_MAX] = "";
    names_label(names[0] ? names[0] : "", first, sizeof first, CONTRIBUTIONS_HALF_MAX);
    names_label(names[1] ? names[1] : "", second, sizeof second, CONTRIBUTIONS_HALF_MAX);
    if (more > 2)
        return arena_print(compared->arena, "%s, %s and %zu more", first, second, more - 2);
    return arena_print(compared->arena, "%s and %s", first, second);
}

// ---- what comes late behind it ----

static double set_order(const struct contributions *all, const struct code_set *set, int side)
{
    const struct cost_tree *tree = all->compared->trees[side];
    double first = INFINITY;
    for (size_t i = 0; i < set->count; i++) {
        const struct align_group *of = all->groups[set->groups[i]].group;
        for (size_t k = 0; k < (side ? of->count_b : of->count_a); k++) {
            const struct cost_node *leaf = &tree->nodes[(side ? of->b : of->a)[k]];
            if (diff_is_counted(leaf) && leaf->kind != COST_SYNC)
                first = fmin(first, leaf->order);
        }
    }
    return first;
}

// Launches of what both sides run come late behind more launches: the waiting that grew behind them
// and not before them is theirs. Returns how many groups it added.
static size_t set_behind(const struct code *code, struct code_set *set, int side)
{
    const struct contributions *all = code->all;
    double first = set_order(all, set, side), before = 0, behind = 0, net = set->own - set->other,
           sign = side ? 1 : -1;
    size_t count = set->count;
    bool *own = xcalloc(all->group_count + 1, sizeof *own);
    for (size_t i = 0; i < count; i++)
        own[set->groups[i]] = true;
    for (uint32_t g = 0; isfinite(first) && g < all->group_count; g++) {
        const struct diff_group *group = &all->groups[g];
        double delta = sign * group_delta(all, g);
        const struct align_group *of = group->group;
        if (group->kind != DIFF_LAUNCH_GAP || own[g] || code->owner[g] != COST_NONE ||
                (side ? of->count_b : of->count_a) == 0)
            continue;
        const struct cost_tree *tree = all->compared->trees[side];
        double order = code->order[side][tree->nodes[(side ? of->b : of->a)[0]].parent];
        if (!(order >= first)) {
            before += delta;
            continue;
        }
        behind += delta;
        vector_push(set->groups, set->count, g);
    }
    free(own);
    bool theirs = behind > code_behind_least * net && behind <= net &&
            behind >= code_behind * fabs(before);
    set->count = theirs ? set->count : count;
    return set->count - count;
}

// What the operations of the set take that one side executes more often in each of its windows; 0:
// the times alone can tell.
static double set_executes_more(const struct contributions *all, const struct code_set *set)
{
    struct code_set of = {0};
    struct diff_estimate estimate;
    for (size_t i = 0; i < set->count; i++)
        if (diff_is_counted(diff_leaf(all->compared->trees, &all->groups[set->groups[i]])))
            vector_push(of.groups, of.count, set->groups[i]);
    contributions_estimate_groups(all, of.groups, of.count, &estimate);
    double certain =
            of.count ? contributions_executes_more(all, of.groups, of.count, &estimate) : 0;
    free(of.groups);
    return certain;
}

// repeated: the other side has the same, less often
static enum diff_kind code_kind(int side, bool repeated)
{
    return repeated ? DIFF_CODE_REPEATED : side ? DIFF_CODE_ADDED : DIFF_CODE_REMOVED;
}

// Takes the groups where one line for them makes the list shorter; of what moved also where they
// are one thing, as that is not new. label NULL: as the two things of it that take most, which is
// as long as two lines.
static bool code_tell(
        struct code *code, struct code_set *set, int side, enum diff_kind kind, const char *label)
{
    struct contributions *all = code->all;
    struct contributions_whole whole = {0};
    const bool steps = all->compared->subject == DIFF_SUBJECT_STEPS;
    double line = contributions_floor_ns(all->compared->untraced), busy, held, net = 0, gross = 0;
    size_t kinds, most;
    double cost = cost_of_items(code, set, &kinds, &most, &held);
    for (size_t i = 0; i < set->count; i++) {
        net += group_delta(all, set->groups[i]);
        gross += fabs(group_delta(all, set->groups[i]));
    }
    bool shorter = kinds > 1 && (label ? 1 : 2) * line + set->other < cost;
    if (!(shorter || (kind == DIFF_CODE_MOVED && kinds)) || fabs(net) < code_in_direction * gross ||
            (net > 0) != (side == 1))
        return false;
    set_estimate(all, set, &whole.estimate, &busy);
    whole.half = diff_units_half(
            all->prior, all->compared->units, &whole.estimate, 2 * (all->candidates + code->asked));
    if (!steps && !whole.estimate.agrees)
        return false;
    if (steps && !contributions_told(all->compared, &whole.estimate, whole.half, busy)) {
        double certain = set_executes_more(all, set);
        if (certain < line ||
                !contributions_told(
                        all->compared, &whole.estimate, fabs(whole.estimate.delta) - certain, busy))
            return false;
        whole.nearest = copysign(certain, whole.estimate.delta);
    }
    if (steps && set_behind(code, set, side))
        set_estimate(all, set, &whole.estimate, &busy);
    whole.half = diff_units_half(
            all->prior, all->compared->units, &whole.estimate, 2 * (all->candidates + code->asked));
    whole.label = label ? label : run_label(code, set, side);
    whole.kind = kind;
    for (size_t i = 0; i < set->count; i++)
        code->owner[set->groups[i]] = (uint32_t)code->whole_count;
    vector_push(code->wholes, code->whole_count, whole);
    return true;
}

// ---- Python functions ----

static bool function_only(const struct code *code, uint32_t function, int side)
{
    const struct code_function *of = &code->functions[function];
    bool only = code_other(code, side, function) <= code_elsewhere * of->ticks[side] ||
            code_moved(code, side, function);
    return of->ticks[side] >= DIFF_TICKS_MIN && only &&
            of->shared[side] <= code_shared * of->ticks[side];
}

// Time of the leaves of a group on one side; of it, that below the function that was asked for.
static double group_below(const struct code *code, int side, uint32_t group, double *ret_all)
{
    const struct align_group *of = code->all->groups[group].group;
    const struct cost_tree *tree = code->all->compared->trees[side];
    double below = 0, all = 0;
    for (size_t i = 0; i < (side ? of->count_b : of->count_a); i++) {
        uint32_t leaf = (side ? of->b : of->a)[i];
        double ns = (double)tree->nodes[leaf].ns;
        all += ns;
        below += code->below[side][leaf] ? ns : 0;
    }
    *ret_all = all;
    return below;
}

static void set_fill(const struct code *code, int side, struct code_set *set)
{
    const struct contributions *all = code->all;
    for (uint32_t i = 0; i < all->group_count; i++) {
        double of = 0,
               below = code->owner[i] == COST_NONE && code->run_of[i] == COST_NONE
                ? group_below(code, side, i, &of)
                : 0;
        bool start = all->compared->subject == DIFF_SUBJECT_FIRST ||
                all->compared->subject == DIFF_SUBJECT_CPU;
        bool compiles = all->groups[i].kind == DIFF_COMPILE && start; // it has a name
        if (all->groups[i].kind != DIFF_NATIVE_CODE && !compiles && below > 0 &&
                below >= code_below * of)
            set_add(code, set, side, i);
    }
    for (size_t i = 0; i < code->run_count; i++) {
        const struct code_run *run = &code->runs[i];
        if (run->side != side || !code_run_calls(run))
            continue;
        for (size_t k = 0; k < run->count; k++)
            if (code->owner[run->groups[k]] == COST_NONE)
                set_add(code, set, side, run->groups[k]);
    }
}

static const char *function_name(const struct code *code, uint32_t function)
{
    const struct code_function *of = &code->functions[function];
    char name[NAMES_LENGTH_MAX] = "";
    const char *import = of->module && !strcmp(of->name, "<module>")
            ? host_path_import(code->all->compared->arena, of->module, false)
            : NULL;
    if (import)
        return import;
    names_label(of->name, name, sizeof name, CONTRIBUTIONS_LABEL_MAX);
    return arena_copy(code->all->compared->arena, name);
}

static int by_ticks(const void *left, const void *right)
{
    const struct code_function *const *a = left, *const *b = right;
    double x = (*a)->ticks[0] + (*a)->ticks[1], y = (*b)->ticks[0] + (*b)->ticks[1];
    if (x != y)
        return x > y ? -1 : 1;
    return (*a)->depth != (*b)->depth ? (*a)->depth < (*b)->depth ? -1 : 1
                                      : strcmp((*a)->name, (*b)->name);
}

// What a function runs again: a function that both sides have elsewhere, or the operations of
// another place; NULL: neither.
static const char *function_repeats(const struct code *code, int side, uint32_t function)
{
    uint32_t again = code_repeated(code, side, function);
    if (again != COST_NONE)
        return function_name(code, again);
    for (size_t i = 0; i < code->run_count; i++)
        if (code->runs[i].side == side && code_run_calls(&code->runs[i]))
            return code_run_repeats(code, &code->runs[i]);
    return NULL;
}

static void code_functions(struct code *code)
{
    const struct code_function **only = xcalloc(code->function_count + 1, sizeof *only);
    size_t count = 0;
    for (size_t i = 0; i < code->function_count; i++)
        if (function_only(code, (uint32_t)i, 0) || function_only(code, (uint32_t)i, 1))
            only[count++] = &code->functions[i];
    qsort(only, count, sizeof *only, by_ticks); // whoever calls has as many as what is called
    count = count < CODE_FUNCTIONS_MAX ? count : CODE_FUNCTIONS_MAX;
    code->asked += count;
    for (size_t i = 0; i < count; i++) {
        uint32_t function = (uint32_t)(only[i] - code->functions);
        int side = function_only(code, function, 1);
        struct code_set set = {0};
        code_ask(code, side, function);
        set_fill(code, side, &set);
        uint32_t called = code_wrapped(code, side, function);
        bool moved = code_moved(code, side, called);
        const char *again = set.count && !moved ? function_repeats(code, side, function) : NULL;
        const char *label = function_name(code, called);
        if (again)
            label = arena_print(code->all->compared->arena, "%s, called by %s", again, label);
        if (set.count)
            code_tell(code, &set, side, moved ? DIFF_CODE_MOVED : code_kind(side, again != NULL),
                    label);
        free(set.groups);
    }
    free(only);
}

// ---- the backward pass of what is new ----

// The one function that is new in the forward pass of a side, or runs more often; COST_NONE: there
// is none, or several. What is no longer compiled has its own backward pass, where that was.
static uint32_t code_new_forward(const struct code *code, int side)
{
    uint32_t found = COST_NONE;
    for (uint32_t i = 0; i < code->whole_count; i++) {
        double forward = 0, own = 0;
        enum diff_kind kind = code->wholes[i].kind;
        if (kind == DIFF_CODE_UNCOMPILED || kind == DIFF_CODE_COMPILED)
            continue;
        for (uint32_t g = 0; g < code->all->group_count; g++) {
            double delta = code->owner[g] == i ? fabs(group_delta(code->all, g)) : 0;
            own += delta;
            forward += delta > 0 && code_in_phase(code, side, g, "forward") ? delta : 0;
        }
        if ((code->wholes[i].estimate.delta > 0) != (side == 1) || forward < code_below * own)
            continue;
        if (found != COST_NONE)
            return COST_NONE;
        found = i;
    }
    return found;
}

// What autograd runs backward for an operation has no Python of its own. Where one function alone
// is new in the forward pass, the operations that are new in the backward pass are its.
static void code_backward(struct code *code, int side)
{
    struct contributions *all = code->all;
    uint32_t whole = code_new_forward(code, side);
    struct code_set set = {0};
    double busy;
    for (size_t i = 0; whole != COST_NONE && i < code->run_count; i++) {
        const struct code_run *run = &code->runs[i];
        for (size_t k = 0; run->side == side && k < run->count; k++)
            if (code->owner[run->groups[k]] == COST_NONE &&
                    code_in_phase(code, side, run->groups[k], "backward"))
                set_add(code, &set, side, run->groups[k]);
    }
    bool theirs = set.count && set.other <= code_elsewhere * set.own;
    for (size_t i = 0; i < set.count && theirs; i++)
        code->owner[set.groups[i]] = whole;
    set.count = 0;
    for (uint32_t g = 0; g < all->group_count && theirs; g++)
        if (code->owner[g] == whole)
            set_add(code, &set, side, g);
    if (theirs) {
        set_estimate(all, &set, &code->wholes[whole].estimate, &busy);
        code->wholes[whole].half = diff_units_half(all->prior, all->compared->units,
                &code->wholes[whole].estimate, 2 * (all->candidates + code->asked));
    }
    free(set.groups);
}

// ---- runs of operations ----

static void code_runs(struct code *code)
{
    struct contributions *all = code->all;
    code->asked += code->run_count;
    for (size_t i = 0; i < code->run_count; i++) {
        const struct code_run *run = &code->runs[i];
        struct code_set set = {0};
        for (size_t k = i; k < code->run_count; k++) {
            const struct code_run *other = &code->runs[k];
            if (other->side != run->side || !code_runs_alike(run, other))
                continue;
            for (size_t g = 0; g < other->count; g++)
                if (code->owner[other->groups[g]] == COST_NONE)
                    set_add(code, &set, run->side, other->groups[g]);
        }
        size_t kinds = 0, most = 0;
        double held = 0;
        if (set.count)
            cost_of_items(code, &set, &kinds, &most, &held);
        const char *again = set.count ? code_run_repeats(code, run) : NULL;
        // One thing with what comes with it, a wait behind a copy, has its own kind and name.
        bool one = !again && set.count && all->items[most].named &&
                fabs(held) >= code_one * fabs(set.own - set.other);
        if (set.count && !one)
            code_tell(code, &set, run->side, code_kind(run->side, again != NULL), again);
        free(set.groups);
    }
}

void contributions_code(struct contributions *all)
{
    struct code code = {.all = all};
    code.owner = xcalloc(all->group_count + 1, sizeof *code.owner);
    code.item_of = xcalloc(all->group_count + 1, sizeof *code.item_of);
    memset(code.owner, 0xff, (all->group_count + 1) * sizeof *code.owner);
    for (size_t i = 0; i < all->count; i++)
        for (size_t k = 0; k < all->items[i].count; k++)
            code.item_of[all->members[all->items[i].first + k]] = (uint32_t)i;
    code_parts_make(&code);
    const bool steps = all->compared->subject == DIFF_SUBJECT_STEPS;
    if (steps)
        code_compiled(&code);
    code_functions(&code);
    if (steps) { // elsewhere each operation of a side without it is one that the other has more
                 // often
        code_backward(&code, 0);
        code_backward(&code, 1);
        code_runs(&code);
    }
    if (code.whole_count)
        contributions_split(all, code.owner, code.wholes, code.whole_count);
    code_parts_clear(&code);
    free(code.owner);
    free(code.item_of);
    free(code.wholes);
}
