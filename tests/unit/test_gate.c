// SPDX-License-Identifier: Apache-2.0
// The verdict from stores with known answers: pass, fail, inconclusive, and what each rests on.
#include "harness/gate/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/gate/measure/pair_rows.h"
#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

static struct world world;

#define CELL(column, metric) \
    "SELECT " column " FROM cell WHERE workload = 'w' AND metric = '" metric "'"

TEST(a_side_against_itself_passes)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, "SELECT verdict FROM verdict"), "pass");
    CHECK_INT(world_number(&world, "SELECT trust_ok AND calibrated FROM verdict"), 1);
    CHECK_STR(world_text(&world,
                      "SELECT group_concat(metric) FROM (SELECT metric FROM cell WHERE "
                      "gating AND verdict = 'pass' ORDER BY id)"),
            "step_time,throughput,peak_memory,mean_step_time,slow_steps,warm_up_time");
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE gating"), 6);
    CHECK_CONTAINS(
            world_text(&world, CELL("reason", "slow_steps")), "candidate: 0 slow steps of 1");
    CHECK_INT(world_number(&world, CELL("look", "step_time")), 0);
    CHECK_DBL(world_number(&world, CELL("alpha", "step_time")), 0.0025, 1e-12);
    CHECK_INT(world_number(&world, CELL("pairs", "step_time")), 10);
    CHECK_DBL(world_number(&world, CELL("median_a", "step_time")), 5e6, 5e4);
    CHECK(world_number(&world, CELL("ci_lower", "step_time")) < 1);
    CHECK(world_number(&world, CELL("ci_upper", "step_time")) > 1);
    CHECK(world_number(&world, CELL("mde", "step_time")) < 0.02);
    CHECK(isnan(world_number(&world, CELL("pairs_needed", "step_time"))));
    CHECK_STR(world_text(&world, CELL("verdict", "first_step_time")), "unchecked");
    CHECK_INT(
            world_number(&world, "SELECT count(*) FROM pair_ratio WHERE metric = 'step_time'"), 10);
    CHECK(world_number(&world, "SELECT min(couples) FROM pair_ratio WHERE metric = 'step_time'") >
            20);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "all 6 gated cells are within the margins");
    CHECK_CONTAINS(world_text(&world, "SELECT calibration_note FROM verdict"),
            "0 false fails in 5 A/A gates here");
    CHECK_CONTAINS(world_text(&world, "SELECT policy FROM verdict"), "\"alpha\":0.01");
    world_close(&world);
}

TEST(what_the_machine_took_of_a_block_is_loaded)
{
    struct pair_head *heads = NULL;
    struct pair_rows rows;
    struct error err = {0};
    int count = 0;
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 1, (struct world_pair){0});
    world_sql(&world, "UPDATE block SET machine_ns = 1000 * couple + 7 WHERE side = 1");
    CHECK_INT(pair_heads_load(world.store, 1, &heads, &count, &err), 0);
    CHECK_INT(count, 1);
    CHECK_INT(pair_rows_load(world.store, &heads[0], true, &rows, &err), 0);
    CHECK(rows.block_count > 2);
    for (int i = 0; i < rows.block_count; i++) {
        CHECK(isnan(rows.blocks[i].machine_ns[0])); // NULL: not known
        CHECK_DBL(rows.blocks[i].machine_ns[1], 1000.0 * (double)rows.blocks[i].couple + 7, 0);
    }
    pair_rows_clear(&rows);
    free(heads);
    world_close(&world);
}

TEST(a_planted_slow_down_fails_with_its_ratio_in_the_interval)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "fail");
    CHECK(world_number(&world, CELL("ci_lower", "step_time")) < 1.05);
    CHECK(world_number(&world, CELL("ci_upper", "step_time")) > 1.05);
    CHECK_STR(world_text(&world, CELL("verdict", "throughput")), "fail");
    CHECK_DBL(world_number(&world, CELL("ratio", "throughput")), 1 / 1.05, 0.005);
    CHECK(world_number(&world, CELL("ci_lower", "throughput")) < 1 / 1.05);
    CHECK(world_number(&world, CELL("ci_upper", "throughput")) > 1 / 1.05);
    CHECK_STR(world_text(&world, CELL("verdict", "peak_memory")), "pass");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "w step_time: ");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "slower: ratio 1.0");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "beyond the margin of 2 %; 3 more cells fail");
    world_close(&world);
}

TEST(half_a_percent_does_not_fail)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.005});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_DBL(world_number(&world, CELL("ratio", "step_time")), 1.005, 0.003);
    world_close(&world);
}

TEST(an_improvement_passes_and_is_said)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 0.9});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, CELL("improved", "step_time")), 1);
    CHECK_INT(world_number(&world, CELL("improved", "throughput")), 1);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "4 cells improved");
    world_close(&world);
}

TEST(memory_growth_fails)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.memory_ratio = 1.03});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(
            world_text(&world, "SELECT reason FROM verdict"), "peak_memory: 3 % more memory");
    world_close(&world);
}

TEST(no_rows_are_no_pass)
{
    world_open_calibrated(&world, NULL, NULL);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "no pair has both sides yet");
    CHECK_INT(world_number(&world,
                      "SELECT count(*) FROM cell WHERE gating AND verdict = 'inconclusive'"),
            6);
    world_sql(&world, "DELETE FROM workload");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "nothing was judged");
    world_sql(&world, "DELETE FROM run");
    CHECK_INT(world_judge(&world), -1);
    world_close(&world);
}

TEST(too_few_pairs_are_no_pass)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 9, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "the run ended before the next look at 10 pairs");
    world_state(&world, "interrupted");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "interrupted: ");
    world_pair(&world,
            (struct world_pair){0}); // an interruption after every cell was decided changes nothing
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_close(&world);
}

TEST(judged_twice_gives_the_same_rows)
{
    static const char *const dumps[] = {
            "SELECT group_concat(quote(launch_id)||metric||quote(value)||quote(reason)) FROM "
            "launch_metric",
            "SELECT "
            "group_concat(quote(pair_id)||metric||quote(log_ratio)||quote(within_sd)||quote(couples)) "
            "FROM pair_ratio",
            "SELECT "
            "group_concat(id||workload||metric||unit||quote(ratio)||quote(ci_lower)||quote(ci_upper)||"
            "quote(mde)||"
            "quote(pair_sd)||quote(pairs_needed)||verdict||reason) FROM cell",
            "SELECT group_concat(id||quote(workload)||kind||effect||text) FROM finding",
            "SELECT verdict||reason||margin_note||policy||trust_ok||calibrated||calibration_note FROM "
            "verdict"};
    enum { DUMPS = sizeof dumps / sizeof *dumps };
    char *before[DUMPS];
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 3, (struct world_pair){.ratio = 1.02, .pair_sd = 0.02});
    world_pair(&world, (struct world_pair){.state = "void", .void_side = 1});
    world_pairs(&world, 25, (struct world_pair){.ratio = 1.02, .pair_sd = 0.02});
    int first = world_judge(&world);
    for (int i = 0; i < DUMPS; i++)
        before[i] = store_get_text(world.store, dumps[i], "");
    CHECK_INT(world_judge(&world), first);
    for (int i = 0; i < DUMPS; i++) {
        char *after = store_get_text(world.store, dumps[i], "");
        CHECK(before[i] && after && strlen(after) > 10);
        CHECK(before[i] && after && strcmp(before[i], after) == 0);
        free(before[i]);
        free(after);
    }
    world_close(&world);
}

TEST(a_read_only_store_is_judged_and_not_written)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    store_close(world.store);
    struct error err = {0};
    CHECK_INT(store_open(world.path, STORE_READ, &world.store, &err), 0);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM verdict"), 0);
    world_close(&world);
}

TEST(another_policy_judges_the_same_rows)
{
    struct plan *plan = NULL;
    struct plan_gate wide;
    struct error err = {0};
    enum exit_code verdict = EXIT_CODE_USAGE;
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    char *command[] = {"x"};
    CHECK_INT(plan_from_command("/bin/true", "/bin/true", command, 1, &plan, &err), 0);
    wide = plan->gate;
    for (int m = 0; m < METRIC_COUNT; m++)
        wide.metrics[m].margin = 0.10;
    CHECK_INT(gate_judge(world.store, &wide, &verdict, &err), 0);
    CHECK_INT(verdict, EXIT_CODE_PASS);
    CHECK_DBL(world_number(&world, CELL("margin", "step_time")), 0.10, 1e-12);
    CHECK_CONTAINS(world_text(&world, "SELECT margin_note FROM verdict"), "step_time 10 %");
    plan_free(plan);
    world_close(&world);
}

TEST(what_no_control_covers_never_passes)
{
    world_open(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "not covered by a control: w step_time: no control of turns of steps with "
            "workloads of the kind 'train command' is known here");
    CHECK_INT(world_number(&world, "SELECT calibrated FROM verdict"), 0);
    world_certificate(&world, "host", "launches", 0.01); // proves nothing about turns of steps
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "of turns of launches only, and it takes turns of steps");
    world_certificate(&world, "host", "steps", 0.2);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, "SELECT calibration_note FROM verdict"),
            "w: a side held 2 % longer was found, +1.92 to +2.12 % in step_time, at 28 pairs "
            "of a control of the last 24 hours");
    world_sql(&world, "UPDATE control SET made_wall_ns = made_wall_ns - 31 * 86400000000000");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, "SELECT reason FROM verdict"), "31 days old, the policy allows 30");
    world_close(&world);
}

TEST(a_certificate_covers_only_what_it_showed)
{
    static const struct {
        const char *change, *says;
    } cases[] = {
            {"UPDATE control SET kind = 'train model'", "of the kind 'train model' only"},
            {"UPDATE control SET margin = 0.05",
                    "its margin is 2 %, the certificate is for 5 % and more"},
            {"UPDATE control SET pair_sd = 0.0005", "its pairs spread"},
            {"UPDATE control SET objection = 'a side that was held 2 % longer was not found'",
                    "was not found"},
            {"UPDATE control SET scope = 'another'", "is known here"},
            {"DELETE FROM control WHERE metric = 'throughput'", "w throughput: no control"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_open_calibrated(&world, NULL, NULL);
        // Wide enough for its spread to matter: a quarter of the margin is 0.5 %.
        world_pairs(&world, 10, (struct world_pair){.pair_sd = 0.009});
        CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
        world_sql(&world, cases[i].change);
        CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
        CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), cases[i].says);
        world_close(&world);
    }
}

// Not of every kind by its name.
TEST(a_workload_named_host_is_covered_like_others)
{
    world_open_calibrated(
            &world, "workloads: [{name: host, mode: train, command: [x, \"{steps}\"]}]", NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_sql(&world, "UPDATE control SET kind = 'train model'");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, "SELECT reason FROM verdict"), "of the kind 'train model' only");
    world_close(&world);
}

TEST(the_policy_may_ask_for_more_gates)
{
    world_open_calibrated(&world, NULL, "gate: {parity: {rule: off}, calibration: {bound: 0.5%}}");
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "5 A/A gates bound false fails at 1 % only, the policy asks for 0.5 %");
    world_close(&world);
}

TEST(a_store_with_flipped_signs_is_judged_and_not_covered)
{
    world_open(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    // Of version 4: what it held proved nothing.
    world_sql(&world,
            "CREATE TABLE calibration (id INTEGER PRIMARY KEY, method TEXT); "
            "INSERT INTO calibration (method) VALUES ('re-split')");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "its certificate is of a kind that could not fail");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "not covered");
    world_close(&world);
}

TEST(a_fail_that_no_control_covers_stays_one_and_says_so)
{
    world_open(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "(not covered by a control: ");
    world_close(&world);
}

TEST(an_aa_run_needs_no_certificate)
{
    world_open_aa(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    // as was asked for
    CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'same'"), 0);
    world_close(&world);
}

TEST(launches_one_after_the_other)
{
    world_open(&world, NULL, NULL);
    world_sql(&world, "UPDATE workload SET interleave = 'launches'");
    world_certificate(&world, "host", "launches", 0.01);
    world_pairs(&world, 10, (struct world_pair){.interleave = "launches", .ratio = 1.05});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_DBL(world_number(&world, CELL("ratio", "step_time")), 1.05, 0.004);
    CHECK(isnan(world_number(&world, "SELECT max(couples) FROM pair_ratio")));
    world_close(&world);
}

TEST(a_command_without_steps_is_judged_on_total_time)
{
    world_open(&world, "workloads: [{name: w, command: [x]}]", NULL);
    world_sql(&world, "UPDATE workload SET interleave = 'slices'");
    world_certificate(&world, "host", "slices", 0.01);
    world_pairs(&world, 10,
            (struct world_pair){.interleave = "slices", .no_steps_a = 1, .no_steps_b = 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world,
                      "SELECT group_concat(metric) FROM (SELECT metric FROM cell WHERE "
                      "gating ORDER BY metric)"),
            "cpu_time,peak_memory,total_time");
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE metric = 'step_time'"), 0);
    CHECK_STR(world_text(&world, "SELECT reason FROM launch_metric WHERE metric = 'step_time'"),
            "the workload made no step call");
    world_close(&world);
}

// Cut into slices steps are not measured. Whoever makes some there, one side or both, is judged as
// a whole, whatever a launch of the baseline alone did, which is never cut.
TEST(steps_in_slices_are_judged_on_total_time)
{
    static const struct {
        int no_steps_a, no_steps_b;
        double ratio;
        enum exit_code exit;
        const char *verdict;
    } cases[] = {{0, 1, 1, EXIT_CODE_PASS, "pass"}, {0, 1, 1.5, EXIT_CODE_FAIL, "fail"},
            {1, 0, 1, EXIT_CODE_PASS, "pass"}, {1, 0, 1.5, EXIT_CODE_FAIL, "fail"},
            {0, 0, 1, EXIT_CODE_PASS, "pass"}, {0, 0, 1.5, EXIT_CODE_FAIL, "fail"}};
    static const char *const modes[] = {"command", "train", "infer, rate: 9/s"};
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        char workloads[96];
        snprintf(workloads, sizeof workloads, "workloads: [{name: w, mode: %s, command: [x]}]",
                modes[i % 3]);
        world_open(&world, workloads, NULL);
        world_sql(&world, "UPDATE workload SET interleave = 'slices'");
        world_certificate(&world, "host", "slices", 0.01);
        world_pair(&world,
                (struct world_pair){.phase = "pilot", .interleave = "launches", .fate_b = ""});
        world_pairs(&world, 10,
                (struct world_pair){.interleave = "slices",
                        .no_steps_a = cases[i / 3].no_steps_a,
                        .no_steps_b = cases[i / 3].no_steps_b,
                        .ratio = cases[i / 3].ratio});
        CHECK_INT(world_judge(&world), cases[i / 3].exit);
        CHECK_STR(world_text(&world, CELL("verdict", "total_time")), cases[i / 3].verdict);
        CHECK_STR(
                world_text(&world,
                        "SELECT group_concat(metric) FROM (SELECT metric FROM cell WHERE gating ORDER BY metric)"),
                "cpu_time,peak_memory,total_time");
        world_close(&world);
    }
}

TEST(a_step_time_that_is_asked_for_in_slices_is_no_pass)
{
    world_open(&world, "workloads: [{name: w, command: [x]}]",
            "gate: {metrics: {step_time: {margin: 2%}, peak_memory: {margin: 2%}}}");
    world_sql(&world, "UPDATE workload SET interleave = 'slices'");
    world_certificate(&world, "host", "slices", 0.01);
    world_pairs(&world, 10, (struct world_pair){.interleave = "slices", .no_steps_b = 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, CELL("reason", "step_time")),
            "measured on neither side: the side was frozen");
    world_close(&world);
}

// Nobody makes a step call, so that there is no cell of it; what passes beside it is not what was
// asked for.
TEST(a_step_time_that_is_asked_for_and_nobody_makes_is_no_pass)
{
    static const struct {
        const char *gate;
        enum exit_code exit;
    } cases[] = {{"gate: {metrics: {total_time: {margin: 2%}, step_time: {margin: 2%}}}",
                         EXIT_CODE_INCONCLUSIVE},
            {"gate: {metrics: {total_time: {margin: 2%}, slow_steps: {margin: 2%}}}",
                    EXIT_CODE_INCONCLUSIVE},
            {"gate: {metrics: {total_time: {margin: 2%}, step_time: {observe: true}}}",
                    EXIT_CODE_PASS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_open(&world, "workloads: [{name: w, command: [x]}]", cases[i].gate);
        world_sql(&world, "UPDATE workload SET interleave = 'slices'");
        world_certificate(&world, "host", "slices", 0.01);
        world_pairs(&world, 10,
                (struct world_pair){.interleave = "slices", .no_steps_a = 1, .no_steps_b = 1});
        CHECK_INT(world_judge(&world), cases[i].exit);
        CHECK_STR(world_text(&world, CELL("verdict", "total_time")), "pass");
        CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'missing'"),
                cases[i].exit != EXIT_CODE_PASS);
        if (cases[i].exit != EXIT_CODE_PASS)
            CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
                    " is to be judged, and no workload of this run has step calls");
        world_close(&world);
    }
}

TEST(requests_of_an_open_loop)
{
    world_open_calibrated(
            &world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]", NULL);
    world_pairs(&world, 10, (struct world_pair){.rate = 100, .steps = 700, .ratio = 1.2});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p50")), "fail");
    CHECK_DBL(world_number(&world, CELL("median_a", "latency_p50")), 5e6 + 2.7e5, 1e5);
    CHECK(world_number(&world, CELL("median_a", "latency_p99")) >
            world_number(&world, CELL("median_a", "latency_p50")) + 2e5);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "unchecked");
    world_close(&world);
}

static double late_level(int step)
{
    return step < 60 ? 1.4 : 1;
}

TEST(a_late_start_leaves_a_percentile_its_requests)
{
    world_open_calibrated(
            &world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]", NULL);
    world_pairs(&world, 5,
            (struct world_pair){
                    .rate = 100, .steps = 700, .shape_a = late_level, .shape_b = late_level});
    world_pairs(&world, 5, (struct world_pair){.rate = 100, .steps = 662});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT pairs FROM cell WHERE metric = 'latency_p99'"), 10);
    world_close(&world);
}

TEST(a_percentile_needs_its_requests)
{
    world_open_calibrated(&world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]",
            "gate: {metrics: {latency_p50: {margin: 5%}, latency_p99: {margin: 5%}}}");
    world_pairs(&world, 10, (struct world_pair){.rate = 100, .steps = 600});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE); // asked for, measured on nobody
    CHECK_CONTAINS(world_text(&world, CELL("reason", "latency_p99")), "too few requests");
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p50")), "pass");
    world_close(&world);
}

TEST(a_closed_loop_is_judged_on_its_steps)
{
    world_open_calibrated(
            &world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]", NULL);
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.05});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "fail");
    CHECK_INT(world_number(
                      &world, "SELECT count(*) FROM cell WHERE gating AND metric LIKE 'latency%'"),
            0);
    // how long the middle one took
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p50")), "unchecked");
    CHECK_DBL(world_number(&world, CELL("median_a", "latency_p50")), 5e6, 1e5);
    CHECK_STR(world_text(&world, "SELECT reason FROM launch_metric WHERE metric = 'latency_p99'"),
            "too few requests (30 for p50, 662 for p99)");
    world_close(&world);
}

static double one_in_eighty(int step)
{
    return step % 80 == 78 ? 2.5 : 1;
}

// Some 1.2 % of the requests 2.5 times as long: 1.7 % of the time, within the margins of the mean
// and of slow steps.
TEST(a_closed_loop_has_a_tail)
{
    const char *closed = "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]";
    world_open_calibrated(&world, closed,
            "gate: {metrics: {step_time: {margin: 2%}, latency_p99: {margin: 25%}}}");
    world_pairs(&world, 10, (struct world_pair){.steps = 700, .shape_b = one_in_eighty});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p99")), "fail");
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "pass");
    CHECK(strcmp(world_text(&world, CELL("verdict", "mean_step_time")), "fail") != 0);
    CHECK(strcmp(world_text(&world, CELL("verdict", "slow_steps")), "fail") != 0);
    CHECK_DBL(world_number(&world, CELL("median_b", "latency_p99")), 12.5e6, 1e6);
    CHECK_DBL(world_number(&world, CELL("median_a", "latency_p99")), 5e6 * 1.023, 1e5);
    world_close(&world);
    world_open_calibrated(&world, closed, NULL);
    world_pairs(&world, 10, (struct world_pair){.steps = 700, .shape_b = one_in_eighty});
    world_judge(&world);
    // told, and judged where it is named
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p99")), "unchecked");
    CHECK_STR(
            world_text(&world,
                    "SELECT group_concat(metric) FROM (SELECT metric FROM cell WHERE gating ORDER BY id)"),
            "step_time,throughput,peak_memory,mean_step_time,slow_steps,warm_up_time");
    world_close(&world);
}

TEST(a_closed_loop_is_judged_on_its_latency_where_that_is_named)
{
    world_open_calibrated(&world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]",
            "gate: {metrics: {latency_p50: {margin: 5%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.2});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "latency_p50")), "fail");
    world_close(&world);
    // Steps of a training are no requests.
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.steps = 700});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE metric LIKE 'latency%'"), 0);
    CHECK_STR(world_text(&world, "SELECT reason FROM launch_metric WHERE metric = 'latency_p50'"),
            "no requests: no scheduled arrivals, and the mode is not infer");
    world_close(&world);
}

TEST(metrics_of_other_workloads_do_not_bind_this_one)
{
    world_open_calibrated(&world,
            "workloads:\n - {name: w, mode: train, command: [x]}\n"
            " - {name: serve, mode: infer, rate: 9/s, command: [x]}",
            "gate: {metrics: {step_time: {margin: 2%}, latency_p50: {margin: 5%}}}");
    world_pairs(&world, 10, (struct world_pair){0});
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .rate = 9});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE gating"),
            9); // the four claims of steps in both, latency not in the training
    world_close(&world);
}

TEST(a_default_metric_that_nobody_tells_is_observed)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.no_samples = true});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE gating"), 5);
    world_close(&world);
    world_open_calibrated(
            &world, NULL, "gate: {metrics: {step_time: {margin: 2%}, throughput: {margin: 2%}}}");
    world_pairs(&world, 10, (struct world_pair){.no_samples = true});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE); // here it was asked for
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "measured on neither side: the steps say no number");
    world_close(&world);
}

TEST(a_zero_baseline_is_a_state_and_not_a_ratio)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.zero_gpu_a = 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(isnan(world_number(&world, CELL("ratio", "peak_gpu_memory"))));
    CHECK_DBL(world_number(&world, CELL("median_a", "peak_gpu_memory")), 0, 0);
    CHECK_CONTAINS(world_text(&world, "SELECT text FROM finding WHERE kind = 'zero_baseline'"),
            "in 10 of 10 pairs");
    world_close(&world);
}

// What the sides tell of their GPU memory. A candidate that tells of none has fallen back to the
// CPU; the other way round it is a change.
TEST(gpu_memory_is_gated_where_the_baseline_tells_of_it)
{
    static const struct {
        const char *a, *b;
        enum exit_code exit;
        const char *verdict, *says; // of the cell, "": there is none; in the reason of the verdict
        int gated;
    } cases[] = {
            {"4e9", "4e9", EXIT_CODE_PASS, "pass", "all 7 gated cells", 7},
            // 3 %: some segments of the allocator
            {"4e9", "4.12e9", EXIT_CODE_PASS, "pass", "all 7 gated cells", 7},
            {"4e9", "4.4e9", EXIT_CODE_FAIL, "fail", "peak_gpu_memory: 10 % more GPU memory", 7},
            {"4e9", "NULL", EXIT_CODE_INCONCLUSIVE, "inconclusive",
                    "missing: measured on the baseline only (candidate: none was told of", 7},
            {"4e9", "0", EXIT_CODE_INCONCLUSIVE, "inconclusive",
                    "peak_gpu_memory: the candidate is 0", 7},
            {"NULL", "4e9", EXIT_CODE_PASS, "unchecked", "all 6 gated cells", 6},
            {"0", "4e9", EXIT_CODE_PASS, "unchecked", "all 6 gated cells", 6},
            {"NULL", "NULL", EXIT_CODE_PASS, "", "all 6 gated cells", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sql[128];
        world_open_calibrated(&world, NULL, NULL);
        world_pairs(&world, 10, (struct world_pair){0});
        snprintf(sql, sizeof sql,
                "UPDATE launch SET peak_gpu_memory_bytes = CAST(iif(side, %s, %s) AS INTEGER)",
                cases[i].b, cases[i].a);
        world_sql(&world, sql);
        CHECK_INT(world_judge(&world), cases[i].exit);
        CHECK_STR(world_text(&world, CELL("verdict", "peak_gpu_memory")), cases[i].verdict);
        CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), cases[i].says);
        CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE gating"), cases[i].gated);
        CHECK_INT(world_number(&world,
                          "SELECT count(*) FROM finding WHERE kind = 'added' AND effect = 'note'"),
                i == 5);
        world_close(&world);
    }
}

// The launches that fell back to the CPU have no ratio, and the others are equal.
TEST(launches_of_the_candidate_that_tell_of_no_gpu_memory_do_not_pass)
{
    static const struct {
        const char *value, *where;
        enum exit_code exit;
    } cases[] = {{"NULL", "side = 1 AND pair_id IN (3, 7)", EXIT_CODE_INCONCLUSIVE},
            {"0", "side = 1 AND pair_id IN (3, 7)", EXIT_CODE_INCONCLUSIVE},
            {"NULL", "side = 1 AND pair_id = 3", EXIT_CODE_PASS},
            {"NULL", "side = 0 AND pair_id IN (3, 7)", EXIT_CODE_PASS},
            {"NULL", "pair_id IN (3, 7)", EXIT_CODE_PASS}, // of both sides
            {"NULL", "pair_id IN (3, 7, 9) AND side = (pair_id <> 9)", EXIT_CODE_PASS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sql[160];
        world_open_calibrated(&world, NULL, "gate: {metrics: {peak_gpu_memory: {margin: 5%}}}");
        world_pairs(&world, 14, (struct world_pair){.steps = 40});
        world_sql(&world, "UPDATE launch SET peak_gpu_memory_bytes = 4000000000");
        snprintf(sql, sizeof sql, "UPDATE launch SET peak_gpu_memory_bytes = %s WHERE %s",
                cases[i].value, cases[i].where);
        world_sql(&world, sql);
        CHECK_INT(world_judge(&world), cases[i].exit);
        if (cases[i].exit != EXIT_CODE_PASS)
            CHECK_CONTAINS(world_text(&world, CELL("reason", "peak_gpu_memory")),
                    "in 2 of 14 pairs the candidate alone does not tell of it, the baseline alone in 0");
        world_close(&world);
    }
}

#define WORK(column) "SELECT " column " FROM finding WHERE kind = 'work'"

static void open_whole(const char *gate, double ratio, int no_steps)
{
    world_open(&world, "workloads: [{name: w, command: [x]}]", gate);
    world_sql(&world, "UPDATE workload SET interleave = 'slices'");
    world_certificate(&world, "host", "slices", 0.01);
    world_pairs(&world, 10,
            (struct world_pair){.interleave = "slices",
                    .no_steps_a = no_steps,
                    .no_steps_b = no_steps,
                    .ratio = ratio});
}

// What ends early takes less of everything. It is no improvement where nobody counts what was done,
// and less than half of the time is no pass unless the plan asks for that comparison by name.
TEST(a_command_that_takes_less_may_do_less)
{
    static const struct {
        const char *gate;
        double ratio;
        int no_steps;
        enum exit_code exit;
        const char *effect;
        int improved;
    } cases[] = {{NULL, 1, 1, EXIT_CODE_PASS, "", 0}, {NULL, 0.8, 1, EXIT_CODE_PASS, "note", 0},
            {NULL, 0.4, 1, EXIT_CODE_INCONCLUSIVE, "inconclusive", 0},
            {"gate: {metrics: {total_time: {margin: 2%}}}", 0.4, 1, EXIT_CODE_PASS, "note", 0},
            {NULL, 0.4, 0, EXIT_CODE_PASS, "", 1}, // as many steps in it
            {NULL, 1.5, 1, EXIT_CODE_FAIL, "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_whole(cases[i].gate, cases[i].ratio, cases[i].no_steps);
        CHECK_INT(world_judge(&world), cases[i].exit);
        CHECK_STR(world_text(&world, WORK("effect")), cases[i].effect);
        CHECK_INT(world_number(&world, CELL("improved", "total_time")), cases[i].improved);
        world_close(&world);
    }
    open_whole(NULL, 0.8, 1);
    world_judge(&world);
    CHECK_STR(world_text(&world, WORK("text")),
            "total_time: 20 % faster, and nothing shows that it is the same work");
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "within the margins; w: total_time: 20 % faster, and nothing shows that it is the same work; nearest to its margin");
    CHECK(!strstr(world_text(&world, VERDICT_REASON), "improved"));
    CHECK_CONTAINS(world_text(&world, CELL("reason", "total_time")),
            "better by more than the margin of 2 %, if it is the same work; ");
    CHECK_CONTAINS(
            world_text(&world, VERDICT_REASON), "; no output was compared; no steps were counted");
    // A server that has answered as many requests.
    world_sql(&world,
            "INSERT INTO launch_value (launch_id, rank, name, value) SELECT id, 0, 'upgate.requests', 700 FROM launch");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, CELL("improved", "total_time")), 1);
    CHECK_STR(world_text(&world, WORK("text")), "");
    world_sql(&world, "UPDATE launch_value SET value = 500 WHERE launch_id % 2 = 0");
    world_judge(&world);
    CHECK_STR(world_text(&world, WORK("effect")), "note");
    world_close(&world);
    open_whole(NULL, 0.4, 1);
    world_judge(&world);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "; mark steps, record an output in one, or name total_time in gate.metrics");
    world_close(&world);
}

// As many graphs as it takes to compile a model are one; each later one is a recompile. A side that
// compiles nothing at all has lost what the other one has.
TEST(recompiles_are_gated)
{
    static const struct {
        int later, graphs;
        enum exit_code exit;
        const char *verdict;
    } sides_b[] = {{0, 2, EXIT_CODE_PASS, "pass"}, {3, 5, EXIT_CODE_FAIL, "fail"},
            {0, 0, EXIT_CODE_FAIL, "fail"}};
    for (size_t i = 0; i < sizeof sides_b / sizeof *sides_b; i++) {
        char sql[400];
        world_open_calibrated(&world, NULL,
                "gate: {metrics: {recompiles: {margin: 5%}, step_time: {margin: 2%}}}");
        world_pairs(&world, 10, (struct world_pair){0});
        snprintf(sql, sizeof sql,
                "INSERT INTO launch_value (launch_id, rank, name, value) SELECT id, 0, 'compiled_graphs', iif(side, %d, 2) FROM launch "
                "UNION ALL SELECT id, 0, 'recompiles', iif(side, %d, 0) FROM launch",
                sides_b[i].graphs, sides_b[i].later);
        world_sql(&world, sql);
        CHECK_INT(world_judge(&world), sides_b[i].exit);
        CHECK_STR(world_text(&world, "SELECT verdict FROM cell WHERE metric = 'recompiles'"),
                sides_b[i].verdict);
        if (sides_b[i].later)
            CHECK_DBL(world_number(&world, "SELECT median_b FROM cell WHERE metric = 'recompiles'"),
                    2.5, 1e-9);
        world_close(&world);
    }
}

// Of 28 launches of the candidate two use half as much memory again: the typical one is equal.
TEST(a_mixture_of_launches_is_inconclusive_and_named)
{
    world_open_calibrated(&world, NULL, "gate: {metrics: {peak_memory: {margin: 2%}}}");
    for (int i = 0; i < 28; i++)
        world_pair(&world, (struct world_pair){.steps = 40, .memory_ratio = i % 14 == 7 ? 1.5 : 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, CELL("reason", "peak_memory")),
            "2 of 28 launches of the candidate are worse than the others by 50 %");
    world_close(&world);
}

// A cell that has passed at ten pairs, and pairs that something else made needful: they may take
// the pass back, and nothing more.
TEST(a_pass_that_later_pairs_contradict_is_no_pass)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_pairs(&world, 18, (struct world_pair){.ratio = 1.5});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "inconclusive");
    CHECK_CONTAINS(world_text(&world, CELL("reason", "step_time")),
            " at 28 pairs, but the first 10 had passed, within the margin of 2 %: the later ones contradict them");
    CHECK_INT(world_number(&world, CELL("pairs", "step_time")), 28);
    CHECK_INT(world_number(&world, CELL("look", "step_time")), 0);
    CHECK(isnan(world_number(&world, CELL("pairs_needed", "step_time"))));
    CHECK_STR(world_text(&world, CELL("verdict", "peak_memory")), "pass");
    CHECK_INT(world_number(&world, CELL("pairs", "peak_memory")), 10);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM cell WHERE verdict = 'fail'"), 0);
    world_close(&world);
}

static double every_40th(int step)
{
    return step % 40 == 39 ? 60 : 1;
}

static double one_at_70(int step)
{
    return step == 70 ? 60 : 1;
}

static double slow_begin(int step)
{
    return step < 80 ? 3 : 1; // 40 % of 200
}

static double slow_end(int step)
{
    return step >= 96 ? 3 : 1;
}

// Rare slow steps move no median: the mean and the slow steps themselves find them.
TEST(slow_steps_fail_and_are_named)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.shape_b = every_40th, .steps = 200});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "pass");
    CHECK_STR(world_text(&world, CELL("verdict", "mean_step_time")), "fail");
    CHECK_STR(world_text(&world, CELL("verdict", "throughput")), "fail");
    CHECK_STR(world_text(&world, CELL("verdict", "slow_steps")), "fail");
    CHECK_CONTAINS(
            world_text(&world, CELL("reason", "slow_steps")), "candidate: 50 slow steps of 19");
    CHECK_CONTAINS(world_text(&world, CELL("reason", "slow_steps")), "every 40 steps");
    CHECK_CONTAINS(world_text(&world, CELL("reason", "slow_steps")), "baseline: 0 slow steps of");
    world_close(&world);
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.shape_b = one_at_70});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, CELL("reason", "slow_steps")), "step 70 of every launch");
    world_close(&world);
}

TEST(slow_steps_of_both_sides_are_no_regression)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.shape_a = every_40th, .shape_b = every_40th});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_close(&world);
}

TEST(a_plan_that_gates_the_typical_step_gates_the_sums)
{
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 3%}}}");
    world_pairs(&world, 10, (struct world_pair){.shape_b = every_40th});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_DBL(world_number(&world, CELL("margin", "slow_steps")), 0.03, 1e-12);
    world_close(&world);
    world_open_calibrated(&world, NULL,
            "gate: {metrics: {step_time: {margin: 3%}, slow_steps: {observe: true}, "
            "mean_step_time: {observe: true}, warm_up_time: {observe: true}}}");
    world_pairs(&world, 10, (struct world_pair){.shape_b = every_40th});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_close(&world);
}

TEST(a_long_warm_up_fails)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.shape_b = slow_begin, .steps = 200});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL("verdict", "step_time")), "pass");
    CHECK_STR(world_text(&world, CELL("verdict", "mean_step_time")), "pass");
    CHECK_STR(world_text(&world, CELL("verdict", "warm_up_time")), "fail");
    // Spread over a real run it is nothing.
    world_sql(&world, "UPDATE run SET plan = json_set(plan, '$.workloads[0].run_steps', 1000000)");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_close(&world);
}

TEST(launches_that_end_slowly_are_judged_and_not_dropped)
{
    world_open_calibrated(&world, NULL, NULL);
    for (int i = 0; i < 28; i++)
        world_pair(&world, (struct world_pair){.shape_b = i % 5 < 2 ? slow_end : NULL});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_INT(
            world_number(&world, "SELECT count(*) FROM pair_ratio WHERE metric = 'step_time'"), 28);
    CHECK_CONTAINS(world_text(&world, "SELECT text FROM finding WHERE kind = 'not_steady'"),
            "the candidate changes its level to the end in 1");
    world_close(&world);
}
