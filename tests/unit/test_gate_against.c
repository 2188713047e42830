// SPDX-License-Identifier: Apache-2.0
// Metrics that hold a workload against another one of the same side: several ranks against one,
// with their floors; compiled against eager.
#include "harness/gate/gate.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

static struct world world;

#define CELL(column, metric) \
    "SELECT " column " FROM cell WHERE workload = 'w' AND metric = '" metric "'"
#define SCALING_REASON CELL("reason", "scaling_efficiency")
// A margin that no case below comes to: the floor alone decides.
#define FLOOR_ALONE "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 90%}}}"

static const char *with_ranks(int ranks)
{
    static char workloads[160];
    snprintf(workloads, sizeof workloads,
            "workloads:\n - {name: one, model: ddp, mode: train, ranks: 1}\n - {name: w, model: ddp, mode: train, ranks: %d}",
            ranks);
    return workloads;
}

static double slower_10(int step)
{
    return step >= 0 ? 1.1 : 1; // efficiency 91 %
}

static double slower_24(int step)
{
    return step >= 0 ? 1.24 : 1; // 80.6 %
}

static void add_pairs(int count, int ranks, double (*shape_a)(int), double (*shape_b)(int))
{
    world_pairs(&world, count, (struct world_pair){.workload = 1});
    world_pairs(&world, count,
            (struct world_pair){
                    .workload = 2, .ranks = ranks, .shape_a = shape_a, .shape_b = shape_b});
}

TEST(scaling_efficiency_compares_with_one_rank)
{
    world_open_calibrated(&world, with_ranks(2),
            "gate: {metrics: {scaling_efficiency: {margin: 2%}, step_time: {margin: 2%}}}");
    world_pairs(&world, 10, (struct world_pair){.workload = 1});
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .ranks = 2, .ratio = 1.08});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_DBL(world_number(&world, CELL("median_a", "scaling_efficiency")), 1, 0.02);
    CHECK_DBL(world_number(&world, CELL("median_b", "scaling_efficiency")), 1 / 1.08, 0.02);
    CHECK_DBL(world_number(&world, CELL("ratio", "scaling_efficiency")), 1 / 1.08, 0.01);
    CHECK_STR(world_text(&world, CELL("verdict", "scaling_efficiency")), "fail");
    CHECK_CONTAINS(world_text(&world, SCALING_REASON),
            "beyond the margin of 2 % (throughput against that of 'one'); with 2 ranks the "
            "candidate has 9");
    CHECK_CONTAINS(world_text(&world, SCALING_REASON), ": above the floor of 85 %");
    CHECK_CONTAINS(world_text(&world, "SELECT margin_note FROM verdict"),
            "scaling_efficiency 2 % (floor with 2 ranks: 85 %), ");
    world_close(&world);
}

// A floor is the candidate's, whatever the baseline has; what the baseline has is told.
TEST(a_floor_gates_the_candidate)
{
    static const struct {
        int ranks;
        double (*a)(int), (*b)(int);
        const char *gate;
        enum exit_code exit;
        const char *says, *says_not;
    } cases[] = {
            {2, NULL, slower_10, FLOOR_ALONE, EXIT_CODE_PASS, ": above the floor of 85 %", "below"},
            {2, slower_24, slower_10, FLOOR_ALONE, EXIT_CODE_PASS,
                    "of perfect scaling, the baseline 80.", "below"},
            {2, NULL, slower_24, FLOOR_ALONE, EXIT_CODE_FAIL, ": below the floor of 85 %",
                    "so is the baseline"},
            {2, slower_24, slower_24, FLOOR_ALONE, EXIT_CODE_FAIL,
                    "below the floor of 85 %, and so is the baseline: it was so before", "above"},
            {4, NULL, slower_10, FLOOR_ALONE, EXIT_CODE_PASS, "with 4 ranks the candidate has ",
                    "below"},
            {4, NULL, slower_24,
                    "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 90%, floors: {4: 75%}}}}",
                    EXIT_CODE_PASS, ": above the floor of 75 %", "below"},
            {3, NULL, slower_24, FLOOR_ALONE, EXIT_CODE_PASS, "within the margin", "floor"},
            {2, NULL, slower_24,
                    "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 90%, floors: {}}}}",
                    EXIT_CODE_PASS, "within the margin", "floor"},
            {2, NULL, slower_24,
                    "gate: {parity: {rule: off}, metrics: {step_time: {margin: 90%}, scaling_efficiency: {observe: true}}}",
                    EXIT_CODE_PASS, "observed only (throughput against that of 'one')", "floor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_open_calibrated(&world, with_ranks(cases[i].ranks), cases[i].gate);
        add_pairs(10, cases[i].ranks, cases[i].a, cases[i].b);
        CHECK_INT(world_judge(&world), cases[i].exit);
        CHECK_CONTAINS(world_text(&world, SCALING_REASON), cases[i].says);
        CHECK(!strstr(world_text(&world, SCALING_REASON), cases[i].says_not));
        if (cases[i].exit == EXIT_CODE_FAIL)
            CHECK_CONTAINS(world_text(&world, VERDICT_REASON), "w scaling_efficiency: ");
        world_close(&world);
    }
}

// One that was stored before there were floors: its verdict does not change behind anybody's back.
TEST(a_stored_plan_without_floors_has_none)
{
    world_open_calibrated(&world, with_ranks(2), FLOOR_ALONE);
    add_pairs(10, 2, NULL, slower_24);
    world_sql(&world,
            "UPDATE run SET plan = json_remove(plan, '$.gate.metrics.scaling_efficiency.floors')");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(!strstr(world_text(&world, SCALING_REASON), "floor"));
    CHECK(!strstr(world_text(&world, "SELECT margin_note FROM verdict"), "floor"));
    world_close(&world);
}

TEST(equal_sides_are_not_held_against_a_floor)
{
    world_open_aa(&world, with_ranks(2), FLOOR_ALONE);
    add_pairs(10, 2, slower_24, slower_24);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(!strstr(world_text(&world, SCALING_REASON), "floor"));
    world_close(&world);
}

TEST(efficiency_without_one_rank_count_is_no_pass)
{
    // the workload with 1 rank made no pair
    world_open_calibrated(&world, with_ranks(2), FLOOR_ALONE);
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .ranks = 2});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_STR(world_text(&world, CELL("verdict", "scaling_efficiency")), "inconclusive");
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "no pair of the same workload with 1 rank to hold it against");
    world_close(&world);
    world_open_calibrated(&world, with_ranks(2), FLOOR_ALONE); // and the other way round
    world_pairs(&world, 10, (struct world_pair){.workload = 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, VERDICT_REASON), "w scaling_efficiency: no pair has both sides yet");
    world_close(&world);
    world_open_calibrated(&world, with_ranks(2), FLOOR_ALONE); // too few of them
    world_pairs(&world, 5, (struct world_pair){.workload = 1});
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .ranks = 2});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, SCALING_REASON), "the run ended before the next look at 10 pairs");
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE verdict = 'fail'"), 0);
    world_close(&world);
}

TEST(a_side_that_is_skipped_is_held_against_no_floor)
{
    char sql[160];
    world_open_calibrated(&world, with_ranks(2), FLOOR_ALONE);
    world_pairs(&world, 10, (struct world_pair){.workload = 1});
    int64_t pair = world_pair(&world,
            (struct world_pair){.workload = 2,
                    .ranks = 2,
                    .state = "failed",
                    .fate_a = "stopped",
                    .fate_b = "crashed"});
    snprintf(sql, sizeof sql,
            "UPDATE launch SET exit_code = 77, steps = NULL, stderr_tail = 'skipped: one GPU' WHERE pair_id = %d AND side = 1",
            (int)pair);
    world_sql(&world, sql);
    world_sql(&world, "UPDATE pair SET reason = 'skipped: one GPU' WHERE workload_id = 2");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON), "w: skipped: one GPU");
    CHECK_STR(world_text(&world, CELL("verdict", "scaling_efficiency")), "inconclusive");
    CHECK_STR(world_text(&world, SCALING_REASON), "skipped: one GPU");
    world_close(&world);
}

TEST(a_floor_that_no_workload_of_the_run_has_is_no_pass)
{
    struct plan *plan = NULL;
    struct error err = {0};
    enum exit_code verdict = EXIT_CODE_USAGE;
    char *command[] = {"x"};
    CHECK_INT(plan_from_command("/bin/true", "/bin/true", command, 1, &plan, &err), 0);
    struct plan_gate policy = plan->gate;
    plan_free(plan);
    policy.metrics_default = false;
    policy.parity = PLAN_PARITY_OFF;
    for (int m = 0; m < METRIC_COUNT; m++)
        policy.metrics[m].present = m == METRIC_SCALING_EFFICIENCY;
    policy.metrics[METRIC_SCALING_EFFICIENCY].floors_given = true;
    world_open_calibrated(&world, with_ranks(2), NULL);
    add_pairs(10, 2, NULL, NULL);
    // the floors are those of 2 and 4 ranks
    CHECK_INT(gate_judge(world.store, &policy, &verdict, &err), 0);
    CHECK_INT(verdict, EXIT_CODE_INCONCLUSIVE);
    CHECK_STR(world_text(&world, CELL("verdict", "scaling_efficiency")), "pass");
    CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'floor'"), 1);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "a floor of 80 % with 4 ranks, and no workload of this run has so many");
    world_close(&world);
}

// Beside a metric that passes: a policy is not held against the run's plan before.
TEST(a_metric_that_no_workload_can_have_is_no_pass)
{
    static const struct {
        enum metric_id metric; // beside cpu_time
        enum exit_code exit;
        const char *says;
    } cases[] = {
            {METRIC_CPU_TIME, EXIT_CODE_PASS, "w cpu_time: "},
            {METRIC_SCALING_EFFICIENCY, EXIT_CODE_INCONCLUSIVE,
                    "scaling_efficiency is to be judged, and no workload of this run has several ranks"},
            {METRIC_MEMORY_SAVED, EXIT_CODE_INCONCLUSIVE,
                    "memory_saved is to be judged, and no workload of this run has variant compile"},
            {METRIC_LATENCY_P99, EXIT_CODE_INCONCLUSIVE,
                    "latency_p99 is to be judged, and no workload of this run has requests"},
            // it makes steps
            {METRIC_STEP_TIME, EXIT_CODE_PASS, "all 2 gated cells are within the margins"},
    };
    struct plan *plan = NULL;
    struct error err = {0};
    char *command[] = {"x"};
    CHECK_INT(plan_from_command("/bin/true", "/bin/true", command, 1, &plan, &err), 0);
    struct plan_gate policy = plan->gate;
    plan_free(plan);
    policy.metrics_default = false;
    policy.parity = PLAN_PARITY_OFF;
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum exit_code verdict = EXIT_CODE_USAGE;
        for (int m = 0; m < METRIC_COUNT; m++)
            policy.metrics[m].present = m == METRIC_CPU_TIME || m == (int)cases[i].metric;
        CHECK_INT(gate_judge(world.store, &policy, &verdict, &err), 0);
        CHECK_INT(verdict, cases[i].exit);
        CHECK_CONTAINS(world_text(&world, VERDICT_REASON), cases[i].says);
    }
    world_close(&world);
}

static void check_need(int64_t workload, const char *phase, int valid, int wanted)
{
    struct gate_need need = {"?", -1, -1};
    struct error err = {0};
    CHECK_INT(gate_need(world.store, workload, &need, &err), 0);
    CHECK_STR(need.phase, phase);
    CHECK_INT(need.pairs_valid, valid);
    CHECK_INT(need.pairs_wanted, wanted);
}

// Of the workload with two ranks: its candidate is 2 % slower and 2 % faster in turn, so that no
// look decides.
static void add_scattered(int count)
{
    for (int i = 0; i < count; i++)
        world_pair(&world,
                (struct world_pair){.workload = 2,
                        .ranks = 2,
                        .pair_sd = 0.0001,
                        .ratio = i % 2 ? 1.02 : 1 / 1.02});
}

// No number of pairs with two ranks decides while those with one are missing.
TEST(an_open_floor_asks_for_pairs_of_both_workloads)
{
    // right at it
    const char *gate =
            "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 90%, floors: {2: 100%}}}}";
    world_open_calibrated(&world, with_ranks(2), gate);
    world_state(&world, "running");
    check_need(1, "main", 0, 10);
    world_pairs(&world, 10, (struct world_pair){.workload = 1, .pair_sd = 0.0001});
    add_scattered(10);
    check_need(1, "main", 10, 14);
    check_need(2, "main", 10, 14);
    add_scattered(4);
    check_need(2, "main", 14, 0);
    check_need(1, "main", 10, 14);
    world_state(&world, "done");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, SCALING_REASON),
            "the floor of 100 % needs 14 pairs, and 10 have it");
    world_close(&world);
}

TEST(a_breached_floor_is_confirmed_on_fresh_pairs_of_both)
{
    const char *gate =
            "gate: {parity: {rule: off}, confirm: always, metrics: {scaling_efficiency: {margin: 90%}}}";
    world_open_calibrated(&world, with_ranks(2), gate);
    add_pairs(10, 2, NULL, slower_24);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, SCALING_REASON),
            "below the floor of 85 %; to be confirmed on 10 fresh pairs, 0 of them done");
    check_need(1, "confirm", 0, 10);
    check_need(2, "confirm", 0, 10);
    world_pairs(&world, 10,
            (struct world_pair){
                    .phase = "confirm", .workload = 2, .ranks = 2, .shape_b = slower_24});
    check_need(1, "confirm", 0, 10);
    world_pairs(&world, 10, (struct world_pair){.phase = "confirm", .workload = 1});
    check_need(1, "main", 10, 0);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(
            world_text(&world, SCALING_REASON), "below the floor of 85 %; 10 fresh pairs agree");
    world_close(&world);
}

// A control holds a side of this workload only; what it shows of throughput it shows of the
// quotient.
TEST(control_pairs_cover_scaling_efficiency)
{
    struct error err = {0};
    world_open(&world, with_ranks(2),
            "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 2%}}}");
    // Quiet: a quotient spreads more than what it is of, and is covered where that is less than a
    // quarter of the margin.
    world_pairs(
            &world, 10, (struct world_pair){.workload = 1, .pair_sd = 0.001, .step_noise = 0.002});
    world_pairs(&world, 10,
            (struct world_pair){.workload = 2, .ranks = 2, .pair_sd = 0.001, .step_noise = 0.002});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, VERDICT_REASON), "not covered by a control: w scaling_efficiency: ");
    world_pairs(&world, 10,
            (struct world_pair){.phase = "control",
                    .held = 0.02,
                    .workload = 2,
                    .ranks = 2,
                    .pair_sd = 0.001,
                    .step_noise = 0.002});
    CHECK_INT(gate_certify(world.store, &err), 0);
    CHECK_INT(
            world_number(&world,
                    "SELECT count(*) FROM control WHERE metric = 'scaling_efficiency' AND objection IS NULL"),
            1);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_close(&world);
}

// It is as noisy as both together, however quiet this workload is.
TEST(control_pairs_do_not_hide_the_noise_of_the_other_workload)
{
    struct error err = {0};
    world_open(&world, with_ranks(2),
            "gate: {parity: {rule: off}, metrics: {scaling_efficiency: {margin: 2%}}}");
    world_pairs(
            &world, 10, (struct world_pair){.workload = 1, .pair_sd = 0.05, .step_noise = 0.002});
    world_pairs(&world, 10,
            (struct world_pair){.workload = 2, .ranks = 2, .pair_sd = 0.001, .step_noise = 0.002});
    world_pairs(&world, 10,
            (struct world_pair){.phase = "control",
                    .held = 0.02,
                    .workload = 2,
                    .ranks = 2,
                    .pair_sd = 0.001,
                    .step_noise = 0.002});
    CHECK_INT(gate_certify(world.store, &err), 0);
    CHECK_CONTAINS(
            world_text(&world, "SELECT objection FROM control WHERE metric = 'scaling_efficiency'"),
            "the smallest effect that 10 pairs of equal sides show is");
    CHECK(world_number(&world, "SELECT pair_sd FROM control WHERE metric = 'scaling_efficiency'") >
            0.02);
    world_close(&world);
}

#define COMPILED \
    "workloads:\n - {name: eager, model: transformer, mode: train}\n" \
    " - {name: w, model: transformer, mode: train, variant: compile}"
#define SAVED_REASON CELL("reason", "memory_saved")
#define SAVING_ALONE "gate: {parity: {rule: off}, metrics: {memory_saved: {margin: 5%}}}"

// Peak memory of the compiled launches as a share of the eager ones'; eager_b: of the candidate's
// eager ones, of the baseline's.
static void add_memory(const char *column, double left_a, double left_b, double eager_b)
{
    char sql[320];
    world_pairs(&world, 10, (struct world_pair){.workload = 1, .steps = 40});
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .steps = 40});
    snprintf(sql, sizeof sql,
            "UPDATE launch SET %s = CAST(4e9 * iif(side, %g, 1) * iif(pair_id IN (SELECT id FROM pair WHERE workload_id = 2), "
            "iif(side, %g, %g), 1) AS INTEGER)",
            column, eager_b, left_b, left_a);
    world_sql(&world, sql);
}

TEST(memory_that_compiling_saves)
{
    static const struct {
        double left_a, left_b, eager_b;
        enum exit_code exit;
        const char *says;
    } cases[] = {
            {0.8, 0.8, 1, EXIT_CODE_PASS, "within the margin of 5 %"},
            {0.8, 0.82, 1, EXIT_CODE_PASS, "within the margin of 5 %"},
            {0.8, 0.88, 1, EXIT_CODE_FAIL, "10 % more memory beside eager: ratio 0.9091"},
            {0.8, 1.1, 1, EXIT_CODE_FAIL, "more memory beside eager"}, // it saves less than nothing
            {0.8, 0.6, 1, EXIT_CODE_PASS, "better by more than the margin of 5 %"},
            // both take more: not a matter of compiling
            {0.8, 0.8, 1.5, EXIT_CODE_PASS, "within the margin of 5 %"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *column = i % 2 ? "peak_gpu_memory_bytes" : "peak_memory_bytes";
        world_open_calibrated(&world, COMPILED, SAVING_ALONE);
        add_memory(column, cases[i].left_a, cases[i].left_b, cases[i].eager_b);
        CHECK_INT(world_judge(&world), cases[i].exit);
        CHECK_CONTAINS(world_text(&world, SAVED_REASON), cases[i].says);
        CHECK_CONTAINS(world_text(&world, SAVED_REASON),
                i % 2 ? "(peak_gpu_memory against that of 'eager')"
                      : "(peak_memory against that of 'eager')");
        CHECK_DBL(
                world_number(&world, CELL("median_a", "memory_saved")), 1 - cases[i].left_a, 1e-6);
        CHECK_DBL(
                world_number(&world, CELL("median_b", "memory_saved")), 1 - cases[i].left_b, 1e-6);
        world_close(&world);
    }
}

// What it saves is as unknown there as where its compiled launches tell of none.
TEST(eager_launches_of_the_candidate_that_tell_of_no_memory_do_not_pass)
{
    world_open_calibrated(&world, COMPILED, SAVING_ALONE);
    world_pairs(&world, 14, (struct world_pair){.workload = 1, .steps = 40});
    world_pairs(&world, 14, (struct world_pair){.workload = 2, .steps = 40});
    world_sql(&world, "UPDATE launch SET peak_gpu_memory_bytes = 4000000000");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    // both of 'eager'
    world_sql(&world,
            "UPDATE launch SET peak_gpu_memory_bytes = NULL WHERE side = 1 AND pair_id IN (3, 7)");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, SAVED_REASON),
            "in 2 of 14 pairs the candidate alone does not tell of it, the baseline alone in 0");
    world_close(&world);
}

TEST(memory_saved_is_observed_unless_it_is_named)
{
    world_open_calibrated(
            &world, COMPILED, "gate: {parity: {rule: off}, metrics: {step_time: {margin: 2%}}}");
    add_memory("peak_memory_bytes", 0.8, 1, 1);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, CELL("verdict", "memory_saved")), "unchecked");
    CHECK_INT(
            world_number(&world,
                    "SELECT count(*) FROM cell WHERE workload = 'eager' AND metric = 'memory_saved'"),
            0);
    world_close(&world);
    world_open_calibrated(&world, COMPILED, SAVING_ALONE); // nothing eager was run
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .steps = 40});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "no pair of the same workload with variant eager to hold it against");
    world_close(&world);
}
