// SPDX-License-Identifier: Apache-2.0
// What the one sentence of a pass says of what was not judged: who reads no more than that must not
// take it for more.
#include "harness/gate/gate.h"

#include <stdio.h>
#include <string.h>

#include "harness/gate/phrase.h"
#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

static struct world world;

#define TWO_WORKLOADS \
    "workloads:\n - {name: w, mode: train, command: [x]}\n - {name: serve, mode: infer, rate: 9/s, command: [x]}"

static bool reason_ends(const char *end)
{
    const char *reason = world_text(&world, VERDICT_REASON);
    size_t len = strlen(reason);
    return len >= strlen(end) && strcmp(reason + len - strlen(end), end) == 0;
}

// A plan that names metrics switches all others off. Who reads one line of its pass must not take
// it for more than that.
TEST(a_pass_says_that_time_was_not_judged)
{
    world_open_calibrated(&world, NULL, "gate: {metrics: {peak_memory: {margin: 1%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.5});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "the 1 gated cell is within the margins; speed was not judged: gate.metrics names peak_memory only; nearest to its margin: w ");
    world_close(&world);
    world_open_calibrated(&world, NULL,
            "gate: {metrics: {peak_memory: {margin: 1%}, step_time: {observe: true}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.5});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "; speed was not judged: gate.metrics only observes step_time, mean_step_time; ");
    world_close(&world);
    world_open_calibrated(&world, TWO_WORKLOADS,
            "gate: {metrics: {latency_p50: {margin: 5%}, peak_memory: {margin: 1%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.5});
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .rate = 9});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON),
            "; speed of w was not judged: no metric of time that gate.metrics names can be measured; ");
    world_close(&world);
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(!strstr(world_text(&world, VERDICT_REASON), "not judged"));
    world_close(&world);
}

static double loss_of(int step, int side, int64_t seed)
{
    (void)side;
    return 2 + 1.0 / (step + 1) + 0.01 * (double)seed;
}

TEST(a_pass_says_that_no_output_was_compared)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(reason_ends("; no output was compared"));
    world_close(&world);
    world_open_calibrated(&world, NULL, "gate: {parity: {rule: off}}");
    world_pairs(&world, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(!strstr(world_text(&world, VERDICT_REASON), "output"));
    world_close(&world);
    world_open_calibrated(&world, TWO_WORKLOADS,
            "gate: {metrics: {step_time: {margin: 2%}, latency_p50: {margin: 5%}}}");
    for (int i = 0; i < 10; i++) // the first one records its losses
        world_losses(&world, world_pair(&world, (struct world_pair){0}), 60, loss_of);
    world_pairs(&world, 10, (struct world_pair){.workload = 2, .rate = 9});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK(reason_ends("; parity holds for 2 of 2; no output was compared in serve"));
    world_close(&world);
}

// A crash leads. What is slower as well, there or in another workload, is counted.
TEST(a_fail_by_a_crash_counts_the_cells_that_fail)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 5, (struct world_pair){.ratio = 1.5});
    world_pair(&world,
            (struct world_pair){.state = "failed", .fate_a = "stopped", .fate_b = "crashed"});
    world_pairs(&world, 5, (struct world_pair){.ratio = 1.5});
    world_sql(&world, "UPDATE launch SET exit_signal = 6 WHERE state = 'crashed'");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    double fails =
            world_number(&world, "SELECT count(*) FROM cell WHERE gating AND verdict = 'fail'");
    char want[64];
    snprintf(want, sizeof want, "; %.0f more cells fail", fails);
    CHECK(fails > 1);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON), "the candidate alone in 1");
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON), want);
    world_close(&world);
    // nothing of it was ever measured: the finding says all of it
    world_open_calibrated(&world, NULL, NULL);
    for (int i = 0; i < 2; i++)
        world_pair(&world,
                (struct world_pair){.state = "failed", .fate_a = "stopped", .no_steps_b = 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, VERDICT_REASON), "the candidate made no step call");
    CHECK(strstr(world_text(&world, VERDICT_REASON), "more cell") == NULL);
    world_close(&world);
    world_open_calibrated(&world, NULL, NULL); // five pairs were, and no cell fails by them;
                                               // slow_steps begins with how many there were
    world_pairs(&world, 5, (struct world_pair){0});
    for (int i = 0; i < 2; i++)
        world_pair(&world,
                (struct world_pair){.state = "failed", .fate_a = "stopped", .fate_b = "crashed"});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'slow_steps'"),
            ": missing: the candidate crashed in both attempts");
    CHECK(strstr(world_text(&world, VERDICT_REASON), "more cell") == NULL);
    world_close(&world);
}

// "2 % slower, beyond the margin of 2 %" is no reason, and "1.2 %" is another margin than 1.25 %.
TEST(what_is_beside_a_margin_is_told_from_it)
{
    static const struct {
        enum metric_id metric;
        double ratio, margin;
        const char *want;
    } cases[] = {{METRIC_STEP_TIME, 1.0204, 0.02, "2.04 % slower"},
            {METRIC_STEP_TIME, 1.01964, 0.02, "1.964 % slower"},
            {METRIC_STEP_TIME, 1.0204, NAN, "2 % slower"},
            {METRIC_STEP_TIME, 1.0512, 0.02, "5.1 % slower"},
            {METRIC_PEAK_MEMORY, 1.1034, 0.1, "10.34 % more memory"},
            {METRIC_STEP_TIME, 1.00001, 0.02, "equal"},
            {METRIC_STEP_TIME, 0.9796, 0.02, "2 % faster"},
            {METRIC_THROUGHPUT, 0.9802, 0.02, "2 % less throughput"},
            {METRIC_STEP_TIME, NAN, 0.02, "not known"}};
    char text[PHRASE_SIZE];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(phrase_ratio_beside(
                          text, sizeof text, cases[i].metric, cases[i].ratio, cases[i].margin),
                cases[i].want);
    CHECK_STR(phrase_ratio(text, sizeof text, METRIC_STEP_TIME, 1.0204), "2 % slower");
    // 10.3 % less of what is better higher are beyond 10 %, and 9.5 % less would be.
    world_open_calibrated(
            &world, NULL, "gate: {metrics: {throughput: {margin: 10%}, step_time: {margin: 10%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.115});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'throughput'"),
            "beyond the margin of 10 % (that is 9.1 % less)");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'"),
            "beyond the margin of 10 %");
    CHECK(strstr(world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'"),
                  "that is") == NULL);
    world_close(&world);
    world_open_calibrated(&world, NULL, "gate: {metrics: {throughput: {margin: 10%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 0.8});
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'throughput'"),
            "better by more than the margin of 10 %");
    CHECK(strstr(world_text(&world, "SELECT reason FROM cell WHERE metric = 'throughput'"),
                  "that is") == NULL);
    world_close(&world);
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 1.25%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.2});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT margin_note FROM verdict"), "step_time 1.25 %");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'"),
            "beyond the margin of 1.25 %");
    world_close(&world);
}

#define CELL_NEWS "SELECT coalesce(news, '-') || ' | ' || told FROM cell WHERE metric = 'step_time'"

// Beside the numbers of a cell its reason is told without them, wherever they stand in it, with
// what it says already.
TEST(news_is_the_reason_without_its_numbers)
{
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.2});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, CELL_NEWS), "beyond the margin of 2 % | 0");
    world_close(&world);
    world_open_calibrated(
            &world, NULL, "gate: {confirm: always, metrics: {step_time: {margin: 2%}}}");
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.2});
    world_pairs(&world, 10, (struct world_pair){.ratio = 1.2, .phase = "confirm"});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(
            world_text(&world, CELL_NEWS), "beyond the margin of 2 %; 10 fresh pairs agree: 1.");
    CHECK_CONTAINS(world_text(&world, CELL_NEWS), " | 2");
    world_close(&world);
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_pairs(&world, 28, (struct world_pair){.ratio = 1.01, .pair_sd = 0.03});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, CELL_NEWS), "the margin of 2 % lies inside: some ");
    CHECK_CONTAINS(world_text(&world, CELL_NEWS), " pairs would settle it | 1");
    world_close(&world);
    // the mean alone: the numbers come last
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    for (int i = 0; i < 28; i++)
        world_pair(&world, (struct world_pair){.ratio = i % 10 == 2 ? 1.5 : 1});
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM cell WHERE metric = 'step_time'"),
            " at 28 pairs)");
    CHECK_CONTAINS(world_text(&world, CELL_NEWS),
            "the mean need not be: 3 of 28 launches of the candidate are worse than the others by 50 %");
    CHECK(strstr(world_text(&world, CELL_NEWS), "ratio ") == NULL);
    world_close(&world);
    world_open_calibrated(&world, NULL, "gate: {metrics: {step_time: {margin: 2%}}}"); // no numbers
    for (int i = 0; i < 2; i++)
        world_pair(&world,
                (struct world_pair){.state = "failed", .fate_a = "stopped", .fate_b = "crashed"});
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, CELL_NEWS), "- | 0");
    world_close(&world);
}

// Gated by default, and measured on nobody: a pass is none of the tail.
TEST(a_pass_says_that_the_tail_was_not_judged)
{
    static const struct {
        int steps;
        double rate; // 0: a closed loop, whose tail is judged where it is named
        const char *says;
    } cases[] = {
            {600, 100, "latency_p99 was not judged: too few requests (30 for p50, 662 for p99)"},
            {662, 100, ""}, {120, 0, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_open_calibrated(
                &world, "workloads: [{name: w, mode: infer, rate: 100/s, command: [x]}]", NULL);
        world_pairs(
                &world, 10, (struct world_pair){.rate = cases[i].rate, .steps = cases[i].steps});
        CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
        CHECK_STR(world_text(&world,
                          "SELECT text FROM finding WHERE kind = 'unjudged' AND effect = 'note'"),
                cases[i].says);
        if (*cases[i].says)
            CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
                    "within the margins; w: latency_p99 was not judged: too few requests");
        world_close(&world);
    }
}

TEST(a_pass_says_that_memory_was_not_judged)
{
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){.memory_ratio = 2, .no_samples = true});
    world_sql(&world, "UPDATE launch SET peak_memory_bytes = NULL");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "within the margins; w: peak_memory was not judged: not recorded on this machine; ");
    // not the throughput
    CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'unjudged'"), 1);
    world_close(&world);
}

// A candidate that was never installed passes for ever.
TEST(sides_that_are_the_same_are_said)
{
    static const char elsewhere[] = "the sides differ in no setting and in no version of a package";
    static const struct {
        const char *candidate, *packages_b; // what is set in the plan; of the candidate, the
                                            // baseline has torch 2.1.0
        const char *says;
    } cases[] = {
            {"'$.candidate.name', 'other'", "{}",
                    "both sides of the plan are the same but for their names: nothing was upgraded"},
            {"'$.candidate.python', '/opt/b/bin/python'", "{\"torch\": \"2.1.0\"}", elsewhere},
            {"'$.candidate.python', '/opt/b/bin/python'", "{\"torch\": \"2.6.0\"}", ""},
            {"'$.candidate.python', '/opt/b/bin/python'", "damaged", ""},
            {"'$.candidate.env', json('{\"A\": \"1\"}')", "{\"torch\": \"2.1.0\"}", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sql[512];
        world_open_calibrated(&world, NULL, NULL);
        world_pairs(&world, 10, (struct world_pair){0});
        snprintf(sql, sizeof sql, "UPDATE run SET plan = json_set(plan, %s)", cases[i].candidate);
        world_sql(&world, sql);
        snprintf(sql, sizeof sql,
                "UPDATE side SET fingerprint = '{\"components\": {\"x\": 1}, \"python\": {\"packages\": ' || "
                "iif(id, '%s', '{\"torch\": \"2.1.0\"}') || '}}'",
                cases[i].packages_b);
        world_sql(&world, sql);
        CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
        CHECK_CONTAINS(world_text(&world,
                               "SELECT text FROM finding WHERE kind = 'same' AND effect = 'note'"),
                cases[i].says);
        CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'same'"),
                *cases[i].says != 0);
        CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), cases[i].says);
        world_close(&world);
    }
}

// The plan of the run: alpha 1 %, its default metrics, looks at 10 pairs and more.
TEST(a_policy_that_asks_for_less_than_the_plan_says_so)
{
    struct plan *plan = NULL;
    struct error err = {0};
    char *command[] = {"x"};
    CHECK_INT(plan_from_command("/bin/true", "/bin/true", command, 1, &plan, &err), 0);
    const char *says[] = {"", "", "step_time may be 10 % worse, not 2 %",
            "alpha is 5 %, not 1 %, parity is off, certificates may be 60 days old, not 30",
            "throughput is not judged, peak_memory is not judged"};
    world_open_calibrated(&world, NULL, NULL);
    world_pairs(&world, 10, (struct world_pair){0});
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        enum exit_code verdict = EXIT_CODE_USAGE;
        struct plan_gate policy = plan->gate;
        policy.metrics[METRIC_STEP_TIME].margin = i == 1 ? 0.015
                : i == 2                                 ? 0.1
                                                         : policy.metrics[METRIC_STEP_TIME].margin;
        policy.metrics_default = i != 4;
        for (int m = 0; m < METRIC_COUNT && i == 4; m++)
            policy.metrics[m].present = m == METRIC_STEP_TIME || m == METRIC_MEAN_STEP_TIME ||
                    m == METRIC_SLOW_STEPS || m == METRIC_WARM_UP_TIME;
        if (i == 3) {
            policy.alpha = 0.05;
            policy.parity = PLAN_PARITY_OFF;
            policy.calibration_age_ns *= 2;
        }
        CHECK_INT(gate_judge(world.store, &policy, &verdict, &err), 0);
        CHECK_INT(verdict, EXIT_CODE_PASS);
        CHECK_STR(world_text(&world, "SELECT effect FROM finding WHERE kind = 'policy'"),
                *says[i] ? "note" : "");
        CHECK_CONTAINS(
                world_text(&world, "SELECT text FROM finding WHERE kind = 'policy'"), says[i]);
        CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
                *says[i]
                        ? "within the margins; by a policy that asks for less than the run's plan: "
                        : "within the margins; ");
    }
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS); // by the plan again
    CHECK_INT(world_number(&world, "SELECT count(*) FROM finding WHERE kind = 'policy'"), 0);
    plan_free(plan);
    world_close(&world);
}
