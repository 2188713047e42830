// SPDX-License-Identifier: Apache-2.0
// Gradient check against central differences, in fp64: perturbs each value of an array, calls back
// for the scalar that depends on it, and compares with the gradient claimed.
#ifndef UPGATE_TESTS_UNIT_TEST_NATIVE_GRADIENT_H
#define UPGATE_TESTS_UNIT_TEST_NATIVE_GRADIENT_H

#include <stddef.h>

#include "reference_models/native/rng.h"
#include "runner.h"

#define GRADIENT_STEP 1e-5
// The difference quotient errs by about step^2 and by 1e-16 / step.
#define GRADIENT_TOLERANCE 2e-8

typedef double (*gradient_fn)(void *arg);

// Every `stride`-th value. fn(arg) must depend on x[0..count).
static inline void gradient_check(
        gradient_fn fn, void *arg, double *x, const double *claimed, size_t count, size_t stride)
{
    double largest = 0;
    for (size_t i = 0; i < count; i += stride) {
        double old = x[i];
        x[i] = old + GRADIENT_STEP;
        double above = fn(arg);
        x[i] = old - GRADIENT_STEP;
        double below = fn(arg);
        x[i] = old;
        double measured = (above - below) / (2 * GRADIENT_STEP);
        CHECK_DBL(claimed[i], measured, GRADIENT_TOLERANCE * (1 + fabs(measured)));
        largest = fmax(largest, fabs(measured));
    }
    CHECK(largest > 1e-4); // an output that does not depend on x would pass anything
}

static inline void gradient_draw(double *to, size_t count, uint64_t seed)
{
    struct rng rng = rng_stream(seed, 99, 0);
    for (size_t i = 0; i < count; i++)
        to[i] = rng_signed(&rng);
}

// The scalar of a vector output: its dot product with fixed weights, whose gradient is the weights.
static inline double gradient_dot(const double *y, const double *weight, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += y[i] * weight[i];
    return sum;
}

#endif
