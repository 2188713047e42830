// SPDX-License-Identifier: Apache-2.0
// The parity rules over decoded values. The fp64-anchored rule and its factors follow
// torch._dynamo.utils.same(); the tolerances are torch.testing's.
#include "reports/analyse/parity.h"

#include <math.h>

static const double parity_tolerance =
    1e-4; // of the anchored rule: allclose passes, a tenth is added to the limit
static const double parity_cosine_min = 0.99;

double parity_factor(double factor, enum dtype dtype, size_t count)
{
    double scale = 1; // of the default 2: 3, 8 and 10 as in same()
    if (dtype == DTYPE_F16 || dtype == DTYPE_BF16 || count < 1000)
        scale = 1.5;
    if (count <= 10)
        scale = 5;
    else if (count <= 500)
        scale = 4;
    return factor * scale;
}

double parity_rmse(const double *left, const double *right, size_t count)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(left[i]) || !isfinite(right[i]))
            continue;
        sum += (left[i] - right[i]) * (left[i] - right[i]);
        used++;
    }
    return used ? sqrt(sum / (double)used) : NAN;
}

static bool parity_allclose(const struct parity_input *input, double relative, double absolute)
{
    for (size_t i = 0; i < input->count; i++) {
        double a = input->a[i], b = input->b[i];
        if (a != b && !(fabs(a - b) <= absolute + relative * fabs(a)))
            return false;
    }
    return true;
}

static double parity_cosine(const struct parity_input *input)
{
    double dot = 0, square_a = 0, square_b = 0;
    for (size_t i = 0; i < input->count; i++) {
        double a = input->a[i], b = input->b[i];
        if (!isfinite(a) || !isfinite(b))
            continue;
        dot += a * b;
        square_a += a * a;
        square_b += b * b;
    }
    return square_a > 0 && square_b > 0 ? dot / sqrt(square_a * square_b) : NAN;
}

// NaN and Inf decide before any norm does. A mask of -inf at the same places on both sides is
// equal.
static bool parity_finite(const struct parity_input *input, struct parity_result *result)
{
    bool broken = false;
    for (size_t i = 0; i < input->count; i++) {
        double a = input->a[i], b = input->b[i];
        result->has_nan_a = result->has_nan_a || isnan(a);
        result->has_nan_b = result->has_nan_b || isnan(b);
        result->unequal += a != b; // NaN is unequal to itself
        broken = broken || (isfinite(a) && !isfinite(b)) || (isinf(a) && b != a);
    }
    if (!broken && !result->has_nan_a)
        return true;
    result->rule = PARITY_RULE_FINITE;
    // A baseline that yields NaN is no measure for anybody.
    result->state = result->has_nan_a ? PARITY_INCONCLUSIVE : PARITY_FAIL;
    return false;
}

static double parity_mismatches(const double *left, const double *right, size_t count)
{
    size_t unequal = 0;
    for (size_t i = 0; i < count; i++)
        unequal += left[i] != right[i];
    return (double)unequal / (double)count;
}

static void parity_exact(const struct parity_input *input, struct parity_result *result)
{
    result->rule = PARITY_RULE_EXACT;
    result->limit = 0;
    if (input->anchor) { // e.g. arg max: rounding flips a few, in the baseline as well
        result->error_a = parity_mismatches(input->anchor, input->a, input->count);
        result->error_b = parity_mismatches(input->anchor, input->b, input->count);
        result->limit = parity_factor(input->factor, input->dtype, input->count) * result->error_a;
    } else {
        result->error_b = parity_mismatches(input->a, input->b, input->count);
    }
    result->state = result->error_b <= result->limit ? PARITY_PASS : PARITY_FAIL;
}

static void parity_anchored(const struct parity_input *input, struct parity_result *result)
{
    result->rule = PARITY_RULE_FP64_ANCHORED;
    result->error_a = parity_rmse(input->anchor, input->a, input->count);
    result->error_b = parity_rmse(input->anchor, input->b, input->count);
    result->limit = parity_factor(input->factor, input->dtype, input->count) * result->error_a +
                    parity_tolerance / 10;
    if (parity_allclose(input, parity_tolerance, parity_tolerance) ||
        result->error_b <= result->limit)
        result->state = PARITY_PASS;
    else
        result->state = PARITY_FAIL;
}

// Outside the tolerances without an anchor: rounding or a defect? Only a gross difference is sure.
static void parity_tolerances(const struct parity_input *input, struct parity_result *result)
{
    double relative, absolute;
    dtype_tolerance(input->dtype, &relative, &absolute);
    result->error_b = parity_rmse(input->a, input->b, input->count);
    result->rule = PARITY_RULE_TORCH_TESTING;
    result->state = PARITY_PASS;
    if (parity_allclose(input, relative, absolute))
        return;
    if (input->spread > 0) {
        result->rule = PARITY_RULE_BASELINE_SPREAD;
        result->limit = parity_factor(input->factor, input->dtype, input->count) * input->spread;
        if (result->error_b <= result->limit)
            return;
    }
    result->state = result->cosine < parity_cosine_min ? PARITY_FAIL : PARITY_INCONCLUSIVE;
}

struct parity_result parity_compare(const struct parity_input *input)
{
    struct parity_result result = {
        .state = PARITY_PASS,
        .rule = PARITY_RULE_BITWISE,
        .error_a = NAN,
        .error_b = NAN,
        .limit = NAN,
        .cosine = NAN,
    };
    if (input->count == 0) {
        result.state = PARITY_INCONCLUSIVE;
        return result;
    }
    if (!parity_finite(input, &result))
        return result;
    result.cosine = parity_cosine(input);
    if (result.unequal == 0) {
        result.error_b = 0;
        if (input->anchor)
            result.error_a = result.error_b = parity_rmse(input->anchor, input->a, input->count);
        return result;
    }
    if (!dtype_is_float(input->dtype))
        parity_exact(input, &result);
    else if (input->anchor)
        parity_anchored(input, &result);
    else
        parity_tolerances(input, &result);
    return result;
}

const char *parity_rule_name(enum parity_rule rule)
{
    static const char *const names[PARITY_RULE_COUNT] = {
        [PARITY_RULE_BITWISE] = "bitwise",
        [PARITY_RULE_FP64_ANCHORED] = "fp64-anchored",
        [PARITY_RULE_BASELINE_SPREAD] = "baseline-spread",
        [PARITY_RULE_TORCH_TESTING] = "torch-testing",
        [PARITY_RULE_EXACT] = "exact",
        [PARITY_RULE_FINITE] = "finite",
    };
    return rule < PARITY_RULE_COUNT ? names[rule] : "unknown";
}
