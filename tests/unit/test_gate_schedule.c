// SPDX-License-Identifier: Apache-2.0
// What the run loop is told: pairs to the next look, confirmation,
// glances.
#include "harness/gate/gate.h"

#include <errno.h>

#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

static struct world world;

static struct gate_need need_of(int64_t workload)
{
    struct gate_need need = {"?", -1, -1};
    struct error err = {0};
    CHECK_INT(gate_need(world.store, workload, &need, &err), 0);
    return need;
}

static void check_need(const char *phase, int valid, int wanted)
{
    struct gate_need need = need_of(1);
    CHECK_STR(need.phase, phase);
    CHECK_INT(need.pairs_valid, valid);
    CHECK_INT(need.pairs_wanted, wanted);
}

TEST(the_first_look_and_the_end)
{
    world_open(&world, NULL, NULL);
    world_state(&world, "running");
    check_need("main", 0, 10);
    world_pairs(&world, 9, (struct world_pair){0});
    world_pair(&world, (struct world_pair){.state = "void"});
    check_need("main", 9, 10);
    world_pair(&world, (struct world_pair){0});
    check_need("main", 10, 0);
    world_close(&world);
}

TEST(an_undecided_cell_goes_from_look_to_look)
{
    world_open(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_state(&world, "running");
    int looks[] = {10, 14, 20, 28};
    for (int i = 0, pairs = 0; i < 4; i++) {
        check_need("main", pairs, looks[i]);
        for (; pairs < looks[i]; pairs++) // exactly at the margin: no look can settle it
            world_pair(&world, (struct world_pair){.ratio = pairs % 2 ? 1.05 : 0.99});
    }
    check_need("main", 28, 0);
    world_state(&world, "done");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, "SELECT reason FROM verdict"), "the margin of 2 % lies inside");
    CHECK(isnan(world_number(&world, "SELECT look FROM cell WHERE metric = 'step_time'")));
    CHECK_INT(world_number(&world, "SELECT pairs FROM cell WHERE metric = 'step_time'"), 28);
    world_close(&world);
}

TEST(a_late_look_settles_it)
{
    world_open(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_certificate(&world, "host", "steps", 0.01);
    world_state(&world, "running");
    double ratios[14] = {1.0356, 1.008, 0.994, 1.003, 0.998, 1.001, 0.997, 1.004, 0.999, 1.002,
            1.001, 0.998, 1.000, 1.002};
    for (int i = 0; i < 10; i++)
        world_pair(&world, (struct world_pair){.ratio = ratios[i], .pair_sd = 1e-6});
    check_need("main", 10, 14);
    for (int i = 10; i < 14; i++)
        world_pair(&world, (struct world_pair){.ratio = ratios[i], .pair_sd = 1e-6});
    check_need("main", 14, 0);
    world_state(&world, "done");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT look FROM cell WHERE metric = 'step_time'"), 1);
    world_close(&world);
}

TEST(a_broken_workload_needs_nothing)
{
    world_open(&world, NULL, NULL);
    world_state(&world, "running");
    world_pair(&world,
            (struct world_pair){.state = "failed", .fate_a = "stopped", .fate_b = "crashed"});
    check_need("main", 0, 10); // one more try
    world_pair(&world,
            (struct world_pair){.state = "failed", .fate_a = "stopped", .fate_b = "crashed"});
    check_need("main", 0, 0);
    world_close(&world);
}

TEST(a_metric_of_nobody_is_not_waited_for)
{
    world_open(&world, NULL, "gate: {metrics: {compile_time: {margin: 10%}}}");
    world_state(&world, "running");
    world_pairs(&world, 10, (struct world_pair){0});
    check_need("main", 10, 0);
    world_close(&world);
}

TEST(confirmation_on_fresh_pairs)
{
    world_open(&world, NULL, "gate: {confirm: always, metrics: {step_time: {margin: 2%}}}");
    world_certificate(&world, "host", "steps", 0.01);
    world_state(&world, "running");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    check_need("confirm", 0, 10);
    world_pairs(&world, 9, (struct world_pair){.ratio = 1.05, .phase = "confirm"});
    check_need("confirm", 9, 10);
    world_state(&world, "done");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "to be confirmed on 10 fresh pairs, 9 of them done");
    world_pair(&world, (struct world_pair){.ratio = 1.05, .phase = "confirm"});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_INT(world_number(&world, "SELECT confirmed FROM cell WHERE metric = 'step_time'"), 1);
    CHECK_INT(
            world_number(&world, "SELECT confirm_pairs FROM cell WHERE metric = 'step_time'"), 10);
    check_need("main", 10, 0);
    world_close(&world);
}

TEST(fresh_pairs_that_do_not_agree)
{
    world_open(&world, NULL, "gate: {confirm: always, metrics: {step_time: {margin: 2%}}}");
    world_certificate(&world, "host", "steps", 0.01);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.0, .phase = "confirm"});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_INT(world_number(&world, "SELECT confirmed FROM cell WHERE metric = 'step_time'"), 0);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "10 fresh pairs do not agree");
    world_close(&world);
}

TEST(fresh_pairs_that_leave_it_open_are_followed_by_more)
{
    world_open(&world, NULL, "gate: {confirm: always, metrics: {step_time: {margin: 2%}}}");
    world_certificate(&world, "host", "steps", 0.01);
    world_state(&world, "running");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    world_pairs(&world, 6, (struct world_pair){.ratio = 1.05, .phase = "confirm"});
    world_pairs(&world, 4, (struct world_pair){.ratio = 1.0, .phase = "confirm"});
    check_need("confirm", 10, 14);
    world_pairs(&world, 4, (struct world_pair){.ratio = 1.05, .phase = "confirm"});
    check_need("confirm", 14, 20);
    world_pairs(&world, 6, (struct world_pair){.ratio = 1.05, .phase = "confirm"});
    check_need("main", 10, 0);
    world_state(&world, "done");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_INT(
            world_number(&world, "SELECT confirm_pairs FROM cell WHERE metric = 'step_time'"), 20);
    world_close(&world);
}

// 28 pairs that differ because their few blocks do, and 28 that differ by launch.
TEST(longer_launches_are_advised_where_the_noise_is_within_them)
{
    world_open(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_pairs(&world, 28, (struct world_pair){.ratio = 1.01, .step_noise = 0.3});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    const char *reason = world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'");
    CHECK_CONTAINS(reason, " pairs would settle it, or some ");
    CHECK_CONTAINS(reason, " with `steps: ");
    world_close(&world);
    world_open(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_pairs(&world, 28, (struct world_pair){.ratio = 1.01, .pair_sd = 0.03});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    reason = world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'");
    CHECK_CONTAINS(reason, " pairs would settle it");
    CHECK(!strstr(reason, "steps: "));
    world_close(&world);
}

TEST(many_cells_are_confirmed_without_being_asked)
{
    world_open(&world,
            "workloads:\n - {name: w, mode: train, command: [x]}\n - {name: x, mode: train, "
            "command: [x]}\n"
            " - {name: y, mode: train, command: [x]}\n - {name: z, mode: train, command: [x]}",
            NULL);
    world_state(&world, "running"); // 4 workloads with 6 gated metrics each
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.026});
    check_need("confirm", 0, 10);
    world_pairs(&world, 10, (struct world_pair){.workload = 3, .ratio = 1.3});
    CHECK_STR(need_of(3).phase, "main"); // beyond doubt: fresh pairs are spared
    CHECK_INT(need_of(3).pairs_wanted, 0);
    CHECK_INT(need_of(2).pairs_wanted, 10);
    CHECK_STR(need_of(2).phase, "main");
    world_close(&world);
}

TEST(glances_while_the_run_goes_on)
{
    struct gate_glance cells[8];
    world_open(&world, NULL, NULL);
    world_state(&world, "running");
    CHECK_INT(gate_glance(world.store, 1, cells, 8), 6);
    CHECK_STR(cells[0].verdict, "-");
    CHECK(isnan(cells[0].ratio));
    world_pairs(&world, 9, (struct world_pair){.ratio = 1.05});
    CHECK_INT(gate_glance(world.store, 1, cells, 8), 6);
    CHECK_STR(cells[0].metric, "step_time");
    CHECK_STR(cells[0].verdict, "-");
    CHECK_DBL(cells[0].ratio, 1.05, 0.01);
    CHECK(isfinite(cells[0].ci_lower)); // 9 pairs are enough for an interval, not for the look
    world_pair(&world, (struct world_pair){.ratio = 1.05});
    CHECK_INT(gate_glance(world.store, 1, cells, 8), 6);
    CHECK_STR(cells[0].verdict, "fail");
    CHECK_INT(gate_glance(world.store, 1, cells, 1), 1);
    world_close(&world);
}

TEST(what_is_remembered_between_questions_is_what_is_judged)
{
    struct gate_glance cells[8];
    world_open(&world, NULL, NULL);
    for (int i = 0; i < 10; i++) { // asked after every pair, from the cache
        world_pair(&world, (struct world_pair){.ratio = 1.03});
        CHECK(gate_glance(world.store, 1, cells, 8) == 6);
    }
    world_judge(&world); // afresh
    CHECK_DBL(world_number(&world, "SELECT ratio FROM cell WHERE metric = 'step_time'"),
            cells[0].ratio, 0);
    CHECK_DBL(world_number(&world, "SELECT ci_upper FROM cell WHERE metric = 'step_time'"),
            cells[0].ci_upper, 0);
    world_close(&world);
}
