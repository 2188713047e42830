// SPDX-License-Identifier: Apache-2.0
// What code that one side alone has can be made of: the Python functions of both sides with how
// many samples of a step show them, in the trees (where the host is on the path) and on the way to
// launches; and runs of operations that one side has more of. Pure.
#include "reports/analyse/diff/contribute/code_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"

enum { RUNS_MAX = 1000 };

// ---- functions ----

enum { KEY_MAX = 2 * NAMES_LENGTH_MAX };

static size_t function_key(char key[KEY_MAX], const char *name, const char *module)
{
    size_t length = (size_t)snprintf(key, KEY_MAX, "%s\n%s", module ? module : "", name);
    return length < KEY_MAX ? length : KEY_MAX - 1;
}

static uint32_t function_of(
        struct code *code, struct intern *names, const char *name, const char *module)
{
    char key[KEY_MAX];
    uint32_t known = intern_count(names);
    uint32_t number = intern_number(names, key, function_key(key, name, module));
    if (number == known)
        vector_push(code->functions, code->function_count,
                (struct code_function){.name = name, .module = module, .depth = UINT16_MAX});
    return number;
}

static bool function_around(const struct code *code, int side, uint32_t node, uint32_t function)
{
    const struct cost_tree *tree = code->all->compared->trees[side];
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent)
        if (code->function_of[side][node] == function)
            return true;
    return false;
}

// Does the sample of callers that begins there show this one's function already?
static bool caller_before(const struct code *code, int side, size_t sample, size_t caller)
{
    while (sample < caller && code->callers[side][sample] != code->callers[side][caller])
        sample++;
    return sample < caller;
}

static void functions_count(struct code *code, struct intern *names, int side)
{
    const struct diff_compared *compared = code->all->compared;
    const struct cost_tree *tree = compared->trees[side];
    double *below = cost_tree_ticks(tree);
    code->function_of[side] = xcalloc(tree->node_count + 1, sizeof **code->function_of);
    code->callers[side] = xcalloc(tree->caller_count + 1, sizeof **code->callers);
    code->function_of[side][0] = COST_NONE;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const struct cost_node *node = &tree->nodes[i];
        uint32_t function = node->kind == COST_PYTHON
                ? function_of(code, names, node->name, node->module)
                : COST_NONE;
        code->function_of[side][i] = COST_NONE;
        if (function == COST_NONE || function_around(code, side, node->parent, function))
            continue;
        code->function_of[side][i] = function;
        struct code_function *of = &code->functions[function];
        of->ticks[side] += below[i];
        of->depth = node->depth < of->depth ? node->depth : of->depth;
    }
    const uint32_t *group_of = code->group_of[side];
    for (size_t i = 0, sample = 0; i < tree->caller_count; i++) {
        const struct cost_caller *caller = &tree->callers[i];
        uint32_t function = code->callers[side][i] =
                function_of(code, names, caller->name, caller->module);
        struct code_function *of = &code->functions[function];
        sample = caller->depth ? sample : i;
        if (caller_before(code, side, sample, i)) // it called itself
            continue;
        of->ticks[side] += 1;
        of->shared[side] += group_of[caller->node] == COST_NONE ||
                !diff_launches_more(code->all->launches, group_of[caller->node]);
        of->depth = caller->depth < of->depth ? caller->depth : of->depth;
    }
    free(below);
}

// Of the functions that either side's tree has.
static void functions_elsewhere(struct code *code, const struct intern *names, int side)
{
    const struct cost_tree *tree = code->all->compared->trees[side];
    char key[KEY_MAX];
    for (size_t i = 0; i < tree->elsewhere_count; i++) {
        const struct cost_elsewhere *of = &tree->elsewhere[i];
        uint32_t function = of->kind == COST_PYTHON
                ? intern_find(names, key, function_key(key, of->name, of->module))
                : INTERN_NONE;
        if (function != INTERN_NONE)
            code->functions[function].elsewhere[side] += (double)of->ticks;
    }
}

void code_ask(struct code *code, int side, uint32_t function)
{
    const struct cost_tree *tree = code->all->compared->trees[side];
    bool *below = code->below[side], counted = false;
    for (size_t i = 1; i < tree->node_count; i++) // parents come before their children
        below[i] = code->function_of[side][i] == function ||
                (below[tree->nodes[i].parent] && !code->partner[side][i]);
    for (size_t i = 0; i < code->run_count; i++)
        code->runs[i].votes = code->runs[i].called = 0;
    for (size_t i = 0; i < tree->caller_count; i++) {
        const struct cost_caller *caller = &tree->callers[i];
        uint32_t group = code->group_of[side][caller->node],
                 run = group == COST_NONE ? COST_NONE : code->run_of[group];
        counted = caller->depth ? counted : false; // another sample
        if (run == COST_NONE || code->runs[run].side != side)
            continue;
        code->runs[run].votes += caller->depth == 0;
        if (!counted && code->callers[side][i] == function) {
            code->runs[run].called++;
            counted = true;
        }
    }
}

// Of the samples that show the function that was asked for: ticks of each of those below it.
static double *ticks_below(const struct code *code, int side, uint32_t function)
{
    const struct cost_tree *tree = code->all->compared->trees[side];
    double *ticks = xcalloc(code->function_count + 1, sizeof *ticks), *sums = cost_tree_ticks(tree);
    for (size_t i = 1; i < tree->node_count; i++) {
        uint32_t own = code->function_of[side][i];
        if (own != COST_NONE && code->below[side][i])
            ticks[own] += sums[i];
    }
    bool in = false;
    for (size_t i = 0, sample = 0; i < tree->caller_count; i++) {
        if (!tree->callers[i].depth) { // another sample
            in = false;
            sample = i;
        }
        in = in || code->callers[side][i] == function;
        if (in && !caller_before(code, side, sample, i))
            ticks[code->callers[side][i]] += 1;
    }
    free(sums);
    return ticks;
}

const char *code_phase(const struct code *code, int side, uint32_t node)
{
    const struct cost_tree *tree = code->all->compared->trees[side];
    const char *outermost = NULL;
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent)
        if (tree->nodes[node].kind == COST_PHASE)
            outermost = tree->nodes[node].name;
    return outermost;
}

bool code_in_phase(const struct code *code, int side, uint32_t group, const char *phase)
{
    const struct align_group *of = code->all->groups[group].group;
    const struct cost_tree *tree = code->all->compared->trees[side];
    size_t count = side ? of->count_b : of->count_a, in = 0;
    for (size_t i = 0; i < count; i++)
        for (uint32_t node = (side ? of->b : of->a)[i]; node != COST_NONE && node != 0;
                node = tree->nodes[node].parent)
            in += tree->nodes[node].kind == COST_PHASE && !strcmp(tree->nodes[node].name, phase);
    return 2 * in > count;
}

bool code_moved(const struct code *code, int side, uint32_t function)
{
    return contributions_moves(
            code->functions[function].ticks, code->functions[function].elsewhere, side);
}

// Whoever calls another one to be what it is: a decorator's function, one of the same file that the
// other side does not have either; or one that the other side has, where it does not call what is
// new. What moved is what it is, and not who calls it here.
static bool function_leads(const struct code *code, int side, uint32_t outer, uint32_t inner)
{
    const struct code_function *a = &code->functions[outer], *b = &code->functions[inner];
    bool moved = code_moved(code, side, inner),
         fresh = code_other(code, side, outer) > 0 && code_other(code, side, inner) == 0;
    if (strstr(a->name, "<locals>") || strstr(a->name, "wrapper") ||
            (!code_moved(code, side, outer) && (moved || fresh)))
        return true;
    return a->module && b->module && !strcmp(a->module, b->module) &&
            !strstr(b->name, "<locals>") &&
            (moved || code_other(code, side, inner) <= code_elsewhere * b->ticks[side]);
}

uint32_t code_wrapped(const struct code *code, int side, uint32_t function)
{
    double *ticks = ticks_below(code, side, function);
    uint32_t best = function;
    for (;;) {
        uint32_t inner = COST_NONE;
        // what calls has as many samples, and stands further out
        for (uint32_t i = 0; i < code->function_count; i++)
            if (ticks[i] >= diff_most * ticks[function] &&
                    code->functions[i].depth > code->functions[best].depth &&
                    function_leads(code, side, best, i) &&
                    (inner == COST_NONE || code->functions[i].depth < code->functions[inner].depth))
                inner = i;
        if (inner == COST_NONE)
            break;
        best = inner;
    }
    free(ticks);
    return best;
}

uint32_t code_repeated(const struct code *code, int side, uint32_t function)
{
    double *ticks = ticks_below(code, side, function);
    uint32_t best = COST_NONE;
    for (uint32_t i = 0; i < code->function_count; i++) {
        const struct code_function *of = &code->functions[i];
        bool both = of->ticks[0] + of->elsewhere[0] - (side ? 0 : ticks[i]) >=
                        again_elsewhere * ticks[i] &&
                of->ticks[1] + of->elsewhere[1] - (side ? ticks[i] : 0) >=
                        again_elsewhere * ticks[i];
        if (i == function || !both || ticks[i] < again_most * ticks[function])
            continue;
        if (best == COST_NONE || ticks[i] > ticks[best] ||
                (ticks[i] == ticks[best] && of->depth < code->functions[best].depth))
            best = i;
    }
    free(ticks);
    return best;
}

// ---- runs ----

struct run_leaf {
    uint32_t node, group;
    double order;
    bool more; // of this side
};

static void run_add(struct code *code, struct code_run *run, uint32_t group)
{
    if (code->run_of[group] != COST_NONE)
        return;
    code->run_of[group] = (uint32_t)(run - code->runs);
    vector_push(run->groups, run->count, group);
    uint32_t name = code->name_of[group];
    size_t at = 0;
    while (at < run->name_count && run->names[at] < name)
        at++;
    if (name == COST_NONE || run->name_count == CODE_NAMES_MAX ||
            (at < run->name_count && run->names[at] == name))
        return;
    memmove(run->names + at + 1, run->names + at, (run->name_count++ - at) * sizeof *run->names);
    run->names[at] = name;
}

// Waits have no place among the launches: they are of the run that is at their place, mostly where
// a copy brings what they wait for.
static void runs_waits(struct code *code, int side)
{
    const struct contributions *all = code->all;
    const struct cost_tree *tree = all->compared->trees[side];
    for (uint32_t g = 0; g < all->group_count; g++) {
        const struct align_group *of = all->groups[g].group;
        if (!diff_launches_more(all->launches, g) || code->run_of[g] != COST_NONE ||
                (side ? of->count_b : of->count_a) == 0)
            continue;
        const struct cost_node *wait = &tree->nodes[side ? of->b[0] : of->a[0]];
        struct code_run *best = NULL;
        bool best_copies = false;
        for (size_t i = 0; i < code->run_count && wait->kind == COST_SYNC; i++) {
            struct code_run *run = &code->runs[i];
            bool here = false, copies = false;
            for (size_t k = 0; run->side == side && k < run->count; k++) {
                const struct align_group *other = all->groups[run->groups[k]].group;
                const struct cost_node *leaf = &tree->nodes[side ? other->b[0] : other->a[0]];
                here |= leaf->parent == wait->parent;
                copies |= leaf->parent == wait->parent && leaf->kind == COST_TRANSFER;
            }
            if (here &&
                    (!best || copies > best_copies ||
                            (copies == best_copies && run->count > best->count))) {
                best = run;
                best_copies = copies;
            }
        }
        if (best)
            run_add(code, best, g);
    }
}

static void runs_make(struct code *code, int side)
{
    const struct contributions *all = code->all;
    const struct cost_tree *tree = all->compared->trees[side];
    struct run_leaf *leaves = xcalloc(tree->node_count + 1, sizeof *leaves);
    size_t count = 0;
    for (uint32_t g = 0; g < all->group_count; g++) {
        const struct align_group *of = all->groups[g].group;
        for (size_t k = 0; k < (side ? of->count_b : of->count_a); k++) {
            uint32_t node = (side ? of->b : of->a)[k];
            if (diff_is_counted(&tree->nodes[node]) && tree->nodes[node].kind != COST_SYNC)
                leaves[count++] = (struct run_leaf){
                        node, g, tree->nodes[node].order, diff_launches_more(all->launches, g)};
        }
    }
    sort_in_place(
            leaves, count, x, y, x->order != y->order ? x->order < y->order : x->node < y->node);
    // nobody says in which order they were launched
    count = count && leaves[count - 1].order > 0 ? count : 0;
    size_t most = code->run_count + RUNS_MAX; // a side's
    for (size_t i = 0; i < count; i++) {
        bool begins = !i || !leaves[i - 1].more;
        if (begins && leaves[i].more && code->run_count == most)
            break; // what follows is of no run
        if (!leaves[i].more)
            continue;
        if (begins)
            vector_push(code->runs, code->run_count, (struct code_run){.side = side});
        run_add(code, &code->runs[code->run_count - 1], leaves[i].group);
    }
    free(leaves);
    runs_waits(code, side);
}

bool code_run_calls(const struct code_run *run)
{
    return run->votes >= RUN_VOTES_MIN && run->called >= run_calls * run->votes;
}

bool code_runs_alike(const struct code_run *a, const struct code_run *b)
{
    size_t same = 0;
    for (size_t i = 0, k = 0; i < a->name_count && k < b->name_count;) {
        same += a->names[i] == b->names[k];
        if (a->names[i] <= b->names[k])
            i++;
        else
            k++;
    }
    return a == b || (double)same >= run_alike * (double)(a->name_count + b->name_count - same);
}

const char *code_run_repeats(const struct code *code, const struct code_run *run)
{
    struct contributions *all = code->all;
    uint32_t *found = xcalloc(all->group_count + 1, sizeof *found);
    bool there[CODE_NAMES_MAX] = {false};
    size_t count = 0, of_both = 0;
    for (uint32_t g = 0; g < all->group_count; g++) {
        const struct diff_group *group = &all->groups[g];
        if (group->group->count_a == 0 || group->group->count_b == 0 ||
                code->name_of[g] == COST_NONE)
            continue;
        for (size_t i = 0; i < run->name_count; i++) {
            if (run->names[i] != code->name_of[g])
                continue;
            of_both += !there[i];
            there[i] = true;
            found[count++] = g;
        }
    }
    const char *where = NULL;
    if (count && run->name_count > 2 && (double)of_both >= run_repeats * (double)run->name_count)
        where = diff_where(all->compared->places, all->groups, found, count, NULL);
    free(found);
    return where && *where ? arena_print(all->compared->arena, "what %s does", where) : NULL;
}

static double *orders_make(const struct cost_tree *tree)
{
    double *sum = xcalloc(tree->node_count + 1, sizeof *sum),
           *count = xcalloc(tree->node_count + 1, sizeof *count);
    for (size_t i = tree->node_count; i-- > 0;) { // children come after their parents
        const struct cost_node *node = &tree->nodes[i];
        if (diff_is_counted(node) && node->kind != COST_SYNC) {
            sum[i] = node->order;
            count[i] = 1;
        }
        if (i) {
            sum[node->parent] += sum[i];
            count[node->parent] += count[i];
        }
        sum[i] = count[i] > 0 ? sum[i] / count[i] : NAN;
    }
    free(count);
    return sum;
}

static void names_make(struct code *code)
{
    struct contributions *all = code->all;
    struct intern *names = intern_new();
    struct map known = {0}; // by address: equal texts of a tree are one
    for (size_t g = 0; g < all->group_count; g++) {
        const struct cost_node *leaf = diff_leaf(all->compared->trees, &all->groups[g]);
        code->name_of[g] = COST_NONE;
        if (!diff_is_counted(leaf))
            continue;
        uint32_t *slot = map_put(&known, (uint64_t)(uintptr_t)leaf->name);
        if (*slot == MAP_NONE) {
            char name[NAMES_LENGTH_MAX] = "";
            names_normalise(leaf->name, name, sizeof name);
            *slot = intern_text(names, name);
        }
        code->name_of[g] = *slot;
    }
    map_free(&known);
    intern_free(names);
}

void code_parts_make(struct code *code)
{
    struct contributions *all = code->all;
    struct intern *names = intern_new();
    code->run_of = xcalloc(all->group_count + 1, sizeof *code->run_of);
    memset(code->run_of, 0xff, (all->group_count + 1) * sizeof *code->run_of);
    code->name_of = xcalloc(all->group_count + 1, sizeof *code->name_of);
    names_make(code);
    for (int side = 0; side < 2; side++) {
        size_t nodes = all->compared->trees[side]->node_count;
        code->below[side] = xcalloc(nodes + 1, sizeof **code->below);
        code->group_of[side] = diff_groups_of(all->compared, side);
        code->partner[side] = xcalloc(nodes + 1, sizeof **code->partner);
        code->order[side] = orders_make(all->compared->trees[side]);
        functions_count(code, names, side);
        runs_make(code, side);
    }
    for (int side = 0; side < 2; side++)
        functions_elsewhere(code, names, side);
    const uint32_t *place_b = all->compared->alignment->place_b;
    for (size_t i = 0; place_b && i < all->compared->trees[0]->node_count; i++) {
        const struct cost_tree *const *trees = all->compared->trees;
        if (place_b[i] == COST_NONE ||
                strcmp(trees[0]->nodes[i].name, trees[1]->nodes[place_b[i]].name) != 0)
            continue; // another function does the work there
        code->partner[0][i] = code->partner[1][place_b[i]] = true;
    }
    intern_free(names);
}

void code_parts_clear(struct code *code)
{
    for (int side = 0; side < 2; side++) {
        free(code->function_of[side]);
        free(code->callers[side]);
        free(code->group_of[side]);
        free(code->below[side]);
        free(code->partner[side]);
        free(code->order[side]);
    }
    for (size_t i = 0; i < code->run_count; i++)
        free(code->runs[i].groups);
    free(code->runs);
    free(code->functions);
    free(code->run_of);
    free(code->name_of);
}
