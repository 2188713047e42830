// SPDX-License-Identifier: Apache-2.0
// Parity rules, element types, loss tube.
#include "reports/analyse/parity.h"

#include "reports/analyse/random.h"
#include "reports/analyse/tube.h"
#include "tests/unit/runner.h"

enum { COUNT = 2000 };
static double anchor[COUNT], a[COUNT], b[COUNT];

static void tensors_make(double noise_a, double noise_b)
{
    struct random_state random = {17};
    for (int i = 0; i < COUNT; i++) {
        anchor[i] = 10 * random_normal(&random);
        a[i] = anchor[i] + noise_a * random_normal(&random);
        b[i] = anchor[i] + noise_b * random_normal(&random);
    }
}

static struct parity_result compare(const double *truth, double spread)
{
    struct parity_input input = {.a = a,
                                 .b = b,
                                 .anchor = truth,
                                 .count = COUNT,
                                 .dtype = DTYPE_F32,
                                 .factor = 2,
                                 .spread = spread};
    return parity_compare(&input);
}

TEST(half_precision_values)
{
    static const unsigned short f16[8] = {0x3C00, 0xC000, 0x7BFF, 0x0001,
                                          0x0400, 0x3555, 0x8000, 0x7C00};
    static const double want[8] = {
        1, -2, 65504, 5.960464477539063e-08, 6.103515625e-05, 0.333251953125, -0.0, INFINITY};
    double got[8];
    dtype_decode(DTYPE_F16, f16, 8, got);
    for (int i = 0; i < 8; i++)
        CHECK(got[i] == want[i] && signbit(got[i]) == signbit(want[i]));
    static const unsigned short nan16 = 0x7E01, bf16[3] = {0x3F80, 0xC049, 0x7FC0};
    dtype_decode(DTYPE_F16, &nan16, 1, got);
    CHECK(isnan(got[0]));
    dtype_decode(DTYPE_BF16, bf16, 3, got);
    CHECK_DBL(got[0], 1, 0);
    CHECK_DBL(got[1], -3.140625, 0);
    CHECK(isnan(got[2]));
}

TEST(other_element_types)
{
    double got[2];
    static const int i32[2] = {-7, 2147483647};
    static const signed char i8[2] = {-128, 5};
    static const unsigned char flags[2] = {0, 255};
    dtype_decode(DTYPE_I32, i32, 2, got);
    CHECK(got[0] == -7 && got[1] == 2147483647);
    dtype_decode(DTYPE_I8, i8, 2, got);
    CHECK(got[0] == -128 && got[1] == 5);
    dtype_decode(DTYPE_BOOL, flags, 2, got);
    CHECK(got[0] == 0 && got[1] == 1);
    CHECK_INT(dtype_from_name("bf16"), DTYPE_BF16);
    CHECK_INT(dtype_from_name("c128"), DTYPE_COUNT);
    CHECK_INT(dtype_bytes(DTYPE_COUNT), 0);
    CHECK_STR(dtype_name(DTYPE_U8), "u8");
}

TEST(anchored_rule)
{
    tensors_make(1e-2, 1e-2); // equally far from float64, though far from each other
    struct parity_result got = compare(anchor, NAN);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_FP64_ANCHORED);
    CHECK_DBL(got.error_a, 1e-2, 1e-3);
    CHECK(got.cosine > 0.999);
    tensors_make(1e-2, 3e-2);
    got = compare(anchor, NAN);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK(got.error_b > got.limit);
    tensors_make(1e-7, 1e-6); // ten times worse, but both are exact for every purpose
    CHECK_INT(compare(anchor, NAN).state, PARITY_PASS);
    tensors_make(3e-2, 1e-2); // better than the baseline
    CHECK_INT(compare(anchor, NAN).state, PARITY_PASS);
}

TEST(factor_by_type_and_size)
{
    CHECK_DBL(parity_factor(2, DTYPE_F32, 1000), 2, 0);
    CHECK_DBL(parity_factor(2, DTYPE_F32, 999), 3, 0);
    CHECK_DBL(parity_factor(2, DTYPE_BF16, 100000), 3, 0);
    CHECK_DBL(parity_factor(2, DTYPE_F32, 500), 8, 0);
    CHECK_DBL(parity_factor(2, DTYPE_F32, 10), 10, 0);
}

TEST(without_an_anchor)
{
    tensors_make(0, 0);
    struct parity_result got = compare(NULL, NAN);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_BITWISE);
    for (int i = 0; i < COUNT; i++)
        b[i] = a[i] * (1 + 1e-6);
    got = compare(NULL, NAN);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_TORCH_TESTING);
    tensors_make(0, 1e-3);
    CHECK_INT(compare(NULL, NAN).state, PARITY_INCONCLUSIVE); // rounding or defect: nobody can tell
    got = compare(NULL, 6e-4);
    CHECK_INT(got.state, PARITY_PASS); // the baseline differs from itself as much
    CHECK_INT(got.rule, PARITY_RULE_BASELINE_SPREAD);
    CHECK_INT(compare(NULL, 1e-4).state, PARITY_INCONCLUSIVE);
    tensors_make(0, 20);
    CHECK_INT(compare(NULL, NAN).state, PARITY_FAIL);
}

TEST(nan_and_inf)
{
    tensors_make(0, 0);
    a[7] = b[7] = -INFINITY; // a mask
    CHECK_INT(compare(anchor, NAN).state, PARITY_PASS);
    b[9] = NAN;
    struct parity_result got = compare(anchor, NAN);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK_INT(got.rule, PARITY_RULE_FINITE);
    CHECK(got.has_nan_b && !got.has_nan_a);
    a[9] = NAN; // the baseline yields NaN as well: no measure
    CHECK_INT(compare(anchor, NAN).state, PARITY_INCONCLUSIVE);
    tensors_make(0, 0);
    b[0] = INFINITY;
    CHECK_INT(compare(NULL, NAN).state, PARITY_FAIL);
    tensors_make(0, 0);
    a[0] = INFINITY;
    CHECK_INT(compare(NULL, NAN).state, PARITY_FAIL);
}

TEST(integers_are_exact_unless_the_baseline_flips_too)
{
    double ids_a[1000], ids_b[1000], truth[1000];
    for (int i = 0; i < 1000; i++)
        ids_a[i] = ids_b[i] = truth[i] = i;
    struct parity_input input = {
        .a = ids_a, .b = ids_b, .count = 1000, .dtype = DTYPE_I64, .factor = 2};
    CHECK_INT(parity_compare(&input).rule, PARITY_RULE_BITWISE);
    ids_b[5] = 77;
    CHECK_INT(parity_compare(&input).state, PARITY_FAIL);
    CHECK_INT(parity_compare(&input).unequal, 1);
    input.anchor = truth;
    CHECK_INT(parity_compare(&input).state, PARITY_FAIL);
    ids_a[6] = 3;
    CHECK_INT(parity_compare(&input).state, PARITY_PASS);
}

TEST(nothing_compared_is_no_pass)
{
    struct parity_input input = {.a = a, .b = b, .count = 0, .dtype = DTYPE_F32, .factor = 2};
    CHECK_INT(parity_compare(&input).state, PARITY_INCONCLUSIVE);
}

// --- loss curves ---

enum { SEEDS = 8, STEPS = 100 };
static double loss_a[SEEDS * STEPS], loss_b[SEEDS * STEPS];

static void curves_make(double same_seed_noise, double lift)
{
    struct random_state random = {31};
    for (int s = 0; s < SEEDS; s++)
        for (int t = 0; t < STEPS; t++) {
            double loss = 0.2 + 0.5 * exp(-t / 20.0) + 0.01 * random_normal(&random);
            loss_a[s * STEPS + t] = loss;
            loss_b[s * STEPS + t] =
                loss + lift * t / STEPS + same_seed_noise * random_normal(&random);
        }
}

TEST(loss_tube)
{
    struct tube_input input = {loss_a, loss_b, SEEDS, STEPS};
    curves_make(1e-6, 0);
    struct tube_result got = tube_compare(&input);
    CHECK_INT(got.state, TUBE_INSIDE);
    CHECK(got.worst < 1);
    curves_make(0.014, 0); // diverged trajectories of the same training
    CHECK_INT(tube_compare(&input).state, TUBE_INSIDE);
    curves_make(1e-6, 0.2); // learns worse and worse
    got = tube_compare(&input);
    CHECK_INT(got.state, TUBE_OUTSIDE);
    CHECK(got.share_outside > 0.5);
    CHECK(got.worst_step > 40 && got.worst > 2);
    loss_b[3 * STEPS + 5] = NAN;
    CHECK_INT(tube_compare(&input).state, TUBE_NOT_FINITE_B);
    loss_a[3 * STEPS + 5] = INFINITY;
    CHECK_INT(tube_compare(&input).state, TUBE_NOT_FINITE_A);
}

TEST(few_seeds)
{
    struct tube_input input = {loss_a, loss_b, 3, STEPS};
    curves_make(0, 0);
    CHECK_INT(tube_compare(&input).state, TUBE_INSIDE); // equal needs no spread
    curves_make(0.014, 0);
    CHECK_INT(tube_compare(&input).state, TUBE_FEW_SEEDS);
    input.seed_count = 0;
    CHECK_INT(tube_compare(&input).state, TUBE_FEW_SEEDS);
}

TEST(final_loss)
{
    struct tube_input input = {loss_a, loss_b, SEEDS, STEPS};
    curves_make(0, 0.02); // 10 % of .2 at the end
    struct interval got = tube_final(&input, 0.01);
    CHECK(got.has_bounds);
    CHECK_DBL(got.estimate, 0.095, 0.01);
    CHECK(!tube_final(&(struct tube_input){loss_a, loss_b, 5, STEPS}, 0.01).has_bounds);
}
