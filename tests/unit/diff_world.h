// SPDX-License-Identifier: Apache-2.0
// Both sides' trees of a workload made by hand, of leaves with so much time a step, explained as
// `upgate diff` does.
#ifndef UPGATE_TEST_DIFF_WORLD_H
#define UPGATE_TEST_DIFF_WORLD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "tests/unit/runner.h"

enum { LEAVES_MAX = 64, COUPLES = 60, UNTRACED = 10 };

struct world_leaf {
    enum cost_kind kind;
    enum cost_class class;
    const char *place, *name_a, *name_b; // NULL: not on that side. A place "grad.…" is in the
                                         // backward phase, all else in the forward
    enum align_match match;
    double ns_a, ns_b; // a step
    double tick;       // 0: exact but for 1 %; else Poisson with so many ns a tick
};

struct world {
    struct diff diff;
    struct diff_workload workload;
    struct diff_input input;
    struct diff_untraced untraced;
    struct diff_units units;
    struct diff_compared compared;
    struct diff_opts opts;
    struct align_group groups[LEAVES_MAX];
    uint32_t leaves[2][LEAVES_MAX];
    struct alignment alignment;
    uint64_t random;
    int pairs;
    double launch_sd;        // of all a launch's times together
    double own_sd;           // of each leaf's in a launch, by itself
    double ratios[UNTRACED]; // of the untraced pairs
    bool mean;               // what few steps take is explained too
    uint32_t *places;        // of tree a's: partners by name, where a test needs them
    double drag;             // traced steps of b take so many times as long
    bool launched;           // the leaves, in this order
    const char *caller; // a Python function that launches what one side alone has in the forward
                        // phase; NULL
    const char *inner, *inner_module; // what it calls for that, between them; NULL
    const char *mode;                 // what it calls in place of that on mode_side; NULL
    int mode_side;
    bool calls_all; // it launches everything, on both sides
};

static inline double world_uniform(struct world *world)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t mixed = (world->random ^ world->random >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return ((double)((mixed ^ mixed >> 33) >> 11) + 0.5) / 9007199254740992.0;
}

static inline double world_normal(struct world *world)
{
    double u = world_uniform(world), v = world_uniform(world);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static inline double world_poisson(struct world *world, double mean)
{
    double product = world_uniform(world), limit = exp(-mean);
    int count = 0;
    for (; product > limit && count < 1000; count++)
        product *= world_uniform(world);
    return count;
}

static inline bool world_is_backward(const struct world_leaf *leaf)
{
    return leaf->place && strncmp(leaf->place, "grad.", 5) == 0;
}

static inline uint32_t world_node(
        struct cost_tree *tree, const struct world_leaf *leaf, const char *name)
{
    struct cost_key phase = {
            .kind = COST_PHASE, .name = world_is_backward(leaf) ? "backward" : "forward"};
    struct cost_key module = {.kind = COST_MODULE, .name = leaf->place};
    struct cost_key key = {.kind = leaf->kind, .class = leaf->class, .name = name};
    uint32_t place = cost_tree_child(tree, 0, &phase);
    if (leaf->place)
        place = cost_tree_child(tree, place, &module);
    return cost_tree_child(tree, place, &key);
}

static inline void world_window(struct world *world, int side, const struct world_leaf *leaves,
        size_t count, int pair, int couple, const double *luck)
{
    struct cost_tree *tree = world->workload.trees[side];
    double ns[LEAVES_MAX] = {0}, wall = 0;
    for (size_t i = 0; i < count; i++) {
        double mean = (side ? leaves[i].ns_b : leaves[i].ns_a) * (side ? world->drag : 1);
        mean *= luck ? luck[i] : 1;
        if (!(side ? leaves[i].name_b : leaves[i].name_a))
            continue;
        ns[i] = leaves[i].tick > 0 ? leaves[i].tick * world_poisson(world, mean / leaves[i].tick)
                                   : fmax(0, mean * (1 + 0.01 * world_normal(world)));
        wall += floor(ns[i]);
    }
    const struct cost_window window = {
            .pair = (uint32_t)pair, .couple = couple, .steps = 1, .wall_ns = (int64_t)wall};
    uint32_t id = cost_tree_window(tree, &window);
    for (size_t i = 0; i < count; i++)
        if (side ? leaves[i].name_b : leaves[i].name_a)
            cost_tree_add(tree, world->leaves[side][i], id, (int64_t)floor(ns[i]),
                    (int64_t)floor(ns[i]), 1);
}

static inline void world_align(struct world *world, const struct world_leaf *leaves, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct align_group *group = &world->groups[i];
        *group = (struct align_group){
                .match = leaves[i].match, .place_a = COST_NONE, .place_b = COST_NONE};
        for (int side = 0; side < 2; side++) {
            const char *name = side ? leaves[i].name_b : leaves[i].name_a;
            if (!name)
                continue;
            world->leaves[side][i] = world_node(world->workload.trees[side], &leaves[i], name);
            *(side ? &group->b : &group->a) = &world->leaves[side][i];
            *(side ? &group->count_b : &group->count_a) = 1;
            *(side ? &group->place_b : &group->place_a) =
                    world->workload.trees[side]->nodes[world->leaves[side][i]].parent;
        }
    }
    world->alignment = (struct alignment){.groups = world->groups, .count = count, .coverage = 1};
}

static inline void world_begin(struct world *world, uint64_t seed)
{
    *world = (struct world){.random = seed * 7919 + 1, .pairs = 4, .drag = 1};
    world->diff.arena = arena_new();
    world->input = (struct diff_input){.arena = world->diff.arena, .opts = &world->opts};
    world->workload.trees[0] = cost_tree_new();
    world->workload.trees[1] = cost_tree_new();
    world->compared = (struct diff_compared){.arena = world->diff.arena,
            .trees = {world->workload.trees[0], world->workload.trees[1]},
            .alignment = &world->alignment,
            .untraced = &world->untraced,
            .units = &world->units,
            .places = diff_places_new(
                    world->diff.arena, world->workload.trees[0], world->workload.trees[1])};
    world->workload.name = "made";
}

// Places of both sides are the same ones by their names.
static inline void world_places(struct world *world)
{
    struct cost_tree *a = world->workload.trees[0], *b = world->workload.trees[1];
    for (uint32_t i = 1; i < a->node_count; i++) {
        const struct cost_node *node = &a->nodes[i];
        world->places[i] = COST_NONE;
        for (uint32_t k = 1; node->kind < COST_KERNEL && k < b->node_count; k++)
            if (b->nodes[k].kind == node->kind && strcmp(b->nodes[k].name, node->name) == 0)
                world->places[i] = k;
    }
    world->alignment.place_b = world->places;
}

// The order of launches, and samples on the way to them: enough that a function is told from one
// that was missed.
static inline void world_launches(
        struct world *world, const struct world_leaf *leaves, size_t count)
{
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < count; i++) {
            uint32_t node = world->leaves[side][i];
            bool only = leaves[i].match == (side ? ALIGN_ONLY_B : ALIGN_ONLY_A);
            if (side ? !leaves[i].name_b : !leaves[i].name_a)
                continue;
            cost_tree_place(world->workload.trees[side], node, 1 + (double)i);
            for (int k = 0; world->caller && k < 20; k++) {
                cost_tree_caller(world->workload.trees[side],
                        &(struct cost_caller){.node = node, .name = "train", .module = "train.py"});
                if ((only && !world_is_backward(&leaves[i])) || world->calls_all)
                    cost_tree_caller(world->workload.trees[side],
                            &(struct cost_caller){.node = node,
                                    .depth = 1,
                                    .name = world->caller,
                                    .module = "train.py"});
                bool mode = world->mode && side == world->mode_side;
                if (only && !world_is_backward(&leaves[i]) && world->inner)
                    cost_tree_caller(world->workload.trees[side],
                            &(struct cost_caller){.node = node,
                                    .depth = 2,
                                    .name = mode ? world->mode : world->inner,
                                    .module = mode ? "counter.py" : world->inner_module});
            }
        }
}

// Contributions of finished trees, as diff.c takes them.
static inline void world_contribute(struct world *world)
{
    struct diff_workload *workload = &world->workload;
    struct diff_contributed made;
    diff_contributions(NULL, &world->compared, &made);
    workload->contributions = made.contributions;
    workload->contribution_count = made.count;
    workload->slower_ns = made.slower_ns;
    workload->faster_ns = made.faster_ns;
    workload->residual_ns = made.residual_ns;
    memcpy(workload->parts, made.parts, sizeof made.parts);
    memcpy(workload->unaccounted, made.unaccounted, sizeof made.unaccounted);
    workload->rows = diff_rows_make(&world->compared, made.groups, &workload->row_count);
    diff_contributed_clear(&made);
}

static inline bool world_run(
        struct world *world, const struct world_leaf *leaves, size_t count, bool couples)
{
    struct diff_workload *workload = &world->workload;
    double step[2] = {0};
    world_align(world, leaves, count);
    for (int pair = 0; pair < world->pairs; pair++)
        for (int side = 0; side < 2; side++) {
            double luck[LEAVES_MAX], all = 1 + world->launch_sd * world_normal(world);
            for (size_t i = 0; i < count; i++)
                luck[i] = all * (world->own_sd > 0 ? 1 + world->own_sd * world_normal(world) : 1);
            for (int couple = 0; couple < COUPLES; couple++)
                world_window(world, side, leaves, count, pair, couples ? couple : -1, luck);
        }
    for (size_t i = 0; i < count; i++) {
        step[0] += leaves[i].name_a ? leaves[i].ns_a : 0;
        step[1] += leaves[i].name_b ? leaves[i].ns_b : 0;
    }
    if (world->launched)
        world_launches(world, leaves, count);
    if (world->places)
        world_places(world);
    world->compared.first[0] = cost_tree_finish(workload->trees[0]);
    world->compared.first[1] = cost_tree_finish(workload->trees[1]);
    for (int i = 0; i < UNTRACED; i++)
        world->ratios[i] =
                log(step[1] / step[0]) + sqrt(2) * world->launch_sd * world_normal(world);
    world->untraced = (struct diff_untraced){.unit = "step",
            .step = {step[0], step[1]},
            .delta = step[1] - step[0],
            .lo = step[1] - step[0] - 0.002 * step[0],
            .hi = step[1] - step[0] + 0.002 * step[0],
            .mean = world->mean,
            .ratios = world->ratios,
            .ratio_count = UNTRACED,
            .cold = {{NAN, NAN}, NAN, NAN}};
    workload->unit = "step";
    workload->step_a_ns = step[0];
    workload->step_b_ns = step[1];
    workload->delta_ns = step[1] - step[0];
    workload->delta_lo_ns = workload->delta_ns - 0.002 * step[0];
    workload->delta_hi_ns = workload->delta_ns + 0.002 * step[0];
    workload->alignment = &world->alignment;
    if (!diff_units_make(world->compared.trees, &world->untraced, &world->units))
        return false;
    for (int side = 0; side < 2; side++)
        workload->traced_ratio[side] =
                world->units.total_wall[side] / world->units.total_steps[side] / step[side];
    world_contribute(world);
    return true;
}

static inline void world_end(struct world *world)
{
    diff_units_clear(&world->units);
    cost_tree_free(world->workload.trees[0]);
    cost_tree_free(world->workload.trees[1]);
    arena_free(world->diff.arena);
}

static inline size_t world_named(const struct world *world)
{
    size_t named = 0;
    for (size_t i = 0; i < world->workload.contribution_count; i++)
        named += world->workload.contributions[i].named;
    return named;
}

static inline double world_sum(const struct world *world)
{
    double sum = 0;
    for (size_t i = 0; i < world->workload.contribution_count; i++)
        sum += world->workload.contributions[i].delta_ns;
    return sum;
}

#define FUNCTION(where, name, a, b) \
    { \
        COST_FUNCTION, COST_HOST_RUN, where, name, name, ALIGN_EXACT, a, b, 5e5 \
    }
#define KERNEL(where, name, a, b) \
    { \
        COST_KERNEL, COST_GPU_COMPUTE, where, name, name, ALIGN_EXACT, a, b, 0 \
    }

#endif
