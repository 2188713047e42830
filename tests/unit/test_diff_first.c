// SPDX-License-Identifier: Apache-2.0
// What first steps are made of, from trees made by hand: four traced launches a side, a tick a
// millisecond, and what the launches do outside of their first steps. Code that a side alone has
// there is new in its launches, or has only moved.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "tests/unit/runner.h"

enum { PAIRS = 4, MS = 1000000 };

static struct diff_workload workload;
static struct diff_opts opts;
static struct diff_input input;
static struct diff_untraced untraced;

// functions: of Python, "name@module;name@module", outermost first; below them the native function
// takes so long in each first step.
static void runs(int side, const char *functions, const char *name, int ms)
{
    struct cost_tree *tree = workload.first.trees[side];
    uint32_t node =
            cost_tree_child(tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = "forward"});
    char *copy = xstrdup(functions), *rest = copy, *word;
    while ((word = strsep(&rest, ";"))) {
        char *module = strchr(word, '@');
        *module++ = '\0';
        node = cost_tree_child(tree, node,
                &(struct cost_key){.kind = COST_PYTHON, .name = word, .module = module});
    }
    free(copy);
    node = cost_tree_child(tree, node,
            &(struct cost_key){.kind = COST_FUNCTION,
                    .class = COST_HOST_RUN,
                    .name = name,
                    .module = "libx.so"});
    for (uint32_t window = 0; window < PAIRS; window++) {
        cost_tree_add(tree, node, window, (int64_t)ms * MS, (int64_t)ms * MS, ms);
        tree->windows[window].wall_ns += (int64_t)ms * MS;
    }
}

static void elsewhere(int side, const char *name, const char *module, int64_t ticks)
{
    cost_tree_elsewhere(workload.first.trees[side],
            strstr(module, ".so") ? COST_FUNCTION : COST_PYTHON, name, module, ticks);
}

// 25 ms of both sides' first steps, and what they do in later ones.
static void begin(void)
{
    workload = (struct diff_workload){.name = "train", .unit = "step"};
    input = (struct diff_input){.opts = &opts, .arena = arena_new()};
    for (int side = 0; side < 2; side++) {
        workload.first.trees[side] = cost_tree_new();
        for (uint32_t pair = 0; pair < PAIRS; pair++)
            cost_tree_window(workload.first.trees[side],
                    &(struct cost_window){.pair = pair, .couple = 0, .steps = 1});
        runs(side, "train@train.py;Net.forward@model.py", "gemm", 20);
        runs(side, "train@train.py;Net.forward@model.py", "softmax", 5);
        elsewhere(side, "train", "train.py", 9000);
        elsewhere(side, "Net.forward", "model.py", 4000);
    }
}

// Untraced first steps take as long as these do.
static const struct diff_once *explain(void)
{
    double of[2];
    for (int side = 0; side < 2; side++)
        of[side] = (double)workload.first.trees[side]->windows[0].wall_ns;
    double delta = of[1] - of[0];
    untraced = (struct diff_untraced){.unit = "step",
            .step = {5.0 * MS, 5.0 * MS},
            .cold = {{of[0], of[1]}, delta - 0.1 * fabs(delta), delta + 0.1 * fabs(delta)}};
    diff_first(&input, &untraced, false, &workload.first);
    return &workload.first;
}

static void end(void)
{
    cost_tree_free(workload.first.trees[0]);
    cost_tree_free(workload.first.trees[1]);
    arena_free(input.arena);
}

// The whole difference is this one line.
static void check_line(
        const struct diff_once *first, enum diff_kind kind, const char *label, double delta_ms)
{
    CHECK_INT(first->part_count, 1);
    const struct diff_contribution *made = &first->parts[0].contribution;
    CHECK_INT(made->kind, kind);
    CHECK_INT(diff_change_of(made), delta_ms > 0 ? DIFF_CHANGE_MORE : DIFF_CHANGE_LESS);
    CHECK_STR(made->label, label);
    CHECK_DBL(made->delta_ns, delta_ms * MS, 0.01 * MS);
    CHECK_INT(first->parts[0].launch_count, PAIRS);
}

static void loads(int side)
{
    static const char functions[] = "train@train.py;on_first@loop.py;load@loop.py";
    runs(side, functions, "parse_file", 30);
    runs(side, functions, "hash_file", 20);
    runs(side, functions, "check_file", 10);
}

// Whether it is told that a side runs it too, outside of its first step; side -1: either.
static bool also_later(const struct diff_once *first, int side)
{
    const struct diff_contribution *made = &first->parts[0].contribution;
    for (size_t i = 0; i < made->evidence_count; i++)
        if (made->evidence[i].kind == DIFF_EVIDENCE_ALSO_LATER &&
                (side < 0 || made->evidence[i].number == (size_t)side))
            return true;
    return false;
}

TEST(what_the_other_side_does_outside_of_its_first_step_moved)
{
    begin();
    loads(1);
    elsewhere(0, "load", "loop.py", 240);
    check_line(explain(), DIFF_CODE_MOVED, "load", 60);
    CHECK(also_later(&workload.first, 0));
    CHECK(strcmp(diff_kind_word(DIFF_CODE_MOVED), "code_moved") == 0);
    end();
    begin();
    loads(0);
    elsewhere(1, "load", "loop.py", 240);
    check_line(explain(), DIFF_CODE_MOVED, "load", -60);
    CHECK(also_later(&workload.first, 1));
    end();
}

TEST(what_the_other_side_does_nowhere_is_new)
{
    begin();
    loads(1);
    check_line(explain(), DIFF_CODE_ADDED, "load", 60);
    CHECK(!also_later(&workload.first, -1));
    end();
    begin();
    loads(0);
    check_line(explain(), DIFF_CODE_REMOVED, "load", -60);
    end();
}

// It was not sampled in the other side's first steps, which hardly take any time in it: later steps
// tell that both sides have it.
TEST(a_function_that_both_sides_call_is_not_what_is_new)
{
    static const char functions[] =
            "train@train.py;Hook.forward@hook.py;in_first@first.py;compile_all@first.py";
    begin();
    runs(1, functions, "parse_file", 200);
    runs(1, functions, "hash_file", 50);
    elsewhere(0, "Hook.forward", "hook.py", 3);
    check_line(explain(), DIFF_CODE_ADDED, "compile_all", 250);
    end();
}

TEST(what_all_steps_do_is_run_more_often)
{
    static const char functions[] =
            "train@train.py;Hook.forward@hook.py;in_first@first.py;warm_up@first.py;Net.forward@model.py";
    begin();
    runs(1, functions, "gemm", 200);
    runs(1, functions, "softmax", 50);
    elsewhere(0, "Hook.forward", "hook.py", 3);
    check_line(explain(), DIFF_CODE_REPEATED, "Net.forward, called by warm_up", 250);
    end();
}

TEST(an_import_has_the_name_of_what_is_imported)
{
    static const char functions[] =
            "train@train.py;Net.forward@model.py;<module>@scipy/special/__init__.py";
    begin();
    runs(1, functions, "parse_file", 30);
    runs(1, functions, "hash_file", 20);
    elsewhere(0, "<module>", "scipy/special/__init__.py", 190);
    elsewhere(0, "<module>", "scipy/__init__.py", 50);
    check_line(explain(), DIFF_CODE_MOVED, "import of scipy.special", 50);
    end();
    begin(); // what exec() runs is none
    runs(1, "train@train.py;Net.forward@model.py;<module>@<string>", "parse_file", 30);
    runs(1, "train@train.py;Net.forward@model.py;<module>@<string>", "hash_file", 20);
    CHECK_INT(explain()->part_count, 1);
    CHECK(!strstr(workload.first.parts[0].contribution.label, "import"));
    end();
}

TEST(one_thing_that_moved_is_not_new)
{
    begin();
    runs(1, "train@train.py;fill@cache.py", "parse_file", 50);
    elsewhere(0, "fill", "cache.py", 190);
    elsewhere(0, "parse_file", "libx.so", 190);
    check_line(explain(), DIFF_CODE_MOVED, "fill", 50);
    end();
}

// The first call of a library, which the other side makes before its first step, has no Python
// function of its own.
TEST(a_native_function_moved)
{
    for (int both = 0; both < 2; both++) {
        begin();
        runs(1, "train@train.py;Net.forward@model.py", "make_tables", 50);
        elsewhere(0, "make_tables", "libx.so", 210);
        elsewhere(1, "make_tables", "libx.so", both ? 190 : 5);
        if (both)
            check_line(explain(), DIFF_CPU_FUNCTION_ADDED, "make_tables", 50);
        else
            check_line(explain(), DIFF_CODE_MOVED, "make_tables", 50);
        CHECK_INT(also_later(&workload.first, 0), !both);
        end();
    }
}

// Both sides' later steps run it as often, but for noise: nothing moved, and nothing is new.
TEST(what_both_sides_do_elsewhere_did_not_move)
{
    static const int ticks[][2] = {{400, 380}, {9000, 8800}};
    for (size_t row = 0; row < sizeof ticks / sizeof *ticks; row++) {
        begin();
        runs(1, "train@train.py;fill@cache.py", "parse_file", 30);
        runs(1, "train@train.py;fill@cache.py", "hash_file", 20);
        for (int side = 0; side < 2; side++)
            elsewhere(side, "fill", "cache.py", ticks[row][side]);
        const struct diff_once *first = explain();
        CHECK_INT(first->part_count, 2);
        for (size_t i = 0; i < first->part_count; i++)
            CHECK_INT(first->parts[i].contribution.kind, DIFF_CPU_FUNCTION_ADDED);
        CHECK_STR(first->parts[0].contribution.label, "parse_file");
        end();
    }
}

// A step that calls it all the time on one side has other work for it than the first call of the
// other side.
TEST(what_the_other_side_does_far_more_of_did_not_move)
{
    begin();
    loads(1);
    elsewhere(0, "load", "loop.py", 1000);
    const struct diff_once *first = explain();
    for (size_t i = 0; i < first->part_count; i++)
        CHECK(first->parts[i].contribution.kind != DIFF_CODE_MOVED);
    end();
}

TEST(the_same_functions_that_take_longer_are_told_one_by_one)
{
    begin();
    runs(1, "train@train.py;Net.forward@model.py", "gemm", 60);
    const struct diff_once *first = explain();
    CHECK_INT(first->part_count, 1);
    CHECK_INT(first->parts[0].contribution.kind, DIFF_CPU_FUNCTION_SLOWER);
    CHECK_STR(first->parts[0].contribution.label, "gemm");
    end();
}

// Whatever else the launches do: first steps that are equal have no parts, and equal ones are not
// asked about.
TEST(equal_first_steps_are_silent)
{
    begin();
    elsewhere(0, "load", "loop.py", 240);
    CHECK_INT(explain()->part_count, 0);
    untraced.delta = 0;
    untraced.lo = -1;
    untraced.hi = 1;
    untraced.cold = (struct diff_untraced_once){{25.0 * MS, 25.1 * MS}, -0.5 * MS, 0.7 * MS};
    CHECK(!diff_first_wanted(&untraced));
    end();
}
