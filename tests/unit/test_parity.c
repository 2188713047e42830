// SPDX-License-Identifier: Apache-2.0
// Parity rules of floats, integers and sampled outputs, element types, loss curves: what is wrong
// fails at every magnitude, and what rounds differently passes.
#include "reports/analyse/parity.h"

#include "reports/analyse/curve.h"
#include "reports/analyse/mismatch.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/random.h"
#include "reports/analyse/sampled.h"
#include "reports/analyse/sketch.h"
#include "tests/unit/runner.h"

enum { COUNT = 2000 };
static double anchor[COUNT], a[COUNT], b[COUNT];
static double scale = 10; // of the values

static void tensors_make(double noise_a, double noise_b)
{
    struct random_state random = {17};
    for (int i = 0; i < COUNT; i++) {
        anchor[i] = scale * random_normal(&random);
        a[i] = anchor[i] + noise_a * random_normal(&random);
        b[i] = anchor[i] + noise_b * random_normal(&random);
    }
}

static struct parity_result compare_as(const double *truth, enum dtype dtype,
        struct parity_yardstick rounding, struct parity_yardstick repeat)
{
    struct parity_input input = {.a = a,
            .b = b,
            .anchor = truth,
            .count = COUNT,
            .dtype = dtype,
            .factor = 2,
            .rounding = rounding,
            .repeat = repeat};
    return parity_compare(&input);
}

static const struct parity_yardstick unknown;

static struct parity_result compare(const double *truth)
{
    return compare_as(truth, DTYPE_F32, unknown, unknown);
}

// What the baseline of another seed is off by.
static struct parity_yardstick yardstick_of(double noise)
{
    struct parity_yardstick yardstick = {0};
    struct random_state random = {99};
    double truth[COUNT], values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        truth[i] = scale * random_normal(&random);
        values[i] = truth[i] + noise * random_normal(&random);
    }
    struct parity_error error = parity_distance(truth, values, COUNT, parity_rms(truth, COUNT));
    parity_yardstick_add(&yardstick, &error);
    return yardstick;
}

TEST(half_precision_values)
{
    static const unsigned short f16[8] = {
            0x3C00, 0xC000, 0x7BFF, 0x0001, 0x0400, 0x3555, 0x8000, 0x7C00};
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
    struct parity_result got = compare(anchor);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_FP64_ANCHORED);
    CHECK_DBL(got.error_a.all, 1e-3, 1e-4); // of the rms
    CHECK(got.error_a.element > got.error_a.chunk && got.error_a.chunk > got.error_a.all);
    CHECK(got.cosine > 0.999);
    tensors_make(1e-2, 3e-2);
    got = compare(anchor);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK(got.error_b.all > got.limit.all && got.used > 1);
    tensors_make(1e-6, 1e-5); // ten times worse, but both are exact for every purpose
    CHECK_INT(compare(anchor).state, PARITY_PASS);
    tensors_make(3e-2, 1e-2); // better than the baseline
    CHECK_INT(compare(anchor).state, PARITY_PASS);
}

TEST(zeros_fail_at_every_magnitude)
{
    static const double scales[] = {1e-30, 2e-5, 1, 1e20}; // 2e-5: softmax over 50,000 classes
    for (int i = 0; i < 4; i++) {
        scale = scales[i];
        tensors_make(1e-6 * scale, 1e-6 * scale);
        CHECK_INT(compare(anchor).state, PARITY_PASS);
        for (int k = 0; k < COUNT; k++)
            b[k] = 0;
        CHECK_INT(compare(anchor).state, PARITY_FAIL);
        CHECK_INT(compare(NULL).state, PARITY_FAIL);
        CHECK_INT(compare_as(NULL, DTYPE_F32, yardstick_of(1e-6 * scale), unknown).state,
                PARITY_FAIL);
        CHECK_DBL(compare(NULL).cosine, 0, 0);
    }
    scale = 10;
    for (int k = 0; k < COUNT; k++)
        a[k] = 0, b[k] = 1e-12 * k; // a zero that is none any more
    CHECK_INT(compare(NULL).state, PARITY_FAIL);
}

// A row of 64 of 2,000 values drowns in the rms of the whole once rounding is coarse.
TEST(one_wrong_row)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    static const double noise[] = {1e-6, 3e-2}; // of values with an rms of 10
    for (int i = 0; i < 2; i++) {
        tensors_make(noise[i], noise[i]);
        CHECK_INT(compare_as(anchor, types[i], unknown, unknown).state, PARITY_PASS);
        CHECK_INT(compare_as(NULL, types[i], yardstick_of(noise[i]), unknown).state, PARITY_PASS);
        for (int k = 640; k < 704; k++)
            b[k] = -b[k];
        struct parity_result got = compare_as(anchor, types[i], unknown, unknown);
        CHECK_INT(got.state, PARITY_FAIL);
        CHECK(got.worst >= 640 && got.worst < 704);
        CHECK_INT(compare_as(NULL, types[i], yardstick_of(noise[i]), unknown).state, PARITY_FAIL);
        CHECK_INT(compare_as(NULL, types[i], unknown, unknown).state, PARITY_FAIL);
        tensors_make(noise[i], noise[i]);
        b[77] += 20; // one sample whose output is one value
        CHECK_INT(compare_as(anchor, types[i], unknown, unknown).state, PARITY_FAIL);
        CHECK_INT(compare_as(NULL, types[i], yardstick_of(noise[i]), unknown).state, PARITY_FAIL);
        CHECK_INT(compare_as(NULL, types[i], unknown, unknown).state, PARITY_FAIL);
    }
}

// A row that is a little off on each of its values: neither the whole nor one value says so.
TEST(a_row_that_is_a_little_off)
{
    tensors_make(3e-2, 3e-2);
    for (int k = 640; k < 704; k++)
        b[k] += k % 2 ? 0.4 : -0.4; // 4 % of the rms: 0.7 % of the whole tensor, which may be 0.9 %
    struct parity_result got = compare_as(anchor, DTYPE_BF16, unknown, unknown);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK(got.error_b.all < got.limit.all && got.error_b.element < got.limit.element);
    CHECK(got.error_b.chunk > got.limit.chunk);
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
    struct parity_result got = compare(NULL);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_BITWISE);
    for (int i = 0; i < COUNT; i++)
        b[i] = a[i] * (1 + 1e-6);
    got = compare(NULL);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_TORCH_TESTING);
    tensors_make(0, 5e-3);
    CHECK_INT(compare(NULL).state, PARITY_INCONCLUSIVE); // rounding or defect: nobody can tell
    got = compare_as(NULL, DTYPE_F32, unknown, yardstick_of(3e-3));
    CHECK_INT(got.state, PARITY_PASS); // the baseline differs from itself as much
    CHECK_INT(got.rule, PARITY_RULE_BASELINE_SPREAD);
    got = compare_as(NULL, DTYPE_F32, yardstick_of(3e-3), unknown);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_FP64_ANCHORED);
    CHECK_INT(compare_as(NULL, DTYPE_F32, unknown, yardstick_of(1e-4)).state, PARITY_FAIL);
    // A baseline that repeats itself to the last bit says nothing about rounding.
    CHECK_INT(compare_as(NULL, DTYPE_F32, unknown, yardstick_of(0)).state, PARITY_INCONCLUSIVE);
    tensors_make(0, 20);
    CHECK_INT(compare(NULL).state, PARITY_FAIL);
}

TEST(a_limit_that_zeros_would_keep_judges_nothing)
{
    tensors_make(8, 8);
    struct parity_result got = compare_as(anchor, DTYPE_BF16, unknown, unknown);
    CHECK_INT(got.state, PARITY_INCONCLUSIVE);
    CHECK(got.vague);
    tensors_make(1, 1);
    got = compare_as(NULL, DTYPE_F32, unknown, yardstick_of(8));
    CHECK_INT(got.state, PARITY_INCONCLUSIVE);
    CHECK(got.vague);
}

TEST(training_drifts_and_defects_strike)
{
    struct parity_input input = {
            .a = a, .b = b, .count = COUNT, .dtype = DTYPE_F32, .factor = 2, .drift_max = 5};
    tensors_make(0, 3); // everywhere alike, and it was there a step ago
    CHECK(parity_compare(&input).cosine < 0.99);
    CHECK_INT(parity_compare(&input).state, PARITY_INCONCLUSIVE);
    input.drift_max = 0.01;
    CHECK_INT(parity_compare(&input).state, PARITY_FAIL);
    input.drift_max = 5;
    tensors_make(0, 1e-4);
    for (int k = 640; k < 704; k++)
        b[k] = -b[k];
    CHECK_INT(parity_compare(&input).state, PARITY_FAIL); // few values, all at once
}

// Two results that are wrong nowhere: rounding to the type, sums in another order, both with the
// baseline as far off. 200 tensors each; the yardsticks come from another seed.
static void round_to(double *values, enum dtype dtype, struct random_state *random)
{
    int bits = dtype == DTYPE_F32 ? 23 : dtype == DTYPE_F16 ? 10 : 7;
    for (int i = 0; i < COUNT; i++) {
        int exponent;
        double fraction = frexp(values[i], &exponent);
        double step = ldexp(1, -bits - 1);
        // Half a step of the last operation, and the noise of those before.
        values[i] = ldexp((round(fraction / step) + random_normal(random)) * step, exponent);
    }
}

static void reorder(double *values, struct random_state *random)
{
    for (int i = 0; i < COUNT; i++) { // a sum of 64 floats, from another end each time
        float sum = 0;
        double rest = values[i];
        int from = (int)(64 * random_uniform(random));
        for (int k = 0; k < 64; k++)
            sum += (float)(rest / 64 + ((from + k) % 64 - 31.5));
        values[i] = sum;
    }
}

static int false_alarms(enum dtype dtype, bool sums, bool anchored)
{
    int alarms = 0;
    struct random_state random = {5};
    struct parity_yardstick rounding = {0};
    for (int trial = 0; trial < 208; trial++) {
        for (int i = 0; i < COUNT; i++)
            a[i] = b[i] = anchor[i] = random_normal(&random) * exp(random_normal(&random));
        if (sums) {
            reorder(a, &random);
            reorder(b, &random);
        } else {
            round_to(a, dtype, &random);
            round_to(b, dtype, &random);
        }
        if (trial < 8) {
            struct parity_error error =
                    parity_distance(anchor, a, COUNT, parity_rms(anchor, COUNT));
            parity_yardstick_add(&rounding, &error);
            continue;
        }
        alarms +=
                compare_as(anchored ? anchor : NULL, dtype, rounding, unknown).state != PARITY_PASS;
    }
    return alarms;
}

TEST(rounding_of_every_kind_passes)
{
    for (int anchored = 0; anchored < 2; anchored++) {
        CHECK_INT(false_alarms(DTYPE_F32, false, anchored), 0);
        CHECK_INT(false_alarms(DTYPE_F16, false, anchored), 0);
        CHECK_INT(false_alarms(DTYPE_BF16, false, anchored), 0);
        CHECK_INT(false_alarms(DTYPE_F32, true, anchored), 0);
    }
}

TEST(nan_and_inf)
{
    tensors_make(0, 0);
    a[7] = b[7] = -INFINITY; // a mask
    CHECK_INT(compare(anchor).state, PARITY_PASS);
    b[9] = NAN;
    struct parity_result got = compare(anchor);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK_INT(got.rule, PARITY_RULE_FINITE);
    CHECK(got.has_nan_b && !got.has_nan_a);
    CHECK_INT(got.worst, 9);
    a[9] = NAN; // the baseline yields NaN as well: no measure
    CHECK_INT(compare(anchor).state, PARITY_INCONCLUSIVE);
    tensors_make(0, 0);
    b[0] = INFINITY;
    CHECK_INT(compare(NULL).state, PARITY_FAIL);
    tensors_make(0, 0);
    a[0] = INFINITY;
    CHECK_INT(compare(NULL).state, PARITY_FAIL);
}

// A float64 run that breaks is no fault of the candidate's, and no cover for it.
TEST(an_anchor_that_is_not_finite_is_none)
{
    tensors_make(1e-2, 1e-2);
    for (int i = 0; i < COUNT; i++)
        anchor[i] = NAN;
    struct parity_result got = compare(anchor);
    CHECK_INT(got.state, PARITY_INCONCLUSIVE);
    CHECK_INT(got.rule, PARITY_RULE_TORCH_TESTING);
    CHECK(got.anchor_broken);
    // by what other seeds say
    CHECK_INT(compare_as(anchor, DTYPE_F32, yardstick_of(1e-2), unknown).state, PARITY_PASS);
    for (int i = 0; i < COUNT; i++)
        b[i] = 0;
    CHECK_INT(compare(anchor).state, PARITY_FAIL);
    // Some of it only: where it is NaN the candidate is wrong.
    tensors_make(1e-4, 1e-4);
    anchor[7] = NAN;
    b[7] += 100;
    got = compare(anchor);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK(got.anchor_broken);
    // Where it is not, the candidate is further off than the baseline.
    tensors_make(1e-2, 5e-2);
    anchor[7] = NAN;
    got = compare(anchor);
    CHECK_INT(got.state, PARITY_FAIL);
    CHECK_INT(got.rule, PARITY_RULE_FP64_ANCHORED);
    // Where both sides are equal, or masked, it is not asked.
    tensors_make(1e-2, 1e-2);
    anchor[7] = a[7] = b[7] = -INFINITY;
    anchor[8] = NAN;
    b[8] = a[8];
    got = compare(anchor);
    CHECK_INT(got.state, PARITY_PASS);
    CHECK_INT(got.rule, PARITY_RULE_FP64_ANCHORED);
    CHECK(!got.anchor_broken);
}

TEST(nothing_compared_is_no_pass)
{
    struct parity_input input = {.a = a, .b = b, .count = 0, .dtype = DTYPE_F32, .factor = 2};
    CHECK_INT(parity_compare(&input).state, PARITY_INCONCLUSIVE);
}

// --- long tensors ---

enum { LONG = 50000 };
static double long_a[LONG], long_b[LONG], sums_a[SKETCH_SUMS], sums_b[SKETCH_SUMS];

static void sketch_of(const double *values, size_t piece, double *ret_sums)
{
    static struct sketch sketch;
    sketch_begin(&sketch, LONG);
    for (size_t at = 0; at < LONG; at += piece)
        sketch_add(&sketch, values + at, at + piece < LONG ? piece : LONG - at);
    sketch_end(&sketch, ret_sums);
}

TEST(a_sketch_keeps_distances)
{
    struct random_state random = {11};
    for (int i = 0; i < LONG; i++) {
        long_a[i] = 1 + random_normal(&random);
        long_b[i] = long_a[i] + 1e-3 * random_normal(&random);
    }
    sketch_of(long_a, LONG, sums_a);
    sketch_of(long_a, 1000, sums_b); // in pieces as the workload's bytes come
    for (int i = 0; i < SKETCH_SUMS; i++)
        CHECK(sums_a[i] == sums_b[i]);
    CHECK_DBL(parity_rms(sums_a, SKETCH_SUMS), sqrt(2), 0.1);
    sketch_of(long_b, LONG, sums_b);
    double unit = parity_rms(sums_a, SKETCH_SUMS);
    CHECK_DBL(parity_distance(sums_a, sums_b, SKETCH_SUMS, unit).all, 1e-3 / sqrt(2), 1e-4);
    for (int i = 40000; i < 40100; i++)
        long_b[i] = -long_b[i];
    sketch_of(long_b, LONG, sums_b);
    CHECK(parity_distance(sums_a, sums_b, SKETCH_SUMS, unit).element > 1);
    int far = 0;
    for (int i = 0; i < SKETCH_SUMS; i++)
        if (fabs(sums_a[i] - sums_b[i]) > 0.1) {
            CHECK(sketch_first((size_t)i + 1, LONG) > 40000 &&
                    sketch_first((size_t)i, LONG) < 40100);
            far++;
        }
    CHECK(far >= 6);
}

TEST(a_sketch_of_what_is_not_finite)
{
    for (int i = 0; i < LONG; i++)
        long_a[i] = i;
    long_a[7] = -INFINITY;
    long_a[40000] = NAN;
    sketch_of(long_a, LONG, sums_a);
    CHECK(sums_a[0] == -INFINITY);
    int nans = 0;
    for (int i = 0; i < SKETCH_SUMS; i++)
        nans += isnan(sums_a[i]);
    CHECK_INT(nans, 1);
    CHECK_INT(sketch_first(0, LONG), 0);
    CHECK_INT(sketch_first(SKETCH_SUMS, LONG), LONG);
}

// --- integers ---

static enum mismatch_state integers(long differ, int tensors, long differ_own, int tensors_own)
{
    struct mismatch_input input = {.factor = 3, .alpha = 0.0025};
    for (int i = 0; i < tensors; i++) // spread evenly, as rounding does
        mismatch_add(&input.sides, differ * (i + 1) / tensors - differ * i / tensors, 4000);
    for (int i = 0; i < tensors_own; i++)
        mismatch_add(&input.own, differ_own * (i + 1) / tensors_own - differ_own * i / tensors_own,
                4000);
    return mismatch_compare(&input).state;
}

TEST(integers_by_their_rate)
{
    CHECK_INT(integers(0, 80, 0, 0), MISMATCH_NONE);
    CHECK_INT(integers(1, 80, 0, 8), MISMATCH_WITHIN);  // one of 320,000
    CHECK_INT(integers(1, 80, 0, 0), MISMATCH_UNKNOWN); // nothing tells what rounding does
    CHECK_INT(integers(60, 80, 6, 8), MISMATCH_WITHIN); // as many as in the baseline
    CHECK_INT(integers(600, 80, 6, 8), MISMATCH_BEYOND);
    CHECK_INT(integers(320, 80, 0, 8), MISMATCH_BEYOND); // one of a thousand, everywhere
    CHECK_INT(integers(40000, 80, 0, 8), MISMATCH_GROSS);
    CHECK_INT(integers(40000, 80, 0, 0), MISMATCH_GROSS);
}

// Tokens of which the baseline's own differ in 40 %: three times as many are all of them.
TEST(integers_that_may_all_differ_are_not_judged)
{
    CHECK_INT(integers(320000, 80, 12800, 8), MISMATCH_VAGUE); // none is right
    CHECK_INT(integers(200000, 80, 12800, 8), MISMATCH_VAGUE);
    CHECK_INT(integers(128000, 80, 12800, 8), MISMATCH_WITHIN); // as many as of the baseline
    CHECK_INT(integers(320000, 80, 6400, 8), MISMATCH_GROSS);   // a limit of 0.6
}

// 80 tensors of 4,000 booleans, `differ` of each; 8 of the baseline's own differ in a fifth. Of any
// two, `unrelated` of 256 differ.
static enum mismatch_state booleans(int differ, int unrelated)
{
    struct mismatch_input input = {.factor = 3, .alpha = 0.0025};
    for (int i = 0; i < 80; i++) {
        mismatch_add(&input.sides, differ, 4000);
        mismatch_add_unrelated(&input.sides, unrelated, 256);
    }
    for (int i = 0; i < 8; i++)
        mismatch_add(&input.own, 800, 4000);
    return mismatch_compare(&input).state;
}

// Three times a fifth are more than differ by chance.
TEST(booleans_that_match_by_chance_are_not_judged)
{
    // of two balanced classes: none has anything to do with the baseline's
    CHECK_INT(booleans(2000, 128), MISMATCH_VAGUE);
    CHECK_INT(booleans(1100, 128), MISMATCH_VAGUE);
    CHECK_INT(booleans(800, 128), MISMATCH_WITHIN); // as many as of the baseline
    // four of five are the same: 32 % differ by chance
    CHECK_INT(booleans(1280, 82), MISMATCH_VAGUE);
    // many classes: half are right, which no chance explains
    CHECK_INT(booleans(2000, 255), MISMATCH_WITHIN);
}

TEST(a_wrong_tensor_of_integers_does_not_drown)
{
    struct mismatch_input input = {.factor = 3, .alpha = 0.0025};
    for (int i = 0; i < 80; i++)
        mismatch_add(&input.sides, i == 33 ? 200 : 0, 4000);
    for (int i = 0; i < 8; i++)
        mismatch_add(&input.own, 1, 4000);
    CHECK_INT(mismatch_compare(&input).state, MISMATCH_GROSS);
    // The baseline's own tokens part as widely, once one has flipped.
    mismatch_add(&input.own, 900, 4000);
    CHECK(mismatch_compare(&input).state != MISMATCH_GROSS);
}

TEST(integers_seldom_fail_falsely)
{
    struct random_state random = {3};
    int beyond = 0, within = 0;
    for (int trial = 0; trial < 400; trial++) {
        struct mismatch_input input = {.factor = 3, .alpha = 0.01};
        for (int i = 0; i < 88; i++) {
            long differ = 0;
            for (int k = 0; k < 1000; k++)
                differ += random_uniform(&random) < (i < 80 ? 2e-3 : 1e-3); // both sides flip
            mismatch_add(i < 80 ? &input.sides : &input.own, differ, 1000);
        }
        enum mismatch_state state = mismatch_compare(&input).state;
        beyond += state == MISMATCH_BEYOND || state == MISMATCH_GROSS;
        within += state == MISMATCH_WITHIN;
    }
    CHECK(beyond <= 4);
    CHECK(within >= 300);
}

// --- sampled outputs ---

TEST(distance_of_distributions)
{
    static const double left[] = {1, 2, 3, 4}, right[] = {1, 2, 3, 4}, other[] = {3, 4, 5, 6};
    CHECK_DBL(sampled_distance(left, 4, right, 4), 0, 0);
    CHECK_DBL(sampled_distance(left, 4, other, 4), 0.5, 1e-12);
    static const double tokens[] = {7, 7, 7, 7}, more[] = {7, 7, 9, 9};
    CHECK_DBL(sampled_distance(tokens, 4, more, 4), 0.5, 1e-12);
    CHECK(isnan(sampled_distance(tokens, 4, more, 0)));
    CHECK_DBL(sampled_log_ratio(0, 0, 4), 0, 0);
    CHECK_DBL(sampled_log_ratio(0.5, 0.25, 100), log(2), 1e-12);
}

// --- loss curves ---

enum { PAIRS = 28, STEPS = 100 };
static double loss_a[PAIRS][STEPS], loss_b[PAIRS][STEPS], loss_c[PAIRS][STEPS];

// Seeds differ by 20 %; noise_a is of the baseline's two launches, noise_b of the candidate's.
static void curves_make(double noise_a, double noise_b, double shift, uint64_t seed)
{
    struct random_state random = {seed};
    for (int s = 0; s < PAIRS; s++) {
        double of_seed = 1 + 0.2 * random_normal(&random);
        for (int t = 0; t < STEPS; t++) {
            double loss = of_seed * (0.2 + 0.5 * exp(-t / 20.0));
            loss_a[s][t] = loss * (1 + noise_a * random_normal(&random));
            loss_c[s][t] = loss * (1 + noise_a * random_normal(&random));
            loss_b[s][t] = loss * (1 + shift) * (1 + noise_b * random_normal(&random));
        }
    }
}

static struct curve_result curves_of(int count, int repeats, enum curve_part part)
{
    static struct curve_pair pairs[PAIRS], again[PAIRS];
    for (int s = 0; s < PAIRS; s++) {
        pairs[s] = (struct curve_pair){loss_a[s], loss_b[s], STEPS};
        again[s] = (struct curve_pair){loss_a[s], loss_c[s], STEPS};
    }
    struct curve_input input = {.pairs = pairs,
            .repeats = again,
            .pair_count = count,
            .repeat_count = repeats,
            .steps = STEPS,
            .margin = 0.01,
            .alpha = 0.0025,
            .factor = 10};
    return curve_compare(&input, part);
}

TEST(curves_of_pairs)
{
    curves_make(0, 0, 0, 1);
    CHECK_INT(curves_of(10, 1, CURVE_WHOLE).state, CURVE_EQUAL);
    curves_make(0, 1e-6, 0, 1);
    CHECK_INT(curves_of(10, 1, CURVE_WHOLE).state, CURVE_WITHIN);
    CHECK_INT(curves_of(10, 1, CURVE_FINAL).state, CURVE_WITHIN);
    CHECK_INT(curves_of(5, 1, CURVE_WHOLE).state, CURVE_OPEN); // no interval from five
    curves_make(0, 1e-6, 0.05, 1);                             // a quarter of what seeds differ by
    CHECK_INT(curves_of(10, 1, CURVE_WHOLE).state, CURVE_SHIFTED);
    CHECK_DBL(curves_of(10, 1, CURVE_WHOLE).window.interval.estimate, 0.05, 1e-4);
    curves_make(0, 1e-6, -0.05, 1); // too good is wrong too
    CHECK_INT(curves_of(10, 1, CURVE_WHOLE).state, CURVE_SHIFTED);
}

// 3 % on every step, without a sign: a pass, with more pairs where ten do not suffice.
TEST(noise_without_a_sign_is_settled)
{
    int first = 0, settled = 0, shifted = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        curves_make(0.03, 0.03, 0, seed);
        enum curve_state states[] = {
                curves_of(10, 1, CURVE_WHOLE).state, curves_of(28, 4, CURVE_WHOLE).state};
        first += states[0] == CURVE_WITHIN;
        settled += states[1] == CURVE_WITHIN;
        shifted += states[0] == CURVE_SHIFTED || states[1] == CURVE_SHIFTED;
    }
    CHECK_INT(shifted, 0);
    CHECK(settled >= 95);
    CHECK(first < settled);
}

TEST(noise_does_not_hide_a_shift)
{
    int shifted = 0, within = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        curves_make(0.03, 0.03, 0.05, seed);
        shifted += curves_of(28, 4, CURVE_WHOLE).state == CURVE_SHIFTED;
        within += curves_of(10, 4, CURVE_WHOLE).state == CURVE_WITHIN;
    }
    CHECK(shifted >= 95);
    CHECK_INT(within, 0);
}

TEST(a_baseline_that_does_not_repeat_itself_widens_the_margin)
{
    struct random_state random = {9};
    curves_make(0, 0, 0, 1);
    for (int s = 0; s < PAIRS; s++) { // launches as a whole are 3 % apart
        double of_b = 0.03 * random_normal(&random), of_c = 0.03 * random_normal(&random);
        for (int t = 0; t < STEPS; t++) {
            loss_b[s][t] *= 1 + of_b;
            loss_c[s][t] *= 1 + of_c;
        }
    }
    CHECK_INT(curves_of(28, 0, CURVE_WHOLE).state, CURVE_OPEN);
    struct curve_result got = curves_of(28, 4, CURVE_WHOLE);
    CHECK_INT(got.state, CURVE_WITHIN);
    CHECK(got.window.noise > 0.01 && got.window.margin == got.window.noise);
}

TEST(curves_off_in_a_part_only)
{
    curves_make(0, 1e-6, 0, 1);
    for (int s = 0; s < PAIRS; s++)
        for (int t = 80; t < STEPS; t++)
            loss_b[s][t] *= 1.05;
    CHECK_INT(curves_of(14, 1, CURVE_WHOLE).state, CURVE_SHIFTED); // of a quarter
    CHECK_INT(curves_of(10, 1, CURVE_FINAL).state, CURVE_SHIFTED);
    CHECK(curves_of(10, 1, CURVE_WHOLE).state != CURVE_WITHIN);
    curves_make(0, 1e-6, 0, 1);
    for (int t = 30; t < STEPS; t++)
        loss_b[4][t] *= 1.5; // one launch of many
    struct curve_result got = curves_of(14, 1, CURVE_WHOLE);
    CHECK_INT(got.state, CURVE_ASTRAY);
    CHECK_INT(got.window.furthest_pair, 4);
}

TEST(a_loss_near_zero_has_no_ratio)
{
    double near_a[STEPS], near_b[STEPS];
    for (int t = 0; t < STEPS; t++) {
        near_a[t] = 2 * exp(-t / 8.0);
        near_b[t] = near_a[t] + 1e-6;
    }
    struct curve_pair pair = {near_a, near_b, STEPS};
    CHECK(fabs(curve_shift(&pair, 90, 100)) < 1e-5);
    near_a[0] = 0;
    for (int t = 0; t < STEPS; t++)
        near_a[t] = 0;
    CHECK_DBL(curve_shift(&pair, 0, 100), 1, 0); // finite
}

TEST(what_a_reference_s_own_repetition_allows)
{
    CHECK_DBL(parity_spread_limit(0, NAN), 1e-3, 0);
    CHECK_DBL(parity_spread_limit(0, 1e-4), 1e-3, 0);
    CHECK_DBL(parity_spread_limit(0, 0.01), 0.02, 0);
    CHECK_DBL(parity_spread_limit(0.05, 0.01), 0.05, 0);
    CHECK(isinf(parity_spread_limit(0, INFINITY)));
}
