// SPDX-License-Identifier: Apache-2.0
// The parity gate on stores: what was compared and with what, tensors with and without an anchor,
// integers, sampled outputs, loss curves, and what the run loop still has to do.
#include <stdlib.h>
#include <string.h>

#include "harness/gate/parity/parity_gate.h"
#include "harness/gate/parity/parity_launches.h"
#include "harness/gate/run_facts.h"
#include "reports/analyse/sketch.h"
#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

enum { COUNT = 1200, STEPS = 60, PAIRS = 10 };
static struct world world;
static double truth[COUNT];
static uint64_t noise_seed = 1000;

static void open_with(const char *gate)
{
    struct random_state random = {8};
    world_open(&world, NULL, gate);
    world_certificate(&world, "host", "steps", 0.01);
    for (int i = 0; i < COUNT; i++)
        truth[i] = 5 * random_normal(&random);
}

static void open_calibrated(void)
{
    open_with(NULL);
}

static void add_output_at(int64_t launch, int step, double noise, void (*spoil)(float *))
{
    struct random_state random = {noise_seed++};
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(truth[i] + noise * random_normal(&random));
    if (spoil)
        spoil(values);
    world_tensor(&world, launch, step, "output", values, COUNT);
}

static void add_output(int64_t launch, double noise)
{
    add_output_at(launch, 0, noise, NULL);
}

static void add_pairs(double noise_a, double noise_b)
{
    for (int i = 0; i < PAIRS; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_output(2 * id - 1, noise_a);
        add_output(2 * id, noise_b);
    }
}

static int64_t add_alone(const char *phase, int64_t seed)
{
    return 2 *
            world_pair(&world,
                    (struct world_pair){
                            .phase = phase, .interleave = "launches", .fate_b = "", .seed = seed}) -
            1;
}

static void add_anchor(int64_t seed)
{
    world_tensor_f64(&world, add_alone("anchor", seed), 0, "output", truth, COUNT);
}

// The candidate's output of one pair anew.
static void replace(int64_t pair, double noise, void (*spoil)(float *))
{
    char sql[64];
    snprintf(sql, sizeof sql, "DELETE FROM tensor WHERE launch_id = %d", (int)(2 * pair));
    world_sql(&world, sql);
    add_output_at(2 * pair, 0, noise, spoil);
}

static void spoil_sample(float *values)
{
    values[777] = -values[777] + 5;
}

static void spoil_rows(float *values)
{
    for (int i = 512; i < 576; i++)
        values[i] = -values[i];
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
    CHECK_DBL(world_number(&world, PARITY("error_b", "output")), 2e-4, 1e-4); // of an rms of 5
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "; 10 pairs, 10 tensors, 12000 values, 1 compared with float64 values");
    world_close(&world);
}

TEST(anchored_and_further)
{
    open_calibrated();
    add_pairs(1e-3, 5e-3);
    add_anchor(1);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "w parity of 'output': 0.000987 rms from float64, the baseline 0.0002, at most "
            "0.00041 (seed 1, step 0, value");
    world_close(&world);
}

// Outputs of a softmax over many classes are some 1e-5: no absolute tolerance may let zeros pass.
TEST(zeros_of_small_outputs)
{
    for (int anchored = 0; anchored < 2; anchored++) {
        open_calibrated();
        for (int i = 0; i < COUNT; i++)
            truth[i] = 2e-5 * (1 + 1e-3 * truth[i]);
        static float zeros[COUNT];
        for (int i = 0; i < PAIRS; i++) {
            int64_t id = world_pair(&world, (struct world_pair){0});
            add_output(2 * id - 1, 1e-12);
            world_tensor(&world, 2 * id, 0, "output", zeros, COUNT);
        }
        if (anchored)
            add_anchor(1);
        CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
        CHECK_DBL(world_number(&world, PARITY("error_b", "output")), 1, 1e-3);
        world_close(&world);
    }
}

TEST(a_wrong_sample_in_a_pair_without_an_anchor)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    add_anchor(1);
    replace(9, 1e-3, spoil_sample);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "(seed 9, step 0, value 777)");
    world_close(&world);
}

TEST(wrong_rows_where_all_else_is_equal)
{
    open_calibrated();
    add_pairs(0, 0); // bitwise
    for (int64_t pair = 2; pair <= PAIRS; pair++)
        replace(pair, 0, spoil_rows);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL); // with nothing to compare rounding with
    CHECK_CONTAINS(
            world_text(&world, PARITY("reason", "output")), "; 1 of them equal to the last bit");
    add_anchor(1);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    world_close(&world);
}

TEST(a_wrong_sample_at_a_step_beyond_the_anchor)
{
    open_calibrated();
    add_pairs(0, 0);
    for (int64_t pair = 1; pair <= PAIRS; pair++) {
        add_output_at(2 * pair - 1, 300, 0, NULL);
        add_output_at(2 * pair, 300, 0, pair == 7 ? spoil_sample : NULL);
    }
    add_anchor(1);
    CHECK(world_judge(&world) != EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "(seed 7, step 300, value 777)");
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

TEST(an_anchor_of_nan_fails_nobody)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    for (int i = 0; i < COUNT; i++)
        truth[i] = NAN;
    add_anchor(1);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "the float64 launch yields NaN or Inf where both sides do not, in 1 tensor");
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), ", no float64 anchor");
    world_close(&world);
}

TEST(the_baselines_own_spread)
{
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    add_output(add_alone("pilot", 1), 1e-3); // differs from the first pair's as the candidate does
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
    CHECK_STR(world_text(&world, PARITY("reason", "output")),
            "equal to the last bit; 10 pairs, 10 tensors, 12000 values");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"), "parity holds for 1 of 1");
    CHECK(!strstr(world_text(&world, "SELECT reason FROM verdict"), "no output was compared"));
    world_close(&world);
}

TEST(void_and_confirming_pairs_are_compared)
{
    static const char *const phases[] = {"main", "confirm"};
    for (int i = 0; i < 2; i++) {
        open_calibrated();
        add_pairs(0, 0);
        int64_t id = world_pair(
                &world, (struct world_pair){.phase = phases[i], .state = i ? "valid" : "void"});
        add_output(2 * id - 1, 0);
        add_output_at(2 * id, 0, 0, spoil_sample);
        CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
        world_close(&world);
    }
}

TEST(outputs_of_one_side_only)
{
    open_calibrated();
    add_pairs(0, 0);
    world_sql(&world, "DELETE FROM tensor WHERE launch_id = 8"); // one pair's candidate
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "baseline only in 1 pair");
    world_sql(&world, "DELETE FROM tensor WHERE launch_id % 2 = 0");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "missing: recorded by the baseline only");
    world_sql(&world, "DELETE FROM tensor");
    add_output(2, 0);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    world_close(&world);
}

TEST(steps_that_the_candidate_leaves_out)
{
    open_calibrated();
    add_pairs(0, 0);
    add_output_at(9, 5, 0, NULL);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(
            world_text(&world, PARITY("reason", "output")), "; 1 recorded by the baseline only");
    world_sql(&world,
            "INSERT INTO ledger (launch_id, producer, kind, dropped, breach) VALUES "
            "(10, 'step protocol', 'tensors', 1, 0)");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS); // lost by the ring, and said
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "were lost");
    world_close(&world);
}

// What one launch has lost says nothing of the others, nor of more than it is.
TEST(losses_excuse_no_more_outputs_than_were_lost)
{
    open_calibrated();
    add_pairs(0, 0);
    for (int pair = 5; pair <= 6; pair++)
        for (int step = 5; step < 8; step++)
            add_output_at(2 * pair - 1, step, 0, NULL);
    world_sql(&world,
            "INSERT INTO ledger (launch_id, producer, kind, dropped, breach) VALUES (10, 'step protocol', 'tensors', 3, 0)");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE); // those of pair 6
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "; 6 recorded by the baseline only (some of the candidate's were lost)");
    world_sql(&world,
            "INSERT INTO ledger (launch_id, producer, kind, dropped, breach) VALUES (12, 'step protocol', 'tensors', 2, 0)");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE); // two of three
    world_sql(&world, "UPDATE ledger SET dropped = 3");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_sql(&world, "DELETE FROM tensor WHERE launch_id = 8"); // all of another pair
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "missing: recorded by the baseline only in 1 pair");
    world_sql(&world,
            "INSERT INTO ledger (launch_id, producer, kind, dropped, breach) VALUES (8, 'step protocol', 'tensors', 1, 0)");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
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
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "by digest");
    world_sql(&world, "UPDATE tensor SET digest = 'x' WHERE launch_id = 2");
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    world_close(&world);
}

TEST(parity_off)
{
    open_with("gate: {parity: {rule: off}}");
    add_pairs(0, 5);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM parity"), 0);
    world_close(&world);
}

// --- long tensors --------------------------------------------------------------------------------

enum { LONG = 20000 };

// As the harness stores them: the first 4,096 values, a sketch and a digest of all.
static void add_long(int64_t launch, bool with_sketch, bool spoilt)
{
    static struct sketch sketch;
    static double values[LONG], sums[SKETCH_SUMS];
    struct random_state random = {77};
    struct error err = {0};
    for (int i = 0; i < LONG; i++)
        values[i] = random_normal(&random);
    for (int i = 15000; i < 15020 && spoilt; i++) // a row of twenty classes, one of a thousand
        values[i] = -values[i];
    sketch_begin(&sketch, LONG);
    sketch_add(&sketch, values, LONG);
    sketch_end(&sketch, sums);
    CHECK_INT(store_exec(world.store, &err,
                      "INSERT INTO tensor (launch_id, rank, step, name, dtype, count, digest, "
                      "data, sketch) VALUES (?, 0, 0, 'output', 'f64', ?, ?, ?, nullif(?, x''))",
                      "iisbb", launch, (int64_t)LONG, spoilt ? "other" : "same",
                      (const void *)values, SKETCH_SUMS * sizeof *values, (const void *)sums,
                      with_sketch ? sizeof sums : (size_t)0),
            0);
}

static int judge_long(bool with_sketch, bool spoilt)
{
    open_calibrated();
    for (int i = 0; i < PAIRS; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_long(2 * id - 1, with_sketch, false);
        add_long(2 * id, with_sketch, spoilt && i == 5);
    }
    return world_judge(&world);
}

TEST(a_wrong_row_behind_the_values_that_are_kept)
{
    CHECK_INT(judge_long(true, false), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "10 tensors, 200000 values");
    world_close(&world);
    CHECK(judge_long(true, true) != EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "(seed 6, step 0, values 150");
    add_long(add_alone("anchor", 1), true, false); // rounding explains nothing of it
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    world_close(&world);
    // A store that has no sketches: what differs was not kept, and that is no pass.
    CHECK_INT(judge_long(false, true), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")),
            "1 differ where nothing was kept but a digest");
    world_close(&world);
}

// --- outputs behind the first 16 MiB of a launch -------------------------------------------------

// As the harness stores them: a digest, and no value.
static void add_digest(int64_t launch, const char *name, int step, const char *digest)
{
    struct error err = {0};
    CHECK_INT(
            store_exec(world.store, &err,
                    "INSERT INTO tensor (launch_id, rank, step, name, dtype, count, digest, data) VALUES (?, 0, ?, ?, 'f32', ?, ?, x'')",
                    "iisis", launch, (int64_t)step, name, (int64_t)COUNT, digest),
            0);
}

// Ten pairs with an output each whose values were kept, and one behind it; its digest is another
// one on the candidate of pair 6.
static void add_late(double noise, const char *name, bool differs)
{
    open_calibrated();
    add_pairs(noise, noise);
    for (int64_t pair = 1; pair <= PAIRS; pair++) {
        add_digest(2 * pair - 1, name, 300, "same");
        add_digest(2 * pair, name, 300, differs && pair == 6 ? "other" : "same");
    }
}

#define UNCOMPARED "SELECT text FROM finding WHERE kind = 'outputs'"

TEST(outputs_without_values_are_equal_by_digest)
{
    add_late(0, "output", false);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("reason", "output")),
            "equal to the last bit; 10 pairs, 10 tensors, 12000 values; 10 behind the first 16 MiB of a launch by digest only");
    CHECK_STR(world_text(&world, UNCOMPARED), "");
    world_close(&world);
    add_late(0, "last", false); // a name that comes there only
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "last")),
            "equal to the last bit (by digest: no values are kept behind the first 16 MiB of a launch); 10 pairs, 10 tensors");
    world_close(&world);
}

TEST(outputs_without_values_that_differ_behind_equal_ones_do_not_pass)
{
    add_late(0, "output", true);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "; 10 behind the first 16 MiB of a launch by digest only, 1 of them differ");
    world_close(&world);
    add_late(0, "last", true);
    CHECK_INT(world_judge(&world), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "last")), "or they were not kept");
    world_close(&world);
}

// Rounding changes every digest: the pass says that these were not compared.
TEST(outputs_without_values_behind_others_that_rounding_changes)
{
    add_late(1e-3, "output", true);
    add_output(add_alone("pilot", 1), 1e-3);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "output")), "baseline-spread");
    CHECK_STR(world_text(&world, UNCOMPARED),
            "1 output behind the first 16 MiB of a launch, whose values are not kept, was not compared");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "parity holds for 1 of 1; w: 1 output behind the first 16 MiB of a launch, whose values are not kept, was not compared");
    world_close(&world);
}

TEST(outputs_that_were_lost_on_both_sides_are_said)
{
    open_calibrated();
    add_pairs(0, 0);
    world_sql(&world,
            "INSERT INTO ledger (launch_id, producer, kind, dropped, breach) SELECT id, 'step protocol', 'tensors', 7, 0 FROM launch");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "; w: 140 recorded outputs of the launches were lost, or too many to be kept: not compared");
    world_close(&world);
}

// --- integers ------------------------------------------------------------------------------------

enum { CLASSES = 4000 };

static bool are_masks; // of two classes, in no order

// Each differs with this chance.
static void add_classes(int64_t launch, const char *name, double chance)
{
    struct random_state random = {noise_seed++};
    static float values[CLASSES];
    char sql[128];
    for (int i = 0; i < CLASSES; i++) {
        int differs = random_uniform(&random) < chance;
        int class = are_masks ? (int)((unsigned)i * 2654435761u >> 16 & 1) ^ differs
                              : i % 1000 + differs;
        memcpy(&values[i], &class, sizeof class);
    }
    world_tensor(&world, launch, 0, name, values, CLASSES);
    snprintf(sql, sizeof sql,
            "UPDATE tensor SET dtype = 'i32' WHERE launch_id = %d AND name = '%s'", (int)launch,
            name);
    world_sql(&world, sql);
}

static void add_class_pairs(double chance_a, double chance_b)
{
    for (int i = 0; i < PAIRS; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_classes(2 * id - 1, "class", chance_a);
        add_classes(2 * id, "class", chance_b);
    }
}

static int judge_classes(double chance_a, double chance_b, bool anchored)
{
    open_calibrated();
    add_class_pairs(chance_a, chance_b);
    for (int64_t seed = 1; anchored && seed <= 4; seed++)
        add_classes(add_alone("anchor", seed), "class", 0);
    return world_judge(&world);
}

TEST(integers_that_rounding_flips)
{
    CHECK_INT(judge_classes(0, 0, false), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "class")), "bitwise");
    world_close(&world);
    CHECK_INT(judge_classes(1e-3, 1e-3, true), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "class")), "mismatch-rate");
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "class")), "of 40000 integers differ");
    world_close(&world);
    CHECK_INT(judge_classes(1e-3, 8e-3, true), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "class")), "more than the baseline's own");
    world_close(&world);
    CHECK_INT(judge_classes(0, 0.3, false), EXIT_CODE_FAIL);
    world_close(&world);
}

// The baseline's own are off in a fifth, and so three fifths may be: more than of masks that have
// nothing to do with each other.
TEST(masks_that_match_by_chance)
{
    are_masks = true;
    CHECK_INT(judge_classes(0.2, 0.5, true), EXIT_CODE_INCONCLUSIVE);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "class")),
            "a limit that values by chance would keep judges nothing");
    world_close(&world);
    CHECK_INT(judge_classes(0.05, 0.05, true), EXIT_CODE_PASS); // a limit of 15 %
    world_close(&world);
    are_masks = false;
}

// The same with the anchor of another seed and with none: not a fail.
TEST(one_integer_of_forty_thousand)
{
    for (int anchored = 0; anchored < 2; anchored++) {
        open_calibrated();
        add_class_pairs(0, 0);
        world_sql(&world, "DELETE FROM tensor WHERE launch_id = 14");
        add_classes(14, "class", 5e-4);
        if (anchored)
            add_classes(add_alone("anchor", 1), "class", 0);
        CHECK_INT(world_judge(&world), anchored ? EXIT_CODE_PASS : EXIT_CODE_INCONCLUSIVE);
        CHECK_CONTAINS(world_text(&world, PARITY("reason", "class")), "of 40000 integers differ");
        CHECK(world_number(&world, PARITY("error_b", "class")) <= 1e-4);
        world_close(&world);
    }
}

// --- outputs that are drawn at random ------------------------------------------------------------

static void add_draws(int64_t launch, double shift)
{
    struct random_state random = {noise_seed++};
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(shift + random_normal(&random));
    world_tensor(&world, launch, 0, "sampled_output", values, COUNT);
}

static int judge_draws(int pairs, double shift)
{
    open_calibrated();
    for (int i = 0; i < pairs; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_draws(2 * id - 1, 0);
        add_draws(2 * id, shift);
    }
    return world_judge(&world);
}

TEST(drawn_from_the_same_distribution)
{
    CHECK_INT(judge_draws(14, 0), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("rule", "sampled_output")), "distribution");
    world_close(&world);
    CHECK_INT(judge_draws(14, 0.5), EXIT_CODE_FAIL);
    world_close(&world);
    open_calibrated(); // the same numbers under a name that promises the same values
    for (int i = 0; i < PAIRS; i++) {
        int64_t id = world_pair(&world, (struct world_pair){0});
        add_draws(2 * id - 1, 0);
        add_draws(2 * id, 0);
    }
    world_sql(&world, "UPDATE tensor SET name = 'output'");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "output")), "starts with `sampled`");
    world_close(&world);
}

// --- losses --------------------------------------------------------------------------------------

static double loss_of(int step, int64_t seed)
{
    struct random_state random = {(uint64_t)seed * 1000};
    return (0.3 + 0.4 * exp(-step / 15.0)) * (1 + 0.2 * random_normal(&random));
}

// Of one launch: side 2 is the baseline once more.
static double loss_noise(int step, int side, int64_t seed)
{
    struct random_state random = {(uint64_t)(seed * 100000 + side * 1000 + step)};
    return random_normal(&random);
}

static double loss_equal(int step, int side, int64_t seed)
{
    return loss_of(step, seed) * (1 + 1e-7 * (side == 1));
}

static double loss_bitwise(int step, int side, int64_t seed)
{
    (void)side;
    return loss_of(step, seed);
}

static double loss_nan(int step, int side, int64_t seed)
{
    return side == 1 && step == 40 && seed == 3 ? NAN : loss_of(step, seed);
}

static double loss_worse(int step, int side, int64_t seed)
{
    return loss_of(step, seed) + (side == 1) * 0.3 * step / STEPS;
}

static double loss_five_pct(int step, int side, int64_t seed)
{
    return loss_of(step, seed) * (1 + 0.05 * (side == 1));
}

static double loss_reordered(int step, int side, int64_t seed)
{
    return loss_of(step, seed) * (1 + 0.03 * loss_noise(step, side, seed));
}

static double loss_late(int step, int side, int64_t seed) // wrong beyond what others reach
{
    return loss_of(step, seed) * (1 + 0.5 * (side == 1 && step >= 40));
}

static void add_curve(
        int64_t launch, int steps, int side, int64_t seed, double (*value)(int, int, int64_t))
{
    struct error err = {0};
    for (int i = 0; i < steps; i++) {
        double loss = value(i, side, seed);
        CHECK_INT(store_exec(world.store, &err,
                          "INSERT INTO loss (launch_id, rank, step, value, bits) VALUES (?, 0, ?, "
                          "?, ?)",
                          "iidb", launch, (int64_t)i, loss, (const void *)&loss, sizeof loss),
                0);
    }
}

static void add_loss_pairs(int count, double (*value)(int, int, int64_t))
{
    for (int i = 0; i < count; i++)
        world_losses(&world, world_pair(&world, (struct world_pair){0}), STEPS, value);
}

static int judge_losses(int count, double (*value)(int, int, int64_t))
{
    open_calibrated();
    add_loss_pairs(count, value);
    return world_judge(&world);
}

TEST(equal_training)
{
    CHECK_INT(judge_losses(PAIRS, loss_equal), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "pass");
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "paired-loss");
    CHECK_STR(world_text(&world, PARITY("verdict", "loss (final)")), "pass");
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "loss")),
            "was not run twice with one seed: its noise is not known");
    world_close(&world);
    CHECK_INT(judge_losses(PAIRS, loss_bitwise), EXIT_CODE_PASS);
    CHECK_STR(world_text(&world, PARITY("reason", "loss")),
            "equal to the last bit in every step of 10 pairs");
    world_close(&world);
}

TEST(a_nan_in_the_loss)
{
    CHECK_INT(judge_losses(PAIRS, loss_nan), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "finite");
    CHECK_CONTAINS(world_text(&world, "SELECT reason FROM verdict"),
            "the candidate's loss becomes NaN or Inf, the baseline's does not (seed 3, step 40)");
    CHECK(isnan(world_number(&world, "SELECT value FROM loss WHERE launch_id = 6 AND step = 40")));
    world_close(&world);
}

// One launch is shorter than the others, and the NaN comes behind its end.
TEST(a_nan_behind_the_shortest_launch)
{
    open_calibrated();
    add_loss_pairs(PAIRS, loss_nan);
    world_sql(&world, "DELETE FROM loss WHERE launch_id IN (15, 16) AND step >= 20");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "finite");
    world_close(&world);
}

TEST(losses_of_every_rank_are_finite)
{
    open_calibrated();
    add_loss_pairs(PAIRS, loss_bitwise);
    world_sql(&world, "INSERT INTO loss SELECT launch_id, 1, step, value, bits FROM loss");
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_sql(&world,
            "UPDATE loss SET bits = x'000000000000f07f' WHERE launch_id = 12 AND rank = 1 "
            "AND step = 59");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "finite");
    world_close(&world);
}

TEST(training_that_goes_another_way)
{
    CHECK_INT(judge_losses(PAIRS, loss_worse), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "fail");
    world_close(&world);
}

// A quarter of what seeds differ by.
TEST(a_loss_that_is_five_percent_off)
{
    CHECK_INT(judge_losses(PAIRS, loss_five_pct), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("verdict", "loss")), "fail");
    CHECK_STR(world_text(&world, PARITY("verdict", "loss (final)")), "fail");
    CHECK_DBL(world_number(&world, PARITY("error_b", "loss")), 0.05, 1e-4);
    world_close(&world);
}

TEST(noise_without_a_sign)
{
    open_calibrated();
    add_loss_pairs(28, loss_reordered);
    for (int64_t seed = 1; seed <= 4; seed++)
        add_curve(add_alone("pilot", seed), STEPS, 2, seed, loss_reordered);
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&world, PARITY("reason", "loss (final)")),
            "the baseline repeats itself within");
    world_close(&world);
}

TEST(a_launch_that_is_wrong_where_few_go)
{
    open_calibrated();
    add_loss_pairs(PAIRS, loss_bitwise);
    world_sql(&world, "DELETE FROM loss WHERE launch_id > 2 AND step >= 40");
    world_sql(&world, "DELETE FROM loss WHERE launch_id <= 2");
    add_curve(1, STEPS, 0, 1, loss_late);
    add_curve(2, STEPS, 1, 1, loss_late);
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_CONTAINS(
            world_text(&world, PARITY("reason", "loss")), "+50 % in one pair (seed 1, steps 40");
    world_close(&world);
}

TEST(losses_of_one_side_only)
{
    CHECK_INT(judge_losses(PAIRS, loss_equal), EXIT_CODE_PASS);
    world_sql(&world, "DELETE FROM loss WHERE launch_id = 4 AND step = 30"); // a step left out
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    world_sql(&world, "UPDATE launch SET dropped = 1 WHERE id = 4"); // or lost
    CHECK_INT(world_judge(&world), EXIT_CODE_PASS);
    world_sql(&world, "DELETE FROM loss WHERE launch_id % 2 = 0");
    CHECK_INT(world_judge(&world), EXIT_CODE_FAIL);
    CHECK_STR(world_text(&world, PARITY("rule", "loss")), "missing");
    world_close(&world);
}

// --- what the run loop asks ----------------------------------------------------------------------

static int pairs_wanted(void)
{
    struct run_facts run;
    struct error err = {0};
    int wanted = -1;
    CHECK_INT(run_facts_load(world.store, NULL, FACTS_CACHED, &run, &err), 0);
    struct parity_context context = {
            world.store, &run.workloads[0].facts, &run.gate, &run.plan->schedule};
    CHECK_INT(parity_pairs_wanted(&context, &wanted, &err), 0);
    run_facts_clear(&run);
    return wanted;
}

TEST(parity_asks_for_more_pairs)
{
    open_calibrated();
    add_loss_pairs(9, loss_reordered);
    CHECK_INT(pairs_wanted(), 0); // the cells ask for the first look themselves
    add_loss_pairs(1, loss_reordered);
    CHECK_INT(pairs_wanted(), 14);
    add_loss_pairs(2, loss_reordered);
    CHECK_INT(pairs_wanted(), 14); // between looks nothing is decided anew
    add_loss_pairs(16, loss_equal);
    CHECK_INT(pairs_wanted(), 0); // the last look was the last one
    world_close(&world);
    open_calibrated();
    add_loss_pairs(PAIRS, loss_equal);
    CHECK_INT(pairs_wanted(), 0);
    world_close(&world);
    open_calibrated();
    add_loss_pairs(PAIRS, loss_five_pct);
    CHECK_INT(pairs_wanted(), 0);
    world_close(&world);
}

static struct parity_launches launches_wanted(void)
{
    struct parity_launches launches;
    struct error err = {0};
    CHECK_INT(parity_launches_wanted(world.store, 1, &launches, &err), 0);
    return launches;
}

TEST(launches_of_the_baseline_alone)
{
    open_calibrated();
    add_pairs(0, 0);
    struct parity_launches got = launches_wanted();
    CHECK(!got.wants_anchor && !got.wants_repeat); // equal bits need no yardstick
    replace(3, 1e-3, NULL);
    got = launches_wanted();
    CHECK(got.wants_anchor && got.wants_repeat);
    CHECK_INT(got.anchor_seed, 3);
    CHECK_INT(got.repeat_seed, 3);
    CHECK_INT(got.anchor_steps, PARITY_ANCHOR_STEPS);
    add_anchor(3);
    CHECK(!launches_wanted().wants_anchor);
    add_output(add_alone("pilot", 3), 0); // repeats itself to the last bit: once is enough
    replace(4, 1e-3, NULL);
    CHECK(!launches_wanted().wants_repeat);
    world_close(&world);
    open_calibrated();
    add_pairs(1e-3, 1e-3);
    for (int seed = 1; seed <= PARITY_REPEATS_MAX; seed++) {
        got = launches_wanted();
        CHECK(got.wants_repeat);
        CHECK_INT(got.repeat_seed, seed);
        add_output(add_alone("pilot", seed), 1e-3);
    }
    CHECK(!launches_wanted().wants_repeat);
    world_close(&world);
}

// What differs by digest only is told by no launch.
TEST(no_launch_for_outputs_without_values)
{
    add_late(0, "last", true);
    struct parity_launches got = launches_wanted();
    CHECK(!got.wants_anchor && !got.wants_repeat);
    replace(6, 1e-3, NULL);
    got = launches_wanted();
    CHECK(got.wants_anchor && got.wants_repeat);
    world_close(&world);
}
