// SPDX-License-Identifier: Apache-2.0
// The parity rules over decoded values. The fp64-anchored rule, its factors and its tolerance
// follow torch._dynamo.utils.same(), with the tolerance in units of the reference's rms; the
// tolerances by type are torch.testing's, their absolute part in the same units.
#include "reports/analyse/parity.h"

#include <math.h>

// same(): allclose at 1e-4 passes; a tenth of it is added to what the whole tensor may be off.
static const double parity_tolerance = 1e-4;
// same(): two results point the same way. Two vectors of one length with this cosine are
// sqrt(2 (1 - cosine)) = 0.14 of it apart: what a chunk that is off by more is called gross from.
static const double parity_cosine_min = 0.99;

// A plan's `parity.factor` when it says none. Of two results of the baseline either may be the far
// one.
static const double parity_spread_factor = 2;

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

double parity_rms(const double *values, size_t count)
{
    double sum = 0;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        sum += values[i] * values[i];
        used++;
    }
    return used ? sqrt(sum / (double)used) : 0;
}

static double parity_in_units(double error, double unit)
{
    return error == 0 ? 0 : unit > 0 ? error / unit : INFINITY;
}

struct parity_error parity_distance(
        const double *reference, const double *values, size_t count, double unit)
{
    double sum = 0, chunk_max = 0, element_max = 0;
    size_t used = 0, width = count < PARITY_CHUNK ? count : PARITY_CHUNK;
    for (size_t from = 0; from < count; from += PARITY_CHUNK) {
        size_t to = from + PARITY_CHUNK < count ? from + PARITY_CHUNK : count;
        double chunk = 0;
        for (size_t i = from; i < to; i++) {
            double difference = values[i] - reference[i];
            if (!isfinite(difference)) // a mask of -inf
                continue;
            chunk += difference * difference;
            element_max = fmax(element_max, fabs(difference));
            used++;
        }
        sum += chunk;
        chunk_max = fmax(chunk_max, chunk);
    }
    if (!used)
        return (struct parity_error){NAN, NAN, NAN};
    return (struct parity_error){parity_in_units(sqrt(sum / (double)used), unit),
            parity_in_units(sqrt(chunk_max / (double)width), unit),
            parity_in_units(element_max, unit)};
}

double parity_spread_limit(double tolerance, double repeat)
{
    double relative, absolute;
    dtype_tolerance(DTYPE_F16, &relative, &absolute);
    // fmax() leaves out a NaN
    return fmax(tolerance > 0 ? tolerance : relative, parity_spread_factor * repeat);
}

void parity_yardstick_add(struct parity_yardstick *yardstick, const struct parity_error *error)
{
    if (isnan(error->all))
        return;
    struct parity_error *max = &yardstick->error;
    bool first = yardstick->tensors++ == 0;
    max->all = first ? error->all : fmax(max->all, error->all);
    max->chunk = first ? error->chunk : fmax(max->chunk, error->chunk);
    max->element = first ? error->element : fmax(max->element, error->element);
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
    if (square_a > 0 && square_b > 0)
        return dot / (sqrt(square_a) * sqrt(square_b));
    return square_a > 0 || square_b > 0 ? 0 : NAN;
}

// NaN and Inf decide before any norm does. A mask of -inf at the same places on both sides is
// equal. Fills unequal and worst.
static bool parity_finite(const struct parity_input *input, struct parity_result *result)
{
    bool broken = false;
    double furthest = 0;
    for (size_t i = 0; i < input->count; i++) {
        double a = input->a[i], b = input->b[i];
        if (a == b)
            continue;
        double distance = fabs(a - b);
        result->has_nan_a = result->has_nan_a || isnan(a);
        result->has_nan_b = result->has_nan_b || isnan(b);
        result->unequal++; // NaN is unequal to itself
        if (!isfinite(distance) || distance > furthest) {
            furthest = isfinite(distance) ? distance : INFINITY;
            result->worst = i;
        }
        broken = broken || (isfinite(a) && !isfinite(b)) || isinf(a);
    }
    if (!broken && !result->has_nan_a)
        return true;
    result->rule = PARITY_RULE_FINITE;
    // A baseline that yields NaN is no measure for anybody.
    result->state = result->has_nan_a ? PARITY_INCONCLUSIVE : PARITY_FAIL;
    return false;
}

static double parity_share(double error, double limit)
{
    return error == 0 ? 0 : limit > 0 ? error / limit : INFINITY;
}

static void parity_hold(struct parity_result *result)
{
    const struct parity_error *error = &result->error_b, *limit = &result->limit;
    result->used = fmax(parity_share(error->all, limit->all),
            fmax(parity_share(error->chunk, limit->chunk),
                    parity_share(error->element, limit->element)));
    result->vague = limit->all >= 1; // zeros are one rms away
    result->state = result->used > 1 ? PARITY_FAIL
            : result->vague          ? PARITY_INCONCLUSIVE
                                     : PARITY_PASS;
}

// A float64 run that yields NaN or Inf where both sides are finite is no measure of how far they
// are off: what is left out there would be seen by nobody. Where they are equal nobody asks it.
static bool parity_anchor_broken(const struct parity_input *input)
{
    for (size_t i = 0; input->anchor && i < input->count; i++)
        if (input->a[i] != input->b[i] && isfinite(input->a[i]) && isfinite(input->b[i]) &&
                !isfinite(input->anchor[i]))
            return true;
    return false;
}

static void parity_anchored(const struct parity_input *input, struct parity_result *result)
{
    double unit = parity_rms(input->anchor, input->count);
    unit = unit > 0 ? unit : parity_rms(input->a, input->count);
    result->rule = PARITY_RULE_FP64_ANCHORED;
    struct parity_error a = parity_distance(input->anchor, input->a, input->count, unit);
    size_t width = input->count < PARITY_CHUNK ? input->count : PARITY_CHUNK;
    result->error_a = a;
    result->error_b = parity_distance(input->anchor, input->b, input->count, unit);
    result->limit =
            (struct parity_error){parity_factor(input->factor, input->dtype, input->count) * a.all +
                            parity_tolerance / 10,
                    parity_factor(input->factor, input->dtype, width) * a.chunk + parity_tolerance,
                    parity_factor(input->factor, input->dtype, 1) * a.element + parity_tolerance};
    parity_hold(result);
    if (parity_allclose(input, parity_tolerance, parity_tolerance * unit))
        result->state = PARITY_PASS;
}

// Few values are far off and most are not, which no drift explains: the worst chunk against those
// that are better than half.
static bool parity_concentrated(
        const struct parity_input *input, double unit, const struct parity_error *error)
{
    if (!(error->chunk >= sqrt(2 * (1 - parity_cosine_min))))
        return false;
    double quiet = error->chunk / parity_factor(input->factor, input->dtype, 1) * unit;
    size_t below = 0, chunks = 0;
    for (size_t from = 0; from < input->count; from += PARITY_CHUNK, chunks++) {
        size_t count = input->count - from < PARITY_CHUNK ? input->count - from : PARITY_CHUNK;
        below += parity_distance(input->a + from, input->b + from, count, 1).all <= quiet;
    }
    return 2 * below > chunks;
}

// Nothing tells how large rounding is. Outside the tolerances: rounding or a defect? Only a gross
// difference is sure.
static void parity_tolerances(
        const struct parity_input *input, double unit, struct parity_result *result)
{
    double relative, absolute;
    dtype_tolerance(input->dtype, &relative, &absolute);
    result->rule = PARITY_RULE_TORCH_TESTING;
    if (parity_allclose(input, relative, absolute * unit))
        result->state = PARITY_PASS;
    else if (parity_concentrated(input, unit, &result->error_b) ||
            (result->cosine < parity_cosine_min && result->error_b.all > input->drift_max))
        result->state = PARITY_FAIL;
    else
        result->state = PARITY_INCONCLUSIVE;
}

static double parity_wider(double left, double right, double floor)
{
    return fmax(isnan(left) ? 0 : left, isnan(right) ? 0 : right) + floor;
}

// Another seed than the anchor's. Both sides may be off by as much as the baseline was there, the
// candidate by the factor more: together 1 + factor. Few tensors tell that: the factor of few.
static void parity_without_anchor(const struct parity_input *input, struct parity_result *result)
{
    double unit = parity_rms(input->a, input->count);
    double of_rounding = 0, of_repeat = 0;
    result->error_b = parity_distance(input->a, input->b, input->count, unit);
    if (input->rounding.tensors)
        of_rounding =
                1 + parity_factor(input->factor, input->dtype, (size_t)input->rounding.tensors);
    if (input->repeat.tensors)
        of_repeat = parity_factor(input->factor, input->dtype, (size_t)input->repeat.tensors);
    const struct parity_error *rounding = &input->rounding.error, *repeat = &input->repeat.error;
    // A baseline that repeats itself to the last bit says nothing about rounding.
    bool known = input->rounding.tensors || (input->repeat.tensors && repeat->all > 0);
    if (!known) {
        parity_tolerances(input, unit, result);
        return;
    }
    result->rule = of_rounding * rounding->all >= of_repeat * repeat->all
            ? PARITY_RULE_FP64_ANCHORED
            : PARITY_RULE_BASELINE_SPREAD;
    result->limit = (struct parity_error){parity_wider(of_rounding * rounding->all,
                                                  of_repeat * repeat->all, parity_tolerance / 10),
            parity_wider(
                    of_rounding * rounding->chunk, of_repeat * repeat->chunk, parity_tolerance),
            parity_wider(of_rounding * rounding->element, of_repeat * repeat->element,
                    parity_tolerance)};
    parity_hold(result);
    if (parity_allclose(input, parity_tolerance, parity_tolerance * unit))
        result->state = PARITY_PASS;
}

struct parity_result parity_compare(const struct parity_input *input)
{
    struct parity_result result = {
            .state = PARITY_PASS,
            .rule = PARITY_RULE_BITWISE,
            .error_a = {NAN, NAN, NAN},
            .error_b = {NAN, NAN, NAN},
            .limit = {NAN, NAN, NAN},
            .cosine = NAN,
    };
    if (input->count == 0) {
        result.state = PARITY_INCONCLUSIVE;
        return result;
    }
    if (!parity_finite(input, &result))
        return result;
    if (result.unequal == 0) {
        result.error_b = (struct parity_error){0, 0, 0};
        return result;
    }
    result.cosine = parity_cosine(input);
    result.anchor_broken = parity_anchor_broken(input);
    struct parity_result anchored = result;
    if (input->anchor)
        parity_anchored(input, &anchored);
    // Where the rest of a broken anchor shows that the candidate is further off, that stands.
    if (input->anchor &&
            (!result.anchor_broken ||
                    (anchored.state == PARITY_FAIL && !isnan(anchored.limit.all))))
        return anchored;
    parity_without_anchor(input, &result);
    return result;
}

const char *parity_rule_name(enum parity_rule rule)
{
    static const char *const names[PARITY_RULE_COUNT] = {
            [PARITY_RULE_BITWISE] = "bitwise",
            [PARITY_RULE_FP64_ANCHORED] = "fp64-anchored",
            [PARITY_RULE_BASELINE_SPREAD] = "baseline-spread",
            [PARITY_RULE_TORCH_TESTING] = "torch-testing",
            [PARITY_RULE_FINITE] = "finite",
    };
    return rule < PARITY_RULE_COUNT ? names[rule] : "unknown";
}
