// SPDX-License-Identifier: Apache-2.0
// The parity gate on stores: tensors with and without an anchor, loss curves.
#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

enum { COUNT = 1200, STEPS = 60 };
static struct world world;
static double truth[COUNT];

static void open_calibrated(void)
{
    struct random_state random = {8};
    world_open(&world, NULL, NULL);
    world_certificate(&world, "host", "steps", 0.01);
    for (int i = 0; i < COUNT; i++)
        truth[i] = 5 * random_normal(&random);
}

static void add_output(int64_t launch, double noise)
{
    static uint64_t seed = 1000;
    struct random_state random = {seed++};
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(truth[i] + noise * random_normal(&random));
    world_tensor(&world, launch, 0, "output", values, COUNT);
}

static void add_pairs(double noise_a, double noise_b)
{
    for (int i = 0; i < 10; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_output(2 * id - 1, noise_a);
        add_output(2 * id, noise_b);
    }
}

static void add_anchor(int64_t seed)
{
    int64_t id = world_pair(
        &world, (struct world_pair){
                    .phase = "anchor", .interleave = "launches", .fate_b = "", .seed = seed});
    world_tensor_f64(&world, 2 * id - 1, 0, "output", truth, COUNT);
}

#define PARITY(column, tensor) "SELECT " column " FROM parity WHERE tensor = '" tensor "'"

TEST(anchored_and_equally_far)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    add_anchor(1);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "fp64-anchored");
    CHECK_STR(world_text(&world, PARITY("verdict", "output")), "pass");
    CHECK_DBL(world_number(&world, PARITY("error_a", "output")), 1e-3, 1e-4);
    CHECK_DBL(world_number(&world, PARITY("error_b", "output")), 1e-3, 1e-4);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
                   "10 pairs, 1 with the float64 anchor");
    world_close(&world);
}

TEST(anchored_and_further)
{
    open_calibrated();
    add_pairs(1e-3, 5e-3);
    add_anchor(1);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
                   "w parity of 'output': rmse to float64: candidate 0.005");
    world_close(&world);
}

TEST(gross_differences_are_seen_in_pairs_without_an_anchor)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    add_anchor(1);
    world_sql(&world, "DELETE FROM tensor WHERE launch_id = 20");
    add_output(20, 50); // the last pair's candidate; the anchor has the seed of the first
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    world_close(&world);
}

TEST(without_an_anchor_rounding_cannot_be_told_from_a_defect)
{
    open_calibrated();
    add_pairs(0, 1e-3);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "A float64 anchor would tell");
    add_anchor(99); // of another seed: no use
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "torch-testing");
    world_close(&world);
}

TEST(the_baselines_own_spread)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    int64_t id = world_pair(
        &world,
        (struct world_pair){.phase = "pilot", .interleave = "launches", .fate_b = "", .seed = 1});
    add_output(2 * id - 1,
               1e-3); // differs from the first pair's baseline as much as the candidate does
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "baseline-spread");
    world_close(&world);
}

TEST(bitwise_equal)
{
    open_calibrated();
    add_pairs(0, 0);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "bitwise");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "parity holds for 1 of 1");
    world_close(&world);
}

TEST(outputs_of_one_side_only)
{
    open_calibrated();
    add_pairs(0, 0);
    world_sql(&world, "DELETE FROM tensor WHERE launch_id % 2 = 0");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
                   "missing: recorded by the baseline only");
    world_sql(&world, "DELETE FROM tensor");
    add_output(2, 0);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    world_close(&world);
}

TEST(another_shape_or_an_unknown_type)
{
    open_calibrated();
    add_pairs(0, 0);
    world_sql(&world, "UPDATE tensor SET count = 7 WHERE launch_id = 2");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "shape");
    world_sql(&world, "UPDATE tensor SET count = 1200, dtype = 'c64'");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS); // equal by digest
    world_sql(&world, "UPDATE tensor SET digest = 'x' WHERE launch_id = 2");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    world_close(&world);
}

TEST(parity_off)
{
    world_open(&world, NULL, "gate: {parity: {rule: off}}");
    world_certificate(&world, "host", "steps", 0.01);
    add_pairs(0, 5);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM parity"), 0);
    world_close(&world);
}

// --- losses ----------------------------------------------------------------------------------

static double loss_of(int step, int64_t seed)
{
    struct random_state random = {(uint64_t)seed * 1000 + (uint64_t)step};
    return 0.3 + 0.4 * exp(-step / 15.0) + 0.01 * random_normal(&random);
}

static double loss_equal(int step, int side, int64_t seed)
{
    return loss_of(step, seed) * (1 + 1e-7 * side);
}

static double loss_nan(int step, int side, int64_t seed)
{
    return side && step == 40 && seed == 3 ? NAN : loss_of(step, seed);
}

static double loss_worse(int step, int side, int64_t seed)
{
    return loss_of(step, seed) + side * 0.3 * step / STEPS;
}

static double loss_five_pct(int step, int side, int64_t seed)
{
    return loss_of(step, seed) * (1 + 0.05 * side);
}

static int judge_losses(double (*value)(int, int, int64_t))
{
    open_calibrated();
    for (int i = 0; i < 10; i++)
        world_losses(&world, world_pair(&world, (struct world_pair){0}), STEPS, value);
    return world_judge(&world);
}

TEST(equal_training)
{
    CHECK_INT(judge_losses(loss_equal), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "pass");
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "loss-tube");
    CHECK_STR(world_text(&world, PARITY("verdict", "loss (final)")), "pass");
    world_close(&world);
}

TEST(a_nan_in_the_loss)
{
    CHECK_INT(judge_losses(loss_nan), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "finite");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
                   "the candidate's loss becomes NaN");
    CHECK(isnan(world_number(&world, "SELECT value FROM loss WHERE launch_id = 6 AND step = 40")));
    world_close(&world);
}

TEST(training_that_goes_another_way)
{
    CHECK_INT(judge_losses(loss_worse), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "fail");
    world_close(&world);
}

TEST(a_final_loss_that_is_off_inside_the_tube)
{
    CHECK_INT(judge_losses(loss_five_pct), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "pass"); // within what a seed does
    CHECK_STR(world_text(&world, PARITY("verdict", "loss (final)")), "fail");
    world_close(&world);
}

TEST(losses_of_one_side_only)
{
    CHECK_INT(judge_losses(loss_equal), EXIT_CODE_PASS);
    world_sql(&world, "DELETE FROM loss WHERE launch_id % 2 = 0");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "missing");
    world_close(&world);
}
