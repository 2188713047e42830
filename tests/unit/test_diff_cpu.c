// SPDX-License-Identifier: Apache-2.0
// What the CPU time of launches is made of, from trees made by hand: a window a launch, four of a
// side. Code that one side alone has. Who asks for it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/diff/explain/explain.h"
#include "tests/unit/runner.h"

enum { PAIRS = 4, MS = 1000000 };

static struct diff_workload workload;
static struct diff_opts opts;
static struct diff_input input;
static struct diff_untraced untraced;
static int others; // threads beside, which do the same on both sides

static void leaf(int side, uint32_t window, const char *place, const char *name, int64_t ns)
{
    struct cost_tree *tree = workload.cpu.trees[side];
    if (!ns) // it has never been on a CPU
        return;
    uint32_t phase =
            cost_tree_child(tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = place});
    uint32_t node = cost_tree_child(tree, phase,
            &(struct cost_key){.kind = COST_FUNCTION,
                    .class = COST_HOST_RUN,
                    .name = name,
                    .module = "libx.so"});
    cost_tree_add(tree, node, window, ns, ns, 1);
    tree->windows[window].wall_ns += ns;
}

// spin_ms: of the pool of the candidate, in each launch or in one of them.
static void explain(int pairs, int64_t spin_ms, bool once)
{
    workload = (struct diff_workload){.name = "train", .unit = "step"};
    input = (struct diff_input){.opts = &opts, .arena = arena_new()};
    double more = once ? 0.505e9 : 2e9; // in the mean
    untraced = (struct diff_untraced){
            .unit = "step", .step = {1e7, 1e7}, .cpu = {{3e9, 3e9 + more}, 0.9 * more, 1.1 * more}};
    for (int side = 0; side < 2; side++) {
        workload.cpu.trees[side] = cost_tree_new();
        for (int pair = 0; pair < pairs; pair++) {
            uint32_t window = cost_tree_window(workload.cpu.trees[side],
                    &(struct cost_window){.pair = (uint32_t)pair, .couple = 0, .steps = 1});
            for (int i = 0; i < others; i++)
                leaf(side, window,
                        arena_print(input.arena, "thread %c%c", 'a' + i / 26, 'a' + i % 26),
                        "poll_loop", 5LL * MS);
            leaf(side, window, "forward", "gemm", 3000LL * MS + (pair * 3 + side) % 4 * 5LL * MS);
            leaf(side, window, "thread python", "pool_spin",
                    side && (!once || pair == 1) ? spin_ms * MS + pair % 2 * 20LL * MS : 0);
        }
    }
    diff_cpu(&input, &untraced, false, &workload.cpu);
}

static void clear(void)
{
    cost_tree_free(workload.cpu.trees[0]);
    cost_tree_free(workload.cpu.trees[1]);
    arena_free(input.arena);
}

// A story of the thread that makes steps, a tick a millisecond; functions of Python, outermost
// first, NULL behind the last one.
static void runs(int side, uint32_t window, const char *phase, const char *const *functions,
        const char *name, int ms)
{
    struct cost_tree *tree = workload.cpu.trees[side];
    uint32_t node = cost_tree_child(tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = phase});
    for (; *functions; functions++)
        node = cost_tree_child(tree, node,
                &(struct cost_key){.kind = COST_PYTHON,
                        .name = *functions,
                        .module = strchr(*functions, '.') ? "model.py" : "train.py"});
    node = cost_tree_child(tree, node,
            &(struct cost_key){.kind = COST_FUNCTION,
                    .class = COST_HOST_RUN,
                    .name = name,
                    .module = "libx.so"});
    cost_tree_add(tree, node, window, (int64_t)ms * MS, (int64_t)ms * MS, ms);
    tree->windows[window].wall_ns += (int64_t)ms * MS;
}

typedef void (*story_fn)(int side, uint32_t window);

// What both sides do, and the story's.
static void explain_code(story_fn story)
{
    static const char *const step[] = {"train", "Net.forward", NULL},
                             *const load[] = {"train", "load", NULL};
    workload = (struct diff_workload){.name = "train", .unit = "step"};
    input = (struct diff_input){.opts = &opts, .arena = arena_new()};
    double of[2] = {0};
    for (int side = 0; side < 2; side++) {
        struct cost_tree *tree = workload.cpu.trees[side] = cost_tree_new();
        for (uint32_t pair = 0; pair < PAIRS; pair++) {
            uint32_t window = cost_tree_window(
                    tree, &(struct cost_window){.pair = pair, .couple = 0, .steps = 1});
            runs(side, window, "forward", step, "gemm", 2000);
            runs(side, window, "forward", step, "softmax", 500);
            runs(side, window, "outside of steps", load, "parse_file", 200);
            story(side, window);
        }
        of[side] = (double)tree->windows[0].wall_ns;
    }
    double delta = of[1] - of[0], half = delta > 0 ? delta / 10 : -delta / 10;
    untraced = (struct diff_untraced){.unit = "step",
            .step = {1e7, 1e7},
            .cpu = {{of[0], of[1]}, delta - half, delta + half}};
    diff_cpu(&input, &untraced, false, &workload.cpu);
}

static const struct diff_once_place *place_named(const char *name)
{
    for (size_t i = 0; i < workload.cpu.phase_count; i++)
        if (workload.cpu.phases[i].name && !strcmp(workload.cpu.phases[i].name, name))
            return &workload.cpu.phases[i];
    abort();
}

TEST(a_pool_that_spins)
{
    explain(PAIRS, 2000, false);
    const struct diff_once *cpu = &workload.cpu;
    CHECK(!cpu->why_not);
    CHECK_INT(cpu->part_count, 1);
    const struct diff_launch_part *part = &cpu->parts[0];
    CHECK_INT(part->contribution.kind, DIFF_CPU_FUNCTION_ADDED);
    CHECK_STR(part->contribution.label, "pool_spin");
    CHECK_STR(part->contribution.where, "thread python");
    CHECK_DBL(part->contribution.delta_ns, 2e9, 3e7);
    CHECK_INT(part->launch_count, PAIRS);
    for (int pair = 0; pair < PAIRS; pair++) {
        CHECK_DBL(part->launch_ns[0][pair], 0, 0);
        CHECK_DBL(part->launch_ns[1][pair], 2e9, 5e7);
    }
    for (size_t i = 0; i < part->contribution.evidence_count; i++)
        CHECK(part->contribution.evidence[i].kind != DIFF_EVIDENCE_TIMES); // as of a step
    CHECK_DBL(place_named("thread python")->a_ns, 0, 0);
    CHECK_DBL(place_named("thread python")->b_ns, 2e9, 3e7);
    CHECK_DBL(place_named("forward")->a_ns, 3e9, 3e7);
    CHECK_DBL(place_named("forward")->b_ns, 3e9, 3e7);
    clear();
}

static int warmed; // side

static void warm_up(int side, uint32_t window)
{
    static const char *const functions[] = {"train", "warm_up", "Net.forward", NULL};
    if (side != warmed)
        return;
    runs(side, window, "outside of steps", functions, "gemm", 800);
    runs(side, window, "outside of steps", functions, "softmax", 200);
}

// It is told by the code that runs it, and not by the functions in which its time goes.
TEST(a_warm_up_that_one_side_alone_has)
{
    for (warmed = 0; warmed < 2; warmed++) {
        explain_code(warm_up);
        CHECK_INT(workload.cpu.part_count, 1);
        const struct diff_launch_part *part = &workload.cpu.parts[0];
        CHECK_INT(part->contribution.kind, DIFF_CODE_REPEATED);
        CHECK_INT(
                diff_change_of(&part->contribution), warmed ? DIFF_CHANGE_MORE : DIFF_CHANGE_LESS);
        CHECK_STR(part->contribution.label, "Net.forward, called by warm_up");
        CHECK_CONTAINS(part->contribution.where, "outside of steps");
        CHECK_DBL(part->contribution.delta_ns, warmed ? 1e9 : -1e9, 1e6);
        CHECK_DBL(part->launch_ns[warmed][0] - part->launch_ns[!warmed][0], 1e9, 1e6);
        CHECK(part->contribution.evidence_count > 0);
        const struct diff_evidence *causes = &part->contribution.evidence[0];
        CHECK_INT(causes->kind, DIFF_EVIDENCE_CAUSES);
        CHECK_INT(causes->list.of, 2);
        CHECK_STR(causes->list.parts[0].name, "gemm");
        clear();
    }
}

static void warm_up_renamed(int side, uint32_t window)
{
    static const char *const before[] = {"train", "prepare", "Net.forward", NULL},
                             *const after[] = {"train", "warm_up", "Net.forward", NULL};
    runs(side, window, "outside of steps", side ? after : before, "gemm", side ? 1400 : 800);
    runs(side, window, "outside of steps", side ? after : before, "softmax", side ? 600 : 200);
}

// Both sides have it, whatever it is called: it takes longer, and nothing was added.
TEST(a_function_that_was_renamed_is_not_new)
{
    explain_code(warm_up_renamed);
    CHECK_INT(workload.cpu.part_count, 2);
    for (size_t i = 0; i < workload.cpu.part_count; i++)
        CHECK_INT(workload.cpu.parts[i].contribution.kind, DIFF_CPU_FUNCTION_SLOWER);
    clear();
}

static void compiles(int side, uint32_t window)
{
    static const char *const functions[] = {"train", "compile_all", NULL};
    if (!side)
        return;
    runs(side, window, "compile", functions, "lower", 800);
    runs(side, window, "outside of steps", functions, "check", 300);
}

TEST(compilation_keeps_its_name)
{
    explain_code(compiles);
    CHECK_INT(workload.cpu.part_count, 2);
    CHECK_INT(workload.cpu.parts[0].contribution.kind, DIFF_COMPILE);
    CHECK_DBL(workload.cpu.parts[0].contribution.delta_ns, 8e8, 1e6);
    clear();
}

// The place that matters is the last one: it is told, and what is not told one by one stands in a
// sum.
TEST(a_pool_beside_many_threads)
{
    others = 40;
    explain(PAIRS, 2000, false);
    others = 0;
    CHECK_STR(workload.cpu.phases[0].name, "thread python");
    CHECK_DBL(place_named("thread python")->b_ns, 2e9, 2e8);
    const struct diff_once_place *last = &workload.cpu.phases[workload.cpu.phase_count - 1];
    CHECK(!last->name);
    CHECK_INT(last->others, 26);
    CHECK_DBL(last->a_ns, 26 * 5e6, 2e7);
    double sum = 0;
    for (size_t i = 0; i < workload.cpu.phase_count; i++)
        sum += workload.cpu.phases[i].b_ns;
    CHECK_DBL(sum, 5e9, 1e8);
    clear();
}

TEST(a_launch_by_chance_is_none_of_it)
{
    explain(PAIRS, 2000, true);
    CHECK_INT(workload.cpu.part_count, 0);
    CHECK_INT(workload.cpu.why_not, DIFF_ONCE_NOT_ALIKE);
    clear();
    explain(1, 2000, false);
    CHECK_INT(workload.cpu.part_count, 0);
    CHECK_INT(workload.cpu.why_not, DIFF_ONCE_ONE_LAUNCH);
    clear();
    explain(0, 2000, false);
    CHECK_INT(workload.cpu.why_not, DIFF_ONCE_NOT_TRACED);
    clear();
}

TEST(asked_for_where_it_goes_another_way_than_the_step)
{
    static const struct {
        double step, lo, hi, cpu_lo, cpu_hi; // of 100 each; b - a
        bool wanted;
    } cases[] = {{0, -1, 1, 40, 60, true}, {0, -1, 1, -10, 60, false}, // not told from 0
            {50, 45, 55, 40, 60, false}, // the step takes as much more
            {10, 9, 11, 40, 60, true},   // and as much is not
            {0, -1, 1, -60, -40, true}, {-50, -55, -45, -60, -40, false},
            {2, -20, 25, 15, 30, true}, // a step that is measured badly
            {5, 4, 6, 4, 30, true},     // 17 are not 5, though it is measured badly
            {12, 11, 13, 4, 30, false}, {NAN, NAN, NAN, 40, 60, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct diff_untraced asked = {.step = {100, 100 + cases[i].step},
                .delta = cases[i].step,
                .lo = cases[i].lo,
                .hi = cases[i].hi,
                .cpu = {{1000, 1000 + 5 * (cases[i].cpu_lo + cases[i].cpu_hi)},
                        10 * cases[i].cpu_lo, 10 * cases[i].cpu_hi}};
        CHECK_INT(diff_cpu_wanted(&asked), cases[i].wanted);
    }
    const struct diff_untraced none = {.cpu = {{NAN, NAN}, NAN, NAN}};
    CHECK(!diff_cpu_wanted(&none));
}
