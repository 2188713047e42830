// SPDX-License-Identifier: Apache-2.0
// Counts of two Poisson-like rates: the exact conditional test, and Clopper-Pearson bounds, both on
// counts divided by their dispersion.
#include "reports/analyse/mismatch.h"

#include <math.h>

#include "reports/analyse/binomial.h"

// torch._dynamo.utils.same() takes masks for equal that agree in 99 %.
static const double mismatch_gross = 0.01;
// Where the limit is that as many may differ as of values that have nothing to do with each other
// (nearly all tokens, half of a mask of two balanced classes), a pass needs half as many at most.
// Below the floor the limit is one of rounding, whatever the classes are.
static const double mismatch_vague = 0.5, mismatch_vague_floor = 0.1;

void mismatch_add(struct mismatch_counts *counts, long differ, long compared)
{
    if (compared <= 0)
        return;
    double share = (double)differ / (double)compared;
    double p = share > mismatch_gross ? binomial_tail(differ, compared, mismatch_gross) : 1;
    counts->least_p = counts->tensors == 0 || p < counts->least_p ? p : counts->least_p;
    counts->most = fmax(counts->most, share);
    counts->differ += differ;
    counts->compared += compared;
    counts->squares += (double)differ * (double)differ;
    counts->tensors++;
}

void mismatch_add_unrelated(struct mismatch_counts *counts, long differ, long compared)
{
    counts->unrelated_differ += differ;
    counts->unrelated_compared += compared;
}

// The rate of values that have nothing to do with each other. Not known: all of them.
static double mismatch_unrelated(const struct mismatch_counts *counts)
{
    return counts->unrelated_compared
            ? (double)counts->unrelated_differ / (double)counts->unrelated_compared
            : 1;
}

// Variance over mean of the counts of the tensors, at least 1: one early flip changes all tokens
// behind it, and is one event.
static double mismatch_dispersion(const struct mismatch_counts *counts)
{
    if (counts->tensors < 2 || !counts->differ)
        return 1;
    double mean = (double)counts->differ / (double)counts->tensors;
    double variance = (counts->squares - (double)counts->tensors * mean * mean) /
            ((double)counts->tensors - 1);
    return fmax(1, variance / mean);
}

static double mismatch_rate(const struct mismatch_counts *counts)
{
    return counts->compared ? (double)counts->differ / (double)counts->compared : NAN;
}

struct mismatch_result mismatch_compare(const struct mismatch_input *input)
{
    const struct mismatch_counts *sides = &input->sides, *own = &input->own;
    struct mismatch_result result = {.state = MISMATCH_NONE,
            .rate = mismatch_rate(sides),
            .rate_own = mismatch_rate(own),
            .upper = NAN,
            .limit = NAN};
    if (!sides->differ)
        return result;
    // As many tensors were looked at as there are chances that one is gross by chance.
    if (sides->least_p * (double)sides->tensors < input->alpha &&
            sides->most > input->factor * own->most) {
        result.state = MISMATCH_GROSS;
        return result;
    }
    result.state = MISMATCH_UNKNOWN;
    if (!own->compared)
        return result;
    double scale = fmax(mismatch_dispersion(sides), mismatch_dispersion(own));
    long differ = lround(ceil((double)sides->differ / scale));
    long compared = lround(ceil((double)sides->compared / scale));
    long differ_own = lround((double)own->differ / scale);
    long compared_own = lround(fmax(1, (double)own->compared / scale));
    // Given their sum, the candidate's count is binomial when its rate is `factor` times the other.
    double weight = input->factor * (double)compared;
    double p = binomial_tail(differ, differ + differ_own, weight / (weight + (double)compared_own));
    result.upper = binomial_upper_bound(differ, compared, 1 - input->alpha);
    result.limit = fmin(
            1, input->factor * binomial_upper_bound(differ_own, compared_own, 1 - input->alpha));
    double unrelated = mismatch_unrelated(sides);
    bool vague = result.limit >= fmax(unrelated, mismatch_vague_floor) &&
            result.upper > mismatch_vague * unrelated;
    result.state = p < input->alpha        ? MISMATCH_BEYOND
            : vague                        ? MISMATCH_VAGUE
            : result.upper <= result.limit ? MISMATCH_WITHIN
                                           : MISMATCH_OPEN;
    return result;
}
